//! A scanner as if it stood on another machine: it speaks the protocol of clamd, waits, and says that the message is
//! clean.
//!
//! One thread, one task a connection. Octets of messages are read and skipped, so that it takes little of the processor
//! time that the server under measurement needs; what it takes is known.

use rustix::time::{ClockId, clock_gettime};
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// Octets that are read at once: a message of this benchmark in one read.
const READ_BYTES: usize = 16 << 10;
/// How often the processor time of the thread is noted.
const NOTE_EVERY: Duration = Duration::from_millis(100);

/// A running scanner. Dropping it closes its connections.
#[derive(Debug)]
pub(super) struct DistantScanner {
    pub(super) at: SocketAddr,
    cpu_us: Arc<AtomicU64>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl DistantScanner {
    /// Listens on a free port of 127.0.0.1 and answers each question after `delay`.
    ///
    /// # Errors
    /// There is no port, or no thread.
    pub(super) fn start(delay: Duration) -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
        let at = listener.local_addr()?;
        let cpu_us = Arc::new(AtomicU64::new(0));
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("distant-scanner".to_owned()).spawn({
            let cpu_us = Arc::clone(&cpu_us);
            move || {
                runtime.block_on(async {
                    // Each of these may be dropped at any time.
                    tokio::select! {
                        () = accept(&listener, delay) => {}
                        () = note_time(&cpu_us) => {}
                        _ = stopped => {}
                    }
                });
            }
        })?;
        Ok(Self { at, cpu_us, stop: Some(stop), thread: Some(thread) })
    }

    /// Processor time of its thread so far, in microseconds; up to 100 ms old.
    pub(super) fn cpu_us(&self) -> u64 {
        self.cpu_us.load(Ordering::Relaxed)
    }
}

impl Drop for DistantScanner {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            drop(thread.join());
        }
    }
}

async fn note_time(cpu_us: &AtomicU64) {
    let mut interval = tokio::time::interval(NOTE_EVERY);
    loop {
        interval.tick().await;
        let time = clock_gettime(ClockId::ThreadCPUTime);
        let us = time.tv_sec.saturating_mul(1_000_000).saturating_add(time.tv_nsec / 1_000);
        cpu_us.store(u64::try_from(us).unwrap_or(0), Ordering::Relaxed);
    }
}

/// Accepts for ever.
async fn accept(listener: &TcpListener, delay: Duration) {
    while let Ok((stream, _)) = listener.accept().await {
        // It ends with its connection.
        drop(tokio::spawn(async move { drop(answer(stream, delay).await) }));
    }
}

/// Answers all questions of a connection.
async fn answer(stream: TcpStream, delay: Duration) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let mut stream = BufReader::with_capacity(READ_BYTES, stream);
    let (mut command, mut number, mut is_session) = (Vec::new(), 0_u64, false);
    loop {
        command.clear();
        if stream.read_until(0, &mut command).await? == 0 {
            return Ok(());
        }
        match command.as_slice() {
            b"zIDSESSION\0" => is_session = true,
            b"zINSTREAM\0" => {
                number += 1;
                skip(&mut stream).await?;
                tokio::time::sleep(delay).await;
                let reply = if is_session { format!("{number}: stream: OK\0") } else { "stream: OK\0".to_owned() };
                stream.write_all(reply.as_bytes()).await?;
                if !is_session {
                    return Ok(());
                }
            }
            _ => return Err(io::ErrorKind::InvalidInput.into()),
        }
    }
}

/// Skips a message: chunks behind their lengths, the last one empty.
async fn skip(stream: &mut BufReader<TcpStream>) -> io::Result<()> {
    loop {
        let mut left = stream.read_u32().await? as usize;
        if left == 0 {
            return Ok(());
        }
        while left > 0 {
            let there = stream.fill_buf().await?.len().min(left);
            if there == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
            stream.consume(there);
            left -= there;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};

    #[test]
    fn it_answers_each_message_of_a_session_after_its_delay() {
        let scanner = DistantScanner::start(Duration::from_millis(20)).unwrap();
        let mut stream = std::net::TcpStream::connect(scanner.at).unwrap();
        stream.write_all(b"zIDSESSION\0").unwrap();
        for number in 1..=2 {
            let before = crate::clock::now();
            stream.write_all(b"zINSTREAM\0\0\0\0\x03abc\0\0\0\x01d\0\0\0\0").unwrap();
            let mut reply = vec![0; 14];
            stream.read_exact(&mut reply).unwrap();
            assert_eq!(reply, format!("{number}: stream: OK\0").as_bytes());
            assert!(before.elapsed() >= Duration::from_millis(20));
        }
    }
}

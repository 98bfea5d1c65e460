//! The filter of a relay that is killed: a scanner that remembers the messages that it let pass.
//!
//! One thread, one task a connection. It answers as clamd does, which changes nothing, and as spamd does, after which
//! the server adds fields. It records a message before the verdict leaves, so each message that arrives must be in its
//! record, whenever the server was killed. At times it closes the connection in place of a verdict.

use crate::storm::{self, Arrived};
use std::collections::HashSet;
use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::oneshot;

/// Octets of the largest message of a storm, with room for header fields.
const MESSAGE_BYTES_MAX: usize = 4 << 20;
/// Begins a stream of clamd.
const INSTREAM: &[u8] = b"zINSTREAM\0";
/// Begins a session of clamd, in which replies have the number of their question. Here it has one.
const IDSESSION: &[u8] = b"zIDSESSION\0";
const CLEAN: &[u8] = b"stream: OK\0";
const CLEAN_IN_SESSION: &[u8] = b"1: stream: OK\0";
const HAM: &[u8] = b"SPAMD/1.1 0 EX_OK\r\nContent-length: 2\r\nSpam: False ; 0.0 / 5.0\r\n\r\n\r\n";

/// A running scanner. Dropping it closes its connections.
#[derive(Debug)]
pub(super) struct WitnessScanner {
    at: SocketAddr,
    shared: Arc<WitnessState>,
    stop: Option<oneshot::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

#[derive(Debug, Default)]
struct WitnessState {
    passed: Mutex<HashSet<Arrived>>,
    questions: AtomicU64,
    /// Every so many questions one has no answer; 0: all have.
    fails_every: AtomicU64,
}

impl WitnessScanner {
    /// Listens on a free port of 127.0.0.1.
    ///
    /// # Errors
    /// There is none, or no thread.
    pub(super) fn start() -> io::Result<Self> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        let listener = runtime.block_on(TcpListener::bind((Ipv4Addr::LOCALHOST, 0)))?;
        let at = listener.local_addr()?;
        let shared = Arc::new(WitnessState::default());
        let (stop, stopped) = oneshot::channel();
        let thread = std::thread::Builder::new().name("scanner".to_owned()).spawn({
            let shared = Arc::clone(&shared);
            move || {
                runtime.block_on(async {
                    // Accepting is cancel-safe.
                    tokio::select! {
                        () = accept(&listener, &shared) => {}
                        _ = stopped => {}
                    }
                });
            }
        })?;
        Ok(Self { at, shared, stop: Some(stop), thread: Some(thread) })
    }

    /// Where it listens.
    pub(super) const fn at(&self) -> SocketAddr {
        self.at
    }

    /// Has one of so many questions fail; 0: none.
    pub(super) fn fail_every(&self, questions: u64) {
        self.shared.fails_every.store(questions, Ordering::Relaxed);
    }

    /// Whether it let this message pass.
    pub(super) fn has_passed(&self, message: &Arrived) -> bool {
        self.shared.passed.lock().unwrap_or_else(PoisonError::into_inner).contains(message)
    }

    /// Returns how many messages it let pass.
    pub(super) fn passed(&self) -> u64 {
        self.shared.passed.lock().unwrap_or_else(PoisonError::into_inner).len() as u64
    }
}

impl Drop for WitnessScanner {
    fn drop(&mut self) {
        drop(self.stop.take());
        if let Some(thread) = self.thread.take() {
            // A panic in there is a panic of the rig, and its tests or its findings say so.
            drop(thread.join());
        }
    }
}

impl WitnessState {
    /// Records the message and returns whether it gets a verdict.
    fn pass(&self, content: &[u8]) -> bool {
        let question = self.questions.fetch_add(1, Ordering::Relaxed) + 1;
        let every = self.fails_every.load(Ordering::Relaxed);
        if every > 0 && question.is_multiple_of(every) {
            return false;
        }
        if let Ok(message) = storm::arrived(content) {
            self.passed.lock().unwrap_or_else(PoisonError::into_inner).insert(message);
        }
        true
    }
}

/// Accepts for ever.
async fn accept(listener: &TcpListener, shared: &Arc<WitnessState>) {
    while let Ok((stream, _)) = listener.accept().await {
        let shared = Arc::clone(shared);
        // It ends with its question; one that was cut off is none.
        drop(tokio::spawn(async move { drop(answer(stream, &shared).await) }));
    }
}

/// Answers the question of a connection.
async fn answer(mut stream: TcpStream, shared: &WitnessState) -> io::Result<()> {
    let mut request = Vec::new();
    loop {
        let asked = match request.strip_prefix(IDSESSION) {
            Some(question) => stream_of_clamd(question).map(|(content, _)| (content, CLEAN_IN_SESSION)),
            None if request.starts_with(INSTREAM) => stream_of_clamd(&request),
            None => message_of_spamd(&request),
        };
        if let Some((content, reply)) = asked {
            return if shared.pass(&content) { stream.write_all(reply).await } else { Ok(()) };
        }
        if stream.read_buf(&mut request).await? == 0 || request.len() > MESSAGE_BYTES_MAX {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}

/// Returns the message of a whole stream: chunks behind their lengths, the last one empty.
fn stream_of_clamd(request: &[u8]) -> Option<(Vec<u8>, &'static [u8])> {
    let (mut content, mut rest) = (Vec::new(), request.strip_prefix(INSTREAM)?);
    loop {
        let (length, after) = rest.split_first_chunk::<4>()?;
        let length = usize::try_from(u32::from_be_bytes(*length)).ok()?;
        if length == 0 {
            return Some((content, CLEAN));
        }
        let (chunk, after) = after.split_at_checked(length)?;
        content.extend_from_slice(chunk);
        rest = after;
    }
}

/// Returns the message behind the head of a request, whose field `Content-length` has its octets.
fn message_of_spamd(request: &[u8]) -> Option<(Vec<u8>, &'static [u8])> {
    let end = request.windows(4).position(|four| four == b"\r\n\r\n")? + 4;
    let (head, content) = request.split_at(end);
    let head = std::str::from_utf8(head).ok()?;
    let length: usize = head.lines().find_map(|line| line.strip_prefix("Content-length: "))?.parse().ok()?;
    (content.len() >= length).then(|| (content.to_vec(), HAM))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::{Read as _, Write as _};

    fn said(scanner: &WitnessScanner, request: &[u8]) -> Vec<u8> {
        let mut stream = std::net::TcpStream::connect(scanner.at()).unwrap();
        stream.write_all(request).unwrap();
        let mut said = Vec::new();
        stream.read_to_end(&mut said).unwrap();
        said
    }

    #[test]
    fn it_remembers_what_it_lets_pass_and_nothing_else() {
        let scanner = WitnessScanner::start().unwrap();
        let text = b"one text\r\n";
        let of = |seq: u64| {
            let crc = crc32c::crc32c(text);
            [format!("X-Mailrace-Storm: run/{seq}/{crc:08x}\r\n\r\n").as_bytes(), text].concat()
        };
        let message = |seq| Arrived { run: "run".to_owned(), seq };
        let [first, second, third] = [1, 2, 3].map(of);
        let length = |octets: &[u8]| u32::try_from(octets.len()).unwrap().to_be_bytes();
        let (one, other) = first.split_at(9);
        let stream = [INSTREAM, &length(one), one, &length(other), other, &[0; 4]].concat();
        assert_eq!(said(&scanner, &stream), CLEAN);
        assert_eq!(said(&scanner, &[IDSESSION, &stream].concat()), CLEAN_IN_SESSION);
        let head = format!("SYMBOLS SPAMC/1.5\r\nContent-length: {}\r\n\r\n", second.len());
        assert_eq!(said(&scanner, &[head.as_bytes(), &second].concat()), HAM);
        // It is the fourth question.
        scanner.fail_every(4);
        assert!(said(&scanner, &[head.as_bytes(), &third].concat()).is_empty());
        assert_eq!([1, 2, 3].map(|seq| scanner.has_passed(&message(seq))), [true, true, false]);
        assert_eq!(scanner.passed(), 2);
    }
}

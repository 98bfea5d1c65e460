//! The next hop: the receiving program, and its number of messages so far.
//!
//! Other benchmarks use `smtp-sink`. It writes a running count with each message; here into a file in memory, of which
//! the end is read now and then, so that counting wakes no process. Our own receiver also looks at its messages.

use crate::clock;
use crate::receiver::{Manners, Receiver};
use std::fs::{self, File};
use std::io::{Read as _, Seek as _, SeekFrom};
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Connections `smtp-sink` serves at a time; its own default of 256 would hold a server back.
const CONNECTIONS: &str = "4000";
/// The longest wait for it to listen.
const PATIENCE: Duration = Duration::from_secs(10);
/// The end of its file in which the last count stands whole: a line is shorter than half of it.
const TAIL: u64 = 200;

/// A receiver at work. Dropping it ends it.
#[derive(Debug)]
pub(super) enum Hop {
    Sink(Sink),
    Own(Receiver),
}

/// A running `smtp-sink`.
#[derive(Debug)]
pub(super) struct Sink {
    child: Child,
    at: SocketAddr,
    said: PathBuf,
}

impl Hop {
    /// Starts `smtp-sink` on a free port.
    ///
    /// # Errors
    /// It does not run.
    pub(super) fn sink(memory: &Path) -> Result<Self, String> {
        let told = |e: std::io::Error| format!("smtp-sink: {e}");
        // It takes no port 0; no other program looks for a port in the moment between.
        let at = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|free| free.local_addr()).map_err(told)?;
        let said = memory.join(format!("mailrace-sink-{}-{}", std::process::id(), at.port()));
        let out = File::create(&said).map_err(told)?;
        let mut command = Command::new("smtp-sink");
        if rustix::process::geteuid().is_root() {
            command.args(["-u", "nobody"]);
        }
        command.args(["-c", "-m", CONNECTIONS]).arg(at.to_string()).arg("1024");
        let child = command.stdin(Stdio::null()).stdout(out).stderr(Stdio::null()).spawn().map_err(told)?;
        let mut sink = Sink { child, at, said };
        let until = clock::now() + PATIENCE;
        while TcpStream::connect(at).is_err() {
            if clock::now() > until || !matches!(sink.child.try_wait(), Ok(None)) {
                return Err(format!("smtp-sink does not listen on {at}"));
            }
            clock::pause(Duration::from_millis(5));
        }
        Ok(Self::Sink(sink))
    }

    /// Starts our own receiver, which records its messages.
    ///
    /// # Errors
    /// The system gives no port or thread.
    pub(super) fn own() -> Result<Self, String> {
        let manners = Manners { chunking: true, ..Manners::default() };
        Receiver::start(true, manners).map(Self::Own).map_err(|e| format!("receiver: {e}"))
    }

    /// Where it listens.
    pub(super) fn at(&self) -> SocketAddr {
        match self {
            Self::Sink(sink) => sink.at,
            Self::Own(receiver) => receiver.at(),
        }
    }

    /// Messages so far.
    pub(super) fn count(&self) -> u64 {
        match self {
            Self::Sink(sink) => sink.count().unwrap_or(0),
            Self::Own(receiver) => receiver.count(),
        }
    }
}

impl Sink {
    fn count(&self) -> Option<u64> {
        let mut file = File::open(&self.said).ok()?;
        let length = file.metadata().ok()?.len();
        file.seek(SeekFrom::Start(length.saturating_sub(TAIL))).ok()?;
        let mut text = Vec::new();
        file.read_to_end(&mut text).ok()?;
        last_count(&String::from_utf8_lossy(&text))
    }
}

/// The last whole "mesg=NUMBER" of the output of `smtp-sink`; a carriage return ends each line.
fn last_count(text: &str) -> Option<u64> {
    let whole = text.get(..=text.rfind('\r')?)?;
    whole.rsplit("mesg=").next()?.split_whitespace().next()?.parse().ok()
}

impl Drop for Sink {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        drop(fs::remove_file(&self.said));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_last_whole_count_is_read() {
        assert_eq!(last_count("sess=1 quit=0 mesg=9\rsess=4 quit=2 mesg=200\r"), Some(200));
        assert_eq!(last_count("quit=0 mesg=9 max=3\rsess=4 quit=2 mesg=20"), Some(9));
        assert_eq!(last_count("mesg=3"), None);
        assert_eq!(last_count(""), None);
    }
}

//! A connection to a filter: a UNIX or TCP socket, with the time for each answer and for a message.

use super::settings::FilterSettings;
use crate::config::FilterAddress;
use os::clock;
use os::error::words;
use std::fmt;
use std::io;
use std::time::{Duration, Instant};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UnixStream};
use tokio::time::timeout_at;

/// Octets that are read at once.
const READ_BYTES: usize = 16 << 10;

/// Why a filter gave no answer. The text is for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct FilterError {
    /// The step at which it failed: `connect`, `rcpt`, `eom`.
    pub(crate) stage: &'static str,
    /// The reason.
    pub(crate) text: String,
}

impl fmt::Display for FilterError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.stage, self.text)
    }
}

impl FilterError {
    pub(super) fn new(stage: &'static str, text: impl fmt::Display) -> Self {
        Self { stage, text: text.to_string() }
    }
}

#[derive(Debug)]
enum FilterStream {
    Unix(UnixStream),
    Tcp(TcpStream),
}

/// An open connection.
#[derive(Debug)]
pub(super) struct FilterConnection {
    stream: FilterStream,
    /// The longest wait for one answer.
    timeout: Duration,
    /// The end of the time with the present message.
    ends: Instant,
    /// It was idle before the present question.
    is_reused: bool,
    /// Octets of an answer to the present question have come, or its time is over.
    is_answered: bool,
}

impl FilterConnection {
    /// Connects. The time with a message begins.
    ///
    /// # Errors
    /// Nothing listens there, or it does not accept in time.
    /// # Cancel safety
    /// Yes.
    pub(super) async fn open(settings: &FilterSettings) -> Result<Self, FilterError> {
        let now = clock::now();
        let ends = now + settings.total_timeout;
        let connecting = async {
            Ok::<_, io::Error>(match &settings.address {
                FilterAddress::Unix(path) => FilterStream::Unix(UnixStream::connect(path).await?),
                FilterAddress::Tcp(host, port) => {
                    let stream = TcpStream::connect((host.as_str(), *port)).await?;
                    stream.set_nodelay(true)?;
                    FilterStream::Tcp(stream)
                }
            })
        };
        let until = ends.min(now + settings.timeout);
        match timeout_at(until.into(), connecting).await {
            Ok(Ok(stream)) => {
                Ok(Self { stream, timeout: settings.timeout, ends, is_reused: false, is_answered: false })
            }
            Ok(Err(error)) => Err(FilterError::new("connect", words(&error))),
            Err(_) => Err(FilterError::new("connect", late(until.saturating_duration_since(now)))),
        }
    }

    /// Begins the time with a message anew.
    pub(super) fn begin_message(&mut self, total: Duration) {
        self.ends = clock::now() + total;
    }

    /// Ends a question: nothing is owed on the connection until the next one.
    pub(super) const fn rest(&mut self) {
        (self.is_reused, self.is_answered) = (true, false);
    }

    /// Whether no question was asked on it before.
    pub(super) const fn is_new(&self) -> bool {
        !self.is_reused
    }

    /// Whether a failed question met the end of a connection that was idle before. The filter has not answered it, so
    /// it may be asked again over a new connection.
    pub(super) const fn is_stale(&self) -> bool {
        self.is_reused && !self.is_answered
    }

    /// Writes all octets.
    ///
    /// # Errors
    /// The filter closed the connection, or takes nothing in time.
    /// # Cancel safety
    /// No: some octets may have been sent. Drop the connection.
    pub(super) async fn write(&mut self, stage: &'static str, octets: &[u8]) -> Result<(), FilterError> {
        let (now, until) = self.limit();
        let writing = async {
            match &mut self.stream {
                FilterStream::Unix(stream) => stream.write_all(octets).await,
                FilterStream::Tcp(stream) => stream.write_all(octets).await,
            }
        };
        match timeout_at(until.into(), writing).await {
            Ok(written) => written.map_err(|error| FilterError::new(stage, words(&error))),
            Err(_) => {
                self.is_answered = true;
                Err(FilterError::new(stage, late(until.saturating_duration_since(now))))
            }
        }
    }

    /// Reads what comes; nothing: the filter closed the connection.
    ///
    /// # Errors
    /// The connection is lost, or nothing comes in time.
    /// # Cancel safety
    /// Yes.
    pub(super) async fn read(&mut self, stage: &'static str) -> Result<Vec<u8>, FilterError> {
        let mut octets = Vec::with_capacity(READ_BYTES);
        let (now, until) = self.limit();
        let reading = async {
            match &mut self.stream {
                FilterStream::Unix(stream) => stream.read_buf(&mut octets).await,
                FilterStream::Tcp(stream) => stream.read_buf(&mut octets).await,
            }
        };
        match timeout_at(until.into(), reading).await {
            Ok(Ok(count)) => {
                self.is_answered |= count > 0;
                Ok(octets)
            }
            Ok(Err(error)) => Err(FilterError::new(stage, words(&error))),
            Err(_) => {
                self.is_answered = true;
                Err(FilterError::new(stage, late(until.saturating_duration_since(now))))
            }
        }
    }

    /// Whether octets wait that nothing was asked for, or the filter has closed the connection.
    pub(super) fn has_unread(&self) -> bool {
        let mut octet = [0];
        let read = match &self.stream {
            FilterStream::Unix(stream) => stream.try_read(&mut octet),
            FilterStream::Tcp(stream) => stream.try_read(&mut octet),
        };
        !matches!(read, Err(error) if error.kind() == io::ErrorKind::WouldBlock)
    }

    fn limit(&self) -> (Instant, Instant) {
        let now = clock::now();
        (now, self.ends.min(now + self.timeout))
    }
}

fn late(time: Duration) -> String {
    format!("no answer within {:.1} s", time.as_secs_f64())
}

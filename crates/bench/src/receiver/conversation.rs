//! One connection to the receiver: SMTP as far as a relay needs it, it accepts every parameter.
//!
//! Replies are kept back while commands are waiting in the buffer, so that a pipelined flight is answered with one
//! write.

use super::ReceiverState;
use crate::storm;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

/// The longest line of a command.
const LINE_MAX: usize = 8 << 10;
/// The longest content; a longer one is a mistake of the rig.
const CONTENT_MAX: usize = 64 << 20;
/// Octets asked of the socket at a time.
const READ: usize = 64 << 10;

/// A connection.
pub(super) struct Conversation {
    stream: TcpStream,
    shared: Arc<ReceiverState>,
    input: Vec<u8>,
    /// Octets of `input` that are done with.
    done: usize,
    output: Vec<u8>,
    hello: Arc<str>,
    has_sender: bool,
    recipients: Vec<String>,
    content: Vec<u8>,
}

/// The request in a line of a client.
enum Verb<'a> {
    Hello { name: &'a str, extended: bool },
    Mail,
    Rcpt(&'a str),
    Data,
    Bdat { octets: usize, is_last: bool },
    Rset,
    Noop,
    Quit,
    Other,
}

impl Conversation {
    pub(super) fn new(stream: TcpStream, shared: Arc<ReceiverState>) -> Self {
        Self {
            stream,
            shared,
            input: Vec::new(),
            done: 0,
            output: Vec::new(),
            hello: Arc::from(""),
            has_sender: false,
            recipients: Vec::new(),
            content: Vec::new(),
        }
    }

    /// Serves it to its end; not cancel-safe.
    ///
    /// # Errors
    /// The connection broke, or the client sent what no client sends.
    pub(super) async fn run(mut self) -> io::Result<()> {
        self.stream.set_nodelay(true)?;
        self.reply("220 receiver.example ESMTP");
        loop {
            let line = self.command().await?;
            match verb(&line) {
                Verb::Hello { name, extended } => {
                    self.hello = Arc::from(name);
                    self.forget();
                    self.greet(extended);
                }
                Verb::Mail => {
                    self.forget();
                    self.has_sender = true;
                    self.reply("250 2.1.0 Ok");
                }
                Verb::Rcpt(_) if !self.has_sender => self.reply("503 5.5.1 MAIL first"),
                Verb::Rcpt(address) => {
                    self.recipients.push(address.to_owned());
                    self.reply("250 2.1.5 Ok");
                }
                Verb::Data if self.recipients.is_empty() => self.reply("503 5.5.1 RCPT first"),
                Verb::Data => {
                    self.reply("354 Go on");
                    self.text().await?;
                    self.arrived().await;
                }
                Verb::Bdat { octets, is_last } => {
                    self.chunk(octets).await?;
                    match (self.recipients.is_empty(), is_last) {
                        (true, _) => self.reply("503 5.5.1 RCPT first"),
                        (false, true) => self.arrived().await,
                        (false, false) => self.reply("250 2.0.0 Ok"),
                    }
                }
                Verb::Rset => {
                    self.forget();
                    self.reply("250 2.0.0 Ok");
                }
                Verb::Noop => self.reply("250 2.0.0 Ok"),
                Verb::Quit => {
                    self.reply("221 2.0.0 Bye");
                    return self.flush().await;
                }
                Verb::Other => self.reply("500 5.5.2 What?"),
            }
        }
    }

    fn reply(&mut self, text: &str) {
        self.output.extend_from_slice(text.as_bytes());
        self.output.extend_from_slice(b"\r\n");
    }

    fn greet(&mut self, extended: bool) {
        if !extended {
            return self.reply("250 receiver.example");
        }
        self.reply("250-receiver.example");
        if self.shared.manners().chunking {
            self.reply("250-CHUNKING");
        }
        for extension in ["PIPELINING", "8BITMIME", "SMTPUTF8", "DSN", "ENHANCEDSTATUSCODES"] {
            self.reply(&format!("250-{extension}"));
        }
        self.reply(&format!("250 SIZE {CONTENT_MAX}"));
    }

    fn forget(&mut self) {
        self.has_sender = false;
        self.recipients.clear();
        self.content.clear();
    }

    /// Records the message and answers it.
    async fn arrived(&mut self) {
        let delay = self.shared.manners().delay;
        if delay > Duration::ZERO {
            tokio::time::sleep(delay).await;
        }
        let what = self.shared.keeps.then(|| storm::arrived(&self.content));
        self.shared.record(what, std::mem::take(&mut self.recipients), &self.hello);
        self.forget();
        self.reply("250 2.0.0 Recorded");
    }

    /// Reads up to the dot.
    async fn text(&mut self) -> io::Result<()> {
        let mut was_ended = true;
        while !self.lines(&mut was_ended)? {
            self.fill().await?;
        }
        Ok(())
    }

    /// Takes the whole lines of a content that are there; true after the dot. `was_ended`: the line before ended in
    /// CRLF.
    fn lines(&mut self, was_ended: &mut bool) -> io::Result<bool> {
        loop {
            let rest = self.input.get(self.done..).unwrap_or_default();
            let Some(end) = rest.iter().position(|octet| *octet == b'\n') else {
                return if rest.len() > CONTENT_MAX { Err(io::ErrorKind::InvalidData.into()) } else { Ok(false) };
            };
            let line = rest.get(..=end).unwrap_or_default();
            self.done += line.len();
            if *was_ended && line == b".\r\n" {
                return Ok(true);
            }
            if self.shared.keeps {
                let stuffed = usize::from(*was_ended && line.starts_with(b"."));
                self.content.extend_from_slice(line.get(stuffed..).unwrap_or_default());
            }
            *was_ended = line.ends_with(b"\r\n");
            if self.content.len() > CONTENT_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
        }
    }

    /// Reads a chunk of BDAT.
    async fn chunk(&mut self, octets: usize) -> io::Result<()> {
        if self.content.len().saturating_add(octets) > CONTENT_MAX {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let mut left = octets;
        while left > 0 {
            let rest = self.input.get(self.done..).unwrap_or_default();
            let piece = rest.get(..left.min(rest.len())).unwrap_or_default();
            if piece.is_empty() {
                self.fill().await?;
                continue;
            }
            if self.shared.keeps {
                self.content.extend_from_slice(piece);
            }
            self.done += piece.len();
            left -= piece.len();
        }
        Ok(())
    }

    /// The next line of the client.
    async fn command(&mut self) -> io::Result<String> {
        loop {
            let rest = self.input.get(self.done..).unwrap_or_default();
            if let Some(end) = rest.iter().position(|octet| *octet == b'\n') {
                let line = String::from_utf8_lossy(rest.get(..end).unwrap_or_default()).trim_end().to_owned();
                self.done += end + 1;
                return Ok(line);
            }
            if rest.len() > LINE_MAX {
                return Err(io::ErrorKind::InvalidData.into());
            }
            self.fill().await?;
        }
    }

    /// Sends the replies, and reads more.
    async fn fill(&mut self) -> io::Result<()> {
        self.flush().await?;
        self.input.drain(..self.done);
        self.done = 0;
        self.input.reserve(READ);
        match self.stream.read_buf(&mut self.input).await? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }

    async fn flush(&mut self) -> io::Result<()> {
        self.stream.write_all(&self.output).await?;
        self.output.clear();
        Ok(())
    }
}

/// Reads a command. Parameters of MAIL and RCPT are passed over: all are accepted.
fn verb(line: &str) -> Verb<'_> {
    let (word, rest) = line.split_once(' ').unwrap_or((line, ""));
    let rest = rest.trim();
    match word.to_ascii_uppercase().as_str() {
        "EHLO" => Verb::Hello { name: rest, extended: true },
        "HELO" => Verb::Hello { name: rest, extended: false },
        "MAIL" => Verb::Mail,
        "RCPT" => {
            let address = rest.split_once('<').and_then(|(_, rest)| rest.rsplit_once('>')).map(|(address, _)| address);
            address.map_or(Verb::Other, Verb::Rcpt)
        }
        "DATA" => Verb::Data,
        "BDAT" => {
            let mut words = rest.split(' ');
            let octets = words.next().and_then(|word| word.parse().ok());
            let is_last = words.next().is_some_and(|word| word.eq_ignore_ascii_case("LAST"));
            octets.map_or(Verb::Other, |octets| Verb::Bdat { octets, is_last })
        }
        "RSET" => Verb::Rset,
        "NOOP" => Verb::Noop,
        "QUIT" => Verb::Quit,
        _ => Verb::Other,
    }
}

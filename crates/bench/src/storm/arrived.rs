//! The other end of a storm: the mark in a stored message, and the acknowledged messages in a ledger.
//!
//! A rig that kills a server under a storm compares the two. Neither needs a list of the sent messages.

use super::message::HEADER;
use std::fmt;
use std::io;
use std::path::Path;

/// Which message of which storm this is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Arrived {
    /// Name of the run.
    pub run: String,
    /// Number within the run, from 0.
    pub seq: u64,
}

impl fmt::Display for Arrived {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}", self.run, self.seq)
    }
}

/// Why a stored message is not what a storm sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotSent {
    /// It has no header section, or none with the line of a storm.
    Foreign,
    /// Its text was changed; the checksums are those of the header line and of the present text.
    Altered {
        /// Which message.
        of: Arrived,
        /// As it was sent.
        sent: u32,
        /// As it is.
        found: u32,
    },
}

impl fmt::Display for NotSent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Foreign => f.write_str("no storm sent this: it lacks the line X-Mailrace-Storm"),
            Self::Altered { of, sent, found } => {
                write!(f, "the text of {of} has the checksum {found:08x}; sent was {sent:08x}")
            }
        }
    }
}

impl std::error::Error for NotSent {}

/// Reads a message as a server stored it, with the trace lines it put before, and compares its checksum.
///
/// # Errors
/// No storm sent it, or not like this.
pub fn arrived(message: &[u8]) -> Result<Arrived, NotSent> {
    let end = message.windows(4).position(|four| four == b"\r\n\r\n").ok_or(NotSent::Foreign)?;
    let (header, text) = message.split_at(end + 4);
    let header = std::str::from_utf8(header).map_err(|_| NotSent::Foreign)?;
    let value = header.split("\r\n").find_map(|line| line.strip_prefix(HEADER)).ok_or(NotSent::Foreign)?;
    let (of, sent) = own_line(value.trim()).ok_or(NotSent::Foreign)?;
    let found = crc32c::crc32c(text);
    if found == sent { Ok(of) } else { Err(NotSent::Altered { of, sent, found }) }
}

/// `RUN/SEQ/CRC`; a run may have slashes.
fn own_line(value: &str) -> Option<(Arrived, u32)> {
    let (rest, crc) = value.rsplit_once('/')?;
    let (run, seq) = rest.rsplit_once('/')?;
    Some((Arrived { run: run.to_owned(), seq: seq.parse().ok()? }, u32::from_str_radix(crc, 16).ok()?))
}

/// A line of a ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acknowledged {
    /// Number of the message within its run.
    pub seq: u64,
    /// The queue id of the reply, `-` if it named none.
    pub id: String,
}

/// Reads the ledger of a run that is over.
///
/// # Errors
/// The file cannot be read, or has a line that no storm wrote.
pub fn acknowledged(ledger: &Path) -> io::Result<Vec<Acknowledged>> {
    let text = std::fs::read_to_string(ledger)?;
    let read = |(at, line): (usize, &str)| {
        let mut words = line.split(' ');
        let seq = words.next().and_then(|word| word.parse().ok());
        match (seq, words.next(), words.next().map(str::parse::<u64>), words.next()) {
            (Some(seq), Some(id), Some(Ok(_)), None) => Ok(Acknowledged { seq, id: id.to_owned() }),
            _ => Err(io::Error::new(
                io::ErrorKind::InvalidData,
                format!("{} line {}: {line:?} is no line of a ledger", ledger.display(), at + 1),
            )),
        }
    };
    text.lines().enumerate().map(read).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn message(crc: &str) -> Vec<u8> {
        format!("Received: by x\r\n\ta fold\r\nX-Mailrace-Storm: a/b/000000000007/{crc}\r\n\r\ntext\r\n").into_bytes()
    }

    #[test]
    fn a_message_is_known_by_its_line_and_its_text() {
        let of = Arrived { run: "a/b".to_owned(), seq: 7 };
        let found = crc32c::crc32c(b"text\r\n");
        let whole = message(&format!("{found:08x}"));
        assert_eq!(arrived(&whole), Ok(of.clone()));
        assert_eq!(arrived(&message("00000001")), Err(NotSent::Altered { of, sent: 1, found }));
        let cut = whole.get(..whole.len() - 1).unwrap();
        assert!(matches!(arrived(cut), Err(NotSent::Altered { .. })));
        for foreign in
            [&b""[..], b"Subject: x\r\n\r\ntext", b"X-Mailrace-Storm: 1\r\n\r\n", b"X-Mailrace-Storm: a/1/2\r\n"]
        {
            assert_eq!(arrived(foreign), Err(NotSent::Foreign), "{foreign:?}");
        }
    }
}

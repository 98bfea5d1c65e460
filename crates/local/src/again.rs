//! A message that may stand in a mailbox file already, whole or in part, because its last delivery was cut short.
//!
//! Nothing is noted down before a message is appended, and text of another process is never cut off. A repeated
//! delivery looks for its message at the end of the file: a message with its `From ` line, sender and recipient is a
//! [`Candidate`], and is compared with the message, octet by octet, while the message is written ([`Append`]):
//!
//! | The file has | What is done |
//! |---|---|
//! | all of the message, and then nothing or another message | nothing: only the record of the delivery was lost |
//! | the beginning of the message, and then its end | the rest of the message is appended |
//! | anything else | the message is appended, as always behind an empty line |
//!
//! Two messages cannot be taken for one another: it is only looked for when the header names its queue id.
//!
//! The search does not find a message that stands further from the end than its length and [`WINDOW_BYTES`], half a
//! message behind which another process has appended one, and a message that ends within its `From ` line. Such a rest
//! stays where it is, as with every mailer; it ends before the next message begins.

use super::letter::from_line_begin;
use super::medium::Medium;
use super::order::DeliveryRequest;
use rustix::io::Errno;
use std::io::{self, Write};

/// How much of the end of a file is looked through, besides twice the message: what may have been put there together
/// with it.
const WINDOW_BYTES: u64 = 256 << 10;
/// Octets that are read at once.
const PIECE_BYTES: usize = 64 << 10;
/// Places that are compared; of more, those nearest to the end.
const CANDIDATES_MAX: usize = 64;

/// Where, behind its `From ` line, the message may begin.
pub(super) type Candidate = u64;

/// Lines of the end of a file that may be those before messages: looked for once, for all messages that are put behind
/// it together.
#[derive(Debug, Default)]
pub(super) struct SeparatorLines {
    /// How much was looked through.
    window: u64,
    /// Where each begins, and its text without the line end.
    found: Vec<(u64, Vec<u8>)>,
}

impl SeparatorLines {
    /// Finds where the message of an order may begin, in the last of the `length` octets that a file had before
    /// anything was put behind it.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn candidates(
        &mut self,
        medium: &dyn Medium,
        length: u64,
        order: &DeliveryRequest,
    ) -> io::Result<Vec<Candidate>> {
        let window = order.bytes.saturating_mul(2).saturating_add(WINDOW_BYTES);
        if self.window < window {
            *self = Self { window, found: find(medium, length.saturating_sub(window), length)? };
        }
        let begin = from_line_begin(order).into_bytes();
        let starts = self.found.iter().filter(|(_, line)| line.starts_with(&begin));
        let mut starts: Vec<u64> = starts.map(|(start, line)| start + line.len() as u64 + 1).collect();
        starts.drain(..starts.len().saturating_sub(CANDIDATES_MAX));
        Ok(starts)
    }
}

/// Finds lines that begin with `From ` and are no longer than [`LINE_MAX`].
fn find(medium: &dyn Medium, from: u64, length: u64) -> io::Result<Vec<(u64, Vec<u8>)>> {
    let mut found = Vec::new();
    let mut piece = vec![0; PIECE_BYTES];
    let mut at = from;
    // The line that is being read, while it may be one; that of which only the end is read is none.
    let mut line = (from == 0).then(|| (0, Vec::new()));
    while at < length {
        let read = read(medium, &mut piece, at)?;
        if read == 0 {
            break;
        }
        for part in piece.get(..read).unwrap_or_default().split_inclusive(|byte| *byte == b'\n') {
            let (text, is_end) = part.strip_suffix(b"\n").map_or((part, false), |text| (text, true));
            if let Some((_, known)) = &mut line {
                known.extend_from_slice(text);
            }
            let may_be =
                |known: &[u8]| known.len() <= LINE_MAX && known.iter().zip(FROM).all(|(one, other)| one == other);
            line = line.filter(|(_, known)| may_be(known));
            at += part.len() as u64;
            if is_end {
                found.extend(line.replace((at, Vec::new())).filter(|(_, known)| known.len() > FROM.len()));
            }
        }
    }
    Ok(found)
}

/// The beginning of the line before every message.
const FROM: &[u8] = b"From ";
/// A longer line is none of ours.
const LINE_MAX: usize = 4 << 10;

fn is_at(medium: &dyn Medium, at: u64, wanted: &[u8], length: u64) -> io::Result<bool> {
    let mut there = vec![0; wanted.len()];
    Ok(at + wanted.len() as u64 <= length && read(medium, &mut there, at)? == wanted.len() && there == wanted)
}

/// Reads until the buffer is full or the file ends.
fn read(medium: &dyn Medium, buffer: &mut [u8], at: u64) -> io::Result<usize> {
    let mut done = 0;
    while let Some(rest) = buffer.get_mut(done..).filter(|rest| !rest.is_empty()) {
        match medium.read_at(rest, at + done as u64) {
            Ok(0) => break,
            Ok(read) => done += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(done)
}

/// A message on its way to the end of a file, unless it is there.
pub(super) struct Append<'m> {
    medium: &'m mut dyn Medium,
    /// Where the file ended.
    length: u64,
    /// Octets that may be written.
    left: u64,
    /// The octets before the message: an empty line where it is missing, and the `From ` line.
    head: Vec<u8>,
    /// The messages of the file that are equal so far; without any, the message is written.
    candidates: Vec<Candidate>,
    /// Octets that are the same.
    same: u64,
    written: u64,
}

impl<'m> Append<'m> {
    /// Behind `length` octets, up to `max` of them. Without candidates, it is written in any case.
    pub(super) fn new(
        medium: &'m mut dyn Medium,
        length: u64,
        max: u64,
        head: Vec<u8>,
        candidates: Vec<Candidate>,
    ) -> Self {
        Self { medium, length, left: max.saturating_sub(length), head, candidates, same: 0, written: 0 }
    }

    /// Ends the message.
    ///
    /// # Errors
    /// The file cannot be read or written.
    pub(super) fn finish(&mut self) -> io::Result<()> {
        self.begin()?;
        for start in &self.candidates {
            let end = start + self.same;
            if end == self.length || is_at(self.medium, end, b"From ", self.length)? {
                return Ok(());
            }
        }
        self.candidates.last().copied().map_or(Ok(()), |last| self.afresh(last))
    }

    /// Octets that were written.
    pub(super) const fn written(&self) -> u64 {
        self.written
    }

    /// Writes what stands before the message, if it is certain that it is written.
    fn begin(&mut self) -> io::Result<()> {
        let head = if self.candidates.is_empty() { std::mem::take(&mut self.head) } else { Vec::new() };
        self.emit(&head)
    }

    /// The message is not what it looked like: its beginning, which is the same there, is written once more.
    fn afresh(&mut self, start: Candidate) -> io::Result<()> {
        self.candidates.clear();
        self.begin()?;
        let mut piece = vec![0; PIECE_BYTES];
        let (mut at, end) = (start, start + self.same);
        while at < end {
            let some = usize::try_from(end - at).unwrap_or(PIECE_BYTES).min(PIECE_BYTES);
            let part = piece.get_mut(..some).unwrap_or_default();
            if read(self.medium, part, at)? != some {
                return Err(Errno::IO.into());
            }
            self.emit(part)?;
            at += some as u64;
        }
        Ok(())
    }

    fn emit(&mut self, bytes: &[u8]) -> io::Result<()> {
        if bytes.len() as u64 > self.left {
            return Err(Full.into());
        }
        self.medium.write_all(bytes)?;
        self.left -= bytes.len() as u64;
        self.written += bytes.len() as u64;
        Ok(())
    }
}

impl Write for Append<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.begin()?;
        let part = bytes.get(..bytes.len().min(PIECE_BYTES)).unwrap_or_default();
        if self.candidates.is_empty() {
            self.emit(part)?;
            return Ok(part.len());
        }
        let mut there = vec![0; part.len()];
        let before = std::mem::take(&mut self.candidates);
        for &start in &before {
            let at = start + self.same;
            let known = usize::try_from(self.length.saturating_sub(at)).unwrap_or(usize::MAX).min(part.len());
            let there = there.get_mut(..known).unwrap_or_default();
            if read(self.medium, there, at)? != known || !part.starts_with(there) {
                continue;
            }
            if known < part.len() {
                // It breaks off here, and the rest belongs behind it.
                self.candidates.clear();
                self.head.clear();
                self.emit(part.get(known..).unwrap_or_default())?;
                return Ok(part.len());
            }
            self.candidates.push(start);
        }
        if let (true, Some(last)) = (self.candidates.is_empty(), before.last()) {
            self.afresh(*last)?;
            self.emit(part)?;
        } else {
            self.same += part.len() as u64;
        }
        Ok(part.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        self.medium.flush()
    }
}

/// With this message the file would be larger than the configuration allows.
#[derive(Debug)]
pub(super) struct Full;

impl std::fmt::Display for Full {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("larger than local.mailbox_size_max")
    }
}

impl std::error::Error for Full {}

impl From<Full> for io::Error {
    fn from(full: Full) -> Self {
        Self::new(io::ErrorKind::FileTooLarge, full)
    }
}

#[cfg(test)]
mod tests;

//! `-X FILE`: all that is said, a line each, with the number of this process before it, as sendmail writes it.
//!
//! `<<<` marks input, `>>>` replies, `===` events. The file is appended to with the rights of the caller. A line that
//! cannot be written is lost: mail does not wait for a record of it.

use super::exit;
use super::site::Trouble;
use std::fs::{File, OpenOptions};
use std::io::Write as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

/// The longest line that is kept for its end to come.
const LINE_BYTES_MAX: usize = 64 << 10;

/// A record of the session, or none.
#[derive(Debug, Default)]
pub(super) struct Traffic {
    file: Option<File>,
    /// The received part of a line.
    heard: Vec<u8>,
}

impl Traffic {
    /// Opens the file, if one is named.
    ///
    /// # Errors
    /// It cannot be opened: nothing is handed in then.
    pub(super) fn open(path: Option<&Path>) -> Result<Self, Trouble> {
        let Some(path) = path else { return Ok(Self::default()) };
        let mut options = OpenOptions::new();
        options.append(true).create(true).mode(0o600);
        let file = options.open(path);
        let file = file.map_err(|error| (exit::CANNOT_CREATE, format!("cannot open {}: {error}", path.display())))?;
        Ok(Self { file: Some(file), heard: Vec::new() })
    }

    /// Logs octets of the input.
    pub(super) fn log_input(&mut self, bytes: &[u8]) {
        if self.file.is_none() {
            return;
        }
        self.heard.extend_from_slice(bytes);
        while let Some(end) = self.heard.iter().position(|byte| *byte == b'\n') {
            let rest = self.heard.split_off(end + 1);
            let line = std::mem::replace(&mut self.heard, rest);
            self.write("<<<", &line);
        }
        if self.heard.len() > LINE_BYTES_MAX {
            self.end_line();
        }
    }

    /// Logs the end of the input.
    pub(super) fn log_end_of_input(&mut self) {
        self.end_line();
        self.write("<<<", b"[EOF]");
    }

    fn end_line(&mut self) {
        let line = std::mem::take(&mut self.heard);
        if !line.is_empty() {
            self.write("<<<", &line);
        }
    }

    /// Logs lines of the output.
    pub(super) fn log_output(&mut self, bytes: &[u8]) {
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            self.write(">>>", line.strip_suffix(b"\r\n").unwrap_or(line));
        }
    }

    /// Logs an event.
    pub(super) fn log_note(&mut self, text: &str) {
        self.write("===", text.as_bytes());
    }

    fn write(&mut self, what: &str, line: &[u8]) {
        let Some(file) = &mut self.file else { return };
        let mut text = format!("{:05} {what} ", std::process::id()).into_bytes();
        text.extend_from_slice(line.strip_suffix(b"\n").unwrap_or(line));
        text.push(b'\n');
        drop(file.write_all(&text));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_whole_whatever_pieces_they_come_in() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("log");
        let mut traffic = Traffic::open(Some(&path)).unwrap();
        for piece in [&b"EHLO m"[..], b"e\r\nMAIL", b"\r\n\r\nlast"] {
            traffic.log_input(piece);
        }
        traffic.log_output(b"250-a\r\n250 b\r\n");
        traffic.log_end_of_input();
        traffic.log_note("done");
        let pid = format!("{:05}", std::process::id());
        let written = std::fs::read_to_string(&path).unwrap();
        let expected =
            ["<<< EHLO me\r", "<<< MAIL\r", "<<< \r", ">>> 250-a", ">>> 250 b", "<<< last", "<<< [EOF]", "=== done"];
        let lines: Vec<String> = expected.iter().map(|line| format!("{pid} {line}\n")).collect();
        assert_eq!(written, lines.concat());
        assert_eq!(Traffic::open(Some(place.path())).unwrap_err().0, exit::CANNOT_CREATE);
        let mut none = Traffic::open(None).unwrap();
        none.log_input(b"x");
        assert!(none.heard.is_empty(), "nothing is kept");
    }
}

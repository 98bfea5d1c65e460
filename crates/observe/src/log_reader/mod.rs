//! Lines of logs as facts: of sendmail, of this server and of Postfix, by syslog daemons or in a file.
//!
//! [`LogReader::read_line`] takes one line after the other and calls back with the facts of each. A line that is
//! damaged is counted and nothing else; so are lines of other programs. Memory is bounded: of messages that
//! are under way the last [`MESSAGES_MAX`] are remembered, to know their size and whether they were counted.
//!
//! Times are what the clock on the wall showed, as seconds of a civil time: the hours of a report are those that an
//! administrator knows. A stamp with an offset is taken as it is written, and a stamp in UTC is moved by
//! [`LogReaderSettings::utc_offset`].
//!
//! A log is text of others: peers choose parts of it. A fact may hold any characters; the caller makes them safe
//! to show.

mod fields;
mod json_lines;
mod messages;
mod postfix_lines;
mod sendmail_lines;
mod stamp;

pub use messages::MESSAGES_MAX;

use crate::stats::Fact;
use messages::Messages;
use stamp::{Stamp, Stamps};
use std::borrow::Cow;

/// The longest line in octets; a longer one is damaged.
pub const LINE_MAX: usize = 64 << 10;

/// How to read the stamps of a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogReaderSettings {
    /// The present, or the last change of the file: no line is younger by more than a day. A stamp of syslog has no
    /// year; it is of the last year in which this holds.
    pub now: i64,
    /// The year of the first line, where it is known.
    pub year: Option<i64>,
    /// Seconds that the time of the readers is ahead of UTC, for stamps in UTC.
    pub utc_offset: i64,
}

/// Numbers of lines by their use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LineCounts {
    /// All of them.
    pub lines: u64,
    /// Lines with facts of mail, or about a message.
    pub used: u64,
    /// Lines about other things.
    pub other: u64,
    /// Lines that are damaged: no stamp, or the end is missing.
    pub broken: u64,
}

/// How a line was understood.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LineUse {
    Used,
    Other,
    Broken,
}

/// Reads the lines of one log in their order, perhaps from several files.
#[derive(Debug)]
pub struct LogReader {
    stamps: Stamps,
    messages: Messages,
    transactions: postfix_lines::Transactions,
    counts: LineCounts,
    last_time: Option<i64>,
}

impl LogReader {
    /// Makes a reader that knows nothing yet.
    #[must_use]
    pub fn new(settings: LogReaderSettings) -> Self {
        Self {
            stamps: Stamps::new(settings),
            messages: Messages::default(),
            transactions: postfix_lines::Transactions::default(),
            counts: LineCounts::default(),
            last_time: None,
        }
    }

    /// Reads a line, with or without its end, and calls `each` with the time and every fact in it.
    pub fn read_line(&mut self, line: &[u8], mut each: impl FnMut(i64, &Fact<'_>)) {
        self.counts.lines += 1;
        let line = without_end(line);
        let line_use = match line {
            [] => LineUse::Other,
            line if line.len() > LINE_MAX => LineUse::Broken,
            line => match std::str::from_utf8(line) {
                Ok(text) => self.read_text(text, &mut each),
                Err(_) => {
                    let text: Cow<'_, str> = String::from_utf8_lossy(line);
                    self.read_text(&text, &mut each)
                }
            },
        };
        match line_use {
            LineUse::Used => self.counts.used += 1,
            LineUse::Other => self.counts.other += 1,
            LineUse::Broken => self.counts.broken += 1,
        }
    }

    fn read_text(&mut self, line: &str, each: &mut impl FnMut(i64, &Fact<'_>)) -> LineUse {
        if line.starts_with('{') {
            let Some(time) = self.stamps.of_json(line) else { return LineUse::Broken };
            self.last_time = self.last_time.max(Some(time));
            return json_lines::read(line, &mut self.messages, &mut |fact| each(time, fact));
        }
        let Some(Stamp { time, rest }) = self.stamps.of_line(line) else { return LineUse::Broken };
        self.last_time = self.last_time.max(Some(time));
        let Some((program, text)) = program_of(rest) else { return LineUse::Other };
        let mut each = |fact: &Fact<'_>| each(time, fact);
        match program.name.rsplit_once('/') {
            Some((_, service)) => {
                let line = postfix_lines::PostfixLine { service, pid: program.pid, time, text };
                let (messages, transactions) = (&mut self.messages, &mut self.transactions);
                postfix_lines::read(&line, &mut postfix_lines::PostfixState { messages, transactions }, &mut each)
            }
            None => sendmail_lines::read(text, &mut self.messages, &mut each),
        }
    }

    /// Returns the numbers of lines so far.
    #[must_use]
    pub const fn counts(&self) -> LineCounts {
        self.counts
    }

    /// Returns the latest time of all lines.
    #[must_use]
    pub const fn last_time(&self) -> Option<i64> {
        self.last_time
    }
}

/// Returns the time of a line, for a caller that sorts files; `None` for a damaged line.
#[must_use]
pub fn time_of(line: &[u8], settings: LogReaderSettings) -> Option<i64> {
    let line = std::str::from_utf8(without_end(line)).ok()?;
    let mut stamps = Stamps::new(settings);
    if line.starts_with('{') { stamps.of_json(line) } else { stamps.of_line(line).map(|stamp| stamp.time) }
}

fn without_end(line: &[u8]) -> &[u8] {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    line.strip_suffix(b"\r").unwrap_or(line)
}

/// The program that wrote a line.
struct Program<'a> {
    name: &'a str,
    pid: &'a str,
}

/// Splits `host tag[pid]: text`, `host tag: text`, and both without the host. `None`: no program names itself, as in
/// `last message repeated 3 times`.
fn program_of(rest: &str) -> Option<(Program<'_>, &str)> {
    let mut words = rest;
    // A host has no colon at its end and no bracket; so has a second word at most.
    for _ in 0..2 {
        let end = memchr::memchr(b' ', words.as_bytes()).unwrap_or(words.len());
        let (word, behind) = (words.get(..end)?, words.get(end + 1..).unwrap_or_default());
        if let Some(tag) = word.strip_suffix(":") {
            return Some(match tag.strip_suffix("]").and_then(|tag| tag.split_once('[')) {
                Some((name, pid)) => (Program { name, pid }, behind),
                None => (Program { name: tag, pid: "" }, behind),
            });
        }
        words = behind.trim_start_matches(' ');
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn programs_name_themselves() {
        let program = |rest| program_of(rest).map(|(program, text)| (program.name, program.pid, text));
        assert_eq!(program("mx sm-mta[812]: X: to=<a@b>"), Some(("sm-mta", "812", "X: to=<a@b>")));
        assert_eq!(program("mailrace[8]: text"), Some(("mailrace", "8", "text")));
        assert_eq!(program("mx postfix/smtp[8]: Q: x"), Some(("postfix/smtp", "8", "Q: x")));
        assert_eq!(program("mx kernel: x"), Some(("kernel", "", "x")));
        assert_eq!(program("mx last message repeated 3 times"), None);
        assert_eq!(program(""), None);
    }
}

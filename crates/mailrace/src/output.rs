//! The output of commands: lines or JSON to standard output, progress to a terminal, numbers as people read them.
//!
//! A line holds text from other servers and from users: what [`mail::is_unprintable`] names is never printed as it is.
//! In JSON such characters are escaped, so the values stay the same.
//!
//! A reader that goes away (`| head`) ends the printing and is no failure.

use crate::exit::Failure;
use crate::terminal_text::{plain, plain_json, plain_lines};
use operator::answers::DestinationStatus;
use serde_json::Value;
use std::fmt;
use std::io::{self, BufWriter, IsTerminal as _, StdoutLock, Write as _};
use std::path::Path;

/// Standard output. Remembers the first failure, so that callbacks need not return one.
pub(crate) struct Output {
    to: BufWriter<StdoutLock<'static>>,
    failed: Option<io::Error>,
}

impl Output {
    pub(crate) fn new() -> Self {
        Self { to: BufWriter::new(io::stdout().lock()), failed: None }
    }

    /// Prints a line, or several with line ends between them.
    pub(crate) fn print_line(&mut self, text: impl fmt::Display) {
        if self.failed.is_none() {
            self.failed = writeln!(self.to, "{}", plain_lines(&text.to_string())).err();
        }
    }

    /// Prints a value on one line.
    pub(crate) fn print_json(&mut self, value: &Value) {
        if self.failed.is_none() {
            self.failed = writeln!(self.to, "{}", plain_json(value)).err();
        }
    }

    /// Whether printing more makes sense: the reader is still there.
    pub(crate) fn is_read(&self) -> bool {
        self.failed.is_none()
    }

    /// Makes a terminal empty, for a table that is printed again and again.
    pub(crate) fn clear_screen(&mut self) {
        if self.failed.is_none() {
            self.failed = self.to.write_all(b"\x1b[H\x1b[2J").err();
        }
    }

    /// Shows the output so far.
    pub(crate) fn flush(&mut self) {
        if self.failed.is_none() {
            self.failed = self.to.flush().err();
        }
    }

    /// Prints the rest.
    ///
    /// # Errors
    /// Something could not be written, and the reader is still there.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        self.flush();
        match self.failed {
            Some(error) if error.kind() != io::ErrorKind::BrokenPipe => Err(Failure::io("standard output", &error)),
            _ => Ok(()),
        }
    }
}

/// One line on a terminal that is written over; nothing where standard error is no terminal.
pub(crate) struct Progress {
    is_shown: bool,
}

impl Progress {
    pub(crate) fn new() -> Self {
        Self { is_shown: io::stderr().is_terminal() }
    }

    pub(crate) fn show(&self, text: impl fmt::Display) {
        if self.is_shown {
            eprint!("\r\x1b[K{text}");
        }
    }

    pub(crate) fn clear(&self) {
        self.show("");
    }
}

/// A number with commas between thousands.
pub(crate) fn thousands(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A number and its noun, which gets an "s" unless there is one.
pub(crate) fn count(number: u64, noun: &str) -> String {
    let plural = if number == 1 { "" } else { "s" };
    format!("{} {noun}{plural}", thousands(number))
}

/// A number of bytes in the largest unit that leaves something before the point.
pub(crate) fn bytes(number: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(1 << 40, "TiB"), (1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")];
    match UNITS.iter().find(|(size, _)| number >= *size) {
        Some((size, unit)) => {
            let tenths = u128::from(number) * 10 / u128::from(*size);
            format!("{}.{} {unit}", tenths / 10, tenths % 10)
        }
        None => format!("{number} bytes"),
    }
}

/// A number of bytes in at most five characters, for columns.
pub(crate) fn short_bytes(number: u64) -> String {
    const UNITS: [(u64, char); 4] = [(1 << 40, 'T'), (1 << 30, 'G'), (1 << 20, 'M'), (1 << 10, 'K')];
    match UNITS.iter().find(|(size, _)| number >= *size) {
        Some((size, unit)) if number < 10 * size => {
            let tenths = number.saturating_mul(10) / size;
            format!("{}.{}{unit}", tenths / 10, tenths % 10)
        }
        Some((size, unit)) => format!("{}{unit}", number / size),
        None => number.to_string(),
    }
}

/// A time in its two largest units, as short as it is still read: `45s`, `12m`, `3h12m`, `2d4h`.
pub(crate) fn age(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds}s"),
        (0, 0, minutes) => format!("{minutes}m"),
        (0, hours, minutes) => format!("{hours}h{minutes}m"),
        (days, hours, _) => format!("{days}d{hours}h"),
    }
}

/// Says when a destination that is down is tried: `next try in 12m`, or `being tried now`.
pub(crate) fn next_try(destination: &DestinationStatus) -> String {
    match destination.retry_in {
        Some(seconds) if seconds > 0 => format!("next try in {}", age(seconds)),
        _ => "being tried now".to_owned(),
    }
}

/// Says in a few words what mail of a destination waits for that is due and not tried.
pub(crate) fn waits_for(destination: &DestinationStatus) -> Option<String> {
    Some(match destination.waits_for.as_deref()? {
        "connection" => format!("waits for a connection since {}", age(destination.waits_since.unwrap_or(0))),
        "share" => "waits for its share of a limit of all nodes".to_owned(),
        "rate" => "waits for the rate of its [[destination]] rule".to_owned(),
        "pace" => "waits for its pace".to_owned(),
        other => format!("waits for {}", plain(other)),
    })
}

/// A path below `root` without it.
pub(crate) fn below<'a>(root: &Path, path: &'a Path) -> std::path::Display<'a> {
    path.strip_prefix(root).unwrap_or(path).display()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn what_is_tried_now_has_no_time() {
        let status = |retry_in| DestinationStatus { retry_in, ..DestinationStatus::default() };
        assert_eq!(next_try(&status(Some(720))), "next try in 12m");
        assert_eq!([Some(0), None].map(|time| next_try(&status(time))), ["being tried now", "being tried now"]);
    }

    proptest! {
        #[test]
        fn nothing_unprintable_reaches_a_terminal(text in hostile()) {
            prop_assert!(!plain(&text).contains(mail::is_unprintable));
            prop_assert!(!plain_lines(&text).contains(|c| mail::is_unprintable(c) && c != '\n' && c != '\t'));
            let value = serde_json::json!({ "to": text, &text: [&text] });
            let line = plain_json(&value);
            prop_assert!(!line.contains(mail::is_unprintable), "{line:?}");
            prop_assert_eq!(serde_json::from_str::<Value>(&line).unwrap(), value, "the value stays the same");
        }
    }

    /// Text as a peer would choose it: half of its characters are unprintable.
    fn hostile() -> impl Strategy<Value = String> {
        let bad: Vec<char> = ('\0'..=char::MAX).filter(|c| mail::is_unprintable(*c)).collect();
        let one = prop_oneof![proptest::sample::select(bad), any::<char>(), Just('"'), Just('\\')];
        proptest::collection::vec(one, 0..40).prop_map(String::from_iter)
    }

    #[test]
    fn numbers_for_people() {
        assert_eq!([0, 999, 1000, 1_234_567].map(thousands), ["0", "999", "1,000", "1,234,567"]);
        assert_eq!([0, 1, 2].map(|n| count(n, "message")), ["0 messages", "1 message", "2 messages"]);
        assert_eq!(
            [1023, 1536, 64 << 20, u64::MAX].map(bytes),
            ["1023 bytes", "1.5 KiB", "64.0 MiB", "16777215.9 TiB"]
        );
        let sizes = [0, 1023, 1536, 10_239, 10_240, 1_048_575, 64 << 20, 5 << 40];
        assert_eq!(sizes.map(short_bytes), ["0", "1023", "1.5K", "9.9K", "10K", "1023K", "64M", "5.0T"]);
        let times = [0, 59, 60, 3_599, 3_600, 11_520, 86_399, 187_200];
        assert_eq!(times.map(age), ["0s", "59s", "1m", "59m", "1h0m", "3h12m", "23h59m", "2d4h"]);
        assert_eq!(plain("a\x1b[2Jb\n\u{9b}c"), "a?[2Jb??c");
    }
}

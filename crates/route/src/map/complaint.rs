//! The faults of a map, in words for the operator.

use std::fmt;

/// The fault of one entry, and its effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Complaint {
    /// The line of a text file, from 1.
    pub line: Option<u32>,
    /// The entry, its fault, and the effect.
    pub text: String,
}

/// Why a file gives no map. [`Display`](fmt::Display) names the file, the fault, and the next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MapFileError {
    file: String,
    what: String,
    next: &'static str,
}

/// The next step for a file that is damaged.
const MAKE_AGAIN: &str = "make it again with makemap or newaliases, or name the text file instead";

impl MapFileError {
    /// Some rule of the format is broken.
    pub(super) fn damaged(what: impl Into<String>) -> Self {
        Self::new(what, MAKE_AGAIN)
    }

    /// A format that is not read here.
    pub(super) fn unsupported(what: impl Into<String>) -> Self {
        Self::new(what, "name the text file instead, or make a hash or cdb file of it with makemap")
    }

    /// More than the limits allow.
    pub(super) fn too_large(what: impl Into<String>) -> Self {
        Self::new(what, "raise the limit, or divide the map")
    }

    pub(super) fn new(what: impl Into<String>, next: &'static str) -> Self {
        Self { file: String::new(), what: what.into(), next }
    }

    pub(super) fn of_file(self, file: &str) -> Self {
        Self { file: file.to_owned(), ..self }
    }

    /// The file.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// Returns the fault.
    #[must_use]
    pub fn what(&self) -> &str {
        &self.what
    }

    /// Returns the next step.
    #[must_use]
    pub fn next_step(&self) -> &str {
        self.next
    }
}

impl fmt::Display for MapFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}; {}", self.file, self.what, self.next)
    }
}

impl std::error::Error for MapFileError {}

/// A map cannot be written: its file would have 4 GiB or more, which no reader takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooLarge;

impl fmt::Display for TooLarge {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map file holds less than 4 GiB; divide the map")
    }
}

impl std::error::Error for TooLarge {}

/// Complaints, as many as are wanted, and the number of the others.
#[derive(Debug)]
pub(super) struct Complaints {
    list: Vec<Complaint>,
    max: usize,
    more: u64,
}

impl Complaints {
    pub(super) fn new(max: usize) -> Self {
        Self { list: Vec::new(), max, more: 0 }
    }

    /// Keeps a complaint; the text is made only when there is room for it.
    pub(super) fn add(&mut self, line: Option<u32>, text: impl FnOnce() -> String) {
        if self.list.len() < self.max {
            self.list.push(Complaint { line, text: text() });
        } else {
            self.more += 1;
        }
    }

    pub(super) fn into_list(mut self) -> Vec<Complaint> {
        self.list.sort_by_key(|complaint| complaint.line);
        if self.more > 0 {
            let text = format!("{} more complaints are not shown", self.more);
            self.list.push(Complaint { line: None, text });
        }
        self.list
    }
}

/// A piece of a file for a message: at most 60 characters, none of them a control character.
pub(super) fn shown(bytes: &[u8]) -> String {
    const CHARS_MAX: usize = 60;
    let start = bytes.get(..4 * CHARS_MAX).unwrap_or(bytes);
    let text = String::from_utf8_lossy(start);
    let mut out = String::with_capacity(CHARS_MAX);
    for c in text.chars().take(CHARS_MAX) {
        out.push(if c.is_control() { '\u{fffd}' } else { c });
    }
    if text.chars().count() > CHARS_MAX || start.len() < bytes.len() {
        out.push('…');
    }
    out
}

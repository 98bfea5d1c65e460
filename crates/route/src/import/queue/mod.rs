//! A message as sendmail keeps it in its queue: the control file (`qf`, or `hf` for one in quarantine) as a typed
//! value.
//!
//! | File | Holds |
//! |---|---|
//! | [`control`] | the lines of a control file, code by code |
//! | [`recipient`] | a recipient: an address, or a program, a file, a list |
//! | [`field`] | a line of the header, and which mailers get it |
//! | [`name`] | the files of a queue by their names |
//!
//! A control file has a line for each thing, a letter and its value; a line that begins with a space or a tab goes on
//! with the one before; a line with a dot ends the file, and without it the file is not whole. The text of the message
//! is in a file of its own (`df`). Recipients that have got the message are not in the control file any more.
//!
//! Nothing is guessed: a line that is not understood makes the whole file unreadable, with its number and the reason,
//! so that the message stays with sendmail. A line that is understood and has no counterpart here becomes a note.

mod control;
mod field;
pub(crate) mod fuzz;
mod name;
mod recipient;
#[cfg(test)]
mod tests;

pub use control::ControlFileLimits;
pub use field::QueuedField;
pub use name::{FileKind, QueueFile};
pub use recipient::{QueuedRecipient, QueuedTarget};

use mail::submission::{Completion, Draft};
use mail::{DomainName, MailParams, ReversePath};
use std::fmt;

/// A message that waits in sendmail's queue, but for its text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueuedMessage {
    /// Version of the format (`V`), 1 to [`QueuedMessage::VERSION_MAX`].
    pub version: u32,
    /// When it came, in seconds since 1970 (`T`): its age counts from here.
    pub arrived: u64,
    /// When it was tried last (`K`), in seconds since 1970; 0 for never.
    pub last_try: u64,
    /// How often it was tried (`N`).
    pub tries: u32,
    /// sendmail's priority (`P`), the smaller the sooner.
    pub priority: i64,
    /// The recipient of reports when it fails (`S`); none for a report (`F` with `r`).
    pub sender: ReversePath,
    /// ENVID (`Z`), RET (`F`), BODY (`B`), AUTH (`A`), BY (`!`), SMTPUTF8 (`F` with `e`).
    pub params: MailParams,
    /// The sender was told that it takes longer (`F` with `w`).
    pub is_warned: bool,
    /// Blind copies are not to be named to those who get it (`F` with `b`).
    pub hides_bcc: bool,
    /// Why it is in quarantine (`q`).
    pub quarantine: Option<String>,
    /// Why it was deferred last (`M` before the first recipient).
    pub status: Option<String>,
    /// The directory of the text, where it is another than that of the control file (`d`).
    pub data_directory: Option<String>,
    /// Macros of the message (`$`), name and value.
    pub macros: Vec<(String, String)>,
    /// Those who have not got it yet (`R`), in the order of the file.
    pub recipients: Vec<QueuedRecipient>,
    /// Its header section (`H`).
    pub header: Vec<QueuedField>,
    /// Notes on lines without a counterpart.
    pub notes: Vec<LineNote>,
}

/// Something about a line of a control file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LineNote {
    /// The line, counted from 1.
    pub line: usize,
    /// The note, in one line of text without control characters.
    pub text: String,
}

impl fmt::Display for LineNote {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}: {}", self.line, self.text)
    }
}

/// A control file cannot be understood: its first line that cannot, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ControlFileError(pub LineNote);

impl fmt::Display for ControlFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for ControlFileError {}

impl QueuedMessage {
    /// The newest version of the format: sendmail 8.13 to 8.18.
    pub const VERSION_MAX: u32 = 8;

    /// Reads a control file. Names without a domain are users of `host`.
    ///
    /// # Errors
    /// The first line that is not understood, or the missing part.
    pub fn read(octets: &[u8], host: &DomainName, limits: &ControlFileLimits) -> Result<Self, ControlFileError> {
        control::read(octets, host, limits)
    }

    /// The header section as it goes out, with CRLF and the empty line at its end; and lines behind it that belong to
    /// the body.
    ///
    /// The header as sendmail sends it: without fields that only some mailers get, without `Bcc` where it is to be
    /// hidden, with `host` behind names that have no domain. `offset_seconds` is local time minus UTC, `unique` makes a
    /// message id where there is none.
    #[must_use]
    pub fn header_section(&self, host: &DomainName, offset_seconds: i32, unique: &str) -> Vec<u8> {
        let mut header = Vec::new();
        for field in self.header.iter().filter(|field| field.goes_out(&self.macros)) {
            if self.hides_bcc && (field.has_name("bcc") || field.has_name("resent-bcc")) {
                continue;
            }
            header.extend_from_slice(&field.text);
        }
        header.extend_from_slice(b"\r\n");
        let draft = Draft::read(&header);
        let from = match &self.sender {
            ReversePath::Address(address) => address.to_string(),
            ReversePath::Null => format!("MAILER-DAEMON@{host}"),
        };
        let mut out = draft.complete(&Completion {
            host,
            from: &from,
            full_name: "",
            unix_us: self.arrived.saturating_mul(1_000_000),
            offset_seconds,
            unique,
            takes_recipients: false,
        });
        out.extend_from_slice(header.get(draft.body_offset()..).unwrap_or_default());
        out
    }
}

/// Returns a text for one line: octets that are no text, and control characters, are escaped.
fn plain(octets: &[u8]) -> String {
    const OCTETS_MAX: usize = 120;
    let text = String::from_utf8_lossy(octets.get(..OCTETS_MAX).unwrap_or(octets));
    text.chars().flat_map(|c| if c.is_control() { c.escape_default().collect::<Vec<_>>() } else { vec![c] }).collect()
}

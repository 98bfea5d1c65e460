//! The refusal of a client's mail: code, enhanced code and text, and the entry that says so.
//!
//! Invariants: the code begins with 4 or 5, its first digit and that of the enhanced code agree, the text has no
//! control characters. A refusal made with [`Refusal::new`] has all three, whatever a map says.

use crate::question::MapEntry;
use mail::{EnhancedCode, Outcome};
use std::fmt;

/// The longest text of a refusal, in octets: one line of a reply has 512 with its codes (RFC 5321 §4.5.3.1.5).
pub const TEXT_BYTES_MAX: usize = 480;

/// Why mail is not taken.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Refusal {
    /// The code of the reply, 400 to 599.
    pub code: u16,
    /// The enhanced code.
    pub status: EnhancedCode,
    /// The text behind both.
    pub text: String,
    /// The entry of a map that says so; `None` if it is a rule of the program.
    pub found: Option<MapEntry>,
}

impl Refusal {
    /// A refusal that is sound: another code than 4xx and 5xx becomes 550, an enhanced code of the other kind is given
    /// the first digit of the code, control characters in the text become `?`, and the text is cut to
    /// [`TEXT_BYTES_MAX`].
    #[must_use]
    pub fn new(code: u16, status: EnhancedCode, text: &str) -> Self {
        let code = if (400..600).contains(&code) { code } else { 550 };
        let outcome = if code < 500 { Outcome::Transient } else { Outcome::Permanent };
        let mut end = text.len().min(TEXT_BYTES_MAX);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let text = text.get(..end).unwrap_or_default();
        let text = text.chars().map(|c| if c.is_control() { '?' } else { c }).collect();
        Self { code, status: status.with_outcome(outcome), text, found: None }
    }

    /// The same, with the entry that says so.
    #[must_use]
    pub fn with_found(self, found: Option<MapEntry>) -> Self {
        Self { found, ..self }
    }

    /// Whether the client may try again: a code of 4xx.
    #[must_use]
    pub const fn is_temporary(&self) -> bool {
        self.code < 500
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} {}", self.code, self.status, self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_told_is_sound() {
        let status: EnhancedCode = "5.7.1".parse().unwrap();
        let told = |code, text| Refusal::new(code, status, text).to_string();
        assert_eq!(told(550, "Access denied"), "550 5.7.1 Access denied");
        assert_eq!(told(451, "Later"), "451 4.7.1 Later");
        assert_eq!(told(250, "OK"), "550 5.7.1 OK");
        assert_eq!(told(550, "a\r\nb"), "550 5.7.1 a??b");
        let long = Refusal::new(550, status, &"é".repeat(400));
        assert_eq!((long.text.len(), long.is_temporary()), (480, false));
    }
}

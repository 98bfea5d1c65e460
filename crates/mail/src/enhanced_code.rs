//! Enhanced status codes, `class.subject.detail` (RFC 3463): the reason of an outcome, for replies and for bounces.

use crate::decimal::push_decimal;
use std::fmt;
use std::str::FromStr;

/// Whether something succeeded, may succeed later, or never will: the first digit of both kinds of code.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// 2: done.
    Success,
    /// 4: not now; try again.
    Transient,
    /// 5: not like this; do not try again.
    Permanent,
}

impl Outcome {
    /// The digit.
    #[must_use]
    pub const fn digit(self) -> u8 {
        match self {
            Self::Success => 2,
            Self::Transient => 4,
            Self::Permanent => 5,
        }
    }

    const fn from_digit(digit: u16) -> Option<Self> {
        match digit {
            2 => Some(Self::Success),
            4 => Some(Self::Transient),
            5 => Some(Self::Permanent),
            _ => None,
        }
    }
}

/// An enhanced status code such as `5.1.1`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EnhancedCode {
    outcome: Outcome,
    subject: u16,
    detail: u16,
}

impl EnhancedCode {
    /// Makes a code; `None` when subject or detail exceed 999. RFC 5248 registers the meanings of the numbers.
    #[must_use]
    pub const fn new(outcome: Outcome, subject: u16, detail: u16) -> Option<Self> {
        if subject <= 999 && detail <= 999 { Some(Self { outcome, subject, detail }) } else { None }
    }

    /// Makes a code that is written in our source: `EnhancedCode::of(Outcome::Permanent, 1, 1)`.
    ///
    /// # Panics
    /// When subject or detail exceed 999; at compile time if the code is a constant.
    #[must_use]
    pub const fn of(outcome: Outcome, subject: u16, detail: u16) -> Self {
        Self::new(outcome, subject, detail).expect("subject and detail are at most 999")
    }

    /// The class.
    #[must_use]
    pub const fn outcome(self) -> Outcome {
        self.outcome
    }

    /// Returns the subject: 1 address, 2 mailbox, 3 mail system, 4 network, 5 protocol, 6 content, 7 policy, 0 other.
    #[must_use]
    pub const fn subject(self) -> u16 {
        self.subject
    }

    /// Returns the detail within the subject.
    #[must_use]
    pub const fn detail(self) -> u16 {
        self.detail
    }

    /// The same reason with another outcome: a recipient that failed for days becomes permanent.
    #[must_use]
    pub const fn with_outcome(self, outcome: Outcome) -> Self {
        Self { outcome, ..self }
    }

    /// Reads a code at the beginning of `text`, up to the end or a space, and returns it with the text behind the
    /// space.
    pub(crate) fn split(text: &str) -> Option<(Self, &str)> {
        let (code, rest) = text.split_once(' ').unwrap_or((text, ""));
        code.parse().ok().map(|code| (code, rest))
    }
}

impl EnhancedCode {
    /// The octets of the code and of the space behind it.
    pub(crate) fn octets_with_space(self) -> usize {
        let digits = |number: u16| 1 + usize::from(number > 9) + usize::from(number > 99);
        "5.. ".len() + digits(self.subject) + digits(self.detail)
    }

    /// Appends the code as its `Display` writes it: `5.1.1`.
    pub fn push_to(self, out: &mut String) {
        push_decimal(out, self.outcome.digit());
        out.push('.');
        push_decimal(out, self.subject);
        out.push('.');
        push_decimal(out, self.detail);
    }
}

impl FromStr for EnhancedCode {
    type Err = EnhancedCodeError;

    // RFC 2034 §4: status-code = class "." subject "." detail; subject and detail are 1*3digit, without leading zeros
    // (RFC 3463 §2)
    fn from_str(text: &str) -> Result<Self, EnhancedCodeError> {
        let number = |digits: &[u8]| -> Option<u16> {
            let fits = (1..=3).contains(&digits.len())
                && digits.iter().all(u8::is_ascii_digit)
                && (digits == b"0" || !digits.starts_with(b"0"));
            fits.then(|| digits.iter().fold(0, |number, digit| number * 10 + u16::from(digit - b'0')))
        };
        // Most words that are asked about are none, and begin with no digit.
        if !text.as_bytes().first().is_some_and(u8::is_ascii_digit) {
            return Err(EnhancedCodeError);
        }
        let mut parts = text.as_bytes().split(|byte| *byte == b'.');
        let mut next = || parts.next().and_then(number);
        let code = match (next(), next(), next()) {
            (Some(class), Some(subject), Some(detail)) => {
                Outcome::from_digit(class).and_then(|outcome| Self::new(outcome, subject, detail))
            }
            _ => None,
        };
        code.filter(|_| parts.next().is_none()).ok_or(EnhancedCodeError)
    }
}

impl fmt::Display for EnhancedCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.outcome.digit(), self.subject, self.detail)
    }
}

impl fmt::Debug for EnhancedCode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EnhancedCode({self})")
    }
}

/// The text is no enhanced status code.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct EnhancedCodeError;

impl fmt::Display for EnhancedCodeError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("not an enhanced status code such as 5.1.1")
    }
}

impl std::error::Error for EnhancedCodeError {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    // RFC 3463 §2 (test), RFC 2034 §4 (test)
    #[test]
    fn codes() {
        let code: EnhancedCode = "5.1.10".parse().unwrap();
        assert_eq!((code.outcome(), code.subject(), code.detail()), (Outcome::Permanent, 1, 10));
        assert_eq!(code.with_outcome(Outcome::Transient).to_string(), "4.1.10");
        for text in ["", "5", "5.1", "5.1.1.1", "3.1.1", "5.01.1", "5.1.1000", "5.1.", "5.+1.1", "5.1.1 ", "50.1.1"] {
            assert!(text.parse::<EnhancedCode>().is_err(), "{text}");
        }
        assert_eq!(EnhancedCode::new(Outcome::Success, 1_000, 0), None);
    }

    proptest! {
        #[test]
        fn written_codes_are_read_back(class in 0..3_usize, subject in 0..1_000_u16, detail in 0..1_000_u16) {
            let outcome = [Outcome::Success, Outcome::Transient, Outcome::Permanent][class];
            let code = EnhancedCode::new(outcome, subject, detail).unwrap();
            prop_assert_eq!(code.to_string().parse(), Ok(code));
        }
    }
}

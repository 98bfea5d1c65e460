//! Why a recipient is held, as part of its durable state (`docs/spool.md` section 3.4).
//!
//! A reason belongs to a state: each state of a held recipient repeats it, and a state that is not held has none. All
//! parts are bounded, so that a state entry fits into any batch.

use crate::format::Reader;
use std::sync::Arc;

/// The source of a decision to hold a recipient.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum HoldKind {
    /// A person.
    Operator = 1,
    /// A rule of the configuration or of a map, as `QUARANTINE`.
    Rule = 2,
    /// The server itself: it cannot go on without a person.
    Server = 3,
    /// Another program that had the message before.
    Import = 4,
    /// A content rule or a filter: a person decides about the message.
    Quarantine = 5,
    /// Filters have not judged the message yet; no person decides.
    Screen = 6,
    /// The message takes the place of another, which is to be done before it is let go.
    Replacement = 7,
}

impl HoldKind {
    /// All kinds.
    pub const ALL: [Self; 7] =
        [Self::Operator, Self::Rule, Self::Server, Self::Import, Self::Quarantine, Self::Screen, Self::Replacement];

    /// Whether the filters of the message have not let it pass, so that releasing it delivers it unscreened.
    #[must_use]
    pub const fn is_unscreened(self) -> bool {
        matches!(self, Self::Screen | Self::Replacement)
    }

    /// The word for it in answers and listings.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Operator => "operator",
            Self::Rule => "rule",
            Self::Server => "server",
            Self::Import => "import",
            Self::Quarantine => "quarantine",
            Self::Screen => "screen",
            Self::Replacement => "replacement",
        }
    }
}

/// Why a recipient is held. Copies share their texts: one command may hold a million recipients.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Hold(Arc<HoldParts>);

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct HoldParts {
    kind: HoldKind,
    by: Box<str>,
    text: Box<str>,
    until: u32,
}

/// Bytes of the fields of fixed size: kind, lengths and time.
const FIXED: usize = 8;

impl Hold {
    /// The most bytes of the name of a rule or a person.
    pub const BY_BYTES_MAX: usize = 64;
    /// The most bytes of the text.
    pub const TEXT_BYTES_MAX: usize = 512;

    /// A reason without an end. Longer texts than the limits are cut at the end of a character.
    #[must_use]
    pub fn new(kind: HoldKind, by: &str, text: &str) -> Self {
        let cut = |of: &str, max| of.get(..of.floor_char_boundary(max)).unwrap_or_default().into();
        let (by, text) = (cut(by, Self::BY_BYTES_MAX), cut(text, Self::TEXT_BYTES_MAX));
        Self(Arc::new(HoldParts { kind, by, text, until: 0 }))
    }

    /// The same, in force until a time in seconds since 1970. The spool keeps the time and does not act on it.
    #[must_use]
    pub fn until(self, seconds: u32) -> Self {
        let mut parts = Arc::unwrap_or_clone(self.0);
        parts.until = seconds;
        Self(Arc::new(parts))
    }

    /// The source of the decision.
    #[must_use]
    pub fn kind(&self) -> HoldKind {
        self.0.kind
    }

    /// The name of the rule or the person; may be empty.
    #[must_use]
    pub fn by(&self) -> &str {
        &self.0.by
    }

    /// The reason in words; may be empty.
    #[must_use]
    pub fn text(&self) -> &str {
        &self.0.text
    }

    /// The time at which it ends, in seconds since 1970, if it ends.
    #[must_use]
    pub fn ends_at(&self) -> Option<u32> {
        (self.0.until > 0).then_some(self.0.until)
    }

    /// Bytes that it takes in a state or an envelope.
    pub(crate) fn encoded_len(&self) -> usize {
        FIXED + self.0.by.len() + self.0.text.len()
    }

    pub(crate) fn write(&self, to: &mut Vec<u8>) {
        let HoldParts { kind, by, text, until } = &*self.0;
        to.extend_from_slice(&[*kind as u8, u8::try_from(by.len()).unwrap_or(0)]);
        to.extend_from_slice(&u16::try_from(text.len()).unwrap_or(0).to_le_bytes());
        to.extend_from_slice(&until.to_le_bytes());
        to.extend_from_slice(by.as_bytes());
        to.extend_from_slice(text.as_bytes());
    }

    /// Reads a reason from the front; `None` where it does not make sense.
    pub(crate) fn read(reader: &mut Reader<'_>) -> Option<Self> {
        let (kind, by_len, text_len, until) = (reader.u8()?, reader.u8()?, reader.u16()?, reader.u32()?);
        let kind = Self::kind_from_byte(kind)?;
        if usize::from(by_len) > Self::BY_BYTES_MAX || usize::from(text_len) > Self::TEXT_BYTES_MAX {
            return None;
        }
        let by = str::from_utf8(reader.bytes(by_len.into())?).ok()?.into();
        let text = str::from_utf8(reader.bytes(text_len.into())?).ok()?.into();
        Some(Self(Arc::new(HoldParts { kind, by, text, until })))
    }

    fn kind_from_byte(byte: u8) -> Option<HoldKind> {
        HoldKind::ALL.into_iter().find(|kind| *kind as u8 == byte)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_round_trip_within_their_limits() {
        for kind in HoldKind::ALL {
            let hold = Hold::new(kind, "root", "asked by the sender").until(7);
            let mut bytes = Vec::new();
            hold.write(&mut bytes);
            assert_eq!(bytes.len(), hold.encoded_len());
            let mut reader = Reader(&bytes);
            assert_eq!(Hold::read(&mut reader), Some(hold));
            assert!(reader.is_empty());
            for cut in 0..bytes.len() {
                assert_eq!(Hold::read(&mut Reader(&bytes[..cut])), None, "cut at {cut}");
            }
        }
        let long = Hold::new(HoldKind::Rule, &"\u{e9}".repeat(40), &"x".repeat(600));
        assert_eq!((long.by().len(), long.text().len(), long.ends_at()), (64, 512, None));
        let mut bytes = Vec::new();
        long.write(&mut bytes);
        assert_eq!(Hold::read(&mut Reader(&bytes)), Some(long));
        bytes[1] = 65;
        assert_eq!(Hold::read(&mut Reader(&bytes)), None, "a name beyond its limit");
        bytes[0..2].copy_from_slice(&[9, 64]);
        assert_eq!(Hold::read(&mut Reader(&bytes)), None, "an unknown kind");
    }

    #[test]
    fn a_reason_has_these_bytes() {
        let mut bytes = Vec::new();
        Hold::new(HoldKind::Operator, "ann", "why").until(0x0102_0304).write(&mut bytes);
        assert_eq!(bytes, b"\x01\x03\x03\x00\x04\x03\x02\x01annwhy");
    }
}

//! The part after the `@`: a name in the DNS, or an address literal.
//!
//! A [`DomainName`] keeps the spelling it came with, for logs and for the next hop, and knows its DNS form: lower case,
//! with A-labels for U-labels. Comparison and look-up use the DNS form only. It does not ask the DNS whether the name
//! exists, and does not know public suffixes.

use std::borrow::Cow;
use std::fmt;
use std::str::FromStr;

use idna::AsciiDenyList;
use idna::uts46::{DnsLength, Hyphens, Uts46};

use super::error::{AddressError, AddressParseError, AddressReason};
use super::literal::AddressLiteral;
use crate::scan::Scan;

/// RFC 5321 §4.5.3.1.2, in octets as written.
const TEXT_OCTETS_MAX: usize = 255;
/// The wire form of RFC 1035 §2.3.4 has 255 octets: one before each label and one for the root.
const DNS_OCTETS_MAX: usize = 253;
const LABEL_OCTETS_MAX: usize = 63;

/// Where a mailbox lives.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Domain {
    /// A name, looked up in maps and in the DNS.
    Name(DomainName),
    /// An IP address in brackets.
    Literal(AddressLiteral),
}

impl Domain {
    /// Reads a domain or a literal in brackets.
    ///
    /// # Errors
    /// With position and reason.
    pub fn parse(bytes: &[u8]) -> Result<Self, AddressError> {
        super::parse_whole(bytes, Self::scan)
    }

    /// The name, if it is one.
    #[must_use]
    pub const fn name(&self) -> Option<&DomainName> {
        match self {
            Self::Name(name) => Some(name),
            Self::Literal(_) => None,
        }
    }

    pub(super) fn scan(scan: &mut Scan<'_>) -> Result<Self, AddressParseError> {
        let start = scan.at();
        if scan.take(b'[') {
            // RFC 5321 §4.1.3: dcontent is printable ASCII without brackets and backslash
            let content = scan.take_while(|byte| byte.is_ascii_graphic() && !matches!(byte, b'[' | b']' | b'\\'));
            let content = str::from_utf8(content).map_err(|_| AddressParseError::new(start, AddressReason::NotUtf8))?;
            if !scan.take(b']') {
                let reason = if scan.is_at_end() { AddressReason::OpenLiteral } else { AddressReason::Character };
                return Err(AddressParseError::new(scan.at(), reason));
            }
            return AddressLiteral::parse(content)
                .map(Self::Literal)
                .map_err(|reason| AddressParseError::new(start, reason));
        }
        let text = scan.take_while(|byte| is_name_byte(byte) || byte == b'.');
        if text.is_empty() {
            let reason = match scan.peek() {
                None | Some(b'>') => AddressReason::NoDomain,
                Some(byte) if byte.is_ascii_control() => AddressReason::Control,
                Some(_) => AddressReason::Character,
            };
            return Err(AddressParseError::new(start, reason));
        }
        let text = str::from_utf8(text)
            .map_err(|e| AddressParseError::new(start + e.valid_up_to(), AddressReason::NotUtf8))?;
        DomainName::check(text).map(Self::Name).map_err(|fault| fault.shifted(start))
    }
}

impl FromStr for Domain {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        Self::parse(text.as_bytes())
    }
}

impl From<DomainName> for Domain {
    fn from(name: DomainName) -> Self {
        Self::Name(name)
    }
}

impl From<AddressLiteral> for Domain {
    fn from(literal: AddressLiteral) -> Self {
        Self::Literal(literal)
    }
}

impl fmt::Display for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Name(name) => name.fmt(f),
            Self::Literal(literal) => literal.fmt(f),
        }
    }
}

impl fmt::Debug for Domain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Domain({self})")
    }
}

/// A domain name of one or more labels, without the dot of the root. `==` compares the spelling;
/// compare [`DomainName::ascii`] to know whether two are the same domain.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DomainName {
    text: Box<str>,
    /// The DNS form where it differs from the text.
    ascii: Option<Box<str>>,
}

impl DomainName {
    /// Reads a name: letters, digits, hyphens and underscores in ASCII labels, or labels that IDNA can map.
    ///
    /// # Errors
    /// With position and reason.
    pub fn new(text: &str) -> Result<Self, AddressError> {
        Self::check(text).map_err(|fault| AddressError::new(text.as_bytes(), fault))
    }

    /// The name as it was spelt.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// The name for the DNS, for maps and for comparison: lower case, A-labels (`xn--…`) for U-labels.
    #[must_use]
    pub fn ascii(&self) -> &str {
        self.ascii.as_deref().unwrap_or(&self.text)
    }

    /// The name for people: U-labels where the A-labels are valid, as they are elsewhere.
    #[must_use]
    pub fn unicode(&self) -> Cow<'_, str> {
        Uts46::new().to_unicode(self.ascii().as_bytes(), AsciiDenyList::EMPTY, Hyphens::Allow).0
    }

    fn check(text: &str) -> Result<Self, AddressParseError> {
        if text.is_empty() {
            return Err(AddressParseError::new(0, AddressReason::NoDomain));
        }
        // Before anything whose cost grows faster than the name: Punycode is quadratic.
        if text.len() > TEXT_OCTETS_MAX {
            return Err(AddressParseError::new(0, AddressReason::DomainTooLong));
        }
        let mut at = 0;
        for label in text.split('.') {
            // RFC 5321 §4.1.2: sub-domain = Let-dig [Ldh-str]. The underscore is no letter, digit or hyphen, but host
            // names with it send mail, and nothing is confused by it.
            let reason = if label.is_empty() {
                Some(AddressReason::Dot)
            } else if label.starts_with('-') || label.ends_with('-') {
                Some(AddressReason::Hyphen)
            } else if label.is_ascii() && label.len() > LABEL_OCTETS_MAX {
                Some(AddressReason::LabelTooLong)
            } else {
                None
            };
            if let Some(reason) = reason {
                return Err(AddressParseError::new(at, reason));
            }
            if let Some(bad) = label.bytes().position(|byte| !is_name_byte(byte)) {
                return Err(AddressParseError::new(at + bad, AddressReason::Character));
            }
            at += label.len() + 1;
        }
        let ascii = if text.is_ascii() {
            text.bytes().any(|byte| byte.is_ascii_uppercase()).then(|| text.to_ascii_lowercase().into())
        } else {
            Some(to_ascii(text).ok_or(AddressParseError::new(0, AddressReason::Idna))?.into())
        };
        let name = Self { text: text.into(), ascii };
        if name.ascii().len() > DNS_OCTETS_MAX {
            return Err(AddressParseError::new(0, AddressReason::DomainTooLong));
        }
        Ok(name)
    }
}

impl FromStr for DomainName {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        Self::new(text)
    }
}

impl fmt::Display for DomainName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.text)
    }
}

impl fmt::Debug for DomainName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "DomainName({self})")
    }
}

const fn is_name_byte(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | 0x80..)
}

/// Maps U-labels to A-labels, by UTS 46 with the checks of RFC 5891 §5.
///
/// The mapping may fold case and compose accents, but a label that is not ASCII must stay so: full-width letters, soft
/// hyphens and one-dot leaders that turn into a plain ASCII name or into another number of labels are refused, since a
/// rule or a person that reads the spelling would see a different domain than the resolver.
fn to_ascii(text: &str) -> Option<String> {
    // RFC 6531 §3.3: sub-domain =/ U-label
    let ascii = Uts46::new()
        .to_ascii(text.as_bytes(), AsciiDenyList::STD3, Hyphens::CheckFirstLast, DnsLength::Verify)
        .ok()?
        .into_owned();
    let same_labels = text.split('.').count() == ascii.split('.').count();
    let undisguised = text.split('.').zip(ascii.split('.')).all(|(u, a)| u.is_ascii() || a.starts_with("xn--"));
    (same_labels && undisguised).then_some(ascii)
}

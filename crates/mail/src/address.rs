//! Mail addresses as the envelope has them: RFC 5321, and with UTF-8 RFC 6531.
//!
//! Foreign bytes become an [`Address`] at the edge of the server, and no code behind it handles addresses as strings.
//! The parser is strict: text outside the grammar is refused with its position, because two servers that guess
//! differently deliver to different people. Exceptions, each where it is made: underscores in domains, local parts over
//! 64 octets, `::` for a single group.
//!
//! Invariants: an address holds no control character, ASCII or C1, so it cannot break a command, a log line or a
//! header; it is at most 254 octets long as written; written text reads back as the same value.
//!
//! Not here: whether the domain exists or the mailbox is ours (`route`), display names and comments (`header_address`).

mod domain;
mod error;
mod literal;
mod local_part;
mod path;

use std::fmt;
use std::str::FromStr;

pub use domain::{Domain, DomainName};
pub(crate) use error::AddressParseError;
pub use error::{AddressError, AddressReason};
pub use literal::{AddressLiteral, GeneralLiteral};
pub use local_part::LocalPart;
pub(crate) use local_part::write_local_part;
pub use path::{ForwardPath, ReversePath};

use crate::scan::Scan;

/// RFC 5321 §4.5.3.1.3: a path has 256 octets, of which two are its brackets.
const ADDRESS_OCTETS_MAX: usize = 254;

/// A mailbox: local part and domain. `==` compares the spelling of the domain too; whether two addresses are one
/// mailbox is said by [`Address::key`].
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Address {
    local: LocalPart,
    domain: Domain,
}

impl Address {
    /// Puts an address together.
    ///
    /// # Errors
    /// When it is longer than 254 octets.
    pub fn new(local: LocalPart, domain: Domain) -> Result<Self, AddressError> {
        let address = Self { local, domain };
        address.check_length(0).map_err(|fault| AddressError::new(address.to_string().as_bytes(), fault))?;
        Ok(address)
    }

    /// Reads an address without brackets: `a@b.example`.
    ///
    /// # Errors
    /// With position and reason.
    pub fn parse(bytes: &[u8]) -> Result<Self, AddressError> {
        parse_whole(bytes, Self::scan)
    }

    /// The part before the `@`.
    #[must_use]
    pub const fn local_part(&self) -> &LocalPart {
        &self.local
    }

    /// The part after the `@`.
    #[must_use]
    pub const fn domain(&self) -> &Domain {
        &self.domain
    }

    /// Takes the address apart.
    #[must_use]
    pub fn into_parts(self) -> (LocalPart, Domain) {
        (self.local, self.domain)
    }

    /// Whether it is written in ASCII alone. If not, it needs a next hop with SMTPUTF8, or [`Address::to_ascii`].
    #[must_use]
    pub fn is_ascii(&self) -> bool {
        self.local.as_str().is_ascii() && self.domain.name().is_none_or(|name| name.as_str().is_ascii())
    }

    /// The same mailbox with A-labels for U-labels, for a next hop without SMTPUTF8. `None` when the local part is not
    /// ASCII, which has no such form, or when the result is too long.
    #[must_use]
    pub fn to_ascii(&self) -> Option<Self> {
        // RFC 6531 §3.2: only the domain may be rewritten, never the local part
        if self.is_ascii() {
            return Some(self.clone());
        }
        let name = self.domain.name().filter(|_| self.local.as_str().is_ascii())?;
        Self::new(self.local.clone(), Domain::Name(DomainName::new(name.ascii()).ok()?)).ok()
    }

    /// The form by which two spellings of one mailbox are equal: domain in DNS form, local part unchanged.
    #[must_use]
    pub fn key(&self) -> AddressKey {
        // RFC 5321 §2.4: local parts are case sensitive, domains are not
        AddressKey(match &self.domain {
            Domain::Name(name) => format!("{}@{}", self.local, name.ascii()).into(),
            Domain::Literal(literal) => format!("{}@{}", self.local, literal.to_string().to_ascii_lowercase()).into(),
        })
    }

    pub(crate) fn scan(scan: &mut Scan<'_>) -> Result<Self, AddressParseError> {
        let start = scan.at();
        let local = LocalPart::scan(scan)?;
        let domain = Domain::scan(scan)?;
        let address = Self { local, domain };
        address.check_length(start)?;
        Ok(address)
    }

    // RFC 5321 §4.5.3.1.3
    fn check_length(&self, start: usize) -> Result<(), AddressParseError> {
        let domain = match &self.domain {
            Domain::Name(name) => name.as_str().len(),
            Domain::Literal(literal) => literal.to_string().len(),
        };
        if self.local.written_len() + 1 + domain > ADDRESS_OCTETS_MAX {
            return Err(AddressParseError::new(start, AddressReason::TooLong));
        }
        Ok(())
    }
}

impl FromStr for Address {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        Self::parse(text.as_bytes())
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}@{}", self.local, self.domain)
    }
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Address({self})")
    }
}

/// The identity of a mailbox, see [`Address::key`]. Its text is unambiguous and itself an address.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct AddressKey(Box<str>);

impl AddressKey {
    /// The key as text, for maps and indexes.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for AddressKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

// RFC 5322 §3.2.3: atext; RFC 6531 §3.3 adds every non-ASCII character
pub(crate) const fn is_atext(byte: u8) -> bool {
    byte.is_ascii_alphanumeric()
        || matches!(
            byte,
            b'!' | b'#' | b'$' | b'%' | b'&' | b'\'' | b'*' | b'+' | b'-' | b'/' | b'=' | b'?' | b'^' | b'_' | b'`'
        )
        || matches!(byte, b'{' | b'|' | b'}' | b'~' | 0x80..)
}

type Part<T> = fn(&mut Scan<'_>) -> Result<T, AddressParseError>;

/// Reads one value that fills `bytes`.
fn parse_whole<T>(bytes: &[u8], part: Part<T>) -> Result<T, AddressError> {
    let (value, rest) = parse_front(bytes, part)?;
    if rest.is_empty() {
        return Ok(value);
    }
    Err(AddressError::new(bytes, AddressParseError::new(bytes.len() - rest.len(), AddressReason::Trailing)))
}

/// Reads the value at the beginning of `bytes`, all of which must be UTF-8 without C1 controls: one look at the whole
/// spares every parser of a part the question.
fn parse_front<T>(bytes: &[u8], part: Part<T>) -> Result<(T, &[u8]), AddressError> {
    let fail = |fault| AddressError::new(bytes, fault);
    // RFC 6531 §3.3: non-ASCII is UTF-8 and nothing else
    let text =
        str::from_utf8(bytes).map_err(|e| fail(AddressParseError::new(e.valid_up_to(), AddressReason::NotUtf8)))?;
    if !text.is_ascii()
        && let Some((at, _)) = text.char_indices().find(|(_, c)| !c.is_ascii() && c.is_control())
    {
        return Err(fail(AddressParseError::new(at, AddressReason::Control)));
    }
    let mut scan = Scan::new(bytes);
    let value = part(&mut scan).map_err(fail)?;
    Ok((value, scan.rest()))
}

#[cfg(test)]
pub(crate) mod tests;

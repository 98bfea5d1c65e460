//! The paths of `MAIL FROM:` and `RCPT TO:`: an address in angle brackets, the null sender, or the local postmaster.
//!
//! `split` reads a path at the beginning of a command's argument and hands back the rest, which holds the parameters.
//! Brackets are required and nothing may stand before them; whether to forgive a space or missing brackets is the
//! session's policy, not ours.

use std::fmt;
use std::str::FromStr;

use super::domain::{Domain, DomainName};
use super::error::{AddressError, AddressParseError, AddressReason};
use super::{Address, parse_front, parse_whole};
use crate::scan::Scan;

/// The address that reports of failed delivery go to, or none.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ReversePath {
    /// `<>`, the sender of bounces, which must not cause further ones (RFC 5321 §4.5.5).
    Null,
    /// `<a@b>`
    Address(Address),
}

impl ReversePath {
    /// Reads a path and nothing after it.
    ///
    /// # Errors
    /// With position and reason.
    pub fn parse(bytes: &[u8]) -> Result<Self, AddressError> {
        parse_whole(bytes, Self::scan)
    }

    /// Reads the path at the beginning of `bytes` and returns it with the rest.
    ///
    /// # Errors
    /// With position and reason.
    pub fn split(bytes: &[u8]) -> Result<(Self, &[u8]), AddressError> {
        parse_front(bytes, Self::scan)
    }

    /// The address, unless the path is null.
    #[must_use]
    pub const fn address(&self) -> Option<&Address> {
        match self {
            Self::Null => None,
            Self::Address(address) => Some(address),
        }
    }

    // RFC 5321 §4.1.2: Reverse-path = Path / "<>"
    fn scan(scan: &mut Scan<'_>) -> Result<Self, AddressParseError> {
        open(scan)?;
        if scan.take(b'>') {
            return Ok(Self::Null);
        }
        let address = routed_address(scan)?;
        close(scan)?;
        Ok(Self::Address(address))
    }
}

impl From<Address> for ReversePath {
    fn from(address: Address) -> Self {
        Self::Address(address)
    }
}

impl FromStr for ReversePath {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        Self::parse(text.as_bytes())
    }
}

impl fmt::Display for ReversePath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Null => f.write_str("<>"),
            Self::Address(address) => write!(f, "<{address}>"),
        }
    }
}

/// Where a message shall go, as a client says it.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum ForwardPath {
    /// `<Postmaster>` without a domain, in any case: the postmaster of this host (RFC 5321 §4.5.1).
    Postmaster,
    /// `<a@b>`
    Address(Address),
}

impl ForwardPath {
    /// Reads a path and nothing after it.
    ///
    /// # Errors
    /// With position and reason.
    pub fn parse(bytes: &[u8]) -> Result<Self, AddressError> {
        parse_whole(bytes, Self::scan)
    }

    /// Reads the path at the beginning of `bytes` and returns it with the rest.
    ///
    /// # Errors
    /// With position and reason.
    pub fn split(bytes: &[u8]) -> Result<(Self, &[u8]), AddressError> {
        parse_front(bytes, Self::scan)
    }

    /// The address to put into the envelope; the postmaster is the one at `host`, this host's own name.
    ///
    /// # Errors
    /// When `postmaster@` and `host` together are too long for an address.
    pub fn into_address(self, host: &DomainName) -> Result<Address, AddressError> {
        match self {
            Self::Postmaster => Address::new(super::LocalPart::new("postmaster")?, Domain::Name(host.clone())),
            Self::Address(address) => Ok(address),
        }
    }

    // RFC 5321 §4.1.1.3: "RCPT TO:" ( "<Postmaster@" Domain ">" / "<Postmaster>" / Forward-path )
    fn scan(scan: &mut Scan<'_>) -> Result<Self, AddressParseError> {
        const POSTMASTER: &[u8] = b"postmaster>";
        open(scan)?;
        if scan.rest().get(..POSTMASTER.len()).is_some_and(|front| front.eq_ignore_ascii_case(POSTMASTER)) {
            scan.take_while(|byte| byte != b'>');
            close(scan)?;
            return Ok(Self::Postmaster);
        }
        let address = routed_address(scan)?;
        close(scan)?;
        Ok(Self::Address(address))
    }
}

impl From<Address> for ForwardPath {
    fn from(address: Address) -> Self {
        Self::Address(address)
    }
}

impl FromStr for ForwardPath {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        Self::parse(text.as_bytes())
    }
}

impl fmt::Display for ForwardPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Postmaster => f.write_str("<Postmaster>"),
            Self::Address(address) => write!(f, "<{address}>"),
        }
    }
}

fn open(scan: &mut Scan<'_>) -> Result<(), AddressParseError> {
    if scan.take(b'<') { Ok(()) } else { Err(AddressParseError::new(scan.at(), AddressReason::NoBracket)) }
}

fn close(scan: &mut Scan<'_>) -> Result<(), AddressParseError> {
    if scan.take(b'>') {
        return Ok(());
    }
    let reason = match scan.peek() {
        None => AddressReason::Open,
        Some(byte) if byte.is_ascii_control() => AddressReason::Control,
        Some(_) => AddressReason::Character,
    };
    Err(AddressParseError::new(scan.at(), reason))
}

/// Reads `[A-d-l ":"] Mailbox`. The route must be well formed and is dropped.
// RFC 5321 §4.1.1.3: source routes are accepted and ignored; RFC 5321 §4.1.2: A-d-l = At-domain *( "," At-domain )
fn routed_address(scan: &mut Scan<'_>) -> Result<Address, AddressParseError> {
    if scan.peek() == Some(b'@') {
        loop {
            let at = scan.at();
            if !scan.take(b'@') {
                return Err(AddressParseError::new(at, AddressReason::Route));
            }
            Domain::scan(scan)?;
            match scan.next() {
                Some(b',') => {}
                Some(b':') => break,
                // `<@d>` is an address without local part rather than half a route.
                Some(b'>') => return Err(AddressParseError::new(at, AddressReason::NoLocalPart)),
                _ => return Err(AddressParseError::new(at, AddressReason::Route)),
            }
        }
    }
    Address::scan(scan)
}

//! A host named by its IP address: `[192.0.2.1]`, `[IPv6:2001:db8::1]`.
//!
//! Literals are held as addresses, not as spellings: `[IPv6:2001:DB8:0::1]` is written back as `[IPv6:2001:db8::1]`.

use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::error::AddressReason;

const IPV6_TAG: &str = "IPv6:";

/// The address in brackets in place of a domain name (RFC 5321 §4.1.3).
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub enum AddressLiteral {
    /// `[192.0.2.1]`
    V4(Ipv4Addr),
    /// `[IPv6:2001:db8::1]`
    V6(Ipv6Addr),
    /// `[tag:content]` of a kind that is not registered yet; it can be relayed, not delivered.
    General(GeneralLiteral),
}

/// Tag and content of a general literal.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
pub struct GeneralLiteral {
    tag: Box<str>,
    content: Box<str>,
}

impl GeneralLiteral {
    /// The tag before the first colon.
    #[must_use]
    pub fn tag(&self) -> &str {
        &self.tag
    }

    /// Returns the text behind the colon.
    #[must_use]
    pub fn content(&self) -> &str {
        &self.content
    }
}

impl AddressLiteral {
    /// The address to connect to, if it is one.
    #[must_use]
    pub const fn ip(&self) -> Option<IpAddr> {
        match self {
            Self::V4(ip) => Some(IpAddr::V4(*ip)),
            Self::V6(ip) => Some(IpAddr::V6(*ip)),
            Self::General(_) => None,
        }
    }

    /// Reads what stands between the brackets.
    // RFC 5321 §4.1.3 (gap: IPv4 numbers with leading zeros are refused, half the world reads them as octal)
    pub(super) fn parse(content: &str) -> Result<Self, AddressReason> {
        if let Ok(ip) = content.parse() {
            return Ok(Self::V4(ip));
        }
        if let Some((tag, rest)) = content.split_at_checked(IPV6_TAG.len())
            && tag.eq_ignore_ascii_case(IPV6_TAG)
        {
            // The grammar wants "::" to stand for two groups or more; RFC 4291 §2.2 allows one, and so does std.
            return rest.parse().map(Self::V6).map_err(|_| AddressReason::Literal);
        }
        let (tag, rest) = content.split_once(':').ok_or(AddressReason::Literal)?;
        // A tag is any Ldh-str, which makes `[1111:2222::1]` a general literal of kind "1111". No sender writes such a
        // literal on purpose, so here a tag must begin with a letter, and be longer than the groups of an IPv6 address.
        let is_tag = tag.len() > 4
            && tag.starts_with(|c: char| c.is_ascii_alphabetic())
            && tag.ends_with(|c: char| c.is_ascii_alphanumeric())
            && tag.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        if !is_tag || rest.is_empty() {
            return Err(AddressReason::Literal);
        }
        Ok(Self::General(GeneralLiteral { tag: tag.into(), content: rest.into() }))
    }
}

impl From<IpAddr> for AddressLiteral {
    fn from(ip: IpAddr) -> Self {
        match ip {
            IpAddr::V4(ip) => Self::V4(ip),
            IpAddr::V6(ip) => Self::V6(ip),
        }
    }
}

impl fmt::Display for AddressLiteral {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(ip) => write!(f, "[{ip}]"),
            Self::V6(ip) => write!(f, "[{IPV6_TAG}{ip}]"),
            Self::General(literal) => write!(f, "[{}:{}]", literal.tag, literal.content),
        }
    }
}

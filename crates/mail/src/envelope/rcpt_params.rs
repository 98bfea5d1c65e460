//! The parameters of `RCPT TO:` as values, read from a command and written for the next hop.
//!
//! They say which reports the sender wants about this recipient. Written text reads back as the same value.

use std::fmt;
use std::str::FromStr;

use super::extension::{Extension, Extensions};
use crate::parameter::{ParamError, ParamReason, ParamWriter, fill, parameters};
use crate::xtext;

/// The parameters of a client for one recipient.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct RecipientParams {
    /// `NOTIFY=`: when to report. Not given means on failure, and on delay if the server likes.
    pub notify: Option<Notify>,
    /// `ORCPT=`: the address the sender used, before aliases and lists.
    pub orcpt: Option<OriginalRecipient>,
}

impl RecipientParams {
    /// Reads what follows the path of `RCPT TO:`.
    ///
    /// # Errors
    /// The first parameter that is malformed, given twice, or unknown.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParamError> {
        let mut params = Self::default();
        for parameter in parameters(bytes) {
            let parameter = parameter?;
            let value = parameter.value;
            let filled = match parameter.keyword.to_ascii_uppercase().as_str() {
                "NOTIFY" => fill(&mut params.notify, value.and_then(Notify::parse)),
                "ORCPT" => fill(&mut params.orcpt, value.and_then(OriginalRecipient::parse)),
                // RFC 5321 §4.1.1.11: unknown parameters are refused, 555
                _ => Err(ParamReason::Unknown),
            };
            filled.map_err(|reason| ParamError::new(parameter, reason))?;
        }
        Ok(params)
    }

    /// The extensions whose parameters are used.
    #[must_use]
    pub fn extensions(&self) -> Extensions {
        let uses_dsn = self.notify.is_some() || self.orcpt.is_some();
        uses_dsn.then_some(Extension::Dsn).into_iter().collect()
    }
}

/// Writes the parameters with single spaces between them and none before the first.
impl fmt::Display for RecipientParams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = ParamWriter::new(f);
        out.value("NOTIFY", self.notify)?;
        out.value("ORCPT", self.orcpt.as_ref())
    }
}

impl FromStr for RecipientParams {
    type Err = ParamError;

    fn from_str(text: &str) -> Result<Self, ParamError> {
        Self::parse(text.as_bytes())
    }
}

/// On which outcomes the sender wants a report (RFC 3461 §4.1). The empty set is `NEVER`.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct Notify(u8);

impl Notify {
    /// `NEVER`: no report for any result.
    pub const NEVER: Self = Self(0);
    /// `SUCCESS`
    pub const SUCCESS: Self = Self(1);
    /// `FAILURE`
    pub const FAILURE: Self = Self(2);
    /// `DELAY`
    pub const DELAY: Self = Self(4);

    const NAMES: [(Self, &'static str); 3] =
        [(Self::SUCCESS, "SUCCESS"), (Self::FAILURE, "FAILURE"), (Self::DELAY, "DELAY")];

    /// The outcomes of both.
    #[must_use]
    pub const fn and(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }

    /// Whether all outcomes of `other` are in it.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// The set as a number, 0..=7, for records.
    #[must_use]
    pub const fn bits(self) -> u8 {
        self.0
    }

    /// Takes a set back from its number; `None` above 7.
    #[must_use]
    pub const fn from_bits(bits: u8) -> Option<Self> {
        if bits <= 7 { Some(Self(bits)) } else { None }
    }

    // RFC 3461 §4.1: "NEVER" / 1#notify-list-element
    fn parse(value: &str) -> Option<Self> {
        if value.eq_ignore_ascii_case("NEVER") {
            return Some(Self::NEVER);
        }
        value.split(',').try_fold(Self::NEVER, |set, name| {
            let (outcome, _) = Self::NAMES.into_iter().find(|(_, known)| known.eq_ignore_ascii_case(name))?;
            Some(set.and(outcome))
        })
    }
}

impl fmt::Display for Notify {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if *self == Self::NEVER {
            return f.write_str("NEVER");
        }
        let mut separator = "";
        for (_, name) in Self::NAMES.into_iter().filter(|(outcome, _)| self.contains(*outcome)) {
            write!(f, "{separator}{name}")?;
            separator = ",";
        }
        Ok(())
    }
}

impl fmt::Debug for Notify {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Notify({self})")
    }
}

/// The recipient as the sender wrote it (RFC 3461 §4.2, RFC 6533 §3): a type such as `rfc822` and an address, held
/// decoded.
///
/// The address need not have the form its type suggests; it is reported back, never used for delivery.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct OriginalRecipient {
    kind: Box<str>,
    address: Box<str>,
}

impl OriginalRecipient {
    /// Longest value, in octets as encoded: RFC 3461 §4.2.
    pub const OCTETS_MAX: usize = 500;

    const RFC822: &str = "rfc822";
    const UTF8: &str = "utf-8";

    /// Takes a type and a decoded address. `None` when the type is no atom, the address is empty or has characters that
    /// may not stand in a report (controls; non-ASCII except in type `utf-8`), or the whole is too long.
    #[must_use]
    pub fn new(kind: &str, address: &str) -> Option<Self> {
        let is_utf8 = kind.eq_ignore_ascii_case(Self::UTF8);
        // RFC 3461 §4.2: addr-type = atom
        let kind_fits = !kind.is_empty() && kind.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-');
        // RFC 3461 §4.2: printable ASCII, since it will stand in a field of the report; RFC 6533 §3 widens it for utf-8
        let printable = |c: char| !c.is_control() && (is_utf8 || c.is_ascii());
        let fits = kind_fits && !address.is_empty() && address.chars().all(printable);
        let orcpt = fits.then(|| Self { kind: kind.into(), address: address.into() })?;
        (orcpt.to_string().len() <= Self::OCTETS_MAX).then_some(orcpt)
    }

    /// The type, in the case it came with.
    #[must_use]
    pub fn kind(&self) -> &str {
        &self.kind
    }

    /// The address, decoded.
    #[must_use]
    pub fn address(&self) -> &str {
        &self.address
    }

    fn parse(value: &str) -> Option<Self> {
        let (kind, encoded) = value.split_once(';')?;
        let is_utf8 = kind.eq_ignore_ascii_case(Self::UTF8);
        let address = if is_utf8 { xtext::decode_utf8(encoded) } else { xtext::decode(encoded) }?;
        // RFC 6533 §3 has the type utf-8 for these. Postfix 3.7 adds `ORCPT=rfc822;j+C3+BCrgen@example.org` to every
        // message for such an address and takes a refusal as final; it is passed on with its true type, since rfc822
        // may not have it.
        let is_mislabelled = !address.is_ascii() && kind.eq_ignore_ascii_case(Self::RFC822);
        Self::new(if is_mislabelled { Self::UTF8 } else { kind }, &address)
    }
}

/// Writes type and address, encoded in ASCII.
impl fmt::Display for OriginalRecipient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let is_utf8 = self.kind.eq_ignore_ascii_case(Self::UTF8);
        let encoded = if is_utf8 { xtext::encode_utf8(&self.address) } else { xtext::encode(&self.address) };
        write!(f, "{};{encoded}", self.kind)
    }
}

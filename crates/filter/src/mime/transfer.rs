//! The transfer encodings of bodies: base64, quoted-printable, and none.

use std::borrow::Cow;

use mail::base64;
use mail::scan::hex_value;

use super::Damage;

/// How the octets of a part are encoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum TransferEncoding {
    /// `7bit`, `8bit`, `binary`, or no field.
    #[default]
    Identity,
    /// `base64`.
    Base64,
    /// `quoted-printable`.
    QuotedPrintable,
    /// Something else: the octets are taken as they are.
    Unknown,
}

impl TransferEncoding {
    /// Finds the encoding by its token, which is in lower case.
    // RFC 2045 §6.1
    pub(super) fn for_token(token: &str) -> Self {
        match token {
            "7bit" | "8bit" | "binary" => Self::Identity,
            "base64" => Self::Base64,
            "quoted-printable" => Self::QuotedPrintable,
            _ => Self::Unknown,
        }
    }

    /// Returns the word for the encoding.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Identity => "plain",
            Self::Base64 => "base64",
            Self::QuotedPrintable => "quoted-printable",
            Self::Unknown => "unknown",
        }
    }

    /// Decodes a body, at most `octets_max` octets of the result.
    pub(super) fn decode(self, body: &[u8], octets_max: usize) -> Decoded<'_> {
        let mut damage = None;
        let mut is_cut = false;
        let octets = match self {
            Self::Identity | Self::Unknown => Cow::Borrowed(body),
            Self::Base64 => {
                // Four letters make three octets, and line ends stand between them.
                let needed = octets_max.saturating_mul(2).min(body.len());
                is_cut = needed < body.len();
                let mut out = Vec::with_capacity(needed / 4 * 3 + 3);
                let is_whole = base64::decode_forgiving(body.get(..needed).unwrap_or(body), &mut out);
                damage = (!is_whole && !is_cut).then_some(Damage::BadBase64);
                Cow::Owned(out)
            }
            Self::QuotedPrintable => {
                let mut out = Vec::with_capacity(body.len().min(octets_max));
                let is_whole = decode_quoted_printable(body, octets_max.saturating_add(1), &mut out);
                damage = (!is_whole).then_some(Damage::BadQuotedPrintable);
                Cow::Owned(out)
            }
        };
        is_cut |= octets.len() > octets_max;
        let octets = match octets {
            Cow::Borrowed(all) => Cow::Borrowed(all.get(..octets_max).unwrap_or(all)),
            Cow::Owned(mut all) => {
                all.truncate(octets_max);
                Cow::Owned(all)
            }
        };
        Decoded { octets, is_cut, damage }
    }
}

/// A body after transfer decoding.
pub(super) struct Decoded<'a> {
    pub(super) octets: Cow<'a, [u8]>,
    pub(super) is_cut: bool,
    pub(super) damage: Option<Damage>,
}

/// Appends the octets of a quoted-printable text; false when an `=` without two hexadecimal digits stands in it (and
/// stays).
// RFC 2045 §6.7
fn decode_quoted_printable(text: &[u8], octets_max: usize, out: &mut Vec<u8>) -> bool {
    let mut is_whole = true;
    let mut rest = text;
    while let Some(at) = memchr::memchr(b'=', rest) {
        if out.len() >= octets_max {
            return is_whole;
        }
        let (plain, coded) = rest.split_at_checked(at).unwrap_or((rest, &[]));
        out.extend_from_slice(plain);
        rest = coded.get(1..).unwrap_or_default();
        if let [high, low, behind @ ..] = rest
            && let (Some(high), Some(low)) = (hex_value(*high), hex_value(*low))
        {
            out.push(high << 4 | low);
            rest = behind;
            continue;
        }
        // RFC 2045 §6.7 (5): a soft line break, and (3): white space that a gateway added before it
        let spaces = rest.iter().take_while(|byte| matches!(byte, b' ' | b'\t')).count();
        let behind = rest.get(spaces..).unwrap_or_default();
        let line_end = behind.strip_prefix(b"\r\n").or_else(|| behind.strip_prefix(b"\n"));
        if let Some(next_line) = line_end {
            rest = next_line;
        } else if behind.is_empty() {
            return is_whole;
        } else {
            out.push(b'=');
            is_whole = false;
        }
    }
    out.extend_from_slice(rest);
    is_whole
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 2045 §6.7 (test), RFC 2045 §6.8 (test)
    #[test]
    fn bodies() {
        for (encoding, body, wanted, damage) in [
            ("quoted-printable", "a=3D=\r\nb= \nc=e4\r\n=", &b"a=bc\xe4\r\n"[..], None),
            ("quoted-printable", "a=xb=4", b"a=xb=4", Some(Damage::BadQuotedPrintable)),
            ("base64", "aGVs\r\nbG8=\r\n", b"hello", None),
            ("base64", "aGVs*bG8", b"hello", Some(Damage::BadBase64)),
            ("7bit", "a=3D", b"a=3D", None),
            ("x-uuencode", "a=3D", b"a=3D", None),
        ] {
            let decoded = TransferEncoding::for_token(encoding).decode(body.as_bytes(), 1_000);
            assert_eq!((&*decoded.octets, decoded.damage, decoded.is_cut), (wanted, damage, false), "{body}");
        }
    }

    #[test]
    fn output_is_bounded() {
        for (encoding, body) in [("base64", "QUFB\r\n"), ("quoted-printable", "=41=41"), ("8bit", "AAAA")] {
            let body = body.repeat(1_000);
            let decoded = TransferEncoding::for_token(encoding).decode(body.as_bytes(), 100);
            assert!(decoded.is_cut, "{encoding}");
            assert_eq!(*decoded.octets, b"A".repeat(100), "{encoding}");
            assert_eq!(decoded.damage, None);
        }
    }
}

//! The field Authentication-Results (RFC 8601): text of ours, recognition of forged ones, and the results that a field
//! reports ([`reported_results`]).

mod reading;

pub use reading::{ReportedResult, reported_results};

use mail::header::{Field, HeaderSection, Item, LineEnd, unfold};

/// The longest value of a property or a reason.
const VALUE_CHARS_MAX: usize = 250;
/// The name of the field.
pub const NAME: &str = "Authentication-Results";

/// The result of one method.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MethodResult {
    /// `spf`, `dkim`, `dmarc`, `iprev`
    pub method: &'static str,
    /// `pass`, `fail` and others.
    pub code: &'static str,
    /// The reason; empty: none is given. It may be text of a stranger.
    pub reason: String,
    /// Properties, as `smtp.mailfrom`, with their values. They may be text of a stranger.
    pub properties: Vec<(&'static str, String)>,
}

/// Writes the field with a line end; without results it says `none`.
// RFC 8601 §2.2
#[must_use]
pub fn field(authserv_id: &str, results: &[MethodResult]) -> String {
    let mut text = format!("{NAME}: {authserv_id}");
    if results.is_empty() {
        text.push_str("; none");
    }
    for MethodResult { method, code, reason, properties } in results {
        text.push_str(&format!(";\r\n\t{method}={code}"));
        if !reason.is_empty() {
            text.push_str(&format!(" reason={}", quoted(reason)));
        }
        for (name, value) in properties {
            text.push_str(&format!("\r\n\t {name}={}", value_of(value)));
        }
    }
    text.push_str("\r\n");
    text
}

/// Returns a value as it may stand behind an equals sign: a token, an address, or a quoted text.
fn value_of(value: &str) -> String {
    let is_plain = |c: char| c.is_ascii_alphanumeric() || "!#$%&'*+-.^_`{|}~@".contains(c);
    if !value.is_empty() && value.len() <= VALUE_CHARS_MAX && value.chars().all(is_plain) {
        return value.to_owned();
    }
    quoted(value)
}

fn quoted(value: &str) -> String {
    let safe = value.chars().take(VALUE_CHARS_MAX).map(|c| match c {
        '"' | '\\' => '\'',
        ' '..='~' => c,
        _ => '?',
    });
    format!("\"{}\"", safe.collect::<String>())
}

/// Returns the positions of fields in a header section that claim to be of this server, the first field has position
/// 0. Only this server may use its name, so they are forged.
// RFC 8601 §5
#[must_use]
pub fn forged(header: &HeaderSection<'_>, authserv_id: &str) -> Vec<usize> {
    let fields = header.fields().enumerate().filter(|(_, field)| field.has_name(NAME));
    fields.filter(|(_, field)| is_of(field, authserv_id)).map(|(at, _)| at).collect()
}

/// Returns whether a field claims to be of a server.
pub(crate) fn is_of(field: &Field<'_>, authserv_id: &str) -> bool {
    first_word(&unfold(field.value())).eq_ignore_ascii_case(authserv_id.as_bytes())
}

/// Returns a header section (without the empty line) with `field` on top, and without the forged fields.
// RFC 8601 §4.1: above other trace fields; RFC 8601 §5
#[must_use]
pub fn with_results(section: &[u8], authserv_id: &str, field: &str) -> Vec<u8> {
    let header = HeaderSection::read(section, LineEnd::Crlf);
    let mut forged = forged(&header, authserv_id).into_iter().peekable();
    let mut out = Vec::with_capacity(field.len() + section.len());
    out.extend_from_slice(field.as_bytes());
    let mut number = 0;
    for item in header.items() {
        match item {
            Item::Field(found) => {
                if forged.next_if_eq(&number).is_none() {
                    out.extend_from_slice(found.raw());
                }
                number += 1;
            }
            Item::Malformed(lines) => out.extend_from_slice(lines.raw()),
        }
    }
    out
}

/// Returns the first word of a value, behind white space and comments, without quotes.
fn first_word(value: &[u8]) -> Vec<u8> {
    let (mut depth, mut is_quoted, mut word) = (0_usize, false, Vec::new());
    let mut octets = value.iter().copied();
    while let Some(octet) = octets.next() {
        match octet {
            b'\\' if depth > 0 || is_quoted => {
                let next = octets.next();
                word.extend(next.filter(|_| depth == 0));
            }
            b'(' if !is_quoted => depth += 1,
            b')' if depth > 0 => depth -= 1,
            _ if depth > 0 => {}
            b'"' => is_quoted = !is_quoted,
            b' ' | b'\t' | b'\r' | b'\n' | b';' | b'/' if !is_quoted => {
                if !word.is_empty() {
                    break;
                }
            }
            _ => word.push(octet),
        }
    }
    // A fully qualified name may end in a dot.
    word.strip_suffix(b".").map_or_else(|| word.clone(), <[u8]>::to_vec)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_of_strangers_stays_in_its_quotes() {
        let result = MethodResult {
            method: "spf",
            code: "pass",
            reason: "a\"; dkim=pass\r\nX: y".to_owned(),
            properties: vec![("smtp.mailfrom", "a@b.test".to_owned()), ("smtp.helo", "x y\u{e4}".to_owned())],
        };
        let iprev = MethodResult {
            method: "iprev",
            code: "fail",
            reason: String::new(),
            properties: vec![("policy.iprev", "2001:db8::1".to_owned())],
        };
        // RFC 2045 §5.1: a colon is no character of a token
        assert!(field("mx.test", &[iprev]).ends_with("\r\n\t policy.iprev=\"2001:db8::1\"\r\n"));
        assert_eq!(
            field("mx.test", &[result]),
            "Authentication-Results: mx.test;\r\n\tspf=pass reason=\"a'; dkim=pass??X: y\"\r\n\t smtp.mailfrom=a@b.test\r\n\t smtp.helo=\"x y?\"\r\n"
        );
        assert_eq!(field("mx.test", &[]), "Authentication-Results: mx.test; none\r\n");
    }

    // RFC 8601 §5 (test)
    #[test]
    fn fields_in_our_name_are_found_in_every_spelling() {
        for (value, is_forged) in [
            (" mx.test; spf=pass", true),
            ("MX.Test;spf=pass", true),
            (" (a (nested \\) comment)) mx.test 1; none", true),
            ("\r\n\t \"mx.test\" ; none", true),
            (" mx.\r\n test; none", false),
            (" mx.test/1; none", true),
            (" mx.test. ; none", true),
            (" other.test; x=mx.test", false),
            (" spf=pass (sender IP is 192.0.2.1) smtp.mailfrom=a.test", false),
            ("", false),
        ] {
            let text = format!("Received: x\r\nauthentication-results:{value}\r\n\r\n");
            let header = HeaderSection::read(text.as_bytes(), LineEnd::Crlf);
            let expected = if is_forged { vec![1] } else { Vec::new() };
            assert_eq!(forged(&header, "mx.test"), expected, "{value:?}");
        }
    }

    #[test]
    fn only_forged_fields_are_removed() {
        let kept = "Received: x\r\nno field\r\nAuthentication-Results: other.test; spf=pass\r\nSubject: a\r\n b\r\n";
        let forged = "AUTHENTICATION-RESULTS : (x) MX.test\r\n\t 1; spf=pass\r\n";
        let ours = "Authentication-Results: mx.test; none\r\n";
        for at in kept.match_indices("\r\n").map(|(at, _)| at + 2).filter(|at| !kept[*at..].starts_with(' ')) {
            let section = [&kept[..at], forged, &kept[at..], forged].concat();
            let found = with_results(section.as_bytes(), "mx.test", ours);
            assert_eq!(String::from_utf8_lossy(&found), format!("{ours}{kept}"), "{at}");
        }
        assert_eq!(with_results(b"", "mx.test", ours), ours.as_bytes());
    }
}

//! Macros of SPF records (RFC 7208 §7).

use std::net::IpAddr;

/// The longest result of a domain; labels are cut off on the left until it fits.
// RFC 7208 §7.3
const DOMAIN_BYTES_MAX: usize = 253;

/// A piece of a text with macros.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Piece<'a> {
    Literal(&'a str),
    Macro(Macro<'a>),
}

/// `%{d2r.-}`
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Macro<'a> {
    /// In lower case.
    letter: char,
    /// The letter was upper case.
    is_escaped: bool,
    /// How many parts are kept, from the right; 0: all.
    parts: usize,
    is_reversed: bool,
    delimiters: &'a str,
}

/// Splits a text into pieces; `None`: it is malformed.
fn pieces(text: &str, is_explanation: bool) -> Option<Vec<Piece<'_>>> {
    let (mut found, mut rest) = (Vec::new(), text);
    while let Some(at) = rest.find('%') {
        let (before, behind) = rest.split_at_checked(at)?;
        if !before.is_empty() {
            found.push(Piece::Literal(before));
        }
        let behind = behind.strip_prefix('%')?;
        if let Some(inner) = behind.strip_prefix('{') {
            let (inner, next) = inner.split_once('}')?;
            found.push(Piece::Macro(read_macro(inner, is_explanation)?));
            rest = next;
        } else {
            let literal = match behind.get(..1)? {
                "%" => "%",
                "_" => " ",
                "-" => "%20",
                _ => return None,
            };
            found.push(Piece::Literal(literal));
            rest = behind.get(1..)?;
        }
    }
    if !rest.is_empty() {
        found.push(Piece::Literal(rest));
    }
    Some(found)
}

fn read_macro(inner: &str, is_explanation: bool) -> Option<Macro<'_>> {
    let first = inner.chars().next()?;
    let letter = first.to_ascii_lowercase();
    let is_known = "slodiphv".contains(letter) || is_explanation && "crt".contains(letter);
    let rest = inner.get(1..).filter(|_| is_known && first.is_ascii())?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = rest.split_at_checked(digits)?;
    let parts = if number.is_empty() { 0 } else { number.parse::<usize>().ok().filter(|parts| *parts > 0)? };
    let (is_reversed, delimiters) = match rest.strip_prefix(['r', 'R']) {
        Some(delimiters) => (true, delimiters),
        None => (false, rest),
    };
    let is_delimiters = delimiters.chars().all(|c| ".-+,/_=".contains(c));
    is_delimiters.then_some(Macro { letter, is_escaped: first.is_ascii_uppercase(), parts, is_reversed, delimiters })
}

/// Returns whether a text is well-formed, with the characters that may stand in a term.
pub(super) fn is_macro_string(text: &str, is_explanation: bool) -> bool {
    text.bytes().all(|octet| octet.is_ascii_graphic()) && pieces(text, is_explanation).is_some()
}

/// Returns whether a text is a `domain-spec`: it ends in a top label or a macro.
// RFC 7208 §7.1
pub(super) fn is_domain_spec(text: &str) -> bool {
    if !is_macro_string(text, false) {
        return false;
    }
    match pieces(text, false).unwrap_or_default().last() {
        Some(Piece::Macro(_)) => true,
        Some(Piece::Literal(end)) => {
            let end = end.strip_suffix('.').unwrap_or(end);
            let Some((_, top)) = end.rsplit_once('.') else { return false };
            let is_label = top.bytes().all(|octet| octet.is_ascii_alphanumeric() || octet == b'-');
            is_label
                && !top.is_empty()
                && !top.starts_with('-')
                && !top.ends_with('-')
                && !top.bytes().all(|octet| octet.is_ascii_digit())
        }
        None => false,
    }
}

/// The values of macros.
pub(super) struct SpfMacroValues<'a> {
    /// `s`: with a local part.
    pub(super) sender: &'a str,
    /// `d`
    pub(super) domain: &'a str,
    /// `i`, `v`, `c`
    pub(super) ip: IpAddr,
    /// `h`
    pub(super) helo: &'a str,
    /// `p`; empty where no text asks for it.
    pub(super) name: &'a str,
    /// `r`
    pub(super) receiver: &'a str,
    /// `t`
    pub(super) time: u64,
}

/// Returns whether a text asks for the verified name of the client.
pub(super) fn wants_name(text: &str) -> bool {
    let found = pieces(text, true).unwrap_or_default();
    found.iter().any(|piece| matches!(piece, Piece::Macro(Macro { letter: 'p', .. })))
}

impl SpfMacroValues<'_> {
    /// Expands a domain; labels beyond its length are cut off on the left.
    pub(super) fn domain(&self, spec: &str) -> String {
        let text = self.expand(spec, false).unwrap_or_default();
        let mut rest = text.strip_suffix('.').unwrap_or(&text);
        while rest.len() > DOMAIN_BYTES_MAX {
            let Some((_, shorter)) = rest.split_once('.') else { break };
            rest = shorter;
        }
        rest.to_owned()
    }

    /// Expands an explanation; `None`: it is malformed.
    pub(super) fn explanation(&self, text: &str) -> Option<String> {
        self.expand(text, true)
    }

    fn expand(&self, text: &str, is_explanation: bool) -> Option<String> {
        let mut out = String::new();
        for piece in pieces(text, is_explanation)? {
            match piece {
                Piece::Literal(literal) => out.push_str(literal),
                Piece::Macro(found) => {
                    let value = found.transform(&self.value(found.letter));
                    if found.is_escaped { escape(&value, &mut out) } else { out.push_str(&value) }
                }
            }
        }
        Some(out)
    }

    fn value(&self, letter: char) -> String {
        let (local, sender_domain) = self.sender.rsplit_once('@').unwrap_or(("postmaster", self.sender));
        match letter {
            's' => self.sender.to_owned(),
            'l' => local.to_owned(),
            'o' => sender_domain.to_owned(),
            'd' => self.domain.to_owned(),
            'i' => dotted(self.ip),
            'p' => self.name.to_owned(),
            'v' => if self.ip.is_ipv4() { "in-addr" } else { "ip6" }.to_owned(),
            'h' => self.helo.to_owned(),
            'c' => self.ip.to_string(),
            'r' => self.receiver.to_owned(),
            't' => self.time.to_string(),
            _ => String::new(),
        }
    }
}

impl Macro<'_> {
    fn transform(self, value: &str) -> String {
        let delimiters = if self.delimiters.is_empty() { "." } else { self.delimiters };
        if self.parts == 0 && !self.is_reversed && delimiters == "." {
            return value.to_owned();
        }
        let mut parts: Vec<&str> = value.split(|c| delimiters.contains(c)).collect();
        if self.is_reversed {
            parts.reverse();
        }
        let kept = if self.parts == 0 { parts.len() } else { self.parts.min(parts.len()) };
        parts.split_off(parts.len() - kept).join(".")
    }
}

/// Returns an address in the form of `%{i}`: octets, or nibbles.
fn dotted(ip: IpAddr) -> String {
    match ip {
        IpAddr::V4(ip) => ip.to_string(),
        IpAddr::V6(ip) => {
            let nibbles = ip.octets().into_iter().flat_map(|octet| [octet >> 4, octet & 15]);
            nibbles.map(|nibble| format!("{nibble:X}")).collect::<Vec<_>>().join(".")
        }
    }
}

/// Returns the name at which the names of an address stand.
pub(super) fn reverse_name(ip: IpAddr) -> String {
    let parts = dotted(ip);
    let mut parts: Vec<&str> = parts.split('.').collect();
    parts.reverse();
    format!("{}.{}.arpa", parts.join("."), if ip.is_ipv4() { "in-addr" } else { "ip6" })
}

// RFC 7208 §7.3: characters beyond the "unreserved" ones are escaped
fn escape(value: &str, out: &mut String) {
    for octet in value.bytes() {
        if octet.is_ascii_alphanumeric() || b"-._~".contains(&octet) {
            out.push(char::from(octet));
        } else {
            out.push_str(&format!("%{octet:02X}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 7208 §7.4 (test)
    #[test]
    fn the_examples_of_the_standard() {
        let mut values = SpfMacroValues {
            sender: "strong-bad@email.example.com",
            domain: "email.example.com",
            ip: "192.0.2.3".parse().unwrap(),
            helo: "h.example",
            name: "mx.example.org",
            receiver: "r.example",
            time: 7,
        };
        for (text, expected) in [
            ("%{s}", "strong-bad@email.example.com"),
            ("%{o}", "email.example.com"),
            ("%{d4}", "email.example.com"),
            ("%{d2}", "example.com"),
            ("%{d1}", "com"),
            ("%{dr}", "com.example.email"),
            ("%{d2r}", "example.email"),
            ("%{l}", "strong-bad"),
            ("%{l-}", "strong.bad"),
            ("%{lr}", "strong-bad"),
            ("%{lr-}", "bad.strong"),
            ("%{l1r-}", "strong"),
            ("%{ir}.%{v}._spf.%{d2}", "3.2.0.192.in-addr._spf.example.com"),
            ("%{lr-}.lp._spf.%{d2}", "bad.strong.lp._spf.example.com"),
        ] {
            assert_eq!(values.domain(text), expected, "{text}");
        }
        values.ip = "2001:db8::cb01".parse().unwrap();
        assert_eq!(
            values.domain("%{ir}.%{v}._spf.%{d2}").to_ascii_lowercase(),
            "1.0.b.c.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.0.8.b.d.0.1.0.0.2.ip6._spf.example.com"
        );
        assert_eq!(
            values.explanation("%{c} %{S} %%%_%-%{t}").unwrap(),
            "2001:db8::cb01 strong-bad%40email.example.com % %207"
        );
        assert_eq!(values.explanation("%{z}"), None);
        let long = values.domain(&format!("{}.example.com", "abcdefgh.".repeat(40).trim_end_matches('.')));
        assert!(long.len() <= DOMAIN_BYTES_MAX && long.starts_with("abcdefgh.") && long.ends_with("example.com"));
        assert!(is_domain_spec("a.%{d}") && is_domain_spec("a.b-c.") && !is_domain_spec("a.1") && !is_domain_spec("a"));
    }
}

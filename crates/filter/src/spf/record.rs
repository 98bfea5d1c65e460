//! The grammar of SPF records (RFC 7208 §12). A record is parsed whole before any term of it counts.

use super::SpfCode;
use super::expand::{is_domain_spec, is_macro_string};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A record.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct SpfRecord<'a> {
    pub(super) directives: Vec<Directive<'a>>,
    pub(super) redirect: Option<&'a str>,
    pub(super) explanation: Option<&'a str>,
}

/// A mechanism with the result of its match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Directive<'a> {
    pub(super) result: SpfCode,
    pub(super) mechanism: Mechanism<'a>,
    /// As it is written.
    pub(super) text: &'a str,
}

/// Lengths of network prefixes for both families.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Prefix {
    pub(super) four: u8,
    pub(super) six: u8,
}

/// The set of clients that a term matches. Domains are not expanded; `None`: the domain of the record.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Mechanism<'a> {
    All,
    Include(&'a str),
    A(Option<&'a str>, Prefix),
    Mx(Option<&'a str>, Prefix),
    Ptr(Option<&'a str>),
    Network(IpAddr, u8),
    Exists(&'a str),
}

/// Why a record is broken: the term.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct BadTerm(pub(super) String);

/// Returns whether a text is an SPF record, perhaps a broken one.
// RFC 7208 §4.5
pub(super) fn is_record(text: &str) -> bool {
    let version = text.split(' ').next().unwrap_or_default();
    version.eq_ignore_ascii_case("v=spf1")
}

impl<'a> SpfRecord<'a> {
    /// Reads a record.
    ///
    /// # Errors
    /// A term is none, or a modifier that may stand there once stands there twice.
    pub(super) fn parse(text: &'a str) -> Result<Self, BadTerm> {
        let mut record = Self::default();
        if !text.is_ascii() {
            return Err(BadTerm("the record has octets beyond ASCII".to_owned()));
        }
        for term in text.split(' ').skip(1).filter(|term| !term.is_empty()) {
            record.add(term).ok_or_else(|| BadTerm(format!("{} is no term of SPF", printable(term))))?;
        }
        Ok(record)
    }

    fn add(&mut self, term: &'a str) -> Option<()> {
        let name_end = term.find(['=', ':', '/']).unwrap_or(term.len());
        let (name, rest) = term.split_at_checked(name_end)?;
        match rest.strip_prefix('=') {
            Some(value) => self.modifier(name, value),
            None => {
                self.directives.push(directive(term)?);
                Some(())
            }
        }
    }

    // RFC 7208 §6: redirect and exp at most once; unknown modifiers must be well-formed
    fn modifier(&mut self, name: &str, value: &'a str) -> Option<()> {
        let is_name = name.starts_with(|c: char| c.is_ascii_alphabetic())
            && name.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c));
        let known = match name.to_ascii_lowercase().as_str() {
            "redirect" => &mut self.redirect,
            "exp" => &mut self.explanation,
            _ => return (is_name && is_macro_string(value, true)).then_some(()),
        };
        if known.is_some() || !is_domain_spec(value) {
            return None;
        }
        *known = Some(value);
        Some(())
    }
}

fn directive(text: &str) -> Option<Directive<'_>> {
    let (result, term) = match text.split_at_checked(1)? {
        ("+", term) => (SpfCode::Pass, term),
        ("-", term) => (SpfCode::Fail, term),
        ("~", term) => (SpfCode::SoftFail, term),
        ("?", term) => (SpfCode::Neutral, term),
        _ => (SpfCode::Pass, text),
    };
    let (name, arguments) = term.split_at_checked(term.find([':', '/']).unwrap_or(term.len()))?;
    let domain = |text: &'_ str| is_domain_spec(text);
    let mechanism = match name.to_ascii_lowercase().as_str() {
        "all" if arguments.is_empty() => Mechanism::All,
        "include" => Mechanism::Include(arguments.strip_prefix(':').filter(|text| domain(text))?),
        "exists" => Mechanism::Exists(arguments.strip_prefix(':').filter(|text| domain(text))?),
        "ptr" if arguments.is_empty() => Mechanism::Ptr(None),
        "ptr" => Mechanism::Ptr(Some(arguments.strip_prefix(':').filter(|text| domain(text))?)),
        "a" => {
            let (domain, prefix) = domain_and_prefix(arguments)?;
            Mechanism::A(domain, prefix)
        }
        "mx" => {
            let (domain, prefix) = domain_and_prefix(arguments)?;
            Mechanism::Mx(domain, prefix)
        }
        "ip4" => {
            let (address, prefix) = network(arguments.strip_prefix(':')?, 32)?;
            Mechanism::Network(IpAddr::V4(address.parse::<Ipv4Addr>().ok()?), prefix)
        }
        "ip6" => {
            let (address, prefix) = network(arguments.strip_prefix(':')?, 128)?;
            Mechanism::Network(IpAddr::V6(address.parse::<Ipv6Addr>().ok()?), prefix)
        }
        _ => return None,
    };
    Some(Directive { result, mechanism, text })
}

fn network(text: &str, max: u8) -> Option<(&str, u8)> {
    match text.split_once('/') {
        Some((address, length)) => Some((address, prefix_length(length, max)?)),
        None => Some((text, max)),
    }
}

// RFC 7208 §5.6: no leading zeros
fn prefix_length(text: &str, max: u8) -> Option<u8> {
    let is_number = !text.is_empty() && text.bytes().all(|octet| octet.is_ascii_digit());
    if !is_number || text.len() > 1 && text.starts_with('0') {
        return None;
    }
    text.parse().ok().filter(|length| *length <= max)
}

/// Reads `[:domain-spec][/n][//n]`.
fn domain_and_prefix(arguments: &str) -> Option<(Option<&str>, Prefix)> {
    let (mut rest, mut prefix) = (arguments, Prefix { four: 32, six: 128 });
    if let Some((before, length)) = rest.rsplit_once("//").filter(|(_, length)| is_digits(length)) {
        prefix.six = prefix_length(length, 128)?;
        rest = before;
    }
    if let Some((before, length)) = rest.rsplit_once('/').filter(|(_, length)| is_digits(length)) {
        prefix.four = prefix_length(length, 32)?;
        rest = before;
    }
    if rest.is_empty() {
        return Some((None, prefix));
    }
    let domain = rest.strip_prefix(':').filter(|text| is_domain_spec(text))?;
    Some((Some(domain), prefix))
}

fn is_digits(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|octet| octet.is_ascii_digit())
}

/// Returns a text with `?` for characters that may not stand in a field or a log line.
pub(super) fn printable(text: &str) -> String {
    text.chars().take(100).map(|c| if c.is_ascii_graphic() && !"\"\\()".contains(c) { c } else { '?' }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn terms_are_read_or_refused() {
        let record =
            SpfRecord::parse("v=spf1 +A:a.example/24//64 -mx//48  ~ip4:192.0.2.0/24 ?ptr x=%{d} exp=e.%{d} all")
                .unwrap();
        let mechanisms: Vec<_> = record.directives.iter().map(|one| (one.result, one.mechanism.clone())).collect();
        assert_eq!(
            mechanisms,
            [
                (SpfCode::Pass, Mechanism::A(Some("a.example"), Prefix { four: 24, six: 64 })),
                (SpfCode::Fail, Mechanism::Mx(None, Prefix { four: 32, six: 48 })),
                (SpfCode::SoftFail, Mechanism::Network("192.0.2.0".parse().unwrap(), 24)),
                (SpfCode::Neutral, Mechanism::Ptr(None)),
                (SpfCode::Pass, Mechanism::All),
            ]
        );
        assert_eq!((record.explanation, record.redirect), (Some("e.%{d}"), None));
        for term in [
            "al",
            "all:x",
            "all/8",
            "include",
            "include:",
            "a:",
            "a/33",
            "a/08",
            "a//129",
            "ip4:1.2.3",
            "ip4:1.2.3.4/",
            "ip6:1.2.3.4",
            "exists:",
            "redirect=",
            "redirect=a.example redirect=b.example",
            "1x=y",
            "-",
            "--all",
            "x=%{z}",
        ] {
            assert!(SpfRecord::parse(&format!("v=spf1 {term}")).is_err(), "{term}");
        }
        assert!(is_record("V=SPF1") && is_record("v=spf1 -all") && !is_record("v=spf10") && !is_record(" v=spf1"));
    }
}

//! The patterns that addresses are compared with: a whole address, `@domain`, or either with `*` for any text.
//!
//! Case does not count, neither does the form of a domain: `@bücher.example` and `@xn--bcher-kva.example` are the same.
//! That is looser than the rules by which mail is delivered: a person looks for mail here.

use mail::{Address, Domain};
use std::fmt;

/// A pattern for addresses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// As it was written.
    text: Box<str>,
    /// In lower case; without the `@` for a domain.
    glob: Box<str>,
    is_domain: bool,
}

impl Pattern {
    /// The longest pattern, in octets: an address and some stars.
    pub const BYTES_MAX: usize = 320;

    /// Reads a pattern: `ann@example.org`, `@example.org`, `*-bounces@*`, `<>` for the null sender.
    ///
    /// # Errors
    /// It can match no address; the text says how to write it.
    pub fn parse(text: &str) -> Result<Self, PatternError> {
        let error = |why: &str| Err(PatternError(format!("{text:?} {why}")));
        if text.len() > Self::BYTES_MAX {
            return Err(PatternError(format!(
                "the pattern has {} octets, {} are the most",
                text.len(),
                Self::BYTES_MAX
            )));
        }
        if text.chars().any(char::is_control) {
            return error("has control characters, no address has");
        }
        let bare = text.strip_prefix('<').and_then(|rest| rest.strip_suffix('>')).unwrap_or(text);
        let (glob, is_domain) = match bare.strip_prefix('@') {
            Some("") => return error("lacks a domain behind the @"),
            Some(domain) => (domain, true),
            None if bare.is_empty() && !text.is_empty() => (bare, false),
            None if bare.contains(['@', '*']) => (bare, false),
            None => return error("is no address; write @DOMAIN for all of a domain, or use * for any text"),
        };
        Ok(Self { text: text.into(), glob: glob.to_lowercase().into(), is_domain })
    }

    /// As it was written.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Whether an address is meant; `None` is the null sender.
    #[must_use]
    pub fn matches(&self, address: Option<&Address>) -> bool {
        let Some(address) = address else { return !self.is_domain && glob(&self.glob, "") };
        let local = if self.is_domain { String::new() } else { format!("{}@", address.local_part()) };
        let is_meant = |domain: &str| glob(&self.glob, &format!("{local}{domain}").to_lowercase());
        match address.domain() {
            Domain::Name(name) => is_meant(name.as_str()) || is_meant(name.ascii()) || is_meant(&name.unicode()),
            Domain::Literal(literal) => is_meant(&literal.to_string()),
        }
    }
}

/// Why a text is no pattern.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PatternError(String);

impl fmt::Display for PatternError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl std::error::Error for PatternError {}

/// Whether `text` is `pattern`, in which `*` stands for any text. Time is at most the product of their lengths.
#[must_use]
pub fn glob(pattern: &str, text: &str) -> bool {
    let Some((first, pattern)) = pattern.split_once('*') else { return pattern == text };
    let Some(rest) = text.strip_prefix(first) else { return false };
    let (middle, last) = pattern.rsplit_once('*').unwrap_or(("", pattern));
    // The text between stars is searched from the left and taken at its first place; the last piece must end the text.
    let found = middle.split('*').try_fold(rest, |rest, piece| rest.split_once(piece).map(|(_, rest)| rest));
    found.is_some_and(|rest| rest.ends_with(last))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn is_meant(pattern: &str, address: &str) -> bool {
        let address = Address::parse(address.as_bytes()).ok();
        Pattern::parse(pattern).unwrap().matches(address.as_ref())
    }

    #[test]
    fn addresses_domains_and_stars() {
        for (pattern, address, expected) in [
            ("ann@example.org", "ann@example.org", true),
            ("ANN@Example.org", "ann@EXAMPLE.ORG", true),
            ("<ann@example.org>", "ann@example.org", true),
            ("ann@example.org", "joann@example.org", false),
            ("ann@example.org", "ann@example.org.evil.test", false),
            ("@example.org", "bob@example.org", true),
            ("@example.org", "bob@sub.example.org", false),
            ("@*.example.org", "bob@sub.example.org", true),
            ("@*.example.org", "bob@example.org", false),
            ("@example.org", "\"x@example.org\"@other.test", false),
            ("*@example.org", "bob@example.org", true),
            ("*", "bob@example.org", true),
            ("list-*-bounces@*", "list-7-bounces@example.org", true),
            ("list-*-bounces@*", "list-7@example.org", false),
            ("*ab*ab*@*", "aab@b.test", false),
            ("*ab*ab*@*", "abab@b.test", true),
            ("a*a@b.test", "a@b.test", false),
            ("@[192.0.2.1]", "root@[192.0.2.1]", true),
            ("@bücher.example", "a@xn--bcher-kva.example", true),
            ("@xn--bcher-kva.example", "a@bücher.example", true),
            ("<>", "bob@example.org", false),
        ] {
            assert_eq!(is_meant(pattern, address), expected, "{pattern} {address}");
        }
    }

    #[test]
    fn the_null_sender() {
        assert!(Pattern::parse("<>").unwrap().matches(None));
        assert!(Pattern::parse("*").unwrap().matches(None));
        for pattern in ["@*", "a@b.test", "*@*"] {
            assert!(!Pattern::parse(pattern).unwrap().matches(None), "{pattern}");
        }
    }

    #[test]
    fn what_can_match_nothing_is_refused() {
        for (text, part) in [
            ("", "no address"),
            ("example.org", "write @DOMAIN"),
            ("@", "lacks a domain"),
            ("a@b\n", "control"),
            (&"*".repeat(400), "400 octets"),
        ] {
            let error = Pattern::parse(text).unwrap_err().to_string();
            assert!(error.contains(part) && !error.contains('\n'), "{error}");
        }
    }

    #[test]
    fn stars_agree_with_trying_everything() {
        fn slow(pattern: &[u8], text: &[u8]) -> bool {
            match pattern.split_first() {
                None => text.is_empty(),
                Some((b'*', rest)) => (0..=text.len()).any(|at| slow(rest, &text[at..])),
                Some((first, rest)) => text.split_first().is_some_and(|(one, more)| one == first && slow(rest, more)),
            }
        }
        // All patterns and texts of a few letters.
        let words = |letters: &str, length: u32| -> Vec<String> {
            let letters: Vec<char> = letters.chars().collect();
            (0..=length)
                .flat_map(|length| {
                    (0..letters.len().pow(length)).map({
                        let letters = letters.clone();
                        move |mut number| {
                            (0..length).map(|_| (letters[number % letters.len()], number /= letters.len()).0).collect()
                        }
                    })
                })
                .collect()
        };
        for pattern in words("ab*", 5) {
            for text in words("ab", 5) {
                assert_eq!(glob(&pattern, &text), slow(pattern.as_bytes(), text.as_bytes()), "{pattern} {text}");
            }
        }
        let hard = "a*".repeat(150);
        assert!(!glob(&format!("{hard}b"), &"a".repeat(254)), "and quickly");
    }
}

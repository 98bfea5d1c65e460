//! `error:` values: mail is refused, with a code and a text of the administrator.
//!
//! There are two dialects, as in sendmail's rules: mailertable and smarttable want a colon behind the word or the code
//! of three numbers, virtusertable a blank behind the word. The reply is sendmail's:
//!
//! | Text | Reply |
//! |---|---|
//! | `550 moved` | 550 5.0.0 moved |
//! | `550 5.1.6 moved` | 550 5.1.6 moved |
//! | `550 moved` behind `5.7.1:` | 550 5.7.1 moved |
//! | `moved`, whatever stands before it | 553 5.3.0 moved |
//!
//! The words (`nouser`, `nohost`, `unavailable`, `tempfail`, …) are exit codes of a sendmail that is run by hand and
//! change nothing in the reply. Only where there is no text at all they give one.

use crate::question::MapEntry;
use crate::refusal::Refusal;
use mail::{EnhancedCode, Outcome};

/// A reply that an entry asks for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorValue {
    /// Its code.
    pub code: u16,
    /// Its enhanced code.
    pub status: EnhancedCode,
    /// Its text.
    pub text: String,
}

/// A word, and the reply it gives where there is no text.
const WORDS: &[(&str, u16, u16, u16, &str)] = &[
    ("nouser", 550, 1, 1, "User unknown"),
    ("nohost", 550, 1, 2, "Host unknown"),
    ("unavailable", 554, 0, 0, "Service unavailable"),
    ("tempfail", 451, 3, 0, "Please try again later"),
    ("usage", 553, 3, 0, "Refused"),
    ("software", 554, 3, 0, "Refused"),
    ("protocol", 554, 5, 0, "Refused"),
    ("config", 554, 3, 5, "Refused"),
];

impl ErrorValue {
    /// Reads what stands behind `error:` in mailertable and smarttable.
    #[must_use]
    pub fn parse(rest: &str) -> Self {
        let rest = rest.trim();
        match rest.split_once(':') {
            Some((code, text)) if code.parse::<EnhancedCode>().is_ok() => Self::of(Some(code), text),
            Some((word, text)) if is_word(word) => Self::of(Some(word), text),
            _ if is_known(rest) => Self::of(Some(rest), ""),
            _ => Self::of(None, rest),
        }
    }

    /// Reads what stands behind `error:` in virtusertable.
    #[must_use]
    pub fn parse_virtual(rest: &str) -> Self {
        let rest = rest.trim();
        if let Some((code, text)) = rest.split_once(':')
            && is_code(code)
        {
            return Self::of(Some(code), text);
        }
        let end = rest.find(|c: char| !(c.is_ascii_alphanumeric() || matches!(c, '-' | '_'))).unwrap_or(rest.len());
        match rest.split_at(end) {
            ("", text) => Self::of(None, text),
            (word, text) if word.bytes().all(|byte| byte.is_ascii_digit()) && text.trim().is_empty() => {
                Self::of(None, word)
            }
            (word, text) => Self::of(Some(word), text),
        }
    }

    fn of(first: Option<&str>, text: &str) -> Self {
        let text = unquoted(text.trim());
        if text.is_empty() {
            return Self::of_word(first.unwrap_or_default());
        }
        let Some((code, rest)) = reply_code(&text) else {
            return Self { code: 553, status: permanent(3, 0), text };
        };
        let outcome = if code < 500 { Outcome::Transient } else { Outcome::Permanent };
        let (inside, behind) = rest.split_once(' ').unwrap_or((rest, ""));
        if let Ok(status) = inside.parse::<EnhancedCode>() {
            return Self { code, status: status.with_outcome(outcome), text: behind.trim().to_owned() };
        }
        let status = first.and_then(|first| first.parse::<EnhancedCode>().ok()).unwrap_or(permanent(0, 0));
        Self { code, status: status.with_outcome(outcome), text: rest.to_owned() }
    }

    fn of_word(word: &str) -> Self {
        let known = WORDS.iter().find(|(name, ..)| name.eq_ignore_ascii_case(word));
        let (code, subject, detail, text) = match known {
            Some((_, code, subject, detail, text)) => (*code, *subject, *detail, *text),
            None => (553, 3, 0, "Refused"),
        };
        let outcome = if code < 500 { Outcome::Transient } else { Outcome::Permanent };
        Self { code, status: permanent(subject, detail).with_outcome(outcome), text: text.to_owned() }
    }

    /// The reply about this address, as the client wrote it.
    #[must_use]
    pub fn refusal(&self, address: &str, found: Option<MapEntry>) -> Refusal {
        Refusal::new(self.code, self.status, &format!("<{address}>... {}", self.text)).with_found(found)
    }
}

const fn permanent(subject: u16, detail: u16) -> EnhancedCode {
    EnhancedCode::of(Outcome::Permanent, subject, detail)
}

fn is_word(text: &str) -> bool {
    !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'"'))
}

/// Whether a text has the form of an enhanced code, if not its numbers.
fn is_code(text: &str) -> bool {
    text.split('.').count() == 3
        && text.split('.').all(|part| !part.is_empty() && part.bytes().all(|c| c.is_ascii_alphanumeric()))
}

fn is_known(text: &str) -> bool {
    WORDS.iter().any(|(name, ..)| name.eq_ignore_ascii_case(text))
}

/// A code of a reply that refuses, with a blank behind it.
pub(crate) fn reply_code(text: &str) -> Option<(u16, &str)> {
    let (code, rest) = text.split_once(' ')?;
    if code.len() != 3 || !code.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let code = code.parse().ok()?;
    // A server that says 421 closes the connection, which no entry can make it do.
    Some((if code == 421 { 451 } else { code }, rest.trim_start()))
}

/// Without the quotes that keep a text together.
fn unquoted(text: &str) -> String {
    let mut chars = text.chars();
    let mut plain = String::with_capacity(text.len());
    while let Some(c) = chars.next() {
        match c {
            '"' => {}
            '\\' => plain.extend(chars.next()),
            _ => plain.push(c),
        }
    }
    plain.trim().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reply(value: &ErrorValue) -> String {
        format!("{} {} {}", value.code, value.status, value.text)
    }

    /// As sendmail 8.17 answered RCPT, except that it takes blanks around punctuation out of texts without quotes.
    #[test]
    fn replies_of_mailertable_are_those_of_sendmail() {
        for (rest, answer) in [
            ("5.7.1:550 text here", "550 5.7.1 text here"),
            ("550 text", "550 5.0.0 text"),
            ("nohost:No such, host! now", "553 5.3.0 No such, host! now"),
            ("nohost text", "553 5.3.0 nohost text"),
            ("tempfail:450 wait", "450 4.0.0 wait"),
            ("4.2.1:wait a while", "553 5.3.0 wait a while"),
            ("unavailable:gone away", "553 5.3.0 gone away"),
            ("\"quoted text, here\"", "553 5.3.0 quoted text, here"),
            ("nouser:\"550 5.1.6 moved, see x.y\"", "550 5.1.6 moved, see x.y"),
            ("bogus:what", "553 5.3.0 what"),
            ("75:seventy five", "553 5.3.0 seventy five"),
            ("5.1.2:550", "553 5.3.0 550"),
            ("software:soft", "553 5.3.0 soft"),
            // sendmail leaves the contradiction in: 550 4.2.1, 450 5.2.1
            ("4.2.1:550 mixed", "550 5.2.1 mixed"),
            ("5.2.1:450 mixed", "450 4.2.1 mixed"),
            // sendmail says 421
            ("421 closing", "451 4.0.0 closing"),
            // sendmail takes the address for the text
            ("", "553 5.3.0 Refused"),
            ("nouser", "550 5.1.1 User unknown"),
        ] {
            assert_eq!(reply(&ErrorValue::parse(rest)), answer, "{rest}");
        }
    }

    #[test]
    fn replies_of_virtusertable_are_those_of_sendmail() {
        for (rest, answer) in [
            ("nouser 550 No such user", "550 5.0.0 No such user"),
            ("5.7.0:550 not you", "550 5.7.0 not you"),
            ("550 text alone", "553 5.3.0 text alone"),
            ("nouser:550 x", "553 5.3.0 :550 x"),
            ("tempfail 450 later", "450 4.0.0 later"),
            ("5.1.1 text", "553 5.3.0 .1.1 text"),
            ("bogus 550 what", "550 5.0.0 what"),
            ("nouser \"550 quoted, with! marks.\"", "550 5.0.0 quoted, with! marks."),
            ("nouser text w/o code", "553 5.3.0 text w/o code"),
            // sendmail takes the address for the text
            ("nouser", "550 5.1.1 User unknown"),
        ] {
            assert_eq!(reply(&ErrorValue::parse_virtual(rest)), answer, "{rest}");
        }
    }

    #[test]
    fn the_reply_names_the_address() {
        let refusal = ErrorValue::parse("5.1.6:550 domain moved").refusal("u@old.example", None);
        assert_eq!(refusal.to_string(), "550 5.1.6 <u@old.example>... domain moved");
    }
}

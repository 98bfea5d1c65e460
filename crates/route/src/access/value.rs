//! The right side of the access map, for the tags that decide: the written value, and the reply to a client.
//!
//! Keywords count in any case. A value that is no keyword is the text of a refusal, so nothing that is written is read
//! as a permission by mistake. Where sendmail garbles a text (it parses one without quotes as an address, and loses the
//! enhanced code of one without a reply code), the text and the code count as they are written.

use crate::refusal::Refusal;
use mail::{Address, EnhancedCode, Outcome};

/// The value of an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum AccessValue {
    /// `OK`: other checks of the same kind are spared. No right to relay.
    Ok,
    /// `RELAY`: as `OK`, and mail is relayed.
    Relay,
    /// `REJECT`: refused with the text of the place.
    Reject,
    /// `DISCARD`: taken and thrown away.
    Discard,
    /// `SKIP`: as if nothing more were in the map.
    Skip,
    /// `QUARANTINE:reason`: taken and held.
    Quarantine(String),
    /// `FRIEND`, of `Spam:`.
    Friend,
    /// `HATER`, of `Spam:`.
    Hater,
    /// `SUBJECT`, of `CertIssuer:`.
    Subject,
    /// `ERROR:5.7.1:"550 text"` and all other texts.
    Error(ErrorText),
}

/// The parts of a refusal as an entry has them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ErrorText {
    /// The reply code.
    pub code: Option<u16>,
    /// The enhanced code: that in front of the text, else that behind `ERROR:`.
    pub status: Option<EnhancedCode>,
    /// Without quotes and codes.
    pub text: String,
}

const fn status(subject: u16, detail: u16) -> EnhancedCode {
    EnhancedCode::of(Outcome::Permanent, subject, detail)
}

/// `REJECT` of a client or sender.
pub(super) const DENIED: (u16, EnhancedCode, &str) = (550, status(7, 1), "Access denied");
/// `REJECT` of a recipient.
pub(super) const DISABLED: (u16, EnhancedCode, &str) = (550, status(2, 1), "Mailbox disabled for this recipient");
/// No entry permits the client to relay.
pub(super) const RELAYING_DENIED: (u16, EnhancedCode, &str) = (550, status(7, 1), "Relaying denied");

impl AccessValue {
    /// Reads a value; any text is one.
    #[must_use]
    pub fn parse(text: &str) -> Self {
        let text = text.trim();
        let keywords = [
            ("OK", Self::Ok),
            ("RELAY", Self::Relay),
            ("REJECT", Self::Reject),
            ("DISCARD", Self::Discard),
            ("SKIP", Self::Skip),
        ];
        let tags = [("FRIEND", Self::Friend), ("HATER", Self::Hater), ("SUBJECT", Self::Subject)];
        if let Some((_, value)) = keywords.into_iter().chain(tags).find(|(word, _)| word.eq_ignore_ascii_case(text)) {
            return value;
        }
        if let Some(reason) = behind(text, "QUARANTINE") {
            let reason = unquote(reason);
            return Self::Quarantine(if reason.is_empty() { "quarantine".to_owned() } else { reason });
        }
        let (status, rest) = behind(text, "ERROR").map_or((None, text), enhanced);
        Self::Error(ErrorText::new(status, &unquote(rest)))
    }

    /// The entry's word, for people.
    #[must_use]
    pub const fn word(&self) -> &'static str {
        match self {
            Self::Ok => "OK",
            Self::Relay => "RELAY",
            Self::Reject => "REJECT",
            Self::Discard => "DISCARD",
            Self::Skip => "SKIP",
            Self::Quarantine(_) => "QUARANTINE",
            Self::Friend => "FRIEND",
            Self::Hater => "HATER",
            Self::Subject => "SUBJECT",
            Self::Error(_) => "ERROR",
        }
    }
}

impl ErrorText {
    fn new(status: Option<EnhancedCode>, text: &str) -> Self {
        let (code, text) = match text.get(..3).filter(|code| code.bytes().all(|byte| byte.is_ascii_digit())) {
            Some(code) if matches!(text.as_bytes().get(3), None | Some(b' ')) => {
                (code.parse().ok(), text.get(3..).unwrap_or_default())
            }
            _ => (None, text),
        };
        let text = text.trim();
        let (word, rest) = text.split_once(' ').unwrap_or((text, ""));
        match word.parse() {
            Ok(own) if code.is_some() => Self { code, status: Some(own), text: rest.trim().to_owned() },
            _ => Self { code, status, text: text.to_owned() },
        }
    }

    /// Returns the refusal for a client. `about`: the address it is about, see [`refusal`].
    #[must_use]
    pub fn refusal(&self, about: Option<&Address>) -> Refusal {
        let is_temporary = self.status.is_some_and(|status| status.outcome() == Outcome::Transient);
        let (code, default) = match self.code {
            Some(code) => (code, status(0, 0)),
            None if is_temporary => (451, status(3, 0)),
            None => (553, status(3, 0)),
        };
        let text = if self.text.is_empty() { "Access denied" } else { &self.text };
        refusal((code, self.status.unwrap_or(default), text), about)
    }
}

/// A refusal as sendmail words it: with the codes 450, 550 and 553 the address stands before the text.
pub(super) fn refusal((code, status, text): (u16, EnhancedCode, &str), about: Option<&Address>) -> Refusal {
    let code = if (400..600).contains(&code) { code } else { 550 };
    match about {
        Some(address) if matches!(code, 450 | 550 | 553) => {
            Refusal::new(code, status, &format!("<{address}>... {text}"))
        }
        _ => Refusal::new(code, status, text),
    }
}

/// Returns the text behind `word:`; empty for the word alone if it is no text that people write.
fn behind<'a>(text: &'a str, word: &str) -> Option<&'a str> {
    let start = text.get(..word.len()).filter(|start| start.eq_ignore_ascii_case(word))?;
    let rest = text.get(start.len()..)?.trim_start();
    match rest.strip_prefix(':') {
        Some(rest) => Some(rest.trim()),
        None => rest.is_empty().then_some(""),
    }
}

/// The enhanced code in front of the text: `5.7.1:text`. One that is none is dropped, as sendmail does.
fn enhanced(text: &str) -> (Option<EnhancedCode>, &str) {
    let Some((code, rest)) = text.split_once(':') else { return (None, text) };
    let code = code.trim();
    let is_like = code.split('.').count() == 3
        && code.split('.').all(|part| !part.is_empty() && part.bytes().all(|b| b.is_ascii_digit()));
    if is_like { (code.parse().ok(), rest.trim()) } else { (None, text) }
}

/// The text without the quotes that keep sendmail from parsing it. A backslash in quotes stands before any character.
pub(super) fn unquote(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut is_quoted = false;
    let mut chars = text.chars();
    while let Some(c) = chars.next() {
        match c {
            '"' => is_quoted = !is_quoted,
            '\\' if is_quoted => plain.extend(chars.next()),
            _ => plain.push(c),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The replies of sendmail 8.17.1.9 to `MAIL FROM:<e@v.example>` with `From:e@v.example` and this value.
    const ORACLE: [(&str, &str); 25] = [
        (
            r#"ERROR:5.7.1:"550 We don't accept mail, sorry; see http://x/""#,
            "550 5.7.1 <e@v.example>... We don't accept mail, sorry; see http://x/",
        ),
        (r#"ERROR:"550 You sent to fuse@; no""#, "550 5.0.0 <e@v.example>... You sent to fuse@; no"),
        (r#""550 quoted text, here""#, "550 5.0.0 <e@v.example>... quoted text, here"),
        (r#"ERROR:4.7.1:"450 later, please""#, "450 4.7.1 <e@v.example>... later, please"),
        ("ERROR:no code", "553 5.3.0 <e@v.example>... no code"),
        ("just text", "553 5.3.0 <e@v.example>... just text"),
        (r#"ERROR:"421 go away""#, "421 4.0.0 go away"),
        (r#"ERROR:"550 5.7.26 own dsn""#, "550 5.7.26 <e@v.example>... own dsn"),
        (r#"ERROR:5.1.1:"550 5.7.26 two dsn""#, "550 5.7.26 <e@v.example>... two dsn"),
        (r#"error:5.7.1:"550 lower case""#, "550 5.7.1 <e@v.example>... lower case"),
        (r#"ERROR:nouser:"550 keyword""#, "553 5.3.0 <e@v.example>... nouser:550 keyword"),
        ("DUNNO", "553 5.3.0 <e@v.example>... DUNNO"),
        ("450 temp", "450 4.0.0 <e@v.example>... temp"),
        ("REJECT extra words", "553 5.3.0 <e@v.example>... REJECT extra words"),
        (r#"ERROR:99.7.1:"550 long""#, "550 5.0.0 <e@v.example>... long"),
        (r#"ERROR:5.7.1: "550 space before""#, "550 5.7.1 <e@v.example>... space before"),
        (r#"ERROR : 5.7.1:"550 space""#, "550 5.7.1 <e@v.example>... space"),
        (r#"ERROR:5.7:"550 short""#, "553 5.3.0 <e@v.example>... 5.7:550 short"),
        (r#"ERROR:5.7.1:"450 x""#, "450 4.7.1 <e@v.example>... x"),
        (r#"ERROR:"451 go""#, "451 4.0.0 go"),
        (r#"ERROR:"452 go""#, "452 4.0.0 go"),
        (r#"ERROR:"454 go""#, "454 4.0.0 go"),
        (r#"ERROR:"551 go""#, "551 5.0.0 go"),
        (r#"ERROR:"554 go""#, "554 5.0.0 go"),
        (r#"ERROR:5.7.1:"552 go""#, "552 5.7.1 go"),
    ];

    fn told(value: &str) -> String {
        let about = Address::parse(b"e@v.example").unwrap();
        match AccessValue::parse(value) {
            AccessValue::Error(error) => error.refusal(Some(&about)).to_string(),
            other => panic!("{value}: {other:?}"),
        }
    }

    #[test]
    fn texts_are_told_as_sendmail_tells_them() {
        for (value, want) in ORACLE {
            assert_eq!(told(value), want, "{value}");
        }
    }

    #[test]
    fn what_sendmail_garbles_is_told_as_written() {
        for (value, want, sendmail) in [
            (
                "550 plain text, here",
                "550 5.0.0 <e@v.example>... plain text, here",
                "550 5.0.0 <e@v.example>... plain text,here",
            ),
            (
                "ERROR:5.7.1:no code, text",
                "553 5.7.1 <e@v.example>... no code, text",
                "553 5.3.0 <e@v.example>... no code,text",
            ),
            ("ERROR:4.7.1:no code", "451 4.7.1 no code", "553 5.3.0 <e@v.example>... no code"),
            (r#"ERROR:5.7.1:"550 a" more"#, "550 5.7.1 <e@v.example>... a more", "550 5.7.1 <e@v.example>... amore"),
            (
                r#"ERROR:4.2.2:"550 mismatch""#,
                "550 5.2.2 <e@v.example>... mismatch",
                "550 4.2.2 <e@v.example>... mismatch",
            ),
            (r#"ERROR:5.7.1:"451 mismatch""#, "451 4.7.1 mismatch", "451 5.7.1 mismatch"),
            (
                r#"ERROR:5.7.1:"250 strange""#,
                "550 5.7.1 <e@v.example>... strange",
                "250 5.7.1 <e@v.example>... strange",
            ),
            ("550", "550 5.0.0 <e@v.example>... Access denied", "553 5.3.0 <e@v.example>... 550"),
            ("ERROR:", "553 5.3.0 <e@v.example>... Access denied", "553 5.3.0 <e@v.example>... >e<@v.example"),
        ] {
            assert_eq!(told(value), want, "{value}");
            assert_ne!(want, sendmail, "{value}: if it is the same, it belongs to the other table");
        }
    }

    #[test]
    fn keywords_count_in_any_case_and_alone() {
        for (text, want) in [
            ("OK", AccessValue::Ok),
            ("Ok", AccessValue::Ok),
            ("relay", AccessValue::Relay),
            ("reject", AccessValue::Reject),
            (" DISCARD ", AccessValue::Discard),
            ("skip", AccessValue::Skip),
            ("FRIEND", AccessValue::Friend),
            ("Hater", AccessValue::Hater),
            ("SUBJECT", AccessValue::Subject),
            ("QUARANTINE:held for review", AccessValue::Quarantine("held for review".to_owned())),
            ("quarantine:\"a, b\"", AccessValue::Quarantine("a, b".to_owned())),
            ("QUARANTINE:", AccessValue::Quarantine("quarantine".to_owned())),
        ] {
            assert_eq!(AccessValue::parse(text), want, "{text}");
        }
        for text in ["OKAY", "OK now", "RELAYED", "QUARANTINED:x", "ERRORS:x", "", "\"OK\""] {
            assert!(matches!(AccessValue::parse(text), AccessValue::Error(_)), "{text}");
        }
    }
}

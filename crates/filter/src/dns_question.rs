//! Questions to the DNS, as values: a check that needs an answer returns the question, and is called again with the
//! answer.

use std::collections::HashMap;
use std::net::IpAddr;

/// The longest name that can be asked for, in octets.
// RFC 1035 §2.3.4: 255 octets with lengths and root
const NAME_BYTES_MAX: usize = 253;
const LABEL_BYTES_MAX: usize = 63;

/// The type of the records that a question asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum RecordKind {
    /// IPv4 addresses.
    A,
    /// IPv6 addresses.
    Aaaa,
    /// Mail hosts.
    Mx,
    /// Names of an address.
    Ptr,
    /// Texts.
    Txt,
}

/// A question.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct DnsQuestion {
    /// The type of the records.
    pub kind: RecordKind,
    /// In lower case, without the last dot.
    pub name: String,
}

impl DnsQuestion {
    /// Makes a question; `None`: the name cannot be asked for.
    #[must_use]
    pub fn new(kind: RecordKind, name: &str) -> Option<Self> {
        let name = name.strip_suffix('.').unwrap_or(name);
        is_askable(name).then(|| Self { kind, name: name.to_ascii_lowercase() })
    }
}

/// One record of an answer. Names have no last dot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DnsRecord {
    /// An A or AAAA record.
    Address(IpAddr),
    /// The host of an MX record.
    Exchange(String),
    /// A PTR record.
    Name(String),
    /// A TXT record, its strings joined.
    Text(String),
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DnsAnswer {
    /// The records of the kind that was asked for; none: there are none, or no such name.
    Records(Vec<DnsRecord>),
    /// The DNS cannot tell now.
    Failed,
}

/// A look-up has no answer yet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unanswered(pub DnsQuestion);

/// The answers that are known.
#[derive(Clone, Debug, Default)]
pub struct DnsAnswers(HashMap<DnsQuestion, DnsAnswer>);

impl DnsAnswers {
    /// Adds an answer.
    pub fn insert(&mut self, question: DnsQuestion, answer: DnsAnswer) {
        self.0.insert(question, answer);
    }

    /// Returns whether the answer to a question is known.
    #[must_use]
    pub fn has(&self, question: &DnsQuestion) -> bool {
        self.0.contains_key(question)
    }

    /// Returns the answer to a question. A name that cannot be asked for has no records.
    ///
    /// # Errors
    /// It was not asked yet.
    pub fn get(&self, kind: RecordKind, name: &str) -> Result<&DnsAnswer, Unanswered> {
        static NOTHING: DnsAnswer = DnsAnswer::Records(Vec::new());
        let Some(question) = DnsQuestion::new(kind, name) else { return Ok(&NOTHING) };
        self.0.get(&question).ok_or(Unanswered(question))
    }
}

/// Returns whether a name can be asked for: labels of 1 to 63 octets, 253 octets in all.
#[must_use]
pub fn is_askable(name: &str) -> bool {
    name.is_ascii()
        && name.len() <= NAME_BYTES_MAX
        && name.split('.').all(|label| (1..=LABEL_BYTES_MAX).contains(&label.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_found_whatever_the_case() {
        let mut answers = DnsAnswers::default();
        let question = answers.get(RecordKind::Txt, "A.Example.").unwrap_err().0;
        assert_eq!((question.kind, question.name.as_str()), (RecordKind::Txt, "a.example"));
        answers.insert(question, DnsAnswer::Failed);
        assert_eq!(answers.get(RecordKind::Txt, "a.example"), Ok(&DnsAnswer::Failed));
        for name in ["", "a..b", &"x".repeat(64), "\u{e4}.example", &"ab.".repeat(90)] {
            assert_eq!(answers.get(RecordKind::A, name), Ok(&DnsAnswer::Records(Vec::new())), "{name}");
        }
    }
}

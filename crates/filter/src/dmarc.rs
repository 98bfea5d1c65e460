//! DMARC (RFC 9989): whether SPF or DKIM vouch for the domain in From, and what its owner wants done otherwise.
//!
//! Records are found by walking up the DNS tree, eight questions at most for a domain. The questions are returned, and
//! [`check`] is called again with their answers.

use crate::dkim::tags::TagList;
use crate::dns_question::{DnsAnswer, DnsAnswers, DnsQuestion, DnsRecord, RecordKind, Unanswered};
use crate::result_code::result_code;

/// Questions of one walk.
// RFC 9989 §4.10
const STEPS_MAX: usize = 8;

result_code! {
    /// The result, as `Authentication-Results` names it.
    DmarcCode {
        /// The domain has no record.
        None = "none",
        /// An aligned method passed.
        Pass = "pass",
        /// No aligned method passed.
        Fail = "fail",
        /// The DNS cannot tell now.
        TempError = "temperror",
        /// From has no domain that can be checked.
        PermError = "permerror",
    }
}

/// The wish of the owner of a domain for mail that fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum DmarcPolicy {
    /// Nothing.
    None,
    /// Treat it with suspicion.
    Quarantine,
    /// Refuse it.
    Reject,
}

impl DmarcPolicy {
    /// Returns its word.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Quarantine => "quarantine",
            Self::Reject => "reject",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        [Self::None, Self::Quarantine, Self::Reject].into_iter().find(|one| text.eq_ignore_ascii_case(one.name()))
    }

    /// RFC 9989 §4.7: `t=y` asks for the next milder one.
    const fn milder(self) -> Self {
        match self {
            Self::Reject => Self::Quarantine,
            Self::Quarantine | Self::None => Self::None,
        }
    }
}

/// A domain for which SPF or DKIM passed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identifier<'a> {
    /// The domain, in lower case.
    pub domain: &'a str,
    /// DKIM vouches for it, else SPF.
    pub is_dkim: bool,
}

/// The author and the results of other methods.
#[derive(Clone, Copy, Debug)]
pub struct DmarcRequest<'a> {
    /// The domain in From, in lower case.
    pub author: &'a str,
    /// Domains for which a method passed.
    pub passed: &'a [Identifier<'a>],
    /// SPF or a signature could not be checked now: without a pass the result is open.
    pub is_open: bool,
}

/// The result with its policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DmarcResult {
    /// The result.
    pub code: DmarcCode,
    /// The wish of the owner; `None` unless the result is `fail`.
    pub policy: DmarcPolicy,
    /// Where the record was found; empty: nowhere.
    pub record_domain: String,
    /// The reason.
    pub reason: String,
}

/// A policy record.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct PolicyRecord {
    policy: DmarcPolicy,
    of_subdomains: Option<DmarcPolicy>,
    of_missing: Option<DmarcPolicy>,
    is_strict_dkim: bool,
    is_strict_spf: bool,
    is_test: bool,
    /// `psd=y`, `psd=n`
    public_suffix: Option<bool>,
}

impl PolicyRecord {
    /// Reads a record; `None`: it is none.
    // RFC 9989 §4.7: v= comes first; without a valid p= a record with rua= counts as p=none
    fn parse(text: &str) -> Option<Self> {
        let (version, _) = text.split_once(';').unwrap_or((text, ""));
        let (name, value) = version.split_once('=')?;
        if name.trim() != "v" || value.trim() != "DMARC1" {
            return None;
        }
        let list = TagList::parse(text).ok()?;
        let policy = |name: &str| list.get(name).and_then(DmarcPolicy::parse);
        let own =
            policy("p").or_else(|| list.get("rua").is_some_and(|at| !at.is_empty()).then_some(DmarcPolicy::None))?;
        let is = |name: &str, value: &str| list.get(name).is_some_and(|found| found.eq_ignore_ascii_case(value));
        let public_suffix = match list.get("psd") {
            Some("y" | "Y") => Some(true),
            Some("n" | "N") => Some(false),
            _ => None,
        };
        Some(Self {
            policy: own,
            of_subdomains: policy("sp"),
            of_missing: policy("np"),
            is_strict_dkim: is("adkim", "s"),
            is_strict_spf: is("aspf", "s"),
            is_test: is("t", "y"),
            public_suffix,
        })
    }
}

/// Why a check ends early.
enum DmarcStop {
    Ask(DnsQuestion),
    Temporary,
}

impl From<Unanswered> for DmarcStop {
    fn from(Unanswered(question): Unanswered) -> Self {
        Self::Ask(question)
    }
}

/// Checks a message with the answers that are known.
///
/// # Errors
/// An answer is missing: the caller asks for it and calls again.
pub fn check(request: &DmarcRequest<'_>, answers: &DnsAnswers) -> Result<DmarcResult, DnsQuestion> {
    let result = |code, reason: &str| DmarcResult {
        code,
        policy: DmarcPolicy::None,
        record_domain: String::new(),
        reason: reason.to_owned(),
    };
    match evaluate(request, answers) {
        Ok(Some(found)) => Ok(found),
        Ok(None) => Ok(result(DmarcCode::None, "no policy record")),
        Err(DmarcStop::Ask(question)) => Err(question),
        Err(DmarcStop::Temporary) => Ok(result(DmarcCode::TempError, "the DNS gives no answer about the policy")),
    }
}

fn evaluate(request: &DmarcRequest<'_>, answers: &DnsAnswers) -> Result<Option<DmarcResult>, DmarcStop> {
    let walk = walk(request.author, answers)?;
    let organization = organization(request.author, &walk);
    // RFC 9989 §4.10.1: of the author's domain, of its organizational domain, of the public suffix
    let at = |domain: &str| walk.iter().find(|(name, _)| name == domain);
    let suffix = || walk.iter().find(|(_, record)| record.public_suffix == Some(true));
    let Some((place, record)) = at(request.author).or_else(|| at(&organization)).or_else(suffix) else {
        return Ok(None);
    };
    let result = |code, policy, reason: &str| {
        Some(DmarcResult { code, policy, record_domain: place.clone(), reason: reason.to_owned() })
    };
    for identifier in request.passed {
        let is_strict = if identifier.is_dkim { record.is_strict_dkim } else { record.is_strict_spf };
        if is_aligned(request.author, &organization, identifier.domain, is_strict, answers)? {
            let method = if identifier.is_dkim { "dkim" } else { "spf" };
            return Ok(result(DmarcCode::Pass, DmarcPolicy::None, &format!("{method} of {}", identifier.domain)));
        }
    }
    if request.is_open {
        return Ok(result(DmarcCode::TempError, DmarcPolicy::None, "spf or dkim could not be checked now"));
    }
    let policy = if *place == request.author {
        record.policy
    } else if record.of_missing.is_some() && !exists(request.author, answers)? {
        record.of_missing.unwrap_or(record.policy)
    } else {
        record.of_subdomains.unwrap_or(record.policy)
    };
    let policy = if record.is_test { policy.milder() } else { policy };
    Ok(result(DmarcCode::Fail, policy, "no aligned pass of spf or dkim"))
}

/// Returns the domains on the way up from a domain, the domain itself first.
// RFC 9989 §4.10: names of more than seven labels are cut to seven after the first question
fn steps(domain: &str) -> impl Iterator<Item = &str> {
    let count = domain.split('.').count();
    let mut rest = Some(domain);
    let up = std::iter::from_fn(move || {
        let this = rest?;
        rest = this.split_once('.').map(|(_, above)| above);
        Some(this)
    });
    let is_step = move |at: &usize| *at == 0 || count - at < STEPS_MAX;
    up.enumerate().filter(move |(at, _)| is_step(at)).map(|(_, domain)| domain).take(STEPS_MAX)
}

/// Returns the questions of the walk up from a domain, so that they can be asked at once: that of an author, or of
/// another domain for which a method passed.
pub fn walk_questions(domain: &str) -> impl Iterator<Item = DnsQuestion> {
    steps(domain).filter_map(|name| DnsQuestion::new(RecordKind::Txt, &format!("_dmarc.{name}")))
}

/// Returns the records on the way up from a domain, the domain itself first.
fn walk(domain: &str, answers: &DnsAnswers) -> Result<Vec<(String, PolicyRecord)>, DmarcStop> {
    let mut found = Vec::new();
    for name in steps(domain) {
        if let Some(record) = record_at(name, answers)? {
            found.push((name.to_owned(), record));
            if record.public_suffix.is_some() {
                break;
            }
        }
    }
    Ok(found)
}

/// Returns the only record at a name; several count as none.
fn record_at(domain: &str, answers: &DnsAnswers) -> Result<Option<PolicyRecord>, DmarcStop> {
    let DnsAnswer::Records(records) = answers.get(RecordKind::Txt, &format!("_dmarc.{domain}"))? else {
        return Err(DmarcStop::Temporary);
    };
    let is_policy = |text: &&str| {
        let version = text.split(';').next().unwrap_or_default();
        version.split_once('=').is_some_and(|(name, value)| name.trim() == "v" && value.trim() == "DMARC1")
    };
    let text = |record: &'_ DnsRecord| if let DnsRecord::Text(text) = record { Some(text.clone()) } else { None };
    let texts: Vec<String> = records.iter().filter_map(text).collect();
    let mut policies = texts.iter().map(String::as_str).filter(is_policy);
    match (policies.next(), policies.next()) {
        (Some(only), None) => Ok(PolicyRecord::parse(only)),
        _ => Ok(None),
    }
}

/// Returns the organizational domain.
// RFC 9989 §4.10.2
fn organization(domain: &str, walk: &[(String, PolicyRecord)]) -> String {
    if let Some((name, _)) = walk.iter().find(|(_, record)| record.public_suffix == Some(false)) {
        return name.clone();
    }
    let suffix = walk.iter().find(|(name, record)| record.public_suffix == Some(true) && name != domain);
    if let Some((name, _)) = suffix {
        let before = domain.strip_suffix(name.as_str()).and_then(|before| before.strip_suffix('.')).unwrap_or_default();
        let label = before.rsplit('.').next().unwrap_or_default();
        return format!("{label}.{name}");
    }
    walk.iter().last().map_or_else(|| domain.to_owned(), |(name, _)| name.clone())
}

fn is_aligned(
    author: &str,
    organization_of_author: &str,
    identifier: &str,
    is_strict: bool,
    answers: &DnsAnswers,
) -> Result<bool, DmarcStop> {
    if identifier == author {
        return Ok(true);
    }
    if is_strict {
        return Ok(false);
    }
    Ok(organization(identifier, &walk(identifier, answers)?) == organization_of_author)
}

/// Returns whether a domain has an address or a mail host.
fn exists(domain: &str, answers: &DnsAnswers) -> Result<bool, DmarcStop> {
    for kind in [RecordKind::A, RecordKind::Aaaa, RecordKind::Mx] {
        match answers.get(kind, domain)? {
            DnsAnswer::Records(records) if records.is_empty() => {}
            DnsAnswer::Records(_) => return Ok(true),
            DnsAnswer::Failed => return Err(DmarcStop::Temporary),
        }
    }
    Ok(false)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Checks with these TXT records (`name: text`), and returns code, policy and place, and the number of questions.
    fn checked(zone: &[(&str, &str)], author: &str, passed: &[(&str, bool)], is_open: bool) -> (String, usize) {
        let passed: Vec<Identifier<'_>> =
            passed.iter().map(|(domain, is_dkim)| Identifier { domain, is_dkim: *is_dkim }).collect();
        let request = DmarcRequest { author, passed: &passed, is_open };
        let (mut answers, mut asked) = (DnsAnswers::default(), 0);
        loop {
            match check(&request, &answers) {
                Ok(found) => {
                    let DmarcResult { code, policy, record_domain, .. } = found;
                    return (format!("{code} {} {record_domain}", policy.name()), asked);
                }
                Err(question) => {
                    asked += 1;
                    let of = zone.iter().filter(|(name, _)| *name == question.name);
                    let answer = match question.kind {
                        RecordKind::Txt if of.clone().any(|(_, text)| *text == "fails") => DnsAnswer::Failed,
                        RecordKind::Txt => {
                            DnsAnswer::Records(of.map(|(_, text)| DnsRecord::Text((*text).to_owned())).collect())
                        }
                        _ => DnsAnswer::Records(Vec::new()),
                    };
                    answers.insert(question, answer);
                }
            }
        }
    }

    fn result(zone: &[(&str, &str)], author: &str, passed: &[(&str, bool)]) -> String {
        checked(zone, author, passed, false).0
    }

    // RFC 9989 §4.10 (test)
    #[test]
    fn policies_are_found_on_the_way_up() {
        let zone = [("_dmarc.example.org", "v=DMARC1; p=reject; sp=quarantine; np=none")];
        assert_eq!(result(&zone, "example.org", &[]), "fail reject example.org");
        assert_eq!(result(&zone, "a.b.example.org", &[]), "fail none example.org", "the name does not exist");
        let zone = [("_dmarc.example.org", "v=DMARC1; p=reject; sp=quarantine")];
        assert_eq!(result(&zone, "a.b.example.org", &[]), "fail quarantine example.org");
        assert_eq!(result(&zone, "example.com", &[]), "none none ");
        let (found, asked) = checked(&zone, "a.b.c.d.e.f.g.h.i.example.org", &[], false);
        assert_eq!((found.as_str(), asked), ("fail quarantine example.org", 8));
        for text in ["v=DMARC1; p=reject; t=y", "v=DMARC1; p=quarantine", "v=DMARC1;p=Quarantine;"] {
            assert_eq!(result(&[("_dmarc.a.test", text)], "a.test", &[]), "fail quarantine a.test");
        }
        for text in ["v=DMARC1", "v=dmarc1; p=reject", "p=reject; v=DMARC1", "v=DMARC1; p=none; p=reject"] {
            assert_eq!(result(&[("_dmarc.a.test", text)], "a.test", &[]), "none none ", "{text}");
        }
        assert_eq!(result(&[("_dmarc.a.test", "v=DMARC1; p=x; rua=mailto:a@b")], "a.test", &[]), "fail none a.test");
        let several = [("_dmarc.a.test", "v=DMARC1; p=reject"), ("_dmarc.a.test", "v=DMARC1; p=none")];
        assert_eq!(result(&several, "a.test", &[]), "none none ");
    }

    #[test]
    fn all_questions_of_a_walk_are_known_beforehand() {
        for (domain, expected) in [
            ("a.b.test", vec!["a.b.test", "b.test", "test"]),
            ("test", vec!["test"]),
            ("1.2.3.4.5.6.7.8", vec!["1.2.3.4.5.6.7.8", "2.3.4.5.6.7.8", "3.4.5.6.7.8"]),
            ("a.b.1.2.3.4.5.6.7", vec!["a.b.1.2.3.4.5.6.7", "1.2.3.4.5.6.7", "2.3.4.5.6.7"]),
        ] {
            let names: Vec<String> = walk_questions(domain).map(|question| question.name).collect();
            let expected: Vec<String> = expected.iter().map(|name| format!("_dmarc.{name}")).collect();
            assert_eq!(names[..expected.len()], expected[..], "{domain}");
            assert!(names.len() <= STEPS_MAX);
            assert_eq!(checked(&[], domain, &[], false).1, names.len(), "the check asks no others");
        }
    }

    // RFC 9989 §4.4.1 (test), RFC 9989 §4.10.2 (test)
    #[test]
    fn identifiers_are_aligned_by_their_organizational_domain() {
        let zone = [("_dmarc.example.org", "v=DMARC1; p=reject")];
        let pass = "pass none example.org";
        for (author, identifier) in
            [("example.org", "example.org"), ("example.org", "mail.example.org"), ("a.example.org", "b.example.org")]
        {
            assert_eq!(result(&zone, author, &[(identifier, true)]), pass, "{author} {identifier}");
        }
        assert_eq!(result(&zone, "example.org", &[("badexample.org", true)]), "fail reject example.org");
        assert_eq!(result(&zone, "example.org", &[("other.test", true), ("x.example.org", false)]), pass);
        let strict = [("_dmarc.example.org", "v=DMARC1; p=reject; adkim=s")];
        assert_eq!(result(&strict, "example.org", &[("mail.example.org", true)]), "fail reject example.org");
        assert_eq!(result(&strict, "example.org", &[("mail.example.org", false)]), pass);
        // Customers of a public suffix are not aligned with each other.
        let suffix = [("_dmarc.bank.test", "v=DMARC1; p=reject; psd=y")];
        assert_eq!(result(&suffix, "a.one.bank.test", &[("two.bank.test", true)]), "fail reject bank.test");
        assert_eq!(result(&suffix, "a.one.bank.test", &[("one.bank.test", true)]), "pass none bank.test");
        let own =
            [("_dmarc.dept.example.org", "v=DMARC1; p=none; psd=n"), ("_dmarc.example.org", "v=DMARC1; p=reject")];
        assert_eq!(result(&own, "dept.example.org", &[("example.org", true)]), "fail none dept.example.org");
    }

    #[test]
    fn trouble_of_the_dns_never_rejects() {
        let zone = [("_dmarc.a.test", "v=DMARC1; p=reject")];
        assert_eq!(checked(&zone, "a.test", &[], true).0, "temperror none a.test");
        assert_eq!(checked(&zone, "a.test", &[("a.test", true)], true).0, "pass none a.test");
        assert_eq!(result(&[("_dmarc.a.test", "fails")], "a.test", &[]), "temperror none ");
    }
}

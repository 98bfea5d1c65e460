//! The evaluation of SPF records (RFC 7208 §4 and §5).

use super::expand::{SpfMacroValues, reverse_name, wants_name};
use super::record::{Directive, Mechanism, Prefix, SpfRecord, is_record, printable};
use super::{SpfCode, SpfRequest, SpfResult};
use crate::dns_question::{DnsAnswer, DnsAnswers, DnsQuestion, DnsRecord, RecordKind, Unanswered, is_askable};
use std::net::IpAddr;

/// Terms that ask the DNS, in all records together.
// RFC 7208 §4.6.4
const TERMS_MAX: u32 = 10;
/// Hosts of an `mx`, and names of a `ptr`.
// RFC 7208 §4.6.4
const NAMES_MAX: usize = 10;
/// Look-ups without any record.
// RFC 7208 §4.6.4: two is the recommended default
pub const VOID_LOOKUPS_MAX: u32 = 2;

/// Why an evaluation ends without a match.
enum SpfStop {
    /// An answer is missing.
    Ask(DnsQuestion),
    /// The DNS cannot tell now.
    Temporary(String),
    /// A record cannot be used.
    Permanent(String),
}

impl From<Unanswered> for SpfStop {
    fn from(Unanswered(question): Unanswered) -> Self {
        Self::Ask(question)
    }
}

/// The result of one record.
struct RecordOutcome {
    code: SpfCode,
    reason: String,
    explanation: Option<String>,
}

impl RecordOutcome {
    fn of(code: SpfCode, reason: impl Into<String>) -> Self {
        Self { code, reason: reason.into(), explanation: None }
    }
}

/// Checks a sender with the answers that are known.
///
/// # Errors
/// An answer is missing: the caller asks for it and calls again.
pub fn check(request: &SpfRequest<'_>, answers: &DnsAnswers) -> Result<SpfResult, DnsQuestion> {
    let sender = match request.sender.rsplit_once('@') {
        // RFC 7208 §2.4: postmaster at the name in HELO
        None if request.sender.is_empty() => format!("postmaster@{}", request.helo),
        None => format!("postmaster@{}", request.sender),
        // RFC 7208 §4.3: an empty local part is postmaster
        Some(("", domain)) => format!("postmaster@{domain}"),
        Some(_) => request.sender.to_owned(),
    };
    let domain = sender.rsplit_once('@').map_or("", |(_, domain)| domain).to_owned();
    let request = SpfRequest { ip: request.ip.to_canonical(), ..*request };
    let mut evaluation = SpfEvaluation { request, sender: &sender, answers, terms: 0, voids: 0 };
    let outcome = match evaluation.record_of(&domain) {
        Ok(outcome) => outcome,
        Err(SpfStop::Ask(question)) => return Err(question),
        Err(SpfStop::Temporary(why)) => RecordOutcome::of(SpfCode::TempError, why),
        Err(SpfStop::Permanent(why)) => RecordOutcome::of(SpfCode::PermError, why),
    };
    let RecordOutcome { code, reason, explanation } = outcome;
    Ok(SpfResult { code, domain, reason, explanation })
}

struct SpfEvaluation<'a> {
    request: SpfRequest<'a>,
    sender: &'a str,
    answers: &'a DnsAnswers,
    /// Terms so far that asked the DNS.
    terms: u32,
    /// Look-ups so far without any record.
    voids: u32,
}

impl<'a> SpfEvaluation<'a> {
    /// Evaluates the record of a domain: `check_host`.
    fn record_of(&mut self, domain: &str) -> Result<RecordOutcome, SpfStop> {
        let plain = domain.strip_suffix('.').unwrap_or(domain);
        // RFC 7208 §4.3: a domain of several labels
        if !is_askable(plain) || !plain.contains('.') || plain.starts_with('[') {
            return Ok(RecordOutcome::of(SpfCode::None, "no domain with a record"));
        }
        let texts = self.texts(plain)?;
        let mut records = texts.into_iter().filter(|text| is_record(text));
        let Some(text) = records.next() else {
            return Ok(RecordOutcome::of(SpfCode::None, format!("{} has no record", printable(plain))));
        };
        // RFC 7208 §4.5
        if records.next().is_some() {
            return Err(SpfStop::Permanent(format!("{} has several records", printable(plain))));
        }
        let record = SpfRecord::parse(text)
            .map_err(|fault| SpfStop::Permanent(format!("record of {}: {}", printable(plain), fault.0)))?;
        for directive in &record.directives {
            if self.matches(directive, plain)? {
                let reason = format!("{} of {}", printable(directive.text), printable(plain));
                let mut outcome = RecordOutcome::of(directive.result, reason);
                if let (SpfCode::Fail, Some(spec)) = (directive.result, record.explanation) {
                    outcome.explanation = self.explanation(spec, plain)?;
                }
                return Ok(outcome);
            }
        }
        let Some(spec) = record.redirect else {
            return Ok(RecordOutcome::of(
                SpfCode::Neutral,
                format!("nothing in the record of {} matches", printable(plain)),
            ));
        };
        self.count_term()?;
        let target = self.expand(spec, plain)?;
        let outcome = self.record_of(&target)?;
        match outcome.code {
            // RFC 7208 §6.1
            SpfCode::None => {
                Err(SpfStop::Permanent(format!("redirect to {}, which has no record", printable(&target))))
            }
            _ => Ok(outcome),
        }
    }

    fn matches(&mut self, directive: &Directive<'_>, domain: &str) -> Result<bool, SpfStop> {
        match &directive.mechanism {
            Mechanism::All => Ok(true),
            Mechanism::Network(address, length) => Ok(is_within(self.request.ip, *address, *length)),
            Mechanism::Include(spec) => {
                self.count_term()?;
                let target = self.expand(spec, domain)?;
                // RFC 7208 §5.2
                match self.record_of(&target)?.code {
                    SpfCode::Pass => Ok(true),
                    SpfCode::None => {
                        Err(SpfStop::Permanent(format!("include of {}, which has no record", printable(&target))))
                    }
                    _ => Ok(false),
                }
            }
            Mechanism::A(spec, prefix) => {
                self.count_term()?;
                let target = self.target(*spec, domain)?;
                self.has_address(&target, *prefix)
            }
            Mechanism::Mx(spec, prefix) => {
                self.count_term()?;
                let target = self.target(*spec, domain)?;
                let records = self.records(RecordKind::Mx, &target)?;
                if records.len() > NAMES_MAX {
                    return Err(SpfStop::Permanent(format!(
                        "{} has more than {NAMES_MAX} MX records",
                        printable(&target)
                    )));
                }
                for record in records {
                    if let DnsRecord::Exchange(host) = record
                        && self.has_address(host, *prefix)?
                    {
                        return Ok(true);
                    }
                }
                Ok(false)
            }
            Mechanism::Ptr(spec) => {
                self.count_term()?;
                let target = self.target(*spec, domain)?;
                Ok(self.verified_names()?.iter().any(|name| is_below(name, &target)))
            }
            Mechanism::Exists(spec) => {
                self.count_term()?;
                let target = self.expand(spec, domain)?;
                Ok(!self.records(RecordKind::A, &target)?.is_empty())
            }
        }
    }

    fn count_term(&mut self) -> Result<(), SpfStop> {
        self.terms += 1;
        if self.terms > TERMS_MAX {
            return Err(SpfStop::Permanent(format!("more than {TERMS_MAX} terms ask the DNS")));
        }
        Ok(())
    }

    /// Returns whether a name has an address in a network around that of the client.
    fn has_address(&mut self, name: &str, prefix: Prefix) -> Result<bool, SpfStop> {
        let ip = self.request.ip;
        let (kind, length) = if ip.is_ipv4() { (RecordKind::A, prefix.four) } else { (RecordKind::Aaaa, prefix.six) };
        let records = self.records(kind, name)?;
        Ok(records.iter().any(|record| matches!(record, DnsRecord::Address(found) if is_within(ip, *found, length))))
    }

    /// Returns the records of a name, for a mechanism: none count as void.
    fn records(&mut self, kind: RecordKind, name: &str) -> Result<&'a [DnsRecord], SpfStop> {
        match self.answers.get(kind, name)? {
            DnsAnswer::Failed => Err(SpfStop::Temporary(format!("the DNS gives no answer about {}", printable(name)))),
            DnsAnswer::Records(records) => {
                // A name that cannot be asked for costs nobody a look-up.
                if records.is_empty() && is_askable(name.strip_suffix('.').unwrap_or(name)) {
                    self.voids += 1;
                    if self.voids > VOID_LOOKUPS_MAX {
                        let text = format!(
                            "more than {VOID_LOOKUPS_MAX} look-ups found nothing, the last of {}",
                            printable(name)
                        );
                        return Err(SpfStop::Permanent(text));
                    }
                }
                Ok(records)
            }
        }
    }

    fn texts(&self, name: &str) -> Result<Vec<&'a str>, SpfStop> {
        match self.answers.get(RecordKind::Txt, name)? {
            DnsAnswer::Failed => Err(SpfStop::Temporary(format!("the DNS gives no answer about {}", printable(name)))),
            DnsAnswer::Records(records) => {
                let text =
                    |record: &'a DnsRecord| if let DnsRecord::Text(text) = record { Some(text.as_str()) } else { None };
                Ok(records.iter().filter_map(text).collect())
            }
        }
    }

    /// Returns the names of the client that lead back to its address. A failed look-up is a name less.
    // RFC 7208 §5.5
    fn verified_names(&self) -> Result<Vec<&'a str>, SpfStop> {
        let ip = self.request.ip;
        let DnsAnswer::Records(records) = self.answers.get(RecordKind::Ptr, &reverse_name(ip))? else {
            return Ok(Vec::new());
        };
        let kind = if ip.is_ipv4() { RecordKind::A } else { RecordKind::Aaaa };
        let mut found = Vec::new();
        for record in records.iter().take(NAMES_MAX) {
            if let DnsRecord::Name(name) = record
                && let DnsAnswer::Records(addresses) = self.answers.get(kind, name)?
                && addresses.contains(&DnsRecord::Address(ip))
            {
                found.push(name.strip_suffix('.').unwrap_or(name));
            }
        }
        Ok(found)
    }

    /// Returns the value of `%{p}`.
    // RFC 7208 §7.3: the domain itself, else one below it, else any
    fn client_name(&self, domain: &str) -> Result<String, SpfStop> {
        let names = self.verified_names()?;
        let same = names.iter().find(|name| name.eq_ignore_ascii_case(domain));
        let best = same.or_else(|| names.iter().find(|name| is_below(name, domain))).or_else(|| names.first());
        Ok(best.map_or_else(|| "unknown".to_owned(), |name| (*name).to_owned()))
    }

    fn target(&self, spec: Option<&str>, domain: &str) -> Result<String, SpfStop> {
        spec.map_or_else(|| Ok(domain.to_owned()), |spec| self.expand(spec, domain))
    }

    fn expand(&self, spec: &str, domain: &str) -> Result<String, SpfStop> {
        let name = if wants_name(spec) { self.client_name(domain)? } else { String::new() };
        Ok(self.values(domain, &name).domain(spec))
    }

    fn values<'v>(&'v self, domain: &'v str, name: &'v str) -> SpfMacroValues<'v> {
        let SpfRequest { ip, helo, receiver, time, .. } = self.request;
        SpfMacroValues { sender: self.sender, domain, ip, helo, name, receiver, time }
    }

    /// Returns the explanation of a domain. A fault of it is no fault of the record.
    // RFC 7208 §6.2
    fn explanation(&self, spec: &str, domain: &str) -> Result<Option<String>, SpfStop> {
        let target = self.expand(spec, domain)?;
        let texts = match self.texts(&target) {
            Ok(texts) => texts,
            Err(SpfStop::Ask(question)) => return Err(SpfStop::Ask(question)),
            Err(SpfStop::Temporary(_) | SpfStop::Permanent(_)) => return Ok(None),
        };
        let [only] = texts.as_slice() else { return Ok(None) };
        if !only.is_ascii() {
            return Ok(None);
        }
        let name = if wants_name(only) { self.client_name(domain)? } else { String::new() };
        Ok(self.values(domain, &name).explanation(only))
    }
}

/// Returns whether a name is a domain or below it.
fn is_below(name: &str, domain: &str) -> bool {
    let (name, domain) = (name.to_ascii_lowercase(), domain.to_ascii_lowercase());
    name.strip_suffix(&domain).is_some_and(|before| before.is_empty() || before.ends_with('.'))
}

/// Returns whether two addresses of the same family agree in so many bits.
fn is_within(ip: IpAddr, network: IpAddr, length: u8) -> bool {
    match (ip, network) {
        (IpAddr::V4(ip), IpAddr::V4(network)) => {
            let mask = u32::MAX.checked_shl(32_u32.saturating_sub(length.into())).unwrap_or(0);
            u32::from(ip) & mask == u32::from(network) & mask
        }
        (IpAddr::V6(ip), IpAddr::V6(network)) => {
            let mask = u128::MAX.checked_shl(128_u32.saturating_sub(length.into())).unwrap_or(0);
            u128::from(ip) & mask == u128::from(network) & mask
        }
        _ => false,
    }
}

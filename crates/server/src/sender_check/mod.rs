//! Sender authentication: SPF, DKIM and DMARC of a message, and the field Authentication-Results about them.
//!
//! The checks are functions of the crate `filter` that return the questions they have; here the resolver of the server
//! answers them, within one time limit for all of them. Without an answer in that time the result is `temperror`.

mod cryptography;

use crate::dns::Resolver;
use crate::signing::BodyHash;
use cryptography::AwsLc;
use filter::arc::{ArcChain, ArcCode, ArcResult};
use filter::auth_results::MethodResult;
use filter::dkim::canonical::Canonicalization;
use filter::dkim::signing::author_domain;
use filter::dkim::verification::{BodyHashes, DkimCode, DkimResult, Signatures};
use filter::dmarc::{self, DmarcCode, DmarcPolicy, DmarcRequest, DmarcResult, Identifier};
use filter::dns_question::{DnsAnswer, DnsAnswers, DnsQuestion};
use filter::spf::{self, SpfCode, SpfRequest, SpfResult};
use mail::header::{HeaderSection, LineEnd};
use std::net::IpAddr;
use std::time::Duration;
use tokio::time::{Instant, timeout_at};

/// The time for all checks of a message.
// RFC 7208 §4.6.4: at least 20 seconds
pub const CHECK_TIME_MAX: Duration = Duration::from_secs(20);
/// Questions for one message: no set of records needs as many.
pub const QUESTIONS_MAX: usize = 200;

/// The client and the sender of a message.
#[derive(Clone, Copy, Debug)]
pub struct CheckedSender<'a> {
    /// The client; `None`: it is not known, and SPF is not checked.
    pub ip: Option<IpAddr>,
    /// Its name in HELO or EHLO.
    pub helo: &'a str,
    /// The sender of the envelope; empty for reports.
    pub sender: &'a str,
    /// The name of this server.
    pub receiver: &'a str,
    /// Seconds since 1970.
    pub now: u64,
}

/// The results for a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SenderResults {
    /// `None`: the client is not known.
    pub spf: Option<SpfResult>,
    /// Of each signature, in the order of the header.
    pub dkim: Vec<DkimResult>,
    /// Of the chain of relays before us.
    pub arc: ArcResult,
    /// For the domain in From.
    pub dmarc: DmarcResult,
    /// The domain in From; empty: there is none, or there are several fields.
    pub author: String,
    /// The sender of the envelope; empty for reports.
    sender: String,
    /// The client's name in its greeting.
    helo: String,
}

impl SenderResults {
    /// Returns the results as Authentication-Results has them.
    // RFC 8601 §2.7
    #[must_use]
    pub fn methods(&self) -> Vec<MethodResult> {
        let mut methods = Vec::new();
        if let Some(SpfResult { code, reason, .. }) = &self.spf {
            let property = if self.sender.is_empty() {
                ("smtp.helo", self.helo.clone())
            } else {
                ("smtp.mailfrom", self.sender.clone())
            };
            methods.push(MethodResult {
                method: "spf",
                code: code.name(),
                reason: reason.clone(),
                properties: vec![property],
            });
        }
        for DkimResult { code, domain, selector, algorithm, reason } in &self.dkim {
            let values = [("header.d", domain), ("header.s", selector), ("header.a", algorithm)];
            let properties = values.into_iter().filter(|(_, value)| !value.is_empty());
            methods.push(MethodResult {
                method: "dkim",
                code: code.name(),
                reason: reason.clone(),
                properties: properties.map(|(name, value)| (name, value.clone())).collect(),
            });
        }
        if self.dkim.is_empty() {
            let (code, reason) = (DkimCode::None.name(), String::new());
            methods.push(MethodResult { method: "dkim", code, reason, properties: Vec::new() });
        }
        if self.arc.code != ArcCode::None {
            let sealers = self.arc.sealers.last().map(|domain| ("header.d", domain.clone()));
            methods.push(MethodResult {
                method: "arc",
                code: self.arc.code.name(),
                reason: self.arc.reason.clone(),
                properties: sealers.into_iter().collect(),
            });
        }
        let mut properties = Vec::new();
        if !self.author.is_empty() {
            properties.push(("header.from", self.author.clone()));
        }
        if self.dmarc.code == DmarcCode::Fail {
            properties.push(("policy.dmarc", self.dmarc.policy.name().to_owned()));
        }
        methods.push(MethodResult {
            method: "dmarc",
            code: self.dmarc.code.name(),
            reason: self.dmarc.reason.clone(),
            properties,
        });
        methods
    }
}

/// Checks a message. Takes [`CHECK_TIME_MAX`] at most, and hashes the body on this thread.
///
/// # Cancel safety
/// Cancel safe.
pub async fn check_sender(resolver: &Resolver, sender: &CheckedSender<'_>, content: &[u8]) -> SenderResults {
    let mut questions =
        Questions { resolver, answers: DnsAnswers::default(), asked: 0, until: Instant::now() + CHECK_TIME_MAX };
    let header = HeaderSection::read(content, LineEnd::Crlf);
    let CheckedSender { helo, receiver, now, .. } = *sender;
    let spf = match sender.ip {
        Some(ip) => {
            let request = SpfRequest { ip, helo, sender: sender.sender, receiver, time: now };
            Some(questions.answer(|answers| spf::check(&request, answers)).await)
        }
        None => None,
    };
    let signatures = Signatures::of(&header, now);
    let body = content.get(header.body_offset()..).unwrap_or_default();
    let chain = ArcChain::of(&header);
    let hash =
        |form| if signatures.needs(form) || chain.needs(form) { BodyHash::of(form, body) } else { String::new() };
    let hashes = BodyHashes { simple: hash(Canonicalization::Simple), relaxed: hash(Canonicalization::Relaxed) };
    let dkim = questions.answer(|answers| signatures.verify(&hashes, answers, &AwsLc)).await;
    let arc = questions.answer(|answers| chain.verify(&hashes, answers, &AwsLc)).await;
    let author = author_domain(&header).map(|domain| domain.ascii().to_owned()).unwrap_or_default();
    let dmarc = if author.is_empty() {
        no_author(&header)
    } else {
        let (passed, is_open) = identifiers(spf.as_ref(), &dkim);
        let request = DmarcRequest { author: &author, passed: &passed, is_open };
        questions.answer(|answers| dmarc::check(&request, answers)).await
    };
    SenderResults { spf, dkim, arc, dmarc, author, sender: sender.sender.to_owned(), helo: helo.to_owned() }
}

/// Returns the result for a message whose From field names no domain, or of which there are several.
// RFC 9989 §4.2
fn no_author(header: &HeaderSection<'_>) -> DmarcResult {
    let reason = match header.find("From").count() {
        0 => "there is no From field",
        1 => "From has no domain",
        _ => "there are several From fields",
    };
    let (policy, record_domain) = (DmarcPolicy::None, String::new());
    DmarcResult { code: DmarcCode::PermError, policy, record_domain, reason: reason.to_owned() }
}

/// Returns the domains for which a method passed, and whether one could not be checked now.
fn identifiers<'a>(spf: Option<&'a SpfResult>, dkim: &'a [DkimResult]) -> (Vec<Identifier<'a>>, bool) {
    let of_dkim = dkim.iter().filter(|one| one.code == DkimCode::Pass);
    let of_dkim = of_dkim.map(|one| Identifier { domain: &one.domain, is_dkim: true });
    let of_spf = spf.filter(|one| one.code == SpfCode::Pass);
    let of_spf = of_spf.map(|one| Identifier { domain: &one.domain, is_dkim: false });
    let is_open =
        dkim.iter().any(|one| one.code == DkimCode::TempError) || spf.is_some_and(|one| one.code == SpfCode::TempError);
    (of_dkim.chain(of_spf).collect(), is_open)
}

/// Questions of the checks of one message, and their answers.
struct Questions<'a> {
    resolver: &'a Resolver,
    answers: DnsAnswers,
    asked: usize,
    until: Instant,
}

impl Questions<'_> {
    /// Calls a check until no answer is missing. After the time limit each question has failed.
    async fn answer<T>(&mut self, mut check: impl FnMut(&DnsAnswers) -> Result<T, DnsQuestion>) -> T {
        loop {
            match check(&self.answers) {
                Ok(result) => return result,
                Err(question) => {
                    self.asked += 1;
                    let asking = self.resolver.answer(&question);
                    let answer = match timeout_at(self.until, asking).await {
                        Ok(answer) if self.asked <= QUESTIONS_MAX => answer,
                        _ => DnsAnswer::Failed,
                    };
                    self.answers.insert(question, answer);
                }
            }
        }
    }
}

#[cfg(test)]
mod tests;

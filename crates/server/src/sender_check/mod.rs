//! Sender authentication: iprev, SPF, DKIM, ARC and DMARC of a message, and the field Authentication-Results on them.
//!
//! The checks are functions of the crate `filter` that return the questions they have; here the resolver of the server
//! answers them. [`SenderCheckTask`] checks a message of a session: SPF while the content arrives, signatures and DMARC
//! when it is complete, with all questions that are known beforehand asked at once. Both have the same time limit;
//! without an answer in that time the result is `temperror`. [`sender_decision`] says what follows from the results.

mod check;
mod content;
mod cryptography;
mod policy;
mod questions;
mod results;
mod task;

pub use check::name_server_fault;
pub(crate) use policy::{SenderDecision, SenderVerdict, sender_decision};
pub use questions::QUESTIONS_MAX;
pub use results::SenderResults;
pub(crate) use task::SenderCheckTask;

use crate::config::SenderCheck;
use crate::dns::{ClientName, Resolver};
use content::{ArrivingContent, CheckedContent};
use cryptography::AwsLc;
use filter::arc::ArcChain;
use filter::author::MessageAuthor;
use filter::dkim::verification::{DkimCode, DkimResult, Signatures};
use filter::dmarc::{self, DmarcCode, DmarcPolicy, DmarcRequest, DmarcResult, Identifier};
use filter::iprev::IprevCode;
use filter::spf::{self, SpfCode, SpfRequest, SpfResult};
use mail::header::{HeaderSection, LineEnd};
use questions::Questions;
use std::net::IpAddr;
use std::time::Duration;
use tokio::time::Instant;

/// The time for all checks of a message that `mailrace dkim verify` makes.
// RFC 7208 §4.6.4: at least 20 seconds
pub const CHECK_TIME_MAX: Duration = Duration::from_secs(20);

/// The client and the sender of a message.
#[derive(Clone, Debug)]
pub struct CheckedSender {
    /// The client; `None`: it is not known, and neither iprev nor SPF is checked.
    pub ip: Option<IpAddr>,
    /// The result of its reverse look-up, if that was made.
    pub iprev: Option<IprevCode>,
    /// Its name in HELO or EHLO.
    pub helo: String,
    /// The sender of the envelope; empty for reports.
    pub sender: String,
    /// The name of this server.
    pub receiver: String,
    /// Seconds since 1970.
    pub now: u64,
}

/// The checks that are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SenderChecks {
    /// The reverse look-up.
    pub iprev: bool,
    /// SPF.
    pub spf: bool,
    /// DKIM.
    pub dkim: bool,
    /// DMARC, which needs SPF and DKIM.
    pub dmarc: bool,
    /// ARC.
    pub arc: bool,
}

impl SenderChecks {
    /// All checks.
    pub const ALL: Self = Self { iprev: true, spf: true, dkim: true, dmarc: true, arc: true };

    /// Takes the checks of a configuration.
    #[must_use]
    pub fn of(checks: &[SenderCheck]) -> Self {
        let has = |check| checks.contains(&check);
        Self {
            iprev: has(SenderCheck::Iprev),
            spf: has(SenderCheck::Spf),
            dkim: has(SenderCheck::Dkim),
            dmarc: has(SenderCheck::Dmarc),
            arc: has(SenderCheck::Arc),
        }
    }
}

/// Returns the result of a reverse look-up that was made.
// RFC 8601 §2.7.3
#[must_use]
pub const fn iprev(name: &ClientName) -> IprevCode {
    match name {
        ClientName::Verified(_) => IprevCode::Pass,
        ClientName::Forged(_) => IprevCode::Fail,
        ClientName::None => IprevCode::PermError,
        ClientName::Unknown => IprevCode::TempError,
    }
}

/// Checks a whole message in [`CHECK_TIME_MAX`] at most, and hashes the body on this thread.
///
/// # Cancel safety
/// Cancel safe.
pub async fn check_sender(
    resolver: &Resolver,
    sender: &CheckedSender,
    checks: SenderChecks,
    content: &[u8],
) -> SenderResults {
    let until = Instant::now() + CHECK_TIME_MAX;
    let mut arriving = ArrivingContent::new(0);
    arriving.push(content, sender.now);
    let content = arriving.finish(sender.now);
    let spf = if checks.spf { check_spf(resolver, sender, until).await } else { None };
    check_content(resolver, sender, checks, (spf, &content), until).await
}

/// Checks SPF; `None`: the client is not known.
async fn check_spf(resolver: &Resolver, sender: &CheckedSender, until: Instant) -> Option<SpfResult> {
    let CheckedSender { helo, sender: from, receiver, now, .. } = sender;
    let request = SpfRequest { ip: sender.ip?, helo, sender: from, receiver, time: *now };
    Some(Questions::new(resolver, until).answer(|answers| spf::check(&request, answers)).await)
}

/// Checks signatures and DMARC, and joins all results.
async fn check_content(
    resolver: &Resolver,
    sender: &CheckedSender,
    checks: SenderChecks,
    (spf, content): (Option<SpfResult>, &CheckedContent),
    until: Instant,
) -> SenderResults {
    let mut questions = Questions::new(resolver, until);
    let header = HeaderSection::read(&content.header, LineEnd::Crlf);
    let author = MessageAuthor::of(&header);
    let signatures = checks.dkim.then(|| Signatures::of(&header, sender.now));
    let chain = checks.arc.then(|| ArcChain::of(&header));
    let walk = author.domain().filter(|_| checks.dmarc);
    let keys = signatures.iter().flat_map(Signatures::questions).chain(chain.iter().flat_map(ArcChain::questions));
    questions.ask_all(keys.chain(walk.into_iter().flat_map(dmarc::walk_questions))).await;
    let dkim = match &signatures {
        Some(signatures) => Some(questions.answer(|answers| signatures.verify(&content.hashes, answers, &AwsLc)).await),
        None => None,
    };
    let arc = match &chain {
        Some(chain) => Some(questions.answer(|answers| chain.verify(&content.hashes, answers, &AwsLc)).await),
        None => None,
    };
    let dmarc = match (checks.dmarc, author.domain()) {
        (false, _) => None,
        (true, None) => Some(no_author(&author)),
        (true, Some(domain)) => Some(check_dmarc(&mut questions, domain, spf.as_ref(), dkim.as_deref()).await),
    };
    SenderResults {
        iprev: sender.iprev.filter(|_| checks.iprev),
        spf,
        dkim,
        arc,
        dmarc,
        author,
        trusted_sealer: None,
        ip: sender.ip,
        sender: sender.sender.clone(),
        helo: sender.helo.clone(),
    }
}

async fn check_dmarc(
    questions: &mut Questions<'_>,
    author: &str,
    spf: Option<&SpfResult>,
    dkim: Option<&[DkimResult]>,
) -> DmarcResult {
    let (passed, is_open) = identifiers(spf, dkim.unwrap_or_default());
    // The domain of the author itself is aligned without a question.
    if passed.iter().all(|one| one.domain != author) {
        questions.ask_all(passed.iter().flat_map(|one| dmarc::walk_questions(one.domain))).await;
    }
    let request = DmarcRequest { author, passed: &passed, is_open };
    questions.answer(|answers| dmarc::check(&request, answers)).await
}

/// Returns the result for a message whose From field names no domain, or several.
// RFC 9989 §4.2
fn no_author(author: &MessageAuthor) -> DmarcResult {
    let (policy, record_domain) = (DmarcPolicy::None, String::new());
    DmarcResult { code: DmarcCode::PermError, policy, record_domain, reason: author.fault().to_owned() }
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

#[cfg(test)]
mod tests;

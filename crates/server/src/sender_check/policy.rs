//! The decision about a message by its results: what a listener does with mail that fails.
//!
//! | Finding | Key | Reply |
//! |---|---|---|
//! | several authors | `auth_results.several_from` | 550 5.7.1 |
//! | DMARC fails, and the domain asks for `reject` | `listen.dmarc_reject` | 550 5.7.1 |
//! | DMARC fails, and the domain asks for `quarantine` | `listen.dmarc_quarantine` | 550 5.7.1 |
//! | SPF fails, and DMARC neither passes nor is open | `listen.spf_fail` | 550 5.7.23 |
//! | the address of the client has no name that leads back to it | `listen.iprev_fail` | 550 5.7.25 |
//! | a method cannot be checked now, and DMARC does not pass | `auth_results.temperror` | 451 4.7.24, 451 4.7.1 |
//!
//! The most severe effect counts; a refusal goes before a deferral. Trouble of the DNS never leads to a refusal.

use super::results::SenderResults;
use crate::config::{AuthResults, Listen, SenderFailure, SenderTempError};
use filter::dmarc::{DmarcCode, DmarcPolicy};
use filter::iprev::IprevCode;
use filter::spf::SpfCode;
use mail::{Reply, ReplyCode};

/// The most characters of a name of strangers in a reply.
const NAME_CHARS_MAX: usize = 100;

/// The effect of the policy on a message that failed, the mildest first.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum SenderVerdict {
    /// It gets a field that names the failure.
    Tag,
    /// It is held in quarantine.
    Quarantine,
    /// It is refused with this reply, 4yz or 5yz.
    Refuse(Reply),
}

/// A decision with its reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct SenderDecision {
    pub(crate) verdict: SenderVerdict,
    /// The method: `dmarc`, `spf`, `iprev`, `from`.
    pub(crate) by: &'static str,
    /// The key of the configuration that asks for it.
    pub(crate) key: &'static str,
    /// The failure in words.
    pub(crate) failure: String,
}

/// Decides about a message; `None`: nothing follows from the results.
pub(crate) fn sender_decision(
    results: &SenderResults,
    settings: &AuthResults,
    listen: &Listen,
) -> Option<SenderDecision> {
    if results.author.is_ambiguous() && !settings.several_from {
        let failure = results.author.fault();
        let refusal = reply(550, &format!("5.7.1 Message refused: {failure}; one with one domain is allowed"));
        let verdict = SenderVerdict::Refuse(refusal);
        return Some(SenderDecision {
            verdict,
            by: "from",
            key: "auth_results.several_from",
            failure: failure.to_owned(),
        });
    }
    let failures = [dmarc_failure(results, listen), spf_failure(results, listen), iprev_failure(results, listen)];
    let worst =
        failures.into_iter().flatten().reduce(|worst, next| if next.effect > worst.effect { next } else { worst });
    let is_refused = worst.as_ref().is_some_and(|worst| worst.effect == SenderFailure::Reject);
    if !is_refused && settings.temperror == SenderTempError::Defer && results.is_open() {
        return Some(deferral(results));
    }
    worst.and_then(PolicyFailure::decision)
}

/// A failure, and the effect that the configuration gives it.
struct PolicyFailure {
    effect: SenderFailure,
    by: &'static str,
    key: &'static str,
    failure: String,
    reply: String,
}

impl PolicyFailure {
    fn decision(self) -> Option<SenderDecision> {
        let Self { effect, by, key, failure, reply: text } = self;
        let verdict = match effect {
            SenderFailure::None => return None,
            SenderFailure::Tag => SenderVerdict::Tag,
            SenderFailure::Quarantine => SenderVerdict::Quarantine,
            SenderFailure::Reject => SenderVerdict::Refuse(reply(550, &text)),
        };
        Some(SenderDecision { verdict, by, key, failure })
    }
}

fn dmarc_failure(results: &SenderResults, listen: &Listen) -> Option<PolicyFailure> {
    let dmarc = results.dmarc.as_ref().filter(|dmarc| dmarc.code == DmarcCode::Fail)?;
    let (effect, key) = match dmarc.policy {
        DmarcPolicy::Reject => (listen.dmarc_reject, "listen.dmarc_reject"),
        DmarcPolicy::Quarantine => (listen.dmarc_quarantine, "listen.dmarc_quarantine"),
        DmarcPolicy::None => return None,
    };
    let (author, policy) = (name(results.author.domain().unwrap_or_default()), dmarc.policy.name());
    Some(PolicyFailure {
        effect,
        by: "dmarc",
        key,
        failure: format!("dmarc=fail for {author}, whose policy is {policy}"),
        reply: format!("5.7.1 Refused by the DMARC policy of {author}: neither SPF nor DKIM vouches for it"),
    })
}

// RFC 7372 §3.2
fn spf_failure(results: &SenderResults, listen: &Listen) -> Option<PolicyFailure> {
    let spf = results.spf.as_ref().filter(|spf| spf.code == SpfCode::Fail)?;
    // RFC 9989 §5.4: an aligned signature vouches for mail that others have forwarded
    let of_dmarc = results.dmarc.as_ref().map(|dmarc| dmarc.code);
    if matches!(of_dmarc, Some(DmarcCode::Pass | DmarcCode::TempError)) {
        return None;
    }
    let (domain, client) = (name(&spf.domain), client(results));
    Some(PolicyFailure {
        effect: listen.spf_fail,
        by: "spf",
        key: "listen.spf_fail",
        failure: format!("spf=fail for {domain}"),
        reply: format!("5.7.23 SPF of {domain} does not allow {client} to send its mail"),
    })
}

// RFC 7372 §3.3
fn iprev_failure(results: &SenderResults, listen: &Listen) -> Option<PolicyFailure> {
    let code = results.iprev.filter(|code| matches!(code, IprevCode::Fail | IprevCode::PermError))?;
    let client = client(results);
    Some(PolicyFailure {
        effect: listen.iprev_fail,
        by: "iprev",
        key: "listen.iprev_fail",
        failure: format!("iprev={code} for {client}"),
        reply: format!("5.7.25 The DNS has no name for {client} that leads back to it"),
    })
}

// RFC 7372 §3.2: 4.7.24, an error of the evaluation of SPF
fn deferral(results: &SenderResults) -> SenderDecision {
    let spf = results.spf.as_ref().filter(|spf| spf.code == SpfCode::TempError);
    let (by, code, of) = match spf {
        Some(spf) => ("spf", "4.7.24", name(&spf.domain)),
        None => ("dmarc", "4.7.1", name(results.author.domain().unwrap_or_default())),
    };
    let method = by.to_ascii_uppercase();
    let refusal = reply(451, &format!("{code} {method} of {of} cannot be checked now, try again later"));
    SenderDecision {
        verdict: SenderVerdict::Refuse(refusal),
        by,
        key: "auth_results.temperror",
        failure: format!("{by}=temperror for {of}"),
    }
}

fn client(results: &SenderResults) -> String {
    results.ip.map_or_else(|| "the client".to_owned(), |ip| format!("[{ip}]"))
}

/// Returns a name of strangers as it may stand in a reply and in a field.
fn name(text: &str) -> String {
    let safe = text.chars().map(|c| if matches!(c, '!'..='~') { c } else { '?' });
    safe.take(NAME_CHARS_MAX).collect()
}

/// Makes a reply whose text begins with its enhanced code.
fn reply(code: u16, text: &str) -> Reply {
    Reply::new(ReplyCode::of(code), None, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use filter::author::MessageAuthor;
    use filter::dmarc::DmarcResult;
    use filter::spf::SpfResult;
    use mail::DomainName;

    fn found(spf: SpfCode, dmarc: DmarcCode, policy: DmarcPolicy, iprev: IprevCode) -> SenderResults {
        let (domain, reason) = ("a.test".to_owned(), String::new());
        SenderResults {
            iprev: Some(iprev),
            spf: Some(SpfResult { code: spf, domain: domain.clone(), reason: reason.clone(), explanation: None }),
            dkim: Some(Vec::new()),
            arc: None,
            dmarc: Some(DmarcResult { code: dmarc, policy, record_domain: domain, reason }),
            author: MessageAuthor::Domain(DomainName::new("bank.test").unwrap()),
            trusted_sealer: None,
            ip: Some("192.0.2.1".parse().unwrap()),
            sender: "b@a.test".to_owned(),
            helo: "c.test".to_owned(),
        }
    }

    fn decided(results: &SenderResults, set: impl FnOnce(&mut AuthResults, &mut Listen)) -> String {
        let mut config = Config::default();
        set(&mut config.auth_results, &mut config.listen[0]);
        match sender_decision(results, &config.auth_results, &config.listen[0]) {
            None => "nothing".to_owned(),
            Some(SenderDecision { verdict, by, key, failure }) => match verdict {
                SenderVerdict::Tag => format!("tag {by} {key}: {failure}"),
                SenderVerdict::Quarantine => format!("quarantine {by} {key}: {failure}"),
                SenderVerdict::Refuse(reply) => format!("{reply} ({by}, {key})"),
            },
        }
    }

    const FAIL: (SpfCode, DmarcCode, IprevCode) = (SpfCode::Fail, DmarcCode::Fail, IprevCode::PermError);

    #[test]
    fn the_most_severe_effect_counts() {
        let failed = found(FAIL.0, FAIL.1, DmarcPolicy::Reject, FAIL.2);
        assert_eq!(decided(&failed, |_, _| {}), "nothing", "by default results are only reported");
        assert_eq!(
            decided(&failed, |_, listen| {
                listen.dmarc_reject = SenderFailure::Reject;
                listen.spf_fail = SenderFailure::Reject;
            }),
            "550 5.7.1 Refused by the DMARC policy of bank.test: neither SPF nor DKIM vouches for it \
             (dmarc, listen.dmarc_reject)"
        );
        assert_eq!(
            decided(&failed, |_, listen| {
                listen.dmarc_reject = SenderFailure::Tag;
                listen.dmarc_quarantine = SenderFailure::Reject;
                listen.spf_fail = SenderFailure::Quarantine;
            }),
            "quarantine spf listen.spf_fail: spf=fail for a.test"
        );
        assert_eq!(
            decided(&failed, |_, listen| listen.spf_fail = SenderFailure::Reject),
            "550 5.7.23 SPF of a.test does not allow [192.0.2.1] to send its mail (spf, listen.spf_fail)"
        );
        assert_eq!(
            decided(&failed, |_, listen| listen.iprev_fail = SenderFailure::Reject),
            "550 5.7.25 The DNS has no name for [192.0.2.1] that leads back to it (iprev, listen.iprev_fail)"
        );
        let mild = found(FAIL.0, FAIL.1, DmarcPolicy::Quarantine, FAIL.2);
        assert_eq!(
            decided(&mild, |_, listen| listen.dmarc_quarantine = SenderFailure::Tag),
            "tag dmarc listen.dmarc_quarantine: dmarc=fail for bank.test, whose policy is quarantine"
        );
    }

    fn all_reject(settings: &mut AuthResults, listen: &mut Listen) {
        settings.temperror = SenderTempError::Pass;
        (listen.dmarc_reject, listen.dmarc_quarantine) = (SenderFailure::Reject, SenderFailure::Reject);
        (listen.spf_fail, listen.iprev_fail) = (SenderFailure::Reject, SenderFailure::Reject);
    }

    #[test]
    fn trouble_of_the_dns_refuses_nothing_for_good() {
        for (spf, dmarc, iprev) in [
            (SpfCode::TempError, DmarcCode::TempError, IprevCode::TempError),
            (SpfCode::Fail, DmarcCode::TempError, IprevCode::Pass),
            (SpfCode::TempError, DmarcCode::None, IprevCode::Pass),
        ] {
            let open = found(spf, dmarc, DmarcPolicy::None, iprev);
            assert_eq!(decided(&open, all_reject), "nothing", "{spf} {dmarc}");
            let deferred = decided(&open, |settings, listen| {
                all_reject(settings, listen);
                settings.temperror = SenderTempError::Defer;
            });
            assert!(deferred.starts_with("451 4.7.") && deferred.contains("auth_results.temperror"), "{deferred}");
        }
        let open = found(SpfCode::TempError, DmarcCode::None, DmarcPolicy::None, IprevCode::Pass);
        let deferred = decided(&open, |settings, _| settings.temperror = SenderTempError::Defer);
        assert!(deferred.starts_with("451 4.7.24 SPF of a.test cannot be checked now"), "{deferred}");
        // A method that passes needs no other.
        let passed = found(SpfCode::TempError, DmarcCode::Pass, DmarcPolicy::None, IprevCode::Pass);
        assert_eq!(decided(&passed, |settings, _| settings.temperror = SenderTempError::Defer), "nothing");
        let forwarded = found(SpfCode::Fail, DmarcCode::Pass, DmarcPolicy::None, IprevCode::Pass);
        assert_eq!(decided(&forwarded, all_reject), "nothing", "an aligned signature vouches for it");
    }

    #[test]
    fn several_authors_are_refused() {
        for author in [MessageAuthor::SeveralFields, MessageAuthor::SeveralDomains] {
            let passed = found(SpfCode::Pass, DmarcCode::PermError, DmarcPolicy::None, IprevCode::Pass);
            let several = SenderResults { author, ..passed };
            let refused = decided(&several, |_, _| {});
            assert!(
                refused.starts_with("550 5.7.1 ") && refused.contains("(from, auth_results.several_from)"),
                "{refused}"
            );
            assert_eq!(decided(&several, |settings, _| settings.several_from = true), "nothing");
        }
        let none = found(SpfCode::Pass, DmarcCode::PermError, DmarcPolicy::None, IprevCode::Pass);
        assert_eq!(decided(&SenderResults { author: MessageAuthor::Missing, ..none }, |_, _| {}), "nothing");
    }
}

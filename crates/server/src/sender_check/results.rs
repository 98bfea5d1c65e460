//! The results of the checks of one message: for Authentication-Results, for content rules, and for the log.

use filter::arc::{ArcCode, ArcResult};
use filter::auth_results::MethodResult;
use filter::author::MessageAuthor;
use filter::dkim::verification::{DkimCode, DkimResult};
use filter::dmarc::{DmarcCode, DmarcPolicy, DmarcResult};
use filter::iprev::IprevCode;
use filter::spf::{SpfCode, SpfResult};
use mail::DomainName;
use observe::{CheckMethod, CheckResult};
use std::net::IpAddr;

/// The results for a message. A check that was not made has none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SenderResults {
    /// Of the reverse look-up.
    pub iprev: Option<IprevCode>,
    /// Of the client's right to send for the domain.
    pub spf: Option<SpfResult>,
    /// Of each signature, in the order of the header.
    pub dkim: Option<Vec<DkimResult>>,
    /// Of the chain of relays before us.
    pub arc: Option<ArcResult>,
    /// For the domain in From.
    pub dmarc: Option<DmarcResult>,
    /// The author.
    pub author: MessageAuthor,
    /// The trusted sealer whose chain made up for a failed DMARC.
    pub trusted_sealer: Option<String>,
    /// The address of the client.
    pub(super) ip: Option<IpAddr>,
    /// The sender of the envelope; empty for reports.
    pub(super) sender: String,
    /// The client's name in its greeting.
    pub(super) helo: String,
}

impl SenderResults {
    /// Has a failed DMARC count as passed if the chain of relays shows that it passed before: these sealers are
    /// trusted.
    // RFC 8617 §7.2.1: an override of the policy by the receiver
    pub(crate) fn trust_sealers(&mut self, trusted: &[DomainName]) {
        let (Some(dmarc), Some(arc), Some(author)) = (&mut self.dmarc, &self.arc, self.author.domain()) else { return };
        if dmarc.code != DmarcCode::Fail {
            return;
        }
        if let Some(sealer) = arc.vouches_for(author, trusted) {
            dmarc.code = DmarcCode::Pass;
            dmarc.policy = DmarcPolicy::None;
            dmarc.reason = format!("arc=pass of {sealer}, which is trusted, in place of fail");
            self.trusted_sealer = Some(sealer.to_owned());
        }
    }

    /// Returns the results as Authentication-Results has them.
    // RFC 8601 §2.7
    #[must_use]
    pub fn methods(&self) -> Vec<MethodResult> {
        let mut methods = Vec::new();
        if let (Some(code), Some(ip)) = (self.iprev, self.ip) {
            let properties = vec![("policy.iprev", ip.to_string())];
            methods.push(MethodResult { method: "iprev", code: code.name(), reason: String::new(), properties });
        }
        if let Some(SpfResult { code, reason, .. }) = &self.spf {
            // The domain alone, as RFC 8601 §2.7.2 allows: opendmarc 1.4.2 takes the result only if the whole value is
            // the domain of the sender.
            let property = match self.sender.rsplit_once('@') {
                Some((_, domain)) => ("smtp.mailfrom", domain.to_owned()),
                None => ("smtp.helo", self.helo.clone()),
            };
            methods.push(MethodResult {
                method: "spf",
                code: code.name(),
                reason: reason.clone(),
                properties: vec![property],
            });
        }
        methods.extend(self.dkim.iter().flat_map(|all| dkim_methods(all)));
        if let Some(ArcResult { code, reason, sealers, .. }) = self.arc.as_ref().filter(|arc| arc.code != ArcCode::None)
        {
            let sealer = sealers.last().map(|domain| ("header.d", domain.clone()));
            methods.push(MethodResult {
                method: "arc",
                code: code.name(),
                reason: reason.clone(),
                properties: sealer.into_iter().collect(),
            });
        }
        methods.extend(self.dmarc.as_ref().map(|dmarc| self.dmarc_method(dmarc)));
        methods
    }

    fn dmarc_method(&self, dmarc: &DmarcResult) -> MethodResult {
        let author = self.author.domain().map(|domain| ("header.from", domain.to_owned()));
        let policy = (dmarc.code == DmarcCode::Fail).then(|| ("policy.dmarc", dmarc.policy.name().to_owned()));
        MethodResult {
            method: "dmarc",
            code: dmarc.code.name(),
            reason: dmarc.reason.clone(),
            properties: author.into_iter().chain(policy).collect(),
        }
    }

    /// Returns the results as content rules ask for them: methods with their results, and `dmarc-policy` with the wish
    /// of a domain for mail that fails.
    #[must_use]
    pub fn for_rules(&self) -> Vec<(String, String)> {
        let mut found: Vec<(&str, &str)> = Vec::new();
        found.extend(self.iprev.map(|code| ("iprev", code.name())));
        found.extend(self.spf.as_ref().map(|spf| ("spf", spf.code.name())));
        match self.dkim.as_deref() {
            Some([]) => found.push(("dkim", DkimCode::None.name())),
            Some(all) => found.extend(all.iter().map(|one| ("dkim", one.code.name()))),
            None => {}
        }
        found.extend(self.arc.as_ref().map(|arc| ("arc", arc.code.name())));
        if let Some(dmarc) = &self.dmarc {
            found.push(("dmarc", dmarc.code.name()));
            if dmarc.code == DmarcCode::Fail {
                found.push(("dmarc-policy", dmarc.policy.name()));
            }
        }
        found.into_iter().map(|(method, result)| (method.to_owned(), result.to_owned())).collect()
    }

    /// Returns the result of each method for log and counters; of several signatures the best one.
    #[must_use]
    pub fn for_log(&self) -> Vec<(CheckMethod, CheckResult)> {
        let word = CheckResult::of;
        let mut found = Vec::with_capacity(CheckMethod::ALL.len());
        found.extend(self.iprev.map(|code| (CheckMethod::Iprev, word(code.name()))));
        found.extend(self.spf.as_ref().map(|spf| (CheckMethod::Spf, word(spf.code.name()))));
        found.extend(self.dkim.as_deref().map(|all| (CheckMethod::Dkim, word(best(all).name()))));
        found.extend(self.dmarc.as_ref().map(|dmarc| (CheckMethod::Dmarc, word(dmarc.code.name()))));
        found.extend(self.arc.as_ref().map(|arc| (CheckMethod::Arc, word(arc.code.name()))));
        found
    }

    /// Returns the result of all methods together: that of DMARC; without a policy record, `pass` if SPF or DKIM
    /// passed.
    #[must_use]
    pub fn summary(&self) -> CheckResult {
        if let Some(dmarc) = self.dmarc.as_ref().filter(|dmarc| dmarc.code != DmarcCode::None) {
            return CheckResult::of(dmarc.code.name());
        }
        let spf = self.spf.as_ref().map(|spf| spf.code);
        let dkim = self.dkim.as_deref().map(best);
        match (spf, dkim) {
            (Some(SpfCode::Pass), _) | (_, Some(DkimCode::Pass)) => CheckResult::Pass,
            (Some(SpfCode::TempError), _) | (_, Some(DkimCode::TempError)) => CheckResult::TempError,
            (Some(SpfCode::Fail), _) | (_, Some(DkimCode::Fail)) => CheckResult::Fail,
            _ => CheckResult::None,
        }
    }

    /// Returns the reasons of the results other than `pass` and `none`, for the log.
    #[must_use]
    pub fn reasons(&self) -> String {
        let mut found = Vec::new();
        if let Some(sealer) = &self.trusted_sealer {
            found.push(format!("dmarc: arc=pass of {sealer} in place of fail"));
        }
        for MethodResult { method, code, reason, properties } in self.methods() {
            if matches!(code, "pass" | "none") || reason.is_empty() {
                continue;
            }
            let of = properties.iter().find(|(name, _)| *name == "header.d").map(|(_, domain)| format!(" of {domain}"));
            found.push(format!("{method}{}: {reason}", of.unwrap_or_default()));
        }
        found.join("; ")
    }

    /// Returns whether a method could not be checked now, and no other one vouches for the author.
    #[must_use]
    pub fn is_open(&self) -> bool {
        let of_dmarc = self.dmarc.as_ref().map(|dmarc| dmarc.code);
        of_dmarc != Some(DmarcCode::Pass)
            && (of_dmarc == Some(DmarcCode::TempError)
                || self.spf.as_ref().is_some_and(|spf| spf.code == SpfCode::TempError)
                || self.dkim.iter().flatten().any(|one| one.code == DkimCode::TempError))
    }
}

fn dkim_methods(all: &[DkimResult]) -> Vec<MethodResult> {
    if all.is_empty() {
        let (code, reason) = (DkimCode::None.name(), String::new());
        return vec![MethodResult { method: "dkim", code, reason, properties: Vec::new() }];
    }
    let one = |DkimResult { code, domain, selector, algorithm, reason }: &DkimResult| {
        let values = [("header.d", domain), ("header.s", selector), ("header.a", algorithm)];
        let properties = values.into_iter().filter(|(_, value)| !value.is_empty());
        MethodResult {
            method: "dkim",
            code: code.name(),
            reason: reason.clone(),
            properties: properties.map(|(name, value)| (name, value.clone())).collect(),
        }
    };
    all.iter().map(one).collect()
}

/// Returns the best result of several signatures.
fn best(all: &[DkimResult]) -> DkimCode {
    let order = [DkimCode::Pass, DkimCode::TempError, DkimCode::Policy, DkimCode::Fail, DkimCode::PermError];
    order.into_iter().find(|code| all.iter().any(|one| one.code == *code)).unwrap_or(DkimCode::None)
}

//! Parameters of sender authentication: `[auth_results]`.

use super::super::choice::Choice as _;
use super::super::field::Field as _;
use super::super::parameter::{Preset, Section, at};
use super::super::value::Value;
use super::super::{Config, SenderCheck, SenderFailure, SenderTempError};
use super::{Kind, fixed, list, seconds};
use std::collections::BTreeSet;

/// The effect of a failed check.
pub(super) const FAILURE: Kind = Kind::Choice(SenderFailure::WORDS);

pub(super) static AUTH_RESULTS: Section = Section {
    key: "auth_results",
    summary: "sender authentication of arriving mail, and the field Authentication-Results",
    group: None,
    parameters: &[
        fixed(
            "auth_results.checks",
            at!(auth_results.checks),
            list(&Kind::Choice(SenderCheck::WORDS)),
            "",
            "[\"spf\", \"dkim\", \"dmarc\"]",
            "checks of mail from strangers; [] for none",
            "Results are in the header field Authentication-Results, in the log, and in conditions of content rules. \
             Listeners with auth_results = false check nothing.",
        )
        .preset(Preset::ConfiguredValue {
            text: "all if another key of [auth_results] is set, else none",
            value: usual_checks,
        }),
        fixed(
            "auth_results.id",
            at!(auth_results.id),
            Kind::Word { empty: false },
            "",
            "example.com",
            "name of this server in Authentication-Results",
            "Fields in this name that arriving mail brings are removed. Mail hosts of one domain may share a name.",
        )
        .preset(Preset::Derived { text: "hostname", value: |config, _, _| config.hostname.value() }),
        fixed(
            "auth_results.time_max",
            at!(auth_results.time_max),
            seconds(1, 120),
            "20s",
            "10s",
            "time of the DNS for SPF while content arrives, and for the rest behind it",
            "Then open checks are temperror. RFC 7208 asks for 20 seconds or more.",
        ),
        fixed(
            "auth_results.dmarc_reject",
            at!(auth_results.dmarc_reject),
            FAILURE,
            "none",
            "quarantine",
            "effect of a DMARC failure where the domain has p=reject",
            "Mail that lists and forwarders have changed fails as well: RFC 9989 forbids to refuse it for the policy alone.",
        ),
        fixed(
            "auth_results.dmarc_quarantine",
            at!(auth_results.dmarc_quarantine),
            FAILURE,
            "none",
            "tag",
            "effect of a DMARC failure where the domain has p=quarantine",
            "",
        ),
        fixed(
            "auth_results.spf_fail",
            at!(auth_results.spf_fail),
            FAILURE,
            "none",
            "reject",
            "effect of an SPF fail (-all), unless DMARC passes",
            "Forwarded mail fails SPF.",
        ),
        fixed(
            "auth_results.iprev_fail",
            at!(auth_results.iprev_fail),
            FAILURE,
            "none",
            "tag",
            "effect of a client address without a name that leads back to it",
            "",
        ),
        fixed(
            "auth_results.temperror",
            at!(auth_results.temperror),
            Kind::Choice(SenderTempError::WORDS),
            "pass",
            "defer",
            "effect of checks that get no answer from the DNS, unless DMARC passes",
            "\"defer\": mail of domains whose DNS is broken does not arrive. Never the effect of a failure.",
        ),
        fixed(
            "auth_results.several_from",
            at!(auth_results.several_from),
            Kind::Flag,
            "false",
            "true",
            "accept messages with several From fields, or one with several domains",
            "One author may be checked and another one shown. Else: 550 5.7.1.",
        ),
        fixed(
            "auth_results.trusted_arc_sealers",
            at!(auth_results.trusted_arc_sealers),
            list(&Kind::Domain),
            "",
            "[\"lists.example.org\", \"forwarder.example\"]",
            "domains, with all below them, whose ARC seals make up for a failed DMARC",
            "If the chain is whole, each of its sealers is trusted, and the first of them reports dmarc=pass for the \
             author, DMARC counts as passed. A trusted sealer can forge any author.",
        ),
    ],
};

/// Returns all checks if a key of `[auth_results]` is set.
fn usual_checks(_: &Config, given: &BTreeSet<&'static str>) -> Value {
    let is_set = given.iter().any(|key| key.starts_with("auth_results."));
    if is_set { SenderCheck::ALL.to_vec().value() } else { Value::List(Vec::new()) }
}

//! The rules of the configuration, `[[route.rule]]`, as the router takes them.
//!
//! All faults of all rules are found at once; with one fault there are no rules.

use crate::config::{self, Config, RouteRule};
use mail::{EnhancedCode, Outcome};
use route::resolve::{Acknowledge, At, CopyDsn, CopyTo, Patterns, Rule, RuleAction};
use route::tables::ValueError;
use route::tables::mailer::MailerValue;
use route::{EntryLocation, Refusal};
use std::net::IpAddr;

/// A rule that cannot be understood.
#[derive(Clone, Debug)]
pub(super) struct BadRule {
    /// Which table, counted from 0.
    index: usize,
    /// Which key of it.
    key: &'static str,
    fault: ValueError,
}

impl std::fmt::Display for BadRule {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "route.rule[{}].{}: {}; {}", self.index + 1, self.key, self.fault.text, self.fault.hint)
    }
}

/// Returns the rules of the configuration.
///
/// # Errors
/// All that cannot be understood.
pub(super) fn configured_rules(config: &Config) -> Result<Vec<Rule>, Vec<BadRule>> {
    let mut rules = Vec::new();
    let mut faults = Vec::new();
    for (index, one) in config.rules.iter().enumerate() {
        let mut bad = |key, fault| faults.push(BadRule { index, key, fault });
        let sender = Patterns::parse(&one.sender).map_err(|fault| bad("sender", fault));
        let recipient = Patterns::parse(&one.recipient).map_err(|fault| bad("recipient", fault));
        let action = action(one, config.route.port, bad);
        let (Ok(sender), Ok(recipient)) = (sender, recipient) else { continue };
        let name = format!("route.rule[{}]", index + 1);
        rules.push(Rule {
            place: EntryLocation { map: "rule".into(), file: name.as_str().into(), line: None },
            name: name.into(),
            at: match one.at {
                config::RuleAt::First => At::First,
                config::RuleAt::BeforeVirtual => At::BeforeVirtual,
                config::RuleAt::BeforeLocal => At::BeforeLocal,
                config::RuleAt::BeforeMailertable => At::BeforeMailertable,
                config::RuleAt::Last => At::Last,
            },
            sender,
            recipient,
            client: one.client.clone(),
            action,
        });
    }
    if faults.is_empty() { Ok(rules) } else { Err(faults) }
}

/// Returns the action of a rule, and passes the keys that cannot be understood to `bad`. `port` is that of next hops
/// without one.
fn action(rule: &RouteRule, port: u16, mut bad: impl FnMut(&'static str, ValueError)) -> RuleAction {
    let mut action = RuleAction {
        copy_dsn: match rule.copy_dsn {
            config::CopyDsn::Never => CopyDsn::Never,
            config::CopyDsn::AsOriginal => CopyDsn::AsOriginal,
        },
        hold: (!rule.hold.is_empty()).then(|| rule.hold.as_str().into()),
        queue_only: rule.queue,
        acknowledge: match rule.acknowledge {
            config::RuleAcknowledge::Listener => None,
            config::RuleAcknowledge::Durable => Some(Acknowledge::Durable),
            config::RuleAcknowledge::Race => Some(Acknowledge::Race),
            config::RuleAcknowledge::Interactive => Some(Acknowledge::Interactive),
        },
        source4: rule.source.iter().find_map(|ip| if let IpAddr::V4(ip) = ip { Some(*ip) } else { None }),
        source6: rule.source.iter().find_map(|ip| if let IpAddr::V6(ip) = ip { Some(*ip) } else { None }),
        hello: (!rule.hello.is_empty()).then(|| rule.hello.as_str().into()),
        ..RuleAction::default()
    };
    if !rule.via.is_empty() {
        match MailerValue::parse(&rule.via, port) {
            Ok(value) => action.via = Some(value),
            Err(fault) => bad("via", fault),
        }
    }
    for copy in &rule.copy {
        match CopyTo::parse(copy, port) {
            Ok(copy) => action.copies.push(copy),
            Err(fault) => bad("copy", fault),
        }
    }
    if !rule.reject.is_empty() {
        action.reject = refusal(&rule.reject);
        if action.reject.is_none() {
            let text = format!("\"{}\" is no reply", rule.reject);
            let hint = "write a code, an enhanced code and a text: 550 5.7.1 not from here".to_owned();
            bad("reject", ValueError { text, hint });
        }
    }
    action
}

/// `550 5.7.1 not from here`; the enhanced code may be missing.
fn refusal(text: &str) -> Option<Refusal> {
    let (code, rest) = text.split_once(' ')?;
    let code: u16 = code.parse().ok().filter(|code| (400..600).contains(code))?;
    let outcome = if code < 500 { Outcome::Transient } else { Outcome::Permanent };
    let (status, text) = match rest.split_once(' ').map(|(status, text)| (status.parse::<EnhancedCode>(), text)) {
        Some((Ok(status), text)) => (status, text),
        _ => (EnhancedCode::of(outcome, 7, 1), rest),
    };
    (status.outcome() == outcome && !text.trim().is_empty()).then(|| Refusal::new(code, status, text))
}

//! Hold rules: they hold mail that comes from now on. A suspension is one that also holds what waits, and releases all
//! of it at its end.
//!
//! A rule is compared with mail when it is stored: it knows sender, recipient, destination, client and class, and none
//! of what shows later. Mail that it holds names it (`held:rule-3`) and keeps the reason, also when the rule is gone.

use super::expression::{EnvelopeFacts, Expression, QueueFacts};
use super::recipient_status::RecipientStatus;
use crate::answers::RuleLine;
use mail::{Address, Client};
use schedule::Class;
use spool::{Hold, HoldKind};
use std::time::Duration;

/// The two kinds of rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleKind {
    /// Mail stays held when the rule ends, unless the rule had an end from the beginning.
    Hold,
    /// All mail that it held is released when it ends.
    Suspension,
}

impl RuleKind {
    const fn word(self) -> &'static str {
        match self {
            Self::Hold => "rule",
            Self::Suspension => "suspension",
        }
    }
}

/// A rule in force.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HoldRule {
    /// Its number; no later rule has it.
    pub number: u64,
    /// Its kind.
    pub kind: RuleKind,
    /// The mail that it holds.
    pub expression: Expression,
    /// Why.
    pub reason: Option<Box<str>>,
    /// The party that set it.
    pub set_by: Box<str>,
    /// When, in seconds since 1970.
    pub set_at: u64,
    /// When it ends, in seconds since 1970.
    pub until: Option<u64>,
}

/// A message that is about to be stored.
#[derive(Clone, Copy, Debug)]
pub struct NewMail<'a> {
    /// The sender; `None`: the null sender.
    pub sender: Option<&'a Address>,
    /// The client that handed it in.
    pub client: Client,
    /// Its class.
    pub class: Class,
}

impl HoldRule {
    /// Its name, which mail that it holds has as the name of its holder.
    #[must_use]
    pub fn name(&self) -> String {
        format!("{}-{}", self.kind.word(), self.number)
    }

    /// The hold of mail that it holds: name, reason, and the party that set the rule.
    #[must_use]
    pub fn hold(&self) -> Hold {
        let reason = self.reason.as_ref().map(|reason| format!("{reason}; ")).unwrap_or_default();
        let at = mail::submission::date(self.set_at.saturating_mul(1_000_000), 0);
        let text = format!("{reason}set by {} at {at}: {}", self.set_by, self.expression.as_str());
        let until = self.until.map_or(0, |until| u32::try_from(until).unwrap_or(u32::MAX));
        Hold::new(HoldKind::Operator, &self.name(), &text).until(until)
    }

    /// Whether its time is over.
    #[must_use]
    pub fn is_over(&self, now_s: u64) -> bool {
        self.until.is_some_and(|until| until <= now_s)
    }

    /// Whether it holds a recipient of new mail.
    #[must_use]
    pub fn matches(&self, mail: &NewMail<'_>, recipient: &Address, destination: &[u8]) -> bool {
        let NewMail { sender, client, class } = *mail;
        let facts = EnvelopeFacts { sender, recipient: Some(recipient), size: 0, client };
        self.expression.matches_queue(&NewFacts { destination, class }) && self.expression.matches_envelope(&facts)
    }

    /// As a line of an answer, and of the file that keeps it.
    #[must_use]
    pub fn to_line(&self) -> RuleLine {
        RuleLine {
            rule: self.name(),
            expression: self.expression.as_str().to_owned(),
            reason: self.reason.as_ref().map(ToString::to_string),
            set_by: self.set_by.to_string(),
            set_at: self.set_at,
            until: self.until,
        }
    }

    /// Reads a line of the file.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub(super) fn from_line(line: &RuleLine) -> Result<Self, String> {
        let (kind, number) = line.rule.split_once('-').unwrap_or_default();
        let kind = [RuleKind::Hold, RuleKind::Suspension].into_iter().find(|one| one.word() == kind);
        let (Some(kind), Ok(number)) = (kind, number.parse()) else {
            return Err(format!("{:?} is no name of a rule", line.rule));
        };
        let expression = Expression::parse(&line.expression).map_err(|error| format!("{}: {error}", line.rule))?;
        Ok(Self {
            number,
            kind,
            expression,
            reason: line.reason.as_deref().map(Into::into),
            set_by: line.set_by.as_str().into(),
            set_at: line.set_at,
            until: line.until,
        })
    }
}

/// The facts of mail that is not in the queue yet.
struct NewFacts<'a> {
    destination: &'a [u8],
    class: Class,
}

impl QueueFacts for NewFacts<'_> {
    fn destination(&self) -> String {
        String::from_utf8_lossy(self.destination).into_owned()
    }

    fn host(&self) -> Option<String> {
        None
    }

    fn status(&self) -> RecipientStatus {
        RecipientStatus::Waiting
    }

    fn class(&self) -> Class {
        self.class
    }

    fn held_by(&self) -> Option<String> {
        None
    }

    fn reason(&self) -> Option<&'static str> {
        None
    }

    fn reply(&self) -> Option<String> {
        None
    }

    fn age(&self) -> Duration {
        Duration::ZERO
    }

    fn tries(&self) -> u64 {
        0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rule(expression: &str) -> HoldRule {
        HoldRule {
            number: 3,
            kind: RuleKind::Suspension,
            expression: Expression::parse(expression).unwrap(),
            reason: Some("they are moving".into()),
            set_by: "ann".into(),
            set_at: 1_000_000_000,
            until: Some(1_000_003_600),
        }
    }

    #[test]
    fn a_rule_holds_mail_by_what_is_known_when_it_comes() {
        let (sender, recipient) = ("news@lists.example".parse().unwrap(), "ann@slow.example".parse().unwrap());
        let client = Client::Network("192.0.2.7:4000".parse().unwrap());
        let mail = NewMail { sender: Some(&sender), client, class: Class::Bulk };
        for (expression, expected) in [
            ("to:@slow.example", true),
            ("to:@other.example", false),
            ("from:@lists.example destination:slow.* class:bulk client:192.0.2.*", true),
            ("from:@lists.example class:urgent", false),
            ("!destination:slow.example", false),
        ] {
            assert_eq!(rule(expression).matches(&mail, &recipient, b"slow.example"), expected, "{expression}");
        }
        let report = NewMail { sender: None, client: Client::Internal, class: Class::Normal };
        assert!(rule("from:<>").matches(&report, &recipient, b"slow.example"));
    }

    #[test]
    fn the_hold_says_who_set_the_rule_and_why() {
        let rule = rule("to:@slow.example");
        let hold = rule.hold();
        assert_eq!((hold.by(), hold.ends_at()), ("suspension-3", Some(1_000_003_600)));
        let text = "they are moving; set by ann at Sun, 9 Sep 2001 01:46:40 +0000: to:@slow.example";
        assert_eq!(hold.text(), text);
        assert!(!rule.is_over(1_000_003_599) && rule.is_over(1_000_003_600));
        assert_eq!(HoldRule::from_line(&rule.to_line()), Ok(rule));
    }
}

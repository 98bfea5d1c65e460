//! The orders of operators that stay in force, and the text of the file that keeps them over restarts: JSON, with the
//! lines of the answers.
//!
//! A value: a change makes a new one. The server stores it before it is in force.

use super::expression::Expression;
use super::hold_rule::{HoldRule, NewMail, RuleKind};
use crate::answers::{LimitLine, RuleLine};
use mail::Address;
use serde::{Deserialize, Serialize};

/// The most hold rules and suspensions: each message is compared with all of them.
pub const HOLD_RULES_MAX: usize = 100;
/// The most limits of destinations.
pub const SET_LIMITS_MAX: usize = 1_000;
/// The most octets of the file.
pub const STEERING_BYTES_MAX: usize = 4 << 20;
/// The version of the file.
const VERSION: u32 = 1;

/// The orders in force.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Steering {
    /// The number that was given last.
    last: u64,
    rules: Vec<HoldRule>,
    limits: Vec<LimitLine>,
}

/// A rule that is to be set.
#[derive(Clone, Debug)]
pub struct NewRule {
    /// Its kind.
    pub kind: RuleKind,
    /// The mail that it is to hold.
    pub expression: Expression,
    /// Why.
    pub reason: Option<Box<str>>,
    /// The party that sets it.
    pub set_by: String,
    /// When it ends, in seconds since 1970.
    pub until: Option<u64>,
}

/// The orders that ended with their time.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EndedOrders {
    /// Rules and suspensions.
    pub rules: Vec<HoldRule>,
    /// Limits.
    pub limits: Vec<LimitLine>,
}

#[derive(Serialize, Deserialize)]
struct SteeringFile {
    version: u32,
    last: u64,
    #[serde(default)]
    rules: Vec<RuleLine>,
    #[serde(default)]
    limits: Vec<LimitLine>,
}

impl Steering {
    /// The hold rules and suspensions, the oldest first; the first that fits holds a recipient.
    #[must_use]
    pub fn rules(&self) -> &[HoldRule] {
        &self.rules
    }

    /// The limits of destinations, the newest first; the first that fits counts.
    #[must_use]
    pub fn limits(&self) -> &[LimitLine] {
        &self.limits
    }

    /// Returns the rule that holds a recipient of new mail.
    #[must_use]
    pub fn rule_for(
        &self,
        mail: &NewMail<'_>,
        recipient: &Address,
        destination: &[u8],
        now_s: u64,
    ) -> Option<&HoldRule> {
        self.rules.iter().find(|rule| !rule.is_over(now_s) && rule.matches(mail, recipient, destination))
    }

    /// Returns the same with one more rule, which is the last one.
    ///
    /// # Errors
    /// There are too many, or the expression has a term that new mail cannot be compared by.
    pub fn with_rule(&self, new: NewRule, now_s: u64) -> Result<Self, String> {
        if self.rules.len() >= HOLD_RULES_MAX {
            return Err(format!("there are {HOLD_RULES_MAX} hold rules and suspensions, the most; end one first"));
        }
        if let Some(term) = new.expression.term_of_old_mail() {
            return Err(format!(
                "{term}: nothing is known of it when mail comes; a rule has from: to: destination: client: class:"
            ));
        }
        let NewRule { kind, expression, reason, set_by, until } = new;
        let mut next = self.clone();
        next.last += 1;
        let set_by = set_by.into();
        next.rules.push(HoldRule { number: next.last, kind, expression, reason, set_by, set_at: now_s, until });
        Ok(next)
    }

    /// Returns the same without the rule of this name, and the rule.
    #[must_use]
    pub fn without_rule(&self, name: &str) -> Option<(Self, HoldRule)> {
        let at = self.rules.iter().position(|rule| rule.name() == name)?;
        let mut next = self.clone();
        let rule = next.rules.remove(at);
        Some((next, rule))
    }

    /// Returns the same with a limit, in place of the one for the same next hops.
    ///
    /// # Errors
    /// There are too many.
    pub fn with_limit(&self, limit: LimitLine) -> Result<Self, String> {
        let mut next = self.clone();
        next.limits.retain(|one| one.destination != limit.destination);
        if next.limits.len() >= SET_LIMITS_MAX {
            return Err(format!("there are {SET_LIMITS_MAX} limits of destinations, the most; remove one first"));
        }
        next.limits.insert(0, limit);
        Ok(next)
    }

    /// Returns the same without the limit for these next hops; `None`: there is none.
    #[must_use]
    pub fn without_limit(&self, destination: &str) -> Option<Self> {
        let mut next = self.clone();
        next.limits.retain(|one| one.destination != destination);
        (next.limits.len() < self.limits.len()).then_some(next)
    }

    /// Returns the same without what has ended, and what has; `None`: nothing has.
    #[must_use]
    pub fn without_ended(&self, now_s: u64) -> Option<(Self, EndedOrders)> {
        let is_over = |until: Option<u64>| until.is_some_and(|until| until <= now_s);
        let (rules, left) = self.rules.iter().cloned().partition(|rule| rule.is_over(now_s));
        let (limits, limits_left) = self.limits.iter().cloned().partition(|limit| is_over(limit.until));
        let ended = EndedOrders { rules, limits };
        (ended != EndedOrders::default()).then_some((Self { last: self.last, rules: left, limits: limits_left }, ended))
    }

    /// The text of the file.
    #[must_use]
    pub fn to_text(&self) -> String {
        let rules = self.rules.iter().map(HoldRule::to_line).collect();
        let file = SteeringFile { version: VERSION, last: self.last, rules, limits: self.limits.clone() };
        serde_json::to_string_pretty(&file).unwrap_or_default() + "\n"
    }

    /// Reads the text of a file.
    ///
    /// # Errors
    /// Says what is wrong with it.
    pub fn parse(text: &str) -> Result<Self, String> {
        let SteeringFile { version, last, rules, limits } =
            serde_json::from_str(text).map_err(|error| error.to_string())?;
        if version != VERSION {
            return Err(format!("version {version}, and this server reads version {VERSION}"));
        }
        let rules = rules.iter().map(HoldRule::from_line).collect::<Result<Vec<_>, _>>()?;
        let largest = rules.iter().map(|rule| rule.number).max().unwrap_or(0);
        Ok(Self { last: last.max(largest), rules, limits })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn new_rule(expression: &str, until: Option<u64>) -> NewRule {
        let expression = Expression::parse(expression).unwrap();
        NewRule { kind: RuleKind::Hold, expression, reason: None, set_by: "ann".to_owned(), until }
    }

    fn limit(destination: &str, connections: u32, until: Option<u64>) -> LimitLine {
        LimitLine { destination: destination.to_owned(), connections: Some(connections), until, ..LimitLine::default() }
    }

    #[test]
    fn orders_read_back_and_numbers_are_used_once() {
        let steering = Steering::default().with_rule(new_rule("to:@a.test", None), 7).unwrap();
        let steering = steering.with_rule(new_rule("reply~\"x\"", None), 7).map_or(steering, |_| panic!("a reply"));
        let steering = steering.with_rule(new_rule("from:<> class:bulk", Some(9)), 7).unwrap();
        let steering = steering.with_limit(limit("a.test", 3, None)).unwrap();
        let names: Vec<String> = steering.rules().iter().map(HoldRule::name).collect();
        assert_eq!(names, ["rule-1", "rule-2"]);
        let (fewer, gone) = steering.without_rule("rule-2").unwrap();
        assert_eq!((gone.number, fewer.without_rule("rule-2")), (2, None));
        let again = Steering::parse(&fewer.to_text()).unwrap();
        assert_eq!(again, fewer);
        assert_eq!(again.with_rule(new_rule("to:@b.test", None), 7).unwrap().rules()[1].name(), "rule-3");
    }

    #[test]
    fn the_newest_limit_of_next_hops_counts_and_orders_end_with_their_time() {
        let steering = Steering::default().with_limit(limit("a.test", 3, None)).unwrap();
        let steering = steering.with_limit(limit("b.test", 1, Some(10))).unwrap();
        let steering = steering.with_limit(limit("a.test", 2, None)).unwrap();
        let limits: Vec<_> = steering.limits().iter().map(|one| (one.destination.as_str(), one.connections)).collect();
        assert_eq!(limits, [("a.test", Some(2)), ("b.test", Some(1))]);
        let steering = steering.with_rule(new_rule("to:@a.test", Some(10)), 7).unwrap();
        assert_eq!(steering.without_ended(9), None);
        let (left, ended) = steering.without_ended(10).unwrap();
        assert_eq!((ended.rules.len(), ended.limits.len()), (1, 1));
        assert_eq!((left.rules().len(), left.limits().len()), (0, 1));
        assert!(left.without_limit("b.test").is_none() && left.without_limit("a.test").is_some());
    }

    #[test]
    fn files_that_are_damaged_are_refused() {
        for text in ["", "{}", "{\"version\":2,\"last\":0}", "{\"version\":1,\"last\":0,\"rules\":[{\"rule\":\"x\"}]}"]
        {
            assert!(Steering::parse(text).is_err(), "{text}");
        }
    }
}

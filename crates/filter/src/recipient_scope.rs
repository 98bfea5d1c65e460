//! The rules that are for some recipients of a message and not for others.
//!
//! A server can tell recipients apart by it before the content comes: recipients with the same scope always have the
//! same result.

use crate::domains::belongs_to;
use crate::literals::folded;
use crate::message::Recipient;
use crate::rules::{Rule, RuleSet};

impl Rule {
    /// Returns whether the rule is for some recipients or lists alone.
    #[must_use]
    pub const fn has_recipient_scope(&self) -> bool {
        self.recipients.is_some() || self.lists.is_some()
    }

    /// Returns whether the rule is for this recipient.
    pub(crate) fn covers(&self, recipient: &Recipient<'_>) -> bool {
        let is_one = |wanted: &Option<Vec<String>>, own: Option<&str>| {
            wanted.as_ref().is_none_or(|wanted| own.is_some_and(|own| belongs_to(wanted, &folded(own))))
        };
        is_one(&self.recipients, Some(recipient.address)) && is_one(&self.lists, recipient.list)
    }
}

impl RuleSet {
    /// Returns whether a rule is for some recipients or lists alone.
    #[must_use]
    pub fn has_recipient_scopes(&self) -> bool {
        self.rules.iter().any(Rule::has_recipient_scope)
    }

    /// Returns the indices of the rules for some recipients that are for this one.
    ///
    /// ```
    /// use filter::{Recipient, RuleSet};
    /// let text = "rule a {\n  for recipient \"@example.com\"\n  reject\n}\nrule b {\n  hold\n}\n";
    /// let rules = RuleSet::parse(&[("a.rules", text)]).unwrap();
    /// let scope = |address| rules.recipient_scope(&Recipient { address, list: None });
    /// assert_eq!((scope("ann@example.com"), scope("ben@example.org")), (vec![0], vec![]));
    /// ```
    #[must_use]
    pub fn recipient_scope(&self, recipient: &Recipient<'_>) -> Vec<usize> {
        let covers = |rule: &Rule| rule.has_recipient_scope() && rule.covers(recipient);
        self.rules.iter().enumerate().filter(|(_, rule)| covers(rule)).map(|(index, _)| index).collect()
    }
}

//! The evaluation of a rule set on a message.
//!
//! One pass over the texts finds the literals of all tests; a test without a hit is false without running its pattern,
//! and a rule whose needed tests have no hit is not looked at. So the price follows the number of hits, not of rules.

use crate::Limits;
use crate::action::{Action, Final};
use crate::condition::{Comparison, Quantity, Question, Test};
use crate::domains::belongs_to;
use crate::literals::{fold, folded};
use crate::message::Message;
use crate::mime::{DamageSet, Tree};
use crate::rules::{Rule, RuleSet};
use crate::script::Letters;
use crate::texts::{Text, Texts};

/// A rule that holds, and for whom.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Match {
    /// The index of the rule in the set.
    pub rule: usize,
    /// The indices of the recipients it acts on; empty only for a message without recipients.
    pub recipients: Vec<usize>,
}

/// Recipients for whom the same rules hold.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Group {
    /// The indices of the recipients.
    pub recipients: Vec<usize>,
    /// The indices of the rules, in order.
    pub rules: Vec<usize>,
}

/// The result of a rule set on a message.
pub struct Evaluation<'r, 'a> {
    pub(crate) rules: &'r RuleSet,
    pub(crate) message: Message<'a>,
    pub(crate) texts: Texts<'a>,
    /// Pairs of a test and a text with one of its literals, sorted.
    hits: Vec<(u32, u32)>,
    answers: Vec<Option<bool>>,
    matches: Vec<Match>,
}

impl RuleSet {
    /// Evaluates the rules on a message in their order.
    #[must_use]
    pub fn evaluate<'r, 'a>(&'r self, message: Message<'a>, limits: &Limits) -> Evaluation<'r, 'a> {
        let texts = Texts::of(&message, self.kinds, limits);
        let mut evaluation = Evaluation {
            rules: self,
            message,
            texts,
            hits: Vec::new(),
            answers: vec![None; self.tests.len()],
            matches: Vec::new(),
        };
        let candidates = evaluation.find_literals();
        evaluation.decide(&candidates);
        evaluation
    }
}

impl Evaluation<'_, '_> {
    /// Returns the rules that hold, in order.
    #[must_use]
    pub fn matches(&self) -> &[Match] {
        &self.matches
    }

    /// Returns the limits that cut the scan short, by name; empty for a message that was scanned fully.
    #[must_use]
    pub fn limits_reached(&self) -> &[&'static str] {
        &self.texts.limits_reached
    }

    /// Returns the faults of the structure, as far as the rules had to look.
    #[must_use]
    pub const fn damage(&self) -> DamageSet {
        self.texts.damage
    }

    /// Returns the parts of the message, if a rule had to look at them.
    #[must_use]
    pub const fn tree(&self) -> Option<&Tree> {
        self.texts.tree.as_ref()
    }

    /// Returns the recipients by the rules that hold for them, those without a rule too.
    #[must_use]
    pub fn groups(&self) -> Vec<Group> {
        let mut groups: Vec<Group> = Vec::new();
        let mut of_recipient: Vec<Vec<usize>> = vec![Vec::new(); self.message.recipients.len()];
        for one in &self.matches {
            for recipient in &one.recipients {
                if let Some(rules) = of_recipient.get_mut(*recipient) {
                    rules.push(one.rule);
                }
            }
        }
        for (recipient, rules) in of_recipient.into_iter().enumerate() {
            match groups.iter_mut().find(|group| group.rules == rules) {
                Some(group) => group.recipients.push(recipient),
                None => groups.push(Group { recipients: vec![recipient], rules }),
            }
        }
        groups
    }

    /// Finds the literals in all texts. Returns for each rule whether it may hold.
    fn find_literals(&mut self) -> Vec<bool> {
        let mut candidates = self.rules.unfiltered.clone();
        let Some(search) = &self.rules.search else { return candidates };
        let mut text_of_test = vec![u32::MAX; self.rules.tests.len()];
        let mut buffer = String::new();
        for (index, text) in self.texts.list.iter().enumerate() {
            let Ok(index) = u32::try_from(index) else { break };
            fold(&text.text, &mut buffer);
            let (rules, hits) = (self.rules, &mut self.hits);
            search.find_all(&buffer, &mut |found| {
                for literal in rules.literal_tests.get(found).into_iter().flatten() {
                    let test = literal.test as usize;
                    let Some(last) = text_of_test.get_mut(test).filter(|last| **last != index) else { continue };
                    if !literal.kinds.overlaps(text.kinds) {
                        continue;
                    }
                    *last = index;
                    hits.push((literal.test, index));
                    for rule in rules.rules_of_test.get(test).into_iter().flatten() {
                        if let Some(candidate) = candidates.get_mut(*rule) {
                            *candidate = true;
                        }
                    }
                }
            });
        }
        self.hits.sort_unstable();
        candidates
    }

    fn decide(&mut self, candidates: &[bool]) {
        let recipients = self.message.recipients.len();
        let mut is_open = vec![true; recipients];
        let rules = self.rules;
        for (index, rule) in rules.rules.iter().enumerate() {
            if !candidates.get(index).is_some_and(|candidate| *candidate) || !self.is_in_scope(rule) {
                continue;
            }
            let for_whom: Vec<usize> =
                (0..recipients).filter(|one| is_open.get(*one) == Some(&true) && self.covers(rule, *one)).collect();
            if (for_whom.is_empty() && (recipients > 0 || rule.has_recipient_scope())) || !self.holds(rule) {
                continue;
            }
            let ends = rule.actions.iter().any(|action| matches!(action, Action::Final(_)));
            for one in for_whom.iter().filter(|_| ends) {
                if let Some(open) = is_open.get_mut(*one) {
                    *open = false;
                }
            }
            self.matches.push(Match { rule: index, recipients: for_whom });
            if ends && !is_open.contains(&true) {
                return;
            }
        }
    }

    /// Whether the rule is for this listener and direction.
    pub(crate) fn is_in_scope(&self, rule: &Rule) -> bool {
        let listener = |names: &Vec<String>| {
            self.message.listener.is_some_and(|own| names.iter().any(|name| name.eq_ignore_ascii_case(own)))
        };
        rule.listeners.as_ref().is_none_or(listener)
            && rule.direction.is_none_or(|direction| self.message.direction == Some(direction))
    }

    /// Whether the rule is for a recipient, or needs none.
    pub(crate) fn is_for_someone(&self, rule: &Rule) -> bool {
        let recipients = self.message.recipients.len();
        (recipients == 0 && !rule.has_recipient_scope()) || (0..recipients).any(|one| self.covers(rule, one))
    }

    /// Whether the rule is for this recipient.
    fn covers(&self, rule: &Rule, recipient: usize) -> bool {
        self.message.recipients.get(recipient).is_some_and(|recipient| rule.covers(recipient))
    }

    pub(crate) fn holds(&mut self, rule: &Rule) -> bool {
        let mut answers = std::mem::take(&mut self.answers);
        let holds = rule.condition.holds(&mut |index| {
            let known = answers.get(index).copied().flatten();
            known.unwrap_or_else(|| {
                let answer = self.answer(index);
                if let Some(slot) = answers.get_mut(index) {
                    *slot = Some(answer);
                }
                answer
            })
        });
        self.answers = answers;
        holds
    }

    /// Decides one test.
    pub(crate) fn answer(&self, index: usize) -> bool {
        let Some(test) = self.rules.tests.get(index) else { return false };
        self.found(index, test) != test.is_negated
    }

    fn found(&self, index: usize, test: &Test) -> bool {
        match &test.question {
            Question::Text(..) | Question::Script { .. } => self.find_text(index, test).is_some(),
            Question::Number(quantity, order, number) => order.holds(self.quantity(*quantity), *number),
            Question::Client(networks) => {
                self.message.client_address.is_some_and(|own| networks.iter().any(|network| network.holds(own)))
            }
            Question::Authentication { method, results } => {
                let is_wanted = |own: &(&str, &str)| {
                    own.0.eq_ignore_ascii_case(method)
                        && results.iter().any(|result| result.eq_ignore_ascii_case(own.1))
                };
                self.message.authentication.iter().any(is_wanted)
            }
            Question::Damage(faults) if faults.is_empty() => !self.texts.damage.is_empty(),
            Question::Damage(faults) => faults.iter().any(|fault| self.texts.damage.has(*fault)),
            Question::NotFullyScanned => !self.texts.limits_reached.is_empty(),
        }
    }

    fn quantity(&self, quantity: Quantity) -> u64 {
        let parts = || self.texts.tree.iter().flat_map(|tree| &tree.parts);
        let number = match quantity {
            Quantity::Size => return self.message.size,
            Quantity::HeaderSize => {
                mail::header::HeaderSection::read(self.message.content, self.message.line_end).as_bytes().len()
            }
            Quantity::Recipients => self.message.recipients.len(),
            Quantity::Parts => parts().count(),
            Quantity::Attachments => parts().filter(|part| part.is_leaf() && part.content.is_attachment()).count(),
        };
        number as u64
    }

    /// Returns the first text for which the question of a test is answered with yes, and the octets that show it.
    pub(crate) fn find_text(&self, index: usize, test: &Test) -> Option<(usize, std::ops::Range<usize>)> {
        let look = |at: usize| {
            let text = self.texts.list.get(at)?;
            let (Question::Text(field, _) | Question::Script { field, .. }) = &test.question else { return None };
            if !field.covers(text) {
                return None;
            }
            let range = match &test.question {
                Question::Text(_, comparison) => compare(comparison, field.view(text)),
                Question::Script { script, percent, .. } => {
                    let is_markup = text.is_html || is_address_field(text.name);
                    let letters = Letters::of(field_value(text), is_markup);
                    let is_enough = letters.count(*script) > 0 && letters.percent(*script) >= *percent;
                    is_enough.then(|| 0..field.view(text).len())
                }
                _ => None,
            };
            range.map(|range| (at, range))
        };
        if test.literals.is_empty() {
            return (0..self.texts.list.len()).find_map(look);
        }
        let index = u32::try_from(index).ok()?;
        let first = self.hits.partition_point(|(test, _)| *test < index);
        let own = self.hits.get(first..).unwrap_or_default().iter().take_while(|(test, _)| *test == index);
        own.map(|(_, text)| *text as usize).find_map(look)
    }

    /// Returns the first decision for a recipient and the rule that makes it.
    #[must_use]
    pub fn decision(&self, recipient: usize) -> Option<(usize, &Final)> {
        let own = self.matches.iter().filter(|one| one.recipients.contains(&recipient));
        own.filter_map(|one| Some((one.rule, self.rules.rules.get(one.rule)?))).find_map(|(index, rule)| {
            rule.actions.iter().find_map(|action| match action {
                Action::Final(decision) => Some((index, decision)),
                _ => None,
            })
        })
    }
}

/// The fields in which addresses stand between `<` and `>`, which say nothing about the script of the name.
fn is_address_field(name: &str) -> bool {
    ["From", "Sender", "Reply-To", "To", "Cc"].iter().any(|field| field.eq_ignore_ascii_case(name))
}

fn field_value<'a>(text: &'a Text<'_>) -> &'a str {
    text.text.get(text.value_at..).unwrap_or_default()
}

/// Compares a text; returns the octets that show it.
fn compare(comparison: &Comparison, text: &str) -> Option<std::ops::Range<usize>> {
    let whole = 0..text.len();
    match comparison {
        Comparison::Matches(regex) => regex.find(text).map(|found| found.range()),
        Comparison::Equals(wanted) => wanted.contains(&folded(text.trim())).then_some(whole),
        Comparison::BelongsTo(wanted) => belongs_to(wanted, &folded(text)).then_some(whole),
        Comparison::Contains(wanted) => {
            let text = folded(text);
            wanted.iter().any(|one| text.contains(one.as_str())).then_some(whole)
        }
        Comparison::Present => Some(whole),
    }
}

//! The decision of judges for the recipients of one scope, and the joined decision of several judges.

use filter::{Final, HeaderEdit};
use mail::Address;
use observe::ScreenVerdict;
use route::destination::{Destination, To};
use schedule::Class;

/// A decision that ends the way of a message, or stops it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScreenDecision {
    /// The name of the rule or filter.
    pub(crate) by: String,
    /// Where it stands.
    pub(crate) place: String,
    /// The decision; never `Accept`.
    pub(crate) action: Final,
}

/// The changes and the decision for the recipients of one scope.
#[derive(Clone, Debug, Default)]
pub(crate) struct Judgement {
    /// The first decision; none: the message passes.
    pub(crate) decision: Option<ScreenDecision>,
    /// Changes of the header section, in order.
    pub(crate) edits: Vec<HeaderEdit>,
    /// Addresses that get it in place of its recipients.
    pub(crate) redirects: Vec<Address>,
    /// Addresses that get it besides, even if it is refused or held for its recipients.
    pub(crate) copies: Vec<Address>,
    /// Where it goes in place of its route.
    pub(crate) route: Option<Destination>,
    /// The queue group of its destinations.
    pub(crate) queue_group: Option<Box<str>>,
    /// Its class.
    pub(crate) class: Option<Class>,
}

impl Judgement {
    /// Returns whether nothing about the message changes.
    pub(crate) fn is_nothing(&self) -> bool {
        self.decision.is_none()
            && self.edits.is_empty()
            && self.redirects.is_empty()
            && self.copies.is_empty()
            && self.route.is_none()
            && self.queue_group.is_none()
            && self.class.is_none()
    }

    /// Returns whether it is refused.
    pub(crate) fn is_refused(&self) -> bool {
        matches!(&self.decision, Some(ScreenDecision { action: Final::Reject(_) | Final::Defer(_), .. }))
    }

    /// Returns the destination of a recipient that had this one.
    pub(crate) fn destination(&self, of: &[u8]) -> Vec<u8> {
        let routed = self.route.clone().or_else(|| Destination::parse(of).ok());
        let Some(mut destination) = routed else { return of.to_vec() };
        // Hosts that a rule names are those that get the mail: neither smart hosts nor maps give it to others.
        destination.is_rerouted |= self.route.is_some() && matches!(destination.to, To::Hosts(_) | To::Literal(_));
        if let Some(group) = &self.queue_group {
            destination.group = Some(group.clone());
        }
        destination.to_bytes()
    }

    /// Adds the judgement of a later judge, which does not undo a decision.
    fn add(&mut self, later: Self) {
        if self.decision.is_some() {
            return;
        }
        self.decision = later.decision;
        self.edits.extend(later.edits);
        self.redirects.extend(later.redirects);
        self.copies.extend(later.copies);
        self.route = later.route.or_else(|| self.route.take());
        self.queue_group = later.queue_group.or_else(|| self.queue_group.take());
        self.class = later.class.or(self.class);
    }
}

/// One action of a judge, for the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct ScreenNote {
    /// The kind of the action.
    pub(crate) verdict: ScreenVerdict,
    /// The name of the rule or filter.
    pub(crate) by: String,
    /// Where it stands.
    pub(crate) place: String,
    /// The recipients that it is about: `<a@b>,<c@d>`.
    pub(crate) to: String,
    /// The action in words.
    pub(crate) action: String,
}

/// The judgements of a message: one for each scope of recipients.
#[derive(Clone, Debug, Default)]
pub(crate) struct Screening {
    /// By the number of the scope; a scope beyond the end passes.
    pub(crate) judgements: Vec<Judgement>,
    /// Every action, in order.
    pub(crate) notes: Vec<ScreenNote>,
}

impl Screening {
    /// Returns the judgement of a scope.
    pub(crate) fn of(&self, scope: u16) -> Option<&Judgement> {
        self.judgements.get(usize::from(scope)).filter(|judgement| !judgement.is_nothing())
    }

    /// Returns whether nothing about the message changes.
    pub(crate) fn is_nothing(&self) -> bool {
        self.judgements.iter().all(Judgement::is_nothing)
    }

    /// Returns whether it is refused for all recipients, so that no further judge needs to be asked.
    pub(crate) fn refuses_all(&self) -> bool {
        !self.judgements.is_empty() && self.judgements.iter().all(Judgement::is_refused)
    }

    /// Adds a decision for all recipients, whose scopes are numbered up to `scopes`. It undoes none.
    pub(crate) fn decide_for_all(&mut self, scopes: usize, decision: &ScreenDecision) {
        self.judgements.resize_with(self.judgements.len().max(scopes), Judgement::default);
        for judgement in &mut self.judgements {
            judgement.decision.get_or_insert_with(|| decision.clone());
        }
    }

    /// Adds the judgements of a later judge.
    pub(super) fn add(&mut self, later: Self) {
        self.notes.extend(later.notes);
        for (scope, judgement) in later.judgements.into_iter().enumerate() {
            match self.judgements.get_mut(scope) {
                Some(known) => known.add(judgement),
                None => self.judgements.push(judgement),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decided(by: &str, action: Final) -> Screening {
        let decision = Some(ScreenDecision { by: by.to_owned(), place: String::new(), action });
        Screening { judgements: vec![Judgement { decision, ..Judgement::default() }], notes: Vec::new() }
    }

    #[test]
    fn the_first_decision_counts() {
        let mut screening = Screening::default();
        assert!(screening.is_nothing() && !screening.refuses_all());
        screening.add(decided("first", Final::Hold));
        let mut later = decided("second", Final::Discard);
        later.judgements[0].edits.push(HeaderEdit::TagSubject("x".to_owned()));
        screening.add(later);
        let judgement = screening.of(0).unwrap();
        assert_eq!(judgement.decision.as_ref().map(|decision| decision.by.as_str()), Some("first"));
        assert!(judgement.edits.is_empty() && !judgement.is_refused());
        assert!(screening.of(1).is_none());
    }

    #[test]
    fn a_scope_that_a_judge_did_not_see_passes() {
        let mut screening = decided("first", Final::Discard);
        let bulk = Judgement { class: Some(Class::Bulk), ..Judgement::default() };
        let later = Screening { judgements: vec![Judgement::default(), bulk], notes: Vec::new() };
        screening.add(later);
        assert_eq!(screening.of(1).and_then(|judgement| judgement.class), Some(Class::Bulk));
        assert!(screening.of(0).is_some_and(|judgement| judgement.class.is_none()));
    }
}

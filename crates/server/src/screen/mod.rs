//! The stop *screen*: judges the content of a message after its last octet has come and before it is committed.
//!
//! | Module | Task |
//! |---|---|
//! | [`load`] | reads rule files into a [`Screen`], whole or not at all |
//! | [`message`] | the message as judges see it |
//! | [`judge`] | the trait of everything that judges a message |
//! | [`content_rules`] | the judge that evaluates content rules |
//! | [`effect`] | the effect of a decision on a stored message |
//! | [`judgement`] | the decision for the recipients of one scope |
//! | [`scopes`] | recipients by the rules that are for them |
//! | [`filters`] | milters, policy servers and scanners |
//!
//! # Design
//!
//! Content rules are asked first, then filters in the order of `listen.filters`. Rules see the message as it came; a
//! filter sees it with the changes of the filters before it. The first decision for a recipient counts. Changes of
//! filters are made before those of rules, so that the numbers hold by which filters name fields. A message that the
//! rules cannot judge is answered with 451; for a filter the configuration says what follows (`filter.on_failure`).
//!
//! Filters are asked by the session itself, since milters and policy servers answer its commands, too
//! ([`filters::FilterSession`]); their decision is for all scopes.
//!
//! A decision is for a *scope*: the recipients for whom the same recipient-scoped rules are. Scopes are known at RCPT,
//! before the content comes, so the plan of the transaction keeps them apart, and each scope has messages of its own
//! with a body of its own. Thus the header of one scope may change, and another scope may be held, while all of it is
//! committed in one batch. Without rules for some recipients there is one scope, and the plan is as it would be.
//!
//! Filters with `when = "after-250"`, and those with `on_failure = "later"` that failed, are asked about the stored
//! message (`screen_queue`).
//!
//! Without rules and filters there is no [`Screen`], and a transaction pays for one comparison.
//!
//! Rules evaluate content up to [`AT_ONCE_BYTES`] on the worker thread; more goes to a blocking thread. Judges see the
//! first `screen.body_bytes_max` octets of a body; a body with more counts as "not fully scanned".
//!
//! Not here: what the session does with a judgement (`session/screening.rs`). Reports of this server and messages of
//! `mailrace import queue` pass unjudged: a report must reach its sender, and imported mail was accepted before.

mod content_rules;
mod effect;
pub(crate) mod filters;
mod judge;
mod judgement;
mod load;
mod message;
mod scopes;

pub(crate) use effect::{decision_of, failure_destination, hold_of};
pub use filters::filter_faults;
pub(crate) use judge::JudgeError;
pub(crate) use judgement::{Judgement, ScreenDecision, Screening};
pub(crate) use load::load;
pub use load::rule_file_faults;
pub(crate) use message::{ScreenedMessage, ScreenedRecipient};
pub(crate) use scopes::Scopes;

use crate::config::FilterStage;
use content_rules::ContentRules;
use filters::{FilterSession, PooledFilter, Reinjections};
use judge::ContentJudge;
use std::sync::Arc;
use std::time::Instant;

/// Octets of content that are judged on the thread of the session.
const AT_ONCE_BYTES: usize = 64 << 10;

/// Octets that a filter may add to a message that it gives back.
const ADDED_BYTES_MAX: usize = 1 << 20;

/// Everything that judges mail, as one configuration has it.
#[derive(Debug, Default)]
pub(crate) struct Screen {
    rules: Option<Arc<ContentRules>>,
    body_bytes_max: usize,
    /// All filters of the configuration.
    filters: Vec<Arc<PooledFilter>>,
}

impl Screen {
    /// Returns those filters with these names that are asked before the 250, for a session; `None`: there are none.
    pub(crate) fn filter_session(
        &self,
        names: &[String],
        reinjections: &Arc<Reinjections>,
    ) -> Option<Box<FilterSession>> {
        let mut filters: Vec<_> = names.iter().filter_map(|name| self.filter(name)).map(Arc::clone).collect();
        filters.retain(|filter| filter.settings.when == FilterStage::Before250);
        (!filters.is_empty()).then(|| Box::new(FilterSession::new(&filters, reinjections)))
    }

    /// Returns the names of those filters that are asked after the 250.
    pub(crate) fn filters_after<'a>(&self, names: &'a [String]) -> impl Iterator<Item = &'a String> {
        let is_after = |filter: &Arc<PooledFilter>| filter.settings.when == FilterStage::After250;
        names.iter().filter(move |name| self.filter(name).is_some_and(is_after))
    }

    /// Returns the filter with this name.
    pub(crate) fn filter(&self, name: &str) -> Option<&Arc<PooledFilter>> {
        self.filters.iter().find(|filter| filter.settings.name == *name)
    }

    /// Returns whether something other than filters judges messages before the 250.
    pub(crate) const fn has_rules(&self) -> bool {
        self.rules.is_some()
    }

    /// Returns the octets of the largest message that a filter may give back; `None`: none gives mail back.
    pub(crate) fn given_back_max(&self) -> Option<usize> {
        let giving = self.filters.iter().filter(|filter| filter.settings.kind.gives_back());
        let largest = giving.map(|filter| filter.settings.size_max).max()?;
        Some(usize::try_from(largest).unwrap_or(usize::MAX).saturating_add(ADDED_BYTES_MAX))
    }

    /// Returns all filters of the configuration.
    pub(crate) fn filters(&self) -> &[Arc<PooledFilter>] {
        &self.filters
    }

    /// Closes connections to filters that are idle for too long at `now`.
    pub(crate) fn close_idle_connections(&self, now: Instant) {
        self.filters.iter().for_each(|filter| filter.close_idle(now));
    }

    /// Octets of a body that judges see.
    pub(crate) const fn body_bytes_max(&self) -> usize {
        self.body_bytes_max
    }

    /// Returns an empty list of scopes, which finds the scope of each recipient by the rules.
    pub(crate) fn scopes(&self) -> Scopes {
        Scopes::new(self.rules.as_ref().filter(|rules| rules.set().has_recipient_scopes()).map(Arc::clone))
    }

    /// Returns whether a rule may send a copy elsewhere, which needs a body of its own.
    pub(crate) fn may_copy(&self) -> bool {
        self.rules.as_ref().is_some_and(|rules| rules.may_copy())
    }

    /// Asks all judges about a message.
    ///
    /// # Errors
    /// A judge could not judge it.
    /// # Cancel safety
    /// Yes.
    pub(crate) async fn judge(&self, message: &Arc<ScreenedMessage>) -> Result<Screening, JudgeError> {
        let mut screening = Screening::default();
        let judges = self.rules.iter().map(|rules| &**rules as &dyn ContentJudge);
        for judge in judges {
            screening.add(judge.judge(message).await?);
            if screening.refuses_all() {
                break;
            }
        }
        Ok(screening)
    }
}

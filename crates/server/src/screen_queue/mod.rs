//! Mail that filters judge after its 250: it waits in the spool until each filter has let it pass.
//!
//! | Module | Task |
//! |---|---|
//! | [`record`] | facts that are stored with a message that waits |
//! | [`backlog`] | the messages that wait, in memory: turns, pauses, limits |
//! | [`waiting`] | reads a message that waits |
//! | [`ask`] | asks its filters |
//! | [`effect`] | turns their answer into the effect on each recipient |
//! | [`apply`] | carries the effect out |
//! | [`record_changes`] | the steps of that which end a hold |
//! | [`replace`] | puts a changed message in place of one that waits |
//! | [`restore`] | finds the messages after a start |
//! | [`rest`] | the rests of workers while processors are short |
//! | [`run`] | the workers |
//!
//! # Design
//!
//! A message with filters after the 250 is committed with all recipients held, for the reason
//! [`HoldKind::Screen`](spool::HoldKind::Screen). Nothing but a verdict, or an operator's command that says so, ends
//! this hold, so no crash and no restart delivers it unscreened. Its 250 waits for no filter.
//!
//! A worker reads the message and asks all of its filters in order, as if the client came again. Only then the first
//! octet is written:
//!
//! | Verdict | Written |
//! |---|---|
//! | pass | one record: the recipients wait for delivery, or are held as content rules said |
//! | quarantine, hold | one record: held for that reason |
//! | reject | one record: in quarantine; or a destination that reports to the sender; or done |
//! | discard | one record: done |
//! | pass with changes | one message in place of the old one (below) |
//! | none yet | nothing |
//!
//! The recipients go to *dispatch* when the record is durable. A crash before that leaves a message that waits and is
//! screened again, a crash after it leaves the result.
//!
//! **Changes.** The changed message is a new one, since content in the spool never changes. First the old one is
//! claimed: it is held for the reason [`HoldKind::Replacement`](spool::HoldKind::Replacement). Then the new message is
//! committed, held for the same reason, and its record names the old one: this one commit is the decision. Then the
//! old message is done, and when that is durable the new one is let go. After a crash in between the start finds the
//! new message and ends the old one before any message is screened, or finds none and has the old one screened again;
//! so the verdict is neither lost nor taken twice. Recipients that a filter refused leave the old message before the
//! new one is stored.
//!
//! **Operators.** Each step that ends a hold names the reason that it ends ([`Spool::record_from`](spool::Spool)). The
//! spool decides: of a verdict and a command that releases or deletes the message the first one counts, and the
//! other one finds nothing to do.
//!
//! A filter may answer for some recipients only, as one that gives mail back by SMTP in several forms. The verdict
//! counts for these, and only they are claimed and done in the old message. The others wait in it, and are asked about
//! again.
//!
//! **Failures.** A message without a verdict waits and is tried again, after 2 seconds first and 5 minutes at most.
//! When it is older than `delivery.give_up_after` its sender gets a report, or it goes into quarantine if it has none.
//!
//! **Processors.** While these are short, workers rest between messages, so that filters on this machine leave them to
//! intake; up to half of the limits of the backlog, and 5 seconds for each message.
//!
//! **Backlog.** The messages that wait have two limits, `screen.backlog_max` and `screen.backlog_bytes_max`. From half
//! of a limit on the 250 of further ones is delayed, and at the limit it is a 451.
//!
//! Not here: *reports* and imported mail, which are not screened; content rules, which judge before the 250.

mod apply;
mod ask;
mod backlog;
mod effect;
mod record;
mod record_changes;
mod replace;
mod rest;
mod restore;
mod run;
#[cfg(test)]
mod tests;
mod waiting;

pub(crate) use backlog::ChainView;
pub(crate) use record::ScreeningRecord;

use crate::context::Context;
use crate::dispatch::{Dispatch, FilterFailures};
use backlog::{Backlog, BacklogLimits};
use mail::QueueId;
use observe::Limit;
use rest::ProcessorShortage;
use spool::{Hold, HoldKind};
use std::fmt;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::Duration;
use tokio::sync::Notify;

/// The messages that wait for filters, and their workers.
pub(crate) struct ScreenQueue {
    context: Arc<Context>,
    dispatch: Arc<Dispatch>,
    backlog: Mutex<Backlog>,
    /// A message was added, or one may be due earlier.
    bell: Notify,
    shortage: ProcessorShortage,
}

impl fmt::Debug for ScreenQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ScreenQueue").field("backlog", &self.backlog().size()).finish_non_exhaustive()
    }
}

/// The size of the backlog and its limits, for people.
#[derive(Clone, Debug)]
pub(crate) struct BacklogView {
    /// Messages that wait.
    pub(crate) messages: u64,
    /// Their octets.
    pub(crate) bytes: u64,
    /// The delay of the next 250.
    pub(crate) delay: Duration,
    /// By list of filters.
    pub(crate) chains: Vec<ChainView>,
}

/// Room for the messages of a transaction, which it gives back unless they are added.
#[derive(Debug)]
pub(crate) struct BacklogRoom {
    queue: Arc<ScreenQueue>,
    messages: u64,
    bytes: u64,
}

/// Returns why a message that waits for these filters is held.
pub(crate) fn screen_hold(filters: &[String]) -> Hold {
    Hold::new(HoldKind::Screen, &filters.join(","), "")
}

impl ScreenQueue {
    /// Makes the queue of a server that starts. Nothing happens before [`Self::run`].
    pub(crate) fn new(dispatch: &Arc<Dispatch>) -> Arc<Self> {
        let queue = Arc::new(Self {
            context: Arc::clone(&dispatch.context),
            dispatch: Arc::clone(dispatch),
            backlog: Mutex::default(),
            bell: Notify::new(),
            shortage: ProcessorShortage::default(),
        });
        let failures: Weak<Self> = Arc::downgrade(&queue);
        dispatch.know_filter_failures(failures);
        queue
    }

    /// Reserves room for the messages of a transaction, each with so many octets.
    ///
    /// # Errors
    /// The limit that has no room.
    pub(crate) fn reserve(self: &Arc<Self>, messages: usize, bytes_each: u64) -> Result<BacklogRoom, Limit> {
        let messages = u64::try_from(messages).unwrap_or(u64::MAX);
        let bytes = bytes_each.saturating_mul(messages);
        self.backlog().reserve(messages, bytes, self.limits())?;
        Ok(BacklogRoom { queue: Arc::clone(self), messages, bytes })
    }

    /// Returns the delay of a 250 for one more message that waits.
    pub(crate) fn delay(&self) -> Duration {
        self.backlog().delay(self.limits())
    }

    /// Returns whether a message waits for its filters.
    pub(crate) fn has(&self, id: QueueId) -> bool {
        self.backlog().has(id)
    }

    /// Has all messages asked about again: the configuration has changed.
    pub(crate) fn retry_all(&self) {
        self.backlog().retry_all(self.context.unix_now());
        self.bell.notify_one();
    }

    /// Returns the state of the backlog.
    pub(crate) fn view(&self) -> BacklogView {
        let limits = self.limits();
        let backlog = self.backlog();
        let (messages, bytes) = backlog.size();
        BacklogView { messages, bytes, delay: backlog.delay(limits), chains: backlog.views() }
    }

    fn limits(&self) -> BacklogLimits {
        let live = self.context.live.load();
        let screen = &live.config.screen;
        BacklogLimits { messages: screen.backlog_max, bytes: screen.backlog_bytes_max }
    }

    fn backlog(&self) -> MutexGuard<'_, Backlog> {
        // Every change under the lock is a single step.
        self.backlog.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl FilterFailures for ScreenQueue {
    fn failure(&self, filters: &str) -> Option<String> {
        let views = self.backlog().views();
        // The reason of a hold has less room than the names may need.
        let is_meant = |view: &&ChainView| screen_hold_name(&view.filters) == filters;
        views.iter().find(is_meant)?.error.as_deref().map(str::to_owned)
    }
}

/// Returns the names of filters as a hold has them.
fn screen_hold_name(filters: &str) -> String {
    Hold::new(HoldKind::Screen, filters, "").by().to_owned()
}

impl BacklogRoom {
    /// Adds the messages, which are durable and wait for filters.
    pub(crate) fn add(mut self, ids: &[QueueId], filters: &[String], bytes_each: u64) {
        let queue = Arc::clone(&self.queue);
        let (now, chain) = (queue.context.unix_now(), filters.join(","));
        // In one step, so that the backlog never seems larger or smaller than it is.
        let mut backlog = queue.backlog();
        backlog.release(std::mem::take(&mut self.messages), std::mem::take(&mut self.bytes));
        ids.iter().for_each(|id| backlog.add(*id, &chain, bytes_each, now));
        drop(backlog);
        queue.bell.notify_one();
    }
}

impl Drop for BacklogRoom {
    fn drop(&mut self) {
        self.queue.backlog().release(self.messages, self.bytes);
    }
}

//! The changes that commands make to recipients: changes of many messages go to the spool together.
//!
//! A change is in force at once and durable a moment later; [`Changes::finish`] waits for that. Recipients that are
//! done stay done, whatever state is recorded here: an attempt that ended meanwhile counts.

use super::command::Action;
use super::delivery_control::{DeliveryControl, Destinations};
use super::owner_check::{NotOwned, OwnerCheck, RefusedEnds};
use super::scan::{FoundMessage, FoundRecipient};
use bytes::Bytes;
use mail::QueueId;
use spool::{Change, Commit, Error, Hold, HoldKind, Spool, State, Status, Store as _};
use std::collections::{BTreeMap, HashSet, VecDeque};

/// Recipients that are recorded together.
const TOGETHER: usize = 1_000;
/// Records that are not yet durable before the oldest is waited for.
const UNSETTLED_MAX: usize = 8;
/// Destinations that the dispatcher is told by name; beyond, it looks at all.
const NAMES_MAX: usize = 1_000;

/// Counts the changes of a command.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct ChangeTotals {
    /// Messages of which a recipient was changed.
    pub(super) messages: u64,
    /// Recipients that were changed.
    pub(super) recipients: u64,
    /// Recipients that were meant and left alone: they are as they should be, or held.
    pub(super) unchanged: u64,
    /// Those of the changed ones with an attempt under way.
    pub(super) active: u64,
}

impl ChangeTotals {
    /// Without changes that were refused after they had been counted.
    pub(super) const fn without(self, refused: &RefusedEnds) -> Self {
        Self {
            messages: self.messages.saturating_sub(refused.messages),
            recipients: self.recipients.saturating_sub(refused.recipients),
            active: self.active.saturating_sub(refused.active),
            unchanged: self.unchanged,
        }
    }
}

/// Returns the new state of a recipient; `None` if the action leaves it alone.
pub(super) fn changed_state(action: Action, one: &FoundRecipient, now_s: u32) -> Option<State> {
    let state = one.state;
    // A due of 0 belongs to mail that was not released: with `delivery.mode = "queue"` it stays where it is.
    let due = if one.keeps_time { state.due } else { now_s.max(1) };
    let now = State { status: Status::Waiting, due, ..state };
    match (action, state.status) {
        (Action::Retry, Status::Waiting) | (Action::Release | Action::Resume, Status::Held) => Some(now),
        // It stays held at its new destination.
        (Action::Reroute, Status::Held) => Some(state),
        (Action::Reroute, Status::Waiting) => Some(now),
        // The original stays held.
        (Action::Forward, Status::Held) => Some(state),
        (Action::Hold | Action::Suspend, Status::Waiting) => Some(State { status: Status::Held, ..state }),
        // A delivered recipient stays delivered: only the report on it can be dropped.
        (Action::Delete, Status::Owed)
        | (Action::Delete | Action::Bounce | Action::Expire, Status::Waiting | Status::Held) => {
            Some(State { status: Status::Done, ..state })
        }
        _ => None,
    }
}

/// Changes on their way to the spool.
#[derive(Debug)]
pub(super) struct ChangeBatcher<'a> {
    spool: &'a Spool,
    delivery: &'a dyn DeliveryControl,
    owner: OwnerCheck<'a>,
    /// Why recipients are held that the changes hold.
    hold: Option<Hold>,
    pending: Vec<Change>,
    /// Changes of recipients that wait for filters, whose verdict may come first.
    pending_unscreened: Vec<Change>,
    unsettled: VecDeque<Commit>,
    /// Destinations that were changed; `None` if they are too many.
    touched: Option<HashSet<Bytes>>,
    /// Messages that were not ended since the last look at this list.
    refused: Vec<NotOwned>,
    pub(super) totals: ChangeTotals,
}

impl<'a> ChangeBatcher<'a> {
    pub(super) fn new(spool: &'a Spool, delivery: &'a dyn DeliveryControl, hold: Option<Hold>) -> Self {
        Self {
            spool,
            delivery,
            owner: OwnerCheck::new(delivery),
            hold,
            pending: Vec::new(),
            pending_unscreened: Vec::new(),
            unsettled: VecDeque::new(),
            touched: Some(HashSet::new()),
            refused: Vec::new(),
            totals: ChangeTotals::default(),
        }
    }

    /// Applies the action to a found message, and drops from it the recipients that the action leaves alone.
    pub(super) fn apply(&mut self, action: Action, found: &mut FoundMessage, now_s: u32) {
        let before = found.recipients.len();
        let id = found.id;
        found.recipients.retain(|one| {
            let Some(state) = changed_state(action, one, now_s) else { return false };
            if state != one.state {
                let waits_for_filters = one.hold.as_ref().is_some_and(|hold| hold.kind() == HoldKind::Screen);
                let changes = if waits_for_filters { &mut self.pending_unscreened } else { &mut self.pending };
                changes.push(Change { id, recipient: one.position, state, destination: None });
            }
            self.totals.active += u64::from(one.status == super::RecipientStatus::Active);
            if let Some(touched) = &mut self.touched {
                touched.insert(one.destination.clone());
            }
            true
        });
        if self.touched.as_ref().is_some_and(|touched| touched.len() > NAMES_MAX) {
            self.touched = None;
        }
        let taken = found.recipients.len();
        self.totals.messages += u64::from(taken > 0);
        self.totals.recipients += taken as u64;
        self.totals.unchanged += (before - taken) as u64;
    }

    /// Whether enough has come together to be recorded.
    pub(super) fn is_full(&self) -> bool {
        self.pending.len() + self.pending_unscreened.len() >= TOGETHER
    }

    /// Takes the messages that were left alone, since another node may own them, and the reasons. They are part of the
    /// totals.
    pub(super) fn take_refused(&mut self) -> Vec<NotOwned> {
        std::mem::take(&mut self.refused)
    }

    /// Drops the changes that end a message which another node may own.
    fn refuse_unowned(&mut self) {
        let mut doubts: BTreeMap<QueueId, Option<String>> = BTreeMap::new();
        let is_end = |change: &&Change| change.state.status == Status::Done;
        for change in self.pending.iter().chain(&self.pending_unscreened).filter(is_end) {
            doubts.entry(change.id).or_insert_with(|| self.owner.doubt(change.id));
        }
        doubts.retain(|_, doubt| doubt.is_some());
        if doubts.is_empty() {
            return;
        }
        for changes in [&mut self.pending, &mut self.pending_unscreened] {
            changes.retain(|change| change.state.status != Status::Done || !doubts.contains_key(&change.id));
        }
        self.refused.extend(doubts.into_iter().filter_map(|(id, doubt)| Some((id, doubt?))));
    }

    /// Records the pending changes, without ends of messages that another node may own; in force when this returns.
    pub(super) fn record_pending(&mut self) -> Result<(), Error> {
        self.refuse_unowned();
        if !self.pending_unscreened.is_empty() {
            let changes = std::mem::take(&mut self.pending_unscreened);
            let (commit, changed) = self.spool.record_from(HoldKind::Screen, &changes, self.hold.as_ref())?;
            let judged = changes.len().saturating_sub(changed.len()) as u64;
            self.totals.recipients = self.totals.recipients.saturating_sub(judged);
            self.totals.unchanged += judged;
            self.unsettled.push_back(commit);
        }
        if !self.pending.is_empty() {
            let commit = match &self.hold {
                Some(hold) => self.spool.record_hold(&self.pending, hold)?,
                None => self.spool.record(&self.pending)?,
            };
            self.pending.clear();
            self.unsettled.push_back(commit);
        }
        let settled = self.unsettled.len().saturating_sub(UNSETTLED_MAX);
        self.unsettled.drain(..settled).map(|commit| commit.wait()).fold(Ok(()), Result::and)
    }

    /// Records the rest, waits until all is durable, and tells the dispatcher.
    pub(super) fn finish_and_notify(&mut self, action: Action) -> Result<(), Error> {
        let recorded = self.record_pending();
        let settled = self.unsettled.drain(..).map(|commit| commit.wait()).fold(Ok(()), Result::and);
        if self.totals.recipients > 0 {
            let names: Option<Vec<Bytes>> = self.touched.take().map(|names| names.into_iter().collect());
            let destinations = names.as_deref().map_or(Destinations::All, Destinations::These);
            match action {
                Action::Retry => self.delivery.retry(destinations),
                Action::Release | Action::Resume => self.delivery.released(destinations),
                _ => {}
            }
        }
        recorded.and(settled)
    }
}

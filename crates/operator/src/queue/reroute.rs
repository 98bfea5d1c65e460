//! Sends mail that waits to another destination.
//!
//! The dispatcher moves the recipients of a message, so that no connection has one of them meanwhile; recipients in
//! delivery stay where they are. A moved recipient that waits is due at once, a held one stays held.

use super::change::ChangeTotals;
use super::delivery_control::{DeliveryControl, RecipientSelection, Rerouted};
use super::scan::FoundMessage;
use bytes::Bytes;
use spool::{Commit, Error};
use std::collections::{BTreeMap, VecDeque};

/// Moves that are not yet durable before the oldest is waited for.
const UNSETTLED_MAX: usize = 64;

/// Moves messages one after the other.
#[derive(Debug)]
pub(super) struct Reroutes<'a> {
    delivery: &'a dyn DeliveryControl,
    to: Bytes,
    unsettled: VecDeque<Commit>,
    pub(super) totals: ChangeTotals,
}

impl<'a> Reroutes<'a> {
    pub(super) const fn new(delivery: &'a dyn DeliveryControl, to: Bytes) -> Self {
        Self {
            delivery,
            to,
            unsettled: VecDeque::new(),
            totals: ChangeTotals { messages: 0, recipients: 0, unchanged: 0, active: 0 },
        }
    }

    /// Moves the recipients of a message; returns how many.
    ///
    /// # Errors
    /// The spool cannot record it: the recipients stay where they are.
    pub(super) fn apply(&mut self, found: &FoundMessage, now_s: u32) -> Result<usize, Error> {
        let mut by_destination: BTreeMap<Bytes, Vec<u32>> = BTreeMap::new();
        for one in &found.recipients {
            by_destination.entry(one.destination.clone()).or_default().push(one.position);
        }
        let mut moved = 0;
        for (from, recipients) in by_destination {
            let count = recipients.len();
            if from == self.to {
                self.totals.unchanged += count as u64;
                continue;
            }
            let meant = RecipientSelection { id: found.id, recipients };
            let Rerouted { moved: these, active, commit } = self.delivery.reroute(&meant, &from, &self.to, now_s)?;
            self.totals.active += active as u64;
            self.totals.unchanged += count.saturating_sub(these + active) as u64;
            moved += these;
            self.unsettled.extend(commit);
        }
        self.totals.messages += u64::from(moved > 0);
        self.totals.recipients += moved as u64;
        if self.unsettled.len() > UNSETTLED_MAX
            && let Some(commit) = self.unsettled.pop_front()
        {
            commit.wait()?;
        }
        Ok(moved)
    }

    /// Waits until all moves are durable, and has the new destination tried.
    ///
    /// # Errors
    /// Some moves are not durable.
    pub(super) fn finish(&mut self) -> Result<(), Error> {
        let settled = self.unsettled.drain(..).map(|commit| commit.wait()).fold(Ok(()), Result::and);
        if self.totals.recipients > 0 {
            self.delivery.retry(super::Destinations::These(std::slice::from_ref(&self.to)));
        }
        settled
    }
}

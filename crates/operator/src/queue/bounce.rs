//! Bouncing: recipients that are meant go to the dispatcher some messages at a time, which fails them and has their
//! senders told ([`super::DeliveryControl::bounce`]).
//!
//! A message is reported when its change is durable. Recipients in delivery are left alone: this file leaves out those
//! that are known to be, and the dispatcher the rest.

use super::change::ChangeTotals;
use super::delivery_control::{BounceError, Bounced, DeliveryControl, GiveUpReason, RecipientSelection};
use super::owner_check::{NotOwned, OwnerCheck};
use super::recipient_status::RecipientStatus;
use super::scan::FoundMessage;
use mail::QueueId;
use std::collections::{HashMap, HashSet};

/// Messages that are bounced side by side, and recipients of them. A message with more is bounced in parts.
const MESSAGES_MAX: usize = 32;
pub(super) const RECIPIENTS_MAX: usize = 10_000;

/// Messages on their way to the dispatcher.
#[derive(Debug)]
pub(super) struct Bounces<'a> {
    delivery: &'a dyn DeliveryControl,
    why: &'a GiveUpReason,
    owner: OwnerCheck<'a>,
    pending: Vec<FoundMessage>,
    recipients: usize,
    totals: ChangeTotals,
}

/// Holds the results of a batch.
#[derive(Debug, Default)]
pub(super) struct BounceResult {
    /// Messages with those of their recipients that are done.
    pub(super) done: Vec<FoundMessage>,
    /// Messages that cannot be read, and why.
    pub(super) unreadable: Vec<(QueueId, String)>,
    /// Messages that another node may own, and why.
    pub(super) not_owned: Vec<NotOwned>,
    /// Why the rest of the queue is not gone through any more.
    pub(super) stops: Option<String>,
}

impl<'a> Bounces<'a> {
    pub(super) fn new(delivery: &'a dyn DeliveryControl, why: &'a GiveUpReason) -> Self {
        let (owner, pending) = (OwnerCheck::new(delivery), Vec::new());
        Self { delivery, why, owner, pending, recipients: 0, totals: ChangeTotals::default() }
    }

    /// Returns the counts so far. Recipients without a sender to tell count as unchanged; recipients in delivery count
    /// as active.
    pub(super) const fn totals(&self) -> ChangeTotals {
        self.totals
    }

    /// Adds a found message, without recipients in delivery. Returns the number of its other recipients.
    pub(super) fn add_message(&mut self, mut found: FoundMessage) -> usize {
        self.totals.active += remove_active(&mut found);
        let count = found.recipients.len();
        self.recipients += count;
        if count > 0 {
            self.pending.push(found);
        }
        count
    }

    /// Whether enough has come together.
    pub(super) fn is_full(&self) -> bool {
        self.pending.len() >= MESSAGES_MAX || self.recipients >= RECIPIENTS_MAX
    }

    /// Bounces the recipients added so far; the changes it returns are durable.
    pub(super) fn bounce_added(&mut self) -> BounceResult {
        self.recipients = 0;
        let mut batch = BounceResult::default();
        let mut small = Vec::new();
        for found in std::mem::take(&mut self.pending) {
            if let Some(doubt) = self.owner.doubt(found.id) {
                batch.not_owned.push((found.id, doubt));
                continue;
            }
            let parts = found.recipients.chunks(RECIPIENTS_MAX).map(|some| RecipientSelection {
                id: found.id,
                recipients: some.iter().map(|one| one.position).collect(),
            });
            let mut parts: Vec<RecipientSelection> = parts.collect();
            match parts.pop() {
                Some(only) if parts.is_empty() => small.push((found, only)),
                Some(last) => {
                    // One after the other, so that each report knows of those before.
                    parts.push(last);
                    let mut heard = Vec::new();
                    for part in parts {
                        if batch.stops.is_none() {
                            heard.extend(self.bounce_recipients(vec![part], &mut batch));
                        }
                    }
                    self.count_results(vec![found], heard, &mut batch);
                }
                None => {}
            }
        }
        if batch.stops.is_none() && !small.is_empty() {
            let (found, meant) = small.into_iter().unzip();
            let heard = self.bounce_recipients(meant, &mut batch);
            self.count_results(found, heard, &mut batch);
        }
        batch
    }

    fn bounce_recipients(&self, meant: Vec<RecipientSelection>, batch: &mut BounceResult) -> Vec<Bounced> {
        self.delivery.bounce(meant, self.why).unwrap_or_else(|| {
            batch.stops = Some("the server is going down, or does not deliver".to_owned());
            Vec::new()
        })
    }

    fn count_results(&mut self, found: Vec<FoundMessage>, heard: Vec<Bounced>, batch: &mut BounceResult) {
        let mut done: HashMap<QueueId, HashSet<u32>> = HashMap::new();
        for Bounced { id, done: these, active, held, trouble } in heard {
            self.totals.active += active;
            self.totals.unchanged += held;
            done.entry(id).or_default().extend(these);
            match trouble {
                None => {}
                Some(BounceError::Unreadable(why)) => batch.unreadable.push((id, why)),
                Some(BounceError::NotOwned(why)) => batch.not_owned.push((id, why)),
                Some(BounceError::NotStored(why)) => batch.stops = Some(format!("{id}: {why}")),
            }
        }
        for mut found in found {
            let these = done.remove(&found.id).unwrap_or_default();
            found.recipients.retain(|one| these.contains(&one.position));
            if !found.recipients.is_empty() {
                self.totals.messages += 1;
                self.totals.recipients += found.recipients.len() as u64;
                batch.done.push(found);
            }
        }
    }
}

/// Removes recipients in delivery, and returns their number.
pub(super) fn remove_active(found: &mut FoundMessage) -> u64 {
    let before = found.recipients.len();
    found.recipients.retain(|one| one.status != RecipientStatus::Active);
    (before - found.recipients.len()) as u64
}

//! Stragglers: who has been waiting for long, added up by destination or by recipient.
//!
//! By destination it costs a look at the index for each message that is old enough; by recipient the envelope of each is
//! read. Only sums are kept, of [`GROUPS_MAX`] groups; what comes after those is counted and not shown.

use super::command::By;
use super::nudge::Nudge;
use super::view::{View, text};
use super::walk::{Found, FoundRecipient};
use bytes::Bytes;
use mail::QueueId;
use serde_json::{Map, Value, json};
use std::collections::HashMap;

/// Groups in memory.
const GROUPS_MAX: usize = 100_000;

/// What is known of one destination or recipient.
struct Group {
    recipients: u64,
    messages: u64,
    /// The message that was counted last: recipients of a message come together.
    last: Option<QueueId>,
    oldest_us: u64,
    /// The recipient of the oldest message that has a reason, and the reason.
    reason: Option<String>,
    destination: Bytes,
}

/// Sums in the making.
pub(super) struct Stragglers<'a> {
    by: By,
    nudge: &'a dyn Nudge,
    groups: HashMap<Box<str>, Group>,
    /// Recipients that found no room.
    pub(super) unseen: u64,
}

impl<'a> Stragglers<'a> {
    pub(super) fn new(by: By, nudge: &'a dyn Nudge) -> Self {
        Self { by, nudge, groups: HashMap::new(), unseen: 0 }
    }

    /// Counts the recipients of a message; messages come with the oldest first.
    pub(super) fn add(&mut self, found: &Found) {
        for one in &found.recipients {
            let name = self.name(one);
            let is_new = !self.groups.contains_key(&*name);
            if is_new && self.groups.len() >= GROUPS_MAX {
                self.unseen += 1;
                continue;
            }
            let group = self.groups.entry(name).or_insert_with(|| Group {
                recipients: 0,
                messages: 0,
                last: None,
                oldest_us: found.id.unix_us(),
                reason: None,
                destination: one.destination.clone(),
            });
            group.recipients += 1;
            if group.last.replace(found.id) != Some(found.id) {
                group.messages += 1;
            }
            group.oldest_us = group.oldest_us.min(found.id.unix_us());
            if let Some(reason) = self.nudge.reason(found.id, one.position) {
                group.reason = Some(reason);
            }
        }
    }

    fn name(&self, one: &FoundRecipient) -> Box<str> {
        match (self.by, &one.recipient) {
            (By::Destination, _) => text(&one.destination).into(),
            (By::Recipient, Some(recipient)) => recipient.address.to_string().into(),
            (By::Recipient, None) => "(its envelope cannot be read)".into(),
        }
    }

    /// The lines, those that most wait for first, then by name; and how many the limit left out.
    pub(super) fn lines(self, view: &View<'_>, limit: usize) -> (Vec<Map<String, Value>>, usize) {
        let mut all: Vec<(Box<str>, Group)> = self.groups.into_iter().collect();
        all.sort_unstable_by(|(one, a), (other, b)| b.recipients.cmp(&a.recipients).then_with(|| one.cmp(other)));
        let more = all.len().saturating_sub(limit);
        all.truncate(limit);
        let lines = all.into_iter().map(|(name, group)| line(self.by, &name, group, view));
        (lines.collect(), more)
    }
}

fn line(by: By, name: &str, group: Group, view: &View<'_>) -> Map<String, Value> {
    // What is known of the destination now says more than what was said to one message of it.
    let mut line = view.destination(&group.destination).unwrap_or_default();
    if by == By::Recipient {
        line.insert("to".to_owned(), json!(name));
    }
    line.insert("destination".to_owned(), json!(text(&group.destination)));
    line.insert("recipients".to_owned(), json!(group.recipients));
    line.insert("messages".to_owned(), json!(group.messages));
    line.insert("oldest".to_owned(), json!(view.now_us.saturating_sub(group.oldest_us) / 1_000_000));
    if let Some(reason) = group.reason {
        line.insert("reason".to_owned(), json!(reason));
    }
    line
}

//! Stragglers: recipients that have been waiting for long, added up by destination, by recipient or by the hosts that
//! do not take it.
//!
//! By destination or host it costs a look at the index for each message that is old enough, and by host a question to
//! the dispatcher for each destination; by recipient the envelope of each message is read. Only sums are kept, of
//! [`GROUPS_MAX`] groups; further groups are counted and not shown.

use super::command::GroupBy;
use super::delivery_control::DeliveryControl;
use super::recipient_status::RecipientStatus;
use super::scan::{FoundMessage, FoundRecipient};
use super::view::{QueueView, destination_text};
use crate::answers::StragglerLine;
use bytes::Bytes;
use mail::QueueId;
use std::collections::HashMap;

/// Groups in memory, and destinations whose hosts are known.
const GROUPS_MAX: usize = 100_000;

/// Destinations that the line of a host names; it says how many there are.
const NAMED_MAX: usize = 5;

/// The counts of one destination, recipient or host.
struct Group {
    recipients: u64,
    messages: u64,
    /// The message that was counted last: recipients of a message come together.
    last: Option<QueueId>,
    oldest_us: u64,
    /// The reason of the newest message that has one: the latest reason.
    reason: Option<String>,
    destination: Bytes,
    /// For a host: its destinations, and those of them that have waited longest.
    destinations: u64,
    named: Vec<Bytes>,
}

/// Sums in the making.
pub(super) struct Stragglers<'a> {
    by: GroupBy,
    delivery: &'a dyn DeliveryControl,
    groups: HashMap<Box<str>, Group>,
    /// The hosts of destinations, so that each is asked for once.
    hosts: HashMap<Bytes, Box<str>>,
    /// Recipients that found no room.
    pub(super) unseen: u64,
}

impl<'a> Stragglers<'a> {
    pub(super) fn new(by: GroupBy, delivery: &'a dyn DeliveryControl) -> Self {
        Self { by, delivery, groups: HashMap::new(), hosts: HashMap::new(), unseen: 0 }
    }

    /// Counts the recipients of a message that wait for something; messages come with the oldest first.
    pub(super) fn count_message(&mut self, found: &FoundMessage) {
        for one in found.recipients.iter().filter(|one| one.status != RecipientStatus::Delivered) {
            let is_new = self.by == GroupBy::Host && !self.hosts.contains_key(&one.destination);
            let name = self.name(one).filter(|name| self.groups.len() < GROUPS_MAX || self.groups.contains_key(name));
            let Some(name) = name else {
                self.unseen += 1;
                continue;
            };
            let group = self.groups.entry(name).or_insert_with(|| Group {
                recipients: 0,
                messages: 0,
                last: None,
                oldest_us: found.id.unix_us(),
                reason: None,
                destination: one.destination.clone(),
                destinations: 0,
                named: Vec::new(),
            });
            group.recipients += 1;
            if group.last.replace(found.id) != Some(found.id) {
                group.messages += 1;
            }
            if is_new {
                group.destinations += 1;
                if group.named.len() < NAMED_MAX {
                    group.named.push(one.destination.clone());
                }
            }
            group.oldest_us = group.oldest_us.min(found.id.unix_us());
            if let Some(reason) = self.delivery.reason(found.id, one.position) {
                group.reason = Some(reason);
            }
        }
    }

    /// The group of a recipient; `None` if there is no room to know it.
    fn name(&mut self, one: &FoundRecipient) -> Option<Box<str>> {
        match (self.by, &one.recipient) {
            (GroupBy::Destination, _) => Some(destination_text(&one.destination).into()),
            (GroupBy::Recipient, Some(recipient)) => Some(recipient.address.to_string().into()),
            (GroupBy::Recipient, None) => Some("(its envelope cannot be read)".into()),
            (GroupBy::Host, _) => self.host(&one.destination),
        }
    }

    /// The hosts that the mail of a destination goes to, as the dispatcher calls them; while they are not known, the
    /// destination.
    fn host(&mut self, destination: &Bytes) -> Option<Box<str>> {
        if let Some(known) = self.hosts.get(destination) {
            return Some(known.clone());
        }
        if self.hosts.len() >= GROUPS_MAX {
            return None;
        }
        let site = self.delivery.destination(destination).and_then(|state| state.site);
        let name: Box<str> = site.unwrap_or_else(|| destination_text(destination)).into();
        self.hosts.insert(destination.clone(), name.clone());
        Some(name)
    }

    /// Returns the lines, the longest queue first, then by name; and how many the limit left out.
    pub(super) fn into_lines(self, view: &QueueView<'_>, limit: usize) -> (Vec<StragglerLine>, usize) {
        let mut all: Vec<(Box<str>, Group)> = self.groups.into_iter().collect();
        all.sort_unstable_by(|(one, a), (other, b)| b.recipients.cmp(&a.recipients).then_with(|| one.cmp(other)));
        let more = all.len().saturating_sub(limit);
        all.truncate(limit);
        let lines = all.into_iter().map(|(name, group)| line(self.by, &name, group, view));
        (lines.collect(), more)
    }
}

fn line(by: GroupBy, name: &str, group: Group, view: &QueueView<'_>) -> StragglerLine {
    let is_by_host = by == GroupBy::Host;
    StragglerLine {
        to: (by == GroupBy::Recipient).then(|| name.to_owned()),
        host: is_by_host.then(|| name.to_owned()),
        destination: (!is_by_host).then(|| destination_text(&group.destination)),
        destinations: is_by_host.then_some(group.destinations),
        named: is_by_host.then(|| group.named.iter().map(|name| destination_text(name)).collect()),
        recipients: group.recipients,
        messages: group.messages,
        oldest: view.now_us.saturating_sub(group.oldest_us) / 1_000_000,
        reason: group.reason,
        // The present state of the destination says more than the last reply to one message.
        status: view.destination_status(&group.destination).unwrap_or_default(),
    }
}

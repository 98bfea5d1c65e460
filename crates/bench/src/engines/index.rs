//! Which recipients of which messages are not done, in memory: what an MTA needs beside any engine.
//!
//! Deliberately plain; its cost is part of what is measured, as the index of the spool is.

use bytes::Bytes;
use mail::QueueId;
use spool::{Change, Entry, State, Statistics, Status};
use std::collections::HashMap;

use super::record::Record;

#[derive(Debug, Default)]
pub(super) struct Index {
    messages: HashMap<u64, Message>,
    numbers: HashMap<Bytes, u32>,
    destinations: Vec<(Bytes, u64)>,
    recipients: u64,
}

#[derive(Debug)]
struct Message {
    left: u32,
    pieces: u32,
    recipients: Box<[(State, u32)]>,
}

/// What a change means for the stored form.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Effect {
    /// The recipient was done or unknown.
    Ignored,
    /// The record is to be written again.
    Changed,
    /// That was the last recipient of a message with so many pieces of body.
    Finished(u32),
}

impl Index {
    pub(super) fn contains(&self, id: u64) -> bool {
        self.messages.contains_key(&id)
    }

    pub(super) fn insert<'a>(&mut self, id: u64, pieces: u32, recipients: impl Iterator<Item = (State, &'a [u8])>) {
        let recipients: Box<[(State, u32)]> =
            recipients.map(|(state, destination)| (state, self.number(destination))).collect();
        let mut left = 0;
        for (_, number) in recipients.iter().filter(|(state, _)| state.status != Status::Done) {
            left += 1;
            self.count(*number, 1);
        }
        self.recipients += u64::from(left);
        self.messages.insert(id, Message { left, pieces, recipients });
    }

    pub(super) fn insert_record(&mut self, id: u64, record: &Record) {
        self.insert(id, record.pieces(), record.recipients.iter().map(|r| (r.state, r.destination.as_ref())));
    }

    pub(super) fn apply(&mut self, change: &Change) -> Effect {
        let number = change.destination.as_ref().map(|name| self.number(name));
        let Some(message) = self.messages.get_mut(&change.id.to_u64()) else { return Effect::Ignored };
        let Some(recipient) = message.recipients.get_mut(change.recipient as usize) else { return Effect::Ignored };
        if recipient.0.status == Status::Done {
            return Effect::Ignored;
        }
        let before = recipient.1;
        recipient.0 = change.state;
        recipient.1 = number.unwrap_or(before);
        let after = recipient.1;
        let done = change.state.status == Status::Done;
        let mut effect = Effect::Changed;
        if done {
            self.recipients -= 1;
            message.left -= 1;
            if message.left == 0 {
                effect = Effect::Finished(message.pieces);
                self.messages.remove(&change.id.to_u64());
            }
        }
        self.count(before, -1);
        if !done {
            self.count(after, 1);
        }
        effect
    }

    /// Puts the present states into a record read from the engine.
    pub(super) fn refresh(&self, id: u64, record: &mut Record) {
        let Some(message) = self.messages.get(&id) else { return };
        for (stored, (state, number)) in record.recipients.iter_mut().zip(&message.recipients) {
            stored.state = *state;
            if let Some((name, _)) = self.destinations.get(*number as usize) {
                stored.destination = name.clone();
            }
        }
    }

    pub(super) fn destinations(&self) -> Vec<(Bytes, u64)> {
        self.destinations.iter().filter(|(_, count)| *count > 0).cloned().collect()
    }

    pub(super) fn messages(&self) -> Vec<QueueId> {
        self.messages.keys().filter_map(|id| QueueId::from_u64(*id)).collect()
    }

    pub(super) fn by_destination(&self, destination: &[u8], after: Option<Entry>, limit: usize) -> Vec<Entry> {
        let Some(wanted) = self.numbers.get(destination) else { return Vec::new() };
        let mut found: Vec<Entry> = Vec::new();
        for (id, message) in &self.messages {
            let Some(id) = QueueId::from_u64(*id) else { continue };
            for (position, (state, number)) in (0_u32..).zip(&message.recipients) {
                if number == wanted && state.status != Status::Done {
                    found.push(Entry { id, recipient: position, state: *state });
                }
            }
        }
        found.sort_by_key(|entry| (entry.id, entry.recipient));
        let start = after.map_or(0, |a| found.partition_point(|e| (e.id, e.recipient) <= (a.id, a.recipient)));
        found.into_iter().skip(start).take(limit).collect()
    }

    pub(super) fn statistics(&self) -> Statistics {
        Statistics {
            messages: self.messages.len() as u64,
            recipients: self.recipients,
            destinations: self.destinations.iter().filter(|(_, count)| *count > 0).count() as u64,
            ..Statistics::default()
        }
    }

    fn number(&mut self, name: &[u8]) -> u32 {
        if let Some(number) = self.numbers.get(name) {
            return *number;
        }
        let number = u32::try_from(self.destinations.len()).unwrap_or(u32::MAX);
        let name = Bytes::copy_from_slice(name);
        self.destinations.push((name.clone(), 0));
        self.numbers.insert(name, number);
        number
    }

    fn count(&mut self, number: u32, by: i64) {
        if let Some((_, count)) = self.destinations.get_mut(number as usize) {
            *count = count.saturating_add_signed(by);
        }
    }
}

//! The local log of a node in memory: what it holds, and what a crash leaves of it.

use bytes::Bytes;
use cluster::{Content, LocalMessage, NewMessage};
use mail::QueueId;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum State {
    Live,
    Finished,
    /// Another node has it.
    Moved,
}

#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) hops: u16,
    pub(super) recipients: u32,
    pub(super) finished: BTreeSet<u32>,
    /// Finished recipients that a crash forgets.
    unsynced: BTreeSet<u32>,
    pub(super) state: State,
    is_durable: bool,
    is_move_durable: bool,
    before: Option<Box<Self>>,
    pub(super) may_be_duplicate: bool,
    envelope: Bytes,
    body: Bytes,
}

#[derive(Debug, Default)]
pub(super) struct LocalLog {
    pub(super) entries: BTreeMap<QueueId, Entry>,
    /// Messages that the disk does not give.
    pub(super) unreadable: BTreeSet<QueueId>,
}

impl LocalLog {
    pub(super) fn add(&mut self, new: &NewMessage, hops: u16, finished: BTreeSet<u32>, may_be_duplicate: bool) {
        let Content::Whole(body) = &new.content else { panic!("the log gets whole messages") };
        self.unreadable.remove(&new.id);
        let before = self.entries.remove(&new.id).map(Box::new);
        let entry = Entry {
            hops,
            recipients: new.recipients,
            finished,
            unsynced: BTreeSet::new(),
            state: State::Live,
            is_durable: false,
            is_move_durable: false,
            before,
            may_be_duplicate,
            envelope: new.envelope.clone(),
            body: body.clone(),
        };
        self.entries.insert(new.id, entry);
    }

    /// True if an adopted message with these hops is new here.
    pub(super) fn wants(&self, id: QueueId, hops: u16) -> bool {
        self.entries.get(&id).is_none_or(|entry| entry.hops < hops)
    }

    pub(super) fn synced(&mut self, id: QueueId) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.is_durable = true;
            entry.before = None;
        }
    }

    pub(super) fn finish(&mut self, id: QueueId, recipient: Option<u32>) {
        let Some(entry) = self.entries.get_mut(&id) else { return };
        for recipient in recipient.map_or(0..entry.recipients, |one| one..one + 1) {
            if entry.finished.insert(recipient) {
                entry.unsynced.insert(recipient);
            }
        }
        if entry.finished.len() as u32 >= entry.recipients && entry.state == State::Live {
            entry.state = State::Finished;
        }
    }

    pub(super) fn results_synced(&mut self) {
        self.entries.values_mut().for_each(|entry| entry.unsynced.clear());
    }

    pub(super) fn forget(&mut self, id: QueueId, hops: u16) {
        if let Some(entry) = self.entries.get_mut(&id)
            && entry.hops <= hops
            && entry.state == State::Live
        {
            entry.state = State::Moved;
        }
    }

    pub(super) fn moves_synced(&mut self) {
        for entry in self.entries.values_mut().filter(|entry| entry.state == State::Moved) {
            entry.is_move_durable = true;
        }
    }

    /// Leaves what was durable; returns the recipients whose results were lost.
    pub(super) fn crash(&mut self) -> Vec<(QueueId, u32)> {
        let mut lost = Vec::new();
        let entries = std::mem::take(&mut self.entries);
        for (id, mut entry) in entries {
            while !entry.is_durable {
                match entry.before {
                    Some(before) => entry = *before,
                    None => break,
                }
            }
            if !entry.is_durable {
                continue;
            }
            entry.before = None;
            for recipient in std::mem::take(&mut entry.unsynced) {
                lost.push((id, recipient));
                entry.finished.remove(&recipient);
            }
            let is_over = entry.finished.len() as u32 >= entry.recipients;
            if entry.state == State::Finished && !is_over || entry.state == State::Moved && !entry.is_move_durable {
                entry.state = State::Live;
            }
            self.entries.insert(id, entry);
        }
        lost
    }

    /// Notes that a recipient may have the message already.
    pub(super) fn flag(&mut self, id: QueueId) {
        if let Some(entry) = self.entries.get_mut(&id) {
            entry.may_be_duplicate = true;
        }
    }

    pub(super) fn live_count(&self) -> usize {
        self.entries.values().filter(|entry| entry.state == State::Live).count()
    }

    pub(super) fn live(&self) -> Vec<LocalMessage> {
        let live = self.entries.iter().filter(|(_, entry)| entry.state == State::Live);
        live.map(|(id, entry)| LocalMessage {
            id: *id,
            hops: entry.hops,
            recipients: entry.recipients,
            finished: entry.finished.iter().copied().collect(),
        })
        .collect()
    }

    pub(super) fn read(&self, id: QueueId) -> Option<NewMessage> {
        let is_given = |entry: &&Entry| entry.state == State::Live && !self.unreadable.contains(&id);
        let entry = self.entries.get(&id).filter(is_given)?;
        Some(NewMessage {
            id,
            queued_at_us: id.unix_us(),
            expires_at_us: 0,
            recipients: entry.recipients,
            envelope: entry.envelope.clone(),
            content: Content::Whole(entry.body.clone()),
        })
    }
}

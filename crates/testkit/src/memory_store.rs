//! A store of messages in memory, behind the spool's own trait: the reference that the spool is compared with, and a
//! store with content that a test chooses.
//!
//! One map in the order of queue ids; every question is answered by a walk over all of it, so that nothing can disagree
//! with it. Nothing is durable, nothing fails for want of room.

use bytes::Bytes;
use mail::QueueId;
use spool::{
    Change, Chunk, Commit, Entry, Error, NewBody, NewMessage, Statistics, Status, Store, StoredEnvelope,
    StoredRecipient,
};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Mutex, MutexGuard};

/// Keeps messages until their last recipient is done.
#[derive(Debug, Default)]
pub struct MemoryStore {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    messages: BTreeMap<QueueId, Message>,
    /// Pieces of bodies whose transaction has not come.
    chunks: BTreeMap<QueueId, Vec<u8>>,
}

#[derive(Debug)]
struct Message {
    head: Bytes,
    /// Header section and body.
    body: Bytes,
    body_offset: u32,
    /// All of them, also those that are done.
    recipients: Vec<StoredRecipient>,
}

impl Message {
    fn left(&self) -> impl Iterator<Item = &StoredRecipient> {
        self.recipients.iter().filter(|recipient| recipient.state.status != Status::Done)
    }
}

impl Inner {
    fn message(&self, id: QueueId) -> Result<&Message, Error> {
        self.messages.get(&id).ok_or(Error::Unknown(id))
    }

    fn apply(&mut self, change: &Change) {
        let Some(message) = self.messages.get_mut(&change.id) else { return };
        let Some(recipient) = message.recipients.get_mut(change.recipient as usize) else { return };
        if recipient.state.status == Status::Done {
            return;
        }
        recipient.state = change.state;
        if let Some(destination) = &change.destination {
            recipient.destination = Bytes::copy_from_slice(destination);
        }
        if message.left().next().is_none() {
            self.messages.remove(&change.id);
        }
    }
}

impl MemoryStore {
    /// Forgets the pieces of bodies whose transaction has not come, as a store does that is opened again.
    pub fn reopen(&self) {
        self.inner().chunks.clear();
    }

    fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap()
    }
}

impl Store for MemoryStore {
    fn append(&self, message: NewMessage<'_>) -> Result<Commit, Error> {
        let mut inner = self.inner();
        if inner.messages.contains_key(&message.id) {
            return Err(Error::Exists(message.id));
        }
        let (body, body_offset) = match message.body {
            NewBody::Whole { content, body_offset } => (content, body_offset),
            NewBody::Chunks { header, .. } => {
                let chunks = inner.chunks.remove(&message.id).unwrap_or_default();
                ([&header[..], &chunks].concat().into(), u32::try_from(header.len()).unwrap())
            }
        };
        let recipients = (0..).zip(message.recipients).map(|(position, recipient)| StoredRecipient {
            position,
            data: Bytes::copy_from_slice(recipient.data),
            destination: Bytes::copy_from_slice(recipient.destination),
            state: message.state,
        });
        let head = Bytes::copy_from_slice(message.head);
        let stored = Message { head, body, body_offset, recipients: recipients.collect() };
        inner.messages.insert(message.id, stored);
        Ok(Commit::settled(&Ok(())))
    }

    fn append_chunk(&self, id: QueueId, _number: u32, chunk: Chunk) -> Result<Commit, Error> {
        self.inner().chunks.entry(id).or_default().extend_from_slice(chunk.data());
        Ok(Commit::settled(&Ok(())))
    }

    fn abort(&self, id: QueueId) {
        self.inner().chunks.remove(&id);
    }

    fn record(&self, changes: &[Change]) -> Result<Commit, Error> {
        let mut inner = self.inner();
        for change in changes {
            inner.apply(change);
        }
        Ok(Commit::settled(&Ok(())))
    }

    fn envelope(&self, id: QueueId) -> Result<StoredEnvelope, Error> {
        let inner = self.inner();
        let message = inner.message(id)?;
        Ok(StoredEnvelope {
            head: message.head.clone(),
            body_bytes: message.body.len() as u64,
            body_offset: message.body_offset,
            recipients: message.left().cloned().collect(),
        })
    }

    fn body(&self, id: QueueId) -> Result<Vec<Bytes>, Error> {
        Ok(vec![self.inner().message(id)?.body.clone()])
    }

    fn body_range(&self, id: QueueId, range: Range<u64>) -> Result<Bytes, Error> {
        let inner = self.inner();
        let body = &inner.message(id)?.body;
        let end = usize::try_from(range.end).unwrap_or(usize::MAX).min(body.len());
        let start = usize::try_from(range.start).unwrap_or(usize::MAX).min(end);
        Ok(body.slice(start..end))
    }

    fn header(&self, id: QueueId) -> Result<Bytes, Error> {
        let inner = self.inner();
        let message = inner.message(id)?;
        Ok(message.body.slice(..message.body_offset as usize))
    }

    fn destinations(&self) -> Vec<(Bytes, u64)> {
        let mut counts: BTreeMap<Bytes, u64> = BTreeMap::new();
        for recipient in self.inner().messages.values().flat_map(Message::left) {
            *counts.entry(recipient.destination.clone()).or_default() += 1;
        }
        counts.into_iter().collect()
    }

    /// In the order of queue ids and positions, which is not that of the spool.
    fn by_destination(&self, destination: &[u8], after: Option<Entry>, limit: usize) -> Vec<Entry> {
        let inner = self.inner();
        let all = inner.messages.iter().flat_map(|(id, message)| message.left().map(|recipient| (*id, recipient)));
        all.filter(|(_, recipient)| recipient.destination == destination)
            .map(|(id, recipient)| Entry { id, recipient: recipient.position, state: recipient.state })
            .filter(|entry| after.is_none_or(|last| (entry.id, entry.recipient) > (last.id, last.recipient)))
            .take(limit)
            .collect()
    }

    fn messages(&self) -> Vec<QueueId> {
        self.inner().messages.keys().copied().collect()
    }

    fn statistics(&self) -> Statistics {
        let destinations = self.destinations();
        Statistics {
            messages: self.inner().messages.len() as u64,
            recipients: destinations.iter().map(|(_, count)| count).sum(),
            destinations: destinations.len() as u64,
            ..Statistics::default()
        }
    }
}

//! Messages that were read from the disk and are wanted again: of a list, each destination takes its own recipients.
//!
//! Only parts that never change while a message is in the spool are kept: an envelope section as some frame has it,
//! where the recipients stand in it, and a body that is not long. The states and destinations of recipients are read
//! from the index each time, so no entry is ever out of date.
//!
//! Bounded by bytes: the message that was used longest ago goes first, a finished message at once. The message that was
//! read last stays, however large it is; that is a frame at the most. With a bound of 0 nothing is kept.

use crate::sections::listed;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::collections::hash_map::{Entry, HashMap};
use std::sync::Arc;

/// The estimated memory of an entry beside its bytes.
const OVERHEAD: usize = 256;
/// A longer body is not kept: a delivery holds no more than pieces of it.
pub(crate) const BODY_BYTES_MAX: u64 = 256 << 10;

/// A message that is here.
#[derive(Clone, Debug)]
pub(crate) struct SharedMessage {
    /// The envelope section of one of its frames.
    pub(crate) envelope: Bytes,
    /// Position of each recipient that is listed there, and where it begins; by position.
    places: Arc<[(u32, u32)]>,
    /// Octets of the body, wherever that is.
    pub(crate) body_bytes: u64,
    /// The body, if it is not long and a reader wanted it.
    pub(crate) body: Option<Bytes>,
}

impl SharedMessage {
    /// `None` where the section makes no sense.
    pub(crate) fn new(envelope: Bytes, body_bytes: u64, body: Option<Bytes>) -> Option<Self> {
        let places = listed(&envelope)?.into();
        Some(Self { envelope, places, body_bytes, body })
    }

    pub(crate) fn with_body(self, body: Bytes) -> Self {
        Self { body: Some(body), ..self }
    }

    /// Where the recipient begins, if the section lists it.
    pub(crate) fn place(&self, position: u32) -> Option<u32> {
        let at = self.places.binary_search_by_key(&position, |(position, _)| *position).ok()?;
        self.places.get(at).map(|(_, place)| *place)
    }

    fn bytes(&self) -> usize {
        let body = self.body.as_ref().map_or(0, Bytes::len);
        self.envelope.len() + size_of_val(&*self.places) + body
    }
}

/// The right of a reader to store the message it reads, unless the message is removed meanwhile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket(u64);

#[derive(Debug)]
struct Slot {
    /// When it was used last, as a number that grows.
    used: u64,
    /// The ticket of the reader that began last.
    ticket: Option<Ticket>,
    kept: Option<SharedMessage>,
    bytes: usize,
}

/// The shared messages of one shard.
#[derive(Debug)]
pub(crate) struct SharedMessages {
    slots: HashMap<u64, Slot>,
    /// The messages by their last use.
    by_use: BTreeMap<u64, u64>,
    uses: u64,
    bytes: usize,
    bytes_max: usize,
}

impl SharedMessages {
    pub(crate) fn new(bytes_max: usize) -> Self {
        Self { slots: HashMap::new(), by_use: BTreeMap::new(), uses: 0, bytes: 0, bytes_max }
    }

    /// Memory taken, about.
    pub(crate) fn bytes(&self) -> usize {
        self.bytes
    }

    /// The message, if it is here.
    pub(crate) fn get(&mut self, id: u64) -> Option<SharedMessage> {
        let kept = self.slots.get(&id)?.kept.clone()?;
        self.touch(id);
        Some(kept)
    }

    /// Begins a read of a message.
    pub(crate) fn begin(&mut self, id: u64) -> Ticket {
        if let Entry::Vacant(free) = self.slots.entry(id) {
            free.insert(Slot { used: 0, ticket: None, kept: None, bytes: OVERHEAD });
            self.bytes += OVERHEAD;
        }
        let ticket = Ticket(self.touch(id));
        if let Some(slot) = self.slots.get_mut(&id) {
            slot.ticket = Some(ticket);
        }
        ticket
    }

    /// Ends a read, and keeps the message unless it was removed since then; `None`: the read failed, or no other reader
    /// wants it.
    pub(crate) fn end(&mut self, id: u64, ticket: Ticket, kept: Option<SharedMessage>) {
        let Some(slot) = self.slots.get_mut(&id).filter(|slot| slot.ticket == Some(ticket)) else { return };
        slot.ticket = None;
        if let Some(kept) = kept.filter(|_| self.bytes_max > 0) {
            let bytes = OVERHEAD + kept.bytes();
            self.bytes = self.bytes - slot.bytes + bytes;
            (slot.bytes, slot.kept) = (bytes, Some(kept));
            self.touch(id);
            self.shrink();
        } else if slot.kept.is_none() {
            self.remove(id);
        }
    }

    pub(crate) fn remove(&mut self, id: u64) {
        if let Some(gone) = self.slots.remove(&id) {
            self.by_use.remove(&gone.used);
            self.bytes -= gone.bytes;
        }
    }

    fn touch(&mut self, id: u64) -> u64 {
        self.uses += 1;
        if let Some(slot) = self.slots.get_mut(&id) {
            self.by_use.remove(&slot.used);
            slot.used = self.uses;
            self.by_use.insert(slot.used, id);
        }
        self.uses
    }

    fn shrink(&mut self) {
        while self.bytes > self.bytes_max && self.slots.len() > 1 {
            match self.by_use.first_key_value() {
                Some((_, &id)) => self.remove(id),
                None => break,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sections::{EnvelopeWriter, Sequenced, recipient_at};
    use crate::store::NewRecipient;

    fn kept(recipients: u32, body: usize) -> SharedMessage {
        let mut writer = EnvelopeWriter::new(0, b"head", recipients).unwrap();
        for _ in 0..recipients {
            writer.recipient(Sequenced::default(), NewRecipient { data: b"data", destination: b"d" }, None).unwrap();
        }
        SharedMessage::new(writer.into_bytes().into(), 7, Some(vec![0; body].into())).unwrap()
    }

    #[test]
    fn recipients_are_found_behind_finished_ones() {
        let mut writer = EnvelopeWriter::new(0, b"head", 9).unwrap();
        let mut add = |data: &[u8], finished| {
            writer.finished(finished);
            writer.recipient(Sequenced::default(), NewRecipient { data, destination: b"d" }, None).unwrap();
        };
        add(b"three", 3);
        add(b"four", 0);
        add(b"seven", 2);
        writer.finished(1);
        let kept = SharedMessage::new(writer.into_bytes().into(), 0, None).unwrap();
        let data = |position| {
            let recipient = recipient_at(&kept.envelope, kept.place(position)?)?;
            Some(String::from_utf8(recipient.data.to_vec()).unwrap())
        };
        let found: Vec<_> = (0..10).map(|position| data(position).unwrap_or_default()).collect();
        assert_eq!(found, ["", "", "", "three", "four", "", "", "seven", "", ""]);
        assert!(SharedMessage::new(kept.envelope.slice(1..), 0, None).is_none());
    }

    #[test]
    fn bounded_by_bytes_and_what_is_used_stays() {
        let mut shared = SharedMessages::new(10_000);
        let keep = |shared: &mut SharedMessages, id, bytes| {
            let ticket = shared.begin(id);
            shared.end(id, ticket, Some(kept(2, bytes)));
        };
        keep(&mut shared, 1, 2_000);
        for id in 2..100 {
            keep(&mut shared, id, 2_000);
            assert!(shared.get(1).is_some(), "it was used each time");
            assert!(shared.bytes() <= 10_000);
        }
        assert!(shared.get(2).is_none() && shared.get(99).is_some());
        // One that is larger than the limit stays while it is the last, and no longer.
        keep(&mut shared, 100, 20_000);
        assert!(shared.get(100).is_some() && shared.get(99).is_none());
        keep(&mut shared, 101, 2_000);
        assert!(shared.get(100).is_none() && shared.bytes() <= 10_000);
        shared.remove(101);
        assert_eq!((shared.bytes(), shared.by_use.len()), (0, 0));
    }

    #[test]
    fn what_was_removed_while_it_was_read_does_not_come_back() {
        let mut shared = SharedMessages::new(10_000);
        let ticket = shared.begin(1);
        shared.remove(1);
        shared.end(1, ticket, Some(kept(2, 10)));
        assert!(shared.get(1).is_none());
        // Nor does it replace a message that was read after it.
        let (first, ticket) = (ticket, shared.begin(1));
        shared.end(1, first, Some(kept(2, 10)));
        assert!(shared.get(1).is_none());
        shared.end(1, ticket, Some(kept(3, 10)));
        assert_eq!(shared.get(1).unwrap().places.len(), 3);
        // A failed read leaves a present entry, and adds none.
        let again = shared.begin(1);
        shared.end(1, again, None);
        assert!(shared.get(1).is_some());
        let other = shared.begin(2);
        shared.end(2, other, None);
        assert_eq!(shared.slots.len(), 1);
        shared.remove(1);
        assert_eq!(shared.bytes(), 0);
    }
}

//! The queue in memory: which messages are unfinished, where they lie, and their recipients by destination.
//!
//! 28 bytes a message, 24 a recipient, five to ten for the look-up by queue id; a destination's name is kept once.
//! Addresses and bodies stay in the log. Every operation costs O(1), or O(recipients) of the one message it is about.
//!
//! Invariants: a recipient that is not done is in the list of exactly one destination; a message whose recipients are
//! all done is not here.

use crate::chunk_list::ChunkList;
use crate::hold::Hold;
use crate::sections::Sequenced;
use crate::store::{Entry, State, Status};
use bytes::Bytes;
use hashbrown::HashTable;
use mail::QueueId;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::hash::{BuildHasher, RandomState};

/// No slot: the end of a list.
const NIL: u32 = u32::MAX;

/// Where a frame lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    /// Segment, by its slot in the table of segments.
    pub(crate) segment: u16,
    /// Offset of the frame in the segment, and its size.
    pub(crate) offset: u32,
    pub(crate) size: u32,
    pub(crate) ordinal: u32,
}

#[derive(Clone, Copy, Debug)]
struct Message {
    /// The queue id in two halves, the high one first: eight bytes that need no alignment.
    id: [u32; 2],
    offset: u32,
    size: u32,
    ordinal: u32,
    /// First recipient; the block ends with the one flagged as last. For a free slot: the next free one.
    first: u32,
    segment: u16,
    /// Of [`USED`], [`CHUNKED`] and [`SEVERAL`].
    flags: u16,
}

/// The slot holds a message.
const USED: u16 = 1;
/// Its body is in chunks, their list is in the map of those.
const CHUNKED: u16 = 2;
/// It has several recipients; how many of them are not done is in the map of those.
const SEVERAL: u16 = 4;

#[expect(clippy::cast_possible_truncation, reason = "the two halves of a number")]
fn halves(id: u64) -> [u32; 2] {
    [(id >> 32) as u32, id as u32]
}

impl Message {
    fn id(&self) -> u64 {
        u64::from(self.id[0]) << 32 | u64::from(self.id[1])
    }

    fn has(&self, flag: u16) -> bool {
        self.flags & flag != 0
    }
}

#[derive(Clone, Copy, Debug)]
struct Recipient {
    destination: u32,
    due: u32,
    next: u32,
    previous: u32,
    message: u32,
    sequence: u16,
    attempts: u8,
    /// Bits 0–1 the status, bit 2 the last of its message.
    flags: u8,
}

const LAST: u8 = 4;
const STATUS: u8 = 3;

impl Recipient {
    fn status(&self) -> Status {
        crate::sections::status_from_byte(self.flags & STATUS).unwrap_or(Status::Done)
    }

    fn sequenced(&self) -> Sequenced {
        Sequenced {
            state: State { status: self.status(), attempts: self.attempts, due: self.due },
            sequence: self.sequence,
        }
    }

    fn set(&mut self, to: Sequenced) {
        self.flags = self.flags & !STATUS | crate::sections::status_byte(to.state.status);
        self.attempts = to.state.attempts;
        self.due = to.state.due;
        self.sequence = to.sequence;
    }
}

const _: () = assert!(size_of::<Message>() == 28 && size_of::<Recipient>() == 24);

#[derive(Debug)]
struct Destination {
    name: Bytes,
    head: u32,
    tail: u32,
    count: u32,
}

/// A recipient as a frame has it; of one that is done there is neither destination nor reason.
#[derive(Clone, Debug)]
pub(crate) struct FoundRecipient<'a> {
    pub(crate) sequenced: Sequenced,
    pub(crate) destination: Option<&'a [u8]>,
    /// Why it is held.
    pub(crate) hold: Option<Hold>,
}

/// The effect of a state change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Applied {
    /// Nothing: unknown message or recipient, or one that is done.
    Nothing,
    /// The recipient is in this state now.
    Changed(Sequenced),
    /// That was the last recipient; the message has left the index.
    Finished(Gone),
}

/// A message that has left the index.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Gone {
    pub(crate) place: Place,
    /// Chunks of its body.
    pub(crate) chunks: Option<ChunkList>,
}

/// The queue in memory.
#[derive(Debug, Default)]
pub(crate) struct Index {
    messages: Vec<Message>,
    free_message: Option<u32>,
    recipients: Vec<Recipient>,
    /// Free blocks of recipients by size.
    free_recipients: BTreeMap<u32, Vec<u32>>,
    by_id: HashTable<u32>,
    destinations: Vec<Destination>,
    free_destinations: Vec<u32>,
    by_name: HashTable<u32>,
    hasher: RandomState,
    /// Recipients that are not done, of messages with several, by slot.
    several: HashMap<u32, u32>,
    /// Chunk lists of messages in chunks, by slot.
    chunks: HashMap<u32, ChunkList>,
    /// Why recipients are held, by slot of the recipient.
    ///
    /// A tree, since a hash table of a million stops everything while it grows.
    holds: BTreeMap<u32, Hold>,
    /// Octets of [`Self::holds`], were no text shared.
    hold_bytes: usize,
    /// Ends of holds that end, in seconds since 1970, each with the slot of the recipient.
    hold_ends: BTreeSet<(u32, u32)>,
    live_messages: u64,
    live_recipients: u64,
    held_recipients: u64,
}

fn hash_id(id: u64) -> u64 {
    // Queue ids are ours, no client can aim them at a bucket; the multiplication spreads the time in their high bits.
    let mixed = id.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 32)
}

fn octets_of(hold: &Hold) -> usize {
    hold.encoded_len() + 64
}

/// Makes room for more, a little at a time: a large index is not half empty, and the system moves its pages, not its
/// bytes.
fn reserve<T>(list: &mut Vec<T>, more: usize) {
    if list.capacity() - list.len() < more {
        let share = if list.len() < 1 << 16 { list.len() / 4 } else { list.len() / 64 };
        list.reserve_exact(more.max(share + 64));
    }
}

#[expect(clippy::indexing_slicing, reason = "slots come from this structure alone; a bad one is our own bug")]
impl Index {
    pub(crate) fn messages(&self) -> u64 {
        self.live_messages
    }

    pub(crate) fn recipients(&self) -> u64 {
        self.live_recipients
    }

    /// Recipients that are held.
    pub(crate) fn held(&self) -> u64 {
        self.held_recipients
    }

    pub(crate) fn destinations(&self) -> u64 {
        (self.destinations.len() - self.free_destinations.len()) as u64
    }

    /// Memory taken, in bytes.
    pub(crate) fn bytes(&self) -> u64 {
        let names: usize = self.destinations.iter().map(|destination| destination.name.len()).sum();
        let chunks: usize = self.chunks.values().map(|list| size_of_val(list.places.as_ref()) + 40).sum();
        (self.messages.capacity() * size_of::<Message>()
            + self.recipients.capacity() * size_of::<Recipient>()
            + self.by_id.allocation_size()
            + self.by_name.allocation_size()
            + self.destinations.capacity() * size_of::<Destination>()
            + self.several.len() * 2 * size_of::<(u32, u32)>()
            + self.hold_bytes
            + self.hold_ends.len() * 2 * size_of::<(u32, u32)>()
            + names
            + chunks) as u64
    }

    fn find(&self, id: u64) -> Option<u32> {
        self.by_id.find(hash_id(id), |&slot| self.messages[slot as usize].id == halves(id)).copied()
    }

    pub(crate) fn contains(&self, id: u64) -> bool {
        self.find(id).is_some()
    }

    /// Where the message lies.
    pub(crate) fn place(&self, id: u64) -> Option<Place> {
        self.find(id).map(|slot| place_of(&self.messages[slot as usize]))
    }

    /// The chunks of the message's body, if it has some.
    pub(crate) fn chunks(&self, id: u64) -> Option<&ChunkList> {
        self.chunks.get(&self.find(id)?)
    }

    /// Adds the unfinished messages of some slots from `from` on to `ids`; returns the slot to go on with, or none at
    /// the end. A message keeps its slot while it lives.
    pub(crate) fn ids_from(&self, from: usize, slots: usize, ids: &mut Vec<QueueId>) -> Option<usize> {
        let end = from.saturating_add(slots).min(self.messages.len());
        let part = self.messages.get(from..end).unwrap_or_default();
        ids.extend(part.iter().filter(|message| message.has(USED)).filter_map(|one| QueueId::from_u64(one.id())));
        (end < self.messages.len()).then_some(end)
    }

    /// Every unfinished message with its place and chunks.
    pub(crate) fn places(&self) -> impl Iterator<Item = (u64, Place, Option<&ChunkList>)> {
        self.messages.iter().zip(0_u32..).filter(|(message, _)| message.has(USED)).map(|(message, slot)| {
            let chunks = if message.has(CHUNKED) { self.chunks.get(&slot) } else { None };
            (message.id(), place_of(message), chunks)
        })
    }

    /// Adds a message. `recipients` yields each position's state, destination and reason why it is held; done ones have
    /// neither.
    ///
    /// Returns `None` if it has no recipient that is not done, or the id is taken; nothing was added.
    pub(crate) fn insert<'a>(
        &mut self,
        id: u64,
        place: Place,
        chunks: Option<ChunkList>,
        recipients: impl Iterator<Item = FoundRecipient<'a>>,
    ) -> Option<()> {
        if self.find(id).is_some() {
            return None;
        }
        let listed: Vec<_> = recipients.collect();
        let count = u32::try_from(listed.len()).ok()?;
        let live =
            u32::try_from(listed.iter().filter(|found| found.sequenced.state.status != Status::Done).count()).ok()?;
        if live == 0 {
            return None;
        }
        let first = self.allocate_recipients(count);
        let message = Message {
            id: halves(id),
            offset: place.offset,
            size: place.size,
            ordinal: place.ordinal,
            first,
            segment: place.segment,
            flags: USED | if chunks.is_some() { CHUNKED } else { 0 } | if count > 1 { SEVERAL } else { 0 },
        };
        let slot = self.allocate_message(message);
        for (FoundRecipient { sequenced, destination: name, hold }, at) in listed.into_iter().zip(first..) {
            let mut recipient = Recipient {
                destination: NIL,
                due: 0,
                next: NIL,
                previous: NIL,
                message: slot,
                sequence: 0,
                attempts: 0,
                flags: if at + 1 == first + count { LAST } else { 0 },
            };
            recipient.set(sequenced);
            self.recipients[at as usize] = recipient;
            self.set_hold(at, sequenced, hold);
            self.held_recipients += u64::from(sequenced.state.status == Status::Held);
            if sequenced.state.status != Status::Done {
                let destination = self.intern(name.unwrap_or_default());
                self.link(at, destination);
            }
        }
        self.by_id.insert_unique(hash_id(id), slot, |&slot| hash_id(self.messages[slot as usize].id()));
        if let Some(chunks) = chunks {
            self.chunks.insert(slot, chunks);
        }
        if count > 1 {
            self.several.insert(slot, live);
        }
        self.live_messages += 1;
        self.live_recipients += u64::from(live);
        Some(())
    }

    fn allocate_message(&mut self, message: Message) -> u32 {
        if let Some(slot) = self.free_message {
            let next = self.messages[slot as usize].first;
            self.free_message = (next != NIL).then_some(next);
            self.messages[slot as usize] = message;
            return slot;
        }
        reserve(&mut self.messages, 1);
        self.messages.push(message);
        u32::try_from(self.messages.len() - 1).unwrap_or(NIL)
    }

    fn allocate_recipients(&mut self, count: u32) -> u32 {
        if let Some((&size, starts)) = self.free_recipients.range_mut(count..).next() {
            let start = starts.pop().unwrap_or(NIL);
            if starts.is_empty() {
                self.free_recipients.remove(&size);
            }
            if size > count {
                self.free_recipients.entry(size - count).or_default().push(start + count);
            }
            return start;
        }
        let start = u32::try_from(self.recipients.len()).unwrap_or(NIL);
        reserve(&mut self.recipients, count as usize);
        let empty = Recipient {
            destination: NIL,
            due: 0,
            next: NIL,
            previous: NIL,
            message: NIL,
            sequence: 0,
            attempts: 0,
            flags: 0,
        };
        self.recipients.resize(self.recipients.len() + count as usize, empty);
        start
    }

    fn intern(&mut self, name: &[u8]) -> u32 {
        let hash = self.hasher.hash_one(name);
        if let Some(&slot) = self.by_name.find(hash, |&slot| self.destinations[slot as usize].name == name) {
            return slot;
        }
        let destination = Destination { name: Bytes::copy_from_slice(name), head: NIL, tail: NIL, count: 0 };
        let slot = match self.free_destinations.pop() {
            Some(slot) => {
                self.destinations[slot as usize] = destination;
                slot
            }
            None => {
                reserve(&mut self.destinations, 1);
                self.destinations.push(destination);
                u32::try_from(self.destinations.len() - 1).unwrap_or(NIL)
            }
        };
        let hasher = &self.hasher;
        let destinations = &self.destinations;
        self.by_name.insert_unique(hash, slot, |&slot| hasher.hash_one(destinations[slot as usize].name.as_ref()));
        slot
    }

    /// Puts a recipient at the end of a destination's list.
    fn link(&mut self, at: u32, destination: u32) {
        let list = &mut self.destinations[destination as usize];
        let tail = list.tail;
        list.tail = at;
        list.count += 1;
        if tail == NIL {
            list.head = at;
        } else {
            self.recipients[tail as usize].next = at;
        }
        let recipient = &mut self.recipients[at as usize];
        (recipient.destination, recipient.previous, recipient.next) = (destination, tail, NIL);
    }

    fn unlink(&mut self, at: u32) {
        let Recipient { destination, next, previous, .. } = self.recipients[at as usize];
        if destination == NIL {
            return;
        }
        if previous == NIL {
            self.destinations[destination as usize].head = next;
        } else {
            self.recipients[previous as usize].next = next;
        }
        if next == NIL {
            self.destinations[destination as usize].tail = previous;
        } else {
            self.recipients[next as usize].previous = previous;
        }
        self.recipients[at as usize].destination = NIL;
        let list = &mut self.destinations[destination as usize];
        list.count -= 1;
        if list.count == 0 {
            let name = std::mem::take(&mut list.name);
            let hash = self.hasher.hash_one(name.as_ref());
            if let Ok(entry) = self.by_name.find_entry(hash, |&slot| slot == destination) {
                entry.remove();
            }
            self.free_destinations.push(destination);
        }
    }

    /// Slot of a recipient by position; `None` past the last.
    fn recipient(&self, slot: u32, position: u32) -> Option<u32> {
        let first = self.messages[slot as usize].first;
        let at = first.checked_add(position)?;
        // The block of a message is contiguous and every recipient names its message: a position past the end does not.
        (self.recipients.get(at as usize)?.message == slot).then_some(at)
    }

    /// Keeps the reason of a held recipient, and forgets that of any other.
    fn set_hold(&mut self, at: u32, now: Sequenced, hold: Option<Hold>) {
        self.forget_hold(at);
        if let Some(hold) = hold.filter(|_| now.state.status == Status::Held) {
            self.hold_ends.extend(hold.ends_at().map(|end| (end, at)));
            self.hold_bytes += octets_of(&hold);
            self.holds.insert(at, hold);
        }
    }

    fn forget_hold(&mut self, at: u32) {
        let Some(hold) = self.holds.remove(&at) else { return };
        self.hold_bytes -= octets_of(&hold);
        if let Some(end) = hold.ends_at() {
            self.hold_ends.remove(&(end, at));
        }
    }

    /// Recipients whose hold has ended at `now`, seconds since 1970, as message and position: `max` at most, those that
    /// ended first before others.
    pub(crate) fn ended_holds(&self, now: u32, max: usize) -> Vec<(u64, u32)> {
        let ended = self.hold_ends.range(..=(now, u32::MAX)).take(max);
        let place = |&(_, at): &(u32, u32)| {
            let message = self.messages[self.recipients[at as usize].message as usize];
            (message.id(), at - message.first)
        };
        ended.map(place).collect()
    }

    /// Why a recipient is held.
    pub(crate) fn hold(&self, id: u64, position: u32) -> Option<&Hold> {
        self.holds.get(&self.recipient(self.find(id)?, position)?)
    }

    /// Changes a recipient's state as its owner wishes, and counts the change. A recipient that stays held keeps its
    /// reason where no new one is given.
    pub(crate) fn change(
        &mut self,
        id: u64,
        position: u32,
        state: State,
        destination: Option<&[u8]>,
        hold: Option<&Hold>,
    ) -> Applied {
        let Some(sequence) = self.state(id, position).map(|now| now.sequence.saturating_add(1)) else {
            return Applied::Nothing;
        };
        let hold = hold.or_else(|| self.hold(id, position)).cloned();
        self.apply(id, position, Sequenced { state, sequence }, destination, hold)
    }

    /// Applies a recorded state if it is younger than the known one.
    pub(crate) fn replay(
        &mut self,
        id: u64,
        position: u32,
        to: Sequenced,
        destination: Option<&[u8]>,
        hold: Option<Hold>,
    ) -> Applied {
        match self.state(id, position) {
            // A state carried over has the sequence of the one it repeats, and the destination with it.
            Some(now)
                if to.state.status == Status::Done
                    || to.sequence > now.sequence
                    || to.sequence == now.sequence && (destination.is_some() || to.sequence == u16::MAX) =>
            {
                self.apply(id, position, to, destination, hold)
            }
            _ => Applied::Nothing,
        }
    }

    /// The present state of a recipient that is not done.
    fn state(&self, id: u64, position: u32) -> Option<Sequenced> {
        self.any_state(id, position).filter(|now| now.state.status != Status::Done)
    }

    /// Whether a recipient is held.
    pub(crate) fn is_held(&self, id: u64, position: u32) -> bool {
        self.held_recipients > 0 && self.state(id, position).is_some_and(|now| now.state.status == Status::Held)
    }

    /// The present state of a recipient of an unfinished message, done or not.
    pub(crate) fn any_state(&self, id: u64, position: u32) -> Option<Sequenced> {
        let slot = self.find(id)?;
        self.recipient(slot, position).map(|at| self.recipients[at as usize].sequenced())
    }

    fn apply(
        &mut self,
        id: u64,
        position: u32,
        to: Sequenced,
        destination: Option<&[u8]>,
        hold: Option<Hold>,
    ) -> Applied {
        let Some((slot, at)) = self.find(id).and_then(|slot| Some((slot, self.recipient(slot, position)?))) else {
            return Applied::Nothing;
        };
        self.held_recipients += u64::from(to.state.status == Status::Held);
        self.held_recipients -= u64::from(self.recipients[at as usize].status() == Status::Held);
        self.recipients[at as usize].set(to);
        self.set_hold(at, to, hold);
        if to.state.status == Status::Done {
            self.unlink(at);
            self.live_recipients -= 1;
            if self.one_less(slot) == 0 {
                return Applied::Finished(self.remove_slot(slot));
            }
        } else if let Some(name) = destination {
            let now = self.recipients[at as usize].destination;
            if self.destinations[now as usize].name != name {
                self.unlink(at);
                let destination = self.intern(name);
                self.link(at, destination);
            }
        }
        Applied::Changed(to)
    }

    /// Counts one recipient as done; returns how many are not.
    fn one_less(&mut self, slot: u32) -> u32 {
        if !self.messages[slot as usize].has(SEVERAL) {
            return 0;
        }
        let live = self.several.entry(slot).or_insert(1);
        *live -= 1;
        *live
    }

    /// Takes a message out, in any state of its recipients.
    pub(crate) fn remove(&mut self, id: u64) -> Option<Gone> {
        let slot = self.find(id)?;
        Some(self.remove_slot(slot))
    }

    fn remove_slot(&mut self, slot: u32) -> Gone {
        let message = self.messages[slot as usize];
        let mut at = message.first;
        let mut count = 0;
        loop {
            count += 1;
            let status = self.recipients[at as usize].status();
            self.held_recipients -= u64::from(status == Status::Held);
            if status == Status::Held {
                self.forget_hold(at);
            }
            if status != Status::Done {
                self.unlink(at);
                self.live_recipients -= 1;
            }
            let last = self.recipients[at as usize].flags & LAST != 0;
            self.recipients[at as usize].message = NIL;
            if last {
                break;
            }
            at += 1;
        }
        self.free_recipients.entry(count).or_default().push(message.first);
        if let Ok(entry) = self.by_id.find_entry(hash_id(message.id()), |&other| other == slot) {
            entry.remove();
        }
        self.messages[slot as usize].flags = 0;
        self.several.remove(&slot);
        self.messages[slot as usize].first = self.free_message.unwrap_or(NIL);
        self.free_message = Some(slot);
        self.live_messages -= 1;
        if self.live_messages == 0 {
            // Blocks split over time become whole again whenever the queue runs empty.
            self.recipients.clear();
            self.free_recipients.clear();
        }
        Gone { place: place_of(&message), chunks: self.chunks.remove(&slot) }
    }

    /// Says that the message lies elsewhere now; returns where it lay.
    pub(crate) fn relocate(&mut self, id: u64, place: Place, chunks: Option<ChunkList>) -> Option<Gone> {
        let slot = self.find(id)?;
        let message = &mut self.messages[slot as usize];
        let old = place_of(message);
        message.segment = place.segment;
        message.offset = place.offset;
        message.ordinal = place.ordinal;
        message.size = place.size;
        message.flags = message.flags & !CHUNKED | if chunks.is_some() { CHUNKED } else { 0 };
        let before = match chunks {
            Some(chunks) => self.chunks.insert(slot, chunks),
            None => self.chunks.remove(&slot),
        };
        Some(Gone { place: old, chunks: before })
    }

    /// Reasons why recipients of a message are held, by position.
    pub(crate) fn holds(&self, id: u64) -> Option<HashMap<u32, Hold>> {
        let first = self.messages[self.find(id)? as usize].first;
        if self.holds.is_empty() {
            return Some(HashMap::new());
        }
        let positions = (0_u32..).zip(self.recipients.get(first as usize..)?);
        let mut holds = HashMap::new();
        for (position, recipient) in positions {
            holds.extend(self.holds.get(&(first + position)).map(|hold| (position, hold.clone())));
            if recipient.flags & LAST != 0 {
                break;
            }
        }
        Some(holds)
    }

    /// States of all recipients by position, done ones included, with the destinations of the others.
    pub(crate) fn states(&self, id: u64) -> Option<Vec<(Sequenced, Option<Bytes>)>> {
        let slot = self.find(id)?;
        let mut at = self.messages[slot as usize].first;
        let mut states = Vec::new();
        loop {
            let recipient = &self.recipients[at as usize];
            let name = self.destinations.get(recipient.destination as usize).map(|found| found.name.clone());
            states.push((recipient.sequenced(), name));
            if recipient.flags & LAST != 0 {
                return Some(states);
            }
            at += 1;
        }
    }

    /// How many recipients of a message are not done.
    pub(crate) fn left(&self, id: u64) -> Option<usize> {
        let slot = self.find(id)?;
        Some(self.several.get(&slot).map_or(1, |left| *left as usize))
    }

    /// State and destination of a recipient that is not done.
    pub(crate) fn state_of(&self, id: u64, position: u32) -> Option<(State, Bytes)> {
        let recipient = &self.recipients[self.recipient(self.find(id)?, position)? as usize];
        let name = &self.destinations.get(recipient.destination as usize)?.name;
        let state = recipient.sequenced().state;
        (state.status != Status::Done).then(|| (state, name.clone()))
    }

    /// The name of the destination of a recipient that is not done.
    pub(crate) fn destination_of(&self, id: u64, position: u32) -> Option<&[u8]> {
        let at = self.recipient(self.find(id)?, position)?;
        let destination = self.recipients[at as usize].destination;
        self.destinations.get(destination as usize).map(|destination| destination.name.as_ref())
    }

    /// Returns the destination of the message's first recipient that is not done, by which relocation sorts.
    pub(crate) fn destination(&self, id: u64) -> Option<Bytes> {
        let mut at = self.messages[self.find(id)? as usize].first;
        loop {
            let recipient = &self.recipients[at as usize];
            if let Some(destination) = self.destinations.get(recipient.destination as usize) {
                return Some(destination.name.clone());
            }
            if recipient.flags & LAST != 0 {
                return None;
            }
            at += 1;
        }
    }

    /// Destinations and how many recipients wait for each.
    pub(crate) fn by_destination_counts(&self) -> Vec<(Bytes, u64)> {
        let used = self.destinations.iter().filter(|destination| destination.count > 0);
        used.map(|destination| (destination.name.clone(), u64::from(destination.count))).collect()
    }

    /// At most `limit` recipients of a destination in the order of its list, behind `after`.
    ///
    /// If `after` has left the list meanwhile, the list is given from its start.
    pub(crate) fn by_destination(&self, name: &[u8], after: Option<Entry>, limit: usize) -> Vec<Entry> {
        let hash = self.hasher.hash_one(name);
        let Some(&destination) = self.by_name.find(hash, |&slot| self.destinations[slot as usize].name == name) else {
            return Vec::new();
        };
        let resume = after.and_then(|entry| {
            let slot = self.find(entry.id.to_u64())?;
            let at = self.recipient(slot, entry.recipient)?;
            (self.recipients[at as usize].destination == destination).then_some(self.recipients[at as usize].next)
        });
        let mut at = resume.unwrap_or(self.destinations[destination as usize].head);
        let mut entries = Vec::new();
        while at != NIL && entries.len() < limit {
            let recipient = &self.recipients[at as usize];
            let message = &self.messages[recipient.message as usize];
            let position = at - message.first;
            if let Some(id) = QueueId::from_u64(message.id()) {
                entries.push(Entry { id, recipient: position, state: recipient.sequenced().state });
            }
            at = recipient.next;
        }
        entries
    }
}

fn place_of(message: &Message) -> Place {
    Place { segment: message.segment, offset: message.offset, size: message.size, ordinal: message.ordinal }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::Node;

    #[test]
    fn messages_are_listed_a_few_slots_at_a_time() {
        let mut index = Index::default();
        let node = Node::default();
        let ids: Vec<QueueId> =
            (1..=5).map(|second| QueueId::new(1_800_000_000_000_000 + second, node).unwrap()).collect();
        for id in &ids {
            let sequenced = Sequenced { state: State::default(), sequence: 0 };
            let found = FoundRecipient { sequenced, destination: Some(b"d.test"), hold: None };
            let place = Place { segment: 0, offset: 0, size: 64, ordinal: 0 };
            index.insert(id.to_u64(), place, None, std::iter::once(found)).unwrap();
        }
        index.remove(ids[1].to_u64()).unwrap();
        for slots in 1..=6 {
            let (mut listed, mut next) = (Vec::new(), Some(0));
            while let Some(from) = next {
                next = index.ids_from(from, slots, &mut listed);
            }
            assert_eq!(listed, [ids[0], ids[2], ids[3], ids[4]], "{slots} at a time");
        }
    }
}

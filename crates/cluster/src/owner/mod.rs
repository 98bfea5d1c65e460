//! The owner of mail: gives each message its copies, answers clients, and says which mail may be delivered.
//!
//! Each stream of this node is a slot. A message counts as accepted when the local log and all its copies are on stable
//! storage. It may be delivered while every stream with a copy of it proves that no other node took it over; mail
//! without a copy may always be delivered, because no other node can have it.
//!
//! | File | What it holds |
//! |---|---|
//! | `slot` | one stream: phase, index, completions that wait |
//! | `ownership` | whether this node surely owns a message |
//! | `bodies` | the lane of bodies of one stream |
//! | `changed` | copies of mail that was held, released or given another destination |
//! | `copying` | new mail, copies made anew, compaction |
//! | `pairs` | the two copies of `copies = 3`: their order, a second one written anew |
//! | `streams` | requests, events of the writers, trims |
//! | `scan` | blocks that earlier starts and other nodes wrote |
//! | `scrub` | reading stored copies again |
//! | `claims` | mail that is taken back |
//! | `former` | mail that other nodes took from copies of an earlier disk |
//! | `turns` | sets that are looked at in turn |
//! | `unreadable` | mail that the local log does not give |
//! | `departure` | this node, or a holder, leaves the cluster for good |

mod bodies;
mod changed;
mod claims;
mod copying;
mod departure;
mod former;
mod ownership;
mod pairs;
mod record_index;
mod scan;
mod scrub;
mod slot;
mod streams;
mod turns;
mod unreadable;

use crate::action::{AcceptAnswer, Action, LocalMessage, OnNoReplica, Report};
use crate::identity::{Epoch, NodeId, StreamId};
use crate::record::{Accepted, Completion, Outcome, Record, Twin};
use crate::settings::Settings;
use crate::status::{OwnerCounts, StreamStatus};
use changed::ChangedCopies;
use former::FormerMail;
use mail::QueueId;
pub use ownership::OwnershipDoubt;
use pairs::UnevenPairs;
use slot::{Phase, Slot};
use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::time::Duration;
use turns::Turns;
use unreadable::Unreadable;

/// The condition under which a message counts as accepted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Gate {
    Open,
    /// A client waits for its answer.
    Client {
        policy: OnNoReplica,
        /// False once the local log alone is enough.
        needs_copies: bool,
    },
    /// The adoption of this stream takes it over.
    Adoption {
        from: StreamId,
        is_safe: bool,
    },
}

/// A copy of a message.
#[derive(Clone, Copy, Debug)]
struct CopyPlace {
    stream: StreamId,
    /// Where it is stored, once that is known.
    sequence: Option<u64>,
    /// Records on their way; the last one counts.
    pending: u32,
    /// The epoch of the stored record.
    epoch: Epoch,
    /// The stored record names another copy, on whose claim its adoption hangs. True for a promised copy too, whose
    /// record will name one.
    has_twin: bool,
    /// That copy, as the stored record names it; `None` while no record is stored.
    twin: Option<Twin>,
}

impl CopyPlace {
    const fn on_its_way(stream: StreamId) -> Self {
        Self { stream, sequence: None, pending: 1, epoch: Epoch(0), has_twin: false, twin: None }
    }

    /// A copy that the record of another one names, and that is not written or not found yet.
    const fn promised(stream: StreamId) -> Self {
        Self { stream, sequence: None, pending: 0, epoch: Epoch(0), has_twin: true, twin: None }
    }

    const fn is_stored(&self) -> bool {
        self.sequence.is_some() && self.pending == 0
    }
}

/// A live message of this node.
#[derive(Debug)]
struct Message {
    hops: u16,
    recipients: u32,
    finished: BTreeSet<u32>,
    octets: usize,
    copies: Vec<CopyPlace>,
    is_local: bool,
    gate: Gate,
    /// Its copies are not known since the start: any stream that was not read may have one.
    is_uncertain: bool,
    /// Recipients may have it already: another owner had it, or a crash before this start may have lost results.
    may_be_duplicate: bool,
}

impl Message {
    /// True for a message with one copy whose record names another one.
    fn is_widowed(&self) -> bool {
        !self.is_uncertain && matches!(self.copies.as_slice(), [copy] if copy.has_twin)
    }
}

/// The reason why a message is read from the local log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadPurpose {
    Copy,
    /// Its record moves to the end of this stream.
    Compact(StreamId),
}

/// The owner's part of a node.
#[derive(Debug)]
pub(crate) struct Owner {
    settings: Settings,
    slots: BTreeMap<StreamId, Slot>,
    messages: BTreeMap<QueueId, Message>,
    needs_copy: BTreeSet<QueueId>,
    /// Those of them whose clients wait: read before all others, which may be many.
    awaited_reads: BTreeSet<QueueId>,
    /// Messages that may have lost one of two copies: the record of the other is written again without its twin.
    widowed: Turns<QueueId>,
    uneven: UnevenPairs,
    changed: ChangedCopies,
    reading: BTreeMap<QueueId, ReadPurpose>,
    unreadable: Unreadable,
    /// Adopted messages on their way into the local log.
    adopted: BTreeMap<QueueId, Accepted>,
    /// Bodies that arrive in pieces.
    streaming: BTreeSet<QueueId>,
    /// Holders that may take new mail, best first.
    holders: Vec<NodeId>,
    has_uncertain: bool,
    /// Octets of stored blocks since the start, before they were compressed and as they were stored.
    copied_octets: u64,
    stored_octets: u64,
    /// A stream of this node was adopted since the start.
    was_adopted: bool,
    is_draining: bool,
    is_releasing: bool,
    /// This node leaves the cluster for good.
    is_departing: bool,
    former: FormerMail,
    /// Nodes that leave for good, or have left: their copies do not count on.
    departing: BTreeSet<NodeId>,
    /// Messages that an adoption can tick off.
    safe: Vec<(StreamId, QueueId)>,
    actions: VecDeque<Action>,
}

impl Owner {
    /// Begins with the mail of the local log. `streams` are the newest generations of this node's streams.
    pub(crate) fn new(now: Duration, settings: Settings, streams: &[StreamId], local: Vec<LocalMessage>) -> Self {
        let mut owner = Self {
            settings,
            slots: BTreeMap::new(),
            messages: BTreeMap::new(),
            needs_copy: BTreeSet::new(),
            awaited_reads: BTreeSet::new(),
            widowed: Turns::default(),
            uneven: UnevenPairs::default(),
            changed: ChangedCopies::default(),
            reading: BTreeMap::new(),
            unreadable: Unreadable::default(),
            adopted: BTreeMap::new(),
            streaming: BTreeSet::new(),
            holders: Vec::new(),
            has_uncertain: false,
            copied_octets: 0,
            stored_octets: 0,
            was_adopted: false,
            is_draining: false,
            is_releasing: false,
            is_departing: false,
            former: FormerMail::default(),
            departing: BTreeSet::new(),
            safe: Vec::new(),
            actions: VecDeque::new(),
        };
        for stream in streams.iter().filter(|stream| stream.owner == owner.settings.node) {
            let mut slot = Slot::new(&owner.settings, *stream, now);
            slot.was_listed = true;
            owner.slots.insert(*stream, slot);
        }
        for message in local {
            let id = message.id;
            let message = Message {
                hops: message.hops,
                recipients: message.recipients,
                finished: message.finished.into_iter().collect(),
                octets: 0,
                copies: Vec::new(),
                is_local: true,
                gate: Gate::Open,
                is_uncertain: !owner.slots.is_empty(),
                may_be_duplicate: true,
            };
            if message.is_uncertain {
                owner.has_uncertain = true;
            } else {
                owner.needs_copy.insert(id);
            }
            owner.messages.insert(id, message);
        }
        owner
    }

    /// Sets the holders that may take new mail, best first. One that has no stream yet gets one.
    pub(crate) fn set_holders(&mut self, now: Duration, holders: Vec<NodeId>) {
        for holder in &holders {
            if self.slot_of(*holder).is_none() && self.settings.copies > 1 {
                let stream = StreamId { owner: self.settings.node, holder: *holder, generation: 0 };
                self.slots.insert(stream, Slot::new(&self.settings, stream, now));
            }
        }
        self.holders = holders;
    }

    fn slot_of(&self, holder: NodeId) -> Option<&Slot> {
        self.slots.values().rev().find(|slot| slot.stream.holder == holder)
    }

    /// Takes the end of a recipient.
    pub(crate) fn completed(&mut self, now: Duration, completion: Completion) {
        let Some(message) = self.messages.get_mut(&completion.id) else { return };
        match completion.recipient {
            Some(recipient) => drop(message.finished.insert(recipient)),
            None => message.finished.extend(0..message.recipients),
        }
        let is_over = message.finished.len() >= message.recipients as usize;
        for copy in message.copies.clone() {
            if let Some(slot) = self.slots.get_mut(&copy.stream) {
                slot.complete(now, completion);
            }
        }
        if is_over {
            self.remove(completion.id);
        }
    }

    /// Takes the message out of all lists, without a completion.
    fn remove(&mut self, id: QueueId) -> Option<Message> {
        let message = self.messages.remove(&id)?;
        for copy in &message.copies {
            let Some(slot) = self.slots.get_mut(&copy.stream) else { continue };
            slot.body_index.remove(id);
            if let Some(sequence) = copy.sequence {
                slot.unindex_message(sequence, id);
            }
        }
        self.needs_copy.remove(&id);
        self.awaited_reads.remove(&id);
        self.widowed.remove(id);
        self.uneven.remove(id);
        self.reading.remove(&id);
        self.unreadable.remove(id);
        self.adopted.remove(&id);
        Some(message)
    }

    /// Removes a message that counts as never accepted.
    fn withdraw(&mut self, now: Duration, id: QueueId) {
        self.completed(now, Completion { id, recipient: None, outcome: Outcome::Withdrawn });
    }

    /// The local log has the message on stable storage.
    pub(crate) fn stored(&mut self, now: Duration, id: QueueId) {
        let Some(message) = self.messages.get_mut(&id) else { return };
        message.is_local = true;
        if let Some(accepted) = self.adopted.remove(&id)
            && self.place(now, &accepted) == 0
        {
            self.needs_copy.insert(id);
        }
        self.settle(id);
    }

    /// The local log could not store a client's message, or knows an adopted message already.
    pub(crate) fn store_refused(&mut self, now: Duration, id: QueueId) {
        let Some(message) = self.messages.get(&id) else { return };
        match message.gate {
            Gate::Adoption { from, .. } => {
                self.remove(id);
                self.safe.push((from, id));
            }
            _ => {
                self.actions.push_back(Action::Answer { id, answer: AcceptAnswer::TempFail });
                self.withdraw(now, id);
            }
        }
    }

    /// Answers the client, or reports to the adoption, once all is stored.
    fn settle(&mut self, id: QueueId) {
        let Some(message) = self.messages.get_mut(&id) else { return };
        let is_copied = message.copies.iter().all(CopyPlace::is_stored) && !message.is_widowed();
        match &mut message.gate {
            Gate::Client { needs_copies, .. } if message.is_local => {
                let has_copies = is_copied && !message.copies.is_empty();
                if has_copies || !*needs_copies {
                    let answer = if has_copies { AcceptAnswer::Replicated } else { AcceptAnswer::LocalOnly };
                    message.gate = Gate::Open;
                    self.actions.push_back(Action::Answer { id, answer });
                }
            }
            Gate::Adoption { from, is_safe } if message.is_local && is_copied && !*is_safe => {
                *is_safe = true;
                self.safe.push((*from, id));
            }
            _ => {}
        }
    }

    /// Takes a message of another node; its hops are already one more. It stays undelivered until `release_adopted`.
    pub(crate) fn adopt(&mut self, mut accepted: Accepted, from: StreamId) {
        let id = accepted.id;
        if self.former.has_taken(id, accepted.hops) {
            self.safe.push((from, id));
            return;
        }
        let known = self.messages.get(&id);
        if let Some(known) = known
            && known.hops >= accepted.hops
        {
            if known.gate != (Gate::Adoption { from, is_safe: false }) {
                self.safe.push((from, id));
            }
            return;
        }
        if let Some(earlier) = self.remove(id) {
            let finished: BTreeSet<u32> = accepted.finished.iter().chain(&earlier.finished).copied().collect();
            accepted.finished = finished.into_iter().collect();
            accepted.may_be_duplicate |= earlier.may_be_duplicate;
        }
        accepted.twin = None;
        let message = Message {
            hops: accepted.hops,
            recipients: accepted.recipients,
            finished: accepted.finished.iter().copied().collect(),
            octets: Record::Accept(accepted.clone()).octets(),
            copies: Vec::new(),
            is_local: false,
            gate: Gate::Adoption { from, is_safe: false },
            is_uncertain: false,
            may_be_duplicate: accepted.may_be_duplicate,
        };
        self.messages.insert(id, message);
        self.adopted.insert(id, accepted.clone());
        self.actions.push_back(Action::Store(Box::new(accepted)));
    }

    /// Lets adopted messages be delivered.
    pub(crate) fn release_adopted(&mut self, now: Duration, ids: Vec<QueueId>, from: StreamId) {
        for id in ids {
            if let Some(message) = self.messages.get_mut(&id)
                && matches!(message.gate, Gate::Adoption { from: own, .. } if own == from)
            {
                message.gate = Gate::Open;
                if message.finished.len() >= message.recipients as usize {
                    self.completed(now, Completion { id, recipient: None, outcome: Outcome::Delivered });
                }
            }
        }
    }

    /// Messages that adoptions can tick off since the last call.
    pub(crate) fn take_safe(&mut self) -> Vec<(StreamId, QueueId)> {
        std::mem::take(&mut self.safe)
    }

    /// Stops new mail and new deliveries.
    pub(crate) const fn drain(&mut self) {
        self.is_draining = true;
    }

    /// Gives up all streams; no transaction may be in flight.
    pub(crate) const fn release(&mut self) {
        self.is_draining = true;
        self.is_releasing = true;
    }

    /// True when every open stream says that it is given up, and each live message has a stored copy: one on its way
    /// into a stream that another node has fenced meanwhile comes back.
    pub(crate) fn is_released(&self) -> bool {
        let is_given_up = |slot: &Slot| slot.messages.is_given_up() && slot.messages.is_drained();
        let is_out = |slot: &Slot| slot.phase != Phase::Open || is_given_up(slot) && slot.uploads.is_empty();
        let is_copied = |message: &Message| message.copies.iter().any(CopyPlace::is_stored);
        let is_all_copied = self.settings.copies < 2 || self.messages.values().all(is_copied);
        self.is_releasing && self.needs_copy.is_empty() && is_all_copied && self.slots.values().all(is_out)
    }

    /// Streams that another node fenced and whose adoption is not over.
    pub(crate) fn foreign_streams(&self) -> impl Iterator<Item = StreamId> {
        let is_foreign = |slot: &&Slot| matches!(&slot.phase, Phase::Foreign(foreign) if !foreign.is_over);
        self.slots.values().filter(is_foreign).map(|slot| slot.stream)
    }

    /// True for a live message of this node.
    pub(crate) fn has(&self, id: QueueId) -> bool {
        self.messages.contains_key(&id)
    }

    /// Copies of a message that are known to be stored.
    pub(crate) fn copies(&self, id: QueueId) -> usize {
        let copies = self.messages.get(&id).map(|message| &message.copies);
        copies.map_or(0, |copies| copies.iter().filter(|copy| copy.is_stored()).count())
    }

    /// True for accepted mail that no holder has. New mail whose client waits is not accepted yet.
    fn lacks_copy(&self, message: &Message) -> bool {
        let is_new = matches!(message.gate, Gate::Client { .. });
        self.settings.copies > 1 && !is_new && message.copies.iter().all(|copy| copy.sequence.is_none())
    }

    /// True for accepted mail with one copy where two are wanted.
    fn lacks_second_copy(&self, message: &Message) -> bool {
        let is_new = matches!(message.gate, Gate::Client { .. });
        self.settings.copies > 2 && !is_new && message.copies.iter().filter(|copy| copy.is_stored()).count() == 1
    }

    /// Counts for status.
    pub(crate) fn counts(&self, now: Duration) -> OwnerCounts {
        let waits = |message: &&Message| {
            let is_away =
                |copy: &CopyPlace| self.slots.get(&copy.stream).is_none_or(|slot| !slot.is_owned(now, &self.settings));
            message.is_uncertain || message.copies.iter().any(is_away)
        };
        OwnerCounts {
            messages: self.messages.len(),
            unreplicated: self.messages.values().filter(|message| self.lacks_copy(message)).count(),
            with_fewer_copies: self.messages.values().filter(|message| self.lacks_second_copy(message)).count(),
            waiting_for_stream: self.messages.values().filter(waits).count(),
            blocks: self.slots.values().map(|slot| slot.index.len()).sum(),
            copied_octets: self.copied_octets,
            stored_octets: self.stored_octets,
        }
    }

    /// Sets the version of the blocks to come.
    pub(crate) fn set_version(&mut self, version: u16) {
        self.settings.block_version = version;
        for slot in self.slots.values_mut() {
            slot.messages.set_version(version);
            slot.bodies.set_version(version);
        }
    }

    /// The states of all streams.
    pub(crate) fn streams(&self, now: Duration) -> Vec<StreamStatus> {
        self.slots.values().filter(|slot| !slot.is_dormant).map(|slot| slot.status(now)).collect()
    }

    /// Messages whose adoption is not recorded yet.
    pub(crate) fn adopted_waiting(&self) -> usize {
        self.messages.values().filter(|message| matches!(message.gate, Gate::Adoption { .. })).count()
    }

    fn report(&mut self, report: Report) {
        self.actions.push_back(Action::Report(report));
    }
}

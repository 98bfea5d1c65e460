//! The content of a fenced stream as an adopter knows it: the messages that live in it, in the order of the stream.
//!
//! A first pass over all blocks collects ids, completions and earlier adoptions. The bodies are read in a second pass,
//! part by part, so that memory does not grow with the size of the mail.

use crate::block::BlockError;
use crate::claim::{AdoptedCopy, Claim};
use crate::identity::{Epoch, Incarnation, Lane, StreamId};
use crate::record::{Completion, Record, Twin};
use crate::settings::Settings;
use bytes::Bytes;
use mail::QueueId;
use std::collections::{BTreeMap, BTreeSet};

/// A message that lives in the stream.
#[derive(Clone, Debug)]
pub(super) struct LiveMessage {
    pub(super) sequence: u64,
    incarnation: Incarnation,
    epoch: Epoch,
    pub(super) hops: u16,
    recipients: u32,
    pub(super) finished: BTreeSet<u32>,
    twin: Option<Twin>,
    /// The owner has started again since, and not after a planned exit: a crash may have lost results.
    pub(super) has_outlived_crash: bool,
}

/// The content of a stream under adoption.
#[derive(Debug, Default)]
pub(super) struct StreamContent {
    live: BTreeMap<QueueId, LiveMessage>,
    /// All mail up to here was dealt with by adoptions that the stream records as finished.
    pub(super) finished_upto: u64,
    /// The first fence of an adopter behind the owner's last block.
    pub(super) first_fence: u64,
    /// Blocks are gone or cannot be read: completions may be lost with them.
    pub(super) is_damaged: bool,
    last: u64,
    /// The owner's last block gave the stream up as planned.
    pub(super) is_released: bool,
    /// Mail was handed back, and its owner has written nothing since: it may have gone on in another stream.
    pub(super) is_handed_back: bool,
    /// A node with this number and another disk has fenced it since the owner's last block.
    pub(super) is_of_former_disk: bool,
    /// The life of the owner's log that wrote its last block.
    pub(super) owner: Option<Incarnation>,
    /// The epoch of that block.
    owner_epoch: Epoch,
}

/// The next part of an adoption.
#[derive(Debug, Default)]
pub(super) struct Part {
    pub(super) upto: u64,
    pub(super) is_last: bool,
    /// Its messages with their sequences.
    pub(super) messages: BTreeMap<QueueId, u64>,
}

impl StreamContent {
    /// Whether the stream lacks blocks between the last one that was read and this one. Its front may be trimmed.
    pub(super) const fn lacks_blocks_before(&self, sequence: u64) -> bool {
        self.last != 0 && sequence > self.last + 1
    }

    /// Reads a block of the first pass.
    ///
    /// # Errors
    /// The block cannot be read; its mail is passed over.
    pub(super) fn read(
        &mut self,
        settings: &Settings,
        stream: StreamId,
        sequence: u64,
        octets: &Bytes,
    ) -> Result<(), BlockError> {
        self.is_damaged |= self.lacks_blocks_before(sequence);
        self.last = sequence;
        let applies_done = !settings.sabotage.no_done;
        let block = settings.read_block(stream, Lane::Messages, octets).inspect_err(|_| self.is_damaged = true)?;
        let is_owners = block.header.writer == stream.owner && !block.is_of_adoption();
        if is_owners {
            self.note_owner(block.header.incarnation, block.header.epoch);
            (self.first_fence, self.is_of_former_disk, self.is_handed_back) = (0, false, false);
        } else if block.header.writer == settings.node {
            self.is_of_former_disk |= block.header.incarnation != settings.incarnation;
        }
        for record in block.records {
            match record {
                Record::Accept(accepted) => {
                    let message = LiveMessage {
                        sequence,
                        incarnation: block.header.incarnation,
                        epoch: block.header.epoch,
                        hops: accepted.hops,
                        recipients: accepted.recipients,
                        finished: accepted.finished.into_iter().collect(),
                        twin: accepted.twin,
                        has_outlived_crash: false,
                    };
                    self.live.insert(accepted.id, message);
                }
                Record::Done(list) if applies_done => list.iter().for_each(|one| self.complete(one)),
                Record::Fence(_) if !is_owners && self.first_fence == 0 => self.first_fence = sequence,
                Record::Release => self.is_released = true,
                Record::Adopted(adopted) => {
                    self.finished_upto = self.finished_upto.max(adopted.upto);
                    self.live.retain(|_, message| message.sequence > adopted.upto);
                    self.is_handed_back |= adopted.is_last && !self.live.is_empty();
                }
                Record::Done(_) | Record::Fence(_) | Record::Heartbeat { .. } | Record::Piece(_) => {}
            }
        }
        Ok(())
    }

    /// Notes the start of the owner that wrote a block.
    fn note_owner(&mut self, incarnation: Incarnation, epoch: Epoch) {
        let is_same = self.owner == Some(incarnation) && self.owner_epoch.start() == epoch.start();
        if !is_same && !self.is_released {
            self.live.values_mut().for_each(|message| message.has_outlived_crash = true);
        }
        self.is_released = false;
        (self.owner, self.owner_epoch) = (Some(incarnation), epoch);
    }

    fn complete(&mut self, completion: &Completion) {
        let Some(message) = self.live.get_mut(&completion.id) else { return };
        match completion.recipient {
            Some(recipient) => drop(message.finished.insert(recipient)),
            None => message.finished.extend(0..message.recipients),
        }
        if message.finished.len() >= message.recipients as usize {
            self.live.remove(&completion.id);
        }
    }

    /// True when mail is left that no adopter has looked at.
    pub(super) fn has_rest(&self) -> bool {
        self.live.values().any(|message| message.sequence > self.finished_upto)
    }

    pub(super) fn get(&self, id: QueueId) -> Option<&LiveMessage> {
        self.live.get(&id)
    }

    /// Streams with first copies of messages whose second copy is here, each with the incarnation that wrote them and
    /// their highest epoch.
    pub(super) fn first_streams(&self) -> BTreeMap<(StreamId, Incarnation), Epoch> {
        let mut firsts = BTreeMap::new();
        for message in self.live.values() {
            let Some(twin) = message.twin.filter(|twin| !twin.is_first) else { continue };
            let epoch = firsts.entry((twin.stream, message.incarnation)).or_insert(twin.epoch);
            *epoch = twin.epoch.max(*epoch);
        }
        firsts
    }

    /// Chooses the next part: all mail of the blocks behind the last part, up to a number of messages.
    ///
    /// `firsts` has the claims of the streams with first copies.
    pub(super) fn part(
        &self,
        claim: &Claim,
        firsts: &BTreeMap<StreamId, Claim>,
        fence: u64,
        messages_max: usize,
    ) -> Part {
        let mut in_order: Vec<(u64, QueueId)> = self
            .live
            .iter()
            .filter(|(_, message)| message.sequence > self.finished_upto && message.is_wanted(claim, firsts))
            .map(|(id, message)| (message.sequence, *id))
            .collect();
        in_order.sort_unstable();
        let mut part = Part { upto: fence, is_last: true, messages: BTreeMap::new() };
        let mut last = 0;
        for (sequence, id) in in_order {
            if part.messages.len() >= messages_max && sequence != last {
                part.upto = last;
                part.is_last = false;
                break;
            }
            last = sequence;
            part.messages.insert(id, sequence);
        }
        part
    }
}

impl LiveMessage {
    fn is_wanted(&self, claim: &Claim, firsts: &BTreeMap<StreamId, Claim>) -> bool {
        if claim.is_moved(self.incarnation, self.epoch) {
            return false;
        }
        match self.twin {
            None => true,
            Some(twin) if twin.is_first => claim.decision(self.incarnation, self.epoch) != Some(AdoptedCopy::Second),
            Some(twin) => {
                let first = firsts.get(&twin.stream);
                let decision = first.and_then(|first| first.decision(self.incarnation, twin.epoch));
                decision == Some(AdoptedCopy::Second)
            }
        }
    }
}

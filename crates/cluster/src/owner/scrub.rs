//! Reading own copies again from time to time: a block that the holder's disk has changed or lost is found while the
//! mail is still in the local log.

use super::Owner;
use super::slot::Phase;
use crate::action::Purpose;
use crate::block::Chain;
use crate::identity::{Lane, StreamId};
use crate::replica_log::{LogOperation, LogReply};
use bytes::Bytes;
use std::time::Duration;

impl Owner {
    /// Asks for the next blocks of a stream to look at. While this node gives its mail up, adopters trim the streams.
    pub(super) fn poll_scrub(&mut self, now: Duration, stream: StreamId) {
        let interval = self.settings.scrub_interval;
        let Some(slot) = self.slots.get_mut(&stream) else { return };
        if slot.phase != Phase::Open || !slot.messages.is_flowing() || now < slot.scrub.at || self.is_releasing {
            return;
        }
        slot.scrub.at = now + interval;
        let lane = slot.scrub.lane;
        let Some(first) = slot.first_kept(lane) else { return slot.scrub.turn() };
        slot.scrub.next = slot.scrub.next.max(first);
        slot.scrub.last = if lane == Lane::Messages { &slot.messages } else { &slot.bodies }.last_sequence();
        slot.scrub.attempt += 1;
        let (attempt, operation) =
            (slot.scrub.attempt, LogOperation::Scan { from: slot.scrub.next, octets_max: self.settings.scan_octets });
        self.ask(Purpose::OwnerScrub(stream), attempt, stream, lane, operation);
    }

    /// Looks at blocks of an own stream, if no other node can have trimmed it.
    pub(super) fn scrubbed(&mut self, now: Duration, stream: StreamId, attempt: u64, reply: LogReply) {
        let settings = &self.settings;
        let Some(slot) = self.slots.get_mut(&stream) else { return };
        if !slot.is_owned(now, settings) || self.is_releasing || slot.scrub.attempt != attempt {
            return;
        }
        let lane = slot.scrub.lane;
        let (blocks, is_end) = match reply {
            LogReply::Scanned { blocks, is_end } => (blocks, is_end),
            LogReply::NoStream => {
                return self.damaged(now, stream, lane, format!("the engine has no {} any more", stream.name(lane)));
            }
            _ => return,
        };
        let Some(first) = slot.first_kept(lane) else { return };
        let mut next = slot.scrub.next.max(first);
        let mut chain = Chain::default();
        let mut check = |sequence: u64, octets: &Bytes| match settings.read_block(stream, lane, octets) {
            _ if sequence > next => Err(format!("block {next} of {} is gone", stream.name(lane))),
            Ok(block) => {
                next = next.max(sequence + 1);
                chain.follow(&block).map_err(|error| error.to_string())
            }
            Err(error) => Err(format!("block {sequence} of {}: {error}", stream.name(lane))),
        };
        let kept = blocks.iter().filter(|(sequence, _)| *sequence >= first);
        let mut found = kept.map(|(sequence, octets)| check(*sequence, octets)).find_map(Result::err);
        if is_end && next <= slot.scrub.last {
            found.get_or_insert_with(|| format!("block {next} of {} is gone", stream.name(lane)));
        }
        slot.scrub.next = next;
        if is_end {
            slot.scrub.turn();
        }
        if let Some(why) = found {
            self.damaged(now, stream, lane, why);
        }
    }
}

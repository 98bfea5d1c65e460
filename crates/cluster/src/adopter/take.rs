//! Taking a part over: its messages are read, stored in the own log and copied, and then recorded in the stream.

use super::{Adopter, Step, TAKING_MAX};
use crate::action::{Action, Purpose, Report};
use crate::block::BlockError;
use crate::identity::Lane;
use crate::record::{Accepted, Adopted, Record, StoredBody};
use crate::replica_log::LogOperation;
use crate::status::HostageReason;
use bytes::Bytes;
use mail::QueueId;
use std::collections::BTreeMap;
use std::time::Duration;

impl Adopter {
    pub(super) fn scanned(&mut self, now: Duration, blocks: Vec<(u64, Bytes)>, is_end: bool) {
        self.ask_at = now;
        match self.step {
            Step::Looking(next) => self.look_at_rest(now, next, blocks, is_end),
            // Its own fence is gone too.
            Step::Scanning { next: 1, .. } if is_end && blocks.is_empty() => self.lose_stream(now),
            Step::Scanning { next, fence } => {
                let mut after = next;
                for (sequence, octets) in blocks {
                    after = after.max(sequence + 1);
                    if self.content.lacks_blocks_before(sequence) {
                        self.note_missing_blocks(
                            "the engine lost some of the copies; they go on when their owner is back",
                        );
                    }
                    match self.content.read(&self.settings, self.stream, sequence, &octets) {
                        Err(BlockError::NewerVersion { version, .. }) => return self.stop_at_newer(now, version),
                        Err(error) => self.pass_over(sequence, error.to_string()),
                        Ok(()) => {}
                    }
                }
                if after > fence || is_end {
                    if self.content.finished_upto >= self.part.upto && !self.is_resumed {
                        self.release_open_part();
                    }
                    self.begin_firsts(now, fence);
                } else {
                    self.step = Step::Scanning { next: after, fence };
                }
            }
            Step::Taking { .. } if self.fetch.is_some() => self.pieces_read(blocks, is_end),
            Step::Taking { next, fence } => {
                let mut after = next;
                let mut is_whole = true;
                for (sequence, octets) in blocks {
                    // A compressed answer holds far more messages than octets say: the rest is asked for again.
                    if self.waiting.len() >= TAKING_MAX {
                        is_whole = false;
                        break;
                    }
                    after = after.max(sequence + 1);
                    if sequence <= self.part.upto {
                        self.take_block(sequence, &octets);
                    }
                }
                if is_end && is_whole {
                    after = after.max(fence + 1);
                }
                self.step = Step::Taking { next: after, fence };
            }
            _ => {}
        }
    }

    /// Reads a stream behind the end of its adoption, to learn whether mail was handed back.
    fn look_at_rest(&mut self, now: Duration, next: u64, blocks: Vec<(u64, Bytes)>, is_end: bool) {
        let mut after = next;
        for (sequence, octets) in blocks {
            after = after.max(sequence + 1);
            // Mail of a block that cannot be read waits for its owner.
            drop(self.content.read(&self.settings, self.stream, sequence, &octets));
        }
        if is_end {
            self.known_end = after.saturating_sub(1);
            self.handed_back = self.content.owner.filter(|_| self.content.has_rest());
            self.watch(now, self.settings.heartbeat);
        } else {
            self.step = Step::Looking(after);
            self.ask_scan(now, Lane::Messages, after);
        }
    }

    /// Leaves mail to a later version of the program.
    pub(super) fn stop_at_newer(&mut self, now: Duration, version: u16) {
        self.stopped = Some(HostageReason::NewerVersion { version });
        let why = "a later version of the program wrote it";
        self.outbox.push_back(Action::Report(Report::Hostage { stream: self.stream, why }));
        self.watch(now, self.settings.silence * 20);
    }

    fn pass_over(&mut self, sequence: u64, why: String) {
        self.lacks_blocks = true;
        let report = Report::BlockPassedOver { stream: self.stream, sequence, why };
        self.outbox.push_back(Action::Report(report));
    }

    /// Takes the messages of the present part that a block holds.
    fn take_block(&mut self, sequence: u64, octets: &Bytes) {
        let block = self.settings.read_block(self.stream, Lane::Messages, octets);
        let block = match block {
            Ok(block) => block,
            Err(error) => return self.pass_over(sequence, error.to_string()),
        };
        let is_wanted = |accepted: &Accepted| self.part.messages.get(&accepted.id) == Some(&sequence);
        // A message that its owner wrote twice has two records here. The body of the first one may be trimmed.
        let mut last = BTreeMap::new();
        for record in block.records {
            if let Record::Accept(accepted) = record
                && is_wanted(&accepted)
            {
                last.insert(accepted.id, accepted);
            }
        }
        for accepted in last.into_values() {
            match accepted.body {
                StoredBody::Whole(_) => self.take_message(accepted),
                StoredBody::Pieces(list) => self.large.push_back((accepted, list)),
            }
        }
    }

    fn take_message(&mut self, mut accepted: Accepted) {
        let id = accepted.id;
        let Some(live) = self.content.get(id) else { return };
        accepted.finished = live.finished.iter().copied().collect();
        let content = &self.content;
        let may_lack_ends = !content.is_released || content.is_damaged || content.is_handed_back;
        accepted.may_be_duplicate |= live.has_outlived_crash || may_lack_ends;
        accepted.hops = accepted.hops.saturating_add(1);
        if accepted.may_be_duplicate {
            self.outbox.push_back(Action::Report(Report::PossibleDuplicate { id }));
        }
        self.given.insert(id);
        self.waiting.insert(id);
        self.adopted.push(accepted);
    }

    fn pieces_read(&mut self, blocks: Vec<(u64, Bytes)>, is_end: bool) {
        let Some(mut fetch) = self.fetch.take() else { return };
        for (sequence, octets) in blocks {
            fetch.next = fetch.next.max(sequence + 1);
            let Ok(block) = self.settings.read_block(self.stream, Lane::Bodies, &octets) else { continue };
            for record in block.records {
                if let Record::Piece(piece) = record
                    && piece.body == fetch.list.body
                    && piece.number == fetch.pieces
                {
                    fetch.pieces += 1;
                    fetch.octets.extend_from_slice(&piece.octets);
                }
            }
        }
        if !is_end && fetch.next <= fetch.list.sequences.1 {
            self.fetch = Some(fetch);
            return;
        }
        let body = fetch.octets.freeze();
        if fetch.pieces == fetch.list.pieces && crc32c::crc32c(&body) == fetch.list.crc {
            self.take_message(Accepted { body: StoredBody::Whole(body), ..fetch.accepted });
        } else {
            let (id, sequence) = (fetch.accepted.id, fetch.list.sequences.0);
            self.pass_over(sequence, format!("the body of {id} is incomplete"));
        }
    }

    /// Records the part once all its messages are safe.
    pub(super) fn end_part(&mut self, fence: u64) {
        let Step::Taking { next, .. } = self.step else { return };
        let is_read = self.part.messages.values().all(|sequence| *sequence < next);
        if !is_read || !self.waiting.is_empty() || !self.adopted.is_empty() {
            return;
        }
        if self.fetch.is_some() || !self.large.is_empty() {
            return;
        }
        // Mail of a block that can be read no more, or is gone since the part was chosen, waits for its owner.
        let given = std::mem::take(&mut self.given);
        if self.part.messages.keys().any(|id| !given.contains(id)) {
            self.note_missing_blocks("the engine lost some of the copies; they go on when their owner is back");
            self.part.messages.retain(|id, _| given.contains(id));
        }
        let hops = |id: &QueueId| self.content.get(*id).map_or(0, |live| live.hops);
        let adopted = Adopted {
            epoch: self.writer.epoch(),
            by: self.settings.node,
            upto: self.part.upto,
            is_last: self.part.is_last,
            taken: self.part.messages.keys().map(|id| (*id, hops(id))).collect(),
        };
        self.writer.push(Record::Adopted(adopted), 0);
        self.step = Step::Marking { fence };
    }

    pub(super) fn part_recorded(&mut self, now: Duration) {
        let Step::Marking { fence } = self.step else { return };
        let part = std::mem::take(&mut self.part);
        (self.has_open_part, self.is_resumed) = (false, false);
        self.taken += part.messages.len();
        self.released.extend(part.messages.into_keys());
        self.content.finished_upto = self.content.finished_upto.max(part.upto);
        if !part.is_last {
            self.step = Step::Claiming { fence };
            self.ask_at = now;
            return;
        }
        let (stream, messages, is_handed_back) = (self.stream, self.taken, self.is_handing_back);
        self.handed_back = self.content.owner.filter(|_| is_handed_back && self.content.has_rest());
        self.known_end = self.writer.last_sequence();
        self.outbox.push_back(Action::Report(Report::AdoptionEnded { stream, messages, is_handed_back }));
        let upto = self.content.finished_upto.min(self.content.first_fence.saturating_sub(1));
        if upto > 0 {
            self.ask(Purpose::AdopterTrim(stream), 0, Lane::Messages, LogOperation::Trim { upto });
        }
        self.watch(now, self.settings.heartbeat);
    }
}

#[cfg(test)]
mod tests {
    use super::super::content::Part;
    use super::*;
    use crate::block::BlockHeader;
    use crate::identity::{ClusterId, Epoch, Incarnation, NodeId, StreamId};
    use crate::record::PieceList;
    use crate::settings::Settings;

    fn large(id: QueueId, body: u64) -> Record {
        let list = PieceList { body, pieces: 1, octets: 9, crc: 0, sequences: (body, body) };
        Record::Accept(Accepted {
            id,
            hops: 0,
            may_be_duplicate: false,
            queued_at_us: 1,
            expires_at_us: 2,
            recipients: 1,
            finished: Vec::new(),
            twin: None,
            envelope: Bytes::new(),
            body: StoredBody::Pieces(list),
        })
    }

    /// A block of node 1 with these records, and an adopter that has read it and takes its message.
    fn taking(settings: &Settings, id: QueueId, records: &[Record]) -> (Adopter, Bytes) {
        let stream = StreamId { owner: NodeId(1), holder: NodeId(2), generation: 0 };
        let header = BlockHeader {
            version: 1,
            cluster: settings.cluster,
            stream,
            lane: Lane::Messages,
            writer: NodeId(1),
            incarnation: Incarnation(5),
            epoch: Epoch(1),
            number: 1,
            local: (0, 0),
            previous_crc: 0,
            records: u32::try_from(records.len()).unwrap(),
        };
        let (octets, _) = header.write(records);
        let mut adopter = Adopter::new(Duration::ZERO, settings, stream);
        adopter.content.read(settings, stream, 1, &octets).unwrap();
        adopter.part = Part { upto: 1, is_last: true, messages: BTreeMap::from([(id, 1)]) };
        adopter.step = Step::Taking { next: 1, fence: 2 };
        (adopter, octets)
    }

    fn settings() -> Settings {
        Settings::new(ClusterId([7; 16]), NodeId(2), Incarnation(1), 1)
    }

    /// The first of its two bodies is passed over once it is trimmed, and its part would lack the message.
    #[test]
    fn a_message_that_is_twice_in_a_block_is_taken_by_its_last_record() {
        let id = QueueId::MIN;
        let (mut adopter, octets) = taking(&settings(), id, &[large(id, 3), large(id, 8)]);
        adopter.take_block(1, &octets);
        assert_eq!(adopter.large.iter().map(|(_, list)| list.body).collect::<Vec<_>>(), [8]);
    }

    /// Its owner drops what the record of the adoption lists.
    #[test]
    fn a_message_whose_block_is_lost_after_the_part_was_chosen_is_not_recorded_as_taken() {
        let id = QueueId::MIN;
        for lost in [vec![(1, Bytes::from_static(b"rotten"))], Vec::new()] {
            let (mut adopter, _) = taking(&settings(), id, &[large(id, 3)]);
            adopter.scanned(Duration::ZERO, lost, true);
            adopter.end_part(2);
            let recorded = adopter.writer.take_unsent();
            let [Record::Adopted(adopted)] = recorded.as_slice() else { panic!("{recorded:?}") };
            assert_eq!(adopted.taken, []);
            assert!(adopter.lacks_blocks, "the status names what waits for its owner");
        }
    }
}

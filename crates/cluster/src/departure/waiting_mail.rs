//! Mail that a dead node leaves behind, as the last blocks of the streams tell it.
//!
//! Each stream of a node that is gone ends with the record of a finished adoption, once another node could reach it:
//! adopters take streams without mail too. A stream that ends otherwise may have mail that no other node has. Besides
//! its own streams these are asked: streams of other absent owners that it holds, and adoptions that it began and left
//! open.

use crate::block::{Block, BlockError, BlockVersions};
use crate::claim::Claim;
use crate::coordination::KeyValue;
use crate::identity::{ClusterId, Lane, NodeId, StreamId};
use crate::record::Record;
use crate::replica_log::LogReply;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// Questions for the end of a stream before its holder counts as out of reach.
const TAIL_TRIES: u32 = 2;

/// Mail that has to do with a dead node and is with no other node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WaitingMail {
    /// Its stream.
    pub stream: StreamId,
    /// Live messages by the last heartbeat, if the end of the stream has one.
    pub messages: Option<u64>,
    /// The reason.
    pub why: WaitingReason,
}

/// The reason why mail is with no other node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WaitingReason {
    /// No node has begun to adopt it.
    NotAdopted,
    /// A node adopts it.
    UnderWay {
        /// The adopter.
        by: NodeId,
    },
    /// The dead node has begun to adopt a part of it, and no other one can end that.
    PartOpen,
    /// The holder's engine does not answer.
    HolderOutOfReach,
    /// The end of the stream is damaged or lost.
    Damaged,
    /// A later version of the program wrote it.
    NewerVersion {
        /// The version of its blocks.
        version: u16,
    },
}

/// A question about a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamQuestion {
    Tail(StreamId),
    Claim(StreamId),
}

/// Finds the mail that waits, one stream after the other.
#[derive(Debug)]
pub(super) struct WaitingMailSearch {
    cluster: ClusterId,
    node: NodeId,
    /// Nodes that run.
    live: BTreeSet<NodeId>,
    left: VecDeque<StreamId>,
    /// The newest generation of each pair of owner and holder.
    newest: BTreeMap<(NodeId, NodeId), u32>,
    tries: u32,
    /// The stream is under adoption by a node that is told by its claim; with its messages.
    claim_of: Option<(StreamId, Option<u64>)>,
    found: Vec<WaitingMail>,
}

impl WaitingMailSearch {
    /// Looks at these streams. `live` run; the holders in `empty` left with nothing on their engines.
    pub(super) fn new(
        (cluster, node): (ClusterId, NodeId),
        streams: &[StreamId],
        live: BTreeSet<NodeId>,
        empty: &BTreeSet<NodeId>,
    ) -> Self {
        let mut newest: BTreeMap<(NodeId, NodeId), u32> = BTreeMap::new();
        for stream in streams {
            let generation = newest.entry((stream.owner, stream.holder)).or_default();
            *generation = stream.generation.max(*generation);
        }
        let left = streams.iter().filter(|stream| !empty.contains(&stream.holder)).copied().collect();
        Self { cluster, node, live, left, newest, tries: 0, claim_of: None, found: Vec::new() }
    }

    /// The next question; `None` when all streams are known.
    pub(super) fn question(&self) -> Option<StreamQuestion> {
        match self.claim_of {
            Some((stream, _)) => Some(StreamQuestion::Claim(stream)),
            None => self.left.front().map(|stream| StreamQuestion::Tail(*stream)),
        }
    }

    /// The mail that was found.
    pub(super) fn found(&self) -> &[WaitingMail] {
        &self.found
    }

    /// Takes the last block of the stream that was asked for.
    pub(super) fn tail_read(&mut self, reply: &LogReply) {
        let Some(stream) = self.left.front().copied() else { return };
        self.tries += 1;
        let is_own = stream.owner == self.node;
        let is_held = stream.holder == self.node && !self.live.contains(&stream.owner);
        let why = match reply {
            LogReply::NoStream | LogReply::Tail { sequence: 0, .. } => None,
            LogReply::Tail { block: Some(octets), .. } => match self.read(stream, octets) {
                Ok(block) if block.ends_adoption() => None,
                Ok(block) => {
                    let by = block.header.writer;
                    let is_of_adopter = by != stream.owner || block.is_of_adoption();
                    let messages = live_messages(&block);
                    if is_of_adopter && !is_own {
                        // Its part may be one that only the dead node can end.
                        self.claim_of = Some((stream, messages));
                        return;
                    }
                    let why = if is_of_adopter { WaitingReason::UnderWay { by } } else { WaitingReason::NotAdopted };
                    Some((messages, why))
                }
                Err(BlockError::NewerVersion { version, .. }) => Some((None, WaitingReason::NewerVersion { version })),
                Err(_) => Some((None, WaitingReason::Damaged)),
            },
            LogReply::Tail { block: None, .. } => Some((None, WaitingReason::Damaged)),
            _ if self.tries < TAIL_TRIES => return,
            _ => Some((None, WaitingReason::HolderOutOfReach)),
        };
        // An earlier generation was lost, and its mail copied anew: its end counts only if it can be read.
        let is_newest = self.newest.get(&(stream.owner, stream.holder)) == Some(&stream.generation);
        let is_lost = |why| matches!(why, WaitingReason::HolderOutOfReach | WaitingReason::Damaged);
        let why = why.filter(|(_, why)| (is_own || is_held) && (is_newest || !is_lost(*why)));
        self.ends(stream, why);
    }

    /// Takes the claim of the stream that was asked for.
    pub(super) fn claim_read(&mut self, found: Option<&KeyValue>) {
        let Some((stream, messages)) = self.claim_of.take() else { return };
        let is_held = stream.holder == self.node && !self.live.contains(&stream.owner);
        let claim = found.and_then(|found| Claim::read(&found.value)).unwrap_or_default();
        let why = match claim.adopter {
            Some(adopter) if adopter == self.node => Some(WaitingReason::PartOpen),
            Some(by) if is_held => Some(WaitingReason::UnderWay { by }),
            None if is_held => Some(WaitingReason::NotAdopted),
            _ => None,
        };
        self.ends(stream, why.map(|why| (messages, why)));
    }

    fn ends(&mut self, stream: StreamId, why: Option<(Option<u64>, WaitingReason)>) {
        self.left.pop_front();
        self.tries = 0;
        let waiting = why.map(|(messages, why)| WaitingMail { stream, messages, why });
        // Mail that a heartbeat says is none needs no adoption.
        self.found.extend(waiting.filter(|waiting| waiting.messages != Some(0)));
    }

    fn read(&self, stream: StreamId, octets: &bytes::Bytes) -> Result<Block, BlockError> {
        Block::read_of_versions(self.cluster, BlockVersions::default(), stream, Lane::Messages, octets)
    }
}

/// Live messages by the last heartbeat of a block of the owner.
fn live_messages(block: &Block) -> Option<u64> {
    let live = |record: &Record| if let Record::Heartbeat { live } = record { Some(*live) } else { None };
    block.records.iter().filter_map(live).last()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::block::{BLOCK_VERSION, BlockHeader};
    use crate::identity::{Epoch, Incarnation};
    use crate::record::{Adopted, Fence};

    const CLUSTER: ClusterId = ClusterId([7; 16]);
    const DEAD: NodeId = NodeId(3);

    fn stream(owner: u16, holder: u16) -> StreamId {
        StreamId { owner: NodeId(owner), holder: NodeId(holder), generation: 0 }
    }

    fn tail(stream: StreamId, writer: u16, records: &[Record]) -> LogReply {
        let header = BlockHeader {
            version: BLOCK_VERSION,
            cluster: CLUSTER,
            stream,
            lane: Lane::Messages,
            writer: NodeId(writer),
            incarnation: Incarnation(1),
            epoch: Epoch(2),
            number: 9,
            local: (0, 0),
            previous_crc: 0,
            records: u32::try_from(records.len()).unwrap(),
        };
        LogReply::Tail { sequence: 9, block: Some(header.write(records).0) }
    }

    fn adopted(by: u16, is_last: bool) -> Record {
        Record::Adopted(Adopted { epoch: Epoch(2), by: NodeId(by), upto: 8, is_last, taken: Vec::new() })
    }

    fn fence(by: u16) -> Record {
        Record::Fence(Fence { epoch: Epoch(2), by: NodeId(by), is_adoption: true })
    }

    /// The mail that waits in one stream whose end is this, of a cluster in which nodes 1 and 2 run.
    fn waits(stream: StreamId, reply: &LogReply, adopter: Option<u16>) -> Vec<(Option<u64>, WaitingReason)> {
        let live = [NodeId(1), NodeId(2)].into();
        let mut search = WaitingMailSearch::new((CLUSTER, DEAD), &[stream], live, &BTreeSet::new());
        for _ in 0..4 {
            match search.question() {
                Some(StreamQuestion::Tail(asked)) => {
                    assert_eq!(asked, stream);
                    search.tail_read(reply);
                }
                Some(StreamQuestion::Claim(asked)) => {
                    assert_eq!(asked, stream);
                    let claim = Claim { adopter: adopter.map(NodeId), adopted_upto: 5, ..Claim::default() };
                    let key = stream.claim_key();
                    search.claim_read(Some(&KeyValue { key, value: claim.write(), revision: 1 }));
                }
                None => return search.found().iter().map(|one| (one.messages, one.why)).collect(),
            }
        }
        panic!("it does not end: {search:?}");
    }

    #[test]
    fn own_mail_waits_until_an_adoption_has_ended() {
        let own = stream(3, 1);
        let heartbeat = |live| tail(own, 3, &[Record::Heartbeat { live }]);
        assert_eq!(waits(own, &heartbeat(5), None), [(Some(5), WaitingReason::NotAdopted)]);
        assert_eq!(waits(own, &heartbeat(0), None), [], "no mail needs no adopter");
        assert_eq!(waits(own, &tail(own, 3, &[Record::Release]), None), [(None, WaitingReason::NotAdopted)]);
        let under_way = [(None, WaitingReason::UnderWay { by: NodeId(1) })];
        assert_eq!(waits(own, &tail(own, 1, &[fence(1)]), None), under_way);
        assert_eq!(waits(own, &tail(own, 1, &[adopted(1, false)]), None), under_way);
        assert_eq!(waits(own, &tail(own, 1, &[adopted(1, true)]), None), []);
        assert_eq!(waits(own, &LogReply::Tail { sequence: 0, block: None }, None), []);
        assert_eq!(waits(own, &LogReply::NoStream, None), []);
    }

    #[test]
    fn ends_that_cannot_be_read_are_named() {
        let own = stream(3, 1);
        assert_eq!(waits(own, &LogReply::Unknown, None), [(None, WaitingReason::HolderOutOfReach)]);
        assert_eq!(waits(own, &LogReply::Tail { sequence: 4, block: None }, None), [(None, WaitingReason::Damaged)]);
        let foreign = tail(stream(2, 1), 2, &[Record::Release]);
        assert_eq!(waits(own, &foreign, None), [(None, WaitingReason::Damaged)]);
    }

    #[test]
    fn mail_of_others_waits_at_its_engine_and_in_its_open_parts() {
        // Node 4 is dead too, and node 3 has its copies.
        let held = stream(4, 3);
        let heartbeat = tail(held, 4, &[Record::Heartbeat { live: 2 }]);
        assert_eq!(waits(held, &heartbeat, None), [(Some(2), WaitingReason::NotAdopted)]);
        assert_eq!(waits(held, &LogReply::Unknown, None), [(None, WaitingReason::HolderOutOfReach)]);
        let under_way = [(None, WaitingReason::UnderWay { by: NodeId(1) })];
        assert_eq!(waits(held, &tail(held, 1, &[fence(1)]), Some(1)), under_way);
        // An owner that runs copies its mail elsewhere.
        let of_live = stream(1, 3);
        assert_eq!(waits(of_live, &tail(of_live, 1, &[Record::Heartbeat { live: 2 }]), None), []);
        assert_eq!(waits(of_live, &LogReply::Unknown, None), []);
        // A part of node 4 that node 3 began to adopt.
        let open = stream(4, 1);
        assert_eq!(waits(open, &tail(open, 3, &[fence(3)]), Some(3)), [(None, WaitingReason::PartOpen)]);
        assert_eq!(waits(open, &tail(open, 1, &[fence(1)]), Some(3)), [(None, WaitingReason::PartOpen)]);
        assert_eq!(waits(open, &tail(open, 1, &[fence(1)]), Some(1)), []);
        assert_eq!(waits(open, &tail(open, 3, &[adopted(3, true)]), Some(3)), []);
    }

    #[test]
    fn lost_generations_and_holders_that_left_empty_have_no_mail() {
        let earlier = stream(3, 1);
        let newest = StreamId { generation: 1, ..earlier };
        let at_empty = stream(3, 5);
        let empty = [NodeId(5)].into();
        let mut search = WaitingMailSearch::new((CLUSTER, DEAD), &[earlier, newest, at_empty], BTreeSet::new(), &empty);
        let mut asked = BTreeSet::new();
        while let Some(StreamQuestion::Tail(one)) = search.question() {
            asked.insert(one);
            search.tail_read(&LogReply::Unknown);
        }
        assert_eq!(asked, [earlier, newest].into());
        let out_of_reach = WaitingMail { stream: newest, messages: None, why: WaitingReason::HolderOutOfReach };
        assert_eq!(search.found(), [out_of_reach]);
    }
}

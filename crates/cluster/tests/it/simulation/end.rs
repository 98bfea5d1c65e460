//! Checks of a run while it goes on and at its end.

use super::local_log::State;
use super::world::{CLUSTER, World};
use bytes::Bytes;
use cluster::{Block, Chain, Claim, CoordinationReply, CoordinationRequest, Lane, NodeId, Record, StreamId};
use mail::QueueId;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

impl World {
    /// The versions of the last blocks of all streams.
    pub(super) fn versions(&self) -> BTreeSet<u16> {
        let mut versions = BTreeSet::new();
        for ((stream, lane), store) in self.engines.iter().flat_map(|engine| &engine.lanes) {
            let last = store.blocks.values().last().filter(|_| *lane == Lane::Messages);
            let block = last.map(|octets| Block::read_of(CLUSTER, *stream, *lane, octets));
            versions.extend(block.into_iter().flatten().map(|block| block.header.version));
        }
        versions
    }

    /// The state of a node that runs.
    pub(super) fn status(&self, node: usize) -> Option<cluster::ClusterStatus> {
        Some(self.machines[node].node.as_ref()?.status(self.local(node)))
    }

    /// The live messages in the log of a machine.
    pub(super) fn live(&self, node: usize) -> BTreeSet<QueueId> {
        self.machines[node].log.live().into_iter().map(|message| message.id).collect()
    }

    /// The live messages of a node that runs, by the number of their stored copies.
    pub(super) fn by_copies(&self, node: usize) -> BTreeMap<usize, BTreeSet<QueueId>> {
        let process = self.machines[node].node.as_ref().unwrap();
        let mut of: BTreeMap<usize, BTreeSet<QueueId>> = BTreeMap::new();
        for id in self.live(node) {
            of.entry(process.copies(id)).or_default().insert(id);
        }
        of
    }

    /// Those of some messages that are neither delivered nor at another machine than these.
    pub(super) fn waiting(&self, ids: &BTreeSet<QueueId>, gone: &[usize]) -> Vec<QueueId> {
        let others = (0..self.plan.nodes).filter(|node| !gone.contains(node));
        let elsewhere: BTreeSet<QueueId> = others.flat_map(|node| self.live(node)).collect();
        ids.difference(&elsewhere).filter(|id| !self.history.is_over(**id)).copied().collect()
    }

    /// Each block must follow the one before it, in number, checksum and epoch.
    pub(super) fn check_chain(&mut self, engine: usize, stream: StreamId, lane: Lane, sequence: u64) {
        let store = &self.engines[engine].lanes[&(stream, lane)];
        let mut chain = Chain::default();
        let is_whole = |at: &u64| !self.damaged.contains(&(stream, lane, *at));
        let blocks = store.blocks.range(sequence.saturating_sub(1)..=sequence).filter(|(at, _)| is_whole(at));
        for (_, octets) in blocks {
            let checked = Block::read_of(CLUSTER, stream, lane, octets).and_then(|block| chain.follow(&block));
            if let Err(error) = checked {
                return self.history.violate(error.to_string());
            }
        }
    }

    /// Notes messages and ends of a block that an engine has stored.
    pub(super) fn note_copies(&mut self, engine: usize, stream: StreamId, lane: Lane, sequence: u64) {
        let octets = self.engines[engine].lanes.get(&(stream, lane)).and_then(|store| store.blocks.get(&sequence));
        let block = octets.map(|octets| Block::read_of(CLUSTER, stream, lane, octets));
        for record in block.into_iter().flatten().flat_map(|block| block.records) {
            match record {
                Record::Accept(accepted) => {
                    let copy = (stream, accepted.twin.map(|twin| twin.stream));
                    self.history.copied.entry(accepted.id).or_default().insert(copy);
                }
                Record::Done(list) => {
                    let ends = list.iter().filter_map(|one| Some((one.id, one.recipient?)));
                    self.history.done.extend(ends);
                }
                _ => {}
            }
        }
    }

    pub(super) fn check_end(&mut self) -> Result<(), String> {
        let mut problems = Vec::new();
        for node in 0..self.plan.nodes {
            let now = self.local(node);
            let machine = &self.machines[node];
            let Some(process) = &machine.node else {
                problems.push(format!("mx{node} does not run"));
                continue;
            };
            let counts = process.counts(now);
            if counts.messages > 0 || counts.unreplicated > 0 || counts.waiting_for_stream > 0 {
                problems.push(format!("mx{node} has {counts:?}"));
            }
            let status = process.status(now);
            let is_calm =
                status.adopted_waiting == 0 && status.at_gone_holders.is_empty() && status.hostages.is_empty();
            let is_behind = |stream: &cluster::StreamStatus| stream.lag.is_some_and(|lag| lag > Duration::from_secs(5));
            if !is_calm || status.streams.iter().any(is_behind) {
                problems.push(format!("mx{node} has {status:?}"));
            }
            if process.adoptions() > 0 {
                problems.push(format!("mx{node} still adopts"));
            }
            if let Some(refusal) = process.refusal() {
                problems.push(format!("mx{node} refuses: {refusal}"));
            }
        }
        let newest =
            |stream: &StreamId| !self.streams.contains(&StreamId { generation: stream.generation + 1, ..*stream });
        for (number, engine) in self.engines.iter().enumerate() {
            for ((stream, lane), store) in engine.lanes.iter().filter(|((stream, _), _)| newest(stream)) {
                let is_sound = |octets: &Bytes| Block::read_of(CLUSTER, *stream, *lane, octets).is_ok();
                if *lane == Lane::Messages && !store.blocks.values().all(is_sound) {
                    problems.push(format!("engine {number} keeps a damaged block of {stream}"));
                }
                if store.blocks.len() > 6 {
                    problems.push(format!("engine {number} keeps {} blocks of {stream} {lane:?}", store.blocks.len()));
                }
            }
        }
        problems.extend(self.history.problems());
        if problems.is_empty() { Ok(()) } else { Err(problems.join("\n")) }
    }

    /// Messages of a machine whose loss with its disk is not the cluster's fault: no copy of them is known, or the only
    /// one counts no more, since the machine is taking its mail back to copy it elsewhere.
    pub(super) fn excuse_unreplicated(&mut self, node: usize) {
        let (adoptable, moved) = self.adoptable(node);
        let machine = &self.machines[node];
        let Some(process) = &machine.node else { return };
        for (id, entry) in &machine.log.entries {
            let counting = process.copies(*id).saturating_sub(usize::from(moved.contains(id)));
            if entry.state == State::Live && counting == 0 && !adoptable.contains(id) {
                self.history.excused.insert(*id);
            }
        }
    }

    /// Messages with a single copy that adopters take, whether its owner knows of it or not; and those with one that
    /// they pass over, since the claim says that its owner has them back, and the owner does not know it yet.
    fn adoptable(&mut self, node: usize) -> (BTreeSet<QueueId>, BTreeSet<QueueId>) {
        let owner = NodeId(node as u16 + 1);
        let (mut adoptable, mut moved) = (BTreeSet::new(), BTreeSet::new());
        let mut records: BTreeMap<QueueId, usize> = BTreeMap::new();
        let streams = self.status(node).map(|status| status.streams).unwrap_or_default();
        let is_away = |stream: &StreamId| {
            streams.iter().any(|one| one.stream == *stream && one.state == cluster::StreamState::Stalled)
        };
        for ((stream, lane), store) in self.engines.iter().flat_map(|engine| &engine.lanes) {
            if stream.owner != owner || *lane != Lane::Messages {
                continue;
            }
            let claim = match self.store.perform(self.now, CoordinationRequest::Get { key: stream.claim_key() }) {
                CoordinationReply::Found(Some(kv)) => Claim::read(&kv.value).unwrap_or_default(),
                _ => Claim::default(),
            };
            let mut live = BTreeMap::new();
            for (sequence, octets) in &store.blocks {
                let Ok(block) = Block::read_of(CLUSTER, *stream, *lane, octets) else { continue };
                let is_moved = claim.is_moved(block.header.incarnation, block.header.epoch);
                for record in block.records {
                    match record {
                        Record::Accept(one) if one.twin.is_none() => {
                            live.insert(one.id, (*sequence, is_moved));
                        }
                        Record::Accept(one) => drop(live.remove(&one.id)),
                        Record::Adopted(adopted) => live.retain(|_, (sequence, _)| *sequence > adopted.upto),
                        _ => {}
                    }
                }
            }
            for (id, (_, is_moved)) in live {
                *records.entry(id).or_default() += 1;
                if !is_moved {
                    adoptable.insert(id);
                } else if is_away(stream) {
                    moved.insert(id);
                }
            }
        }
        moved.retain(|id| records[id] == 1);
        (adoptable, moved)
    }
}

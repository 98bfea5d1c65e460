//! The engine in memory: streams that lie on one server each, and a key-value store that needs a majority.

use bytes::Bytes;
use cluster::{CoordinationReply, CoordinationRequest, KeyValue, Lane, LogOperation, LogReply, StreamId};
use std::collections::BTreeMap;

/// One lane of a stream.
#[derive(Clone, Debug, Default)]
pub(super) struct LaneStore {
    pub(super) blocks: BTreeMap<u64, Bytes>,
    pub(super) last: u64,
}

/// The streams of one server.
#[derive(Clone, Debug, Default)]
pub(super) struct EngineServer {
    pub(super) lanes: BTreeMap<(StreamId, Lane), LaneStore>,
    /// The streams that a power cut leaves; kept only when the server does not sync before its answers.
    pub(super) synced: BTreeMap<(StreamId, Lane), LaneStore>,
    pub(super) is_up: bool,
    pub(super) is_full: bool,
    pub(super) is_slow: bool,
}

impl EngineServer {
    pub(super) fn perform(&mut self, stream: StreamId, lane: Lane, operation: LogOperation) -> LogReply {
        if operation == LogOperation::Create {
            self.lanes.entry((stream, lane)).or_default();
            return LogReply::Created;
        }
        let is_full = self.is_full;
        let Some(store) = self.lanes.get_mut(&(stream, lane)) else { return LogReply::NoStream };
        match operation {
            LogOperation::Create => LogReply::Created,
            LogOperation::Append { expected_last, .. } if expected_last != store.last => LogReply::WrongLast,
            LogOperation::Append { .. } if is_full => LogReply::Full,
            LogOperation::Append { block, .. } => {
                store.last += 1;
                store.blocks.insert(store.last, block);
                LogReply::Appended { sequence: store.last }
            }
            LogOperation::Tail => {
                LogReply::Tail { sequence: store.last, block: store.blocks.get(&store.last).cloned() }
            }
            LogOperation::Scan { from, octets_max } => {
                let (mut blocks, mut octets) = (Vec::new(), 0);
                for (sequence, block) in store.blocks.range(from..) {
                    if !blocks.is_empty() && octets + block.len() > octets_max {
                        return LogReply::Scanned { blocks, is_end: false };
                    }
                    octets += block.len();
                    blocks.push((*sequence, block.clone()));
                }
                LogReply::Scanned { blocks, is_end: true }
            }
            LogOperation::Trim { upto } => {
                let last = store.last;
                store.blocks.retain(|sequence, _| *sequence > upto || *sequence == last);
                LogReply::Trimmed
            }
        }
    }

    pub(super) fn sync(&mut self) {
        self.synced = self.lanes.clone();
    }

    pub(super) fn lose_unsynced(&mut self) {
        self.lanes = self.synced.clone();
    }

    /// Loses all blocks. The engine may make the streams anew, as it does from its replicated list of streams.
    pub(super) fn lose_all(&mut self, keeps_names: bool) {
        if keeps_names {
            self.lanes.values_mut().for_each(|lane| *lane = LaneStore::default());
        } else {
            self.lanes.clear();
        }
        self.synced.clear();
    }
}

/// The key-value store.
#[derive(Debug, Default)]
pub(crate) struct KeyValueStore {
    keys: BTreeMap<String, (Bytes, u64, Option<u64>)>,
    revision: u64,
    /// The most claims of a list; with more it gives none.
    claims_max: Option<usize>,
    /// Questions so far, by key.
    pub(super) asked: BTreeMap<String, usize>,
}

impl KeyValueStore {
    /// A store that lists no more claims than this at a time.
    pub(super) fn with_claims_max(claims_max: Option<usize>) -> Self {
        Self { claims_max, ..Self::default() }
    }

    /// Carries out a request at this time, in microseconds.
    pub(crate) fn perform(&mut self, now: u64, request: CoordinationRequest) -> CoordinationReply {
        self.keys.retain(|_, (_, _, until)| until.is_none_or(|until| now < until));
        let found = |key: &str, entry: &(Bytes, u64, Option<u64>)| KeyValue {
            key: key.to_owned(),
            value: entry.0.clone(),
            revision: entry.1,
        };
        match request {
            CoordinationRequest::Get { key } => {
                *self.asked.entry(key.clone()).or_default() += 1;
                CoordinationReply::Found(self.keys.get(&key).map(|entry| found(&key, entry)))
            }
            CoordinationRequest::List { prefix } => {
                let of_prefix = self.keys.iter().filter(|(key, _)| key.starts_with(&prefix));
                let listed: Vec<KeyValue> = of_prefix.map(|(key, entry)| found(key, entry)).collect();
                match self.claims_max.filter(|_| prefix.starts_with("claim/")) {
                    Some(most) if listed.len() > most => CoordinationReply::Unknown,
                    _ => CoordinationReply::Listed(listed),
                }
            }
            CoordinationRequest::Put { key, value, expected, ttl } => {
                if self.keys.get(&key).map_or(0, |entry| entry.1) != expected {
                    return CoordinationReply::Conflict;
                }
                self.revision += 1;
                let until = ttl.map(|ttl| now + ttl.as_micros() as u64);
                self.keys.insert(key, (value, self.revision, until));
                CoordinationReply::Written { revision: self.revision }
            }
            CoordinationRequest::Delete { key, expected } => {
                if self.keys.get(&key).map(|entry| entry.1) != Some(expected) {
                    return CoordinationReply::Conflict;
                }
                self.keys.remove(&key);
                self.revision += 1;
                CoordinationReply::Written { revision: self.revision }
            }
        }
    }
}

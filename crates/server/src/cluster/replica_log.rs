//! The log of shadow streams: carries out a `cluster::LogRequest` on streams of JetStream.
//!
//! A lane is a stream with one replica on the server that has the holder's tag (`node:7`). Appends, tails and scans are
//! served by that server alone, without the majority of the cluster; making a lane needs the majority.
//!
//! Reads are *direct*: the stream itself answers them. With one replica that is the server that decides about appends.
//! The other way to read asks the leader of all servers first, and without a majority a writer could not find out where
//! its stream ends.

use super::api::{self, CallError, Direct};
use super::connection::Engine;
use super::direct_engines::DirectEngines;
use super::error::EngineAccessError;
use async_nats::HeaderMap;
use bytes::Bytes;
use cluster::{BLOCK_BYTES_SHRINKING_MAX, Lane, LogOperation, LogReply, LogRequest, NodeId, StreamId};
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Octets of a block and of the headers that the engine stores with it, at most.
const BLOCK_OCTETS_MAX: usize = BLOCK_BYTES_SHRINKING_MAX + 4_096;
/// Blocks of one scan.
const SCAN_BLOCKS_MAX: usize = 1_024;
/// Streams that are listed, all pages together: 64 nodes with a few generations each.
const STREAMS_MAX: usize = 65_536;
/// Pause before another look for a lane that was just made.
const LOOK_AGAIN_AFTER: Duration = Duration::from_millis(5);

/// The log of the engines. Clones share the connection.
#[derive(Clone, Debug)]
pub struct ReplicaLog {
    /// The connection to the engine of this node.
    engine: Engine,
    direct: Arc<DirectEngines>,
    lane_octets_max: Option<u64>,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LogAnswer {
    /// For the machine.
    pub reply: LogReply,
    /// The engine's reason, where it gave one that a person should see.
    pub problem: Option<String>,
}

impl From<LogReply> for LogAnswer {
    fn from(reply: LogReply) -> Self {
        Self { reply, problem: None }
    }
}

/// The state of a stream that no block shows.
struct LaneState {
    last: u64,
}

impl ReplicaLog {
    /// A log on this connection. `lane_octets_max`: see [`super::EngineSettings::lane_octets_max`].
    #[must_use]
    pub fn new(engine: Engine, lane_octets_max: Option<u64>) -> Self {
        Self { engine, direct: Arc::default(), lane_octets_max }
    }

    /// The same log, which sends blocks to the servers that store them by these connections, and reads there.
    pub(super) fn with_direct(self, direct: Arc<DirectEngines>) -> Self {
        Self { direct, ..self }
    }

    /// Carries out a request, once.
    ///
    /// It ends within [`super::EngineSettings::request_time_max`], with [`LogReply::Unknown`] if there is no answer;
    /// within twice that time when no server serves the lane, as the list of streams is asked for then. An append
    /// without an answer may be stored later: the machine reads the tail.
    /// # Cancel safety
    /// The request may be carried out all the same.
    pub async fn carry_out(&self, request: &LogRequest) -> LogAnswer {
        let (stream, lane) = (request.stream, request.lane);
        let limit = self.engine.request_time_max();
        let way = match request.operation {
            LogOperation::Create | LogOperation::Trim { .. } => None,
            _ => self.direct.way(&self.engine, stream, lane),
        };
        let engine = way.as_ref().map_or(&self.engine, |way| &way.engine);
        let work = async {
            match &request.operation {
                LogOperation::Create => self.create(stream, lane).await,
                LogOperation::Append { expected_last, block } => {
                    append(engine, stream, lane, *expected_last, block.clone()).await
                }
                LogOperation::Tail => self.tail(engine, stream, lane).await,
                LogOperation::Scan { from, octets_max } => self.scan(engine, stream, lane, *from, *octets_max).await,
                LogOperation::Trim { upto } => self.trim(stream, lane, *upto).await,
            }
        };
        let name = stream.name(lane);
        let done = tokio::time::timeout(limit, work).await;
        if let (Some(way), Err(_) | Ok(Err(CallError::Unknown | CallError::NotHeard))) = (&way, &done) {
            self.direct.failed(way, stream, lane);
        }
        match done {
            Ok(Ok(reply)) => reply.into(),
            Ok(Err(error)) => {
                let reply =
                    if self.is_missing(&error, stream, lane).await { LogReply::NoStream } else { LogReply::Unknown };
                let is_told = reply != LogReply::NoStream;
                LogAnswer { reply, problem: error.problem(&name).filter(|_| is_told) }
            }
            Err(_) => LogReply::Unknown.into(),
        }
    }

    /// Lists all streams that the cluster of engines has, for `Node::known_streams`.
    ///
    /// # Errors
    /// `Request`: without a majority there is no list. The earlier one stays valid.
    /// # Cancel safety
    /// Yes.
    pub async fn streams(&self) -> Result<Vec<StreamId>, EngineAccessError> {
        let list = self.names("MRS.>");
        let names = tokio::time::timeout(self.engine.request_time_max(), list).await.unwrap_or(Err(CallError::Unknown));
        let names = names.map_err(|error| error.of("list of streams"))?;
        let streams: BTreeSet<StreamId> =
            names.iter().filter_map(|name| StreamId::parse(name)).map(|(stream, _)| stream).collect();
        Ok(streams.into_iter().collect())
    }

    async fn create(&self, stream: StreamId, lane: Lane) -> Result<LogReply, CallError> {
        let name = stream.name(lane);
        let config = lane_config(stream, lane, self.lane_octets_max);
        match api::call(&self.engine, &format!("STREAM.CREATE.{name}"), &config).await {
            Ok(_) => {}
            // Another limit of octets, or a field that a later version has: the promises count.
            Err(error) if error.is(api::STREAM_NAME_IN_USE) => {
                let found = api::call(&self.engine, &format!("STREAM.INFO.{name}"), &Value::Null).await?;
                if let Some(field) = broken_promise(&found, &config) {
                    return Err(CallError::Fault(format!(
                        "another program changed \"{field}\" of this stream; set it back to {}",
                        config.get(field).unwrap_or(&Value::Null)
                    )));
                }
            }
            Err(error) if is_full(&error) => return Ok(LogReply::Full),
            Err(error) => return Err(error),
        }
        // The other servers hear of a new lane a moment after its holder; the first append need not wait for that.
        while last_block(&self.engine, stream, lane).await == Err(CallError::NotHeard) {
            tokio::time::sleep(LOOK_AGAIN_AFTER).await;
        }
        Ok(LogReply::Created)
    }

    async fn tail(&self, engine: &Engine, stream: StreamId, lane: Lane) -> Result<LogReply, CallError> {
        let mut found = last_block(engine, stream, lane).await?;
        let end = self.state(stream, lane).await?.last;
        if found.as_ref().map_or(0, |(sequence, _)| *sequence) < end {
            // A block has come meanwhile, or is lost.
            found = last_block(engine, stream, lane).await?;
        }
        let (sequence, block) = found.map_or((0, None), |(sequence, block)| (sequence, Some(block)));
        // The engine counts on from blocks that it has lost, and stores nothing behind the last one that is left.
        Ok(if sequence < end {
            LogReply::Tail { sequence: end, block: None }
        } else {
            LogReply::Tail { sequence, block }
        })
    }

    async fn scan(
        &self,
        engine: &Engine,
        stream: StreamId,
        lane: Lane,
        from: u64,
        most: usize,
    ) -> Result<LogReply, CallError> {
        let from = from.max(1);
        // The engine stops behind the block that reaches the limit; so that block must still fit.
        let octets = most.saturating_sub(BLOCK_OCTETS_MAX).max(1);
        let question = json!({ "seq": from, "batch": SCAN_BLOCKS_MAX, "max_bytes": octets }).to_string();
        let mut answers = engine.request_many(direct_subject(stream, lane), question.into()).await?;
        let (mut blocks, mut last): (Vec<(u64, Bytes)>, u64) = (Vec::new(), 0);
        while let Some(message) = answers.next().await {
            match api::direct(message)? {
                Direct::Message(message) => {
                    let sequence = api::number(&message, api::SEQUENCE).ok_or(CallError::Unknown)?;
                    // Each message names the one before: a dropped one must not pass for a trimmed one.
                    if sequence < from || api::number(&message, api::LAST_SEQUENCE) != Some(last) {
                        return Err(CallError::Unknown);
                    }
                    last = sequence;
                    blocks.push((sequence, message.payload));
                }
                Direct::End { last: end, .. } if end != last => return Err(CallError::Unknown),
                Direct::End { pending, .. } => return Ok(LogReply::Scanned { blocks, is_end: pending == 0 }),
                Direct::NotFound => return self.scan_of_nothing(stream, lane, from).await,
            }
        }
        Err(CallError::Unknown)
    }

    /// Decides whether a scan without blocks reached the end, or a block that the engine cannot read.
    async fn scan_of_nothing(&self, stream: StreamId, lane: Lane, from: u64) -> Result<LogReply, CallError> {
        let last = self.state(stream, lane).await?.last;
        if last < from {
            return Ok(LogReply::Scanned { blocks: Vec::new(), is_end: true });
        }
        Err(CallError::Fault(format!(
            "blocks {from} to {last} are there and cannot be read; look for errors of its store in the log of \
             nats-server at {}",
            stream.holder
        )))
    }

    async fn trim(&self, stream: StreamId, lane: Lane, upto: u64) -> Result<LogReply, CallError> {
        // The last sequence only rises, so the block that is last now is kept also when others follow.
        let last = self.state(stream, lane).await?.last;
        let keep_from = upto.saturating_add(1).min(last);
        if keep_from > 1 {
            let body = json!({ "seq": keep_from });
            api::call(&self.engine, &format!("STREAM.PURGE.{}", stream.name(lane)), &body).await?;
        }
        Ok(LogReply::Trimmed)
    }

    async fn state(&self, stream: StreamId, lane: Lane) -> Result<LaneState, CallError> {
        let operation = format!("STREAM.INFO.{}", stream.name(lane));
        let info = api::call(&self.engine, &operation, &Value::Null).await?;
        let last = info.pointer("/state/last_seq").and_then(Value::as_u64);
        last.map(|last| LaneState { last }).ok_or_else(|| CallError::Unreadable(info.to_string()))
    }

    /// True when the engines know of no such lane.
    ///
    /// Silence proves nothing, since the holder may be down, nor does "not found", which a holder may also say while it
    /// starts. The list of all streams comes from the leader of the servers, which knows them without the holder. One
    /// that has lost its majority answers for 20 s more and lacks what was made meanwhile: the owner of a lane that
    /// is wrongly missing writes its claim, for which it needs the majority, and copies its mail anew.
    async fn is_missing(&self, error: &CallError, stream: StreamId, lane: Lane) -> bool {
        if *error != CallError::NotHeard && !error.is(api::STREAM_NOT_FOUND) {
            return false;
        }
        let subject = subject(stream, lane);
        let names = tokio::time::timeout(self.engine.request_time_max(), self.names(&subject)).await;
        matches!(names, Ok(Ok(names)) if !names.contains(&stream.name(lane)))
    }

    /// Names of the streams with such subjects.
    async fn names(&self, subject: &str) -> Result<BTreeSet<String>, CallError> {
        let mut names = BTreeSet::new();
        loop {
            let body = json!({ "subject": subject, "offset": names.len() });
            let page = api::call(&self.engine, "STREAM.NAMES", &body).await?;
            let total = page.get("total").and_then(Value::as_u64);
            let total = total.ok_or_else(|| CallError::Unreadable(page.to_string()))?;
            // An account without streams has `null`.
            let listed = page.get("streams").and_then(Value::as_array).map_or(&[][..], Vec::as_slice);
            let before = names.len();
            names.extend(listed.iter().filter_map(Value::as_str).map(str::to_owned));
            if names.len() >= usize::try_from(total).unwrap_or(usize::MAX) {
                return Ok(names);
            }
            if names.len() == before || names.len() > STREAMS_MAX {
                return Err(CallError::Unreadable(format!("a list of {total} streams ends after {before}")));
            }
        }
    }
}

async fn append(
    engine: &Engine,
    stream: StreamId,
    lane: Lane,
    expected: u64,
    block: Bytes,
) -> Result<LogReply, CallError> {
    let mut headers = HeaderMap::new();
    headers.insert(api::EXPECTED_LAST, expected.to_string());
    match api::publish(engine, &stream.name(lane), subject(stream, lane), headers, block).await {
        Ok(sequence) => Ok(LogReply::Appended { sequence }),
        Err(error) if error.is(api::WRONG_LAST) || error.is(api::WRONG_LAST_IN_FLIGHT) => Ok(LogReply::WrongLast),
        Err(error) if is_full(&error) => Ok(LogReply::Full),
        Err(error) => Err(error),
    }
}

/// Reads the block with the highest sequence.
async fn last_block(engine: &Engine, stream: StreamId, lane: Lane) -> Result<Option<(u64, Bytes)>, CallError> {
    let question = json!({ "last_by_subj": subject(stream, lane) });
    let message = engine.request(direct_subject(stream, lane), None, question.to_string().into()).await?;
    match api::direct(message)? {
        Direct::Message(message) => {
            let sequence = api::number(&message, api::SEQUENCE).ok_or(CallError::Unknown)?;
            Ok(Some((sequence, message.payload)))
        }
        Direct::NotFound | Direct::End { .. } => Ok(None),
    }
}

/// The tag that a holder's server has in its configuration (`server_tags`).
fn holder_tag(holder: NodeId) -> String {
    format!("node:{}", holder.0)
}

/// The subject of a lane, as `MRS.3.7.0.s`: rights may be given by owner or holder.
fn subject(stream: StreamId, lane: Lane) -> String {
    stream.name(lane).replace('_', ".")
}

fn direct_subject(stream: StreamId, lane: Lane) -> String {
    format!("$JS.API.DIRECT.GET.{}", stream.name(lane))
}

/// The configuration of a lane. No message is deleted but by a trim, and none has an identity by which the engine
/// could take two appends for one.
fn lane_config(stream: StreamId, lane: Lane, octets_max: Option<u64>) -> Value {
    json!({
        "name": stream.name(lane),
        "subjects": [subject(stream, lane)],
        "retention": "limits",
        "storage": "file",
        "num_replicas": 1,
        "discard": "new",
        "max_consumers": -1,
        "max_msgs": -1,
        "max_msgs_per_subject": -1,
        "max_bytes": octets_max.and_then(|most| i64::try_from(most).ok()).unwrap_or(-1),
        "max_age": 0,
        "max_msg_size": -1,
        "allow_direct": true,
        "deny_delete": true,
        "placement": { "tags": [holder_tag(stream.holder)] },
    })
}

/// The first field of a stream's configuration that a machine relies on and that differs.
fn broken_promise<'a>(info: &Value, wanted: &'a Value) -> Option<&'a str> {
    const FIELDS: [&str; 8] =
        ["subjects", "retention", "storage", "num_replicas", "discard", "max_msgs", "allow_direct", "placement"];
    let wanted = wanted.as_object()?;
    let found = info.get("config");
    let differs = |field: &&String| {
        FIELDS.contains(&field.as_str()) && found.and_then(|found| found.get(field.as_str())) != wanted.get(*field)
    };
    wanted.keys().find(differs).map(String::as_str)
}

/// True for an error that says: nothing was stored, since there is no room.
fn is_full(error: &CallError) -> bool {
    let CallError::Refused { code, text } = error else { return false };
    // Other failures of a store say nothing about the octets that were written before.
    api::RESOURCES_EXCEEDED.contains(code) || *code == api::STORE_FAILED && text.contains("maximum bytes exceeded")
}

//! The promises of the two seams, against real servers.

mod bundles;
mod cluster_of_three;
mod coordination;
mod cost;
mod direct_engines;
mod engine_checks;
mod facts;
mod host_messages;
mod member;
mod replica_log;

use super::{Coordination, Engine, EngineSettings, ReplicaLog};
use bytes::Bytes;
use cluster::{
    CoordinationReply, CoordinationRequest, KeyValue, Lane, LogOperation, LogReply, LogRequest, NodeId, StreamId,
};
use std::time::Duration;
use testkit::nats::Nats;

/// The lane of most tests: the stream of node 3 at the server that is holder 1.
const STREAM: StreamId = StreamId { owner: NodeId(3), holder: NodeId(1), generation: 0 };

/// Far longer than an engine needs to be itself again after a fault.
const SOON: Duration = Duration::from_secs(90);

fn settings(servers: &[Nats]) -> EngineSettings {
    let monitor = format!("127.0.0.1:{}", servers[0].monitor_port);
    let mut settings = EngineSettings::new(servers.iter().map(Nats::address).collect(), monitor);
    // Short, so that tests of silence are short; requests take milliseconds.
    settings.request_time_max = Duration::from_secs(5);
    settings.ping_interval = Duration::from_millis(500);
    settings
}

async fn engine(servers: &[Nats]) -> Engine {
    Engine::connect(&settings(servers)).await.unwrap()
}

/// A log with the lanes of [`STREAM`].
async fn log(servers: &[Nats]) -> ReplicaLog {
    let log = ReplicaLog::new(engine(servers).await, None);
    for lane in [Lane::Messages, Lane::Bodies] {
        assert_eq!(ask_lane(&log, lane, LogOperation::Create).await, LogReply::Created);
    }
    log
}

async fn ask_lane(log: &ReplicaLog, lane: Lane, operation: LogOperation) -> LogReply {
    log.carry_out(&LogRequest { stream: STREAM, lane, operation }).await.reply
}

async fn ask(log: &ReplicaLog, operation: LogOperation) -> LogReply {
    ask_lane(log, Lane::Messages, operation).await
}

async fn append(log: &ReplicaLog, expected_last: u64, block: &str) -> LogReply {
    ask(log, LogOperation::Append { expected_last, block: Bytes::copy_from_slice(block.as_bytes()) }).await
}

fn tail(sequence: u64, block: &str) -> LogReply {
    LogReply::Tail { sequence, block: Some(Bytes::copy_from_slice(block.as_bytes())) }
}

fn scanned(blocks: &[(u64, &str)], is_end: bool) -> LogReply {
    let blocks = blocks.iter().map(|(sequence, block)| (*sequence, Bytes::copy_from_slice(block.as_bytes()))).collect();
    LogReply::Scanned { blocks, is_end }
}

async fn scan(log: &ReplicaLog, from: u64) -> LogReply {
    ask(log, LogOperation::Scan { from, octets_max: 1 << 20 }).await
}

/// Looks until there is something, again and again: connections come back by themselves.
async fn poll<T>(what: &str, mut look: impl AsyncFnMut() -> Option<T>) -> T {
    let mut pauses = tokio::time::interval(Duration::from_millis(20));
    let found = async {
        loop {
            pauses.tick().await;
            if let Some(found) = look().await {
                return found;
            }
        }
    };
    tokio::time::timeout(SOON, found).await.expect(what)
}

/// Asks until the answer is another one than `Unknown`.
async fn ask_until_known(log: &ReplicaLog, operation: LogOperation) -> LogReply {
    let is_known = |reply: &LogReply| *reply != LogReply::Unknown;
    poll("the engine answers again", async || Some(ask(log, operation.clone()).await).filter(is_known)).await
}

/// A store with its bucket.
async fn store(servers: &[Nats]) -> Coordination {
    let store = Coordination::new(engine(servers).await);
    store.make_bucket(&settings(servers)).await.unwrap();
    store
}

async fn put(store: &Coordination, key: &str, value: &str, expected: u64, ttl: Option<Duration>) -> CoordinationReply {
    let value = Bytes::copy_from_slice(value.as_bytes());
    store.carry_out(&CoordinationRequest::Put { key: key.to_owned(), value, expected, ttl }).await.reply
}

/// Puts a key that is not there, and returns its revision. A busy machine may leave a request without an answer, which
/// was carried out or not.
async fn put_new(store: &Coordination, key: &str, value: &str) -> u64 {
    poll("the key is written", async || match put(store, key, value, 0, None).await {
        CoordinationReply::Written { revision } => Some(revision),
        _ => match get(store, key).await {
            CoordinationReply::Found(Some(found)) if found.value == value => Some(found.revision),
            _ => None,
        },
    })
    .await
}

/// Puts and returns the revision.
#[track_caller]
fn revision(reply: &CoordinationReply) -> u64 {
    let CoordinationReply::Written { revision } = reply else { panic!("not written: {reply:?}") };
    *revision
}

async fn get(store: &Coordination, key: &str) -> CoordinationReply {
    store.carry_out(&CoordinationRequest::Get { key: key.to_owned() }).await.reply
}

async fn delete(store: &Coordination, key: &str, expected: u64) -> CoordinationReply {
    store.carry_out(&CoordinationRequest::Delete { key: key.to_owned(), expected }).await.reply
}

async fn list(store: &Coordination, prefix: &str) -> CoordinationReply {
    store.carry_out(&CoordinationRequest::List { prefix: prefix.to_owned() }).await.reply
}

fn key_value(key: &str, value: &str, revision: u64) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Bytes::copy_from_slice(value.as_bytes()), revision }
}

/// Asks until the answer is another one than `Unknown`.
async fn get_until_known(store: &Coordination, key: &str) -> CoordinationReply {
    let is_known = |reply: &CoordinationReply| *reply != CoordinationReply::Unknown;
    poll("the store answers again", async || Some(get(store, key).await).filter(is_known)).await
}

//! The key-value store: carries out a `cluster::CoordinationRequest` on a bucket of JetStream.
//!
//! The bucket is one that other programs for NATS can show (`nats kv ls mailrace`). A revision is the sequence of a
//! message in the stream behind it, which rises with each write of any key.
//!
//! A read writes a message first, and takes the state of a server only if it has that message: so the read went through
//! the majority, and shows all writes that were answered before it began. Without it a server that is cut off would
//! answer from its own past.
//!
//! A removed key leaves a mark for a while. Marks are not listed, and a key that must not exist may replace one.

use super::api::{self, CallError, Direct};
use super::connection::Engine;
use super::error::EngineAccessError;
use super::key;
use super::settings::EngineSettings;
use async_nats::{HeaderMap, Message};
use bytes::Bytes;
use cluster::{CoordinationReply, CoordinationRequest, KeyValue};
use futures_util::StreamExt as _;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// The header that says what a message does with its key.
const OPERATION: &str = "KV-Operation";
/// Time that the mark of a removed key stays.
const MARK_TTL: &str = "60s";
/// The shortest time to live that the engine takes.
const TTL_MIN: Duration = Duration::from_secs(1);
/// Octets of all keys of one list; the engine has a limit of 1,024 keys besides.
const LIST_OCTETS_MAX: usize = 8 << 20;
/// Pause before a server that lacks the newest state is asked again.
const READ_AGAIN_AFTER: Duration = Duration::from_millis(10);
/// Marks in the place of a key that a put passes over.
const MARKS_MAX: usize = 3;

/// The store. Clones share the connection.
#[derive(Clone, Debug)]
pub struct Coordination {
    engine: Engine,
}

/// The answer to a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoordinationAnswer {
    /// For the machine.
    pub reply: CoordinationReply,
    /// The engine's reason, where it gave one that a person should see.
    pub problem: Option<String>,
}

/// A key as the bucket has it.
struct StoredKey {
    /// `None` for the message of a read.
    key: Option<String>,
    revision: u64,
    /// `None` for a mark.
    value: Option<Bytes>,
}

impl Coordination {
    /// The store on this connection.
    #[must_use]
    pub const fn new(engine: Engine) -> Self {
        Self { engine }
    }

    /// Makes the bucket if there is none, and gives it more copies if there are too few.
    ///
    /// All servers that are to have copies must run. A node calls it once after it has connected; until there is a
    /// bucket all requests are answered with [`CoordinationReply::Unknown`].
    ///
    /// # Errors
    /// `Request`: no answer, or the reason of the engine; the bucket is as it was. `Settings`: another program has made
    /// a bucket of this name.
    /// # Cancel safety
    /// Yes.
    pub async fn make_bucket(&self, settings: &EngineSettings) -> Result<(), EngineAccessError> {
        let replicas = settings.coordination_replicas;
        let config = bucket_config(replicas);
        let failed = |error: CallError| error.of(&format!("bucket \"{}\" with {replicas} copies", key::BUCKET));
        let made = api::call(&self.engine, &format!("STREAM.CREATE.{}", key::BUCKET_STREAM), &config).await;
        match made {
            Ok(_) => return Ok(()),
            Err(error) if error.is(api::STREAM_NAME_IN_USE) => {}
            Err(error) => return Err(failed(error)),
        }
        let info = format!("STREAM.INFO.{}", key::BUCKET_STREAM);
        let found = api::call(&self.engine, &info, &Value::Null).await.map_err(failed)?;
        let found = found.get("config").unwrap_or(&Value::Null);
        for field in ["subjects", "max_msgs_per_subject", "allow_direct", "allow_msg_ttl", "storage"] {
            if found.get(field) != config.get(field) {
                let why = format!(
                    "bucket \"{}\" of the engine has another \"{field}\"; another program made or changed it, remove it \
                     (nats kv del {}) while no node runs",
                    key::BUCKET,
                    key::BUCKET
                );
                return Err(EngineAccessError::Settings { why });
            }
        }
        let copies = found.get("num_replicas").and_then(Value::as_u64).unwrap_or(0);
        if copies >= u64::try_from(replicas).unwrap_or(u64::MAX) {
            return Ok(());
        }
        let update = api::call(&self.engine, &format!("STREAM.UPDATE.{}", key::BUCKET_STREAM), &config).await;
        update.map(drop).map_err(failed)
    }

    /// Carries out a request, once.
    ///
    /// It ends within [`EngineSettings::request_time_max`], with [`CoordinationReply::Unknown`] if there is no answer.
    /// # Cancel safety
    /// The request may be carried out all the same.
    pub async fn carry_out(&self, request: &CoordinationRequest) -> CoordinationAnswer {
        let (name, work) = match request {
            CoordinationRequest::Get { key } | CoordinationRequest::Put { key, .. } => (key, self.answer(request)),
            CoordinationRequest::List { prefix: key } | CoordinationRequest::Delete { key, .. } => {
                (key, self.answer(request))
            }
        };
        match tokio::time::timeout(self.engine.request_time_max(), work).await {
            Ok(Ok(reply)) => CoordinationAnswer { reply, problem: None },
            Ok(Err(error)) => {
                let problem = error.problem(&format!("key \"{name}\""));
                CoordinationAnswer { reply: CoordinationReply::Unknown, problem }
            }
            Err(_) => CoordinationAnswer { reply: CoordinationReply::Unknown, problem: None },
        }
    }

    /// Lists the keys with a prefix. Unlike a [`CoordinationRequest::List`] it has no values, any number of keys, and
    /// also keys that were removed within the last minute. A key that was written a moment ago may be missing.
    ///
    /// # Errors
    /// `Request`: no answer, or the reason of the engine.
    /// # Cancel safety
    /// Yes.
    pub async fn keys(&self, prefix: &str) -> Result<Vec<String>, EngineAccessError> {
        let names = tokio::time::timeout(self.engine.request_time_max(), self.names(prefix)).await;
        let names = names.unwrap_or(Err(CallError::Unknown));
        names.map_err(|error| error.of(&format!("list of keys \"{prefix}\"")))
    }

    async fn names(&self, prefix: &str) -> Result<Vec<String>, CallError> {
        let operation = format!("STREAM.INFO.{}", key::BUCKET_STREAM);
        let mut subjects = BTreeSet::new();
        loop {
            let filter = json!({ "subjects_filter": key::subjects_with_prefix(prefix), "offset": subjects.len() });
            let page = api::call(&self.engine, &operation, &filter).await?;
            let listed = page.pointer("/state/subjects").and_then(Value::as_object);
            let before = subjects.len();
            subjects.extend(listed.into_iter().flat_map(serde_json::Map::keys).cloned());
            let total = page.get("total").and_then(Value::as_u64).unwrap_or(0);
            if subjects.len() == before || subjects.len() >= usize::try_from(total).unwrap_or(usize::MAX) {
                let keys = subjects.iter().filter_map(|subject| key::key(subject));
                return Ok(keys.filter(|key| key.starts_with(prefix)).collect());
            }
        }
    }

    async fn answer(&self, request: &CoordinationRequest) -> Result<CoordinationReply, CallError> {
        match request {
            CoordinationRequest::Get { key } => Ok(CoordinationReply::Found(self.get(key).await?.and_then(live))),
            CoordinationRequest::List { prefix } => {
                let entries = self.read(&key::subjects_with_prefix(prefix)).await?;
                let mut keys: Vec<KeyValue> = entries
                    .into_iter()
                    .filter_map(live)
                    .filter(|found| found.key.starts_with(prefix.as_str()))
                    .collect();
                keys.sort_unstable_by(|one, other| one.key.cmp(&other.key));
                Ok(CoordinationReply::Listed(keys))
            }
            CoordinationRequest::Put { key, value, expected, ttl } => {
                self.put(key, value.clone(), *expected, *ttl).await
            }
            CoordinationRequest::Delete { key, expected } => {
                let mut headers = HeaderMap::new();
                headers.insert(OPERATION, "DEL");
                headers.insert(api::TIME_TO_LIVE, MARK_TTL);
                self.write(key, headers, Bytes::new(), *expected).await
            }
        }
    }

    async fn put(
        &self,
        key: &str,
        value: Bytes,
        expected: u64,
        ttl: Option<Duration>,
    ) -> Result<CoordinationReply, CallError> {
        let mut headers = HeaderMap::new();
        if let Some(ttl) = ttl {
            let seconds = ttl.max(TTL_MIN).as_millis().div_ceil(1_000);
            headers.insert(api::TIME_TO_LIVE, format!("{seconds}s"));
        }
        let mut reply = self.write(key, headers.clone(), value.clone(), expected).await?;
        for _ in 0..MARKS_MAX {
            if expected != 0 || reply != CoordinationReply::Conflict {
                break;
            }
            // A key that must not exist may have a mark. A mark that another node replaces meanwhile is a conflict.
            let found = self.get(key).await?;
            match found {
                Some(StoredKey { value: None, revision, .. }) => {
                    reply = self.write(key, headers.clone(), value.clone(), revision).await?;
                }
                Some(_) => break,
                // It expired between both.
                None => reply = self.write(key, headers.clone(), value.clone(), 0).await?,
            }
        }
        Ok(reply)
    }

    async fn write(
        &self,
        key: &str,
        mut headers: HeaderMap,
        value: Bytes,
        expected: u64,
    ) -> Result<CoordinationReply, CallError> {
        headers.insert(api::EXPECTED_LAST_OF_SUBJECT, expected.to_string());
        match api::publish(&self.engine, key::BUCKET_STREAM, key::subject(key), headers, value).await {
            Ok(revision) => Ok(CoordinationReply::Written { revision }),
            Err(error) if error.is(api::WRONG_LAST) || error.is(api::WRONG_LAST_IN_FLIGHT) => {
                Ok(CoordinationReply::Conflict)
            }
            Err(error) => Err(error),
        }
    }

    async fn get(&self, key: &str) -> Result<Option<StoredKey>, CallError> {
        let entries = self.read(&key::subject(key)).await?;
        Ok(entries.into_iter().find(|entry| entry.key.as_deref() == Some(key)))
    }

    /// Reads all messages with such subjects, as they are after all writes that were answered before.
    async fn read(&self, subjects: &str) -> Result<Vec<StoredKey>, CallError> {
        let barrier = key::BARRIER_SUBJECT.to_owned();
        let written = api::publish(&self.engine, key::BUCKET_STREAM, barrier, HeaderMap::new(), Bytes::new()).await?;
        loop {
            let entries = self.read_once(subjects).await?;
            // The time limit of the request ends this.
            if entries.iter().any(|entry| entry.key.is_none() && entry.revision >= written) {
                return Ok(entries);
            }
            tokio::time::sleep(READ_AGAIN_AFTER).await;
        }
    }

    /// Reads what some server has.
    async fn read_once(&self, subjects: &str) -> Result<Vec<StoredKey>, CallError> {
        let mut filters = vec![subjects];
        // Two filters must not have the same subject.
        if subjects != key::BUCKET_SUBJECTS {
            filters.push(key::BARRIER_SUBJECT);
        }
        let question = json!({ "multi_last": filters, "max_bytes": LIST_OCTETS_MAX }).to_string();
        let subject = format!("$JS.API.DIRECT.GET.{}", key::BUCKET_STREAM);
        let mut answers = self.engine.request_many(subject, question.into()).await?;
        let (mut entries, mut last) = (Vec::new(), 0);
        while let Some(message) = answers.next().await {
            match api::direct(message)? {
                Direct::Message(message) => {
                    let entry = entry(message)?;
                    last = entry.revision;
                    entries.push(entry);
                }
                Direct::End { last: end, .. } if end != last => return Err(CallError::Unknown),
                Direct::End { pending: 0, .. } => return Ok(entries),
                Direct::End { .. } => {
                    let text = format!("more than {LIST_OCTETS_MAX} octets below \"{subjects}\"");
                    return Err(CallError::Unreadable(text));
                }
                Direct::NotFound => return Ok(Vec::new()),
            }
        }
        Err(CallError::Unknown)
    }
}

fn entry(message: Message) -> Result<StoredKey, CallError> {
    let revision = api::number(&message, api::SEQUENCE).ok_or(CallError::Unknown)?;
    let subject = api::header(&message, api::SUBJECT).ok_or(CallError::Unknown)?;
    let is_mark = api::header(&message, OPERATION).is_some();
    Ok(StoredKey { key: key::key(subject), revision, value: (!is_mark).then_some(message.payload) })
}

fn live(entry: StoredKey) -> Option<KeyValue> {
    Some(KeyValue { key: entry.key?, value: entry.value?, revision: entry.revision })
}

fn bucket_config(replicas: usize) -> Value {
    let mut config = api::last_of_subjects(key::BUCKET_STREAM, key::BUCKET_SUBJECTS, replicas);
    if let Value::Object(fields) = &mut config {
        let more = ["allow_rollup_hdrs", "allow_msg_ttl", "deny_delete"];
        fields.extend(more.map(|field| (field.to_owned(), Value::Bool(true))));
    }
    config
}

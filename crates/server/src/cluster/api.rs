//! Requests to JetStream and their answers: JSON with numbered errors.
//!
//! The numbers are those of nats-server (`server/errors.json`, 2.15.2). A number that is not known here is never taken
//! as proof of anything.

use super::connection::{Engine, NoAnswer};
use super::error::EngineAccessError;
use async_nats::{HeaderMap, Message};
use bytes::Bytes;
use serde_json::{Value, json};
use std::fmt;

/// Another message has the place: the expected last sequence is not the last one.
pub(super) const WRONG_LAST: u64 = 10_071;
/// The same, without the sequence: another message for the same subject is on its way.
pub(super) const WRONG_LAST_IN_FLIGHT: u64 = 10_164;
/// No stream has this name.
pub(super) const STREAM_NOT_FOUND: u64 = 10_059;
/// A stream with this name has another configuration.
pub(super) const STREAM_NAME_IN_USE: u64 = 10_058;
/// The store of the server, of the account or of a tier is full.
pub(super) const RESOURCES_EXCEEDED: [u64; 4] = [10_002, 10_023, 10_047, 10_028];
/// The stream did not store the message; the text has the reason.
pub(super) const STORE_FAILED: u64 = 10_077;
/// JetStream is off for the account, or for the server.
pub(super) const NOT_ENABLED: [u64; 3] = [10_039, 10_076, 10_120];

/// The header with the sequence that a message follows in its stream.
pub(super) const EXPECTED_LAST: &str = "Nats-Expected-Last-Sequence";
/// The header with the sequence that a message follows under its subject.
pub(super) const EXPECTED_LAST_OF_SUBJECT: &str = "Nats-Expected-Last-Subject-Sequence";
/// The header with the stream that a message is for.
pub(super) const EXPECTED_STREAM: &str = "Nats-Expected-Stream";
/// The header with the time after which the server removes a message.
pub(super) const TIME_TO_LIVE: &str = "Nats-TTL";
/// The header with the sequence of a message that was read.
pub(super) const SEQUENCE: &str = "Nats-Sequence";
/// The header with the subject of a message that was read.
pub(super) const SUBJECT: &str = "Nats-Subject";
/// The header with the sequence of the message before, among those that were read.
pub(super) const LAST_SEQUENCE: &str = "Nats-Last-Sequence";
/// The header with the number of messages that were not read.
pub(super) const PENDING: &str = "Nats-Num-Pending";

/// The status that ends a list of messages.
const END_OF_LIST: u16 = 204;
/// The status for no message.
const NOT_FOUND: u16 = 404;
/// The status of a subject that no server has a subscription for.
const NO_RESPONDERS: u16 = 503;

/// The reason why a request has no result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum CallError {
    /// Surely nobody got the request.
    NotHeard,
    /// No answer came, or the answer does not say what happened.
    Unknown,
    /// The engine did not carry it out.
    Refused {
        /// The number of the error.
        code: u64,
        /// Its text.
        text: String,
    },
    /// An answer that JetStream never gives.
    Unreadable(String),
    /// A stream or key of the engine is not as it must be; the text has the next step.
    Fault(String),
}

impl CallError {
    /// True for an error with this number.
    pub(super) fn is(&self, wanted: u64) -> bool {
        matches!(self, Self::Refused { code, .. } if *code == wanted)
    }

    /// As an error about an object.
    pub(super) fn of(&self, object: &str) -> EngineAccessError {
        EngineAccessError::Request { object: object.to_owned(), why: self.to_string() }
    }

    /// The text of an error that a person should see; `None` for silence, which the machines handle and report.
    pub(super) fn problem(&self, object: &str) -> Option<String> {
        let is_shown = matches!(self, Self::Refused { .. } | Self::Unreadable(_) | Self::Fault(_));
        is_shown.then(|| self.of(object).to_string())
    }
}

impl fmt::Display for CallError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotHeard => f.write_str("no server serves it"),
            Self::Unknown => f.write_str("no answer"),
            Self::Refused { code, text } => write!(f, "{text} (error {code} of nats-server)"),
            Self::Unreadable(text) => write!(f, "an answer that cannot be read: {text}"),
            Self::Fault(text) => f.write_str(text),
        }
    }
}

impl From<NoAnswer> for CallError {
    fn from(why: NoAnswer) -> Self {
        match why {
            NoAnswer::NotHeard => Self::NotHeard,
            NoAnswer::Unknown => Self::Unknown,
        }
    }
}

/// The configuration of a stream on so many servers that keeps the last message of each subject.
pub(super) fn last_of_subjects(name: &str, subjects: &str, replicas: usize) -> Value {
    json!({
        "name": name,
        "subjects": [subjects],
        "retention": "limits",
        "storage": "file",
        "num_replicas": replicas,
        "discard": "new",
        "max_consumers": -1,
        "max_msgs": -1,
        "max_msgs_per_subject": 1,
        "max_bytes": -1,
        "max_age": 0,
        "max_msg_size": -1,
        "allow_direct": true,
    })
}

/// Asks the JetStream API, as `STREAM.INFO.NAME`.
///
/// # Cancel safety
/// The request may be carried out all the same.
pub(super) async fn call(engine: &Engine, operation: &str, body: &Value) -> Result<Value, CallError> {
    let payload = if body.is_null() { Bytes::new() } else { Bytes::from(body.to_string()) };
    let message = engine.request(format!("$JS.API.{operation}"), None, payload).await?;
    read(&message.payload)
}

/// Publishes a message to a stream and returns its sequence when it is stored.
///
/// # Cancel safety
/// The message may be stored all the same.
pub(super) async fn publish(
    engine: &Engine,
    stream: &str,
    subject: String,
    mut headers: HeaderMap,
    payload: Bytes,
) -> Result<u64, CallError> {
    headers.insert(EXPECTED_STREAM, stream);
    let message = engine.request(subject, Some(headers), payload).await?;
    let answer = read(&message.payload)?;
    let is_ours = answer.get("stream").and_then(Value::as_str) == Some(stream);
    let sequence = answer.get("seq").and_then(Value::as_u64).filter(|sequence| is_ours && *sequence > 0);
    sequence.ok_or_else(|| CallError::Unreadable(answer.to_string()))
}

fn read(payload: &[u8]) -> Result<Value, CallError> {
    let answer: Value =
        serde_json::from_slice(payload).map_err(|error| CallError::Unreadable(format!("no JSON: {error}")))?;
    let Some(error) = answer.get("error").filter(|error| !error.is_null()) else { return Ok(answer) };
    let code = error.get("err_code").and_then(Value::as_u64).unwrap_or(0);
    let text = error.get("description").and_then(Value::as_str).unwrap_or("no reason given").to_owned();
    Err(CallError::Refused { code, text })
}

/// An answer to a question for messages of a stream.
#[derive(Debug)]
pub(super) enum Direct {
    /// A message of the stream.
    Message(Message),
    /// The list has ended.
    End {
        /// The sequence of the last message of the list.
        last: u64,
        /// Messages that are behind it.
        pending: u64,
    },
    /// No message fits the question.
    NotFound,
}

/// Sorts an answer to a direct question by its status.
///
/// # Errors
/// `NotHeard`, or another status.
pub(super) fn direct(message: Message) -> Result<Direct, CallError> {
    let Some(status) = message.status else { return Ok(Direct::Message(message)) };
    match status.as_u16() {
        END_OF_LIST => {
            let last = number(&message, LAST_SEQUENCE).ok_or(CallError::Unknown)?;
            Ok(Direct::End { last, pending: number(&message, PENDING).ok_or(CallError::Unknown)? })
        }
        NOT_FOUND => Ok(Direct::NotFound),
        NO_RESPONDERS => Err(CallError::NotHeard),
        code => Err(CallError::Unreadable(format!("{code} {}", message.description.unwrap_or_default()))),
    }
}

/// A header of a message.
pub(super) fn header<'a>(message: &'a Message, name: &str) -> Option<&'a str> {
    message.headers.as_ref()?.get(name).map(async_nats::HeaderValue::as_str)
}

/// A header of a message that is a number.
pub(super) fn number(message: &Message, name: &str) -> Option<u64> {
    header(message, name)?.parse().ok()
}

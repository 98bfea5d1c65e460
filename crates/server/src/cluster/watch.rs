//! Changed keys of the coordination store, as they come: a hint to read sooner than the machines would.
//!
//! The engine pushes the subjects of new messages, without their content, to a consumer that it forgets when nobody
//! receives. Where messages may have been lost, after a restart or a change of servers, [`KeyChange::Any`] says so. A
//! key that expires gives no hint.

use super::api::{self, CallError};
use super::connection::{Engine, EngineConnection};
use super::key;
use async_nats::{Message, Subscriber};
use futures_util::StreamExt as _;
use serde_json::json;
use std::time::Duration;
use tokio::sync::watch;

/// Time between signs of life of the engine while nothing changes.
const HEARTBEAT: Duration = Duration::from_secs(2);
/// Silence after which the consumer counts as gone.
const SILENCE_MAX: Duration = Duration::from_secs(7);
/// Time after which the engine forgets a consumer without receiver.
const FORGET_AFTER: Duration = Duration::from_secs(30);
/// Pause before another attempt to make a consumer.
const TRY_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// A change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum KeyChange {
    /// This key was written or removed.
    Key(String),
    /// Any key may have been.
    Any,
}

/// The changes of all keys from its first use on.
#[derive(Debug)]
pub struct Watch {
    engine: Engine,
    consumer: Option<Consumer>,
}

#[derive(Debug)]
struct Consumer {
    messages: Subscriber,
    /// Messages that were sent to it so far.
    received: u64,
    connection: watch::Receiver<EngineConnection>,
    /// The connection that it was made on.
    made_on: u64,
}

impl Consumer {
    /// Waits for the next message; `None` when it may have missed some.
    ///
    /// # Cancel safety
    /// Yes.
    async fn next(&mut self) -> Option<Message> {
        let made_on = self.made_on;
        let is_another = |connection: &EngineConnection| number(connection) != made_on;
        tokio::select! {
            biased;
            // Messages that were sent between two connections are lost.
            Ok(_) = self.connection.wait_for(is_another) => None,
            message = tokio::time::timeout(SILENCE_MAX, self.messages.next()) => message.ok().flatten(),
        }
    }
}

/// The number of a connection; the first one is told a moment after it is made.
fn number(connection: &EngineConnection) -> u64 {
    connection.count.max(1)
}

impl Watch {
    /// Watches the bucket on this connection.
    #[must_use]
    pub const fn new(engine: Engine) -> Self {
        Self { engine, consumer: None }
    }

    /// Waits for the next change. While the engine does not answer it goes on trying.
    ///
    /// The first is [`KeyChange::Any`]: whoever reads all keys then misses nothing.
    /// # Cancel safety
    /// Yes; a change may come as [`KeyChange::Any`] then.
    pub async fn next(&mut self) -> KeyChange {
        loop {
            let Some(consumer) = &mut self.consumer else {
                match make_consumer(&self.engine).await {
                    Ok(consumer) => {
                        self.consumer = Some(consumer);
                        return KeyChange::Any;
                    }
                    Err(_) => tokio::time::sleep(TRY_AGAIN_AFTER).await,
                }
                continue;
            };
            match consumer.next().await {
                // A sign of life.
                Some(message) if message.status.is_some() => {}
                Some(message) if number_in_consumer(&message) == Some(consumer.received + 1) => {
                    consumer.received += 1;
                    if let Some(key) = key::key(&message.subject) {
                        return KeyChange::Key(key);
                    }
                }
                // Silence, another connection, or a message is missing.
                _ => self.consumer = None,
            }
        }
    }
}

async fn make_consumer(engine: &Engine) -> Result<Consumer, CallError> {
    let connection = engine.connection();
    let made_on = number(&connection.borrow());
    let (inbox, messages) = engine.inbox().await?;
    let nanoseconds = |time: Duration| u64::try_from(time.as_nanos()).unwrap_or(u64::MAX);
    let body = json!({
        "stream_name": key::BUCKET_STREAM,
        "config": {
            "deliver_policy": "new",
            "ack_policy": "none",
            "replay_policy": "instant",
            "deliver_subject": inbox,
            "headers_only": true,
            "idle_heartbeat": nanoseconds(HEARTBEAT),
            "inactive_threshold": nanoseconds(FORGET_AFTER),
            "mem_storage": true,
            "num_replicas": 1,
        },
    });
    api::call(engine, &format!("CONSUMER.CREATE.{}", key::BUCKET_STREAM), &body).await?;
    Ok(Consumer { messages, received: 0, connection, made_on })
}

/// The number of a message among those of its consumer, from the subject for acknowledgements:
/// `$JS.ACK.STREAM.CONSUMER.TRIES.SEQUENCE.NUMBER.TIME.PENDING`, or a later form with two more names in front.
fn number_in_consumer(message: &Message) -> Option<u64> {
    let tokens: Vec<&str> = message.reply.as_deref()?.strip_prefix("$JS.ACK.")?.split('.').collect();
    let behind = match tokens.len() {
        7 => 4,
        9.. => 6,
        _ => return None,
    };
    tokens.get(behind)?.parse().ok()
}

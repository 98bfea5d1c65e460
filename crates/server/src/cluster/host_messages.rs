//! Messages about hosts between the nodes: one subject of the engine, without storage (core NATS).
//!
//! The subject has the name of the cluster, so that clusters on one engine do not hear each other. A message reaches
//! the nodes that listen at that moment, also the one that sent it.

use super::engine_access::EngineAccess;
use async_nats::Subscriber;
use bytes::Bytes;
use cluster::{ClusterId, HostStatus};
use futures_util::StreamExt as _;
use std::sync::Arc;
use std::time::Duration;

/// Time until the engine is looked for again while there is none.
const LOOK_TIME: Duration = Duration::from_millis(500);

/// Sends and receives messages about hosts.
#[derive(Debug)]
pub(crate) struct HostMessages {
    engine: Arc<EngineAccess>,
    subject: String,
    messages: Option<Subscriber>,
}

impl HostMessages {
    pub(super) fn new(engine: Arc<EngineAccess>, cluster: ClusterId) -> Self {
        Self { engine, subject: format!("MRH.{cluster}"), messages: None }
    }

    /// Sends a message; it is lost while the engine may not be used.
    ///
    /// # Cancel safety
    /// The message may be sent all the same.
    pub(crate) async fn send(&self, status: &HostStatus) {
        if let Some(in_use) = self.engine.in_use() {
            in_use.engine.send(self.subject.clone(), Bytes::from(status.to_string())).await;
        }
    }

    /// Waits for the next message of any node. The first call begins to listen.
    ///
    /// # Cancel safety
    /// Yes.
    pub(crate) async fn next(&mut self) -> Bytes {
        loop {
            if let Some(messages) = &mut self.messages {
                match messages.next().await {
                    Some(message) => return message.payload,
                    None => self.messages = None,
                }
            } else if let Some(in_use) = self.engine.in_use()
                && let Ok(messages) = in_use.engine.subscribe(self.subject.clone()).await
            {
                self.messages = Some(messages);
                continue;
            }
            tokio::time::sleep(LOOK_TIME).await;
        }
    }
}

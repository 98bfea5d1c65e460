//! State for accepting mail: what sessions and the pickup directory share besides the [`Context`].

use crate::admit::logins::Logins;
use crate::context::Context;
use crate::intake::{Enqueue, StoreFaults};
use crate::screen_queue::ScreenQueue;
use crate::sink::Behaviour;
use std::sync::Arc;

/// The side of the server that accepts mail.
#[derive(Debug)]
pub(crate) struct Inbound {
    /// State that both sides share.
    pub(crate) context: Arc<Context>,
    /// Takes accepted messages to delivery; a sink has none.
    pub(crate) queue: Option<Arc<dyn Enqueue>>,
    /// Takes accepted messages that wait for filters; a sink has none.
    pub(crate) screen_queue: Option<Arc<ScreenQueue>>,
    /// Recipients of logins.
    pub(crate) logins: Logins,
    /// Messages that the spool did not store.
    pub(crate) store_faults: StoreFaults,
    /// Faults played on purpose, in `mailrace sink`.
    pub(crate) behaviour: Option<Behaviour>,
    /// Descriptors the process may have.
    pub(crate) open_files_max: u64,
}

#[cfg(test)]
impl Inbound {
    /// Makes the side of a trial, which hands accepted messages to `queue`.
    pub(crate) fn trial(context: Arc<Context>, queue: Option<Arc<dyn Enqueue>>, behaviour: Behaviour) -> Arc<Self> {
        let behaviour = Some(behaviour).filter(|behaviour| !behaviour.is_plain());
        Arc::new(Self {
            context,
            queue,
            screen_queue: None,
            logins: Logins::default(),
            store_faults: StoreFaults::default(),
            behaviour,
            open_files_max: 1_024,
        })
    }
}

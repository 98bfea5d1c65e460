//! Keeps the engine of this node in use: reaches it, asks whether it may hold copies, and asks again after each new
//! connection.
//!
//! While the engine is out of reach or unfit, requests are answered as unknown. A node starts without it and goes on
//! without it; mail that came before is delivered as long as the rules of ownership allow.

use super::connection::Engine;
use super::coordination::Coordination;
use super::direct_engines::DirectEngines;
use super::error::EngineAccessError;
use super::facts::ask_engine;
use super::replica_log::ReplicaLog;
use super::settings::EngineSettings;
use arc_swap::ArcSwapOption;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;

/// Time until an engine that is out of reach or unfit is asked again.
const RETRY_TIME: Duration = Duration::from_secs(1);
/// Time until a bucket that could not be made is asked for again.
const BUCKET_RETRY_TIME: Duration = Duration::from_secs(2);

/// The engine and its two seams.
#[derive(Clone, Debug)]
pub(super) struct EngineInUse {
    pub(super) engine: Engine,
    pub(super) log: ReplicaLog,
    pub(super) store: Coordination,
}

/// The engine, while it may be used.
#[derive(Debug)]
pub(super) struct EngineAccess {
    settings: EngineSettings,
    in_use: ArcSwapOption<EngineInUse>,
    problem: watch::Sender<Option<EngineAccessError>>,
}

impl EngineAccess {
    pub(super) fn new(settings: EngineSettings) -> Self {
        Self { settings, in_use: ArcSwapOption::empty(), problem: watch::Sender::new(None) }
    }

    /// The engine; `None` while it is out of reach or unfit.
    pub(super) fn in_use(&self) -> Option<Arc<EngineInUse>> {
        self.in_use.load_full()
    }

    /// The reason why it is not in use, and its changes.
    pub(super) fn problem(&self) -> watch::Receiver<Option<EngineAccessError>> {
        self.problem.subscribe()
    }

    /// Keeps the engine in use until it is dropped.
    ///
    /// # Cancel safety
    /// Yes.
    pub(super) async fn keep(&self) {
        let engine = self.connect().await;
        let direct = Arc::new(DirectEngines::new(&self.settings));
        let log = ReplicaLog::new(engine.clone(), self.settings.lane_octets_max).with_direct(Arc::clone(&direct));
        let in_use = Arc::new(EngineInUse { log, store: Coordination::new(engine.clone()), engine });
        tokio::join!(self.judge(&in_use), self.make_bucket(&in_use), direct.keep());
    }

    async fn connect(&self) -> Engine {
        loop {
            match Engine::connect(&self.settings).await {
                Ok(engine) => return engine,
                Err(error) => self.set_problem(Some(error)),
            }
            tokio::time::sleep(RETRY_TIME).await;
        }
    }

    /// Lets the engine be used while it is fit. It may come back with another configuration on each connection.
    async fn judge(&self, in_use: &Arc<EngineInUse>) {
        let mut connection = in_use.engine.connection();
        loop {
            let judged = connection.borrow_and_update().count;
            match ask_engine(&self.settings).await {
                Ok(_) => {
                    self.in_use.store(Some(Arc::clone(in_use)));
                    self.set_problem(None);
                    let is_another = |now: &super::EngineConnection| now.count != judged;
                    // The sender lives as long as the engine.
                    if connection.wait_for(is_another).await.is_err() {
                        return;
                    }
                }
                Err(error) => {
                    // One that is out of reach may be another machine's by now, and one that syncs may have no leader
                    // yet: what was judged before counts until there is an answer against it.
                    let is_open =
                        matches!(error, EngineAccessError::Unreachable { .. } | EngineAccessError::Request { .. });
                    self.set_problem(Some(error));
                    if !is_open {
                        self.in_use.store(None);
                    }
                    tokio::time::sleep(RETRY_TIME).await;
                }
            }
        }
    }

    async fn make_bucket(&self, in_use: &EngineInUse) {
        while in_use.store.make_bucket(&self.settings).await.is_err() {
            tokio::time::sleep(BUCKET_RETRY_TIME).await;
        }
    }

    fn set_problem(&self, problem: Option<EngineAccessError>) {
        self.problem.send_if_modified(|current| {
            let is_new = *current != problem;
            *current = problem;
            is_new
        });
    }
}

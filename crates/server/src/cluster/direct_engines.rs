//! Connections to the engines of the other nodes: a block goes to the server that stores it in one step.
//!
//! By way of the engine of this node, that one would receive each block and send it on: twice the processor time and
//! twice the traffic. Which server has a lane is in the engine's information about the stream, and a server tells its
//! name on each connection.
//!
//! Such a connection is a shorter way and nothing else. Requests go by way of the engine of this node while there is
//! none, while it is not known which server has the lane, and for [`AVOIDED_FOR`] after a request without an answer.
//! Appends may come by both ways: the sequence that an append expects decides, not the connection.

use super::api;
use super::connection::Engine;
use super::settings::EngineSettings;
use cluster::{Lane, StreamId};
use futures_util::future::join_all;
use os::clock;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Time for which a connection is not used after a request without an answer.
pub(super) const AVOIDED_FOR: Duration = Duration::from_secs(10);
/// Time between two attempts at the first connection; the library makes the later ones.
const CONNECT_RETRY_TIME: Duration = Duration::from_secs(5);
/// Time until the server of a lane is asked for again.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(5);
/// Lanes whose server is remembered; beyond it all are asked for again.
const LANES_MAX: usize = 4_096;

/// The engines of the other nodes.
#[derive(Debug, Default)]
pub(super) struct DirectEngines {
    engines: Vec<DirectEngine>,
    lanes: Mutex<BTreeMap<(StreamId, Lane), LaneServer>>,
}

#[derive(Debug)]
struct DirectEngine {
    settings: EngineSettings,
    engine: OnceLock<Engine>,
    avoided_until: Mutex<Option<Instant>>,
}

#[derive(Clone, Debug)]
enum LaneServer {
    Named(String),
    /// Asked for; nothing is known until then.
    AskedUntil(Instant),
}

/// A connection to the server that has a lane.
#[derive(Clone, Debug)]
pub(super) struct DirectWay {
    pub(super) engine: Engine,
    at: usize,
}

impl DirectEngines {
    /// The engines of these settings but the first, which is that of this node. They are reached by
    /// [`DirectEngines::keep`].
    pub(super) fn new(settings: &EngineSettings) -> Self {
        let others = settings.addresses.iter().skip(1);
        let engine = |address: &String| DirectEngine {
            settings: EngineSettings { addresses: vec![address.clone()], ..settings.clone() },
            engine: OnceLock::new(),
            avoided_until: Mutex::new(None),
        };
        Self { engines: others.map(engine).collect(), lanes: Mutex::default() }
    }

    /// Reaches all of them; ends when each was reached once.
    ///
    /// # Cancel safety
    /// Yes.
    pub(super) async fn keep(&self) {
        join_all(self.engines.iter().map(DirectEngine::connect)).await;
    }

    /// The connection to the server that has a lane; `None` if requests go by way of `main`.
    pub(super) fn way(self: &Arc<Self>, main: &Engine, stream: StreamId, lane: Lane) -> Option<DirectWay> {
        if self.engines.is_empty() {
            return None;
        }
        let now = clock::now();
        let server = {
            let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
            match lanes.get(&(stream, lane)) {
                Some(LaneServer::Named(server)) => server.clone(),
                Some(LaneServer::AskedUntil(until)) if now < *until => return None,
                _ => {
                    if lanes.len() >= LANES_MAX {
                        lanes.clear();
                    }
                    lanes.insert((stream, lane), LaneServer::AskedUntil(now + ASK_AGAIN_AFTER));
                    drop(tokio::spawn(Arc::clone(self).ask(main.clone(), stream, lane)));
                    return None;
                }
            }
        };
        let found = self.engines.iter().enumerate().find_map(|(at, one)| Some((at, one.engine_named(&server, now)?)));
        found.map(|(at, engine)| DirectWay { engine, at })
    }

    /// A request by this way had no answer, or nobody heard it.
    pub(super) fn failed(&self, way: &DirectWay, stream: StreamId, lane: Lane) {
        self.lanes.lock().unwrap_or_else(PoisonError::into_inner).remove(&(stream, lane));
        if let Some(engine) = self.engines.get(way.at) {
            let until = clock::now() + AVOIDED_FOR;
            *engine.avoided_until.lock().unwrap_or_else(PoisonError::into_inner) = Some(until);
        }
    }

    async fn ask(self: Arc<Self>, main: Engine, stream: StreamId, lane: Lane) {
        let answer = api::call(&main, &format!("STREAM.INFO.{}", stream.name(lane)), &Value::Null).await;
        // A server that is alone names none.
        let server = answer.ok().and_then(|info| info.pointer("/cluster/leader")?.as_str().map(str::to_owned));
        if let Some(server) = server {
            let mut lanes = self.lanes.lock().unwrap_or_else(PoisonError::into_inner);
            lanes.insert((stream, lane), LaneServer::Named(server));
        }
    }
}

impl DirectEngine {
    async fn connect(&self) {
        loop {
            if let Ok(engine) = Engine::connect(&self.settings).await {
                // Only this call sets it.
                return self.engine.set(engine).unwrap_or(());
            }
            tokio::time::sleep(CONNECT_RETRY_TIME).await;
        }
    }

    fn engine_named(&self, server: &str, now: Instant) -> Option<Engine> {
        let engine = self.engine.get().filter(|engine| engine.is_named(server))?;
        let avoided = *self.avoided_until.lock().unwrap_or_else(PoisonError::into_inner);
        avoided.is_none_or(|until| now >= until).then(|| engine.clone())
    }
}

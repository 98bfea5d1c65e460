//! Facts of one engine: version, JetStream, and whether it syncs before it answers.
//!
//! The first two come from the connection itself. `sync_interval` is shown by no request that an ordinary user of the
//! engine may send; it is in `/jsz` of the monitor, one line in the engine's configuration, or behind a second account
//! with a user of its own. The monitor's answer names the engine, and counts only for the engine that the connection
//! reached: another one on that port would prove nothing.

use super::api;
use super::connection::{self, Engine, EngineConnection};
use super::error::EngineAccessError;
use super::settings::EngineSettings;
use crate::http_exchange::exchange;
use cluster::{EngineError, EngineFacts, check_engine};
use hyper::Request;
use hyper::body::{Body as _, Incoming};
use hyper::header::HOST;
use serde_json::Value;
use std::pin::Pin;
use tokio::net::TcpStream;
use tokio::sync::watch;

/// Octets of an answer of the monitor.
const ANSWER_OCTETS_MAX: usize = 1 << 20;

/// Asks the engine of this node, the first address of the settings, whether it may hold copies, by a connection of its
/// own. A node asks before it starts cluster mode, and again after each new connection: an engine may come back with
/// another configuration.
///
/// # Errors
/// The reason against the engine, or the reason why it is not certain. A node must not start cluster mode.
/// # Cancel safety
/// Yes.
pub async fn ask_engine(settings: &EngineSettings) -> Result<EngineFacts, EngineAccessError> {
    let addresses = settings.addresses.get(..1).unwrap_or_default();
    let options = connection::options(settings).await?.max_reconnects(1);
    let client = connection::open(settings, options, addresses).await?;
    let info = client.server_info();
    let address = addresses.first().cloned().unwrap_or_default();
    let mut facts = EngineFacts { address, version: info.version, is_sync_always: true, has_streams: true };
    // An older engine need not understand the other questions.
    check_engine(&facts)?;
    // The monitor first: what needs a leader of all engines may have no answer while they start.
    facts.is_sync_always =
        is_sync_always(settings, &info.server_id).await.map_err(|why| why.of(&facts.address, &settings.monitor))?;
    check_engine(&facts)?;
    let (_, connection) = watch::channel(EngineConnection::default());
    facts.has_streams = has_streams(&Engine::from_parts(client, connection, settings.request_time_max)).await?;
    check_engine(&facts)?;
    Ok(facts)
}

/// The reason why it is not known whether an engine syncs.
#[derive(Debug)]
pub(super) enum SyncUnknown {
    /// Its server has no JetStream.
    Disabled,
    /// The monitor gave no answer that says it.
    NotSaid(String),
}

impl SyncUnknown {
    /// The reason against the engine at this address.
    pub(super) fn of(self, address: &str, monitor: &str) -> EngineAccessError {
        let address = address.to_owned();
        match self {
            Self::Disabled => EngineAccessError::Unfit(EngineError::NoStreams { address }),
            Self::NotSaid(why) => EngineAccessError::Uncertain { address, monitor: monitor.to_owned(), why },
        }
    }
}

impl From<&str> for SyncUnknown {
    fn from(why: &str) -> Self {
        Self::NotSaid(why.to_owned())
    }
}

pub(super) async fn has_streams(engine: &Engine) -> Result<bool, EngineAccessError> {
    match api::call(engine, "INFO", &Value::Null).await {
        Ok(_) => Ok(true),
        // No server has JetStream.
        Err(api::CallError::NotHeard) => Ok(false),
        Err(api::CallError::Refused { code, .. }) if api::NOT_ENABLED.contains(&code) => Ok(false),
        Err(error) => Err(error.of("JetStream of the account")),
    }
}

pub(super) async fn is_sync_always(settings: &EngineSettings, server_id: &str) -> Result<bool, SyncUnknown> {
    let answer = of_monitor(settings, "/jsz", server_id).await.map_err(SyncUnknown::NotSaid)?;
    if answer.get("disabled").and_then(Value::as_bool).unwrap_or(false) {
        return Err(SyncUnknown::Disabled);
    }
    // Left out when it is false; without a configuration beside it nothing is known.
    let config = answer.get("config").and_then(Value::as_object).ok_or("its answer has no configuration")?;
    if !config.contains_key("sync_interval") {
        return Err("its answer has no \"sync_interval\"".into());
    }
    Ok(config.get("sync_always").and_then(Value::as_bool).unwrap_or(false))
}

/// Asks the monitor, and returns the answer if it is of the engine with this identity.
///
/// # Errors
/// No answer, or that of another server; a text for the operator.
/// # Cancel safety
/// Yes.
pub(super) async fn of_monitor(settings: &EngineSettings, path: &str, server_id: &str) -> Result<Value, String> {
    let asked = tokio::time::timeout(settings.request_time_max, ask_monitor(&settings.monitor, path));
    let seconds = settings.request_time_max.as_secs();
    let answer = asked.await.map_err(|_| format!("no answer within {seconds} s"))??;
    let answer: Value = serde_json::from_slice(&answer).map_err(|error| format!("its answer is no JSON: {error}"))?;
    match answer.get("server_id").and_then(Value::as_str) {
        Some(found) if found == server_id => Ok(answer),
        Some(found) => Err(format!("it belongs to another server ({found}, not {server_id})")),
        None => Err("its answer names no server".to_owned()),
    }
}

async fn ask_monitor(monitor: &str, path: &str) -> Result<Vec<u8>, String> {
    let stream = TcpStream::connect(monitor).await.map_err(|error| format!("no connection: {error}"))?;
    let request = Request::builder().uri(path).header(HOST, monitor).body(String::new());
    let request = request.map_err(|error| format!("\"{monitor}\" is no address: {error}; write host:port"))?;
    exchange(stream, request, async |response| collect(response.into_body()).await).await
}

async fn collect(mut body: Incoming) -> Result<Vec<u8>, String> {
    let mut octets = Vec::new();
    while let Some(frame) = std::future::poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await {
        let frame = frame.map_err(|error| format!("the answer broke off: {error}"))?;
        if let Some(data) = frame.data_ref() {
            octets.extend_from_slice(data);
        }
        if octets.len() > ANSWER_OCTETS_MAX {
            return Err(format!("its answer has more than {ANSWER_OCTETS_MAX} octets"));
        }
    }
    Ok(octets)
}

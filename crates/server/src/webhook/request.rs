//! One request to a webhook: connects, sends, and reads the status.

use super::signature::SigningSecret;
use super::target::WebhookTarget;
use crate::http_exchange::exchange;
use crate::tls::Connector;
use hyper::header::{CONTENT_TYPE, HOST, HeaderValue, USER_AGENT};
use hyper::{Method, Request};
use os::clock;
use std::path::PathBuf;
use std::time::{Duration, Instant};
use tokio::net::TcpStream;

/// The field with the signature.
const SIGNATURE: &str = "Mailrace-Signature";
/// The field with the name of the batch, the same when it is sent again.
const BATCH: &str = "Mailrace-Batch";

/// The settings of a request.
#[derive(Debug)]
pub(super) struct PostSettings<'a> {
    pub(super) target: &'a WebhookTarget,
    pub(super) secret: Option<&'a SigningSecret>,
    /// The name of the batch.
    pub(super) batch: &'a str,
    pub(super) ca_files: &'a [PathBuf],
    /// From the connection to the status.
    pub(super) time_max: Duration,
}

/// Posts a body. Redirections are not followed.
///
/// # Errors
/// The receiver did not take it: any status but 2xx, or no answer in time. The text is for the operator.
/// # Cancel safety
/// Dropping the future ends the connection; the receiver may have the body.
pub(super) async fn post(connector: &Connector, settings: &PostSettings<'_>, body: String) -> Result<(), String> {
    let deadline = clock::now() + settings.time_max;
    let timed_out = |_| format!("no answer within {} s (webhook.request_time_max)", settings.time_max.as_secs());
    tokio::time::timeout_at(deadline.into(), connect_and_post(connector, settings, body, deadline))
        .await
        .map_err(timed_out)?
}

async fn connect_and_post(
    connector: &Connector,
    settings: &PostSettings<'_>,
    body: String,
    deadline: Instant,
) -> Result<(), String> {
    let (target, request) = (settings.target, request(settings, body)?);
    let connected = TcpStream::connect((target.host.as_str(), target.port)).await;
    let stream = connected.map_err(|error| format!("no connection: {error}"))?;
    if !target.is_tls {
        return exchange(stream, request, async |_| Ok(())).await;
    }
    let shaken = connector.connect_and_judge(stream, &target.host, deadline, settings.ca_files).await;
    let (stream, info) = shaken.map_err(|error| format!("no TLS: {error}"))?;
    if !info.is_verified_for(&target.host) {
        let why = info.fault.map_or_else(|| format!("it is not for {}", target.host), |fault| fault.text.to_string());
        return Err(format!("its certificate is not good: {why}; tls.ca_files names further CAs"));
    }
    exchange(stream, request, async |_| Ok(())).await
}

fn request(settings: &PostSettings<'_>, body: String) -> Result<Request<String>, String> {
    let target = settings.target;
    let signature = settings.secret.map(|secret| secret.sign(clock::unix_us() / 1_000_000, &body));
    let agent = HeaderValue::from_static(concat!("mailrace/", env!("CARGO_PKG_VERSION")));
    let built = Request::builder()
        .method(Method::POST)
        .uri(&target.path)
        .header(HOST, target.authority())
        .header(USER_AGENT, agent)
        .header(CONTENT_TYPE, "application/json")
        .header(BATCH, settings.batch);
    let built = signature.into_iter().fold(built, |built, signature| built.header(SIGNATURE, signature));
    let built = built.body(body);
    built.map_err(|error| format!("the request cannot be made: {error}"))
}

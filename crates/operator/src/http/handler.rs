//! The server as HTTP sees it, and the limits of HTTP.

use super::access::HttpAccess;
use super::held_link::LinkAnswer;
use crate::answers::StatusAnswer;
use crate::control::Handler;
use observe::counters::Counter;
use std::sync::Arc;
use std::time::Duration;

/// The server behind HTTP.
pub trait HttpHandler: Handler {
    /// Returns the names and tokens in force.
    fn access(&self) -> Arc<HttpAccess>;

    /// Returns whether the server takes mail.
    ///
    /// # Errors
    /// It does not; the text says why.
    fn readiness(&self) -> Result<(), String>;

    /// Returns the state of the server without single destinations, so that a large queue costs nothing.
    fn status(&self) -> impl Future<Output = StatusAnswer> + Send;

    /// Answers for the signed text of a link in a digest. `is_release`: the message is to be released, too.
    fn quarantine_link(&self, text: &str, is_release: bool) -> impl Future<Output = LinkAnswer> + Send;

    /// Returns how often it has been counted since the start.
    fn counter(&self, counter: Counter) -> u64;
}

/// Limits of HTTP.
#[derive(Clone, Copy, Debug)]
pub struct HttpLimits {
    /// `http.connections_max`
    pub connections_max: usize,
    /// `http.header_bytes_max`; 8,192 at least.
    pub header_bytes_max: usize,
    /// `http.body_bytes_max`
    pub body_bytes_max: usize,
    /// `http.request_time_max`
    pub request_time_max: Duration,
}

//! Checks around a configuration that `mailrace setup` makes: what the DNS says of this host and its domains, and
//! whether port 25 can be listened on and reached.
//!
//! Every result is a [`SetupFinding`]: its state, a sentence with the next step, and the record to publish as a line of
//! a zone file. Nothing is sent but DNS questions, connections to port 25 and QUIT. Each step has a time limit.

mod names;
mod ports;

use crate::config::Config;
use crate::dns::Resolver;
use std::time::{SystemTime, UNIX_EPOCH};

/// How a check ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FindingState {
    /// As it should be.
    Ok,
    /// Nothing is there.
    Missing,
    /// Something else is there.
    Differs,
    /// There was no answer.
    Unknown,
}

impl FindingState {
    /// Its word.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Missing => "missing",
            Self::Differs => "differs",
            Self::Unknown => "unknown",
        }
    }
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SetupFinding {
    /// The kind: `address`, `ptr`, `mx`, `spf`, `listen`, `connect`.
    pub check: &'static str,
    /// The name or address that was looked at.
    pub object: String,
    /// The result.
    pub state: FindingState,
    /// A sentence for the operator, with the next step.
    pub text: String,
    /// The record to publish, as a line of a zone file.
    pub publish: Option<String>,
}

impl SetupFinding {
    fn new(check: &'static str, object: &str, state: FindingState, text: impl Into<String>) -> Self {
        Self { check, object: object.to_owned(), state, text: text.into(), publish: None }
    }

    fn publish(mut self, record: impl Into<String>) -> Self {
        self.publish = Some(record.into());
        self
    }
}

/// Looks at the DNS and the ports for a configuration. `domains` are those whose mail comes to this host. `probe` is
/// the domain whose mail host is connected to where no smart host is set; `None`: no connection is made.
///
/// Waits some seconds for each answer that does not come; call it on a thread that may wait.
///
/// # Errors
/// There is no runtime or no resolver.
pub fn check(config: &Config, domains: &[String], probe: Option<&str>) -> Result<Vec<SetupFinding>, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| format!("the runtime: {error}"))?;
    runtime.block_on(async {
        let resolver = Resolver::new(&config.dns).map_err(|error| error.to_string())?;
        let mut found = names::check(config, &resolver, domains, unix_now()).await;
        found.extend(ports::listen(config).await);
        found.extend(ports::connect(config, &resolver, probe).await);
        Ok(found)
    })
}

/// Seconds since 1970, for explanations in SPF records.
#[allow(clippy::disallowed_methods, reason = "a command without a server has no clock of one")]
fn unix_now() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |time| time.as_secs())
}

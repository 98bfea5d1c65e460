//! A storm of mail against a server: for `mailrace storm` and the benchmark of accepting mail.
//!
//! One thread, one task a session. A session takes the next number of the run, makes that message in a buffer of its
//! own and brings it to the server; nothing else is shared but counters ([`tally`]). Every message can be told from
//! every other and checked where it arrives ([`message`]).
//!
//! Invariants: a message is tried once and counted once, as accepted, refused, failed or unanswered; the same seed
//! makes the same messages. The client is not the delivery client of mailrace: it asks for speed and sends to the given
//! address. It does not look up names in DNS by MX, does not queue and does not check certificates.

mod arrived;
mod ledger;
mod message;
mod plan;
mod replies;
mod report;
mod session;
mod tally;
mod wire;

pub use arrived::{Acknowledged, Arrived, NotSent, acknowledged, arrived};
pub use plan::{NotPrivate, Plan, Sizes, Tls};
pub use report::{Percentiles, StormReport};

use crate::clock;
use ledger::StormLedger;
use session::Session;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tally::StormState;

/// How often progress is told.
const PROGRESS_EVERY: Duration = Duration::from_secs(1);

/// Where a run stands.
#[derive(Clone, Copy, Debug)]
pub struct StormProgress {
    /// Messages accepted so far.
    pub accepted: u64,
    /// Messages that ended in any other way.
    pub others: u64,
    /// Messages to send; `None` when only the time ends the run.
    pub messages: Option<u64>,
    /// Accepted messages per second since the last time.
    pub per_second: f64,
    /// Time since the start.
    pub elapsed: Duration,
}

/// Why there was no run.
#[derive(Debug)]
pub enum StormError {
    /// The plan cannot be carried out; the text names the option.
    Plan(String),
    /// The system refused something that is not the server: the name, the ledger, the runtime.
    Io {
        /// The object.
        what: String,
        /// The system's words.
        source: io::Error,
    },
}

impl std::fmt::Display for StormError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Plan(text) => f.write_str(text),
            Self::Io { what, source } => write!(f, "{what}: {source}"),
        }
    }
}

impl std::error::Error for StormError {}

/// Runs a storm to its end and says what became of every message. Blocks the calling thread.
///
/// `progress` is called about once a second.
///
/// # Errors
/// The plan cannot be carried out; nothing was sent. A failure of the server is no error but part of the report.
pub fn run(plan: &Plan, progress: &mut dyn FnMut(StormProgress)) -> Result<StormReport, StormError> {
    plan.check()?;
    let told = |what: &str| {
        let what = what.to_owned();
        move |source| StormError::Io { what, source }
    };
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(told("runtime"))?;
    let ledger = plan.ledger.as_deref().map(StormLedger::open).transpose()?;
    let cpu = clock::cpu();
    let start = clock::now();
    let shared = Arc::new(StormState::new(plan, ledger, start)?);
    runtime.block_on(watch(&shared, progress));
    let elapsed = clock::now().duration_since(start);
    // All sessions are over; the ledger is complete when its thread is too.
    shared.ledger.as_ref().map_or(Ok(()), StormLedger::close).map_err(told("ledger"))?;
    Ok(StormReport::new(plan, &shared.tally(), elapsed, clock::cpu().saturating_sub(cpu)))
}

/// Starts the sessions and waits for all of them, telling progress meanwhile.
async fn watch(shared: &Arc<StormState>, progress: &mut dyn FnMut(StormProgress)) {
    let mut sessions = tokio::task::JoinSet::new();
    for number in 0..shared.plan.sessions {
        sessions.spawn(Session::new(Arc::clone(shared), number).run());
    }
    let mut ticks = tokio::time::interval(PROGRESS_EVERY);
    let (mut before, mut at) = (0, shared.start);
    loop {
        // Both branches are cancel-safe.
        tokio::select! {
            ended = sessions.join_next() => match ended {
                Some(Ok(())) => {}
                // A bug of ours in a session must not end as a good report.
                Some(Err(panicked)) => shared.tally().lost(&format!("session: {panicked}")),
                None => return,
            },
            _ = ticks.tick() => {
                let now = clock::now();
                let (accepted, others) = shared.tally().so_far();
                let time = now.duration_since(at).as_secs_f64();
                #[expect(clippy::cast_precision_loss, reason = "a rate for a person")]
                let per_second = if time > 0.0 { (accepted - before) as f64 / time } else { 0.0 };
                let elapsed = now.duration_since(shared.start);
                progress(StormProgress { accepted, others, messages: shared.plan.messages, per_second, elapsed });
                (before, at) = (accepted, now);
            }
        }
    }
}

/// Finds the address of a server given as `HOST:PORT`.
///
/// # Errors
/// It is not of that form, or the name is unknown here.
pub fn resolve(to: &str) -> Result<SocketAddr, StormError> {
    use std::net::ToSocketAddrs as _;
    let mut found = to.to_socket_addrs().map_err(|source| StormError::Io {
        what: format!("{to:?} is no HOST:PORT with an address, as in 127.0.0.1:2525"),
        source,
    })?;
    found.next().ok_or_else(|| StormError::Plan(format!("{to:?} has no address")))
}

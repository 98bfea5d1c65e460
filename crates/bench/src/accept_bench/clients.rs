//! Ways to bring mail to a server, and the figures of one sample.
//!
//! Processor time of the machine is that of all its processes, the client's included; processor time of the server is
//! known where the server is one process.

use crate::clock;
use crate::side_by_side::programs::{Postal, Source, machine_ticks, process_ticks, us_each};
use crate::side_by_side::servers::{RunningServer, ServerKind, Site, Task};
use crate::storm::{self, Plan, Sizes, Tls};
use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

/// Messages of the short run by which `smtp-source` is told how many to send.
const PROBE: u64 = 300;
/// The time that a client with a number of messages may take beyond five times its share.
const GRACE: Duration = Duration::from_secs(15);

/// A way to bring mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LoadClient {
    /// The storm of mailrace.
    Storm { sessions: u32, bytes: usize, new_connection: bool, tls: bool, split_dot: bool },
    /// Postfix's `smtp-source`, kept alive or not.
    Source { sessions: u32, bytes: usize, new_connection: bool },
    /// Postal.
    Postal { threads: u32, kilobytes: u32 },
}

impl LoadClient {
    pub(super) fn name(self) -> String {
        let kept = |new_connection: bool| if new_connection { "new connections" } else { "kept alive" };
        match self {
            Self::Storm { sessions, bytes, new_connection, tls, split_dot } => {
                let tls = if tls { ", STARTTLS" } else { "" };
                let dot = if split_dot { ", dot by itself" } else { "" };
                format!("storm, {sessions} sessions, {} KB, {}{tls}{dot}", bytes / 1000, kept(new_connection))
            }
            Self::Source { sessions, bytes, new_connection } => {
                format!("smtp-source, {sessions} sessions, {} KB, {}", bytes / 1000, kept(new_connection))
            }
            Self::Postal { threads, kilobytes } => format!("postal, {threads} threads, {kilobytes} KB"),
        }
    }

    fn tls(self) -> bool {
        matches!(self, Self::Storm { tls: true, .. })
    }
}

/// The figures of one sample.
#[derive(Clone, Debug, Default)]
pub(super) struct AcceptSample {
    pub(super) per_second: f64,
    /// Microseconds of processor time for each message: the whole machine, and the server.
    pub(super) machine_us: f64,
    pub(super) server_us: Option<f64>,
    /// 99 of 100 messages were answered within this, in microseconds.
    pub(super) p99_us: Option<u64>,
    /// Something that is not as it should be.
    pub(super) complaint: Option<String>,
}

/// Starts a server, waits `settle` seconds, brings mail for about `seconds`, ends the server and counts.
///
/// # Errors
/// Why there is no figure.
pub(super) fn sample(
    site: &Site,
    kind: &ServerKind,
    client: LoadClient,
    (settle, seconds): (f64, f64),
) -> Result<AcceptSample, String> {
    let server = RunningServer::start(site, kind, Task::Keep { tls: client.tls() })?;
    clock::pause(Duration::from_secs_f64(settle.max(0.0)));
    // The server is warm and its pages are there when the clock starts.
    let warm_up = bring(site, &server, client, seconds / 10.0, None)?;
    let (machine, process) = (machine_ticks(), server.process().map(process_ticks));
    let start = clock::now();
    let rate = warm_up.accepted.map(|accepted| accepted / warm_up.seconds);
    let brought = bring(site, &server, client, seconds, rate)?;
    let elapsed = clock::now().duration_since(start).as_secs_f64();
    let machine = machine_ticks().saturating_sub(machine);
    let process = process.zip(server.process()).map(|(before, pid)| process_ticks(pid).saturating_sub(before));
    let kept = server.stop_and_count()?;
    // A client that does not count is measured by the messages in the server, from the beginning of the warm-up.
    let (accepted, elapsed) = match (brought.accepted, kept) {
        (Some(accepted), _) => (accepted, brought.seconds),
        #[expect(clippy::cast_precision_loss, reason = "a number of messages")]
        (None, Some(kept)) => (kept as f64 * elapsed / (elapsed + warm_up.seconds), elapsed),
        (None, None) => return Err("neither the client nor the server counts".to_owned()),
    };
    if accepted < 1.0 {
        return Err("no message was accepted".to_owned());
    }
    let all = warm_up.accepted.unwrap_or(0.0) + accepted;
    #[expect(clippy::cast_precision_loss, reason = "a number of messages")]
    let lost = kept.filter(|kept| brought.accepted.is_some() && (*kept as f64) < all);
    let complaint = match lost {
        Some(kept) => Some(format!("{all:.0} messages acknowledged, {kept} kept: MAIL WAS LOST")),
        None => brought.complaint,
    };
    let us = |ticks| us_each(ticks, accepted);
    Ok(AcceptSample {
        per_second: accepted / elapsed.max(1e-3),
        machine_us: us(machine),
        server_us: process.map(us),
        p99_us: brought.p99_us,
        complaint,
    })
}

/// The result of a client.
struct Brought {
    accepted: Option<f64>,
    seconds: f64,
    p99_us: Option<u64>,
    complaint: Option<String>,
}

fn bring(
    site: &Site,
    server: &RunningServer<'_>,
    client: LoadClient,
    seconds: f64,
    rate: Option<f64>,
) -> Result<Brought, String> {
    match client {
        LoadClient::Storm { .. } => run_storm(server.at, client, seconds),
        LoadClient::Source { sessions, bytes, new_connection } => {
            #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of messages")]
            let messages = rate.map_or(PROBE, |rate| (rate * seconds) as u64).max(PROBE);
            let start = clock::now();
            let source = Source { sessions, messages, bytes, new_connection };
            source.send(server.at, Duration::from_secs_f64(5.0 * seconds) + GRACE)?;
            let seconds = clock::now().duration_since(start).as_secs_f64();
            #[expect(clippy::cast_precision_loss, reason = "a number of messages")]
            Ok(Brought { accepted: Some(messages as f64), seconds, p99_us: None, complaint: None })
        }
        LoadClient::Postal { threads, kilobytes } => run_postal(&site.memory, server.at, (threads, kilobytes), seconds),
    }
}

fn run_storm(at: SocketAddr, client: LoadClient, seconds: f64) -> Result<Brought, String> {
    let LoadClient::Storm { sessions, bytes, new_connection, tls, split_dot } = client else {
        return Err("not a storm".to_owned());
    };
    let plan = Plan {
        messages: None,
        time: Some(Duration::from_secs_f64(seconds)),
        sessions,
        sizes: Sizes { from: bytes, to: bytes },
        new_connection,
        tls: if tls { Tls::Starttls } else { Tls::None },
        split_dot,
        // One source address has about 28,000 ports.
        sources: if new_connection { 50 } else { 0 },
        ..Plan::new(at)
    };
    let report = storm::run(&plan, &mut |_| {}).map_err(|e| e.to_string())?;
    let complaint = report.errors.first().map(|(text, count)| format!("{count} x {text}"));
    #[expect(clippy::cast_precision_loss, reason = "a number of messages")]
    let accepted = Some(report.accepted as f64);
    Ok(Brought { accepted, seconds: report.elapsed.as_secs_f64(), p99_us: Some(report.latency.p99), complaint })
}

/// Postal sends until it is ended and reports by the minute; the server counts.
fn run_postal(
    scratch: &Path,
    at: SocketAddr,
    (threads, kilobytes): (u32, u32),
    seconds: f64,
) -> Result<Brought, String> {
    let start = clock::now();
    // A connection for up to 100 messages.
    let postal = Postal::start(scratch, at, threads, (kilobytes, kilobytes), 100)?;
    clock::pause(Duration::from_secs_f64(seconds));
    postal.end()?;
    let seconds = clock::now().duration_since(start).as_secs_f64();
    Ok(Brought { accepted: None, seconds, p99_us: None, complaint: None })
}

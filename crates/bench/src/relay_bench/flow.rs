//! One sample: a receiver, a server with an empty queue, a client; the clock stops when the last message has arrived.
//!
//! Before it starts, some messages go the whole way: the server's processes, pages and connections are there, and a
//! slow server is given as many messages as it can pass on in the time of a sample.

use super::hop::Hop;
use crate::clock;
use crate::side_by_side::programs::{Postal, Source, machine_ticks, process_ticks, us_each};
use crate::side_by_side::servers::{RunningServer, ServerKind, Site, Task};
use crate::storm::{self, Plan, Sizes};
use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::time::{Duration, Instant};

/// Messages that go the whole way before the clock starts.
const WARM_UP: u64 = 300;
/// How often the receiver is asked.
const ASK_EVERY: Duration = Duration::from_millis(5);
/// A server that passes nothing on for so long has stopped.
const STALLED: Duration = Duration::from_secs(30);
/// The time that `smtp-source` may take beyond ten times its share.
const GRACE: Duration = Duration::from_secs(60);
/// After Postal is ended, mail is on its way while anything arrives within this time.
const QUIET: Duration = Duration::from_secs(3);

/// The load of a case.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Load {
    /// `smtp-source` to `smtp-sink`.
    Source { sessions: u32, bytes: usize, new_connection: bool },
    /// Our storm to our receiver.
    Storm { sessions: u32, bytes: usize },
    /// Postal to `smtp-sink`.
    Postal { processes: u32 },
}

/// How much of it.
#[derive(Clone, Copy, Debug)]
pub(super) struct Amount {
    pub(super) messages: u64,
    /// Seconds from the start of a server to its first mail.
    pub(super) settle: f64,
    pub(super) seconds: f64,
    pub(super) postal_seconds: f64,
}

/// The figures of one sample.
#[derive(Clone, Debug, Default)]
pub(super) struct RelaySample {
    /// Messages that arrived.
    pub(super) messages: f64,
    /// Seconds until the client had its last 250, and until the last message arrived.
    pub(super) accepted_s: f64,
    pub(super) arrived_s: f64,
    /// Microseconds of processor time for each message: the whole machine, and the server where it is one process.
    pub(super) machine_us: f64,
    pub(super) server_us: Option<f64>,
    /// Something that is not as it should be.
    pub(super) complaint: Option<String>,
}

impl RelaySample {
    pub(super) fn accepted_per_second(&self) -> f64 {
        self.messages / self.accepted_s.max(1e-3)
    }

    pub(super) fn arrived_per_second(&self) -> f64 {
        self.messages / self.arrived_s.max(1e-3)
    }
}

impl Load {
    pub(super) fn name(self) -> String {
        match self {
            Self::Source { sessions, bytes, new_connection } => {
                let kept = if new_connection { "new connections" } else { "kept alive" };
                format!("smtp-source to smtp-sink, {sessions} sessions, {bytes} octets, {kept}")
            }
            Self::Storm { sessions, bytes } => {
                format!("storm to our receiver, {sessions} sessions, {bytes} octets, kept alive")
            }
            Self::Postal { processes } => {
                format!("postal to smtp-sink, {processes} at a time, 0 to 10 KB, a connection for each message")
            }
        }
    }
}

/// Takes a sample. Without a server the client sends to the receiver itself.
///
/// # Errors
/// Why there is no figure.
pub(super) fn sample(
    site: &Site,
    kind: Option<&ServerKind>,
    load: Load,
    amount: Amount,
) -> Result<RelaySample, String> {
    let hop = match load {
        Load::Storm { .. } => Hop::own()?,
        Load::Source { .. } | Load::Postal { .. } => Hop::sink(&site.memory)?,
    };
    let server = kind.map(|kind| RunningServer::start(site, kind, Task::Relay { to: hop.at() })).transpose()?;
    if server.is_some() {
        clock::pause(Duration::from_secs_f64(amount.settle.max(0.0)));
    }
    let run = RelayRun { site, hop: &hop, server: server.as_ref(), load };
    let sample = match load {
        Load::Postal { processes } => run.postal(processes, amount.postal_seconds),
        Load::Source { .. } | Load::Storm { .. } => run.counted(amount),
    };
    // The receiver goes last: a server that still has something would find it gone and complain for a long time.
    drop(server);
    drop(hop);
    sample
}

/// A sample being taken.
struct RelayRun<'a> {
    site: &'a Site,
    hop: &'a Hop,
    server: Option<&'a RunningServer<'a>>,
    load: Load,
}

/// Clocks at the beginning.
struct Marks {
    start: Instant,
    machine: u64,
    server: Option<u64>,
}

impl RelayRun<'_> {
    fn to(&self) -> SocketAddr {
        self.server.map_or_else(|| self.hop.at(), |server| server.at)
    }

    fn marks(&self) -> Marks {
        let server = self.server.and_then(RunningServer::process).map(process_ticks);
        Marks { server, machine: machine_ticks(), start: clock::now() }
    }

    /// Brings a number of messages and waits for all of them.
    fn counted(&self, amount: Amount) -> Result<RelaySample, String> {
        let warm_up = WARM_UP.min(amount.messages);
        let start = clock::now();
        self.bring("warm-up", warm_up, GRACE)?;
        let there = self.wait(warm_up);
        if there < warm_up {
            return Err(format!("of the first {warm_up} messages {there} arrived"));
        }
        let rate = count(warm_up) / start.elapsed().as_secs_f64().max(1e-3);
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a number of messages")]
        let messages = ((rate * amount.seconds) as u64).clamp(warm_up, amount.messages);

        let marks = self.marks();
        self.bring("sample", messages, Duration::from_secs_f64(10.0 * amount.seconds) + GRACE)?;
        let accepted_s = marks.start.elapsed().as_secs_f64();
        let there = self.wait(warm_up + messages);
        let end = self.marks();
        let arrived = there.saturating_sub(warm_up);
        let complaint = if arrived == messages {
            self.oddity("sample", messages)
        } else {
            Some(format!("of {messages} messages {arrived} arrived; it passed nothing on for {} s", STALLED.as_secs()))
        };
        if arrived == 0 {
            return Err(complaint.unwrap_or_default());
        }
        Ok(self.figures(&marks, &end, count(arrived), accepted_s, complaint))
    }

    fn figures(
        &self,
        from: &Marks,
        to: &Marks,
        messages: f64,
        accepted_s: f64,
        complaint: Option<String>,
    ) -> RelaySample {
        RelaySample {
            messages,
            accepted_s,
            arrived_s: to.start.duration_since(from.start).as_secs_f64(),
            machine_us: us_each(to.machine.saturating_sub(from.machine), messages),
            server_us: from.server.zip(to.server).map(|(from, to)| us_each(to.saturating_sub(from), messages)),
            complaint,
        }
    }

    /// Brings messages and returns when all are accepted.
    fn bring(&self, run: &str, messages: u64, longest: Duration) -> Result<(), String> {
        match self.load {
            Load::Source { sessions, bytes, new_connection } => {
                Source { sessions, messages, bytes, new_connection }.send(self.to(), longest)
            }
            Load::Storm { sessions, bytes } => {
                let sizes = Sizes { from: bytes, to: bytes };
                let plan =
                    Plan { messages: Some(messages), sessions, sizes, run: run.to_owned(), ..Plan::new(self.to()) };
                let report = storm::run(&plan, &mut |_| {}).map_err(|e| e.to_string())?;
                if report.accepted == messages {
                    return Ok(());
                }
                let why = report.errors.first().map_or("", |(text, _)| text.as_str());
                Err(format!("of {messages} messages {} were accepted: {}", report.accepted, why.escape_debug()))
            }
            Load::Postal { .. } => Err("postal does not count".to_owned()),
        }
    }

    /// Waits until the receiver has so many, or for as long as something comes; returns how many it has.
    fn wait(&self, messages: u64) -> u64 {
        let (mut there, mut at) = (0, clock::now());
        loop {
            let now_there = self.hop.count();
            if now_there >= messages {
                return now_there;
            }
            let now = clock::now();
            if now_there > there {
                (there, at) = (now_there, now);
            }
            if now.duration_since(at) > STALLED {
                return there;
            }
            clock::pause(ASK_EVERY);
        }
    }

    /// Every message must have arrived once and whole; only our receiver can tell.
    fn oddity(&self, run: &str, messages: u64) -> Option<String> {
        let Hop::Own(receiver) = self.hop else { return None };
        let arrivals = receiver.arrivals();
        let altered = arrivals.iter().filter(|arrival| arrival.what.is_err()).count();
        if let Some(Err(error)) = arrivals.iter().map(|arrival| &arrival.what).find(|what| what.is_err()) {
            return Some(format!("{altered} messages are not what was sent: {error}"));
        }
        let of_run = arrivals.iter().filter_map(|arrival| arrival.what.as_ref().ok()).filter(|what| what.run == run);
        let (mut all, mut seen) = (0, BTreeSet::new());
        for what in of_run {
            all += 1;
            seen.insert(what.seq);
        }
        (all != messages || seen.len() as u64 != messages)
            .then(|| format!("{all} arrivals, {} different messages; sent were {messages}", seen.len()))
    }

    /// Lets Postal send for some seconds, then waits until nothing arrives any more.
    fn postal(&self, processes: u32, seconds: f64) -> Result<RelaySample, String> {
        let marks = self.marks();
        let postal = Postal::start(&self.site.memory, self.to(), processes, (0, 10), 1)?;
        clock::pause(Duration::from_secs_f64(seconds));
        postal.end()?;
        let accepted_s = marks.start.elapsed().as_secs_f64();
        let (mut there, mut last) = (self.hop.count(), self.marks());
        loop {
            clock::pause(ASK_EVERY);
            let now_there = self.hop.count();
            if now_there > there {
                (there, last) = (now_there, self.marks());
            } else if clock::now().duration_since(last.start) > QUIET {
                break;
            }
        }
        if there == 0 {
            return Err("no message arrived".to_owned());
        }
        // A message whose final reply Postal did not wait for may be accepted or not; everything that was has arrived.
        Ok(self.figures(&marks, &last, count(there), accepted_s, None))
    }
}

#[expect(clippy::cast_precision_loss, reason = "a number of messages")]
fn count(messages: u64) -> f64 {
    messages as f64
}

//! The cost of mail that waits for bad hosts, for the mail that can be delivered.
//!
//! Two servers, one with an empty queue, one with a million recipients waiting for 5,000 hosts that refuse connections
//! (or drop packets, or never greet). First: how long the full one needs until it is at rest with them, and the
//! processor time it uses when nothing happens but that bad hosts are tried again. All recipients still wait then;
//! hosts that refuse have each been tried once at least, or the figure says nothing. Of silent ones a try in the slow
//! lane lasts for minutes, and few are made at a time. Then turns of the same work for both, lists and single messages
//! to live hosts: some seconds each, in one order and in the other, and ratios are of one turn. Without waiting
//! recipients (`--waiting 0`) it shows the smallest difference that it can measure.

use super::flow::{Submission, follow, submission};
use super::internet::InternetProcess;
use super::ledger::Arrivals;
use super::report::{ReportLine, ReportLines, Told};
use super::tries::Tries;
use super::world::World;
use super::{ListBenchArguments, ListPart};
use crate::clock;
use crate::machine::say;
use crate::side_by_side::figures::{spread, text};
use crate::side_by_side::programs::{process_memory_max, process_ticks, seconds, us_each};
use crate::side_by_side::servers::{RunningServer, ServerKind, Site, Task};
use crate::storm::Plan;
use clap::ValueEnum;
use serde_json::{Value, json};
use std::collections::HashSet;
use std::net::SocketAddr;
use std::time::Duration;

/// Hosts, and how many of them are bad.
const HOSTS: u32 = 6_250;
const BAD: u32 = 5_000;
/// Lists that are brought at once, and single messages: about a second of work, since a machine's speed is another
/// after some.
const LISTS: u64 = 25;
const SINGLE: u64 = 2_500;
/// Turns that both have for each of the rounds that are asked for.
const TURNS: usize = 3;
/// Sessions that bring single messages.
const SESSIONS: u32 = 20;
/// A turn takes no longer.
const LONGEST: Duration = Duration::from_secs(60);
/// A server is at rest when it uses less of a core than this; it is looked for so long.
const REST_SHARE: f64 = 0.02;
const REST_LOOK: Duration = Duration::from_secs(2);
/// The same while hosts are silent: the first contact with them all is made in turns of ten seconds, with pauses
/// between.
const REST_LOOK_SILENT: Duration = Duration::from_secs(15);
const REST_LONGEST: Duration = Duration::from_secs(400);
/// How long processor time is measured: the longest first back-off of a host (docs/schedule.md: a minute, a quarter
/// more or less), and twice that in the slow lane, where silent hosts are.
const IDLE: Duration = Duration::from_secs(75);
const IDLE_SILENT: Duration = Duration::from_secs(150);
const IDLE_QUICK: Duration = Duration::from_secs(10);
/// A host that was tried again just before waits for the second back-off, which is twice as long; half a minute is for
/// a machine that is late with all of them.
const IDLE_LONGEST: Duration = Duration::from_secs(150 + 30);
/// Tries of a host that these back-offs leave room for in that time. Where there are more, lines about the mail that
/// was brought are still being written, and say nothing of tries.
const TRIES_MAX: u64 = 4;

/// The behaviour of the hosts that a million recipients wait for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Bad {
    /// They refuse connections
    Dead,
    /// They drop packets
    Drop,
    /// They accept and never greet
    Hung,
}

impl Bad {
    /// As `mailrace sim` names it.
    fn character(self) -> &'static str {
        match self {
            Self::Dead => "dead",
            Self::Drop => "drop",
            Self::Hung => "hung",
        }
    }

    fn idle(self) -> Duration {
        if self == Self::Dead { IDLE } else { IDLE_SILENT }
    }
}

/// Recipients that were brought, the seconds until they were accepted and until they had arrived, the server's
/// processor time, in ticks, and connections over which they came.
#[derive(Clone, Copy, Debug, Default)]
struct BroughtRecipients {
    recipients: f64,
    accepted_s: f64,
    arrived_s: f64,
    ticks: u64,
    connections: f64,
}

impl BroughtRecipients {
    fn add(&mut self, other: Self) {
        self.recipients += other.recipients;
        self.accepted_s += other.accepted_s;
        self.arrived_s += other.arrived_s;
        self.ticks += other.ticks;
        self.connections += other.connections;
    }

    /// Recipients a second.
    fn accepted(&self) -> f64 {
        self.recipients / self.accepted_s.max(1e-3)
    }

    fn arrived(&self) -> f64 {
        self.recipients / self.arrived_s.max(1e-3)
    }

    /// Connections for a hundred recipients.
    fn connections(&self) -> f64 {
        100.0 * self.connections / self.recipients.max(1.0)
    }

    /// Microseconds of processor time a recipient.
    fn us(&self) -> f64 {
        us_each(self.ticks, self.recipients)
    }
}

/// The work of a server in a turn.
#[derive(Clone, Copy, Debug, Default)]
struct Did {
    lists: BroughtRecipients,
    single: BroughtRecipients,
}

/// The same work for both servers.
#[derive(Clone, Copy, Debug, Default)]
struct Turn {
    empty: Did,
    full: Did,
}

/// A time in which nothing happens but that bad hosts are tried again.
#[derive(Clone, Copy, Debug, Default)]
struct IdlePeriod {
    seconds: f64,
    /// Share of a core, and that of the server with nothing in its queue.
    share: f64,
    share_empty: f64,
    /// Recipients that wait at its beginning and at its end.
    waiting: [u64; 2],
    /// Tries that came to nothing, and how many bad hosts they were made at.
    tries: u64,
    hosts: usize,
    /// It is too short for all of them.
    is_quick: bool,
}

/// All figures of the part.
#[derive(Debug)]
pub(super) struct StragglerFigures {
    bad: Bad,
    bad_hosts: usize,
    waiting: u64,
    turns: Vec<Turn>,
    fill_s: f64,
    rest_s: Option<f64>,
    idle: IdlePeriod,
    memory: u64,
    /// Totals of all passes: messages that a recipient had before, and those that were not sent.
    twice: u64,
    strange: u64,
}

/// Takes all samples.
///
/// # Errors
/// Why there are no figures.
pub(super) fn measure(site: &Site, arguments: &ListBenchArguments) -> Result<StragglerFigures, String> {
    let bad = arguments.stragglers;
    let world = World {
        hosts: HOSTS,
        domains_per_host: 1,
        recipients: 1,
        bad: vec![(bad.character(), BAD)],
        delay_ms: arguments.delay,
        slow_s: 0,
    };
    let internet = InternetProcess::start(site, &world)?;
    let (empty, full) = (
        RunningServer::start(site, &ServerKind::Serve, Task::List)?,
        RunningServer::start(site, &ServerKind::Serve, Task::List)?,
    );
    let pid = process(&full)?;
    let mut bench = StragglerBench { internet, bytes: arguments.bytes, run: 0, twice: 0, strange: 0 };

    let bad_ones = bench.internet.people.those(false);
    let messages = arguments.waiting.div_ceil(bad_ones.len().max(1) as u64);
    let (bad_hosts, waiting) = (bad_ones.len(), messages * bad_ones.len() as u64);
    say(&format!("list: stragglers: {waiting} recipients are brought"));
    let mut tries = Tries::watch(full.log().ok_or("the server has no log")?)?;
    let (mut fill_s, mut rest_s, mut idle) = (0.0, None, IdlePeriod::default());
    if waiting > 0 {
        let fill = Submission::start(submission(full.at, "fill", messages, arguments.bytes, vec![bad_ones]));
        fill_s = fill.end()?;
        let look = if bad == Bad::Dead { REST_LOOK } else { REST_LOOK_SILENT };
        rest_s = rest(pid, look, || tries.look().map(|()| tries.whose.len() >= bad_hosts))?;
        idle = self::idle(&full, &empty, (bad, bad_hosts), arguments.quick)?;
        say(&format!("list: stragglers: at rest {idle:?}"));
    }

    let (empty, full) = ((empty.at, process(&empty)?), (full.at, pid));
    for _ in 0..TURNS {
        bench.turn([empty, full])?;
    }
    let mut turns = Vec::new();
    for turn in 0..arguments.rounds() * TURNS {
        turns.push(bench.turn([empty, full])?);
        if (turn + 1).is_multiple_of(TURNS) {
            say_all("list: stragglers: so far", &turns);
        }
    }
    let (memory, StragglerBench { twice, strange, .. }) = (process_memory_max(pid), bench);
    Ok(StragglerFigures { bad, bad_hosts, waiting, turns, fill_s, rest_s, idle, memory, twice, strange })
}

fn process(server: &RunningServer<'_>) -> Result<u32, String> {
    server.process().ok_or_else(|| "the server is no process of ours".to_owned())
}

/// Measures both servers while nothing happens, until all hosts that refuse have been tried.
fn idle(
    full: &RunningServer<'_>,
    empty: &RunningServer<'_>,
    bad: (Bad, usize),
    is_quick: bool,
) -> Result<IdlePeriod, String> {
    let (bad, hosts) = bad;
    let pids = [process(full)?, process(empty)?];
    let mut tries = Tries::watch(full.log().ok_or("the server has no log")?)?;
    let least = if is_quick { IDLE_QUICK } else { bad.idle() };
    let waiting = full.waiting()?;
    let (start, before) = (clock::now(), pids.map(process_ticks));
    loop {
        clock::pause(Duration::from_secs(1));
        tries.look()?;
        let is_enough = is_quick || bad != Bad::Dead || tries.whose.len() >= hosts;
        if start.elapsed() >= if is_enough { least } else { IDLE_LONGEST } {
            break;
        }
    }
    let seconds = start.elapsed().as_secs_f64();
    let after = pids.map(process_ticks);
    let share = |at: usize| {
        let ticks = after.get(at).zip(before.get(at)).map_or(0, |(after, before)| after.saturating_sub(*before));
        self::seconds(ticks) / seconds
    };
    let waiting = [waiting, full.waiting()?];
    let (tries, hosts) = (tries.count, tries.whose.len());
    Ok(IdlePeriod { seconds, share: share(0), share_empty: share(1), waiting, tries, hosts, is_quick })
}

/// Waits until a process does little, and all bad hosts have been tried: there are pauses before. How long it took.
fn rest(pid: u32, look: Duration, mut knows_all: impl FnMut() -> Result<bool, String>) -> Result<Option<f64>, String> {
    let start = clock::now();
    while start.elapsed() < REST_LONGEST {
        let before = process_ticks(pid);
        clock::pause(look);
        let share = seconds(process_ticks(pid).saturating_sub(before)) / look.as_secs_f64();
        let knows_all = knows_all()?;
        if share < REST_SHARE && knows_all {
            return Ok(Some(start.elapsed().as_secs_f64()));
        }
        let more = if knows_all { "" } else { ", and not all hosts were tried" };
        say(&format!("list:   the server uses {:.0} % of a core{more}", 100.0 * share));
    }
    Ok(None)
}

/// An internet at work.
struct StragglerBench {
    internet: InternetProcess,
    bytes: usize,
    /// Number of the last run; each has its own name.
    run: u32,
    /// The total of all runs.
    twice: u64,
    strange: u64,
}

impl StragglerBench {
    /// Has the same work done by servers of these addresses and processes, the one with an empty queue and the other,
    /// and then in the other order: the second one has a machine that differs by a quarter at times.
    fn turn(&mut self, servers: [(SocketAddr, u32); 2]) -> Result<Turn, String> {
        let live = self.internet.people.those(true);
        let per_list = live.len();
        let single: Vec<_> = live.iter().map(|one| vec![one.clone()]).collect();
        let live = vec![live];
        let mut turn = Turn::default();
        let [empty, full] = servers;
        for order in 0..2 {
            let mut both = [(empty, &mut turn.empty), (full, &mut turn.full)];
            both.rotate_left(order);
            for (to, did) in &mut both {
                did.lists.add(self.bring(*to, LISTS, 1, live.clone(), per_list)?);
            }
            for (to, did) in &mut both {
                did.single.add(self.bring(*to, SINGLE, SESSIONS, single.clone(), 1)?);
            }
        }
        Ok(turn)
    }

    /// Brings messages and waits for them.
    fn bring(
        &mut self,
        (to, pid): (SocketAddr, u32),
        messages: u64,
        sessions: u32,
        lists: Vec<Vec<String>>,
        each: usize,
    ) -> Result<BroughtRecipients, String> {
        self.run += 1;
        let run = format!("run{}", self.run);
        let mut tally = Arrivals::new(&run, lists.iter().flatten().map(|one| (one.clone(), true)));
        let expected = each * usize::try_from(messages).unwrap_or(usize::MAX);
        // Late arrivals of the run before do not count in this one.
        self.internet.deliveries(|_| {})?;
        let plan = Plan { sessions, ..submission(to, &run, messages, self.bytes, lists) };
        let before = process_ticks(pid);
        let submission = Submission::start(plan);
        let mut connections = HashSet::new();
        follow(&mut self.internet, &mut tally, expected, &submission, LONGEST, |taken| {
            connections.insert(taken.connection);
        })?;
        (self.twice, self.strange) = (self.twice + tally.twice, self.strange + tally.strange);
        let start_us = submission.start_us.saturating_sub(self.internet.start_us);
        let accepted_s = submission.end()?;
        let Some(last) = tally.moment(100, expected) else {
            return Err(format!("{} of {expected} arrived within {} s", tally.arrived(), LONGEST.as_secs()));
        };
        let arrived_s = super::flow::micros(last.saturating_sub(start_us));
        let expected = u32::try_from(expected).map_or(f64::INFINITY, f64::from);
        let ticks = process_ticks(pid).saturating_sub(before);
        let connections = u32::try_from(connections.len()).map_or(f64::INFINITY, f64::from);
        Ok(BroughtRecipients { recipients: expected, accepted_s, arrived_s, ticks, connections })
    }
}

/// A figure of both servers as text, and its ratios by turn.
fn ratio(turns: &[Turn], of: fn(&Did) -> f64) -> (Vec<f64>, String) {
    let (empty, full): (Vec<f64>, Vec<f64>) = turns.iter().map(|turn| (of(&turn.empty), of(&turn.full))).unzip();
    let ratios: Vec<f64> = full.iter().zip(&empty).map(|(full, empty)| full / empty).collect();
    (ratios.clone(), format!("{} → {}: {}", text(empty, 1), text(full, 1), text(ratios, 2)))
}

fn say_all(what: &str, turns: &[Turn]) {
    let (lists, single) = (ratio(turns, |did| did.lists.arrived()).1, ratio(turns, |did| did.single.arrived()).1);
    say(&format!("{what}, {} turns, recipients/s that arrived: lists {lists}; single messages {single}", turns.len()));
}

impl StragglerFigures {
    /// As a table, and for programs.
    pub(super) fn report(&self, part: ListPart) -> Told {
        let row = |of: fn(&Did) -> f64| ratio(&self.turns, of);
        let rate = |name: &'static str, of: fn(&Did) -> f64| {
            let (ratios, measured) = row(of);
            let is_met = spread(ratios).is_some_and(|(median, ..)| median >= 0.95);
            ReportLine::target(format!("{name}, recipients/s, empty → full queue: ratio"), "≥ 0.95", measured, is_met)
        };
        let work = |name: &'static str, of: fn(&Did) -> f64| {
            ReportLine::plain(format!("{name}, processor µs a recipient, empty → full queue: ratio"), row(of).1)
        };
        let hands = |name: &'static str, of: fn(&Did) -> f64| {
            ReportLine::plain(format!("{name}, connections for 100 recipients, empty → full queue: ratio"), row(of).1)
        };
        let IdlePeriod { seconds, share, share_empty, waiting: [first, last], tries, hosts, is_quick } = self.idle;
        let bad_hosts = self.bad_hosts;
        let tried = format!("{hosts}, {tries} tries");
        let lines = vec![
            ReportLine::plain(
                format!("recipients that wait, on {bad_hosts} bad hosts"),
                format!("{}, {}", self.waiting, self.bad.character()),
            ),
            ReportLine::plain("seconds to bring them", format!("{:.1}", self.fill_s)),
            ReportLine::plain(
                "seconds until at rest",
                self.rest_s.map_or_else(|| "never".to_owned(), |s| format!("{s:.0}")),
            ),
            ReportLine::target(
                format!("processor in {seconds:.0} s in which nothing else happens, % of a core (empty queue)"),
                "≤ 1",
                format!("{:.2} ({:.2})", 100.0 * share, 100.0 * share_empty),
                share <= 0.01,
            ),
            if self.bad == Bad::Dead && !is_quick {
                ReportLine::must(
                    format!("bad hosts tried in that time: all {bad_hosts}, and at most {TRIES_MAX} times on average"),
                    tried,
                    hosts == bad_hosts && tries <= TRIES_MAX * bad_hosts as u64,
                )
            } else {
                ReportLine::plain(format!("bad hosts of {bad_hosts} at which a try ended in that time"), tried)
            },
            ReportLine::must(
                "who waits at its beginning and its end: all of them",
                format!("{first} and {last}"),
                [first, last] == [self.waiting; 2],
            ),
            ReportLine::must(
                "mail to live hosts that came twice, or that nobody sent: 0 and 0",
                format!("{} and {}", self.twice, self.strange),
                (self.twice, self.strange) == (0, 0),
            ),
            ReportLine::plain("the most memory, MiB", (self.memory >> 20).to_string()),
            rate("lists accepted", |did| did.lists.accepted()),
            rate("lists arrived", |did| did.lists.arrived()),
            work("lists", |did| did.lists.us()),
            hands("lists", |did| did.lists.connections()),
            rate("single messages accepted", |did| did.single.accepted()),
            rate("single messages arrived", |did| did.single.arrived()),
            work("single messages", |did| did.single.us()),
            hands("single messages", |did| did.single.connections()),
        ];
        let pace = |of: &BroughtRecipients| json!({"accepted": of.accepted(), "arrived": of.arrived(), "us": of.us(), "connections": of.connections()});
        let one = |did: &Did| json!({"lists": pace(&did.lists), "single": pace(&did.single)});
        let passes = |of: fn(&Turn) -> &Did| -> Vec<Value> { self.turns.iter().map(|turn| one(of(turn))).collect() };
        let value = json!({
            "part": part.title(), "bad": self.bad.character(), "waiting": self.waiting, "fill_seconds": self.fill_s,
            "rest_seconds": self.rest_s, "idle_seconds": seconds, "idle_share": share, "idle_share_empty": share_empty,
            "idle_waiting": [first, last], "idle_tries": tries, "idle_hosts": hosts, "twice": self.twice,
            "strange": self.strange,
            "memory_max": self.memory, "empty": passes(|turn| &turn.empty), "full": passes(|turn| &turn.full),
        });
        ReportLines(lines).told(part, value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn broken(change: impl FnOnce(&mut StragglerFigures)) -> Vec<String> {
        let idle = IdlePeriod { seconds: 75.0, waiting: [1_000, 1_000], tries: 6, hosts: 5, ..IdlePeriod::default() };
        let mut figures = StragglerFigures {
            bad: Bad::Dead,
            bad_hosts: 5,
            waiting: 1_000,
            turns: vec![Turn::default()],
            fill_s: 1.0,
            rest_s: None,
            idle,
            memory: 1,
            twice: 0,
            strange: 0,
        };
        change(&mut figures);
        figures.report(ListPart::Stragglers).broken
    }

    #[test]
    fn whoever_does_not_wait_and_a_host_that_is_not_tried_make_it_fail() {
        assert_eq!(broken(|_| {}), [""; 0]);
        assert_eq!(broken(|figures| figures.idle.share = 0.5), [""; 0]);
        assert_eq!(
            broken(|figures| figures.idle.waiting[0] = 999),
            ["who waits at its beginning and its end: all of them: 999 and 1000"]
        );
        assert_eq!(broken(|figures| figures.idle.waiting[1] = 0).len(), 1);
        assert_eq!(broken(|figures| figures.idle.waiting = [0, 0]).len(), 1);
        assert_eq!(
            broken(|figures| figures.idle.hosts = 4),
            ["bad hosts tried in that time: all 5, and at most 4 times on average: 4, 6 tries"]
        );
        assert_eq!(broken(|figures| figures.idle.tries = 20), [""; 0]);
        assert_eq!(broken(|figures| figures.idle.tries = 21).len(), 1);
        assert_eq!(broken(|figures| figures.twice = 1).len(), 1);
        assert_eq!(broken(|figures| figures.strange = 1).len(), 1);
        // Where not all can be expected nothing is said of all.
        assert_eq!(broken(|figures| (figures.idle.hosts, figures.idle.is_quick) = (1, true)), [""; 0]);
        assert_eq!(broken(|figures| (figures.idle.hosts, figures.bad) = (0, Bad::Hung)), [""; 0]);
    }
}

//! What mail that waits for dead hosts costs the mail that can be delivered.
//!
//! One server, twice the same work: lists and single messages to live hosts, first with an empty queue, then with a
//! million recipients waiting for 5,000 hosts that refuse connections. Between the two: how long the server needs until
//! it is at rest with them, and what processor time it uses when nothing happens.

use super::flow::{Submission, follow, submission};
use super::internet::Internet;
use super::ledger::Tally;
use super::report::{Line, Lines};
use super::world::World;
use super::{Arguments, Part};
use crate::clock;
use crate::side_by_side::figures::{spread, text};
use crate::side_by_side::programs::{process_memory_max, process_ticks, seconds};
use crate::side_by_side::servers::{Kind, Server, Site, Task};
use crate::spool_bench::say;
use crate::storm::Plan;
use serde_json::{Value, json};
use std::time::Duration;

/// Hosts, of which four of five are dead.
const HOSTS: u32 = 6_250;
const DEAD_PERCENT: f64 = 80.0;
/// Lists of a pass, and single messages.
const LISTS: u64 = 10;
const SINGLE: u64 = 5_000;
/// Sessions that bring single messages.
const SESSIONS: u32 = 20;
/// A pass takes no longer.
const LONGEST: Duration = Duration::from_secs(60);
/// At rest is who uses less of a core than this; it is looked for so long.
const REST_SHARE: f64 = 0.02;
const REST_LOOK: Duration = Duration::from_secs(2);
const REST_LONGEST: Duration = Duration::from_secs(180);

/// Recipients a second of a pass: accepted and arrived, of lists and of single messages.
#[derive(Clone, Copy, Debug, Default)]
struct Pass {
    list_accepted: f64,
    list_arrived: f64,
    single_accepted: f64,
    single_arrived: f64,
}

/// All figures of the part.
#[derive(Debug)]
pub(super) struct Figures {
    waiting: u64,
    empty: Vec<Pass>,
    full: Vec<Pass>,
    fill_s: f64,
    rest_s: Option<f64>,
    idle_share: f64,
    memory: u64,
}

/// Takes all samples.
///
/// # Errors
/// Why there are no figures.
pub(super) fn measure(site: &Site, arguments: &Arguments) -> Result<Figures, String> {
    let shares = vec![("dead", DEAD_PERCENT)];
    let world = World { hosts: HOSTS, domains_per_host: 1, recipients: 1, shares, delay_ms: arguments.delay };
    let mut bench = Bench {
        internet: Internet::start(site, &world)?,
        server: Server::start(site, &Kind::Serve, Task::List)?,
        bytes: arguments.bytes,
        run: 0,
    };
    let pid = bench.server.process().ok_or("the server is no process of ours")?;
    bench.pass("warm-up")?;
    let rounds = arguments.rounds();
    let passes = |bench: &mut Bench<'_>, name| (0..rounds).map(|_| bench.pass(name)).collect::<Result<Vec<_>, _>>();
    let empty = passes(&mut bench, "empty queue")?;

    let dead = bench.internet.people.those(false);
    let messages = arguments.waiting.div_ceil(dead.len().max(1) as u64);
    let waiting = messages * dead.len() as u64;
    say(&format!("list: stragglers: {waiting} recipients are brought"));
    let fill = Submission::start(submission(bench.server.at, "fill", messages, arguments.bytes, vec![dead]));
    let fill_s = fill.end()?;
    let rest_s = rest(pid);
    let (start, before) = (clock::now(), process_ticks(pid));
    clock::pause(Duration::from_secs(if arguments.quick { 10 } else { 60 }));
    let idle_share = seconds(process_ticks(pid).saturating_sub(before)) / start.elapsed().as_secs_f64();
    let full = passes(&mut bench, "full queue")?;
    Ok(Figures { waiting, empty, full, fill_s, rest_s, idle_share, memory: process_memory_max(pid) })
}

/// Waits until a process does little; how long it took.
fn rest(pid: u32) -> Option<f64> {
    let start = clock::now();
    while start.elapsed() < REST_LONGEST {
        let before = process_ticks(pid);
        clock::pause(REST_LOOK);
        let share = seconds(process_ticks(pid).saturating_sub(before)) / REST_LOOK.as_secs_f64();
        if share < REST_SHARE {
            return Some(start.elapsed().as_secs_f64());
        }
        say(&format!("list:   the server uses {:.0} % of a core", 100.0 * share));
    }
    None
}

/// Server and internet at work.
struct Bench<'a> {
    internet: Internet,
    server: Server<'a>,
    bytes: usize,
    /// Number of the last run; each has its own name.
    run: u32,
}

impl Bench<'_> {
    fn pass(&mut self, name: &str) -> Result<Pass, String> {
        let live = self.internet.people.those(true);
        let per_list = live.len();
        let single = live.iter().map(|one| vec![one.clone()]).collect();
        let (list_accepted, list_arrived) = self.bring(LISTS, 1, vec![live], per_list)?;
        let (single_accepted, single_arrived) = self.bring(SINGLE, SESSIONS, single, 1)?;
        say(&format!(
            "list: stragglers: {name}: lists {list_accepted:.0} and {list_arrived:.0} recipients/s accepted and arrived, \
             single messages {single_accepted:.0} and {single_arrived:.0}"
        ));
        Ok(Pass { list_accepted, list_arrived, single_accepted, single_arrived })
    }

    /// Brings messages and waits for them; recipients a second that were accepted and that arrived.
    fn bring(
        &mut self,
        messages: u64,
        sessions: u32,
        lists: Vec<Vec<String>>,
        each: usize,
    ) -> Result<(f64, f64), String> {
        self.run += 1;
        let run = format!("run{}", self.run);
        let mut tally = Tally::new(&run, lists.iter().flatten().map(|one| (one.clone(), true)));
        let expected = each * usize::try_from(messages).unwrap_or(usize::MAX);
        // What came late of the run before is not of this one.
        self.internet.deliveries(|_| {})?;
        let plan = Plan { sessions, ..submission(self.server.at, &run, messages, self.bytes, lists) };
        let submission = Submission::start(plan);
        follow(&mut self.internet, &mut tally, expected, &submission, LONGEST, |_| {})?;
        let start_us = submission.start_us.saturating_sub(self.internet.start_us);
        let accepted_s = submission.end()?;
        let Some(last) = tally.moment(100, expected) else {
            return Err(format!("{} of {expected} arrived within {} s", tally.arrived(), LONGEST.as_secs()));
        };
        let arrived_s = super::flow::micros(last.saturating_sub(start_us));
        let expected = u32::try_from(expected).map_or(f64::INFINITY, f64::from);
        Ok((expected / accepted_s.max(1e-3), expected / arrived_s.max(1e-3)))
    }
}

impl Figures {
    /// As a table, and for programs.
    pub(super) fn report(&self, part: Part) -> (String, Value) {
        let median = |passes: &[Pass], of: fn(&Pass) -> f64| spread(passes.iter().map(of).collect());
        let row = |name: &'static str, of: fn(&Pass) -> f64| {
            let all = |passes: &[Pass]| text(passes.iter().map(of).collect(), 0);
            let share = median(&self.full, of).zip(median(&self.empty, of)).map(|(full, empty)| full.0 / empty.0);
            let met = share.map(|share| share >= 0.95);
            let share = share.map_or_else(|| "-".to_owned(), |share| format!("{share:.2}"));
            let measured = format!("{} → {}: {share}", all(&self.empty), all(&self.full));
            Line { name: format!("{name}, recipients/s, empty → full queue"), target: "≥ 0.95", measured, met }
        };
        let plain = |name: &str, measured: String| Line { name: name.to_owned(), target: "", measured, met: None };
        let lines = vec![
            plain("recipients that wait, on 5,000 dead hosts", self.waiting.to_string()),
            plain("seconds to bring them", format!("{:.1}", self.fill_s)),
            plain("seconds until at rest", self.rest_s.map_or_else(|| "never".to_owned(), |s| format!("{s:.0}"))),
            Line {
                name: "processor when nothing happens, % of a core".to_owned(),
                target: "≤ 1",
                measured: format!("{:.2}", 100.0 * self.idle_share),
                met: Some(self.idle_share <= 0.01),
            },
            plain("the most memory, MiB", (self.memory >> 20).to_string()),
            row("lists accepted", |pass| pass.list_accepted),
            row("lists arrived", |pass| pass.list_arrived),
            row("single messages accepted", |pass| pass.single_accepted),
            row("single messages arrived", |pass| pass.single_arrived),
        ];
        let passes = |passes: &[Pass]| -> Vec<Value> {
            let one = |p: &Pass| json!([p.list_accepted, p.list_arrived, p.single_accepted, p.single_arrived]);
            passes.iter().map(one).collect()
        };
        let value = json!({
            "part": part.title(), "waiting": self.waiting, "fill_seconds": self.fill_s, "rest_seconds": self.rest_s,
            "idle_share": self.idle_share, "memory_max": self.memory, "empty": passes(&self.empty),
            "full": passes(&self.full),
        });
        (Lines(lines).markdown(part.title()), value)
    }
}

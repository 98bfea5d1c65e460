//! The storm, the kill and the count.

use super::balancer::Balancer;
use super::nodes::DemoNode;
use super::{ClusterDemoArguments, Parts, clock};
use crate::exit::{Exit, Failure};
use crate::output::{Progress, bytes, count, thousands};
use bench::receiver::Manners;
use bench::storm::{self, Plan};
use spool::disk::Space;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::sync::mpsc;
use std::time::{Duration, Instant};

/// The time that the next hop takes for a message until the kill, so that there is a queue when it comes.
const SLOW: Duration = Duration::from_millis(250);
/// Time after which nothing more is expected to arrive. An adoption takes some 15 seconds.
const STALLED: Duration = Duration::from_secs(60);
/// Time between questions whether the mail of the killed node is adopted.
const LOOK_INTERVAL: Duration = Duration::from_millis(500);
/// Time without an arrival behind the end of the adoption.
const QUIET: Duration = Duration::from_secs(2);
/// The longest wait for a reply in the storm.
const PATIENCE: Duration = Duration::from_secs(20);

/// An acknowledged message.
#[derive(Clone, Copy, Debug)]
struct Acknowledged {
    seq: u64,
    at: Instant,
}

pub(super) fn opening_text(parts: &Parts, directory: &Path, space: Space) -> String {
    let mut text = String::new();
    for (node, engine) in parts.nodes.iter().zip(&parts.engines) {
        let line = format!(
            "   node {}    {}, process {}; engine {}, process {}\n",
            node.number,
            node.address(),
            node.process(),
            engine.address(),
            engine.process()
        );
        text.push_str(&line);
    }
    let balancer = parts.balancer.address();
    let room = format!("{}, {} free on {}", directory.display(), bytes(space.free), space.file_system);
    write!(
        text,
        "   balancer  {balancer}\n   next hop  {}, in this process\n   files     {room}\n   copies    2: a 250 says that the message is on the disks of two nodes\n",
        parts.receiver.at()
    )
    .expect("a string takes everything");
    text
}

/// The counts at the end.
#[derive(Debug, Default, PartialEq, Eq)]
struct Count {
    acknowledged: u64,
    lost: BTreeSet<u64>,
    repeated: u64,
    foreign: u64,
}

impl Count {
    /// Compares both ends.
    fn of(acknowledged: &BTreeSet<u64>, arrived: &BTreeMap<u64, u64>, foreign: u64) -> Self {
        Self {
            acknowledged: u64::try_from(acknowledged.len()).unwrap_or(u64::MAX),
            lost: acknowledged.iter().filter(|seq| !arrived.contains_key(seq)).copied().collect(),
            repeated: arrived.values().map(|times| times.saturating_sub(1)).sum(),
            foreign,
        }
    }

    fn exit(&self) -> Exit {
        match () {
            () if !self.lost.is_empty() => Exit::Lost,
            () if self.foreign > 0 => Exit::Damaged,
            () => Exit::Ok,
        }
    }
}

/// Runs the storm and kills the first node and its engine in the middle of it. Returns the result and what still runs.
///
/// # Errors
/// The storm cannot be sent, or a server went away that nothing had killed.
pub(super) fn tell(
    arguments: &ClusterDemoArguments,
    mut parts: Parts,
    tell: &mut dyn FnMut(String),
) -> Result<(Exit, Parts), Failure> {
    let run = format!("cluster-{}", std::process::id());
    let (told, acknowledged) = mpsc::channel();
    let plan = Plan {
        messages: Some(arguments.messages),
        sessions: arguments.sessions,
        rcpt: "user0@storm.example".to_owned(),
        run: run.clone(),
        patience: PATIENCE,
        told: Some(told),
        ..Plan::new(parts.balancer.address())
    };
    tell(format!(
        "1. A storm: {} over {} through the balancer; kill -9 of node 1 and its engine at a third of it",
        count(arguments.messages, "message"),
        count(u64::from(arguments.sessions), "session")
    ));
    parts.receiver.behave(Manners { chunking: true, delay: SLOW });
    let third = usize::try_from(arguments.messages / 3).unwrap_or(1);
    let sender = std::thread::spawn(move || storm::run(&plan, &mut |_| {}));
    let line = Progress::new();
    let mut ledger: Vec<Acknowledged> = Vec::new();
    let mut killed: Option<Instant> = None;
    for seq in acknowledged {
        ledger.push(Acknowledged { seq, at: clock::now() });
        line.show(format_args!("   {} acknowledged", thousands(ledger.len() as u64)));
        if ledger.len() == third {
            kill_first(&mut parts)?;
            killed = Some(clock::now());
            parts.receiver.behave(Manners { chunking: true, delay: Duration::ZERO });
        }
    }
    line.clear();
    let report = sender.join().map_err(|_| Failure::new(Exit::Io, "the storm panicked; report a bug"))??;
    let Some(killed) = killed else {
        return Err(Failure::new(Exit::Io, format!("the storm ended before the kill:\n{}", report.text())));
    };
    let failed = arguments.messages.saturating_sub(report.accepted);
    tell(format!(
        "   {} acknowledged, {} not (their clients have no 250 and would send them again)\n   longest time without a 250: {:.1} s",
        thousands(report.accepted),
        thousands(failed),
        longest_gap(&ledger).as_secs_f64()
    ));
    let before: BTreeSet<u64> = ledger.iter().filter(|one| one.at < killed).map(|one| one.seq).collect();
    let all: BTreeSet<u64> = ledger.iter().map(|one| one.seq).collect();
    let arrivals = wait_for_all(&parts, &run, (&before, &all));
    let moved = adopted(&parts)?;
    let counted = Count::of(&all, &arrivals.times, arrivals.foreign);
    tell(count_text(&counted, arrivals.complete_at.map(|at| at.saturating_duration_since(killed)), moved));
    Ok((counted.exit(), parts))
}

fn kill_first(parts: &mut Parts) -> Result<(), Failure> {
    if let (Some(node), Some(engine)) = (parts.nodes.first_mut(), parts.engines.first_mut()) {
        node.kill()?;
        engine.kill();
    }
    Ok(())
}

/// Messages that the nodes left have adopted.
fn adopted(parts: &Parts) -> Result<u64, Failure> {
    let mut adopted = 0;
    for node in parts.nodes.iter().skip(1) {
        adopted += node.status()?.cluster.map_or(0, |cluster| cluster.adopted);
    }
    Ok(adopted)
}

/// The longest time between two acknowledgements.
fn longest_gap(ledger: &[Acknowledged]) -> Duration {
    let gaps = ledger.iter().zip(ledger.iter().skip(1)).map(|(one, next)| next.at.saturating_duration_since(one.at));
    gaps.max().unwrap_or_default()
}

/// True when a node that is left says that no mail of the first one waits.
fn is_adopted(parts: &Parts) -> bool {
    let Some(first) = parts.nodes.first() else { return true };
    let is_over = |node: &DemoNode| {
        let absent = node.absent().unwrap_or_default().nodes.into_iter().find(|absent| absent.node == first.number);
        absent.is_some_and(|absent| !absent.streams.is_empty() && absent.streams.iter().all(|stream| !stream.left))
    };
    parts.nodes.iter().skip(1).any(is_over)
}

/// Messages that the next hop has taken.
#[derive(Debug, Default)]
struct Arrivals {
    /// How often each message of the storm came.
    times: BTreeMap<u64, u64>,
    /// Messages that were none of the storm.
    foreign: u64,
    /// When all messages from before the kill had come and the mail of the killed node was adopted.
    complete_at: Option<Instant>,
}

/// Takes arrivals until all of the storm have come and the mail of the killed node is adopted, as repeats come with the
/// adopted messages, or until nothing comes any more.
fn wait_for_all(parts: &Parts, run: &str, (before, all): (&BTreeSet<u64>, &BTreeSet<u64>)) -> Arrivals {
    let line = Progress::new();
    let mut arrivals = Arrivals::default();
    let (mut missing_before, mut missing) = (before.clone(), all.clone());
    let (mut before_at, mut adopted_at) = (None, None);
    let mut last = clock::now();
    let mut looked = last;
    loop {
        for arrival in parts.receiver.arrivals() {
            last = clock::now();
            match arrival.what {
                Ok(message) if message.run == run => {
                    *arrivals.times.entry(message.seq).or_default() += 1;
                    missing.remove(&message.seq);
                    if missing_before.remove(&message.seq) && missing_before.is_empty() {
                        before_at = Some(arrival.at);
                    }
                }
                _ => arrivals.foreign += 1,
            }
        }
        let still = thousands(missing.len() as u64);
        line.show(format_args!(
            "   {still} still to arrive{}",
            if adopted_at.is_some() { "" } else { ", node 1 to be adopted" }
        ));
        let now = clock::now();
        if adopted_at.is_none() && now.saturating_duration_since(looked) > LOOK_INTERVAL {
            looked = now;
            if is_adopted(parts) {
                (adopted_at, last) = (Some(now), now);
            }
        }
        let is_over = missing.is_empty() && adopted_at.is_some();
        if now.saturating_duration_since(last) > if is_over { QUIET } else { STALLED } {
            line.clear();
            arrivals.complete_at = before_at.zip(adopted_at).map(|(one, other)| one.max(other));
            return arrivals;
        }
        clock::pause();
    }
}

/// The lines of the count; scripts read `lost N` and `adopted in N s`.
fn count_text(counted: &Count, adopted: Option<Duration>, messages: u64) -> String {
    let mut text = String::from("\n2. The count\n");
    let mut put = |line: String| {
        text.push_str("   ");
        text.push_str(&line);
        text.push('\n');
    };
    put(format!("acknowledged {}", thousands(counted.acknowledged)));
    put(format!("lost {}", counted.lost.len()));
    put(format!(
        "arrived twice {} (each adopted message is logged as a possible duplicate: {})",
        counted.repeated,
        thousands(messages)
    ));
    match adopted {
        Some(time) => put(format!(
            "adopted in {:.0} s: no mail of node 1 waits, and all messages from before the kill have arrived",
            time.as_secs_f64().ceil()
        )),
        None => put("adopted: no, or not all messages from before the kill have arrived".to_owned()),
    }
    for seq in counted.lost.iter().take(10) {
        put(format!("message {seq} was acknowledged and did not arrive"));
    }
    if counted.foreign > 0 {
        put(format!("{} that were none of the storm", count(counted.foreign, "message")));
    }
    text
}

pub(super) fn commands_text(parts: &Parts) -> String {
    let node = parts.nodes.iter().skip(1).map(DemoNode::control).next().map(Path::display);
    let control = node.map(|path| path.to_string()).unwrap_or_default();
    format!(
        "The other nodes stay up until Ctrl-C. To try:\n   mailrace cluster status --control {control}\n   \
         swaks --server {} --from a@demo.example --to b@demo.example",
        Balancer::address(&parts.balancer)
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_count_finds_what_is_lost_and_what_came_twice() {
        let all: BTreeSet<u64> = [1, 2, 3].into();
        let counted = Count::of(&all, &BTreeMap::from([(1, 1), (3, 2), (9, 1)]), 0);
        assert_eq!(counted, Count { acknowledged: 3, lost: [2].into(), repeated: 1, foreign: 0 });
        assert_eq!(counted.exit(), Exit::Lost);
        assert_eq!(Count::of(&all, &BTreeMap::from([(1, 1), (2, 1), (3, 1)]), 0).exit(), Exit::Ok);
        assert_eq!(Count::of(&[].into(), &BTreeMap::new(), 2).exit(), Exit::Damaged);
        let text = count_text(&counted, Some(Duration::from_millis(16_200)), 40);
        assert!(text.contains("\n   lost 1\n") && text.contains("\n   adopted in 17 s"), "{text}");
    }
}

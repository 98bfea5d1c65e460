//! Measures each mechanism against slow hosts: scenarios with it and without it, in virtual time.
//!
//! `cargo test --profile quick -p mailrace-schedule --test it ablation -- --ignored --nocapture` prints the figures of
//! `docs/schedule.md`, "What the mechanisms are good for"; `ABLATION=list` runs the scenarios with this in their name.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::rig::{Host, LIMITS, Manner, Poison, Rig};
use mail::QueueId;
use schedule::{Limits, Mechanism, RetryPolicy, Settings};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const SEEDS: u64 = 5;
/// Time of a scenario after its last message.
const REST: Duration = Duration::from_secs(900);
/// The time of recipients that are not delivered.
const NEVER: Duration = Duration::from_secs(9_999);

/// Columns of the table.
type Figures = [f64; 7];

/// The mechanism that is switched off.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Without {
    Nothing,
    One(Mechanism),
    Pace,
    Rate,
}

const ALL: [Without; 8] = [
    Without::Nothing,
    Without::One(Mechanism::WaitQueues),
    Without::One(Mechanism::GreetingTimer),
    Without::One(Mechanism::Lingering),
    Without::One(Mechanism::Overload),
    Without::One(Mechanism::IsolatedRetry),
    Without::Pace,
    Without::Rate,
];

/// A rig whose mail for hosts that take it is measured.
struct Course {
    rig: Rig,
    added: BTreeMap<(QueueId, u32), Duration>,
    /// The same for hosts that greet late.
    added_late: BTreeMap<(QueueId, u32), Duration>,
}

impl Course {
    fn new(without: Without, settings: Settings, manner: Manner, hosts: Vec<Host>, seed: u64) -> Self {
        let settings = Settings { learn_pace: without != Without::Pace, ..settings };
        let mut rig = Rig::new(settings, manner, hosts, seed);
        if let Without::One(mechanism) = without {
            rig.scheduler.switch_off(mechanism);
        }
        Self { rig, added: BTreeMap::new(), added_late: BTreeMap::new() }
    }

    /// Commits a message; it counts for hosts that take mail.
    fn add(&mut self, whom: &[(usize, u32)]) -> QueueId {
        let message = self.rig.spread(whom, false);
        let mut next = 0;
        for &(to, recipients) in whom {
            let all = match self.rig.hosts[to] {
                Host::Dead | Host::Hung => None,
                Host::Late(_) => Some(&mut self.added_late),
                _ => Some(&mut self.added),
            };
            let recipients = next..next + recipients;
            next = recipients.end;
            all.into_iter().for_each(|all| all.extend(recipients.clone().map(|one| ((message, one), self.rig.now))));
        }
        message
    }

    fn run(&mut self, time: Duration) {
        let end = self.rig.now + time;
        while self.rig.now < end {
            self.rig.run(SECOND.min(end - self.rig.now));
        }
    }

    /// Returns the seconds from each commit to the delivery, in order.
    fn seconds(&self, added: &BTreeMap<(QueueId, u32), Duration>) -> Vec<f64> {
        let took = |(whom, at): (&_, &Duration)| self.rig.delivered.get(whom).map_or(NEVER, |end| *end - *at);
        let mut all: Vec<f64> = added.iter().map(took).map(|took| took.as_secs_f64()).collect();
        all.sort_unstable_by(f64::total_cmp);
        all
    }

    /// Seconds until 50, 95 and 99 % were delivered, and 95 % to hosts that greet late; connections; of these in vain;
    /// messages refused as too many.
    fn end(mut self) -> Figures {
        self.run(REST);
        let (took, late) = (self.seconds(&self.added), self.seconds(&self.added_late));
        assert!(took.iter().filter(|took| **took < NEVER.as_secs_f64()).count() * 2 > took.len(), "half is delivered");
        let of = |all: &[f64], percent: usize| all.get(all.len().saturating_sub(1) * percent / 100).copied();
        let share = |percent: usize| of(&took, percent).unwrap();
        let number = |count: usize| f64::from(u32::try_from(count).unwrap());
        let opened: usize = self.rig.opened.iter().sum();
        let refused: usize = self.rig.refused.iter().sum();
        let late = of(&late, 95).unwrap_or(0.0);
        let in_vain = number(opened - self.rig.useful);
        [share(50), share(95), share(99), late, number(opened), in_vain, number(refused)]
    }
}

fn places(connections_max: usize) -> Settings {
    Settings { connections_max, ..Settings::default() }
}

/// A list to an internet in which a fifth is dead, hung or slow, and single messages meanwhile.
fn list(without: Without, seed: u64) -> Figures {
    let kinds = [(150, Host::Alive), (15, Host::Dead), (20, Host::Hung), (15, Host::Late(SECOND * 3 / 2))];
    let hosts: Vec<Host> = kinds.iter().flat_map(|&(count, host)| vec![host; count]).collect();
    let whom: Vec<(usize, u32)> = (0..hosts.len()).map(|number| ((number * 67) % hosts.len(), 3)).collect();
    let mut course = Course::new(without, places(20), Manner::default(), hosts, seed);
    for _ in 0..2 {
        course.add(&whom);
    }
    for number in 0..300 {
        course.add(&[((number * 31 + usize::try_from(seed).unwrap()) % 150, 1)]);
        course.run(50 * MS);
    }
    course.end()
}

/// The same where most of the hosts are hung at the first contact.
fn mostly_hung(without: Without, seed: u64) -> Figures {
    let hosts: Vec<Host> = (0..160).map(|number| if number % 4 == 0 { Host::Alive } else { Host::Hung }).collect();
    let whom: Vec<(usize, u32)> = (0..hosts.len()).map(|number| (number, 1)).collect();
    let mut course = Course::new(without, places(20), Manner::default(), hosts, seed);
    course.add(&whom);
    course.end()
}

/// Dead sites that are probed while live ones want more connections than there are.
fn many_dead(without: Without, seed: u64) -> Figures {
    let hosts: Vec<Host> = (0..120).map(|number| if number % 2 == 0 { Host::Alive } else { Host::Dead }).collect();
    let mut course = Course::new(without, places(10), Manner { service: 50 * MS, ..Manner::default() }, hosts, seed);
    for number in 0..2_400 {
        course.add(&[((number * 7) % 120, 1)]);
        course.run(25 * MS);
    }
    course.end()
}

/// Single messages to more sites than there are places, 750 a second.
fn burst(without: Without, seed: u64, machine: [Duration; 2]) -> Figures {
    let manner = Manner { machine, ..Manner::default() };
    let mut course = Course::new(without, places(16), manner, vec![Host::Alive; 30], seed);
    for number in 0..3_000_usize {
        course.add(&[((number * 7 + number / 30) % 30, 1)]);
        course.run(MS * 4 / 3);
    }
    course.end()
}

fn free_handshakes(without: Without, seed: u64) -> Figures {
    burst(without, seed, [Duration::ZERO; 2])
}

fn costly_handshakes(without: Without, seed: u64) -> Figures {
    burst(without, seed, [MS * 15, MS / 4])
}

/// As much work as this machine can do: bursts for ten sites, and now and then a message for each of thirty others,
/// whose idle connections are woken.
fn overload(without: Without, seed: u64) -> Figures {
    let manner = Manner { machine: [MS * 20, MS], ..Manner::default() };
    let mut course = Course::new(without, places(1_000), manner, vec![Host::Alive; 40], seed);
    for number in 0..1_500_usize {
        if number.is_multiple_of(50) {
            for number in 0..440 {
                course.add(&[(number % 10, 1)]);
            }
        }
        course.add(&[(10 + number % 30, 1)]);
        course.run(MS * 10);
    }
    course.end()
}

/// A host with two connections that never answers three messages and disconnects at a fourth.
fn much_poison(without: Without, seed: u64) -> Figures {
    poison(without, seed, 2, &[Poison::Hangs, Poison::Hangs, Poison::Hangs, Poison::Drops])
}

/// A host that disconnects at one message.
fn little_poison(without: Without, seed: u64) -> Figures {
    poison(without, seed, 20, &[Poison::Drops])
}

fn poison(without: Without, seed: u64, connections: u32, poisons: &[Poison]) -> Figures {
    let settings = Settings { warn_after: None, ..Settings::default() };
    let manner = Manner { ahead: 4, ..Manner::default() };
    let mut course = Course::new(without, settings, manner, vec![Host::Alive], seed);
    course.rig.retry = RetryPolicy { first: MINUTE, max: MINUTE * 2 };
    course.rig.limits = vec![Limits { connections, ..LIMITS }];
    for &poison in poisons {
        let message = course.rig.add(0, 1, true);
        course.rig.poisons.insert((message, 0), poison);
    }
    for number in 0..200 {
        course.add(&[(0, 1)]);
        course.run(if number < 30 { MS } else { SECOND * 10 });
    }
    course.end()
}

/// A host that takes a message each second, and one that takes 60 a minute.
fn paced(without: Without, seed: u64) -> Figures {
    let hosts = vec![Host::Paces(SECOND), Host::Counts(60, SECOND * 60)];
    let mut course = Course::new(without, places(20), Manner::default(), hosts, seed);
    for number in 0..800 {
        course.add(&[(number % 2, 1)]);
    }
    course.end()
}

/// A host whose rate is known and configured.
fn rated(without: Without, seed: u64) -> Figures {
    let mut course = Course::new(without, places(20), Manner::default(), vec![Host::Paces(SECOND)], seed);
    if without != Without::Rate {
        course.rig.limits = vec![Limits { messages_per_second: Some(990), ..LIMITS }];
    }
    for _ in 0..400 {
        course.add(&[(0, 1)]);
    }
    course.end()
}

/// Runs a scenario without one mechanism, with a seed.
type Scenario = fn(Without, u64) -> Figures;

/// Each mechanism pays in the scenario of the table that is made for it.
#[test]
fn each_mechanism_pays_somewhere() {
    let [share_50, share_95, share_99, opened, refused] = [0, 1, 2, 4, 6];
    let cases: [(Scenario, Without, usize); 7] = [
        (list, Without::One(Mechanism::WaitQueues), share_95),
        (list, Without::One(Mechanism::GreetingTimer), share_95),
        (little_poison, Without::One(Mechanism::IsolatedRetry), share_99),
        (free_handshakes, Without::One(Mechanism::Lingering), opened),
        (overload, Without::One(Mechanism::Overload), share_50),
        (paced, Without::Pace, refused),
        (rated, Without::Rate, opened),
    ];
    for (scenario, without, column) in cases {
        let (with_it, without_it) = (scenario(Without::Nothing, 1), scenario(without, 1));
        assert!(with_it[column] < without_it[column], "{without:?}: {with_it:?} with it, {without_it:?} without");
    }
}

#[test]
#[ignore = "a measurement; it takes minutes"]
fn figures() {
    let scenarios: [(&str, Scenario); 10] = [
        ("list", list),
        ("mostly hung", mostly_hung),
        ("many dead", many_dead),
        ("burst, free handshakes", free_handshakes),
        ("burst, costly handshakes", costly_handshakes),
        ("overload", overload),
        ("poison, 4", much_poison),
        ("poison, 1", little_poison),
        ("paced", paced),
        ("rated", rated),
    ];
    let only = std::env::var("ABLATION").unwrap_or_default();
    for (name, scenario) in scenarios.into_iter().filter(|(name, _)| name.contains(&only)) {
        let mut results: Vec<Vec<Figures>> = vec![Vec::new(); ALL.len()];
        for seed in 1..=SEEDS {
            for (without, all) in ALL.iter().zip(&mut results) {
                all.push(scenario(*without, seed));
            }
        }
        for (without, all) in ALL.iter().zip(&results) {
            let median = |column: usize| {
                let mut values: Vec<f64> = all.iter().map(|row| row[column]).collect();
                values.sort_by(f64::total_cmp);
                values[values.len() / 2]
            };
            let [p50, p95, p99, late, opened, vain, refused] = [0, 1, 2, 3, 4, 5, 6].map(median);
            println!(
                "| {name} | {without:?} | {p50:.2} | {p95:.2} | {p99:.2} | {late:.2} | {opened:.0} | {vain:.0} | {refused:.0} |"
            );
        }
    }
}

//! One run, from its seed to its faults.

use super::super::book::Book;
use super::super::run::{Life, within};
use super::check::{self, Terms};
use super::memory::{self, Bounds};
use super::net::{Net, outer};
use super::script::Script;
use crate::sabotage::Sabotage;
use crate::transport::Internet;
use std::fmt::Write as _;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::sleep;

/// After this an empty server has forgotten all: the scheduler a destination after a minute, connections after
/// `idle_time`.
const CALM: Duration = Duration::from_secs(600);
/// Jobs in memory by default.
const READY_MAX: usize = 1_024;

/// Result of a run.
pub(super) struct Lived {
    pub(super) wrong: Vec<String>,
    /// Virtual time of the run.
    pub(super) time: Duration,
    /// Messages that hosts took.
    pub(super) taken: usize,
    /// All that hosts took, as text.
    pub(super) fingerprint: String,
}

/// Plays the world of a seed.
pub(super) fn run(seed: u64, sabotage: Option<Sabotage>) -> Lived {
    within(sabotage, async |machine| {
        let Script { plan, world, home, book, limits, trouble } = Script::new(seed);
        let (sites, destinations) = (limits.len() + 1, world.domains() as usize + 1);
        let bounds = Bounds {
            destinations,
            sites,
            ready_max: plan.ready_max.unwrap_or(READY_MAX),
            connections_max: plan.config.delivery.connections_max as usize,
            silent_max: plan.config.delivery.connections_silent_max as usize,
        };
        note(&book, seed, &world, &limits);
        let net = Net::new(world, home, &book);
        let hosts = Arc::clone(&net);
        let internet = Internet::new(move |address: SocketAddr| Box::pin(Arc::clone(&hosts).connect(address)));
        let life = Life::among(seed, plan, book, internet, machine);
        let watching = tokio::spawn(memory::watch(Arc::clone(&life.book), Arc::clone(&life.machine), bounds));
        let others = life.until_empty().await;
        sleep(CALM).await;
        memory::judge_calm(&life.book, &life.machine);
        watching.abort();
        life.end(others).await;
        let delivery = &life.plan.config.delivery;
        let terms = Terms {
            window: life.machine.window(),
            give_up_after: delivery.give_up_after,
            end_time: delivery.end_time,
            connections_max: delivery.connections_max as usize,
            has_room: life.plan.ready_max.is_none(),
            limits: &limits,
            trouble,
        };
        let (facts, seen, world) = (life.book.facts(), net.seen(), net.world());
        let wrong = check::check(&facts, &seen, &world, &terms);
        let mut fingerprint = String::new();
        for taken in &seen.taken {
            taken.write(&mut fingerprint);
        }
        writeln!(fingerprint, "{:?} {wrong:?}", facts.ended).unwrap();
        Lived { wrong, time: facts.ended, taken: seen.taken.len(), fingerprint }
    })
}

fn note(book: &Book, seed: u64, world: &sim::world::World, limits: &[super::script::Limits]) {
    book.note(|| format!("seed {seed}: {:?}", world.plan()));
    for (number, host) in (0..).zip(world.hosts()) {
        let site = world.site_of(number);
        book.note(|| {
            let address = outer(number);
            format!("host {number} {address} site {site} {:?}: {:?}", limits[site as usize], host.script)
        });
    }
}

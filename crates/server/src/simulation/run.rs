//! One run, from its seed to its faults.

use super::book::{Book, EPOCH};
use super::check::{self, Terms};
use super::host::Host;
use super::machine::Machine;
use super::plan::{End, Plan};
use super::random::Random;
use super::sender;
use super::talk;
use crate::config::{Acknowledge, DeliveryMode};
use crate::log::{self, Log};
use crate::sabotage::{self, Sabotage};
use crate::transport::Internet;
use bytes::Bytes;
use operator::queue::{DeliveryControl as _, Destinations};
use os::clock;
use spool::{Change, State, Status, Store as _};
use std::fmt::Write as _;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::task::JoinSet;
use tokio::time::sleep;

const MINUTE: Duration = Duration::from_secs(60);

/// Runs a seed and returns all faults.
pub(super) fn run(seed: u64, sabotage: Option<Sabotage>) -> Vec<String> {
    live(seed, sabotage).1
}

/// Returns all facts of the run of a seed.
pub(super) fn fingerprint(seed: u64) -> String {
    let (book, wrong) = live(seed, None);
    let facts = book.facts();
    let mut text = format!("{wrong:?} {:?}\n", facts.ended);
    for taken in &facts.taken {
        let size = taken.content.len();
        writeln!(text, "{:?} {} {:?} {size} {:?}", taken.at, taken.host, taken.recipients, taken.acked).unwrap();
    }
    text
}

/// Runs a seed with `delivery.mode = "queue"` and returns all faults.
pub(super) fn run_queue(seed: u64) -> Vec<String> {
    within(None, async |machine| {
        let (mut plan, book) = Plan::new(seed, false, &|hosts| Arc::new(Book::new(hosts)));
        plan.config.delivery.mode = DeliveryMode::Queue;
        plan.config.delivery.warn_after = Duration::ZERO;
        plan.config.delivery.give_up_after = 5 * 24 * 60 * MINUTE;
        plan.hosts.iter_mut().for_each(Host::behave);
        Life::new(seed, plan, book, machine).wait_for_command().await
    })
}

/// Runs a seed in which mail may be delivered before it is durable, and returns all faults.
pub(super) fn run_early(seed: u64, how: Acknowledge, sabotage: Option<Sabotage>) -> Vec<String> {
    live_as(seed, how, false, sabotage).1
}

/// Runs a seed in which domains share their mail hosts, and returns all faults.
pub(super) fn run_sites(seed: u64, sabotage: Option<Sabotage>) -> Vec<String> {
    live_as(seed, Acknowledge::Durable, true, sabotage).1
}

fn live(seed: u64, sabotage: Option<Sabotage>) -> (Arc<Book>, Vec<String>) {
    live_as(seed, Acknowledge::Durable, false, sabotage)
}

fn live_as(seed: u64, how: Acknowledge, by_sites: bool, sabotage: Option<Sabotage>) -> (Arc<Book>, Vec<String>) {
    within(sabotage, async |machine| {
        let (mut plan, book) = Plan::new(seed, by_sites, &|hosts| Arc::new(Book::new(hosts)));
        plan.config.listen[0].acknowledge = how;
        plan.config.delivery.interactive_time = Duration::from_secs(5 + seed % 20);
        let life = Life::new(seed, plan, book, machine);
        let wrong = life.live().await;
        (life.book, wrong)
    })
}

/// Carries out a plan that is made elsewhere; returns its facts and all faults.
pub(super) fn run_planned(
    seed: u64,
    plan: impl FnOnce() -> (Plan, Arc<Book>),
    sabotage: Option<Sabotage>,
) -> (Arc<Book>, Vec<String>) {
    within(sabotage, async |machine| {
        let (plan, book) = plan();
        let life = Life::new(seed, plan, book, machine);
        let wrong = life.live().await;
        (life.book, wrong)
    })
}

/// Runs a test in virtual time, with a machine whose disk works whenever all tasks wait.
pub(super) fn within<T>(sabotage: Option<Sabotage>, life: impl AsyncFnOnce(&OnceLock<Arc<Machine>>) -> T) -> T {
    let machine: Arc<OnceLock<Arc<Machine>>> = Arc::default();
    let looked = Arc::clone(&machine);
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .start_paused(true)
        .on_thread_park(move || {
            if let Some(machine) = looked.get() {
                machine.look();
            }
        })
        .build()
        .unwrap();
    let _broken = sabotage::begin(sabotage);
    let lived = runtime.block_on(async {
        let _time = clock::simulated::begin(u64::try_from(EPOCH.as_micros()).unwrap());
        life(&machine).await
    });
    drop(runtime);
    lived
}

/// A server among hosts.
pub(super) struct Life {
    seed: u64,
    pub(super) book: Arc<Book>,
    pub(super) machine: Arc<Machine>,
    hosts: Vec<Arc<Host>>,
    pub(super) plan: Plan,
    log: Log,
}

impl Life {
    pub(super) fn new(seed: u64, mut plan: Plan, book: Arc<Book>, place: &OnceLock<Arc<Machine>>) -> Self {
        let hosts: Vec<Arc<Host>> = std::mem::take(&mut plan.hosts).into_iter().map(Arc::new).collect();
        let there = hosts.clone();
        let internet = Internet::new(move |address: SocketAddr| {
            let host = there.iter().find(|host| IpAddr::V4(host.address) == address.ip()).cloned();
            Box::pin(async move {
                match host {
                    Some(host) => talk::connect(host).await,
                    None => Err(io::ErrorKind::NetworkUnreachable.into()),
                }
            })
        });
        Self { hosts, ..Self::among(seed, plan, book, internet, place) }
    }

    /// Runs among hosts that the test does not judge.
    pub(super) fn among(
        seed: u64,
        plan: Plan,
        book: Arc<Book>,
        internet: Internet,
        place: &OnceLock<Arc<Machine>>,
    ) -> Self {
        let log = Log::start(&log::LogSettings::from_config(&plan.config.log, "mx.test")).unwrap();
        let machine = Machine::new(&book, seed, &plan, log.clone(), internet);
        drop(place.set(Arc::clone(&machine)));
        Self { seed, book, machine, hosts: Vec::new(), plan, log }
    }

    async fn live(&self) -> Vec<String> {
        let others = self.until_empty().await;
        self.finish(others).await
    }

    /// Runs the plan, and then until nothing is in the queue.
    pub(super) async fn until_empty(&self) -> JoinSet<()> {
        let delivery = &self.plan.config.delivery;
        self.book.note(|| format!("seed {}: {delivery:?}", self.seed));
        for host in &self.hosts {
            self.book.note(|| format!("host {}: {:?} {:?} {:?}", host.number, host.address, host.manners, host.days));
        }
        self.book.note(|| format!("deaths {:?}", self.plan.deaths));
        let (mut others, mut senders) = self.begin();
        for (nth, at) in self.plan.commands.iter().enumerate() {
            let random = Random::new(self.seed, 5_000 + nth as u64);
            others.spawn(command(Arc::clone(&self.book), Arc::clone(&self.machine), *at, random));
        }
        self.die_and_rise().await;
        while senders.join_next().await.is_some() {}
        sleep((2 * self.plan.traffic).saturating_sub(self.book.now())).await;
        let mut left = self.machine.waiting();
        while left != Some(0) && self.book.now() < self.plan.most {
            sleep(5 * MINUTE).await;
            left = self.machine.waiting();
        }
        sleep(2 * MINUTE).await;
        self.book.facts().ended = self.book.now();
        if left != Some(0) {
            self.book.wrong(format!("{left:?} messages are in the queue at the end: {}", self.rest()));
        }
        others
    }

    /// Starts the machine, and senders at their times.
    pub(super) fn begin(&self) -> (JoinSet<()>, JoinSet<()>) {
        let (mut others, mut senders) = (JoinSet::new(), JoinSet::new());
        others.spawn(Arc::clone(&self.machine).work());
        self.machine.start();
        let count = self.book.facts().sent.len();
        for number in 0..count {
            let random = Random::new(self.seed, 10_000 + number as u64);
            senders.spawn(sender::send(Arc::clone(&self.book), Arc::clone(&self.machine), number, random));
        }
        (others, senders)
    }

    /// Checks that no mail is delivered before a command, not after a crash either.
    async fn wait_for_command(&self) -> Vec<String> {
        let (others, mut senders) = self.begin();
        while senders.join_next().await.is_some() {}
        let count = self.book.facts().sent.len();
        for _ in 0..2 {
            sleep(12 * 60 * MINUTE).await;
            if self.book.facts().dialled > 0 || self.machine.waiting() != Some(count) {
                self.book.wrong(format!("{:?} of {count} messages wait", self.machine.waiting()));
            }
            self.machine.end(End::Kill).await;
            let now = self.book.now();
            self.book.facts().downs.push((now, now));
            self.machine.start();
        }
        // A delivery makes reports, which wait for a command too, and may make more reports.
        for _ in 0..3 {
            self.retry_all();
            sleep(60 * MINUTE).await;
        }
        if self.machine.waiting() != Some(0) {
            self.book.wrong(format!("in the queue after three commands: {}", self.rest()));
        }
        self.book.facts().ended = self.book.now();
        self.finish(others).await
    }

    /// `mailrace queue retry --all`
    fn retry_all(&self) {
        let Some(context) = self.machine.context() else { return };
        let Some(spool) = context.spool() else { return };
        let due = u32::try_from(context.unix_now().as_secs()).unwrap();
        let change = |(entry, _): (spool::Entry, Bytes)| Change {
            id: entry.id,
            recipient: entry.recipient,
            state: State { due, ..entry.state },
            destination: None,
        };
        let mut ids = spool.messages();
        ids.sort_unstable_by_key(|id| id.to_u64());
        let changes: Vec<Change> = ids.into_iter().flat_map(|id| spool.states(id)).map(change).collect();
        drop(spool.record(&changes).unwrap());
        self.machine.dispatch().unwrap().retry(Destinations::All);
    }

    /// Ends everything.
    pub(super) async fn end(&self, mut others: JoinSet<()>) {
        self.machine.end(End::Stop).await;
        others.shutdown().await;
        // A test may read it. The close alone has two seconds.
        let is_flushed = self.log.flush(MINUTE);
        let _: bool = self.log.flush_and_close() && is_flushed;
    }

    /// Ends everything and judges.
    async fn finish(&self, others: JoinSet<()>) -> Vec<String> {
        let delivery = &self.plan.config.delivery;
        self.end(others).await;
        let acknowledge = self.plan.config.listen[0].acknowledge;
        // Next hops are waited for.
        let waits = if acknowledge == Acknowledge::Interactive { delivery.interactive_time } else { Duration::ZERO };
        let terms = Terms {
            hosts: &self.hosts,
            window: self.machine.window(),
            warn_after: delivery.warn_after,
            give_up_after: delivery.give_up_after,
            slack: 2 * 60 * MINUTE,
            connections_max: (delivery.connections_max + delivery.connections_silent_max) as usize,
            connections_each: delivery.connections_per_destination as usize,
            is_one_destination: self.plan.is_one_destination,
            answer: Duration::from_secs(20) + waits,
            is_early: acknowledge != Acknowledge::Durable,
            has_rules: !self.plan.config.destinations.is_empty(),
            // A better host that fails now and then delays mail that the other would take.
            is_prompt: delivery.connections_max >= 1_000
                && !self.plan.is_one_destination
                && self.plan.config.dns.overrides.is_empty(),
        };
        check::check(&self.book.facts(), &terms)
    }

    /// Ends and starts the server as planned.
    async fn die_and_rise(&self) {
        for death in &self.plan.deaths {
            sleep(death.at.saturating_sub(self.book.now())).await;
            if let Some(operations) = death.operations {
                self.machine.cut_after(operations);
                drop(tokio::time::timeout(10 * MINUTE, self.machine.died.notified()).await);
            }
            let down = self.book.now();
            self.machine.end(death.how).await;
            sleep(death.down).await;
            self.book.facts().downs.push((down, self.book.now()));
            self.machine.start();
        }
    }

    /// Lists the queue for people.
    fn rest(&self) -> String {
        let mut text = String::new();
        let Some(context) = self.machine.context() else { return text };
        let Some(spool) = context.spool() else { return text };
        for id in spool.messages() {
            for (entry, destination) in spool.states(id) {
                let state = entry.state;
                let due = Duration::from_secs(state.due.into()).saturating_sub(EPOCH);
                write!(text, "{id}/{} {:?} due {due:?} to {destination:?}; ", entry.recipient, state.status).unwrap();
            }
        }
        text
    }
}

/// The operator holds or deletes a waiting recipient.
async fn command(book: Arc<Book>, machine: Arc<Machine>, at: Duration, mut random: Random) {
    sleep(at.saturating_sub(book.now())).await;
    let Some((entry, destination, name)) = choose(&machine, &mut random) else { return };
    let record = |status, state: State| {
        let context = machine.context()?;
        let change =
            Change { id: entry.id, recipient: entry.recipient, state: State { status, ..state }, destination: None };
        drop(context.spool()?.record(&[change]).ok()?);
        Some(context)
    };
    if random.chance(30) {
        book.note(|| format!("operator: deletes {name}"));
        book.facts().deleted.insert(name);
        record(Status::Done, entry.state);
        return;
    }
    let time = random.time(Duration::from_secs(1), 300 * MINUTE);
    book.note(|| format!("operator: holds {name} for {time:?}"));
    *book.facts().held.entry(name.clone()).or_default() += time;
    record(Status::Held, entry.state);
    sleep(time).await;
    loop {
        if let Some(context) = machine.context()
            && let Some(spool) = context.spool()
        {
            let states = spool.states(entry.id);
            let is_held =
                |one: &&(spool::Entry, Bytes)| one.0.recipient == entry.recipient && one.0.state.status == Status::Held;
            let Some((held, _)) = states.iter().find(is_held) else { return };
            book.note(|| format!("operator: releases {name}"));
            let due = u32::try_from(context.unix_now().as_secs()).unwrap();
            record(Status::Waiting, State { due, ..held.state });
            machine.dispatch().unwrap().released(Destinations::These(&[destination]));
            return;
        }
        sleep(MINUTE).await;
    }
}

/// Returns a recipient of a sender's message that waits and is not being delivered.
fn choose(machine: &Machine, random: &mut Random) -> Option<(spool::Entry, Bytes, String)> {
    let context = machine.context()?;
    let spool = context.spool()?;
    let mut ids = spool.messages();
    ids.sort_unstable_by_key(|id| id.to_u64());
    let id = *ids.get(usize::try_from(random.next()).unwrap() % ids.len().max(1))?;
    let (entry, destination) = spool.states(id).into_iter().next()?;
    let stored = spool.envelope(id).ok()?;
    let found = stored.recipients.iter().find(|one| one.position == entry.recipient)?;
    let name = spool::envelope::decode_recipient(&found.data).ok()?.address.to_string();
    let is_free = !machine.dispatch()?.is_active(id, entry.recipient) && name.starts_with('r');
    (is_free && entry.state.status == Status::Waiting).then_some((entry, destination, name))
}

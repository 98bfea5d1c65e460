//! A spool, hosts, name servers and a driver in memory, for tests of the scheduler. Time is a number, and every rule is
//! checked where it could be broken.
//!
//! The spool is lists as in `spool::index`: in order of arrival, read after an entry, or from the start when that entry
//! is gone. The driver does what the server does. Connections are in `links`, the answers of spool and name servers in
//! `lists`, reports of other machines in `reports`. Tests that drive the scheduler themselves use `direct`.

#![allow(
    dead_code,
    unreachable_pub,
    missing_docs,
    reason = "each test binary uses a part, and none of it is an interface"
)]
#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::missing_panics_doc,
    reason = "what is missing here is a failed test"
)]

pub mod direct;
mod links;
mod lists;
mod reports;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use mail::{Node, QueueId};
use schedule::{
    Action, AddResult, Class, ConnectionId, DestinationId, Health, Job, Lag, Lane, Limits, Overdue, Positions,
    QueueEntry, ResolveFailure, RetryPolicy, Scheduler, Settings,
};

pub const START: Duration = Duration::from_secs(1_800_000_000);

pub const LIMITS: Limits = Limits {
    connections: 20,
    messages_per_second: None,
    recipients_per_transaction: 100,
    messages_per_connection: 1_000,
};

/// A connection that lags, without further knowledge.
pub const LAG: Lag = Lag { has_others: false, is_whole: false };

/// How a host behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    Alive,
    /// Accepts no connection.
    Dead,
    /// Accepts this many connections and refuses others.
    Few(usize),
    /// Takes messages and defers every recipient.
    Defers,
    /// Accepts some recipients, defers others, sometimes disconnects.
    Moody,
    /// Greets, and disconnects before anything is done.
    Drops,
    /// Is completely silent.
    Hung,
    /// Greets after this time, and then works.
    Late(Duration),
    /// Greets, accepts a message, and is silent from then on.
    Stalls,
    /// Replies late.
    Crawls,
    /// Accepts one message in this time. Answers 421 to earlier ones and disconnects.
    Paces(Duration),
    /// The same, but answers 450 and stays connected.
    Murmurs(Duration),
    /// Accepts this many messages per period of its clock. Answers 421 to others and disconnects.
    Counts(u32, Duration),
    /// Accepts this many messages per connection, and answers 421 to the next.
    Tires(u64),
    /// The same with a different number per connection, from this to twice as many.
    Wearies(u64),
    /// Accepts one message in this time, as `Paces`, and ends each connection as `Wearies`.
    Both(Duration, u64),
    /// Answers 421 to every message.
    Refuses,
    /// A site of two hosts. The better one accepts a message and is silent from then on; then it is passed over for a
    /// minute.
    HalfStalls,
    /// The same, but the better one disconnects.
    HalfBreaks,
}

#[derive(Debug)]
enum Event {
    Connected(ConnectionId),
    Finished(ConnectionId),
    Woken(ConnectionId),
    IdleOut(ConnectionId, u64),
    Ended(ConnectionId),
    Settled(DestinationId, usize, QueueId, Positions, Overdue),
    Loaded(DestinationId, Vec<QueueEntry>, bool),
    Told(usize, QueueId, Vec<u32>, Class),
    Resolved(DestinationId, usize),
    /// No reply since this many jobs were over.
    Lags(ConnectionId, u64),
    /// The same for a moment, with a whole message.
    Stalls(ConnectionId, u64),
    Silent(ConnectionId, u64),
}

/// A fault of a host at a single recipient, beside its general behaviour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Poison {
    /// It never answers the end of the message.
    Hangs,
    /// It disconnects at the recipient.
    Drops,
}

#[derive(Debug)]
struct Link {
    /// The site.
    to: usize,
    lane: Lane,
    lagged: bool,
    over: u64,
    /// The destination whose hosts it was opened for.
    whose: usize,
    flights: VecDeque<Job>,
    is_open: bool,
    parked: u64,
    closing: bool,
    has_delivered: bool,
    /// It leads to the bad host of two.
    is_bad: bool,
    /// No reply before this time.
    stuck_until: Duration,
    /// It was silent, and has had jobs ever since.
    is_silent: bool,
}

/// Parameters of the rig besides the settings.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// Pages are answered later than they were read.
    pub lag: bool,
    /// Transactions in flight on a connection.
    pub ahead: usize,
    /// How long a transaction takes.
    pub service: Duration,
    pub idle: Duration,
    /// Processor time of this machine for a handshake, and for a message: one after the other.
    pub machine: [Duration; 2],
}

impl Default for Manner {
    fn default() -> Self {
        let (service, idle) = (Duration::from_millis(10), Duration::from_secs(5));
        Self { lag: false, ahead: 1, service, idle, machine: [Duration::ZERO; 2] }
    }
}

pub struct Rig {
    pub now: Duration,
    pub settings: Settings,
    pub manner: Manner,
    pub scheduler: Scheduler,
    /// By site.
    pub hosts: Vec<Host>,
    pub limits: Vec<Limits>,
    /// The site of each destination.
    pub sites: Vec<usize>,
    /// Whether its look-up succeeds.
    pub dns: Vec<bool>,
    /// The cause of failed look-ups.
    pub blame: ResolveFailure,
    /// Its site as reported to the scheduler.
    said: Vec<Option<usize>>,
    asked: BTreeSet<DestinationId>,
    pub resolved: usize,
    pub joined: usize,
    /// The class of new messages.
    pub class: Class,
    /// The deliver-by time of new messages, from when they are added.
    pub by: Option<Duration>,
    pub by_times: BTreeMap<QueueId, Duration>,
    /// When the deliver-by time of a waiting recipient was acted on.
    pub too_late: BTreeMap<(QueueId, u32), Duration>,
    /// Starts of transactions, by site, as far as the rate counts them.
    began: Vec<Vec<Duration>>,
    /// The spool, by destination.
    pub lists: Vec<Vec<QueueEntry>>,
    links: BTreeMap<ConnectionId, Link>,
    events: BTreeMap<(Duration, u64), Event>,
    flying: BTreeSet<(QueueId, u32)>,
    /// The end of the last attempt.
    landed: BTreeMap<(QueueId, u32), Duration>,
    /// The last start of the server.
    started: Duration,
    /// When a site that paces accepts the next message.
    free_from: Vec<Duration>,
    /// The limit of a site that counts: its period, and the messages that it accepted in it.
    counted: Vec<(u128, u32)>,
    /// Messages that each site got, and those that it refused with 421 or 450 as too many.
    pub asked_to: Vec<usize>,
    pub refused: Vec<usize>,
    /// Jobs that left memory because their site was down.
    pub left: usize,
    /// Until when the bad host of a site of two is passed over.
    passed_over: Vec<Duration>,
    /// Recipients that an operator or a late add touched: a job may contain them in vain.
    touched: BTreeSet<(QueueId, u32)>,
    ids: HashMap<DestinationId, usize>,
    pub delivered: BTreeMap<(QueueId, u32), Duration>,
    pub given_up: BTreeMap<(QueueId, u32), Duration>,
    pub warned: BTreeMap<(QueueId, u32), Duration>,
    /// Connections opened, by site.
    pub opened: Vec<usize>,
    /// How many of them were cancelled before the greeting.
    pub cancelled: Vec<usize>,
    /// Connections that delivered.
    pub useful: usize,
    /// When this machine has done all that it has to do.
    machine_free: Duration,
    pub poisons: BTreeMap<(QueueId, u32), Poison>,
    pub taken: usize,
    pub loads: usize,
    pub entries_read: usize,
    pub peak: usize,
    /// The same of the slow lane, without connections that got past the silence of their host.
    pub slow_peak: usize,
    /// The highest `ready_max` so far.
    room: usize,
    /// Connections when the budget was lowered.
    lowered: usize,
    /// The limits of a site as last reported to the scheduler.
    told: Vec<Limits>,
    /// Reports of other rigs in force, by site: the rig, its back-off, and their end.
    heard: BTreeMap<usize, (u16, Duration, Duration)>,
    /// The driver sometimes finds changed hosts although they are the same.
    pub strays: bool,
    /// When recipients are tried again.
    pub retry: RetryPolicy,
    sequence: u64,
    random: u64,
    last_id: u64,
}

impl Rig {
    /// One destination for each site.
    pub fn new(settings: Settings, manner: Manner, hosts: Vec<Host>, seed: u64) -> Self {
        let sites = (0..hosts.len()).collect();
        Self::with_sites(settings, manner, hosts, sites, seed)
    }

    pub fn with_sites(settings: Settings, manner: Manner, hosts: Vec<Host>, sites: Vec<usize>, seed: u64) -> Self {
        let (settings_room, hosts_count) = (settings.ready_max, hosts.len());
        Self {
            now: START,
            scheduler: Scheduler::new(settings.clone(), seed),
            settings,
            manner,
            lists: vec![Vec::new(); sites.len()],
            limits: vec![LIMITS; hosts.len()],
            dns: vec![true; sites.len()],
            blame: ResolveFailure::Domain,
            said: vec![None; sites.len()],
            sites,
            asked: BTreeSet::new(),
            resolved: 0,
            joined: 0,
            class: Class::Normal,
            by: None,
            by_times: BTreeMap::new(),
            too_late: BTreeMap::new(),
            began: vec![Vec::new(); hosts.len()],
            opened: vec![0; hosts.len()],
            cancelled: vec![0; hosts.len()],
            useful: 0,
            machine_free: Duration::ZERO,
            free_from: vec![Duration::ZERO; hosts.len()],
            counted: vec![(0, 0); hosts.len()],
            passed_over: vec![Duration::ZERO; hosts.len()],
            asked_to: vec![0; hosts.len()],
            refused: vec![0; hosts.len()],
            left: 0,
            hosts,
            links: BTreeMap::new(),
            events: BTreeMap::new(),
            flying: BTreeSet::new(),
            landed: BTreeMap::new(),
            started: START,
            touched: BTreeSet::new(),
            ids: HashMap::new(),
            delivered: BTreeMap::new(),
            given_up: BTreeMap::new(),
            warned: BTreeMap::new(),
            poisons: BTreeMap::new(),
            taken: 0,
            loads: 0,
            entries_read: 0,
            peak: 0,
            slow_peak: 0,
            room: settings_room,
            lowered: 0,
            told: vec![LIMITS; hosts_count],
            heard: BTreeMap::new(),
            strays: false,
            retry: RetryPolicy::default(),
            sequence: 0,
            random: seed,
            last_id: 0,
        }
    }

    pub fn name(to: usize) -> Vec<u8> {
        format!("domain-{to}").into_bytes()
    }

    fn chance(&mut self, of: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % of
    }

    fn later(&mut self, after: Duration, event: Event) {
        self.sequence += 1;
        self.events.insert((self.now + after, self.sequence), event);
    }

    /// Takes processor time; returns how long it is until that is done.
    fn work(&mut self, time: Duration) -> Duration {
        self.machine_free = self.machine_free.max(self.now) + time;
        if time.is_zero() { Duration::ZERO } else { self.machine_free - self.now }
    }

    /// Commits a message; the scheduler gets it at once, or later.
    pub fn add(&mut self, to: usize, recipients: u32, is_late: bool) -> QueueId {
        self.spread(&[(to, recipients)], is_late)
    }

    /// Commits a message to several destinations, with this many recipients each.
    pub fn spread(&mut self, whom: &[(usize, u32)], is_late: bool) -> QueueId {
        let us = u64::try_from(self.now.as_micros()).unwrap().max(self.last_id + 1);
        self.last_id = us;
        let message = QueueId::new(us, Node::default()).unwrap();
        let (mut next, class) = (0, self.class);
        self.by_times.extend(self.by.map(|by| (message, self.now + by)));
        for &(to, recipients) in whom {
            let all: Vec<u32> = (next..next + recipients).collect();
            next += recipients;
            for &recipient in &all {
                let timed = self.by.is_some();
                let entry = QueueEntry {
                    message,
                    recipient,
                    due_s: 0,
                    attempts: 0,
                    warned: false,
                    held: false,
                    class,
                    timed,
                    owed: false,
                };
                self.lists[to].push(entry);
            }
            if is_late {
                self.touched.extend(all.iter().map(|&recipient| (message, recipient)));
                let after = Duration::from_millis(self.chance(30));
                self.later(after, Event::Told(to, message, all, class));
            } else {
                self.tell(to, message, &all, class);
            }
        }
        message
    }

    fn tell(&mut self, to: usize, message: QueueId, recipients: &[u32], class: Class) -> AddResult {
        let job = Job { message, recipients: recipients.into(), probe: false };
        let added = self.scheduler.add(&Self::name(to), job, class, self.now);
        if let Some(at) = self.by_times.get(&message) {
            self.scheduler.set_deadline(&Self::name(to), message, &recipients.into(), *at);
        }
        self.settle();
        added
    }

    /// Returns the list of a recipient.
    fn home(&self, site: usize, message: QueueId, recipient: u32) -> Option<usize> {
        let is_it = |e: &QueueEntry| (e.message, e.recipient) == (message, recipient);
        let first = (0..self.lists.len()).filter(|to| self.said[*to] == Some(site));
        first.chain(0..self.lists.len()).find(|to| self.lists[*to].iter().any(is_it))
    }

    /// Returns the spool entry of a recipient.
    pub fn entry(&mut self, to: usize, message: QueueId, recipient: u32) -> Option<&mut QueueEntry> {
        self.lists[to].iter_mut().find(|entry| (entry.message, entry.recipient) == (message, recipient))
    }

    /// Returns a waiting recipient, by number.
    pub fn pick(&self, number: usize) -> Option<(usize, QueueId, u32)> {
        let all: Vec<_> =
            self.lists.iter().enumerate().flat_map(|(to, list)| list.iter().map(move |e| (to, e))).collect();
        let (to, entry) = all.get(number % all.len().max(1))?;
        Some((*to, entry.message, entry.recipient))
    }

    pub fn hold(&mut self, (to, message, recipient): (usize, QueueId, u32), held: bool) {
        self.touched.insert((message, recipient));
        if let Some(entry) = self.entry(to, message, recipient) {
            entry.held = held;
        }
        if !held {
            self.retry_now(Some(to));
        }
    }

    pub fn delete(&mut self, (to, message, recipient): (usize, QueueId, u32)) {
        self.touched.insert((message, recipient));
        self.lists[to].retain(|entry| (entry.message, entry.recipient) != (message, recipient));
    }

    /// Moves an entry to the end of its list, as if its destination changed back and forth.
    pub fn relink(&mut self, (to, message, recipient): (usize, QueueId, u32)) {
        let at = self.lists[to].iter().position(|e| (e.message, e.recipient) == (message, recipient)).unwrap();
        let entry = self.lists[to].remove(at);
        self.lists[to].push(entry);
        self.scheduler.restore(&Self::name(to), self.now);
        self.settle();
    }

    pub fn retry_now(&mut self, to: Option<usize>) {
        let sites: BTreeSet<usize> = match to {
            Some(to) => self.said[to].into_iter().collect(),
            None => self.said.iter().flatten().copied().collect(),
        };
        for site in sites {
            // A connection that is not greeted is not waited for.
            if !self.links.values().any(|link| link.to == site && link.is_open) {
                let opening = self.links.values_mut().filter(|link| link.to == site);
                opening.for_each(|link| link.stuck_until = Duration::MAX);
            }
        }
        self.scheduler.retry_now(to.map(Self::name).as_deref(), self.now);
        self.settle();
    }

    pub fn set(&mut self, settings: Settings) {
        self.settings = settings.clone();
        self.room = self.room.max(settings.ready_max);
        self.lowered = self.links.len();
        self.scheduler.reconfigure(settings, self.now);
        self.settle();
    }

    /// Restarts the server; jobs in flight are tried again.
    pub fn restart(&mut self) {
        self.random = self.random.wrapping_add(1);
        self.scheduler = Scheduler::new(self.settings.clone(), self.random);
        self.links.clear();
        self.events.clear();
        self.flying.clear();
        self.started = self.now;
        self.ids.clear();
        self.asked.clear();
        self.said.fill(None);
        self.began.iter_mut().for_each(Vec::clear);
        for to in 0..self.lists.len() {
            if !self.lists[to].is_empty() {
                self.scheduler.restore(&Self::name(to), self.now);
            }
        }
        self.settle();
    }

    /// Performs all actions, and checks what must hold between two calls.
    fn settle(&mut self) {
        for actions in 0_u32.. {
            let Some(action) = self.scheduler.poll(self.now) else { break };
            assert!(actions < 1_000_000, "it never has enough: {action:?}");
            self.act(action);
        }
        assert!(self.scheduler.wake_at().is_none_or(|at| at > self.now), "woken for nothing");
        assert_eq!(self.scheduler.connections(), self.links.len());
        self.peak = self.peak.max(self.links.len());
        assert!(self.asked.len() <= self.settings.resolves_max);
        let of = |lane: Lane| self.links.values().filter(move |link| link.lane == lane);
        let most = self.settings.connections_max;
        let slow = (most / 10).max(1);
        // Connections that were silent have a bound of their own.
        let (aside, all) = (self.links.values().filter(|link| link.is_silent).count(), self.links.len());
        let both = most.max(1) + self.settings.silent_max;
        assert!(
            all <= both.max(self.lowered) && all - aside <= most.max(1).max(self.lowered),
            "all: {all}, {aside} of {most}, {}",
            self.lowered
        );
        let is_there = |link: &&Link| !link.lagged && !link.is_silent;
        assert!(of(Lane::Fast).filter(is_there).count() <= most.max(self.lowered), "fast");
        let are_slow = of(Lane::Slow).filter(|link| link.over == 0).count();
        self.slow_peak = self.slow_peak.max(are_slow);
        assert!(are_slow <= slow.max(self.lowered), "slow");
        for view in self.scheduler.destination_views() {
            let spare = 30 * self.manner.ahead;
            assert!(view.ready <= 2 * self.room + spare, "memory: {view:?}");
            assert_eq!(view.ready, view.ready_by_class.iter().sum::<usize>());
            if matches!(view.health, Health::Down { .. }) {
                assert!(view.ready <= 1, "a probe and nothing else: {view:?}");
            }
        }
        for site in self.scheduler.site_views(self.now) {
            if matches!(site.health, Health::Down { .. }) {
                assert!(site.ready <= 1, "a probe and nothing else: {site:?}");
            }
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Open { site, connection, lane } => self.open(site, connection, lane),
            Action::Resolve { destination } => {
                let to = self.destination(destination);
                assert!(self.asked.insert(destination), "asked twice");
                let after = Duration::from_millis(self.chance(40));
                self.later(after, Event::Resolved(destination, to));
            }
            Action::Wake(connection) => {
                assert!(self.links[&connection].parked > 0, "{connection:?} was not parked");
                let after = self.machine_free.saturating_sub(self.now);
                if after.is_zero() {
                    return self.take(connection);
                }
                self.links.get_mut(&connection).unwrap().parked = 0;
                self.later(after, Event::Woken(connection));
            }
            Action::Close(connection) => {
                let link = self.links.get_mut(&connection).unwrap();
                let is_idle = link.parked > 0 && link.flights.is_empty() && !link.closing;
                let is_quiet = !link.is_open && link.lane == Lane::Fast && !link.closing;
                assert!(is_idle || link.lagged || is_quiet, "{link:?}");
                self.cancelled[link.to] += usize::from(is_quiet);
                link.closing = true;
                let after = Duration::from_millis(self.chance(20));
                self.later(after, Event::Ended(connection));
            }
            Action::Load { destination, after, limit } => self.load(destination, after, limit),
            Action::Overdue { destination, message, recipients, kind } => {
                let to = self.destination(destination);
                self.check_overdue(to, message, &recipients, kind);
                let after = Duration::from_millis(self.chance(3_000));
                self.later(after, Event::Settled(destination, to, message, recipients, kind));
            }
        }
    }

    fn destination(&mut self, destination: DestinationId) -> usize {
        let name =
            self.scheduler.destination_name(destination).expect("an action names a destination that is known").to_vec();
        let to = String::from_utf8(name).unwrap().strip_prefix("domain-").unwrap().parse().unwrap();
        self.ids.insert(destination, to);
        to
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Connected(connection) => self.connected(connection),
            Event::Woken(connection) => {
                if self.links.contains_key(&connection) {
                    self.take(connection);
                }
            }
            Event::Finished(connection) => self.finished(connection),
            Event::IdleOut(connection, parked) => {
                let link = self.links.get(&connection).filter(|link| link.parked == parked && !link.closing);
                match link.map(|link| link.flights.is_empty()) {
                    Some(true) => self.lost(connection),
                    Some(false) => self.later(self.manner.idle, Event::IdleOut(connection, parked)),
                    None => {}
                }
            }
            Event::Ended(connection) => {
                if self.links.contains_key(&connection) {
                    self.lost(connection);
                }
            }
            Event::Settled(destination, to, message, whom, kind) => self.settled(destination, to, message, &whom, kind),
            Event::Loaded(destination, page, is_end) => {
                self.scheduler.page_loaded(destination, &page, is_end, self.now)
            }
            Event::Told(to, message, all, class) => {
                self.tell(to, message, &all, class);
            }
            Event::Resolved(destination, to) => self.resolved(destination, to),
            Event::Lags(connection, over) => self.lags(connection, over),
            Event::Stalls(connection, over) => self.stalls(connection, over),
            Event::Silent(connection, over) => self.silent(connection, over),
        }
        self.settle();
    }

    /// Ends an attempt.
    fn lands(&mut self, whom: (QueueId, u32)) {
        if self.flying.remove(&whom) {
            self.landed.insert(whom, self.now);
        }
    }

    /// Returns when a recipient that is deferred now is due: not after its deliver-by time.
    fn due_s(&self, message: QueueId, attempts: u8, seed: u64) -> u32 {
        let due = self.now + self.retry.retry_after(attempts, seed);
        let by = self.by_times.get(&message).filter(|by| **by > self.now).map(|by| *by + Duration::from_secs(1));
        u32::try_from(by.map_or(due, |by| by.min(due)).as_secs()).unwrap()
    }

    /// Lets time pass.
    pub fn run(&mut self, span: Duration) {
        let end = self.now + span;
        for steps in 0_u32.. {
            assert!(steps < 100_000, "it goes round in circles");
            let event = self.events.keys().next().map(|&(at, _)| at);
            let wake = self.scheduler.wake_at();
            let Some(at) = [event, wake].into_iter().flatten().min().filter(|&at| at <= end) else { break };
            self.now = self.now.max(at);
            if event == Some(at) {
                let (_, event) = self.events.pop_first().unwrap();
                self.handle(event);
            } else {
                self.settle();
            }
        }
        self.now = end;
    }

    /// Returns from when a notice about this age is expected; `None`: the recipient is tried first, because it was that
    /// old at the start.
    fn tells_from(&self, whom: (QueueId, u32), after: Duration, is_last: bool) -> Option<Duration> {
        let created = Duration::from_micros(whom.0.unix_us());
        let from = created + after;
        let landed = self.landed.get(&whom).copied().unwrap_or_default();
        let grace = if created < self.started { self.started + Duration::from_secs(3_600) } else { created };
        (!is_last || from > self.started).then(|| from.max(landed).max(grace))
    }

    /// Returns how late notices were, for untouched recipients: about age, and about deliver-by times.
    pub fn lateness(&self) -> [Duration; 2] {
        let warn_after = self.settings.warn_after.unwrap_or(Duration::MAX / 4);
        let [mut ages, mut times] = [Duration::ZERO; 2];
        let waits = |whom: &(QueueId, u32)| !self.touched.contains(whom) && !self.flying.contains(whom);
        let mut late = |whom: (QueueId, u32), at: Duration, after: Duration, is_last: bool| {
            let from = self.tells_from(whom, after, is_last).unwrap_or(at);
            ages = ages.max(at.saturating_sub(from));
        };
        let told = |map: &BTreeMap<(QueueId, u32), Duration>| -> Vec<((QueueId, u32), Duration)> {
            map.iter().filter(|(whom, at)| waits(whom) && **at >= self.started).map(|(whom, at)| (*whom, *at)).collect()
        };
        told(&self.warned).into_iter().for_each(|(whom, at)| late(whom, at, warn_after, false));
        told(&self.given_up).into_iter().for_each(|(whom, at)| late(whom, at, self.settings.give_up_after, true));
        let entries = self.lists.iter().flatten().filter(|entry| !entry.held);
        let entries: Vec<&QueueEntry> = entries.filter(|entry| waits(&(entry.message, entry.recipient))).collect();
        for entry in &entries {
            let whom = (entry.message, entry.recipient);
            late(whom, self.now, self.settings.give_up_after, true);
            let age = self.now.saturating_sub(Duration::from_micros(entry.message.unix_us()));
            if !entry.warned && age < self.settings.give_up_after {
                late(whom, self.now, warn_after, false);
            }
        }
        let mut is_late = |whom: (QueueId, u32), at: Duration| {
            let Some(by) = self.by_times.get(&whom.0) else { return };
            let landed = self.landed.get(&whom).copied().unwrap_or_default();
            times = times.max(at.saturating_sub((*by).max(self.started).max(landed)));
        };
        told(&self.too_late).into_iter().for_each(|(whom, at)| is_late(whom, at));
        entries.iter().for_each(|entry| is_late((entry.message, entry.recipient), self.now));
        [ages, times]
    }

    /// Returns the number of waiting recipients in the spool.
    pub fn waiting(&self) -> usize {
        self.lists.iter().map(Vec::len).sum()
    }
}

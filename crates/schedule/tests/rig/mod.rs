//! A spool, hosts and a driver in memory, for tests of the scheduler: time is a number, and every rule is checked where
//! it could be broken.
//!
//! The spool is lists as `spool::index` has them: in order of arrival, read behind an entry, from the start when that
//! entry has gone. The driver does what the server does: it opens, takes, records, tells.

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

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::time::Duration;

use mail::{Node, QueueId};
use schedule::{
    Action, Added, ConnectionId, DestinationId, Feedback, Health, Job, Overdue, Positions, Scheduler, Settings, Take,
    Waiting, retry_after,
};

pub const START: Duration = Duration::from_secs(1_800_000_000);

/// How a host behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Host {
    Alive,
    /// No connection comes about.
    Dead,
    /// Takes so many connections and refuses others.
    Few(usize),
    /// Takes messages and defers every recipient.
    Defers,
    /// Takes some recipients, defers others, sometimes breaks off.
    Moody,
    /// Greets, and ends the connection before anything is done.
    Drops,
}

#[derive(Debug)]
enum Event {
    Connected(ConnectionId),
    Finished(ConnectionId),
    IdleOut(ConnectionId, u64),
    Ended(ConnectionId),
    Settled(DestinationId, usize, QueueId, Positions, Overdue),
    Loaded(DestinationId, Vec<Waiting>, bool),
    Told(usize, QueueId, Vec<u32>),
}

#[derive(Debug)]
struct Link {
    to: usize,
    flights: VecDeque<Job>,
    is_open: bool,
    parked: u64,
    closing: bool,
}

/// What is asked of the rig besides the settings.
#[derive(Clone, Copy, Debug)]
pub struct Manner {
    /// Pages are answered later than they were read.
    pub lag: bool,
    /// Transactions in flight on a connection.
    pub ahead: usize,
    /// How long a transaction takes.
    pub service: Duration,
    pub idle: Duration,
}

impl Default for Manner {
    fn default() -> Self {
        let (service, idle) = (Duration::from_millis(10), Duration::from_secs(5));
        Self { lag: false, ahead: 1, service, idle }
    }
}

pub struct Rig {
    pub now: Duration,
    pub settings: Settings,
    pub manner: Manner,
    pub scheduler: Scheduler,
    pub hosts: Vec<Host>,
    /// The spool.
    pub lists: Vec<Vec<Waiting>>,
    links: BTreeMap<ConnectionId, Link>,
    events: BTreeMap<(Duration, u64), Event>,
    flying: BTreeSet<(QueueId, u32)>,
    /// Recipients that an operator or a late add touched: a job may name them in vain.
    touched: BTreeSet<(QueueId, u32)>,
    ids: HashMap<DestinationId, usize>,
    pub delivered: BTreeMap<(QueueId, u32), Duration>,
    pub given_up: BTreeMap<(QueueId, u32), Duration>,
    pub warned: BTreeMap<(QueueId, u32), Duration>,
    /// Connections opened, by destination.
    pub opened: Vec<usize>,
    pub taken: usize,
    pub loads: usize,
    pub entries_read: usize,
    pub peak: usize,
    /// The most that `ready_max` ever was.
    room: usize,
    sequence: u64,
    random: u64,
    last_id: u64,
}

impl Rig {
    pub fn new(settings: Settings, manner: Manner, hosts: Vec<Host>, seed: u64) -> Self {
        let settings_room = settings.ready_max;
        Self {
            now: START,
            scheduler: Scheduler::new(settings.clone(), seed),
            settings,
            manner,
            lists: vec![Vec::new(); hosts.len()],
            opened: vec![0; hosts.len()],
            hosts,
            links: BTreeMap::new(),
            events: BTreeMap::new(),
            flying: BTreeSet::new(),
            touched: BTreeSet::new(),
            ids: HashMap::new(),
            delivered: BTreeMap::new(),
            given_up: BTreeMap::new(),
            warned: BTreeMap::new(),
            taken: 0,
            loads: 0,
            entries_read: 0,
            peak: 0,
            room: settings_room,
            sequence: 0,
            random: seed,
            last_id: 0,
        }
    }

    pub fn name(to: usize) -> Vec<u8> {
        format!("site-{to}").into_bytes()
    }

    fn chance(&mut self, of: u64) -> u64 {
        self.random = self.random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.random >> 33) % of
    }

    fn later(&mut self, after: Duration, event: Event) {
        self.sequence += 1;
        self.events.insert((self.now + after, self.sequence), event);
    }

    /// Commits a message; the scheduler hears of it in the same moment, or later.
    pub fn add(&mut self, to: usize, recipients: u32, is_late: bool) -> QueueId {
        let us = u64::try_from(self.now.as_micros()).unwrap().max(self.last_id + 1);
        self.last_id = us;
        let message = QueueId::new(us, Node::default()).unwrap();
        for recipient in 0..recipients {
            let entry = Waiting { message, recipient, due_s: 0, attempts: 0, warned: false, held: false };
            self.lists[to].push(entry);
        }
        let all: Vec<u32> = (0..recipients).collect();
        if is_late {
            self.touched.extend(all.iter().map(|&recipient| (message, recipient)));
            let after = Duration::from_millis(self.chance(30));
            self.later(after, Event::Told(to, message, all));
        } else {
            self.tell(to, message, &all);
        }
        message
    }

    fn tell(&mut self, to: usize, message: QueueId, recipients: &[u32]) -> Added {
        let job = Job { message, recipients: recipients.into(), probe: false };
        let added = self.scheduler.add(&Self::name(to), job, self.now);
        self.settle();
        added
    }

    /// What the spool has of a recipient.
    pub fn entry(&mut self, to: usize, message: QueueId, recipient: u32) -> Option<&mut Waiting> {
        self.lists[to].iter_mut().find(|entry| (entry.message, entry.recipient) == (message, recipient))
    }

    /// Some recipient that waits, by number.
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

    /// An entry that goes to the end of its list, as when its destination changed to and fro.
    pub fn relink(&mut self, (to, message, recipient): (usize, QueueId, u32)) {
        let at = self.lists[to].iter().position(|e| (e.message, e.recipient) == (message, recipient)).unwrap();
        let entry = self.lists[to].remove(at);
        self.lists[to].push(entry);
        self.scheduler.restore(&Self::name(to), self.now);
        self.settle();
    }

    pub fn retry_now(&mut self, to: Option<usize>) {
        self.scheduler.retry_now(to.map(Self::name).as_deref(), self.now);
        self.settle();
    }

    pub fn set(&mut self, settings: Settings) {
        self.settings = settings.clone();
        self.room = self.room.max(settings.ready_max);
        self.scheduler.set(settings, self.now);
        self.settle();
    }

    /// The server ends and starts again; what was in flight is tried again.
    pub fn restart(&mut self) {
        self.random = self.random.wrapping_add(1);
        self.scheduler = Scheduler::new(self.settings.clone(), self.random);
        self.links.clear();
        self.events.clear();
        self.flying.clear();
        self.ids.clear();
        for to in 0..self.lists.len() {
            if !self.lists[to].is_empty() {
                self.scheduler.restore(&Self::name(to), self.now);
            }
        }
        self.settle();
    }

    /// Does what the scheduler wants, and checks what must hold between two calls.
    fn settle(&mut self) {
        while let Some(action) = self.scheduler.poll(self.now) {
            self.act(action);
        }
        assert!(self.scheduler.wake_at().is_none_or(|at| at > self.now), "woken for nothing");
        assert_eq!(self.scheduler.connections(), self.links.len());
        self.peak = self.peak.max(self.links.len());
        for view in self.scheduler.views() {
            let spare = self.settings.window_max as usize * self.manner.ahead;
            assert!(view.ready <= self.room + spare, "memory: {view:?}");
            if matches!(view.health, Health::Down { .. }) {
                assert!(view.ready <= 1, "a probe and nothing else: {view:?}");
            }
        }
    }

    fn act(&mut self, action: Action) {
        match action {
            Action::Open { destination, connection } => self.open(destination, connection),
            Action::Wake(connection) => {
                assert!(self.links[&connection].parked > 0, "{connection:?} was not parked");
                self.take(connection);
            }
            Action::Close(connection) => {
                let link = self.links.get_mut(&connection).unwrap();
                assert!(link.parked > 0 && link.flights.is_empty() && !link.closing);
                link.closing = true;
                let after = Duration::from_millis(self.chance(20));
                self.later(after, Event::Ended(connection));
            }
            Action::Load { destination, after, limit } => self.load(destination, after, limit),
            Action::Overdue { destination, message, recipients, kind } => {
                let to = self.ids[&destination];
                self.check_overdue(to, message, &recipients, kind);
                let after = Duration::from_millis(self.chance(3_000));
                self.later(after, Event::Settled(destination, to, message, recipients, kind));
            }
        }
    }

    fn site(&mut self, destination: DestinationId) -> usize {
        let name = self.scheduler.name(destination).expect("an action names a destination that is known").to_vec();
        let to = String::from_utf8(name).unwrap().strip_prefix("site-").unwrap().parse().unwrap();
        self.ids.insert(destination, to);
        to
    }

    fn open(&mut self, destination: DestinationId, connection: ConnectionId) {
        let to = self.site(destination);
        let others = self.links.values().filter(|link| link.to == to && !link.closing).count();
        let view = self.scheduler.state(&Self::name(to)).unwrap();
        assert!(self.links.len() < self.settings.connections_max, "budget");
        assert!(others < view.window as usize && view.window <= self.settings.window_max, "window: {view:?}");
        if let Health::Down { until, .. } = view.health {
            assert!(until <= self.now, "back-off: {view:?}");
            assert_eq!((view.connections, view.ready), (1, 1), "one probe at a time");
        }
        self.opened[to] += 1;
        let link = Link { to, flights: VecDeque::new(), is_open: false, parked: 0, closing: false };
        assert!(self.links.insert(connection, link).is_none(), "ids are not used twice");
        let after = if self.hosts[to] == Host::Dead { self.chance(40_000) } else { self.chance(60) };
        self.later(Duration::from_millis(after), Event::Connected(connection));
    }

    fn load(&mut self, destination: DestinationId, after: Option<Waiting>, limit: usize) {
        let to = self.site(destination);
        assert!(limit > 0 && limit <= self.settings.ready_max.max(1_024));
        let list = &self.lists[to];
        let found = after.and_then(|a| list.iter().position(|e| (e.message, e.recipient) == (a.message, a.recipient)));
        let start = found.map_or(0, |at| at + 1);
        let page: Vec<Waiting> = list.iter().skip(start).take(limit).copied().collect();
        let is_end = start + page.len() == list.len();
        self.loads += 1;
        self.entries_read += page.len();
        if self.manner.lag {
            let after = Duration::from_millis(self.chance(50));
            self.later(after, Event::Loaded(destination, page, is_end));
        } else {
            self.scheduler.loaded(destination, &page, is_end, self.now);
        }
    }

    fn check_overdue(&mut self, to: usize, message: QueueId, recipients: &Positions, kind: Overdue) {
        let age = self.now - Duration::from_micros(message.unix_us());
        for recipient in recipients.iter() {
            assert!(!self.flying.contains(&(message, recipient)), "overdue while it is being tried");
            let is_touched = self.touched.contains(&(message, recipient));
            let Some(entry) = self.entry(to, message, recipient) else {
                assert!(is_touched, "overdue and gone");
                continue;
            };
            assert!(!entry.held || is_touched, "held and overdue");
            match kind {
                Overdue::GiveUp => assert!(age >= self.settings.give_up_after),
                Overdue::Warn => {
                    assert!(!entry.warned || is_touched, "warned twice");
                    assert!(age >= self.settings.warn_after.unwrap());
                }
            }
        }
    }

    fn settled(&mut self, destination: DestinationId, to: usize, message: QueueId, whom: &Positions, kind: Overdue) {
        let now = self.now;
        for recipient in whom.iter() {
            let Some(entry) = self.entry(to, message, recipient) else { continue };
            let told = match kind {
                Overdue::Warn => {
                    entry.warned = true;
                    self.warned.insert((message, recipient), now)
                }
                Overdue::GiveUp => {
                    self.lists[to].retain(|entry| (entry.message, entry.recipient) != (message, recipient));
                    self.given_up.insert((message, recipient), now)
                }
            };
            assert!(told.is_none(), "told twice: {kind:?}");
        }
        self.scheduler.settled(destination, message, whom, now);
    }

    /// Lets a connection take what it can.
    fn take(&mut self, connection: ConnectionId) {
        loop {
            let link = &self.links[&connection];
            let to = link.to;
            if link.closing || link.flights.len() >= self.manner.ahead {
                return;
            }
            match self.scheduler.take(connection, self.now) {
                Take::Job(job) => self.start(connection, to, job),
                Take::Idle => {
                    self.sequence += 1;
                    let (parked, idle) = (self.sequence, self.manner.idle);
                    self.links.get_mut(&connection).unwrap().parked = parked;
                    self.later(idle, Event::IdleOut(connection, parked));
                    return;
                }
                Take::Close => {
                    let link = self.links.get_mut(&connection).unwrap();
                    link.closing = true;
                    if link.flights.is_empty() {
                        self.later(Duration::ZERO, Event::Ended(connection));
                    }
                    return;
                }
            }
        }
    }

    fn start(&mut self, connection: ConnectionId, to: usize, job: Job) {
        assert!(!job.recipients.is_empty() && job.recipients.len() <= self.settings.recipients_per_transaction);
        self.taken += 1;
        let now_s = self.now.as_secs();
        for recipient in job.recipients.iter() {
            let whom = (job.message, recipient);
            assert!(self.flying.insert(whom), "{whom:?} tried by two at the same time");
            if !self.touched.contains(&whom) {
                let entry = *self.entry(to, job.message, recipient).expect("a job names who waits in the spool");
                assert!(u64::from(entry.due_s) <= now_s && !entry.held, "tried before its time: {entry:?}");
                assert!(!self.settings.fresh_waits || entry.due_s > 0 || self.manner.lag, "fresh mail waits");
            }
        }
        let link = self.links.get_mut(&connection).unwrap();
        link.parked = 0;
        link.flights.push_back(job);
        let (service, count) = (self.manner.service, u32::try_from(link.flights.len()).unwrap());
        self.later(service * count, Event::Finished(connection));
    }

    fn connected(&mut self, connection: ConnectionId) {
        let to = self.links[&connection].to;
        let live = self.links.values().filter(|link| link.to == to && link.is_open).count();
        let is_refused = match self.hosts[to] {
            Host::Dead => true,
            Host::Few(most) => live >= most,
            Host::Moody => self.chance(4) == 0,
            Host::Alive | Host::Defers | Host::Drops => false,
        };
        if is_refused {
            self.links.remove(&connection);
            let jobs = self.scheduler.unreachable(connection, "Connection refused", self.now);
            self.check_left(to, &jobs);
        } else {
            self.links.get_mut(&connection).unwrap().is_open = true;
            self.scheduler.ready(connection, self.now);
            self.take(connection);
        }
    }

    fn check_left(&self, to: usize, jobs: &[Job]) {
        let whom: BTreeSet<_> = jobs.iter().flat_map(|job| job.recipients.iter().map(|r| (job.message, r))).collect();
        assert_eq!(whom.len(), jobs.iter().map(|job| job.recipients.len()).sum::<usize>(), "logged twice");
        assert!(whom.is_disjoint(&self.flying), "deferred while it is being tried");
        if !jobs.is_empty() {
            let health = self.scheduler.state(&Self::name(to)).map(|view| view.health);
            assert!(matches!(health, Some(Health::Down { .. })), "{health:?}");
        }
    }

    fn finished(&mut self, connection: ConnectionId) {
        let Some(link) = self.links.get(&connection) else { return };
        let (to, host) = (link.to, self.hosts[link.to]);
        let breaks = host == Host::Drops || host == Host::Dead || host == Host::Moody && self.chance(8) == 0;
        if breaks {
            return self.lost(connection);
        }
        let Some(job) = self.links.get_mut(&connection).unwrap().flights.pop_front() else { return };
        let mut retry = None;
        for recipient in job.recipients.iter() {
            self.flying.remove(&(job.message, recipient));
            let defers = host == Host::Defers || host == Host::Moody && self.chance(3) == 0;
            let (now, settings, seed) = (self.now, self.settings.clone(), self.chance(1 << 30));
            let Some(entry) = self.entry(to, job.message, recipient) else { continue };
            if entry.held {
                continue;
            }
            if defers {
                entry.attempts = entry.attempts.saturating_add(1);
                let due = now + retry_after(entry.attempts, &settings, seed);
                entry.due_s = u32::try_from(due.as_secs()).unwrap();
                let due = Duration::from_secs(due.as_secs());
                retry = Some(retry.map_or(due, |before: Duration| before.min(due)));
            } else {
                self.lists[to].retain(|entry| (entry.message, entry.recipient) != (job.message, recipient));
                assert!(self.delivered.insert((job.message, recipient), now).is_none(), "delivered twice");
            }
        }
        let feedback = match (host, self.chance(6)) {
            (Host::Moody, 0) => Feedback::Slowdown,
            (_, 1) => Feedback::Neutral,
            _ => Feedback::Good,
        };
        self.scheduler.done(connection, &job, feedback, retry, self.now);
        let link = &self.links[&connection];
        if link.closing && link.flights.is_empty() {
            self.later(Duration::from_millis(1), Event::Ended(connection));
        } else if link.parked == 0 || self.chance(2) == 0 {
            self.take(connection);
        }
    }

    /// The connection breaks: what it had goes back, by name or with its end.
    fn lost(&mut self, connection: ConnectionId) {
        let link = self.links.remove(&connection).unwrap();
        let by_name = self.chance(2) == 0;
        for job in link.flights.iter().rev() {
            for recipient in job.recipients.iter() {
                self.flying.remove(&(job.message, recipient));
            }
            if by_name {
                self.scheduler.give_back(connection, job, self.now);
            }
        }
        let jobs = self.scheduler.closed(connection, self.now);
        self.check_left(link.to, &jobs);
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Connected(connection) => self.connected(connection),
            Event::Finished(connection) => self.finished(connection),
            Event::IdleOut(connection, parked) => {
                if self
                    .links
                    .get(&connection)
                    .is_some_and(|link| link.parked == parked && !link.closing && link.flights.is_empty())
                {
                    self.lost(connection);
                }
            }
            Event::Ended(connection) => {
                if self.links.contains_key(&connection) {
                    self.lost(connection);
                }
            }
            Event::Settled(destination, to, message, whom, kind) => self.settled(destination, to, message, &whom, kind),
            Event::Loaded(destination, page, is_end) => self.scheduler.loaded(destination, &page, is_end, self.now),
            Event::Told(to, message, all) => {
                self.tell(to, message, &all);
            }
        }
        self.settle();
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

    /// Recipients that wait in the spool.
    pub fn waiting(&self) -> usize {
        self.lists.iter().map(Vec::len).sum()
    }
}

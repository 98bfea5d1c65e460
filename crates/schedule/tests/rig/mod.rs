//! A spool, hosts, name servers and a driver in memory, for tests of the scheduler: time is a number, and every rule is checked where
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
    Action, Added, Class, ConnectionId, DestinationId, Failure, Feedback, Health, Job, Lane, Limits, Overdue, Place,
    Positions, Scheduler, Settings, SiteId, Take, Waiting, retry_after,
};

pub const START: Duration = Duration::from_secs(1_800_000_000);

pub const LIMITS: Limits = Limits {
    connections: 20,
    messages_per_second: None,
    recipients_per_transaction: 100,
    messages_per_connection: 1_000,
};
/// How long the driver waits for a connection, in the fast and in the slow lane.
const CONNECT_TIME: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(120)];
/// After so long without an answer the driver says that a connection lags.
const FAST_TIME: Duration = Duration::from_secs(20);
/// After so long it gives up.
const REPLY_TIME: Duration = Duration::from_secs(600);

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
    /// Says nothing at all.
    Hung,
    /// Greets, takes a message, and says nothing any more.
    Stalls,
    /// Answers late.
    Crawls,
}

#[derive(Debug)]
enum Event {
    Connected(ConnectionId),
    Finished(ConnectionId),
    IdleOut(ConnectionId, u64),
    Ended(ConnectionId),
    Settled(DestinationId, usize, QueueId, Positions, Overdue),
    Loaded(DestinationId, Vec<Waiting>, bool),
    Told(usize, QueueId, Vec<u32>, Class),
    Resolved(DestinationId, usize),
    /// Nothing came since so many jobs were over.
    Lags(ConnectionId, u64),
}

#[derive(Debug)]
struct Link {
    /// The site.
    to: usize,
    lane: Lane,
    lagged: bool,
    over: u64,
    /// Whose hosts it is said to have reached.
    whose: usize,
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
    /// By site.
    pub hosts: Vec<Host>,
    pub limits: Vec<Limits>,
    /// Where the mail of each destination goes.
    pub sites: Vec<usize>,
    /// Whether anybody knows that.
    pub dns: Vec<bool>,
    /// Where it goes by what the scheduler was told.
    said: Vec<Option<usize>>,
    asked: BTreeSet<DestinationId>,
    pub resolved: usize,
    pub misplaced: usize,
    pub joined: usize,
    /// How urgent what is added is.
    pub class: Class,
    /// When transactions began, by site, as far as the rate counts them.
    began: Vec<Vec<Duration>>,
    /// The spool, by destination.
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
    /// Connections opened, by site.
    pub opened: Vec<usize>,
    pub taken: usize,
    pub loads: usize,
    pub entries_read: usize,
    pub peak: usize,
    /// The most that `ready_max` ever was.
    room: usize,
    /// Connections that there were when the budget was lowered.
    lowered: usize,
    /// What the scheduler was told last of the limits of a site.
    told: Vec<Limits>,
    /// The driver finds now and then that hosts are others although they are not.
    pub strays: bool,
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
            said: vec![None; sites.len()],
            sites,
            asked: BTreeSet::new(),
            resolved: 0,
            misplaced: 0,
            joined: 0,
            class: Class::Normal,
            began: vec![Vec::new(); hosts.len()],
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
            lowered: 0,
            told: vec![LIMITS; hosts_count],
            strays: false,
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

    /// Commits a message; the scheduler hears of it in the same moment, or later.
    pub fn add(&mut self, to: usize, recipients: u32, is_late: bool) -> QueueId {
        self.spread(&[(to, recipients)], is_late)
    }

    /// Commits a message to several destinations, each with so many recipients.
    pub fn spread(&mut self, whom: &[(usize, u32)], is_late: bool) -> QueueId {
        let us = u64::try_from(self.now.as_micros()).unwrap().max(self.last_id + 1);
        self.last_id = us;
        let message = QueueId::new(us, Node::default()).unwrap();
        let (mut next, class) = (0, self.class);
        for &(to, recipients) in whom {
            let all: Vec<u32> = (next..next + recipients).collect();
            next += recipients;
            for &recipient in &all {
                let entry = Waiting { message, recipient, due_s: 0, attempts: 0, warned: false, held: false, class };
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

    fn tell(&mut self, to: usize, message: QueueId, recipients: &[u32], class: Class) -> Added {
        let job = Job { message, recipients: recipients.into(), probe: false };
        let added = self.scheduler.add(&Self::name(to), job, class, self.now);
        self.settle();
        added
    }

    /// In which list a recipient is.
    fn home(&self, site: usize, message: QueueId, recipient: u32) -> Option<usize> {
        let is_it = |e: &Waiting| (e.message, e.recipient) == (message, recipient);
        let first = (0..self.lists.len()).filter(|to| self.said[*to] == Some(site));
        first.chain(0..self.lists.len()).find(|to| self.lists[*to].iter().any(is_it))
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
        self.lowered = self.links.len();
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

    /// Does what the scheduler wants, and checks what must hold between two calls.
    fn settle(&mut self) {
        while let Some(action) = self.scheduler.poll(self.now) {
            self.act(action);
        }
        assert!(self.scheduler.wake_at().is_none_or(|at| at > self.now), "woken for nothing");
        assert_eq!(self.scheduler.connections(), self.links.len());
        self.peak = self.peak.max(self.links.len());
        assert!(self.asked.len() <= self.settings.resolves_max);
        let of = |lane: Lane| self.links.values().filter(move |link| link.lane == lane);
        let most = self.settings.connections_max;
        let slow = (most / 10).max(1);
        assert!(self.links.len() <= (most + (most / 4).max(slow)).max(self.lowered), "all: {}", self.links.len());
        assert!(of(Lane::Fast).filter(|link| !link.lagged).count() <= most.max(self.lowered), "fast");
        assert!(of(Lane::Slow).filter(|link| link.over == 0).count() <= slow.max(self.lowered), "slow");
        for view in self.scheduler.views() {
            let spare = 30 * self.manner.ahead;
            assert!(view.ready <= 2 * self.room + spare, "memory: {view:?}");
            assert_eq!(view.ready, view.ready_by_class.iter().sum::<usize>());
            if matches!(view.health, Health::Down { .. }) {
                assert!(view.ready <= 1, "a probe and nothing else: {view:?}");
            }
        }
        for site in self.scheduler.sites(self.now) {
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
                self.take(connection);
            }
            Action::Close(connection) => {
                let link = self.links.get_mut(&connection).unwrap();
                let is_idle = link.parked > 0 && link.flights.is_empty() && !link.closing;
                assert!(is_idle || link.lagged, "{link:?}");
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

    fn destination(&mut self, destination: DestinationId) -> usize {
        let name = self.scheduler.name(destination).expect("an action names a destination that is known").to_vec();
        let to = String::from_utf8(name).unwrap().strip_prefix("domain-").unwrap().parse().unwrap();
        self.ids.insert(destination, to);
        to
    }

    fn open(&mut self, site: SiteId, connection: ConnectionId, lane: Lane) {
        let name = self.scheduler.site_name(site).expect("a site with a connection is known").to_vec();
        let to: usize = String::from_utf8(name.clone()).unwrap().strip_prefix("site-").unwrap().parse().unwrap();
        let whose = self.scheduler.a_destination(site).expect("it has work").to_vec();
        let whose = String::from_utf8(whose).unwrap().strip_prefix("domain-").unwrap().parse().unwrap();
        assert_eq!(self.said[whose], Some(to), "it opens for somebody whose mail goes there");
        let others = self.links.values().filter(|link| link.to == to && !link.closing).count();
        let view = self.scheduler.sites(self.now).find(|view| *view.name == *name).unwrap();
        assert_eq!(view.lane, lane);
        assert!(others < view.window as usize && view.window <= view.limits.connections, "window: {view:?}");
        if let Health::Down { until, .. } = view.health {
            assert!(until <= self.now, "back-off: {view:?}");
            assert_eq!((view.connections, view.ready), (1, 1), "one probe at a time");
        }
        self.opened[to] += 1;
        let link = Link {
            to,
            lane,
            lagged: false,
            over: 0,
            whose,
            flights: VecDeque::new(),
            is_open: false,
            parked: 0,
            closing: false,
        };
        assert!(self.links.insert(connection, link).is_none(), "ids are not used twice");
        let after = match self.hosts[to] {
            Host::Dead => Duration::from_millis(self.chance(4_000)),
            Host::Hung => CONNECT_TIME[usize::from(lane == Lane::Slow)],
            _ => Duration::from_millis(self.chance(60)),
        };
        self.later(after, Event::Connected(connection));
    }

    /// The answer to a question where mail goes.
    fn resolved(&mut self, destination: DestinationId, to: usize) {
        self.asked.remove(&destination);
        self.resolved += 1;
        let jobs = if self.dns[to] {
            let site = self.sites[to];
            let until = self.now + Duration::from_secs(self.chance(600));
            let (key, limits) = (format!("site-{site}").into_bytes(), self.limits[site]);
            let place = Place { site: &key, limits, expected: None, until };
            self.said[to] = Some(site);
            if self.told[site].messages_per_second != limits.messages_per_second {
                self.began[site].clear();
            }
            self.told[site] = limits;
            self.scheduler.placed(destination, &place, self.now)
        } else {
            self.said[to] = None;
            self.scheduler.unplaced(destination, "no answer from name servers", self.now)
        };
        self.check_left(&jobs);
    }

    fn load(&mut self, destination: DestinationId, after: Option<Waiting>, limit: usize) {
        let to = self.destination(destination);
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
        let most = self.told[to].recipients_per_transaction;
        assert!(!job.recipients.is_empty() && job.recipients.len() <= most, "{} of {most}", job.recipients.len());
        assert!(job.recipients.as_slice().is_sorted(), "{job:?}");
        self.taken += 1;
        self.check_rate(to);
        let now_s = self.now.as_secs();
        let mut homes = BTreeSet::new();
        for recipient in job.recipients.iter() {
            let whom = (job.message, recipient);
            assert!(self.flying.insert(whom), "{whom:?} tried by two at the same time");
            let home = self.home(to, job.message, recipient);
            homes.extend(home);
            if !self.touched.contains(&whom) {
                let home = home.expect("a job names who waits in the spool");
                assert_eq!(self.said[home], Some(to), "mail goes where its destination is");
                let entry = *self.entry(home, job.message, recipient).unwrap();
                assert!(u64::from(entry.due_s) <= now_s && !entry.held, "tried before its time: {entry:?}");
                assert!(!self.settings.fresh_waits || entry.due_s > 0 || self.manner.lag, "fresh mail waits");
            }
        }
        self.joined += usize::from(homes.len() > 1);
        let link = self.links.get_mut(&connection).unwrap();
        link.parked = 0;
        link.flights.push_back(job);
        let (service, count) = (self.manner.service, u32::try_from(link.flights.len()).unwrap());
        let over = link.over;
        let service = match self.hosts[to] {
            Host::Stalls => REPLY_TIME,
            Host::Crawls => FAST_TIME * 3 / 2,
            _ => service,
        };
        if service > FAST_TIME {
            self.later(FAST_TIME, Event::Lags(connection, over));
        }
        self.later(service * count, Event::Finished(connection));
    }

    /// No window of time has more transactions than the rate and one burst.
    fn check_rate(&mut self, to: usize) {
        let Some(milli) = self.told[to].messages_per_second else { return self.began[to].clear() };
        self.began[to].push(self.now);
        let burst = f64::from((milli / 1_000).max(1));
        for (count, from) in self.began[to].iter().rev().take(100).enumerate() {
            let most = (self.now - *from).as_secs_f64() * f64::from(milli) / 1_000.0 + burst;
            assert!(f64::from(u32::try_from(count + 1).unwrap()) <= most + 1e-6, "{} at {milli}", count + 1);
        }
    }

    fn connected(&mut self, connection: ConnectionId) {
        let Some(link) = self.links.get(&connection).filter(|link| !link.closing) else { return };
        let (to, whose) = (link.to, link.whose);
        let live = self.links.values().filter(|link| link.to == to && link.is_open).count();
        if self.sites[whose] != to && self.dns[whose] || self.strays && self.chance(20) == 0 {
            self.links.remove(&connection);
            self.misplaced += 1;
            if self.said[whose] == Some(to) {
                self.said[whose] = None;
            }
            let jobs = self.scheduler.misplaced(connection, &Self::name(whose), self.now);
            return self.check_left(&jobs);
        }
        let refused = match self.hosts[to] {
            Host::Dead => Some(Failure::Refused),
            Host::Hung => Some(Failure::Silent),
            Host::Few(most) => (live >= most).then_some(Failure::Refused),
            Host::Moody => (self.chance(4) == 0).then_some(Failure::Refused),
            Host::Alive | Host::Defers | Host::Drops | Host::Stalls | Host::Crawls => None,
        };
        if let Some(failure) = refused {
            self.links.remove(&connection);
            let jobs = self.scheduler.unreachable(connection, failure, "Connection refused", self.now);
            self.check_left(&jobs);
        } else {
            self.links.get_mut(&connection).unwrap().is_open = true;
            self.scheduler.ready(connection, self.now);
            self.take(connection);
        }
    }

    fn check_left(&self, jobs: &[Job]) {
        let whom: BTreeSet<_> = jobs.iter().flat_map(|job| job.recipients.iter().map(|r| (job.message, r))).collect();
        assert_eq!(whom.len(), jobs.iter().map(|job| job.recipients.len()).sum::<usize>(), "logged twice");
        assert!(whom.is_disjoint(&self.flying), "deferred while it is being tried");
        for (message, recipient) in whom {
            let is_active =
                (0..self.lists.len()).any(|to| self.scheduler.is_active(&Self::name(to), message, recipient));
            assert!(!is_active, "it left memory");
        }
    }

    fn lags(&mut self, connection: ConnectionId, over: u64) {
        let Some(link) = self.links.get_mut(&connection) else { return };
        if link.over == over && !link.flights.is_empty() {
            link.lagged = true;
            self.scheduler.lagging(connection, self.now);
        }
    }

    fn finished(&mut self, connection: ConnectionId) {
        let Some(link) = self.links.get(&connection) else { return };
        let (to, host) = (link.to, self.hosts[link.to]);
        let breaks = match host {
            Host::Drops | Host::Dead | Host::Hung => true,
            Host::Moody => self.chance(8) == 0,
            _ => false,
        };
        if breaks {
            return self.lost(connection);
        }
        let link = self.links.get_mut(&connection).unwrap();
        let Some(job) = link.flights.pop_front() else { return };
        link.over += 1;
        let mut retry = None;
        for recipient in job.recipients.iter() {
            self.flying.remove(&(job.message, recipient));
            let defers = match host {
                Host::Defers | Host::Stalls => true,
                Host::Moody => self.chance(3) == 0,
                _ => false,
            };
            let Some(to) = self.home(to, job.message, recipient) else { continue };
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
            (Host::Stalls, _) => Feedback::Lost,
            (Host::Moody, 0) => Feedback::Slowdown,
            (_, 1) => Feedback::Neutral,
            _ => Feedback::Good,
        };
        self.scheduler.done(connection, &job, feedback, retry, self.now);
        if host == Host::Stalls {
            // Nobody waits for a second answer.
            return self.lost(connection);
        }
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
        self.check_left(&jobs);
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Connected(connection) => self.connected(connection),
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
            Event::Loaded(destination, page, is_end) => self.scheduler.loaded(destination, &page, is_end, self.now),
            Event::Told(to, message, all, class) => {
                self.tell(to, message, &all, class);
            }
            Event::Resolved(destination, to) => self.resolved(destination, to),
            Event::Lags(connection, over) => self.lags(connection, over),
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

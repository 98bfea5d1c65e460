//! The stop *dispatch*: spool, clock and the health of hosts give attempts.
//!
//! [`schedule::Scheduler`] decides; this module gives it the time, the lists of the spool and the results of
//! attempts, and carries out its decisions: it opens connections, wakes idle ones, reads lists. The caller that
//! reports something (a session that stored a message, a connection that finished one) carries out at once what
//! follows from it, so that a message finds its connection without a further task. One task (`tasks`) owns the
//! connections and waits for times.
//!
//! A crash forgets everything here. At the start each destination with recipients in the spool is due.

mod accepted;
mod bounce;
mod connection_guard;
mod connections;
mod delivery_control;
mod down;
mod host_reports;
mod overdue;
mod ownership;
mod rehome;
mod renewal;
mod reservations;
mod restore;
mod resubmit;
mod settings;
mod shared_limits;
mod site_lookup;
mod site_names;
mod task;

use crate::config::Config;
use crate::context::Context;
use crate::deadline;
use crate::hosts::HostTable;
use crate::message::{Deferrals, MessageReader};
use crate::resolve;
use crate::routing::Routing;
use crate::sabotage::{Sabotage, is_sabotaged};
use crate::server_clock::ServerClock;
use crate::settle::{Reasons, Settler};
#[cfg(test)]
use crate::simulation::Sizes;
pub(crate) use bounce::bounce;
pub(crate) use connection_guard::ConnectionGuard;
pub(crate) use connections::{ConnectTarget, ConnectionSignal, ConnectionView};
use host_reports::HostReports;
pub(crate) use host_reports::{HostReportsView, exchange_host_reports};
use mail::{Envelope, QueueId};
use observe::{Event, Severity};
pub(crate) use overdue::answer_overdue;
pub(crate) use ownership::OWNERSHIP_RETRY_TIME;
pub(crate) use renewal::Renewal;
use resolve::SiteCache;
pub(crate) use restore::{Pass, reconfigure, restore};
pub(crate) use resubmit::resubmit;
use schedule::{Action, Class, ConnectionId, DestinationId, Overdue, Positions, QueueEntry, Scheduler};
use settings::settings;
pub(crate) use shared_limits::keep_shares;
use site_lookup::Lookups;
pub(crate) use site_lookup::answer_resolve;
use spool::{Entry, Spool, Status, Store as _};
use std::collections::{BTreeMap, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError, Weak};
use std::time::Duration;
pub(crate) use task::{Task, TaskFuture};
use tokio::sync::{Notify, Semaphore, mpsc};

/// Messages that are made 7-bit at a time, each whole in memory.
const CONVERSIONS_MAX: usize = 2;
/// Reports on overdue mail that are made at a time.
const TELLINGS_MAX: usize = 32;
/// Recipients whose states are asked for at a time: others wait for the spool meanwhile.
const STATES_MAX: usize = 1_024;

/// The scheduler, with the state that dispatch adds.
pub(crate) struct Dispatch {
    pub(crate) context: Arc<Context>,
    pub(crate) spool: Arc<Spool>,
    /// State of next hops.
    pub(crate) hosts: Arc<HostTable>,
    /// Messages for attempts and reports.
    pub(crate) messages: Arc<MessageReader>,
    /// Settles attempts on the jobs, and mail that is overdue.
    pub(crate) settler: Arc<Settler>,
    /// Jobs that are to be logged as deferred.
    pub(crate) deferrals: Deferrals,
    state: Mutex<DispatchState>,
    tasks: mpsc::UnboundedSender<Task>,
    /// Until `tasks` takes it.
    inbox: Mutex<Option<mpsc::UnboundedReceiver<Task>>>,
    /// Something is due before `sleeps_until`.
    earlier: Notify,
    /// Until when `tasks` sleeps, in microseconds since 1970.
    sleeps_until: AtomicU64,
    /// Messages that are made 7-bit at a time.
    pub(crate) conversions: Semaphore,
    /// Time until which an accepted message may have been moved to another list since it was stored, in microseconds
    /// since 1970.
    moves_until: AtomicU64,
    /// Another pass over mail that belongs elsewhere is scheduled.
    rehomes_again: AtomicBool,
    /// Passes over mail that belongs elsewhere so far.
    #[cfg(test)]
    pub(crate) passes: AtomicU64,
    /// Permits for reports on overdue mail.
    tellings: Semaphore,
    /// The time by which it goes.
    pub(crate) clock: Arc<ServerClock>,
    /// The queue of mail that waits for filters, once there is one.
    filter_failures: OnceLock<Weak<dyn FilterFailures>>,
}

/// The queue of mail that waits for filters, as far as queue commands ask for it.
pub(crate) trait FilterFailures: Send + Sync {
    /// Returns why mail for these filters, as its hold names them, is not screened.
    fn failure(&self, filters: &str) -> Option<String>;
}

struct DispatchState {
    scheduler: Scheduler,
    posts: HashMap<ConnectionId, Arc<ConnectionSignal>>,
    /// The sites of destinations, as the scheduler knows them.
    sites: SiteCache,
    lookups: Lookups,
    lookups_begun: u64,
    /// Time since which sites, and destinations without one, cannot be reached.
    down: HashMap<Arc<[u8]>, Duration>,
    /// When `down` was looked through last.
    purged: Duration,
    /// Failures that the nodes of a cluster report to each other; `None` on a machine alone.
    reports: Option<Box<HostReports>>,
    /// The configuration in force, to find hosts that need no look-up.
    config: Config,
    routing: Arc<Routing>,
}

impl fmt::Debug for Dispatch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Dispatch").finish_non_exhaustive()
    }
}

/// Returns an entry of the spool's list as the scheduler reads it.
fn waiting(entry: &Entry) -> QueueEntry {
    let owed = entry.state.status == Status::Owed;
    let held = entry.state.status == Status::Held;
    let held = held || owed && is_sabotaged(Sabotage::ForgetOwed);
    QueueEntry {
        message: entry.id,
        recipient: entry.recipient,
        due_s: entry.state.due,
        attempts: entry.state.tries(),
        warned: entry.state.is_warned(),
        held,
        class: Class::from_bits(entry.state.class()),
        timed: entry.state.is_marked() && !owed,
        owed,
    }
}

impl Dispatch {
    /// Dispatches what `spool` holds, for some of which it is known why it waits. Nothing happens before `tasks`.
    pub(crate) fn new(
        context: &Arc<Context>,
        spool: &Arc<Spool>,
        hosts: Arc<HostTable>,
        reasons: Reasons,
        clock: Arc<ServerClock>,
    ) -> Arc<Self> {
        let (tasks, inbox) = mpsc::unbounded_channel();
        let seed = u64::try_from(clock.now().as_nanos() & u128::from(u64::MAX)).unwrap_or(0);
        let config = &context.live.load().config;
        let (context, spool) = (Arc::clone(context), Arc::clone(spool));
        let messages = Arc::new(MessageReader::new(Arc::clone(&spool)));
        Arc::new_cyclic(|queue: &Weak<Self>| Self {
            settler: Arc::new(Settler::new(
                Arc::clone(&context),
                Arc::clone(&spool),
                Arc::clone(&messages),
                reasons,
                queue.clone(),
            )),
            deferrals: Deferrals::default(),
            spool,
            hosts,
            messages,
            state: Mutex::new(DispatchState {
                scheduler: Scheduler::new(settings(config, clock.steps()), seed),
                posts: HashMap::new(),
                sites: SiteCache::default(),
                lookups: Lookups::new(),
                lookups_begun: 0,
                down: HashMap::new(),
                purged: Duration::ZERO,
                reports: None,
                config: config.clone(),
                routing: context.routing.load_full(),
            }),
            context,
            tasks,
            inbox: Mutex::new(Some(inbox)),
            earlier: Notify::new(),
            sleeps_until: AtomicU64::new(u64::MAX),
            conversions: Semaphore::new(CONVERSIONS_MAX),
            moves_until: AtomicU64::new(0),
            rehomes_again: AtomicBool::new(false),
            #[cfg(test)]
            passes: AtomicU64::new(0),
            tellings: Semaphore::new(TELLINGS_MAX),
            clock,
            filter_failures: OnceLock::new(),
        })
    }

    /// Dispatches an empty spool on a simulated disk, for a trial.
    #[cfg(test)]
    pub(crate) fn trial(config: Config) -> (Arc<Self>, Arc<Spool>) {
        let spool = crate::simulation::spool_with(|config| {
            (config.segment_bytes, config.size_max) = (8 << 20, 64 << 20);
            config.state_delay_ms = 0;
        });
        (Self::trial_on(&Context::trial(config, Some(&spool))), spool)
    }

    /// Dispatches the spool of a trial, without reasons of waiting mail.
    #[cfg(test)]
    pub(crate) fn trial_on(context: &Arc<Context>) -> Arc<Self> {
        let hosts = Arc::new(HostTable::in_memory(&context.live.load().config));
        let clock = Arc::clone(context.clock.as_ref().unwrap());
        Self::new(context, context.spool().unwrap(), hosts, Reasons::default(), clock)
    }

    /// Takes the queue that knows why filters fail. The first one counts.
    pub(crate) fn know_filter_failures(&self, of: Weak<dyn FilterFailures>) {
        self.filter_failures.get_or_init(|| of);
    }

    /// Returns the time since 1970.
    pub(crate) fn now(&self) -> Duration {
        self.clock.now()
    }

    /// Makes all destinations of the spool due. With `anew` the configuration may lead to other hosts: destinations
    /// that are down are tried, and those that are being opened are not waited for.
    fn restore(&self, anew: bool) {
        let mut names = self.spool.destinations();
        // In an order that a second start would take too.
        names.sort_unstable();
        self.with_scheduler(|scheduler, now| {
            names.iter().for_each(|(name, _)| scheduler.restore(name, now));
            // Also destinations that are down and have no mail any more.
            if anew {
                scheduler.retry_now(None, now);
            }
        });
    }

    /// Puts another configuration in force. Only a change that `renewal` names has an effect on waiting mail: new
    /// limits would have every list read and every host asked for.
    fn configure(&self, config: &Config, routing: Arc<Routing>, renewal: &Renewal) {
        let mut state = self.lock();
        (state.config, state.routing) = (config.clone(), routing);
        if renewal.asks_hosts() {
            state.sites.clear();
        }
        drop(state);
        if renewal.asks_hosts() {
            self.with_scheduler(|scheduler, now| scheduler.reconfigure(settings(config, self.clock.steps()), now));
        }
    }

    /// Looks at the wall clock. Steps of it are no age of waiting mail. Returns a message for the operator.
    pub(crate) fn look_at_clock(&self) -> Option<String> {
        let (text, is_new) = self.clock.look();
        if is_new {
            let config = self.lock().config.clone();
            self.with_scheduler(|scheduler, now| scheduler.reconfigure(settings(&config, self.clock.steps()), now));
        }
        text
    }

    /// Looks soon again for hosts of destinations that waited only for name servers, which answer again.
    pub(crate) fn resolver_is_back(&self) {
        self.with_scheduler(|scheduler, now| scheduler.resolver_recovered(now));
    }

    /// Returns the number of connections to next hops: those that hold a place, and those that wait for a silent peer
    /// besides.
    pub(crate) fn connections(&self) -> [u64; 2] {
        let (all, silent) = {
            let state = self.lock();
            (state.scheduler.connections(), state.scheduler.silent_connections())
        };
        [all - silent, silent].map(|number| u64::try_from(number).unwrap_or(u64::MAX))
    }

    /// Returns the number of transactions in progress.
    pub(crate) fn under_way(&self) -> u64 {
        let now = self.now();
        let in_flight: usize = self.lock().scheduler.site_views(now).map(|site| site.in_flight).sum();
        u64::try_from(in_flight).unwrap_or(u64::MAX)
    }

    /// Tells the scheduler that overdue recipients were settled or reported, or are to be looked at again. `pause`:
    /// the time for which another look makes no sense.
    pub(crate) fn settled(
        &self,
        destination: DestinationId,
        message: QueueId,
        recipients: &Positions,
        kind: Overdue,
        pause: Duration,
    ) {
        self.with_scheduler(|scheduler, now| match kind {
            Overdue::Owed => scheduler.report_settled(destination, message, recipients, now + pause, now),
            _ => scheduler.age_settled(destination, message, recipients, now + pause, now),
        });
    }

    /// Watches the time by which a message is to be delivered, which was in line and waits in the spool now.
    pub(crate) fn expect(&self, envelope: &Envelope, recipients: &Positions) {
        let Some(at) = deadline::to_come(envelope) else { return };
        let at = self.clock.time_of(envelope, at);
        let mut places: BTreeMap<_, Vec<u32>> = BTreeMap::new();
        for some in recipients.as_slice().chunks(STATES_MAX) {
            for (entry, name) in self.spool.states_of(envelope.id, some.iter().copied()) {
                places.entry(name).or_default().push(entry.recipient);
            }
        }
        self.with_scheduler(|scheduler, _| {
            for (name, positions) in places {
                scheduler.set_deadline(&name, envelope.id, &Positions::from(positions.as_slice()), at);
            }
        });
    }

    /// Tells the scheduler that recipients were checked for the end of their time: they are done, or are to be looked
    /// at again.
    pub(crate) fn timed(
        &self,
        destination: DestinationId,
        message: QueueId,
        recipients: &Positions,
        again: Option<Duration>,
    ) {
        self.with_scheduler(|scheduler, now| scheduler.deadline_settled(destination, message, recipients, again, now));
    }

    /// Calls the scheduler and carries out its actions.
    fn with_scheduler<T>(&self, what: impl FnOnce(&mut Scheduler, Duration) -> T) -> T {
        self.with_state(|state, now| what(&mut state.scheduler, now))
    }

    /// The same, with what is kept beside the scheduler.
    fn with_state<T>(&self, what: impl FnOnce(&mut DispatchState, Duration) -> T) -> T {
        let now = self.now();
        let mut state = self.lock();
        let answer = what(&mut state, now);
        self.follow(&mut state, now);
        let lines = host_reports::publish_changes(&mut state, now);
        // Under the lock, as is the change: a sleeping task has seen this time, or is woken.
        if state.scheduler.wake_at().map_or(u64::MAX, micros) < self.sleeps_until.load(Ordering::Acquire) {
            self.earlier.notify_one();
        }
        drop(state);
        for text in lines {
            self.context.record(&Event::Cluster { severity: Severity::Info, text: &text });
        }
        answer
    }

    /// Carries out the actions of the scheduler until there is none.
    fn follow(&self, state: &mut DispatchState, now: Duration) {
        while let Some(action) = state.scheduler.poll(now) {
            match action {
                Action::Resolve { destination } => {
                    let Some(name) = state.scheduler.destination_name(destination).cloned() else { continue };
                    let Some(site) = resolve::site_at_once(&state.config, &state.routing, &name) else {
                        self.send(Task::Resolve { name });
                        continue;
                    };
                    self.place(state, &name, &Arc::new(site), None, now);
                }
                Action::Open { site, connection, lane } => {
                    let scheduler = &state.scheduler;
                    let (Some(destination), Some(site)) =
                        (scheduler.example_destination(site), scheduler.site_name(site))
                    else {
                        continue;
                    };
                    let (site, destination) = (Arc::clone(site), Arc::clone(destination));
                    let answer = state.sites.get(&destination);
                    let post = Arc::new(ConnectionSignal::new(connection, &destination, &site, now));
                    let way = ConnectTarget { site, destination, answer, lane };
                    state.posts.insert(connection, Arc::clone(&post));
                    self.send(Task::Connect { way, connection, post });
                }
                Action::Wake(connection) => {
                    if let Some(post) = state.posts.get(&connection) {
                        post.bell.notify_one();
                    }
                }
                Action::Close(connection) => {
                    if let Some(post) = state.posts.get(&connection) {
                        post.is_called_off.store(true, Ordering::Release);
                        post.bell.notify_one();
                    }
                }
                Action::Load { destination, after, limit } => {
                    let name = state.scheduler.destination_name(destination).cloned().unwrap_or_else(|| Arc::from([]));
                    self.send(Task::Load { destination, name, after, limit });
                }
                Action::Overdue { destination, message, recipients, kind } => {
                    let name = state.scheduler.destination_name(destination).cloned().unwrap_or_else(|| Arc::from([]));
                    self.send(Task::Overdue { destination, name, message, recipients, kind });
                }
            }
        }
    }

    /// Reads a page of the spool's list, which is in memory. Not under the lock: a long queue has many pages.
    pub(crate) fn load(&self, destination: DestinationId, name: &[u8], after: Option<QueueEntry>, limit: usize) {
        // The spool looks at the name of the entry alone.
        let after =
            after.map(|one| Entry { id: one.message, recipient: one.recipient, state: spool::State::default() });
        let mut entries: Vec<QueueEntry> = self.spool.by_destination(name, after, limit).iter().map(waiting).collect();
        self.settler.dsn_batcher.apply_to_entries(&mut entries);
        let is_end = entries.len() < limit;
        self.with_scheduler(|scheduler, now| scheduler.page_loaded(destination, &entries, is_end, now));
    }

    /// Has the lists of a message read again.
    pub(crate) fn look_at(&self, message: QueueId) {
        let states = self.spool.states(message);
        self.with_scheduler(|scheduler, now| states.iter().for_each(|(_, name)| scheduler.restore(name, now)));
    }

    /// Gives the tasks that are to be begun, once.
    pub(crate) fn take_inbox(&self) -> Option<mpsc::UnboundedReceiver<Task>> {
        self.inbox.lock().unwrap_or_else(PoisonError::into_inner).take()
    }

    /// Waits until something is due, and does what the scheduler wants then.
    ///
    /// # Cancel safety
    /// Yes.
    pub(crate) async fn next_due(&self) {
        let pause = self.pause();
        tokio::select! {
            biased;
            () = self.earlier.notified() => {}
            () = tokio::time::sleep(pause) => self.with_scheduler(|_, _| ()),
        }
    }

    /// Returns the time until something is due.
    fn pause(&self) -> Duration {
        let now = self.now();
        let state = self.lock();
        let wake = state.scheduler.wake_at();
        self.sleeps_until.store(wake.map_or(u64::MAX, micros), Ordering::Release);
        drop(state);
        wake.map_or(Duration::from_secs(3_600), |at| at.saturating_sub(now))
    }

    /// Runs a task that the end of the server waits for; drops it if that has come.
    pub(crate) fn spawn(&self, task: TaskFuture) {
        self.send(Task::TaskFuture(task));
    }

    /// Returns the sizes of the tables in memory.
    #[cfg(test)]
    pub(crate) fn sizes(&self) -> Sizes {
        let now = self.now();
        let state = self.lock();
        let sites: Vec<_> = state.scheduler.site_views(now).collect();
        let destinations: Vec<_> = state.scheduler.destination_views().collect();
        Sizes {
            destinations: destinations.len(),
            sites: sites.len(),
            ready: destinations.iter().map(|view| view.ready).max().unwrap_or(0),
            lines: sites.iter().map(|site| (site.ready, site.destinations, site.limits.connections as usize)).collect(),
            in_flight: sites.iter().map(|site| site.in_flight).sum(),
            connections: state.scheduler.connections(),
            posts: state.posts.len(),
            down: state.down.len(),
        }
    }

    /// Gives it less room for jobs in memory, so that a few messages fill it.
    #[cfg(test)]
    pub(crate) fn shrink(&self, ready_max: usize) {
        let ready_max = if is_sabotaged(Sabotage::LoadAll) { usize::MAX } else { ready_max };
        let settings = schedule::Settings { ready_max, ..settings(&self.lock().config, self.clock.steps()) };
        self.with_scheduler(|scheduler, now| scheduler.reconfigure(settings, now));
    }

    fn send(&self, errand: Task) {
        // At the end of the server there is no receiver any more.
        drop(self.tasks.send(errand));
    }

    fn lock(&self) -> MutexGuard<'_, DispatchState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;

//! The machine of the server: its disk, its power, and start and end of the server.
//!
//! The spool has no threads here. Whenever all tasks wait, [`Machine::look`] asks whether the committer has something
//! to write; if so, a task writes it after the time that a disk takes. So virtual time goes on only when no work is
//! left at this moment, and a run repeats exactly.

use super::book::{Book, Facts};
use super::plan::{End, Plan};
use super::random::Random;
use crate::active_config::ActiveConfig;
use crate::config::{self, Config};
use crate::context::Context;
use crate::dispatch::Dispatch;
use crate::dns::Resolver;
use crate::inbound::Inbound;
use crate::intake::Enqueue;
use crate::listener_profile::ListenerProfile;
use crate::log::Log;
use crate::outbound::Outbound;
use crate::server_clock::ServerClock;
use crate::session::{Connection, Opening};
use crate::shell::start;
use crate::sink::Behaviour;
use crate::transport::Internet;
use crate::transport::Transport;
use mail::Client;
use os::clock;
use smtp::server::Session;
use spool::disk::Disk as _;
use spool::disk::sim::{Costs, SimConfig, SimDisk};
use spool::{Spool, Stepper};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::io::{DuplexStream, duplex};
use tokio::sync::Notify;
use tokio::task::JoinSet;

/// A server that runs.
struct Running {
    context: Arc<Context>,
    inbound: Arc<Inbound>,
    outbound: Arc<Outbound>,
    lane: Arc<ListenerProfile>,
    tasks: JoinSet<()>,
}

/// State of the disk.
struct Works {
    disk: SimDisk,
    stepper: Option<Stepper>,
    /// The time that the writing task was last told.
    due: Option<Duration>,
    /// A write is in progress.
    is_busy: bool,
    /// Power fails at the operation of this number.
    cut_at: Option<u64>,
    random: Random,
    /// The longest time of a write.
    latency: Duration,
    /// The time of each write, if it is not random.
    flush: Option<Duration>,
}

impl Works {
    /// Returns when a shard has something to write, by the clock of the disk.
    fn next_due(&self) -> Option<Duration> {
        let stepper = self.stepper.as_ref()?;
        (0..stepper.shards()).filter_map(|shard| stepper.due_us(shard)).min().map(Duration::from_micros)
    }

    /// Each shard writes a batch if it has one, and tidies up.
    fn write(&mut self) {
        let Some(stepper) = &mut self.stepper else { return };
        for shard in 0..stepper.shards() {
            stepper.commit(shard);
            while stepper.tidy(shard) {}
        }
    }

    /// Power was cut in the middle of an operation.
    fn has_died(&self) -> bool {
        self.cut_at.is_some_and(|at| self.disk.ops() > at)
    }
}

/// A machine.
pub(super) struct Machine {
    book: Arc<Book>,
    works: Mutex<Works>,
    bell: Notify,
    /// Power was cut in the middle of an operation.
    pub(super) died: Notify,
    running: Mutex<Option<Running>>,
    /// Counts starts.
    generation: Mutex<u64>,
    config: Config,
    /// Jobs in memory, if not as many as usual.
    ready_max: Option<usize>,
    log: Log,
    internet: Internet,
}

impl Machine {
    pub(super) fn new(book: &Arc<Book>, seed: u64, plan: &Plan, log: Log, internet: Internet) -> Arc<Self> {
        let mut random = Random::new(seed, 2);
        let disk = SimDisk::with_config(seed, SimConfig { costs: Costs::NONE, ..SimConfig::default() });
        let latency = Duration::from_millis(random.pick(&[1, 10, 40]));
        let (flush, latency) = (plan.flush, plan.flush.unwrap_or(latency));
        let works = Works { disk, stepper: None, due: None, is_busy: false, cut_at: None, random, latency, flush };
        Arc::new(Self {
            book: Arc::clone(book),
            works: Mutex::new(works),
            bell: Notify::new(),
            died: Notify::new(),
            running: Mutex::new(None),
            generation: Mutex::new(0),
            config: plan.config.clone(),
            ready_max: plan.ready_max,
            log,
            internet,
        })
    }

    /// Returns how long after an outcome a crash may forget it: the spool's promise, and the disk's time for some
    /// batches.
    pub(super) fn window(&self) -> Duration {
        Duration::from_millis(config::spool_settings(&self.config).state_delay_ms)
            + 8 * self.works.lock().unwrap().latency
            + Duration::from_millis(10)
    }

    /// Starts the server.
    pub(super) fn start(self: &Arc<Self>) {
        let disk = {
            let works = self.works.lock().unwrap();
            self.move_clock(&works.disk);
            works.disk.clone()
        };
        let (spool, stepper, recovery) = match Spool::open_stepped(config::spool_settings(&self.config), Arc::new(disk))
        {
            Ok(opened) => opened,
            Err(error) => panic!("the spool cannot be opened: {error}"),
        };
        for damage in &recovery.damage {
            self.book.wrong(format!("damage: {damage}"));
        }
        let (spool, config) = (Arc::new(spool), self.config.clone());
        let opened = (Arc::clone(&spool), recovery);
        let listen = config.listen.first().unwrap();
        let lane = Arc::new(ListenerProfile::new(&config, listen, None, None));
        let resolver = Resolver::new(&config.dns).unwrap();
        let context = Arc::new(Context::new(
            start::message_store(Some(&opened), mail::Node::default(), Duration::from_micros(clock::unix_us())),
            self.log.clone(),
            ActiveConfig::new(config, None),
            crate::routing::Routing::plain(),
            resolver,
            Some(Arc::new(ServerClock::forgetful())),
            crate::secret_key::SecretKey::of_process(),
        ));
        let dispatch = Dispatch::trial_on(&context);
        if let Some(ready_max) = self.ready_max {
            dispatch.shrink(ready_max);
        }
        let queue = Arc::clone(&dispatch) as Arc<dyn Enqueue>;
        let inbound = Inbound::trial(Arc::clone(&context), Some(queue), Behaviour::default());
        let mut outbound = Outbound::trial(&context, Some(dispatch));
        outbound.internet = Some(self.internet.clone());
        let outbound = Arc::new(outbound);
        let mut tasks = JoinSet::new();
        tasks.spawn(crate::tasks::run(Arc::clone(&outbound)));
        self.works.lock().unwrap().stepper = Some(stepper);
        *self.running.lock().unwrap() = Some(Running { context, inbound, outbound, lane, tasks });
        *self.generation.lock().unwrap() += 1;
        self.book.note(|| "server: started".to_owned());
    }

    /// Ends the server, and leaves the disk in the state that the next one finds.
    pub(super) async fn end(&self, how: End) {
        let Some(mut running) = self.running.lock().unwrap().take() else { return };
        *self.generation.lock().unwrap() += 1;
        self.book.note(|| format!("server: {how:?}"));
        if how == End::Stop {
            running.context.stop.begin();
            let grace = async { while running.tasks.join_next().await.is_some() {} };
            if tokio::time::timeout(Duration::from_secs(3_600), grace).await.is_err() {
                self.book.wrong("the server does not stop".to_owned());
            }
            let mut works = self.works.lock().unwrap();
            // Recorded results are written before the process ends.
            while works.next_due().is_some() {
                works.disk.advance(1_000_000);
                works.write();
            }
        } else {
            self.book.facts().crashes.push(self.book.now());
        }
        let old = {
            let mut works = self.works.lock().unwrap();
            let choice = works.random.next();
            works.disk = if how == End::Power { works.disk.crash(choice) } else { works.disk.kill() };
            works.disk.clear_faults();
            works.cut_at = None;
            works.due = None;
            works.stepper.take()
        };
        running.tasks.abort_all();
        while running.tasks.join_next().await.is_some() {}
        let Running { context, inbound, outbound, .. } = running;
        drop((inbound, outbound));
        // The runtime drops what the tasks own when they are scheduled again.
        for _ in 0..100 {
            tokio::task::yield_now().await;
        }
        if Arc::strong_count(&context) > 1 {
            self.book.wrong(format!("{} tasks outlive the server", Arc::strong_count(&context) - 1));
        }
        drop((context, old));
    }

    /// Plans a power cut within so many operations of the disk.
    pub(super) fn cut_after(&self, operations: u64) {
        let mut works = self.works.lock().unwrap();
        works.disk.cut_power_after(operations);
        works.cut_at = Some(works.disk.ops() + operations);
    }

    /// Returns which start this is, if the server runs.
    pub(super) fn generation(&self) -> Option<u64> {
        let is_running = self.running.lock().unwrap().is_some();
        (is_running && !self.works.lock().unwrap().has_died()).then(|| *self.generation.lock().unwrap())
    }

    /// Returns the service, if it runs.
    pub(super) fn context(&self) -> Option<Arc<Context>> {
        self.running.lock().unwrap().as_ref().map(|running| Arc::clone(&running.context))
    }

    /// Returns dispatch, if the server runs.
    pub(super) fn dispatch(&self) -> Option<Arc<Dispatch>> {
        self.running.lock().unwrap().as_ref().and_then(|running| running.outbound.dispatch.clone())
    }

    /// Opens a session; `None` if the server does not listen.
    pub(super) fn connect(&self) -> Option<(DuplexStream, u64)> {
        let generation = self.generation()?;
        let mut running = self.running.lock().unwrap();
        let running = running.as_mut().filter(|running| !running.context.stop.has_begun())?;
        let (ours, theirs) = duplex(64 << 10);
        let client = Client::Network(([192, 0, 2, 1], 1_025).into());
        let mut session = Session::new(Arc::clone(&running.lane.settings), client, None);
        session.trust_client(true);
        let (inbound, lane) = (Arc::clone(&running.inbound), Arc::clone(&running.lane));
        let connection = Connection::new(inbound, lane, session, Opening::default(), clock::now());
        running.tasks.spawn(connection.run(Transport::Memory(theirs)));
        while running.tasks.try_join_next().is_some() {}
        Some((ours, generation))
    }

    /// Messages that are not finished, if the server runs.
    pub(super) fn waiting(&self) -> Option<usize> {
        use spool::Store as _;
        let running = self.running.lock().unwrap();
        running.as_ref().and_then(|running| running.context.spool()).map(|spool| spool.messages().len())
    }

    /// The disk's clock goes with ours.
    fn move_clock(&self, disk: &SimDisk) {
        let now = u64::try_from(self.book.now().as_micros()).unwrap();
        disk.advance(now.saturating_sub(disk.now_us()));
    }

    /// Starts due work of the disk. Called when all tasks wait, before the thread would sleep.
    pub(super) fn look(&self) {
        let mut works = self.works.lock().unwrap();
        if works.is_busy {
            return;
        }
        let due = works.next_due();
        if due != works.due {
            works.due = due;
            self.bell.notify_one();
        }
        drop(works);
        let mut facts = self.book.facts();
        let open = facts.connections.iter().map(|(now, _)| *now).sum();
        facts.connections_most = facts.connections_most.max(open);
        for (now, most) in &mut facts.connections {
            *most = (*most).max(*now);
        }
        let Facts { connections, group_of, groups_most, .. } = &mut *facts;
        let mut groups = vec![0; groups_most.len()];
        for ((now, _), group) in connections.iter().zip(group_of) {
            groups[*group] += now;
        }
        for (most, now) in groups_most.iter_mut().zip(groups) {
            *most = (*most).max(now);
        }
    }

    /// Runs the disk: makes due writes, each batch after its time.
    pub(super) async fn work(self: Arc<Self>) {
        loop {
            let due = self.works.lock().unwrap().due;
            let pause = due.map_or(Duration::from_secs(1 << 30), |due| due.saturating_sub(self.book.now()));
            if !pause.is_zero() {
                drop(tokio::time::timeout(pause, self.bell.notified()).await);
                continue;
            }
            let latency = {
                let mut works = self.works.lock().unwrap();
                works.is_busy = true;
                let (most, flush) = (works.latency, works.flush);
                flush.unwrap_or_else(|| works.random.time(Duration::ZERO, most))
            };
            tokio::time::sleep(latency).await;
            let mut works = self.works.lock().unwrap();
            works.is_busy = false;
            works.due = None;
            self.move_clock(&works.disk);
            if works.stepper.is_none() {
                continue;
            }
            works.write();
            works.due = works.next_due();
            if works.has_died() {
                works.stepper = None;
                works.due = None;
                // Power is off: no task goes on.
                if let Some(running) = self.running.lock().unwrap().as_mut() {
                    running.tasks.abort_all();
                }
                self.died.notify_one();
            }
        }
    }
}

//! The running server: its listeners, its reload, its answers to the operator, its end.
//!
//! A reload is whole or not at all. Everything that can fail is done first, beside what is in force: the file is read, passwords
//! and certificates are loaded, new addresses are bound, the log file is opened. Only then are the values put in place, and
//! nothing of that can fail. Open connections keep the [`ListenerProfile`] they came by.

use crate::accept::listener::{self, Acceptor as Socket};
use crate::accept::{door, limits};
use crate::admit::logins::LoginOver;
use crate::config::{self, Acknowledge, Config, Listen, ListenProtocol, ListenTls, Loaded, Machine};
use crate::context::{ActiveConfig, Context, Listener, ListenerProfile, Open};
use crate::control::{self, Answer, ControlSocket, Gate, Handler, Peer, Reason, Request, Rights, Status};
use crate::dispatch::{self, Dispatch, Renewal};
use crate::dns::{DnsNote, Resolver};
use crate::env::accounts::Accounts;
use crate::env::{blocking, clock, machine, signals, systemd};
use crate::hardening::Hardening;
use crate::intake::MessageStore;
use crate::kept_file;
use crate::log;
use crate::lookup::Lookups;
use crate::pickup;
use crate::queue;
use crate::routing;
use crate::serve::{lines, load_tls, open_authenticator, threads, with_places};
use crate::session::{Connection, Opening, Transport};
use crate::tls::Acceptor;
use arc_swap::ArcSwap;
use mail::Client;
use observe::counters::{Counter, Temporary};
use observe::{Event, Ruleset, Severity};
use smtp::server::{BareNewline, Dialect, Session, Settings};
use spool::Spool;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::net::UnixStream;
use tokio::task::JoinSet;

/// The longest wait for the name of who speaks on standard input; his number stands for it then.
const NAMING_TIME_MAX: Duration = Duration::from_secs(5);
/// How often the spool and others are asked for what an operator should know.
const NOTES_INTERVAL: Duration = Duration::from_secs(1);
/// How often certificates are looked at for their end.
const CERTIFICATE_INTERVAL: Duration = Duration::from_secs(24 * 3_600);

/// Destinations that `status` names.
const FULLEST: usize = 5;

/// Where the configuration comes from.
#[derive(Clone, Debug)]
pub struct Source {
    /// The file, if there is one.
    pub path: Option<PathBuf>,
    /// `--set` of the command line.
    pub overrides: Vec<String>,
    /// What defaults depend on.
    pub machine: Machine,
}

impl Source {
    /// Reads it.
    ///
    /// # Errors
    /// Every problem.
    pub fn read(&self) -> Result<Loaded, Vec<config::Problem>> {
        let text = match self.path.as_deref().map(std::fs::read_to_string) {
            None => String::new(),
            Some(Ok(text)) => text,
            Some(Err(error)) => return Err(vec![unreadable(self.path.as_deref(), &error)]),
        };
        let loaded = config::load(&text, self.path.as_deref(), &self.overrides, &self.machine)?;
        config::check_own_file(&loaded, &config::RealFiles).map_or(Ok(loaded), |problem| Err(vec![problem]))
    }
}

/// How the server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Sessions that were cut off when the grace time was over.
    pub cut_off: usize,
    /// Messages and octets that a sink took.
    pub forgotten: (u64, u64),
}

/// Recipients that a next hop has taken.
const SENT: Counter = Counter::DeliveryRecipients(observe::counters::Outcome::Sent);

/// The running server.
#[derive(Debug)]
pub(crate) struct House {
    service: Arc<Context>,
    listeners: Mutex<Vec<Arc<Listener>>>,
    tls: Mutex<Option<Arc<Acceptor>>>,
    source: Option<Source>,
    /// What was given up besides root; nothing in a sink.
    hardening: Option<Hardening>,
    manager: Arc<systemd::Manager>,
    tasks: Mutex<JoinSet<()>>,
    /// Deliveries, until the end waits for them.
    deliveries: Mutex<Option<tokio::task::JoinHandle<()>>>,
    /// The operator's hands in the queue; a sink has none.
    queue: Option<queue::Tools>,
    /// How fast messages are accepted.
    accepted: Mutex<control::Rate>,
    /// When the server ends at the latest, once it stops.
    ends_at: OnceLock<Instant>,
    /// How fast next hops take recipients.
    sent: Mutex<control::Rate>,
    /// One reload at a time.
    reloading: AtomicBool,
}

impl House {
    pub(crate) fn new(
        service: Arc<Context>,
        tls: Option<Arc<Acceptor>>,
        source: Option<Source>,
        hardening: Option<Hardening>,
        manager: Arc<systemd::Manager>,
    ) -> Self {
        let queue = match &service.message_store {
            MessageStore::Spool { spool, .. } => {
                let dispatch: Arc<dyn queue::Nudge> = match &service.dispatch {
                    Some(dispatch) => Arc::clone(dispatch) as Arc<dyn queue::Nudge>,
                    None => Arc::new(queue::Nobody),
                };
                Some(queue::Tools::new(Arc::clone(spool), dispatch))
            }
            MessageStore::Discard { .. } => None,
        };
        Self {
            service,
            queue,
            listeners: Mutex::default(),
            tls: Mutex::new(tls),
            source,
            hardening,
            manager,
            tasks: Mutex::default(),
            deliveries: Mutex::default(),
            accepted: Mutex::default(),
            ends_at: OnceLock::new(),
            sent: Mutex::default(),
            reloading: AtomicBool::new(false),
        }
    }

    /// Takes connections on all listeners of the start.
    ///
    /// # Errors
    /// A socket cannot be registered with the runtime.
    pub(crate) fn open_all(self: &Arc<Self>, bound: Vec<listener::Listener>) -> Result<(), String> {
        let live = self.service.live.load_full();
        let tls = lock(&self.tls).clone();
        for listener in bound {
            let Some(listen) = live.config.listen.get(listener.entry) else { continue };
            let lane = ListenerProfile::new(&live.config, listen, live.authenticator.as_deref(), tls.as_ref());
            let sockets = register(listener.address, listener.sockets)?;
            self.open(listener.address, lane, sockets);
        }
        Ok(())
    }

    fn open(self: &Arc<Self>, address: SocketAddr, lane: ListenerProfile, sockets: Vec<Socket>) {
        let mut listeners = lock(&self.listeners);
        let listener = Arc::new(Listener {
            entry: listeners.len(),
            address,
            lane: ArcSwap::from_pointee(lane),
            closed: tokio::sync::Notify::new(),
            is_closed: AtomicBool::new(false),
        });
        listeners.push(Arc::clone(&listener));
        drop(listeners);
        let lane = listener.lane.load();
        self.service.tell(&Event::Listening {
            daemon: &lane.listen.name,
            address,
            protocol: protocol_word(lane.listen.protocol),
            tls: tls_word(lane.listen.tls),
        });
        drop(lane);
        let mut tasks = lock(&self.tasks);
        for socket in sockets {
            tasks.spawn(door::take_connections(Arc::clone(&self.service), Arc::clone(&listener), socket));
        }
    }

    /// Passes on what spool, users, names and certificates have to say.
    pub(crate) fn watch(self: &Arc<Self>, spool: Option<Arc<Spool>>) {
        let house = Arc::clone(self);
        lock(&self.tasks).spawn(async move {
            let mut ticks = tokio::time::interval(NOTES_INTERVAL);
            let mut looked_at = clock::now();
            loop {
                tokio::select! {
                    () = house.service.stop.begun() => return,
                    _ = ticks.tick() => {}
                }
                house.pass_notes(spool.as_deref());
                lock(&house.accepted).feed(clock::now(), house.service.log.counter(Counter::Messages));
                lock(&house.sent).feed(clock::now(), house.service.log.counter(SENT));
                if clock::now().saturating_duration_since(looked_at) >= CERTIFICATE_INTERVAL {
                    looked_at = clock::now();
                    house.warn_of_certificates();
                }
            }
        });
        let house = Arc::clone(self);
        lock(&self.tasks).spawn(async move {
            let alive = || house.is_alive();
            tokio::select! {
                () = house.service.stop.begun() => {}
                () = house.manager.watch(alive) => {}
            }
        });
        self.warn_of_certificates();
    }

    /// For the watchdog: this runs on the runtime, so the runtime moves; the spool must take writes, and mail must move.
    fn is_alive(&self) -> bool {
        let delivers = lock(&self.deliveries).as_ref().is_none_or(|deliveries| !deliveries.is_finished());
        delivers && self.service.message_store.pressure() != spool::Pressure::Poisoned
    }

    fn pass_notes(&self, spool: Option<&Spool>) {
        for event in spool.map(Spool::take_events).unwrap_or_default() {
            let severity = match event {
                spool::Event::SegmentRetired { .. } => Severity::Warning,
                spool::Event::ReadOnly { .. } => Severity::Critical,
                _ => Severity::Error,
            };
            self.service.tell(&Event::Spool { severity, text: &event.to_string() });
        }
        for note in self.service.resolver.load().take_notes() {
            self.service.tell(&Event::ConfigWarning { text: &note.to_string() });
            if let (DnsNote::Alive, Some(dispatch)) = (note, &self.service.dispatch) {
                dispatch.resolver_is_back();
            }
        }
        let live = self.service.live.load_full();
        for problem in live.authenticator.iter().flat_map(|authenticator| authenticator.take_problems()) {
            let text = &problem.to_string();
            let is_refusal = problem.is_refusal();
            self.service.tell(&if is_refusal { Event::FileRefused { text } } else { Event::ConfigWarning { text } });
        }
    }

    fn warn_of_certificates(&self) {
        let tls = lock(&self.tls).clone();
        for warning in tls.iter().flat_map(|acceptor| acceptor.warnings()) {
            self.service.tell(&Event::ConfigWarning { text: &warning.to_string() });
        }
    }

    /// Delivers what is accepted, and what the spool holds from before.
    pub(crate) fn deliver(self: &Arc<Self>) {
        *lock(&self.deliveries) = Some(tokio::spawn(dispatch::run(Arc::clone(&self.service))));
        lock(&self.tasks).spawn(kept_file::keep(Arc::clone(&self.service)));
        lock(&self.tasks).spawn(routing::watch::run(Arc::clone(&self.service)));
    }

    /// Takes what programs of this machine hand in.
    pub(crate) fn pick_up(self: &Arc<Self>, directory: pickup::Directory) {
        lock(&self.tasks).spawn(pickup::run(Arc::clone(&self.service), directory));
    }

    /// Answers the operator until the server has ended; while it stops, how it is and no more.
    pub(crate) fn answer_on(self: &Arc<Self>, socket: ControlSocket) {
        let house = Arc::clone(self);
        lock(&self.tasks).spawn(async move {
            let service = Arc::clone(&house.service);
            let has_guests = service.live.load().config.control.mailq != config::Mailq::Operators;
            let gate = Gate::new(socket.gid()).with_guests(has_guests);
            // Whoever waits for the end of the server can ask how far it is: this is dropped last.
            let stop = std::future::pending();
            if let Err(error) = control::serve(socket, gate, Arc::new(Answers(house)), stop).await {
                service.tell(&Event::InternalError { place: "control", text: &error.to_string() });
            }
        });
    }

    /// Does what signals ask for, until one ends the server and its sessions are over.
    pub(crate) async fn until_stopped(self: &Arc<Self>, signals: &mut signals::Signals) -> Ended {
        let why = loop {
            match signals.next().await {
                signals::Signal::Terminate { name } => break name,
                // There is no second one before the first.
                signals::Signal::TerminateNow => break "SIGTERM",
                signals::Signal::Hangup => {
                    drop(self.reload().await);
                    self.service.log.reopen();
                }
                signals::Signal::User1 => self.service.log.reopen(),
            }
        };
        let service = &self.service;
        service.tell(&Event::Stopping { why, connections: service.stop.open() });
        self.manager.stopping("finishing open transactions");
        let grace = service.live.load().config.server.shutdown_grace;
        self.ends_at.get_or_init(|| clock::now() + grace);
        service.stop.begin();
        let again = async { while signals.next().await != signals::Signal::TerminateNow {} };
        let mut deliveries = lock(&self.deliveries).take();
        let finished = async {
            service.stop.drained().await;
            if let Some(deliveries) = &mut deliveries {
                // A panic in it was told when it happened.
                drop(deliveries.await);
            }
        };
        tokio::select! {
            () = finished => {}
            () = tokio::time::sleep(grace) => {}
            () = again => {}
        }
        let mut deliveries_cut_off = 0;
        if let Some(deliveries) = deliveries.filter(|deliveries| !deliveries.is_finished()) {
            deliveries_cut_off = service.dispatch.as_ref().map_or(0, |dispatch| dispatch.under_way());
            deliveries.abort();
        }
        let ended = Ended { cut_off: service.stop.open(), forgotten: service.message_store.forgotten() };
        // The control socket may hold a session that was cut off; the others have ended by themselves.
        let mut tasks = std::mem::take(&mut *lock(&self.tasks));
        tasks.abort_all();
        while tasks.join_next().await.is_some() {}
        kept_file::save(service).await;
        service.tell(&Event::Stopped { cut_off: ended.cut_off, deliveries_cut_off });
        ended
    }

    /// Reads the configuration again, and puts all of it in force or nothing.
    async fn reload(self: &Arc<Self>) -> Answer {
        if self.reloading.swap(true, Ordering::SeqCst) {
            return Answer::refused(Reason::Busy, "a reload is going on");
        }
        self.manager.reloading();
        let house = Arc::clone(self);
        // Reading files, hashing and binding block.
        let answer = tokio::task::spawn_blocking(move || house.reload_now()).await;
        self.reloading.store(false, Ordering::SeqCst);
        self.manager.ready("accepting mail");
        answer.unwrap_or_else(|_| Answer::refused(Reason::Failed, "the reload broke off; the old configuration stays"))
    }

    fn reload_now(self: &Arc<Self>) -> Answer {
        let Some(source) = &self.source else { return Answer::refused(Reason::Failed, "a sink has no configuration") };
        let path = source.path.as_ref().map_or_else(|| "(no file)".to_owned(), |path| path.display().to_string());
        match self.try_reload(source) {
            Ok(Reloaded { changed, refused, warnings, renewal }) => {
                self.service.tell(&Event::Reloaded { path: &path, retried: renewal.text().as_deref() });
                for text in &refused {
                    self.service.tell(&Event::FileRefused { text });
                }
                for text in &warnings {
                    self.service.tell(&Event::ConfigWarning { text });
                }
                self.warn_of_certificates();
                Answer::reloaded(&changed, &[], renewal.ways())
            }
            Err(Refused { error, problems }) => {
                let errors: Vec<String> = match problems.as_slice() {
                    [] => vec![error.clone()],
                    problems => problems.iter().map(ToString::to_string).collect(),
                };
                self.service.tell(&Event::ReloadRefused { path: &path, errors: &errors });
                Answer::Refused { reason: Reason::Config, error, problems }
            }
        }
    }

    fn try_reload(self: &Arc<Self>, source: &Source) -> Result<Reloaded, Refused> {
        // All that can fail, first.
        let loaded = source.read().map_err(|problems| Refused::of(&problems))?;
        let old = self.service.live.load_full();
        let differences = config::differences(&old.config, &loaded.config);
        if let Some(why) = config::refuses_reload(&differences) {
            return Err(Refused::because(why));
        }
        let hardening = self.hardening.as_ref();
        if let Some(why) = hardening.and_then(|hardening| hardening.refuses(&loaded.config, source.path.as_deref())) {
            return Err(Refused::because(why));
        }
        let config = loaded.config.clone();
        let authenticator = open_authenticator(&config).map_err(|error| Refused::because(error.to_string()))?;
        let reasons = config::read_reasons(config.delivery.classes.as_deref());
        let reasons = reasons.map_err(|faults| Refused::because(lines(&faults)))?;
        let log = log::Settings::from_config(&config.log, &config.hostname);
        log::check(&log)
            .map_err(|error| Refused::because(format!("log.path: {error}; name a file that mailrace may write")))?;
        // It reads which servers and names this machine has now. If nothing is other, what is kept of answers is kept.
        let resolver = Resolver::new(&config.dns);
        let resolver = resolver.map_err(|error| Refused::because(format!("dns.servers: {error}")))?;
        let resolver = Some(resolver).filter(|resolver| !resolver.is_like(&self.service.resolver.load()));
        // What is kept of answers is kept, if the same are asked.
        let lookups = Arc::new(Lookups::after(&config, &self.service.routing.load().lookups()));
        let maps = routing::load::load(&config, &lookups, Some(&self.service.routing.load_full()));
        let maps = maps.map_err(|faults| Refused::because(lines(&with_places(Some(&loaded), faults))))?;
        let added = self.bind_added(&config)?;
        // The last that can fail, since it takes effect by itself: open connections too meet the new certificate at their
        // handshake, and tickets stay good.
        let tls = match lock(&self.tls).clone().filter(|_| !config.tls.certificate.is_empty()) {
            Some(acceptor) => {
                acceptor.reload(&config.tls).map_err(|problems| Refused::because(lines(&problems)))?;
                Some(acceptor)
            }
            None => load_tls(&config).map_err(|error| Refused::because(error.to_string()))?,
        };
        // From here on nothing fails.
        if let Some(authenticator) = &authenticator {
            authenticator.count_attempts(&config.auth, &config.accept.exempt, old.authenticator.as_deref());
        }
        let mut renewal = Renewal::between(&old.config, &config);
        let routing = Arc::new(maps.routing);
        if !routing.has_hosts_of(&self.service.routing.swap(Arc::clone(&routing))) {
            renewal.add_maps();
        }
        if let Some(resolver) = resolver {
            self.service.resolver.store(Arc::new(resolver));
            renewal.add_dns();
        }
        self.service.log.reconfigure(&log);
        *lock(&self.tls) = tls.clone();
        self.replace_lanes(&config, authenticator.as_deref(), tls.as_ref());
        let mut limits = self.limits(&config);
        limits.listeners.extend(added.iter().map(|(_, listen, _)| listen.connections_max));
        self.service.limits.replace(limits);
        for (address, listen, sockets) in added {
            self.open(address, ListenerProfile::new(&config, &listen, authenticator.as_deref(), tls.as_ref()), sockets);
        }
        self.service.live.store(Arc::new(ActiveConfig::new(config, authenticator).with_reasons(reasons)));
        self.service.hosts.configure(&self.service.live.load().config);
        dispatch::reconfigure(&self.service, &renewal);
        let changed = differences.iter().map(ToString::to_string).collect();
        let warnings = loaded.warnings.iter().map(config::Problem::line).chain(maps.notes);
        Ok(Reloaded { changed, refused: maps.refused, warnings: warnings.collect(), renewal })
    }

    /// Binds the addresses that are new.
    fn bind_added(&self, config: &Config) -> Result<Vec<(SocketAddr, Listen, Vec<Socket>)>, Refused> {
        let known: Vec<SocketAddr> = self.open_listeners().iter().map(|one| one.lane.load().listen.address).collect();
        let added: Vec<Listen> =
            config.listen.iter().filter(|listen| !known.contains(&listen.address)).cloned().collect();
        let bound = listener::bind(&added, Vec::new(), config.accept.backlog, usize::from(threads(config)))
            .map_err(|errors| Refused::because(lines(&errors)))?;
        let mut opened = Vec::new();
        for (listen, bound) in added.into_iter().zip(bound.listeners) {
            let sockets = register(bound.address, bound.sockets).map_err(Refused::because)?;
            opened.push((bound.address, listen, sockets));
        }
        Ok(opened)
    }

    /// Gives listeners that stay their new lanes, and closes those that go.
    fn replace_lanes(
        &self,
        config: &Config,
        authenticator: Option<&crate::auth::Authenticator>,
        tls: Option<&Arc<Acceptor>>,
    ) {
        for listener in self.open_listeners() {
            let address = listener.lane.load().listen.address;
            match config.listen.iter().find(|listen| listen.address == address) {
                Some(listen) => listener.lane.store(Arc::new(ListenerProfile::new(config, listen, authenticator, tls))),
                None => listener.close(),
            }
        }
    }

    fn open_listeners(&self) -> Vec<Arc<Listener>> {
        lock(&self.listeners).iter().filter(|one| !one.is_closed()).cloned().collect()
    }

    /// Limits by the numbers of listeners, closed ones included: their connections may still be open.
    fn limits(&self, config: &Config) -> limits::Settings {
        let mut settings = limits::Settings::new(config);
        settings.listeners = lock(&self.listeners).iter().map(|one| one.lane.load().listen.connections_max).collect();
        settings
    }

    async fn answer_status(self: &Arc<Self>) -> Answer {
        let house = Arc::clone(self);
        // With many destinations it takes a while to find the fullest.
        let status = tokio::task::spawn_blocking(move || house.status()).await;
        status.map_or_else(
            |_| Answer::refused(Reason::Failed, "the answer broke off; the log says why"),
            Status::into_answer,
        )
    }

    fn status(&self) -> Status {
        let service = &self.service;
        let live = service.live.load_full();
        let count = |counter| service.log.counter(counter);
        let refused_at_rcpt = |temporary| count(Counter::Rejected(Ruleset::Rcpt, temporary));
        let space = machine::file_system(&live.config.spool.path);
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            hostname: live.config.hostname.clone(),
            pid: machine::pid(),
            uptime: clock::now().saturating_duration_since(service.began),
            stopping: self.ends_at.get().map(|at| control::Stopping {
                deliveries: service.dispatch.as_ref().map_or(0, |dispatch| dispatch.under_way()),
                left: at.saturating_duration_since(clock::now()),
            }),
            config: self.source.as_ref().and_then(|source| source.path.clone()),
            hardening: self.hardening.as_ref().map(|hardening| hardening.text().to_owned()),
            listen: self.open_listeners().iter().map(|one| one.address.to_string()).collect(),
            connections: u64::try_from(service.stop.open()).unwrap_or(u64::MAX),
            connections_max: live.config.accept.connections_max.into(),
            connections_total: count(Counter::Connections),
            connections_refused: self.connections_refused(),
            messages_accepted: count(Counter::Messages),
            accepted_rate: lock(&self.accepted).per_second(clock::now(), count(Counter::Messages)),
            deliveries: service.dispatch.as_ref().map(|dispatch| self.deliveries(dispatch, &live.config.delivery)),
            queues_only: live.queues_only(),
            fullest: self.queue.as_ref().map(|tools| tools.fullest(FULLEST)).unwrap_or_default(),
            messages_refused: count(Counter::TransactionsRefused),
            recipients_refused: refused_at_rcpt(Temporary::Yes) + refused_at_rcpt(Temporary::No),
            logins_over: self.logins_over(),
            pickup_files: service.pickup.files(),
            pickup_full: service.pickup.is_full(),
            expansions: service.expansions.figures(),
            log_dropped: service.log.counter(Counter::LogDropped),
            log_failing: service.log.trouble(),
            log_waiting: u64::try_from(service.log.waiting()).unwrap_or(u64::MAX),
            spool_path: live.config.spool.path.clone(),
            file_system: space.as_ref().map_or_else(|_| "unknown".to_owned(), |space| space.file_system.to_string()),
            volatile: space.is_ok_and(|space| space.volatile),
            pressure: service.message_store.pressure(),
            spool: service.message_store.statistics(),
        }
    }

    /// Logins that had too many recipients in the last hour.
    fn logins_over(&self) -> Vec<serde_json::Value> {
        let now = clock::now().saturating_duration_since(self.service.began);
        let one = |over: LoginOver| {
            serde_json::json!({
                "user": over.user,
                "client": over.client.map(|client| client.to_string()),
                "recipients": over.count,
                "ago": now.saturating_sub(over.at).as_secs(),
            })
        };
        self.service.logins.over(now).into_iter().map(one).collect()
    }

    /// What became of recipients, and what holds connections.
    fn deliveries(&self, dispatch: &Dispatch, limits: &config::Delivery) -> control::Deliveries {
        let count = |counter| self.service.log.counter(counter);
        let [connections, silent] = dispatch.connections();
        control::Deliveries {
            sent: count(SENT),
            deferred: count(Counter::DeliveryRecipients(observe::counters::Outcome::Deferred)),
            failed: count(Counter::DeliveryRecipients(observe::counters::Outcome::Failed)),
            sent_rate: lock(&self.sent).per_second(clock::now(), count(SENT)),
            connections,
            connections_max: limits.connections_max.into(),
            silent,
            silent_max: limits.connections_silent_max.into(),
        }
    }

    /// What is known of next hops.
    fn answer_hosts(&self) -> Answer {
        let now = self.service.unix_now();
        let hosts: Vec<serde_json::Value> = self.service.hosts.look(|hosts| {
            let host = |view: schedule::HostView| {
                serde_json::json!({
                    "address": view.address.to_string(),
                    "seen": view.seen.as_secs(),
                    "ago": now.saturating_sub(view.seen).as_secs(),
                    "failures": view.failures,
                    "retry_in": view.retry_at.map(|at| at.saturating_sub(now).as_secs()),
                    "tls_worked_ago": view.tls_worked_at.map(|at| now.saturating_sub(at).as_secs()),
                    "tls_fails_for": view.tls_fails_since.map(|at| now.saturating_sub(at).as_secs()),
                    "in_clear_for": view.tls_broken_until.map(|at| at.saturating_sub(now).as_secs()),
                })
            };
            hosts.views(now).map(host).collect()
        });
        Answer::Done(serde_json::Map::from_iter([("hosts".to_owned(), hosts.into())]))
    }

    /// Connections turned away since the start, by any limit.
    fn connections_refused(&self) -> u64 {
        let refused = [
            observe::Limit::AcceptConnectionsMax,
            observe::Limit::AcceptConnectionsPerClient,
            observe::Limit::AcceptRate,
            observe::Limit::AcceptRatePerClient,
            observe::Limit::AccessClientConn,
            observe::Limit::AccessClientRate,
            observe::Limit::ListenConnectionsMax,
        ];
        refused.into_iter().map(|limit| self.service.log.counter(Counter::Refused(limit))).sum()
    }

    /// What went through which mailer.
    fn answer_mailers(&self) -> Answer {
        let count = |counter| self.service.log.counter(counter);
        let mut fields = self.service.tally.to_fields();
        let began = clock::unix_us() / 1_000_000
            - clock::now().saturating_duration_since(self.service.began).as_secs().min(clock::unix_us() / 1_000_000);
        fields.insert("since".to_owned(), began.into());
        fields.insert("connections".to_owned(), count(Counter::Connections).into());
        fields.insert("connections_refused".to_owned(), self.connections_refused().into());
        Answer::Done(fields)
    }

    /// Looks at the queue or changes what is in it, and logs what was changed.
    fn answer_queue(&self, mut command: queue::Command, uid: u32, rights: Rights) -> Answer {
        let Some(tools) = &self.queue else { return Answer::refused(Reason::Failed, "a sink has no queue") };
        if rights == Rights::Guest {
            return match self.service.live.load().config.control.mailq {
                config::Mailq::Operators => Answer::refused(Reason::Permission, "control.mailq lets you see nothing"),
                config::Mailq::Everyone => tools.answer_guest(command, uid),
                config::Mailq::Own => {
                    command.selection.handed_in_by = Some(uid);
                    tools.answer_guest(command, uid)
                }
            };
        }
        let service = Arc::clone(&self.service);
        let tell = move |what: &queue::Deed<'_>| service.tell(&deed(what));
        tools.answer(command, uid, Arc::new(tell))
    }

    /// A session for a process of this machine on the control socket.
    fn process_session(self: &Arc<Self>, peer: &Peer) -> Answer {
        let service = Arc::clone(&self.service);
        let config = service.live.load().config.clone();
        let listen = process_listen();
        let mut settings: Settings = config.smtp_settings(&listen);
        settings.dialect = Dialect::Stdin;
        // Programs write lines as their system has them; nothing is smuggled into a session of one's own.
        settings.bare_newline = BareNewline::Normalize;
        settings.limits.content_piece_bytes = crate::intake::PIECE_BYTES;
        settings.auth.mechanisms.clear();
        let lane = Arc::new(ListenerProfile {
            listen,
            settings: Arc::new(settings),
            tls: None,
            handshake_time: Duration::ZERO,
        });
        let uid = peer.uid;
        Answer::Takeover(Box::new(move |stream: UnixStream| {
            Box::pin(async move {
                let open = Open::new(&service);
                let session = Session::new(Arc::clone(&lane.settings), Client::Process { uid }, None);
                let naming = blocking::run(move || {
                    let found = Accounts::read().and_then(|accounts| accounts.with_nss(true).find_uid(uid));
                    found.ok().flatten().map(|login| login.name)
                });
                let named = tokio::time::timeout(NAMING_TIME_MAX, naming).await;
                let user = named.ok().and_then(Result::ok).flatten().unwrap_or_else(|| uid.to_string());
                let connection = Connection::new(service, lane, session, Opening::process(&user), clock::now());
                connection.run(Transport::Local(stream)).await;
                drop(open);
            })
        }))
    }
}

/// The server as the control socket sees it.
struct Answers(Arc<House>);

impl Handler for Answers {
    async fn handle(&self, request: Request, peer: Peer, rights: Rights) -> Answer {
        let house = &self.0;
        match request {
            Request::Ping => Answer::done(),
            Request::Status => house.answer_status().await,
            _ if house.service.stop.has_begun() => {
                Answer::refused(Reason::Busy, "the server is going down; mailrace status says what it waits for")
            }
            Request::Reload => house.reload().await,
            Request::LogReopen => {
                house.service.log.reopen();
                Answer::done()
            }
            Request::Hosts => house.answer_hosts(),
            Request::ForgetHosts => {
                house.service.hosts.learn(schedule::Hosts::forget_all);
                Answer::done()
            }
            Request::Mailers => house.answer_mailers(),
            Request::Smtp => house.process_session(&peer),
            Request::Queue(command) => house.answer_queue(*command, peer.uid, rights),
        }
    }
}

/// What a command on the queue did, as the log has it.
fn deed(deed: &queue::Deed<'_>) -> Event<'static> {
    match *deed {
        queue::Deed::Removed { action, id, recipients, uid, .. } => {
            let recipients = u64::try_from(recipients).unwrap_or(u64::MAX);
            Event::QueueCommand { id: Some(id), what: action.name(), messages: 1, recipients, uid }
        }
        queue::Deed::Ended { action, messages, recipients, uid } => {
            Event::QueueCommand { id: None, what: action.name(), messages, recipients, uid }
        }
    }
}

/// What a reload that went well came to.
struct Reloaded {
    /// As `key changed from … to …`.
    changed: Vec<String>,
    /// Files of maps that others can write.
    refused: Vec<String>,
    warnings: Vec<String>,
    renewal: Renewal,
}

/// Why a reload was refused.
struct Refused {
    error: String,
    problems: Vec<control::Problem>,
}

impl Refused {
    fn because(error: impl Into<String>) -> Self {
        Self { error: error.into(), problems: Vec::new() }
    }

    fn of(problems: &[config::Problem]) -> Self {
        // Warnings refuse nothing, and `mailrace check` shows them.
        let problems = problems.iter().filter(|problem| problem.severity == config::Severity::Error);
        let plural = if problems.clone().count() == 1 { "" } else { "s" };
        let error =
            format!("{} error{plural} in the configuration; the old one stays in force", problems.clone().count());
        let number = |number: usize| u32::try_from(number).unwrap_or(u32::MAX);
        let problems = problems.map(|problem| control::Problem {
            file: PathBuf::from(&problem.file),
            line: number(problem.line),
            column: number(problem.column),
            text: problem.sentence(),
        });
        Self { error, problems: problems.collect() }
    }
}

fn unreadable(path: Option<&Path>, error: &std::io::Error) -> config::Problem {
    config::Problem {
        severity: config::Severity::Error,
        file: path.map(|path| path.display().to_string()).unwrap_or_default(),
        line: 0,
        column: 0,
        width: 0,
        source: String::new(),
        key: String::new(),
        text: format!("the configuration cannot be read: {error}"),
        expected: "a file in TOML".to_owned(),
        suggestion: Some("name another file with --config, or correct its rights".to_owned()),
    }
}

const fn protocol_word(protocol: ListenProtocol) -> &'static str {
    match protocol {
        ListenProtocol::Smtp => "smtp",
        ListenProtocol::Submission => "submission",
        ListenProtocol::Lmtp => "lmtp",
    }
}

const fn tls_word(tls: ListenTls) -> &'static str {
    match tls {
        ListenTls::None => "none",
        ListenTls::StartTls => "starttls",
        ListenTls::Implicit => "implicit",
    }
}

/// The listener that stands for the control socket: `daemon=stdin` in log lines.
pub(crate) fn process_listen() -> Listen {
    Listen {
        name: "stdin".to_owned(),
        address: SocketAddr::from(([127, 0, 0, 1], 0)),
        protocol: ListenProtocol::Smtp,
        tls: ListenTls::None,
        tls_required: false,
        proxy_protocol: Vec::new(),
        connections_max: 0,
        auth_required: false,
        acknowledge: Acknowledge::Durable,
    }
}

fn register(address: SocketAddr, sockets: Vec<std::net::TcpListener>) -> Result<Vec<Socket>, String> {
    let register = |socket| Socket::new(socket).map_err(|error| format!("listen.address = {address}: {error}"));
    sockets.into_iter().map(register).collect()
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change under these locks is a single step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests;

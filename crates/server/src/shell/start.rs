//! The life of the server: start, run, stop.
//!
//! The start has two halves. [`Prepared::new`] does the work that needs rights and a single thread: open files
//! raised, sockets of systemd taken, addresses bound, certificates and passwords read, directories made, rights given
//! up. [`Prepared::run`] starts threads: log, spool, runtime. Most errors come in the first half, with nothing
//! changed on the disk.
//!
//! The end: after SIGTERM no new transaction begins and idle sessions are closed; open transactions may finish within
//! `server.shutdown_grace`. Then the spool is closed, which writes staged results, and the process ends with status
//! 0. No accepted message depends on any of this: it was durable before its 250.

use super::history::start_history;
use super::http::{bind_agent, bind_http, load_http_access};
use super::http_tls::load_http_tls;
use super::load::{
    joined_by, lines, load_signing_keys, load_tls, open_authenticator, threads, unreadable_files, with_places,
};
use super::server::{Server, ShutdownSummary};
use super::source::ConfigSource;
use super::start_error::StartError;
use crate::accept::{limits, listener};
use crate::active_config::ActiveConfig;
use crate::admit::logins::Logins;
use crate::adopt;
use crate::auth::Authenticator;
use crate::cluster::{EngineSettings, node_settings};
use crate::config::{self, Config, Loaded};
use crate::context::Context;
use crate::dispatch::Dispatch;
use crate::dns::Resolver;
use crate::hardening::Hardening;
use crate::hosts::HostTable;
use crate::inbound::Inbound;
use crate::intake::{Enqueue, StoreFaults};
use crate::local_delivery::LocalDelivery;
use crate::log::{self, Log};
use crate::lookup::Lookups;
use crate::message_store::MessageStore;
use crate::outbound::Outbound;
use crate::pickup;
use crate::routing::{self, Routing};
use crate::screen;
use crate::screen_queue::ScreenQueue;
use crate::secret_key::SecretKey;
use crate::server_clock::ServerClock;
use crate::settle::Reasons;
use crate::signing::SigningKeys;
use crate::sink::Behaviour;
use crate::steering::{SteeringTable, limits_of};
use crate::tls::{Acceptor, Connector};
use crate::webhook::{self, Webhook};
use cluster::Incarnation;
use mail::{Node, QueueId, QueueIds};
use observe::{Event, Severity};
use operator::control::{self, ControlSocket};
use operator::http::HttpAccess;
use os::{accounts, descriptors, limits as files, machine, memory, privileges, signals, systemd};
use spool::disk::Disk as _;
use spool::disk::real::RealDisk;
use spool::{Recovery, Spool};
use std::fmt;
use std::net::TcpListener;
use std::sync::Arc;
use std::time::Duration;

/// The file that marks a directory as a spool.
const SPOOL_MARKER: &str = "SPOOL";

/// A server that has bound its addresses and given up its rights, and has no thread yet.
#[derive(Debug)]
pub struct Prepared {
    config: Config,
    /// Where the configuration comes from, for reloads; none for a sink.
    source: Option<ConfigSource>,
    warnings: Vec<String>,
    bound: listener::Bound,
    control: Option<ControlSocket>,
    /// Listens on `http.address`.
    http: Option<TcpListener>,
    /// Listens on `http.agent_address`.
    agent: Option<TcpListener>,
    http_access: Arc<HttpAccess>,
    http_tls: Option<Arc<Acceptor>>,
    webhooks: Vec<Arc<Webhook>>,
    /// The directory in which programs of this machine submit mail.
    pickup: Option<pickup::PickupDirectory>,
    manager: systemd::Manager,
    authenticator: Option<Arc<Authenticator>>,
    tls: Option<Arc<Acceptor>>,
    signing: Arc<SigningKeys>,
    open_files_max: u64,
    behaviour: Option<Behaviour>,
    /// Delivers to users; none in a sink.
    local_delivery: Option<LocalDelivery>,
    /// Messages are counted and forgotten.
    keeps_nothing: bool,
    /// Where values were set, for complaints; not in a sink.
    loaded: Option<Arc<Loaded>>,
    /// Files and system calls that the process gave up besides root; none in a sink.
    hardening: Option<Hardening>,
}

impl Prepared {
    /// Prepares a server.
    ///
    /// # Errors
    /// The fault and the next step. No port is bound then.
    pub fn new(loaded: &Loaded, source: ConfigSource) -> Result<Self, StartError> {
        if let Some(problem) = config::check_own_file(loaded, &config::RealFiles) {
            return Err(StartError::Config(problem.line()));
        }
        let mut prepared = Self::bare(loaded.config.clone())?;
        prepared.warnings.extend(loaded.warnings.iter().map(config::Problem::line));
        let of_files = config::check_files(loaded, &config::RealFiles);
        // The readers of the files report faults inside them.
        let of_maps = |one: &&config::Problem| {
            one.severity == config::Severity::Warning
                && ["maps.", "local."].iter().any(|table| one.key.starts_with(table))
        };
        prepared.warnings.extend(of_files.iter().filter(of_maps).map(config::Problem::line));
        prepared.loaded = Some(Arc::new(loaded.clone()));
        if prepared.config.cluster.is_used() {
            // Buffers of blocks and of the connections to engines come and go.
            memory::use_small_pages();
        }
        prepared.source = Some(source);
        let config = &prepared.config;
        prepared.authenticator = open_authenticator(config)?;
        prepared.tls = load_tls(config, &mut prepared.warnings)?;
        prepared.signing = load_signing_keys(config)?;
        prepared.http_access =
            load_http_access(config).map_err(|faults| StartError::Config(lines(&with_places(Some(loaded), faults))))?;
        prepared.webhooks =
            webhook::load(config).map_err(|faults| StartError::Config(lines(&with_places(Some(loaded), faults))))?;
        prepared.http_tls = load_http_tls(config)?;
        prepared.http = bind_http(config)?;
        prepared.agent = bind_agent(config)?;
        let plan = privileges::plan(machine::is_root(), &config.server.user, &config.server.group, &read_accounts()?)?;
        prepared.warnings.extend(plan.warning());
        let account = match &plan {
            privileges::Plan::Become(account) => Some(account),
            _ => None,
        };
        if let Some(account) = account {
            account.own_directory("spool.path", &config.spool.path, SPOOL_MARKER)?;
            if let config::LogPath::File(path) = &config.log.path {
                account.own_file("log.path", path)?;
            }
        }
        let owner = account.map(|account| (account.uid, account.gid));
        prepared.control = Some(bind_control(config, owner)?);
        if machine::is_root() {
            let local_delivery = LocalDelivery::as_root(config).map_err(|error| {
                StartError::Unavailable(format!("the process that delivers to users cannot be started: {error}"))
            })?;
            prepared.local_delivery = Some(local_delivery);
        }
        match config.submit.directory.as_deref().map(|path| (path, pickup::PickupDirectory::open(path, owner))) {
            Some((_, Ok(directory))) => prepared.pickup = Some(directory),
            Some((path, Err(error))) => prepared.warnings.push(format!(
                "submit.directory = \"{}\": {error}; the sendmail command cannot hand mail in: make the directory for the user of mailrace, or name another",
                path.display()
            )),
            None => {}
        }
        privileges::harden()?;
        if let Some(account) = account {
            privileges::drop_to(account)?;
            prepared.warnings.extend(unreadable_files(config, &account.name));
        }
        // A rule needs an existing directory. If this fails, opening the spool reports the reason.
        drop(RealDisk::new().create_dir(&config.spool.path));
        let config_file = prepared.source.as_ref().and_then(|source| source.path.as_deref());
        prepared.hardening = Some(Hardening::apply(config, config_file, prepared.local_delivery.is_some()));
        Ok(prepared)
    }

    /// Prepares a sink: the same protocol, and nothing is kept.
    ///
    /// # Errors
    /// An address cannot be bound.
    pub fn sink(config: Config, behaviour: Behaviour) -> Result<Self, StartError> {
        let mut prepared = Self::bare(config)?;
        prepared.tls = load_tls(&prepared.config, &mut prepared.warnings)?;
        prepared.behaviour = Some(behaviour).filter(|behaviour| !behaviour.is_plain());
        prepared.keeps_nothing = true;
        privileges::harden()?;
        Ok(prepared)
    }

    fn bare(config: Config) -> Result<Self, StartError> {
        let handover = systemd::Handover::take()?;
        descriptors::close_foreign()?;
        let open_files_max = files::raise_open_files();
        let delivery_max = [config.delivery.connections_max, config.delivery.connections_silent_max];
        let accept_max = config.accept.connections_max;
        let warnings = files::open_files_warning(open_files_max, accept_max, delivery_max).into_iter().collect();
        let sockets_each = usize::from(threads(&config));
        let bound = listener::bind(&config.listen, handover.listeners, config.accept.backlog, sockets_each)
            .map_err(|errors| StartError::Unavailable(lines(&errors)))?;
        Ok(Self {
            config,
            source: None,
            warnings,
            bound,
            control: None,
            http: None,
            agent: None,
            http_access: Arc::default(),
            http_tls: None,
            webhooks: Vec::new(),
            pickup: None,
            manager: handover.manager,
            authenticator: None,
            tls: None,
            signing: Arc::default(),
            open_files_max,
            behaviour: None,
            local_delivery: None,
            keeps_nothing: false,
            loaded: None,
            hardening: None,
        })
    }

    /// Runs the server until a signal ends it. `ready` is called with the bound addresses when connections are taken.
    ///
    /// # Errors
    /// The log, the spool or the runtime cannot be had.
    pub fn run(self, ready: impl FnOnce(&[std::net::SocketAddr]) + Send) -> Result<ShutdownSummary, StartError> {
        let log = Log::start(&log::LogSettings::from_config(&self.config.log, &self.config.hostname))
            .map_err(|error| StartError::Unavailable(format!("cannot start a thread for the log: {error}")))?;
        report_panics(&log);
        let opened = if self.keeps_nothing { None } else { Some(open_spool(&self.config)?) };
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        runtime.enable_all().worker_threads(usize::from(threads(&self.config))).thread_name("mailrace");
        runtime.max_blocking_threads(blocking_threads_max(&self.config));
        let runtime =
            runtime.build().map_err(|error| StartError::Unavailable(format!("cannot start threads: {error}")))?;
        let ended = runtime.block_on(self.live(log.clone(), opened, ready));
        // The runtime ends the sessions that are left; their transactions had no answer.
        runtime.shutdown_timeout(Duration::from_secs(1));
        // The wait for a target that takes nothing is over; its lines are lost, and there is no other place to report
        // that.
        let _: bool = log.flush_and_close();
        ended
    }

    async fn live(
        mut self,
        log: Log,
        opened: Option<(Arc<Spool>, Recovery)>,
        ready: impl FnOnce(&[std::net::SocketAddr]) + Send,
    ) -> Result<ShutdownSummary, StartError> {
        let mut signals = signals::Signals::new()
            .map_err(|error| StartError::Unavailable(format!("cannot catch signals: {error}")))?;
        let InitialState { inbound, outbound, texts_of_maps, texts_of_spool } =
            self.initial_state(log, opened.as_ref())?;
        begin_lookups(&outbound);
        self.warnings.extend(texts_of_maps);
        self.warn_at_start(&outbound, &texts_of_spool);
        if let Some((_, recovery)) = &opened {
            say_started(&outbound.context, recovery, self.bound.listeners.len());
        }
        if let Some(hardening) = &self.hardening {
            outbound.context.record(&Event::Hardening { severity: hardening.severity(), text: hardening.text() });
        }

        let Self { bound, control, http, agent, http_tls, pickup, manager, tls, source, hardening, .. } = self;
        let (context, manager) = (Arc::clone(&inbound.context), Arc::new(manager));
        let limits = limits::Limits::new(limits::Settings::new(&context.live.load().config), context.began);
        let server = Arc::new(Server::new(inbound, outbound, limits, tls, source, hardening, Arc::clone(&manager)));
        if let (Some(dispatch), Some((spool, recovery))) = (&server.outbound.dispatch, &opened) {
            join_cluster(&context, dispatch, spool, recovery).await?;
        }
        let addresses: Vec<_> = bound.listeners.iter().map(|listener| listener.address).collect();
        let is_shared = context.live.load().config.cluster.shared;
        server.accepts.send_replace(!is_shared);
        server.open_all(bound.listeners).map_err(StartError::Unavailable)?;
        server.watch(context.spool().cloned());
        if let Some(socket) = control {
            server.answer_on(socket);
        }
        if is_shared && !server.takes_shared(&mut signals).await {
            return Ok(server.end_of_start().await);
        }
        server.deliver();
        if let Some(directory) = pickup {
            server.pick_up(directory);
        }
        if let Some(listener) = http {
            server.answer_http(listener, http_tls).map_err(|error| {
                StartError::Unavailable(format!("http.address: the socket cannot be used: {error}"))
            })?;
        }
        if let Some(listener) = agent {
            server.answer_balancers(listener).map_err(|error| {
                StartError::Unavailable(format!("http.agent_address: the socket cannot be used: {error}"))
            })?;
        }
        ready(&addresses);
        manager.ready(&format!("accepting mail on {}", joined(&addresses)));
        Ok(server.until_stopped(&mut signals).await)
    }

    /// Makes the state of the server, whose messages are in the spool that was opened; a sink has none.
    ///
    /// # Errors
    /// A file that the configuration names cannot be used, or name servers or TLS cannot be had.
    fn initial_state(&mut self, log: Log, opened: Option<&(Arc<Spool>, Recovery)>) -> Result<InitialState, StartError> {
        let config = &self.config;
        let local_delivery = self.local_delivery.take().unwrap_or_else(|| LocalDelivery::new(config));
        let resolver = Resolver::new(&config.dns).map_err(|error| StartError::Config(error.to_string()))?;
        let (hosts, forgotten) = match opened {
            Some(_) => HostTable::open(config),
            None => (HostTable::in_memory(config), None),
        };
        let (steering, steering_note) = match opened {
            Some(_) => SteeringTable::open(config),
            None => (SteeringTable::default(), None),
        };
        let (server_clock, clock_texts) = server_clock(config, opened);
        let node = Node::new(config.cluster.node).unwrap_or_default();
        let message_store = message_store(opened, node, server_clock.now()).timed_by(&server_clock);
        let reasons = config::read_safe_reasons(config.delivery.classes.as_deref(), &routing::load::trust(config))
            .map_err(|faults| StartError::Config(lines(&faults)))?;
        let connector = Connector::new(&config.tls).map_err(|error| StartError::Config(error.to_string()))?;
        let maps = self.load_maps()?;
        let screen = screen::load(config, &routing::load::trust(config))
            .map_err(|faults| StartError::Config(lines(&with_places(self.loaded.as_deref(), faults))))?;
        let limited = Config { set_limits: limits_of(&steering.orders()), ..config.clone() };
        let live = ActiveConfig::new(limited, self.authenticator.take());
        let live = live.with_reasons(reasons).with_screen(screen).with_signing(Arc::clone(&self.signing));
        let live = live.with_http(Arc::clone(&self.http_access)).with_loaded(self.loaded.clone());
        let clock = opened.map(|_| Arc::clone(&server_clock));
        let history = if opened.is_some() { start_history(config, &log)? } else { None };
        let (secret, unsafe_secret) = secret_key(config, opened);
        let mut context = Context::new(message_store, log, live, maps.routing, resolver, clock, secret);
        context = context.with_steering(steering);
        if let Some((history, earlier)) = history {
            context.live_statistics.add_earlier(&earlier.windows);
            context.recent_errors.remember_earlier(earlier.errors);
            context.history = Some(history);
        }
        context.webhooks = std::mem::take(&mut self.webhooks);
        let context = Arc::new(context);
        let hosts = Arc::new(hosts);
        let mut unknown = None;
        let dispatch = opened.map(|(spool, _)| {
            let (reasons, problem) = Reasons::open(&self.config.spool.path, spool);
            unknown = problem;
            Dispatch::new(&context, spool, Arc::clone(&hosts), reasons, server_clock)
        });
        let inbound = Inbound {
            context: Arc::clone(&context),
            queue: dispatch.clone().map(|dispatch| dispatch as Arc<dyn Enqueue>),
            screen_queue: dispatch.as_ref().map(ScreenQueue::new),
            logins: Logins::default(),
            store_faults: StoreFaults::default(),
            behaviour: self.behaviour.take(),
            open_files_max: self.open_files_max,
        };
        let outbound = Outbound {
            context,
            dispatch,
            connector,
            #[cfg(test)]
            internet: None,
            hosts,
            local_delivery: Arc::new(local_delivery),
        };
        Ok(InitialState {
            inbound: Arc::new(inbound),
            outbound: Arc::new(outbound),
            texts_of_maps: maps.notes,
            texts_of_spool: [forgotten, steering_note, unsafe_secret, unknown]
                .into_iter()
                .flatten()
                .chain(clock_texts)
                .collect(),
        })
    }

    /// Loads the maps. A sink takes everything without them.
    ///
    /// # Errors
    /// The faults of the files.
    fn load_maps(&self) -> Result<routing::load::Loaded, StartError> {
        if self.keeps_nothing {
            return Ok(routing::load::Loaded { routing: Routing::plain(), notes: Vec::new(), refused: Vec::new() });
        }
        routing::load::load(&self.config, &Arc::new(Lookups::new(&self.config)), None)
            .map_err(|faults| StartError::Config(lines(&with_places(self.loaded.as_deref(), faults))))
    }

    /// Logs notes on the configuration, the listeners and the spool for the operator.
    fn warn_at_start(&self, outbound: &Outbound, texts_of_spool: &[String]) {
        let context = &outbound.context;
        for text in &self.warnings {
            context.record(&Event::ConfigWarning { text });
        }
        if let Some(place) = context.routing.load().program().filter(|_| !outbound.local_delivery.runs_programs()) {
            let text = format!("program destinations of aliases wait ({place}): {}", ::local::person::NO_PROGRAMS);
            context.record(&Event::ConfigWarning { text: &text });
        }
        for note in &self.bound.notes {
            context.record(&Event::ConfigWarning { text: &note.to_string() });
        }
        for text in texts_of_spool {
            context.record(&Event::Spool { severity: Severity::Warning, text });
        }
    }
}

/// Binds the control socket, for everybody if `control.mailq` lets everybody see mail.
///
/// # Errors
/// The socket cannot be had.
fn bind_control(config: &Config, owner: Option<(u32, u32)>) -> Result<ControlSocket, StartError> {
    let socket = ControlSocket::bind(&config.control.path, owner).map_err(StartError::Control)?;
    if config.control.mailq != config::Mailq::Operators {
        let failed = |source| StartError::Control(control::BindError::Io { path: config.control.path.clone(), source });
        socket.open_to_everybody().map_err(failed)?;
    }
    Ok(socket)
}

/// The state of a server that begins, and messages of its start for the operator.
struct InitialState {
    inbound: Arc<Inbound>,
    outbound: Arc<Outbound>,
    texts_of_maps: Vec<String>,
    texts_of_spool: Vec<String>,
}

/// Starts the threads that answer questions to maps outside, which log their troubles.
fn begin_lookups(outbound: &Outbound) {
    let told = Arc::downgrade(&outbound.context);
    outbound.context.routing.load().lookups().begin(outbound.local_delivery.readers(), move |text| {
        if let Some(context) = told.upgrade() {
            context.record(&Event::ConfigWarning { text });
        }
    });
}

/// Logs a panic. A bug ends only the session or task in which it happens.
fn report_panics(log: &Log) {
    let (log, usual) = (log.clone(), std::panic::take_hook());
    std::panic::set_hook(Box::new(move |panic| {
        let place = panic.location().map_or_else(|| "unknown place".to_owned(), ToString::to_string);
        let text = panic.payload_as_str().unwrap_or("panic without a text");
        log.event(&Event::InternalError { place: &place, text });
        usual(panic);
    }));
}

fn read_accounts() -> Result<accounts::Accounts, StartError> {
    accounts::Accounts::read()
        .map_err(|error| StartError::Unavailable(format!("/etc/passwd or /etc/group cannot be read: {error}")))
}

/// Threads for short work that waits for a disk, and for all of the long that is counted nowhere else: questions to the
/// C library (16 at a time), to databases (4 to each), password checks (one for each second core), commands on the
/// queue (5).
const BLOCKING_THREADS_OTHER: usize = 64;

/// Returns the number of runtime threads that may wait for a disk or for a program: local deliveries hold theirs for
/// as long as a mailbox is locked or a program runs, and do not delay other work for one. No work on them waits for
/// other such work, and the spool is read on threads of its own, so that any number would do.
fn blocking_threads_max(config: &Config) -> usize {
    // To mailboxes, programs and files, so many each.
    let deliveries = usize::try_from(config.local.deliveries_max).unwrap_or(usize::MAX).saturating_mul(3);
    deliveries.saturating_add(BLOCKING_THREADS_OTHER)
}

fn open_spool(config: &Config) -> Result<(Arc<Spool>, Recovery), StartError> {
    let (spool, recovery) =
        Spool::open(config::spool_settings(config), Arc::new(RealDisk::new())).map_err(StartError::Spool)?;
    Ok((Arc::new(spool), recovery))
}

/// Returns the key of tokens and links, and a message for the operator if it ends with this process.
/// A sink has no file for it.
fn secret_key(config: &Config, opened: Option<&(Arc<Spool>, Recovery)>) -> (SecretKey, Option<String>) {
    match opened {
        Some(_) => SecretKey::open(&config.spool.path),
        None => (SecretKey::of_process(), None),
    }
}

/// Opens the clock of the spool, or one that keeps nothing where there is none, and messages for the operator.
fn server_clock(config: &Config, opened: Option<&(Arc<Spool>, Recovery)>) -> (Arc<ServerClock>, Vec<String>) {
    let Some((_, recovery)) = opened else { return (Arc::new(ServerClock::forgetful()), Vec::new()) };
    let newest = QueueId::from_u64(recovery.largest_id).map(|id| Duration::from_micros(id.unix_us()));
    let (clock, texts) = ServerClock::open(config, newest);
    (Arc::new(clock), texts)
}

/// Returns the store for messages of a server that starts at `now`.
pub(crate) fn message_store(opened: Option<&(Arc<Spool>, Recovery)>, node: Node, now: Duration) -> MessageStore {
    match opened {
        None => MessageStore::discard(QueueIds::new(node)),
        Some((spool, recovery)) => {
            let now_us = u64::try_from(now.as_micros()).unwrap_or(u64::MAX);
            let ids = match QueueId::from_u64(recovery.largest_id) {
                Some(largest) => QueueIds::resume(node, largest, now_us, recovery.epoch),
                None => QueueIds::new(node),
            };
            MessageStore::spool(Arc::clone(spool), ids, recovery.epoch)
        }
    }
}

/// Starts the node of the cluster that the configuration names, if it names one. Mail comes and goes after that.
///
/// # Errors
/// A file about the cluster beside the spool cannot be used.
async fn join_cluster(
    context: &Arc<Context>,
    dispatch: &Arc<Dispatch>,
    spool: &Spool,
    recovery: &Recovery,
) -> Result<(), StartError> {
    let config = context.live.load().config.clone();
    let [a, b, c, d, e, f, g, h, ..] = spool.uuid();
    let incarnation = Incarnation(u64::from_be_bytes([a, b, c, d, e, f, g, h]));
    let start = u32::try_from(recovery.epoch).unwrap_or(u32::MAX);
    let engine = EngineSettings::from_config(&config.cluster);
    let settings = node_settings(&config.cluster, incarnation, start);
    let (Some(engine), Some(settings)) = (engine, settings) else { return Ok(()) };
    adopt::begin(context, dispatch, (engine, settings, config.hostname)).await.map_err(StartError::Config)
}

/// Logs the start, and what the spool has.
fn say_started(context: &Context, recovery: &Recovery, listeners: usize) {
    let live = context.live.load();
    let path = &live.config.spool.path;
    let volatile = crate::file_system::file_system(path).is_ok_and(|space| space.volatile);
    let spool = path.display().to_string();
    let (uid, gid) = machine::user();
    let name = accounts::Accounts::read().ok().and_then(|accounts| accounts.login_of(uid)).map(|login| login.name);
    let user = name.unwrap_or_default();
    let version = env!("CARGO_PKG_VERSION");
    context.record(&Event::Started { version, spool: &spool, volatile, listeners, user: &user, uid, gid });
    let found = format!(
        "{spool}: opened in {} ms, {} for {} waiting, {} dropped",
        recovery.took_us / 1_000,
        counted(recovery.messages, "message"),
        counted(recovery.recipients, "recipient"),
        counted(recovery.torn, "torn batch"),
    );
    context.record(&Event::Spool { severity: Severity::Info, text: &found });
    for damage in &recovery.damage {
        let text = format!("{damage}; run mailrace spool verify on a copy");
        context.record(&Event::Spool { severity: Severity::Error, text: &text });
    }
}

/// `1 message`, `2 messages`.
fn counted(number: u64, what: &str) -> String {
    let plural = match number {
        1 => "",
        _ if what.ends_with("ch") => "es",
        _ => "s",
    };
    format!("{number} {what}{plural}")
}

fn joined<T: fmt::Display>(values: &[T]) -> String {
    joined_by(values, ", ")
}

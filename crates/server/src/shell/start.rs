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

use super::load::{joined_by, lines, load_tls, open_authenticator, threads, unreadable_files, with_places};
use super::server::{Server, ShutdownSummary};
use super::source::ConfigSource;
use super::start_error::StartError;
use crate::accept::{limits, listener};
use crate::admit::logins::Logins;
use crate::auth::Authenticator;
use crate::config::{self, Config, Loaded};
use crate::context::{ActiveConfig, Context};
use crate::dispatch::Dispatch;
use crate::dns::Resolver;
use crate::hardening::Hardening;
use crate::hosts::HostTable;
use crate::intake::MessageStore;
use crate::local_delivery::LocalDelivery;
use crate::log::{self, Log};
use crate::lookup::Lookups;
use crate::pickup;
use crate::routing::expansions::Expansions;
use crate::routing::{self, Routing};
use crate::server_clock::ServerClock;
use crate::settle::Reasons;
use crate::sink::Behaviour;
use crate::tls::{Acceptor, Connector};
use arc_swap::ArcSwap;
use mail::{Node, QueueId, QueueIds};
use observe::{Event, Severity};
use operator::control::{self, ControlSocket};
use operator::delivery_watch::DeliveryWatchers;
use operator::mailer_statistics::MailerStatistics;
use os::{accounts, clock, descriptors, limits as files, machine, privileges, signals, systemd};
use spool::disk::Disk as _;
use spool::disk::real::RealDisk;
use spool::{Recovery, Spool};
use std::fmt;
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
    /// The directory in which programs of this machine submit mail.
    pickup: Option<pickup::PickupDirectory>,
    manager: systemd::Manager,
    authenticator: Option<Arc<Authenticator>>,
    tls: Option<Arc<Acceptor>>,
    open_files_max: u64,
    behaviour: Option<Behaviour>,
    /// Delivers to users; none in a sink.
    local_delivery: Option<LocalDelivery>,
    /// Messages are counted and forgotten.
    keeps_nothing: bool,
    /// Where values were set, for complaints; not in a sink.
    loaded: Option<Box<Loaded>>,
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
        prepared.loaded = Some(Box::new(loaded.clone()));
        prepared.source = Some(source);
        let config = &prepared.config;
        prepared.authenticator = open_authenticator(config)?;
        prepared.tls = load_tls(config, &mut prepared.warnings)?;
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
        let control = ControlSocket::bind(&config.control.path, owner);
        let control = control.map_err(StartError::Control)?;
        if config.control.mailq != config::Mailq::Operators {
            let opened = control.open_to_everybody();
            let failed =
                |source| StartError::Control(control::BindError::Io { path: config.control.path.clone(), source });
            opened.map_err(failed)?;
        }
        prepared.control = Some(control);
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
            pickup: None,
            manager: handover.manager,
            authenticator: None,
            tls: None,
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
        self,
        log: Log,
        opened: Option<(Arc<Spool>, Recovery)>,
        ready: impl FnOnce(&[std::net::SocketAddr]) + Send,
    ) -> Result<ShutdownSummary, StartError> {
        let Self {
            config,
            source,
            warnings,
            bound,
            control,
            pickup,
            manager,
            authenticator,
            tls,
            open_files_max,
            behaviour,
            local_delivery,
            loaded: from_file,
            hardening,
            ..
        } = self;
        let local_delivery = Arc::new(local_delivery.unwrap_or_else(|| LocalDelivery::new(&config)));
        let mut signals = signals::Signals::new()
            .map_err(|error| StartError::Unavailable(format!("cannot catch signals: {error}")))?;
        let resolver = Resolver::new(&config.dns).map_err(|error| StartError::Config(error.to_string()))?;
        let began = clock::now();
        let (hosts, forgotten) = match &opened {
            Some(_) => HostTable::open(&config),
            None => (HostTable::in_memory(&config), None),
        };
        let (server_clock, clock_texts) = server_clock(&config, opened.as_ref());
        let message_store = message_store(opened.as_ref(), server_clock.now()).timed_by(&server_clock);
        let spool = opened.as_ref().map(|(spool, _)| Arc::clone(spool));
        let reasons = config::read_safe_reasons(config.delivery.classes.as_deref(), &routing::load::trust(&config))
            .map_err(|faults| StartError::Config(lines(&faults)))?;
        let limits = limits::Limits::new(limits::Settings::new(&config), began);
        let connector = Connector::new(&config.tls).map_err(|error| StartError::Config(error.to_string()))?;
        let loaded = match message_store {
            MessageStore::Spool { .. } => routing::load::load(&config, &Arc::new(Lookups::new(&config)), None)
                .map_err(|faults| StartError::Config(lines(&with_places(from_file.as_deref(), faults))))?,
            // A sink takes everything.
            MessageStore::Discard { .. } => {
                routing::load::Loaded { routing: Routing::plain(), notes: Vec::new(), refused: Vec::new() }
            }
        };
        let maps = Arc::new(loaded.routing);
        let mut unknown = None;
        let dispatch = spool.as_ref().map(|spool| {
            let (reasons, problem) = Reasons::open(&config.spool.path, spool);
            unknown = problem;
            Dispatch::knowing(reasons, Arc::clone(spool), &config, Arc::clone(&maps), Arc::clone(&server_clock))
        });
        let context = Arc::new(Context {
            message_store,
            log,
            routing: ArcSwap::new(maps),
            resolver: ArcSwap::from_pointee(resolver),
            hosts,
            local_delivery,
            delivery_watchers: DeliveryWatchers::default(),
            mailer_statistics: MailerStatistics::default(),
            expansions: Expansions::new(),
            logins: Logins::default(),
            stop: Arc::default(),
            behaviour,
            open_files_max,
            began,
            dispatch,
            connector,
            #[cfg(test)]
            internet: None,
            live: ArcSwap::from_pointee(ActiveConfig::new(config, authenticator).with_reasons(reasons)),
        });
        let told = Arc::downgrade(&context);
        context.routing.load().lookups().begin(context.local_delivery.readers(), move |text| {
            if let Some(context) = told.upgrade() {
                context.record(&Event::ConfigWarning { text });
            }
        });
        let texts: Vec<String> = warnings.into_iter().chain(loaded.notes).collect();
        let notes: Vec<String> = bound.notes.iter().map(ToString::to_string).collect();
        let of_spool: Vec<String> = forgotten.into_iter().chain(unknown).chain(clock_texts).collect();
        warn_at_start(&context, &texts, &notes, &of_spool);
        say_started(&context, opened.as_ref().map(|(_, recovery)| recovery), bound.listeners.len());
        if let Some(hardening) = &hardening {
            context.record(&Event::Hardening { severity: hardening.severity(), text: hardening.text() });
        }

        let manager = Arc::new(manager);
        let server = Arc::new(Server::new(context, limits, tls, source, hardening, Arc::clone(&manager)));
        let addresses: Vec<_> = bound.listeners.iter().map(|listener| listener.address).collect();
        server.open_all(bound.listeners).map_err(StartError::Unavailable)?;
        server.watch(spool);
        server.deliver();
        if let Some(directory) = pickup {
            server.pick_up(directory);
        }
        if let Some(socket) = control {
            server.answer_on(socket);
        }
        ready(&addresses);
        manager.ready(&format!("accepting mail on {}", joined(&addresses)));
        Ok(server.until_stopped(&mut signals).await)
    }
}

/// Logs notes on the configuration, the listeners and the spool for the operator.
fn warn_at_start(context: &Context, texts: &[String], notes: &[String], of_spool: &[String]) {
    for text in texts {
        context.record(&Event::ConfigWarning { text });
    }
    if let Some(place) = context.routing.load().program().filter(|_| !context.local_delivery.runs_programs()) {
        let text = format!("program destinations of aliases wait ({place}): {}", ::local::person::NO_PROGRAMS);
        context.record(&Event::ConfigWarning { text: &text });
    }
    for text in notes {
        context.record(&Event::ConfigWarning { text });
    }
    for text in of_spool {
        context.record(&Event::Spool { severity: Severity::Warning, text });
    }
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

/// Opens the clock of the spool, or one that keeps nothing where there is none, and messages for the operator.
fn server_clock(config: &Config, opened: Option<&(Arc<Spool>, Recovery)>) -> (Arc<ServerClock>, Vec<String>) {
    let Some((_, recovery)) = opened else { return (Arc::new(ServerClock::forgetful()), Vec::new()) };
    let newest = QueueId::from_u64(recovery.largest_id).map(|id| Duration::from_micros(id.unix_us()));
    let (clock, texts) = ServerClock::open(config, newest);
    (Arc::new(clock), texts)
}

/// Returns the store for messages of a server that starts at `now`.
pub(crate) fn message_store(opened: Option<&(Arc<Spool>, Recovery)>, now: Duration) -> MessageStore {
    // One machine has one node; others come with the cluster.
    let node = Node::default();
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

fn say_started(context: &Context, recovery: Option<&Recovery>, listeners: usize) {
    let live = context.live.load();
    let path = &live.config.spool.path;
    let Some(recovery) = recovery else { return };
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

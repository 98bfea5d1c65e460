//! The running server: owns the listeners and the background tasks, and ends them.

use super::leave_state::LeaveState;
use super::source::ConfigSource;
use super::{history, hold_ends, map_files, state_files};
use crate::accept::listener::{self, ConnectionAcceptor as Socket};
use crate::accept::{door, limits};
use crate::cluster::{ClusterMember, SharedConfig};
use crate::config::{Config, ListenProtocol, ListenTls};
use crate::context::Context;
use crate::digest;
use crate::dispatch::{self, Renewal};
use crate::hardening::Hardening;
use crate::inbound::Inbound;
use crate::listener_profile::{ListenerProfile, ListenerState};
use crate::outbound::Outbound;
use crate::pickup;
use crate::session::ServeSessions;
use crate::tasks;
use crate::tls::Acceptor;
use arc_swap::ArcSwap;
use observe::{Event, Severity};
use operator::control;
use operator::queue;
use os::{clock, signals, systemd};
use std::net::SocketAddr;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Notify, Semaphore, watch};
use tokio::task::JoinSet;

/// Searches of the history at once.
const HISTORY_SEARCHES_MAX: usize = 2;
/// Time that the other nodes have to take over the mail of one that is drained.
const HAND_OVER_TIME: Duration = Duration::from_secs(30);

/// How the server ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShutdownSummary {
    /// Sessions that were cut off when the grace time was over.
    pub cut_off: usize,
    /// Messages and octets that a sink took.
    pub forgotten: (u64, u64),
}

/// The running server.
#[derive(Debug)]
pub(crate) struct Server {
    pub(super) context: Arc<Context>,
    pub(super) inbound: Arc<Inbound>,
    pub(super) outbound: Arc<Outbound>,
    /// Connections and their rates.
    pub(super) limits: Arc<limits::Limits>,
    /// Messages that programs have submitted and that are not accepted yet.
    pub(super) waiting_files: Arc<pickup::WaitingFiles>,
    pub(super) listeners: Mutex<Vec<Arc<ListenerState>>>,
    pub(super) tls: Mutex<Option<Arc<Acceptor>>>,
    pub(super) source: Option<ConfigSource>,
    /// Files and system calls that the process gave up besides root; none in a sink.
    pub(super) hardening: Option<Hardening>,
    pub(super) manager: Arc<systemd::Manager>,
    pub(super) tasks: Mutex<JoinSet<()>>,
    /// Deliveries, until the end waits for them.
    pub(super) deliveries: Mutex<Option<tokio::task::JoinHandle<()>>>,
    /// The queue commands; a sink has none.
    pub(super) queue: Option<queue::QueueCommands>,
    /// How fast messages are accepted.
    pub(super) accepted: Mutex<control::Rate>,
    /// The latest end of the server, once it stops.
    pub(super) ends_at: OnceLock<Instant>,
    /// TLS of HTTP, if it has any.
    pub(super) http_tls: Mutex<Option<Arc<Acceptor>>>,
    /// Where HTTP is answered.
    pub(super) http_address: OnceLock<SocketAddr>,
    /// How fast next hops take recipients.
    pub(super) sent: Mutex<control::Rate>,
    /// One reload at a time.
    pub(super) reloading: AtomicBool,
    /// Searches of the history, each with a thread.
    pub(super) history_searches: Semaphore,
    /// An operator has this node of a cluster give its mail to the others and end.
    pub(super) drain_asked: Notify,
    /// The same, for good.
    pub(super) leave: LeaveState,
    /// The part in the configuration that all nodes of a cluster share.
    pub(super) shared: OnceLock<Arc<SharedConfig>>,
    /// False until the start is over: connections wait.
    pub(super) accepts: watch::Sender<bool>,
}

impl Server {
    pub(crate) fn new(
        inbound: Arc<Inbound>,
        outbound: Arc<Outbound>,
        limits: Arc<limits::Limits>,
        tls: Option<Arc<Acceptor>>,
        source: Option<ConfigSource>,
        hardening: Option<Hardening>,
        manager: Arc<systemd::Manager>,
    ) -> Self {
        let context = Arc::clone(&inbound.context);
        let queue = context.spool().map(|spool| {
            let delivery: Arc<dyn queue::DeliveryControl> = match &outbound.dispatch {
                Some(dispatch) => Arc::clone(dispatch) as Arc<dyn queue::DeliveryControl>,
                None => Arc::new(queue::NoDelivery),
            };
            queue::QueueCommands::new(Arc::clone(spool), delivery)
        });
        Self {
            context,
            inbound,
            outbound,
            limits,
            waiting_files: Arc::default(),
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
            http_tls: Mutex::default(),
            http_address: OnceLock::new(),
            sent: Mutex::default(),
            reloading: AtomicBool::new(false),
            history_searches: Semaphore::new(HISTORY_SEARCHES_MAX),
            drain_asked: Notify::new(),
            leave: LeaveState::new(),
            shared: OnceLock::new(),
            accepts: watch::Sender::new(true),
        }
    }

    /// Takes connections on all listeners of the start.
    ///
    /// # Errors
    /// A socket cannot be registered with the runtime.
    pub(crate) fn open_all(self: &Arc<Self>, bound: Vec<listener::Listener>) -> Result<(), String> {
        let live = self.context.live.load_full();
        let tls = lock(&self.tls).clone();
        for listener in bound {
            let Some(listen) = live.config.listen.get(listener.entry) else { continue };
            let lane = ListenerProfile::new(&live.config, listen, live.authenticator.as_deref(), tls.as_ref());
            let sockets = register(listener.address, listener.sockets)?;
            self.open(listener.address, lane, sockets);
        }
        Ok(())
    }

    pub(super) fn open(self: &Arc<Self>, address: SocketAddr, lane: ListenerProfile, sockets: Vec<Socket>) {
        let mut listeners = lock(&self.listeners);
        let listener = Arc::new(ListenerState {
            entry: listeners.len(),
            address,
            lane: ArcSwap::from_pointee(lane),
            closed: Notify::new(),
            is_closed: AtomicBool::new(false),
        });
        listeners.push(Arc::clone(&listener));
        drop(listeners);
        let lane = listener.lane.load();
        self.context.record(&Event::Listening {
            daemon: &lane.listen.name,
            address,
            protocol: protocol_word(lane.listen.protocol),
            tls: tls_word(lane.listen.tls),
        });
        drop(lane);
        let mut tasks = lock(&self.tasks);
        for socket in sockets {
            let (inbound, limits) = (Arc::clone(&self.inbound), Arc::clone(&self.limits));
            let (listener, mut accepts) = (Arc::clone(&listener), self.accepts.subscribe());
            tasks.spawn(async move {
                // The server outlives its tasks.
                drop(accepts.wait_for(|accepts| *accepts).await);
                door::take_connections(inbound, limits, listener, socket, ServeSessions).await;
            });
        }
    }

    /// Checks for the watchdog that the server works: this runs on the runtime, so the runtime moves; the spool must
    /// take writes, and mail must move.
    pub(super) fn is_alive(&self) -> bool {
        let delivers = lock(&self.deliveries).as_ref().is_none_or(|deliveries| !deliveries.is_finished());
        delivers && self.context.message_store.pressure() != spool::Pressure::Poisoned
    }

    /// Delivers accepted mail, and mail that the spool has from before.
    pub(crate) fn deliver(self: &Arc<Self>) {
        *lock(&self.deliveries) = Some(tokio::spawn(tasks::run(Arc::clone(&self.outbound))));
        lock(&self.tasks).spawn(state_files::save_periodically(Arc::clone(&self.outbound)));
        lock(&self.tasks).spawn(map_files::watch(Arc::clone(&self.outbound)));
        for webhook in &self.context.webhooks {
            let context = Arc::clone(&self.context);
            let notify = move |text: &str| context.record(&Event::ConfigWarning { text });
            let (webhook, connector) = (Arc::clone(webhook), self.outbound.connector.clone());
            lock(&self.tasks).spawn(webhook.run(connector, notify));
        }
        lock(&self.tasks).spawn(history::keep_windows(Arc::clone(&self.context)));
        lock(&self.tasks).spawn(hold_ends::release_periodically(Arc::clone(&self.outbound)));
        if let Some(dispatch) = &self.outbound.dispatch {
            lock(&self.tasks).spawn(digest::send_digests(Arc::clone(dispatch)));
        }
        lock(&self.tasks).spawn(Arc::clone(self).end_orders_periodically());
        if let Some(screen_queue) = &self.inbound.screen_queue {
            lock(&self.tasks).spawn(Arc::clone(screen_queue).run());
        }
    }

    /// Accepts mail that programs of this machine submit.
    pub(crate) fn pick_up(self: &Arc<Self>, directory: pickup::PickupDirectory) {
        lock(&self.tasks).spawn(pickup::run(Arc::clone(&self.inbound), directory, Arc::clone(&self.waiting_files)));
    }

    /// Carries out signals, until one ends the server and its sessions are over.
    pub(crate) async fn until_stopped(self: &Arc<Self>, signals: &mut signals::Signals) -> ShutdownSummary {
        let why = loop {
            let signal = tokio::select! {
                signal = signals.next() => signal,
                () = self.drain_asked.notified() => {
                    self.announce_drain(signals).await;
                    break if self.leave.has_begun() { "cluster leave" } else { "cluster drain" };
                }
            };
            match signal {
                signals::Signal::Terminate { name } => break name,
                // There is no second one before the first.
                signals::Signal::TerminateNow => break "SIGTERM",
                signals::Signal::Hangup => {
                    drop(self.reload().await);
                    self.context.log.reopen();
                }
                signals::Signal::User1 => self.context.log.reopen(),
            }
        };
        self.end(why, signals).await
    }

    /// Ends a server that has taken no mail yet.
    pub(crate) async fn end_of_start(&self) -> ShutdownSummary {
        self.context.record(&Event::Stopping { why: "SIGTERM", connections: 0 });
        let mut tasks = std::mem::take(&mut *lock(&self.tasks));
        tasks.abort_all();
        while tasks.join_next().await.is_some() {}
        history::close_history(&self.context).await;
        self.context.record(&Event::Stopped { cut_off: 0, deliveries_cut_off: 0 });
        ShutdownSummary { cut_off: 0, forgotten: (0, 0) }
    }

    async fn end(self: &Arc<Self>, why: &str, signals: &mut signals::Signals) -> ShutdownSummary {
        let context = &self.context;
        context.record(&Event::Stopping { why, connections: context.stop.open() });
        self.leave.note("sessions", u64::try_from(context.stop.open()).unwrap_or(u64::MAX));
        self.manager.stopping("finishing open transactions");
        let grace = context.live.load().config.server.shutdown_grace;
        self.ends_at.get_or_init(|| clock::now() + grace);
        context.stop.begin();
        let again = async { while signals.next().await != signals::Signal::TerminateNow {} };
        let mut deliveries = lock(&self.deliveries).take();
        let finished = async {
            context.stop.drained().await;
            if let Some(deliveries) = &mut deliveries {
                // A panic in it was reported when it happened.
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
            deliveries_cut_off = self.outbound.dispatch.as_ref().map_or(0, |dispatch| dispatch.under_way());
            deliveries.abort();
        }
        if let Some(member) = context.message_store.cluster().filter(|member| member.is_draining()) {
            // Not before: open transactions may still need a copy.
            member.drain();
            match self.leave.has_begun() {
                true => self.leave_cluster(member, signals).await,
                false => self.hand_over(member).await,
            }
        }
        let ended = ShutdownSummary { cut_off: context.stop.open(), forgotten: context.message_store.forgotten() };
        // The control socket may hold a session that was cut off; the others have ended by themselves.
        let mut tasks = std::mem::take(&mut *lock(&self.tasks));
        tasks.abort_all();
        while tasks.join_next().await.is_some() {}
        state_files::save(&self.outbound).await;
        history::close_history(context).await;
        context.record(&Event::Stopped { cut_off: ended.cut_off, deliveries_cut_off });
        ended
    }

    /// Tells the other nodes and balancers that this node leaves, and takes mail until they have had time to notice,
    /// or a signal comes.
    async fn announce_drain(&self, signals: &mut signals::Signals) {
        let Some(member) = self.context.message_store.cluster() else { return };
        let what = match self.leave.has_begun() {
            true => {
                member.announce_departure();
                "leaving"
            }
            false => {
                member.announce_drain();
                "draining"
            }
        };
        let grace = self.context.live.load().config.cluster.drain_grace;
        let text = format!("{what}: new mail is taken for {} s more (cluster.drain_grace)", grace.as_secs());
        self.context.record(&Event::Cluster { severity: Severity::Info, text: &text });
        tokio::select! {
            () = tokio::time::sleep(grace) => {}
            _ = signals.next() => {}
        }
        self.context.stop.answer_new();
    }

    /// Gives the mail of this node to the others. No session and no delivery goes on.
    async fn hand_over(&self, member: &ClusterMember) {
        let messages = member.status().cluster.counts.messages;
        let (severity, text) = match member.hand_over(HAND_OVER_TIME).await {
            true => (Severity::Info, format!("{messages} messages are with the other nodes, which deliver them")),
            false => {
                let time = HAND_OVER_TIME.as_secs();
                let text = format!(
                    "not all holders took over the {messages} messages of this node within {time} s: they adopt them as \
                     after a crash, and some may be delivered twice"
                );
                (Severity::Warning, text)
            }
        };
        self.context.record(&Event::Cluster { severity, text: &text });
    }

    /// Puts the configuration and the maps in force for waiting mail.
    pub(super) fn reconfigure_dispatch(&self, renewal: &Renewal) {
        if let Some(dispatch) = &self.outbound.dispatch {
            dispatch::reconfigure(dispatch, renewal);
        }
    }

    pub(super) fn open_listeners(&self) -> Vec<Arc<ListenerState>> {
        lock(&self.listeners).iter().filter(|one| !one.is_closed()).cloned().collect()
    }

    /// Limits by the numbers of listeners, closed ones included: their connections may still be open.
    pub(super) fn limits(&self, config: &Config) -> limits::Settings {
        let mut settings = limits::Settings::new(config);
        settings.listeners = lock(&self.listeners).iter().map(|one| one.lane.load().listen.connections_max).collect();
        settings
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

pub(super) fn register(address: SocketAddr, sockets: Vec<std::net::TcpListener>) -> Result<Vec<Socket>, String> {
    let register = |socket| Socket::new(socket).map_err(|error| format!("listen.address = {address}: {error}"));
    sockets.into_iter().map(register).collect()
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    // Every change under these locks is a single step.
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

//! State that all connections share: the spool, the configuration in force, the log, and the stop signal.
//!
//! Values that a reload replaces lie behind [`ArcSwap`]s and are replaced as a whole; a connection keeps the
//! [`ListenerProfile`] with which it began.

use crate::admit::Policies;
use crate::admit::logins::Logins;
use crate::admit::relay::Rights;
use crate::auth::Authenticator;
use crate::config::{self, Config, DeliveryMode, Listen, ListenTls};
use crate::dispatch::Dispatch;
use crate::dns::{LocalIdentity, Resolver};
use crate::hosts::HostTable;
use crate::intake::MessageStore;
use crate::local_delivery::LocalDelivery;
use crate::log::Log;
use crate::next_hop::smart_hosts;
use crate::routing::Routing;
use crate::routing::expansions::Expansions;
use crate::sink::Behaviour;
use crate::stop::Stop;
use crate::tls::{Acceptor, Connector};
use arc_swap::ArcSwap;
use mail::{Address, Envelope, QueueId};
use observe::reason::Rules;
use observe::{Event, Limit};
use operator::delivery_watch::DeliveryWatchers;
use operator::mailer_statistics::MailerStatistics;
use os::{addresses, clock};
use schedule::RetryPolicy;
use smtp::server::Settings;
use spool::Spool;
use spool::envelope::Encoded;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::Notify;

/// Everything that outlives a connection.
#[derive(Debug)]
pub(crate) struct Context {
    /// Where messages go.
    pub(crate) message_store: MessageStore,
    /// The log and the counters, which come from the same events.
    pub(crate) log: Log,
    /// The configuration in force, and values made from it.
    pub(crate) live: ArcSwap<ActiveConfig>,
    /// Takes accepted messages to delivery; a sink has none.
    pub(crate) dispatch: Option<Arc<Dispatch>>,
    /// TLS towards next hops.
    pub(crate) connector: Connector,
    /// Hosts of a test in place of the network.
    #[cfg(test)]
    pub(crate) internet: Option<crate::transport::Internet>,
    /// Maps and rules.
    pub(crate) routing: ArcSwap<Routing>,
    /// Names and block lists.
    pub(crate) resolver: ArcSwap<Resolver>,
    /// State of next hops.
    pub(crate) hosts: HostTable,
    /// Mail for this machine.
    pub(crate) local_delivery: Arc<LocalDelivery>,
    /// Clients that wait for the results of a message.
    pub(crate) delivery_watchers: DeliveryWatchers,
    /// Recipients of logins.
    pub(crate) logins: Logins,
    /// Counts by mailer.
    pub(crate) mailer_statistics: MailerStatistics,
    /// Expansions of long lists.
    pub(crate) expansions: Arc<Expansions>,
    /// The stop signal.
    pub(crate) stop: Arc<Stop>,
    /// Faults played on purpose, in `mailrace sink`.
    pub(crate) behaviour: Option<Behaviour>,
    /// Descriptors the process may have.
    pub(crate) open_files_max: u64,
    /// Since when it runs.
    pub(crate) began: Instant,
}

impl Context {
    /// Tells the log and the counters.
    pub(crate) fn record(&self, event: &Event<'_>) {
        self.delivery_watchers.notify_watcher(event);
        self.mailer_statistics.record(event);
        self.log.event(event);
    }

    /// Records that these recipients of a message are dropped, if there are any.
    pub(crate) fn record_discarded<'a>(&self, id: QueueId, recipients: impl IntoIterator<Item = &'a Address>) {
        let names: Vec<String> = recipients.into_iter().map(|address| format!("<{address}>")).collect();
        if !names.is_empty() {
            let to: Vec<&str> = names.iter().map(String::as_str).collect();
            self.record(&Event::RecipientsDiscarded { id, to: &to });
        }
    }

    /// Returns the spool; a sink has none.
    pub(crate) fn spool(&self) -> Option<&Arc<Spool>> {
        match &self.message_store {
            MessageStore::Spool { spool, .. } => Some(spool),
            MessageStore::Discard { .. } => None,
        }
    }

    /// Returns the time since 1970 that delivery uses: it does not jump.
    pub(crate) fn unix_now(&self) -> Duration {
        self.dispatch.as_ref().map_or_else(|| Duration::from_micros(clock::unix_us()), |dispatch| dispatch.now())
    }

    /// Returns the same as a message counts it: steps of the wall clock since it waits are no age.
    pub(crate) fn now_of(&self, envelope: &Envelope) -> Duration {
        self.dispatch.as_ref().map_or_else(|| self.unix_now(), |dispatch| dispatch.clock.now_of(envelope))
    }

    /// Returns a time of a message, as its deadline, by [`Context::unix_now`].
    pub(crate) fn time_of(&self, envelope: &Envelope, at: Duration) -> Duration {
        self.dispatch.as_ref().map_or(at, |dispatch| dispatch.clock.time_of(envelope, at))
    }

    /// Returns the time for which a message is here.
    pub(crate) fn age_of(&self, id: QueueId) -> Duration {
        let came = Duration::from_micros(id.unix_us());
        let from = self.dispatch.as_ref().map_or(came, |dispatch| dispatch.clock.counts_from(came));
        self.unix_now().saturating_sub(from)
    }
}

/// Values that a reload replaces as a whole.
#[derive(Debug)]
pub(crate) struct ActiveConfig {
    /// The configuration.
    pub(crate) config: Config,
    /// Users.
    pub(crate) authenticator: Option<Arc<Authenticator>>,
    /// The right to relay.
    pub(crate) rights: Rights,
    /// Policies for senders and recipients.
    pub(crate) policies: Policies,
    /// The same where maps give the right to relay.
    pub(crate) checks: Policies,
    /// Names and addresses of this server, so that it does not send mail to itself.
    pub(crate) local_identity: LocalIdentity,
    /// Rules that derive the reason of a refusal from its text.
    pub(crate) reasons: Arc<Rules>,
    /// When recipients are tried again.
    pub(crate) retry: RetryPolicy,
    /// The destination of all mail, if there are smart hosts.
    smart_hosts: Option<Vec<u8>>,
}

impl ActiveConfig {
    /// Makes the values of a configuration and its users.
    pub(crate) fn new(config: Config, authenticator: Option<Arc<Authenticator>>) -> Self {
        let rights = Rights::new(&config);
        let policies = Policies::usual(rights.clone(), &config.dnsbl);
        let checks = Policies::beside_maps(rights.clone(), &config.dnsbl);
        let local_identity = LocalIdentity {
            names: vec![config.hostname.as_str().into()],
            listeners: config.listen.iter().map(|listen| listen.address).collect(),
            addresses: addresses::of_this_machine(),
        };
        let retry = RetryPolicy { first: config.delivery.retry_first, max: config.delivery.retry_max };
        let smart_hosts = (!config.route.smart_host.is_empty()).then(|| smart_hosts::destination_of_all(&config.route));
        Self {
            config,
            authenticator,
            rights,
            policies,
            checks,
            local_identity,
            reasons: Arc::new(Rules::usual()),
            retry,
            smart_hosts,
        }
    }

    /// Returns the same, with the rules that the configuration names.
    pub(crate) fn with_reasons(mut self, reasons: Rules) -> Self {
        self.reasons = Arc::new(reasons);
        self
    }

    /// Returns the value of a limit, in its unit; times in seconds.
    pub(crate) fn limit(&self, limit: Limit) -> u64 {
        let (accept, message, smtp) = (&self.config.accept, &self.config.message, &self.config.smtp);
        let octets = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        match limit {
            Limit::AcceptConnectionsMax => accept.connections_max.into(),
            Limit::AcceptConnectionsPerClient => accept.connections_per_client.into(),
            Limit::AcceptRate => accept.rate.into(),
            Limit::AcceptRatePerClient => accept.rate_per_client.into(),
            Limit::MessageSizeMax => message.size_max,
            Limit::MessageRecipientsMax => message.recipients_max.into(),
            Limit::MessageHopsMax => message.hops_max.into(),
            Limit::MessageHeaderFieldsMax => message.header_fields_max.into(),
            Limit::MessageHeaderBytesMax => message.header_bytes_max,
            Limit::MessageLineBytesMax => octets(message.line_bytes_max),
            Limit::SmtpCommandLineBytesMax => octets(smtp.command_line_bytes_max),
            Limit::SmtpAuthLineBytesMax => octets(smtp.auth_line_bytes_max),
            Limit::SmtpTransactionsMax => smtp.transactions_max.into(),
            Limit::SmtpErrorsMax => smtp.errors_max.into(),
            Limit::SmtpRefusedRecipientsMax => smtp.refused_recipients_max.into(),
            Limit::SmtpIdleCommandsMax => smtp.idle_commands_max.into(),
            Limit::SmtpCommandTimeMax => smtp.command_time_max.as_secs(),
            Limit::SmtpTransactionTimeMax => smtp.transaction_time_max.as_secs(),
            Limit::SmtpSessionTimeMax => smtp.session_time_max.as_secs(),
            Limit::SmtpRateBytesMin => smtp.rate_bytes_min,
            Limit::SmtpRateWindow => smtp.rate_window.as_secs(),
            Limit::TlsHandshakeTimeMax => self.config.tls.handshake_time_max.as_secs(),
            Limit::AuthProgramTimeMax => self.config.auth.program_time_max.as_secs(),
            Limit::AuthFailuresPerClient => self.config.auth.failures_per_client.into(),
            Limit::AuthFailuresPerUser => self.config.auth.failures_per_user.into(),
            Limit::AuthRecipientsHourMax => self.config.auth.recipients_hour_max.into(),
            Limit::DnsTimeout => self.config.dns.timeout.as_secs(),
            Limit::DnsblTimeMax => self.config.dnsbl.time_max.as_secs(),
            Limit::SpoolSizeMax => self.config.spool.size_max,
            Limit::SpoolFreeMin => self.config.spool.free_min,
            Limit::ServerShutdownGrace => self.config.server.shutdown_grace.as_secs(),
            Limit::SubmitFilesMax => self.config.submit.files_max.into(),
            Limit::SubmitUserFilesMax => self.config.submit.user_files_max.into(),
            Limit::SubmitUserCommandsMax => self.config.submit.user_commands_max.into(),
            // The limit belongs to one listener or one client, or has no key.
            Limit::ListenConnectionsMax | Limit::AccessClientConn | Limit::AccessClientRate | Limit::Other => 0,
        }
    }

    /// Returns whether XCLIENT is offered to a client.
    pub(crate) fn trusts_xclient(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        self.config.accept.xclient.iter().any(|network| network.contains(&ip))
    }

    /// Returns an envelope in bytes, each recipient with the destination that the configuration gives it.
    pub(crate) fn encode(&self, envelope: &Envelope) -> Encoded {
        match &self.smart_hosts {
            None => Encoded::new(envelope),
            Some(all) => Encoded::to(envelope, |_| all.clone()),
        }
    }

    /// Returns whether messages wait for a queue run.
    pub(crate) fn queues_only(&self) -> bool {
        self.config.delivery.mode == DeliveryMode::Queue
    }
}

/// One listener, for as long as it listens.
#[derive(Debug)]
pub(crate) struct ListenerState {
    /// Its number in the limits of connections.
    pub(crate) entry: usize,
    /// As it was bound.
    pub(crate) address: SocketAddr,
    /// Settings of its connections.
    pub(crate) lane: ArcSwap<ListenerProfile>,
    /// Tells its loops to end.
    pub(crate) closed: Notify,
    /// It does not listen any more: a reload removed it.
    pub(crate) is_closed: AtomicBool,
}

impl ListenerState {
    /// Ends its loops; accepted connections go on.
    pub(crate) fn close(&self) {
        self.is_closed.store(true, Ordering::SeqCst);
        self.closed.notify_waiters();
    }

    /// Returns whether it listens no more.
    pub(crate) fn is_closed(&self) -> bool {
        self.is_closed.load(Ordering::SeqCst)
    }
}

/// Settings of the connections of a listener. A connection keeps those with which it began.
#[derive(Debug)]
pub(crate) struct ListenerProfile {
    /// Returns the settings of the configuration.
    pub(crate) listen: Listen,
    /// Offers and limits of its sessions.
    pub(crate) settings: Arc<Settings>,
    /// Certificates, if it has TLS.
    pub(crate) tls: Option<Arc<Acceptor>>,
    /// How long a handshake may take.
    pub(crate) handshake_time: Duration,
}

impl ListenerProfile {
    /// Makes the profile of a configured listener.
    pub(crate) fn new(
        config: &Config,
        listen: &Listen,
        authenticator: Option<&Authenticator>,
        tls: Option<&Arc<Acceptor>>,
    ) -> Self {
        let mut settings = config::smtp_settings(config, listen);
        settings.limits.content_piece_bytes = crate::intake::PIECE_BYTES;
        settings.auth.mechanisms = authenticator
            .map(|authenticator| authenticator.mechanisms(true).into_iter().map(Into::into).collect())
            .unwrap_or_default();
        Self {
            listen: listen.clone(),
            settings: Arc::new(settings),
            tls: tls.filter(|_| listen.tls != ListenTls::None).cloned(),
            handshake_time: config.tls.handshake_time_max,
        }
    }

    /// Returns whether connections begin with a handshake.
    pub(crate) fn is_implicit_tls(&self) -> bool {
        self.listen.tls == ListenTls::Implicit
    }
}

#[cfg(test)]
impl Context {
    /// Makes a service for trials, that keeps and logs nothing.
    pub(crate) fn trial(config: Config, behaviour: Behaviour) -> Arc<Self> {
        let mut log = crate::log::LogSettings::from_config(&config.log, &config.hostname);
        log.target = crate::log::Target::File("/dev/null".into());
        let began = clock::now();
        Arc::new(Self {
            message_store: MessageStore::discard(mail::QueueIds::new(mail::Node::default())),
            log: Log::start(&log).unwrap(),
            routing: ArcSwap::from_pointee(Routing::plain()),
            resolver: ArcSwap::from_pointee(Resolver::new(&config.dns).unwrap()),
            hosts: HostTable::in_memory(&config),
            local_delivery: Arc::new(LocalDelivery::new(&config)),
            delivery_watchers: DeliveryWatchers::default(),
            mailer_statistics: MailerStatistics::default(),
            expansions: Expansions::new(),
            logins: Logins::default(),
            stop: Arc::default(),
            behaviour: Some(behaviour).filter(|behaviour| !behaviour.is_plain()),
            open_files_max: 1_024,
            began,
            dispatch: None,
            connector: Connector::new(&config.tls).unwrap(),
            internet: None,
            live: ArcSwap::from_pointee(ActiveConfig::new(config, None)),
        })
    }

    /// Returns the same with an empty spool on a simulated disk, and with what dispatches it.
    pub(crate) fn trial_with_spool(config: Config) -> (Arc<Self>, Arc<Dispatch>, Arc<Spool>) {
        let spool = crate::simulation::spool_with(|config| {
            (config.segment_bytes, config.size_max) = (8 << 20, 64 << 20);
            config.state_delay_ms = 0;
        });
        let (context, dispatch) = Self::trial_on(config, &spool);
        (context, dispatch, spool)
    }

    /// Returns a context for trials, that stores messages in `spool`.
    pub(crate) fn trial_on(config: Config, spool: &Arc<Spool>) -> (Arc<Self>, Arc<Dispatch>) {
        let mut context = Self::trial(config, Behaviour::default());
        let dispatch = Dispatch::new(Arc::clone(spool), &context.live.load().config, Arc::default());
        let inner = Arc::get_mut(&mut context).unwrap();
        inner.message_store = MessageStore::spool(Arc::clone(spool), mail::QueueIds::new(mail::Node::default()), 1);
        inner.dispatch = Some(Arc::clone(&dispatch));
        (context, dispatch)
    }
}

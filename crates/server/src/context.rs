//! State that all parts of the server share: the spool, the configuration in force, the maps, the log, and the stop
//! signal.
//!
//! Values that a reload replaces lie behind [`ArcSwap`]s and are replaced as a whole. State for accepting mail alone is
//! in `inbound`, state for delivering it in `outbound`.

use crate::active_config::ActiveConfig;
use crate::dns::Resolver;
use crate::log::Log;
use crate::message_store::MessageStore;
use crate::routing::Routing;
use crate::routing::expansions::Expansions;
use crate::screen::filters::Reinjections;
use crate::secret_key::SecretKey;
use crate::server_clock::ServerClock;
use crate::steering::SteeringTable;
use crate::stop::Stop;
use crate::transcript::Transcripts;
use crate::webhook::{self, Webhook};
use arc_swap::ArcSwap;
use mail::{Address, Envelope, QueueId};
use observe::Event;
use operator::delivery_watch::DeliveryWatchers;
use operator::history::History;
use operator::live_statistics::LiveStatistics;
use operator::mailer_statistics::MailerStatistics;
use operator::recent_errors::RecentErrors;
use os::clock;
use spool::Spool;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// Everything that outlives a connection and has no side.
#[derive(Debug)]
pub(crate) struct Context {
    /// Where messages go.
    pub(crate) message_store: MessageStore,
    /// The log and the counters, which come from the same events.
    pub(crate) log: Log,
    /// The configuration in force, and values made from it.
    pub(crate) live: ArcSwap<ActiveConfig>,
    /// Maps and rules.
    pub(crate) routing: ArcSwap<Routing>,
    /// Names and block lists.
    pub(crate) resolver: ArcSwap<Resolver>,
    /// The time by which mail ages; a sink has that of the machine.
    pub(crate) clock: Option<Arc<ServerClock>>,
    /// Orders of operators that stay in force.
    pub(crate) steering: SteeringTable,
    /// Operators that watch dialogs with next hops.
    pub(crate) transcripts: Arc<Transcripts>,
    /// Clients that wait for the results of a message.
    pub(crate) delivery_watchers: DeliveryWatchers,
    /// Counts by mailer.
    pub(crate) mailer_statistics: MailerStatistics,
    /// Windows and sums of the mail.
    pub(crate) live_statistics: LiveStatistics,
    /// The last attempts that failed.
    pub(crate) recent_errors: RecentErrors,
    /// The way of past messages; `None` without `history.path`.
    pub(crate) history: Option<History>,
    /// Programs that get outcomes of mail.
    pub(crate) webhooks: Vec<Arc<Webhook>>,
    /// The key by which texts of this server are recognised.
    pub(crate) secret: Arc<SecretKey>,
    /// Questions to filters that give mail back.
    pub(crate) reinjections: Arc<Reinjections>,
    /// Expansions of long lists.
    pub(crate) expansions: Arc<Expansions>,
    /// The stop signal.
    pub(crate) stop: Arc<Stop>,
    /// Since when it runs.
    pub(crate) began: Instant,
}

impl Context {
    /// Makes the shared state of a server that begins now.
    pub(crate) fn new(
        message_store: MessageStore,
        log: Log,
        live: ActiveConfig,
        routing: Routing,
        resolver: Resolver,
        clock: Option<Arc<ServerClock>>,
        secret: SecretKey,
    ) -> Self {
        let secret = Arc::new(secret);
        Self {
            message_store,
            log,
            live: ArcSwap::from_pointee(live),
            routing: ArcSwap::from_pointee(routing),
            resolver: ArcSwap::from_pointee(resolver),
            clock,
            steering: SteeringTable::default(),
            transcripts: Arc::default(),
            delivery_watchers: DeliveryWatchers::default(),
            mailer_statistics: MailerStatistics::default(),
            live_statistics: LiveStatistics::new(clock::unix_us()),
            recent_errors: RecentErrors::default(),
            history: None,
            webhooks: Vec::new(),
            reinjections: Reinjections::new(Arc::clone(&secret)),
            secret,
            expansions: Expansions::new(),
            stop: Arc::default(),
            began: clock::now(),
        }
    }

    /// Returns the same with these orders of operators.
    pub(crate) fn with_steering(self, steering: SteeringTable) -> Self {
        Self { steering, ..self }
    }

    /// Tells the log and the counters.
    pub(crate) fn record(&self, event: &Event<'_>) {
        self.delivery_watchers.notify_watcher(event);
        self.mailer_statistics.record(event);
        self.live_statistics.record(event);
        self.recent_errors.record(event);
        if let Some(history) = &self.history {
            history.record(event);
        }
        if !self.webhooks.is_empty() {
            webhook::record(&self.webhooks, event);
        }
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
        self.clock.as_ref().map_or_else(|| Duration::from_micros(clock::unix_us()), |clock| clock.now())
    }

    /// Returns the age of a file that another process wrote at `written` by the wall clock; zero where that clock is
    /// not to be believed.
    pub(crate) fn age_of_file(&self, written: Duration) -> Duration {
        let clock = self.clock.as_ref();
        clock.map_or_else(|| self.unix_now().saturating_sub(written), |clock| clock.age_of_file(written))
    }

    /// Returns the same as a message counts it: steps of the wall clock since it waits are no age.
    pub(crate) fn now_of(&self, envelope: &Envelope) -> Duration {
        self.clock.as_ref().map_or_else(|| self.unix_now(), |clock| clock.now_of(envelope))
    }

    /// Returns a time of a message, as its deadline, by [`Context::unix_now`].
    pub(crate) fn time_of(&self, envelope: &Envelope, at: Duration) -> Duration {
        self.clock.as_ref().map_or(at, |clock| clock.time_of(envelope, at))
    }

    /// Returns the time for which a message is here.
    pub(crate) fn age_of(&self, id: QueueId) -> Duration {
        let came = Duration::from_micros(id.unix_us());
        let from = self.clock.as_ref().map_or(came, |clock| clock.counts_from(came));
        self.unix_now().saturating_sub(from)
    }
}

#[cfg(test)]
impl Context {
    /// Makes the state of a trial, which stores messages here and logs nothing. A trial without a spool forgets them.
    pub(crate) fn trial(config: crate::config::Config, spool: Option<&Arc<Spool>>) -> Arc<Self> {
        let mut log = crate::log::LogSettings::from_config(&config.log, &config.hostname);
        log.target = crate::log::Target::File("/dev/null".into());
        let ids = mail::QueueIds::new(mail::Node::default());
        let resolver = Resolver::new(&config.dns).unwrap();
        Arc::new(Self::new(
            match spool {
                Some(spool) => MessageStore::spool(Arc::clone(spool), ids, 1),
                None => MessageStore::discard(ids),
            },
            Log::start(&log).unwrap(),
            ActiveConfig::new(config, None),
            Routing::plain(),
            resolver,
            spool.map(|_| Arc::new(ServerClock::forgetful())),
            SecretKey::of_process(),
        ))
    }
}

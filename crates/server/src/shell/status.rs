//! Collects the state of the server for the answer to `status`.

use super::admin::SENT;
use super::cluster_status::cluster_status;
use super::server::{Server, lock};
use crate::admit::logins::LoginOver;
use crate::config;
use crate::dispatch::Dispatch;
use crate::log::LogError;
use crate::screen::Screen;
use crate::screen::filters::{PoolCounts, PooledFilter};
use crate::screen_queue::{BacklogView, ChainView};
use observe::counters::{Counter, Done, Outcome, Temporary};
use observe::{CheckMethod, CheckResult, Ruleset, ScreenVerdict, SignatureKind};
use operator::answers::{
    AcceptedMessages, ClockStatus, ConnectionCounts, DeliveryConnections, DeliveryCounts, FailingLog,
    FilterQueueStatus, FilterStatus, LogStatus, LoginOverLimit, MadeCounts, PickupStatus, QueueStatus,
    RefusedRecipients, ResultCounts, ScreenCounts, ScreenQueueStatus, SenderCheckCounts, SignatureCounts, SpoolStatus,
    StatusAnswer, StopStatus,
};
use operator::history::History;
use operator::queue;
use os::{clock, machine};
use spool::Statistics;
use std::sync::Arc;

impl Server {
    /// Collects the state, with so many of the fullest destinations. Blocks while it looks at every destination, if any
    /// are wanted.
    pub(super) fn status(&self, fullest: usize) -> StatusAnswer {
        let context = &self.context;
        let live = context.live.load_full();
        let refused_at_rcpt = |temporary| self.count(Counter::Rejected(Ruleset::Rcpt, temporary));
        let stop = self.stop_status();
        let spool = context.message_store.statistics();
        StatusAnswer {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            hostname: live.config.hostname.clone(),
            pid: machine::pid(),
            uptime_seconds: clock::now().saturating_duration_since(context.began).as_secs(),
            clock: self.clock_status(),
            stopping: stop.is_some(),
            stop,
            config: self.source.as_ref().and_then(|source| Some(source.path.as_ref()?.display().to_string())),
            hardening: self.hardening.as_ref().map(|hardening| hardening.text().to_owned()),
            listen: self.open_listeners().iter().map(|one| one.address.to_string()).collect(),
            http: self.http_address().map(|address| address.to_string()),
            connections: ConnectionCounts {
                open: u64::try_from(context.stop.open()).unwrap_or(u64::MAX),
                max: live.config.accept.connections_max.into(),
                total: self.count(Counter::Connections),
                refused: self.connections_refused(),
            },
            messages: AcceptedMessages {
                accepted: self.count(Counter::Messages),
                refused: self.count(Counter::TransactionsRefused),
                accepted_per_second: lock(&self.accepted).per_second(clock::now(), self.count(Counter::Messages)),
            },
            recipients: RefusedRecipients { refused: refused_at_rcpt(Temporary::Yes) + refused_at_rcpt(Temporary::No) },
            screen: self.screened(),
            filters: filters(live.screen.as_deref()),
            sender_checks: self.sender_checks(),
            signatures: self.signatures(),
            screen_queue: self.screen_queue(),
            logins_over: self.logins_over(),
            deliveries: self
                .outbound
                .dispatch
                .as_ref()
                .map(|dispatch| self.deliveries(dispatch, &live.config.delivery)),
            queue: self.queue_status(&spool, live.queues_only(), fullest),
            pickup: PickupStatus { files: self.waiting_files.files(), full: self.waiting_files.is_full() },
            expansions: context.expansions.counts(),
            log: self.log_status(),
            cluster: context.message_store.cluster().map(|member| {
                let hosts = self.outbound.dispatch.as_ref().and_then(|dispatch| dispatch.host_reports());
                cluster_status(member, self.shared.get().map(Arc::as_ref), hosts.as_ref(), self.leave.progress())
            }),
            webhooks: context.webhooks.iter().map(|webhook| webhook.status()).collect(),
            history: context.history.as_ref().map(History::status),
            spool: self.spool_status(&live.config.spool, &spool),
        }
    }

    fn count(&self, counter: Counter) -> u64 {
        self.context.log.counter(counter)
    }

    /// Counts the decisions of content rules and filters.
    fn screened(&self) -> ScreenCounts {
        let count = |verdict| self.count(Counter::Screened(verdict));
        ScreenCounts {
            accept: count(ScreenVerdict::Accept),
            reject: count(ScreenVerdict::Reject),
            defer: count(ScreenVerdict::Defer),
            discard: count(ScreenVerdict::Discard),
            quarantine: count(ScreenVerdict::Quarantine),
            hold: count(ScreenVerdict::Hold),
            edit: count(ScreenVerdict::Edit),
            reroute: count(ScreenVerdict::Reroute),
            not_judged: count(ScreenVerdict::NotJudged),
        }
    }

    /// Counts the results of sender authentication.
    fn sender_checks(&self) -> SenderCheckCounts {
        let of = |method| {
            let count = |result| self.count(Counter::SenderChecks(method, result));
            ResultCounts {
                none: count(CheckResult::None),
                pass: count(CheckResult::Pass),
                fail: count(CheckResult::Fail),
                softfail: count(CheckResult::SoftFail),
                neutral: count(CheckResult::Neutral),
                policy: count(CheckResult::Policy),
                temperror: count(CheckResult::TempError),
                permerror: count(CheckResult::PermError),
            }
        };
        SenderCheckCounts {
            iprev: of(CheckMethod::Iprev),
            spf: of(CheckMethod::Spf),
            dkim: of(CheckMethod::Dkim),
            dmarc: of(CheckMethod::Dmarc),
            arc: of(CheckMethod::Arc),
        }
    }

    /// Counts signatures.
    fn signatures(&self) -> SignatureCounts {
        let of = |kind| MadeCounts {
            made: self.count(Counter::Signatures(kind, Done::Ok)),
            failed: self.count(Counter::Signatures(kind, Done::Failed)),
        };
        SignatureCounts { dkim: of(SignatureKind::Dkim), arc: of(SignatureKind::Arc) }
    }

    /// Describes the messages that wait for filters.
    fn screen_queue(&self) -> Option<ScreenQueueStatus> {
        let BacklogView { messages, bytes, delay, chains } = self.inbound.screen_queue.as_ref()?.view();
        let live = self.context.live.load();
        let now = self.context.unix_now();
        let chain = |chain: ChainView| FilterQueueStatus {
            filters: chain.filters.to_string(),
            messages: u64::try_from(chain.messages).unwrap_or(u64::MAX),
            running: u64::try_from(chain.running).unwrap_or(u64::MAX),
            retry_in: chain.error.as_ref().map(|_| chain.paused_until.saturating_sub(now).as_secs()),
            failing: chain.error.map(|error| error.to_string()),
        };
        Some(ScreenQueueStatus {
            messages,
            messages_max: live.config.screen.backlog_max,
            bytes,
            bytes_max: live.config.screen.backlog_bytes_max,
            delay_ms: u64::try_from(delay.as_millis()).unwrap_or(u64::MAX),
            filters: chains.into_iter().map(chain).collect(),
        })
    }

    /// Describes the clocks if the machine's is implausible.
    fn clock_status(&self) -> Option<ClockStatus> {
        let server_clock = self.context.clock.as_ref()?;
        server_clock.doubted()?;
        Some(ClockStatus { machine: clock::unix_us() / 1_000_000, server: server_clock.now().as_secs() })
    }

    /// Describes the tasks that delay the stop; `None` before a stop.
    fn stop_status(&self) -> Option<StopStatus> {
        self.ends_at.get().map(|at| StopStatus {
            deliveries: self.outbound.dispatch.as_ref().map_or(0, |dispatch| dispatch.under_way()),
            seconds_left: at.saturating_duration_since(clock::now()).as_secs(),
        })
    }

    fn queue_status(&self, spool: &Statistics, on_command: bool, fullest: usize) -> QueueStatus {
        let commands = self.queue.as_ref().filter(|_| fullest > 0);
        let orders = self.context.steering.orders();
        QueueStatus {
            messages: spool.messages,
            recipients: spool.recipients,
            waiting: spool.recipients.saturating_sub(spool.held),
            held: spool.held,
            destinations: spool.destinations,
            on_command,
            fullest: commands.map(|commands| commands.fullest_destinations(fullest)).unwrap_or_default(),
            rules: orders.rules().iter().map(queue::HoldRule::to_line).collect(),
            limits: orders.limits().to_vec(),
        }
    }

    fn log_status(&self) -> LogStatus {
        let failing =
            |LogError { target, reason }| FailingLog { target: target.to_string(), reason: reason.to_string() };
        LogStatus {
            dropped: self.count(Counter::LogDropped),
            failing: self.context.log.trouble().map(failing),
            waiting: u64::try_from(self.context.log.waiting()).unwrap_or(u64::MAX),
        }
    }

    fn spool_status(&self, settings: &config::Spool, statistics: &Statistics) -> SpoolStatus {
        let space = crate::file_system::file_system(&settings.path);
        SpoolStatus {
            path: settings.path.display().to_string(),
            file_system: space.as_ref().map_or_else(|_| "unknown".to_owned(), |space| space.file_system.to_string()),
            durable: !space.is_ok_and(|space| space.volatile),
            ..SpoolStatus::new(self.context.message_store.pressure(), statistics)
        }
    }

    /// Lists the logins that had too many recipients in the last hour.
    fn logins_over(&self) -> Vec<LoginOverLimit> {
        let now = clock::now().saturating_duration_since(self.context.began);
        let one = |over: LoginOver| LoginOverLimit {
            user: over.user.to_string(),
            client: over.client.map(|client| client.to_string()),
            recipients: over.count.into(),
            ago: now.saturating_sub(over.at).as_secs(),
        };
        self.inbound.logins.over(now).into_iter().map(one).collect()
    }

    /// Counts deliveries and connections to next hops.
    fn deliveries(&self, dispatch: &Dispatch, limits: &config::Delivery) -> DeliveryCounts {
        let [open, silent] = dispatch.connections();
        DeliveryCounts {
            sent: self.count(SENT),
            deferred: self.count(Counter::DeliveryRecipients(Outcome::Deferred)),
            failed: self.count(Counter::DeliveryRecipients(Outcome::Failed)),
            sent_per_second: lock(&self.sent).per_second(clock::now(), self.count(SENT)),
            connections: DeliveryConnections {
                open,
                max: limits.connections_max.into(),
                silent,
                silent_max: limits.connections_silent_max.into(),
            },
        }
    }

    /// Counts the connections that a limit refused since the start.
    pub(super) fn connections_refused(&self) -> u64 {
        let refused = [
            observe::Limit::AcceptConnectionsMax,
            observe::Limit::AcceptConnectionsPerClient,
            observe::Limit::AcceptRate,
            observe::Limit::AcceptRatePerClient,
            observe::Limit::AccessClientConn,
            observe::Limit::AccessClientRate,
            observe::Limit::ListenConnectionsMax,
        ];
        refused.into_iter().map(|limit| self.count(Counter::Refused(limit))).sum()
    }
}

/// Describes the filters and the connections to them.
fn filters(screen: Option<&Screen>) -> Vec<FilterStatus> {
    let filters = screen.map(Screen::filters).unwrap_or_default();
    let of = |filter: &Arc<PooledFilter>| {
        let PoolCounts { idle, opened, reused, stale, failed } = filter.counts();
        let (name, address) = (filter.settings.name.clone(), filter.settings.address.to_string());
        FilterStatus { name, address, idle, opened, reused, stale, failed }
    };
    filters.iter().map(of).collect()
}

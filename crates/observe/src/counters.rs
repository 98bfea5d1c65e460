//! The counters, and the increments of each event.
//!
//! Counters move by events and by nothing else, so the figures of a monitoring system cannot disagree with the log.
//! Names follow the conventions of Prometheus. The server holds one number per [`Counter::index`] and adds
//! [`increments`] of every event, whether its line is written or not. No time, no gauges here.

use crate::{
    CheckMethod, CheckResult, DelayClass, Event, Limit, Reason, ReportKind, Ruleset, ScreenVerdict, Severity,
    SignatureKind, Stat,
};
use std::fmt::{self, Write as _};
use std::time::Duration;

/// One number that only grows.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Counter {
    /// Connections taken.
    Connections,
    /// Refusals because of a limit: connections, commands, recipients, messages.
    Refused(Limit),
    /// Refusals by a rule, by ruleset and class of the reply.
    Rejected(Ruleset, Temporary),
    /// Transactions that ended without a recipient or with refused content.
    TransactionsRefused,
    /// Messages accepted: durable and answered with 250.
    Messages,
    /// Their octets, without our trace fields.
    MessageBytes,
    /// Their recipients.
    Recipients,
    /// Recipients of messages that wait for a queue run (`delivery.mode = "queue"`).
    QueuedRecipients,
    /// Messages accepted and dropped, because an entry of a map says so.
    Discarded,
    /// Messages that a transaction became beside its first.
    Cloned,
    /// Deliveries: transactions with next hops, and attempts that did not come to one.
    Deliveries(Outcome),
    /// Their recipients.
    DeliveryRecipients(Outcome),
    /// Recipients that were not reached, by their state and the reason.
    DeliveryReasons(Unreached, Reason),
    /// Milliseconds from acceptance to delivery, over all deliveries that were sent.
    DeliveryDelay,
    /// Milliseconds that attempts took, over all deliveries that were sent.
    DeliveryTime,
    /// Deliveries with a reply of which the beginning alone was kept.
    RepliesCut,
    /// Reports that were made.
    Reports(ReportKind),
    /// Reports without a deliverable address.
    ReportsDropped,
    /// TLS handshakes with next hops, done or failed.
    TlsClient(Done),
    /// Destinations that could not be reached any more.
    DestinationsDown,
    /// Destinations that were reached again.
    DestinationsUp,
    /// Changes of the queue by operators.
    QueueCommands,
    /// Recipients that were held for a time that is over.
    HoldsEnded,
    /// Clients that spoke before the greeting.
    EarlyTalkers,
    /// Answers of block lists that name a client.
    DnsblListed,
    /// TLS handshakes, done or failed.
    Tls(Done),
    /// Authentications, done or failed.
    Auth(Done),
    /// Sessions closed because the client spoke another protocol.
    ForeignProtocol,
    /// Bare CR, LF or NUL.
    BareNewlines,
    /// Sessions without a message or a question.
    NoMail,
    /// Connections that broke in the middle of a transaction.
    LostInput,
    /// Sessions closed because the client was silent too long.
    Timeouts,
    /// New configurations, in force or refused.
    Reloads(Done),
    /// Certificates, loaded or refused.
    Certificates(Done),
    /// Warnings about the configuration.
    ConfigWarnings,
    /// Events of the spool, by severity.
    Spool(Severity),
    /// Lines of the log that were lost.
    LogDropped,
    /// Faults of ours.
    InternalErrors,
    /// Decisions of content rules and filters.
    Screened(ScreenVerdict),
    /// Results of sender authentication, one of each method for a message.
    SenderChecks(CheckMethod, CheckResult),
    /// Signatures that were made, or could not be made.
    Signatures(SignatureKind, Done),
    /// Deliveries that were sent, by the time since the message was accepted. A message that is tried again counts when
    /// it is sent.
    DeliveryDelays(DelayClass),
}

/// The class of a refusing reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Temporary {
    /// 4xx: the client may try again.
    Yes,
    /// 5xx
    No,
}

/// The result of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Outcome {
    /// The next hop has taken it.
    Sent,
    /// It is tried again.
    Deferred,
    /// It is not tried again.
    Failed,
}

impl Outcome {
    const ALL: [Self; 3] = [Self::Sent, Self::Deferred, Self::Failed];

    /// Returns the outcome that a `stat=` tells of.
    #[must_use]
    pub const fn of(stat: Stat<'_>) -> Self {
        match stat {
            Stat::Sent(_) => Self::Sent,
            Stat::Deferred(_) => Self::Deferred,
            Stat::Failed(_) => Self::Failed,
        }
    }

    /// Returns the word in counters, in JSON and in `status=` of Postfix for the first two.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Sent => "sent",
            Self::Deferred => "deferred",
            Self::Failed => "failed",
        }
    }
}

/// The state of a recipient that was not reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Unreached {
    /// It is tried again.
    Deferred,
    /// It is not tried again.
    Failed,
}

impl Unreached {
    const ALL: [Self; 2] = [Self::Deferred, Self::Failed];

    const fn name(self) -> &'static str {
        match self {
            Self::Deferred => "deferred",
            Self::Failed => "failed",
        }
    }
}

/// How something ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Done {
    /// Well.
    Ok,
    /// Not.
    Failed,
}

const LIMITS: usize = Limit::ALL.len();
const RULESETS: usize = Ruleset::ALL.len();
const SEVERITIES: [Severity; 5] =
    [Severity::Critical, Severity::Error, Severity::Warning, Severity::Notice, Severity::Info];
const BOTH: [Done; 2] = [Done::Ok, Done::Failed];

const REFUSED: usize = 1;
const REJECTED: usize = REFUSED + LIMITS;
const PLAIN: usize = REJECTED + 2 * RULESETS;
const TLS: usize = PLAIN + 16;
const DELIVERY: usize = TLS + 8;
const REPORTS: usize = DELIVERY + 2 * Outcome::ALL.len() + 3;
const DESTINATIONS: usize = REPORTS + ReportKind::ALL.len() + 1 + BOTH.len();
const SPOOL: usize = DESTINATIONS + 3;
const SCREENED: usize = SPOOL + SEVERITIES.len() + 2;
const SENDER_CHECKS: usize = SCREENED + ScreenVerdict::ALL.len();
const SIGNATURES: usize = SENDER_CHECKS + CheckMethod::ALL.len() * CheckResult::ALL.len();
const REASONS: usize = SIGNATURES + SignatureKind::ALL.len() * BOTH.len();
const DELAYS: usize = REASONS + Unreached::ALL.len() * Reason::ALL.len();

impl Counter {
    /// How many counters there are.
    pub const COUNT: usize = DELAYS + DelayClass::COUNT;

    /// Every counter, in the order in which they are shown; those of one family stand together.
    pub fn all() -> impl Iterator<Item = Self> {
        let rejected = |ruleset| [Self::Rejected(ruleset, Temporary::Yes), Self::Rejected(ruleset, Temporary::No)];
        let plain = [
            Self::TransactionsRefused,
            Self::Messages,
            Self::MessageBytes,
            Self::Recipients,
            Self::QueuedRecipients,
            Self::EarlyTalkers,
            Self::DnsblListed,
            Self::ForeignProtocol,
            Self::BareNewlines,
            Self::NoMail,
            Self::LostInput,
            Self::Timeouts,
            Self::ConfigWarnings,
            Self::Discarded,
            Self::Cloned,
            Self::HoldsEnded,
        ];
        let checks = CheckMethod::ALL.into_iter();
        let checks = checks.flat_map(|method| CheckResult::ALL.map(|result| Self::SenderChecks(method, result)));
        let signatures = SignatureKind::ALL.into_iter();
        let signatures = signatures.flat_map(|kind| BOTH.map(|done| Self::Signatures(kind, done)));
        let reasons = Unreached::ALL.into_iter();
        let reasons = reasons.flat_map(|what| Reason::ALL.map(|reason| Self::DeliveryReasons(what, reason)));
        std::iter::once(Self::Connections)
            .chain(Limit::ALL.into_iter().map(Self::Refused))
            .chain(Ruleset::ALL.into_iter().flat_map(rejected))
            .chain(plain)
            .chain(BOTH.map(Self::Tls))
            .chain(BOTH.map(Self::Auth))
            .chain(BOTH.map(Self::Reloads))
            .chain(BOTH.map(Self::Certificates))
            .chain(Outcome::ALL.map(Self::Deliveries))
            .chain(Outcome::ALL.map(Self::DeliveryRecipients))
            .chain([Self::DeliveryDelay, Self::DeliveryTime, Self::RepliesCut])
            .chain(ReportKind::ALL.map(Self::Reports))
            .chain([Self::ReportsDropped])
            .chain(BOTH.map(Self::TlsClient))
            .chain([Self::DestinationsDown, Self::DestinationsUp, Self::QueueCommands])
            .chain(SEVERITIES.map(Self::Spool))
            .chain([Self::LogDropped, Self::InternalErrors])
            .chain(ScreenVerdict::ALL.map(Self::Screened))
            .chain(checks)
            .chain(signatures)
            .chain(reasons)
            .chain(DelayClass::all().map(Self::DeliveryDelays))
    }

    /// Its place in [`Counter::all`], below [`Counter::COUNT`].
    #[must_use]
    pub const fn index(self) -> usize {
        match self {
            Self::Connections => 0,
            Self::Refused(limit) => REFUSED + limit as usize,
            Self::Rejected(ruleset, temporary) => REJECTED + 2 * ruleset as usize + temporary as usize,
            Self::TransactionsRefused => PLAIN,
            Self::Messages => PLAIN + 1,
            Self::MessageBytes => PLAIN + 2,
            Self::Recipients => PLAIN + 3,
            Self::QueuedRecipients => PLAIN + 4,
            Self::EarlyTalkers => PLAIN + 5,
            Self::DnsblListed => PLAIN + 6,
            Self::ForeignProtocol => PLAIN + 7,
            Self::BareNewlines => PLAIN + 8,
            Self::NoMail => PLAIN + 9,
            Self::LostInput => PLAIN + 10,
            Self::Timeouts => PLAIN + 11,
            Self::ConfigWarnings => PLAIN + 12,
            Self::Discarded => PLAIN + 13,
            Self::Cloned => PLAIN + 14,
            Self::HoldsEnded => PLAIN + 15,
            Self::Tls(done) => TLS + done as usize,
            Self::Auth(done) => TLS + 2 + done as usize,
            Self::Reloads(done) => TLS + 4 + done as usize,
            Self::Certificates(done) => TLS + 6 + done as usize,
            Self::Deliveries(outcome) => DELIVERY + outcome as usize,
            Self::DeliveryRecipients(outcome) => DELIVERY + 3 + outcome as usize,
            Self::DeliveryDelay => DELIVERY + 6,
            Self::DeliveryTime => DELIVERY + 7,
            Self::RepliesCut => DELIVERY + 8,
            Self::Reports(kind) => REPORTS + kind as usize,
            Self::ReportsDropped => REPORTS + 3,
            Self::TlsClient(done) => REPORTS + 4 + done as usize,
            Self::DestinationsDown => DESTINATIONS,
            Self::DestinationsUp => DESTINATIONS + 1,
            Self::QueueCommands => DESTINATIONS + 2,
            // The first severity in use is 2.
            Self::Spool(severity) => SPOOL + severity as usize - Severity::Critical as usize,
            Self::LogDropped => SPOOL + SEVERITIES.len(),
            Self::InternalErrors => SPOOL + SEVERITIES.len() + 1,
            Self::Screened(verdict) => SCREENED + verdict as usize,
            Self::SenderChecks(method, result) => {
                SENDER_CHECKS + method as usize * CheckResult::ALL.len() + result as usize
            }
            Self::Signatures(kind, done) => SIGNATURES + kind as usize * BOTH.len() + done as usize,
            Self::DeliveryReasons(what, reason) => REASONS + what as usize * Reason::ALL.len() + reason as usize,
            Self::DeliveryDelays(class) => DELAYS + class.index(),
        }
    }

    /// The name of its family: `smtpd_messages_total`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        self.described().0
    }

    /// Returns a sentence about the counted things.
    #[must_use]
    pub const fn help(self) -> &'static str {
        self.described().1
    }

    const fn described(self) -> (&'static str, &'static str) {
        match self {
            Self::Connections => ("smtpd_connections_total", "Connections taken."),
            Self::Refused(_) => ("smtpd_refused_total", "Refusals because of a limit."),
            Self::Rejected(..) => ("smtpd_rejected_total", "Refusals by a rule, by ruleset and class of the reply."),
            Self::TransactionsRefused => {
                ("smtpd_transactions_refused_total", "Transactions without a recipient left, or with refused content.")
            }
            Self::Messages => ("smtpd_messages_total", "Messages accepted and durable."),
            Self::MessageBytes => ("smtpd_message_bytes_total", "Octets of accepted messages."),
            Self::Recipients => ("smtpd_recipients_total", "Recipients of accepted messages."),
            Self::QueuedRecipients => ("smtpd_queued_recipients_total", "Recipients that wait for a queue run."),
            Self::Deliveries(_) => {
                ("deliveries_total", "Deliveries by outcome: transactions and attempts without one.")
            }
            Self::DeliveryRecipients(_) => ("delivery_recipients_total", "Recipients of deliveries by outcome."),
            Self::DeliveryReasons(..) => {
                ("delivery_reasons_total", "Recipients that were not reached, by what became of them and why.")
            }
            Self::DeliveryDelay => {
                ("delivery_delay_seconds_sum", "Time from acceptance to delivery, over all that were sent.")
            }
            Self::DeliveryTime => {
                ("delivery_time_seconds_total", "Time of the attempt, over all deliveries that were sent.")
            }
            Self::RepliesCut => {
                ("delivery_replies_cut_total", "Deliveries with a reply of which the beginning alone was kept.")
            }
            Self::Reports(_) => ("reports_total", "Reports to senders and to the postmaster."),
            Self::ReportsDropped => ("reports_dropped_total", "Reports that nobody could take."),
            Self::TlsClient(_) => ("delivery_tls_handshakes_total", "TLS handshakes with next hops."),
            Self::DestinationsDown => ("destinations_down_total", "Destinations that could not be reached any more."),
            Self::DestinationsUp => ("destinations_up_total", "Destinations that were reached again."),
            Self::QueueCommands => ("queue_commands_total", "Changes of the queue by operators."),
            Self::EarlyTalkers => ("smtpd_early_talkers_total", "Clients that spoke before the greeting."),
            Self::DnsblListed => ("smtpd_dnsbl_listed_total", "Answers of block lists that name a client."),
            Self::Tls(_) => ("smtpd_tls_handshakes_total", "TLS handshakes."),
            Self::Auth(_) => ("smtpd_auth_total", "Authentications."),
            Self::ForeignProtocol => ("smtpd_foreign_protocol_total", "Sessions in another protocol, closed."),
            Self::BareNewlines => ("smtpd_bare_newlines_total", "Bare CR, LF or NUL in commands and content."),
            Self::NoMail => ("smtpd_sessions_without_mail_total", "Sessions without a message or a question."),
            Self::LostInput => ("smtpd_lost_connections_total", "Connections that broke within a transaction."),
            Self::Timeouts => ("smtpd_timeouts_total", "Sessions closed because the client was silent."),
            Self::Reloads(_) => ("config_reloads_total", "New configurations."),
            Self::Certificates(_) => ("certificate_loads_total", "Certificates read."),
            Self::ConfigWarnings => ("config_warnings_total", "Warnings about the configuration."),
            Self::Discarded => ("smtpd_discarded_total", "Messages accepted and dropped, as a map says."),
            Self::Cloned => ("smtpd_cloned_total", "Messages that a transaction became beside its first."),
            Self::HoldsEnded => ("queue_holds_ended_total", "Recipients that were held for a time that is over."),
            Self::Spool(_) => ("spool_events_total", "Events of the spool, by severity."),
            Self::LogDropped => ("log_lines_dropped_total", "Lines of the log that were lost."),
            Self::InternalErrors => ("internal_errors_total", "Faults of mailrace itself."),
            Self::Screened(_) => ("screen_decisions_total", "Decisions of content rules and filters."),
            Self::SenderChecks(..) => {
                ("sender_checks_total", "Results of sender authentication, one of each method for a message.")
            }
            Self::Signatures(..) => ("signatures_total", "Signatures of mail that leaves, made or failed."),
            Self::DeliveryDelays(_) => {
                ("delivery_delay_seconds_bucket", "Time from acceptance to delivery, once for each delivery.")
            }
        }
    }

    /// Appends the labels with their braces: `{limit="smtp.errors_max"}`; nothing where there are none.
    pub fn write_labels(self, out: &mut String) {
        let result = |done| if matches!(done, Done::Ok) { "ok" } else { "failed" };
        let (key, text) = match self {
            Self::Refused(limit) => ("limit", limit.name()),
            Self::Deliveries(outcome) | Self::DeliveryRecipients(outcome) => ("result", outcome.name()),
            Self::Reports(kind) => ("kind", kind.name()),
            Self::Screened(verdict) => ("verdict", verdict.name()),
            Self::DeliveryDelays(class) => ("le", class.bound()),
            Self::Tls(done)
            | Self::TlsClient(done)
            | Self::Auth(done)
            | Self::Reloads(done)
            | Self::Certificates(done) => ("result", result(done)),
            Self::Spool(severity) => ("severity", severity.name()),
            Self::Rejected(ruleset, temporary) => {
                let class = if matches!(temporary, Temporary::Yes) { "4xx" } else { "5xx" };
                put(out, format_args!("{{ruleset=\"{}\",class=\"{class}\"}}", ruleset.name()));
                return;
            }
            Self::Signatures(kind, done) => {
                put(out, format_args!("{{kind=\"{}\",result=\"{}\"}}", kind.name(), result(done)));
                return;
            }
            Self::SenderChecks(method, result) => {
                put(out, format_args!("{{method=\"{}\",result=\"{}\"}}", method.name(), result.name()));
                return;
            }
            Self::DeliveryReasons(what, reason) => {
                put(out, format_args!("{{result=\"{}\",reason=\"{reason}\"}}", what.name()));
                return;
            }
            _ => return,
        };
        put(out, format_args!("{{{key}=\"{text}\"}}"));
    }
}

/// Returns the counters that an event adds to, and by how much.
pub fn increments(event: &Event<'_>) -> impl Iterator<Item = (Counter, u64)> {
    let big = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
    let one = |counter| [Some((counter, 1)), None, None, None, None, None];
    let found = match *event {
        Event::Accepted { size, nrcpts, .. } => [
            Some((Counter::Messages, 1)),
            Some((Counter::MessageBytes, size)),
            Some((Counter::Recipients, big(nrcpts))),
            None,
            None,
            None,
        ],
        Event::Queued { to, .. } => [Some((Counter::QueuedRecipients, big(to.len()))), None, None, None, None, None],
        Event::Discarded { .. } => one(Counter::Discarded),
        Event::Screened { verdict, .. } => one(Counter::Screened(verdict)),
        Event::SenderChecked { results, .. } => {
            std::array::from_fn(|at| results.get(at).map(|(method, result)| (Counter::SenderChecks(*method, *result), 1)))
        }
        Event::Signed { kind, failure, .. } => {
            one(Counter::Signatures(kind, if failure.is_some() { Done::Failed } else { Done::Ok }))
        }
        Event::Cloned { .. } => one(Counter::Cloned),
        Event::Delivery { to, delay, xdelay, stat, reason, reply, .. } => {
            let outcome = Outcome::of(stat);
            let unreached = match stat {
                Stat::Sent(_) => None,
                Stat::Deferred(_) => Some(Unreached::Deferred),
                Stat::Failed(_) => Some(Unreached::Failed),
            };
            let why = unreached.zip(reason).map(|(what, reason)| Counter::DeliveryReasons(what, reason));
            let of_sent = |counter, time: Duration| {
                let milliseconds = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
                matches!(stat, Stat::Sent(_)).then_some((counter, milliseconds))
            };
            [
                Some((Counter::Deliveries(outcome), 1)),
                Some((Counter::DeliveryRecipients(outcome), big(to.len()))),
                why.map(|counter| (counter, big(to.len()))).or_else(|| of_sent(Counter::DeliveryDelay, delay)),
                of_sent(Counter::DeliveryTime, xdelay),
                reply.is_some_and(mail::Reply::is_cut).then_some((Counter::RepliesCut, 1)),
                matches!(stat, Stat::Sent(_)).then(|| (Counter::DeliveryDelays(DelayClass::of(delay)), 1)),
            ]
        }
        Event::Reported { kind, .. } => one(Counter::Reports(kind)),
        Event::Unreportable { .. } => one(Counter::ReportsDropped),
        Event::StartTlsClient { .. } => one(Counter::TlsClient(Done::Ok)),
        Event::TlsClientFailed { .. } => one(Counter::TlsClient(Done::Failed)),
        Event::DestinationDown { .. } => one(Counter::DestinationsDown),
        Event::DestinationUp { .. } => one(Counter::DestinationsUp),
        Event::QueueCommand { .. } | Event::StandingOrder { .. } => one(Counter::QueueCommands),
        Event::HoldEnded { recipients, .. } => [Some((Counter::HoldsEnded, recipients)), None, None, None, None, None],
        Event::LogDropped { lines } => [Some((Counter::LogDropped, lines)), None, None, None, None, None],
        Event::Started { .. }
        | Event::HttpCertificateRefused { .. }
        // The status of the cluster has its figures.
        | Event::Cluster { .. }
        | Event::Adopted { .. }
        | Event::Hardening { .. }
        | Event::Listening { .. }
        | Event::Stopping { .. }
        | Event::Stopped { .. }
        | Event::QuarantineDigest { .. }
        // Each refused recipient is counted as a limit that was reached.
        | Event::LoginOverLimit { .. }
        // For recipients whose messages are dropped whole, the message is counted.
        | Event::ExtensionAvoided { .. }
        // Another event counts the message.
        | Event::Ruled { .. }
        | Event::RecipientsDiscarded { .. } => [None; 6],
        Event::Connected { .. } => one(Counter::Connections),
        Event::ConnectionRefused { limit, .. } | Event::LimitReached { limit, .. } => one(Counter::Refused(limit)),
        Event::Rejected { ruleset, reply, .. } => {
            // Replies of refusals are 4xx or 5xx; any other code counts as final.
            let temporary = if reply.code().get() / 100 == 4 { Temporary::Yes } else { Temporary::No };
            one(Counter::Rejected(ruleset, temporary))
        }
        Event::TransactionRefused { .. } => one(Counter::TransactionsRefused),
        Event::EarlyTalker { .. } => one(Counter::EarlyTalkers),
        Event::DnsblListed { .. } => one(Counter::DnsblListed),
        Event::StartTls { .. } => one(Counter::Tls(Done::Ok)),
        Event::TlsFailed { .. } => one(Counter::Tls(Done::Failed)),
        Event::Auth { .. } => one(Counter::Auth(Done::Ok)),
        Event::AuthFailed { .. } => one(Counter::Auth(Done::Failed)),
        Event::ForeignProtocol { .. } => one(Counter::ForeignProtocol),
        Event::BareNewline { .. } => one(Counter::BareNewlines),
        Event::NoMail { .. } => one(Counter::NoMail),
        Event::LostInput { .. } => one(Counter::LostInput),
        Event::TimedOut { .. } => one(Counter::Timeouts),
        Event::Reloaded { .. } => one(Counter::Reloads(Done::Ok)),
        Event::ReloadRefused { .. } => one(Counter::Reloads(Done::Failed)),
        Event::CertificateLoaded { .. } => one(Counter::Certificates(Done::Ok)),
        Event::CertificateRefused { .. } => one(Counter::Certificates(Done::Failed)),
        Event::ConfigWarning { .. } | Event::FileRefused { .. } => one(Counter::ConfigWarnings),
        Event::Spool { severity, .. } => one(Counter::Spool(severity)),
        Event::InternalError { .. } => one(Counter::InternalErrors),
    };
    found.into_iter().flatten()
}

/// Appends all counters in the text format of Prometheus, and the delays as a histogram. `prefix` stands before each
/// name: `mailrace_`.
pub fn exposition(prefix: &str, value: impl Fn(Counter) -> u64, out: &mut String) {
    let mut family = "";
    // The histogram has the sum of delays.
    let has_own_line = |counter: &Counter| !matches!(counter, Counter::DeliveryDelay | Counter::DeliveryDelays(_));
    for counter in Counter::all().filter(has_own_line) {
        let name = counter.name();
        if name != family {
            put(out, format_args!("# HELP {prefix}{name} {}\n# TYPE {prefix}{name} counter\n", counter.help()));
            family = name;
        }
        out.push_str(prefix);
        out.push_str(name);
        counter.write_labels(out);
        match counter {
            Counter::DeliveryTime => put(out, format_args!(" {}\n", Seconds(value(counter)))),
            _ => put(out, format_args!(" {}\n", value(counter))),
        }
    }
    delays(prefix, value, out);
}

fn delays(prefix: &str, value: impl Fn(Counter) -> u64, out: &mut String) {
    let name = format!("{prefix}delivery_delay_seconds");
    let help = "Time from acceptance to delivery, once for each delivery.";
    put(out, format_args!("# HELP {name} {help}\n# TYPE {name} histogram\n"));
    let mut sum = 0_u64;
    for class in DelayClass::all() {
        sum = sum.saturating_add(value(Counter::DeliveryDelays(class)));
        put(out, format_args!("{name}_bucket{{le=\"{}\"}} {sum}\n", class.bound()));
    }
    put(out, format_args!("{name}_sum {}\n{name}_count {sum}\n", Seconds(value(Counter::DeliveryDelay))));
}

/// Milliseconds, written as seconds.
struct Seconds(u64);

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1_000, self.0 % 1_000)
    }
}

fn put(out: &mut String, arguments: fmt::Arguments<'_>) {
    out.write_fmt(arguments).expect("a string takes everything");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_counter_has_one_place_and_one_name() {
        let mut names = std::collections::HashSet::new();
        for (index, counter) in Counter::all().enumerate() {
            assert_eq!(counter.index(), index, "{counter:?}");
            let mut name = counter.name().to_owned();
            counter.write_labels(&mut name);
            assert!(names.insert(name), "{counter:?}");
        }
        assert_eq!(names.len(), Counter::COUNT);
    }

    #[test]
    fn every_limit_has_a_counter_and_moves_it() {
        let relay = crate::Relay::Local { user: "ann" };
        for limit in Limit::ALL {
            let event = Event::LimitReached { id: None, relay, limit, max: 1 };
            assert_eq!(increments(&event).collect::<Vec<_>>(), [(Counter::Refused(limit), 1)]);
            let mut labels = String::new();
            Counter::Refused(limit).write_labels(&mut labels);
            assert_eq!(labels, format!("{{limit=\"{}\"}}", limit.name()));
        }
    }

    #[test]
    fn what_is_sent_adds_its_delay() {
        let event = |stat, reply| Event::Delivery {
            id: mail::QueueId::MIN,
            to: &["<a@b>", "<c@d>"],
            controller: None,
            delay: Duration::from_millis(1_250),
            xdelay: Duration::from_micros(7_900),
            phases: mail::PhaseTimes::default(),
            mailer: "esmtp",
            priority: 0,
            relay: crate::NextHop::None,
            dsn: mail::EnhancedCode::of(mail::Outcome::Success, 0, 0),
            reply,
            stat,
            reason: (!matches!(stat, Stat::Sent(_))).then_some(Reason::Greylist),
        };
        let found: Vec<_> = increments(&event(Stat::Sent(""), None)).collect();
        assert_eq!(
            found,
            [
                (Counter::Deliveries(Outcome::Sent), 1),
                (Counter::DeliveryRecipients(Outcome::Sent), 2),
                (Counter::DeliveryDelay, 1_250),
                (Counter::DeliveryTime, 7),
                (Counter::DeliveryDelays(DelayClass::of(Duration::from_millis(1_250))), 1),
            ]
        );
        let long = mail::Reply::parse_beginning(b"550-one\r\n550 two\r\n", 1, 100).expect("a reply");
        let found: Vec<_> = increments(&event(Stat::Failed(""), Some(&long))).collect();
        assert_eq!(
            found,
            [
                (Counter::Deliveries(Outcome::Failed), 1),
                (Counter::DeliveryRecipients(Outcome::Failed), 2),
                (Counter::DeliveryReasons(Unreached::Failed, Reason::Greylist), 2),
                (Counter::RepliesCut, 1),
            ]
        );
    }

    #[test]
    fn delays_are_a_histogram_in_seconds() {
        let class = |milliseconds| Counter::DeliveryDelays(DelayClass::of(Duration::from_millis(milliseconds)));
        let mut text = String::new();
        let value = |counter| match counter {
            Counter::DeliveryDelay => 61_250,
            Counter::DeliveryTime => 7,
            _ if counter == class(1_250) => 2,
            _ if counter == class(58_750) => 1,
            _ => 0,
        };
        exposition("", value, &mut text);
        for line in ["_bucket{le=\"1\"} 0", "_bucket{le=\"2.5\"} 2", "_bucket{le=\"60\"} 3", "_sum 61.250", "_count 3"]
        {
            assert!(text.contains(&format!("\ndelivery_delay_seconds{line}\n")), "{line}: {text}");
        }
        assert!(text.contains("\ndelivery_time_seconds_total 0.007\n"), "{text}");
    }

    #[test]
    fn exposition_names_each_family_once() {
        let mut text = String::new();
        exposition("mailrace_", |counter| if counter == Counter::Messages { 7 } else { 0 }, &mut text);
        assert!(text.contains("\nmailrace_smtpd_messages_total 7\n"));
        assert!(text.contains("\nmailrace_smtpd_refused_total{limit=\"smtp.errors_max\"} 0\n"));
        assert!(text.contains("\nmailrace_deliveries_total{result=\"deferred\"} 0\n"));
        assert!(text.contains("\nmailrace_delivery_reasons_total{result=\"failed\",reason=\"spam\"} 0\n"));
        assert!(text.contains("\nmailrace_reports_total{kind=\"postmaster\"} 0\n"));
        assert!(text.contains("\nmailrace_delivery_tls_handshakes_total{result=\"failed\"} 0\n"));
        assert!(text.contains("\nmailrace_delivery_delay_seconds_bucket{le=\"+Inf\"} 0\n"));
        let mut families: Vec<&str> = text.lines().filter(|line| line.starts_with("# TYPE")).collect();
        let count = families.len();
        families.sort_unstable();
        families.dedup();
        assert_eq!(families.len(), count);
    }
}

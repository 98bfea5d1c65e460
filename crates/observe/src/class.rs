//! The name, severity and level of each event, and the stop on the message's way where it happens.
//!
//! One table for all of it. Names are stable: tools of operators match them.

use crate::{Event, NextHop, Relay, Ruleset, ScreenVerdict, Stat};
use mail::QueueId;

/// How grave an event is: the severities of syslog (RFC 5424 §6.2.1) that are in use.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Severity {
    /// Mail cannot be taken or may be lost; a person must act now.
    Critical = 2,
    /// A person must act.
    Error = 3,
    /// Unexpected but handled.
    Warning = 4,
    /// A client or recipient was refused.
    Notice = 5,
    /// The usual course.
    Info = 6,
}

impl Severity {
    /// The word in JSON: `crit`, `err`, `warning`, `notice`, `info`.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Critical => "crit",
            Self::Error => "err",
            Self::Warning => "warning",
            Self::Notice => "notice",
            Self::Info => "info",
        }
    }
}

/// The stop of a message's way at which an event happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stop {
    /// A connection is taken or turned away.
    Accept,
    /// Bytes become commands, replies become bytes.
    Session,
    /// May this sender send to this recipient?
    Admit,
    /// Content is judged.
    Screen,
    /// The transaction goes into the spool.
    Commit,
    /// A recipient gets a next hop.
    Resolve,
    /// The scheduler decides which mail is tried when.
    Dispatch,
    /// The message is handed to the next hop.
    Deliver,
    /// The outcome is recorded, and reported if it must be.
    Settle,
}

impl Stop {
    /// The word in JSON.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Accept => "accept",
            Self::Session => "session",
            Self::Admit => "admit",
            Self::Screen => "screen",
            Self::Commit => "commit",
            Self::Resolve => "resolve",
            Self::Dispatch => "dispatch",
            Self::Deliver => "deliver",
            Self::Settle => "settle",
        }
    }
}

/// The properties that all events of one kind share.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// Stable, in snake case: `message_accepted`.
    pub name: &'static str,
    /// sendmail's LogLevel from which on it is written, 0 to 20.
    pub level: u8,
    /// For syslog.
    pub severity: Severity,
    /// Where on the way; `None` for the process itself.
    pub stop: Option<Stop>,
}

impl<'a> Event<'a> {
    /// The table of names, levels, severities and stops.
    ///
    /// Levels are sendmail's: 1 failures and security, 2 lost connections, 4 refusals by rules, 6 errors, 7 failed, 8
    /// sent and 9 deferred deliveries, 9 the default and the usual course, 10 authentication, 12 connections. Events of
    /// the process itself and commands of an operator on mail have level 0.
    #[must_use]
    pub const fn class(&self) -> Class {
        use Severity::{Critical, Error, Info, Notice, Warning};
        use Stop::{Accept, Admit, Commit, Deliver, Dispatch, Screen, Session, Settle};
        let (name, level, severity, stop) = match *self {
            Self::Started { volatile: true, .. } => ("started", 0, Warning, None),
            Self::Started { .. } => ("started", 0, Info, None),
            Self::Hardening { severity, .. } => ("hardening", 0, severity, None),
            Self::Listening { .. } => ("listening", 0, Info, None),
            Self::Stopping { .. } => ("stopping", 0, Info, None),
            Self::Stopped { .. } => ("stopped", 0, Info, None),
            Self::Reloaded { .. } => ("reloaded", 0, Info, None),
            Self::ReloadRefused { .. } => ("reload_refused", 0, Error, None),
            Self::ConfigWarning { .. } => ("config_warning", 0, Warning, None),
            Self::FileRefused { .. } => ("file_refused", 0, Critical, None),
            Self::ExtensionAvoided { .. } => ("extension_avoided", 4, Notice, Some(Deliver)),
            Self::CertificateLoaded { .. } => ("certificate_loaded", 0, Info, None),
            Self::CertificateRefused { .. } => ("certificate_refused", 0, Error, None),

            Self::Connected { .. } => ("connected", 12, Info, Some(Accept)),
            Self::ConnectionRefused { .. } => ("connection_refused", 4, Notice, Some(Accept)),
            Self::EarlyTalker { .. } => ("early_talker", 4, Notice, Some(Accept)),
            Self::DnsblListed { .. } => ("dnsbl_listed", 9, Info, Some(Accept)),

            Self::StartTls { .. } => ("starttls", 9, Info, Some(Session)),
            Self::TlsFailed { .. } => ("tls_failed", 6, Warning, Some(Session)),
            Self::HttpCertificateRefused { .. } => ("http_certificate_refused", 6, Warning, None),
            Self::Auth { .. } => ("auth", 9, Info, Some(Session)),
            Self::AuthFailed { .. } => ("auth_failed", 1, Warning, Some(Session)),
            Self::LoginOverLimit { .. } => ("login_over_limit", 0, Critical, Some(Session)),
            Self::ForeignProtocol { .. } => ("foreign_protocol", 1, Notice, Some(Session)),
            Self::BareNewline { .. } => ("bare_newline", 3, Notice, Some(Session)),
            Self::LimitReached { .. } => ("limit_reached", 4, Notice, Some(Session)),
            Self::NoMail { .. } => ("no_mail", 6, Info, Some(Session)),
            Self::LostInput { .. } => ("lost_input", 2, Notice, Some(Session)),
            Self::TimedOut { .. } => ("timed_out", 2, Notice, Some(Session)),

            // sendmail does not write of commands that it does not know, or in a wrong order.
            Self::Rejected { ruleset: Ruleset::Command, reply, .. } if matches!(reply.code().get(), 500..=504) => {
                ("rejected", 10, Notice, Some(Session))
            }
            Self::Rejected { ruleset, .. } => {
                let stop = match ruleset {
                    Ruleset::Relay => Accept,
                    Ruleset::Helo | Ruleset::Vrfy | Ruleset::Expn | Ruleset::Command => Session,
                    Ruleset::Mail | Ruleset::Rcpt | Ruleset::Data => Admit,
                    Ruleset::Eom => Screen,
                };
                ("rejected", 4, Notice, Some(stop))
            }
            Self::Ruled { .. } => ("ruled", 4, Info, Some(Admit)),
            Self::TransactionRefused { .. } => ("transaction_refused", 5, Info, Some(Admit)),
            Self::Accepted { .. } => ("accepted", 5, Info, Some(Commit)),
            Self::Queued { .. } => ("queued", 9, Info, Some(Commit)),
            Self::Discarded { .. } => ("discarded", 5, Info, Some(Commit)),
            Self::RecipientsDiscarded { .. } => ("recipients_discarded", 5, Info, Some(Commit)),
            Self::Screened { verdict: ScreenVerdict::NotJudged, .. } => ("screened", 4, Warning, Some(Screen)),
            Self::Screened { .. } => ("screened", 4, Info, Some(Screen)),
            Self::SenderChecked { .. } => ("sender_checked", 9, Info, Some(Screen)),
            Self::Signed { failure: Some(_), .. } => ("signed", 4, Warning, Some(Deliver)),
            Self::Signed { .. } => ("signed", 9, Info, Some(Deliver)),
            Self::Cloned { .. } => ("cloned", 6, Info, Some(Commit)),

            Self::Delivery { stat: Stat::Sent(_), .. } => ("sent", 8, Info, Some(Settle)),
            Self::Delivery { stat: Stat::Deferred(_), .. } => ("deferred", 9, Info, Some(Settle)),
            Self::Delivery { stat: Stat::Failed(_), .. } => ("failed", 7, Notice, Some(Settle)),
            Self::Reported { .. } => ("reported", 6, Info, Some(Settle)),
            Self::Unreportable { .. } => ("unreportable", 1, Warning, Some(Settle)),
            Self::StartTlsClient { .. } => ("starttls_client", 9, Info, Some(Deliver)),
            Self::TlsClientFailed { .. } => ("tls_client_failed", 6, Warning, Some(Deliver)),
            Self::DestinationDown { .. } => ("destination_down", 6, Notice, Some(Dispatch)),
            Self::DestinationUp { .. } => ("destination_up", 6, Info, Some(Dispatch)),
            Self::QuarantineDigest { .. } => ("quarantine_digest", 0, Info, Some(Dispatch)),
            Self::HoldEnded { .. } => ("hold_ended", 0, Info, Some(Dispatch)),
            Self::QueueCommand { .. } => ("queue_command", 0, Info, Some(Dispatch)),
            Self::StandingOrder { .. } => ("standing_order", 0, Info, Some(Dispatch)),

            Self::Spool { severity, .. } => ("spool", 1, severity, Some(Commit)),
            Self::Cluster { severity, .. } => ("cluster", 1, severity, None),
            Self::Adopted { .. } => ("adopted", 0, Info, Some(Commit)),
            Self::LogDropped { .. } => ("log_dropped", 0, Warning, None),
            Self::InternalError { .. } => ("internal_error", 0, Error, None),
        };
        Class { name, level, severity, stop }
    }

    /// sendmail's LogLevel from which on the event is written, 0 to 20.
    #[must_use]
    pub const fn level(&self) -> u8 {
        self.class().level
    }

    /// How grave it is, for syslog.
    #[must_use]
    pub const fn severity(&self) -> Severity {
        self.class().severity
    }

    /// Its stable name.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        self.class().name
    }

    /// The stop of the message's way; `None` for the process itself.
    #[must_use]
    pub const fn stop(&self) -> Option<Stop> {
        self.class().stop
    }

    /// The message it is about: what stands before the line, `NOQUEUE` if there is none.
    #[must_use]
    pub const fn id(&self) -> Option<QueueId> {
        match *self {
            Self::Accepted { id, .. }
            | Self::Queued { id, .. }
            | Self::Discarded { id }
            | Self::RecipientsDiscarded { id, .. }
            | Self::Screened { id, .. }
            | Self::SenderChecked { id, .. }
            | Self::Signed { id, .. }
            | Self::Cloned { id, .. }
            | Self::Delivery { id, .. }
            | Self::QuarantineDigest { id, .. }
            | Self::HoldEnded { id, .. }
            | Self::Adopted { id, .. }
            | Self::Reported { id, .. }
            | Self::Unreportable { id, .. } => Some(id),
            Self::EarlyTalker { id, .. }
            | Self::AuthFailed { id, .. }
            | Self::ForeignProtocol { id, .. }
            | Self::NoMail { id, .. }
            | Self::Ruled { id, .. }
            | Self::BareNewline { id, .. }
            | Self::LimitReached { id, .. }
            | Self::LostInput { id, .. }
            | Self::TimedOut { id, .. }
            | Self::Rejected { id, .. }
            | Self::TransactionRefused { id, .. }
            | Self::QueueCommand { id, .. } => id,
            _ => None,
        }
    }

    /// The next hop, where the event has to do with one.
    #[must_use]
    pub const fn next_hop(&self) -> Option<NextHop<'a>> {
        match *self {
            Self::Delivery { relay, .. } | Self::StartTlsClient { relay, .. } | Self::TlsClientFailed { relay, .. } => {
                Some(relay)
            }
            _ => None,
        }
    }

    /// The client, where there is one.
    #[must_use]
    pub const fn relay(&self) -> Option<Relay<'a>> {
        match *self {
            Self::Connected { relay, .. }
            | Self::ConnectionRefused { relay, .. }
            | Self::EarlyTalker { relay, .. }
            | Self::DnsblListed { relay, .. }
            | Self::StartTls { relay, .. }
            | Self::TlsFailed { relay, .. }
            | Self::HttpCertificateRefused { relay, .. }
            | Self::Auth { relay, .. }
            | Self::AuthFailed { relay, .. }
            | Self::LoginOverLimit { relay, .. }
            | Self::ForeignProtocol { relay, .. }
            | Self::BareNewline { relay, .. }
            | Self::LimitReached { relay, .. }
            | Self::NoMail { relay, .. }
            | Self::LostInput { relay, .. }
            | Self::TimedOut { relay, .. }
            | Self::Rejected { relay, .. }
            | Self::Ruled { relay, .. }
            | Self::TransactionRefused { relay, .. }
            | Self::Accepted { relay, .. } => Some(relay),
            _ => None,
        }
    }
}

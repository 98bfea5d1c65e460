//! The configuration in force, and the values that are made from it. A reload replaces all of them as a whole.

use crate::admit::Policies;
use crate::admit::relay::Rights;
use crate::auth::Authenticator;
use crate::config::{Config, DeliveryMode, Loaded};
use crate::dns::LocalIdentity;
use crate::next_hop::smart_hosts;
use crate::screen::Screen;
use crate::signing::SigningKeys;
use mail::Envelope;
use observe::Limit;
use observe::reason::Rules;
use operator::http::HttpAccess;
use os::addresses;
use schedule::RetryPolicy;
use spool::envelope::Encoded;
use std::net::IpAddr;
use std::sync::Arc;

/// Values that a reload replaces as a whole.
#[derive(Clone, Debug)]
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
    /// Keys that sign mail that leaves.
    pub(crate) signing: Arc<SigningKeys>,
    /// The configuration with the places where its values were set; a sink has none.
    pub(crate) loaded: Option<Arc<Loaded>>,
    /// Names and tokens of HTTP.
    pub(crate) http: Arc<HttpAccess>,
    /// When recipients are tried again.
    pub(crate) retry: RetryPolicy,
    /// Everything that judges the content of mail; `None`: nothing does.
    pub(crate) screen: Option<Arc<Screen>>,
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
            signing: Arc::default(),
            loaded: None,
            http: Arc::default(),
            retry,
            screen: None,
            smart_hosts,
        }
    }

    /// Returns the same, with the rules that the configuration names.
    pub(crate) fn with_reasons(mut self, reasons: Rules) -> Self {
        self.reasons = Arc::new(reasons);
        self
    }

    /// Returns the same, with what judges the content of mail.
    pub(crate) fn with_screen(mut self, screen: Option<Arc<Screen>>) -> Self {
        self.screen = screen;
        self
    }

    /// Returns the same, with keys that sign.
    pub(crate) fn with_signing(mut self, keys: Arc<SigningKeys>) -> Self {
        self.signing = keys;
        self
    }

    /// Returns the same, with the places where values were set.
    pub(crate) fn with_loaded(mut self, loaded: Option<Arc<Loaded>>) -> Self {
        self.loaded = loaded;
        self
    }

    /// Returns the same, with names and tokens of HTTP.
    pub(crate) fn with_http(mut self, access: Arc<HttpAccess>) -> Self {
        self.http = access;
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
            Limit::ScreenBacklogMax => self.config.screen.backlog_max,
            Limit::ScreenBacklogBytesMax => self.config.screen.backlog_bytes_max,
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

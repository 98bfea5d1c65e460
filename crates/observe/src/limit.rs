//! The limits of the server by their names in the configuration.
//!
//! A limit that is reached says so with its name: in the log line, in JSON and as the label of a counter. Names that
//! this table does not know become [`Limit::Other`], so that nothing goes uncounted; a test in the server compares the
//! table with the limits that exist.

/// A limit that can be reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
#[expect(missing_docs, reason = "each is the key or the tag of its name, which the configuration explains")]
pub enum Limit {
    AcceptConnectionsMax,
    AcceptConnectionsPerClient,
    AcceptRate,
    AcceptRatePerClient,
    AccessClientConn,
    AccessClientRate,
    ListenConnectionsMax,
    MessageSizeMax,
    MessageRecipientsMax,
    MessageHopsMax,
    MessageHeaderFieldsMax,
    MessageHeaderBytesMax,
    MessageLineBytesMax,
    SmtpCommandLineBytesMax,
    SmtpAuthLineBytesMax,
    SmtpTransactionsMax,
    SmtpErrorsMax,
    SmtpRefusedRecipientsMax,
    SmtpIdleCommandsMax,
    SmtpCommandTimeMax,
    SmtpTransactionTimeMax,
    SmtpSessionTimeMax,
    SmtpRateBytesMin,
    SmtpRateWindow,
    TlsHandshakeTimeMax,
    AuthProgramTimeMax,
    AuthFailuresPerClient,
    AuthFailuresPerUser,
    AuthRecipientsHourMax,
    DnsTimeout,
    DnsblTimeMax,
    SpoolSizeMax,
    SpoolFreeMin,
    ServerShutdownGrace,
    SubmitFilesMax,
    SubmitUserFilesMax,
    SubmitUserCommandsMax,
    ScreenBacklogMax,
    ScreenBacklogBytesMax,
    Other,
}

impl Limit {
    /// Every limit, in the order of their numbers.
    pub const ALL: [Self; 40] = [
        Self::AcceptConnectionsMax,
        Self::AcceptConnectionsPerClient,
        Self::AcceptRate,
        Self::AcceptRatePerClient,
        Self::AccessClientConn,
        Self::AccessClientRate,
        Self::ListenConnectionsMax,
        Self::MessageSizeMax,
        Self::MessageRecipientsMax,
        Self::MessageHopsMax,
        Self::MessageHeaderFieldsMax,
        Self::MessageHeaderBytesMax,
        Self::MessageLineBytesMax,
        Self::SmtpCommandLineBytesMax,
        Self::SmtpAuthLineBytesMax,
        Self::SmtpTransactionsMax,
        Self::SmtpErrorsMax,
        Self::SmtpRefusedRecipientsMax,
        Self::SmtpIdleCommandsMax,
        Self::SmtpCommandTimeMax,
        Self::SmtpTransactionTimeMax,
        Self::SmtpSessionTimeMax,
        Self::SmtpRateBytesMin,
        Self::SmtpRateWindow,
        Self::TlsHandshakeTimeMax,
        Self::AuthProgramTimeMax,
        Self::AuthFailuresPerClient,
        Self::AuthFailuresPerUser,
        Self::AuthRecipientsHourMax,
        Self::DnsTimeout,
        Self::DnsblTimeMax,
        Self::SpoolSizeMax,
        Self::SpoolFreeMin,
        Self::ServerShutdownGrace,
        Self::SubmitFilesMax,
        Self::SubmitUserFilesMax,
        Self::SubmitUserCommandsMax,
        Self::ScreenBacklogMax,
        Self::ScreenBacklogBytesMax,
        Self::Other,
    ];

    /// The key in the configuration: `smtp.errors_max`; `access.ClientRate` for a tag of the access map; `other` for
    /// [`Limit::Other`].
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::AcceptConnectionsMax => "accept.connections_max",
            Self::AcceptConnectionsPerClient => "accept.connections_per_client",
            Self::AcceptRate => "accept.rate",
            Self::AcceptRatePerClient => "accept.rate_per_client",
            Self::AccessClientConn => "access.ClientConn",
            Self::AccessClientRate => "access.ClientRate",
            Self::ListenConnectionsMax => "listen.connections_max",
            Self::MessageSizeMax => "message.size_max",
            Self::MessageRecipientsMax => "message.recipients_max",
            Self::MessageHopsMax => "message.hops_max",
            Self::MessageHeaderFieldsMax => "message.header_fields_max",
            Self::MessageHeaderBytesMax => "message.header_bytes_max",
            Self::MessageLineBytesMax => "message.line_bytes_max",
            Self::SmtpCommandLineBytesMax => "smtp.command_line_bytes_max",
            Self::SmtpAuthLineBytesMax => "smtp.auth_line_bytes_max",
            Self::SmtpTransactionsMax => "smtp.transactions_max",
            Self::SmtpErrorsMax => "smtp.errors_max",
            Self::SmtpRefusedRecipientsMax => "smtp.refused_recipients_max",
            Self::SmtpIdleCommandsMax => "smtp.idle_commands_max",
            Self::SmtpCommandTimeMax => "smtp.command_time_max",
            Self::SmtpTransactionTimeMax => "smtp.transaction_time_max",
            Self::SmtpSessionTimeMax => "smtp.session_time_max",
            Self::SmtpRateBytesMin => "smtp.rate_bytes_min",
            Self::SmtpRateWindow => "smtp.rate_window",
            Self::TlsHandshakeTimeMax => "tls.handshake_time_max",
            Self::AuthProgramTimeMax => "auth.program_time_max",
            Self::AuthFailuresPerClient => "auth.failures_per_client",
            Self::AuthFailuresPerUser => "auth.failures_per_user",
            Self::AuthRecipientsHourMax => "auth.recipients_hour_max",
            Self::DnsTimeout => "dns.timeout",
            Self::DnsblTimeMax => "dnsbl.time_max",
            Self::SpoolSizeMax => "spool.size_max",
            Self::SpoolFreeMin => "spool.free_min",
            Self::ServerShutdownGrace => "server.shutdown_grace",
            Self::SubmitFilesMax => "submit.files_max",
            Self::SubmitUserFilesMax => "submit.user_files_max",
            Self::SubmitUserCommandsMax => "submit.user_commands_max",
            Self::ScreenBacklogMax => "screen.backlog_max",
            Self::ScreenBacklogBytesMax => "screen.backlog_bytes_max",
            Self::Other => "other",
        }
    }

    /// The limit with this key in the configuration, [`Limit::Other`] if there is none.
    #[must_use]
    pub fn from_name(name: &str) -> Self {
        Self::ALL.into_iter().find(|limit| limit.name() == name).unwrap_or(Self::Other)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back() {
        for (index, limit) in Limit::ALL.into_iter().enumerate() {
            assert_eq!(limit as usize, index);
            assert_eq!(Limit::from_name(limit.name()), limit);
        }
        assert_eq!(Limit::from_name("smtp.no_such_limit"), Limit::Other);
    }
}

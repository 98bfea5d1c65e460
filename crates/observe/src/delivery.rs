//! Parts of the events of delivery: the relay, the result, and the report that was made.

use mail::Reply;
use std::net::IpAddr;

/// The host at the other end of a delivery: the value of `relay=`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum NextHop<'a> {
    /// A host that was connected to, or tried: `name [ip]`; without a name `[ip] [ip]`, as sendmail has it.
    Host {
        /// Its name in the MX record or in the configuration.
        name: Option<&'a str>,
        /// The address.
        address: IpAddr,
    },
    /// Only a name is known: there was no address, or none was tried.
    Name(&'a str),
    /// It did not come to a host; the line has no `relay=`.
    None,
}

impl<'a> NextHop<'a> {
    /// The name, where there is one.
    #[must_use]
    pub const fn name(self) -> Option<&'a str> {
        match self {
            Self::Host { name, .. } => name,
            Self::Name(name) => Some(name),
            Self::None => None,
        }
    }

    /// The address, where there is one.
    #[must_use]
    pub const fn address(self) -> Option<IpAddr> {
        match self {
            Self::Host { address, .. } => Some(address),
            Self::Name(_) | Self::None => None,
        }
    }
}

/// The result of a delivery to some recipients: the value of `stat=`, without its first word.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stat<'a> {
    /// The next hop has taken the message. The text of its reply, without the codes: `stat=Sent (Ok: queued as
    /// 4F1D2A)`.
    Sent(&'a str),
    /// It will be tried again. The reply with its codes, or what kept it from coming to one:
    /// `stat=Deferred: Connection refused by [127.0.0.3]`.
    Deferred(&'a str),
    /// It will not be tried again, and the sender is told: `stat=User unknown`. See [`Stat::refusal`].
    Failed(&'a str),
}

impl<'a> Stat<'a> {
    /// The word in JSON and in counters.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Sent(_) => "sent",
            Self::Deferred(_) => "deferred",
            Self::Failed(_) => "failed",
        }
    }

    /// The text.
    #[must_use]
    pub const fn text(self) -> &'a str {
        match self {
            Self::Sent(text) | Self::Deferred(text) | Self::Failed(text) => text,
        }
    }

    /// sendmail's words for a permanent refusal, for [`Stat::Failed`]; the reply itself stands in `reply=`.
    ///
    /// sendmail goes by the code alone and calls a recipient unknown that was refused for the content of his mail. Here
    /// an enhanced code decides where there is one (RFC 3463 §3.2: 5.1.x is about addresses).
    #[must_use]
    pub fn refusal(reply: &Reply, of_recipient: bool) -> &'static str {
        match reply.enhanced().map(|code| (code.subject(), code.detail())) {
            Some((1, 2)) => "Host unknown",
            Some((1, 0 | 1 | 3 | 6 | 10)) if of_recipient => "User unknown",
            Some(_) => "Service unavailable",
            None if of_recipient && matches!(reply.code().get(), 550 | 551 | 553) => "User unknown",
            None => "Service unavailable",
        }
    }
}

/// The kind of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum ReportKind {
    /// To the sender: failed, delivered, relayed.
    Dsn,
    /// To the sender: still waiting, nothing for him to do.
    Delayed,
    /// To the postmaster: a report that its sender cannot take.
    Postmaster,
}

impl ReportKind {
    /// Every kind.
    pub const ALL: [Self; 3] = [Self::Dsn, Self::Delayed, Self::Postmaster];

    /// sendmail's words in the line.
    #[must_use]
    pub const fn words(self) -> &'static str {
        match self {
            Self::Dsn => "DSN",
            Self::Delayed => "sender notify",
            Self::Postmaster => "postmaster notify",
        }
    }

    /// The word in JSON and in counters.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Dsn => "dsn",
            Self::Delayed => "delayed",
            Self::Postmaster => "postmaster",
        }
    }
}

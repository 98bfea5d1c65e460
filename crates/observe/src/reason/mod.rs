//! Why a recipient was not reached, as one of a few words: for counters, for log lines that can be grouped, for people
//! who look for the most frequent failures.
//!
//! [`Rules`] read the words of a reply, or ours where there was none, and give a [`Reason`]. The rules are a file that
//! people can read and replace (`default.rules`, docs/log.md); the first that fits counts. A rule may also say that the
//! destination asks for less, which the pace of delivery follows.
//!
//! Nothing of this decides whether a message is tried again: that is the reply's code alone.

mod rules;
#[cfg(test)]
mod tests;

pub use rules::{RULES_MAX, Rule, RuleError, RuleMatch, Rules};

use mail::{EnhancedCode, Reply};
use std::fmt;

/// Why a recipient was not reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
pub enum Reason {
    /// Too much, too fast, too many connections.
    Rate,
    /// This server, its network or the sender's domain is not wanted there.
    Block,
    /// The message is taken for unwanted mail.
    Spam,
    /// The message's form or size is not taken.
    Message,
    /// One of the servers, or its names, are not set up for this mail.
    Config,
    /// There is no such recipient, or he takes no mail.
    Recipient,
    /// A mailbox or a server is full or too busy.
    Capacity,
    /// Senders that are not known yet are to come again.
    Greylist,
    /// No connection came about, or it broke.
    Network,
    /// The reply is no SMTP, or the command was not understood.
    Protocol,
    /// Proof of the sender is missing: SPF, DKIM, DMARC, a login, a certificate.
    Auth,
    /// A public block list names this server or something in the message.
    Blacklist,
    /// The sender's address, or the two together, are not taken.
    Envelope,
    /// None of these.
    Other,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 14] = [
        Self::Rate,
        Self::Block,
        Self::Spam,
        Self::Message,
        Self::Config,
        Self::Recipient,
        Self::Capacity,
        Self::Greylist,
        Self::Network,
        Self::Protocol,
        Self::Auth,
        Self::Blacklist,
        Self::Envelope,
        Self::Other,
    ];

    /// The word in files of rules, in log lines and in counters.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Rate => "rate",
            Self::Block => "block",
            Self::Spam => "spam",
            Self::Message => "message",
            Self::Config => "config",
            Self::Recipient => "recipient",
            Self::Capacity => "capacity",
            Self::Greylist => "greylist",
            Self::Network => "network",
            Self::Protocol => "protocol",
            Self::Auth => "auth",
            Self::Blacklist => "blacklist",
            Self::Envelope => "envelope",
            Self::Other => "other",
        }
    }

    /// Returns the meaning in a few words.
    #[must_use]
    pub const fn meaning(self) -> &'static str {
        match self {
            Self::Rate => "too much or too fast for them",
            Self::Block => "this server or sender is not wanted there",
            Self::Spam => "the message is taken for unwanted mail",
            Self::Message => "the message's form or size is not taken",
            Self::Config => "servers or names are not set up for this mail",
            Self::Recipient => "no such recipient, or he takes no mail",
            Self::Capacity => "a mailbox or a server is full or busy",
            Self::Greylist => "unknown senders are to come again",
            Self::Network => "no connection came about, or it broke",
            Self::Protocol => "what was said is no SMTP or was not understood",
            Self::Auth => "proof of who sends is missing",
            Self::Blacklist => "a public block list names this server or the content",
            Self::Envelope => "the sender's address is not taken",
            Self::Other => "none of the other reasons",
        }
    }

    /// The reason of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| reason.name() == name)
    }
}

impl fmt::Display for Reason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// Where in a conversation something was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Stage {
    /// Before any conversation: names, addresses, the connection, the greeting.
    Connect,
    /// EHLO, HELO, LHLO.
    Hello,
    /// STARTTLS and the handshake.
    Tls,
    /// MAIL, and RSET before it.
    Mail,
    /// RCPT
    Rcpt,
    /// DATA, up to its 354.
    Data,
    /// The content and its end.
    End,
}

impl Stage {
    /// All of them.
    pub const ALL: [Self; 7] = [Self::Connect, Self::Hello, Self::Tls, Self::Mail, Self::Rcpt, Self::Data, Self::End];

    /// The word in files of rules.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Connect => "connect",
            Self::Hello => "hello",
            Self::Tls => "tls",
            Self::Mail => "mail",
            Self::Rcpt => "rcpt",
            Self::Data => "data",
            Self::End => "end",
        }
    }

    /// The stage of this name.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|stage| stage.name() == name)
    }
}

/// Something that kept a recipient from being reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Case<'a> {
    /// Where, as far as it is known; rules for one stage do not fit where it is not.
    pub stage: Option<Stage>,
    /// The code of the reply; `None` where there was no reply.
    pub code: Option<u16>,
    /// The status, of the reply or ours.
    pub status: Option<EnhancedCode>,
    /// The words: of the reply, its lines joined by spaces and without codes, or ours.
    pub text: &'a str,
}

/// The words of a reply as [`Case::text`] has them.
#[must_use]
pub fn words_of(reply: &Reply) -> String {
    let mut words = String::new();
    for line in reply.lines() {
        if !words.is_empty() {
            words.push(' ');
        }
        words.push_str(line);
        if words.len() >= rules::TEXT_OCTETS_MAX {
            break;
        }
    }
    words
}

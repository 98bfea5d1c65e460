//! The words of the file for values of which there are few, each with its meaning.

use super::field::Field;
use super::value::Value;
use super::{
    Acknowledge, AddressFamily, BadLine, CopyDsn, DelayChecks, DeliveryMode, FilterFailure, FilterKind, FilterReject,
    FilterStage, HttpRole, LdapDetail, LdapReferrals, ListenProtocol, ListenTls, LogFormat, Mailq, OnNoReplica,
    Precedence, RouteProtocol, RouteTls, RuleAcknowledge, RuleAt, SenderCheck, SenderFailure, SenderTempError, Unknown,
    WebhookEvent, WebhookFormat,
};
use smtp::server::{BareNewline, Forgiving};

/// Words and what they mean.
pub(crate) type Words = &'static [(&'static str, &'static str)];

/// A type with a word for each of its values.
pub(crate) trait Choice: Copy + PartialEq + 'static {
    /// The words, in the order of [`Self::ALL`].
    const WORDS: Words;
    /// The values.
    const ALL: &'static [Self];
}

macro_rules! choices {
    ($($name:ident { $($variant:ident = $word:literal: $meaning:literal,)* })*) => {$(
        impl Choice for $name {
            const WORDS: Words = &[$(($word, $meaning)),*];
            const ALL: &'static [Self] = &[$(Self::$variant),*];
        }
        impl Field for $name {
            fn value(&self) -> Value {
                let at = Self::ALL.iter().position(|value| value == self).unwrap_or_default();
                Value::Text(Self::WORDS.get(at).map_or("", |(word, _)| word).to_owned())
            }
            fn of(value: &Value) -> Option<Self> {
                let Value::Text(text) = value else { return None };
                let at = Self::WORDS.iter().position(|(word, _)| word == text)?;
                Self::ALL.get(at).copied()
            }
        }
    )*};
}

choices! {
    ListenProtocol {
        Smtp = "smtp": "mail from other servers",
        Submission = "submission": "mail from users (RFC 6409); AUTH required, unless auth_required = false",
        Lmtp = "lmtp": "local delivery, a reply per recipient (RFC 2033)",
    }
    ListenTls {
        None = "none": "no TLS",
        StartTls = "starttls": "offered by the STARTTLS command",
        Implicit = "implicit": "from the first byte, as on port 465",
    }
    Acknowledge {
        Durable = "durable": "when the message is on stable storage",
        Race = "race": "then, or when every next hop has taken it, whichever is first",
        Interactive = "interactive": "when every next hop has taken it; else stored",
    }
    OnNoReplica {
        TempFail = "tempfail": "451, the client tries again",
        AcceptLocal = "accept_local": "250 when it is on the own disk; it waits there while this node is away",
    }
    RuleAcknowledge {
        Listener = "listener": "as listen.acknowledge of the listener says",
        Durable = "durable": "when the message is on stable storage",
        Race = "race": "then, or when every next hop has taken it, whichever is first",
        Interactive = "interactive": "when every next hop has taken it; else stored",
    }
    BareNewline {
        Reject = "reject": "the message is refused",
        Own = "own": "normalize for relay.from and logged-in clients, else reject",
        Normalize = "normalize": "each becomes CRLF; none ends DATA",
    }
    HttpRole {
        None = "none": "nothing but /healthz",
        View = "view": "look at everything but the content of mail",
        Operate = "operate": "also change the queue and read header sections",
    }
    Forgiving {
        None = "none": "no client",
        Own = "own": "relay.from and logged-in clients",
        All = "all": "every client",
    }
    DeliveryMode {
        Background = "background": "as soon as a message is accepted",
        Queue = "queue": "on command (mailrace queue retry)",
    }
    RouteProtocol {
        Smtp = "smtp": "SMTP (RFC 5321)",
        Lmtp = "lmtp": "LMTP (RFC 2033); needs route.smart_host",
    }
    RouteTls {
        None = "none": "no TLS",
        Opportunistic = "opportunistic": "STARTTLS where it works, else clear text",
        Required = "required": "no mail without STARTTLS",
    }
    BadLine {
        Skip = "skip": "left out; the others count",
        KeepOld = "keep-old": "the old map stays; no start",
    }
    DelayChecks {
        No = "no": "clients and senders are checked at once",
        Yes = "yes": "at RCPT",
        Friend = "friend": "at RCPT, not for Spam:… FRIEND",
        Hater = "hater": "at RCPT, only for Spam:… HATER",
    }
    Precedence {
        Recipient = "recipient": "mailertable first, as sendmail",
        Sender = "sender": "smarttable before mailertable",
    }
    RuleAt {
        First = "first": "before all maps",
        BeforeVirtual = "before-virtusertable": "behind domaintable",
        BeforeLocal = "before-local": "behind virtusertable, before users and aliases",
        BeforeMailertable = "before-mailertable": "for recipients elsewhere",
        Last = "last": "behind mailertable and smarttable",
    }
    LdapDetail {
        Keep = "keep": "it is part of the name",
        Strip = "strip": "also looked up without it",
        Preserve = "preserve": "the same, and mailRoutingAddress gets it",
    }
    LdapReferrals {
        Defer = "defer": "not found: waits, 451",
        Ignore = "ignore": "not found: absent",
    }
    CopyDsn {
        Never = "never": "no",
        AsOriginal = "as-original": "as for the message itself",
    }
    AddressFamily {
        Any = "any": "IPv6 and IPv4",
        Ipv4 = "ipv4": "IPv4 alone",
        Ipv6 = "ipv6": "IPv6 alone",
    }
    Unknown {
        Refuse = "refuse": "550 5.1.1, it does not exist",
        Defer = "defer": "450 4.1.1, try again later",
    }
    WebhookEvent {
        Accepted = "accepted": "a message is durable",
        Sent = "sent": "a next hop has taken recipients",
        Deferred = "deferred": "recipients wait for another attempt",
        Failed = "failed": "recipients are given up",
        Reported = "reported": "a report to a sender was made",
        Queued = "queued": "a message waits for a queue run or a person",
        Discarded = "discarded": "a message was dropped by a rule",
        Screened = "screened": "a rule or filter has decided",
        QueueCommand = "queue_command": "an operator has changed the queue",
        DestinationDown = "destination_down": "a destination cannot be reached",
        DestinationUp = "destination_up": "a destination is reached again",
    }
    WebhookFormat {
        Json = "json": "a list of events as the log has them, signed",
        Otlp = "otlp": "spans of OTLP/JSON, for the path /v1/traces of a collector of OpenTelemetry",
    }
    SenderCheck {
        Iprev = "iprev": "the address of the client has a name that leads back to it",
        Spf = "spf": "the client may send for the domain of the sender (RFC 7208)",
        Dkim = "dkim": "signatures are right (RFC 6376)",
        Dmarc = "dmarc": "SPF or DKIM vouches for the domain in From (RFC 9989)",
        Arc = "arc": "the chain of relays before us is whole (RFC 8617)",
    }
    SenderFailure {
        None = "none": "the result is reported, nothing else",
        Tag = "tag": "the field X-Sender-Check names the failure",
        Quarantine = "quarantine": "held in quarantine, for the administrator",
        Reject = "reject": "refused: 550",
    }
    SenderTempError {
        Pass = "pass": "the message passes",
        Defer = "defer": "451, the client tries again",
    }
    FilterKind {
        Milter = "milter": "sendmail's milter protocol",
        Policy = "policy": "Postfix's policy delegation",
        Clamd = "clamd": "ClamAV",
        Spamd = "spamd": "SpamAssassin",
        Rspamd = "rspamd": "rspamd, over HTTP",
        Smtp = "smtp": "a filter that takes mail by SMTP and gives it back by SMTP, as amavisd-new",
        Lmtp = "lmtp": "the same, which takes it by LMTP",
    }
    FilterStage {
        Before250 = "before-250": "while the client waits for its answer",
        After250 = "after-250": "when the message is durable and accepted",
    }
    FilterFailure {
        Defer = "defer": "451, the client tries again",
        Pass = "pass": "as if there were no such filter",
        Tag = "tag": "the same, with a header field that says so",
        Quarantine = "quarantine": "held for a decision",
        Later = "later": "accepted, and judged when the filter is back",
    }
    FilterReject {
        Quarantine = "quarantine": "held for a decision",
        Bounce = "bounce": "its sender gets a report; without a sender as quarantine",
        Discard = "discard": "dropped",
    }
    Mailq {
        Everyone = "everyone": "all of it",
        Own = "own": "own messages",
        Operators = "operators": "nothing",
    }
    LogFormat {
        Sendmail = "sendmail": "the lines that tools for sendmail's log read",
        Json = "json": "one JSON object a line",
    }
}

/// Facilities of syslog.
pub(crate) const FACILITIES: Words = &[
    ("mail", "mail system"),
    ("daemon", "other daemons"),
    ("user", "programs of users"),
    ("local0", "local use"),
    ("local1", "local use"),
    ("local2", "local use"),
    ("local3", "local use"),
    ("local4", "local use"),
    ("local5", "local use"),
    ("local6", "local use"),
    ("local7", "local use"),
];

/// How mailbox files are locked.
pub(crate) const LOCKS: Words = &[("dotlock", "a file NAME.lock"), ("fcntl", "a kernel lock")];

/// Versions of TLS.
pub(crate) const TLS_VERSIONS: Words = &[("1.2", "RFC 5246; for old clients"), ("1.3", "RFC 8446 only")];

/// Extensions of SMTP that can be left out.
pub(crate) const EXTENSIONS: Words = &[
    ("MT-PRIORITY", "urgency of a message (RFC 6710)"),
    ("DELIVERBY", "deadline of a message (RFC 2852)"),
    ("FUTURERELEASE", "time of sending (RFC 4865); on submission"),
];

/// SASL mechanisms.
pub(crate) const MECHANISMS: Words = &[
    ("SCRAM-SHA-256", "no password on the wire; needs such entries in auth.file"),
    ("PLAIN", "in one line (RFC 4616)"),
    ("LOGIN", "in two questions, for old clients"),
];

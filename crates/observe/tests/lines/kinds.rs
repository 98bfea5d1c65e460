//! Events of every kind over the same few values.

use mail::{Body, Node, Protocol, QueueId, Reply};
use observe::{Event, Limit, Relay, Ruleset, Severity};
use std::net::IpAddr;

/// Values to make events of.
#[derive(Clone, Debug)]
pub(crate) struct Values {
    pub(crate) a: String,
    pub(crate) b: String,
    pub(crate) c: String,
    pub(crate) list: Vec<String>,
    pub(crate) number: u64,
    pub(crate) flag: bool,
    pub(crate) address: IpAddr,
    pub(crate) limit: Limit,
    pub(crate) ruleset: Ruleset,
    pub(crate) reply: Reply,
}

pub(crate) fn queue_id() -> QueueId {
    // 2026-11-20 13:00:00 UTC
    QueueId::new(1_795_179_600_000_000, Node::default()).unwrap()
}

/// How many kinds there are.
pub(crate) const COUNT: usize = 30;

/// The number of the event's kind. No `_` here: a new event has to be added below too.
pub(crate) fn kind(event: &Event<'_>) -> usize {
    match event {
        Event::Started { .. } => 0,
        Event::Listening { .. } => 1,
        Event::Stopping { .. } => 2,
        Event::Stopped { .. } => 3,
        Event::Reloaded { .. } => 4,
        Event::ReloadRefused { .. } => 5,
        Event::ConfigWarning { .. } => 6,
        Event::CertificateLoaded { .. } => 7,
        Event::CertificateRefused { .. } => 8,
        Event::Connected { .. } => 9,
        Event::ConnectionRefused { .. } => 10,
        Event::EarlyTalker { .. } => 11,
        Event::DnsblListed { .. } => 12,
        Event::StartTls { .. } => 13,
        Event::TlsFailed { .. } => 14,
        Event::Auth { .. } => 15,
        Event::AuthFailed { .. } => 16,
        Event::ForeignProtocol { .. } => 17,
        Event::BareNewline { .. } => 18,
        Event::LimitReached { .. } => 19,
        Event::NoMail { .. } => 20,
        Event::LostInput { .. } => 21,
        Event::TimedOut { .. } => 22,
        Event::Rejected { .. } => 23,
        Event::TransactionRefused { .. } => 24,
        Event::Accepted { .. } => 25,
        Event::Queued { .. } => 26,
        Event::Spool { .. } => 27,
        Event::LogDropped { .. } => 28,
        Event::InternalError { .. } => 29,
    }
}

/// An event of a kind. `to` is `v.list` as `Queued` wants it.
pub(crate) fn event<'a>(kind: usize, v: &'a Values, to: &'a [&'a str]) -> Event<'a> {
    let relay = if v.flag {
        Relay::Host { name: Some(&v.c), address: v.address, may_be_forged: v.number.is_multiple_of(2) }
    } else {
        Relay::Local { user: &v.c }
    };
    let id = v.flag.then(queue_id);
    let count = usize::try_from(v.number).unwrap();
    let small = u16::try_from(v.number & 0xffff).unwrap();
    let (number, max, reply) = (v.number, v.number, &v.reply);
    let option = |text: &'a str| v.flag.then_some(text);
    let (a, b, protocol) = (v.a.as_str(), v.b.as_str(), Protocol::Smtp);
    match kind {
        0 => Event::Started { version: b, spool: a, volatile: v.flag, listeners: count },
        1 => Event::Listening { daemon: b, address: (v.address, small).into(), protocol: a, tls: b },
        2 => Event::Stopping { why: a, connections: count },
        3 => Event::Stopped { cut_off: count },
        4 => Event::Reloaded { path: a },
        5 => Event::ReloadRefused { path: a, errors: &v.list },
        6 => Event::ConfigWarning { text: a },
        7 => Event::CertificateLoaded { path: a, names: b, not_after: b },
        8 => Event::CertificateRefused { path: a, error: b },
        9 => Event::Connected { relay, daemon: b },
        10 => Event::ConnectionRefused { relay, daemon: b, limit: v.limit, value: number, max, reply },
        11 => Event::EarlyTalker { relay, after_seconds: number },
        12 => Event::DnsblListed { relay, zone: b, answer: v.address, weight: -i32::from(small) },
        13 => Event::StartTls { relay, version: b, cipher: a, bits: small },
        14 => Event::TlsFailed { relay, reason: a },
        15 => Event::Auth { relay, identity: a, mechanism: b },
        16 => Event::AuthFailed { relay, identity: option(a), mechanism: b, reason: a },
        17 => Event::ForeignProtocol { relay, command: a },
        18 => Event::BareNewline { id, relay, refused: v.flag },
        19 => Event::LimitReached { id, relay, limit: v.limit, max },
        20 => Event::NoMail { relay, daemon: b },
        21 => Event::LostInput { id, relay, daemon: b, after: a },
        22 => Event::TimedOut { id, relay, during: a },
        23 => Event::Rejected { id, ruleset: v.ruleset, arg1: option(a), arg2: option(b), relay, reply },
        24 => Event::TransactionRefused { id, from: a, size: number, protocol, daemon: b, relay },
        25 => Event::Accepted {
            id: queue_id(),
            from: a,
            size: number,
            class: -i32::from(small),
            nrcpts: count,
            msgid: option(b),
            bodytype: v.flag.then_some(Body::EightBitMime),
            protocol,
            daemon: "MTA",
            identity: option(a),
            relay,
        },
        26 => Event::Queued { id: queue_id(), to, mailer: b, priority: -i64::from(small) },
        27 => Event::Spool { severity: Severity::Critical, text: a },
        28 => Event::LogDropped { lines: number },
        _ => Event::InternalError { place: b, text: a },
    }
}

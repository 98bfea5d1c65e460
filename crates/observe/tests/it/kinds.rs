//! Events of every kind over the same few values.

use mail::{Body, EnhancedCode, Node, Outcome, Protocol, QueueId, Reply};
use observe::{
    CheckMethod, CheckResult, Controller, Event, Fate, Limit, NextHop, Relay, ReportKind, Ruleset, SaslError,
    ScreenVerdict, Severity, SignatureKind, Stat,
};
use std::net::IpAddr;
use std::time::Duration;

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
pub(crate) const COUNT: usize = 55;

/// The number of the event's kind. No `_` here: a new event has to be added below too.
pub(crate) fn kind(event: &Event<'_>) -> usize {
    match event {
        Event::Started { .. } => 0,
        Event::Hardening { .. } => 41,
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
        Event::Delivery { .. } => 30,
        Event::Reported { .. } => 31,
        Event::Unreportable { .. } => 32,
        Event::StartTlsClient { .. } => 33,
        Event::TlsClientFailed { .. } => 34,
        Event::DestinationDown { .. } => 35,
        Event::DestinationUp { .. } => 36,
        Event::QueueCommand { .. } => 37,
        Event::Discarded { .. } => 38,
        Event::Cloned { .. } => 39,
        Event::RecipientsDiscarded { .. } => 40,
        Event::LoginOverLimit { .. } => 42,
        Event::FileRefused { .. } => 43,
        Event::ExtensionAvoided { .. } => 44,
        Event::Ruled { .. } => 45,
        Event::HoldEnded { .. } => 46,
        Event::Screened { .. } => 47,
        Event::SenderChecked { .. } => 48,
        Event::StandingOrder { .. } => 51,
        Event::HttpCertificateRefused { .. } => 52,
        Event::Signed { .. } => 49,
        Event::QuarantineDigest { .. } => 50,
        Event::Cluster { .. } => 53,
        Event::Adopted { .. } => 54,
    }
}

/// An event of a kind. `to` is `v.list` as `Queued` and `Delivery` want it.
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
        41 => Event::Hardening { severity: Severity::Notice, text: a },
        0 => {
            Event::Started { version: b, spool: a, volatile: v.flag, listeners: count, user: a, uid: u32::MAX, gid: 0 }
        }
        1 => Event::Listening { daemon: b, address: (v.address, small).into(), protocol: a, tls: b },
        2 => Event::Stopping { why: a, connections: count },
        3 => Event::Stopped { cut_off: count, deliveries_cut_off: v.number },
        4 => Event::Reloaded { path: a, retried: option(b) },
        5 => Event::ReloadRefused { path: a, errors: &v.list },
        6 => Event::ConfigWarning { text: a },
        7 => Event::CertificateLoaded { path: a, names: b, not_after: b },
        8 => Event::CertificateRefused { path: a, error: b },
        9 => Event::Connected { relay, daemon: b },
        10 => Event::ConnectionRefused { relay, daemon: b, limit: v.limit, value: number, max, reply },
        11 => Event::EarlyTalker { id, relay, after_seconds: number },
        12 => Event::DnsblListed { relay, zone: b, answer: v.address, weight: -i32::from(small) },
        13 => Event::StartTls {
            relay,
            version: b,
            cipher: a,
            bits: small,
            verify: b,
            subject: option(a),
            issuer: option(b),
            why: option(a),
        },
        14 => Event::TlsFailed { relay, reason: a },
        53 => Event::Cluster { severity: Severity::Warning, text: a },
        54 => Event::Adopted { id: queue_id(), was: queue_id(), may_be_duplicate: v.flag },
        52 => Event::HttpCertificateRefused { relay, subject: option(a), why: b },
        15 => Event::Auth { relay, identity: a, mechanism: b },
        42 => Event::LoginOverLimit { relay, identity: a, count: number, max },
        16 => Event::AuthFailed {
            id,
            relay,
            identity: option(a),
            mechanism: b,
            error: if v.flag { SaslError::Credentials } else { SaslError::Generic },
            reason: a,
        },
        17 => Event::ForeignProtocol { id, relay, command: a },
        18 => Event::BareNewline { id, relay, refused: v.flag },
        19 => Event::LimitReached { id, relay, limit: v.limit, max },
        20 => Event::NoMail { id, relay, daemon: b },
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
            mt_priority: v.flag.then_some(mail::MtPriority::default()),
            protocol,
            daemon: "MTA",
            identity: option(a),
            relay,
        },
        45 => Event::Ruled {
            id,
            ruleset: v.ruleset,
            arg1: a,
            relay,
            fate: if v.flag { Fate::Quarantine(b) } else { Fate::Discard },
        },
        26 => Event::Queued {
            id: queue_id(),
            to,
            mailer: b,
            priority: -i64::from(small),
            quarantine: v.flag.then_some(a),
        },
        27 => Event::Spool { severity: Severity::Critical, text: a },
        28 => Event::LogDropped { lines: number },
        29 => Event::InternalError { place: b, text: a },
        _ => delivery_event(kind, v, to),
    }
}

fn delivery_event<'a>(kind: usize, v: &'a Values, to: &'a [&'a str]) -> Event<'a> {
    let (a, b, c) = (v.a.as_str(), v.b.as_str(), v.c.as_str());
    let relay = match v.number % 4 {
        0 => NextHop::None,
        1 => NextHop::Name(c),
        2 => NextHop::Host { name: None, address: v.address },
        _ => NextHop::Host { name: Some(c), address: v.address },
    };
    let stat = match v.number % 3 {
        0 => Stat::Sent(a),
        1 => Stat::Deferred(a),
        _ => Stat::Failed(a),
    };
    let time = Duration::from_millis(v.number);
    match kind {
        30 => Event::Delivery {
            controller: v.flag.then_some(Controller { address: b, owner: Some((0, u32::MAX)) }),
            id: queue_id(),
            to,
            delay: time,
            xdelay: Duration::MAX,
            phases: mail::PhaseTimes::default(),
            mailer: b,
            priority: i64::MIN,
            relay,
            dsn: EnhancedCode::of(Outcome::Transient, 999, 999),
            reply: v.flag.then_some(&v.reply),
            stat,
            reason: v.flag.then_some(observe::Reason::Other),
        },
        31 => Event::Reported { id: queue_id(), report: queue_id(), kind: ReportKind::Delayed, text: a },
        32 => Event::Unreportable { id: queue_id(), text: a },
        50 => Event::QuarantineDigest { id: queue_id(), messages: v.number, to: a },
        46 => Event::HoldEnded { id: queue_id(), recipients: v.number, by: b, why: a },
        38 => Event::Discarded { id: queue_id() },
        43 => Event::FileRefused { text: a },
        44 => Event::ExtensionAvoided { text: a },
        47 => Event::Screened { id: queue_id(), verdict: ScreenVerdict::Reject, by: b, place: a, to: a, action: a },
        48 => Event::SenderChecked {
            id: queue_id(),
            summary: CheckResult::TempError,
            author: b,
            results: &[(CheckMethod::Spf, CheckResult::SoftFail), (CheckMethod::Dmarc, CheckResult::PermError)],
            why: a,
        },
        49 => Event::Signed {
            id: queue_id(),
            kind: SignatureKind::Arc,
            domain: b,
            selector: b,
            failure: v.flag.then_some(a),
        },
        40 => Event::RecipientsDiscarded { id: queue_id(), to },
        39 => Event::Cloned { first: queue_id(), id: queue_id(), owner: a },
        33 => Event::StartTlsClient { relay, version: b, cipher: a, bits: u16::MAX, verify: b },
        34 => Event::TlsClientFailed { relay, reason: a },
        35 => Event::DestinationDown { destination: b, why: a, retry: time },
        36 => Event::DestinationUp { destination: b, down: time },
        51 => Event::StandingOrder { what: b, name: a, text: a, by: v.flag.then_some(observe::CommandBy::Token(a)) },
        _ => Event::QueueCommand {
            id: v.flag.then(queue_id),
            what: b,
            messages: v.number,
            recipients: v.number,
            by: if v.flag { observe::CommandBy::Token(a) } else { observe::CommandBy::User(u32::MAX) },
            copy: v.flag.then(queue_id),
            to: v.flag.then_some(a),
        },
    }
}

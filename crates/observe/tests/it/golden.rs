//! One event of each kind with its exact line in sendmail's form.
//!
//! The lines about accepted, refused and delivered mail, connections, STARTTLS and AUTH are those of sendmail 8.18 in a
//! laboratory, but for names and ids. `docs/log.md` shows the same events.

mod delivery;

use crate::kinds;
use mail::{Body, Node, Protocol, QueueId, Reply, ReplyCode, Session};
use observe::{Event, Fate, Limit, Relay, Ruleset, SaslError, Severity};
use std::net::{IpAddr, Ipv4Addr};

const CLIENT: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));

/// A client with a name.
const NAMED: Relay<'_> = Relay::Host { name: Some("mx.ext.test"), address: CLIENT, may_be_forged: false };
const LOCAL: Relay<'_> =
    Relay::Host { name: Some("localhost"), address: IpAddr::V4(Ipv4Addr::LOCALHOST), may_be_forged: false };

fn reply(code: u16, text: &str) -> &'static Reply {
    Box::leak(Box::new(Reply::new(ReplyCode::of(code), None, text)))
}

fn mail_lines(id: QueueId) -> Vec<(Event<'static>, &'static str)> {
    let esmtp = Protocol::Esmtp(Session::default());
    vec![
        (
            Event::Accepted {
                id,
                from: "<a@ext.test>",
                size: 238,
                class: 0,
                nrcpts: 1,
                msgid: Some("<2026@vm>"),
                bodytype: None,
                mt_priority: None,
                protocol: esmtp,
                daemon: "MTA",
                identity: None,
                relay: LOCAL,
            },
            "ID: from=<a@ext.test>, size=238, class=0, nrcpts=1, msgid=<2026@vm>, proto=ESMTP, daemon=MTA, \
             relay=localhost [127.0.0.1]",
        ),
        (
            Event::Accepted {
                id,
                from: "<>",
                size: 5_000_000_000,
                class: -60,
                nrcpts: 2,
                msgid: None,
                bodytype: Some(Body::EightBitMime),
                mt_priority: mail::MtPriority::new(-4),
                protocol: Protocol::Esmtp(Session { tls: true, auth: true, utf8: false }),
                daemon: "MSA",
                identity: Some("ann"),
                relay: Relay::Host { name: Some("host.test"), address: CLIENT, may_be_forged: true },
            },
            "ID: from=<>, size=5000000000, class=-60, nrcpts=2, bodytype=8BITMIME, proto=ESMTPSA, daemon=MSA, \
             mt_priority=-4, authid=ann, relay=host.test [192.0.2.7] (may be forged)",
        ),
        (
            Event::TransactionRefused {
                id: Some(id),
                from: "<a@ext.test>",
                size: 0,
                protocol: esmtp,
                daemon: "MTA",
                relay: LOCAL,
            },
            "ID: from=<a@ext.test>, size=0, class=0, nrcpts=0, proto=ESMTP, daemon=MTA, relay=localhost [127.0.0.1]",
        ),
        (
            Event::Queued { id, to: &["<u1@ok.test>"], mailer: "esmtp", priority: 30_015, quarantine: None },
            "ID: to=<u1@ok.test>, delay=00:00:00, mailer=esmtp, pri=30015, stat=queued",
        ),
        (
            Event::Rejected {
                id: Some(id),
                ruleset: Ruleset::Rcpt,
                arg1: Some("<baduser@lab.test>"),
                arg2: None,
                relay: LOCAL,
                reply: reply(550, "5.2.1 <baduser@lab.test>... Mailbox disabled"),
            },
            "ID: ruleset=check_rcpt, arg1=<baduser@lab.test>, relay=localhost [127.0.0.1], \
             reject=550 5.2.1 <baduser@lab.test>... Mailbox disabled",
        ),
        (
            Event::Rejected {
                id: Some(id),
                ruleset: Ruleset::Rcpt,
                arg1: Some("<nobody@lab.test>"),
                arg2: None,
                relay: LOCAL,
                reply: reply(550, "5.1.1 <nobody@lab.test>... User unknown"),
            },
            "ID: <nobody@lab.test>... User unknown",
        ),
        (
            Event::Rejected {
                id: Some(id),
                ruleset: Ruleset::Expn,
                arg1: Some("root"),
                arg2: None,
                relay: NAMED,
                reply: reply(502, "5.7.0 Sorry, we do not allow this operation"),
            },
            "ID: mx.ext.test [192.0.2.7]: EXPN root [rejected]",
        ),
        (
            Event::Rejected {
                id: None,
                ruleset: Ruleset::Relay,
                arg1: Some("mx.ext.test"),
                arg2: Some("192.0.2.7"),
                relay: NAMED,
                reply: reply(554, "5.7.1 Listed, see\nhttps://list.test/"),
            },
            "ruleset=check_relay, arg1=mx.ext.test, arg2=192.0.2.7, relay=mx.ext.test [192.0.2.7], \
             reject=554 5.7.1 Listed, see https://list.test/",
        ),
    ]
}

fn ruled_lines(id: QueueId) -> Vec<(Event<'static>, &'static str)> {
    let ruled = |ruleset, arg1, fate| Event::Ruled { id: Some(id), ruleset, arg1, relay: NAMED, fate };
    vec![
        (
            ruled(Ruleset::Mail, "<a@drop.test>", Fate::Discard),
            "ID: ruleset=check_mail, arg1=<a@drop.test>, relay=mx.ext.test [192.0.2.7], discard",
        ),
        (
            ruled(Ruleset::Rcpt, "<b@lab.test>", Fate::Quarantine("held by map")),
            "ID: ruleset=check_rcpt, arg1=<b@lab.test>, relay=mx.ext.test [192.0.2.7], quarantine=held by map",
        ),
    ]
}

fn accept_lines(id: QueueId) -> Vec<(Event<'static>, &'static str)> {
    let busy = reply(421, "4.3.2 Too many connections");
    vec![
        (Event::Connected { relay: NAMED, daemon: "MTA" }, "NOQUEUE: connect from mx.ext.test [192.0.2.7]"),
        (
            Event::ConnectionRefused {
                relay: NAMED,
                daemon: "MTA",
                limit: Limit::AcceptConnectionsMax,
                value: 4_000,
                max: 4_000,
                reply: busy,
            },
            "rejecting connections on daemon MTA: 4000 children, max 4000",
        ),
        (
            Event::ConnectionRefused {
                relay: Relay::address(CLIENT),
                daemon: "MTA",
                limit: Limit::AcceptConnectionsPerClient,
                value: 51,
                max: 50,
                reply: busy,
            },
            "ruleset=check_relay, arg1=[192.0.2.7], arg2=192.0.2.7, relay=[192.0.2.7], \
             reject=421 4.3.2 Too many connections",
        ),
        (
            Event::EarlyTalker { id: Some(id), relay: NAMED, after_seconds: 3 },
            "ID: rejecting commands from mx.ext.test [192.0.2.7] due to pre-greeting traffic after 3 seconds",
        ),
        (
            Event::DnsblListed {
                relay: NAMED,
                zone: "list.test",
                answer: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 2)),
                weight: 3,
            },
            "NOQUEUE: dnsbl=list.test, answer=127.0.0.2, weight=3, relay=mx.ext.test [192.0.2.7]",
        ),
    ]
}

fn session_lines(id: QueueId) -> Vec<(Event<'static>, &'static str)> {
    let v6 = Relay::address("2001:db8::1".parse().unwrap());
    vec![
        (
            Event::StartTls {
                relay: NAMED,
                version: "TLSv1.3",
                cipher: "TLS_AES_256_GCM_SHA384",
                bits: 256,
                verify: "NOT",
                subject: None,
                issuer: None,
                why: None,
            },
            "STARTTLS=server, relay=mx.ext.test [192.0.2.7], version=TLSv1.3, verify=NOT, \
             cipher=TLS_AES_256_GCM_SHA384, bits=256/256",
        ),
        (
            Event::HttpCertificateRefused {
                relay: NAMED,
                subject: Some("/CN=carl"),
                why: "no [[http.client]] has the name \"carl\"",
            },
            "http: certificate refused, relay=mx.ext.test [192.0.2.7], cert_subject=/CN=carl, reason=no [[http.client]] has \
             the name \"carl\"",
        ),
        (
            Event::TlsFailed { relay: NAMED, reason: "no cipher suites in common" },
            "STARTTLS=server, error: accept failed=-1, reason=no cipher suites in common, \
             SSL_error=1, errno=0, retry=-1, relay=mx.ext.test [192.0.2.7]",
        ),
        (
            Event::Auth { relay: NAMED, identity: "ann", mechanism: "PLAIN" },
            "AUTH=server, relay=mx.ext.test [192.0.2.7], authid=ann, mech=PLAIN, bits=0",
        ),
        (
            Event::AuthFailed {
                id: Some(id),
                relay: NAMED,
                identity: Some("ann"),
                mechanism: "LOGIN",
                error: SaslError::Credentials,
                reason: "wrong password or unknown user",
            },
            "ID: AUTH failure (LOGIN): authentication failure (-13) SASL(-13): authentication failure: \
             wrong password or unknown user, user=ann, relay=mx.ext.test [192.0.2.7]",
        ),
        (
            Event::AuthFailed {
                id: Some(id),
                relay: NAMED,
                identity: None,
                mechanism: "PLAIN",
                error: SaslError::Protocol,
                reason: "given up, or lost, by the client",
            },
            "ID: AUTH failure (PLAIN): bad protocol / cancel (-5) SASL(-5): bad protocol / cancel: \
             given up; or lost; by the client, user=, relay=mx.ext.test [192.0.2.7]",
        ),
        (
            Event::LoginOverLimit { relay: NAMED, identity: "ann", count: 1_000, max: 1_000 },
            "NOQUEUE: too many recipients of a login, its password may be stolen: user=ann, recipients=1000, \
             limit=auth.recipients_hour_max, max=1000, relay=mx.ext.test [192.0.2.7]",
        ),
        (
            Event::ForeignProtocol { id: Some(id), relay: v6, command: "GET / HTTP/1.0" },
            "ID: [IPv6:2001:db8::1]: probable open proxy: command=GET / HTTP/1.0",
        ),
        (
            Event::BareNewline { id: Some(id), relay: NAMED, refused: true },
            "ID: bare CR or LF refused, relay=mx.ext.test [192.0.2.7]",
        ),
        (
            Event::LimitReached { id: None, relay: NAMED, limit: Limit::SmtpErrorsMax, max: 20 },
            "NOQUEUE: limit=smtp.errors_max, max=20, relay=mx.ext.test [192.0.2.7]",
        ),
        (
            Event::NoMail { id: Some(id), relay: LOCAL, daemon: "MTA" },
            "ID: localhost [127.0.0.1] did not issue MAIL/EXPN/VRFY/ETRN during connection to MTA",
        ),
        (
            Event::LostInput { id: Some(id), relay: NAMED, daemon: "MTA", after: "RCPT" },
            "ID: lost input channel from mx.ext.test [192.0.2.7] to MTA after rcpt",
        ),
        (
            Event::TimedOut { id: None, relay: Relay::Local { user: "ann" }, during: "server cmd read" },
            "NOQUEUE: timeout waiting for input from ann@localhost during server cmd read",
        ),
    ]
}

fn cluster_lines(id: QueueId) -> Vec<(Event<'static>, &'static str)> {
    vec![
        (Event::Adopted { id, was: id, may_be_duplicate: true }, "ID: adopted=6AKElS00000000, duplicate=possible"),
        (
            Event::Cluster { severity: Severity::Warning, text: "node 3: its engine does not answer" },
            "cluster: node 3: its engine does not answer",
        ),
    ]
}

fn process_lines() -> Vec<(Event<'static>, &'static str)> {
    let errors = Box::leak(Box::new([
        "mailrace.toml:4:9: relay.from: \"10.0.0.0/33\" is no network; write 10.0.0.0/8".to_owned(),
        "mailrace.toml:9:1: log.levle: no such key; did you mean log.level?".to_owned(),
    ]));
    let path = "/etc/mailrace/mailrace.toml";
    let file = "/etc/mailrace/mx.pem";
    vec![
        (
            Event::Started {
                version: "0.1.0",
                spool: "/var/spool/mailrace",
                volatile: false,
                listeners: 2,
                user: "mailrace",
                uid: 108,
                gid: 113,
            },
            "starting daemon (0.1.0): spool=/var/spool/mailrace, listeners=2, user=mailrace, uid=108, gid=113",
        ),
        (
            Event::Started {
                version: "0.1.0",
                spool: "/dev/shm/spool",
                volatile: true,
                listeners: 1,
                user: "",
                uid: 1000,
                gid: 1000,
            },
            "starting daemon (0.1.0): spool=/dev/shm/spool, listeners=1, user=, uid=1000, gid=1000, volatile: the spool lies in \
             memory and a power cut loses mail",
        ),
        (
            Event::Hardening {
                severity: Severity::Info,
                text: "seccomp in force: 50 system calls refused; landlock in force, version 4: writes below /var/spool/mailrace; \
                       reads below /etc",
            },
            "hardening: seccomp in force: 50 system calls refused; landlock in force, version 4: writes below \
             /var/spool/mailrace; reads below /etc",
        ),
        (
            Event::Listening { daemon: "MTA", address: "[::]:25".parse().unwrap(), protocol: "smtp", tls: "starttls" },
            "listening: daemon=MTA, address=[::]:25, protocol=smtp, tls=starttls",
        ),
        (
            Event::Reloaded { path, retried: None },
            "configuration reloaded: file=/etc/mailrace/mailrace.toml, waiting mail keeps its times",
        ),
        (
            Event::Reloaded { path, retried: Some("route, dns") },
            "configuration reloaded: file=/etc/mailrace/mailrace.toml, waiting mail is tried again: changed=route, dns",
        ),
        (
            Event::ReloadRefused { path, errors },
            "configuration not reloaded, the old one stays: file=/etc/mailrace/mailrace.toml, errors=2, \
             mailrace.toml:4:9: relay.from: \"10.0.0.0/33\" is no network; write 10.0.0.0/8; \
             mailrace.toml:9:1: log.levle: no such key; did you mean log.level?",
        ),
        (
            Event::ConfigWarning { text: "mailrace.toml:7:1: relay.from names 0.0.0.0/0: an open relay" },
            "configuration: mailrace.toml:7:1: relay.from names 0.0.0.0/0: an open relay",
        ),
        (
            Event::FileRefused {
                text: "maps.aliases: /etc/aliases (owner root (0), group 8, mode 0664) can be written by its group: run \"chmod g-w \
                       /etc/aliases\"; the map stays as it was until then",
            },
            "SECURITY: file not read: maps.aliases: /etc/aliases (owner root (0), group 8, mode 0664) can be written by its group: run \
             \"chmod g-w /etc/aliases\"; the map stays as it was until then",
        ),
        (
            Event::ExtensionAvoided {
                text: "mx.a.test [192.0.2.7]: CHUNKING is offered and does not work (500 5.5.1 what?); mail goes \
                       without for a day; to leave it out for good, set chunking = false in a [[destination]] for this host",
            },
            "extension not used: mx.a.test [192.0.2.7]: CHUNKING is offered and does not work (500 5.5.1 what?); mail goes \
             without for a day; to leave it out for good, set chunking = false in a [[destination]] for this host",
        ),
        (
            Event::CertificateLoaded { path: file, names: "mx.lab.test", not_after: "2027-02-18T13:00:00Z" },
            "certificate loaded: file=/etc/mailrace/mx.pem, names=mx.lab.test, not_after=2027-02-18T13:00:00Z",
        ),
        (
            Event::CertificateRefused { path: file, error: "the key does not fit; give both files of one order" },
            "certificate not loaded, the old one stays: file=/etc/mailrace/mx.pem, the key does not fit; give both \
             files of one order",
        ),
        (
            Event::Spool { severity: Severity::Error, text: "shard 00: two writes in a row failed, no more are tried" },
            "spool: shard 00: two writes in a row failed, no more are tried",
        ),
        (Event::LogDropped { lines: 812 }, "log: 812 lines dropped, the writer cannot keep up"),
        (
            Event::InternalError { place: "session", text: "an answer without a question" },
            "SYSERR: internal error in session: an answer without a question",
        ),
        (Event::Stopping { why: "SIGTERM", connections: 12 }, "stopping daemon: why=SIGTERM, connections=12"),
        (Event::Stopped { cut_off: 0, deliveries_cut_off: 3 }, "stopped daemon: cut_off=0, deliveries_cut_off=3"),
    ]
}

/// The id in the lines above is written `ID`.
pub(crate) fn id() -> QueueId {
    kinds::queue_id()
}

/// The id that is written `REPORT`.
fn report_id() -> QueueId {
    QueueId::new(1_795_179_661_000_000, Node::default()).unwrap()
}

/// Events in the order of the message's way, each with its line.
pub(crate) fn all() -> Vec<(Event<'static>, String)> {
    let id = id();
    let lines = [
        accept_lines(id),
        session_lines(id),
        mail_lines(id),
        ruled_lines(id),
        delivery::lines(id),
        cluster_lines(id),
        process_lines(),
    ]
    .concat();
    let with_id = |(event, line): (Event<'static>, &str)| {
        let line = line.replace("REPORT: ", &format!("{}: ", report_id())).replace("ID: ", &format!("{id}: "));
        (event, line)
    };
    lines.into_iter().map(with_id).collect()
}

#[test]
fn lines_are_as_sendmail_has_them() {
    for (event, line) in all() {
        let mut out = String::new();
        assert_eq!(observe::sendmail::write(&event, &mut out), None);
        assert_eq!(out, line);
    }
}

#[test]
fn every_kind_of_event_has_a_line_here() {
    let mut seen: Vec<usize> = all().iter().map(|(event, _)| kinds::kind(event)).collect();
    seen.sort_unstable();
    seen.dedup();
    assert_eq!(seen, (0..kinds::COUNT).collect::<Vec<_>>());
}

#[test]
fn the_prefix_is_that_of_syslog() {
    let time = observe::sendmail::Civil { month: 11, day: 2, hour: 3, minute: 4, second: 5 };
    let mut out = String::new();
    observe::sendmail::prefix(time, Some("mx1"), "mailrace", 812, &mut out);
    assert_eq!(out, "Nov  2 03:04:05 mx1 mailrace[812]: ");
    out.clear();
    observe::sendmail::prefix(time, None, "mail race\n", 1, &mut out);
    assert_eq!(out, "Nov  2 03:04:05 mail\\040race\\012[1]: ");
}

#[test]
fn a_long_list_of_recipients_takes_several_lines() {
    let names: Vec<String> = (0..200).map(|n| format!("<user{n}@lab.test>")).collect();
    let to: Vec<&str> = names.iter().map(String::as_str).collect();
    let mut next = Some(Event::Queued { id: id(), to: &to, mailer: "esmtp", priority: 30_015, quarantine: None });
    let mut seen = Vec::new();
    let mut lines = 0;
    while let Some(event) = next {
        let mut out = String::new();
        next = observe::sendmail::write(&event, &mut out);
        assert!(out.ends_with(", delay=00:00:00, mailer=esmtp, pri=30015, stat=queued"), "{out}");
        let (_, rest) = out.split_once(" to=").unwrap();
        let (list, rest) = rest.split_once(", ").unwrap();
        assert_eq!(rest.starts_with("[more], "), next.is_some(), "{out}");
        seen.extend(list.split(',').map(str::to_owned));
        lines += 1;
        let mut json = String::new();
        assert_eq!(observe::json::write(&event, "", &mut json), next);
    }
    assert_eq!(seen, names);
    assert_eq!(lines, 4);
}

//! Lines of delivery; those with `to=` are sendmail 8.18's, but for names and ids, and for `\040` in `reply=`.

use super::{CLIENT, id, reply};
use mail::{EnhancedCode, Outcome, QueueId, Reply};
use observe::reason::{Case, Rules, words_of};
use observe::{
    CheckMethod, CheckResult, Controller, Event, NextHop, Reason, ReportKind, ScreenVerdict, SignatureKind, Stat,
};
use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

const HOP: NextHop<'_> = NextHop::Host { name: Some("mx.ok.test"), address: CLIENT };

/// A delivery to one recipient, of which a line shows `what`.
fn delivery(
    id: QueueId,
    what: (Outcome, u16, u16),
    reply: Option<&'static Reply>,
    stat: Stat<'static>,
) -> Event<'static> {
    Event::Delivery {
        id,
        to: &["<u1@ok.test>"],
        controller: None,
        delay: Duration::ZERO,
        xdelay: Duration::ZERO,
        phases: mail::PhaseTimes::default(),
        mailer: "esmtp",
        priority: 30_238,
        relay: HOP,
        dsn: EnhancedCode::of(what.0, what.1, what.2),
        reply,
        stat,
        reason: reason(reply, stat),
    }
}

/// As the rules that come with mailrace have it.
fn reason(reply: Option<&Reply>, stat: Stat<'_>) -> Option<Reason> {
    let words = reply.map_or_else(|| stat.text().to_owned(), words_of);
    let (code, status) = (reply.map(|reply| reply.code().get()), reply.and_then(Reply::enhanced));
    let found = || Rules::usual().find(&Case { stage: None, code, status, text: &words }).reason;
    (!matches!(stat, Stat::Sent(_))).then(found)
}

/// The same with other times, recipients and next hop.
fn with(event: Event<'static>, to: &'static [&'static str], delay: u64, relay: NextHop<'static>) -> Event<'static> {
    let mut event = event;
    let Event::Delivery { to: recipients, delay: age, priority, relay: hop, .. } = &mut event else {
        panic!("no delivery")
    };
    (*recipients, *age, *priority, *hop) = (to, Duration::from_secs(delay), 120_240, relay);
    event
}

pub(super) fn lines(id: QueueId) -> Vec<(Event<'static>, &'static str)> {
    [to_lines(id), report_lines(id), host_lines(id)].concat()
}

/// A delivery to a program, as the log of 8.17 has it but for the numbers of the user.
fn of_program(id: QueueId, address: &'static str) -> Event<'static> {
    let mut event = delivery(id, (Outcome::Success, 0, 0), None, Stat::Sent(""));
    let Event::Delivery { to, controller, mailer, priority, relay, .. } = &mut event else { panic!("no delivery") };
    *controller = Some(Controller { address, owner: Some((1, 0)) });
    (*to, *mailer, *relay, *priority) = (&["\"|/bin/cat\""], "prog", NextHop::None, 30_417);
    event
}

fn to_lines(id: QueueId) -> Vec<(Event<'static>, &'static str)> {
    use Outcome::{Permanent, Success, Transient};
    let greylisted = reply(451, "4.7.1 Greylisted, try again later");
    let unknown = reply(550, "5.1.1 <nouser>: Recipient address rejected: User unknown");
    let deferred = Stat::Deferred("451 4.7.1 Greylisted, try again later");
    let refused = delivery(id, (Transient, 4, 1), None, Stat::Deferred("Connection refused by [127.0.0.3]"));
    let address = |last| NextHop::Host { name: None, address: IpAddr::V4(Ipv4Addr::new(127, 0, 0, last)) };
    let no_host = Stat::Failed("Host unknown (Name server: nowhere.test: host not found)");
    vec![
        (
            of_program(id, "<prog@lab.test>"),
            "ID: to=\"|/bin/cat\", ctladdr=<prog@lab.test> (1/0), delay=00:00:00, xdelay=00:00:00, mailer=prog, pri=30417, \
             dsn=2.0.0, stat=Sent",
        ),
        (
            of_program(id, "a,"),
            "ID: to=\"|/bin/cat\", ctladdr=a\\054 (1/0), delay=00:00:00, xdelay=00:00:00, mailer=prog, pri=30417, \
             dsn=2.0.0, stat=Sent",
        ),
        (
            delivery(
                id,
                (Success, 0, 0),
                Some(reply(250, "2.0.0 Ok: queued as 4F1D2A")),
                Stat::Sent("Ok: queued as 4F1D2A"),
            ),
            "ID: to=<u1@ok.test>, delay=00:00:00, xdelay=00:00:00, mailer=esmtp, pri=30238, relay=mx.ok.test [192.0.2.7], \
             dsn=2.0.0, stat=Sent (Ok: queued as 4F1D2A)",
        ),
        (
            with(
                delivery(id, (Success, 0, 0), None, Stat::Sent("")),
                &["<u1@ok.test>", "<u2@ok.test>"],
                90_061,
                address(1),
            ),
            "ID: to=<u1@ok.test>,<u2@ok.test>, delay=1+01:01:01, xdelay=00:00:00, mailer=esmtp, pri=120240, \
             relay=[127.0.0.1] [127.0.0.1], dsn=2.0.0, stat=Sent",
        ),
        (
            with(delivery(id, (Transient, 7, 1), Some(greylisted), deferred), &["<grey@ok.test>"], 449, HOP),
            "ID: to=<grey@ok.test>, delay=00:07:29, xdelay=00:00:00, mailer=esmtp, pri=120240, \
             relay=mx.ok.test [192.0.2.7], dsn=4.7.1, reply=451 4.7.1 Greylisted,\\040try again later, \
             stat=Deferred: 451 4.7.1 Greylisted, try again later",
        ),
        (
            with(refused, &["<u@down.test>"], 59, address(3)),
            "ID: to=<u@down.test>, delay=00:00:59, xdelay=00:00:00, mailer=esmtp, pri=120240, \
             relay=[127.0.0.3] [127.0.0.3], dsn=4.4.1, stat=Deferred: Connection refused by [127.0.0.3]",
        ),
        (
            delivery(id, (Permanent, 1, 1), Some(unknown), Stat::Failed(Stat::refusal(unknown, true))),
            "ID: to=<u1@ok.test>, delay=00:00:00, xdelay=00:00:00, mailer=esmtp, pri=30238, relay=mx.ok.test [192.0.2.7], \
             dsn=5.1.1, reply=550 5.1.1 <nouser>: Recipient address rejected: User unknown, stat=User unknown",
        ),
        (
            with(
                delivery(id, (Permanent, 1, 2), None, no_host),
                &["<u@nowhere.test>"],
                0,
                NextHop::Name("nowhere.test"),
            ),
            "ID: to=<u@nowhere.test>, delay=00:00:00, xdelay=00:00:00, mailer=esmtp, pri=120240, relay=nowhere.test, \
             dsn=5.1.2, stat=Host unknown (Name server: nowhere.test: host not found)",
        ),
        (
            with(
                delivery(id, (Permanent, 4, 7), None, Stat::Failed("Cannot send message for 5 days")),
                &["<u@down.test>"],
                432_000,
                NextHop::None,
            ),
            "ID: to=<u@down.test>, delay=5+00:00:00, xdelay=00:00:00, mailer=esmtp, pri=120240, dsn=5.4.7, \
             stat=Cannot send message for 5 days",
        ),
    ]
}

fn report_lines(id: QueueId) -> Vec<(Event<'static>, &'static str)> {
    let report = super::report_id();
    vec![
        (Event::Reported { id, report, kind: ReportKind::Dsn, text: "User unknown" }, "ID: REPORT: DSN: User unknown"),
        (
            Event::Reported {
                id,
                report,
                kind: ReportKind::Delayed,
                text: "Warning: could not send message for past 4 hours",
            },
            "ID: REPORT: sender notify: Warning: could not send message for past 4 hours",
        ),
        (
            Event::Reported { id, report, kind: ReportKind::Postmaster, text: "User unknown" },
            "ID: REPORT: postmaster notify: User unknown",
        ),
        (
            Event::Unreportable { id, text: "postmaster@lab.test: Host unknown" },
            "ID: report cannot be delivered: postmaster@lab.test: Host unknown",
        ),
        (
            Event::Queued {
                id,
                to: &["<u1@ok.test>"],
                mailer: "esmtp",
                priority: 30_015,
                quarantine: Some("suspicious sender"),
            },
            "ID: to=<u1@ok.test>, delay=00:00:00, mailer=esmtp, pri=30015, quarantine=suspicious sender, stat=quarantined",
        ),
        (
            Event::RecipientsDiscarded { id, to: &["<a@b.test>", "<c@b.test>"] },
            "ID: to=<a@b.test>,<c@b.test>, delay=00:00:00, stat=discarded",
        ),
        (Event::Discarded { id }, "ID: discarded"),
        (Event::Cloned { first: id, id, owner: "list-request" }, "ID: ID: clone: owner=list-request"),
        (
            Event::Screened {
                id,
                verdict: ScreenVerdict::Reject,
                by: "chinese_text",
                place: "/etc/mailrace/rules/charsets.rules:18",
                to: "<a@b.test>,<c@b.test>",
                action: "reject 550 5.7.1 Not here, please",
            },
            "ID: screen=reject, by=chinese_text, place=/etc/mailrace/rules/charsets.rules:18, to=<a@b.test>,<c@b.test>, \
             action=reject 550 5.7.1 Not here, please",
        ),
        (
            Event::Signed { id, kind: SignatureKind::Dkim, domain: "example.com", selector: "s2026", failure: None },
            "ID: signature=dkim, domain=example.com, selector=s2026, result=ok",
        ),
        (
            Event::Signed {
                id,
                kind: SignatureKind::Arc,
                domain: "example.com",
                selector: "s2026",
                failure: Some("the cryptographic library failed"),
            },
            "ID: signature=arc, domain=example.com, selector=s2026, result=failed, why=the cryptographic library failed",
        ),
        (
            Event::SenderChecked {
                id,
                summary: CheckResult::Fail,
                author: "bank.test",
                results: &[
                    (CheckMethod::Iprev, CheckResult::Pass),
                    (CheckMethod::Spf, CheckResult::SoftFail),
                    (CheckMethod::Dkim, CheckResult::None),
                    (CheckMethod::Dmarc, CheckResult::Fail),
                    (CheckMethod::Arc, CheckResult::None),
                ],
                why: "spf: ~all of b.test; dmarc: no aligned pass of spf or dkim",
            },
            "ID: auth=fail, author=bank.test, iprev=pass, spf=softfail, dkim=none, dmarc=fail, arc=none, \
             why=spf: ~all of b.test; dmarc: no aligned pass of spf or dkim",
        ),
    ]
}

fn host_lines(id: QueueId) -> Vec<(Event<'static>, &'static str)> {
    let address = NextHop::Host { name: None, address: IpAddr::V4(Ipv4Addr::new(127, 0, 0, 3)) };
    vec![
        (
            Event::StartTlsClient {
                relay: HOP,
                version: "TLSv1.3",
                cipher: "TLS_AES_256_GCM_SHA384",
                bits: 256,
                verify: "NOT",
            },
            "STARTTLS=client, relay=mx.ok.test, version=TLSv1.3, verify=NOT, cipher=TLS_AES_256_GCM_SHA384, bits=256/256",
        ),
        (
            Event::TlsClientFailed { relay: address, reason: "the peer sent no certificate" },
            "STARTTLS=client, error: connect failed=-1, reason=the peer sent no certificate, SSL_error=1, \
             errno=0, retry=-1, relay=[127.0.0.3]",
        ),
        (
            Event::DestinationDown {
                destination: "down.test",
                why: "Connection refused by [127.0.0.3]",
                retry: Duration::from_secs(60),
            },
            "destination=down.test, state=down, retry=00:01:00, why=Connection refused by [127.0.0.3]",
        ),
        (
            Event::DestinationUp { destination: "down.test", down: Duration::from_millis(3_725_500) },
            "destination=down.test, state=up, down=01:02:05",
        ),
        (
            Event::HoldEnded { id, recipients: 2, by: "ann", why: "asked by the sender" },
            "ID: hold=ended, recipients=2, by=ann, why=asked by the sender",
        ),
        (
            Event::QuarantineDigest { id, messages: 3, to: "<b@example.com>" },
            "ID: digest=stored, messages=3, to=<b@example.com>",
        ),
        (
            Event::StandingOrder {
                what: "set",
                name: "suspension-4",
                text: "they are moving: to:@slow.example",
                by: Some(observe::CommandBy::User(0)),
            },
            "order=set, name=suspension-4, uid=0, why=they are moving: to:@slow.example",
        ),
        (
            Event::StandingOrder { what: "ended", name: "limit slow.example", text: "connections=2", by: None },
            "order=ended, name=limit slow.example, why=connections=2",
        ),
        (
            Event::QueueCommand {
                id: None,
                what: "retry",
                messages: 12,
                recipients: 15,
                by: observe::CommandBy::User(1_000),
                copy: None,
                to: None,
            },
            "queue=retry, messages=12, recipients=15, uid=1000",
        ),
        (
            Event::QueueCommand {
                id: Some(id),
                what: "delete",
                messages: 1,
                recipients: 2,
                by: observe::CommandBy::User(0),
                copy: None,
                to: None,
            },
            "ID: queue=delete, messages=1, recipients=2, uid=0",
        ),
        (
            Event::QueueCommand {
                id: Some(id),
                what: "forward",
                messages: 1,
                recipients: 2,
                by: observe::CommandBy::User(0),
                copy: Some(id),
                to: Some("abuse@example.com"),
            },
            "ID: queue=forward, messages=1, recipients=2, uid=0, copy=6AKElS00000000, to=abuse@example.com",
        ),
        (
            Event::QueueCommand {
                id: None,
                what: "hold",
                messages: 1,
                recipients: 2,
                by: observe::CommandBy::Token("ann"),
                copy: None,
                to: None,
            },
            "queue=hold, messages=1, recipients=2, http=ann",
        ),
    ]
}

#[test]
fn a_long_delivery_is_counted_once_and_told_in_several_lines() {
    use observe::counters::{Counter, Outcome, Unreached, increments};
    let names: Vec<String> = (0..100).map(|n| format!("<user{n}@lab.test>")).collect();
    let to: Vec<&str> = names.iter().map(String::as_str).collect();
    let answer = reply(452, &format!("4.3.1 {}, later", "no room ".repeat(80)));
    let stat = Stat::Deferred("452 4.3.1 no room");
    let mut whole = delivery(id(), (mail::Outcome::Transient, 3, 1), Some(answer), stat);
    let Event::Delivery { to: recipients, .. } = &mut whole else { panic!("no delivery") };
    *recipients = &to;
    assert_eq!(
        increments(&whole).collect::<Vec<_>>(),
        [
            (Counter::Deliveries(Outcome::Deferred), 1),
            (Counter::DeliveryRecipients(Outcome::Deferred), 100),
            (Counter::DeliveryReasons(Unreached::Deferred, Reason::Capacity), 100)
        ]
    );
    let mut next = Some(whole);
    let mut seen = Vec::new();
    while let Some(event) = next {
        let mut out = String::new();
        next = observe::sendmail::write(&event, &mut out);
        assert!(
            out.ends_with(", stat=Deferred: 452 4.3.1 no room") && out.contains(", reply=452 4.3.1 no room"),
            "{out}"
        );
        let (_, rest) = out.split_once(" to=").unwrap();
        let (list, rest) = rest.split_once(", ").unwrap();
        assert_eq!(rest.starts_with("[more], "), next.is_some(), "{out}");
        seen.extend(list.split(',').map(str::to_owned));
        let mut json = String::new();
        assert_eq!(observe::json::write(&event, "", &mut json), next);
    }
    assert_eq!(seen, names);
}

#[test]
fn words_for_refusals() {
    for (code, text, of_recipient, words) in [
        (550, "5.1.1 no", true, "User unknown"),
        (550, "no such user", true, "User unknown"),
        (553, "no", true, "User unknown"),
        (550, "no", false, "Service unavailable"),
        (550, "5.7.1 blocked", true, "Service unavailable"),
        (550, "5.1.2 bad domain", true, "Host unknown"),
        (554, "5.1.8 sender's domain", false, "Service unavailable"),
        (554, "spam", true, "Service unavailable"),
    ] {
        assert_eq!(Stat::refusal(reply(code, text), of_recipient), words, "{code} {text}");
    }
}

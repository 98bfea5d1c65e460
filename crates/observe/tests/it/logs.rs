//! Lines of logs as facts: recordings of real servers, and events written and read back with any text of peers.
//!
//! [`SENDMAIL`] was written by sendmail 8.17.1.9, [`POSTFIX`] by Postfix 3.7.11 before a next hop that refuses
//! `nobody@`, defers `later@` once and `always@` always, and quotes fields of a log in its replies.

use crate::kinds::queue_id;
use mail::{CivilTime, EnhancedCode, Reply, ReplyCode};
use observe::log_reader::{self, LineCounts, LogReader, LogReaderSettings};
use observe::stats::{Counts, Fact, LateRecipients, Statistics, WaitingMessages, WindowSizes};
use observe::{Event, NextHop, Relay, Stat, json, sendmail};
use proptest::prelude::*;
use std::time::Duration;

/// Also has comments, which begin with `#`.
const SENDMAIL: &str = include_str!("../../../mailrace/tests/relay/readers/recorded.txt");
const POSTFIX: &str = include_str!("postfix.txt");

fn civil(day: i64, hour: i64) -> i64 {
    CivilTime { year: 2026, month: 11, day, hour, minute: 0, second: 0 }.to_unix().unwrap()
}

fn settings() -> LogReaderSettings {
    LogReaderSettings { now: civil(28, 0), year: None, utc_offset: 0 }
}

/// Reads lines into every kind of sums.
fn read<'a>(lines: impl IntoIterator<Item = &'a [u8]>) -> (Statistics, LateRecipients, WaitingMessages, LineCounts) {
    let mut reader = LogReader::new(settings());
    let mut sums = Statistics::new(WindowSizes::LOGS);
    let (mut late, mut waiting) = (LateRecipients::default(), WaitingMessages::default());
    for line in lines {
        reader.read_line(line, |time, fact| {
            sums.record(time, fact);
            late.record(time, fact);
            waiting.record(time, fact);
        });
    }
    (sums, late, waiting, reader.counts())
}

fn lines(text: &str) -> impl Iterator<Item = &[u8]> {
    text.split_inclusive('\n').filter(|line| !line.starts_with('#')).map(str::as_bytes)
}

#[test]
fn a_log_of_sendmail_gives_its_figures() {
    let (sums, late, waiting, counts) = read(lines(SENDMAIL));
    let expected = Counts {
        arrivals: 12,
        arrived_recipients: 14,
        arrived_bytes: 12 * 40 - 9 + 5,
        sent_hosts: 10,
        sent: 13,
        sent_bytes: sums.total.sent_bytes,
        deferred_hosts: 1,
        deferred: 1,
        failed_hosts: 1,
        failed: 1,
        refused: 9,
        reports: 1,
        handovers: 0,
    };
    assert_eq!(sums.total, expected);
    assert_eq!((counts.lines, counts.broken), (lines(SENDMAIL).count() as u64, 0), "{counts:?}");
    let hour = civil(27, 3);
    assert_eq!(sums.hours.counts_at(hour), expected);
    assert_eq!(sums.deferrals.most(9).len(), 1);
    assert_eq!(sums.failures.most(1)[0].name, "User unknown");
    let late = late.list();
    assert_eq!(
        (late.len(), late[0].address.as_str(), late[0].reply.as_str()),
        (1, "later@d.test", "450 4.2.0 Greylisted")
    );
    // Deferred, and held for a person; a clone has the recipients of its first message.
    let ids: Vec<String> = waiting.list().into_iter().map(|message| message.id).collect();
    assert_eq!(ids, ["6AR3Q6Se031285", "6AR3QEa2031980"]);
}

#[test]
fn a_log_of_postfix_gives_its_figures() {
    let (sums, late, waiting, counts) = read(lines(POSTFIX));
    let expected = Counts {
        arrivals: 8,
        arrived_recipients: 1 + 3 + 1 + 2 + 1 + 1 + 1 + 60,
        arrived_bytes: 271 + 256 + 275 + 256 + 271 + 271 + 286 + 256,
        // The list goes in two transactions, the report is one of them.
        sent_hosts: 10,
        sent: 1 + 2 + 1 + 1 + 1 + 1 + 60 + 1 + 1,
        sent_bytes: 271 + 256 + 271 + 256 + 271 + 286 + 2 * 256 + 2_203 + 275,
        deferred_hosts: 3,
        deferred: 3,
        failed_hosts: 1,
        failed: 1,
        refused: 2,
        reports: 1,
        handovers: 0,
    };
    assert_eq!(sums.total, expected);
    assert_eq!(counts.broken, 0, "{counts:?}");
    assert_eq!(sums.delays.count(), sums.total.sent);
    let late = late.list();
    assert_eq!((late.len(), late[0].address.as_str(), late[0].attempts), (1, "always@d.test", 2));
    assert_eq!(
        waiting.list().into_iter().map(|one| (one.id, one.recipients)).collect::<Vec<_>>(),
        [("E3B4D9840B9".to_owned(), 1)]
    );
    assert_eq!(sums.refusals.most(1)[0].name, "Recipient address rejected: Access denied");
}

#[test]
fn stamps_of_rfc_3339_give_the_same_figures() {
    let iso =
        |line: &str| line.replacen("Nov 27 10:10:", "2026-11-27T10:10:", 1).replacen(" mx ", ".123456+01:00 mx ", 1);
    let text: String = POSTFIX.lines().map(|line| iso(line) + "\n").collect();
    assert!(text.starts_with("2026-11-27T10:10:11.123456+01:00 mx postfix/"));
    let (sums, (plain, ..)) = (read(lines(&text)).0, read(lines(POSTFIX)));
    assert_eq!(sums.total, plain.total);
    assert_eq!(sums.seconds.slots().collect::<Vec<_>>(), plain.seconds.slots().collect::<Vec<_>>());
}

#[test]
fn a_message_that_goes_through_a_filter_is_told_from_two() {
    let sendmail = "\
Nov 27 03:26:03 mx sendmail[1]: 6AR3Q3e2000001: from=ann, size=40, class=0, nrcpts=1, msgid=<1@mx>, relay=ann@localhost
Nov 27 03:26:03 mx sm-mta[2]: 6AR3Q3e2000002: from=<ann@mx>, size=300, class=0, nrcpts=1, msgid=<1@mx>, proto=ESMTP, daemon=MTA, relay=localhost [127.0.0.1]
Nov 27 03:26:03 mx sendmail[1]: 6AR3Q3e2000001: to=x@d.test, ctladdr=ann (1000/1000), delay=00:00:00, xdelay=00:00:00, mailer=relay, pri=30040, relay=[127.0.0.1] [127.0.0.1], dsn=2.0.0, stat=Sent (6AR3Q3e2000002 Message accepted for delivery)
Nov 27 03:26:04 mx sm-mta[3]: 6AR3Q3e2000002: to=<x@d.test>, delay=00:00:01, xdelay=00:00:01, mailer=esmtp, pri=120300, relay=mx.d.test. [10.9.9.1], dsn=2.0.0, stat=Sent (ok)
";
    let total = read(lines(sendmail)).0.total;
    assert_eq!((total.arrivals, total.sent, total.handovers), (2, 2, 1));
    let other_id = sendmail.replace("(6AR3Q3e2000002 Message", "(6AR3Q3e2000009 Message");
    assert_eq!(read(lines(&other_id)).0.total.handovers, 0, "a message that is not in this log");
}

#[test]
fn lines_of_1997_have_no_code() {
    let line = "Sep  6 10:54:25 ace sendmail[24338]: KAA24336: to=peter.j.scott@jpl.nasa.gov, ctladdr=kolstad (101/0), delay=00:00:07, xdelay=00:00:06, mailer=smtp, relay=mailhub.jpl.nasa.gov. [137.78.18.34], stat=Sent (Message received and queued)\n";
    let deferred = line.replace("Sent (Message received and queued)", "Deferred: Connection timed out with mailhub.");
    let (sums, ..) = read(lines(&format!("{line}{deferred}")));
    assert_eq!((sums.total.sent, sums.total.deferred), (1, 1));
    assert_eq!(sums.hosts.most(1)[0].name, "mailhub.jpl.nasa.gov");
    assert_eq!(sums.deferrals.most(1)[0].name, "Connection timed out with mailhub.");
}

#[test]
fn damaged_lines_are_counted_and_nothing_else() {
    let whole = read(lines(SENDMAIL)).0.total;
    let mut broken: Vec<Vec<u8>> = lines(SENDMAIL).map(<[u8]>::to_vec).collect();
    let cut = SENDMAIL.lines().find(|line| line.contains(": to=")).unwrap();
    broken.push(cut.split_once(", dsn=").unwrap().0.as_bytes().to_vec());
    broken.push(b"\xff\xfe\x00".to_vec());
    broken.push(vec![b'x'; log_reader::LINE_MAX + 1]);
    broken.push(b"Nov 27 03:26".to_vec());
    broken.push(b"{\"ts\":\"2026-11-27T03:26:03.000000Z\",\"event\":\"sent\"".to_vec());
    broken.push(b"Nov 27 03:26:03 mx last message repeated 3 times".to_vec());
    broken.push(Vec::new());
    let (sums, _, _, counts) = read(broken.iter().map(Vec::as_slice));
    assert_eq!(sums.total, whole);
    assert_eq!(counts.broken, 5, "{counts:?}");
    assert_eq!(counts.used + counts.other + counts.broken, counts.lines);
}

/// Text as a peer would choose it to change the figures.
fn text() -> impl Strategy<Value = String> {
    let piece = prop_oneof![
        4 => "[ -~]{1,12}",
        1 => any::<String>(),
        1 => Just(", dsn=2.0.0, stat=Sent".to_owned()),
        1 => Just(", [more], to=<x@y>, ".to_owned()),
        1 => Just("\",\"event\":\"sent\",\"to\":[\"<x@y>\"],\"".to_owned()),
        1 => Just("\r\nNov 20 13:00:00 mx sm-mta[1]: 6AR3Q3e2000001: to=<a@b>, stat=Sent\n".to_owned()),
        1 => Just("x".repeat(700)),
    ];
    proptest::collection::vec(piece, 0..5).prop_map(|pieces| pieces.concat())
}

proptest! {
    #[test]
    fn events_read_back_as_the_same_facts(
        (from, host, words) in (text(), text(), text()),
        to in proptest::collection::vec("<([a-z]{1,9}|\"[a-z,@]{1,9}\")@[a-z]{1,9}\\.test>", 1..90),
        (outcome, size, seconds) in (0..3_usize, any::<u32>(), 0..5_000_000_u64),
    ) {
        let to: Vec<&str> = to.iter().map(String::as_str).collect();
        let accepted = Event::Accepted {
            id: queue_id(),
            from: &from,
            size: size.into(),
            class: 0,
            nrcpts: to.len(),
            msgid: Some(&words),
            bodytype: None,
            mt_priority: None,
            protocol: mail::Protocol::Local,
            daemon: "MTA",
            identity: None,
            relay: Relay::Host { name: Some(&host), address: [10, 0, 0, 1].into(), may_be_forged: false },
        };
        let codes = [mail::Outcome::Success, mail::Outcome::Transient, mail::Outcome::Permanent];
        let reply = Reply::new(ReplyCode::of(if outcome == 1 { 450 } else { 550 }), None, &words);
        let delivery = Event::Delivery {
            id: queue_id(),
            to: &to,
            controller: None,
            delay: Duration::from_secs(seconds),
            xdelay: Duration::ZERO,
            phases: mail::PhaseTimes::default(),
            mailer: "esmtp",
            priority: 0,
            relay: NextHop::Host { name: Some(&host), address: [10, 0, 0, 2].into() },
            dsn: EnhancedCode::of(codes[outcome], 0, 0),
            reply: (outcome > 0).then_some(&reply),
            stat: [Stat::Sent(&words), Stat::Deferred(&words), Stat::Failed(&words)][outcome],
            reason: None,
        };
        let mut expected = Counts::default();
        for event in [&accepted, &delivery] {
            Fact::of_event(event, |fact| expected.record(fact));
        }
        // An event does not know the size of the message.
        expected.sent_bytes = expected.sent_hosts * u64::from(size);
        for is_json in [false, true] {
            let mut reader = LogReader::new(settings());
            let mut counts = Counts::default();
            for event in [accepted, delivery] {
                let mut next = Some(event);
                while let Some(event) = next {
                    let mut line = if is_json { String::new() } else { "Nov 27 13:00:00 mx mailrace[8]: ".to_owned() };
                    next = if is_json {
                        json::write(&event, "2026-11-27T13:00:00.000000Z", &mut line)
                    } else {
                        sendmail::write(&event, &mut line)
                    };
                    reader.read_line(line.as_bytes(), |_, fact| counts.record(fact));
                }
            }
            prop_assert_eq!(reader.counts().broken, 0);
            let mut expected = expected;
            if is_json {
                // A list in parts has no mark in JSON: each line counts as a transaction.
                (expected.sent_hosts, expected.sent_bytes) = (counts.sent_hosts, counts.sent_bytes);
                (expected.deferred_hosts, expected.failed_hosts) = (counts.deferred_hosts, counts.failed_hosts);
            }
            prop_assert_eq!(counts, expected);
        }
    }

    #[test]
    fn any_line_is_read(lines in proptest::collection::vec((text(), any::<Vec<u8>>(), 0..4_usize), 0..20)) {
        let begins = ["Nov 27 13:00:00 mx sm-mta[1]: 6AR3Q3e2000001: ", "Nov 27 13:00:00 mx postfix/smtp[1]: DE5899840B5: ",
            "{\"ts\":\"2026-11-27T13:00:00.000000Z\",\"event\":", ""];
        let mut reader = LogReader::new(settings());
        for (text, octets, begin) in &lines {
            let line = [begins[*begin].as_bytes(), text.as_bytes(), octets].concat();
            reader.read_line(&line, |_, fact| {
                if let Fact::Attempt(attempt) = fact {
                    assert_eq!(attempt.to.count(), attempt.recipients);
                }
            });
        }
        prop_assert_eq!(reader.counts().lines, lines.len() as u64);
    }
}

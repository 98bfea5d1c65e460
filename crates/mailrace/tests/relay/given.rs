//! The times and priorities that senders ask for, on the way to the next hop and in reports.

use crate::hop::{Act, At, Hop, Manners, Moment};
use crate::report::{Fields, Report};
use crate::world::{by_literal, ends_empty, relay, retrying, send, stopped, wait_line};
use spool::disk::real::RealDisk;
use spool::{Change, Config, Entry, Spool, State, Store as _};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use testkit::harness::{let_go, pause};

const CONTENT: &[u8] = b"Subject: lunch\r\nFrom: a@client.test\r\n\r\nAt noon.\r\n";
const LATER: &str = "451 4.7.1 Greylisted, come back";

/// Returns a hop that defers all recipients until the gate opens; those of one transaction have one fate.
fn gated(offers: &[&'static str]) -> (Hop, Arc<AtomicBool>) {
    let gate = Arc::new(AtomicBool::new(false));
    let is_open = Arc::clone(&gate);
    // Connections with a MAIL behind the opening.
    let passing = Mutex::new(BTreeSet::new());
    let script = move |moment: &Moment<'_>| {
        let mut passing = passing.lock().expect("nobody panicked");
        if moment.at == At::Mail && is_open.load(Ordering::Acquire) {
            passing.insert(moment.connection);
        }
        let is_deferred = !passing.contains(&moment.connection) && !moment.line.contains("a@client.test");
        if moment.at == At::Rcpt && is_deferred { Act::Say(LATER) } else { Act::Well }
    };
    (Hop::new(Manners::offering(offers).script(script)), gate)
}

/// `delivery.warn_after` is over long before; the time that the sender gave is when he wants to hear.
// RFC 2852 §4.1.3 (test), RFC 2852 §4.1.4.2 (test)
#[test]
fn a_sender_who_gave_a_time_hears_of_the_delay_then_and_of_the_relay_before() {
    let (hop, gate) = gated(&["PIPELINING", "DSN"]);
    let server = relay(&[&hop]).set("delivery.warn_after", "\"1s\"").start();
    send(&server, "<a@client.test> BY=100;N", &["soon@d.test", "<silent@d.test> NOTIFY=NEVER"], CONTENT);
    send(&server, "<a@client.test> BY=10;N", &["<late@d.test> NOTIFY=DELAY"], CONTENT);
    let delayed = Report::of(&hop.wait(1)[0]);
    delayed.expect(&[
        ("final-recipient", "rfc822; late@d.test"),
        ("action", "delayed"),
        ("status", "4.4.7"),
        ("diagnostic-code", &format!("smtp; {LATER}")),
    ]);
    assert!(delayed.message.contains_key("deliver-by-date") && delayed.message.contains_key("arrival-date"));
    gate.store(true, Ordering::Release);
    let mails = hop.wait(4);
    let relayed = mails.iter().skip(1).find(|mail| mail.mail == "MAIL FROM:<>").expect("a report");
    Report::of(relayed).expect(&[("final-recipient", "rfc822; soon@d.test"), ("action", "relayed")]);
    let mut said: Vec<&str> = mails.iter().flat_map(|mail| &mail.rcpts).map(String::as_str).collect();
    said.sort_unstable();
    let wanted = [
        "RCPT TO:<a@client.test>",
        "RCPT TO:<a@client.test>",
        "RCPT TO:<late@d.test> NOTIFY=DELAY",
        "RCPT TO:<silent@d.test> NOTIFY=NEVER",
        "RCPT TO:<soon@d.test> NOTIFY=FAILURE,DELAY",
    ];
    assert_eq!(said, wanted);
    ends_empty(server);
    assert_eq!(hop.count(), 4);
}

/// The host takes no connection, so the walk over the queue tells how old the mail is.
// RFC 2852 §4.1.3 (test)
#[test]
fn the_same_while_the_host_is_down() {
    let mut hops = Hop::neighbours(vec![Manners::default(), Manners::default()]);
    hops[1].shut();
    let server = by_literal(&hops).set("delivery.warn_after", "\"1s\"").start();
    let (from, to) = (hops[0].mailbox("a"), |local: &str| hops[1].mailbox(local));
    send(&server, &format!("<{from}> BY=10;N"), &[&to("timed")], CONTENT);
    send(&server, &from, &[&to("plain")], CONTENT);
    let mails = hops[0].wait(2);
    for (mail, local) in mails.iter().zip(["plain", "timed"]) {
        let wanted = format!("rfc822; {}", to(local));
        Report::of(mail).expect(&[("final-recipient", &wanted), ("action", "delayed"), ("status", "4.4.7")]);
    }
    hops[1].reopen();
    hops[1].wait(2);
    ends_empty(server);
    assert_eq!(hops[0].count(), 2);
}

/// Spools of before have counts of attempts where the mark of a time is now.
// RFC 2852 §4.1.3 (test)
#[test]
fn an_old_count_of_attempts_is_no_time_that_a_sender_gave() {
    const OLD: u8 = 20;
    let mut hops = Hop::neighbours(vec![Manners::default(), Manners::default()]);
    hops[1].shut();
    let setup = retrying(by_literal(&hops), "1h");
    let mut server = setup.start();
    let from = hops[0].mailbox("a");
    // Long enough for the server to be started again, on a busy machine too.
    for (local, params) in
        [("bulk", "MT-PRIORITY=-4"), ("urgent", "MT-PRIORITY=4"), ("timed", "BY=30;R MT-PRIORITY=-4")]
    {
        send(&server, &format!("<{from}> {params}"), &[&hops[1].mailbox(local)], CONTENT);
    }
    wait_line(&mut server, &["stat=Deferred: Connection refused"]);
    let setup = stopped(server).1;
    let config = Config { free_min: 0, ..Config::new(setup.path("spool")) };
    let spool = Spool::open(config, Arc::new(RealDisk::new())).expect("a spool").0;
    let states = spool.messages().into_iter().flat_map(|id| spool.states(id));
    let classed = states.filter(|(entry, _)| entry.state.class() > 0);
    let changes: Vec<Change> = classed
        .map(|(Entry { id, recipient, state }, _)| {
            let state = State { attempts: state.attempts & !State::TRIES_MAX | OLD, ..state };
            assert!(state.is_marked(), "{state:?}");
            Change { id, recipient, state, destination: None }
        })
        .collect();
    assert_eq!(changes.len(), 3);
    spool.record(&changes).expect("taken").wait().expect("durable");
    drop(spool);
    let_go(&setup.path("spool"));
    let server = setup.start();
    // Only the sender that gave a time gets a report that it is over.
    Report::of(&hops[0].wait(1)[0]).expect(&[("final-recipient", &format!("rfc822; {}", hops[1].mailbox("timed")))]);
    hops[1].reopen();
    let output = server.control(&["queue", "retry", "--all"], b"");
    assert!(output.status.success(), "{output:?}");
    let mut came: Vec<String> = hops[1].wait(2).iter().map(|mail| mail.to().to_owned()).collect();
    came.sort_unstable();
    assert_eq!(came, [hops[1].mailbox("bulk"), hops[1].mailbox("urgent")]);
    ends_empty(server);
    assert_eq!((hops[0].count(), hops[1].count()), (1, 2));
}

/// Seconds of the day of a date in the form of RFC 5322.
fn second(fields: &Fields, name: &str) -> i64 {
    let date = fields.get(name).unwrap_or_else(|| panic!("no {name}: {fields:#?}"));
    let time = date.split(' ').nth(4).expect("a time");
    time.split(':').map(|part| part.parse::<i64>().expect("a number")).fold(0, |sum, part| sum * 60 + part)
}

/// The age that decides counts from the release, and so does what the sender is told of it.
// RFC 4865 §5.1.2 (test)
#[test]
fn reports_on_held_mail_tell_what_was_asked_and_when_it_ends() {
    let (hop, gate) = gated(&["PIPELINING"]);
    // Longer than the first attempt takes: the report has the reply to an attempt.
    let setup = relay(&[&hop]).set("delivery.warn_after", "\"8s\"").set("delivery.give_up_after", "\"60s\"");
    let server = setup.listen("protocol = \"submission\", auth_required = false").start();
    send(&server, "<a@client.test> HOLDFOR=3", &["b@d.test"], CONTENT);
    let report = Report::of(&hop.wait(1)[0]);
    report.expect(&[("final-recipient", "rfc822; b@d.test"), ("action", "delayed"), ("status", "4.7.1")]);
    assert_eq!(report.message.get("future-release-request").map(String::as_str), Some("for;3"));
    let tried_for = second(report.only(), "will-retry-until") - second(&report.message, "arrival-date");
    assert!((62..=64).contains(&tried_for.rem_euclid(86_400)), "{report:#?}");
    gate.store(true, Ordering::Release);
    hop.wait(2);
    ends_empty(server);
}

/// It is older than mail whose sender hears of a delay when it is tried first. That is no reason not to try it again,
/// although its list was read meanwhile for the mail beside it.
#[test]
fn held_mail_is_tried_as_other_mail_is_once_its_time_has_come() {
    let gate = Arc::new(AtomicBool::new(false));
    let (is_open, is_known) = (Arc::clone(&gate), AtomicBool::new(false));
    let hop = Hop::new(Manners::offering(&["PIPELINING"]).script(move |moment| match moment.at {
        At::Rcpt if moment.line.contains("<beside@") && !is_known.swap(true, Ordering::AcqRel) => Act::Say(LATER),
        At::Rcpt if moment.line.contains("<held@") && !is_open.load(Ordering::Acquire) => Act::Say(LATER),
        _ => Act::Well,
    }));
    let setup = relay(&[&hop]).set("delivery.warn_after", "\"10s\"");
    let setup = retrying(setup, "2s");
    let server = setup.listen("protocol = \"submission\", auth_required = false").start();
    send(&server, "<a@client.test> HOLDFOR=11", &["held@d.test"], CONTENT);
    pause(Duration::from_secs(10));
    send(&server, "a@client.test", &["beside@d.test"], CONTENT);
    assert_eq!(hop.wait(1)[0].to(), "beside@d.test");
    // Ten seconds after the first try its sender hears of the delay.
    Report::of(&hop.wait(2)[1]).expect(&[("final-recipient", "rfc822; held@d.test"), ("action", "delayed")]);
    let tries = hop.talks().concat().iter().filter(|line| line.starts_with("RCPT TO:<held@d.test>")).count();
    assert!(tries >= 3, "{tries}");
    gate.store(true, Ordering::Release);
    hop.wait(3);
    ends_empty(server);
}

// RFC 6710 §4.1 (test), RFC 6710 §4.2 (test), RFC 6710 §4.6 (test)
#[test]
fn a_priority_goes_on_and_is_traced_logged_and_that_of_reports() {
    let script = |moment: &Moment<'_>| match moment.at {
        At::Rcpt if moment.line.contains("<unknown") => Act::Say("550 5.1.1 no such person"),
        _ => Act::Well,
    };
    let hop = Hop::new(Manners::offering(&["PIPELINING", "MT-PRIORITY MIXER"]).script(script));
    let mut server = relay(&[&hop]).start();
    for (given, said, clause) in [
        (" MT-PRIORITY=4", " MT-PRIORITY=4", "PRIORITY 4;"),
        (" MT-PRIORITY=-9", " MT-PRIORITY=-9", "PRIORITY -9;"),
        ("", " MT-PRIORITY=0", ""),
    ] {
        let before = hop.count();
        send(&server, &format!("<a@client.test>{given}"), &["b@d.test", "unknown@d.test"], CONTENT);
        let mails = hop.wait(before + 2);
        let report = mails.iter().skip(before).find(|mail| mail.mail.starts_with("MAIL FROM:<>")).expect("a report");
        assert_eq!(report.mail, format!("MAIL FROM:<>{said}"));
        let mail = mails.iter().skip(before).find(|mail| !mail.mail.starts_with("MAIL FROM:<>")).expect("the message");
        assert_eq!(mail.mail, format!("MAIL FROM:<a@client.test>{said}"));
        let trace = mail.text();
        let trace = trace.split_once("\r\nSubject").expect("a header").0;
        assert_eq!(trace.contains("PRIORITY"), !clause.is_empty(), "{trace}");
        assert!(trace.contains(clause), "{trace}");
        if !given.is_empty() {
            let logged = format!(", mt_priority={}, relay=", given.rsplit('=').next().expect("a value"));
            wait_line(&mut server, &["from=<a@client.test>", &logged]);
        }
    }
    ends_empty(server);
}

//! Reports to senders: reports of each kind, their recipients, and mail that gets none.

use crate::hop::{Act, At, Hop, Mail, Manners, Moment};
use crate::report::Report;
use crate::restart::fill;
use crate::world::{
    any_line, by_literal, ends_empty, killed, lines, relay, reload, retrying, send, send_over, wait_line,
};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use testkit::client::greeted;
use testkit::harness::{Server, letters};

const CONTENT: &[u8] = b"Subject: lunch\r\nFrom: a@client.test\r\n\r\nAt noon.\r\n..dots\r\n";
const DSN: [&str; 5] = ["PIPELINING", "8BITMIME", "SIZE", "DSN", "ENHANCEDSTATUSCODES"];

/// Refuses recipients whose local part says so, at RCPT; takes all others.
fn picky(moment: &Moment<'_>) -> Act {
    match moment.at {
        At::Rcpt if moment.line.contains("<unknown") => Act::Say("550 5.1.1 There is no such person here"),
        At::Rcpt if moment.line.contains("<later") => Act::Say("451 4.7.1 Greylisted, come back"),
        At::Rcpt if moment.line.contains("<plain") => Act::Say("550 go away"),
        At::Rcpt if moment.line.contains("<several") => Act::Say("550-5.7.1 First line\n550 5.7.1 second line"),
        _ => Act::Well,
    }
}

fn picky_hop() -> Hop {
    Hop::new(Manners::default().script(picky))
}

/// The report that comes first.
#[track_caller]
fn report(hop: &Hop) -> (Arc<Mail>, Report) {
    let mails = hop.wait_until("a report", |mails| mails.iter().any(|mail| is_report(mail)));
    let mail = mails.iter().find(|mail| is_report(mail)).expect("one came");
    (Arc::clone(mail), Report::of(mail))
}

fn is_report(mail: &Mail) -> bool {
    mail.mail.starts_with("MAIL FROM:<>")
}

fn reports(hop: &Hop) -> usize {
    hop.mails().iter().filter(|mail| is_report(mail)).count()
}

#[test]
fn a_failure_is_reported_with_all_that_is_known() {
    let hop = picky_hop();
    let mut server = relay(&[&hop]).start();
    let to = "<unknown@d.test> ORCPT=rfc822;first+2Bone@o.test NOTIFY=FAILURE";
    let id = send(&server, "<a@client.test> ENVID=env+2Bid", &[to], CONTENT);
    let (mail, report) = report(&hop);
    assert_eq!(mail.to(), "a@client.test");
    assert!(report.field("from").ends_with("<MAILER-DAEMON@mx.test>"), "{}", report.field("from"));
    assert!(report.field("to").contains("a@client.test"), "{}", report.field("to"));
    assert_eq!(report.field("auto-submitted"), "auto-replied");
    assert!(report.field("message-id").ends_with("@mx.test>"), "{}", report.field("message-id"));
    assert!(!report.field("subject").is_empty() && !report.field("date").is_empty() && !report.words.is_empty());
    assert_eq!(report.field("mime-version"), "1.0");
    for part in ["unknown@d.test", "There is no such person here"] {
        assert!(report.words.contains(part), "{part}: {}", report.words);
    }
    assert_eq!(report.message["reporting-mta"], "dns; mx.test");
    assert_eq!(report.message["original-envelope-id"], "env+id");
    assert!(report.message.contains_key("arrival-date"), "{report:#?}");
    report.expect(&[
        ("original-recipient", "rfc822;first+one@o.test"),
        ("final-recipient", "rfc822; unknown@d.test"),
        ("action", "failed"),
        ("status", "5.1.1"),
        ("diagnostic-code", "smtp; 550 5.1.1 There is no such person here"),
    ]);
    assert!(report.only()["remote-mta"].contains(&hop.ip()), "{report:#?}");
    assert!(report.only().contains_key("last-attempt-date"), "{report:#?}");
    assert_eq!(report.returned_type, "message/rfc822");
    assert_eq!(report.returned_subject, "lunch");
    assert!(report.returned.ends_with("\n\nAt noon.\n.dots"), "{}", report.returned);
    let line = server.wait_log(&format!("{id}: to=<unknown@d.test>"));
    assert!(line.contains("dsn=5.1.1") && line.ends_with("stat=User unknown"), "{line}");
    let line = wait_line(&mut server, &[&format!("{id}: "), "DSN: User unknown"]);
    let daughter = line.split(": ").nth(2).expect("an id").to_owned();
    any_line(&mut server, &[&format!("{daughter}: to=<a@client.test>"), "stat=Sent"]);
    ends_empty(server);
    assert_eq!(hop.count(), 1);
}

#[test]
fn replies_of_all_forms_are_quoted() {
    let hop = picky_hop();
    let server = relay(&[&hop]).start();
    send(&server, "a@client.test", &["plain@d.test"], CONTENT);
    let (_, plain) = report(&hop);
    plain.expect(&[("status", "5.0.0"), ("diagnostic-code", "smtp; 550 go away")]);
    send(&server, "a@client.test", &["several@d.test"], CONTENT);
    let mails = hop.wait(2);
    let several = Report::of(&mails[1]);
    several.expect(&[("status", "5.7.1"), ("action", "failed")]);
    let diagnostic = &several.only()["diagnostic-code"];
    assert!(diagnostic.contains("First line") && diagnostic.contains("second line"), "{diagnostic}");
    ends_empty(server);
}

#[test]
fn one_report_names_those_that_failed_and_no_others() {
    let hop = picky_hop();
    let server = relay(&[&hop]).start();
    let to = ["unknown1@d.test", "good@d.test", "plain@d.test", "<unknown2@d.test> NOTIFY=NEVER"];
    send(&server, "a@client.test", &to, CONTENT);
    let mails = hop.wait(2);
    assert_eq!(mails[0].to(), "good@d.test");
    let (mail, report) = report(&hop);
    assert_eq!(mail.to(), "a@client.test");
    let mut finals: Vec<&str> = report.recipients.iter().map(|one| one["final-recipient"].as_str()).collect();
    finals.sort_unstable();
    assert_eq!(finals, ["rfc822; plain@d.test", "rfc822; unknown1@d.test"]);
    assert!(!report.words.contains("good@d.test") && !report.words.contains("unknown2"), "{}", report.words);
    ends_empty(server);
    assert_eq!(hop.count(), 2);
}

// RFC 3461 §4.3 (test)
#[test]
fn what_is_returned_of_the_message() {
    let hop = picky_hop();
    let server = relay(&[&hop]).set("delivery.return_bytes_max", "\"10KiB\"").start();
    let long = [CONTENT, &b"a line of thirty-two octets....\r\n".repeat(400)].concat();
    let cases: [(&str, &[u8], &str, bool); 4] = [
        ("<hdrs@client.test> RET=HDRS", CONTENT, "text/rfc822-headers", false),
        ("<full@client.test> RET=FULL", CONTENT, "message/rfc822", true),
        ("<none@client.test>", CONTENT, "message/rfc822", true),
        ("<long@client.test> RET=FULL", &long, "text/rfc822-headers", false),
    ];
    for (from, content, ..) in &cases {
        send(&server, from, &["unknown@d.test"], content);
    }
    let mails = hop.wait(cases.len());
    for (from, _, kind, has_text) in cases {
        let to = crate::hop::address(from);
        let mail = mails.iter().find(|mail| mail.to() == to).expect("each has a report");
        let report = Report::of(mail);
        assert_eq!((report.returned_type.as_str(), report.returned_subject.as_str()), (kind, "lunch"), "{from}");
        assert_eq!(report.returned.contains("At noon."), has_text, "{from}: {}", report.returned);
    }
    ends_empty(server);
}

// RFC 3461 §5.2.2, §5.2.3 (test)
#[test]
fn success_is_reported_where_the_next_hop_does_not() {
    let hop = Hop::good();
    let server = relay(&[&hop]).start();
    send(&server, "<a@client.test> RET=FULL ENVID=e1", &["<b@d.test> NOTIFY=SUCCESS"], CONTENT);
    let mails = hop.wait(2);
    assert_eq!(mails[0].mail.split(' ').find(|word| word.starts_with("RET") || word.starts_with("ENVID")), None);
    assert_eq!(mails[0].rcpts, ["RCPT TO:<b@d.test>"]);
    let (_, report) = report(&hop);
    report.expect(&[("action", "relayed"), ("status", "2.0.0"), ("final-recipient", "rfc822; b@d.test")]);
    assert_eq!(report.message["original-envelope-id"], "e1");
    assert_eq!(report.returned_type, "text/rfc822-headers");
    ends_empty(server);
    assert_eq!(hop.count(), 2);
}

// RFC 3461 §5.2.1 (test)
#[test]
fn parameters_are_passed_on_to_a_next_hop_that_knows_them() {
    let hop = Hop::new(Manners::offering(&DSN).script(picky));
    let server = relay(&[&hop]).start();
    let to = ["<b@d.test> NOTIFY=SUCCESS,DELAY ORCPT=rfc822;x+2By@o.test", "<c@d.test> NOTIFY=NEVER", "<d@d.test>"];
    send(&server, "<a@client.test> RET=HDRS ENVID=a+2Bb", &to, CONTENT);
    let mails = hop.wait(1);
    assert!(mails[0].mail.contains(" RET=HDRS") && mails[0].mail.contains(" ENVID=a+2Bb"), "{}", mails[0].mail);
    let mut rcpts = mails[0].rcpts.clone();
    rcpts.sort_unstable();
    let first = rcpts[0].strip_prefix("RCPT TO:<b@d.test> ").expect("parameters");
    let mut words: Vec<&str> = first.split(' ').collect();
    words.sort_unstable();
    assert_eq!(words[1], "ORCPT=rfc822;x+2By@o.test");
    let mut notify: Vec<&str> = words[0].strip_prefix("NOTIFY=").expect("it").split(',').collect();
    notify.sort_unstable();
    assert_eq!(notify, ["DELAY", "SUCCESS"]);
    assert_eq!(&rcpts[1..], ["RCPT TO:<c@d.test> NOTIFY=NEVER", "RCPT TO:<d@d.test>"]);
    // The next hop reports success itself. A failure before it has the message is ours to report.
    send(&server, "<a@client.test> RET=HDRS", &["<unknown@d.test> NOTIFY=FAILURE"], CONTENT);
    let (_, report) = report(&hop);
    report.expect(&[("action", "failed")]);
    ends_empty(server);
    assert_eq!(hop.count(), 2);
}

#[test]
fn silence_where_nobody_wants_to_hear() {
    let hop = picky_hop();
    let mut server = relay(&[&hop]).start();
    for to in ["<unknown@d.test> NOTIFY=NEVER", "<unknown@d.test> NOTIFY=SUCCESS", "<later@d.test> NOTIFY=NEVER"] {
        send(&server, "a@client.test", &[to], CONTENT);
    }
    // And a success without NOTIFY=SUCCESS.
    send(&server, "a@client.test", &["good@d.test"], CONTENT);
    wait_line(&mut server, &["to=<later@d.test>", "stat=Deferred: 451 4.7.1 Greylisted"]);
    // It is given up at the next attempt.
    reload(&mut server, "delivery.give_up_after", "\"1s\"");
    poll_gone(&mut server, "later@d.test");
    ends_empty(server);
    assert_eq!(hop.count(), 1);
    assert_eq!(reports(&hop), 0);
}

/// Waits until a recipient was given up.
fn poll_gone(server: &mut Server, recipient: &str) {
    loop {
        let line = server.wait_log(&format!("to=<{recipient}>"));
        if !line.contains("stat=Deferred") && !line.contains("stat=queued") {
            return;
        }
    }
}

#[test]
fn a_delay_is_reported_once_and_then_the_end() {
    let hop = picky_hop();
    // Longer than the first attempt takes: the warning has the words of an attempt.
    let mut server = relay(&[&hop]).set("delivery.warn_after", "\"3s\"").start();
    send(&server, "a@client.test", &["later@d.test", "<later2@d.test> NOTIFY=FAILURE"], CONTENT);
    let (_, delayed) = report(&hop);
    // It comes from an attempt, or between two attempts from the walk over waiting mail.
    delayed.expect(&[("action", "delayed"), ("final-recipient", "rfc822; later@d.test")]);
    assert!(delayed.only()["status"].starts_with('4') && delayed.words.contains("Greylisted"), "{delayed:#?}");
    assert!(delayed.only().contains_key("will-retry-until"), "{delayed:#?}");
    assert_eq!(delayed.returned_type, "text/rfc822-headers");
    reload(&mut server, "delivery.give_up_after", "\"1s\"");
    let failed = |mail: &Arc<Mail>| is_report(mail) && mail.text().contains("Action: failed");
    let named = |mails: &[Arc<Mail>], who: &str| mails.iter().any(|mail| failed(mail) && mail.text().contains(who));
    let mails = hop.wait_until("both are given up", |mails| {
        ["rfc822; later@d.test", "rfc822; later2@d.test"].iter().all(|who| named(mails, who))
    });
    for mail in mails.iter().filter(|mail| failed(mail)) {
        let report = Report::of(mail);
        assert!(report.words.contains("Greylisted"), "{}", report.words);
        for recipient in &report.recipients {
            assert!(recipient["status"].starts_with(['4', '5']), "{recipient:?}");
        }
    }
    ends_empty(server);
    let delays = hop.mails().iter().filter(|mail| mail.text().contains("Action: delayed")).count();
    assert_eq!(delays, 1, "one warning is enough");
}

/// The host takes no connection, so no attempt tells how old the mail is.
#[test]
fn mail_for_a_host_that_is_down_is_warned_of_and_given_up() {
    let mut hops = Hop::neighbours(vec![Manners::default(), Manners::default()]);
    hops[1].shut();
    let mut server = by_literal(&hops).set("delivery.warn_after", "\"1s\"").start();
    let (from, to) = (hops[0].mailbox("a"), hops[1].mailbox("b"));
    let id = send(&server, &from, &[&to], CONTENT);
    let line = wait_line(&mut server, &[&format!("{id}: to=<{to}>")]);
    let refused = format!("stat=Deferred: Connection refused by {}", hops[1].ip());
    assert!(line.contains("dsn=4.4.1") && line.ends_with(&refused), "{line}");
    hops[0].wait(1);
    reload(&mut server, "delivery.give_up_after", "\"1s\"");
    let mails = hops[0].wait(2);
    let (warned, failed) = (Report::of(&mails[0]), Report::of(&mails[1]));
    warned.expect(&[("action", "delayed"), ("final-recipient", &format!("rfc822; {to}"))]);
    failed.expect(&[("action", "failed"), ("final-recipient", &format!("rfc822; {to}"))]);
    assert!(failed.words.contains("Connection refused"), "{}", failed.words);
    assert_eq!(failed.returned_type, "message/rfc822");
    ends_empty(server);
    assert_eq!(hops[0].count(), 2);
}

/// The warning goes out with those of other destinations, and no attempt waits for it.
#[test]
fn mail_of_several_destinations_is_tried_when_it_is_due_although_a_warning_came_between() {
    let is_warned = Arc::new(AtomicBool::new(false));
    let tells = Arc::clone(&is_warned);
    let late = Manners::default().script(move |moment| match moment.at {
        At::Rcpt if !tells.load(Ordering::Relaxed) => Act::Say("451 4.7.1 Greylisted, come back"),
        _ => Act::Well,
    });
    let hops = Hop::neighbours(vec![Manners::default(), late.clone(), late]);
    let setup = by_literal(&hops).set("delivery.warn_after", "\"2s\"");
    let server = retrying(setup, "8s").start();
    let from = hops[0].mailbox("a");
    send(&server, &from, &[&hops[1].mailbox("b"), &hops[2].mailbox("c")], CONTENT);
    let mails = hops[0].wait(1);
    let delayed = Report::of(&mails[0]);
    assert!(delayed.recipients.iter().all(|one| one["action"] == "delayed"), "{delayed:#?}");
    is_warned.store(true, Ordering::Relaxed);
    hops[1].wait(1);
    hops[2].wait(1);
    ends_empty(server);
    assert_eq!(hops[0].count(), 1, "one warning is enough");
}

/// A recipient whose failure is reported with others waits for the report, and is neither logged nor tried again
/// meanwhile.
#[test]
fn who_is_given_up_is_given_up_once() {
    let mut hops = Hop::neighbours(vec![Manners::default(), Manners::default(), Manners::default()]);
    hops[1].shut();
    hops[2].shut();
    let mut server = by_literal(&hops).set("delivery.give_up_after", "\"2s\"").start();
    let from = hops[0].mailbox("a");
    let to = [hops[1].mailbox("b"), hops[2].mailbox("c")];
    send(&server, &from, &[&to[0], &to[1]], CONTENT);
    for one in &to {
        any_line(&mut server, &[&format!("to=<{one}>"), "dsn=5."]);
    }
    hops[1].reopen();
    hops[2].reopen();
    let output = server.control(&["queue", "retry", "--all"], b"");
    assert!(output.status.success(), "{output:?}");
    let mails = hops[0].wait(1);
    assert_eq!(Report::of(&mails[0]).recipients.len(), 2);
    let failed = server.status("/deliveries/failed");
    let ended = ends_empty(server);
    assert_eq!((hops[0].count(), hops[1].count(), hops[2].count()), (1, 0, 0));
    for one in &to {
        let told = lines(&ended.log, &[&format!("to=<{one}>"), "dsn=5."]);
        assert_eq!(told.len(), 1, "{told:#?}");
    }
    assert_eq!(failed, 2);
}

/// The next attempt is an hour away; the time that the sender gave is not.
// RFC 2852 §4.1.3 (test)
#[test]
fn the_end_of_a_given_time_is_told_when_it_comes_although_the_host_is_down() {
    let mut hops = Hop::neighbours(vec![Manners::default(), Manners::default()]);
    hops[1].shut();
    let setup = retrying(by_literal(&hops), "1h");
    let mut server = setup.start();
    let from = hops[0].mailbox("a");
    let post = |server: &Server, to: &str, params: &str| {
        let to = if to.contains('<') { to.to_owned() } else { format!("<{}>", hops[1].mailbox(to)) };
        send(server, &format!("<{from}> {params}"), &[&to], CONTENT)
    };
    // Nothing is tried behind this one: if the server or this test is late, the time of the others ends all the same.
    post(&server, "plain", "SIZE=100");
    wait_line(&mut server, &["to=<plain@", "stat=Deferred: Connection refused"]);
    post(&server, "first", "BY=3;R");
    post(&server, "late", "BY=3;N");
    post(&server, "bulk", "BY=3;R MT-PRIORITY=-4");
    post(&server, &format!("<{}> NOTIFY=NEVER", hops[1].mailbox("silent")), "BY=3;R");
    post(&server, "told", "BY=-3;N");
    wait_line(&mut server, &["to=<silent@", "dsn=5.4.7"]);
    let reports: Vec<Report> = hops[0].wait(3).iter().map(|mail| Report::of(mail)).collect();
    for (local, action, status) in
        [("first", "failed", "5.4.7"), ("bulk", "failed", "5.4.7"), ("late", "delayed", "4.4.7")]
    {
        let to = format!("rfc822; {}", hops[1].mailbox(local));
        let report = reports.iter().find(|report| report.only()["final-recipient"] == to).expect(local);
        report.expect(&[("action", action), ("status", status)]);
    }
    hops[1].reopen();
    let output = server.control(&["queue", "retry", "--all"], b"");
    assert!(output.status.success(), "{output:?}");
    hops[1].wait(3);
    ends_empty(server);
    assert_eq!((hops[0].count(), hops[1].count()), (3, 3));
}

// RFC 3464 §2.3.9 (test)
#[test]
fn a_delay_promises_no_attempt_behind_the_end_of_a_given_time() {
    let mut hops = Hop::neighbours(vec![Manners::default(), Manners::default()]);
    hops[1].shut();
    let server = by_literal(&hops).set("delivery.warn_after", "\"1s\"").start();
    let from = hops[0].mailbox("a");
    send(&server, &format!("<{from}> BY=36000;R"), &[&hops[1].mailbox("b")], CONTENT);
    let delayed = Report::of(&hops[0].wait(1)[0]);
    delayed.expect(&[("action", "delayed"), ("will-retry-until", &delayed.message["deliver-by-date"])]);
}

// RFC 2852 §4.1.4 (test), RFC 2852 §4.1.4.1 (test), RFC 2852 §4.1.4.2 (test)
#[test]
fn a_time_that_the_next_hop_does_not_know_goes_back_or_is_told() {
    const MANY: [&str; 5] = ["PIPELINING", "8BITMIME", "SIZE", "DSN", "DELIVERBY"];
    for (offers, params, action) in [
        (&DSN[..], "BY=100;R", Some("failed")),
        (&DSN, "BY=100;N", Some("relayed")),
        (&DSN, "BY=-100;N", None),
        (&MANY, "BY=100;R", None),
        (&MANY, "BY=100;N", None),
        (&MANY, "BY=100;RT", Some("relayed")),
    ] {
        let hop = Hop::new(Manners::offering(offers));
        let server = relay(&[&hop]).start();
        // NOTIFY=SUCCESS is for the next hop, which offers DSN.
        let to = ["b@d.test", "<c@d.test> NOTIFY=SUCCESS", "<silent@d.test> NOTIFY=NEVER"];
        send(&server, &format!("<a@client.test> {params}"), &to, CONTENT);
        let fails = action == Some("failed");
        let expected = usize::from(!fails) + usize::from(action.is_some());
        let mails = hop.wait(expected);
        let reported = mails.iter().find(|mail| is_report(mail)).map(|mail| Report::of(mail));
        assert_eq!(reported.is_some(), action.is_some(), "{params}: {reported:#?}");
        if let (Some(report), Some(action)) = (reported, action) {
            let told: Vec<&str> = report.recipients.iter().map(|one| one["final-recipient"].as_str()).collect();
            // A failure is not what the second one wants to hear of.
            let wanted = &["rfc822; b@d.test", "rfc822; c@d.test"][..if fails { 1 } else { 2 }];
            assert_eq!(told, wanted, "{params}");
            for one in &report.recipients {
                assert_eq!((one["action"].as_str(), one["status"].starts_with("5.4.7")), (action, fails), "{params}");
            }
        }
        ends_empty(server);
        assert_eq!(hop.count(), expected, "{params}");
    }
}

#[test]
fn times_given_by_senders_are_known_after_a_start() {
    let mut hops = Hop::neighbours(vec![Manners::default(), Manners::default()]);
    hops[1].shut();
    let setup = retrying(by_literal(&hops), "1h");
    let server = setup.start();
    let mut client = greeted(server.address());
    let sender = hops[0].mailbox("a");
    // More than are read before the first connection, of each class.
    for number in 0..80 {
        let from = format!("<{sender}> BY=6;R{}", ["", " MT-PRIORITY=4", " MT-PRIORITY=-4"][number % 3]);
        send_over(&mut client, &from, &[&hops[1].mailbox(&format!("b{number}"))], CONTENT);
    }
    client.quit();
    let server = killed(server).start();
    for mail in hops[0].wait(80) {
        Report::of(&mail).expect(&[("action", "failed"), ("status", "5.4.7")]);
    }
    ends_empty(server);
}

#[test]
fn reports_that_cannot_be_delivered_go_to_the_postmaster() {
    let hop = picky_hop();
    let mut server = relay(&[&hop]).start();
    send(&server, "<>", &["unknown@d.test"], CONTENT);
    let (mail, double) = report(&hop);
    assert_eq!(mail.to(), "postmaster@mx.test");
    double.expect(&[("action", "failed"), ("final-recipient", "rfc822; unknown@d.test")]);
    // From a report of our own too: its addressee does not exist.
    let id = send(&server, "unknown2@client.test", &["unknown3@d.test"], CONTENT);
    let mails = hop.wait(2);
    assert_eq!(mails[1].to(), "postmaster@mx.test");
    assert_eq!(Report::of(&mails[1]).only()["final-recipient"], "rfc822; unknown2@client.test");
    wait_line(&mut server, &[&format!("{id}: to=<unknown3@d.test>"), "stat=User unknown"]);
    server.wait_log("postmaster notify: User unknown");
    ends_empty(server);
    assert_eq!(hop.count(), 2);
}

#[test]
fn another_postmaster_can_be_named() {
    let hop = picky_hop();
    let server = relay(&[&hop]).set("delivery.postmaster", "\"help@desk.test\"").start();
    send(&server, "<>", &["unknown@d.test"], CONTENT);
    assert_eq!(report(&hop).0.to(), "help@desk.test");
    ends_empty(server);
}

#[test]
fn a_report_that_the_postmaster_cannot_get_is_held() {
    let hop = Hop::new(Manners::default().script(|moment| match moment.at {
        At::Rcpt => Act::Say("550 5.1.1 nobody is here"),
        _ => Act::Well,
    }));
    let mut server = relay(&[&hop]).start();
    send(&server, "a@client.test", &["unknown@d.test"], CONTENT);
    let line = server.wait_log("report to the postmaster <postmaster@mx.test> failed");
    assert!(line.contains("held"), "{line}");
    // After a restart it is still held, and is not tried. The state is recorded some milliseconds behind the line.
    let server = crate::world::stopped(server).1.start();
    let id = send(&server, "<>", &["<unknown@d.test> NOTIFY=NEVER"], CONTENT);
    let mut server = server;
    wait_line(&mut server, &[&id, "stat=User unknown"]);
    let before = hop.talks().concat().iter().filter(|line| line.contains("<postmaster@mx.test>")).count();
    assert_eq!(before, 1);
    let (path, _dir) = (server.setup.path("spool"), server.setup.dir.clone());
    drop(killed(server));
    let left = letters(&path);
    let held = left.iter().filter(|letter| letter.envelope.recipients[0].address.to_string() == "postmaster@mx.test");
    assert_eq!(held.count(), 1, "{left:?}");
}

#[test]
fn a_report_returns_less_where_there_is_room_for_small_mail_only() {
    let put_off = |moment: &Moment<'_>| match moment.at {
        At::Rcpt if moment.line.contains("@d.test>") && !moment.line.contains("<unknown") => Act::Say("451 later"),
        _ => picky(moment),
    };
    let hop = Hop::new(Manners::default().script(put_off));
    let setup = relay(&[&hop]).set("spool.size_max", "\"8MiB\"").set("delivery.return_bytes_max", "\"1MiB\"");
    let setup = setup.set("message.size_max", "\"4MiB\"").set("delivery.retry_first", "\"1h\"");
    let mut server = setup.set("delivery.retry_max", "\"1h\"").start();
    let content = [CONTENT, &b"a line of thirty-two octets....\r\n".repeat(3_200)].concat();
    // The control: where there is room all of it goes back.
    send(&server, "a@client.test", &["unknown@d.test"], &content);
    let whole = Report::of(&hop.wait(1)[0]);
    assert_eq!(whole.returned_type, "message/rfc822");
    let id = send(&server, "b@client.test", &["later@d.test"], &content);
    wait_line(&mut server, &[&id, "stat=Deferred: 451 later"]);
    fill(&mut greeted(server.address()), &content, 0);
    hop.behave(Manners::default().script(move |moment| match moment.at {
        At::Rcpt if moment.line.contains("<later@") => Act::Say("550 5.1.1 gone"),
        _ => put_off(moment),
    }));
    let output = server.control(&["queue", "retry", &id], b"");
    assert!(output.status.success(), "{output:?}");
    let mails = hop.wait(2);
    let less = Report::of(&mails[1]);
    assert_eq!((mails[1].to(), less.returned_type.as_str()), ("b@client.test", "text/rfc822-headers"));
    assert_eq!(less.returned_subject, "lunch");
    less.expect(&[("action", "failed"), ("status", "5.1.1"), ("final-recipient", "rfc822; later@d.test")]);
}

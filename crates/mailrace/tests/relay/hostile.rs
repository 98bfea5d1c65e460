//! Next hops that misbehave: nothing is lost, nothing comes twice that need not, and mail for others is not held up.

use crate::hop::{Act, At, Hop, Manners, Moment};
use crate::report::Report;
use crate::world::{any_line, by_literal, ends_empty, lines, relay, retrying, send, send_over, wait_line};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicBool, Ordering};
use testkit::client::greeted;
use testkit::harness::{Ended, poll};

const CONTENT: &[u8] = b"Subject: x\r\n\r\nhello\r\n";

/// A host that does this when it comes there for the first time.
fn once(manners: Manners, at: At, act: Act) -> Manners {
    let is_done = AtomicBool::new(false);
    manners.script(
        move |moment| {
            if moment.at == at && !is_done.swap(true, Ordering::Relaxed) { act.clone() } else { Act::Well }
        },
    )
}

/// A fault of a host the first time, the line of the log about it, and the number of copies in the end.
struct Fault {
    at: At,
    act: Act,
    said: &'static str,
    copies: usize,
}

const fn fault(at: At, act: Act, said: &'static str) -> Fault {
    Fault { at, act, said, copies: 1 }
}

/// A line of 1 MiB.
fn endless() -> &'static str {
    format!("250 2.0.0 {}", "x".repeat(1 << 20)).leak()
}

/// A line that takes minutes where it comes octet by octet.
fn tedious() -> &'static str {
    format!("250 2.0.0 {}", "x".repeat(2_000)).leak()
}

fn faults() -> Vec<Fault> {
    use At::{Data, Dot, Ehlo, Greeting, Mail, Rcpt};
    let mut all = vec![
        fault(
            Greeting,
            Act::Say("554 5.3.2 go away"),
            "dsn=4.3.2, reply=554 5.3.2 go away, stat=Deferred: 554 5.3.2 go away",
        ),
        fault(Greeting, Act::SayAndClose("421 4.3.2 too many"), "stat=Deferred: 421 4.3.2 too many"),
        fault(Greeting, Act::Hang, "timeout waiting for IP during client greeting"),
        fault(Greeting, Act::Close, "IP closed the connection during client greeting"),
        fault(Greeting, Act::Say("hello there"), "IP speaks no SMTP during client greeting"),
        fault(Greeting, Act::Flood("220-endless"), "IP speaks no SMTP during client greeting"),
        fault(Ehlo, Act::Hang, "timeout waiting for IP during client EHLO"),
        fault(Ehlo, Act::Close, "IP closed the connection during client EHLO"),
        fault(Ehlo, Act::SayAndClose("421 4.3.2 not now"), "stat=Deferred: 421 4.3.2 not now"),
        fault(Ehlo, Act::Flood("250-AGAIN"), "IP speaks no SMTP during client EHLO"),
        // All that it has to say, before it is asked.
        fault(
            Greeting,
            Act::Say("220 hop.test\n250 hop.test\n250 ok\n250 ok\n354 go on\n250 2.0.0 taken, believe me"),
            "IP speaks no SMTP during client EHLO: a reply came that nothing had asked for",
        ),
        fault(
            Ehlo,
            Act::Say("250-hop.test\n250 PIPELINING\n250 ok\n250 ok\n354 go on\n250 2.0.0 taken, believe me"),
            "IP speaks no SMTP after client EHLO: a reply came that nothing had asked for",
        ),
        fault(
            Ehlo,
            Act::SayAndClose("250-hop.test\n250 PIPELINING\n421 4.3.2 not today"),
            "dsn=4.3.2, reply=421 4.3.2 not today, stat=Deferred: 421 4.3.2 not today",
        ),
        fault(Greeting, Act::Trickle(tedious()), "timeout waiting for IP during client greeting"),
        fault(Ehlo, Act::Trickle(tedious()), "timeout waiting for IP during client EHLO"),
        fault(Greeting, Act::SayAndClose(endless()), "IP speaks no SMTP during client greeting: a reply is too long"),
        fault(Ehlo, Act::SayAndClose(endless()), "IP speaks no SMTP during client EHLO: a reply is too long"),
        fault(Greeting, Act::Cut(7), "IP closed the connection during client greeting"),
        fault(Ehlo, Act::Cut(7), "IP closed the connection during client EHLO"),
        fault(Data, Act::Say("250 2.0.0 taken, believe me"), "stat=Deferred: "),
        fault(Dot, Act::Say("354 5.0.0 and then?"), "stat=Deferred: "),
        fault(Dot, Act::SayAndClose("421 4.3.2 disk is full"), "stat=Deferred: 421 4.3.2 disk is full"),
        // Taken without a reply: the server is right to repeat it.
        Fault { at: Dot, act: Act::TakeAndClose, said: "Connection closed by IP during client DATA status", copies: 2 },
    ];
    for (at, stage) in
        [(Mail, "client MAIL"), (Rcpt, "client RCPT"), (Data, "client DATA 354"), (Dot, "client DATA status")]
    {
        let text = |text: String| -> &'static str { text.leak() };
        all.push(fault(at, Act::Hang, text(format!("Connection timed out with IP during {stage}"))));
        all.push(fault(at, Act::Close, text(format!("Connection closed by IP during {stage}"))));
        all.push(fault(at, Act::Say("what?"), text(format!("IP does not speak SMTP during {stage}"))));
        all.push(fault(at, Act::Flood("250-on"), text(format!("IP does not speak SMTP during {stage}"))));
        let too_long = format!("IP does not speak SMTP during {stage}: a reply is too long");
        all.push(fault(at, Act::SayAndClose(endless()), text(too_long)));
        all.push(fault(at, Act::Trickle(tedious()), text(format!("Connection timed out with IP during {stage}"))));
        all.push(fault(at, Act::Cut(3), text(format!("Connection closed by IP during {stage}"))));
        all.push(fault(at, Act::SayAndClose("250-2.0.0 so"), text(format!("Connection closed by IP during {stage}"))));
        all.push(fault(
            at,
            Act::Say("451 4.3.0 later"),
            "dsn=4.3.0, reply=451 4.3.0 later, stat=Deferred: 451 4.3.0 later",
        ));
        all.push(fault(at, Act::Say("452 later"), "dsn=4.0.0, reply=452 later, stat=Deferred: 452 later"));
    }
    all
}

/// One server, and a host for each fault: they do not hold each other up.
#[test]
fn faults_are_deferrals_and_the_next_attempt_delivers() {
    std::thread::scope(|scope| {
        for offers in [&["PIPELINING", "8BITMIME", "SIZE"][..], &["CHUNKING", "PIPELINING"], &[]] {
            scope.spawn(move || deferrals(offers));
        }
    });
}

/// Replies that break the form, and the line of the log for the mail after the first attempt.
#[test]
fn a_reply_counts_in_any_form() {
    use At::{Dot, Ehlo, Greeting, Mail, Rcpt};
    let taken = [
        (Greeting, Act::Say("\nld.so: object cannot be preloaded: ignored.\n220 hop.test")),
        (Greeting, Act::Say("220 hop.test\n220 welcome")),
        (Ehlo, Act::Say("250-hop.test\n8BITMIME\n250 OK")),
        (Ehlo, Act::Say("250 hop.test\n250 SIZE\n250 OK")),
        (Mail, Act::Say("250-ok\n251 ok")),
        (Rcpt, Act::Say("250-ok\n251 forwards")),
        (Dot, Act::Say("(scanned)\n\n250ok")),
        (Dot, Act::Cut(7)),
    ];
    let refused = [
        (Rcpt, Act::Say("550\tno such user")),
        (Rcpt, Act::Say("550-no\n250 such user")),
        (Dot, Act::Say("ld.so: ignored\n554no")),
        (Dot, Act::SayAndClose("550-spam\nreally\n551 spam")),
    ];
    let all: Vec<&(At, Act)> = taken.iter().chain(&refused).collect();
    let manners = |(at, act): &&(At, Act)| once(Manners::offering(&[]), *at, act.clone());
    let hops = Hop::neighbours(all.iter().map(manners).collect());
    let mut server = retrying(by_literal(&hops), "8s").start();
    let mut client = greeted(server.address());
    for hop in &hops {
        send_over(&mut client, "<>", &[&hop.mailbox("b")], CONTENT);
    }
    client.quit();
    for hop in &hops {
        any_line(&mut server, &[&format!("to=<{}>", hop.mailbox("b"))]);
    }
    // The refusals go to the postmaster, and wait there.
    let ended = server.stop();
    for (number, (hop, case)) in hops.iter().zip(&all).enumerate() {
        let lines = lines(&ended.log, &[&format!("to=<{}>", hop.mailbox("b"))]);
        let [line] = lines.as_slice() else { panic!("{case:?}: {lines:#?}") };
        let is_right = if number < taken.len() { line.contains("stat=Sent") } else { line.contains("dsn=5.") };
        assert!(is_right, "{case:?}: {line}");
    }
}

fn deferrals(offers: &[&'static str]) {
    let mut faults = faults();
    let has_bdat = offers.contains(&"CHUNKING");
    // With BDAT there is no 354 that could be something else, or be cut, and one reply for command and content.
    let is_of_354 = |fault: &Fault| {
        fault.at == At::Data && matches!(fault.act, Act::Say("250 2.0.0 taken, believe me") | Act::Cut(_))
    };
    faults.retain(|fault| !has_bdat || !is_of_354(fault));
    let manners = |fault: &Fault| {
        let (at, act) = (fault.at, fault.act.clone());
        once(Manners::offering(offers), at, act)
    };
    let hops = Hop::neighbours(faults.iter().map(manners).collect());
    let mut setup = by_literal(&hops);
    // Only a hop that hangs takes as long, on a busy machine too.
    for key in ["greeting_time", "command_time", "data_time", "block_time", "end_time"] {
        setup = setup.set(&format!("delivery.{key}"), "\"12s\"");
    }
    // No message is delivered before the line about its first attempt was written.
    let server = retrying(setup, "8s").start();
    let mut client = greeted(server.address());
    for hop in &hops {
        send_over(&mut client, "<>", &[&hop.mailbox("b")], CONTENT);
    }
    client.quit();
    for (hop, fault) in hops.iter().zip(&faults) {
        for mail in hop.wait(fault.copies) {
            assert_eq!((mail.to(), mail.own_content()), (hop.mailbox("b").as_str(), CONTENT));
        }
    }
    let ended = ends_empty(server);
    for (hop, fault) in hops.iter().zip(&faults) {
        check(&ended, hop, fault, has_bdat);
    }
}

fn check(ended: &Ended, hop: &Hop, fault: &Fault, has_bdat: bool) {
    let what = format!("{:?} {:?}", fault.at, fault.act);
    let lines = lines(&ended.log, &[&format!("to=<{}>", hop.mailbox("b"))]);
    let [deferred, sent] = lines.as_slice() else { panic!("{what}: {lines:#?}") };
    let mut said = fault.said.replace("IP", &hop.ip());
    if has_bdat {
        // The content is out before the first reply is missed: its result is unknown.
        for stage in ["client MAIL", "client RCPT", "client DATA 354"] {
            said = said.replace(stage, "client DATA status");
        }
    }
    assert!(deferred.contains(&said), "{what}: {said}: {deferred}");
    assert!(
        sent.contains("stat=Sent (2.0.0 Ok: queued as") || sent.contains("stat=Sent (Ok: queued as"),
        "{what}: {sent}"
    );
    assert_eq!(hop.count(), fault.copies, "{what}");
}

#[test]
fn refusals_for_good_are_reported() {
    let cases = [
        (At::Mail, "550 5.7.1 your kind is not wanted", "5.7.1"),
        (At::Rcpt, "553 5.1.3 bad name", "5.1.3"),
        (At::Data, "554 5.7.0 no", "5.7.0"),
        (At::Dot, "552 5.3.4 too big for us", "5.3.4"),
        (At::Dot, "554 virus", "5.0.0"),
    ];
    let mut manners = vec![Manners::default()];
    manners.extend(cases.iter().map(|(at, reply, _)| {
        let (at, reply) = (*at, *reply);
        Manners::default().script(move |moment| if moment.at == at { Act::Say(reply) } else { Act::Well })
    }));
    let hops = Hop::neighbours(manners);
    let server = by_literal(&hops).start();
    for hop in &hops[1..] {
        send(&server, &hops[0].mailbox("a"), &[&hop.mailbox("b"), &hop.mailbox("c")], CONTENT);
    }
    let mails = hops[0].wait(cases.len());
    for ((_, reply, status), hop) in cases.iter().zip(&hops[1..]) {
        let report = mails
            .iter()
            .map(|mail| Report::of(mail))
            .find(|report| report.recipients.iter().any(|one| one["final-recipient"].contains(&hop.ip())));
        let report = report.expect("each is reported");
        assert_eq!(report.recipients.len(), 2, "{report:#?}");
        for recipient in &report.recipients {
            assert_eq!(recipient["diagnostic-code"], format!("smtp; {reply}"));
            assert_eq!((recipient["status"].as_str(), recipient["action"].as_str()), (*status, "failed"));
        }
    }
    ends_empty(server);
    assert!(hops[1..].iter().all(|hop| hop.count() == 0));
}

/// Each recipient has a fate of its own; those that were taken do not get the message again.
#[test]
fn some_recipients_are_taken_some_wait_some_fail() {
    for offers in [&["PIPELINING"][..], &["PIPELINING", "CHUNKING"], &[]] {
        let manners = Manners::offering(offers).script(|moment| match (moment.at, moment.connection) {
            (At::Rcpt, 0) if moment.line.contains("<later") => Act::Say("450 4.2.1 mailbox busy"),
            (At::Rcpt, _) if moment.line.contains("<never") => Act::Say("550 5.1.1 no such user"),
            // A second attempt comes over a connection of its own.
            (At::Dot, 0) => Act::WellAndClose,
            _ => Act::Well,
        });
        let hop = Hop::new(manners);
        let mut server = relay(&[&hop]).start();
        let to = ["one@d.test", "later1@d.test", "never@d.test", "two@d.test", "later2@d.test"];
        let id = send(&server, "a@client.test", &to, CONTENT);
        let mails = hop.wait(3);
        assert_eq!(mails[0].all_to(), ["one@d.test", "two@d.test"]);
        let report = mails.iter().find(|mail| mail.to_is("a@client.test")).expect("a report");
        assert_eq!(Report::of(report).only()["final-recipient"], "rfc822; never@d.test");
        let second = mails.iter().skip(1).find(|mail| !mail.to_is("a@client.test")).expect("a second attempt");
        assert_eq!(second.all_to(), ["later1@d.test", "later2@d.test"]);
        for (to, stat) in [
            ("<one@d.test>,<two@d.test>", "stat=Sent (Ok: queued as"),
            (
                "<later1@d.test>,<later2@d.test>",
                "dsn=4.2.1, reply=450 4.2.1 mailbox busy, stat=Deferred: 450 4.2.1 mailbox busy",
            ),
            ("<never@d.test>", "stat=User unknown"),
        ] {
            let (start, _) = to.split_once('@').expect("an address");
            let line = any_line(&mut server, &[&format!("{id}: to={start}"), stat]);
            assert!(line.contains(&format!("to={to},")), "{line}");
        }
        ends_empty(server);
        assert_eq!(hop.count(), 3);
    }
}

/// Mail behind a message that was broken off makes no connections: the site is down, and its probes are few.
#[test]
fn a_host_that_breaks_each_transaction_off_is_not_hammered() {
    let breaks: [(At, Act, &str); 5] = [
        (At::Mail, Act::Close, "IP closed the connection during client MAIL"),
        (At::Rcpt, Act::Say("what?"), "IP speaks no SMTP during client RCPT"),
        (At::Dot, Act::Close, "IP closed the connection during client DATA status"),
        (At::Dot, Act::TakeAndClose, "IP closed the connection during client DATA status"),
        (At::Data, Act::Hang, "timeout waiting for IP during client DATA 354"),
    ];
    std::thread::scope(|scope| {
        for (at, act, why) in breaks {
            scope.spawn(move || {
                let script = move |moment: &Moment<'_>| if moment.at == at { act.clone() } else { Act::Well };
                let hop = Hop::new(Manners::offering(&["PIPELINING"]).script(script));
                let setup = retrying(relay(&[&hop]), "60s");
                let mut server = setup.set("delivery.data_time", "\"4s\"").start();
                let mut client = greeted(server.address());
                for number in 0..40 {
                    send_over(&mut client, "a@client.test", &[&format!("r{number}@d.test")], CONTENT);
                }
                client.quit();
                let down = wait_line(&mut server, &["state=down"]);
                assert!(down.contains(&why.replace("IP", &hop.ip())), "{down}");
                for number in 0..40 {
                    any_line(&mut server, &[&format!("to=<r{number}@d.test>"), "stat=Deferred"]);
                }
                // Those that were opened with it at the beginning, and probes.
                assert!(hop.connections() <= 12, "{why}: {}", hop.connections());
            });
        }
    });
}

#[test]
fn a_421_in_mid_session_moves_mail_to_another_connection() {
    let endings: [fn(&Moment<'_>) -> Act; 5] = [
        |moment| match moment.at {
            At::Mail if moment.taken == 2 => Act::SayAndClose("421 4.7.0 enough for one connection"),
            _ => Act::Well,
        },
        |moment| if moment.at == At::Mail && moment.taken == 1 { Act::Close } else { Act::Well },
        |moment| if moment.at == At::Dot && moment.taken == 1 { Act::WellAndClose } else { Act::Well },
        // The hop sends the reply before the command.
        |moment| match moment.at {
            At::Dot if moment.taken == 1 => Act::Say("250 2.0.0 Ok: queued as X\n421 4.4.2 idle for too long"),
            _ => Act::Well,
        },
        // A reply without a command is not the reply to the next command.
        |moment| match moment.at {
            At::Dot if moment.taken == 1 => Act::Say("250 2.0.0 Ok: queued as X\n250 2.0.0 Ok: queued as Y"),
            _ => Act::Well,
        },
    ];
    for (number, ending) in endings.into_iter().enumerate() {
        for offers in [&["PIPELINING"][..], &[]] {
            let hop = Hop::new(Manners::offering(offers).script(ending));
            let server = relay(&[&hop]).set("delivery.connections_per_destination", "1").start();
            let mut client = greeted(server.address());
            let names: BTreeSet<String> = (0..12).map(|number| format!("r{number:02}@d.test")).collect();
            for name in &names {
                send_over(&mut client, "a@client.test", &[name], CONTENT);
            }
            client.quit();
            hop.wait(names.len());
            let ended = ends_empty(server);
            let came: Vec<String> = hop.mails().iter().map(|mail| mail.to().to_owned()).collect();
            assert_eq!(came.len(), names.len(), "{number} {offers:?}: {came:?}");
            assert_eq!(came.into_iter().collect::<BTreeSet<_>>(), names);
            assert!(hop.connections() > 3, "{number}: {:?}", hop.talks());
            if number != 4 {
                assert_eq!(lines(&ended.log, &["stat=Deferred"]), <[&str; 0]>::default(), "{number} {offers:?}");
            }
        }
    }
}

#[test]
fn idle_connections_may_be_closed_by_either_side() {
    let hop = Hop::good();
    let mut server = relay(&[&hop]).set("delivery.idle_time", "\"1s\"").start();
    send(&server, "a@client.test", &["first@d.test"], CONTENT);
    wait_line(&mut server, &["to=<first@d.test>", "stat=Sent"]);
    hop.hang_up();
    send(&server, "a@client.test", &["second@d.test"], CONTENT);
    hop.wait(2);
    // This one we close, after a second, with a word. On the first it may have been said too.
    poll("no QUIT", || hop.talks().get(1)?.contains(&"QUIT".to_owned()).then_some(()));
    send(&server, "a@client.test", &["third@d.test"], CONTENT);
    hop.wait(3);
    let ended = ends_empty(server);
    assert_eq!(lines(&ended.log, &["stat=Deferred"]), <[&str; 0]>::default());
    assert_eq!((hop.count(), hop.connections()), (3, 3));
}

/// The server does not wait long for the answer to QUIT.
#[test]
fn the_end_is_not_held_up_by_a_peer() {
    let hop = Hop::new(Manners::default().script(|moment| if moment.at == At::Quit { Act::Hang } else { Act::Well }));
    let server = relay(&[&hop]).set("server.shutdown_grace", "\"2s\"").start();
    send(&server, "a@client.test", &["b@d.test"], CONTENT);
    hop.wait(1);
    ends_empty(server);
    assert_eq!(hop.count(), 1);
}

/// A handshake that breaks off is repeated in clear, where that is allowed.
#[test]
fn broken_tls() {
    let offers = ["PIPELINING", "STARTTLS"];
    let broken = || Manners::offering(&offers);
    let closes = || broken().script(|moment| if moment.at == At::StartTls { Act::WellAndClose } else { Act::Well });
    let hangs = || broken().script(|moment| if moment.at == At::StartTls { Act::Hang } else { Act::Well });
    let refuses = || {
        broken().script(|moment| if moment.at == At::StartTls { Act::Say("454 4.7.0 no TLS today") } else { Act::Well })
    };
    for (number, manners) in [broken(), closes(), refuses(), hangs()].into_iter().enumerate() {
        let hop = Hop::new(manners);
        // For who hangs; all others have the time they need.
        let time = if number < 3 { "\"1m\"" } else { "\"1s\"" };
        let mut server = relay(&[&hop]).set("delivery.command_time", time).start();
        send(&server, "a@client.test", &["b@d.test"], CONTENT);
        let mails = hop.wait(1);
        assert!(!mails[0].is_encrypted);
        if number < 2 {
            let line = server.wait_log("STARTTLS=client, error: connect failed=-1, reason=");
            assert!(line.contains(&hop.ip()), "{line}");
        }
        let ended = ends_empty(server);
        if number < 3 {
            assert_eq!(lines(&ended.log, &["stat=Deferred"]), <[&str; 0]>::default(), "{number}");
        }
        assert_eq!(hop.count(), 1);
    }
}

/// Connections under TLS that end in the middle of a record, or without the word for it (RFC 8446 §6.1).
#[test]
fn tls_that_is_cut_off() {
    std::thread::scope(|scope| {
        for tls in ["opportunistic", "required"] {
            for offers in [&["PIPELINING", "STARTTLS"][..], &["STARTTLS"]] {
                scope.spawn(move || cut_off(tls, offers));
            }
        }
    });
}

fn cut_off(tls: &str, offers: &[&'static str]) {
    const HANDSHAKE: &str = "TLS handshake with IP failed: server closed the connection in the handshake";
    // In the head of its first record, in its hello, and behind it.
    let mut cuts: Vec<(At, Act, &str)> =
        [3, 60, 300].into_iter().map(|octets| (At::StartTls, Act::Cut(octets), HANDSHAKE)).collect();
    cuts.extend([
        (At::Ehlo, Act::Cut(10), "IP closed the connection during client EHLO"),
        (At::Mail, Act::Cut(10), "Connection closed by IP during client MAIL"),
        (At::Rcpt, Act::Cut(10), "Connection closed by IP during client RCPT"),
        (At::Data, Act::Cut(10), "Connection closed by IP during client DATA 354"),
        (At::Dot, Act::Cut(10), "Connection closed by IP during client DATA status"),
        // The record is whole, and the reply is not.
        (At::Dot, Act::SayAndClose("250-2.0.0 Ok"), "Connection closed by IP during client DATA status"),
        // It is whole, and the end of the connection is that of TCP alone.
        (At::Dot, Act::WellAndClose, ""),
    ]);
    let manners = |(at, act, _): &(At, Act, &str)| {
        let (at, act, is_done) = (*at, act.clone(), AtomicBool::new(false));
        let script = move |moment: &Moment<'_>| {
            let is_it = moment.at == at && (moment.is_encrypted || at == At::StartTls);
            if is_it && !is_done.swap(true, Ordering::Relaxed) { act.clone() } else { Act::Well }
        };
        Manners { tls: Some(crate::wire::tls_config()), ..Manners::offering(offers) }.script(script)
    };
    let hops = Hop::neighbours(cuts.iter().map(manners).collect());
    // No time limit passes: all hops have closed. Nothing is delivered before the line about its first attempt was
    // written.
    let setup = retrying(by_literal(&hops), "4s").set("route.tls", format!("{tls:?}"));
    let mut server = setup.start();
    for hop in &hops {
        send(&server, "<>", &[&hop.mailbox("b")], CONTENT);
    }
    hops.iter().for_each(|hop| drop(hop.wait(1)));
    for hop in &hops {
        any_line(&mut server, &[&format!("to=<{}>", hop.mailbox("b")), "stat=Sent"]);
    }
    let ended = ends_empty(server);
    for (hop, (at, act, said)) in hops.iter().zip(&cuts) {
        let said = said.replace("IP", &hop.ip());
        let what = format!("{tls} {offers:?} {at:?} {act:?}");
        let deferred = lines(&ended.log, &[&format!("to=<{}>", hop.mailbox("b")), "stat=Deferred"]);
        let is_clear = *at == At::StartTls && tls == "opportunistic";
        if is_clear {
            let reason = format!("reason={said}; it is spoken to in clear for an hour");
            assert_eq!(lines(&ended.log, &["STARTTLS=client, error: ", &reason]).len(), 1, "{what}: {:#?}", ended.log);
        }
        if is_clear || said.is_empty() {
            assert_eq!(deferred, <[&str; 0]>::default(), "{what}");
        } else {
            assert!(
                matches!(&deferred[..], [one] if one.ends_with(&format!("stat=Deferred: {said}"))),
                "{what}: {deferred:#?}"
            );
        }
        let mails = hop.mails();
        assert!(matches!(&mails[..], [one] if one.is_encrypted != is_clear), "{what}: {mails:#?}");
        assert_eq!(mails[0].own_content(), CONTENT, "{what}");
    }
}

/// Text that an attacker puts behind the clear reply to STARTTLS does not make the server speak in clear.
// RFC 3207 §6 (test)
#[test]
fn injected_text_never_leads_to_clear_text() {
    let offers = ["PIPELINING", "STARTTLS"];
    let good = || Manners { tls: Some(crate::wire::tls_config()), ..Manners::offering(&offers) };
    let injects = |said: &'static str| {
        let script = move |moment: &Moment<'_>| if moment.at == At::StartTls { Act::Say(said) } else { Act::Well };
        let hop = Hop::new(good().script(script));
        let mut server = relay(&[&hop]).start();
        send(&server, "a@client.test", &["b@d.test"], CONTENT);
        let line = wait_line(&mut server, &["to=<b@d.test>", "stat=Deferred: "]);
        assert!(line.contains("dsn=4.7.0") && line.contains("said something in clear behind STARTTLS"), "{line}");
        hop.behave(good());
        assert!(hop.wait(1)[0].is_encrypted, "{said:?}");
        ends_empty(server);
        assert_eq!(hop.count(), 1);
    };
    std::thread::scope(|scope| {
        for said in ["220 2.0.0 go on\n2", "220 2.0.0 go on\n250 hop.test", "220 2.0.0 go on\n454 4.7.0 no TLS"] {
            let injects = &injects;
            scope.spawn(move || injects(said));
        }
    });
}

#[test]
fn tls_that_is_required_is_waited_for() {
    let offers = ["PIPELINING", "STARTTLS"];
    for manners in [Manners::default(), Manners::offering(&offers)] {
        let hop = Hop::new(manners);
        let mut server = relay(&[&hop]).set("route.tls", "\"required\"").start();
        send(&server, "a@client.test", &["b@d.test"], CONTENT);
        let line = wait_line(&mut server, &["to=<b@d.test>", "stat=Deferred: "]);
        assert!(line.contains("TLS"), "{line}");
        hop.behave(Manners { tls: Some(crate::wire::tls_config()), ..Manners::offering(&offers) });
        assert!(hop.wait(1)[0].is_encrypted);
        ends_empty(server);
        let clear = hop.talks().into_iter().any(|talk| {
            talk.iter().any(|line| line.starts_with("MAIL")) && !talk.iter().any(|line| line == "STARTTLS")
        });
        assert!(!clear, "{:?}", hop.talks());
    }
}

/// A refusal just inside the limits of a reply: 199 lines of 2,000 octets.
fn wordy(begin: &str) -> &'static str {
    let line = |separator: &str| format!("{:x<1998}", begin.replacen(' ', separator, 1) + " ");
    format!("{}{}", format!("{}\n", line("-")).repeat(198), line(" ")).leak()
}

/// A reply of a host is stored once and in part, however many recipients it is about.
#[test]
fn a_host_of_many_words_costs_little_memory() {
    const MESSAGES: usize = 5;
    const RECIPIENTS: usize = 200;
    let (to_mail, to_rcpt) = (wordy("451 4.3.0 not now"), wordy("550 5.1.1 nobody here"));
    let hop = Hop::new(Manners::default().script(move |moment| match moment.at {
        At::Mail if moment.line.contains("<later") => Act::Say(to_mail),
        At::Rcpt if moment.line.contains("<never") => Act::Say(to_rcpt),
        _ => Act::Well,
    }));
    let mut server = retrying(relay(&[&hop]), "1h").start();
    send(&server, "before@client.test", &["never@d.test"], CONTENT);
    hop.wait(1);
    let before = server.memory_kib("VmHWM");
    for number in 0..MESSAGES {
        let to: Vec<String> = (0..RECIPIENTS).map(|nth| format!("never{nth}@d{number}.test")).collect();
        let to: Vec<&str> = to.iter().map(String::as_str).collect();
        send(&server, "later@client.test", &to, CONTENT);
        send(&server, "list@client.test", &to, CONTENT);
    }
    let told = |mails: &[std::sync::Arc<crate::hop::Mail>]| -> usize {
        let to_list = mails.iter().filter(|mail| mail.to_is("list@client.test"));
        to_list.map(|mail| mail.text().matches("\nFinal-Recipient: ").count()).sum()
    };
    let mails = hop.wait_until("reports", |mails| told(mails) == MESSAGES * RECIPIENTS);
    for number in 0..MESSAGES {
        let line = any_line(&mut server, &[&format!("to=<never0@d{number}.test>"), "stat=Deferred: 451 4.3.0 not now"]);
        assert!(line.contains("dsn=4.3.0, reply=451 4.3.0 not now") && line.len() <= 2_048, "{line}");
    }
    let grown = server.memory_kib("VmHWM").saturating_sub(before);
    println!("{grown} KiB more than the {before} KiB before");
    assert!(grown < 96 << 10, "{grown} KiB for what was said of {} recipients", 2 * MESSAGES * RECIPIENTS);
    let report = mails.iter().find(|mail| mail.to_is("list@client.test")).expect("a report");
    let report = Report::of(report);
    let code = &report.recipients[0]["diagnostic-code"];
    assert!(code.starts_with("smtp; 550 5.1.1 nobody here") && code.len() < 1_100, "{code}");
    assert!(report.words.contains("nobody here"), "{}", report.words);
    let shown = server.control(&["queue", "list", "--json"], b"");
    let longest = shown.stdout.split(|octet| *octet == b'\n').map(<[u8]>::len).max();
    assert!(longest < Some(200 << 10) && shown.status.success(), "{longest:?}");
}

/// It is unknown whether it was taken: that was an attempt, and the next one has to wait.
#[test]
fn a_host_that_takes_a_message_and_hangs_up_is_not_asked_again_at_once() {
    let hop = Hop::new(Manners::default().script(|moment| match moment.at {
        At::Dot if moment.taken == 1 => Act::TakeAndClose,
        _ => Act::Well,
    }));
    let setup = retrying(relay(&[&hop]), "5m");
    // Both go over one connection.
    let setup = setup.set("delivery.connections_per_destination", "1").set("delivery.idle_time", "\"5m\"");
    let mut server = setup.start();
    send(&server, "<>", &["a@d.test"], b"Subject: x\r\n\r\n1\r\n");
    send(&server, "<>", &["b@d.test"], b"Subject: x\r\n\r\n2\r\n");
    let line = wait_line(&mut server, &["to=<b@d.test>", "stat=Deferred: "]);
    assert!(line.contains("closed") && hop.count() == 2, "{line}, {} messages", hop.count());
}

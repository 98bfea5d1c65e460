//! Filters that are asked after the 250: nothing that they have not let pass is delivered, and nothing is lost,
//! whatever they say, and whenever the server is killed.

use super::programs::free_port;
use super::scripted::{Act, Milter, go_on, packet};
use super::{filtered, milter};
use crate::hop::Hop;
use crate::world::{any_line, ends_empty, killed, lines, reload, send, stopped};
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use testkit::client::greeted;
use testkit::harness::{Ended, Server, letters, poll, text};

const CONTENT: &[u8] = b"Subject: x\r\n\r\nhello\r\n";

/// Settings of a milter that is asked after the 250.
fn after(address: SocketAddr, others: &str) -> String {
    let comma = if others.is_empty() { "" } else { ", " };
    milter(address, &format!("when = \"after-250\"{comma}{others}"))
}

/// A milter that answers the end of a message when the gate is open, in the way of `answer`.
fn gated(answer: impl Fn() -> Act + Send + Sync + 'static) -> (Milter, Arc<AtomicBool>) {
    let gate = Arc::new(AtomicBool::new(false));
    let is_open = Arc::clone(&gate);
    let filter = Milter::new(move |_, command, _| match command {
        'E' => {
            poll("the gate", || is_open.load(Ordering::Acquire).then_some(()));
            answer()
        }
        _ => go_on(),
    });
    (filter, gate)
}

/// Waits until no mail waits for filters and nothing is left in the queue.
#[track_caller]
fn ends_screened(server: Server) -> Ended {
    poll("mail waits for filters", || (server.status("/screen_queue/messages") == 0).then_some(()));
    ends_empty(server)
}

/// The queue as `mailrace queue list` prints it.
fn listed(server: &Server) -> String {
    text(&server.control(&["queue", "list"], b""))
}

#[test]
fn the_250_waits_for_no_filter_and_the_delivery_does() {
    let hop = Hop::good();
    let (filter, gate) = gated(go_on);
    let server = filtered(&hop, &[("slow", after(filter.address, ""))]).start();
    let id = send(&server, "a@client.test", &["b@example.com"], CONTENT);
    poll("the filter has the message", || filter.commands().contains('E').then_some(()));
    assert_eq!(hop.count(), 0, "it is not delivered before the verdict");
    let list = listed(&server);
    assert!(list.contains("waits for filter slow"), "{list}");
    assert_eq!(server.status("/screen_queue/messages"), 1);
    let status = text(&server.control(&["status"], b""));
    assert!(status.contains("1 of 10,000 messages wait for them"), "{status}");
    gate.store(true, Ordering::Release);
    let mail = hop.wait(1);
    assert_eq!(String::from_utf8_lossy(mail[0].own_content()), "Subject: x\r\n\r\nhello\r\n");
    // The end of the session has no answer.
    poll("the filter is not told of the end", || filter.commands().ends_with('Q').then_some(()));
    assert_eq!(filter.commands(), "OCHMRTLNBEQ", "a whole session is played to it");
    let seen = filter.seen();
    let has = |command: char, part: &str| seen.iter().any(|(one, data)| *one == command && data.contains(part));
    assert!(has('C', "127.0.0.1") && has('M', "<a@client.test>") && has('R', "<b@example.com>"), "{seen:?}");
    assert!(has('D', &id), "the macros have the queue id: {seen:?}");
    let log = ends_screened(server).log;
    assert_eq!(lines(&log, &["screen=accept", "by=slow", "(after-250 eom,"]).len(), 1, "{log:#?}");
}

#[test]
fn changes_take_the_place_of_the_message_as_a_whole() {
    let add = || packet(b'h', b"X-Seen\0yes\0");
    let body = || packet(b'b', b"other\r\n");
    let recipient = || packet(b'+', b"<c@example.com>\0");
    let sender = || packet(b'e', b"<new@client.test>\0");
    type Changes = Box<dyn Fn() -> Vec<Vec<u8>> + Send + Sync>;
    let rows: [(Changes, &str, &[&str]); 3] = [
        (Box::new(move || vec![add()]), "Subject: x\r\nX-Seen: yes\r\n\r\nhello\r\n", &["b@example.com"]),
        (Box::new(move || vec![body(), sender()]), "Subject: x\r\n\r\nother\r\n", &["b@example.com"]),
        (Box::new(move || vec![recipient()]), "Subject: x\r\n\r\nhello\r\n", &["b@example.com", "c@example.com"]),
    ];
    for (changes, wanted, to) in rows {
        let hop = Hop::good();
        let filter = Milter::new(move |_, command, _| match command {
            'E' => Act::Send([changes().concat(), packet(b'a', b"")].concat()),
            _ => go_on(),
        });
        let server = filtered(&hop, &[("editor", after(filter.address, ""))]).start();
        let id = send(&server, "a@client.test", &["b@example.com"], CONTENT);
        let mails = hop.wait(1);
        assert_eq!(String::from_utf8_lossy(mails[0].own_content()), wanted);
        assert_eq!(mails[0].all_to(), to);
        let log = ends_screened(server).log;
        assert_eq!(hop.count(), 1);
        assert_eq!(lines(&log, &[&id, "clone"]).len(), 1, "{log:#?}");
    }
}

#[test]
fn a_large_message_keeps_every_octet_but_those_that_change() {
    let body: Vec<u8> = (0..40_000).flat_map(|line| format!("line {line}\r\n").into_bytes()).collect();
    let content = [b"Subject: large\r\n\r\n".as_slice(), &body].concat();
    // One filter takes the message, for the other it is too large, and its failure is noted in a field.
    for others in ["", "size_max = \"1KiB\", on_failure = \"tag\""] {
        let hop = Hop::good();
        let filter = Milter::new(move |_, command, _| match command {
            'M' if !others.is_empty() => Act::Close(Vec::new()),
            'E' => Act::Send([packet(b'h', b"X-Seen\0yes\0"), packet(b'c', b"")].concat()),
            _ => go_on(),
        });
        let server = filtered(&hop, &[("editor", after(filter.address, others))]).start();
        send(&server, "a@client.test", &["b@example.com"], &content);
        let field = if others.is_empty() { "X-Seen: yes" } else { "X-Not-Checked-By: editor" };
        let wanted = [format!("Subject: large\r\n{field}\r\n\r\n").as_bytes(), &body].concat();
        assert!(hop.wait(1)[0].own_content() == wanted, "{others}");
        ends_screened(server);
    }
}

#[test]
fn refused_mail_is_kept_reported_or_dropped_as_the_operator_says() {
    let rows = [
        ("", "a@client.test", 1, ""),
        ("on_reject = \"bounce\"", "a@client.test", 0, "a@client.test"),
        ("on_reject = \"bounce\"", "<>", 1, ""),
        ("on_reject = \"discard\"", "a@client.test", 0, ""),
    ];
    for (others, from, kept, reported) in rows {
        let hop = Hop::good();
        let filter = Milter::new(|_, command, _| match command {
            'E' => Act::Send(packet(b'y', b"554 5.7.1 a virus\0")),
            _ => go_on(),
        });
        let mut server = filtered(&hop, &[("virus", after(filter.address, others))]).start();
        let id = send(&server, from, &["b@example.com"], CONTENT);
        any_line(&mut server, &[&id, "screen=reject", "by=virus", "a virus"]);
        poll("the verdict", || (server.status("/screen_queue/messages") == 0).then_some(()));
        let quarantine = text(&server.control(&["quarantine", "list"], b""));
        assert_eq!(quarantine.contains(&id), kept == 1, "{others} {from}: {quarantine}");
        assert_eq!(quarantine.contains("refused with 554 5.7.1 a virus"), kept == 1, "{quarantine}");
        if !reported.is_empty() {
            let report = hop.wait(1).remove(0);
            assert!(report.to_is(reported) && report.mail.contains("<>"), "{report:?}");
            assert!(report.text().contains("a virus"), "{}", report.text());
        }
        drop(ends_empty_but(server, kept));
        assert_eq!(hop.count(), usize::from(!reported.is_empty()), "{others} {from}");
    }
}

/// Ends the server, whose queue has so many messages that are held.
#[track_caller]
fn ends_empty_but(server: Server, held: usize) -> Ended {
    let path = server.setup.path("spool");
    let dir = Arc::clone(&server.setup.dir);
    poll("there is still mail in the queue", || (crate::world::waiting(&server) == 0).then_some(()));
    let ended = server.stop();
    assert_eq!(letters(&path).len(), held, "{:#?}", ended.log);
    drop(dir);
    ended
}

#[test]
fn a_recipient_that_a_filter_refuses_is_refused_alone() {
    let hop = Hop::good();
    let filter = Milter::new(|_, command, data| match command {
        'R' if data.starts_with(b"<bad") => Act::Send(packet(b'y', b"550 5.7.1 not this one\0")),
        'E' => Act::Send([packet(b'h', b"X-Seen\0yes\0"), packet(b'c', b"")].concat()),
        _ => go_on(),
    });
    let server = filtered(&hop, &[("picky", after(filter.address, "on_reject = \"bounce\""))]).start();
    send(&server, "a@client.test", &["bad@example.com", "b@example.com"], CONTENT);
    let mut mails = hop.wait(2);
    mails.sort_by_key(|mail| mail.mail.clone());
    let (report, mail) = (&mails[0], &mails[1]);
    assert!(report.to_is("a@client.test") && report.text().contains("not this one"), "{}", report.text());
    assert!(mail.to_is("b@example.com") && mail.text().contains("X-Seen: yes"), "{}", mail.text());
    ends_screened(server);
}

#[test]
fn mail_waits_until_its_filter_is_back() {
    let closed = free_port();
    // Both of them mean the same after the 250; a filter that fails before it has the message screened later.
    let rows = [
        after(closed, "on_failure = \"defer\""),
        after(closed, "on_failure = \"later\""),
        milter(closed, "on_failure = \"later\""),
    ];
    for settings in rows {
        let hop = Hop::good();
        let mut server = filtered(&hop, &[("absent", settings.clone())]).start();
        let id = send(&server, "a@client.test", &["b@example.com"], CONTENT);
        any_line(&mut server, &["screen=not_judged", "by=absent", "connect: Connection refused"]);
        poll("the failure is known", || listed(&server).contains("Connection refused").then_some(()));
        let list = listed(&server);
        assert!(list.contains("waits for filter absent"), "{list}");
        // The reason of the message is kept a moment before that of the filter.
        poll("the filter does not fail", || {
            let status = text(&server.control(&["status"], b""));
            (status.contains("FAILING") && status.contains("absent")).then_some(())
        });
        let released = text(&server.control(&["queue", "release", &id], b""));
        assert!(released.contains("1 recipient waits for filters; --unscreened"), "{released}");
        assert_eq!(hop.count(), 0, "nothing is delivered unscreened");
        let filter = Milter::new(|_, _, _| go_on());
        let moved = settings.replace(&closed.to_string(), &filter.address.to_string());
        reload(&mut server, "filter", &format!("[{{name = \"absent\", {moved}}}]"));
        assert!(hop.wait(1)[0].to_is("b@example.com"));
        assert!(filter.commands().contains('E'));
        ends_screened(server);
    }
}

#[test]
fn an_operator_can_release_mail_unscreened() {
    let hop = Hop::good();
    let (filter, _gate) = gated(go_on);
    let settings = after(filter.address, "timeout = \"1s\"");
    let mut server = filtered(&hop, &[("slow", settings)]).start();
    let id = send(&server, "a@client.test", &["b@example.com"], CONTENT);
    any_line(&mut server, &["screen=not_judged", "by=slow", "eom: no answer within 1.0 s"]);
    let released = text(&server.control(&["queue", "release", "--unscreened", &id], b""));
    assert!(released.contains("1 recipient") && released.contains("released"), "{released}");
    assert!(hop.wait(1)[0].to_is("b@example.com"));
    let log = ends_screened(server).log;
    assert!(!lines(&log, &["queue=release_unscreened"]).is_empty(), "{log:#?}");
}

#[test]
fn an_answer_of_4yz_has_the_filter_asked_again() {
    let hop = Hop::good();
    let filter = Milter::new(|connection, command, _| match (connection, command) {
        (0, 'E') => Act::Send(packet(b't', b"")),
        _ => go_on(),
    });
    let server = filtered(&hop, &[("grey", after(filter.address, ""))]).start();
    send(&server, "a@client.test", &["b@example.com"], CONTENT);
    hop.wait(1);
    assert_eq!(filter.commands().matches('E').count(), 2);
    ends_screened(server);
}

#[test]
fn a_slow_filter_delays_no_other_mail() {
    let hop = Hop::good();
    let (filter, gate) = gated(go_on);
    let quick = Milter::new(|_, _, _| go_on());
    let setup = filtered(&hop, &[("slow", after(filter.address, "")), ("quick", after(quick.address, ""))]);
    let listeners = ["[\"slow\"]", "[\"quick\"]", "[]"];
    let listeners = listeners.map(|filters| format!("{{address = \"127.0.0.1:0\", filters = {filters}}}"));
    let setup = setup.set("listen", format!("[{}]", listeners.join(", ")));
    let server = setup.set("screen.workers", "1").start();
    for address in [0, 0, 0, 1, 2].map(|listener| server.addresses[listener]) {
        let mut client = greeted(address);
        client.message(CONTENT);
        client.quit();
    }
    hop.wait(2);
    assert_eq!(quick.commands().matches('E').count(), 1);
    poll("three messages wait", || (server.status("/screen_queue/messages") == 3).then_some(()));
    gate.store(true, Ordering::Release);
    hop.wait(5);
    ends_screened(server);
}

#[test]
fn a_full_backlog_is_a_451() {
    let hop = Hop::good();
    let (filter, gate) = gated(go_on);
    let setup = filtered(&hop, &[("slow", after(filter.address, ""))]);
    let server = setup.set("screen.backlog_max", "2").set("screen.workers", "1").start();
    send(&server, "a@client.test", &["b@example.com"], CONTENT);
    let with_content = || {
        let mut client = greeted(server.address());
        client.envelope();
        client.expect("DATA", "354");
        client.send(&[CONTENT, b".\r\n"].concat());
        client
    };
    // The second message fills the backlog, and its 250 is late.
    let mut second = with_content();
    poll("the message is stored", || (server.status("/screen_queue/messages") == 2).then_some(()));
    assert!(server.status("/screen_queue/delay_ms") > 5_000);
    let mut third = with_content();
    let reply = third.reply();
    assert!(reply.starts_with("451 4.3.2 Too much mail waits to be checked"), "{reply}");
    third.quit();
    gate.store(true, Ordering::Release);
    let reply = second.reply();
    assert!(reply.starts_with("250 2.0.0"), "{reply}");
    second.quit();
    hop.wait(2);
    let log = ends_screened(server).log;
    assert!(!lines(&log, &["screen.backlog_max"]).is_empty(), "{log:#?}");
}

#[test]
fn a_restart_without_the_filter_holds_the_mail() {
    let hop = Hop::good();
    let (filter, _gate) = gated(go_on);
    let server = filtered(&hop, &[("gone", after(filter.address, ""))]).start();
    let id = send(&server, "a@client.test", &["b@example.com"], CONTENT);
    let mut setup = killed(server).listen("");
    setup.values_remove("filter");
    let server = setup.start();
    poll("the filter is missed", || {
        listed(&server).contains("there is no [[filter]] with name \"gone\" any more").then_some(())
    });
    assert_eq!(hop.count(), 0);
    let deleted = server.control(&["queue", "delete", &id], b"");
    assert!(deleted.status.success());
    ends_empty(server);
    assert_eq!(hop.count(), 0);
}

#[test]
fn a_killed_server_screens_again_and_delivers_nothing_unscreened() {
    let hop = Hop::good();
    let (filter, _gate) = gated(go_on);
    let server = filtered(&hop, &[("slow", after(filter.address, ""))]).start();
    send(&server, "a@client.test", &["b@example.com"], CONTENT);
    poll("the filter has the message", || filter.commands().contains('E').then_some(()));
    let setup = killed(server);
    let second = Milter::new(|_, command, _| match command {
        'E' => Act::Send([packet(b'h', b"X-Seen\0second\0"), packet(b'c', b"")].concat()),
        _ => go_on(),
    });
    assert_eq!(hop.count(), 0);
    let filters = format!("[{{name = \"slow\", {}}}]", after(second.address, ""));
    let server = setup.set("filter", filters).start();
    assert!(hop.wait(1)[0].text().contains("X-Seen: second"));
    ends_screened(server);
    assert_eq!(hop.count(), 1);
}

/// Kills the server at any moment while a filter changes some messages, refuses others, and dies at times.
#[test]
fn a_server_that_is_killed_again_and_again_loses_nothing_and_delivers_nothing_unscreened() {
    let asked = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&asked);
    let hop = Hop::good();
    let filter = Milter::new(move |_, command, _| match command {
        'E' => match count.fetch_add(1, Ordering::Relaxed) % 7 {
            6 => Act::Close(packet(b'h', b"X-Half\0yes\0")),
            _ => Act::Send([packet(b'h', b"X-Seen\0yes\0"), packet(b'c', b"")].concat()),
        },
        _ => go_on(),
    });
    let mut server = filtered(&hop, &[("editor", after(filter.address, ""))]).start();
    let mut sent = Vec::new();
    for round in 0..6_u64 {
        for number in 0..12 {
            let to = format!("r{round}n{number}@example.com");
            send(&server, "a@client.test", &[&to], CONTENT);
            sent.push(to);
        }
        // At another moment each time.
        testkit::harness::pause(std::time::Duration::from_millis(7 * round));
        server = killed(server).start();
    }
    poll("mail is left", || (server.status("/queue/recipients") == 0).then_some(()));
    ends_screened(server);
    let mails = hop.wait(sent.len());
    for to in &sent {
        let got: Vec<_> = mails.iter().filter(|mail| mail.to_is(to)).collect();
        assert!(!got.is_empty(), "{to} is lost");
        for mail in got {
            let text = mail.text();
            assert_eq!(text.matches("X-Seen: yes").count(), 1, "screened, and once: {text}");
            assert!(!text.contains("X-Half"), "{text}");
        }
    }
}

#[test]
fn a_stop_in_good_order_leaves_mail_that_waits() {
    let hop = Hop::good();
    let (filter, gate) = gated(go_on);
    let server = filtered(&hop, &[("slow", after(filter.address, ""))]).start();
    send(&server, "a@client.test", &["b@example.com"], CONTENT);
    poll("the filter has the message", || filter.commands().contains('E').then_some(()));
    let (_, setup) = stopped(server);
    assert_eq!(hop.count(), 0);
    gate.store(true, Ordering::Release);
    let server = setup.start();
    hop.wait(1);
    ends_screened(server);
}

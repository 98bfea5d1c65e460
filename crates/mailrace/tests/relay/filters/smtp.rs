//! Filters that take mail by SMTP and give it back by SMTP: each message leaves once, as the filter has left it,
//! whatever the filter does and whenever anything dies.

use super::programs::free_port;
use super::smtp_script::{End, Got, SmtpFilter, ok, send_back};
use crate::hop::Hop;
use crate::world::{any_line, ends_empty, killed, lines, relay};
use std::io::Write as _;
use std::net::{SocketAddr, TcpListener};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use testkit::client::{greeted, id};
use testkit::harness::{Ended, Server, Setup, letters, poll, program, text};

const CONTENT: &[u8] = b"Subject: x\r\n\r\nhello\r\n..dot\r\n";
const STAGES: [&str; 2] = ["before-250", "after-250"];

/// A server with this filter, which gives mail back to the second address.
fn server(hop: &Hop, filter: &SmtpFilter, back: SocketAddr, others: &str) -> Setup {
    with_kind(hop, "smtp", filter, back, others)
}

fn with_kind(hop: &Hop, kind: &str, filter: &SmtpFilter, back: SocketAddr, others: &str) -> Setup {
    let listeners = format!(
        "[{{address = \"127.0.0.1:0\", name = \"mx\", filters = [\"outer\"]}}, \
         {{address = \"{back}\", name = \"filtered\"}}]"
    );
    let table = format!("[{{name = \"outer\", kind = \"{kind}\", address = \"{}\", {others}}}]", filter.address);
    relay(&[hop]).set("listen", listeners).set("filter", table)
}

fn stage(when: &str, others: &str) -> String {
    format!("when = \"{when}\"{}{others}", if others.is_empty() { "" } else { ", " })
}

/// Sends a message to these recipients. The reply to it.
fn reply(server: &Server, to: &[&str]) -> String {
    let mut client = greeted(server.address());
    client.expect("MAIL FROM:<a@client.test>", "250");
    for one in to {
        client.expect(&format!("RCPT TO:<{one}>"), "250");
    }
    client.expect("DATA", "354");
    client.send(&[CONTENT, b".\r\n"].concat());
    let reply = client.reply();
    client.quit();
    reply
}

#[track_caller]
fn ends_screened(server: Server) -> Ended {
    poll("mail waits for filters", || (server.status("/screen_queue/messages") == 0).then_some(()));
    ends_empty(server)
}

/// The content of a message below our trace field.
fn own(text: &[u8]) -> String {
    String::from_utf8_lossy(text).into_owned()
}

#[test]
fn the_message_leaves_as_the_filter_gives_it_back() {
    for when in STAGES {
        let (hop, back) = (Hop::good(), free_port());
        let filter = SmtpFilter::new(move |got| {
            let reply = got.give_back(back, &got.changed("X-Filter: seen", "more\r\n.\r\n"));
            assert!(reply.starts_with("250 2.0.0"), "{reply}");
            ok()
        });
        let server = server(&hop, &filter, back, &stage(when, "")).start();
        let id = id(&reply(&server, &["b@example.com", "c@example.com"]));
        let mails = hop.wait(1);
        let text = mails[0].text();
        assert!(text.starts_with("X-Filter: seen\r\nReceived: from client.test"), "{text}");
        assert!(text.ends_with("\r\nSubject: x\r\n\r\nhello\r\n.dot\r\nmore\r\n.\r\n"), "{text}");
        assert!(!text.contains("X-Mailrace-Trace") && text.matches("Received: ").count() == 1, "{text}");
        assert_eq!(mails[0].all_to(), ["b@example.com", "c@example.com"]);
        let got = filter.got().remove(0);
        let commands = got.commands.join("\n");
        assert!(commands.contains("XFORWARD NAME=[UNAVAILABLE] ADDR=127.0.0.1 PORT="), "{commands}");
        assert!(commands.contains(&format!("PROTO=ESMTP HELO=client.test IDENT={id} SOURCE=LOCAL")), "{commands}");
        assert!(got.content.starts_with("X-Mailrace-Trace: "), "{}", got.content);
        let log = ends_screened(server).log;
        assert_eq!((hop.count(), filter.got().len()), (1, 1));
        assert_eq!(lines(&log, &["screen=edit", "by=outer", "given back changed"]).len(), 1, "{log:#?}");
        assert_eq!(
            lines(&log, &[&id, "screen=accept", "by=outer", "place=filtered", "given back"]).len(),
            1,
            "{log:#?}"
        );
    }
}

#[test]
fn a_message_that_comes_back_as_it_was_is_not_stored_anew() {
    for when in STAGES {
        let (hop, back) = (Hop::good(), free_port());
        let filter = SmtpFilter::new(move |got| {
            got.give_back(back, &got.content);
            ok()
        });
        let server = server(&hop, &filter, back, &stage(when, "")).start();
        let id = id(&reply(&server, &["b@example.com"]));
        assert_eq!(own(hop.wait(1)[0].own_content()), "Subject: x\r\n\r\nhello\r\n.dot\r\n");
        let log = ends_screened(server).log;
        assert_eq!(lines(&log, &["screen=accept", "by=outer", "action=given back ("]).len(), 1, "{log:#?}");
        assert!(lines(&log, &[&id, "stat=Sent"]).len() == 1 && lines(&log, &["clone"]).is_empty(), "{log:#?}");
    }
}

#[test]
fn a_large_message_keeps_its_octets() {
    let body: String = (0..40_000).map(|line| format!("line {line}\r\n")).collect();
    for (when, field) in [(STAGES[0], "X: 1\r\n"), (STAGES[1], "X: 1\r\n"), (STAGES[0], ""), (STAGES[1], "")] {
        let (hop, back) = (Hop::good(), free_port());
        let filter = SmtpFilter::new(move |got| {
            got.give_back(back, &format!("{field}{}", got.content));
            ok()
        });
        let server = server(&hop, &filter, back, &stage(when, "")).start();
        let mut client = greeted(server.address());
        client.envelope();
        client.data(format!("Subject: large\r\n\r\n{body}").as_bytes());
        let text = hop.wait(1)[0].text();
        assert!(text.starts_with(&format!("{field}Received: ")), "{when}");
        assert!(text.ends_with(&format!("\r\nSubject: large\r\n\r\n{body}")), "{when}: {} octets", text.len());
        ends_screened(server);
    }
}

#[test]
fn a_filter_that_dies_after_the_content_costs_no_message_and_makes_none_twice() {
    // It dies before it gives the message back, or behind it.
    for (when, gives_back) in [(STAGES[0], false), (STAGES[0], true), (STAGES[1], false), (STAGES[1], true)] {
        let (hop, back) = (Hop::good(), free_port());
        let filter = SmtpFilter::new(move |got| {
            if got.number > 0 || gives_back {
                let reply = got.give_back(back, &got.changed("X-Filter: seen", ""));
                assert!(reply.starts_with("250"), "{reply}");
            }
            if got.number == 0 { End::Close } else { ok() }
        });
        let server = server(&hop, &filter, back, &stage(when, "")).start();
        let first = reply(&server, &["b@example.com"]);
        if when == "before-250" {
            assert!(first.starts_with("451 4.7.1"), "{first}");
            assert_eq!(hop.count(), 0, "the client has the message");
            id(&reply(&server, &["b@example.com"]));
        }
        assert!(hop.wait(1)[0].text().starts_with("X-Filter: seen\r\n"));
        let log = ends_screened(server).log;
        assert_eq!((hop.count(), filter.got().len()), (1, 2), "{log:#?}");
        let said = lines(&log, &["screen=not_judged", "by=outer", "eom: the filter closed the connection"]);
        assert_eq!(said.len(), 1, "{log:#?}");
    }
}

#[test]
fn each_failure_rule_has_its_effect() {
    let rows = [("defer", "451 4.7.1"), ("pass", "250"), ("tag", "250"), ("quarantine", "250"), ("later", "250")];
    for (rule, wanted) in rows {
        let (hop, back) = (Hop::good(), free_port());
        let filter = SmtpFilter::new(move |got| {
            if rule == "later" && got.number > 0 {
                got.give_back(back, &got.content);
                return ok();
            }
            End::Hang
        });
        // Only an answer that never comes takes so long. The second question is answered in this time, with a session
        // that gives the message back.
        let seconds = if rule == "later" { 8 } else { 3 };
        let others = format!("on_failure = \"{rule}\", timeout = \"{seconds}s\"");
        let server = server(&hop, &filter, back, &others).start();
        let said = reply(&server, &["b@example.com"]);
        assert!(said.starts_with(wanted), "{rule}: {said}");
        if matches!(rule, "pass" | "tag" | "later") {
            let field = if rule == "tag" { "X-Not-Checked-By: outer\r\n" } else { "" };
            let wanted = format!("Subject: x\r\n{field}\r\nhello\r\n.dot\r\n");
            assert_eq!(own(hop.wait(1)[0].own_content()), wanted, "{rule}");
        }
        let log = if rule == "quarantine" { server.stop().log } else { ends_screened(server).log };
        let said = format!("eom: no answer within {seconds}.0 s");
        assert_eq!(lines(&log, &["screen=not_judged", &said]).len(), 1, "{rule}: {log:#?}");
        assert_eq!(hop.count(), usize::from(matches!(rule, "pass" | "tag" | "later")), "{rule}");
    }
}

#[test]
fn refusals_and_deferrals_of_the_message_are_passed_on() {
    for when in STAGES {
        let (hop, back) = (Hop::good(), free_port());
        let filter = SmtpFilter::new(move |got| match got.number {
            0 => End::Say("452 4.3.1 later".to_owned()),
            1 => End::Say("554 5.7.0 Reject, id=1 - INFECTED".to_owned()),
            _ => ok(),
        });
        let mut server = server(&hop, &filter, back, &stage(when, "on_reject = \"bounce\"")).start();
        let first = reply(&server, &["b@example.com"]);
        if when == "before-250" {
            assert_eq!(first, "452 4.3.1 later");
            assert_eq!(reply(&server, &["b@example.com"]), "554 5.7.0 Reject, id=1 - INFECTED");
        } else {
            any_line(&mut server, &["screen=defer", "452 4.3.1 later"]);
            let report = hop.wait(1).remove(0);
            assert!(report.to_is("a@client.test") && report.text().contains("INFECTED"), "{}", report.text());
        }
        ends_screened(server);
        assert_eq!(hop.count(), usize::from(when == "after-250"));
    }
}

fn accepts_all(_: &str) -> &'static str {
    "250 2.1.5 Ok"
}

fn refuses_b(recipient: &str) -> &'static str {
    if recipient.starts_with("b@") { "550 5.1.1 no such user" } else { "250 2.1.5 Ok" }
}

#[test]
fn a_recipient_that_the_filter_refuses_is_refused_alone() {
    for (when, kind) in [(STAGES[0], "smtp"), (STAGES[1], "smtp"), (STAGES[0], "lmtp"), (STAGES[1], "lmtp")] {
        let (hop, back) = (Hop::good(), free_port());
        let is_lmtp = kind == "lmtp";
        let filter = SmtpFilter::picky(if is_lmtp { accepts_all } else { refuses_b }, move |got| {
            let passed: Vec<&str> = got.to.iter().map(String::as_str).filter(|to| !to.starts_with("b@")).collect();
            send_back(back, &got.from, &passed, &got.changed("X-Filter: seen", ""));
            let each = |to: &String| if to.starts_with("b@") { "550 5.1.1 no such user" } else { "250 2.0.0 Ok" };
            let all: Vec<&str> = got.to.iter().map(each).collect();
            if is_lmtp { End::Say(all.join("\r\n")) } else { ok() }
        });
        let setup = with_kind(&hop, kind, &filter, back, &stage(when, "on_reject = \"bounce\""));
        let server = setup.start();
        id(&reply(&server, &["b@example.com", "c@example.com"]));
        let mut mails = hop.wait(2);
        mails.sort_by_key(|mail| mail.to().to_owned());
        let (report, mail) = (&mails[0], &mails[1]);
        assert!(report.to_is("a@client.test") && report.text().contains("no such user"), "{}", report.text());
        assert!(mail.to_is("c@example.com") && mail.text().starts_with("X-Filter: seen"), "{}", mail.text());
        ends_screened(server);
        assert_eq!(hop.count(), 2, "{when} {kind}");
    }
}

#[test]
fn recipients_get_the_form_that_comes_back_for_them() {
    for when in STAGES {
        let (hop, back) = (Hop::good(), free_port());
        let filter = SmtpFilter::new(move |got| {
            for to in &got.to {
                let reply = send_back(back, &got.from, &[to], &got.changed(&format!("X-For: {to}"), ""));
                assert!(reply.starts_with("250"), "{reply}");
            }
            ok()
        });
        let server = server(&hop, &filter, back, &stage(when, "")).start();
        id(&reply(&server, &["b@example.com", "c@example.com", "d@example.com"]));
        for mail in hop.wait(3) {
            let text = mail.text();
            assert!(
                text.starts_with(&format!("X-For: {}\r\n", mail.to())) && text.matches("X-For").count() == 1,
                "{text}"
            );
        }
        ends_screened(server);
        assert_eq!(hop.count(), 3);
    }
}

#[test]
fn a_message_that_comes_back_twice_leaves_once() {
    for when in STAGES {
        let (hop, back) = (Hop::good(), free_port());
        let filter = SmtpFilter::new(move |got| {
            for field in ["X-First: 1", "X-Second: 2"] {
                let reply = got.give_back(back, &got.changed(field, ""));
                assert!(reply.starts_with("250"), "{reply}");
            }
            ok()
        });
        let server = server(&hop, &filter, back, &stage(when, "")).start();
        id(&reply(&server, &["b@example.com"]));
        assert!(hop.wait(1)[0].text().starts_with("X-First: 1\r\nReceived"));
        ends_screened(server);
        assert_eq!(hop.count(), 1);
    }
}

#[test]
fn a_forged_token_makes_mail_that_is_judged_like_any_other() {
    for when in STAGES {
        let (hop, back) = (Hop::good(), free_port());
        let filter = SmtpFilter::new(move |got| {
            let (line, _) = got.content.split_once("\r\n").expect("a field");
            let last = line.chars().next_back().expect("a tag");
            let forged = [&line[..line.len() - 1], if last == '0' { "1" } else { "0" }].concat();
            got.give_back(back, &got.content.replacen(line, &forged, 1));
            ok()
        });
        let server = server(&hop, &filter, back, &stage(when, "")).start();
        id(&reply(&server, &["b@example.com"]));
        let text = hop.wait(1)[0].text();
        assert!(!text.contains("X-Mailrace-Trace"), "{text}");
        assert_eq!(text.matches("Received: ").count(), 2, "it is mail of its own: {text}");
        let log = ends_screened(server).log;
        assert_eq!(lines(&log, &["by=X-Mailrace-Trace", "was removed"]).len(), 1, "{log:#?}");
        assert_eq!(lines(&log, &["screen=discard", "by=outer", "gave nothing back"]).len(), 1, "{log:#?}");
        assert_eq!(hop.count(), 1);
    }
}

/// A server whose only listener has the filter, so that mail comes back to where it went in.
fn round(hop: &Hop, filter: &SmtpFilter, address: SocketAddr, others: &str) -> Setup {
    let listener = format!("[{{address = \"{address}\", name = \"mx\", filters = [\"outer\"]}}]");
    let table = format!("[{{name = \"outer\", kind = \"smtp\", address = \"{}\", {others}}}]", filter.address);
    relay(&[hop]).set("listen", listener).set("filter", table)
}

#[test]
fn mail_does_not_go_in_a_circle() {
    for (when, strips) in [(STAGES[0], false), (STAGES[1], false), (STAGES[0], true), (STAGES[1], true)] {
        let (hop, back) = (Hop::good(), free_port());
        let filter = SmtpFilter::new(move |got| {
            // Without its token, the message looks like another one each time.
            let content = match (strips, got.content.split_once("\r\n")) {
                (true, Some((_, rest))) => rest,
                _ => &got.content,
            };
            let reply = got.give_back(back, content);
            if reply.starts_with("250") { ok() } else { End::Say(reply) }
        });
        let others = stage(when, "on_reject = \"discard\"");
        let server = round(&hop, &filter, back, &others).set("message.hops_max", "5").start();
        let said = reply(&server, &["b@example.com"]);
        if strips {
            let wanted = if when == "before-250" { "554 5.4.6" } else { "250" };
            assert!(said.starts_with(wanted), "{said}");
        } else {
            id(&said);
            assert_eq!(own(hop.wait(1)[0].own_content()), "Subject: x\r\n\r\nhello\r\n.dot\r\n");
        }
        ends_screened(server);
        assert_eq!((hop.count(), filter.got().len() <= 6), (usize::from(!strips), true), "{}", filter.got().len());
    }
}

#[test]
fn a_filter_that_stores_mail_gives_it_back_later_and_is_not_asked_again() {
    for when in STAGES {
        let (hop, back) = (Hop::good(), free_port());
        let filter = SmtpFilter::new(|_| ok());
        let server = round(&hop, &filter, back, &stage(when, "")).start();
        id(&reply(&server, &["b@example.com"]));
        poll("the filter has it", || (filter.got().len() == 1).then_some(()));
        poll("mail waits", || (server.status("/screen_queue/messages") == 0).then_some(()));
        assert_eq!(hop.count(), 0);
        let got: Got = filter.got().remove(0);
        let reply = got.give_back(back, &got.changed("X-Filter: seen", ""));
        assert!(reply.starts_with("250"), "{reply}");
        let text = hop.wait(1)[0].text();
        assert!(text.contains("\r\nX-Filter: seen\r\n") && !text.contains("X-Mailrace-Trace"), "{text}");
        let log = ends_screened(server).log;
        assert_eq!((hop.count(), filter.got().len()), (1, 1), "{log:#?}");
        assert_eq!(lines(&log, &["by=outer", "given back as mail of its own"]).len(), 1, "{log:#?}");
    }
}

#[test]
fn mail_that_comes_back_too_late_is_refused_and_leaves_once() {
    for when in STAGES {
        let (hop, back) = (Hop::good(), free_port());
        let (late, is_late) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (gate, seen) = (Arc::clone(&late), Arc::clone(&is_late));
        let filter = SmtpFilter::new(move |got| {
            if got.number == 0 {
                poll("the gate", || gate.load(Ordering::Acquire).then_some(()));
                let reply = got.give_back(back, &got.content);
                assert!(reply.starts_with("451 4.7.1"), "{reply}");
                seen.store(true, Ordering::Release);
                return End::Close;
            }
            got.give_back(back, &got.changed("X-Filter: seen", ""));
            ok()
        });
        // The later questions are answered in this time, each with a session that gives the message back.
        let mut server = server(&hop, &filter, back, &stage(when, "timeout = \"5s\"")).start();
        let first = reply(&server, &["b@example.com"]);
        any_line(&mut server, &["screen=not_judged", "no answer within 5.0 s"]);
        late.store(true, Ordering::Release);
        poll("the late answer", || is_late.load(Ordering::Acquire).then_some(()));
        if when == "before-250" {
            assert!(first.starts_with("451"), "{first}");
            id(&reply(&server, &["b@example.com"]));
        }
        assert!(hop.wait(1)[0].text().starts_with("X-Filter: seen"));
        ends_screened(server);
        assert_eq!(hop.count(), 1);
    }
}

#[test]
fn a_server_that_is_killed_while_a_filter_works_delivers_once() {
    // The kill comes before the message is given back, or behind it and before the 250 of the filter.
    for gives_back in [false, true] {
        let (hop, back) = (Hop::good(), free_port());
        let (gone, came) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicBool::new(false)));
        let (gate, has) = (Arc::clone(&gone), Arc::clone(&came));
        let filter = SmtpFilter::new(move |got| {
            if got.number == 0 {
                if gives_back {
                    assert!(got.give_back(back, &got.content).starts_with("250"));
                }
                has.store(true, Ordering::Release);
                poll("the kill", || gate.load(Ordering::Acquire).then_some(()));
                return ok();
            }
            got.give_back(back, &got.changed("X-Filter: seen", ""));
            ok()
        });
        let server = server(&hop, &filter, back, &stage("after-250", "")).start();
        id(&reply(&server, &["b@example.com"]));
        poll("the filter works", || came.load(Ordering::Acquire).then_some(()));
        let setup = killed(server);
        gone.store(true, Ordering::Release);
        let server = setup.start();
        assert!(hop.wait(1)[0].text().starts_with("X-Filter: seen"));
        ends_screened(server);
        assert_eq!((hop.count(), filter.got().len()), (1, 2));
    }
}

#[test]
fn the_key_of_tokens_stays_over_restarts() {
    let (hop, back) = (Hop::good(), free_port());
    let filter = SmtpFilter::new(|_| ok());
    let server = round(&hop, &filter, back, &stage(STAGES[0], "")).start();
    id(&reply(&server, &["b@example.com"]));
    let got = filter.got().remove(0);
    let setup = server.stop_for_setup();
    let path = setup.path("spool");
    assert!(letters(&path).is_empty(), "the filter has the message");
    let server = setup.start();
    assert!(got.give_back(back, &got.content).starts_with("250"));
    hop.wait(1);
    ends_empty(server);
    assert_eq!((hop.count(), filter.got().len()), (1, 1), "it is known, and not asked about again");
}

#[test]
fn check_speaks_to_the_filter() {
    let (hop, back) = (Hop::good(), free_port());
    let good = SmtpFilter::new(|_| ok());
    let checked = |setup: Setup| {
        let output = program().args(["check", "--config"]).arg(setup.write()).output().expect("it runs");
        text(&output)
    };
    let said = checked(server(&hop, &good, back, &stage(STAGES[0], "")));
    assert!(!said.contains("filter \"outer\" ("), "{said}");
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("an address");
    std::thread::spawn(move || {
        for mut stream in listener.incoming().flatten() {
            drop(stream.write_all(b"+OK POP3 ready\r\n"));
        }
    });
    let said = checked(server(&hop, &SmtpFilter { address, ..good }, back, &stage(STAGES[0], "")));
    assert!(said.contains("this is no SMTP server: it begins with \"+OK POP3"), "{said}");
}

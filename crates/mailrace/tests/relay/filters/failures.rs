//! Filters that fail: each costs the message that it was asked about, and changes nothing of it.

use super::programs::free_port;
use super::scripted::{Act, Milter, agreement, go_on, packet};
use super::{filtered, milter};
use crate::hop::Hop;
use crate::world::{ends_empty, lines, send};
use testkit::client::{greeted, id};
use testkit::harness::{program, text};

const CONTENT: &[u8] = b"Subject: x\r\n\r\nhello\r\n";

/// Changes without a final answer, and the end of the connection.
fn dies() -> Act {
    Act::Close([packet(b'h', b"X-Half\0yes\0"), packet(b'b', b"half a bo")].concat())
}

#[test]
fn a_filter_that_dies_in_the_middle_of_its_changes_changes_nothing() {
    for rule in ["defer", "pass", "tag", "quarantine"] {
        let hop = Hop::good();
        let filter = Milter::new(|_, command, _| if command == 'E' { dies() } else { go_on() });
        let server = filtered(&hop, &[("weak", milter(filter.address, &format!("on_failure = \"{rule}\"")))]).start();
        let mut client = greeted(server.address());
        client.envelope();
        client.expect("DATA", "354");
        client.send(&[CONTENT, b".\r\n"].concat());
        let reply = client.reply();
        // The next message of the session has another connection to the filter.
        client.expect("MAIL FROM:<a@client.test>", "250 2.1.0");
        client.expect("RSET", "250");
        client.quit();
        assert_eq!(reply.starts_with("451 4.7.1"), rule == "defer", "{rule}: {reply}");
        assert_eq!(reply.starts_with("250 2.0.0"), rule != "defer", "{rule}: {reply}");
        let added = if rule == "tag" { "X-Not-Checked-By: weak\r\n" } else { "" };
        if matches!(rule, "pass" | "tag") {
            let wanted = format!("Subject: x\r\n{added}\r\nhello\r\n");
            assert_eq!(String::from_utf8_lossy(hop.wait(1)[0].own_content()), wanted, "{rule}");
        }
        let log = match rule {
            "quarantine" => {
                let shown = server.control(&["queue", "show", &id(&reply), "--json"], b"");
                let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
                assert!(shown.contains("weak"), "{shown}");
                server.stop().log
            }
            _ => ends_empty(server).log,
        };
        let said = lines(&log, &["screen=not_judged", "by=weak", "eom: the filter closed the connection"]);
        assert_eq!(said.len(), 1, "{rule}: {log:#?}");
        assert_eq!(hop.count(), usize::from(matches!(rule, "pass" | "tag")), "{rule}");
    }
}

#[test]
fn what_breaks_the_protocol_is_a_failure() {
    type Script = fn(usize, char, &[u8]) -> Act;
    let rows: [(&str, &str, Script); 6] = [
        ("another protocol", "this is no milter", |_, _, _| Act::Send(b"220 mx.example ESMTP\r\n".to_vec())),
        ("a length of zero", "this is no milter", |_, command, _| match command {
            'O' => Act::Send(agreement()),
            _ => Act::Send(vec![0; 4]),
        }),
        ("a length without end", "this is no milter", |_, command, _| match command {
            'O' => Act::Send(agreement()),
            _ => Act::Send(vec![0xff; 9]),
        }),
        ("an unknown answer", "answers", |_, command, _| match command {
            'O' => Act::Send(agreement()),
            'D' => Act::Silence,
            _ => Act::Send(packet(b'Z', b"")),
        }),
        ("a version of the future", "version 9", |_, _, _| {
            Act::Send(packet(b'O', &[9_u32, 0, 0].map(u32::to_be_bytes).concat()))
        }),
        ("a closed connection", "closed the connection", |_, _, _| Act::Close(Vec::new())),
    ];
    for (what, said, script) in rows {
        let hop = Hop::good();
        let filter = Milter::raw(script);
        let server = filtered(&hop, &[("odd", milter(filter.address, ""))]).start();
        let mut client = greeted(server.address());
        let reply = client.command("MAIL FROM:<a@client.test>");
        assert!(reply.starts_with("451 4.7.1"), "{what}: {reply}");
        // Refused for the whole of the transaction, and no other recipient slips through.
        client.quit();
        let log = ends_empty(server).log;
        assert!(!lines(&log, &["odd", said]).is_empty(), "{what}: {log:#?}");
    }
}

#[test]
fn an_answer_that_was_not_asked_for_is_no_answer_to_the_next_step() {
    let hop = Hop::good();
    let filter = Milter::new(|connection, command, _| match (connection, command) {
        (0, 'M') => Act::Send([packet(b'c', b""), packet(b'c', b"")].concat()),
        (_, 'R') => Act::Send(packet(b'r', b"")),
        _ => go_on(),
    });
    let server = filtered(&hop, &[("early", milter(filter.address, ""))]).start();
    let mut client = greeted(server.address());
    client.expect("MAIL FROM:<a@client.test>", "250 2.1.0");
    client.expect("RCPT TO:<b@example.com>", "451 4.7.1");
    client.expect("RCPT TO:<c@example.com>", "451 4.7.1");
    client.expect("MAIL FROM:<a@client.test>", "503");
    client.expect("RSET", "250");
    client.expect("MAIL FROM:<a@client.test>", "250 2.1.0");
    client.expect("RCPT TO:<b@example.com>", "550 5.7.1 Command rejected");
    client.quit();
    let log = ends_empty(server).log;
    assert!(!lines(&log, &["by=early", "before it was asked"]).is_empty(), "{log:#?}");
}

#[test]
fn a_filter_that_does_not_answer_costs_its_time_limit() {
    let hop = Hop::good();
    let filter = Milter::new(|_, command, _| if command == 'R' { Act::Silence } else { go_on() });
    let server = filtered(&hop, &[("slow", milter(filter.address, "timeout = \"3s\""))]).start();
    let mut client = greeted(server.address());
    client.expect("MAIL FROM:<a@client.test>", "250 2.1.0");
    client.expect("RCPT TO:<b@example.com>", "451 4.7.1");
    client.quit();
    let log = ends_empty(server).log;
    assert!(!lines(&log, &["screen=not_judged", "by=slow", "rcpt: no answer within 3.0 s"]).is_empty(), "{log:#?}");
}

#[test]
fn progress_begins_the_time_limit_anew() {
    let hop = Hop::good();
    let filter = Milter::new(|_, command, _| match command {
        'E' => Act::Send([packet(b'p', b""), packet(b'p', b""), packet(b'c', b"")].concat()),
        _ => go_on(),
    });
    let server = filtered(&hop, &[("busy", milter(filter.address, ""))]).start();
    send(&server, "a@client.test", &["b@example.com"], CONTENT);
    hop.wait(1);
    ends_empty(server);
}

#[test]
fn a_filter_that_is_not_there_is_named() {
    let closed = free_port();
    for (kind, rule) in [("milter", "defer"), ("policy", "defer"), ("clamd", "defer"), ("milter", "pass")] {
        let hop = Hop::good();
        let settings = format!("kind = \"{kind}\", address = \"{closed}\", on_failure = \"{rule}\"");
        let server = filtered(&hop, &[("absent", settings)]).start();
        let mut client = greeted(server.address());
        let commands = ["MAIL FROM:<a@client.test>", "RCPT TO:<b@example.com>"];
        let mut reply = String::new();
        for command in commands {
            reply = client.command(command);
            if !reply.starts_with("250") {
                break;
            }
        }
        if reply.starts_with("250") {
            client.expect("DATA", "354");
            client.send(&[CONTENT, b".\r\n"].concat());
            reply = client.reply();
        }
        client.quit();
        assert_eq!(reply.starts_with("451 4.7.1"), rule == "defer", "{kind} {rule}: {reply}");
        let log = ends_empty(server).log;
        let said = lines(&log, &["by=absent", &closed.to_string(), "connect: Connection refused"]);
        assert!(!said.is_empty(), "{kind} {rule}: {log:#?}");
        assert_eq!(hop.count(), usize::from(rule == "pass"));
    }
}

#[test]
fn check_names_filters_that_do_not_answer_as_they_should() {
    let hop = Hop::good();
    let good = Milter::new(|_, _, _| go_on());
    let odd = Milter::raw(|_, _, _| Act::Send(b"220 mx.example ESMTP\r\n".to_vec()));
    let closed = free_port();
    let filters =
        [("good", milter(good.address, "")), ("odd", milter(odd.address, "")), ("absent", milter(closed, ""))];
    let setup = filtered(&hop, &filters).set("message.size_max", "\"14MiB\"");
    let output = program().args(["check", "--config"]).arg(setup.write()).output().expect("it runs");
    let text = text(&output);
    assert!(text.contains("this is no milter: it begins with \"220 \""), "{text}");
    assert!(text.contains("filter \"odd\"") && !text.contains("filter \"good\""), "{text}");
    // The words of the system without their number.
    assert!(text.contains(&format!("filter \"absent\" ({closed}): connect: Connection refused; start it")), "{text}");
}

//! Milters: each step at its moment, replies to the client, changes of the message.

use super::scripted::{Act, Milter, go_on, packet};
use super::{filtered, milter};
use crate::hop::Hop;
use crate::world::{ends_empty, lines, relay, send, waiting};
use testkit::client::greeted;
use testkit::harness::{poll, program, run_with_input, text};

const CONTENT: &[u8] = b"Subject: old\r\nX-Two: 1\r\nX-Two: 2\r\n\r\nhello\r\n..dot\r\n";

#[test]
fn each_step_comes_at_its_moment_and_has_its_macros() {
    let hop = Hop::good();
    let filter = Milter::new(|_, _, _| go_on());
    let server = filtered(&hop, &[("probe", milter(filter.address, ""))]).start();
    let mut client = greeted(server.address());
    assert_eq!(filter.commands(), "OCH");
    client.expect("MAIL FROM:<a@client.test> BODY=8BITMIME", "250 2.1.0");
    assert_eq!(filter.commands(), "OCHM");
    client.expect("RCPT TO:<b@example.com>", "250 2.1.5");
    client.expect("RCPT TO:<c@example.com>", "250 2.1.5");
    assert_eq!(filter.commands(), "OCHMRR");
    let id = client.data(CONTENT);
    assert_eq!(filter.commands(), "OCHMRRTLLLNBE");
    client.quit();
    let mails = hop.wait(1);
    assert_eq!(mails[0].own_content(), b"Subject: old\r\nX-Two: 1\r\nX-Two: 2\r\n\r\nhello\r\n.dot\r\n");
    poll("the filter is not told of the end", || filter.commands().ends_with('Q').then_some(()));
    let seen = filter.seen();
    let all = |command: char| seen.iter().filter(move |(of, _)| *of == command).map(|(_, data)| data.as_str());
    assert_eq!(all('M').collect::<Vec<_>>(), [r"<a@client.test>\x00BODY=8BITMIME\x00"]);
    assert_eq!(all('R').collect::<Vec<_>>(), [r"<b@example.com>\x00", r"<c@example.com>\x00"]);
    assert_eq!(all('L').next(), Some(r"Subject\x00old\x00"));
    assert_eq!(all('B').collect::<String>(), r"hello\r\n.dot\r\n");
    let macros: Vec<&str> = all('D').collect();
    let has = |stage: char, text: &str| macros.iter().any(|list| list.starts_with(stage) && list.contains(text));
    for (stage, text) in [
        ('C', r"j\x00mx.test\x00"),
        ('C', r"{client_addr}\x00127.0.0.1\x00"),
        ('M', r"{mail_addr}\x00a@client.test\x00"),
        ('R', r"{rcpt_addr}\x00c@example.com\x00"),
        ('E', &format!(r"i\x00{id}\x00")),
    ] {
        assert!(has(stage, text), "{stage} {text}: {macros:#?}");
    }
    let log = ends_empty(server).log;
    assert_eq!(lines(&log, &[&id, "screen=accept", "by=probe", "pass (eom"]).len(), 1, "{log:#?}");
}

#[test]
fn replies_reach_the_client() {
    let hop = Hop::good();
    let filter = Milter::new(|_, command, data| match command {
        'M' if data.starts_with(b"<bad@") => Act::Send(packet(b'r', b"")),
        'R' if data.starts_with(b"<no@") => Act::Send(packet(b'y', b"550 5.7.1 Not this one\0")),
        'R' if data.starts_with(b"<later@") => Act::Send(packet(b't', b"")),
        'E' => Act::Send(packet(b'y', b"451 4.7.1 Come again\0")),
        _ => go_on(),
    });
    let server = filtered(&hop, &[("probe", milter(filter.address, ""))]).start();
    let mut client = greeted(server.address());
    client.expect("MAIL FROM:<bad@client.test>", "550 5.7.1 Command rejected");
    client.expect("MAIL FROM:<a@client.test>", "250 2.1.0");
    client.expect("RCPT TO:<no@example.com>", "550 5.7.1 Not this one");
    client.expect("RCPT TO:<later@example.com>", "451 4.7.1");
    client.expect("RCPT TO:<b@example.com>", "250 2.1.5");
    client.expect("DATA", "354");
    client.send(b"Subject: x\r\n\r\nhello\r\n.\r\n");
    assert_eq!(client.reply(), "451 4.7.1 Come again");
    // The verdict ended with the transaction.
    client.expect("MAIL FROM:<a@client.test>", "250 2.1.0");
    client.expect("RSET", "250");
    client.quit();
    assert_eq!(hop.count(), 0);
    ends_empty(server);
    // A message that was refused or reset is aborted before the next one.
    assert!(filter.commands().contains("OCHMAMRRR"), "{}", filter.commands());
}

#[test]
fn changes_count_when_the_message_is_kept() {
    let hop = Hop::good();
    let filter = Milter::new(|_, command, _| match command {
        'E' => Act::Send(
            [
                packet(b'h', b"X-Added\0yes\n folded\0"),
                packet(b'i', b"\0\0\0\x00X-Top\0top\0"),
                packet(b'i', b"\0\0\0\x01X-First\0first\0"),
                packet(b'm', b"\0\0\0\x01subject\0new\0"),
                packet(b'm', b"\0\0\0\x02X-Two\0\0"),
                packet(b'+', b"<d@example.com>\0"),
                packet(b'-', b"<c@example.com>\0"),
                packet(b'e', b"<other@client.test>\0"),
                packet(b'b', b"new "),
                packet(b'p', b""),
                packet(b'b', b"body\r\n"),
                packet(b'a', b""),
            ]
            .concat(),
        ),
        _ => go_on(),
    });
    let server = filtered(&hop, &[("probe", milter(filter.address, ""))]).start();
    send(&server, "a@client.test", &["b@example.com", "c@example.com"], CONTENT);
    let mails = hop.wait(1);
    let text = mails[0].text();
    assert!(text.starts_with("X-Top: top\r\nReceived: "), "{text}");
    let rest = text.split_once("\r\nX-First:").expect("behind our own field").1;
    assert_eq!(rest, " first\r\nsubject: new\r\nX-Two: 1\r\nX-Added: yes\r\n folded\r\n\r\nnew body\r\n");
    assert_eq!(mails[0].all_to(), ["b@example.com", "d@example.com"]);
    assert!(mails[0].mail.starts_with("MAIL FROM:<other@client.test>"), "{}", mails[0].mail);
    ends_empty(server);
}

#[test]
fn the_next_filter_sees_the_changes_of_the_one_before() {
    let hop = Hop::good();
    let first = Milter::new(|_, command, _| match command {
        'E' => Act::Send(
            [packet(b'i', b"\0\0\0\x01X-One\x001\0"), packet(b'b', b"changed\r\n"), packet(b'c', b"")].concat(),
        ),
        _ => go_on(),
    });
    let second = Milter::new(|_, command, _| match command {
        'E' => Act::Send([packet(b'm', b"\0\0\0\x01X-One\x002\0"), packet(b'c', b"")].concat()),
        _ => go_on(),
    });
    let filters = [("first", milter(first.address, "")), ("second", milter(second.address, ""))];
    let server = filtered(&hop, &filters).start();
    // Longer than what travels inline: the body is in chunks.
    let long = [
        b"Subject: x\r\n\r\n".as_slice(),
        &b"0123456789abcdef0123456789abcdef0123456789abcdef01234567890abc\r\n".repeat(5_000),
    ]
    .concat();
    send(&server, "a@client.test", &["b@example.com"], &long);
    let mails = hop.wait(1);
    assert_eq!(mails[0].own_content(), b"X-One: 2\r\nSubject: x\r\n\r\nchanged\r\n");
    let seen = second.seen();
    assert!(seen.iter().any(|(command, data)| *command == 'L' && data == r"X-One\x001\x00"), "{seen:?}");
    assert!(seen.iter().any(|(command, data)| *command == 'B' && data == r"changed\r\n"));
    ends_empty(server);
}

#[test]
fn a_filter_may_quarantine_or_discard() {
    let hop = Hop::good();
    let filter = Milter::new(|_, command, data| match command {
        'R' if data.starts_with(b"<gone@") => Act::Send(packet(b'd', b"")),
        'E' => Act::Send([packet(b'q', b"looks bad\0"), packet(b'c', b"")].concat()),
        _ => go_on(),
    });
    let server = filtered(&hop, &[("probe", milter(filter.address, ""))]).start();
    send(&server, "a@client.test", &["gone@example.com"], CONTENT);
    assert_eq!(waiting(&server), 0);
    let id = send(&server, "a@client.test", &["b@example.com"], CONTENT);
    let shown = server.control(&["queue", "show", &id, "--json"], b"");
    let shown = String::from_utf8_lossy(&shown.stdout).into_owned();
    assert!(shown.contains("looks bad") && shown.contains("probe"), "{shown}");
    assert_eq!(hop.count(), 0);
    let ended = server.stop();
    assert!(ended.status.success());
    assert_eq!(lines(&ended.log, &[&id, "screen=quarantine", "by=probe", "looks bad"]).len(), 1, "{:#?}", ended.log);
}

#[test]
fn mail_of_the_sendmail_command_passes_the_filters_of_submit() {
    let hop = Hop::good();
    let filter = Milter::new(|_, command, _| match command {
        'E' => Act::Send([packet(b'h', b"X-Seen\0yes\0"), packet(b'c', b"")].concat()),
        _ => go_on(),
    });
    let table = format!("[{{name = \"probe\", {}}}]", milter(filter.address, ""));
    let server = relay(&[&hop]).set("filter", table).set("submit.filters", "[\"probe\"]").start();
    let mut command = program();
    command.args(["sendmail", "-f", "root@mx.test", "b@example.com"]);
    command.env("MAILRACE_CONFIG", server.setup.path("mailrace.toml"));
    let output = run_with_input(&mut command, "Subject: x\n\nhello\n");
    assert!(output.status.success(), "{}", text(&output));
    let text = hop.wait(1)[0].text();
    assert!(text.contains("\r\nX-Seen: yes\r\n"), "{text}");
    let commands = filter.commands();
    assert!(commands.starts_with("OCHMRT"), "{commands}");
    let seen = filter.seen();
    // The address by which filters know this machine.
    assert!(seen.iter().any(|(command, data)| *command == 'C' && data.contains("127.0.0.1")), "{seen:?}");
    ends_empty(server);
}

#[test]
fn a_filter_may_listen_on_a_socket_of_this_machine() {
    let hop = Hop::good();
    let setup = relay(&[&hop]);
    let path = setup.path("filter.sock");
    let seen = Milter::on_socket(&path);
    let table = format!("[{{name = \"probe\", kind = \"milter\", address = \"unix:{}\"}}]", path.display());
    let server = setup.set("filter", table).listen("filters = [\"probe\"]").start();
    send(&server, "a@client.test", &["b@example.com"], CONTENT);
    hop.wait(1);
    let commands: String = seen.lock().expect("no panic").iter().map(|(command, _)| *command).collect();
    assert!(commands.contains('E'), "{commands}");
    let log = ends_empty(server).log;
    assert_eq!(lines(&log, &["screen=accept", "by=probe", "place=unix:/"]).len(), 1, "{log:#?}");
}

#[test]
fn a_filter_answers_commands_that_the_server_does_not_know() {
    let hop = Hop::good();
    let filter = Milter::new(|_, command, data| match command {
        'U' if data.starts_with(b"XGREET") => Act::Send(packet(b'y', b"502 5.5.1 Nobody is greeted here\0")),
        _ => go_on(),
    });
    let server = filtered(&hop, &[("probe", milter(filter.address, ""))]).start();
    let mut client = greeted(server.address());
    client.expect("FROB it", "500 5.5.1 Command unrecognized: \"FROB\"");
    client.expect("XGREET you", "502 5.5.1 Nobody is greeted here");
    client.envelope();
    client.expect("FROB it", "500 5.5.1");
    client.data(CONTENT);
    // A password behind a failed AUTH goes to no filter.
    client.expect("AUTH FOO", "5");
    client.expect("c2VjcmV0", "500");
    client.quit();
    hop.wait(1);
    assert_eq!(filter.commands().trim_end_matches('Q'), "OCHUUMRUTLLLNBE");
    let seen = filter.seen();
    assert!(seen.iter().any(|(command, data)| *command == 'U' && data == r"FROB it\x00"), "{seen:?}");
    assert!(!seen.iter().any(|(_, data)| data.contains("c2VjcmV0")), "{seen:?}");
    let log = ends_empty(server).log;
    assert_eq!(lines(&log, &["screen=reject", "by=probe", "Nobody is greeted here (unknown"]).len(), 1, "{log:#?}");
}

#[test]
fn a_filter_hears_of_refused_recipients_if_it_asks_for_them() {
    for (steps, wanted) in [(0x800_u32, "OCHMRRR"), (0, "OCHMRR")] {
        let hop = Hop::good();
        let filter = Milter::raw(move |_, command, data| match command {
            'O' => Act::Send(packet(b'O', &[6_u32, 0x1ff, steps].map(u32::to_be_bytes).concat())),
            'D' | 'A' | 'Q' => Act::Silence,
            // Its word about a recipient that is refused anyway changes nothing.
            'R' if data.starts_with(b"<b@elsewhere.test>") => Act::Send(packet(b'd', b"")),
            _ => go_on(),
        });
        let setup = filtered(&hop, &[("probe", milter(filter.address, ""))]);
        let server = setup.set("relay.from", "[]").set("relay.to", "[\"example.com\"]").start();
        let mut client = greeted(server.address());
        client.expect("MAIL FROM:<a@client.test>", "250 2.1.0");
        client.expect("RCPT TO:<a@example.com>", "250 2.1.5");
        client.expect("RCPT TO:<b@elsewhere.test>", "550 5.7.1");
        client.expect("RCPT TO:<c@example.com>", "250 2.1.5");
        assert_eq!(filter.commands(), wanted);
        client.data(CONTENT);
        client.quit();
        assert_eq!(hop.wait(1)[0].all_to(), ["a@example.com", "c@example.com"]);
        let macros: Vec<String> =
            filter.seen().into_iter().filter(|(of, _)| *of == 'D').map(|(_, data)| data).collect();
        let of_refused = macros.iter().find(|list| list.contains(r"{rcpt_mailer}\x00error\x00"));
        assert_eq!(of_refused.is_some(), steps != 0, "{macros:#?}");
        if let Some(list) = of_refused {
            assert!(list.contains(r"{rcpt_host}\x005.7.1\x00") && list.contains(r"{rcpt_addr}\x00"), "{list}");
        }
        ends_empty(server);
    }
}

#[test]
fn xclient_makes_another_client_for_filters() {
    let hop = Hop::good();
    let filter = Milter::new(|_, command, data| match command {
        'C' if data.starts_with(b"bad.test") => Act::Send(packet(b'y', b"550 5.7.1 Not from there\0")),
        'M' if data.starts_with(b"<odd@") => Act::Send(packet(b'r', b"")),
        _ => go_on(),
    });
    let setup = filtered(&hop, &[("probe", milter(filter.address, ""))]);
    let server = setup.set("accept.xclient", "[\"127.0.0.1\"]").start();
    let mut client = greeted(server.address());
    client.expect("XCLIENT NAME=bad.test ADDR=192.0.2.9", "550 5.7.1 Not from there");
    client.expect("XCLIENT NAME=good.test ADDR=192.0.2.7 PORT=77 LOGIN=tim", "220");
    client.expect("EHLO good.test", "250");
    client.envelope();
    client.data(CONTENT);
    client.quit();
    hop.wait(1);
    let seen = filter.seen();
    let of = |wanted: char| -> Vec<String> {
        seen.iter().filter(|(command, _)| *command == wanted).map(|(_, data)| data.clone()).collect()
    };
    let connects = of('C');
    assert_eq!(connects.len(), 3, "{connects:?}");
    assert!(connects[1].starts_with(r"bad.test\x004") && connects[1].ends_with(r"192.0.2.9\x00"), "{connects:?}");
    assert_eq!(connects[2], r"good.test\x004\x00M192.0.2.7\x00");
    let macros = of('D');
    let has = |text: &str| macros.iter().any(|list| list.contains(text));
    assert!(has(r"{client_addr}\x00192.0.2.7\x00") && has(r"{auth_authen}\x00tim\x00"), "{macros:#?}");
    let log = ends_empty(server).log;
    assert_eq!(lines(&log, &["screen=reject", "by=probe", "Not from there (connect"]).len(), 1, "{log:#?}");
}

#[test]
fn macros_are_those_of_the_configuration() {
    let hop = Hop::good();
    let filter = Milter::new(|_, _, _| go_on());
    let others = "macros = [\"connect: j {daemon_name}\", \"rcpt: {rcpt_addr} nothing\"], \
                  macro_values = [\"daemon_name=ORIGINATING\", \"{auth_type}=\"]";
    let server = filtered(&hop, &[("probe", milter(filter.address, others))]).start();
    send(&server, "a@client.test", &["b@example.com"], CONTENT);
    hop.wait(1);
    let macros: Vec<String> = filter.seen().into_iter().filter(|(of, _)| *of == 'D').map(|(_, data)| data).collect();
    assert_eq!(macros[0], r"Cj\x00mx.test\x00{daemon_name}\x00ORIGINATING\x00");
    assert!(macros.iter().any(|list| list == r"R{rcpt_addr}\x00b@example.com\x00"), "{macros:#?}");
    assert!(macros.iter().any(|list| list.starts_with("Mi") && list.contains("{mail_addr}")), "the usual ones");
    ends_empty(server);
    let setup = filtered(&hop, &[("probe", milter(filter.address, "macros = [\"begin: j\"]"))]);
    let output = program().args(["check", "--config"]).arg(setup.write()).output().expect("it runs");
    let text = text(&output);
    assert!(text.contains("\"begin: j\" is no list of macros of a step"), "{text}");
}

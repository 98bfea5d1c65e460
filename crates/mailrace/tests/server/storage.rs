//! A 250 means that the message is in the spool, byte for byte, also if the server is killed next.

use mail::Body;
use std::collections::BTreeSet;
use testkit::client::{greeted, id, stuffed};
use testkit::harness::{Letter, Server, Setup, letters, program, text};

/// Every octet that content may have, in lines of all lengths up to 400.
fn octets(size: usize) -> Vec<u8> {
    let mut out = Vec::with_capacity(size + 500);
    let mut line = 0;
    while out.len() < size {
        line += 1;
        let octet = |at: usize| u8::try_from((line * 7 + at * 13) % 256).unwrap_or(0);
        out.extend((0..line % 400).map(octet).map(|byte| if matches!(byte, 0 | b'\r' | b'\n') { b'.' } else { byte }));
        out.extend_from_slice(b"\r\n");
    }
    out
}

fn names(letters: &[Letter]) -> Vec<String> {
    letters.iter().map(|letter| letter.id.to_string()).collect()
}

#[test]
fn every_250_outlives_kill_9() {
    let server = Setup::new().start();
    let address = server.address();
    let sessions = 8;
    let said: Vec<(String, Vec<u8>)> = std::thread::scope(|scope| {
        let session = |number: usize| {
            let mut client = greeted(address);
            (0..10)
                .map(|message| {
                    let size = [0, 40, 3_000, 9_000][message % 4] + number;
                    let mut content = format!("Subject: {number} {message}\r\n\r\n").into_bytes();
                    content.extend(octets(size));
                    (client.message(&stuffed(&content)), content)
                })
                .collect::<Vec<_>>()
        };
        let all: Vec<_> = (0..sessions).map(|number| scope.spawn(move || session(number))).collect();
        all.into_iter().flat_map(|session| session.join().expect("it ends")).collect()
    });
    let letters = server.letters_after_kill();
    assert_eq!(letters.len(), said.len());
    for (id, content) in said {
        let letter = letters.iter().find(|letter| letter.id.to_string() == id).expect("a 250 is in the spool");
        assert_eq!(letter.own_content(), content);
        let trace = letter.trace();
        let wanted = "Received: from client.test ([127.0.0.1]) by mx.test (mailrace) with ESMTP id ";
        assert!(trace.starts_with(wanted), "{trace}");
        assert!(trace.contains(&format!("{id} for <b@example.com>; ")), "{trace}");
        assert_eq!(letter.envelope.sender.to_string(), "<a@client.test>");
    }
}

#[test]
fn a_spool_is_opened_again_and_names_go_on() {
    let server = Setup::new().start();
    let first = greeted(server.address()).message(b"one\r\n");
    let mut server = server;
    server.kill();
    let command = server.setup.command();
    let setup = take(server);
    let mut server = Server::start(setup, command);
    server.wait_log("1 message for 1 recipient waiting");
    let second = greeted(server.address()).message(b"two\r\n");
    server.kill();
    let path = server.setup.path("spool");
    let stats = program().args(["spool", "stats"]).arg(&path).output().expect("the program runs");
    assert!(text(&stats).contains("messages      2\n"), "{}", text(&stats));
    assert_eq!(names(&letters(&path)), [first, second]);
}

fn take(mut server: Server) -> Setup {
    std::mem::replace(&mut server.setup, Setup::new())
}

#[test]
fn messages_without_a_250_are_not_there() {
    let server = Setup::new().start();
    let address = server.address();
    let mut client = greeted(address);
    client.envelope();
    client.expect("RSET", "250");
    client.envelope();
    client.expect("DATA", "354");
    client.send(&octets(600_000));
    client.finish();
    assert_eq!(client.reply(), "closed");
    let mut client = greeted(address);
    client.envelope();
    client.send(b"BDAT 5\r\nhello");
    assert!(client.reply().starts_with("250 2.0.0 "));
    client.expect("RSET", "250");
    let kept = client.message(b"kept\r\n");
    assert_eq!(names(&server.letters_after_kill()), [kept]);
}

#[test]
fn content_is_kept_octet_for_octet() {
    let server = Setup::new().start();
    let mut client = greeted(server.address());
    let content = octets(200_000);
    client.expect("MAIL FROM:<a@b.test> BODY=8BITMIME", "250");
    client.expect("RCPT TO:<b@example.com>", "250");
    client.data(&stuffed(&content));

    // Line ends and NUL are octets like others here.
    let binary: Vec<u8> = (0..=255).cycle().take(70_000).collect();
    client.expect("MAIL FROM:<a@b.test> BODY=BINARYMIME", "250");
    client.expect("RCPT TO:<b@example.com>", "250");
    client.expect("DATA", "503");
    let (front, back) = binary.split_at(1_234);
    client.send(&[b"BDAT 1234\r\n", front].concat());
    assert!(client.reply().starts_with("250"));
    client.send(&[format!("BDAT {} LAST\r\n", back.len()).as_bytes(), back].concat());
    id(&client.reply());

    // RFC 3030 §2: dots are not stuffed; a chunk may be empty.
    client.envelope();
    client.send(b"BDAT 7\r\n.a\r\n.\r\nBDAT 0 LAST\r\n");
    assert!(client.reply().starts_with("250"));
    id(&client.reply());
    client.quit();
    let letters = server.letters_after_kill();
    let bodies: Vec<_> = letters.iter().map(|letter| letter.envelope.params.body).collect();
    assert_eq!(bodies, [Some(Body::EightBitMime), Some(Body::BinaryMime), None]);
    let contents: Vec<&[u8]> = letters.iter().map(Letter::own_content).collect();
    assert!(contents == [&content[..], &binary, b".a\r\n.\r\n"]);
}

#[test]
fn addresses_in_utf8() {
    let server = Setup::new().start();
    let mut client = greeted(server.address());
    client.expect("MAIL FROM:<grå@bücher.example> SMTPUTF8", "250");
    client.expect("RCPT TO:<δοκιμή@παράδειγμα.example>", "250");
    client.data("Subject: δοκιμή\r\n\r\nx\r\n".as_bytes());
    client.expect("MAIL FROM:<grå@bücher.example>", "5");
    let letters = server.letters_after_kill();
    let [letter] = letters.as_slice() else { panic!("one is stored") };
    assert!(letter.envelope.params.smtputf8 && letter.trace().contains(" with UTF8SMTP id "), "{}", letter.trace());
    assert_eq!(letter.envelope.sender.to_string(), "<grå@bücher.example>");
    assert_eq!(letter.envelope.recipients[0].address.to_string(), "δοκιμή@παράδειγμα.example");
    assert_eq!(letter.own_content(), "Subject: δοκιμή\r\n\r\nx\r\n".as_bytes());
}

#[test]
fn parameters_of_dsn_are_kept() {
    let server = Setup::new().start();
    let mut client = greeted(server.address());
    client.expect("MAIL FROM:<a@b.test> RET=HDRS ENVID=x+2By SIZE=5", "250");
    client.expect("RCPT TO:<b@example.com> NOTIFY=DELAY,FAILURE ORCPT=rfc822;o@example.org", "250");
    client.expect("RCPT TO:<c@example.com> NOTIFY=NEVER", "250");
    client.data(b"x\r\n");
    let letters = server.letters_after_kill();
    let envelope = format!("{:?}", letters[0].envelope);
    for part in ["x+y", "o@example.org", "Headers", "NEVER"] {
        assert!(envelope.contains(part), "{part}: {envelope}");
    }
    // With several recipients none of them is named to the others.
    assert!(!letters[0].trace().contains(" for <"), "{}", letters[0].trace());
}

#[test]
fn a_large_message_needs_little_memory() {
    let setup = Setup::new().set("spool.size_max", "\"256MiB\"").set("message.size_max", "\"120MiB\"");
    let server = setup.set("spool.segment_bytes", "\"4MiB\"").set("spool.cache_bytes", "0").start();
    let mut client = greeted(server.address());
    let line = [&[b'x'; 998][..], b"\r\n"].concat();
    let mut send = |mib: usize| {
        client.envelope();
        client.expect("DATA", "354");
        for _ in 0..mib * 1_024 {
            client.send(&line);
        }
        client.send(b".\r\n");
        id(&client.reply());
        server.memory_kib("VmHWM")
    };
    // Buffers of the spool and of the allocator have their size after the first, more or less; a message that was held
    // in memory would take all of its size.
    let before = send(8);
    // The kernel sums up what each core has counted: a peak may be told a little lower than before.
    let grown = send(96).saturating_sub(before);
    assert!(grown < 40 * 1_024, "{grown} KiB for a message of 96 MiB");
    let letters = server.letters_after_kill();
    let content = letters[1].own_content();
    assert!(content.len() == 96 * 1_024 * line.len() && content.chunks(1_000).all(|part| part == line));
}

#[test]
fn lmtp_answers_for_each_recipient() {
    let server = Setup::new().listen("protocol = \"lmtp\"").set("relay.to", "[\"example.com\"]").start();
    let mut client = testkit::client::connect(server.address());
    assert!(client.reply().starts_with("220 mx.test LMTP"));
    client.expect("EHLO client.test", "500");
    client.expect("LHLO client.test", "250");
    client.expect("MAIL FROM:<a@client.test>", "250");
    client.expect("RCPT TO:<b@example.com>", "250");
    client.expect("RCPT TO:<@@>", "501");
    client.expect("RCPT TO:<c@example.com>", "250");
    client.expect("DATA", "354");
    client.send(b"hi\r\n.\r\n");
    // RFC 2033 §4.2 (test)
    let replies = [id(&client.reply()), id(&client.reply())];
    assert_eq!(replies[0], replies[1]);
    client.quit();
    let letters = server.letters_after_kill();
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].envelope.recipients.len(), 2);
    assert!(letters[0].trace().contains(" with LMTP id "), "{}", letters[0].trace());
}

/// Published sequences that some server takes for the end of DATA (hannob/smtpsmug, The-Login, Wang et al. 2025).
const SEQUENCES: [&[u8]; 21] = [
    b"\n.\n",
    b"\r.\r",
    b"\r.\n",
    b"\n.\r",
    b"\n.\r\n",
    b"\r\n.\n",
    b"\r.\r\n",
    b"\r\n.\r",
    b"\r\n\x00.\r\n",
    b"\r\n.\x00\r\n",
    b"\x00\n.\r\n",
    b"\r\x00\n.\r\n",
    b"\r\n.\r\r\n",
    b"\r\r\n.\r\r\n",
    b"\n\n.\r\n",
    b"\r\n.\x00\n",
    b"\r\n .\r\n",
    b"\r\n. \r\n",
    b"\xc2\x85.\xc2\x85",
    b"\x0b.\x0b",
    b"\r\n..\r\n",
];

#[test]
fn nothing_is_smuggled() {
    for (mode, taken) in [("reject", 5), ("normalize", 16)] {
        let server = Setup::new().set("smtp.bare_newline", format!("{mode:?}")).start();
        let mut accepted = BTreeSet::new();
        for (number, sequence) in SEQUENCES.iter().enumerate() {
            let mut client = greeted(server.address());
            client.envelope();
            client.expect("DATA", "354");
            let behind =
                "MAIL FROM:<smuggled@b.test>\r\nRCPT TO:<c@d.test>\r\nDATA\r\nSubject: smuggled\r\n\r\nx\r\n.\r\n";
            client.send(&[format!("Subject: {number}\r\n\r\nbefore").as_bytes(), sequence, behind.as_bytes()].concat());
            let reply = client.reply();
            match reply.as_bytes() {
                [b'2', ..] => drop(accepted.insert(id(&reply))),
                _ => assert!(reply.starts_with("554 5.6.0 "), "{sequence:?}: {reply}"),
            }
            // One message, one reply; then the session is where it should be.
            client.quit();
        }
        assert_eq!(accepted.len(), taken, "{mode}");
        let letters = server.letters_after_kill();
        assert_eq!(names(&letters).into_iter().collect::<BTreeSet<_>>(), accepted, "{mode}");
        for letter in letters {
            assert_eq!(letter.envelope.sender.to_string(), "<a@client.test>", "{mode}");
            let content = letter.own_content();
            assert!(content.starts_with(b"Subject: ") && content.ends_with(b"Subject: smuggled\r\n\r\nx\r\n"));
            let bare = content.iter().enumerate().any(|(at, byte)| {
                (*byte == b'\n' && (at == 0 || content[at - 1] != b'\r'))
                    || (*byte == b'\r' && content.get(at + 1) != Some(&b'\n'))
            });
            assert!(!bare, "{mode}: {}", content.escape_ascii());
        }
    }
}

#[test]
fn a_full_spool_says_452_and_stays_up() {
    let setup = Setup::new().set("spool.size_max", "\"8MiB\"");
    let mut server = setup.set("message.size_max", "\"100KiB\"").start();
    let mut client = greeted(server.address());
    let content = [[b'x'; 998].as_slice(), b"\r\n"].concat().repeat(50);
    let mut kept = 0;
    let refusal = loop {
        assert!(kept < 200, "a spool of 8 MiB holds no 10 MB");
        let reply = client.command("MAIL FROM:<a@b.test>");
        if !reply.starts_with("250") {
            break reply;
        }
        client.expect("RCPT TO:<b@example.com>", "250");
        client.expect("DATA", "354");
        client.send(&content);
        client.send(b".\r\n");
        let reply = client.reply();
        if !reply.starts_with("250") {
            break reply;
        }
        id(&reply);
        kept += 1;
    };
    assert_eq!(refusal, "452 4.3.1 Insufficient system storage, try again later");
    assert!(kept > 5, "{kept}");
    // Small mail may still fit; large mail does not, the port stays open and sessions go on.
    let mut other = greeted(server.address());
    other.quit();
    client.expect("NOOP", "250");
    server.wait_log("reject=452 4.3.1");
    let mut refused = 1;
    while refused < 4 {
        let mut reply = client.command("MAIL FROM:<a@b.test>");
        if reply.starts_with("250") {
            client.expect("RCPT TO:<b@example.com>", "250");
            client.expect("DATA", "354");
            client.send(&content);
            client.send(b".\r\n");
            reply = client.reply();
        }
        assert!(reply.starts_with("452 4.3.1 "), "{reply}");
        refused += 1;
    }
    assert_eq!((server.status("/messages/accepted"), server.status("/messages/refused")), (kept, refused));
    let letters = server.letters_after_kill();
    assert_eq!(letters.len() as u64, kept);
    assert!(letters.iter().all(|letter| letter.own_content() == content));
}

//! Extensions that next hops offer and lack: content arrives octet for octet, is converted, or is returned.

use crate::hop::{Act, At, Hop, Manners, Moment};
use crate::report::Report;
use crate::world::{any_line, by_literal, ends_empty, lines, relay, retrying, send, send_over, wait_line};
use testkit::client::{greeted, stuffed};

/// Lines of all lengths, many with dots in front, of this many octets or a little more.
fn dotty(size: usize) -> Vec<u8> {
    let mut out = b"Subject: dots\r\n\r\n".to_vec();
    let mut line = 0_usize;
    while out.len() < size {
        line += 1;
        let text: Vec<u8> = (0..line % 300).map(|at| if (at + line).is_multiple_of(3) { b'.' } else { b'a' }).collect();
        out.extend(text);
        out.extend_from_slice(b"\r\n");
    }
    out
}

#[test]
fn content_arrives_octet_for_octet() {
    let sizes = [0, 1, 100, 5_000, 60_000, 700_000];
    for offers in [&[][..], &["PIPELINING"], &["CHUNKING"], &["PIPELINING", "CHUNKING", "SIZE", "8BITMIME"]] {
        let hop = Hop::new(Manners::offering(offers));
        // The last ones are read from the disk.
        let server = relay(&[&hop]).set("spool.cache_bytes", "\"64KiB\"").start();
        let mut client = greeted(server.address());
        for (number, size) in sizes.into_iter().enumerate() {
            let content = if size == 0 { Vec::new() } else { dotty(size) };
            send_over(&mut client, "a@client.test", &[&format!("r{number}@d.test")], &stuffed(&content));
        }
        client.quit();
        let mails = hop.wait(sizes.len());
        for (number, size) in sizes.into_iter().enumerate() {
            let name = format!("r{number}@d.test");
            let mail = mails.iter().find(|mail| mail.to() == name).expect("each came");
            let content = if size == 0 { Vec::new() } else { dotty(size) };
            assert!(mail.own_content() == content, "{offers:?} {size}: {}", mail.own_content().len());
            let length = mail.content.len();
            let has_size = mail.mail.contains(&format!(" SIZE={length}"));
            assert_eq!(has_size, offers.contains(&"SIZE"), "{}: {length}", mail.mail);
        }
        ends_empty(server);
        assert_eq!(hop.count(), sizes.len());
    }
}

// RFC 5321 §4.5.3.1.6 (test)
#[test]
fn long_lines_are_folded_or_encoded() {
    let ids: Vec<String> = (10..40).map(|number| format!("<{}@{number}.client.test>", "x".repeat(40))).collect();
    let header = format!("References: {}\r\n", ids.join(" "));
    let body = "y".repeat(300_000);
    for (max, offers) in [("998", &["8BITMIME", "SIZE"][..]), ("998", &["SIZE", "CHUNKING"]), ("0", &["SIZE"])] {
        let hop = Hop::new(Manners::offering(offers));
        let server = relay(&[&hop]).set("delivery.line_bytes_max", max).start();
        for (number, content) in
            [format!("{header}\r\nshort\r\n"), format!("{header}\r\n{body}\r\n")].into_iter().enumerate()
        {
            send(&server, "<a@client.test>", &["b@d.test"], content.as_bytes());
            let mails = hop.wait(number + 1);
            let mail = &mails[number];
            assert!(mail.mail.contains(&format!("SIZE={}", mail.content.len())), "{}", mail.mail);
            let text = mail.text();
            let longest = text.lines().map(str::len).max();
            match max {
                "0" => assert!(text.ends_with(&content)),
                _ => assert!(longest <= Some(998) && ids.iter().all(|id| text.contains(id)), "{longest:?}"),
            }
            assert!(text.matches('y').count() >= number * 300_000);
        }
        ends_empty(server);
    }
}

#[test]
fn binary_content_goes_by_bdat_or_comes_back() {
    let binary: Vec<u8> = [&b"Subject: raw\r\n\r\n"[..], &(0..=255).collect::<Vec<u8>>(), b"no end"].concat();
    let post = |server: &testkit::harness::Server| {
        let mut client = greeted(server.address());
        client.expect("MAIL FROM:<a@client.test> BODY=BINARYMIME", "250");
        client.expect("RCPT TO:<b@d.test>", "250");
        client.send(&[format!("BDAT {} LAST\r\n", binary.len()).as_bytes(), &binary].concat());
        testkit::client::id(&client.reply());
    };
    let hop = Hop::new(Manners::offering(&["PIPELINING", "CHUNKING", "BINARYMIME", "8BITMIME"]));
    let server = relay(&[&hop]).start();
    post(&server);
    let mails = hop.wait(1);
    assert!(mails[0].mail.contains("BODY=BINARYMIME") && mails[0].own_content() == binary, "{}", mails[0].mail);
    ends_empty(server);

    let hop = Hop::new(Manners::offering(&["PIPELINING", "8BITMIME", "CHUNKING"]));
    let server = relay(&[&hop]).start();
    post(&server);
    let report = Report::of(&hop.wait(1)[0]);
    report.expect(&[("action", "failed"), ("status", "5.6.1")]);
    ends_empty(server);
    assert_eq!(hop.count(), 1);
}

// RFC 6152 §3 (test)
#[test]
fn without_8bitmime_content_is_converted() {
    let eight = "Subject: x\r\nMIME-Version: 1.0\r\nContent-Type: text/plain; charset=utf-8\r\n\
                 Content-Transfer-Encoding: 8bit\r\n\r\ngrüße = ok, and more text that needs no other form than its own\r\n";
    let hop = Hop::new(Manners::offering(&["PIPELINING", "SIZE"]));
    let server = relay(&[&hop]).start();
    for (number, body) in ["", " BODY=8BITMIME"].into_iter().enumerate() {
        send(&server, &format!("<a@client.test>{body}"), &["b@d.test"], eight.as_bytes());
        let mails = hop.wait(number + 1);
        let mail = &mails[number];
        assert!(mail.content.is_ascii() && !mail.mail.contains("BODY="), "{} {}", mail.mail, mail.text());
        assert!(mail.mail.contains(&format!("SIZE={}", mail.content.len())), "{}", mail.mail);
        let text = mail.text();
        assert!(text.contains("Content-Transfer-Encoding: quoted-printable"), "{text}");
        assert!(
            text.ends_with("gr=C3=BC=C3=9Fe =3D ok, and more text that needs no other form than its own\r\n"),
            "{text}"
        );
    }
    // A message that was announced as 8-bit and is 7-bit goes as it is.
    send(&server, "<a@client.test> BODY=8BITMIME", &["plain@d.test"], b"Subject: x\r\n\r\nascii\r\n");
    assert_eq!(hop.wait(3)[2].own_content(), b"Subject: x\r\n\r\nascii\r\n");
    // A signed part goes out as it is, without a promise of its octets.
    let signed = "Content-Type: multipart/signed; boundary=b; protocol=\"x/y\"; micalg=z\r\nMIME-Version: 1.0\r\n\r\n\
                  --b\r\nContent-Transfer-Encoding: 8bit\r\n\r\nü\r\n--b\r\nContent-Type: x/y\r\n\r\nz\r\n--b--\r\n";
    send(&server, "<a@client.test> BODY=8BITMIME", &["signed@d.test"], signed.as_bytes());
    let mails = hop.wait(4);
    assert_eq!(mails[3].own_content(), signed.as_bytes());
    assert!(!mails[3].mail.contains("BODY="), "{}", mails[3].mail);
    ends_empty(server);
    assert_eq!(hop.count(), 4);

    let hop = Hop::good();
    let server = relay(&[&hop]).start();
    send(&server, "<a@client.test> BODY=8BITMIME", &["b@d.test"], eight.as_bytes());
    let mails = hop.wait(1);
    assert!(mails[0].mail.contains(" BODY=8BITMIME") && mails[0].own_content() == eight.as_bytes());
    ends_empty(server);
}

#[test]
fn a_stored_message_is_converted_too() {
    let eight = "Content-Type: text/plain; charset=utf-8\r\nMIME-Version: 1.0\r\n\r\nä\r\n";
    let mut hop = Hop::new(Manners::offering(&[]));
    hop.shut();
    let mut server = relay(&[&hop]).start();
    send(&server, "a@client.test", &["b@d.test"], eight.as_bytes());
    wait_line(&mut server, &["stat=Deferred: Connection refused"]);
    let server = crate::world::killed(server).start();
    hop.reopen();
    let mails = hop.wait(1);
    assert!(mails[0].content.is_ascii(), "{}", mails[0].text());
    ends_empty(server);
}

// RFC 6531 §3.2 (test)
#[test]
fn without_smtputf8() {
    let hop = Hop::new(Manners::offering(&["PIPELINING", "8BITMIME"]));
    let mut server = retrying(relay(&[&hop]), "1s").start();
    // A name of a domain has another form; a local part has not. The client that says SMTPUTF8 need not need it.
    send(&server, "a@client.test", &["<b@xn--bcher-kva.test>"], b"Subject: x\r\n\r\n");
    send(&server, "<a@client.test> SMTPUTF8", &["<ascii@d.test>"], "Subject: x\r\n\r\ngrün\r\n".as_bytes());
    hop.wait(2);
    send(&server, "<a@client.test> SMTPUTF8", &["<grün@d.test>"], b"Subject: x\r\n\r\n");
    let mails = hop.wait(3);
    let report = mails.iter().find(|mail| mail.to_is("a@client.test")).expect("one comes back");
    let report = Report::of(report);
    assert_eq!((report.only()["action"].as_str(), report.only()["status"].as_str()), ("failed", "5.6.7"));
    // The host is asked once more before it is final.
    let line = wait_line(&mut server, &["to=<grün@d.test>"]);
    assert!(line.contains("dsn=4.6.7"), "{line}");
    let line = wait_line(&mut server, &["to=<grün@d.test>"]);
    assert!(line.contains("dsn=5.6.7"), "{line}");
    ends_empty(server);
    assert_eq!(hop.count(), 3);
}

// RFC 6531 §3.4 (test)
#[test]
fn with_smtputf8() {
    let hop = Hop::good();
    let server = relay(&[&hop]).start();
    let content = "Subject: grün\r\n\r\nx\r\n".as_bytes();
    send(&server, "<blau@client.test> SMTPUTF8", &["<grün@d.test>"], content);
    let mails = hop.wait(1);
    assert!(mails[0].mail.contains(" SMTPUTF8"), "{}", mails[0].mail);
    assert_eq!((mails[0].to(), mails[0].own_content()), ("grün@d.test", content));
    ends_empty(server);
}

// RFC 1870 §6.1 (test)
#[test]
fn a_message_that_is_too_large_is_not_tried() {
    let hop = Hop::new(Manners::offering(&["PIPELINING", "SIZE 20000"]));
    let server = relay(&[&hop]).start();
    send(&server, "a@client.test", &["b@d.test"], &b"a line of thirty-two octets....\r\n".repeat(1_000));
    let mails = hop.wait(1);
    Report::of(&mails[0]).expect(&[("action", "failed"), ("status", "5.3.4")]);
    send(&server, "a@client.test", &["c@d.test"], b"Subject: small\r\n\r\n");
    hop.wait(2);
    ends_empty(server);
    let talks = hop.talks().concat();
    assert!(!talks.iter().any(|line| line.contains("<b@d.test>")), "{talks:#?}");
}

#[test]
fn a_host_that_knows_no_ehlo() {
    for refusal in ["500 5.5.2 what?", "502 not here", "550 no"] {
        let manners = Manners::default();
        let hop = Hop::new(manners.script(move |moment| match moment.at {
            At::Ehlo => Act::Say(refusal),
            _ => Act::Well,
        }));
        let mut server = relay(&[&hop]).start();
        send(&server, "<a@client.test> BODY=8BITMIME", &["b@d.test", "c@d.test"], b"Subject: x\r\n\r\n..\r\n..a\r\n");
        let mails = hop.wait(1);
        assert_eq!(mails[0].mail, "MAIL FROM:<a@client.test>");
        assert_eq!(mails[0].all_to(), ["b@d.test", "c@d.test"]);
        let line = wait_line(&mut server, &["to=<b@d.test>,<c@d.test>"]);
        assert!(line.contains("mailer=smtp,") && line.contains("stat=Sent"), "{line}");
        ends_empty(server);
        let talk = hop.talks().concat();
        assert_eq!(talk[..2], ["EHLO mx.test", "HELO mx.test"]);
    }
}

/// A host that refuses the use of an extension: the mail goes without it, once, and the log names the key to set.
#[test]
fn an_extension_that_does_not_work_is_left_out() {
    type Refuses = fn(&Moment<'_>) -> bool;
    let cases: [(&[&'static str], Refuses, &'static str, &str, &str); 6] = [
        (
            &["CHUNKING"],
            |now| now.line.starts_with("BDAT"),
            "500 5.5.1 what?",
            "CHUNKING is offered",
            "chunking = false",
        ),
        (
            &["PIPELINING", "CHUNKING"],
            |now| now.line.starts_with("BDAT"),
            "502 no",
            "CHUNKING is offered",
            "chunking = false",
        ),
        (
            &["PIPELINING"],
            |now| now.connection == 0 && now.at == At::Rcpt,
            "503 MAIL first",
            "PIPELINING is offered",
            "pipelining = false",
        ),
        (&["SIZE"], |now| now.line.contains(" SIZE="), "555 5.5.4 no", "SIZE is offered", "size = false"),
        (
            &["SIZE", "8BITMIME"],
            |now| now.line.contains(" BODY="),
            "501 no",
            "SIZE, 8BITMIME is offered",
            "eight_bit_mime = false",
        ),
        (&["DSN"], |now| now.line.contains(" NOTIFY="), "501 5.5.4 no", "DSN is offered", "dsn = false"),
    ];
    let manners = |(offers, refuses, reply, ..): &(&'static [&'static str], Refuses, &'static str, &str, &str)| {
        let (refuses, reply) = (*refuses, *reply);
        Manners::offering(offers).script(move |now| if refuses(now) { Act::Say(reply) } else { Act::Well })
    };
    let hops = Hop::neighbours(cases.iter().map(manners).collect());
    let mut server = retrying(by_literal(&hops), "1h").start();
    for hop in &hops {
        let to = format!("<{}> NOTIFY=FAILURE", hop.mailbox("b"));
        send(&server, "<a@client.test> BODY=8BITMIME", &[&to], "Subject: x\r\n\r\ngrün\r\n".as_bytes());
        // Without a pause: the refusal was no attempt.
        assert_eq!(hop.wait(1).len(), 1);
        // The next message finds it known.
        send(&server, "a@client.test", &[&hop.mailbox("c")], b"Subject: y\r\n\r\ny\r\n");
        hop.wait(2);
    }
    for (hop, (.., offered, key)) in hops.iter().zip(&cases) {
        let line = any_line(&mut server, &["extension not used: ", &hop.ip()]);
        assert!(line.contains(offered) && line.contains(key), "{line}");
    }
    let ended = ends_empty(server);
    assert_eq!(lines(&ended.log, &["extension not used: "]).len(), cases.len(), "{:#?}", ended.log);
    assert!(hops.iter().all(|hop| hop.count() == 2));
}

/// A host that refuses the command without the extension too has given its verdict.
#[test]
fn a_refusal_without_the_extension_is_a_verdict() {
    for (offers, at, reply) in [
        (&["SIZE"][..], At::Mail, "555 5.5.4 no"),
        (&["PIPELINING"], At::Rcpt, "503 5.5.1 no"),
        (&["CHUNKING"], At::Dot, "502 5.5.1 no"),
    ] {
        let script = move |now: &Moment<'_>| if now.at == at { Act::Say(reply) } else { Act::Well };
        let hop = Hop::new(Manners::offering(offers).script(script));
        let mut server = relay(&[&hop]).start();
        send(&server, "<>", &["b@d.test"], b"Subject: x\r\n\r\nx\r\n");
        let line = any_line(&mut server, &["to=<b@d.test>"]);
        assert!(line.contains("dsn=5."), "{line}");
        assert!(hop.connections() <= 4, "{}", hop.connections());
        drop(server.stop());
    }
}

/// A lack is that of a host: the next one of the site gets the message; where all lack it, it comes back once all were
/// asked.
#[test]
fn other_hosts_are_asked_for_what_one_lacks() {
    let plain = || Hop::new(Manners::offering(&["8BITMIME"]));
    let utf8 = "Subject: grün\r\n\r\nx\r\n".as_bytes();
    let (first, second) = (plain(), Hop::new(Manners::offering(&["8BITMIME", "SMTPUTF8"])));
    let server = relay(&[&first, &second]).start();
    send(&server, "<a@client.test> SMTPUTF8", &["b@d.test"], utf8);
    assert_eq!(second.wait(1)[0].own_content(), utf8);
    ends_empty(server);
    assert_eq!(first.count(), 0);

    let (first, second) = (plain(), plain());
    let mut server = relay(&[&first, &second]).start();
    send(&server, "<a@client.test> SMTPUTF8", &["b@d.test"], utf8);
    let line = wait_line(&mut server, &["to=<b@d.test>", "dsn=5.6.7"]);
    assert!(line.contains("does not offer SMTPUTF8"), "{line}");
    assert!(first.connections() > 0 && second.connections() > 0);
    drop(server.stop());
}

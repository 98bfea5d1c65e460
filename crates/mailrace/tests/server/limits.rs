//! The limits of one session: commands, errors, recipients, sizes, time.

use testkit::client::{connect, greeted, id};
use testkit::harness::Setup;

#[test]
fn recipients_sizes_and_hops() {
    let setup = Setup::new().set("message.recipients_max", "2").set("message.size_max", "\"2KiB\"");
    let mut server = setup.set("message.hops_max", "3").set("message.header_fields_max", "10").start();
    let mut client = greeted(server.address());
    assert!(client.command("EHLO a.test").contains("250-SIZE 2048\n"));
    client.expect("MAIL FROM:<a@b.test> SIZE=2049", "552 5.3.4 ");
    client.envelope();
    client.expect("RCPT TO:<c@example.com>", "250");
    client.expect("RCPT TO:<d@example.com>", "452 4.5.3 ");
    server.wait_log("limit=message.recipients_max, max=2");
    client.data(b"hi\r\n");
    for (content, reply, limit) in [
        (b"x\r\n".repeat(2_000), "552 5.3.4 ", "message.size_max, max=2048"),
        (b"Received: x\r\n".repeat(4), "554 5.4.6 ", "message.hops_max, max=3"),
        (b"A: x\r\n".repeat(11), "554 5.6.0 ", "message.header_fields_max, max=10"),
    ] {
        client.envelope();
        client.expect("DATA", "354");
        client.send(&content);
        client.send(b".\r\n");
        let said = client.reply();
        assert!(said.starts_with(reply), "{said}");
        server.wait_log(limit);
        let line = server.wait_log("nrcpts=0");
        assert!(line.contains("from=<a@client.test>"), "{line}");
    }
    client.message(b"still here\r\n");
    client.quit();
    assert_eq!(server.letters_after_kill().len(), 2);
}

#[test]
fn errors_and_idle_commands() {
    let setup = Setup::new().set("smtp.errors_max", "3").set("smtp.idle_commands_max", "5");
    let mut server = setup.set("smtp.refused_recipients_max", "2").set("smtp.transactions_max", "1").start();
    let mut client = greeted(server.address());
    client.expect("FROB", "500 5.5.1 ");
    client.expect("MAIL", "501");
    let replies: Vec<String> = (0..4).map(|_| client.command("FROB")).take_while(|reply| reply != "closed").collect();
    assert!(replies.iter().any(|reply| reply.starts_with("421 4.7.0 ")), "{replies:?}");
    server.wait_log("limit=smtp.errors_max, max=3");
    let mut client = greeted(server.address());
    let replies: Vec<String> = (0..7).map(|_| client.command("NOOP")).take_while(|reply| reply != "closed").collect();
    assert!(replies.iter().any(|reply| reply.starts_with("421 4.7.0 ")), "{replies:?}");
    server.wait_log("limit=smtp.idle_commands_max, max=5");
    let mut client = greeted(server.address());
    client.message(b"one\r\n");
    client.expect("MAIL FROM:<a@b.test>", "421 4.7.0 ");
    server.wait_log("limit=smtp.transactions_max, max=1");
    assert_eq!(server.letters_after_kill().len(), 1);
}

#[test]
fn long_lines_and_other_protocols() {
    let mut server = Setup::new().set("smtp.command_line_bytes_max", "512").start();
    let mut client = greeted(server.address());
    client.expect(&"x".repeat(100_000), "500 5.5.2 ");
    client.expect("NOOP", "250");
    let mut client = connect(server.address());
    assert!(client.reply().starts_with("220"));
    client.send(b"GET / HTTP/1.1\r\nHost: mx.test\r\n\r\n");
    let reply = client.reply();
    assert!(reply.starts_with("421") || reply.starts_with("5"), "{reply}");
    assert_eq!(client.reply(), "closed");
    let line = server.wait_log("probable open proxy");
    assert!(line.contains("command=GET / HTTP/1.1"), "{line}");
}

/// These wait for real time, as little as the settings allow; side by side.
#[test]
fn silence_and_dripping() {
    // Long enough for four clients to come so far on a machine that is busy.
    let setup = Setup::new().set("smtp.command_time_max", "\"4s\"").set("smtp.rate_bytes_min", "1000");
    let mut server = setup.set("smtp.rate_window", "\"4s\"").start();
    let mut silent = greeted(server.address());
    let mut in_transaction = greeted(server.address());
    in_transaction.envelope();
    let mut in_data = greeted(server.address());
    in_data.envelope();
    in_data.expect("DATA", "354");
    let mut drips = greeted(server.address());
    drips.envelope();
    drips.expect("DATA", "354");
    drips.send(b"Subject: slow\r\n");
    for client in [&mut silent, &mut in_transaction, &mut in_data, &mut drips] {
        let reply = client.reply();
        assert!(reply.starts_with("421 4.4.2 mx.test "), "{reply}");
        assert_eq!(client.reply(), "closed");
    }
    for _ in 0..4 {
        server.wait_log("timeout waiting for input from [127.0.0.1] during ");
    }
    assert!(server.log.iter().any(|line| line.contains("during message content read")), "{:#?}", server.log);
    assert!(server.log.iter().any(|line| line.contains("during server cmd read")), "{:#?}", server.log);
    assert!(server.letters_after_kill().is_empty());
}

#[test]
fn a_whole_flight_is_answered_in_order() {
    let server = Setup::new().start();
    let mut client = greeted(server.address());
    let one = b"MAIL FROM:<a@b.test>\r\nRCPT TO:<c@d.test>\r\nDATA\r\n";
    let two = b"hi\r\n.\r\n";
    client.send(&[&one[..], two].concat().repeat(200));
    let mut ids = Vec::new();
    for _ in 0..200 {
        let replies: Vec<String> = (0..4).map(|_| client.reply()).collect();
        assert!(replies[0].starts_with("250 2.1.0") && replies[1].starts_with("250 2.1.5"), "{replies:?}");
        assert!(replies[2].starts_with("354"), "{replies:?}");
        ids.push(id(&replies[3]));
    }
    let stored: Vec<String> = server.letters_after_kill().iter().map(|letter| letter.id.to_string()).collect();
    assert_eq!(stored, ids);
}

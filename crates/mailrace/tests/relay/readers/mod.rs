//! Programs that read sendmail's log count in a log of ours what they count in sendmail's, for the same dialog.
//!
//! `recorded.txt` was recorded from the real sendmail. Here the built server has the same dialog with the same maps,
//! and each reader sees both logs. A reader that is not installed is passed over.

mod analyzer;
mod counts;

use crate::hop::{Act, At, Hop, Manners};
use crate::world::by_literal;
use counts::Log;
use std::io::{Read, Write};
use testkit::client::{Client, Plain, connect, tls};
use testkit::harness::{Server, Setup, write_program};

/// sendmail's log of the dialog. Lines with a number sign name its steps.
const RECORDED: &str = include_str!("recorded.txt");

const ACCESS: &str = "To:d.test RELAY\nTo:ext.test RELAY\n\
    To:baduser@mx.test ERROR:5.2.1:550 Mailbox disabled for this recipient\n\
    From:spam.test REJECT\nFrom:drop.test DISCARD\nFrom:held.test QUARANTINE:held by map\n\
    Connect:10.9.9.8 REJECT\n";
const ALIASES: &str = "postmaster: boss@ext.test\nlist: one@d.test, two@d.test\nowner-list: list-request\n\
    list-request: boss@ext.test\n";

fn hop() -> Hop {
    let manners = Manners::default().script(|moment| match (moment.at, moment.line.to_ascii_lowercase()) {
        (At::Rcpt, line) if line.contains("<nobody") => Act::Say("550 5.1.1 <nobody@d.test>: no such user"),
        (At::Rcpt, line) if line.contains("<later") => Act::Say("450 4.2.0 Greylisted"),
        (At::Dot, _) => Act::Say("250 2.0.0 Ok: queued as 4F1D2A"),
        _ => Act::Well,
    });
    Hop::neighbours(vec![manners]).pop().expect("one")
}

/// A server with the maps that sendmail had, to which all clients come by a proxy: they have the addresses that
/// sendmail saw.
fn server(hop: &Hop) -> Server {
    let mut setup = by_literal(std::slice::from_ref(hop)).set("local.mailbox", "\"none\"");
    let mailertable = format!("d.test esmtp:{0}\next.test esmtp:{0}\n", hop.ip());
    let directory = setup.path("mail");
    std::fs::create_dir_all(&directory).expect("made");
    for (name, content) in [("access", ACCESS), ("aliases", ALIASES), ("mailertable", &mailertable)] {
        std::fs::write(directory.join(name), content).expect("written");
    }
    let made = rcgen::generate_simple_self_signed(["mx.test".to_owned()]).expect("a certificate");
    std::fs::write(setup.path("certificate.pem"), made.cert.pem()).expect("written");
    std::fs::write(setup.path("key.pem"), made.signing_key.serialize_pem()).expect("written");
    let check = setup.path("check");
    write_program(&check, b"#!/bin/sh\nexit 1\n");
    let at = |setup: &Setup, name: &str| format!("{:?}", setup.path(name));
    for (key, file) in [("maps.directory", "mail"), ("tls.certificate", "certificate.pem"), ("tls.key", "key.pem")] {
        let path = at(&setup, file);
        setup = setup.set(key, path);
    }
    setup
        .listen("proxy_protocol = [\"127.0.0.1\"]")
        .set("relay.from", "[]")
        .set("auth.program", format!("[{check:?}]"))
        .set("auth.without_tls", "true")
        .set("auth.mechanisms", "[\"PLAIN\", \"LOGIN\"]")
        .set("accept.greet_pause_for", "[{networks = [\"10.9.9.7/32\"], pause = \"3s\"}]")
        .set("message.size_max", "100000")
        .set("delivery.retry_first", "\"1h\"")
        .set("delivery.retry_max", "\"1h\"")
        .set("log.tag", "\"sm-mta\"")
        .set("log.level", "9")
        .start()
}

/// Connects from this address, and reads nothing yet.
fn from(server: &Server, ip: &str) -> Plain {
    let mut client = connect(server.address());
    client.send(format!("PROXY TCP4 {ip} 10.9.9.1 4660 25\r\n").as_bytes());
    client
}

/// Connects from the ordinary client, takes the greeting and says EHLO.
fn greeted(server: &Server) -> Plain {
    let mut client = from(server, "10.9.9.9");
    client.reply();
    client.command("EHLO client.test");
    client
}

/// Sends a message with whatever replies there are.
fn mail<S: Read + Write>(mut client: Client<S>, sender: &str, recipients: &[&str]) {
    client.command(&format!("MAIL FROM:<{sender}>"));
    for recipient in recipients {
        client.command(&format!("RCPT TO:<{recipient}>"));
    }
    if client.command("DATA").starts_with("354") {
        client.command("Subject: x\r\nMessage-ID: <1@ext.test>\r\n\r\nhi\r\n.");
    }
    client.quit();
}

/// The dialog of the recording.
fn talk(server: &Server) {
    let send = |sender: &str, recipients: &[&str]| mail(greeted(server), sender, recipients);
    send("a@ext.test", &["x@d.test"]);
    send("a@ext.test", &["x@d.test", "y@d.test"]);
    send("a@ext.test", &["nobody@d.test"]);
    send("a@ext.test", &["later@d.test"]);
    send("a@ext.test", &["x@foreign.test"]);
    send("a@ext.test", &["x@foreign.test", "x@d.test"]);
    send("a@ext.test", &["nouser@mx.test"]);
    send("a@ext.test", &["nouser@mx.test", "x@d.test"]);
    send("a@ext.test", &["baduser@mx.test"]);
    send("a@spam.test", &["x@d.test"]);
    send("a@drop.test", &["x@d.test"]);
    send("a@held.test", &["x@d.test"]);
    say(from(server, "10.9.9.8"), &["EHLO client.test", "MAIL FROM:<a@ext.test>"]);
    say(from(server, "10.9.9.9"), &["EHLO client.test"]);
    say(from(server, "10.9.9.9"), &["EHLO client.test", "VRFY root", "EXPN root"]);
    let base64 = |text: &[u8]| mail::base64::encode(text).map(char::from).collect::<String>();
    say(from(server, "10.9.9.9"), &["EHLO client.test", &format!("AUTH PLAIN {}", base64(b"\0ann\0wrong"))]);
    say(from(server, "10.9.9.9"), &["EHLO client.test", "AUTH LOGIN", &base64(b"ann"), &base64(b"wrong")]);
    let mut client = greeted(server);
    client.command("STARTTLS");
    let mut client = tls(client.stream, &server.setup.path("certificate.pem"));
    client.command("EHLO client.test");
    mail(client, "a@ext.test", &["x@d.test"]);
    let mut client = greeted(server);
    client.command("STARTTLS");
    client.send(b"EHLO garbage over tls\r\n\r\n");
    drop(client);
    send("a@ext.test", &["list@mx.test"]);
    send("a@ext.test", &["list@mx.test", "x@d.test"]);
    let mut client = from(server, "10.9.9.7");
    client.send(b"EHLO early\r\n");
    say(client, &["MAIL FROM:<a@ext.test>"]);
    send("", &["x@d.test"]);
    let mut client = from(server, "10.9.9.9");
    client.reply();
    client.send(b"GET / HTTP/1.0\r\nHost: x\r\n\r\n");
    client.reply();
}

/// Takes the greeting, gives these commands, and quits.
fn say(mut client: Plain, commands: &[&str]) {
    client.reply();
    for command in commands {
        client.command(command);
    }
    client.command("QUIT");
}

#[test]
fn readers_of_sendmails_log_count_the_same() {
    let hop = hop();
    let mut server = server(&hop);
    talk(&server);
    let theirs = Log::new(RECORDED.lines());
    for part in ["stat=Sent", "stat=Deferred", "did not issue MAIL", "probable open proxy"] {
        while server.log.iter().filter(|line| line.contains(part)).count() < theirs.with(part) {
            server.wait_log(part);
        }
    }
    let ours = server.stop().log;
    let ours = Log::new(ours.iter().map(String::as_str));
    let mut differences = Vec::new();
    for (reader, count) in counts::readers() {
        let (Some(theirs), Some(ours)) = (count(&theirs), count(&ours)) else { continue };
        assert!(theirs.values().sum::<u64>() > 0, "{reader} counts nothing in sendmail's log");
        for key in theirs.keys().chain(ours.keys()).collect::<std::collections::BTreeSet<_>>() {
            if theirs.get(key) != ours.get(key) {
                differences.push(format!("{reader}: {key}: {:?}, with us {:?}", theirs.get(key), ours.get(key)));
            }
        }
    }
    assert!(differences.is_empty(), "{differences:#?}\n{}", ours.text());
}

/// The comparison finds a reader that misses lines.
#[test]
fn a_log_in_another_form_has_other_counts() {
    let theirs = Log::new(RECORDED.lines());
    let changed = RECORDED.replace("stat=Sent", "status=sent").replace("AUTH failure", "auth failed");
    let changed = changed.replace("mailer=esmtp", "mailer=smtp");
    let changed = Log::new(changed.lines());
    for (reader, count) in counts::readers() {
        let (Some(before), Some(after)) = (count(&theirs), count(&changed)) else { continue };
        assert!(before != after || reader.starts_with("fail2ban sendmail-reject"), "{reader}");
    }
}

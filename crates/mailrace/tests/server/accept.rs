//! The acceptance of connections: PROXY headers, XCLIENT, greeting pauses, limits of connections, relay rights.

use std::io::Write as _;
use std::net::TcpStream;
use testkit::client::{Plain, connect, greeted};
use testkit::harness::{Server, Setup, poll};

fn proxied(server: &Server, header: &[u8]) -> Plain {
    let mut client = connect(server.address());
    client.send(header);
    client
}

/// A header of version 2 for TCP over IPv4.
fn version_2(source: [u8; 4]) -> Vec<u8> {
    let mut header = b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c".to_vec();
    header.extend(source);
    header.extend([192, 0, 2, 9, 0x12, 0x34, 0, 25]);
    header
}

#[test]
fn a_proxy_names_the_client() {
    let server = Setup::new().listen("proxy_protocol = [\"127.0.0.1\"]").start();
    let pausing = Setup::new().listen("proxy_protocol = [\"127.0.0.1\"]").set("accept.greet_pause", "\"60s\"").start();
    let v1 = b"PROXY TCP4 203.0.113.7 192.0.2.9 4660 25\r\n".to_vec();
    let v6 = b"PROXY TCP6 2001:db8::7 2001:db8::9 4660 25\r\n".to_vec();
    for (header, client) in
        [(&v1, "[203.0.113.7]"), (&version_2([203, 0, 113, 8]), "[203.0.113.8]"), (&v6, "[IPv6:2001:db8::7]")]
    {
        let hello = proxied(&server, header).hello();
        assert!(hello.contains(&format!("Hello client.test {client}")), "{hello}");
        // In pieces, an octet each.
        let mut client_ = connect(server.address());
        for octet in header {
            client_.send(&[*octet]);
        }
        assert!(client_.hello().contains(client));
        // Together with the first command: without a pause the client may speak before the greeting, else not.
        let together = [header, &b"EHLO early.test\r\n"[..]].concat();
        assert!(proxied(&server, &together).reply().starts_with("220 "));
        assert!(proxied(&pausing, &together).reply().starts_with('5'));
    }
    // Not loopback any more: no relaying.
    let mut client = proxied(&server, &v1);
    client.hello();
    client.expect("MAIL FROM:<a@b.test>", "250");
    client.expect("RCPT TO:<b@example.com>", "550 5.7.1 ");
}

#[test]
fn what_is_no_proxy_header() {
    let mut server = Setup::new().listen("proxy_protocol = [\"127.0.0.1\"]").start();
    for bytes in
        [&b"EHLO a.test\r\n"[..], b"PROXY TCP4 999.0.0.1 192.0.2.9 1 25\r\n", b"\r\n\r\n\0\r\nQUIT\n\x31\x11\0\x0c"]
    {
        assert_eq!(proxied(&server, bytes).reply(), "closed");
        let line = server.wait_log("PROXY");
        assert!(line.contains("127.0.0.1"), "{line}");
    }
    // A health check connects and goes, or speaks for itself.
    drop(connect(server.address()));
    assert!(proxied(&server, b"PROXY UNKNOWN\r\n").hello().contains("[127.0.0.1]"));
    let mut local = b"\r\n\r\n\0\r\nQUIT\n\x20\0\0\0".to_vec();
    local.extend(b"");
    assert!(proxied(&server, &local).hello().contains("[127.0.0.1]"));
}

#[test]
fn only_listed_networks_may_send_a_proxy_header() {
    let server = Setup::new().listen("proxy_protocol = [\"192.0.2.0/24\"]").set("accept.greet_pause", "\"5s\"").start();
    let mut client = connect(server.address());
    assert!(client.reply().starts_with("220"));
    client.expect("PROXY TCP4 203.0.113.7 192.0.2.9 4660 25", "500 5.5.1");
    assert!(client.command("EHLO a.test").contains("[127.0.0.1]"));
}

#[test]
fn xclient_is_for_listed_networks() {
    let server = Setup::new().set("accept.xclient", "[\"127.0.0.0/8\"]").start();
    let mut client = greeted(server.address());
    assert!(client.command("EHLO front.test").contains("250-XCLIENT NAME ADDR"));
    client.expect("XCLIENT NAME=real.test ADDR=203.0.113.9 PORT=4660", "220 mx.test");
    assert!(client.command("EHLO real.test").contains("[203.0.113.9]"));
    client.expect("MAIL FROM:<a@b.test>", "250");
    // It has the rights of the client it speaks for.
    client.expect("RCPT TO:<b@example.com>", "550 5.7.1 ");
    client.expect("XCLIENT ADDR=127.0.0.1", "503");
    client.expect("RSET", "250");
    client.expect("XCLIENT ADDR=127.0.0.1 NAME=[UNAVAILABLE]", "220");
    client.expect("EHLO again.test", "250");
    client.message(b"hi\r\n");
    let letters = server.letters_after_kill();
    assert!(letters[0].trace().starts_with("Received: from again.test ([127.0.0.1]) "), "{}", letters[0].trace());

    let server = Setup::new().start();
    let mut client = greeted(server.address());
    assert!(!client.command("EHLO front.test").contains("XCLIENT"));
    client.expect("XCLIENT ADDR=203.0.113.9", "500 5.5.1 ");
}

#[test]
fn a_pause_catches_who_talks_early() {
    let setup = Setup::new().set("relay.from", "[\"192.0.2.0/24\"]").set("relay.to", "[\"example.com\"]");
    // The pause of 4 minutes ends when a client talks early; the patient client waits 300 ms.
    let pauses = "[{networks = [\"127.0.0.2\"], pause = \"4m\"}, {networks = [\"127.0.0.0/8\"], pause = \"300ms\"}]";
    let mut server = setup.set("accept.greet_pause_for", pauses).start();
    let mut early = Plain::of(socket2_bind("127.0.0.2", server.address()));
    early.send(b"EHLO early.test\r\nMAIL FROM:<a@b.test>\r\n");
    let reply = early.reply();
    assert!(reply.starts_with("5"), "{reply}");
    server.wait_log("pre-greeting traffic");
    // A client that waits is served.
    let mut patient = greeted(server.address());
    patient.envelope();
    patient.quit();
}

#[test]
fn connections_above_a_limit_hear_421_at_once() {
    let mut server = Setup::new().set("accept.connections_max", "2").start();
    let first = greeted(server.address());
    let mut second = greeted(server.address());
    for _ in 0..3 {
        let mut third = connect(server.address());
        assert_eq!(third.reply(), "421 4.3.2 Too many connections, try again later");
        assert_eq!(third.reply(), "closed");
    }
    server.wait_log("rejecting connections on daemon MTA: 2 children, max 2");
    second.quit();
    // The place of a client that has gone is free as soon as the server has seen it.
    let mut third = poll("no place becomes free", || {
        let mut client = connect(server.address());
        client.reply().starts_with("220").then_some(client)
    });
    third.expect("NOOP", "250");
    drop(first);
}

#[test]
fn limits_of_one_client() {
    let setup = Setup::new().set("accept.connections_per_client", "1").set("accept.exempt", "[]");
    let mut server = setup.start();
    let _first = greeted(server.address());
    let mut second = connect(server.address());
    assert_eq!(second.reply(), "421 4.7.0 Too many connections from your address, try again later");
    let line = server.wait_log("ruleset=check_relay");
    assert!(line.contains("arg1=[127.0.0.1], arg2=127.0.0.1, relay=[127.0.0.1], reject=421 4.7.0 "), "{line}");
    // Another client is not concerned.
    let socket = socket2_bind("127.0.0.2", server.address());
    let mut other = Plain::of(socket);
    other.hello();

    let server = Setup::new().set("accept.rate_per_client", "1").set("accept.exempt", "[]").start();
    assert!(connect(server.address()).reply().starts_with("220"));
    let refused = "421 4.7.0 Connection rate limit exceeded for your address, try again later";
    assert_eq!(first_refusal(&server), refused);
}

/// Connects until a connection is refused, however slowly the server answers: each second allows one more.
fn first_refusal(server: &Server) -> String {
    poll("no connection is refused", || {
        Some(connect(server.address()).reply()).filter(|reply| !reply.starts_with("220"))
    })
}

/// A connection from another address of this machine.
fn socket2_bind(from: &str, to: std::net::SocketAddr) -> TcpStream {
    use socket2::{Domain, Socket, Type};
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None).expect("a socket");
    let from: std::net::SocketAddr = format!("{from}:0").parse().expect("an address");
    socket.bind(&from.into()).expect("bound");
    socket.connect(&to.into()).expect("connected");
    socket.into()
}

#[test]
fn limits_of_all_and_of_a_listener() {
    let server = Setup::new().set("accept.rate", "1").start();
    let refusal = first_refusal(&server);
    assert!(refusal.starts_with("421 4.3.2 Connection rate limit"), "{refusal}");

    let listen = "[{address = \"127.0.0.1:0\", connections_max = 1}, {address = \"127.0.0.2:0\"}]";
    let server = Setup::new().set("listen", listen).start();
    let _first = greeted(server.addresses[0]);
    assert!(connect(server.addresses[0]).reply().starts_with("421 4.3.2 "));
    greeted(server.addresses[1]).quit();
}

#[test]
fn strangers_may_send_only_to_our_domains() {
    let setup = Setup::new().set("relay.from", "[]").set("relay.to", "[\"example.com\", \".example.org\"]");
    let mut server = setup.start();
    let mut client = greeted(server.address());
    client.expect("MAIL FROM:<a@b.test>", "250");
    for (recipient, reply) in [
        ("b@example.com", "250"),
        ("b@EXAMPLE.com", "250"),
        ("b@example.org", "250"),
        ("b@x.example.org", "250"),
        ("Postmaster", "250"),
        ("b@x.example.com", "550 5.7.1 "),
        ("b@notexample.org", "550 5.7.1 "),
        ("b%else.test@example.net", "550 5.7.1 "),
        ("@example.com:b@example.net", "550 5.7.1 "),
    ] {
        client.expect(&format!("RCPT TO:<{recipient}>"), reply);
    }
    let line = server.wait_log("b@x.example.com");
    assert!(
        line.contains("ruleset=check_rcpt, arg1=<b@x.example.com>, relay=[127.0.0.1], reject=550 5.7.1 "),
        "{line}"
    );
    client.data(b"hi\r\n");
    let letters = server.letters_after_kill();
    // The first two are one and the same.
    assert_eq!(letters[0].envelope.recipients.len(), 4);
}

#[test]
fn half_a_connection() {
    let server = Setup::new().start();
    // A client that says all and closes its side gets all replies.
    let mut client = connect(server.address());
    assert!(client.reply().starts_with("220"));
    client.stream.write_all(b"EHLO a.test\r\nNOOP\r\nQUIT\r\n").expect("sent");
    client.finish();
    assert!(client.reply().starts_with("250-"));
    assert!(client.reply().starts_with("250 2.0.0"));
    assert!(client.reply().starts_with("221"));
    assert_eq!(client.reply(), "closed");
}

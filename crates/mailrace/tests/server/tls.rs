//! TLS: STARTTLS with its injection, implicit TLS, new certificates without a restart.

use std::io::Read as _;
use testkit::client::{connect, greeted, tls};
use testkit::harness::{Setup, text};

/// Writes a new certificate for mx.test.
pub(crate) fn new_certificate(setup: &Setup) {
    let made = rcgen::generate_simple_self_signed(["mx.test".to_owned()]).expect("a certificate");
    std::fs::write(setup.path("certificate.pem"), made.cert.pem()).expect("written");
    std::fs::write(setup.path("key.pem"), made.signing_key.serialize_pem()).expect("written");
}

/// A server with a certificate for mx.test in `certificate.pem`.
pub(crate) fn with_certificate(setup: Setup) -> Setup {
    new_certificate(&setup);
    let [certificate, key] = ["certificate.pem", "key.pem"].map(|name| format!("{:?}", setup.path(name)));
    setup.set("tls.certificate", certificate).set("tls.key", key)
}

#[test]
fn starttls_forgets_what_was_said_before() {
    let mut server = with_certificate(Setup::new()).set("smtp.forgiving", "\"none\"").start();
    let certificate = server.setup.path("certificate.pem");
    let mut client = greeted(server.address());
    assert!(client.command("EHLO clear.test").contains("250-STARTTLS\n"));
    // In one packet with STARTTLS: an attacker between client and server may have put it there.
    client.send(b"STARTTLS\r\nMAIL FROM:<injected@b.test>\r\nRCPT TO:<c@d.test>\r\nDATA\r\ninjected\r\n.\r\n");
    assert_eq!(client.reply(), "220 2.0.0 Ready to start TLS");
    let mut client = tls(client.stream, &certificate);
    client.expect("MAIL FROM:<a@b.test>", "503 5.5.1 ");
    assert!(!client.expect("EHLO secret.test", "250").contains("STARTTLS"));
    client.expect("RCPT TO:<c@d.test>", "503");
    client.message(b"encrypted\r\n");
    client.quit();
    let line = server.wait_log("STARTTLS=server, relay=[127.0.0.1], version=TLSv1.3, verify=NOT, cipher=");
    assert!(line.ends_with("bits=256/256"), "{line}");
    let letters = server.letters_after_kill();
    assert_eq!(letters.len(), 1);
    assert_eq!(letters[0].own_content(), b"encrypted\r\n");
    let trace = letters[0].trace();
    assert!(trace.contains("from secret.test ") && trace.contains(" with ESMTPS id "), "{trace}");
    assert!(trace.contains("TLSv1.3"), "{trace}");
}

#[test]
fn implicit_tls_also_behind_a_proxy() {
    let listen = "[{address = \"127.0.0.1:0\", tls = \"implicit\"}, \
                   {address = \"127.0.0.2:0\", tls = \"implicit\", proxy_protocol = [\"127.0.0.1\"]}]";
    let mut server = with_certificate(Setup::new()).set("listen", listen).start();
    let certificate = server.setup.path("certificate.pem");
    let mut client = tls(connect(server.addresses[0]).stream, &certificate);
    assert!(!client.hello().contains("STARTTLS"));
    client.message(b"hi\r\n");

    let mut behind = connect(server.addresses[1]);
    behind.send(b"PROXY TCP4 203.0.113.7 192.0.2.9 4660 465\r\n");
    let mut behind = tls(behind.stream, &certificate);
    assert!(behind.hello().contains("[203.0.113.7]"));
    behind.quit();

    // A client that does not speak TLS.
    let mut clear = connect(server.addresses[0]);
    clear.send(b"EHLO a.test\r\n");
    let mut answer = Vec::new();
    drop(clear.stream.read_to_end(&mut answer));
    assert!(!answer.starts_with(b"2"), "{}", answer.escape_ascii());
    let line = server.wait_log("error: accept failed=-1");
    assert!(line.contains("relay=[127.0.0.1]"), "{line}");
}

#[test]
fn a_listener_can_want_tls() {
    let server = with_certificate(Setup::new()).listen("tls_required = true").start();
    let mut client = greeted(server.address());
    client.expect("MAIL FROM:<a@b.test>", "530 5.7.0 ");
    let mut client = client.start_tls(&server.setup.path("certificate.pem"));
    client.expect("EHLO a.test", "250");
    client.message(b"hi\r\n");
}

#[test]
fn certificates_are_changed_while_it_runs() {
    let mut server = with_certificate(Setup::new()).start();
    let certificate = server.setup.path("certificate.pem");
    let mut old = greeted(server.address()).start_tls(&certificate);
    old.expect("EHLO a.test", "250");
    let old_certificate = std::fs::read(&certificate).expect("a file");

    // A key that does not fit: everything stays as it is.
    new_certificate(&server.setup);
    std::fs::write(&certificate, &old_certificate).expect("written");
    let refused = server.control(&["reload"], b"");
    assert_eq!(refused.status.code(), Some(78), "{}", text(&refused));
    assert!(text(&refused).contains("key.pem"), "{}", text(&refused));
    server.wait_log("configuration not reloaded, the old one stays");
    greeted(server.address()).start_tls(&certificate).expect("EHLO a.test", "250");

    new_certificate(&server.setup);
    let reloaded = server.control(&["reload"], b"");
    assert!(reloaded.status.success(), "{}", text(&reloaded));
    greeted(server.address()).start_tls(&certificate).expect("EHLO a.test", "250");
    // The session of before goes on with its keys.
    old.message(b"hi\r\n");
    old.quit();
}

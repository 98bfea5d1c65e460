//! Passwords: PLAIN, LOGIN and SCRAM-SHA-256 under TLS, and none in clear.

use crate::client::{connect, greeted, tls};
use crate::harness::Setup;
use crate::tls::with_certificate;
use rsasl::prelude::{Mechname, SASLClient, SASLConfig};
use server::auth::{Scheme, hash_password};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;

fn with_users(setup: Setup) -> Setup {
    let path = setup.path("users");
    let tim = hash_password("tanstaaftanstaaf", Scheme::ScramSha256).expect("a hash");
    std::fs::write(&path, format!("tim:{tim}\n")).expect("written");
    std::fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("set");
    setup.set("auth.file", format!("{path:?}"))
}

const PLAIN: &str = "AHRpbQB0YW5zdGFhZnRhbnN0YWFm";

#[test]
fn every_mechanism_under_tls() {
    let setup = with_users(with_certificate(Setup::new())).set("relay.from", "[]");
    let mut server = setup.listen("protocol = \"submission\"").start();
    let certificate = server.setup.path("certificate.pem");

    let mut clear = greeted(server.address());
    assert!(!clear.command("EHLO a.test").contains("AUTH"));
    clear.expect(&format!("AUTH PLAIN {PLAIN}"), "538 5.7.11 ");
    clear.expect("MAIL FROM:<a@b.test>", "530 5.7.0 ");

    let encrypted = || {
        let mut client = greeted(server.address()).start_tls(&certificate);
        assert!(client.command("EHLO a.test").contains("250-AUTH SCRAM-SHA-256 PLAIN LOGIN\n"));
        client
    };
    let mut client = encrypted();
    client.expect("MAIL FROM:<a@b.test>", "530 5.7.0 ");
    client.expect(&format!("AUTH PLAIN {PLAIN}"), "235 2.7.0 ");
    client.message(b"by plain\r\n");
    let mut client = encrypted();
    assert_eq!(client.command("AUTH PLAIN"), "334 ");
    client.expect(PLAIN, "235");
    let mut client = encrypted();
    assert_eq!(client.command("AUTH LOGIN"), "334 VXNlcm5hbWU6");
    assert_eq!(client.command("dGlt"), "334 UGFzc3dvcmQ6");
    client.expect("dGFuc3RhYWZ0YW5zdGFhZg==", "235");
    let mut client = encrypted();
    assert!(client.command("AUTH PLAIN").starts_with("334"));
    client.expect("*", "501");
    client.expect("AUTH PLAIN AHRpbQB3cm9uZw==", "535 5.7.8 ");
    scram(&mut client);
    client.message(b"by scram\r\n");

    let line = server.wait_log("AUTH failure (PLAIN): ");
    assert!(line.ends_with("relay=[127.0.0.1]") && !line.contains("wrong\0"), "{line}");
    let letters = server.letters_after_kill();
    assert_eq!(letters.len(), 2);
    assert!(letters[1].trace().contains(" with ESMTPSA id "), "{}", letters[1].trace());
    // Who it was is nobody's business but ours.
    assert!(!letters[1].trace().contains("tim"), "{}", letters[1].trace());
}

/// RFC 7677, by rsasl.
fn scram<S: std::io::Read + std::io::Write>(client: &mut crate::client::Client<S>) {
    let config = SASLConfig::with_credentials(None, "tim".to_owned(), "tanstaaftanstaaf".to_owned()).expect("a config");
    let offered = [Mechname::parse(b"SCRAM-SHA-256").expect("a name")];
    let mut session = SASLClient::new(config).start_suggested(&offered).expect("it is known");
    let mut answer = Vec::new();
    session.step64(None, &mut answer).expect("the first message");
    let text = |answer: &[u8]| String::from_utf8(answer.to_vec()).expect("base64");
    let mut reply = client.command(&format!("AUTH SCRAM-SHA-256 {}", text(&answer)));
    while let Some(challenge) = reply.strip_prefix("334 ").map(str::to_owned) {
        answer.clear();
        session.step64(Some(challenge.as_bytes()), &mut answer).expect("a good challenge");
        reply = client.command(&text(&answer));
    }
    assert!(reply.starts_with("235 2.7.0 "), "{reply}");
}

#[test]
fn a_password_file_is_read_again() {
    let setup = with_users(with_certificate(Setup::new()));
    let server = setup.listen("tls = \"implicit\"").start();
    let certificate = server.setup.path("certificate.pem");
    let login = |reply: &str| {
        let mut client = tls(connect(server.address()).stream, &certificate);
        client.hello();
        client.expect("AUTH PLAIN AG5ldwB0YW5zdGFhZnRhbnN0YWFm", reply);
    };
    login("535 5.7.8 ");
    let new = hash_password("tanstaaftanstaaf", Scheme::ScramSha256).expect("a hash");
    std::fs::write(server.setup.path("users"), format!("new:{new}\n")).expect("written");
    let output = server.control(&["reload"], b"");
    assert!(output.status.success(), "{output:?}");
    login("235");
}

//! Passwords: PLAIN, LOGIN and SCRAM-SHA-256 under TLS, and none in clear.

use crate::tls::with_certificate;
use rsasl::prelude::{Mechname, SASLClient, SASLConfig};
use server::auth::{Scheme, hash_password};
use std::fs::Permissions;
use std::os::unix::fs::PermissionsExt as _;
use std::process::Command;
use testkit::client::{connect, greeted, tls};
use testkit::harness::{Server, Setup, needs, text, write_program};

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
    // The trace field does not name the user.
    assert!(!letters[1].trace().contains("tim"), "{}", letters[1].trace());
}

/// RFC 7677, by rsasl.
fn scram<S: std::io::Read + std::io::Write>(client: &mut testkit::client::Client<S>) {
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

/// A server with AUTH in clear, and these limits. Programs answer at once, and say 1 to a wrong password.
fn limited(failures: &[(&str, &str)]) -> Server {
    let program = "#!/bin/sh\ntr '\\0' '\\n' | { read -r user; read -r password; \
                   echo \"$user\" >>\"$(dirname \"$0\")/checked\"; test \"$password\" = right; }\n";
    let setup = Setup::new();
    let path = setup.path("check");
    write_program(&path, program.as_bytes());
    let setup = setup.set("auth.program", format!("[{path:?}]")).set("auth.without_tls", "true");
    let setup = setup.set("auth.mechanisms", "[\"PLAIN\", \"LOGIN\"]");
    failures.iter().fold(setup, |setup, (key, value)| setup.set(key, *value)).start()
}

fn plain(user: &str, password: &str) -> String {
    let text = format!("\0{user}\0{password}");
    format!("AUTH PLAIN {}", mail::base64::encode(text.as_bytes()).map(char::from).collect::<String>())
}

/// Users whose passwords were checked.
fn checked(server: &Server) -> usize {
    std::fs::read_to_string(server.setup.path("checked")).map_or(0, |text| text.lines().count())
}

#[test]
fn failures_count_over_sessions_and_spare_those_who_log_in_from_there() {
    let keys = [("auth.failures_per_client", "3"), ("auth.failures_per_user", "4"), ("accept.exempt", "[]")];
    let mut server = limited(&keys);
    let address = server.address();
    let log_in = move |user: &str, password: &str, reply: &str| {
        // Each in a session of its own.
        greeted(address).expect(&plain(user, password), reply);
    };
    // Together, since each answer to a failure comes after a pause.
    let log_all_in = |all: &[(&str, &str)], reply: &str| {
        std::thread::scope(|scope| {
            for (user, password) in all {
                scope.spawn(|| log_in(user, password, reply));
            }
        });
    };
    log_in("ann", "right", "235 2.7.0 ");
    log_all_in(&[("bob", "wrong"), ("carl", "wrong"), ("dora", "wrong")], "535 5.7.8 ");
    let before = checked(&server);
    let beyond = [("bob", "right"), ("eve", "wrong"), ("carl", "right")];
    log_all_in(&beyond, "454 4.7.0 Too many failed authentications, try again later");
    assert_eq!(checked(&server), before, "nothing is checked beyond the limit");
    // The pair that has logged in is not locked out; and it has a limit of its own.
    log_in("ann", "right", "235 2.7.0 ");
    log_all_in(&[("ann", "wrong"); 3], "535 5.7.8 ");
    log_in("ann", "right", "454 4.7.0 ");
    let line = server.wait_log("not checked: auth.failures_per_client");
    assert!(line.contains("AUTH failure (PLAIN): ") && line.ends_with(", relay=[127.0.0.1]"), "{line}");
    server.wait_log("limit=auth.failures_per_client, max=3");
    // A reload keeps the counts, and takes other limits.
    assert!(server.control(&["reload"], b"").status.success());
    greeted(server.address()).expect(&plain("bob", "right"), "454 4.7.0 ");
    server.setup = std::mem::replace(&mut server.setup, Setup::new()).set("auth.failures_per_client", "0");
    server.setup.write();
    assert!(server.control(&["reload"], b"").status.success());
    greeted(server.address()).expect(&plain("bob", "right"), "235 ");
}

#[test]
fn failures_of_a_user_count_from_everywhere() {
    let mut server = limited(&[("auth.failures_per_client", "0"), ("auth.failures_per_user", "2")]);
    let log_in = |user: &str, password: &str, reply: &str| {
        greeted(server.address()).expect(&plain(user, password), reply);
    };
    log_in("ann", "wrong", "535 ");
    log_in("ann", "wrong", "535 ");
    log_in("ann", "right", "454 4.7.0 ");
    log_in("bob", "right", "235 ");
    server.wait_log("limit=auth.failures_per_user, max=2");
}

#[test]
fn every_failure_names_client_and_user() {
    let mut server = limited(&[]);
    let failures = [
        (vec!["AUTH PLAIN", "*"], ", user=, relay=[127.0.0.1]"),
        (vec!["AUTH LOGIN", "YW5u", "*"], ", user=ann, relay=[127.0.0.1]"),
        (vec!["AUTH LOGIN", "YW5u", "!!!!"], ", user=ann, relay=[127.0.0.1]"),
        (vec!["AUTH LOGIN", "YW5u", "d3Jvbmc="], ", user=ann, relay=[127.0.0.1]"),
        // PLAIN with a name and no password, and with one NUL too many.
        (vec!["AUTH PLAIN AGFubgA="], ", user=ann, relay=[127.0.0.1]"),
        (vec!["AUTH PLAIN AGFubgB4AA=="], ", user=ann, relay=[127.0.0.1]"),
    ];
    for (lines, end) in failures {
        let mut client = greeted(server.address());
        lines.iter().for_each(|line| drop(client.command(line)));
        let line = server.wait_log("AUTH failure (");
        assert!(line.ends_with(end), "{lines:?}: {line}");
    }
    // A name that is made to look like fields of the line.
    let name = "x, relay=mx.test [192.0.2.9]\n";
    greeted(server.address()).expect(&plain(name, "wrong"), "535 ");
    let line = server.wait_log("AUTH failure (");
    assert!(line.ends_with(", user=x,\\040relay=mx.test [192.0.2.9]\\012, relay=[127.0.0.1]"), "{line}");
}

#[test]
fn recipients_of_a_login_are_counted_over_its_sessions() {
    let keys = [("auth.recipients_hour_max", "5"), ("accept.exempt", "[]")];
    let mut server = limited(&keys);
    let address = server.address();
    let session = |user: &str| {
        let mut client = greeted(address);
        client.expect(&plain(user, "right"), "235 ");
        client.expect("MAIL FROM:<a@b.test>", "250");
        client
    };
    let (mut one, mut two) = (session("ann"), session("ann"));
    for number in 0..3 {
        one.expect(&format!("RCPT TO:<{number}@example.com>"), "250");
    }
    // A refused recipient does not count.
    two.expect("RCPT TO:<nonsense", "501");
    for number in 0..2 {
        two.expect(&format!("RCPT TO:<{number}@example.com>"), "250");
    }
    let refusal = "452 4.7.1 Too many recipients of your login in an hour, try again later";
    for client in [&mut one, &mut two, &mut session("ann")] {
        client.expect("RCPT TO:<x@example.com>", refusal);
    }
    // A message whose recipients were accepted before is taken; others have a count of their own, and clients without a
    // login none.
    one.data(b"hi\r\n");
    session("bob").expect("RCPT TO:<x@example.com>", "250");
    let mut stranger = greeted(address);
    stranger.envelope();
    for number in 0..7 {
        stranger.expect(&format!("RCPT TO:<{number}@example.com>"), "250");
    }
    let line = server.wait_log("too many recipients of a login");
    assert!(
        line.ends_with("user=ann, recipients=5, limit=auth.recipients_hour_max, max=5, relay=[127.0.0.1]"),
        "{line}"
    );
    server.wait_log("limit=auth.recipients_hour_max, max=5");
    assert_eq!(server.whole_status()["logins_over"][0]["user"], "ann");
    let shown = text(&server.control(&["status"], b""));
    assert!(shown.contains("LOGIN        ann had 5 recipients in an hour, from 127.0.0.1"), "{shown}");
    let ended = server.stop();
    assert_eq!(ended.log.iter().filter(|line| line.contains("too many recipients of a login")).count(), 1);
}

/// The filter of packaging, against lines that the server has written.
#[test]
fn fail2ban_finds_failures_and_nothing_else() {
    let filter = concat!(env!("CARGO_MANIFEST_DIR"), "/../../packaging/fail2ban/filter.d/mailrace.conf");
    let Some(mut command) = needs::program("fail2ban-regex").map(Command::new) else { return };
    let mut server = limited(&[("auth.failures_per_client", "2"), ("accept.exempt", "[]")]);
    let address = server.address();
    greeted(address).expect(&plain("ann", "right"), "235 ");
    for user in ["bob", "x, relay=mx.test [192.0.2.9]", "eve", "mallory relay=[192.0.2.9]"] {
        greeted(address).command(&plain(user, "wrong"));
    }
    server.wait_log("user=mallory");
    let directory = std::sync::Arc::clone(&server.setup.dir);
    let path = directory.path().join("maillog");
    let log = server.stop().log;
    std::fs::write(&path, log.join("\n") + "\n").expect("written");
    let output = command.arg("-o").arg("ip").arg(&path).arg(filter).output().expect("it runs");
    let found = text(&output);
    let found: Vec<&str> = found.lines().filter(|line| !line.is_empty()).collect();
    assert_eq!(found, ["127.0.0.1"; 4], "{output:?}\n{log:#?}");
}

//! Directories that go and come back: several servers, restarts, answers that are kept, mail that waits.

use super::slapd::Slapd;
use super::{deliveries, people, person, route, setup};
use rustix::process::Signal;
use std::io::Write as _;
use std::net::{Ipv4Addr, TcpListener};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};
use testkit::client::greeted;
use testkit::harness::{SLACK, Server, Setup, poll, text};

const NOTHING_KEPT: &str = "bounce = true, cache_time = \"0s\", negative_time = \"0s\", stale_max = \"0s\"";

/// A setup with these servers, in order.
fn servers(urls: &[String], more: &str) -> Setup {
    setup(&urls.join("\", \""), more)
}

/// The first words of the answer to one recipient, in a session of its own.
fn rcpt(server: &Server, recipient: &str) -> String {
    let mut client = greeted(server.address());
    client.expect("MAIL FROM:<a@b.test>", "250");
    let reply = client.command(&format!("RCPT TO:<{recipient}>"));
    client.quit();
    reply
}

#[track_caller]
fn answers(server: &Server, recipient: &str, wanted: &str) {
    let reply = rcpt(server, recipient);
    assert!(reply.starts_with(wanted), "{recipient}: {reply}");
}

/// Asks until the answer begins so: a server may have to be left out for its time first.
#[track_caller]
fn answers_soon(server: &Server, recipient: &str, wanted: &str) {
    poll(recipient, || rcpt(server, recipient).starts_with(wanted).then_some(()));
}

#[allow(clippy::disallowed_methods, reason = "what is measured is real time")]
fn timed<T>(run: impl FnOnce() -> T) -> (T, Duration) {
    let begin = Instant::now();
    let done = run();
    (done, begin.elapsed())
}

#[test]
fn the_second_server_answers_while_the_first_is_down() {
    let (Some(mut first), Some(mut second)) = (Slapd::start(&people()), Slapd::start(&people())) else { return };
    let server = servers(&[first.url(), second.url()], NOTHING_KEPT).start();
    answers(&server, "five@ldap.test", "250");
    first.kill();
    // The second server answers in its place.
    answers(&server, "five@ldap.test", "250");
    answers(&server, "nobody@ldap.test", "550 5.1.1");
    second.kill();
    answers(&server, "five@ldap.test", "451 4.3.0");
    answers(&server, "nobody@ldap.test", "451 4.3.0");
    first.restart();
    answers_soon(&server, "five@ldap.test", "250");
    answers(&server, "nobody@ldap.test", "550 5.1.1");
}

#[test]
fn a_server_that_hangs_costs_its_share_of_the_time_once() {
    let Some(second) = Slapd::start(&people()) else { return };
    // The kernel takes the connection, and no server ever answers.
    let hung = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a port");
    let hung_url = format!("ldap://{}", hung.local_addr().expect("an address"));
    // Were all of the time the first one's, there would be no answer.
    let setup = servers(&[hung_url.clone(), second.url()], "bounce = true, timeout = \"6s\"");
    let (said, exit) = route(&setup, "five@ldap.test");
    assert_eq!(deliveries(&said), ["joe@elsewhere.example elsewhere.example"], "{said}");
    assert_eq!(exit, Some(0));
    // Both hang: it ends, and both are named. With the time for each it were more than a busy machine makes of it.
    let all = Duration::from_secs(12);
    let more = format!("bounce = true, timeout = \"{}s\"", all.as_secs());
    let setup = servers(&[hung_url.clone(), hung_url.replace("127.0.0.1", "localhost")], &more);
    let ((said, exit), took) = timed(|| route(&setup, "nobody@ldap.test"));
    let why = said["reason"].as_str().unwrap_or_else(|| panic!("{said}"));
    assert!(exit == Some(75) && why.contains(&hung_url) && why.contains("ldap://localhost:"), "{why}");
    assert!(took < all + SLACK && all + SLACK < 2 * all, "{took:?}");
}

#[test]
fn a_server_that_stands_still_is_left_for_the_next() {
    let (Some(first), Some(second)) = (Slapd::start(&people()), Slapd::start(&people())) else { return };
    // The first server may take two of three shares of it: the rest is for a busy machine.
    let more = format!("{NOTHING_KEPT}, timeout = \"12s\"");
    let server = servers(&[first.url(), second.url()], &more).start();
    answers(&server, "five@ldap.test", "250");
    first.signal(Signal::STOP);
    // On connections that are open and were good.
    for _ in 0..3 {
        answers(&server, "five@ldap.test", "250");
        answers(&server, "nobody@ldap.test", "550 5.1.1");
    }
    first.signal(Signal::CONT);
    answers(&server, "five@ldap.test", "250");
}

#[test]
fn a_restart_between_two_questions_is_not_noticed() {
    let Some(mut slapd) = Slapd::start(&people()) else { return };
    let server = setup(&slapd.url(), NOTHING_KEPT).start();
    for _ in 0..5 {
        // Both connections are in use.
        for _ in 0..4 {
            answers(&server, "five@ldap.test", "250");
        }
        slapd.kill();
        slapd.restart();
        answers(&server, "nobody@ldap.test", "550 5.1.1");
        answers(&server, "five@ldap.test", "250");
    }
}

#[test]
fn one_server_that_stood_still_for_a_question_is_not_given_up() {
    let Some(slapd) = Slapd::start(&people()) else { return };
    let all = Duration::from_secs(2);
    let server = setup(&slapd.url(), &format!("{NOTHING_KEPT}, timeout = \"{}s\"", all.as_secs())).start();
    answers_soon(&server, "five@ldap.test", "250");
    slapd.signal(Signal::STOP);
    let (reply, took) = timed(|| rcpt(&server, "five@ldap.test"));
    assert!(reply.starts_with("451 4.3.0"), "{reply}");
    assert!(took < all + SLACK, "{took:?}");
    slapd.signal(Signal::CONT);
    answers_soon(&server, "five@ldap.test", "250");
}

#[test]
fn a_reload_changes_one_table_and_keeps_what_the_other_knows() {
    let Some(mut slapd) = Slapd::start(&people()) else { return };
    let table = |name: &str, more: &str| {
        format!(
            "{{name = \"{name}\", servers = [\"{}\"], base = \"dc=test\", cache_time = \"0s\", negative_time = \"0s\", {more}}}",
            slapd.url()
        )
    };
    let people = table("people", "routing_domains = [\"ldap.test\"], bounce = true");
    let crew = |attribute: &str| table("crew", &format!("attribute = \"{attribute}\", separator = \", \""));
    let mut server = setup(&slapd.url(), "").set("ldap", format!("[{people}, {}]", crew("mail"))).start();
    answers(&server, "five@ldap.test", "250");
    answers(&server, "crew@here.test", "250");
    // No entry has this attribute.
    let after =
        std::mem::replace(&mut server.setup, Setup::new()).set("ldap", format!("[{people}, {}]", crew("description")));
    after.write();
    server.setup = after;
    let output = server.control(&["reload"], b"");
    assert!(output.status.success() && text(&output).contains("ldap"), "{}", text(&output));
    let reply = rcpt(&server, "crew@here.test");
    assert!(reply.starts_with("550"), "{reply}");
    slapd.kill();
    answers(&server, "five@ldap.test", "250");
    answers(&server, "crew@here.test", "451");
    answers(&server, "three@ldap.test", "451");
}

#[test]
fn mail_that_was_handed_in_waits_for_the_directory() {
    let Some(mut slapd) = Slapd::start(&people()) else { return };
    slapd.kill();
    let mut server = setup(&slapd.url(), NOTHING_KEPT).start();
    let config = server.setup.path("mailrace.toml");
    let link = server.setup.path("sendmail");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_mailrace"), &link).expect("a link");
    let mut child = Command::new(link)
        .env("MAILRACE_CONFIG", config)
        .args(["-f", "ann@c.test", "five@ldap.test", "nobody@ldap.test"])
        .stdin(Stdio::piped())
        .spawn()
        .expect("it runs");
    child.stdin.take().expect("piped").write_all(b"Subject: x\n\nhello\n").expect("written");
    assert!(child.wait().expect("it ends").success());
    let line = server.wait_log("ldap:people");
    assert!(line.contains("refused"), "{line}");
    let queue = text(&server.control(&["queue", "list"], b""));
    assert!(!queue.contains("MAILER-DAEMON") && !queue.contains("<>"), "{queue}");
    slapd.restart();
    // The one goes where the directory says, the other back.
    server.wait_log("User unknown");
    poll("it is taken", || text(&server.control(&["queue", "list"], b"")).contains("elsewhere.example").then_some(()));
    let letters = server.letters_after_kill();
    let text = format!("{letters:?}");
    assert!(text.contains("joe") && text.contains("elsewhere.example"), "{text}");
}

#[test]
fn who_is_new_is_known_when_the_absence_has_expired() {
    let Some(slapd) = Slapd::start(&people()) else { return };
    let kept = setup(&slapd.url(), "bounce = true, cache_time = \"1h\", negative_time = \"1h\"").start();
    let fresh = setup(&slapd.url(), "bounce = true, cache_time = \"1h\", negative_time = \"0s\"").start();
    for server in [&kept, &fresh] {
        answers(server, "new@ldap.test", "550 5.1.1");
        answers(server, "five@ldap.test", "250");
    }
    slapd.add(&person("new", "new@ldap.test", "mailRoutingAddress: x@elsewhere.example\n"));
    answers(&kept, "new@ldap.test", "550 5.1.1");
    answers(&fresh, "new@ldap.test", "250");
    // A cached answer makes no search.
    let before = slapd.searches();
    for _ in 0..5 {
        answers(&kept, "five@ldap.test", "250");
        answers(&kept, "new@ldap.test", "550 5.1.1");
        answers(&fresh, "five@ldap.test", "250");
    }
    assert_eq!(slapd.searches() - before, 1, "the first count itself");
}

#[test]
fn one_question_for_all_who_wait() {
    let Some(slapd) = Slapd::start(&people()) else { return };
    let server = setup(&slapd.url(), "bounce = true, cache_time = \"1h\", negative_time = \"1h\"")
        .set("accept.connections_per_client", "1000")
        .start();
    let before = slapd.searches();
    // The server is stopped, so that it answers after all clients have asked.
    slapd.signal(Signal::STOP);
    let mut clients: Vec<_> = (0..100).map(|_| greeted(server.address())).collect();
    for client in &mut clients {
        client.expect("MAIL FROM:<a@b.test>", "250");
    }
    for (number, client) in clients.iter_mut().enumerate() {
        let user = ["five", "three", "nobody"][number % 3];
        client.send(format!("RCPT TO:<{user}@ldap.test>\r\n").as_bytes());
    }
    slapd.signal(Signal::CONT);
    for (number, client) in clients.iter_mut().enumerate() {
        let wanted = ["250", "250", "550 5.1.1"][number % 3];
        let reply = client.reply();
        assert!(reply.starts_with(wanted), "{reply}");
    }
    // Two addresses; one that is not there, and the entry of its domain; the first count itself.
    assert_eq!(slapd.searches() - before, 5);
}

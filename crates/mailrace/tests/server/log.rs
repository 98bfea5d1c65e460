//! The log of whole sessions, to the letter.

use rustix::process::Signal;
use testkit::client::{connect, greeted};
use testkit::harness::{SLACK, Server, Setup, poll, read, time};

/// Two sessions, one after the other, with most that can happen; the queue id of the message that was taken. `lost` is
/// in the line at the end of the first.
fn sessions(server: &mut Server, lost: &str) -> String {
    let address = server.address();
    let mut client = greeted(address);
    client.expect("MAIL FROM:<nobody@client.test>", "250");
    client.expect("RCPT TO:<x@elsewhere.test>", "550");
    client.expect("RSET", "250");
    client.expect("MAIL FROM:<a@client.test> BODY=8BITMIME", "250");
    client.expect("RCPT TO:<b@example.com>", "250");
    client.expect("RCPT TO:<c@example.com>", "250");
    let id = client.data(b"Message-ID: <1@client.test>\r\n\r\nhi\r\n");
    client.expect("FROB", "500");
    client.expect("MAIL FROM:<a@client.test>", "250");
    client.expect("RCPT TO:<b@example.com>", "250");
    drop(client);
    server.wait_log(lost);
    let mut idle = connect(address);
    idle.reply();
    idle.quit();
    id
}

fn setup(format: &str) -> Setup {
    let setup = Setup::new().set("relay.from", "[]").set("relay.to", "[\"example.com\"]");
    setup.set("log.format", format!("{format:?}")).set("log.level", "10")
}

#[test]
fn lines_in_sendmails_form() {
    let mut server = setup("sendmail").start();
    let (address, pid) = (server.address(), server.pid());
    let id = sessions(&mut server, "lost input");
    server.wait_log("did not issue");
    // A connection is counted a moment longer than its last line.
    poll("a connection is open", || (server.status("/connections/open") == 0).then_some(()));
    let ended = server.stop();
    assert!(ended.status.success() && ended.stderr.is_empty(), "{ended:?}");
    let lines: Vec<&str> = ended
        .log
        .iter()
        .filter_map(|line| line.split_once(&format!(" mx mailrace[{pid}]: ")))
        .map(|(_, rest)| rest)
        .collect();
    assert_eq!(lines.len(), ended.log.len(), "{:#?}", ended.log);
    let [started, opened, hardening, listening, refused, nobody, taken, queued, frob, lost, idle, stopping, stopped] =
        lines.as_slice()
    else {
        panic!("{lines:#?}")
    };
    assert!(started.starts_with(concat!("starting daemon (", env!("CARGO_PKG_VERSION"), "): spool=/")), "{started}");
    assert!(opened.contains("ms, 0 messages for 0 recipients waiting, 0 torn batches dropped"), "{opened}");
    assert!(hardening.starts_with("hardening: seccomp ") && hardening.contains("; landlock "), "{hardening}");
    assert_eq!(*listening, format!("listening: daemon=MTA, address={address}, protocol=smtp, tls=none"));
    let (first, refused) = refused.split_once(": ").expect("an id");
    assert_eq!(
        refused,
        "ruleset=check_rcpt, arg1=<x@elsewhere.test>, relay=[127.0.0.1], reject=550 5.7.1 <x@elsewhere.test>... Relaying denied"
    );
    assert_eq!(
        *nobody,
        format!(
            "{first}: from=<nobody@client.test>, size=0, class=0, nrcpts=0, proto=ESMTP, daemon=MTA, relay=[127.0.0.1]"
        )
    );
    assert_eq!(
        *taken,
        format!(
            "{id}: from=<a@client.test>, size=35, class=0, nrcpts=2, msgid=<1@client.test>, bodytype=8BITMIME, proto=ESMTP, \
             daemon=MTA, relay=[127.0.0.1]"
        )
    );
    let (to, rest) = queued.split_once(", delay=").expect("a delay");
    assert_eq!(to, format!("{id}: to=<b@example.com>,<c@example.com>"));
    let (delay, rest) = rest.split_once(", ").expect("more behind it");
    assert_eq!(rest, "mailer=esmtp, pri=60035, stat=queued", "{queued}");
    assert!(time(delay) <= SLACK, "{queued}");
    assert!(!frob.starts_with("NOQUEUE") && frob.contains("FROB") && frob.contains("reject=500 5.5.1 "), "{frob}");
    assert!(lost.ends_with(": lost input channel from [127.0.0.1] to MTA after rcpt"), "{lost}");
    assert!(!lost.starts_with("NOQUEUE"), "{lost}");
    let (_, idle) = idle.split_once(": ").expect("an id");
    assert_eq!(idle, "[127.0.0.1] did not issue MAIL/EXPN/VRFY/ETRN during connection to MTA");
    assert_eq!(*stopping, "stopping daemon: why=SIGTERM, connections=0");
    assert_eq!(*stopped, "stopped daemon: cut_off=0, deliveries_cut_off=0");
}

#[test]
fn lines_in_json() {
    let mut server = setup("json").start();
    let id = sessions(&mut server, "lost_input");
    server.wait_log("no_mail");
    let ended = server.stop();
    let lines: Vec<serde_json::Value> =
        ended.log.iter().map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("{line}"))).collect();
    let events: Vec<&str> = lines.iter().map(|line| line["event"].as_str().expect("a name")).collect();
    let expected = [
        "started",
        "spool",
        "hardening",
        "listening",
        "rejected",
        "transaction_refused",
        "accepted",
        "queued",
        "rejected",
        "lost_input",
        "no_mail",
        "stopping",
        "stopped",
    ];
    assert_eq!(events, expected, "{:#?}", ended.log);
    let accepted = &lines[6];
    assert_eq!(
        (accepted["id"].as_str(), accepted["size"].as_u64(), accepted["nrcpts"].as_u64()),
        (Some(&*id), Some(35), Some(2))
    );
    assert!(lines.iter().all(|line| line["ts"].is_string()), "{lines:?}");
}

#[test]
fn a_file_is_opened_again() {
    let setup = Setup::new();
    let _directory = setup.dir.clone();
    let (path, moved) = (setup.path("log"), setup.path("log.1"));
    let server = setup.set("log.path", format!("{path:?}")).start();
    let first = greeted(server.address()).message(b"one\r\n");
    #[expect(clippy::disallowed_methods, reason = "what logrotate does")]
    std::fs::rename(&path, &moved).expect("renamed");
    let before = greeted(server.address()).message(b"two\r\n");
    // The file is there as soon as the reload has tried whether it can be opened; its first line comes when it is in
    // use.
    server.signal(Signal::HUP);
    poll("nothing is written to the new file", || {
        greeted(server.address()).quit();
        std::fs::metadata(&path).is_ok_and(|file| file.len() > 0).then_some(())
    });
    let after = greeted(server.address()).message(b"three\r\n");
    server.stop();
    let (old, new) = (read(&moved), read(&path));
    assert!(old.contains(&first) && old.contains(&before) && new.contains(&after), "{old}\n---\n{new}");
    assert!(!new.contains(&first) && new.contains("stopped daemon"), "{new}");
}

#[test]
fn commands_cannot_forge_lines() {
    let mut server = Setup::new().set("log.level", "10").start();
    let mut client = greeted(server.address());
    client.expect("FROB \x1b[31m\tx, stat=Sent", "500");
    client.quit();
    let line = server.wait_log("reject=500");
    assert!(!line.contains('\x1b') && !line.contains(", stat=Sent"), "{line}");
}

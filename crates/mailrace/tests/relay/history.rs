//! The history: past mail is found by command and over HTTP, also after a kill; a file that cannot be used costs no
//! mail.

use crate::hop::{Act, At, Hop, Manners};
use crate::world::{any_line, ends_empty, killed, relay, send, stopped, wait_line};
use serde_json::Value;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::PathBuf;
use std::process::{Command, Output};
use testkit::harness::{SOON, Server, Setup, needs, poll, text};

const CONTENT: &[u8] = b"Subject: x\r\nMessage-ID: <one@client.test>\r\n\r\nhello\r\n";

fn with_history(setup: Setup) -> Setup {
    let path = setup.path("history.sqlite");
    setup.set("history.path", format!("{:?}", path.display().to_string())).set("http.address", "\"127.0.0.1:0\"")
}

/// A next hop that takes mail to `later@` the second time, and mail to `never@` not at all.
fn choosy() -> Hop {
    let times = std::sync::atomic::AtomicU32::new(0);
    Hop::new(Manners::default().script(move |moment| match moment.at {
        At::Rcpt if moment.line.contains("<never@") => Act::Say("550 5.1.1 no such user here"),
        At::Rcpt
            if moment.line.contains("<later@") && times.fetch_add(1, std::sync::atomic::Ordering::Relaxed) == 0 =>
        {
            Act::Say("451 4.7.1 greylisted")
        }
        _ => Act::Well,
    }))
}

fn ask(server: &Server, words: &[&str]) -> Output {
    server.control(&[&["history"], words].concat(), b"")
}

/// The messages that fit, as JSON.
#[track_caller]
fn found(server: &Server, words: &[&str]) -> Vec<Value> {
    let output = ask(server, &[words, &["--json"]].concat());
    assert!(output.status.success(), "{words:?}: {}", text(&output));
    let lines = String::from_utf8(output.stdout).expect("UTF-8");
    lines.lines().map(|line| serde_json::from_str(line).expect("an object a line")).collect()
}

#[track_caller]
fn ids(server: &Server, words: &[&str]) -> Vec<String> {
    found(server, words).iter().map(|message| message["id"].as_str().expect("an id").to_owned()).collect()
}

/// Waits until a search finds these alone: it waits for the writer by itself, but not for long.
#[track_caller]
fn poll_ids(server: &Server, words: &[&str], wanted: &[&str]) {
    poll(&format!("{words:?}: {wanted:?}"), || (ids(server, words) == wanted).then_some(()));
}

#[track_caller]
fn get(server: &Server, path: &str) -> (u16, String) {
    let address = server.whole_status()["http"].as_str().expect("HTTP is on").to_owned();
    let mut stream = TcpStream::connect(&address).expect("connected");
    stream.set_read_timeout(Some(SOON)).expect("a limit");
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("sent");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("read");
    let status = answer.split(' ').nth(1).and_then(|word| word.parse().ok()).unwrap_or(0);
    (status, answer.split_once("\r\n\r\n").map(|(_, body)| body.to_owned()).unwrap_or_default())
}

#[test]
fn past_mail_is_found_with_every_attempt_also_after_a_kill() {
    let hop = choosy();
    let mut server = with_history(relay(&[&hop])).start();
    let late = send(&server, "ann@client.test", &["later@d.test", "now@d.test"], CONTENT);
    wait_line(&mut server, &["to=<later@d.test>", "stat=Deferred"]);
    wait_line(&mut server, &["to=<later@d.test>", "stat=Sent"]);
    let failed = send(&server, "ann@client.test", &["never@d.test"], CONTENT);
    wait_line(&mut server, &["to=<never@d.test>", "stat=User unknown"]);
    poll_ids(&server, &["to:later@d.test"], &[&late]);
    poll_ids(&server, &["status:failed", "reply~no such user"], &[&failed]);
    assert_eq!(ids(&server, &["to:none@d.test"]), [""; 0], "the control");
    // Messages that a search finds are on the disk.
    let server = killed(server).start();
    let way = &found(&server, &[&late])[0];
    let first = &way["steps"].as_array().expect("steps").iter().find(|one| one["kind"] == "deferred").expect("a try");
    let phases: Vec<&str> =
        first["phases"].as_array().expect("phases").iter().filter_map(|one| one["phase"].as_str()).collect();
    assert!(phases.ends_with(&["connect", "greeting", "ehlo", "mail", "rcpt", "content"]), "{first}");
    let steps = way["steps"].as_array().expect("steps").iter();
    let steps: Vec<(&str, &str)> =
        steps.filter_map(|one| Some((one["kind"].as_str()?, one["reply"].as_str()?))).collect();
    assert!(
        steps.iter().any(|(kind, reply)| *kind == "deferred" && reply.contains("451 4.7.1 greylisted")),
        "{steps:?}"
    );
    assert_eq!(steps.iter().filter(|(kind, _)| *kind == "sent").count(), 2, "{steps:?}");
    assert_eq!((way["status"].as_str(), way["message_id"].as_str()), (Some("sent"), Some("<one@client.test>")));
    let shown = text(&ask(&server, &[&late]));
    assert!(shown.contains(" greeting ") && shown.contains(" rcpt "), "{shown}");
    let shown = text(&ask(&server, &[&failed]));
    assert!(shown.contains("never@d.test") && shown.contains("550 5.1.1 no such user here"), "{shown}");
    let listed = text(&ask(&server, &["after:1h", "greylisted"]));
    assert!(listed.contains(&late) && !listed.contains(&failed), "{listed}");

    let (status, body) = get(&server, "/api/v1/history?expression=status%3Afailed&limit=10");
    assert!(status == 200 && body.contains(&failed) && !body.contains(&late), "{status} {body}");
    let (status, body) = get(&server, &format!("/api/v1/history/messages/{late}"));
    assert!(status == 200 && body.contains("greylisted"), "{status} {body}");
    assert_eq!(get(&server, "/api/v1/history/messages/6AK9BQPE592284").0, 404);
    assert_eq!(get(&server, "/api/v1/history?expression=who:x").0, 400);
    assert!(get(&server, "/api/v1/errors").1.contains("no such user here"), "errors of an earlier run");
    assert!(get(&server, "/metrics").1.contains("\nmailrace_history_dropped_total 0\n"));
    ends_empty(server);
}

#[test]
fn statistics_go_on_where_they_ended() {
    let hop = Hop::good();
    let mut server = with_history(relay(&[&hop])).start();
    for number in 0..5 {
        send(&server, "ann@client.test", &[&format!("r{number}@d.test")], CONTENT);
    }
    wait_line(&mut server, &["to=<r4@d.test>", "stat=Sent"]);
    hop.wait(5);
    poll("all are done", || (server.status("/queue/messages") == 0).then_some(()));
    let (_, setup) = stopped(server);
    let server = setup.start();
    let statistics: Value = serde_json::from_str(&get(&server, "/api/v1/statistics").1).expect("JSON");
    let sent = statistics["columns"].as_array().expect("columns").iter().position(|name| name == "sent").expect("sent");
    let hours = statistics["hours"]["windows"].as_array().expect("windows").iter();
    assert_eq!(hours.filter_map(|window| window[sent].as_u64()).sum::<u64>(), 5);
    assert_eq!(statistics["total"][sent], 0, "since the start");
    let best = statistics["best"].as_array().expect("the best").iter().find(|one| one["seconds"] == 3_600);
    // Mail may have come in the last second of an hour.
    assert!(best.is_some_and(|best| (1..=5).contains(&best["sent"].as_u64().unwrap_or(0))), "{statistics}");
    ends_empty(server);
}

#[test]
fn a_damaged_or_foreign_file_is_put_aside_and_mail_goes_on() {
    for (content, why) in [(vec![0x5a; 50_000], "it is damaged"), (foreign(), "the database of another program")] {
        let hop = Hop::good();
        let setup = with_history(relay(&[&hop]));
        let path = setup.path("history.sqlite");
        std::fs::write(&path, &content).expect("written");
        let mut server = setup.start();
        let line = any_line(&mut server, &["history", why]);
        assert!(line.contains("put aside as") && line.contains("mail goes on"), "{line}");
        let id = send(&server, "ann@client.test", &["bob@d.test"], CONTENT);
        wait_line(&mut server, &["to=<bob@d.test>", "stat=Sent"]);
        poll_ids(&server, &["to:bob@d.test"], &[&id]);
        let aside = std::fs::read_dir(path.parent().expect("a directory")).expect("read").filter_map(Result::ok);
        let aside =
            aside.map(|entry| entry.path()).find(|path| path.display().to_string().contains("history.sqlite.bad-"));
        assert_eq!(std::fs::read(aside.expect("the file aside")).expect("read"), content, "untouched");
        ends_empty(server);
    }
}

/// A database of another program.
fn foreign() -> Vec<u8> {
    // The header of a file of SQLite with one empty table page, whose application is "GPKG".
    let mut bytes = vec![0; 4_096];
    bytes[..16].copy_from_slice(b"SQLite format 3\0");
    bytes[16..24].copy_from_slice(&[0x10, 0, 1, 1, 0, 64, 32, 32]);
    bytes[27] = 1;
    bytes[31] = 1;
    bytes[43] = 1;
    bytes[47] = 4;
    bytes[59] = 1;
    bytes[68..72].copy_from_slice(b"GPKG");
    bytes[95] = 1;
    bytes[100] = 13;
    bytes[105..107].copy_from_slice(&[0x10, 0]);
    bytes
}

/// A file system in memory, of a size, unmounted when this goes.
struct SmallDisk(PathBuf);

impl Drop for SmallDisk {
    fn drop(&mut self) {
        drop(Command::new("umount").arg("-l").arg(&self.0).status());
    }
}

#[test]
fn a_full_disk_costs_entries_and_no_mail() {
    let hop = Hop::good();
    let setup = relay(&[&hop]);
    let small = setup.path("small");
    std::fs::create_dir(&small).expect("made");
    let mounted = Command::new("mount").args(["-t", "tmpfs", "-o", "size=64k", "tmpfs"]).arg(&small).output();
    if !mounted.as_ref().is_ok_and(|output| output.status.success()) {
        return needs::skip("tmpfs", &format!("cannot be mounted here: {mounted:?}"));
    }
    let small = SmallDisk(small);
    let path = small.0.join("history.sqlite").display().to_string();
    let mut server = setup.set("history.path", format!("{path:?}")).start();
    for number in 0..20 {
        let long = format!("{}{number}@d.test", "x".repeat(60));
        send(&server, "ann@client.test", &[&long], CONTENT);
    }
    let line = any_line(&mut server, &["history", "cannot be written"]);
    assert!(line.contains("mail goes on") && line.contains("make room"), "{line}");
    hop.wait(20);
    poll("entries are dropped", || (server.whole_status()["history"]["dropped"].as_u64() > Some(0)).then_some(()));
    ends_empty(server);
}

#[test]
fn without_a_history_the_command_says_what_to_set() {
    let hop = Hop::good();
    let server = relay(&[&hop]).start();
    let output = ask(&server, &[]);
    assert_eq!(output.status.code(), Some(78), "{}", text(&output));
    assert!(text(&output).contains("set history.path"), "{}", text(&output));
    ends_empty(server);
}

//! Text of peers on the operator's terminal: addresses may hold any character (RFC 6531), and none of them may act
//! there.

use std::process::{Command, Output};
use testkit::client::greeted;
use testkit::harness::{Setup, program};

/// One of each kind: turns the order of the line, isolates, is not seen, begins a command to a terminal (C1 CSI), ends
/// a line.
const HOSTILE: &str = "a\u{202e}b\u{2066}c\u{2028}d\u{200b}e\u{feff}f\u{e0041}";

#[track_caller]
fn is_plain(what: &str, output: &Output) {
    for (name, bytes) in [("stdout", &output.stdout), ("stderr", &output.stderr)] {
        let text = String::from_utf8_lossy(bytes);
        let found = text.chars().find(|c| mail::is_unprintable(*c) && !matches!(c, '\n' | '\t'));
        assert_eq!(found, None, "{what}, {name}: {text:?}");
    }
}

#[test]
fn no_command_prints_what_acts_on_a_terminal() {
    let setup = Setup::new();
    let config = setup.write();
    let mut server = setup.start();
    let mut client = greeted(server.address());
    client.expect(&format!("MAIL FROM:<{HOSTILE}@client.test> SMTPUTF8"), "250");
    client.expect(&format!("RCPT TO:<{HOSTILE}@example.com>"), "250");
    client.data(b"Subject: x\r\n\r\nx\r\n");
    let line = server.wait_log("from=<a");
    assert!(line.contains("\\342\\200\\256") && !line.contains(mail::is_unprintable), "{line:?}");
    let line = server.wait_log("stat=queued");
    assert!(!line.contains(mail::is_unprintable), "{line:?}");
    let list = server.control(&["queue", "list"], b"");
    assert!(String::from_utf8_lossy(&list.stdout).contains("a?b?c?d?e?f?@"), "{list:?}");
    let json = server.control(&["queue", "list", "--json"], b"");
    let told: serde_json::Value =
        serde_json::from_slice(json.stdout.split(|byte| *byte == b'\n').next().expect("a line")).expect("JSON");
    assert_eq!(told["from"], format!("{HOSTILE}@client.test"), "the value is the same");
    let id = told["id"].as_str().expect("an id").to_owned();
    let sender = format!("{HOSTILE}@client.test");
    let commands: [&[&str]; 11] = [
        &["stats", "mail"],
        &["stats", "day"],
        &["stats", "batch"],
        &["stats", "late"],
        &["stats", "queue"],
        &["queue", "list"],
        &["queue", "show", &id],
        &["queue", "destinations"],
        &["queue", "stragglers", "--older", "0s"],
        &["status"],
        &["queue", "hold", "--from", &sender, "--dry-run"],
    ];
    for command in commands {
        for json in [false, true] {
            let command: Vec<&str> = command.iter().copied().chain(json.then_some("--json")).collect();
            is_plain(&command.join(" "), &server.control(&command, b""));
        }
    }
    let mailq = server.setup.path("mailq");
    std::os::unix::fs::symlink(program().get_program(), &mailq).expect("a link");
    let output = Command::new(mailq).arg("-C").arg(&config).output().expect("it runs");
    assert!(String::from_utf8_lossy(&output.stdout).contains(&id), "{output:?}");
    is_plain("mailq", &output);
    let address = format!("{HOSTILE}@example.com");
    let mut route = program();
    route.args(["route", "--from", &address, &address, "--config"]).arg(&config);
    is_plain("route", &route.output().expect("it runs"));
    route.arg("--json");
    is_plain("route --json", &route.output().expect("it runs"));
}

//! `mailrace stats test`, also called mailtest: the time to the `250`, and until a message lies in a mailbox.

use crate::hop::Hop;
use crate::world::{ends_empty, relay};
use serde_json::Value;
use std::fs::OpenOptions;
use std::io::Write as _;
use std::path::Path;
use std::process::{Command, Output};
use testkit::harness::{Server, program, program_path, text};

/// Runs it on a server; the status, and both outputs in one.
fn probe(command: &mut Command, server: &Server, words: &[&str]) -> (Option<i32>, String) {
    command.args(["--to", &server.address().to_string(), "--from", "probe@client.test"]);
    let output: Output = command.args(words).output().expect("it runs");
    (output.status.code(), text(&output))
}

fn stats_test() -> Command {
    let mut command = program();
    command.args(["stats", "test"]);
    command
}

/// Puts mail of a next hop into a mailbox, as the host of a list's member does: an mbox file, or a Maildir.
fn bring(hop: &Hop, from: usize, to: usize, mailbox: &Path) {
    for number in from..to {
        let mails = hop.wait(number + 1);
        let content = &mails[number].content;
        if mailbox.is_dir() {
            // Whole at once, as each program writes to a Maildir.
            let written = mailbox.join(number.to_string());
            std::fs::write(&written, content).expect("written");
            std::fs::hard_link(&written, mailbox.join("new").join(number.to_string())).expect("linked");
            continue;
        }
        let mut file = OpenOptions::new().append(true).create(true).open(mailbox).expect("open");
        file.write_all(&[b"From probe@client.test\n", &content[..], b"\n"].concat()).expect("written");
    }
}

#[test]
fn a_round_trip_ends_in_the_mailbox() {
    let hop = Hop::good();
    let server = relay(&[&hop]).start();
    let (mbox, maildir) = (server.setup.path("ann"), server.setup.path("bob"));
    std::fs::create_dir_all(maildir.join("new")).expect("made");
    let [ann, bob] = [&mbox, &maildir].map(|path| path.to_str().expect("UTF-8"));
    let words = ["-n", "3", "--mailbox", ann, "--mailbox", bob, "list@d.test", "bob@d.test"];
    let (status, said) = std::thread::scope(|scope| {
        scope.spawn(|| {
            bring(&hop, 0, 3, &mbox);
            bring(&hop, 3, 6, &maildir);
        });
        probe(stats_test().arg("--json"), &server, &words)
    });
    assert_eq!(status, Some(0), "{said}");
    let report: Value = serde_json::from_str(&said).expect("JSON");
    for (index, address) in ["list@d.test", "bob@d.test"].into_iter().enumerate() {
        let times = &report["addresses"][index];
        assert_eq!((&times["address"], &times["sent"]), (&address.into(), &3.into()), "{report}");
        let seconds = |key: &str| -> Vec<f64> {
            times[key].as_array().expect("a list").iter().map(|one| one.as_f64().expect("a number")).collect()
        };
        let (accepted, arrived) = (seconds("accepted"), seconds("arrived"));
        assert_eq!((accepted.len(), arrived.len()), (3, 3), "{report}");
        assert!(accepted.iter().zip(&arrived).all(|(one, other)| *one > 0.0 && one <= other), "{report}");
    }
    assert!(report["messages_an_hour"].as_u64() > Some(0), "{report}");
    ends_empty(server);
    assert_eq!(hop.count(), 6);
}

#[test]
fn a_message_that_is_refused_or_does_not_arrive_is_named() {
    let hop = Hop::good();
    let server = relay(&[&hop]).set("message.size_max", "\"8KiB\"").start();
    let (status, said) = probe(&mut stats_test(), &server, &["x@d.test"]);
    assert_eq!(status, Some(0), "{said}");
    assert!(
        said.contains("1 message to each address\n") && said.contains(" messages an hour, if each waits"),
        "{said}"
    );
    let (status, said) = probe(&mut stats_test(), &server, &["--size", "20k", "x@d.test"]);
    assert_eq!(status, Some(75), "{said}");
    assert!(said.contains("552 5.3.4 "), "{said}");
    let none = server.setup.path("none");
    let (status, said) =
        probe(&mut stats_test(), &server, &["--wait", "1", "--mailbox", none.to_str().expect("UTF-8"), "x@d.test"]);
    assert_eq!(status, Some(75), "{said}");
    assert!(said.contains("/none after 1 s\n"), "{said}");
    let (status, said) = probe(&mut stats_test(), &server, &["--mailbox", "a", "--mailbox", "b", "x@d.test"]);
    assert_eq!(status, Some(64), "{said}");
    assert!(said.contains("2 mailboxes for 1 addresses; name one for all, or one for each"), "{said}");
    let output = stats_test().args(["--to", "192.0.2.1:25", "x@d.test"]).output().expect("it runs");
    assert_eq!(output.status.code(), Some(64), "{}", text(&output));
    assert!(text(&output).contains("--i-own-this-host"), "{}", text(&output));
    // By the name of the source's tool.
    let link = server.setup.path("mailtest");
    std::os::unix::fs::symlink(program_path(), &link).expect("a link");
    let (status, said) = probe(&mut Command::new(link), &server, &["x@d.test"]);
    assert!(status == Some(0) && said.starts_with("mailtest: 127.0.0.1:"), "{said}");
}

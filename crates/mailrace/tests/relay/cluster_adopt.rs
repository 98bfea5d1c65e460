//! `mailrace cluster adopt` with real engines: a node that does not hold the copies adopts them at once, a node that
//! runs keeps its mail, and mail at a holder that is away is named and adopted later.

use crate::cluster::{came, deferring, three};
use crate::hop::{Hop, Manners};
use crate::world::{killed, send, waiting};
use rustix::process::Signal;
use serde_json::Value;
use std::process::Output;
use testkit::harness::{Server, poll, text};

fn adopt(server: &Server, arguments: &[&str]) -> Output {
    let command: Vec<&str> = ["cluster", "adopt"].into_iter().chain(arguments.iter().copied()).collect();
    server.control(&command, b"")
}

/// Sends messages that cannot be delivered yet; their subjects are m0, m1 and so on.
fn send_some(server: &Server, messages: usize) {
    for number in 0..messages {
        let content = format!("Subject: m{number}\r\n\r\nbody\r\n");
        send(server, "a@client.test", &["later@x.test"], content.as_bytes());
    }
}

/// The nodes other than the first: the one with most of its copies, and the third.
fn holder_and_third(first: &Server) -> (usize, usize) {
    let status = first.whole_status();
    let streams = status["cluster"]["streams"].as_array().cloned().unwrap_or_default();
    let most = streams.iter().max_by_key(|stream| stream["messages"].as_u64());
    let holder = most.and_then(|stream| stream["holder"].as_u64()).expect("a holder");
    if holder == 2 { (2, 3) } else { (3, 2) }
}

/// Has a node adopt the mail of node 1 when the entry of that one is gone; the output of the command.
fn adopted_once_absent(server: &Server) -> Output {
    poll("node 1 counts as absent", || {
        let output = adopt(server, &["--node", "1"]);
        // Engines that lost one choose a leader anew.
        let reasons = ["it runs (\"mx1.test\")", "no majority of the engines answers"];
        let is_refused = reasons.iter().any(|reason| text(&output).contains(reason));
        assert!(!is_refused || output.status.code() == Some(75), "{}", text(&output));
        (!is_refused).then_some(output)
    })
}

fn subjects(hop: &Hop) -> Vec<usize> {
    came(hop).into_iter().filter(|(name, _)| name.starts_with('m')).map(|(_, count)| count).collect()
}

#[test]
fn a_node_that_is_not_the_holder_adopts_by_hand_and_a_node_that_runs_keeps_its_mail() {
    let hop = Hop::new(deferring());
    let Some((_engines, mut servers)) = three(&hop) else { return };
    let output = adopt(&servers[1], &[]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(text(&output).contains("no node with mail is absent, as node 2 sees it"), "{}", text(&output));
    for (node, part) in [("1", "drain it"), ("2", "ask another node"), ("9", "no node has copies of")] {
        let output = adopt(&servers[1], &["--node", node]);
        assert!(output.status.code() == Some(75) && text(&output).contains(part), "{}", text(&output));
    }
    send_some(&servers[0], 20);
    let (holder, third) = holder_and_third(&servers[0]);
    // Its engine goes on, and its process cannot adopt.
    servers[holder - 1].signal(Signal::STOP);
    servers[0].kill();
    hop.behave(Manners::default());
    let output = adopted_once_absent(&servers[third - 1]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    assert!(text(&output).contains("adopted 20 messages of node 1 in "), "{}", text(&output));
    poll("the mail of the dead node", || (subjects(&hop).len() == 20).then_some(()));
    let output = adopt(&servers[third - 1], &["--json", "--dry-run", "--node", "1"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let answer: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let streams = answer["nodes"][0]["streams"].as_array().cloned().unwrap_or_default();
    let is_adopted = |stream: &Value| stream["state"] == "adopted" && stream["by"] == third;
    assert!(streams.iter().any(|stream| stream["holder"] == holder && is_adopted(stream)), "{answer}");

    servers[holder - 1].signal(Signal::CONT);
    let adopted = |server: &Server| server.log.iter().filter(|line| line.contains(": adopted=")).count();
    poll("a line for each message", || {
        servers[third - 1].pass_over();
        (adopted(&servers[third - 1]) >= 20).then_some(())
    });
    let log = &servers[third - 1].log;
    assert_eq!(adopted(&servers[third - 1]), 20, "{log:#?}");
    assert!(log.iter().any(|line| line.contains("the mail of node 1 is adopted here by hand, as user ")), "{log:#?}");
    let back = killed(servers.remove(0)).start();
    for server in servers.iter().chain([&back]) {
        poll("an empty queue", || (waiting(server) == 0).then_some(()));
    }
    assert_eq!(subjects(&hop), [1; 20], "each once");
}

#[test]
fn mail_at_a_holder_that_is_away_is_named_and_adopted_when_the_holder_is_back() {
    let hop = Hop::new(deferring());
    let Some((mut engines, mut servers)) = three(&hop) else { return };
    send_some(&servers[0], 5);
    let (holder, third) = holder_and_third(&servers[0]);
    servers[0].kill();
    engines[holder - 1].kill();
    hop.behave(Manners::default());
    let output = adopted_once_absent(&servers[third - 1]);
    assert_eq!(output.status.code(), Some(75), "{}", text(&output));
    let left = format!("the engine of node {holder} does not answer; next: start it, or start node 1");
    assert!(text(&output).contains(&format!("left: copies at node {holder}")), "{}", text(&output));
    assert!(text(&output).contains(&left), "{}", text(&output));
    let output = adopt(&servers[third - 1], &[]);
    assert!(output.status.code() == Some(75) && text(&output).contains(&left), "{}", text(&output));
    assert!(subjects(&hop).is_empty());

    engines[holder - 1].restart();
    poll("all mail of the dead node is adopted", || {
        (adopt(&servers[third - 1], &["--node", "1"]).status.code() == Some(0)).then_some(())
    });
    poll("the mail of the dead node", || (subjects(&hop).len() == 5).then_some(()));
    let back = killed(servers.remove(0)).start();
    for server in servers.iter().chain([&back]) {
        poll("an empty queue", || (waiting(server) == 0).then_some(()));
    }
    assert_eq!(subjects(&hop), [1; 5], "each once");
}

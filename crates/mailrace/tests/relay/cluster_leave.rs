//! `mailrace cluster leave` with real engines: a node leaves and its engine stops, a dead one is removed, and a node
//! whose mail no other one can take is refused.

use crate::cluster::{came, deferring, holders_have_all, node, reply_to, sees_both_others, takes_copies};
use crate::hop::{Hop, Manners};
use crate::world::{killed, send, waiting};
use serde_json::Value;
use std::process::Output;
use testkit::harness::{Server, Setup, poll, program, text};
use testkit::nats::{Nats, Options};

/// A node with a limit of its next hop that all nodes keep together.
fn limited(hop: &Hop, engines: &[Nats], number: usize) -> Setup {
    let rule = format!("[{{ match = [\"hop:{}\"], connections = 6 }}]", hop.name());
    node(hop, engines, number).set("destination", rule)
}

/// Three nodes and their engines, which see each other.
fn three(hop: &Hop) -> Option<(Vec<Nats>, Vec<Server>)> {
    let engines = Nats::cluster(3, &Options::default())?;
    let servers: Vec<Server> = (1..=3).map(|number| limited(hop, &engines, number).start()).collect();
    servers.iter().for_each(takes_copies);
    servers.iter().for_each(sees_both_others);
    Some((engines, servers))
}

/// Sends messages to all nodes in turn: one recipient of each gets it now, one is deferred.
fn send_many(servers: &[Server], count: usize) {
    for number in 0..count {
        let content = format!("Subject: m{number}\r\n\r\nbody\r\n");
        send(&servers[number % servers.len()], "a@client.test", &["later@x.test", "now@x.test"], content.as_bytes());
    }
}

fn poll_deliveries(hop: &Hop, count: usize, times: usize) {
    poll("all deliveries that can be", || {
        let came = came(hop);
        (0..count).all(|number| came.get(&format!("m{number}")).is_some_and(|found| *found >= times)).then_some(())
    });
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).unwrap_or_else(|error| panic!("{error}: {}", text(output)))
}

/// `mailrace cluster leave --node` with the configuration of this server.
fn remove(server: &Server, arguments: &[&str]) -> Output {
    let mut command = program();
    command.args(["cluster", "leave", "--config"]).arg(server.setup.path("mailrace.toml")).args(arguments);
    command.output().expect("it runs")
}

fn departed(server: &Server) -> Value {
    server.whole_status().pointer("/cluster/departed").cloned().unwrap_or_default()
}

#[test]
fn a_node_that_leaves_gives_mail_copies_and_limits_to_the_others() {
    let hop = Hop::new(deferring());
    let Some((mut engines, mut servers)) = three(&hop) else { return };
    send_many(&servers, 60);
    poll_deliveries(&hop, 60, 1);
    let output = servers[2].control(&["cluster", "leave", "--json"], b"");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output));
    let left = json(&output);
    assert_eq!((&left["step"], &left["node"]), (&"left".into(), &3.into()), "{left}");
    assert_eq!((&left["staying"], &left["problems"]), (&0.into(), &Value::Array(Vec::new())), "{left}");
    assert_eq!(left["copies"], Value::Array(Vec::new()), "the others have copied their mail elsewhere: {left}");
    assert!(left["messages"].as_u64() >= Some(20) && left["limits"].as_u64() >= Some(1), "{left}");
    let ended = servers.remove(2).ended();
    assert!(ended.status.success(), "{ended:?}");
    // Nothing of the cluster needs its engine.
    engines[2].kill();
    hop.behave(Manners::default());
    poll_deliveries(&hop, 60, 2);
    for server in &servers {
        poll("an empty queue", || (waiting(server) == 0).then_some(()));
        let cluster = poll("no stream at the node that left", || {
            let cluster = server.whole_status()["cluster"].take();
            let holders = cluster["streams"].as_array()?.iter().map(|one| one["holder"].clone());
            let holders: Vec<Value> = holders.collect();
            let is_seen = !holders.contains(&3.into()) && holders.len() == 1 && !cluster["departed"][0].is_null();
            // Engines that lost one may choose a leader anew.
            (is_seen && cluster["state"] != "alone").then_some(cluster)
        });
        assert_eq!(cluster["departed"], serde_json::json!([{ "node": 3, "messages": 0, "empty": true }]), "{cluster}");
        assert_eq!(
            (&cluster["hostages"], &cluster["state"]),
            (&Value::Array(Vec::new()), &"member".into()),
            "{cluster}"
        );
        assert!(reply_to(server, b"Subject: after\r\n\r\n").starts_with("250"));
    }
    let twice: Vec<_> = came(&hop).into_iter().filter(|(name, times)| name.starts_with('m') && *times != 2).collect();
    assert!(twice.is_empty(), "a planned exit repeats nothing: {twice:?}");
    // The next one would leave a node alone.
    let output = servers[1].control(&["cluster", "leave"], b"");
    assert_eq!(output.status.code(), Some(75), "{}", text(&output));
    assert!(text(&output).contains("too few nodes would be left: 1"), "{}", text(&output));
    assert_eq!(servers[1].whole_status()["cluster"]["state"], "member", "nothing was changed");
}

#[test]
fn a_dead_node_is_removed_once_its_mail_is_with_others_and_joins_again_when_it_returns() {
    let hop = Hop::new(deferring());
    let Some((_engines, mut servers)) = three(&hop) else { return };
    send_many(&servers, 30);
    poll_deliveries(&hop, 30, 1);
    for server in &servers {
        poll("only what is deferred is left", || (waiting(server) == 10).then_some(()));
    }
    // Their ends reach the holders within a tenth of a second, and are due at least every few seconds.
    testkit::harness::pause(std::time::Duration::from_secs(1));
    servers.iter().for_each(holders_have_all);
    let output = remove(&servers[0], &["--node", "3", "--force"]);
    assert_eq!(output.status.code(), Some(75), "a node that runs stays, also by force: {}", text(&output));
    assert!(text(&output).contains("node 3 (mx3.test) runs"), "{}", text(&output));
    let output = remove(&servers[0], &["--node", "9"]);
    assert_eq!(output.status.code(), Some(66), "{}", text(&output));
    servers[2].kill();
    let removed = poll("the node can be removed", || {
        let output = remove(&servers[0], &["--node", "3", "--json"]);
        match output.status.code() {
            Some(0) => Some(json(&output)),
            Some(75) => {
                assert_eq!(json(&output)["removed"], false, "{}", text(&output));
                None
            }
            _ => panic!("{}", text(&output)),
        }
    });
    assert!(removed["limits"].as_u64() >= Some(1) && removed["waiting"] == Value::Array(Vec::new()), "{removed}");
    for server in &servers[..2] {
        poll("a node that has left", || {
            let departed = departed(server);
            (departed.pointer("/0/node") == Some(&3.into())).then(|| assert_eq!(departed[0]["empty"], false))
        });
    }
    let dead = servers.remove(2);
    let back = killed(dead).start();
    for server in &servers {
        poll("the node joins again", || (departed(server) == Value::Array(Vec::new())).then_some(()));
    }
    hop.behave(Manners::default());
    poll_deliveries(&hop, 30, 2);
    for server in servers.iter().chain([&back]) {
        poll("an empty queue", || (waiting(server) == 0).then_some(()));
    }
    let twice: Vec<_> = came(&hop).into_iter().filter(|(name, times)| name.starts_with('m') && *times > 2).collect();
    assert!(twice.is_empty(), "it drops the mail that others have taken: {twice:?}");
}

#[test]
fn mail_that_no_other_node_takes_stays_on_the_disk_by_force_alone() {
    let hop = Hop::good();
    let Some(engines) = Nats::start(&Options::default()).map(|one| vec![one]) else { return };
    let setup = node(&hop, &engines, 1).listen("on_no_replica = \"accept_local\"").set("delivery.mode", "\"queue\"");
    let server = setup.start();
    poll("a node that takes part", || (server.whole_status()["cluster"]["state"] == "member").then_some(()));
    let id = send(&server, "a@client.test", &["b@x.test"], b"Subject: alone\r\n\r\n");
    let output = server.control(&["cluster", "leave", "--json"], b"");
    assert_eq!(output.status.code(), Some(75), "{}", text(&output));
    assert!(text(&output).contains("too few nodes would be left: none"), "{}", text(&output));
    let output = server.control(&["cluster", "leave", "--force"], b"");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output));
    let shown = text(&output);
    assert!(shown.contains("node 1 has left the cluster") && shown.contains(&id), "{shown}");
    assert!(shown.contains("keep this disk") && shown.contains("mailrace cluster verify"), "{shown}");
    let mut server = server;
    let setup = std::mem::replace(&mut server.setup, Setup::new());
    assert!(server.ended().status.success());
    let server = setup.set("delivery.mode", "\"background\"").start();
    poll("the message that stayed", || (hop.count() == 1).then_some(()));
    poll("it takes part again", || (server.whole_status()["cluster"]["state"] == "member").then_some(()));
}

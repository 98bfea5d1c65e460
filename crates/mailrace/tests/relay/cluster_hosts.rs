//! Nodes of a cluster with real engines: a dead host costs the connections of the node that finds it, and no others.

use crate::hop::{Act, At, Hop, Manners};
use crate::world::{any_line, by_literal, retrying, send};
use serde_json::Value;
use std::time::Duration;
use testkit::client::greeted;
use testkit::harness::{Server, Setup, pause, poll, text};
use testkit::nats::{Nats, Options};

const CONTENT: &[u8] = b"Subject: x\r\n\r\nhello\r\n";
const SENDER: &str = "a@client.test";

/// A host that does this to each new connection.
fn dead(act: Act) -> Manners {
    Manners::default().script(move |moment| if moment.at == At::Greeting { act.clone() } else { Act::Well })
}

/// A node whose back-off begins with a minute.
fn node(hops: &[Hop], engines: &[Nats], number: usize) -> Setup {
    let own = &engines[number - 1];
    let others = engines.iter().filter(|other| other.port != own.port);
    let addresses: Vec<String> = std::iter::once(own).chain(others).map(|one| format!("{:?}", one.address())).collect();
    retrying(by_literal(hops), "10m")
        // Only a host that hangs takes so long, on a busy machine too.
        .set("delivery.fast_greeting_time", "\"4s\"")
        .set("hostname", format!("\"mx{number}.test\""))
        .set("cluster.id", "\"00112233445566778899aabbccddeeff\"")
        .set("cluster.node", number.to_string())
        .set("cluster.engines", format!("[{}]", addresses.join(", ")))
        .set("cluster.monitor", format!("\"127.0.0.1:{}\"", own.monitor_port))
}

/// A host that works, one that closes its connections and one that is silent; engines, and nodes that have delivered to
/// the first: a node tells of others only while its network works.
struct TwoNodes {
    hops: Vec<Hop>,
    _engines: Vec<Nats>,
    servers: Vec<Server>,
}

impl TwoNodes {
    fn new(change: impl Fn(usize, Setup) -> Setup) -> Option<Self> {
        let hops = Hop::neighbours(vec![Manners::default(), dead(Act::Close), dead(Act::Hang)]);
        let engines = Nats::cluster(3, &Options::default())?;
        let servers: Vec<Server> =
            (1..=2).map(|number| change(number, node(&hops, &engines, number)).start()).collect();
        for server in &servers {
            poll("a node that copies mail", || takes_mail(server, &hops[0]).then_some(()));
        }
        hops[0].wait(2);
        Some(Self { hops, _engines: engines, servers })
    }

    /// Sends a message to each dead host; their queue ids.
    fn send(&self, node: usize) -> Vec<String> {
        let server = &self.servers[node - 1];
        self.hops[1..].iter().map(|hop| send(server, SENDER, &[&hop.mailbox("b")], CONTENT)).collect()
    }

    /// Has node 1 find both hosts dead, and waits until node 2 knows. Returns the connections that it took.
    fn find_dead(&self) -> [usize; 2] {
        self.send(1);
        poll("node 2 hears of both hosts", || (reported(&self.servers[1]).len() == 2).then_some(()));
        self.connections()
    }

    /// Connections to the dead hosts.
    fn connections(&self) -> [usize; 2] {
        [self.hops[1].connections(), self.hops[2].connections()]
    }

    fn retry(&self, node: usize) {
        let output = self.servers[node - 1].control(&["queue", "retry", "--all"], b"");
        assert!(output.status.success(), "{}", text(&output));
    }
}

/// Whether a node takes a message for a host, with its copy.
fn takes_mail(server: &Server, hop: &Hop) -> bool {
    let mut client = greeted(server.address());
    client.expect(&format!("MAIL FROM:<{SENDER}>"), "250");
    client.expect(&format!("RCPT TO:<{}>", hop.mailbox("b")), "250");
    client.expect("DATA", "354");
    client.send(CONTENT);
    client.send(b".\r\n");
    client.reply().starts_with("250")
}

/// The reports of other nodes, as `mailrace cluster status` has them.
fn reported(server: &Server) -> Vec<Value> {
    let status = server.whole_status();
    status["cluster"]["hosts"]["reported"].as_array().cloned().unwrap_or_default()
}

#[test]
fn a_dead_host_costs_the_connections_of_one_node_and_up_sends_the_mail_of_all() {
    let Some(mut world) = TwoNodes::new(|_, setup| setup) else { return };
    let found = world.find_dead();
    assert!(found.iter().all(|count| *count > 0), "{found:?}");
    let of_node_1 = |report: &Value| report["node"] == 1 && report["state"] == "down";
    assert!(reported(&world.servers[1]).iter().all(of_node_1), "{:?}", reported(&world.servers[1]));
    let ids = world.send(2);
    for (id, hop) in ids.iter().zip(&world.hops[1..]) {
        let deferred = "stat=Deferred: node 1 reports this host down";
        any_line(&mut world.servers[1], &[id, &hop.mailbox("b"), "dsn=4.", deferred]);
        let why = text(&world.servers[1].control(&["why", id], b""));
        assert!(why.contains("node 1 reports this host down") && why.contains("queue retry"), "{why}");
    }
    let listed = world.servers[1].control(&["queue", "destinations"], b"");
    assert!(text(&listed).contains("no attempt before that, by the report of node 1"), "{}", text(&listed));
    let status = text(&world.servers[1].control(&["cluster", "status"], b""));
    assert!(status.contains(": down, says node 1; no attempt here for "), "{status}");
    // Far shorter than the back-off of node 1, and far longer than an attempt.
    pause(Duration::from_secs(3));
    assert_eq!(world.connections(), found, "node 2 makes none of its own");
    assert_eq!(world.servers[1].whole_status()["cluster"]["hosts"]["waiting"], 2);

    for hop in &world.hops[1..] {
        hop.behave(Manners::default());
    }
    world.retry(1);
    for hop in &world.hops[1..] {
        any_line(&mut world.servers[1], &["cluster: node 1 reports ", &hop.ip(), " up: its mail goes on"]);
        hop.wait(2);
    }
    poll("node 2 forgets the reports", || reported(&world.servers[1]).is_empty().then_some(()));
}

#[test]
fn without_host_status_a_node_finds_out_by_itself() {
    let alone = |number, setup: Setup| if number == 2 { setup.set("cluster.host_status", "false") } else { setup };
    let Some(world) = TwoNodes::new(alone) else { return };
    world.send(1);
    poll("node 1 tries both", || world.connections().iter().all(|count| *count > 0).then_some(()));
    // Node 1 gives the silent one up after four seconds.
    pause(Duration::from_secs(8));
    assert!(world.servers[1].whole_status()["cluster"].get("hosts").is_none());
    let found = world.connections();
    world.send(2);
    let is_more = |[one, two]: [usize; 2]| one > found[0] && two > found[1];
    poll("node 2 tries both", || is_more(world.connections()).then_some(()));
}

#[test]
fn an_operator_has_a_reported_host_tried_at_once() {
    let Some(mut world) = TwoNodes::new(|_, setup| setup) else { return };
    let found = world.find_dead();
    for id in world.send(2) {
        any_line(&mut world.servers[1], &[&id, "stat=Deferred: node 1 reports this host down"]);
    }
    world.servers[1].rests();
    pause(Duration::from_secs(2));
    assert_eq!(world.connections(), found);
    world.retry(2);
    let more = found.map(|count| count + 1);
    poll("attempts of node 2", || (world.connections() == more).then_some(()));
    // Other mail of node 2 goes as ever.
    send(&world.servers[1], SENDER, &[&world.hops[0].mailbox("b")], CONTENT);
    world.hops[0].wait(3);
}

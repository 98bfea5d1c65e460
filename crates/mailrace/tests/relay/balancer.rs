//! The agent check of balancers: free places, drain and down, as a client reads them and as HAProxy acts on them with
//! the configuration of docs/cluster.md.

use crate::cluster::{node, takes_copies};
use crate::hop::{Hop, Manners};
use rustix::process::Signal;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use testkit::client::{Plain, greeted};
use testkit::harness::{SOON, Server, Setup, needs, poll, text};
use testkit::nats::{Nats, Options, free_ports};

/// Places of a server.
const PLACES: usize = 10;

fn with_agent(setup: Setup) -> Setup {
    setup.set("http.agent_address", "\"127.0.0.1:0\"").set("accept.connections_max", PLACES.to_string())
}

/// The address of the agent check, by the log.
fn agent_of(server: &mut Server) -> SocketAddr {
    let line = server.wait_log("protocol=agent-check");
    let address = line.split("address=").nth(1).and_then(|rest| rest.split(',').next());
    address.and_then(|address| address.trim().parse().ok()).unwrap_or_else(|| panic!("{line}"))
}

/// All that a connection to the agent check gets.
#[track_caller]
fn line_of(agent: SocketAddr) -> String {
    let mut stream = TcpStream::connect(agent).expect("it listens");
    stream.set_read_timeout(Some(SOON)).expect("set");
    let mut line = String::new();
    stream.read_to_string(&mut line).expect("a line and the end");
    line
}

#[track_caller]
fn poll_line(agent: SocketAddr, wanted: &str) {
    poll(wanted, || (line_of(agent) == wanted).then_some(()));
}

#[test]
fn free_places_are_those_of_the_moment() {
    let mut server = with_agent(Setup::new()).start();
    let agent = agent_of(&mut server);
    assert_eq!(line_of(agent), "ready up 100%\n");
    let mut open: Vec<Plain> = Vec::new();
    for count in 1..=PLACES {
        open.push(greeted(server.address()));
        let wanted = format!("ready up {}%\n", (100 - 10 * count).max(1));
        assert_eq!(line_of(agent), wanted, "{count} connections");
    }
    open.truncate(3);
    poll_line(agent, "ready up 70%\n");
    drop(open);
    poll_line(agent, "ready up 100%\n");
    // A client that stays for long keeps nobody else waiting, and one that says something gets the line all the same.
    let idle = TcpStream::connect(agent).expect("it listens");
    let mut telling = TcpStream::connect(agent).expect("it listens");
    telling.write_all(b"GET / HTTP/1.0\r\n\r\n").expect("sent");
    assert_eq!(line_of(agent), "ready up 100%\n");
    drop(idle);
}

#[test]
fn a_server_that_ends_says_drain_while_sessions_are_open() {
    let mut server = with_agent(Setup::new()).start();
    let agent = agent_of(&mut server);
    let mut session = greeted(server.address());
    session.envelope();
    session.expect("DATA", "354");
    server.signal(Signal::TERM);
    poll_line(agent, "drain\n");
    session.send(b"Subject: open\r\n\r\nbody\r\n.\r\n");
    assert!(session.reply().starts_with("250"));
    assert!(server.ended().status.success());
    assert!(TcpStream::connect(agent).is_err(), "nobody listens any more");
}

#[test]
fn a_node_that_is_drained_says_drain_before_it_refuses_sessions() {
    let hop = Hop::new(Manners::default());
    let Some(engines) = Nats::cluster(3, &Options::default()) else { return };
    let mut servers: Vec<Server> = (1..=3)
        .map(|number| with_agent(node(&hop, &engines, number)).set("cluster.drain_grace", "\"1m\"").start())
        .collect();
    servers.iter().for_each(takes_copies);
    let agents: Vec<SocketAddr> = servers.iter_mut().map(agent_of).collect();
    for agent in &agents {
        poll_line(*agent, "ready up 100%\n");
    }
    let open = greeted(servers[0].address());
    let output = servers[0].control(&["cluster", "drain"], b"");
    assert!(output.status.success(), "{}", text(&output));
    // Within cluster.drain_grace new sessions are still served.
    poll_line(agents[0], "drain\n");
    let late = greeted(servers[0].address());
    drop((open, late));
    assert_eq!(line_of(agents[1]), "ready up 100%\n", "the other nodes take mail");
}

#[test]
fn a_node_whose_mail_gets_no_copy_says_down_and_why() {
    let hop = Hop::good();
    let Some(engines) = Nats::start(&Options::default()).map(|one| vec![one]) else { return };
    let mut server = with_agent(node(&hop, &engines, 1)).start();
    let agent = agent_of(&mut server);
    let line = line_of(agent);
    assert!(line.starts_with("down #") && line.ends_with('\n') && line.lines().count() == 1, "{line}");
    poll_line(agent, "down #no other node takes copies of mail: see mailrace cluster status\n");
    let setup = server.stop_for_setup().listen("on_no_replica = \"accept_local\"");
    let mut server = setup.start();
    poll_line(agent_of(&mut server), "ready up 100%\n");
}

/// HAProxy with the configuration of docs/cluster.md in front of two servers. It is killed when its value is dropped.
struct Balancer {
    child: Child,
    dir: tempfile::TempDir,
    port: u16,
}

impl Drop for Balancer {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Balancer {
    /// Starts it; only addresses and ports of the page are replaced.
    fn start(program: &Path, servers: &mut [Server]) -> Self {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/cluster.md");
        let page = std::fs::read_to_string(page).expect("the page");
        let block = page.split("```\n").find(|block| block.starts_with("listen smtp\n")).expect("HAProxy in the page");
        let dir = tempfile::tempdir().expect("a directory");
        let [port] = free_ports();
        let mut text = format!(
            "global\n  stats socket {} mode 600\ndefaults\n  timeout connect 5s\n  timeout client 60s\n  timeout server 60s\n",
            dir.path().join("stats").display()
        );
        let mut left = servers.iter_mut();
        for line in block.lines() {
            match line.trim().split_once(' ') {
                Some(("bind", _)) => text.push_str(&format!("  bind 127.0.0.1:{port}\n")),
                Some(("server", rest)) => {
                    let server = left.next().expect("as many servers as in the page");
                    let name = rest.split(' ').next().expect("a name");
                    let health: SocketAddr =
                        server.whole_status()["http"].as_str().expect("HTTP").parse().expect("an address");
                    let ports = format!("port {} agent-port {}", health.port(), agent_of(server).port());
                    text.push_str(&format!("  server {name} {} {ports}\n", server.addresses[0]));
                }
                _ => text.push_str(&format!("{line}\n")),
            }
        }
        let file = dir.path().join("haproxy.cfg");
        std::fs::write(&file, text).expect("written");
        let mut command = Command::new(program);
        command.arg("-f").arg(&file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().expect("it runs");
        Self { child, dir, port }
    }

    /// Status and weight of a server, as HAProxy shows them.
    fn server(&self, name: &str) -> Option<(String, u32)> {
        let mut socket = UnixStream::connect(self.dir.path().join("stats")).ok()?;
        socket.write_all(b"show stat\n").ok()?;
        let mut table = String::new();
        socket.read_to_string(&mut table).ok()?;
        let mut lines = table.lines();
        let names: Vec<&str> = lines.next()?.trim_start_matches("# ").split(',').collect();
        let at = |column: &str| names.iter().position(|one| *one == column).expect("a column");
        let row: Vec<&str> =
            lines.map(|line| line.split(',').collect::<Vec<_>>()).find(|row| row[at("svname")] == name)?;
        Some((row[at("status")].to_owned(), row[at("weight")].parse().expect("a number")))
    }

    #[track_caller]
    fn poll_server(&self, name: &str, status: &str, weight: u32) {
        poll(&format!("{name} {status} {weight}: {:?}", self.server(name)), || {
            self.server(name).filter(|(found, has)| found.starts_with(status) && *has == weight).map(drop)
        });
    }

    /// The greeting that a client gets; empty if it is not let in.
    fn greeting(&self) -> (TcpStream, String) {
        let stream = TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).expect("HAProxy listens");
        stream.set_read_timeout(Some(SOON)).expect("set");
        let mut line = String::new();
        drop(BufReader::new(&stream).read_line(&mut line));
        (stream, line)
    }
}

#[test]
fn haproxy_as_in_the_page_weighs_servers_by_free_places_and_leaves_one_that_ends() {
    let Some(program) = needs::program("haproxy") else { return };
    let start = |name: &str| {
        let listen = "[{address = \"127.0.0.1:0\", proxy_protocol = [\"127.0.0.1\"]}, {address = \"127.0.0.1:0\"}]";
        let setup = with_agent(Setup::new()).set("hostname", format!("{name:?}")).set("listen", listen);
        setup.set("http.address", "\"127.0.0.1:0\"").set("http.without_token", "\"none\"").start()
    };
    let mut servers = vec![start("mx1.test"), start("mx2.test")];
    let balancer = Balancer::start(&program, &mut servers);
    let whole = poll("HAProxy sees both servers", || {
        let (one, two) = (balancer.server("mx1")?, balancer.server("mx2")?);
        (one.0 == "UP" && two == one && one.1 > 0).then_some(one.1)
    });
    // With a place taken at each of them both still get clients.
    let mut open: Vec<Plain> = servers.iter().map(|server| greeted(server.addresses[1])).collect();
    for name in ["mx1", "mx2"] {
        balancer.poll_server(name, "UP", whole * 9 / 10);
    }
    let (client, line) = balancer.greeting();
    assert!(line.starts_with("220 mx"), "{line:?}");
    drop(client);
    open.extend((0..4).map(|_| greeted(servers[0].addresses[1])));
    balancer.poll_server("mx1", "UP", whole / 2);
    open.extend((0..5).map(|_| greeted(servers[0].addresses[1])));
    balancer.poll_server("mx1", "UP", whole / 100);
    // A server that ends while a session is open gets no more clients.
    let mut session = greeted(servers[1].addresses[1]);
    session.envelope();
    session.expect("DATA", "354");
    open.truncate(1);
    servers[1].signal(Signal::TERM);
    poll("HAProxy leaves the server that ends", || {
        let (status, _) = balancer.server("mx2")?;
        (status.starts_with("DRAIN") || status.starts_with("DOWN")).then_some(())
    });
    // The clients that are gone have given their places back.
    balancer.poll_server("mx1", "UP", whole * 9 / 10);
    for _ in 0..4 {
        let (_client, line) = balancer.greeting();
        assert!(line.starts_with("220 mx1.test"), "{line:?}");
    }
    session.send(b"Subject: open\r\n\r\nbody\r\n.\r\n");
    assert!(session.reply().starts_with("250"));
    assert!(servers.remove(1).ended().status.success());
    poll("HAProxy sees that it is gone", || balancer.server("mx2").filter(|one| one.0.starts_with("DOWN")).map(drop));
}

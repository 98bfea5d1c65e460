//! `mailrace cluster push` with real engines: maps change at all nodes at once, one node can refuse, a node starts
//! without its engine or without its disk, a pusher is killed, files are as large as may be, and of two pushes at a
//! time one wins.

use crate::hop::Hop;
use crate::world::impatient;
use rustix::process::Signal;
use std::path::{Path, PathBuf};
use std::process::{Child, Output, Stdio};
use std::time::Duration;
use testkit::client::greeted;
use testkit::harness::{Server, Setup, pause, poll, program, text};
use testkit::nats::{Nats, Options};

const ID: &str = "\"00112233445566778899aabbccddeeff\"";

/// A node that takes the shared configuration.
fn node(hop: &Hop, engines: &[Nats], number: usize) -> Setup {
    let own = &engines[number - 1];
    let others = engines.iter().filter(|other| other.port != own.port);
    let addresses: Vec<String> = std::iter::once(own).chain(others).map(|one| format!("{:?}", one.address())).collect();
    let mut setup = impatient()
        .listen("on_no_replica = \"accept_local\"")
        .set("hostname", format!("\"mx{number}.test\""))
        .set("route.smart_host", format!("[{:?}]", hop.name()))
        .set("cluster.id", ID)
        .set("cluster.node", number.to_string())
        .set("cluster.shared", "true")
        .set("spool.size_max", "\"128MiB\"")
        .set("cluster.engines", format!("[{}]", addresses.join(", ")))
        .set("cluster.monitor", format!("\"127.0.0.1:{}\"", own.monitor_port));
    setup.values_remove("message.size_max");
    setup
}

/// Engines, and nodes that see each other.
fn nodes(hop: &Hop, count: usize) -> Option<(Vec<Nats>, Vec<Server>)> {
    let engines = Nats::cluster(3, &Options::default())?;
    let servers: Vec<Server> = (1..=count).map(|number| node(hop, &engines, number).start()).collect();
    for server in &servers {
        poll("a node that sees the others", || {
            let seen = server.whole_status().pointer("/cluster/nodes").and_then(|nodes| Some(nodes.as_array()?.len()));
            seen.filter(|seen| *seen >= count - 1).map(drop)
        });
    }
    Some((engines, servers))
}

/// A directory whose access map refuses this sender.
struct Folder(tempfile::TempDir);

impl Folder {
    fn refusing(domain: &str) -> Self {
        let folder = Self(tempfile::tempdir().expect("a directory"));
        folder.write("mailrace.toml", "[maps]\naccess = \"maps/access\"\n");
        folder.write("maps/access", &format!("From:{domain}\tREJECT\n"));
        folder
    }

    fn write(&self, name: &str, text: &str) {
        let path = self.0.path().join(name);
        std::fs::create_dir_all(path.parent().expect("below the directory")).expect("made");
        std::fs::write(path, text).expect("written");
    }

    fn path(&self) -> &Path {
        self.0.path()
    }
}

fn begin(config: &Path, arguments: &[&str]) -> Child {
    let mut command = program();
    command.args(["cluster", "push", "--config"]).arg(config).args(arguments);
    command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs")
}

fn push(config: &Path, arguments: &[&str]) -> Output {
    begin(config, arguments).wait_with_output().expect("it ends")
}

fn config_of(server: &Server) -> PathBuf {
    server.setup.path("mailrace.toml")
}

fn name(folder: &Folder) -> &str {
    folder.path().to_str().expect("UTF-8")
}

/// Whether a server takes mail of this sender.
fn takes(server: &Server, sender: &str) -> bool {
    let mut client = greeted(server.address());
    client.command(&format!("MAIL FROM:<{sender}>")).starts_with("250")
        && client.command("RCPT TO:<b@x.test>").starts_with("250")
}

fn said(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

fn shared(server: &Server, place: &str) -> serde_json::Value {
    server.whole_status().pointer(&format!("/cluster/config/{place}")).cloned().unwrap_or_default()
}

#[test]
fn a_push_changes_maps_at_all_nodes_and_can_be_taken_back() {
    let hop = Hop::good();
    let Some((_engines, servers)) = nodes(&hop, 3) else { return };
    let config = config_of(&servers[0]);
    let [first, second] = ["one.test", "two.test"].map(Folder::refusing);
    let output = push(&config, &[name(&first), "--dry-run"]);
    assert!(output.status.success() && said(&output).contains("node 3 (mx3.test): ready"), "{}", said(&output));
    assert!(servers.iter().all(|server| takes(server, "a@one.test")), "a dry run changes nothing");
    let output = push(&config, &[name(&first)]);
    assert!(output.status.success(), "{}", said(&output));
    for line in ["node 1 (mx1.test): in force", "node 2 (mx2.test): in force", "revision 1 counts"] {
        assert!(said(&output).contains(line), "{}", said(&output));
    }
    for server in &servers {
        assert!(!takes(server, "a@one.test") && takes(server, "a@two.test"));
        assert_eq!((shared(server, "own/number"), shared(server, "current")), (1.into(), true.into()));
    }
    // The same files again are nothing new.
    let output = push(&config, &[name(&first)]);
    assert!(output.status.success() && said(&output).contains("revision 1 has these files"), "{}", said(&output));
    let output = push(&config_of(&servers[1]), &[name(&second)]);
    assert!(output.status.success() && said(&output).contains("revision 2 counts"), "{}", said(&output));
    assert!(servers.iter().all(|server| takes(server, "a@one.test") && !takes(server, "a@two.test")));
    let output = push(&config, &["--revert"]);
    assert!(output.status.success() && said(&output).contains("revision 3 counts"), "{}", said(&output));
    assert!(servers.iter().all(|server| !takes(server, "a@one.test") && takes(server, "a@two.test")));
    // A node reads a moment later what the others report.
    poll("node 3 tells of revision 3 here and at node 1", || {
        let status = text(&servers[2].control(&["cluster", "status"], b""));
        let parts = ["shared configuration: revision 3 (", "node 1: revision 3"];
        parts.iter().all(|part| status.contains(part)).then_some(())
    });
}

#[test]
fn files_with_errors_and_files_that_do_not_fit_at_a_node_change_nothing() {
    let hop = Hop::good();
    let Some(engines) = Nats::cluster(3, &Options::default()) else { return };
    let setup = |number| node(&hop, &engines, number);
    let one = setup(1).start();
    let two = setup(2).set("spool.size_max", "\"110MiB\"").start();
    let config = config_of(&one);
    let folder = Folder::refusing("one.test");
    // Faults that are seen here, with file and line; no engine is asked.
    for (line, wanted) in [
        ("[maps]\naccess = \"none\"\n", "mailrace.toml:2"),
        ("\nhostname = \"a.test\"\n", "mailrace.toml:2"),
        ("[maps]\naccess = \"../access\"\n", "mailrace.toml:2"),
    ] {
        folder.write("mailrace.toml", line);
        let output = push(&config, &[name(&folder)]);
        assert_eq!(output.status.code(), Some(78), "{}", said(&output));
        assert!(said(&output).contains(wanted), "{}", said(&output));
    }
    folder.write("mailrace.toml", "[maps]\naccess = \"maps/access\"\n");
    folder.write("maps/access", "From:one.test REJECT\nFrom:two.test\n");
    let output = push(&config, &[name(&folder)]);
    assert!(output.status.code() == Some(78) && said(&output).contains("access"), "{}", said(&output));
    folder.write("key.pem", "-----BEGIN PRIVATE KEY-----\n");
    folder.write("maps/access", "From:one.test REJECT\n");
    let output = push(&config, &[name(&folder)]);
    assert!(output.status.code() == Some(78) && said(&output).contains("--with-secrets"), "{}", said(&output));
    std::fs::remove_file(folder.path().join("key.pem")).expect("removed");
    // One that only node 2 cannot work with, by its own file.
    folder.write("mailrace.toml", "[maps]\naccess = \"maps/access\"\n[message]\nsize_max = \"60MiB\"\n");
    poll("both nodes", || (shared(&one, "nodes/1/running") == true).then_some(()));
    let output = push(&config, &[name(&folder)]);
    assert_eq!(output.status.code(), Some(78), "{}", said(&output));
    assert!(said(&output).contains("node 2 (mx2.test): refuses: mailrace.toml:4:"), "{}", said(&output));
    assert!(said(&output).contains("node 1 (mx1.test): ready") && said(&output).contains("nothing was changed"));
    assert!(takes(&one, "a@one.test") && takes(&two, "a@one.test"));
    assert!(shared(&one, "active").is_null(), "{}", one.whole_status());
    // By force, node 2 goes on without.
    let output = push(&config, &[name(&folder), "--force"]);
    assert_eq!(output.status.code(), Some(1), "{}", said(&output));
    assert!(said(&output).contains("node 2 (mx2.test): not in force: mailrace.toml:4:"), "{}", said(&output));
    assert!(!takes(&one, "a@one.test") && takes(&two, "a@one.test"));
    let status = two.control(&["cluster", "status"], b"");
    assert_eq!(status.status.code(), Some(1), "{}", text(&status));
    assert!(text(&status).contains("not taken: mailrace.toml:4:"), "{}", text(&status));
}

#[test]
fn a_node_starts_with_its_last_revision_without_an_engine_and_takes_what_it_missed_before_mail() {
    let hop = Hop::good();
    let Some((mut engines, mut servers)) = nodes(&hop, 3) else { return };
    let config = config_of(&servers[0]);
    let [first, second] = ["one.test", "two.test"].map(Folder::refusing);
    let output = push(&config, &[name(&first)]);
    assert!(output.status.success(), "{}", said(&output));
    let away = servers.remove(2).stop_for_setup();
    let output = poll("a push without the node", || {
        let output = push(&config, &[name(&second)]);
        output.status.success().then_some(output)
    });
    assert!(said(&output).contains("node 3: does not run"), "{}", said(&output));
    let back = away.start();
    assert!(takes(&back, "a@one.test") && !takes(&back, "a@two.test"), "it takes mail by the revision that it missed");
    servers.push(back);
    let setups: Vec<Setup> = servers.into_iter().map(Server::stop_for_setup).collect();
    for engine in &mut engines {
        engine.kill();
    }
    let servers: Vec<Server> = setups.into_iter().map(Setup::start).collect();
    for server in &servers {
        assert!(takes(server, "a@one.test") && !takes(server, "a@two.test"), "the last good revision");
        assert_eq!(shared(server, "own/number"), 2);
    }
    let output = push(&config, &[name(&first)]);
    assert_eq!(output.status.code(), Some(69), "{}", said(&output));
}

#[test]
fn a_node_with_a_fresh_disk_takes_the_present_revision_before_mail() {
    let hop = Hop::good();
    let Some((_engines, mut servers)) = nodes(&hop, 3) else { return };
    let folders = ["one.test", "two.test"].map(Folder::refusing);
    for folder in &folders {
        let output = push(&config_of(&servers[0]), &[name(folder)]);
        assert!(output.status.success(), "{}", said(&output));
    }
    let setup = servers.remove(2).stop_for_setup();
    let spool = setup.path("spool");
    assert!(spool.join("cluster.shared/active").is_file(), "the copy that is lost is there");
    std::fs::remove_dir_all(&spool).expect("removed");
    let server = setup.start();
    // The first client is refused by the second revision: the node has it before its first connection.
    assert!(takes(&server, "a@one.test") && !takes(&server, "a@two.test"));
    assert_eq!((shared(&server, "own/number"), shared(&server, "current")), (2.into(), true.into()));
    assert!(spool.join("cluster.shared/active").is_file(), "it is kept for a start without engines");
    let output = push(&config_of(&servers[0]), &["--revert"]);
    assert!(output.status.success() && said(&output).contains("node 3 (mx3.test): in force"), "{}", said(&output));
    assert!(!takes(&server, "a@one.test") && takes(&server, "a@two.test"));
}

/// Messages of the stream with bundles, by the monitor of an engine; `None`: there is no such stream.
fn stored_pieces(engine: &Nats) -> Option<u64> {
    let answer = engine.ask_monitor("/jsz?accounts=true&streams=true").expect("the monitor answers");
    let accounts = answer["account_details"].as_array().expect("accounts");
    let streams = accounts.iter().flat_map(|account| account["stream_detail"].as_array().into_iter().flatten());
    let stream = streams.into_iter().find(|stream| stream["name"] == "MRC_config")?;
    stream["state"]["messages"].as_u64()
}

#[test]
fn a_pusher_that_is_killed_while_it_waits_for_a_node_changes_nothing_and_the_next_push_works() {
    let hop = Hop::good();
    let Some((engines, servers)) = nodes(&hop, 2) else { return };
    let [first, second, third] = ["one.test", "two.test", "three.test"].map(Folder::refusing);
    let config = config_of(&servers[0]);
    let output = push(&config, &[name(&first)]);
    assert!(output.status.success(), "{}", said(&output));
    // Node 2 stands still, so the push waits behind its offer.
    servers[1].signal(Signal::STOP);
    let mut pusher = begin(&config, &[name(&second)]);
    let copies = || {
        let entries = std::fs::read_dir(servers[0].setup.path("spool/cluster.shared")).expect("a directory");
        entries
            .filter(|entry| entry.as_ref().expect("an entry").file_name().to_string_lossy().starts_with("r-"))
            .count()
    };
    poll("node 1 has the files that are offered", || (copies() == 2).then_some(()));
    pusher.kill().expect("it runs");
    pusher.wait().expect("it is dead");
    servers[1].signal(Signal::CONT);
    let is_first = |server: &Server| !takes(server, "a@one.test") && takes(server, "a@two.test");
    assert!(servers.iter().all(is_first));
    let output = push(&config, &[name(&third)]);
    assert_eq!(output.status.code(), Some(75), "{}", said(&output));
    assert!(
        said(&output).contains("node 1 is pushing other files") && said(&output).contains("a minute if it broke off")
    );
    // The claim ends by itself, 60 s after its last renewal.
    pause(Duration::from_secs(50));
    let output = poll("the end of the claim", || {
        let output = push(&config, &[name(&third)]);
        let is_over = output.status.code() != Some(75);
        assert!(is_over || servers.iter().all(is_first), "nothing changes meanwhile");
        is_over.then_some(output)
    });
    assert!(output.status.success() && said(&output).contains("revision 2 counts"), "{}", said(&output));
    for server in &servers {
        assert!(takes(server, "a@one.test") && takes(server, "a@two.test") && !takes(server, "a@three.test"));
    }
    // The files of the broken push are gone: those of both revisions are there, a piece each.
    poll("two bundles in the engines", || {
        let stored: Vec<u64> = engines.iter().filter_map(stored_pieces).collect();
        (!stored.is_empty() && stored.iter().all(|pieces| *pieces == 2)).then_some(())
    });
}

#[test]
fn files_up_to_the_limit_reach_all_nodes_and_larger_ones_are_refused_before_anything_is_stored() {
    let hop = Hop::good();
    let Some((engines, servers)) = nodes(&hop, 2) else { return };
    let config = config_of(&servers[0]);
    let folder = Folder::refusing("one.test");
    let limit = 64 << 20;
    // One that is too large alone, and one that is too large with the others.
    for octets in [limit + 1, limit - 10] {
        folder.write("large", &"0123456789abcde\n".repeat(octets / 16 + 1)[..octets]);
        let output = push(&config, &[name(&folder)]);
        assert_eq!(output.status.code(), Some(78), "{}", said(&output));
        let wanted = format!("{}: the files are larger than 64 MiB together; remove those", name(&folder));
        assert!(said(&output).contains(&wanted), "{}", said(&output));
    }
    assert!(engines.iter().all(|engine| stored_pieces(engine).is_none()), "nothing is stored");
    assert!(servers.iter().all(|server| takes(server, "a@one.test") && shared(server, "active").is_null()));
    let octets = limit - 1_000;
    folder.write("large", &"0123456789abcde\n".repeat(octets / 16 + 1)[..octets]);
    let output = push(&config, &[name(&folder)]);
    assert!(output.status.success() && said(&output).contains("in force at all nodes"), "{}", said(&output));
    for server in &servers {
        assert!(!takes(server, "a@one.test"));
        let copies = std::fs::read_dir(server.setup.path("spool/cluster.shared")).expect("a directory");
        let large = copies.filter_map(|copy| std::fs::metadata(copy.expect("an entry").path().join("large")).ok());
        assert_eq!(large.map(|file| file.len()).collect::<Vec<_>>(), [u64::try_from(octets).expect("small")]);
    }
}

#[test]
fn of_two_pushes_at_a_time_one_wins_and_the_other_says_so() {
    let hop = Hop::good();
    let Some((_engines, servers)) = nodes(&hop, 2) else { return };
    for round in 0..20 {
        let folders = ["one", "two"].map(|name| Folder::refusing(&format!("{name}{round}.test")));
        let children: Vec<Child> =
            servers.iter().zip(&folders).map(|(server, folder)| begin(&config_of(server), &[name(folder)])).collect();
        let outputs: Vec<Output> =
            children.into_iter().map(|child| child.wait_with_output().expect("it ends")).collect();
        let won: Vec<bool> = outputs.iter().map(|output| output.status.success()).collect();
        assert!(won.contains(&true), "{}{}", said(&outputs[0]), said(&outputs[1]));
        let Some(lost) = won.iter().position(|won| !won) else { continue };
        let output = &outputs[lost];
        assert_eq!(output.status.code(), Some(75), "{}", said(output));
        assert!(said(output).contains("nothing was changed"), "{}", said(output));
        let names = ["one", "two"].map(|name| format!("a@{name}{round}.test"));
        for server in &servers {
            assert!(takes(server, &names[lost]) && !takes(server, &names[1 - lost]));
        }
        return;
    }
    panic!("twenty pushes by two at a time never met");
}

//! `mailrace cluster` as an operator meets it: files of nodes that real engines start with, and the look at them.

use serde_json::Value;
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::{Child, Output};
use testkit::harness::{poll, program};
use testkit::nats;

/// A machine of a node: its directory, and the ports of its engine.
pub(crate) struct Machine {
    dir: tempfile::TempDir,
    pub(crate) port: u16,
    pub(crate) monitor: u16,
    pub(crate) route: u16,
    engine: Option<Child>,
}

impl Drop for Machine {
    fn drop(&mut self) {
        self.stop();
    }
}

impl Machine {
    pub(crate) fn new() -> Self {
        let [port, monitor, route] = nats::free_ports();
        Self { dir: tempfile::tempdir().expect("a directory"), port, monitor, route, engine: None }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    pub(crate) fn text(&self, name: &str) -> String {
        std::fs::read_to_string(self.path(name)).expect("it is written")
    }

    pub(crate) fn write(&self, name: &str, text: &str) {
        std::fs::write(self.path(name), text).expect("written");
    }

    /// Runs a command of the cluster.
    #[track_caller]
    pub(crate) fn run(&self, arguments: &[&str], exit: i32) -> String {
        let mut command = program();
        command.arg("cluster").args(arguments).arg("--config").arg(self.path("mailrace.toml"));
        let output = command.output().expect("it runs");
        assert_eq!(output.status.code(), Some(exit), "{arguments:?}\n{}", both(&output));
        both(&output)
    }

    /// Makes the files of the node, and puts the section into the configuration.
    #[track_caller]
    pub(crate) fn make(&self, node: u16, first: &[&str]) -> Value {
        let (node, store) = (node.to_string(), self.path("store").display().to_string());
        let [listen, monitor, route] = [self.port, self.monitor, self.route].map(|port| format!("127.0.0.1:{port}"));
        let mut arguments = first.to_vec();
        arguments.extend(["--node", &node, "--listen", &listen, "--monitor", &monitor, "--cluster-listen", &route]);
        arguments.extend(["--store-dir", &store, "--store-size", "1GiB", "--json"]);
        let said = self.run(&arguments, 0);
        let answer: Value = serde_json::from_str(&said).unwrap_or_else(|error| panic!("{error}: {said}"));
        self.write("mailrace.toml", answer["toml"].as_str().expect("the section"));
        answer
    }

    pub(crate) fn start(&mut self, program: &Path) {
        self.stop();
        self.engine = Some(nats::spawn(program, &self.path("nats-server.conf")));
        let ports = [self.port, self.monitor];
        poll("nats-server does not listen", || {
            ports.iter().all(|port| std::net::TcpStream::connect(("127.0.0.1", *port)).is_ok()).then_some(())
        });
    }

    pub(crate) fn stop(&mut self) {
        if let Some(mut engine) = self.engine.take() {
            drop(engine.kill());
            drop(engine.wait());
        }
    }

    /// Changes the configuration of the engine and starts it again.
    fn change(&mut self, program: &Path, from: &str, to: &str) {
        let text = self.text("nats-server.conf");
        assert!(text.contains(from), "{text}");
        self.write("nats-server.conf", &text.replace(from, to));
        self.start(program);
    }
}

pub(crate) fn both(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// Machines of two nodes with their files, the configuration empty before. `host` has both of them.
fn two_nodes(host: &str, more: &[&str]) -> [Machine; 2] {
    let machines = [Machine::new(), Machine::new()];
    for machine in &machines {
        machine.write("mailrace.toml", "");
    }
    let [one, two] = &machines;
    let (route, engine) = (format!("{host}:{}", two.route), format!("{host}:{}", two.port));
    let init = ["init", "--name", "mail", "--route", &route, "--engine", &engine, "--host", host];
    one.make(1, &[&init, more].concat());
    let file = one.path("cluster.join").display().to_string();
    two.make(2, &[&["join", "--file", &file, "--host", host], more].concat());
    machines
}

/// Starts the engines and waits until `verify` finds nothing wrong at any node: they elect a leader first, and each
/// hears of it by itself.
#[track_caller]
fn start_all(machines: &mut [Machine], engine: &Path) {
    for machine in &mut *machines {
        machine.start(engine);
    }
    for machine in &*machines {
        poll("the engines are not ready", || {
            let mut verify = program();
            let verify = verify.args(["cluster", "verify", "--config"]).arg(machine.path("mailrace.toml"));
            let output = verify.output().expect("it runs");
            eprint!("{}", both(&output));
            output.status.success().then_some(())
        });
    }
}

#[test]
fn the_files_of_nodes() {
    let [one, two] = two_nodes("127.0.0.1", &[]);
    for (machine, node, files) in [
        (&one, 1, &["nats-server.conf", "cluster.secret", "cluster.system.secret", "cluster.join"][..]),
        (&two, 2, &["nats-server.conf", "cluster.secret", "cluster.system.secret"]),
    ] {
        for name in files {
            assert_eq!(std::fs::metadata(machine.path(name)).expect("it is there").mode() & 0o7777, 0o600, "{name}");
        }
        let text = machine.text("nats-server.conf");
        let [password, system] = ["cluster.secret", "cluster.system.secret"].map(|name| machine.text(name));
        assert_ne!(password, system);
        for part in [
            &format!("server_name: \"mail-{node}\"\n"),
            &format!("server_tags: [\"node:{node}\"]\n"),
            "  sync_interval: always\n",
            &format!("{{ user: \"mailrace\", password: \"{}\" }}\n", password.trim()),
            &format!("  $SYS {{\n    users: [\n      {{ user: \"system\", password: \"{}\" }}\n", system.trim()),
            &format!("@127.0.0.1:{}\"\n", one.route),
            &format!("@127.0.0.1:{}\"\n", two.route),
        ] {
            assert!(text.contains(part), "{part}\n{text}");
        }
        let checked =
            program().arg("check").arg("--config").arg(machine.path("mailrace.toml")).output().expect("it runs");
        assert!(checked.status.success(), "{}", both(&checked));
        if let Some(engine) = nats::program() {
            let file = machine.path("nats-server.conf");
            let tried = std::process::Command::new(engine).arg("-t").arg("-c").arg(file).output().expect("it runs");
            assert!(tried.status.success(), "{}", both(&tried));
        }
    }
    assert_eq!(one.text("cluster.secret"), two.text("cluster.secret"));
    assert_eq!(one.text("cluster.system.secret"), two.text("cluster.system.secret"));
    assert!(!two.path("cluster.join").exists());
    let section = two.text("mailrace.toml");
    let engines = format!("engines = [\"127.0.0.1:{}\", \"127.0.0.1:{}\"]", two.port, one.port);
    assert!(section.contains(&engines), "the own engine comes first: {section}");
}

#[test]
fn nothing_is_overwritten() {
    let machine = Machine::new();
    machine.write("mailrace.toml", "");
    let init = ["init", "--name", "mail", "--node", "1", "--listen", "127.0.0.1:4222", "--store-size", "1GiB"];
    let said = machine.run(&init, 0);
    for part in [
        "written: ",
        "[cluster]\nid = \"",
        "node = 1\n",
        "1. ",
        "mailrace cluster join --file",
        "mailrace cluster verify",
    ] {
        assert!(said.contains(part), "{part}\n{said}");
    }
    let before = machine.text("cluster.secret");
    for secret in ["cluster.secret", "cluster.system.secret"] {
        assert!(!said.contains(machine.text(secret).trim()), "a password is never printed");
    }
    assert!(machine.run(&init, 73).contains("nats-server.conf: it is there, and nothing was written; move it away"));
    std::fs::remove_file(machine.path("nats-server.conf")).expect("it was there");
    assert!(machine.run(&init, 73).contains("cluster.secret: it is there"));
    assert_eq!((machine.text("cluster.secret"), machine.path("nats-server.conf").exists()), (before, false));
    let section = "[cluster]\nid = '000102030405060708090a0b0c0d0e0f'\nnode = 7\nengines = '127.0.0.1'\ncopies = 1\n";
    machine.write("mailrace.toml", section);
    assert!(machine.run(&init, 78).contains("this server is node 7 of cluster 00010203"));
}

#[test]
fn wrong_arguments_write_nothing() {
    let machine = Machine::new();
    machine.write("mailrace.toml", "");
    let join = machine.path("cluster.join").display().to_string();
    let node = ["--node", "1", "--listen", "127.0.0.1:4222", "--store-size", "1GiB"];
    let with = |first: &[&'static str], last: &[&'static str]| -> Vec<&'static str> {
        first.iter().chain(&node).chain(last).copied().collect()
    };
    for (arguments, exit, says) in [
        (with(&["init", "--name", "a b"], &[]), 64, "--name \"a b\": take letters"),
        (with(&["init", "--name", "mail", "--route", "nats://a"], &[]), 64, "--route \"nats://a\" has no port"),
        (with(&["init", "--name", "mail", "--engine", "a"], &[]), 64, "--engine is there 1 times and --route 0 times"),
        (with(&["init", "--name", "mail", "--monitor", "127.0.0.1:4222"], &[]), 64, "127.0.0.1:4222 is there twice"),
        (with(&["init", "--name", "mail", "--cluster-listen", "0.0.0.0:6222"], &[]), 64, "name one address"),
        (with(&["init", "--name", "mail", "--store-dir", "/a\"b"], &[]), 64, "another path"),
        (with(&["init", "--name", "mail", "--route", "127.0.0.2", "--route", "127.0.0.2"], &[]), 64, "is there twice"),
        (vec!["init", "--name", "mail", "--node", "0", "--listen", "127.0.0.1:4222"], 64, "--node"),
        (vec!["init", "--name", "m", "--node", "1", "--listen", "127.0.0.1:1", "--store-size", "9"], 64, "name more"),
        (
            vec!["init", "--name", "m", "--node", "1", "--listen", "127.0.0.1:1", "--store-size", "1GB"],
            64,
            "is no size",
        ),
        (with(&["join", "--file", "/nowhere/cluster.join"], &[]), 66, "copy it from the first node"),
    ] {
        let said = machine.run(&arguments, exit);
        assert!(said.contains(says), "{arguments:?}: {said}");
    }
    machine.write("cluster.join", "version = 9\n");
    let arguments = ["join", "--file", &join, "--node", "1", "--listen", "127.0.0.1:4222"];
    assert!(machine.run(&arguments, 65).contains("version = 9 is of a later mailrace"));
    let first = Machine::new();
    first.write("mailrace.toml", "");
    first.make(1, &["init", "--name", "mail"]);
    let file = first.path("cluster.join").display().to_string();
    let arguments = ["join", "--file", &file, "--node", "1", "--listen", "127.0.0.1:4222"];
    assert!(machine.run(&arguments, 64).contains("--node 1 is the number of the first node"));
    assert_eq!(std::fs::read_dir(machine.dir.path()).expect("a directory").count(), 2, "nothing else is written");
}

#[test]
fn engines_of_two_nodes_are_looked_at() {
    let Some(engine) = nats::program() else { return };
    let mut machines = two_nodes("127.0.0.1", &[]);
    let said = machines[0].run(&["verify"], 69);
    assert!(said.lines().filter(|line| line.starts_with("away     connect ")).count() == 2, "{said}");
    start_all(&mut machines, &engine);
    for (machine, node) in machines.iter().zip([1, 2]) {
        let said = machine.run(&["verify"], 0);
        for part in [
            format!("ok       connect   127.0.0.1:{} server \"mail-{node}\"", machine.port),
            format!("ok       sync      127.0.0.1:{} data is on the disk", machine.port),
            format!("ok       tags      127.0.0.1:{} node:{node}", machine.port),
            "leads 2 servers".to_owned(),
            "unknown  id ".to_owned(),
        ] {
            assert!(said.contains(&part), "{part}\n{said}");
        }
    }
    let said = machines[0].run(&["verify", "--json"], 0);
    let answer: Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!((&answer["ok"], &answer["node"]), (&Value::from(true), &Value::from(1)));
    // Each fault alone, by what an operator may do wrong.
    let [one, two] = &mut machines;
    one.change(&engine, "  sync_interval: always\n", "");
    let said = one.run(&["verify"], 78);
    assert!(said.contains("wrong    sync ") && said.contains("set \"jetstream { sync_interval: always }\""), "{said}");
    one.change(&engine, "  store_dir", "  sync_interval: always\n  store_dir");
    one.change(&engine, "node:1", "node:7");
    let said = one.run(&["verify"], 78);
    assert!(said.contains("wrong    tags ") && said.contains("server_tags: [\"node:1\"]"), "{said}");
    two.write("cluster.secret", "wrong\n");
    let said = two.run(&["verify"], 77);
    assert!(said.contains("refused  connect ") && said.contains("user and secret"), "{said}");
}

#[test]
fn engines_with_certificates() {
    let Some(engine) = nats::program() else { return };
    let dir = tempfile::tempdir().expect("a directory");
    let [ca, certificate, key] = ["ca", "certificate", "key"].map(|name| dir.path().join(name).display().to_string());
    let mut params = rcgen::CertificateParams::new(Vec::new()).expect("no names");
    params.is_ca = rcgen::IsCa::Ca(rcgen::BasicConstraints::Unconstrained);
    params.distinguished_name.push(rcgen::DnType::CommonName, "Authority of the test");
    let issuer = rcgen::CertifiedIssuer::self_signed(params, rcgen::KeyPair::generate().expect("a key")).expect("a CA");
    let of_engine = rcgen::KeyPair::generate().expect("a key");
    let params = rcgen::CertificateParams::new(vec!["localhost".to_owned()]).expect("a name");
    std::fs::write(&ca, issuer.pem()).expect("written");
    std::fs::write(&certificate, params.signed_by(&of_engine, &issuer).expect("signed").pem()).expect("written");
    std::fs::write(&key, of_engine.serialize_pem()).expect("written");
    let files = ["--certificate", &certificate, "--key", &key, "--ca", &ca];
    let mut machines = two_nodes("localhost", &files);
    start_all(&mut machines, &engine);
    let section = machines[0].text("mailrace.toml");
    assert!(section.contains("tls = true\n") && section.contains(&format!("ca_file = \"{ca}\"\n")), "{section}");
    machines[0].write("mailrace.toml", &section.replace(&ca, &certificate));
    let said = machines[0].run(&["verify"], 69);
    assert!(said.contains("away     connect   localhost:") && said.contains("certificate"), "{said}");
}

#[test]
fn a_server_that_is_no_node_has_no_engines() {
    let machine = Machine::new();
    machine.write("mailrace.toml", "");
    assert!(machine.run(&["verify"], 78).contains("there is no cluster.id"));
}

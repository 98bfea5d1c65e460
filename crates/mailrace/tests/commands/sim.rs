//! `mailrace sim` as a user meets it: 300 hosts, mail by `mailrace storm` and by swaks where there is one, a summary at
//! the end.

use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Stdio};

struct Running {
    child: Child,
    out: BufReader<ChildStdout>,
}

impl Running {
    fn start(arguments: &[&str]) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mailrace"));
        command.args(["sim", "--hosts", "300", "--port", "0", "--dns", "127.0.0.1:0"]);
        let mut child = command.args(arguments).stdout(Stdio::piped()).spawn().expect("the program runs");
        let out = BufReader::new(child.stdout.take().expect("piped"));
        Self { child, out }
    }

    fn line(&mut self) -> String {
        let mut line = String::new();
        assert!(self.out.read_line(&mut line).expect("it speaks") > 0, "it ended");
        line
    }

    /// Asks it to end, and returns its output since.
    fn end(mut self) -> String {
        kill_process(Pid::from_child(&self.child), Signal::TERM).expect("it runs");
        let mut rest = String::new();
        self.out.read_to_string(&mut rest).expect("it speaks");
        assert_eq!(self.child.wait().expect("it ends").code(), Some(0));
        rest
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        // It may have ended by itself.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

fn file(name: &str) -> PathBuf {
    Path::new(env!("CARGO_TARGET_TMPDIR")).join(name)
}

fn storm(to: &str, arguments: &[&str]) -> Option<i32> {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mailrace"));
    command.args(["storm", "--to", to, "-n", "50", "-s", "4", "--timeout", "60"]).args(arguments);
    command.stdout(Stdio::null()).status().expect("the program runs").code()
}

#[test]
fn it_takes_mail_and_sums_up() {
    let (ledger, list, map) = (file("sim-ledger"), file("sim-list"), file("sim-map"));
    let path = |path: &Path| path.display().to_string();
    let mut sim = Running::start(&[
        "--for",
        "5m",
        "--json",
        "--json-hosts",
        "--delay",
        "1ms",
        "--dead",
        "2%",
        "--hung",
        "2%",
        "--busy",
        "2%",
        "--hostile",
        "7%",
        "--at",
        "1h..2h:dead=50%",
        "--ledger",
        &path(&ledger),
        "--list",
        &path(&list),
        "--map",
        &path(&map),
    ]);
    let ready: Value = serde_json::from_str(&sim.line()).expect("JSON");
    assert_eq!(ready["event"], "ready");
    let hosts = fs::read_to_string(&map).expect("a map");
    let of = |character: &str| {
        let line = hosts.lines().find(|line| line.split(' ').nth(4) == Some(character)).expect("such a host");
        format!("{}:{}", line.split(' ').nth(1).expect("an address"), ready["port"])
    };
    assert_eq!(hosts.lines().filter(|line| line.ends_with(" live 3600000ms..7200000ms:dead")).count(), 131);
    let live = of("live");
    assert_eq!(storm(&live, &["--pipelining", "--rcpt", "u{n}@d7.sim.example"]), Some(0));
    assert_eq!(storm(&of("busy"), &[]), Some(75));
    assert_eq!(storm(&of("dead"), &[]), Some(75));
    let swaks = ["--server", &live, "--to", "ok@d0.sim.example", "--h-Message-ID", "<a@b>"];
    let swaks = has_served(Command::new("swaks").args(swaks).stdout(Stdio::null()));
    let summary: Value = serde_json::from_str(&sim.end()).expect("one line of JSON");
    let messages = 50 + u64::from(swaks);
    assert_eq!((&summary["messages"], &summary["recipients"]), (&messages.into(), &messages.into()));
    assert_eq!(summary["refused"], serde_json::json!({"451": 50}));
    assert_eq!(summary["list"]["recipients"], 600);
    assert_eq!(summary["hosts"].as_array().expect("a list").len(), 2);
    let ledger = fs::read_to_string(&ledger).expect("a ledger");
    assert_eq!(ledger.lines().count() as u64, 1 + messages);
    assert_eq!(fs::read_to_string(&list).expect("a list").lines().count(), 600);
    if swaks {
        assert!(ledger.lines().any(|line| line.ends_with(" <a@b> ok@d0.sim.example")), "{ledger}");
    }
}

#[test]
fn an_address_in_use_is_named_with_its_option() {
    let other = std::net::TcpListener::bind("127.16.0.0:0").expect("an address");
    let port = other.local_addr().expect("bound").port().to_string();
    let dns = std::net::UdpSocket::bind("127.0.0.1:0").expect("an address");
    let dns_at = dns.local_addr().expect("bound").to_string();
    let said = |arguments: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mailrace"));
        let done = command.args(["sim", "--hosts", "3"]).args(arguments).output().expect("the program runs");
        assert_eq!(done.status.code(), Some(69), "{done:?}");
        String::from_utf8_lossy(&done.stderr).into_owned()
    };
    let taken = said(&["--port", &port, "--dns", "127.0.0.1:0"]);
    assert!(
        taken.contains(&format!("--port {port} on 127.16.0.0 ")) && taken.contains("or choose another with --port"),
        "{taken}"
    );
    let taken = said(&["--port", "0", "--dns", &dns_at]);
    assert!(taken.contains(&format!("--dns {dns_at}: ")) && taken.contains("or choose another with --dns"), "{taken}");
}

/// Whether this program is here; then it was served.
fn has_served(command: &mut Command) -> bool {
    match command.status() {
        Ok(status) => {
            assert!(status.success(), "{status}");
            true
        }
        Err(_) => false,
    }
}

#[test]
fn it_says_what_to_try_and_ends_by_itself() {
    let mut sim = Running::start(&["--dead", "1%", "--for", "1ms"]);
    let mut said = String::new();
    while !said.contains("sim is ready on port") {
        said.push_str(&sim.line());
    }
    assert!(
        said.starts_with("300 hosts from 127.16.0.0 on, 300 domains from d0.sim.example to d299.sim.example\n"),
        "{said}"
    );
    assert!(said.contains("       3 dead\n     297 live\n") && said.contains("servers = [\"127.0.0.1:"), "{said}");
    let mut rest = String::new();
    sim.out.read_to_string(&mut rest).expect("it speaks");
    assert!(rest.starts_with("0 messages for 0 recipients taken in "), "{rest}");
    assert_eq!(sim.child.wait().expect("it ends").code(), Some(0));
}

#[test]
fn what_cannot_be_is_refused() {
    for (arguments, status, text) in [
        (&["--dead", "101%"][..], 64, "is no share"),
        (&["--dead", "60%", "--hung", "60%"], 64, "all together are 100% at most"),
        (&["--at", "2s..1s:dead=1%"], 64, "ends before it begins"),
        (&["--at", "1s..2s:nice=1%"], 64, "there are live, dead, drop"),
        (&["--network", "10.0.0.0"], 64, "is not within 127.0.0.0/8"),
        (&["--throttle-rate", "0"], 64, "a rate from"),
        (&["--ledger", "/no/such/directory/file"], 74, "--ledger /no/such/directory/file: "),
    ] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mailrace"));
        command.args(["sim", "--port", "0", "--dns", "127.0.0.1:0", "--for", "1ms"]).args(arguments);
        let output = command.output().expect("the program runs");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!((output.status.code(), said.contains(text)), (Some(status), true), "{arguments:?} {said}");
    }
}

#[test]
fn help_fits_a_terminal_of_80_columns() {
    for command in ["storm", "sim", "queue", "queue list", "queue retry", "queue stragglers", "reason", "status"] {
        let mut program = Command::new(env!("CARGO_BIN_EXE_mailrace"));
        let output = program.args(command.split(' ')).arg("--help").env("COLUMNS", "80").output().expect("it runs");
        let text = String::from_utf8(output.stdout).expect("text");
        let broad: Vec<&str> = text.lines().filter(|line| line.chars().count() > 80).collect();
        assert!(broad.is_empty() && !text.contains('\u{1b}'), "{command}: {broad:#?}");
        assert_eq!(text.contains("{n} becomes the number of the"), command == "storm", "{command}: {text}");
    }
}

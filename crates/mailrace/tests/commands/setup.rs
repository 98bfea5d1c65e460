//! `mailrace setup` as an operator meets it: questions, the difference, the DNS and the ports, and what is written.

use serde_json::Value;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::Output;
use testkit::harness::{program, run_with_input};
use testkit::name_server::NameServer;

/// A zone of an operator whose records are all there.
const READY: &str = "\
mx.example.com A 127.0.0.2
127.0.0.2 PTR mx.example.com
example.com MX 10 mx.example.com
example.com TXT v=spf1 mx -all
far.example MX 10 mail.far.example
mail.far.example A 127.0.0.3
";

struct SetupPlace {
    dir: tempfile::TempDir,
    zone: NameServer,
    port: u16,
}

impl SetupPlace {
    fn new(zone: &str) -> Self {
        // A mail host for the connection out.
        let host = TcpListener::bind(("127.0.0.3", 0)).expect("a free port");
        let port = host.local_addr().expect("it has one").port();
        std::thread::spawn(move || {
            for stream in host.incoming() {
                let Ok(mut stream) = stream else { continue };
                drop(stream.write_all(b"220 mail.far.example ESMTP\r\n"));
                let mut line = String::new();
                drop(BufReader::new(stream).read_line(&mut line));
            }
        });
        Self { dir: tempfile::tempdir().expect("a directory"), zone: NameServer::start(zone), port }
    }

    fn file(&self) -> PathBuf {
        self.dir.path().join("mailrace.toml")
    }

    fn text(&self) -> String {
        std::fs::read_to_string(self.file()).expect("it is written")
    }

    #[track_caller]
    fn setup(&self, arguments: &[&str], input: &str, exit: i32) -> String {
        let mut command = program();
        command.arg("setup").arg("--config").arg(self.file()).args(["--probe", "far.example"]);
        command.arg("--set").arg(format!("dns.servers=[\"{}\"]", self.zone.address));
        command.arg("--set").arg(format!("route.port={}", self.port)).args(arguments);
        let output = run_with_input(&mut command, input);
        let text = both(&output);
        assert_eq!(output.status.code(), Some(exit), "{arguments:?}\n{text}");
        text
    }
}

fn both(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

#[track_caller]
fn check(file: &Path) {
    let output = program().args(["check", "--config"]).arg(file).output().expect("it runs");
    assert!(output.status.success(), "{}", both(&output));
}

#[test]
fn answers_make_a_file_that_passes_check() {
    let place = SetupPlace::new(READY);
    // A wrong answer is asked for again.
    let answers = "mx.example.com\nexample.com\n192.0.2.0/33\n192.0.2.0/24 2001:db8::/32\n\n\nyes\n";
    let text = place.setup(&["--listen", "127.0.0.2:0"], answers, 0);
    assert!(text.contains("relay.from: ") && text.contains("a new file"), "{text}");
    for line in [
        "ok       address  mx.example.com has 127.0.0.2",
        "ok       listen   127.0.0.2:0 is free",
        "ok       mx       example.com its mail comes to mx.example.com",
        "ok       spf      example.com \"v=spf1 mx -all\" lets this host send",
        &format!("ok       connect  far.example 127.0.0.3:{} answers \"220 mail.far.example ESMTP\"", place.port),
    ] {
        assert!(text.contains(line), "{line}\n{text}");
    }
    let written = place.text();
    for line in [
        "hostname = \"mx.example.com\"",
        "domains = [\"example.com\"]",
        "from = [\"192.0.2.0/24\", \"2001:db8::/32\"]",
        "address = \"127.0.0.1:8025\"",
        "#smart_host = [\"smtp.example.net:587\"]",
    ] {
        assert!(written.lines().any(|one| one == line), "{line}\n{written}");
    }
    check(&place.file());
}

#[test]
fn a_present_file_is_changed_after_its_difference_and_a_yes_only() {
    let place = SetupPlace::new("");
    let before = "# By hand.\nhostname = \"mx.example.com\"\n\n[spool]\npath = \"mail\" # here\n";
    std::fs::write(place.file(), before).expect("written");
    let arguments = ["--domain", "example.com", "--listen", "127.0.0.2:0", "--no-checks"];
    let no = place.setup(&arguments, "\n\n\n\nn\n", 0);
    assert!(no.contains("+domains = [\"example.com\"]") && no.contains("nothing was written"), "{no}");
    assert_eq!(place.text(), before, "no is no");
    let silent = place.setup(&arguments, "\n\n\n\n", 64);
    assert!(silent.contains("standard input ended"), "{silent}");
    let dry: Vec<&str> = arguments.iter().copied().chain(["--dry-run"]).collect();
    let dry = place.setup(&dry, "", 0);
    assert!(dry.contains("(now)") && !dry.contains("-hostname") && !dry.contains("-path"), "{dry}");
    assert_eq!(place.text(), before, "a dry run writes nothing");
    place.setup(&arguments, "\n\n\n\ny\n", 0);
    let after = place.text();
    assert!(
        after.starts_with("# By hand.\nhostname = \"mx.example.com\"\n\n[spool]\npath = \"mail\" # here\n"),
        "{after}"
    );
    check(&place.file());
    let again: Vec<&str> = arguments.iter().copied().chain(["--yes"]).collect();
    let again = place.setup(&again, "", 0);
    assert!(again.contains("nothing to change") && again.contains("stays as it is"), "{again}");
    assert_eq!(place.text(), after);
}

#[test]
fn records_that_the_dns_lacks_are_said_as_lines_of_a_zone() {
    let place = SetupPlace::new(
        "mx.example.com A 127.0.0.2\nexample.com MX 5 other.example.com\nexample.com TXT v=spf1 -all\n",
    );
    let arguments =
        ["--yes", "--json", "--hostname", "mx.example.com", "--domain", "example.com", "--listen", "127.0.0.2:0"];
    let text = place.setup(&arguments, "", 0);
    let report: Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((&report["written"], &report["ready"]), (&Value::Bool(true), &Value::Bool(false)));
    let state = |check: &str| {
        let findings = report["findings"].as_array().expect("a list");
        let one = findings.iter().find(|one| one["check"] == check).expect("it was checked");
        (one["state"].as_str().expect("a word"), one["publish"].as_str().unwrap_or_default(), one["text"].to_string())
    };
    let (found, record, text) = state("mx");
    assert_eq!((found, record), ("differs", "example.com. IN MX 10 mx.example.com."), "{text}");
    let (found, _, text) = state("spf");
    assert!(found == "differs" && text.contains("gives fail for 127.0.0.2"), "{text}");
    // The name server has no answer to far.example.
    assert_ne!(state("connect").0, "ok");
    place.zone.change("mx.example.com SERVFAIL\n");
    let text = place.setup(&["--dry-run"], "", 0);
    assert!(text.contains("unknown  address  mx.example.com") && text.contains("missing  spf"), "{text}");
    assert!(text.contains("example.com. IN TXT \"v=spf1 mx -all\""), "{text}");
}

#[test]
fn a_port_in_use_is_named_with_the_greeting_of_its_server() {
    let place = SetupPlace::new(READY);
    let other = TcpListener::bind("127.0.0.2:0").expect("a free port");
    let address = other.local_addr().expect("it has one").to_string();
    let greeter = std::thread::spawn(move || {
        let (mut stream, _) = other.accept().expect("a client");
        stream.write_all(b"220 old.example ESMTP Postfix\r\n").expect("written");
        let mut line = String::new();
        drop(BufReader::new(stream).read_line(&mut line));
    });
    let text = place.setup(&["--dry-run", "--hostname", "mx.example.com", "--listen", &address], "", 0);
    assert!(text.contains("is in use: \"220 old.example ESMTP Postfix\"; stop that server first"), "{text}");
    greeter.join().expect("it ends");
}

#[test]
fn values_that_cannot_be_are_refused_and_nothing_is_written() {
    let place = SetupPlace::new(READY);
    let text = place.setup(&["--yes", "--hostname", "mx example"], "", 64);
    assert!(text.contains("hostname: "), "{text}");
    // Each value is one, but the file is not there.
    let gone =
        ["--yes", "--certificate", "/nonexistent/c.pem", "--key", "/nonexistent/k.pem", "--listen", "127.0.0.2:0"];
    let text = place.setup(&gone, "", 78);
    assert!(text.contains("/nonexistent/c.pem") && text.contains("not written"), "{text}");
    std::fs::write(place.file(), "hostname = \n").expect("written");
    place.setup(&["--yes"], "", 78);
    assert_eq!(place.text(), "hostname = \n");
}

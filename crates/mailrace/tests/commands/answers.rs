//! The output of commands for recorded answers, byte for byte.
//!
//! A socket gives each command a recorded answer (`crates/operator/tests/answers/NAME.jsonl`). Its standard output and
//! standard error are compared with `answers/NAME.COMMAND.txt` beside this file. After a change that is meant, write
//! the files anew with `cargo test -p mailrace --test commands write_answers -- --ignored` and read their diff.

use std::io::{BufRead as _, BufReader, Write as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::process::Command;
use testkit::harness::{program, program_path};

/// Answers of `mailrace queue` by name, with the words of the command.
const QUEUE: [(&str, &[&str]); 18] = [
    ("queue-list", &["list"]),
    ("queue-list-empty", &["list"]),
    ("queue-list-own", &["list"]),
    ("queue-show", &["show", "6AK9BQPE592284", "--headers"]),
    ("queue-destinations", &["destinations"]),
    ("queue-destinations-empty", &["destinations"]),
    ("queue-stragglers-host", &["stragglers", "--by", "host"]),
    ("queue-stragglers-recipient", &["stragglers", "--by", "recipient"]),
    ("queue-stragglers-none", &["stragglers"]),
    ("queue-retry", &["retry", "--all"]),
    ("queue-hold", &["hold", "--all"]),
    ("queue-release", &["release", "--all"]),
    ("queue-release-none", &["release", "--all"]),
    ("queue-delete", &["delete", "--all"]),
    ("queue-delete-dry", &["delete", "--all", "--dry-run"]),
    ("queue-bounce", &["bounce", "--all"]),
    ("queue-list", &["list", "6AK9BQPE592284"]),
    ("queue-list-empty", &["list", "--to", "@b.test"]),
];

/// Answers of `mailrace status`.
const STATUS: [&str; 3] = ["status", "status-trouble", "status-sink"];

/// Names of sendmail's commands with their words, and the answers that they print.
const SENDMAIL: [(&str, &[&str], &[&str]); 7] = [
    ("mailq", &[], &["queue-list-all", "queue-list-empty"]),
    ("mailq", &["-v"], &["queue-list-all"]),
    ("mailq", &["-q!Sexample.org"], &["queue-list-all"]),
    ("sendmail", &["-bP"], &["status"]),
    ("hoststat", &[], &["hosts", "hosts-none"]),
    ("hoststat", &["-v"], &["hosts"]),
    ("mailstats", &[], &["mailers"]),
];

fn answers() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../operator/tests/answers")
}

fn expected() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/commands/answers")
}

/// Gives every request of one connection this answer while the command runs, and returns what the command printed.
fn printed(answer: &str, dir: &Path, mut command: Command) -> String {
    let path = dir.join("control");
    let listener = UnixListener::bind(&path).expect("a socket");
    let answer = answer.to_owned();
    let serving = std::thread::spawn(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let requests = BufReader::new(stream.try_clone().expect("a second handle")).lines();
        for _ in requests.map_while(Result::ok) {
            // A command that has read enough goes away.
            drop(stream.write_all(answer.as_bytes()));
        }
    });
    let output = command.env("TZ", "UTC").env("MAILRACE_CONFIG", dir.join("m.toml")).output().expect("it runs");
    // A command that refuses its arguments does not connect.
    drop(UnixStream::connect(&path));
    serving.join().expect("it ends");
    std::fs::remove_file(path).expect("the socket");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    let exit = output.status.code().unwrap_or(-1);
    format!("{out}--- standard error\n{err}--- exit status {exit}\n")
}

/// The name of the file with the output of a command.
fn file_name(answer: &str, words: &[&str]) -> String {
    let words: Vec<&str> = words.iter().map(|word| word.trim_matches('-')).collect();
    let words = words.join("-").replace(|c: char| !c.is_ascii_alphanumeric() && c != '-', "_");
    format!("{answer}.{words}.txt")
}

/// Runs every command on its answers, and returns what each printed, by the name of its file.
fn all_printed() -> Vec<(String, String)> {
    let dir = tempfile::tempdir().expect("a directory");
    let dir = dir.path();
    let config = format!(
        "hostname = \"mx.example.org\"\n[control]\npath = \"{}\"\n[spool]\npath = \"/var/spool/mailrace\"\n",
        dir.join("control").display()
    );
    std::fs::write(dir.join("m.toml"), config).expect("written");
    let read = |name: &str| std::fs::read_to_string(answers().join(format!("{name}.jsonl"))).expect("an answer");
    let mut all = Vec::new();
    let own = QUEUE.iter().map(|(name, words)| (*name, [&["queue"], *words].concat()));
    for (name, words) in own.chain(STATUS.map(|name| (name, vec!["status"]))) {
        for form in [&[][..], &["--json"]] {
            let words = [words.as_slice(), form].concat();
            let mut command = program();
            command.args(&words).arg("--control").arg(dir.join("control"));
            all.push((file_name(name, &words), printed(&read(name), dir, command)));
        }
    }
    for (called, words, names) in SENDMAIL {
        let link = dir.join(called);
        if !link.exists() {
            std::os::unix::fs::symlink(program_path(), &link).expect("a link");
        }
        for name in names {
            let mut command = Command::new(&link);
            command.args(words);
            all.push((file_name(name, &[&[called], words].concat()), printed(&read(name), dir, command)));
        }
    }
    all
}

#[test]
fn answers_are_printed_as_recorded() {
    for (name, text) in all_printed() {
        let expected = std::fs::read_to_string(expected().join(&name)).unwrap_or_default();
        assert_eq!(text, expected, "{name}");
    }
}

#[test]
fn an_answer_of_another_type_names_the_socket_and_the_next_step() {
    let dir = tempfile::tempdir().expect("a directory");
    let path = dir.path().join("control");
    let queue = "{\"ok\":true,\"queue\":7}\n";
    let line = "{\"id\":7}\n{\"ok\":true}\n";
    for (words, answer) in [(&["status"][..], queue), (&["queue", "list"], line)] {
        let mut command = program();
        command.args(words).arg("--control").arg(&path);
        let printed = printed(answer, dir.path(), command);
        let named = format!("mailrace: {}: the answer of the server is not that of this version: ", path.display());
        assert!(printed.contains(&named) && printed.contains("; restart the server after an update"), "{printed}");
        assert!(printed.ends_with("--- exit status 74\n"), "{printed}");
    }
}

#[test]
#[ignore = "writes the files that the test above compares with"]
fn write_answers() {
    for (name, text) in all_printed() {
        std::fs::write(expected().join(name), text).expect("written");
    }
}

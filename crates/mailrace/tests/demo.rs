//! `mailrace demo` as a user meets it: twice in the same place, beside what it must not touch, where the port is taken.

use std::fs;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Runs the demonstration to its count; what it printed is in the panic of a test that fails.
#[track_caller]
fn demo(dir: &Path, listen: &str, exit: i32) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mailrace"));
    command.args(["demo", "--exit", "--messages", "200", "--sessions", "5", "--listen", listen, "--dir"]).arg(dir);
    let Output { status, stdout, stderr } = command.output().expect("the program runs");
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert_eq!(status.code(), Some(exit), "{stdout}\n{stderr}");
    format!("{stdout}{stderr}")
}

fn place(test: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    drop(fs::remove_dir_all(&dir));
    dir
}

#[test]
fn it_counts_and_can_be_repeated() {
    let dir = place("demo-twice");
    for _ in 0..2 {
        let story = demo(&dir, "127.0.0.1:0", 0);
        let figure = |name: &str| {
            let line = story.lines().find_map(|line| line.trim().strip_prefix(name)).expect("a figure").trim();
            line.split(|letter: char| !letter.is_ascii_digit()).next().and_then(|number| number.parse::<u64>().ok())
        };
        assert_eq!((figure("accepted"), figure("lost")), (Some(200), Some(0)), "{story}");
        // Half, and at most what five sessions had under way.
        let (acknowledged, found) = (figure("acknowledged").unwrap_or(0), figure("found").unwrap_or(0));
        assert!((100..=110).contains(&acknowledged) && (300..=315).contains(&found), "{story}");
        let path = dir.display().to_string();
        for line in story.lines().filter(|line| !line.contains(&path)) {
            assert!(line.chars().count() <= 80, "{line}");
        }
        assert_eq!(fs::read_dir(&dir).expect("a directory").count(), 2, "spool and log, and nothing else stays");
    }
}

#[test]
fn a_directory_of_somebody_else_is_left_alone() {
    let dir = place("demo-foreign");
    fs::create_dir_all(dir.join("spool")).expect("a place");
    fs::write(dir.join("spool/letters"), "mine").expect("a file");
    assert!(demo(&dir, "127.0.0.1:0", 73).contains("not touched"));
    assert_eq!(fs::read(dir.join("spool/letters")).expect("still there"), b"mine");
}

#[test]
fn a_port_that_is_taken_is_named_with_a_way_out() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let listen = taken.local_addr().expect("bound").to_string();
    let dir = place("demo-taken");
    let story = demo(&dir, &listen, 69);
    assert!(story.contains(&listen) && story.contains("--listen") && !dir.exists(), "{story}");
}

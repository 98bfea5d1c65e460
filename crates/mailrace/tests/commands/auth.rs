//! `mailrace auth` as a user meets it: a hash that the next command accepts, exit statuses, no secret in the output.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Output;
use testkit::harness::{program, run_with_input};

/// Runs the program with a password on its standard input.
#[track_caller]
fn run(arguments: &[&str], input: &str, exit: i32) -> String {
    let mut command = program();
    command.arg("auth").args(arguments);
    let Output { status, stdout, stderr } = run_with_input(&mut command, input);
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert_eq!(status.code(), Some(exit), "{arguments:?}\n{stdout}\n{stderr}");
    format!("{stdout}{stderr}")
}

/// A password file of one test.
fn file(test: &str, text: &str) -> PathBuf {
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    fs::write(&path, text).expect("a file");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("its mode");
    path
}

#[test]
fn a_hash_is_accepted_by_test() {
    for scheme in ["argon2id", "scram-sha-256"] {
        let line = run(&["hash", "--scheme", scheme, "--user", "anna"], "correct horse\n", 0);
        assert!(line.starts_with("anna:") && !line.contains("horse"), "{line}");
        let path = file(&format!("auth-{scheme}"), &line);
        let path = path.to_str().expect("a name in UTF-8");
        assert!(run(&["test", "anna", "--file", path], "correct horse", 0).contains("the password is right"));
        for (user, password) in [("anna", "correct horse "), ("bert", "correct horse")] {
            let text = run(&["test", user, "--file", path], password, 77);
            assert!(text.contains("wrong or the user is unknown"), "{text}");
        }
    }
}

#[test]
fn what_cannot_be_done_is_said() {
    assert!(run(&["hash"], "\n", 65).contains("the password is empty"));
    run(&["hash", "--user", "a:b"], "x\n", 64);
    run(&["test", "anna"], "x\n", 64);
    let text = run(&["test", "anna", "--file", "/nonexistent/users"], "x\n", 74);
    assert!(text.contains("/nonexistent/users: cannot read the password file"), "{text}");
    let path = file("auth-broken", "anna:clear\n");
    let text = run(&["test", "anna", "--file", path.to_str().expect("a name in UTF-8")], "clear\n", 77);
    assert!(text.contains("auth-broken line 1: user \"anna\": neither argon2id"), "{text}");
}

#[test]
fn a_program_can_be_tried() {
    let ask = |status| ["test", "anna", "--program", "/bin/sh", "-c", status];
    run(&ask("exit 0"), "x\n", 0);
    run(&ask("exit 1"), "x\n", 77);
    assert!(run(&ask("exit 9"), "x\n", 74).contains("0 means yes and 1 no"));
}

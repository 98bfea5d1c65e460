//! `mailrace check` and `mailrace config` as a user meets them.

use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Runs the program without a configuration of this machine; what it printed, standard error last.
#[track_caller]
fn run(arguments: &[&str], variable: &Path, exit: i32) -> String {
    let Output { status, stdout, stderr } = Command::new(env!("CARGO_BIN_EXE_mailrace"))
        .args(arguments)
        .env("MAILRACE_CONFIG", variable)
        .output()
        .expect("the program runs");
    let (stdout, stderr) = (String::from_utf8_lossy(&stdout), String::from_utf8_lossy(&stderr));
    assert_eq!(status.code(), Some(exit), "{arguments:?}\n{stdout}\n{stderr}");
    format!("{stdout}{stderr}")
}

/// A file for one test.
fn file(test: &str, text: &str) -> PathBuf {
    let dir = Path::new(env!("CARGO_TARGET_TMPDIR")).join(test);
    fs::create_dir_all(&dir).expect("a place");
    let file = dir.join("mailrace.toml");
    fs::write(&file, text).expect("written");
    file
}

#[test]
fn check_says_everything() {
    let good = file("config_good", "hostname = \"mx.example.com\"\nlog.level = 3\n");
    let said = run(&["check"], &good, 0);
    assert!(said.ends_with("mailrace.toml: ok, 2 keys set, 0 warnings\n") || said.contains("stay root"), "{said}");
    let bad = file("config_bad", "hostnam = 1\n[log]\nlevel = 99\n");
    let said = run(&["check", "--config", bad.to_str().expect("UTF-8")], &good, 78);
    assert!(
        said.contains("did you mean \"hostname\"?") && said.contains("mailrace.toml:3:9") && said.contains("2 errors"),
        "{said}"
    );
    let json: Value = serde_json::from_str(&run(&["check", "--json"], &bad, 78)).expect("JSON");
    assert_eq!((&json["ok"], &json["errors"]), (&false.into(), &2.into()));
    let files = file("config_files", "[tls]\ncertificate = \"none.pem\"\nkey = \"none.key\"\n");
    assert!(run(&["check"], &files, 78).contains("tls.key: there is no file"));
    let said = run(&["check"], Path::new("/nowhere/mailrace.toml"), 78);
    assert!(said.contains("/nowhere/mailrace.toml: there is no such file"), "{said}");
}

#[test]
fn config_shows_and_explains() {
    let path = file("config_show", "log.level = 3\n");
    let said = run(&["config", "show", "log.level", "--set", "log.level=4"], &path, 0);
    assert!(said.starts_with("log.level = 4 ") && said.ends_with("# --set; default 9\n"), "{said}");
    let again = file("config_again", &run(&["config", "show"], &path, 0));
    let of = |path| run(&["config", "show", "--json"], path, 0).replace("config_again", "config_show");
    let values = |text: &str| -> Vec<Value> {
        let list: Vec<Value> = serde_json::from_str(text).expect("JSON");
        list.iter().map(|one| one["value"].clone()).collect()
    };
    assert_eq!(values(&of(&path)), values(&of(&again)));
    assert!(run(&["config", "show", "log.lvl"], &path, 64).contains("did you mean \"log.level\"?"));
    assert!(run(&["config", "explain", "spool"], &path, 0).contains("spool.size_max"));
    assert!(run(&["config", "explain", "nothing"], &path, 64).contains("unknown key"));
    assert!(run(&["config", "defaults"], &path, 0).contains("#[[listen]]"));
    let bad = file("config_show_bad", "log.level = \"x\"\n");
    assert!(run(&["config", "show"], &bad, 78).contains("log.level: \"x\" is text"));
}

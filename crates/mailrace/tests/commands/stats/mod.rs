//! `mailrace stats` on log files, as a user meets it; `tests/relay/stats.rs` has it with a running server.

mod figures;
mod files;
mod forms;
mod hostile;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use testkit::harness::program;

/// Lines of sendmail 8.17.1.9, with comments of the recording between them.
const SENDMAIL: &str = include_str!("../../relay/readers/recorded.txt");
/// Lines of Postfix 3.7.11.
const POSTFIX: &str = include_str!("../../../../observe/tests/it/postfix.txt");
/// The year of both recordings.
const YEAR: [&str; 2] = ["--year", "2026"];

/// A directory with logs.
struct Logs(tempfile::TempDir);

impl Logs {
    fn new() -> Self {
        Self(tempfile::tempdir().expect("a directory"))
    }

    fn path(&self, name: &str) -> PathBuf {
        self.0.path().join(name)
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) -> PathBuf {
        let path = self.path(name);
        std::fs::write(&path, text).expect("written");
        path
    }
}

/// Returns the recording without its comments.
fn sendmail_lines() -> String {
    SENDMAIL.split_inclusive('\n').filter(|line| !line.starts_with('#')).collect()
}

/// `mailrace stats …` at a place where it is seven hours earlier than in UTC.
fn stats(words: &[&str], files: &[&Path]) -> Command {
    let mut command = program();
    command.arg("stats").args(words).args(files).env("TZ", "MST7").env_remove("MAILRACE_CONFIG");
    command
}

/// Runs it with an exit status that is expected; standard output and standard error.
#[track_caller]
fn run(mut command: Command, exit: i32) -> (String, String) {
    let Output { status, stdout, stderr } = command.output().expect("it runs");
    let (stdout, stderr) = (String::from_utf8(stdout).expect("UTF-8"), String::from_utf8(stderr).expect("UTF-8"));
    assert_eq!(status.code(), Some(exit), "{command:?}\n{stdout}\n{stderr}");
    (stdout, stderr)
}

/// Runs it on one file without an error.
#[track_caller]
fn printed(words: &[&str], file: &Path) -> String {
    let (stdout, stderr) = run(stats(words, &[file]), 0);
    assert_eq!(stderr, "");
    stdout
}

/// The same as JSON.
#[track_caller]
fn json(words: &[&str], file: &Path) -> serde_json::Value {
    let text = printed(&[words, &["--json"]].concat(), file);
    serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"))
}

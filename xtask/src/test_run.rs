//! `cargo xtask test-run`: builds all test binaries, and runs two of them at a time.
//!
//! Most tests wait for time limits, sockets and other programs, so that one binary after the other leaves a core idle.
//! The output of a binary goes to a file of `target/test-output`; a failed one is printed. Skipped tests are printed
//! with its reason. Property tests try the same cases in each run, so that a run says something of the change and
//! another one repeats it; `PROPTEST_RNG_SEED` chooses other cases.

#![expect(clippy::disallowed_methods, reason = "it measures and limits how long programs run")]

use std::collections::VecDeque;
use std::fs::File;
use std::io::{BufRead, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::Report;

/// Binaries that run at a time.
const AT_A_TIME: usize = 2;
/// A binary that runs longer is ended: several times what the longest takes on two slow cores.
const TIME_MAX: Duration = Duration::from_secs(60 * 60);
/// The seed of property tests, when the environment gives none.
const SEED: &str = "1";
/// Lines and octets that the last words of a run show of one failed test.
const LINES_SHOWN: usize = 40;
const LINE_OCTETS_SHOWN: usize = 800;
/// The ones that take longest, longest first: they begin first.
const LONGEST: [&str; 8] = [
    "mailrace/relay",
    "server/lib",
    "spool/it",
    "schedule/it",
    "mailrace/commands",
    "mailrace/local",
    "route/it",
    "mail/it",
];

/// A test binary.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Binary {
    /// The folder of the package, and the test or `lib` or `bin`.
    name: String,
    path: PathBuf,
    /// The directory of its package: tests read files by paths relative to it.
    package: PathBuf,
}

/// A binary that has run.
struct Done {
    binary: Binary,
    seconds: u64,
    /// Why it failed, if it did.
    failure: Option<String>,
    output: String,
}

/// Builds and runs all tests but documentation examples.
///
/// # Errors
/// The tests cannot be built, or their output cannot be written.
pub(crate) fn command(root: &Path) -> Result<Report, String> {
    let (mut binaries, programs) = build(root)?;
    let rank = |binary: &Binary| LONGEST.iter().position(|name| *name == binary.name).unwrap_or(LONGEST.len());
    binaries.sort_by_key(rank);
    let output = target_dir(root).join("test-output");
    std::fs::create_dir_all(&output).map_err(|e| format!("{} cannot be made: {e}", output.display()))?;
    let all = binaries.len();
    let queue = Mutex::new(VecDeque::from(binaries));
    let done = Mutex::new(Vec::new());
    std::thread::scope(|scope| {
        for _ in 0..AT_A_TIME {
            scope.spawn(|| {
                while let Some(binary) = take(&queue) {
                    let one = run(binary, &programs, &output);
                    let mut done = done.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                    print(&one, done.len() + 1, all);
                    done.push(one);
                }
            });
        }
    });
    let done = done.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
    let failed: Vec<&Done> = done.iter().filter(|one| one.failure.is_some()).collect();
    Ok(Report { text: last_words(&failed, all), failed: !failed.is_empty() })
}

/// Repeats for each failed test its name and why, so that the end of a long output suffices.
fn last_words(failed: &[&Done], all: usize) -> String {
    if failed.is_empty() {
        return format!("{all} test binaries passed\n");
    }
    let mut text = String::new();
    for one in failed {
        let tests = failed_tests(&one.output);
        if tests.is_empty() {
            text.push_str(&format!("{}: {}\n", one.binary.name, one.failure.as_deref().unwrap_or_default()));
        }
        for name in tests {
            text.push_str(&format!("{} {name}\n", one.binary.name));
            for line in output_of(&one.output, name).take(LINES_SHOWN) {
                let end = line.floor_char_boundary(LINE_OCTETS_SHOWN);
                text.push_str(&format!("    {}\n", line.get(..end).unwrap_or(line)));
            }
        }
    }
    let names: Vec<&str> = failed.iter().map(|one| one.binary.name.as_str()).collect();
    text.push_str(&format!("{} of {all} test binaries failed: {}\n", names.len(), names.join(", ")));
    text
}

fn take(queue: &Mutex<VecDeque<Binary>>) -> Option<Binary> {
    queue.lock().unwrap_or_else(std::sync::PoisonError::into_inner).pop_front()
}

fn target_dir(root: &Path) -> PathBuf {
    std::env::var_os("CARGO_TARGET_DIR").map_or_else(|| root.join("target"), PathBuf::from)
}

/// Programs of ours that tests start, with their names.
type Programs = Vec<(String, PathBuf)>;

fn build(root: &Path) -> Result<(Vec<Binary>, Programs), String> {
    let cargo = std::env::var("CARGO").unwrap_or_else(|_| "cargo".to_owned());
    let mut child = Command::new(cargo)
        .args(["test", "--no-run", "--workspace", "--features", "mailrace-bench/rigs", "--locked"])
        .arg("--message-format=json-render-diagnostics")
        .current_dir(root)
        .stdout(Stdio::piped())
        .spawn()
        .map_err(|e| format!("cargo test --no-run cannot be started: {e}"))?;
    let (mut binaries, mut programs) = (Vec::new(), Vec::new());
    for line in child.stdout.take().map(BufReader::new).into_iter().flat_map(BufRead::lines) {
        let line = line.map_err(|e| format!("the output of cargo cannot be read: {e}"))?;
        match serde_json::from_str(&line).ok().as_ref().and_then(built) {
            Some(Built::Test(binary)) => binaries.push(binary),
            Some(Built::Program(name, path)) => programs.push((name, path)),
            None => {}
        }
    }
    let status = child.wait().map_err(|e| format!("cargo test --no-run: {e}"))?;
    if !status.success() || binaries.is_empty() {
        return Err("the tests cannot be built; the lines above say why".to_owned());
    }
    Ok((binaries, programs))
}

#[derive(Debug, PartialEq, Eq)]
enum Built {
    Test(Binary),
    Program(String, PathBuf),
}

/// Reads from a message of cargo which program was built.
fn built(message: &Value) -> Option<Built> {
    let path = PathBuf::from(message.get("executable")?.as_str()?);
    let target = message.pointer("/target/name")?.as_str()?;
    if message.pointer("/profile/test")? != &Value::Bool(true) {
        let is_program = message.pointer("/target/kind/0")?.as_str()? == "bin";
        return is_program.then(|| Built::Program(target.to_owned(), path));
    }
    let manifest = Path::new(message.get("manifest_path")?.as_str()?);
    let package = manifest.parent()?.to_owned();
    let folder = package.file_name()?.to_str()?;
    let kind = message.pointer("/target/kind/0")?.as_str()?;
    let name = format!("{folder}/{}", if kind == "test" { target } else { kind });
    Some(Built::Test(Binary { name, path, package }))
}

fn run(binary: Binary, programs: &[(String, PathBuf)], output: &Path) -> Done {
    let began = Instant::now();
    let file = output.join(format!("{}.txt", binary.name.replace('/', "-")));
    let failure = run_into(&binary, programs, &file).err();
    let output = std::fs::read(&file).map(|bytes| String::from_utf8_lossy(&bytes).into_owned());
    Done { binary, seconds: began.elapsed().as_secs(), failure, output: output.unwrap_or_default() }
}

/// Runs a binary with its output in a file.
fn run_into(binary: &Binary, programs: &[(String, PathBuf)], file: &Path) -> Result<(), String> {
    let out = File::create(file).map_err(|e| format!("{} cannot be written: {e}", file.display()))?;
    let err = out.try_clone().map_err(|e| format!("{} cannot be written: {e}", file.display()))?;
    let mut child = Command::new(&binary.path)
        // Tests that pass say why they skipped.
        .arg("--show-output")
        .current_dir(&binary.package)
        .env("CARGO_MANIFEST_DIR", &binary.package)
        // A panic names its file and line; a trace of it would bury the others.
        .env("RUST_BACKTRACE", "0")
        .env("PROPTEST_RNG_SEED", std::env::var_os("PROPTEST_RNG_SEED").unwrap_or_else(|| SEED.into()))
        .envs(programs.iter().map(|(name, path)| (format!("CARGO_BIN_EXE_{name}"), path)))
        .stdin(Stdio::null())
        .stdout(out)
        .stderr(err)
        .spawn()
        .map_err(|e| format!("it cannot be started: {e}"))?;
    let until = Instant::now() + TIME_MAX;
    loop {
        match child.try_wait() {
            Ok(Some(status)) if status.success() => return Ok(()),
            Ok(Some(status)) => return Err(status.to_string()),
            Ok(None) if Instant::now() < until => std::thread::sleep(Duration::from_millis(100)),
            Ok(None) => {
                // One that ended meanwhile needs no signal.
                let _is_gone = child.kill();
                let _status = child.wait();
                return Err(format!("HUNG: not over after {} minutes, and ended", TIME_MAX.as_secs() / 60));
            }
            Err(e) => return Err(e.to_string()),
        }
    }
}

/// One line for a binary that passed, with the tests it skipped; all output of one that failed.
fn print(done: &Done, number: usize, all: usize) {
    let mut text =
        format!("[{number}/{all}] {:<28} {:>4} s  {}\n", done.binary.name, done.seconds, summary(&done.output));
    match &done.failure {
        None => skipped(&done.output).iter().for_each(|line| text.push_str(&format!("    {line}\n"))),
        Some(why) => text.push_str(&format!("{}\n{} FAILED: {why}\n", done.output, done.binary.name)),
    }
    // A closed pipe (`| head`) is the reader's choice.
    let _closed_pipe = std::io::stdout().lock().write_all(text.as_bytes());
}

/// How many tests there were, by the last line of libtest.
fn summary(output: &str) -> &str {
    let line = output.lines().rev().find_map(|line| line.strip_prefix("test result: "));
    line.map_or("no summary: not a binary of libtest", |line| line.split("; finished").next().unwrap_or(line))
}

/// The tests that failed, by the lines libtest prints while they run.
fn failed_tests(output: &str) -> Vec<&str> {
    output.lines().filter_map(|line| line.strip_prefix("test ")?.strip_suffix(" ... FAILED")).collect()
}

/// The lines that a test printed itself.
fn output_of<'a>(output: &'a str, test: &str) -> impl Iterator<Item = &'a str> {
    let head = format!("---- {test} stdout ----");
    let mut lines = output.lines();
    let _head = lines.find(|line| *line == head);
    lines.filter(|line| !line.is_empty()).take_while(|line| !line.starts_with("---- ") && *line != "failures:")
}

/// The reasons of tests that showed nothing, each once.
fn skipped(output: &str) -> Vec<&str> {
    let mut lines: Vec<&str> = output.lines().filter(|line| line.starts_with("skipped: ")).collect();
    lines.sort_unstable();
    lines.dedup();
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_of_cargo() {
        let message = |name: &str, kind: &str, test: bool, executable: Value| {
            serde_json::json!({
                "reason": "compiler-artifact", "manifest_path": "/x/crates/spool/Cargo.toml", "executable": executable,
                "target": {"name": name, "kind": [kind]}, "profile": {"test": test},
            })
        };
        let test = |name: &str| {
            Some(Built::Test(Binary { name: name.to_owned(), path: "/t/x".into(), package: "/x/crates/spool".into() }))
        };
        assert_eq!(built(&message("it", "test", true, "/t/x".into())), test("spool/it"));
        assert_eq!(built(&message("mailrace-spool", "lib", true, "/t/x".into())), test("spool/lib"));
        let program = Some(Built::Program("mailrace".to_owned(), "/t/x".into()));
        assert_eq!(built(&message("mailrace", "bin", false, "/t/x".into())), program);
        assert_eq!(built(&message("it", "test", true, Value::Null)), None);
        assert_eq!(built(&message("build-script-build", "custom-build", false, "/t/x".into())), None);
        assert_eq!(built(&serde_json::json!({"reason": "build-finished", "success": true})), None);
    }

    #[test]
    fn what_is_printed_of_output() {
        let output = "\nrunning 2 tests\ntest a ... ok\n\nsuccesses:\n\n---- a stdout ----\nskipped: root is not who \
                      runs this\nskipped: nsd is not installed\nskipped: nsd is not installed\n\ntest result: ok. 2 \
                      passed; 0 failed; 0 ignored; 0 measured; 0 filtered out; finished in 0.01s\n";
        assert_eq!(summary(output), "ok. 2 passed; 0 failed; 0 ignored; 0 measured; 0 filtered out");
        assert_eq!(skipped(output), ["skipped: nsd is not installed", "skipped: root is not who runs this"]);
        assert_eq!((summary("killed"), skipped("killed").len()), ("no summary: not a binary of libtest", 0));
    }

    #[test]
    fn the_last_words_name_failed_tests_and_why() {
        let output = "test a ... ok\ntest b::c ... FAILED\ntest d ... FAILED\n\nfailures:\n\n---- b::c stdout ----\n\n\
                      thread 'b::c' panicked at src/b.rs:9:5:\nleft: 1\n\n---- d stdout ----\nno\n\n\nfailures:\n    \
                      b::c\n    d\n\ntest result: FAILED. 1 passed; 2 failed\n";
        let done = |name: &str, output: &str| Done {
            binary: Binary { name: name.to_owned(), path: PathBuf::new(), package: PathBuf::new() },
            seconds: 0,
            failure: Some("exit status: 101".to_owned()),
            output: output.to_owned(),
        };
        let (one, killed) = (done("x/it", output), done("y/lib", "test a ..."));
        let wanted = "x/it b::c\n    thread 'b::c' panicked at src/b.rs:9:5:\n    left: 1\nx/it d\n    no\ny/lib: exit \
                      status: 101\n2 of 7 test binaries failed: x/it, y/lib\n";
        assert_eq!(last_words(&[&one, &killed], 7), wanted);
        assert_eq!(last_words(&[], 7), "7 test binaries passed\n");
        let long = done("x/it", &format!("test a ... FAILED\n---- a stdout ----\n{}\n", "ä".repeat(500)));
        assert!(last_words(&[&long], 1).contains(&format!("    {}\n", "ä".repeat(400))));
    }

    /// A program that fails, hangs up or cannot be started fails the run.
    #[test]
    fn a_binary_that_fails_is_seen() {
        let dir = std::env::temp_dir().join(format!("xtask-test-run-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let one = |path: &str| {
            let binary = Binary { name: "x".to_owned(), path: path.into(), package: dir.clone() };
            run(binary, &[], &dir).failure
        };
        assert_eq!(one("/bin/true"), None);
        assert!(one("/bin/false").is_some_and(|why| why.contains("exit status: 1")));
        assert!(one("/nonexistent").is_some_and(|why| why.contains("cannot be started")));
        std::fs::remove_dir_all(&dir).expect("the directory");
    }
}

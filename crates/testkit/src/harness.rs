//! Starts the built program on free ports with a spool of its own, and looks into that spool afterwards.

use mail::{Envelope, QueueId};
use rustix::process::{Pid, Signal, kill_process};
use spool::disk::real::RealDisk;
use spool::{Config, Spool, Store as _};
use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::{Duration, Instant};

pub use crate::needs;

/// Far longer than anything here takes, on a machine that is busy with something else too.
pub const SOON: Duration = Duration::from_secs(60);

/// The time that a busy machine may add to a configured time.
pub const SLACK: Duration = Duration::from_secs(10);

/// The built program, of the same build as the test that runs.
pub fn program() -> Command {
    Command::new(program_path())
}

/// Finds the built program: cargo names it to an integration test; without cargo it is beside `deps`, where the test
/// is.
///
/// # Panics
/// It is not built.
pub fn program_path() -> PathBuf {
    let named = std::env::var_os("CARGO_BIN_EXE_mailrace").map(PathBuf::from);
    let beside = || Some(std::env::current_exe().ok()?.parent()?.parent()?.join("mailrace"));
    let path = named.or_else(beside).expect("a test has a path");
    assert!(path.is_file(), "{} is not built", path.display());
    path
}

/// Runs a command with this text on its standard input, and waits for its end.
///
/// # Panics
/// It does not start, or cannot be waited for.
pub fn run_with_input(command: &mut Command, input: &str) -> Output {
    let command = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().expect("the program starts");
    let mut stdin = child.stdin.take().expect("a pipe");
    // A program that stops for its arguments does not read.
    drop(stdin.write_all(input.as_bytes()));
    drop(stdin);
    child.wait_with_output().expect("the program runs")
}

/// Lets time pass.
pub fn pause(time: Duration) {
    let (_nobody, never) = channel::<()>();
    assert!(never.recv_timeout(time).is_err(), "nobody sends");
}

/// Sends a signal to a process. After SIGSTOP it waits until each thread stands still, since a thread on another
/// processor may still answer a request for a moment.
#[track_caller]
pub fn send_signal(pid: Pid, signal: Signal) {
    kill_process(pid, signal).expect("it lives");
    if signal == Signal::STOP {
        poll("a process that was stopped goes on", || stands_still(pid).then_some(()));
    }
}

fn stands_still(pid: Pid) -> bool {
    let threads = std::fs::read_dir(format!("/proc/{}/task", pid.as_raw_nonzero())).expect("it lives");
    threads.flatten().all(|thread| {
        // A thread that has ended meanwhile answers nothing. The state is behind the name, which is in parentheses.
        let stat = std::fs::read_to_string(thread.path().join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, state)| state.starts_with(['T', 't', 'Z']))
    })
}

/// Polls until a condition holds.
#[track_caller]
#[allow(clippy::disallowed_methods, reason = "a limit for waiting")]
pub fn poll<T>(what: &str, mut look: impl FnMut() -> Option<T>) -> T {
    let start = Instant::now();
    loop {
        if let Some(found) = look() {
            return found;
        }
        assert!(start.elapsed() < SOON, "{what}");
        pause(Duration::from_millis(3));
    }
}

/// A configuration, and a directory that goes with it.
pub struct Setup {
    values: BTreeMap<String, String>,
    pub dir: Arc<tempfile::TempDir>,
}

impl Setup {
    pub fn new() -> Self {
        let dir = Arc::new(tempfile::tempdir().expect("a directory"));
        let at = |name: &str| format!("{:?}", dir.path().join(name));
        let values = [
            ("hostname", "\"mx.test\"".to_owned()),
            // As root it would warn, and there may be no other user.
            ("server.user", "\"root\"".to_owned()),
            ("spool.path", at("spool")),
            ("spool.segment_bytes", "\"1MiB\"".to_owned()),
            ("spool.size_max", "\"32MiB\"".to_owned()),
            ("spool.free_min", "0".to_owned()),
            ("message.size_max", "\"10MiB\"".to_owned()),
            ("control.path", at("control")),
            ("log.path", "\"-\"".to_owned()),
            ("listen", "[{address = \"127.0.0.1:0\"}]".to_owned()),
            ("accept.reverse_dns", "false".to_owned()),
            // Accepted messages stay in the spool, where the test reads them.
            ("delivery.mode", "\"queue\"".to_owned()),
        ];
        Self { values: values.into_iter().map(|(key, value)| (key.to_owned(), value)).collect(), dir }
    }

    /// Sets a key to a value in TOML.
    pub fn set(mut self, key: &str, value: impl Into<String>) -> Self {
        self.values.insert(key.to_owned(), value.into());
        self
    }

    pub fn values_remove(&mut self, key: &str) {
        self.values.remove(key);
    }

    pub fn listen(self, entry: &str) -> Self {
        let entry = if entry.is_empty() { String::new() } else { format!(", {entry}") };
        self.set("listen", format!("[{{address = \"127.0.0.1:0\"{entry}}}]"))
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// Writes the file and returns its name.
    pub fn write(&self) -> PathBuf {
        let mut text = String::new();
        for (key, value) in &self.values {
            writeln!(text, "{key} = {value}").expect("a string takes everything");
        }
        let path = self.path("mailrace.toml");
        std::fs::write(&path, text).expect("written");
        path
    }

    /// `mailrace serve` with this configuration.
    pub fn command(&self) -> Command {
        let mut command = program();
        command.arg("serve").arg("--config").arg(self.write());
        command
    }

    pub fn start(self) -> Server {
        let command = self.command();
        Server::start(self, command)
    }

    /// Runs a server that does not start, and returns its exit status and standard error.
    pub fn fails(&self) -> (Option<i32>, String) {
        failed(self.command())
    }
}

/// Runs a command that is to end by itself.
pub fn failed(mut command: Command) -> (Option<i32>, String) {
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn().expect("the program runs");
    let stderr = reader(child.stderr.take().expect("piped"));
    let mut text = String::new();
    loop {
        match stderr.recv_timeout(SOON) {
            Ok(line) => writeln!(text, "{line}").expect("a string takes everything"),
            Err(RecvTimeoutError::Disconnected) => return (child.wait().expect("it ends").code(), text),
            Err(RecvTimeoutError::Timeout) => {
                child.kill().expect("killed");
                panic!("it does not end; it said: {text}");
            }
        }
    }
}

fn reader(from: impl std::io::Read + Send + 'static) -> Receiver<String> {
    let (sender, receiver) = channel();
    std::thread::spawn(move || {
        for line in BufReader::new(from).lines() {
            let Ok(line) = line else { return };
            if sender.send(line).is_err() {
                return;
            }
        }
    });
    receiver
}

/// A running server. It is killed when this is dropped.
pub struct Server {
    pub setup: Setup,
    child: Child,
    stdout: Receiver<String>,
    stderr: Receiver<String>,
    /// In the order of the configuration.
    pub addresses: Vec<SocketAddr>,
    /// The log lines read so far.
    pub log: Vec<String>,
    /// Lines of it up to the one that was found last.
    found: usize,
}

/// How a server ended.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub log: Vec<String>,
    pub stderr: String,
}

impl Server {
    /// Runs `command`, which is `mailrace serve` with the setup, and waits until it is ready.
    pub fn start(setup: Setup, mut command: Command) -> Self {
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("the program runs");
        let stdout = reader(child.stdout.take().expect("piped"));
        let stderr = reader(child.stderr.take().expect("piped"));
        let listeners = setup.values.get("listen").map_or(1, |listen| listen.matches("address").count());
        let mut server = Self { setup, child, stdout, stderr, addresses: Vec::new(), log: Vec::new(), found: 0 };
        while server.addresses.len() < listeners {
            match server.stdout.recv_timeout(SOON) {
                Ok(line) => match line.strip_prefix("mailrace: ready on ") {
                    Some(address) => server.addresses.push(address.parse().expect("an address")),
                    None => server.log.push(line),
                },
                Err(_) => {
                    let said: Vec<String> = server.stderr.try_iter().collect();
                    panic!("no server: {:?} {said:?} {:?}", server.log, server.child.try_wait());
                }
            }
        }
        server
    }

    pub fn address(&self) -> SocketAddr {
        *self.addresses.first().expect("a server has an address")
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn signal(&self, signal: Signal) {
        let pid = i32::try_from(self.pid()).ok().and_then(Pid::from_raw).expect("a process has a number");
        send_signal(pid, signal);
    }

    /// Waits for a line of the log with `part` in it, behind the one that was found last.
    pub fn wait_log(&mut self, part: &str) -> String {
        if let Some(at) = self.log.iter().skip(self.found).position(|line| line.contains(part)) {
            self.found += at + 1;
            return self.log[self.found - 1].clone();
        }
        loop {
            match self.stdout.recv_timeout(SOON) {
                Ok(line) => {
                    self.log.push(line.clone());
                    if line.contains(part) {
                        self.found = self.log.len();
                        return line;
                    }
                }
                Err(error) => panic!("no line with {part:?}, {error}: {:#?}", self.log),
            }
        }
    }

    /// Returns whether a line of the log with `part` in it has come, behind the one that was found last.
    pub fn has_logged(&mut self, part: &str) -> bool {
        self.log.extend(self.stdout.try_iter());
        let at = self.log.iter().skip(self.found).position(|line| line.contains(part));
        self.found += at.map_or(0, |at| at + 1);
        at.is_some()
    }

    /// Passes over all lines of the log that have come so far.
    pub fn pass_over(&mut self) {
        self.log.extend(self.stdout.try_iter());
        self.found = self.log.len();
    }

    /// Waits until no delivery is under way. The log tells of an outcome before it is recorded: a command that comes in
    /// between finds the recipient as it was before, and its change of the recipient is overwritten.
    #[track_caller]
    pub fn rests(&self) {
        poll("a delivery is under way", || {
            let output = self.control(&["queue", "list", "--json", "--limit", "0"], b"");
            assert!(output.status.success(), "{}", text(&output));
            (!text(&output).contains("\"state\":\"active\"")).then_some(())
        });
    }

    /// Stops the server in good order and keeps its directory.
    pub fn stop_for_setup(mut self) -> Setup {
        self.signal(Signal::TERM);
        let setup = std::mem::replace(&mut self.setup, Setup::new());
        assert!(self.ended().status.success());
        setup
    }

    /// Asks it to end and waits until it has.
    pub fn stop(self) -> Ended {
        self.signal(Signal::TERM);
        self.ended()
    }

    /// Waits until it has ended.
    pub fn ended(mut self) -> Ended {
        loop {
            match self.stdout.recv_timeout(SOON) {
                Ok(line) => self.log.push(line),
                Err(RecvTimeoutError::Disconnected) => break,
                Err(RecvTimeoutError::Timeout) => panic!("it does not end: {:#?}", self.log),
            }
        }
        let status = self.child.wait().expect("it has ended");
        let stderr = self.stderr.iter().collect::<Vec<_>>().join("\n");
        Ended { status, log: std::mem::take(&mut self.log), stderr }
    }

    /// `kill -9`.
    pub fn kill(&mut self) {
        self.child.kill().expect("it lives");
        self.child.wait().expect("it is dead");
    }

    /// Kills it and returns the messages in the spool.
    pub fn letters_after_kill(mut self) -> Vec<Letter> {
        self.kill();
        letters(&self.setup.path("spool"))
    }

    /// Runs `mailrace COMMAND --control …` with some input.
    pub fn control(&self, command: &[&str], input: &[u8]) -> Output {
        control(&self.setup.path("control"), command, input)
    }

    /// A number of `mailrace status --json`, by its JSON pointer.
    #[track_caller]
    pub fn status(&self, place: &str) -> u64 {
        let status = self.whole_status();
        status.pointer(place).and_then(serde_json::Value::as_u64).unwrap_or_else(|| panic!("{place}: {status}"))
    }

    /// All of `mailrace status --json`.
    #[track_caller]
    pub fn whole_status(&self) -> serde_json::Value {
        let output = self.control(&["status", "--json"], b"");
        assert!(output.status.success(), "{}", text(&output));
        serde_json::from_slice(&output.stdout).expect("JSON")
    }

    /// A figure of /proc/PID/status in KiB.
    pub fn memory_kib(&self, name: &str) -> u64 {
        let text = std::fs::read_to_string(format!("/proc/{}/status", self.pid())).expect("it lives");
        let line = text.lines().find(|line| line.starts_with(name)).expect("the kernel says it");
        line.split_ascii_whitespace().nth(1).and_then(|word| word.parse().ok()).expect("a number")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        if std::thread::panicking() {
            self.log.extend(self.stdout.try_iter());
            let mut stderr = String::new();
            stderr.extend(self.stderr.try_iter());
            eprintln!("log: {:#?}\nstderr: {stderr}", self.log);
        }
    }
}

/// Runs `mailrace COMMAND --control …` with some input.
pub fn control(path: &Path, command: &[&str], input: &[u8]) -> Output {
    use std::io::Write as _;
    let mut child = program()
        .args(command)
        .arg("--control")
        .arg(path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the program runs");
    let mut stdin = child.stdin.take().expect("piped");
    drop(stdin.write_all(input));
    drop(stdin);
    child.wait_with_output().expect("it ends")
}

/// A message in a spool.
#[derive(Debug)]
pub struct Letter {
    pub id: QueueId,
    pub envelope: Envelope,
    /// As stored, with the trace line.
    pub content: Vec<u8>,
}

impl Letter {
    /// The content without our trace line, which must be the first field and be ours.
    pub fn own_content(&self) -> &[u8] {
        let (trace, rest) = self.split();
        assert!(trace.starts_with(b"Received: from "), "{}", trace.escape_ascii());
        rest
    }

    /// The trace line, unfolded.
    pub fn trace(&self) -> String {
        String::from_utf8(self.split().0.to_vec()).expect("our line").replace("\r\n\t", " ").trim_end().to_owned()
    }

    fn split(&self) -> (&[u8], &[u8]) {
        let mut at = 0;
        while let Some(end) = self.content.get(at..).and_then(|rest| rest.windows(2).position(|two| two == b"\r\n")) {
            at += end + 2;
            if !matches!(self.content.get(at), Some(b' ' | b'\t')) {
                break;
            }
        }
        self.content.split_at(at)
    }
}

/// Returns all messages of a spool that is not open, in the order of their names.
pub fn letters(path: &Path) -> Vec<Letter> {
    let mut config = Config::new(path);
    config.free_min = 0;
    let (spool, recovery) = Spool::open(config, Arc::new(RealDisk::new())).expect("a spool");
    assert!(recovery.damage.is_empty(), "{:?}", recovery.damage);
    let mut ids = spool.messages();
    ids.sort_unstable_by_key(|id| id.to_u64());
    let letter = |id: QueueId| Letter {
        id,
        envelope: spool::envelope::decode(id, &spool.envelope(id).expect("stored")).expect("an envelope"),
        content: spool.body(id).expect("stored").concat(),
    };
    let letters = ids.into_iter().map(letter).collect();
    drop(spool);
    let_go(path);
    letters
}

/// Waits until the lock of a spool that was open here is free: a process that another test starts has our files, and
/// with them the lock, until it executes its program. A server that is started meanwhile would find the spool in use.
#[track_caller]
pub fn let_go(spool: &Path) {
    use std::os::unix::fs::MetadataExt as _;
    let file = std::fs::metadata(spool.join("lock")).expect("a spool has a lock").ino().to_string();
    // `1: FLOCK ADVISORY WRITE 4711 fe:00:393 0 EOF`
    let is_ours =
        |line: &str| line.split_ascii_whitespace().nth(5).is_some_and(|at| at.rsplit(':').next() == Some(&file));
    poll("the lock is never given back", || {
        let locks = std::fs::read_to_string("/proc/locks").unwrap_or_default();
        (!locks.lines().any(is_ours)).then_some(())
    });
}

/// Writes a program. A process of its own does it: a file that is open here for writing is also open in a process that
/// another test starts, and the kernel does not run an open file.
pub fn write_program(path: &Path, text: &[u8]) {
    use std::io::Write as _;
    let mut command = Command::new("sh");
    command.args(["-c", "cat >\"$1\" && chmod 755 \"$1\"", "sh"]).arg(path).stdin(Stdio::piped());
    let mut child = command.spawn().expect("a shell");
    child.stdin.take().expect("piped").write_all(text).expect("it reads");
    assert!(child.wait().expect("it ends").success(), "{}", path.display());
}

/// Copies a program, for the same reason by a process of its own.
pub fn copy_program(from: &Path, to: &Path) {
    let status = Command::new("cp").args([from, to]).status().expect("there is cp");
    assert!(status.success(), "{}", to.display());
}

/// Reads a time of the log: `00:01:30`.
#[track_caller]
pub fn time(text: &str) -> Duration {
    let is_right = |part: &str| part.len() == 2 && part.bytes().all(|digit| digit.is_ascii_digit());
    let parts: Option<Vec<u64>> = text.split(':').map(|part| part.parse().ok().filter(|_| is_right(part))).collect();
    match parts.as_deref() {
        Some(&[hours, minutes @ 0..60, seconds @ 0..60]) => Duration::from_secs(hours * 3_600 + minutes * 60 + seconds),
        _ => panic!("{text:?} is no time"),
    }
}

/// The text of both outputs.
pub fn text(output: &Output) -> String {
    format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr))
}

/// The words of a command for `exec`, with its own first.
pub fn words(command: &Command) -> Vec<OsString> {
    std::iter::once(command.get_program()).chain(command.get_args()).map(OsString::from).collect()
}

/// Reads a whole file.
pub fn read(path: &Path) -> String {
    let mut text = String::new();
    std::fs::File::open(path).and_then(|mut file| file.read_to_string(&mut text)).expect("a file");
    text
}

//! `mailrace demo` as a user meets it: twice in the same place, beside files it must not touch, where the port is
//! taken.

use rustix::process::{Pid, Signal, kill_process};
use std::fs;
use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdout, Command, Output, Stdio};
use std::time::Duration;
use testkit::harness::poll;

/// A kill that comes when all is acknowledged shows nothing. On a busy machine that happens, and not each time.
const TRIES: u32 = 20;

/// Runs the demonstration to its count; its output is in the panic of a test that fails.
#[track_caller]
fn demo(dir: &Path, listen: &str, exit: i32) -> String {
    let mut command = Command::new(env!("CARGO_BIN_EXE_mailrace"));
    command.args(["demo", "--exit", "--messages", "900", "--sessions", "5", "--listen", listen]);
    command.args(["--http", "127.0.0.1:0", "--dir"]).arg(dir);
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
    // Kills that came while mail was still being sent.
    let mut in_the_middle = 0;
    for _ in 0..TRIES {
        let story = demo(&dir, "127.0.0.1:0", 0);
        let figure = |name: &str| {
            let line = story.lines().find_map(|line| line.trim().strip_prefix(name)).expect("a figure").trim();
            line.split(|letter: char| !letter.is_ascii_digit()).next().and_then(|number| number.parse::<u64>().ok())
        };
        assert_eq!(
            (figure("accepted"), figure("delivered"), figure("lost")),
            (Some(900), Some(900), Some(0)),
            "{story}"
        );
        // Half, and the messages acknowledged until the kill came: on a busy machine that is not at once. And at most
        // the messages that five sessions had under way.
        let (acknowledged, arrived) = (figure("acknowledged").unwrap_or(0), figure("arrived").unwrap_or(0));
        assert!((450..=900).contains(&acknowledged) && (acknowledged..=acknowledged + 5).contains(&arrived), "{story}");
        let path = dir.display().to_string();
        for line in story.lines().filter(|line| !line.contains(&path)) {
            assert!(line.chars().count() <= 80, "{line}");
        }
        assert_eq!(fs::read_dir(&dir).expect("a directory").count(), 2, "spool and log, and nothing else stays");
        in_the_middle += u32::from(acknowledged < 900);
        if in_the_middle == 2 {
            return;
        }
    }
    panic!("of {TRIES} kills {in_the_middle} came before all was acknowledged");
}

/// A demonstration that stays up. Dropping it kills it.
struct Running {
    child: Child,
    out: BufReader<ChildStdout>,
    invitation: String,
}

impl Running {
    /// Starts one and waits until it has said what to try.
    fn start(test: &str) -> Self {
        let mut command = Command::new(env!("CARGO_BIN_EXE_mailrace"));
        command.args(["demo", "--messages", "20", "--sessions", "2", "--listen", "127.0.0.1:0"]);
        command.args(["--http", "127.0.0.1:0", "--dir"]);
        let mut child = command.arg(place(test)).stdout(Stdio::piped()).spawn().expect("the program runs");
        let mut out = BufReader::new(child.stdout.take().expect("piped"));
        let mut invitation = String::new();
        while !invitation.contains("Ctrl-C") {
            assert!(out.read_line(&mut invitation).expect("it speaks") > 0, "{invitation}");
        }
        Self { child, out, invitation }
    }

    /// Returns the word behind `before` in its output.
    fn word(&self, before: &str) -> &str {
        let (_, rest) = self.invitation.rsplit_once(before).expect("it is said");
        rest.split_whitespace().next().expect("a word")
    }

    /// Runs a line of the invitation, and returns its output.
    fn try_line(&self, part: &str) -> String {
        let line = self.invitation.lines().find(|line| line.contains(part)).expect("a line to try");
        let output = Command::new("sh").args(["-c", line]).output().expect("a shell");
        assert!(output.status.success(), "{line}: {output:?}");
        String::from_utf8(output.stdout).expect("text")
    }

    /// Waits until the queue is listed with these words, and no attempt is under way: its result would overwrite what a
    /// command changes.
    fn queue_says(&self, words: &str) {
        let mut said = String::new();
        // Each try is a process of its own, so this is minutes.
        let found = (0..5_000).any(|_| {
            said = self.try_line("queue list");
            said.contains(words) && !said.contains("being delivered")
        });
        assert!(found, "{words}: {said}");
    }

    /// Sends a message, as a storm of one.
    fn send(&self) {
        let mut storm = Command::new(env!("CARGO_BIN_EXE_mailrace"));
        let output = storm.args(["storm", "-n", "1", "-s", "1", "--to", self.word("swaks --server ")]).output();
        let output = output.expect("the program runs");
        assert!(output.status.success(), "{output:?}");
    }

    fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).expect("it runs");
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// The lines of the invitation have the announced effect.
#[test]
fn what_it_invites_to_try_works() {
    let mut demo = Running::start("demo-try");
    assert!(demo.try_line(" status ").contains("deliveries   0 sent"));
    let mut page = TcpStream::connect(demo.word("Its page is http://").trim_end_matches('/')).expect("connected");
    page.write_all(b"GET / HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").expect("sent");
    let mut answer = String::new();
    page.read_to_string(&mut answer).expect("read");
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.contains("<title>mailrace</title>"), "{answer}");
    demo.send();
    demo.queue_says("the queue is empty");
    let sink = demo.word("sink --listen ").to_owned();
    let pid = demo.word("\n  kill ").parse().ok().and_then(Pid::from_raw).expect("a process");
    let mut hop = TcpStream::connect(&sink).expect("the sink listens");
    kill_process(pid, Signal::TERM).expect("it runs");
    // It has ended when its last connection has.
    drop(hop.read_to_end(&mut Vec::new()));
    poll("the sink still listens", || TcpStream::connect(&sink).err());
    demo.send();
    demo.queue_says("Connection refused");
    let mut other = Command::new(env!("CARGO_BIN_EXE_mailrace"));
    let mut other = other.args(["sink", "--listen", &sink]).stdout(Stdio::piped()).spawn().expect("the program runs");
    let mut ready = String::new();
    let mut out = BufReader::new(other.stdout.take().expect("piped"));
    out.read_line(&mut ready).expect("it speaks");
    demo.try_line("queue retry");
    demo.queue_says("the queue is empty");
    drop(other.kill());
    drop(other.wait());
    demo.signal(Signal::INT);
    let mut farewell = String::new();
    demo.out.read_to_string(&mut farewell).expect("it speaks");
    assert!(farewell.contains("Stopped. The sink took 1 message."), "{farewell}");
    assert_eq!(demo.child.wait().expect("it ends").code(), Some(0));
}

#[test]
fn no_server_stays_behind() {
    let demo = Running::start("demo-killed");
    let mut hop = TcpStream::connect(demo.word("sink --listen ")).expect("the sink listens");
    hop.set_read_timeout(Some(Duration::from_secs(60))).expect("a socket");
    drop(demo);
    let mut said = Vec::new();
    let ended = hop.read_to_end(&mut said);
    let is_late = ended.is_err_and(|error| error.kind() == std::io::ErrorKind::WouldBlock);
    assert!(!is_late, "the sink is still there: {}", String::from_utf8_lossy(&said));
}

#[test]
fn a_directory_of_somebody_else_is_left_alone() {
    let dir = place("demo-foreign");
    fs::create_dir_all(dir.join("spool")).expect("a place");
    fs::write(dir.join("spool/letters"), "mine").expect("a file");
    assert!(demo(&dir, "127.0.0.1:0", 73).contains("not touched"));
    assert_eq!(fs::read(dir.join("spool/letters")).expect("still there"), b"mine");

    // An earlier demonstration to which a person added a file.
    fs::remove_file(dir.join("spool/letters")).expect("removed");
    fs::write(dir.join("spool/notes"), "mine").expect("a file");
    fs::write(
        dir.join("spool/demo"),
        "Made by a demonstration of mailrace. The next one removes this directory's spool.\n",
    )
    .expect("a marker");
    assert!(demo(&dir, "127.0.0.1:0", 73).contains("did not make \"notes\""));
    assert_eq!(fs::read(dir.join("spool/notes")).expect("still there"), b"mine");
}

#[test]
fn a_port_that_is_taken_is_named_with_a_way_out() {
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let listen = taken.local_addr().expect("bound").to_string();
    let dir = place("demo-taken");
    let story = demo(&dir, &listen, 69);
    assert!(story.contains(&listen) && story.contains("--listen") && !dir.exists(), "{story}");
}

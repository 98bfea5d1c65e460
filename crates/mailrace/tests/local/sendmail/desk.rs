//! A user at a command line: names of the program, a configuration, a message on standard input.

use server::submit::SOCKET;
use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Arc;
use testkit::harness::{Letter, Server, Setup, letters, poll, program};

/// Where commands are called: the place of a server, whether it runs or not.
pub(crate) struct Desk {
    dir: Arc<tempfile::TempDir>,
}

/// The configuration that commands read.
pub(crate) const CONFIG: &str = "desk.toml";

/// The result of a command.
#[derive(Debug)]
pub(crate) struct Done {
    pub(crate) exit: Option<i32>,
    pub(crate) out: String,
    pub(crate) err: String,
}

impl Desk {
    /// In the place of a server that has run once, so that its directories are there.
    pub(crate) fn opened(setup: Setup) -> (Self, Setup) {
        let desk = Self::of(&setup);
        (desk, setup.start().stop_for_setup())
    }

    /// In the place of a server that has not run.
    pub(crate) fn of(setup: &Setup) -> Self {
        // Other users come through.
        std::fs::set_permissions(setup.dir.path(), std::fs::Permissions::from_mode(0o755)).expect("ours");
        setup.write();
        // A server that starts writes its file anew, perhaps while a command reads it.
        std::fs::copy(setup.path("mailrace.toml"), setup.path(CONFIG)).expect("written");
        Self { dir: Arc::clone(&setup.dir) }
    }

    /// Starts the server of this place, and waits until commands of every user get its answers: it makes their socket
    /// a moment after it is ready, and gives it its mode after its name.
    #[track_caller]
    pub(crate) fn start(&self, setup: Setup) -> Server {
        let server = setup.start();
        let socket = self.pickup().join(SOCKET);
        let is_open = || std::fs::metadata(&socket).is_ok_and(|found| found.permissions().mode() & 0o777 == 0o666);
        poll("no socket for commands", || UnixStream::connect(&socket).ok().filter(|_| is_open()));
        server
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.dir.path().join(name)
    }

    /// The pickup directory.
    pub(crate) fn pickup(&self) -> PathBuf {
        self.path("spool-pickup")
    }

    /// The program by one of its names.
    pub(crate) fn named(&self, name: &str) -> PathBuf {
        let link = self.path(name);
        if !link.exists() {
            std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_mailrace"), &link).expect("a link");
        }
        link
    }

    pub(crate) fn command(&self, name: &str) -> Command {
        let mut command = Command::new(self.named(name));
        command.env("MAILRACE_CONFIG", self.path(CONFIG)).env("HOME", self.path("home"));
        command
    }

    /// Runs `NAME ARGUMENTS < INPUT`.
    pub(crate) fn run(&self, name: &str, arguments: &[&str], input: &str) -> Done {
        let mut command = self.command(name);
        command.args(arguments);
        finish(command, input)
    }

    #[track_caller]
    pub(crate) fn sendmail(&self, arguments: &[&str], input: &str) -> Done {
        self.run("sendmail", arguments, input)
    }

    /// Files of messages in the directory.
    pub(crate) fn waiting(&self) -> Vec<String> {
        waiting(&self.pickup())
    }
}

pub(crate) fn waiting(pickup: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(pickup).expect("a directory").filter_map(Result::ok);
    let names = entries.map(|entry| entry.file_name().to_string_lossy().into_owned());
    let mut names: Vec<String> = names.filter(|name| name.starts_with("mail.")).collect();
    names.sort();
    names
}

/// Runs a command with some input to its end.
pub(crate) fn finish(mut command: Command, input: &str) -> Done {
    let mut child =
        command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("it runs");
    // One that refuses its arguments reads nothing.
    drop(child.stdin.take().expect("piped").write_all(input.as_bytes()));
    let output = child.wait_with_output().expect("it ends");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    Done { exit: output.status.code(), out: text(&output.stdout), err: text(&output.stderr) }
}

/// Starts the server, waits until it has taken everything, ends it, and returns the messages in the spool.
pub(crate) fn taken(setup: Setup) -> Vec<Letter> {
    let (pickup, spool) = (setup.path("spool-pickup"), setup.path("spool"));
    let server = setup.start();
    wait_until_empty(&server, &pickup);
    let setup = server.stop_for_setup();
    let letters = letters(&spool);
    drop(setup);
    letters
}

/// Asks the server until nothing waits in the directory. Each question is an answer of the server, so this waits for it
/// and not for time.
pub(crate) fn wait_until_empty(server: &Server, pickup: &Path) {
    let deadline = 3 * testkit::harness::SOON;
    #[expect(clippy::disallowed_methods, reason = "a limit for a server that does nothing")]
    let begin = std::time::Instant::now();
    while !waiting(pickup).is_empty() {
        server.control(&["status"], b"");
        assert!(begin.elapsed() < deadline, "still waiting: {:?}", waiting(pickup));
    }
}

/// A next hop, killed at the end.
pub(crate) struct Sink {
    child: std::process::Child,
    pub(crate) address: String,
}

impl Sink {
    pub(crate) fn start(arguments: &[&str]) -> Self {
        let mut command = program();
        command.args(["sink", "--listen", "127.0.0.1:0"]).args(arguments).stdout(Stdio::piped());
        let mut child = command.spawn().expect("a sink");
        let said = std::io::BufReader::new(child.stdout.take().expect("piped"));
        // Lines of its log may come first.
        let ready = |line: String| Some(line.strip_prefix("mailrace: ready on ")?.to_owned());
        let address = std::io::BufRead::lines(said).map_while(Result::ok).find_map(ready).expect("ready");
        Self { child, address }
    }
}

impl Drop for Sink {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

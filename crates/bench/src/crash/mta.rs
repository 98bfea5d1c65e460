//! The server that is killed: `mailrace serve`, keeping mail or passing it on, or `mailrace sink` for the control.
//!
//! It dies with the rig (`--with-parent`), for any death of the rig.

use crate::clock;
use crate::crash::host::Stop;
use crate::crash::spools::SpoolArguments;
use rustix::process::{Pid, Signal, kill_process};
use std::fs::{self, OpenOptions};
use std::io::{BufRead as _, BufReader};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::mpsc::{Receiver, channel};
use std::thread;
use std::time::Duration;

/// How long a server may take until it accepts connections; it may have much to recover.
const READY_WAIT: Duration = Duration::from_secs(120);
/// The line that it prints then.
const READY: &str = "mailrace: ready on ";
/// How long it may take to end when it is asked to.
const END_WAIT: Duration = Duration::from_secs(120);

/// Which server.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum What {
    /// The one that keeps mail.
    Serve,
    /// The one that passes it on; its name in EHLO says which start of it this is.
    Relay { to: SocketAddr, generation: u32, filter: Option<MtaFilter> },
    /// The one that does not keep it.
    Sink,
}

/// The filter of a relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct MtaFilter {
    /// Its protocol.
    pub(super) kind: &'static str,
    pub(super) at: SocketAddr,
    /// When it is asked.
    pub(super) when: &'static str,
    /// Its mail passes it; otherwise it stands in the configuration alone.
    pub(super) is_asked: bool,
}

/// The name of a relay, by which the receiver tells its starts apart.
pub(super) fn name_of(generation: u32) -> String {
    format!("g{generation}.relay.example")
}

/// The start that said this name.
pub(super) fn generation_of(name: &str) -> Option<u32> {
    name.strip_prefix('g')?.strip_suffix(".relay.example")?.parse().ok()
}

/// A server at work. Dropping it kills it with SIGKILL.
#[derive(Debug)]
pub(super) struct Mta {
    child: Child,
    lines: Receiver<String>,
    dir: PathBuf,
}

impl Mta {
    /// Starts a server with its files in `dir`.
    ///
    /// # Errors
    /// It does not start.
    pub(super) fn start(mailrace: &Path, what: What, dir: &Path, spool: &SpoolArguments) -> Result<Self, Stop> {
        let failed = |error| Stop::broken("starting mailrace", error);
        let mut command = Command::new(mailrace);
        match what {
            What::Sink => drop(command.args(["sink", "--with-parent", "--listen", "127.0.0.1:0"])),
            What::Serve | What::Relay { .. } => {
                command.args(["serve", "--with-parent"]);
                for setting in settings(what, dir, spool) {
                    command.arg("--set").arg(setting);
                }
            }
        }
        let stderr = OpenOptions::new().create(true).append(true).open(words(dir)).map_err(failed)?;
        // No file of the machine decides anything here.
        command.env("MAILRACE_CONFIG", "/dev/null").env("RUST_BACKTRACE", "0");
        let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr).spawn().map_err(failed)?;
        let (said, lines) = channel();
        if let Some(stdout) = child.stdout.take() {
            thread::spawn(move || {
                for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                    drop(said.send(line));
                }
            });
        }
        Ok(Self { child, lines, dir: dir.to_owned() })
    }

    /// Waits until it accepts connections, and returns where.
    ///
    /// # Errors
    /// It ends instead, or takes too long.
    pub(super) fn ready(&self) -> Result<SocketAddr, Stop> {
        // Lines of the log may come on standard output too, and before this one.
        while let Ok(line) = self.lines.recv_timeout(READY_WAIT) {
            if let Some(address) = line.strip_prefix(READY).and_then(|address| address.parse().ok()) {
                return Ok(address);
            }
        }
        let said = complaints(&self.dir);
        Err(Stop::Broken(format!("mailrace did not start: {}", said.lines().last().unwrap_or("it says nothing"))))
    }

    /// Asks it to end, and waits until it has.
    ///
    /// # Errors
    /// It does not end in [`END_WAIT`], or not well; then it is killed.
    pub(super) fn end(mut self) -> Result<(), Stop> {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            kill_process(pid, Signal::TERM).map_err(|error| Stop::broken("ending mailrace", error))?;
        }
        let until = clock::now() + END_WAIT;
        loop {
            match self.child.try_wait().map_err(|error| Stop::broken("ending mailrace", error))? {
                Some(status) if status.success() => return Ok(()),
                Some(status) => return Err(Stop::Broken(format!("mailrace ended with {status}"))),
                None if clock::now() > until => {
                    let text = format!("mailrace had not ended {} s after SIGTERM", END_WAIT.as_secs());
                    return Err(Stop::Broken(text));
                }
                None => clock::pause(Duration::from_millis(5)),
            }
        }
    }

    /// Kills it with SIGKILL and waits until nothing of it runs.
    pub(super) fn kill(self) {
        drop(self);
    }
}

impl Drop for Mta {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// Returns the standard error of all servers in `dir`.
pub(super) fn complaints(dir: &Path) -> String {
    fs::read(words(dir)).map(|said| String::from_utf8_lossy(&said).into_owned()).unwrap_or_default()
}

fn words(dir: &Path) -> PathBuf {
    dir.join("stderr")
}

fn settings(what: What, dir: &Path, spool: &SpoolArguments) -> Vec<String> {
    let mut settings = vec![
        format!("spool.path={}", spool.path.display()),
        format!("spool.segment_bytes={}", spool.segment_bytes),
        format!("spool.size_max={}", spool.size_max),
        format!("spool.free_min={}", spool.free_min),
        "message.size_max=8MiB".to_owned(),
        format!("log.path={}", dir.join("log").display()),
        format!("control.path={}", dir.join("control").display()),
    ];
    let mut filters = "";
    if let What::Relay { filter: Some(MtaFilter { kind, at, when, is_asked }), .. } = what {
        let table = format!("{{name=\"scanner\",kind=\"{kind}\",address=\"{at}\",when=\"{when}\"}}");
        settings.push(format!("filter=[{table}]"));
        filters = if is_asked { ",filters=[\"scanner\"]" } else { "" };
    }
    settings.push(format!("listen=[{{address=\"127.0.0.1:0\"{filters}}}]"));
    if let What::Relay { to, generation, .. } = what {
        settings.push(format!("hostname={}", name_of(generation)));
        settings.push(format!("route.smart_host=[\"[{}]:{}\"]", to.ip(), to.port()));
    } else {
        settings.push("delivery.mode=queue".to_owned());
    }
    settings
}

//! Client programs of other mail servers, as children; and the processor time of the machine while they run.
//!
//! `smtp-source` is told how many messages to send and ends by itself; Postal sends until it is killed and reports by
//! the minute, so it is started and ended here, and its messages are counted elsewhere.

use crate::clock;
use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// Ticks of /proc in a second.
pub(crate) const TICKS: f64 = 100.0;
/// How often a child is asked whether it has ended.
const ASK_EVERY: Duration = Duration::from_millis(2);

/// The load that `smtp-source` makes.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Source {
    pub(crate) sessions: u32,
    pub(crate) messages: u64,
    /// Octets of each message.
    pub(crate) bytes: usize,
    /// A connection for each message, or one for each session.
    pub(crate) new_connection: bool,
}

impl Source {
    /// Sends them all.
    ///
    /// # Errors
    /// The program failed, or had not ended after `longest`.
    pub(crate) fn send(self, to: SocketAddr, longest: Duration) -> Result<(), String> {
        let mut command = Command::new("smtp-source");
        let Self { sessions, messages, bytes, new_connection } = self;
        command.args(["-s", &sessions.to_string(), "-m", &messages.to_string(), "-l", &bytes.to_string()]);
        command.args(["-f", "a@storm.example", "-t", "b@storm.example"]);
        if !new_connection {
            command.arg("-d");
        }
        command.arg(to.to_string());
        finish(command, longest)
    }
}

/// Runs a client that ends by itself, and ends it when it does not.
fn finish(mut command: Command, longest: Duration) -> Result<(), String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let told = |e: std::io::Error| format!("{name}: {e}");
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn().map_err(told)?;
    let until = clock::now() + longest;
    loop {
        match child.try_wait().map_err(told)? {
            Some(status) if status.success() => return Ok(()),
            Some(status) => return Err(format!("{name}: {status}")),
            None if clock::now() > until => {
                drop(child.kill());
                drop(child.wait());
                return Err(format!("{name} had not ended after {:.0} s", longest.as_secs_f64()));
            }
            None => clock::pause(ASK_EVERY),
        }
    }
}

/// Postal at work. Dropping it ends it.
#[derive(Debug)]
pub(crate) struct Postal {
    child: Child,
    dir: PathBuf,
}

impl Postal {
    /// Lets it send to one recipient as fast as it can, with `threads` connections at a time, `kilobytes` from and to
    /// in each message and up to `messages` on a connection.
    ///
    /// # Errors
    /// The program cannot be started.
    pub(crate) fn start(
        scratch: &Path,
        to: SocketAddr,
        threads: u32,
        kilobytes: (u32, u32),
        messages: u32,
    ) -> Result<Self, String> {
        let dir = scratch.join(format!("mailrace-postal-{}", std::process::id()));
        let told = |e: std::io::Error| format!("postal: {e}");
        fs::create_dir_all(&dir).map_err(told)?;
        let users = dir.join("users");
        fs::write(&users, "user@storm.example\n").map_err(told)?;
        let (least, most) = kilobytes;
        let mut command = Command::new("postal");
        // Without a limit of its own worth the name.
        command.args(["-t", &threads.to_string(), "-m", &most.to_string(), "-M", &least.to_string()]);
        command.args(["-c", &messages.to_string(), "-r", "6000000"]);
        command.arg(format!("[{}]{}", to.ip(), to.port())).arg(&users).current_dir(&dir);
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        Ok(Self { child: command.spawn().map_err(told)?, dir })
    }

    /// Ends it.
    ///
    /// # Errors
    /// It had ended before, so the measured load is not the planned one.
    pub(crate) fn end(mut self) -> Result<(), String> {
        match self.child.try_wait().map_err(|e| format!("postal: {e}"))? {
            Some(status) => Err(format!("postal ended early: {status}")),
            None => Ok(()),
        }
    }
}

impl Drop for Postal {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
        drop(fs::remove_dir_all(&self.dir));
    }
}

/// Processor time all processes and the kernel have used, in ticks.
pub(crate) fn machine_ticks() -> u64 {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields: Vec<u64> =
        stat.lines().next().unwrap_or("").split_whitespace().skip(1).filter_map(|field| field.parse().ok()).collect();
    // user nice system (idle iowait) irq softirq steal; guest time is within user.
    [0, 1, 2, 5, 6].iter().filter_map(|at| fields.get(*at)).sum()
}

/// Processor time a process has used, in ticks.
pub(crate) fn process_ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let rest = stat.rsplit(") ").next().unwrap_or("");
    rest.split(' ').skip(11).take(2).filter_map(|field| field.parse::<u64>().ok()).sum()
}

/// The most memory a process has had resident, in bytes.
pub(crate) fn process_memory_max(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    line.and_then(|line| line.split_whitespace().next()?.parse::<u64>().ok()).unwrap_or(0) * 1024
}

/// Bytes a process has had written to devices.
pub(crate) fn process_written(pid: u32) -> u64 {
    let io = fs::read_to_string(format!("/proc/{pid}/io")).unwrap_or_default();
    let line = io.lines().find_map(|line| line.strip_prefix("write_bytes: "));
    line.and_then(|line| line.trim().parse().ok()).unwrap_or(0)
}

/// Seconds of processor time.
#[expect(clippy::cast_precision_loss, reason = "processor time")]
pub(crate) fn seconds(ticks: u64) -> f64 {
    ticks as f64 / TICKS
}

/// Microseconds of processor time for each message.
pub(crate) fn us_each(ticks: u64, messages: f64) -> f64 {
    seconds(ticks) * 1e6 / messages
}

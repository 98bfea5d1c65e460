//! The scanners: `spamd` and `clamd` as Debian has them, the milters by which Postfix asks them, and one as if it stood
//! on another machine.
//!
//! Both contenders ask the same two processes, which start anew for each sample. `spamd` has the rules of its package
//! and asks no network; `clamd` has one signature of its own, since the public ones need a download.

use super::distant::DistantScanner;
use crate::clock;
use crate::side_by_side::programs::{TICKS, process_ticks};
use crate::side_by_side::servers::end;
use std::fs;
use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The longest wait for a scanner to listen: `spamd` compiles its rules.
const PATIENCE: Duration = Duration::from_secs(60);
/// Processes of `spamd`, threads of `clamd`.
const WORKERS: u32 = 4;

/// A kind of scanner.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub(super) enum Scanner {
    /// SpamAssassin
    Spamd,
    /// ClamAV
    Clamd,
    /// Speaks the protocol of clamd, waits, and takes next to no processor time
    Distant,
}

impl Scanner {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Spamd => "spamd",
            Self::Clamd => "clamd",
            Self::Distant => "distant",
        }
    }

    /// Its kind in a table `[[filter]]`.
    pub(super) const fn kind(self) -> &'static str {
        match self {
            Self::Spamd => "spamd",
            Self::Clamd | Self::Distant => "clamd",
        }
    }
}

/// Running scanners. Dropping them ends them.
#[derive(Debug)]
pub(super) struct Scanners {
    dir: PathBuf,
    children: Vec<Child>,
    distant: Vec<DistantScanner>,
    /// Kind and address.
    pub(super) at: Vec<(Scanner, SocketAddr)>,
    /// Addresses of the milters in front of them.
    pub(super) milters: Vec<SocketAddr>,
}

impl Scanners {
    /// Starts scanners, and with `has_milters` a milter for each.
    ///
    /// # Errors
    /// A program is missing or does not listen; the text names the package.
    pub(super) fn start(dir: &Path, kinds: &[Scanner], has_milters: bool, delay: Duration) -> Result<Self, String> {
        let dir = dir.join(format!("scanners-{}", clock::unix_us()));
        fs::create_dir_all(&dir).map_err(|error| format!("{}: {error}", dir.display()))?;
        let mut scanners = Self { dir, children: Vec::new(), distant: Vec::new(), at: Vec::new(), milters: Vec::new() };
        for &kind in kinds {
            let at = scanners.scanner(kind, delay)?;
            scanners.at.push((kind, at));
            if has_milters {
                let milter = scanners.milter(kind, at)?;
                scanners.milters.push(milter);
            }
        }
        Ok(scanners)
    }

    /// Processor time of the scanners and milters so far, in microseconds.
    pub(super) fn cpu_us(&self) -> f64 {
        let ticks: u64 = self.children.iter().map(|child| process_ticks(child.id())).sum();
        let distant: u64 = self.distant.iter().map(DistantScanner::cpu_us).sum();
        as_f64(ticks) / TICKS * 1e6 + as_f64(distant)
    }

    fn scanner(&mut self, kind: Scanner, delay: Duration) -> Result<SocketAddr, String> {
        if kind == Scanner::Distant {
            let distant = DistantScanner::start(delay).map_err(|error| format!("distant scanner: {error}"))?;
            let at = distant.at;
            self.distant.push(distant);
            return Ok(at);
        }
        let at = free_port()?;
        let (port, workers) = (at.port().to_string(), WORKERS.to_string());
        match kind {
            Scanner::Spamd => {
                let mut command = Command::new("spamd");
                command.args(["-L", "-x", "-m", &workers, "--min-children", &workers, "--min-spare", "1"]);
                command.args(["-i", "127.0.0.1", "-p", &port, "-u", "nobody", "-s", "null"]);
                self.run(command, at, "spamd")?;
            }
            Scanner::Clamd => {
                let database = self.dir.join("signatures");
                self.write("signatures/bench.ndb", "Bench.Pattern:0:*:61207061747465726e206f66206e6f20737461746520\n")?;
                let text = format!(
                    "DatabaseDirectory {}\nTCPSocket {port}\nTCPAddr 127.0.0.1\nForeground yes\nMaxThreads {workers}\n\
                     LogFile {}\n",
                    database.display(),
                    self.dir.join("clamd.log").display(),
                );
                let config = self.write("clamd.conf", &text)?;
                let mut command = Command::new("clamd");
                command.arg("-c").arg(config);
                self.run(command, at, "clamav-daemon")?;
            }
            Scanner::Distant => {}
        }
        Ok(at)
    }

    fn milter(&mut self, kind: Scanner, scanner: SocketAddr) -> Result<SocketAddr, String> {
        let at = free_port()?;
        let socket = format!("inet:{}@127.0.0.1", at.port());
        match kind {
            Scanner::Spamd => {
                let mut command = Command::new("spamass-milter");
                command.args(["-p", &socket, "--", "-d", "127.0.0.1", "-p", &scanner.port().to_string()]);
                self.run(command, at, "spamass-milter")?;
            }
            Scanner::Clamd => {
                let text = format!(
                    "MilterSocket {socket}\nClamdSocket tcp:127.0.0.1:{}\nForeground yes\nOnInfected Reject\n\
                     AddHeader Replace\n",
                    scanner.port()
                );
                let config = self.write("clamav-milter.conf", &text)?;
                let mut command = Command::new("clamav-milter");
                command.arg("-c").arg(config);
                self.run(command, at, "clamav-milter")?;
            }
            Scanner::Distant => return Err("distant: there is no milter in front of it".to_owned()),
        }
        Ok(at)
    }

    fn write(&self, name: &str, text: &str) -> Result<PathBuf, String> {
        let path = self.dir.join(name);
        let told = |error: std::io::Error| format!("{}: {error}", path.display());
        fs::create_dir_all(path.parent().unwrap_or(&self.dir)).map_err(told)?;
        fs::write(&path, text).map_err(told)?;
        Ok(path)
    }

    /// Starts a program and waits until it listens.
    fn run(&mut self, mut command: Command, at: SocketAddr, package: &str) -> Result<(), String> {
        let name = command.get_program().to_string_lossy().into_owned();
        let command = command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let child = command.spawn().map_err(|error| format!("{name}: {error}; it comes with the package {package}"))?;
        self.children.push(child);
        let until = clock::now() + PATIENCE;
        while TcpStream::connect(at).is_err() {
            let has_ended = self.children.last_mut().is_none_or(|child| !matches!(child.try_wait(), Ok(None)));
            if has_ended || clock::now() > until {
                return Err(format!("{name} does not listen on {at}"));
            }
            clock::pause(Duration::from_millis(20));
        }
        Ok(())
    }
}

impl Drop for Scanners {
    fn drop(&mut self) {
        // Milters came last and go first.
        self.children.iter_mut().rev().for_each(end);
        drop(fs::remove_dir_all(&self.dir));
    }
}

#[expect(clippy::cast_precision_loss, reason = "a time of processors")]
fn as_f64(number: u64) -> f64 {
    number as f64
}

/// The system's choice of a port; no other program looks for one in the moment between.
fn free_port() -> Result<SocketAddr, String> {
    let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|free| free.local_addr());
    free.map_err(|error| format!("no free port: {error}"))
}

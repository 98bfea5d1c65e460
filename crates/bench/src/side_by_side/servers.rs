//! The servers under measurement: `mailrace serve` and `mailrace sink` as children, others through `bench/peers/peer`.
//!
//! Dropping a running server ends it and removes its files, and so does dropping [`RunDirectory`] with everything of a
//! run.

use crate::clock;
use rustix::process::Signal;
use serde_json::Value;
use spool::disk::real::RealDisk;
use spool::envelope::decode_recipient;
use spool::{Config, Spool, Store as _};
use std::borrow::Cow;
use std::collections::HashSet;
use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::time::Duration;

/// The longest wait for a server to say that it is ready, and to end after SIGTERM.
const PATIENCE: Duration = Duration::from_secs(30);
/// The line that a server prints when it accepts connections, perhaps followed by " on ADDRESS:PORT".
const READY: &str = "mailrace: ready";

/// The servers that can be measured.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ServerKind {
    /// `mailrace serve` with its spool on the disk.
    Serve,
    /// The same of another build.
    Before,
    /// The same with a history, and with the page open or not.
    Seen { page: bool },
    /// The same on a tmpfs.
    ServeMemory,
    /// `mailrace sink`.
    Sink,
    /// Another server, by its name in the script.
    Peer(String),
    /// The same without what could be tuned for lists.
    Untuned(String),
}

impl ServerKind {
    /// Whether it is ours, and passes mail on.
    pub(crate) fn is_mailrace(&self) -> bool {
        matches!(self, Self::Serve | Self::Before | Self::Seen { .. } | Self::ServeMemory)
    }

    pub(crate) fn name(&self) -> Cow<'_, str> {
        Cow::Borrowed(match self {
            Self::Serve => "mailrace serve",
            Self::Before => "mailrace serve, --before",
            Self::Seen { page: false } => "mailrace serve, history",
            Self::Seen { page: true } => "mailrace serve, history, open page",
            Self::ServeMemory => "mailrace serve, tmpfs",
            Self::Sink => "mailrace sink",
            Self::Peer(name) => name,
            Self::Untuned(name) => return Cow::Owned(format!("{name}, defaults")),
        })
    }
}

/// Where programs and directories are.
#[derive(Clone, Debug)]
pub(crate) struct Site {
    pub(crate) mailrace: PathBuf,
    /// Another build of it, to be compared with.
    pub(crate) before: Option<PathBuf>,
    pub(crate) peers: PathBuf,
    pub(crate) disk: PathBuf,
    pub(crate) memory: PathBuf,
    /// Certificate and key in PEM, made for this run.
    pub(crate) certificate: PathBuf,
    pub(crate) key: PathBuf,
}

impl Site {
    /// Looks for the program, makes a certificate.
    ///
    /// # Errors
    /// The program is missing, or the directory takes no files.
    pub(crate) fn new(mailrace: PathBuf, peers: PathBuf, work: &RunDirectory, memory: PathBuf) -> Result<Self, String> {
        if !mailrace.is_file() {
            return Err(format!("{} is missing; cargo build --release --package mailrace", mailrace.display()));
        }
        let (certificate, key) = certificate(&work.0)?;
        Ok(Self { mailrace, before: None, peers, disk: work.0.clone(), memory, certificate, key })
    }

    /// The same with another build of mailrace.
    ///
    /// # Errors
    /// The program is missing.
    pub(crate) fn with_before(self, before: Option<PathBuf>) -> Result<Self, String> {
        match before {
            Some(program) if !program.is_file() => Err(format!("--before: {} is missing", program.display())),
            before => Ok(Self { before, ..self }),
        }
    }
}

/// Where this program lies, and mailrace beside it.
///
/// # Errors
/// The system does not say.
pub(crate) fn beside() -> Result<PathBuf, String> {
    let own = std::env::current_exe().map_err(|e| e.to_string())?;
    Ok(own.parent().unwrap_or_else(|| Path::new(".")).to_owned())
}

/// The treatment of mail by a server.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Task {
    /// Accept and keep it; TLS is offered or not.
    Keep { tls: bool },
    /// Accept it and pass it on to one next hop, as fast as it can.
    Relay { to: SocketAddr },
    /// The same, behind scanners that [`RunningServer::start_screened`] names.
    Screen { to: SocketAddr },
    /// Accept messages with any number of recipients and bring them to the hosts that the DNS of this machine names.
    List,
}

/// A running server.
#[derive(Debug)]
pub(crate) struct RunningServer<'a> {
    pub(crate) at: SocketAddr,
    site: &'a Site,
    made: Made,
}

#[derive(Debug)]
enum Made {
    /// The program that it is also reads its spool.
    Child {
        child: Child,
        program: PathBuf,
        dir: PathBuf,
    },
    Peer(String),
}

impl<'a> RunningServer<'a> {
    /// Starts a server with an empty queue and waits until it accepts connections.
    ///
    /// # Errors
    /// Why it does not run, with its own last words.
    pub(crate) fn start(site: &'a Site, kind: &ServerKind, task: Task) -> Result<Self, String> {
        Self::start_with(site, kind, task, &[])
    }

    /// The same with scanners: tables `[[filter]]` by their names and `more` settings for mailrace, milters for another
    /// server.
    ///
    /// # Errors
    /// As [`RunningServer::start`].
    pub(crate) fn start_screened(
        site: &'a Site,
        kind: &ServerKind,
        task: Task,
        filters: &[(&str, String)],
        milters: &[SocketAddr],
        more: &[String],
    ) -> Result<Self, String> {
        if let ServerKind::Peer(name) = kind {
            let milters: Vec<String> =
                milters.iter().map(|milter| format!("inet:{}:{}", milter.ip(), milter.port())).collect();
            return Self::start_peer(site, name, task, &[("MILTERS", &milters.join(" "))]);
        }
        let tables: Vec<&str> = filters.iter().map(|(_, table)| table.as_str()).collect();
        let names: Vec<String> = filters.iter().map(|(name, _)| format!("{name:?}")).collect();
        let mut settings = vec![
            format!("filter=[{}]", tables.join(", ")),
            format!("listen=[{{address=\"127.0.0.1:0\",tls=\"none\",filters=[{}]}}]", names.join(", ")),
        ];
        settings.extend_from_slice(more);
        Self::start_with(site, kind, task, &settings)
    }

    /// The same with more settings, `KEY=VALUE`, for mailrace itself.
    ///
    /// # Errors
    /// As [`RunningServer::start`].
    pub(crate) fn start_with(site: &'a Site, kind: &ServerKind, task: Task, more: &[String]) -> Result<Self, String> {
        let parent = match kind {
            ServerKind::ServeMemory => &site.memory,
            ServerKind::Serve | ServerKind::Before | ServerKind::Seen { .. } | ServerKind::Sink => &site.disk,
            ServerKind::Peer(name) => return Self::start_peer(site, name, task, &[]),
            ServerKind::Untuned(name) => {
                return Self::start_peer(site, name, task, &[("DEFAULTS", "yes")]);
            }
        };
        if *kind == ServerKind::Before && site.before.is_none() {
            return Err("--before names no other build of mailrace".to_owned());
        }
        // Two servers may run at a time.
        let dir = parent.join(format!("mailrace-server-{}-{}", std::process::id(), clock::unix_us()));
        fs::create_dir(&dir).map_err(|e| format!("{}: {e}", dir.display()))?;
        let program = match (kind, &site.before) {
            (ServerKind::Before, Some(before)) => before,
            _ => &site.mailrace,
        };
        let command = match kind {
            ServerKind::Sink => sink(site, task),
            ServerKind::Seen { .. } => {
                let seen =
                    [format!("history.path={}", dir.join("history").display()), "http.address=127.0.0.1:0".to_owned()];
                serve(program, site, &dir, task, &[more, &seen].concat())
            }
            _ => serve(program, site, &dir, task, more),
        };
        match ready(command, &dir, address) {
            Ok((child, at, _)) => {
                let server = Self { at, site, made: Made::Child { child, program: program.clone(), dir } };
                if *kind == (ServerKind::Seen { page: true }) {
                    server.open_page()?;
                }
                Ok(server)
            }
            Err(error) => {
                drop(fs::remove_dir_all(&dir));
                Err(error)
            }
        }
    }

    fn start_peer(site: &'a Site, name: &str, task: Task, environment: &[(&str, &str)]) -> Result<Self, String> {
        // A server that a killed run left would hold the port.
        drop(peer(site, &["stop", name]));
        let mode = match task {
            Task::Keep { .. } => "queue",
            Task::Relay { .. } | Task::Screen { .. } => "relay",
            Task::List => "list",
        };
        let mut command = peer_command(site, &["start", name, mode]);
        command.envs(environment.iter().copied());
        if let Task::Relay { to } | Task::Screen { to } = task {
            command.env("RELAY_TO", to.port().to_string());
        }
        drop(output(&mut command)?);
        let port = peer(site, &["port", name])?;
        let port = port.trim().parse::<u16>().map_err(|e| format!("port of {name}: {e}"))?;
        Ok(Self { at: SocketAddr::from(([127, 0, 0, 1], port)), site, made: Made::Peer(name.to_owned()) })
    }

    /// The process, where one process is the whole server.
    pub(crate) fn process(&self) -> Option<u32> {
        match &self.made {
            Made::Child { child, .. } => Some(child.id()),
            Made::Peer(_) => None,
        }
    }

    /// Ends a server that is one process, by `kill -9` or in good order. The stored mail stays until this is dropped.
    pub(crate) fn end(&mut self, signal: Signal) {
        let Made::Child { child, .. } = &mut self.made else { return };
        if signal == Signal::KILL {
            drop(child.kill());
            drop(child.wait());
        } else {
            end(child);
        }
    }

    /// Starts `mailrace serve` again, which has ended, on its files. It listens elsewhere than before.
    ///
    /// # Errors
    /// As [`RunningServer::start`].
    pub(crate) fn start_again(&mut self, task: Task, more: &[String]) -> Result<(), String> {
        let Made::Child { child, program, dir } = &mut self.made else {
            return Err("only mailrace starts again".to_owned());
        };
        let (again, at, _) = ready(serve(program, self.site, dir, task, more), dir, address)?;
        (*child, self.at) = (again, at);
        Ok(())
    }

    /// The answer to `mailrace status`.
    fn status(&self) -> Result<Value, String> {
        let Made::Child { program, dir, .. } = &self.made else {
            return Err("only mailrace is asked for its status".to_owned());
        };
        let mut command = Command::new(program);
        command.args(["status", "--json", "--control"]).arg(dir.join("control"));
        serde_json::from_str(&output(&mut command)?).map_err(|e| format!("status: {e}"))
    }

    /// Takes the numbers of each second, as an open page does, until the server ends.
    fn open_page(&self) -> Result<(), String> {
        let status = self.status()?;
        let address = status.get("http").and_then(Value::as_str).ok_or("status: no http")?;
        let failed = |error: std::io::Error| format!("the page on {address}: {error}");
        let mut stream = TcpStream::connect(address).map_err(failed)?;
        stream.write_all(b"GET /api/v1/live HTTP/1.1\r\nHost: localhost\r\n\r\n").map_err(failed)?;
        std::thread::spawn(move || std::io::copy(&mut stream, &mut std::io::sink()));
        Ok(())
    }

    /// Recipients that wait or are under way, as a running `mailrace serve` says.
    ///
    /// # Errors
    /// It does not say.
    pub(crate) fn waiting(&self) -> Result<u64, String> {
        let status = self.status()?;
        let waiting = status.pointer("/queue/waiting").and_then(Value::as_u64);
        waiting.ok_or_else(|| "status: no /queue/waiting".to_owned())
    }

    /// The spool of a `mailrace serve`.
    pub(crate) fn spool(&self) -> Option<PathBuf> {
        match &self.made {
            Made::Child { dir, .. } => Some(dir.join("spool")).filter(|spool| spool.exists()),
            Made::Peer(_) => None,
        }
    }

    /// The log of a `mailrace serve`.
    pub(crate) fn log(&self) -> Option<PathBuf> {
        match &self.made {
            Made::Child { dir, .. } => Some(dir.join("log")).filter(|log| log.exists()),
            Made::Peer(_) => None,
        }
    }

    /// Returns the output of `mailrace spool stats` for the spool of a server that has ended.
    ///
    /// # Errors
    /// It says nothing.
    pub(crate) fn stored(&self) -> Result<Value, String> {
        let (Made::Child { program, .. }, Some(spool)) = (&self.made, self.spool()) else {
            return Err("the server has no spool".to_owned());
        };
        let mut command = Command::new(program);
        command.args(["spool", "stats", "--json"]).arg(&spool);
        serde_json::from_str(&output(&mut command)?).map_err(|e| format!("spool stats: {e}"))
    }

    /// Returns the recipients that wait in the spool of a server that has ended.
    ///
    /// # Errors
    /// It cannot be read.
    pub(crate) fn who_waits(&self) -> Result<HashSet<String>, String> {
        who_waits(&self.spool().ok_or("the server has no spool")?)
    }

    /// Ends the server and counts the messages it keeps; `None` if it keeps none by design.
    ///
    /// # Errors
    /// They cannot be counted.
    pub(crate) fn stop_and_count(mut self) -> Result<Option<u64>, String> {
        let read = |text: &str| text.trim().parse::<u64>().map_err(|e| format!("count {text:?}: {e}"));
        match &mut self.made {
            Made::Peer(name) => return read(&peer(self.site, &["count", name])?).map(Some),
            Made::Child { child, .. } => end(child),
        }
        if self.spool().is_none() {
            return Ok(None);
        }
        let messages = self.stored()?.get("messages").and_then(Value::as_u64);
        messages.map(Some).ok_or_else(|| "spool stats: no messages".to_owned())
    }
}

/// The recipients that are not done, of all messages of a spool.
fn who_waits(path: &Path) -> Result<HashSet<String>, String> {
    let config = Config { free_min: 0, ..Config::new(path) };
    let told = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let (spool, _) = Spool::open(config, Arc::new(RealDisk::new())).map_err(|error| told(&error))?;
    let mut waiting = HashSet::new();
    for id in spool.messages() {
        for recipient in spool.envelope(id).map_err(|error| told(&error))?.recipients {
            let recipient = decode_recipient(&recipient.data).map_err(|error| told(&error))?;
            waiting.insert(recipient.address.to_string());
        }
    }
    Ok(waiting)
}

impl Drop for RunningServer<'_> {
    fn drop(&mut self) {
        match &mut self.made {
            Made::Child { child, dir, .. } => {
                end(child);
                drop(fs::remove_dir_all(dir));
            }
            Made::Peer(name) => drop(peer(self.site, &["stop", name])),
        }
    }
}

/// The sink, which stores nothing.
fn sink(site: &Site, task: Task) -> Command {
    let mut command = Command::new(&site.mailrace);
    command.args(["sink", "--listen", "127.0.0.1:0"]);
    if matches!(task, Task::Keep { tls: true }) {
        command.arg("--certificate").arg(&site.certificate).arg("--key").arg(&site.key);
    }
    command
}

/// This build of the server, with all it stores in `dir`.
fn serve(program: &Path, site: &Site, dir: &Path, task: Task, more: &[String]) -> Command {
    let mut command = Command::new(program);
    command.arg("serve");
    for setting in settings(site, dir, task).iter().chain(more) {
        command.arg("--set").arg(setting);
    }
    // The hosts of the list have loopback addresses.
    if matches!(task, Task::List) && knows(program, IGNORED_ADDRESSES) {
        command.arg("--set").arg(format!("{IGNORED_ADDRESSES}=[]"));
    }
    command
}

/// The key of the addresses that the DNS leads no mail to.
const IGNORED_ADDRESSES: &str = "dns.ignored_addresses";

/// Whether a build has this key: an older one ends with an error for keys that it does not know.
fn knows(program: &Path, key: &str) -> bool {
    let explain =
        Command::new(program).args(["config", "explain", key]).stdout(Stdio::null()).stderr(Stdio::null()).status();
    explain.is_ok_and(|status| status.success())
}

/// The settings of `mailrace serve` that are not its defaults.
fn settings(site: &Site, dir: &Path, task: Task) -> Vec<String> {
    let mode = if matches!(task, Task::Keep { tls: true }) { "starttls" } else { "none" };
    let mut settings = vec![
        format!("spool.path={}", dir.join("spool").display()),
        format!("log.path={}", dir.join("log").display()),
        format!("control.path={}", dir.join("control").display()),
        // The part with 10,000 idle connections needs room for the others too.
        "accept.connections_max=20000".to_owned(),
    ];
    // Scanners belong to the listener, whose settings come with theirs.
    if !matches!(task, Task::Screen { .. }) {
        settings.push(format!("listen=[{{address=\"127.0.0.1:0\",tls=\"{mode}\"}}]"));
    }
    match task {
        Task::Keep { tls } => {
            settings.push("delivery.mode=queue".to_owned());
            if tls {
                settings.push(format!("tls.certificate={}", site.certificate.display()));
                settings.push(format!("tls.key={}", site.key.display()));
            }
        }
        Task::Relay { to } | Task::Screen { to } => {
            settings.push(format!("route.smart_host=[\"[{}]:{}\"]", to.ip(), to.port()))
        }
        Task::List => settings.push("message.recipients_max=1000000".to_owned()),
    }
    settings
}

/// Starts a child and waits for the line that `read` knows; returns what it read, and where all later lines come out.
///
/// # Errors
/// The error of `read` for the line; or the child ended or was silent, with its last words.
pub(crate) fn ready<T>(
    mut command: Command,
    dir: &Path,
    read: impl Fn(&str) -> Option<Result<T, String>>,
) -> Result<(Child, T, Receiver<String>), String> {
    let words = dir.join("stderr");
    let stderr = fs::File::create(&words).map_err(|e| format!("{}: {e}", words.display()))?;
    let name = format!("{command:?}");
    let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(stderr).spawn();
    let mut child = child.map_err(|e| format!("{name}: {e}"))?;
    let (said, lines) = channel();
    if let Some(stdout) = child.stdout.take() {
        // Reads until the child ends, so that it never waits for a reader.
        std::thread::spawn(move || {
            for line in BufReader::new(stdout).lines().map_while(Result::ok) {
                drop(said.send(line));
            }
        });
    }
    let why = loop {
        match lines.recv_timeout(PATIENCE) {
            Ok(line) => match read(&line) {
                None => {}
                Some(Ok(what)) => return Ok((child, what, lines)),
                Some(Err(why)) => break why,
            },
            Err(RecvTimeoutError::Timeout) => {
                break format!("it did not say that it is ready in {} s", PATIENCE.as_secs());
            }
            Err(RecvTimeoutError::Disconnected) => break "it ended".to_owned(),
        }
    };
    end(&mut child);
    let last = fs::read_to_string(&words).unwrap_or_default();
    let last: Vec<&str> = last.lines().rev().take(3).collect();
    Err(format!("{name}: {why}: {}", last.join(" / ")))
}

/// Where a server listens, if the line says that it is ready.
fn address(line: &str) -> Option<Result<SocketAddr, String>> {
    let at = line.strip_prefix(READY)?.trim().trim_start_matches("on ");
    Some(at.parse().map_err(|_| format!("{line:?} names no address")))
}

/// Asks a child to end, and makes it.
pub(crate) fn end(child: &mut Child) {
    if let Ok(Some(_)) = child.try_wait() {
        return;
    }
    if let Some(pid) = i32::try_from(child.id()).ok().and_then(rustix::process::Pid::from_raw) {
        // It may have ended by itself meanwhile.
        let _gone = rustix::process::kill_process(pid, Signal::TERM);
    }
    let until = clock::now() + PATIENCE;
    while clock::now() < until {
        if !matches!(child.try_wait(), Ok(None)) {
            return;
        }
        clock::pause(Duration::from_millis(10));
    }
    drop(child.kill());
    drop(child.wait());
}

/// Calls the script of the peers.
pub(crate) fn peer(site: &Site, words: &[&str]) -> Result<String, String> {
    output(&mut peer_command(site, words))
}

fn peer_command(site: &Site, words: &[&str]) -> Command {
    let mut command = Command::new(&site.peers);
    command.args(words).env("SPOOL", &site.disk);
    command
}

fn output(command: &mut Command) -> Result<String, String> {
    let name = format!("{command:?}");
    let output = command.stdin(Stdio::null()).output().map_err(|e| format!("{name}: {e}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    let said = String::from_utf8_lossy(&output.stderr);
    Err(format!("{name}: {}: {}", output.status, said.lines().last().unwrap_or("")))
}

/// The directory of a run; gone when the run is.
#[derive(Debug)]
pub(crate) struct RunDirectory(PathBuf);

impl RunDirectory {
    /// Makes it below `parent`.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn new(parent: &Path) -> Result<Self, String> {
        let told = |e: std::io::Error| format!("{}: {e}", parent.display());
        let parent = fs::canonicalize(parent).map_err(told)?;
        let dir = parent.join(format!("mailrace-side-{}-{}", std::process::id(), clock::unix_us()));
        fs::create_dir(&dir).map_err(told)?;
        Ok(Self(dir))
    }

    /// Returns its path.
    pub(crate) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for RunDirectory {
    fn drop(&mut self) {
        drop(fs::remove_dir_all(&self.0));
    }
}

/// Makes a certificate for the servers of this run; it is not checked.
fn certificate(dir: &Path) -> Result<(PathBuf, PathBuf), String> {
    let made = rcgen::generate_simple_self_signed(["localhost".to_owned()]).map_err(|e| format!("certificate: {e}"))?;
    let (certificate, key) = (dir.join("certificate.pem"), dir.join("key.pem"));
    let told = |e: std::io::Error| format!("{}: {e}", dir.display());
    fs::write(&certificate, made.cert.pem()).map_err(told)?;
    fs::write(&key, made.signing_key.serialize_pem()).map_err(told)?;
    Ok((certificate, key))
}

#[cfg(test)]
mod tests {
    use super::*;
    use spool::envelope::Encoded;
    use spool::{Change, NewBody, State, Status};

    #[test]
    fn whoever_is_done_does_not_wait() {
        let dir = std::env::temp_dir().join(format!("mailrace-who-waits-{}", std::process::id()));
        drop(fs::remove_dir_all(&dir));
        let recipients = ["a@b.test", "c@d.test", "e@f.test"].map(|one| mail::Recipient::new(one.parse().unwrap()));
        let envelope = mail::Envelope {
            id: mail::QueueId::MIN,
            sender: mail::ReversePath::Null,
            params: mail::MailParams::default(),
            received: mail::Received {
                at_us: 0,
                client: mail::Client::Internal,
                helo: None,
                protocol: mail::Protocol::Local,
            },
            recipients: recipients.into(),
        };
        let config = Config { free_min: 0, segment_bytes: 1 << 20, size_max: 8 << 20, ..Config::new(&dir) };
        let (spool, _) = Spool::open(config, Arc::new(RealDisk::new())).unwrap();
        let encoded = Encoded::new(&envelope);
        let recipients = encoded.recipients();
        let body = NewBody::whole(&b"x\r\n"[..], 0);
        spool.append(encoded.message(&recipients, body)).unwrap().wait().unwrap();
        let done = State { status: Status::Done, ..State::default() };
        let change = Change { id: envelope.id, recipient: 1, state: done, destination: None };
        spool.record(&[change]).unwrap().wait().unwrap();
        drop(spool);
        let waiting = who_waits(&dir).unwrap();
        fs::remove_dir_all(&dir).unwrap();
        assert_eq!(waiting, ["a@b.test", "e@f.test"].map(str::to_owned).into());
    }
}

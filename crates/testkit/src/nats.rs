//! Engines of a cluster: nats-server with JetStream on free ports of 127.0.0.1, alone or several in one cluster, with a
//! directory of their own.
//!
//! A server is killed when its value is dropped, and with the thread that started it where `setpriv` is installed. It
//! can be killed, stood still and started again on its ports and its directory.

use crate::harness::{poll, send_signal, text};
use crate::needs;
use rustix::process::{Pid, Signal};
use std::fmt::Write as _;
use std::hash::{BuildHasher as _, Hasher as _, RandomState};
use std::io::{Read as _, Write as _};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The version that the tests are for; `.ci/setup` installs it.
pub const VERSION: &str = "2.15.2";

/// Another program may take a port before the server does.
const TRIES: usize = 5;

/// Ports that servers get. The kernel gives those from 32,768 on to others.
const PORTS: Range<u16> = 12_000..32_000;
const PORTS_COUNT: u64 = 20_000;

/// The time that the monitor has for an answer.
const MONITOR_TIME: Duration = Duration::from_secs(5);

/// The parts of a configuration that tests change.
#[derive(Clone, Debug)]
pub struct Options {
    /// The value of `sync_interval`; without it the default.
    pub sync_interval: Option<&'static str>,
    /// JetStream is on.
    pub jetstream: bool,
    /// Octets that all streams of a server may have.
    pub store_max: Option<u64>,
    /// The monitor listens.
    pub monitor: bool,
    /// More lines.
    pub lines: String,
}

impl Default for Options {
    fn default() -> Self {
        let sync_interval = Some("always");
        Self { sync_interval, jetstream: true, store_max: None, monitor: true, lines: String::new() }
    }
}

/// A running server.
pub struct Nats {
    /// The port for clients.
    pub port: u16,
    /// The port of the monitor.
    pub monitor_port: u16,
    route_port: u16,
    dir: tempfile::TempDir,
    program: PathBuf,
    child: Option<Child>,
}

/// Finds the program in the version that the tests are for, also where the Go tool puts it; `None`, and says so, where
/// it is not installed.
#[track_caller]
pub fn program() -> Option<PathBuf> {
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join("go/bin/nats-server"));
    let program = home.filter(|file| file.is_file()).or_else(|| needs::program("nats-server"))?;
    let output = Command::new(&program).arg("--version").output().expect("it runs");
    let version = text(&output);
    if !version.trim().ends_with(&format!("v{VERSION}")) {
        needs::skip("nats-server", &format!("is not of version {VERSION}: {}", version.trim()));
        return None;
    }
    Some(program)
}

impl Nats {
    /// Starts a server alone, as holder 1.
    #[track_caller]
    pub fn start(options: &Options) -> Option<Self> {
        let program = program()?;
        for _ in 0..TRIES {
            let mut server = Self::new(&program);
            std::fs::write(server.config(), server.configuration(1, options, &[])).expect("written");
            if server.launch(options.monitor) {
                return Some(server);
            }
        }
        panic!("nats-server does not start");
    }

    /// Starts servers of one cluster, as holders 1 and up, and waits until they have a leader.
    #[track_caller]
    pub fn cluster(servers: u16, options: &Options) -> Option<Vec<Self>> {
        let program = program()?;
        'again: for _ in 0..TRIES {
            let mut all: Vec<Self> = (0..servers).map(|_| Self::new(&program)).collect();
            let routes: Vec<u16> = all.iter().map(|server| server.route_port).collect();
            for (server, number) in all.iter_mut().zip(1..) {
                std::fs::write(server.config(), server.configuration(number, options, &routes)).expect("written");
                if !server.launch(options.monitor) {
                    continue 'again;
                }
            }
            wait_for_leader(&all);
            return Some(all);
        }
        panic!("nats-server does not start");
    }

    fn new(program: &Path) -> Self {
        let dir = tempfile::tempdir().expect("a directory");
        let [port, monitor_port, route_port] = free_ports();
        Self { port, monitor_port, route_port, dir, program: program.to_owned(), child: None }
    }

    fn config(&self) -> PathBuf {
        self.dir.path().join("conf")
    }

    fn configuration(&self, number: u16, options: &Options, routes: &[u16]) -> String {
        let mut conf = format!(
            "server_name: engine{number}\nlisten: \"127.0.0.1:{}\"\nserver_tags: [\"node:{number}\"]\nlog_file: {:?}\n",
            self.port,
            self.dir.path().join("log")
        );
        if options.monitor {
            writeln!(conf, "http: \"127.0.0.1:{}\"", self.monitor_port).expect("a string takes everything");
        }
        if options.jetstream {
            writeln!(conf, "jetstream {{\n  store_dir: {:?}", self.dir.path().join("store")).expect("the same");
            if let Some(interval) = options.sync_interval {
                writeln!(conf, "  sync_interval: {interval}").expect("the same");
            }
            // Many servers on one disk: none may reserve all of it.
            writeln!(conf, "  max_file_store: {}\n}}", options.store_max.unwrap_or(1 << 30)).expect("the same");
        }
        if !routes.is_empty() {
            let routes: Vec<String> = routes.iter().map(|port| format!("\"nats-route://127.0.0.1:{port}\"")).collect();
            let listen = format!("listen: \"127.0.0.1:{}\"", self.route_port);
            writeln!(conf, "cluster {{\n  name: tests\n  {listen}\n  routes: [{}]\n}}", routes.join(", "))
                .expect("the same");
        }
        conf + &options.lines
    }

    /// Starts it and waits until clients may connect; false when a port is taken.
    fn launch(&mut self, has_monitor: bool) -> bool {
        let child = self.child.insert(spawn(&self.program, &self.config()));
        let ports = [Some(self.port), has_monitor.then_some(self.monitor_port)];
        poll("nats-server neither listens nor ends", || {
            if child.try_wait().expect("it is ours").is_some() {
                return Some(false);
            }
            let is_open = |port: &u16| TcpStream::connect((Ipv4Addr::LOCALHOST, *port)).is_ok();
            ports.iter().flatten().all(is_open).then_some(true)
        })
    }

    /// The address for clients.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The address of the monitor.
    pub fn monitor(&self) -> String {
        format!("http://127.0.0.1:{}", self.monitor_port)
    }

    /// Its log so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }

    /// An answer of the monitor.
    pub fn ask_monitor(&self, path: &str) -> Option<serde_json::Value> {
        ask_monitor(self.monitor_port, path)
    }

    /// Kills it at once (`kill -9`).
    pub fn kill(&mut self) {
        if let Some(mut child) = self.child.take() {
            drop(child.kill());
            drop(child.wait());
        }
    }

    /// Has it stand still (SIGSTOP), until [`Nats::go_on`].
    pub fn stand_still(&self) {
        self.signal(Signal::STOP);
    }

    /// Has it go on after [`Nats::stand_still`].
    pub fn go_on(&self) {
        self.signal(Signal::CONT);
    }

    fn signal(&self, signal: Signal) {
        let child = self.child.as_ref().expect("it runs");
        send_signal(Pid::from_child(child), signal);
    }

    /// Kills it if it runs, and starts it on its ports and its directory.
    #[track_caller]
    pub fn restart(&mut self) {
        self.kill();
        let has_monitor = std::fs::read_to_string(self.config()).is_ok_and(|conf| conf.contains("\nhttp:"));
        // Another process may have a port for a moment.
        assert!((0..100).any(|_| self.launch(has_monitor)), "nats-server does not start again: {}", self.log());
    }

    /// Puts lines behind its configuration; they count from the next start on.
    pub fn append_configuration(&self, lines: &str) {
        let conf = std::fs::read_to_string(self.config()).expect("it has one");
        std::fs::write(self.config(), format!("{conf}\n{lines}\n")).expect("written");
    }

    /// Changes an octet of what its streams hold behind this text, as a bad disk does; it must not run. Returns how
    /// often the text was found.
    pub fn damage_behind(&self, text: &[u8]) -> usize {
        let mut folders = vec![self.dir.path().join("store")];
        let mut found = 0;
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).expect("a directory") {
                let path = entry.expect("an entry").path();
                if path.is_dir() {
                    folders.push(path);
                } else if path.extension().is_some_and(|name| name == "blk") {
                    let mut octets = std::fs::read(&path).expect("read");
                    let places = octets.windows(text.len()).enumerate().filter(|(_, part)| *part == text);
                    for place in places.map(|(at, _)| at + text.len()).collect::<Vec<_>>() {
                        octets[place] ^= 0xff;
                        found += 1;
                    }
                    std::fs::write(&path, octets).expect("written");
                }
            }
        }
        found
    }

    /// Removes all of its streams, as a replaced disk does; it must not run.
    pub fn lose_data(&self) {
        std::fs::remove_dir_all(self.dir.path().join("store")).expect("it had some");
    }
}

impl Drop for Nats {
    fn drop(&mut self) {
        self.kill();
        if std::thread::panicking() {
            eprintln!("{}", self.log());
        }
    }
}

/// Starts the program with a configuration. It is killed with the thread that started it where `setpriv` is installed.
pub fn spawn(program: &Path, configuration: &Path) -> Child {
    let mut command = needs::optional_program("setpriv").map_or_else(
        || Command::new(program),
        |setpriv| {
            let mut command = Command::new(setpriv);
            command.args(["--pdeathsig", "KILL"]).arg(program);
            command
        },
    );
    let command = command.arg("-c").arg(configuration).stdin(Stdio::null()).stdout(Stdio::null());
    command.stderr(Stdio::null()).spawn().expect("it runs")
}

/// An answer of the monitor on this port.
pub fn ask_monitor(port: u16, path: &str) -> Option<serde_json::Value> {
    let mut stream = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).ok()?;
    stream.set_read_timeout(Some(MONITOR_TIME)).ok()?;
    write!(stream, "GET {path} HTTP/1.0\r\n\r\n").ok()?;
    let mut answer = String::new();
    stream.read_to_string(&mut answer).ok()?;
    serde_json::from_str(answer.split_once("\r\n\r\n")?.1).ok()
}

/// Waits until all of these servers know the same leader of JetStream, and all the others.
#[track_caller]
pub fn wait_for_leader(servers: &[Nats]) {
    poll("the servers find no leader", || {
        let leader = |server: &Nats| {
            let meta = server.ask_monitor("/jsz")?;
            let meta = meta.get("meta_cluster")?;
            let size = meta.get("cluster_size")?.as_u64()?;
            let leader = meta.get("leader")?.as_str()?.to_owned();
            (!leader.is_empty() && usize::try_from(size) == Ok(servers.len())).then_some(leader)
        };
        let leaders: Option<Vec<String>> = servers.iter().map(leader).collect();
        let leaders = leaders?;
        leaders.windows(2).all(|two| two[0] == two[1]).then_some(())
    });
}

/// Finds ports below those that the kernel gives by itself: a server that is killed must find its own free when it is
/// started again.
pub fn free_ports<const N: usize>() -> [u16; N] {
    // All are held until the last one is known, so that they differ.
    let held = [(); N].map(|()| {
        let random = || RandomState::new().build_hasher().finish();
        let mut ports = std::iter::repeat_with(|| PORTS.start + u16::try_from(random() % PORTS_COUNT).expect("small"));
        ports.find_map(|port| TcpListener::bind((Ipv4Addr::LOCALHOST, port)).ok()).expect("a free port")
    });
    held.map(|socket| socket.local_addr().expect("it has one").port())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_server_that_stands_still_answers_nothing() {
        let Some(server) = Nats::start(&Options::default()) else { return };
        let mut client = TcpStream::connect((Ipv4Addr::LOCALHOST, server.port)).unwrap();
        client.set_nodelay(true).unwrap();
        client.write_all(b"CONNECT {\"verbose\":false}\r\n").unwrap();
        client.write_all(b"PING\r\n").unwrap();
        wait_for_answer(&mut client);
        for _ in 0..300 {
            server.stand_still();
            client.write_all(b"PING\r\n").unwrap();
            // A question of its own may be on its way.
            let heard = read_some(&mut client, Duration::from_millis(5));
            assert!(!heard.contains("PONG"), "{heard}");
            server.go_on();
            wait_for_answer(&mut client);
        }
    }

    fn wait_for_answer(client: &mut TcpStream) {
        let mut heard = String::new();
        while !heard.contains("PONG\r\n") {
            let more = read_some(client, Duration::from_secs(30));
            assert_ne!(more, "", "no answer behind {heard}");
            heard.push_str(&more);
        }
    }

    /// Reads the octets that come within this time; none is no error.
    fn read_some(client: &mut TcpStream, time: Duration) -> String {
        client.set_read_timeout(Some(time)).unwrap();
        let mut octets = [0; 4_096];
        let count = client.read(&mut octets).unwrap_or(0);
        String::from_utf8_lossy(&octets[..count]).into_owned()
    }
}

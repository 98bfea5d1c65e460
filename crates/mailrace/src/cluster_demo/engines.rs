//! The engines of the demonstration: a nats-server for each node.

use super::clock;
use crate::exit::{Exit, Failure};
use std::io;
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

/// The version that the demonstration installs.
const VERSION: &str = "2.15.2";
/// How often the engines are started, with other ports each time.
const TRIES: usize = 3;
/// Time that an engine has to listen.
const START_TIME: Duration = Duration::from_secs(20);

/// A running engine. Dropping it kills it.
#[derive(Debug)]
pub(super) struct DemoEngine {
    child: Child,
    ports: Ports,
}

/// The ports of an engine.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ports {
    client: u16,
    monitor: u16,
    route: u16,
}

impl DemoEngine {
    /// Where nodes connect to it.
    pub(super) fn address(&self) -> String {
        format!("127.0.0.1:{}", self.ports.client)
    }

    /// Whether it takes connections of nodes and of the other engines.
    fn listens(&self) -> bool {
        [self.ports.client, self.ports.route]
            .iter()
            .all(|port| TcpStream::connect((Ipv4Addr::LOCALHOST, *port)).is_ok())
    }

    /// Where it tells of its configuration.
    pub(super) fn monitor(&self) -> String {
        format!("127.0.0.1:{}", self.ports.monitor)
    }

    /// The number of its process.
    pub(super) fn process(&self) -> u32 {
        self.child.id()
    }

    /// Kills it by SIGKILL.
    pub(super) fn kill(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Drop for DemoEngine {
    fn drop(&mut self) {
        self.kill();
    }
}

/// Starts an engine for each of `count` nodes, each with a directory in `directory`.
///
/// # Errors
/// One does not start; the text names its log.
pub(super) fn start_engines(program: &Path, directory: &Path, count: u16) -> Result<Vec<DemoEngine>, Failure> {
    for _ in 0..TRIES {
        if let Some(engines) = launch_all(program, directory, count)? {
            return Ok(engines);
        }
    }
    let text = format!("an engine ends at its start; see {}", directory.join("engine*/log").display());
    Err(Failure::new(Exit::Unavailable, text))
}

/// The same once; `None` if one of them ends before it listens, as when another program has taken its port meanwhile.
fn launch_all(program: &Path, directory: &Path, count: u16) -> Result<Option<Vec<DemoEngine>>, Failure> {
    let ports: Vec<Ports> = (0..count).map(|_| free_ports()).collect::<io::Result<_>>().map_err(no_ports)?;
    let routes: Vec<u16> = ports.iter().map(|ports| ports.route).collect();
    let mut engines = Vec::new();
    for (ports, number) in ports.into_iter().zip(1..) {
        let place = directory.join(format!("engine{number}"));
        let failed = |error: &io::Error| Failure::io(place.display(), error);
        std::fs::create_dir_all(&place).map_err(|error| failed(&error))?;
        let file = place.join("nats.conf");
        std::fs::write(&file, configuration(number, &place, ports, &routes)).map_err(|error| failed(&error))?;
        engines.push(DemoEngine { child: launch(program, &file)?, ports });
    }
    for (engine, number) in engines.iter_mut().zip(1..) {
        let log = directory.join(format!("engine{number}/log"));
        let until = clock::now() + START_TIME;
        while !engine.listens() {
            if engine.child.try_wait().is_ok_and(|ended| ended.is_some()) {
                return Ok(None);
            }
            if clock::now() > until {
                let text = format!("engine {number} does not start; see {}", log.display());
                return Err(Failure::new(Exit::Unavailable, text));
            }
            clock::pause();
        }
    }
    Ok(Some(engines))
}

fn no_ports(error: io::Error) -> Failure {
    Failure::io("finding free ports of 127.0.0.1", &error)
}

fn free_ports() -> io::Result<Ports> {
    // Open at the same time, so that no two are one.
    let listeners = [(); 3].map(|()| TcpListener::bind((Ipv4Addr::LOCALHOST, 0)));
    let mut ports = listeners.iter().map(|listener| match listener {
        Ok(listener) => Ok(listener.local_addr()?.port()),
        Err(error) => Err(io::Error::from(error.kind())),
    });
    let mut next = || ports.next().unwrap_or_else(|| Err(io::ErrorKind::AddrNotAvailable.into()));
    Ok(Ports { client: next()?, monitor: next()?, route: next()? })
}

fn configuration(number: u16, place: &Path, ports: Ports, routes: &[u16]) -> String {
    let Ports { client, monitor, route } = ports;
    let routes: Vec<String> = routes.iter().map(|port| format!("\"nats-route://127.0.0.1:{port}\"")).collect();
    let (log, store) = (place.join("log"), place.join("store"));
    format!(
        "server_name: \"mx{number}\"\nlisten: \"127.0.0.1:{client}\"\nhttp: \"127.0.0.1:{monitor}\"\n\
         server_tags: [\"node:{number}\"]\nlog_file: {log:?}\n\
         jetstream {{\n  store_dir: {store:?}\n  sync_interval: always\n  max_file_store: 1GB\n}}\n\
         cluster {{\n  name: demo\n  listen: \"127.0.0.1:{route}\"\n  routes: [{}]\n}}\n",
        routes.join(", ")
    )
}

/// Starts an engine that ends with this process.
fn launch(program: &Path, file: &Path) -> Result<Child, Failure> {
    let start = |mut command: Command| {
        command.arg("-c").arg(file).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null()).spawn()
    };
    let mut with_parent = Command::new("setpriv");
    with_parent.args(["--pdeathsig", "KILL", "--"]).arg(program);
    match start(with_parent) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => start(Command::new(program)),
        started => started,
    }
    .map_err(|error| Failure::io(program.display(), &error))
}

/// Finds nats-server: the given one, that of the path, or where the Go tool puts it. Installs it there with the Go tool
/// if there is none.
///
/// # Errors
/// It cannot be had; the text has the next step.
pub(super) fn find_program(given: Option<&Path>, tell: &mut dyn FnMut(String)) -> Result<PathBuf, Failure> {
    if let Some(given) = given {
        return Ok(given.to_owned());
    }
    let home = std::env::var_os("HOME").map(|home| PathBuf::from(home).join("go/bin/nats-server"));
    let runs = |program: &Path| Command::new(program).arg("--version").output().is_ok_and(|said| said.status.success());
    let in_path = PathBuf::from("nats-server");
    if let Some(found) = std::iter::once(&in_path).chain(&home).find(|program| runs(program)) {
        return Ok(found.clone());
    }
    let source = format!("github.com/nats-io/nats-server/v2@v{VERSION}");
    tell(format!("nats-server is not installed: go install {source} (about a minute)"));
    let installed = Command::new("go").args(["install", &source]).status();
    match (installed, home) {
        (Ok(status), Some(program)) if status.success() && runs(&program) => Ok(program),
        _ => {
            let text = format!(
                "nats-server cannot be installed: install Go and run go install {source}, or name a nats-server of \
                 {VERSION} or newer by --nats-server"
            );
            Err(Failure::new(Exit::Unavailable, text))
        }
    }
}

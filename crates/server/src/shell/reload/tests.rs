//! Reloads: whole or not at all; open connections stay open.

use super::*;
use crate::accept::limits;
use crate::config::Machine;
use crate::context::Context;
use crate::inbound::Inbound;
use crate::outbound::Outbound;
use crate::sink::Behaviour;
use os::clock;
use os::test_deadline::TestDeadline;
use std::net::{Ipv4Addr, TcpListener as StdListener, TcpStream};
use std::sync::atomic::AtomicU8;

/// A server with its configuration in a directory.
struct Trial {
    dir: tempfile::TempDir,
    server: Arc<Server>,
}

impl Trial {
    /// Runs with `text`, whose `CERT` and `KEY` are files.
    fn new(text: &str) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let source = ConfigSource {
            path: Some(dir.path().join("mailrace.toml")),
            overrides: vec!["accept.reverse_dns=false".to_owned()],
            machine: Machine::default(),
        };
        let trial = |dir: &tempfile::TempDir| {
            write(dir, text);
            certificate(dir);
        };
        trial(&dir);
        let config = source.read().unwrap().config;
        let tls = load_tls(&config, &mut Vec::new()).unwrap();
        let bound = listener::bind(&config.listen, Vec::new(), 16, 1).unwrap();
        let limits = limits::Limits::new(limits::Settings::new(&config), clock::now());
        let context = Context::trial(config, None);
        let outbound = Arc::new(Outbound::trial(&context, None));
        let inbound = Inbound::trial(context, None, Behaviour::default());
        let server = Arc::new(Server::new(inbound, outbound, limits, tls, Some(source), None, Arc::default()));
        server.open_all(bound.listeners).unwrap();
        Self { dir, server }
    }

    fn reload(&self, text: &str) -> bool {
        write(&self.dir, text);
        match self.server.reload_now() {
            Answer::Done(_) => true,
            Answer::Refused { .. } => false,
            _ => panic!("another answer"),
        }
    }

    fn addresses(&self) -> Vec<SocketAddr> {
        self.server.open_listeners().iter().map(|one| one.address).collect()
    }
}

fn write(dir: &tempfile::TempDir, text: &str) {
    let path = |name| dir.path().join(name).display().to_string();
    let mut text = text.replace("CERT", &path("cert.pem")).replace("KEY", &path("key.pem"));
    if !text.contains("[log]") {
        text.push_str("[log]\npath = \"/dev/null\"\n");
    }
    std::fs::write(dir.path().join("mailrace.toml"), text).unwrap();
}

fn certificate(dir: &tempfile::TempDir) {
    let made = rcgen::generate_simple_self_signed(["mx.test".to_owned()]).unwrap();
    std::fs::write(dir.path().join("cert.pem"), made.cert.pem()).unwrap();
    std::fs::write(dir.path().join("key.pem"), made.signing_key.serialize_pem()).unwrap();
}

/// Returns an address that is free now.
/// An address of its own each time: no other test and no connection takes its port meanwhile.
fn free() -> SocketAddr {
    static NEXT: AtomicU8 = AtomicU8::new(1);
    let host = Ipv4Addr::new(127, 44, 0, NEXT.fetch_add(1, Ordering::Relaxed));
    StdListener::bind((host, 0)).unwrap().local_addr().unwrap()
}

fn listen(addresses: &[SocketAddr], more: &str) -> String {
    addresses.iter().map(|address| format!("[[listen]]\naddress = \"{address}\"\n{more}\n")).collect()
}

const TLS: &str = "[tls]\ncertificate = \"CERT\"\nkey = \"KEY\"\n";

#[tokio::test]
async fn listeners_come_and_go() {
    let [first, second] = [free(), free()];
    let trial = Trial::new(&listen(&[first], "connections_max = 7"));
    assert_eq!(trial.addresses(), [first]);
    assert!(trial.reload(&listen(&[first, second], "connections_max = 8")));
    assert_eq!(trial.addresses(), [first, second]);
    assert!(trial.reload(&listen(&[second], "connections_max = 9")));
    assert_eq!(trial.addresses(), [second]);
    // Closed ones keep their number, so that connections of theirs are counted where they were.
    let config = trial.server.context.live.load().config.clone();
    assert_eq!(trial.server.limits(&config).listeners, [8, 9]);
    // The loop of the first ends and its socket with it; a child that another test has just made may hold that longer.
    let patience = TestDeadline::new("the removed listener takes connections");
    while TcpStream::connect(first).is_ok() {
        patience.check();
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn a_reload_that_fails_changes_nothing() {
    let [first, second] = [free(), free()];
    let trial = Trial::new(&format!("{TLS}{}", listen(&[first], "tls = \"starttls\"")));
    let before = Arc::clone(&trial.server.context.live.load());
    std::fs::write(trial.dir.path().join("key.pem"), "no key").unwrap();
    let text = format!("hostname = \"other.test\"\n{TLS}{}", listen(&[first, second], "tls = \"starttls\""));
    assert!(!trial.reload(&text));
    assert!(Arc::ptr_eq(&before, &trial.server.context.live.load()));
    assert_eq!(trial.addresses(), [first]);
    // A child that another test has just made may hold it for a moment.
    let patience = TestDeadline::new("the address that was new is still held");
    while StdListener::bind(second).is_err() {
        patience.check();
    }
    // An address that cannot be had.
    certificate(&trial.dir);
    let taken = StdListener::bind("127.0.0.1:0").unwrap();
    let text = format!("{TLS}{}", listen(&[first, taken.local_addr().unwrap()], "tls = \"starttls\""));
    assert!(!trial.reload(&text));
    assert!(Arc::ptr_eq(&before, &trial.server.context.live.load()));
    // And then all is well.
    assert!(trial.reload(&format!("{TLS}{}", listen(&[first], "tls = \"starttls\""))));
}

#[tokio::test]
async fn open_connections_meet_the_new_certificate() {
    let address = free();
    let text = format!("{TLS}{}", listen(&[address], "tls = \"starttls\""));
    let trial = Trial::new(&text);
    // An open connection keeps the configuration before the reload.
    let lane = trial.server.open_listeners()[0].lane.load_full();
    certificate(&trial.dir);
    assert!(trial.reload(&text));
    let now = trial.server.open_listeners()[0].lane.load_full();
    assert!(Arc::ptr_eq(lane.tls.as_ref().unwrap(), now.tls.as_ref().unwrap()), "it has an acceptor of its own");
}

#[tokio::test]
async fn answers_of_the_dns_are_kept_while_the_same_are_asked() {
    let address = free();
    let text = listen(&[address], "");
    // The servers are those of the machine.
    let trial = Trial::new(&text);
    let resolver = || trial.server.context.resolver.load_full();
    let before = resolver();
    assert!(trial.reload(&text));
    assert!(trial.reload(&format!("[message]\nsize_max = \"1MiB\"\n{text}")));
    assert!(resolver().is_same(&before), "a reload without a difference forgets all answers");
    // Negative control.
    assert!(trial.reload(&format!("[dns]\nservers = \"127.0.0.1:9\"\n{text}")));
    assert!(!resolver().is_same(&before));
}

#[tokio::test]
async fn what_needs_a_restart_refuses_the_reload() {
    let address = free();
    let trial = Trial::new(&listen(&[address], ""));
    assert!(!trial.reload(&format!("[server]\nthreads = 3\n{}", listen(&[address], ""))));
    assert!(trial.reload(&listen(&[address], "")));
}

#[tokio::test]
async fn a_log_file_that_cannot_be_had_refuses_the_reload() {
    let address = free();
    let trial = Trial::new(&listen(&[address], ""));
    let log = |path: PathBuf| format!("[log]\npath = \"{}\"\n{}", path.display(), listen(&[address], ""));
    assert!(!trial.reload(&log(trial.dir.path().join("missing/log"))));
    assert!(trial.reload(&log(trial.dir.path().join("log"))));
}

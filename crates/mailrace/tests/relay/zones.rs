//! Broken zones of a real name server (nsd): loops, chains, hosts that are not there, a hundred records. Each recipient is
//! delivered, fails at once, or waits with a reason that names its domain; none costs more than its time.

use crate::hop::{Hop, Manners, own_ip};
use crate::world::{impatient, poll, send, waiting};
use std::fmt::Write as _;
use std::net::{IpAddr, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};

const CONTENT: &[u8] = b"Subject: x\r\n\r\nhello\r\n";

/// nsd with this zone as the whole tree; ends with the test.
struct Nsd {
    child: Child,
    address: String,
}

impl Drop for Nsd {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

impl Nsd {
    /// `None`: it is not installed.
    fn start(directory: &Path, zone: &str) -> Option<Self> {
        let program = ["/usr/sbin/nsd", "/usr/local/sbin/nsd"].into_iter().find(|path| Path::new(path).exists())?;
        let ip = own_ip();
        let port = UdpSocket::bind((ip, 0)).and_then(|socket| socket.local_addr()).expect("a port").port();
        let place = directory.display();
        let configuration = format!(
            "server:\n  ip-address: {ip}@{port}\n  username: \"\"\n  zonesdir: \"{place}\"\n  database: \"\"\n  pidfile: \"{place}/pid\"\n  \
             xfrdfile: \"{place}/xfrd\"\n  zonelistfile: \"{place}/list\"\n  xfrdir: \"{place}\"\n  server-count: 1\n  rrl-ratelimit: 0\n\
             remote-control:\n  control-enable: no\n\
             zone:\n  name: \".\"\n  zonefile: \"root.zone\"\n\
             zone:\n  name: \"servfail.test\"\n  zonefile: \"missing.zone\"\n"
        );
        std::fs::write(directory.join("nsd.conf"), configuration).expect("written");
        std::fs::write(directory.join("root.zone"), zone).expect("written");
        let mut command = Command::new(program);
        command.arg("-d").arg("-c").arg(directory.join("nsd.conf"));
        let child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().expect("it starts");
        let nsd = Self { child, address: format!("{ip}:{port}") };
        let asker = UdpSocket::bind((IpAddr::from(ip), 0)).expect("a socket");
        asker.set_read_timeout(Some(std::time::Duration::from_millis(50))).expect("set");
        // Who asks for the SOA of the root gets an answer when it serves.
        let question = [0, 7, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 6, 0, 1];
        poll("nsd does not answer", || {
            drop(asker.send_to(&question, &nsd.address));
            asker.recv_from(&mut [0; 512]).is_ok().then_some(())
        });
        Some(nsd)
    }
}

/// The zone; `{good}` is a host that takes mail.
fn zone(good: &str) -> String {
    let mut zone =
        String::from("$ORIGIN .\n$TTL 60\n. SOA ns.lab. root.lab. 1 60 60 60 5\n. NS ns.lab.\nns.lab. A 127.0.0.1\n");
    let mut add = |line: &str| writeln!(zone, "{line}").expect("a string takes everything");
    for line in [
        "plain.test. MX 10 host.plain.test.",
        &format!("host.plain.test. A {good}"),
        // RFC 5321 §5.1: no MX, so the address
        &format!("nomx.test. A {good}"),
        "aliased.test. CNAME nomx.test.",
        "mxalias.test. MX 10 alias.mxalias.test.",
        "alias.mxalias.test. CNAME host.plain.test.",
        "onebad.test. MX 5 missing.onebad.test.",
        "onebad.test. MX 10 host.plain.test.",
        // RFC 7505 §3
        "nullmx.test. MX 0 .",
        "nothing.test. TXT \"neither MX nor address\"",
        "gone.test. MX 10 missing.gone.test.",
        "byip.test. MX 10 127.0.0.1.",
        "loop1.test. CNAME loop2.test.",
        "loop2.test. CNAME loop1.test.",
        "mxloop.test. MX 10 loop1.test.",
        "lame.test. NS ns.lame.test.",
        "ns.lame.test. A 127.255.255.254",
    ] {
        add(line);
    }
    for number in 0..100 {
        add(&format!("hundred.test. MX 10 m{number}.hundred.test."));
        add(&format!("m{number}.hundred.test. A {good}"));
    }
    for number in 0..40 {
        add(&format!("chain{number}.test. CNAME chain{}.test.", number + 1));
    }
    add(&format!("chain40.test. A {good}"));
    zone
}

#[test]
fn broken_zones_end_in_a_delivery_a_failure_or_a_clear_deferral() {
    let hop = Hop::new(Manners::default());
    let directory = tempfile::tempdir().expect("a directory");
    let Some(nsd) = Nsd::start(directory.path(), &zone(&hop.address.ip().to_string())) else {
        println!("skipped: nsd is not installed");
        return;
    };
    let setup = impatient()
        .set("dns.servers", format!("[{:?}]", nsd.address))
        .set("dns.timeout", "\"1s\"")
        .set("route.port", hop.address.port().to_string());
    let mut server = setup.start();
    // A chain comes in one answer, however long it is.
    let good = ["plain", "nomx", "aliased", "mxalias", "onebad", "hundred", "chain0"];
    let failed = ["nullmx", "nothing", "missing"];
    let deferred = ["gone", "byip", "loop1", "mxloop", "lame", "x.servfail"];
    let to: Vec<String> = good.iter().chain(&failed).chain(&deferred).map(|name| format!("r@{name}.test")).collect();
    let to: Vec<&str> = to.iter().map(String::as_str).collect();
    send(&server, "a@plain.test", &to, CONTENT);
    let taken = |mails: &[std::sync::Arc<crate::hop::Mail>]| -> usize {
        mails.iter().filter(|mail| !mail.mail.contains("<>")).map(|mail| mail.rcpts.len()).sum()
    };
    hop.wait_until("all good ones", |mails| taken(mails) >= good.len());
    for name in failed {
        let line = crate::world::any_line(&mut server, &[&format!("to=<r@{name}.test>"), "dsn=5."]);
        assert!(line.contains("stat=Host unknown") || line.contains(&format!("{name}.test")), "{line}");
    }
    for name in deferred {
        let line = crate::world::any_line(&mut server, &[&format!("to=<r@{name}.test>"), "stat="]);
        let is_clear = line.contains("dsn=4.") && line.contains("stat=Deferred: ") || line.contains("dsn=5.");
        assert!(is_clear, "{line}");
    }
    // What failed is told of together, after some seconds.
    let most = deferred.len() + failed.len() + 1;
    assert!(waiting(&server) <= most as u64, "nothing else waits");
    assert_eq!(taken(&hop.mails()), good.len(), "once each");
}

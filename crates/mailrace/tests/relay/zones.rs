//! Broken zones of a real name server (nsd): loops, chains, hosts that are not there, a hundred records. Each recipient
//! is delivered, fails at once, or waits, as docs/dns.md says for the answer, with the status and the reason that stand
//! there; none costs more than its time. `MAILRACE_TESTS_NEED=nsd` (.ci/run as root) makes a failure of nsd's absence.

use crate::hop::{Hop, Manners, own_ip};
use crate::world::{any_line, impatient, lines, send, waiting};
use std::fmt::Write as _;
use std::net::{IpAddr, UdpSocket};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};
use testkit::harness::{needs, poll};

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
        let program = needs::program("nsd")?;
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
        asker.set_read_timeout(Some(Duration::from_millis(50))).expect("set");
        // The server is ready when it answers a question for the SOA of the root.
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

/// The results of mail for these names, as its line of the log says: name, `dsn=`, `stat=` from its beginning.
const FAILED: [(&str, &str, &str); 5] = [
    ("nullmx", "5.1.10", "nullmx.test does not accept mail (null MX, RFC 7505)"),
    ("nothing", "5.1.2", "Host unknown (Name server: nothing.test: no data known)"),
    ("missing", "5.1.2", "Host unknown (Name server: missing.test: host not found)"),
    ("gone", "5.4.4", "Host unknown (Name server: missing.gone.test: host not found)"),
    ("byip", "5.4.4", "Host unknown (Name server: byip.test: MX records name no host)"),
];
const DEFERRED: [(&str, &str, &str); 4] = [
    ("loop1", "4.4.3", "Deferred: Name server: loop1.test: host name lookup failure"),
    ("mxloop", "4.4.3", "Deferred: Name server: loop1.test: host name lookup failure"),
    ("lame", "4.4.3", "Deferred: Name server: lame.test: host name lookup failure"),
    ("x.servfail", "4.4.3", "Deferred: Name server: x.servfail.test: host name lookup failure"),
];
/// Two look-ups of ten seconds each for the slowest name, beside all others; the rest is for a busy machine.
const LONGEST: Duration = Duration::from_secs(60);

fn is_as_expected(line: &str, dsn: &str, stat: &str) -> bool {
    line.contains(&format!(", dsn={dsn}, stat={stat}"))
}

#[test]
fn a_bounce_is_no_deferral() {
    let deferral = "to=<r@lame.test>, dsn=4.4.3, stat=Deferred: Name server: lame.test: host name lookup failure";
    let (_, dsn, stat) = DEFERRED.into_iter().find(|(name, ..)| *name == "lame").expect("it is there");
    assert!(is_as_expected(deferral, dsn, stat));
    let bounces =
        ["dsn=5.4.4, stat=Host unknown (x)", "dsn=5.4.3, stat=Name server: lame.test: host name lookup failure"];
    for bounce in bounces {
        assert!(!is_as_expected(&format!("to=<r@lame.test>, {bounce}"), dsn, stat), "{bounce}");
    }
    assert!(!is_as_expected(deferral, "4.4.1", stat));
}

#[test]
fn broken_zones_end_in_a_delivery_a_failure_or_a_clear_deferral() {
    let hop = Hop::new(Manners::default());
    let directory = tempfile::tempdir().expect("a directory");
    let Some(nsd) = Nsd::start(directory.path(), &zone(&hop.address.ip().to_string())) else { return };
    let setup = impatient()
        .set("dns.servers", format!("[{:?}]", nsd.address))
        .set("dns.ignored_addresses", "[]")
        .set("dns.timeout", "\"10s\"")
        .set("route.port", hop.address.port().to_string());
    let mut server = setup.start();
    // A chain comes in one answer, however long it is.
    let good = ["plain", "nomx", "aliased", "mxalias", "onebad", "hundred", "chain0"];
    let others = || FAILED.iter().chain(&DEFERRED);
    let names = good.iter().chain(others().map(|(name, ..)| name));
    let to: Vec<String> = names.map(|name| format!("r@{name}.test")).collect();
    let to: Vec<&str> = to.iter().map(String::as_str).collect();
    #[allow(clippy::disallowed_methods, reason = "a limit for the whole")]
    let start = Instant::now();
    send(&server, "a@plain.test", &to, CONTENT);
    let taken = |mails: &[std::sync::Arc<crate::hop::Mail>]| -> usize {
        mails.iter().filter(|mail| !mail.mail.contains("<>")).map(|mail| mail.rcpts.len()).sum()
    };
    hop.wait_until("all good ones", |mails| taken(mails) >= good.len());
    for (name, dsn, stat) in others() {
        let line = any_line(&mut server, &[&format!("to=<r@{name}.test>"), "stat="]);
        assert!(is_as_expected(&line, dsn, stat), "dsn={dsn}, stat={stat} is expected: {line}");
    }
    assert!(start.elapsed() < LONGEST, "the first outcomes took {:?}", start.elapsed());
    // The sender hears of each failure, and of nothing else.
    let told = |name: &str| hop.mails().iter().any(|mail| mail.mail.contains("<>") && mail.text().contains(name));
    let all_told = || FAILED.iter().all(|(name, ..)| told(&format!("r@{name}.test")));
    poll("no report of all failures", || all_told().then_some(()));
    poll("what failed still waits", || (waiting(&server) <= DEFERRED.len() as u64).then_some(()));
    assert_eq!(waiting(&server), DEFERRED.len() as u64, "nothing else waits");
    for (name, ..) in DEFERRED {
        assert!(!told(&format!("r@{name}.test")), "{name}");
        let bounced = lines(&server.log, &[&format!("to=<r@{name}.test>"), "dsn=5."]).len();
        assert_eq!(bounced, 0, "{name}");
    }
    assert_eq!(taken(&hop.mails()), good.len(), "once each");
}

//! A directory of the test's own: slapd with a file of its own, on a free port and on a socket.

use rustix::process::{Pid, Signal, kill_process};
use std::net::{Ipv4Addr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use testkit::harness::{needs, poll, send_signal};
use testkit::nats::free_ports;

/// Another program may take the port before slapd does.
const TRIES: usize = 5;

/// A running directory. It is killed when this is dropped.
pub(crate) struct Slapd {
    dir: tempfile::TempDir,
    port: u16,
    tls_port: Option<u16>,
}

/// The parts of a directory besides its entries.
#[derive(Default)]
pub(crate) struct Extra {
    /// Lines for the whole server.
    pub(crate) server: String,
    /// Lines for the database.
    pub(crate) database: String,
    /// Certificate and key in PEM; with them it listens for ldaps:// too.
    pub(crate) tls: Option<(String, String)>,
}

impl Slapd {
    /// With these entries below dc=test.
    pub(crate) fn start(ldif: &str) -> Option<Self> {
        Self::with(ldif, &Extra::default())
    }

    /// The same with more in its configuration.
    pub(crate) fn with(ldif: &str, extra: &Extra) -> Option<Self> {
        needs::program("slapd")?;
        let slapadd = needs::program("slapadd")?;
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name).display().to_string();
        std::fs::create_dir(at("db")).expect("made");
        let schemas = ["core", "cosine", "inetorgperson", "misc"];
        let mut conf: String = schemas.iter().map(|name| format!("include /etc/ldap/schema/{name}.schema\n")).collect();
        // Where the database is built in there is no directory of modules.
        if Path::new("/usr/lib/ldap").is_dir() {
            conf += "modulepath /usr/lib/ldap\nmoduleload back_mdb\nmoduleload back_monitor\n";
        }
        if let Some((certificate, key)) = &extra.tls {
            std::fs::write(at("certificate.pem"), certificate).expect("written");
            std::fs::write(at("key.pem"), key).expect("written");
            conf += &format!("TLSCertificateFile {}\nTLSCertificateKeyFile {}\n", at("certificate.pem"), at("key.pem"));
        }
        conf += &format!(
            "pidfile {}\n{}\ndatabase mdb\nmaxsize 16777216\nsuffix \"dc=test\"\nrootdn \"cn=admin,dc=test\"\nrootpw secret\n\
             directory {}\nindex objectClass,mailLocalAddress eq\n{}\ndatabase monitor\n",
            at("pid"),
            extra.server,
            at("db"),
            extra.database
        );
        std::fs::write(at("conf"), conf).expect("written");
        std::fs::write(at("ldif"), ldif).expect("written");
        let added =
            Command::new(slapadd).args(["-n", "1", "-f", &at("conf"), "-l", &at("ldif")]).output().expect("it runs");
        assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
        let mut slapd = Self { dir, port: 0, tls_port: None };
        for _ in 0..TRIES {
            let [port, tls_port] = free_ports();
            (slapd.port, slapd.tls_port) = (port, extra.tls.as_ref().map(|_| tls_port));
            if slapd.listen() {
                return Some(slapd);
            }
        }
        panic!("slapd does not start");
    }

    /// Starts it in the background and waits until it listens.
    fn listen(&self) -> bool {
        let slapd = needs::program("slapd").expect("it was there");
        let mut urls = format!("{} {}", self.url(), self.socket_url());
        if self.tls_port.is_some() {
            urls += &format!(" {}", self.tls_url("127.0.0.1"));
        }
        let conf = self.dir.path().join("conf").display().to_string();
        let is_started = Command::new(slapd).args(["-f", &conf, "-h", &urls]).status().expect("it runs").success();
        // Its ports are its own by now, and it listens a moment later.
        is_started && (0..1_000_000).any(|_| TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok())
    }

    /// Starts it anew where it was.
    pub(crate) fn restart(&mut self) {
        // Another process may have the port for a moment.
        assert!((0..1_000).any(|_| self.listen()), "slapd does not start again");
    }

    /// Adds an entry.
    pub(crate) fn add(&self, ldif: &str) {
        use std::io::Write as _;
        let mut child = Command::new("ldapadd")
            .args(["-x", "-H", &self.url(), "-D", "cn=admin,dc=test", "-w", "secret"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("ldap-utils are installed");
        child.stdin.take().expect("piped").write_all(ldif.as_bytes()).expect("written");
        assert!(child.wait().expect("it ends").success());
    }

    /// How many searches it has answered.
    pub(crate) fn searches(&self) -> u64 {
        let base = "cn=Search,cn=Operations,cn=Monitor";
        let output = Command::new("ldapsearch")
            .args(["-x", "-LLL", "-H", &self.url(), "-b", base, "-s", "base", "monitorOpInitiated"])
            .output()
            .expect("ldap-utils are installed");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let figure = text.lines().find_map(|line| line.strip_prefix("monitorOpInitiated: "));
        figure.and_then(|figure| figure.parse().ok()).unwrap_or_else(|| panic!("{text}"))
    }

    pub(crate) fn tls_url(&self, host: &str) -> String {
        format!("ldaps://{host}:{}", self.tls_port.expect("it has TLS"))
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    pub(crate) fn url(&self) -> String {
        format!("ldap://127.0.0.1:{}", self.port)
    }

    pub(crate) fn socket_url(&self) -> String {
        socket_url(self.dir.path())
    }

    fn pid(&self) -> Option<Pid> {
        let text = std::fs::read_to_string(self.dir.path().join("pid")).ok()?;
        text.trim().parse().ok().and_then(Pid::from_raw)
    }

    /// Has it stand still, or go on.
    pub(crate) fn signal(&self, signal: Signal) {
        send_signal(self.pid().expect("it runs"), signal);
    }

    /// Ends it at once, and waits until its port is closed.
    pub(crate) fn kill(&mut self) {
        let Some(pid) = self.pid() else { return };
        if kill_process(pid, Signal::KILL).is_ok() {
            poll("somebody still listens", || {
                TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_err().then_some(())
            });
        }
        drop(std::fs::remove_file(self.dir.path().join("pid")));
    }
}

impl Drop for Slapd {
    fn drop(&mut self) {
        self.kill();
    }
}

fn socket_url(dir: &Path) -> String {
    format!("ldapi://{}", dir.join("socket").display().to_string().replace('/', "%2F"))
}

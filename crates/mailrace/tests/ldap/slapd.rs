//! A directory of the test's own: slapd with a file of its own, on a port that the kernel has free and on a socket.

use rustix::process::{Pid, Signal, kill_process};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Another program may take the port before slapd does.
const TRIES: usize = 5;

/// A running directory. It is killed when this is dropped.
pub(crate) struct Slapd {
    dir: tempfile::TempDir,
    port: u16,
}

fn find(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places = std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/libexec".into()]);
    let found = places.map(|place| place.join(name)).find(|file| file.is_file());
    if found.is_none() {
        println!("skipped: {name} is not installed");
    }
    found
}

impl Slapd {
    /// With these entries below dc=test.
    pub(crate) fn start(ldif: &str) -> Option<Self> {
        let (slapd, slapadd) = (find("slapd")?, find("slapadd")?);
        let dir = tempfile::tempdir().expect("a directory");
        let at = |name: &str| dir.path().join(name).display().to_string();
        std::fs::create_dir(at("db")).expect("made");
        let schemas = ["core", "cosine", "inetorgperson", "misc"];
        let mut conf: String = schemas.iter().map(|name| format!("include /etc/ldap/schema/{name}.schema\n")).collect();
        // Where the database is built in there is no directory of modules.
        if Path::new("/usr/lib/ldap").is_dir() {
            conf += "modulepath /usr/lib/ldap\nmoduleload back_mdb\n";
        }
        conf += &format!(
            "pidfile {}\ndatabase mdb\nmaxsize 16777216\nsuffix \"dc=test\"\nrootdn \"cn=admin,dc=test\"\nrootpw secret\n\
             directory {}\nindex objectClass,mailLocalAddress eq\n",
            at("pid"),
            at("db")
        );
        std::fs::write(at("conf"), conf).expect("written");
        std::fs::write(at("ldif"), ldif).expect("written");
        let added = Command::new(slapadd).args(["-f", &at("conf"), "-l", &at("ldif")]).output().expect("it runs");
        assert!(added.status.success(), "{}", String::from_utf8_lossy(&added.stderr));
        for _ in 0..TRIES {
            let free = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|listener| listener.local_addr());
            let port = free.expect("a port").port();
            let urls = format!("ldap://127.0.0.1:{port} {}", socket_url(dir.path()));
            // It goes to the background when it listens.
            let started = Command::new(&slapd).args(["-f", &at("conf"), "-h", &urls]).status().expect("it runs");
            if started.success() {
                return Some(Self { dir, port });
            }
        }
        panic!("slapd does not start");
    }

    pub(crate) fn url(&self) -> String {
        format!("ldap://127.0.0.1:{}", self.port)
    }

    pub(crate) fn socket_url(&self) -> String {
        socket_url(self.dir.path())
    }

    /// Ends it at once, and waits until nobody listens.
    pub(crate) fn kill(&mut self) {
        let pid = std::fs::read_to_string(self.dir.path().join("pid")).ok().and_then(|text| text.trim().parse().ok());
        let Some(pid) = pid.and_then(Pid::from_raw) else { return };
        if kill_process(pid, Signal::KILL).is_ok() {
            while TcpStream::connect((Ipv4Addr::LOCALHOST, self.port)).is_ok() {}
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

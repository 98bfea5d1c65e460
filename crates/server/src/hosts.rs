//! What is known of next hops, one table for all connections, kept over restarts in the file `hosts` of the spool directory.
//!
//! *deliver* asks it before it connects and tells it what came of that; what the table makes of it is `schedule::Hosts`. The
//! file is statistics and no mail: it is replaced once a minute when something changed, and at the end of the server, and not
//! synced. One that is lost or damaged costs a few slow connections, so nothing here stops the server.
//!
//! Not here: which hosts a destination has (`resolve`), what a failure means for a destination (`dispatch`).

use crate::config::Config;
use crate::env::{blocking, clock};
use crate::service::Service;
use observe::{Event, Severity};
use schedule::{HostSettings, Hosts};
use std::fs::{File, OpenOptions};
use std::io::{self, Read as _, Write as _};
use std::net::SocketAddr;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The file, in the spool directory.
const FILE: &str = "hosts";
/// How often it is written.
const SAVE_INTERVAL: Duration = Duration::from_secs(60);
/// Hosts that are remembered.
const HOSTS_MAX: usize = 20_000;
/// The first time a host is passed over, if `delivery.retry_first` is no shorter; it doubles up to `delivery.retry_max`.
const PASSED_OVER_FIRST: Duration = Duration::from_secs(60);
/// How long a host whose TLS broke is spoken to in clear.
pub(crate) const TLS_MEMORY: Duration = Duration::from_secs(24 * 3_600);
/// How long one that said nothing about it is: it may only have been slow.
pub(crate) const TLS_SILENCE_MEMORY: Duration = Duration::from_secs(3_600);

/// The table of all connections.
#[derive(Debug)]
pub(crate) struct HostTable {
    hosts: Mutex<Hosts>,
    /// Where it is kept; nowhere without a spool.
    path: Option<PathBuf>,
    has_changed: AtomicBool,
    /// The operator knows that it cannot be written.
    is_told: AtomicBool,
}

fn settings(config: &Config) -> HostSettings {
    let delivery = &config.delivery;
    HostSettings {
        max: HOSTS_MAX,
        first: PASSED_OVER_FIRST.min(delivery.retry_first),
        longest: delivery.retry_max,
        tls_memory: TLS_MEMORY,
    }
}

impl HostTable {
    /// A table that is forgotten at the end.
    pub(crate) fn forgetful(config: &Config) -> Self {
        Self::with(Hosts::new(settings(config), clock::unix_us()), None)
    }

    /// The table as the last server left it. What to tell the operator, if it cannot be used: it is empty then.
    pub(crate) fn open(config: &Config) -> (Self, Option<String>) {
        let path = config.spool.path.join(FILE);
        let (settings, now_us) = (settings(config), clock::unix_us());
        let (hosts, problem) = match read(&path, Hosts::bytes_max(&settings)) {
            Ok(bytes) => {
                let (hosts, damage) = Hosts::from_bytes(&bytes, settings, now_us, Duration::from_micros(now_us));
                (hosts, damage.map(|damage| damage.to_string()))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => (Hosts::new(settings, now_us), None),
            Err(error) => (Hosts::new(settings, now_us), Some(error.to_string())),
        };
        let problem = problem.map(|why| {
            let path = path.display();
            format!("{path}: what was known of next hops is forgotten: {why}; mail goes all the same, and the file is replaced")
        });
        (Self::with(hosts, Some(path)), problem)
    }

    const fn with(hosts: Hosts, path: Option<PathBuf>) -> Self {
        let (has_changed, is_told) = (AtomicBool::new(false), AtomicBool::new(false));
        Self { hosts: Mutex::new(hosts), path, has_changed, is_told }
    }

    /// Other limits are in force.
    pub(crate) fn configure(&self, config: &Config) {
        self.lock().set(settings(config));
    }

    /// Asks.
    pub(crate) fn look<T>(&self, asks: impl FnOnce(&Hosts) -> T) -> T {
        asks(&self.lock())
    }

    /// How long a first message to these hosts takes as far as is known: that of the one that is tried first.
    pub(crate) fn expected(&self, addresses: &[SocketAddr], now: Duration) -> Option<Duration> {
        let hosts = self.lock();
        let first = addresses.iter().find(|address| hosts.may_try(**address, now)).or_else(|| addresses.first());
        first.and_then(|address| hosts.expected(*address))
    }

    /// Tells what happened.
    pub(crate) fn learn(&self, happens: impl FnOnce(&mut Hosts)) {
        happens(&mut self.lock());
        self.has_changed.store(true, Ordering::Relaxed);
    }

    /// Writes the file if something changed.
    ///
    /// # Errors
    /// It cannot be written; the one before is still there. What to tell the operator.
    fn save(&self) -> Result<(), String> {
        let Some(path) = self.path.as_ref().filter(|_| self.has_changed.swap(false, Ordering::Relaxed)) else {
            return Ok(());
        };
        let bytes = self.lock().to_bytes();
        replace(path, &bytes).map_err(|error| {
            self.has_changed.store(true, Ordering::Relaxed);
            let path = path.display();
            format!("{path} cannot be written: {error}; what is known of next hops is lost at the end of the server: make room, or see who owns the directory")
        })
    }

    fn lock(&self) -> MutexGuard<'_, Hosts> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Writes the table once a minute until the server ends.
pub(crate) async fn keep(service: Arc<Service>) {
    loop {
        tokio::select! {
            () = service.stop.begun() => return,
            () = tokio::time::sleep(SAVE_INTERVAL) => save(&service).await,
        }
    }
}

/// Writes the table now.
///
/// # Cancel safety
/// The file is the old one or the new one.
pub(crate) async fn save(service: &Arc<Service>) {
    let saver = Arc::clone(service);
    let saved = blocking::run(move || saver.hosts.save()).await;
    let hosts = &service.hosts;
    match saved {
        Ok(Err(text)) if !hosts.is_told.swap(true, Ordering::Relaxed) => {
            service.tell(&Event::Spool { severity: Severity::Warning, text: &text });
        }
        Ok(Ok(())) => hosts.is_told.store(false, Ordering::Relaxed),
        // Told once. A panic was told where it happened.
        Ok(Err(_)) | Err(_) => {}
    }
}

/// Reads a file of at most `max` octets; a longer one is cut, and its checksum tells.
fn read(path: &Path, max: usize) -> io::Result<Vec<u8>> {
    let mut bytes = Vec::new();
    File::open(path)?.take(u64::try_from(max).unwrap_or(u64::MAX)).read_to_end(&mut bytes)?;
    Ok(bytes)
}

/// Replaces a file. It is not synced: after a power cut it may be damaged, which its checksum shows.
fn replace(path: &Path, bytes: &[u8]) -> io::Result<()> {
    let new = path.with_extension("tmp");
    let mut file = OpenOptions::new().write(true).create(true).truncate(true).mode(0o600).open(&new)?;
    file.write_all(bytes)?;
    drop(file);
    Ok(rustix::fs::rename(&new, path)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Duration = Duration::from_secs(1);

    fn config(directory: &Path) -> Config {
        let text = format!("[spool]\npath = {:?}\n", directory.display().to_string());
        crate::config::load(&text, None, &[], &crate::config::Machine::default()).unwrap().config
    }

    #[test]
    fn the_next_server_knows_what_this_one_knew() {
        let directory = tempfile::tempdir().unwrap();
        let config = config(directory.path());
        let (table, problem) = HostTable::open(&config);
        assert_eq!(problem, None);
        table.save().unwrap();
        let file = directory.path().join(FILE);
        assert!(!file.exists(), "nothing has changed");
        let host = "192.0.2.1:25".parse().unwrap();
        table.learn(|hosts| hosts.greeted(host, Duration::from_millis(5), NOW));
        table.save().unwrap();
        let (table, problem) = HostTable::open(&config);
        assert_eq!(problem, None);
        assert_eq!(table.look(|hosts| hosts.expected(host)), Some(Duration::from_millis(5)));
        std::fs::remove_file(&file).unwrap();
        table.save().unwrap();
        assert!(!file.exists(), "nothing has changed");
    }

    #[test]
    fn a_site_is_expected_to_take_what_its_first_host_takes() {
        let table = HostTable::forgetful(&Config::default());
        let hosts: [SocketAddr; 2] = ["192.0.2.1:25".parse().unwrap(), "192.0.2.2:25".parse().unwrap()];
        assert_eq!((table.expected(&[], NOW), table.expected(&hosts, NOW)), (None, None));
        table.learn(|known| known.greeted(hosts[1], Duration::from_millis(5), NOW));
        assert_eq!(table.expected(&hosts, NOW), None);
        table.learn(|known| known.failed(hosts[0], NOW));
        assert_eq!(table.expected(&hosts, NOW), Some(Duration::from_millis(5)));
        table.learn(|known| known.failed(hosts[1], NOW));
        assert!(table.expected(&hosts, NOW) >= Some(Duration::from_secs(10)));
    }

    #[test]
    fn a_damaged_file_is_told_and_replaced() {
        let directory = tempfile::tempdir().unwrap();
        let config = config(directory.path());
        let file = directory.path().join(FILE);
        for bytes in [&b"mrhosts\0 and then rubbish"[..], &[0; 5_000_000], b""] {
            std::fs::write(&file, bytes).unwrap();
            let (table, problem) = HostTable::open(&config);
            let problem = problem.unwrap();
            assert!(problem.starts_with(&format!("{}: ", file.display())), "{problem}");
            table.learn(|hosts| hosts.failed("192.0.2.1:25".parse().unwrap(), NOW));
            table.save().unwrap();
            assert_eq!(HostTable::open(&config).1, None);
        }
    }

    #[test]
    fn a_file_that_cannot_be_written_is_tried_again() {
        let directory = tempfile::tempdir().unwrap();
        let config = config(&directory.path().join("gone"));
        let (table, problem) = HostTable::open(&config);
        assert_eq!(problem, None);
        table.learn(|hosts| hosts.failed("192.0.2.1:25".parse().unwrap(), NOW));
        let text = table.save().unwrap_err();
        assert!(text.contains("gone/hosts cannot be written: ") && text.contains("make room"), "{text}");
        std::fs::create_dir(directory.path().join("gone")).unwrap();
        table.save().unwrap();
        assert!(!HostTable::open(&config).0.look(Hosts::is_empty));
    }
}

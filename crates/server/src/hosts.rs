//! State of next hops, one table for all connections, kept over restarts in the file `hosts` of the spool directory.
//!
//! *deliver* asks it before it connects and reports the result; `schedule::Hosts` draws the conclusions. A file that
//! is lost or damaged costs a few slow connections (`state_file`).
//!
//! Not here: the hosts of a destination (`resolve`), and the effect of a failure on a destination (`dispatch`).

use crate::config::Config;
use crate::state_file::StateFile;
use os::clock;
use schedule::{HostSettings, Hosts};
use std::net::SocketAddr;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// The file, in the spool directory.
const FILE: &str = "hosts";
/// Content of the file, for messages to the operator.
const WHAT: &str = "what was known of next hops";
/// Hosts that are remembered.
const HOSTS_MAX: usize = 20_000;
/// The first time a host is passed over, if `delivery.retry_first` is no shorter; it doubles up to
/// `delivery.retry_max`.
const PASSED_OVER_FIRST: Duration = Duration::from_secs(60);
/// Time for which a host whose TLS failed gets mail in clear text. An attacker on the path can make any handshake
/// fail, so it is short: it spares hosts whose TLS does not work a second connection for each message.
const TLS_MEMORY: Duration = Duration::from_secs(3_600);
/// Time for which a successful handshake with a host is remembered: longer than most pauses between two messages to
/// it.
const TLS_SEEN_MEMORY: Duration = Duration::from_secs(TLS_SEEN_DAYS * 24 * 3_600);
/// The same in days, for log lines.
pub(crate) const TLS_SEEN_DAYS: u64 = 30;

/// The table of all connections.
#[derive(Debug)]
pub(crate) struct HostTable {
    hosts: Mutex<Hosts>,
    file: StateFile,
}

fn settings(config: &Config) -> HostSettings {
    let delivery = &config.delivery;
    HostSettings {
        max: HOSTS_MAX,
        first: PASSED_OVER_FIRST.min(delivery.retry_first),
        longest: delivery.retry_max,
        tls_memory: TLS_MEMORY,
        tls_seen_memory: TLS_SEEN_MEMORY,
    }
}

impl HostTable {
    /// Makes a table that is forgotten at the end.
    pub(crate) fn in_memory(config: &Config) -> Self {
        Self { hosts: Mutex::new(Hosts::new(settings(config), clock::unix_us())), file: StateFile::default() }
    }

    /// Reads the table of the last server. Returns a message for the operator if the file cannot be used: the table
    /// is empty then.
    pub(crate) fn open(config: &Config) -> (Self, Option<String>) {
        let file = StateFile::new(&config.spool.path, FILE, WHAT);
        let (settings, now_us) = (settings(config), clock::unix_us());
        let (hosts, problem) = match file.read(Hosts::bytes_max(&settings)) {
            Ok(Some(bytes)) => {
                let (hosts, damage) = Hosts::from_bytes(&bytes, settings, now_us, Duration::from_micros(now_us));
                (hosts, damage.map(|damage| file.unreadable_text(false, &damage.to_string())))
            }
            Ok(None) => (Hosts::new(settings, now_us), None),
            Err(problem) => (Hosts::new(settings, now_us), Some(problem)),
        };
        (Self { hosts: Mutex::new(hosts), file }, problem)
    }

    /// Puts other limits in force.
    pub(crate) fn set_limits(&self, config: &Config) {
        self.lock().set(settings(config));
    }

    /// Calls `asks` with the table, under its lock.
    pub(crate) fn with_table<T>(&self, asks: impl FnOnce(&Hosts) -> T) -> T {
        asks(&self.lock())
    }

    /// Returns the expected time of a first message to these hosts, as far as is known: that of the host that is
    /// tried first.
    pub(crate) fn expected_time(&self, addresses: &[SocketAddr], now: Duration) -> Option<Duration> {
        let hosts = self.lock();
        let first = addresses.iter().find(|address| hosts.may_try(**address, now)).or_else(|| addresses.first());
        first.and_then(|address| hosts.expected(*address))
    }

    /// Updates the table after an event.
    pub(crate) fn update(&self, happens: impl FnOnce(&mut Hosts)) {
        happens(&mut self.lock());
        self.file.mark_changed();
    }

    /// Writes the file if something changed.
    ///
    /// # Errors
    /// As [`StateFile::save`].
    pub(crate) fn save(&self) -> Result<(), String> {
        self.file.save(|| self.lock().to_bytes())
    }

    fn lock(&self) -> MutexGuard<'_, Hosts> {
        self.hosts.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::path::Path;

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
        table.update(|hosts| hosts.greeted(host, Duration::from_millis(5), NOW));
        table.save().unwrap();
        let (table, problem) = HostTable::open(&config);
        assert_eq!(problem, None);
        assert_eq!(table.with_table(|hosts| hosts.expected(host)), Some(Duration::from_millis(5)));
        std::fs::remove_file(&file).unwrap();
        table.save().unwrap();
        assert!(!file.exists(), "nothing has changed");
    }

    #[test]
    fn a_site_is_expected_to_take_what_its_first_host_takes() {
        let table = HostTable::in_memory(&Config::default());
        let hosts: [SocketAddr; 2] = ["192.0.2.1:25".parse().unwrap(), "192.0.2.2:25".parse().unwrap()];
        assert_eq!((table.expected_time(&[], NOW), table.expected_time(&hosts, NOW)), (None, None));
        table.update(|known| known.greeted(hosts[1], Duration::from_millis(5), NOW));
        assert_eq!(table.expected_time(&hosts, NOW), None);
        table.update(|known| known.failed(hosts[0], NOW));
        assert_eq!(table.expected_time(&hosts, NOW), Some(Duration::from_millis(5)));
        table.update(|known| known.failed(hosts[1], NOW));
        assert!(table.expected_time(&hosts, NOW) >= Some(Duration::from_secs(10)));
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
            table.update(|hosts| hosts.failed("192.0.2.1:25".parse().unwrap(), NOW));
            table.save().unwrap();
            assert_eq!(HostTable::open(&config).1, None);
        }
    }
}

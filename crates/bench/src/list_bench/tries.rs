//! Which hosts the server tried, by its log: each try that came to nothing leaves a line for the recipient it was made
//! for.
//!
//! Only this watch sees refused connections, since no socket of the simulated internet is there. The server does not
//! notice the watch: its file is read from where it ended when the watch began.

use super::ledger::LineSplitter;
use std::collections::HashSet;
use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::PathBuf;

/// A watch on a log.
#[derive(Debug)]
pub(super) struct Tries {
    log: PathBuf,
    read: u64,
    lines: LineSplitter,
    /// All tries, and their recipients.
    pub(super) count: u64,
    pub(super) whose: HashSet<String>,
}

impl Tries {
    /// Watches from now on.
    ///
    /// # Errors
    /// There is no such file.
    pub(super) fn watch(log: PathBuf) -> Result<Self, String> {
        let data = std::fs::metadata(&log).map_err(|e| format!("{}: {e}", log.display()))?;
        Ok(Self { log, read: data.len(), lines: LineSplitter::default(), count: 0, whose: HashSet::new() })
    }

    /// Counts the lines logged since the last look.
    ///
    /// # Errors
    /// The log cannot be read.
    pub(super) fn look(&mut self) -> Result<(), String> {
        let mut octets = Vec::new();
        let read = File::open(&self.log).and_then(|mut file| {
            file.seek(SeekFrom::Start(self.read))?;
            file.read_to_end(&mut octets)
        });
        read.map_err(|e| format!("{}: {e}", self.log.display()))?;
        self.read += octets.len() as u64;
        for line in self.lines.add(&octets).lines() {
            let recipients = deferred(line);
            self.count += u64::from(!recipients.is_empty());
            self.whose.extend(recipients.into_iter().map(str::to_owned));
        }
        Ok(())
    }
}

/// Returns the recipients that a line of the log defers (docs/log.md, "deferred").
fn deferred(line: &str) -> Vec<&str> {
    let Some((_, fields)) = line.split_once(": to=").filter(|_| line.contains(", stat=Deferred")) else {
        return Vec::new();
    };
    let to = fields.split(", ").next().unwrap_or("");
    to.split(',').filter_map(|one| one.strip_prefix('<')?.strip_suffix('>')).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::OpenOptions;
    use std::io::Write as _;

    const DEFERRED: &str = "6AKElS00000000: to=<u0@d3.sim.example>, delay=00:00:59, xdelay=00:00:00, mailer=esmtp, \
                            pri=120240, relay=[127.0.0.3] [127.0.0.3], dsn=4.4.1, stat=Deferred: Connection refused";

    #[test]
    fn lines_name_who_is_deferred() {
        assert_eq!(deferred(DEFERRED), ["u0@d3.sim.example"]);
        assert_eq!(
            deferred("2026-11-20T13:00:00Z X: to=<a@b.test>,<c@d.test>, dsn=4.4.1, stat=Deferred"),
            ["a@b.test", "c@d.test"]
        );
        assert_eq!(deferred("X: to=<a@b.test>, dsn=2.0.0, stat=Sent (250 2.0.0 Ok)"), [""; 0]);
        assert_eq!(deferred("destination=down.test, state=down, retry=00:01:00, why=Connection refused"), [""; 0]);
    }

    #[test]
    fn only_what_comes_after_the_beginning_counts() {
        let log = std::env::temp_dir().join(format!("mailrace-tries-{}", std::process::id()));
        std::fs::write(&log, format!("{DEFERRED}\n")).unwrap();
        let mut tries = Tries::watch(log.clone()).unwrap();
        let mut more = |text: &str| {
            OpenOptions::new().append(true).open(&log).unwrap().write_all(text.as_bytes()).unwrap();
            tries.look().unwrap();
            (tries.count, tries.whose.len())
        };
        assert_eq!(more(""), (0, 0));
        assert_eq!(more(&DEFERRED[..60]), (0, 0));
        assert_eq!(more(&format!("{}\n{DEFERRED}\n", &DEFERRED[60..])), (2, 1));
        assert_eq!(more(&format!("{}\n", DEFERRED.replace("d3", "d4"))), (3, 2));
        std::fs::remove_file(&log).unwrap();
    }
}

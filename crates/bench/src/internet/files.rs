//! The files of a run: ledger, list of recipients, map of hosts. Their forms are in docs/sim.md, section 4.

use sim::ledger::HEAD;
use sim::{Taken, World};
use std::fmt::Write as _;
use std::fs::File;
use std::io::{self, BufWriter, Write as _};
use std::path::Path;

/// Text that is written without waiting for more.
const ENOUGH: usize = 256 << 10;

/// The ledger, or none.
#[derive(Debug)]
pub(super) struct LedgerFile {
    file: Option<File>,
    text: String,
    failed: Option<io::Error>,
}

impl LedgerFile {
    /// Makes the file, anew.
    ///
    /// # Errors
    /// It cannot be made.
    pub(super) fn open(path: Option<&Path>, start_unix_us: u64) -> io::Result<Self> {
        let file = path.map(File::create).transpose()?;
        let mut ledger = Self { file, text: String::new(), failed: None };
        ledger.text = format!("{HEAD}{start_unix_us}\n");
        ledger.flush();
        Ok(ledger)
    }

    /// Adds a line, which is in the file after the next flush.
    pub(super) fn add(&mut self, taken: &Taken) {
        if self.file.is_none() {
            return;
        }
        taken.write(&mut self.text);
        if self.text.len() >= ENOUGH {
            self.flush();
        }
    }

    /// Writes what waits.
    pub(super) fn flush(&mut self) {
        if let Some(file) = &mut self.file
            && self.failed.is_none()
        {
            self.failed = file.write_all(self.text.as_bytes()).err();
        }
        self.text.clear();
    }

    /// Writes what waits.
    ///
    /// # Errors
    /// Something could not be written, now or before.
    pub(super) fn close(mut self) -> io::Result<()> {
        self.flush();
        self.failed.map_or(Ok(()), Err)
    }
}

/// Writes the recipients, one a line.
///
/// # Errors
/// The file cannot be written.
pub(super) fn list(path: &Path, world: &World) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    let mut line = String::new();
    for number in 0..world.list_len() {
        line.clear();
        world.recipient(number, &mut line);
        line.push('\n');
        file.write_all(line.as_bytes())?;
    }
    file.flush()
}

/// Writes the hosts, one a line.
///
/// # Errors
/// The file cannot be written.
pub(super) fn map(path: &Path, world: &World) -> io::Result<()> {
    let mut file = BufWriter::new(File::create(path)?);
    let mut line = String::new();
    for (number, host) in (0..).zip(world.hosts()) {
        line.clear();
        let (address, name, site) = (world.address(number), World::name(number), world.site_of(number));
        // Writing to a String cannot fail.
        let _infallible = write!(line, "{number} {address} {name} {site} {}", host.script.base);
        for episode in &host.script.episodes {
            let (from, to) = (episode.from.as_millis(), episode.to.as_millis());
            let _infallible = write!(line, " {from}ms..{to}ms:{}", episode.character);
        }
        line.push('\n');
        file.write_all(line.as_bytes())?;
    }
    file.flush()
}

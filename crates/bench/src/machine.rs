//! Facts of the machine for the head of a report, and lines for the person at the terminal.

use std::fs;
use std::io::Write as _;
use std::path::Path;

/// Facts of the machine. No names of hosts or directories.
#[derive(Clone, Debug)]
pub(crate) struct Machine {
    pub(crate) processor: String,
    pub(crate) cores: usize,
    pub(crate) memory_gib: u64,
    pub(crate) kernel: String,
}

impl Machine {
    pub(crate) fn look() -> Self {
        let cpuinfo = read("/proc/cpuinfo");
        let processor = value(&cpuinfo, "model name").unwrap_or("unknown").to_owned();
        let memory_kib: u64 = value(&read("/proc/meminfo"), "MemTotal").and_then(number).unwrap_or(0);
        Self {
            processor,
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            memory_gib: memory_kib.div_ceil(1 << 20),
            kernel: read("/proc/sys/kernel/osrelease").trim().to_owned(),
        }
    }
}

/// The type of the file system that holds `dir`, as its administrator knows it.
pub(crate) fn file_system(dir: &Path) -> String {
    let dir = fs::canonicalize(dir).unwrap_or_else(|_| dir.to_owned());
    let mounts = read("/proc/self/mounts");
    let fields = mounts.lines().filter_map(|line| {
        let mut fields = line.split(' ').skip(1);
        Some((fields.next()?, fields.next()?))
    });
    fields
        .filter(|(at, _)| dir.starts_with(at))
        .max_by_key(|(at, _)| at.len())
        .map_or_else(|| "unknown".to_owned(), |(_, kind)| kind.to_owned())
}

/// Prints a line for the person at the terminal, apart from the report.
pub(crate) fn say(text: &str) {
    // A closed terminal is no reason to stop measuring.
    drop(writeln!(std::io::stderr().lock(), "{text}"));
}

fn read(path: &str) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

fn value<'a>(text: &'a str, key: &str) -> Option<&'a str> {
    let line = text.lines().find(|line| line.starts_with(key))?;
    Some(line.split_once(':')?.1.trim())
}

fn number(text: &str) -> Option<u64> {
    text.split(' ').next()?.parse().ok()
}

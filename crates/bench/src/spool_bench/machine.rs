//! What the machine is, for the head of a report, and how busy it was.

use std::fs;
use std::path::Path;

/// Facts of the machine. No names of hosts or directories.
#[derive(Clone, Debug)]
pub(super) struct Machine {
    pub(super) processor: String,
    pub(super) cores: usize,
    pub(super) memory_gib: u64,
    pub(super) kernel: String,
}

impl Machine {
    pub(super) fn look() -> Self {
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

/// The load average of the last minute.
pub(super) fn load_average() -> f64 {
    read("/proc/loadavg").split(' ').next().and_then(|text| text.parse().ok()).unwrap_or(0.0)
}

/// Resident memory of this process, in bytes.
pub(super) fn resident() -> u64 {
    value(&read("/proc/self/status"), "VmRSS").and_then(number).unwrap_or(0) * 1024
}

/// The type of the file system that holds `dir`, as its administrator knows it.
pub(super) fn file_system(dir: &Path) -> String {
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

/// Bytes this process may still put on the file system that holds `dir`.
pub(super) fn free(dir: &Path) -> u64 {
    rustix::fs::statvfs(dir).map_or(0, |space| space.f_bavail.saturating_mul(space.f_frsize))
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

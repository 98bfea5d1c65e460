//! What the machine is, for the head of a report, and how busy it was.

use std::fs;
use std::path::Path;
use std::time::Duration;

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

/// Processor time in user mode of all processes but this one since the machine started, in ticks of 10 ms.
///
/// Threads of the kernel, which work for us as well, spend theirs in system mode and do not count.
pub(crate) fn others_ticks() -> u64 {
    let stat = read("/proc/stat");
    let all: u64 = stat.split_whitespace().skip(1).take(2).filter_map(|field| field.parse::<u64>().ok()).sum();
    // The name of the program in its second field may hold spaces; fields are counted from the bracket after it.
    let own = read("/proc/self/stat");
    let own = own.rsplit(") ").next().and_then(|rest| rest.split(' ').nth(11)?.parse().ok()).unwrap_or(0);
    all.saturating_sub(own)
}

/// Share of the machine that others used between two readings of [`others_ticks`], 0 to 1.
#[expect(clippy::cast_precision_loss, reason = "a share")]
pub(crate) fn share(ticks: u64, time: Duration) -> f64 {
    let cores = std::thread::available_parallelism().map_or(1, usize::from);
    ticks as f64 / 100.0 / cores as f64 / time.as_secs_f64().max(0.01)
}

/// Resident memory of this process, in bytes.
pub(crate) fn resident() -> u64 {
    value(&read("/proc/self/status"), "VmRSS").and_then(number).unwrap_or(0) * 1024
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

/// Bytes this process may still put on the file system that holds `dir`.
pub(crate) fn free(dir: &Path) -> u64 {
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

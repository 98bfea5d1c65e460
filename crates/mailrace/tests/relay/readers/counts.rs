//! The readers, each as a function from a log to its counts by kind.

use super::analyzer;
use std::collections::BTreeMap;
use std::process::{Command, Output, Stdio};
use testkit::harness::{run_with_input, text};
use testkit::needs;

/// How often a reader has counted each kind.
pub(super) type Counts = BTreeMap<String, u64>;

/// A reader; `None`: it is not installed.
pub(super) type Reader = fn(&Log) -> Option<Counts>;

/// Lines about the process itself, which no two servers share.
const OF_THE_PROCESS: [&str; 8] = [
    "starting daemon",
    "daemon invoked",
    "listening:",
    "hardening:",
    "spool:",
    "configuration:",
    "stopping daemon",
    "stopped daemon",
];

/// A log without the lines about the process; all lines have the same time.
pub(super) struct Log {
    lines: Vec<String>,
}

impl Log {
    pub(super) fn new<'a>(lines: impl Iterator<Item = &'a str>) -> Self {
        let kept = lines.filter(|line| !line.starts_with('#')).filter_map(|line| {
            let (head, rest) = line.split_once("]: ").unwrap_or_else(|| panic!("no program: {line}"));
            let (_, program) =
                head.split_once(" mx sm-mta[").unwrap_or_else(|| panic!("another host or program: {line}"));
            let is_kept = !OF_THE_PROCESS.iter().any(|begin| rest.starts_with(begin));
            is_kept.then(|| format!("Jan  1 00:00:00 mx sm-mta[{program}]: {rest}"))
        });
        Self { lines: kept.collect() }
    }

    pub(super) fn text(&self) -> String {
        self.lines.join("\n") + "\n"
    }

    /// Lines with this part.
    pub(super) fn with(&self, part: &str) -> usize {
        self.lines.iter().filter(|line| line.contains(part)).count()
    }

    /// The lines without time, host and program.
    fn messages(&self) -> impl Iterator<Item = &str> {
        self.lines.iter().filter_map(|line| line.split_once("]: ").map(|(_, rest)| rest))
    }

    /// Runs a command in a directory where the log is `maillog`.
    fn read_by(&self, command: impl FnOnce(&std::path::Path) -> Command) -> Output {
        let directory = tempfile::tempdir().expect("a directory");
        let path = directory.path().join("maillog");
        std::fs::write(&path, self.text()).expect("written");
        let mut command = command(&path);
        command.current_dir(directory.path()).stdin(Stdio::null()).output().expect("it runs")
    }
}

pub(super) fn readers() -> [(&'static str, Reader); 6] {
    [
        ("logwatch", logwatch),
        ("fail2ban sendmail-auth", |log| fail2ban(log, "sendmail-auth")),
        ("fail2ban sendmail-reject", |log| fail2ban(log, "sendmail-reject")),
        ("fail2ban sendmail-reject[mode=aggressive]", |log| fail2ban(log, "sendmail-reject[mode=aggressive]")),
        ("mailgraph", mailgraph),
        ("sendmailanalyzer", |log| Some(analyzer::count(log.messages()))),
    ]
}

/// The service sendmail of logwatch, which gets lines without the name of the program.
fn logwatch(log: &Log) -> Option<Counts> {
    let script = "/usr/share/logwatch/scripts/services/sendmail";
    if !needs::has("logwatch", script) {
        return None;
    }
    let mut command = Command::new("perl");
    command.arg(script).env("PERL5LIB", "/usr/share/logwatch/lib").env("LOGWATCH_DETAIL_LEVEL", "10");
    let lines: Vec<&str> = log.messages().collect();
    let output = run_with_input(&mut command, &(lines.join("\n") + "\n"));
    assert!(output.status.success(), "{output:?}");
    Some(headings(&String::from_utf8_lossy(&output.stdout)))
}

/// Adds up the report: `N Time(s)` in lines under a heading, and the number at the end of a line of its own. Octets are
/// left out: sendmail stores other line ends.
fn headings(report: &str) -> Counts {
    let mut counts = Counts::new();
    let mut heading = "";
    for line in report.lines().filter(|line| !line.trim().is_empty()) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let is_size = line.starts_with(|first: char| first.is_ascii_digit()) || line.starts_with("Avg. Size");
        if is_size || line.starts_with("Bytes") || line.starts_with("TOTAL") || line.trim_start().starts_with("Total") {
            continue;
        }
        let times = match words.as_slice() {
            [.., count, "Time" | "Times"] => count.parse::<u64>().ok(),
            _ => None,
        };
        if line.starts_with(char::is_whitespace) {
            *counts.entry(heading.to_owned()).or_default() += times.unwrap_or(0);
        } else if let [name @ .., count] = words.as_slice()
            && let Ok(count) = count.parse::<u64>()
        {
            *counts.entry(name.join(" ")).or_default() += count;
        } else {
            heading = line;
        }
    }
    counts
}

/// The addresses that a filter of fail2ban finds.
fn fail2ban(log: &Log, filter: &str) -> Option<Counts> {
    let program = needs::program("fail2ban-regex")?;
    let output = log.read_by(|path| {
        let mut command = Command::new(program);
        command.arg("-o").arg("ip").arg(path).arg(filter);
        command
    });
    assert!(output.status.success(), "{output:?}");
    let mut counts = Counts::new();
    for address in text(&output).lines().filter(|line| !line.is_empty()) {
        *counts.entry(address.to_owned()).or_default() += 1;
    }
    Some(counts)
}

/// The sums of mailgraph. It writes those of a minute when a later one begins.
fn mailgraph(log: &Log) -> Option<Counts> {
    let program = needs::program("mailgraph")?;
    let later = "Jan  1 00:30:00 mx sm-mta[1]: 6AR3Em1H005527: to=<a@b>, stat=Sent".to_owned();
    let log = Log { lines: log.lines.iter().cloned().chain([later]).collect() };
    let output = log.read_by(|path| {
        let mut command = Command::new(program);
        command.arg("--cat").arg("--verbose").arg("--year=2020").arg(format!("--logfile={}", path.display()));
        command
    });
    let mut counts = Counts::new();
    let said = String::from_utf8_lossy(&output.stdout);
    for update in said.lines().filter_map(|line| line.strip_prefix("update ")) {
        let sums = update.split_whitespace().next().unwrap_or_default().split(':').skip(1);
        for (name, sum) in ["sent", "received", "bounced", "rejected"].into_iter().zip(sums) {
            *counts.entry(name.to_owned()).or_default() += sum.parse::<u64>().expect("a number");
        }
    }
    assert!(!counts.is_empty(), "{output:?}");
    Some(counts)
}

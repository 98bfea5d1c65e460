//! The texts of the demonstration. No line is longer than 80 columns, unless a path in it is.

use super::DemoArguments;
use super::children::{Relay, Sink};
use super::storms::{First, SLOW, Second};
use crate::output::{bytes, count, thousands};
use spool::disk::Space;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

/// The size of the storm's messages, for people.
const SIZE: u64 = 4096;
/// Findings shown.
const FINDINGS_MAX: usize = 10;
/// Columns of a terminal.
const COLUMNS: usize = 80;
/// The column at which figures begin.
const INDENT: usize = 19;
/// The storm of which an administrator wrote, and how long it took on a slow sendmail.
const REPORTED: (u64, Duration) = (2_030, Duration::from_secs(187));

/// The values that all parts of the report use.
pub(super) struct StoryReport {
    pub(super) arguments: DemoArguments,
    pub(super) space: Space,
}

impl StoryReport {
    pub(super) fn opening_text(&self, relay: &Relay, sink: &Sink) -> String {
        let DemoArguments { messages, sessions, .. } = &self.arguments;
        let durable = match self.space.volatile {
            true => "VOLATILE: a power cut takes all; choose a disk with --dir",
            false => "a message with 250 survives a power cut",
        };
        let spool = format!("{} on {}; {durable}", self.arguments.spool().display(), self.space.file_system);
        format!(
            "mailrace demo: a relay, a storm, a kill -9, and a count\n\n{}{}{}{}\n\
             1. A storm: {} of {} over {}",
            row("relay", &format!("{}, process {}", relay.address(), relay.process())),
            row("spool", &spool),
            row("next hop", &format!("{}, process {}: a sink, which keeps nothing", sink.address(), sink.process())),
            self.page_text(),
            count(*messages, "message"),
            bytes(SIZE),
            count(u64::from(*sessions), "session"),
        )
    }

    pub(super) fn measured_text(&self, first: &First) -> String {
        let First { storm, delivered, syncs } = first;
        let accepted = storm.accepted;
        #[expect(clippy::cast_precision_loss, reason = "figures for people")]
        let each = accepted as f64 / (*syncs).max(1) as f64;
        let how = |time: Duration| {
            format!("{} in {:.2} s, {} messages/s", thousands(accepted), time.as_secs_f64(), rate(accepted, time))
        };
        let latency = format!(
            "{} median, 99 % within {}, final dot to 250",
            milliseconds(storm.latency.p50),
            milliseconds(storm.latency.p99)
        );
        let compared = match (accepted == REPORTED.0, REPORTED.1.as_secs_f64() / delivered.as_secs_f64().max(1e-3)) {
            (true, times) => row(
                "compare",
                &format!("{} s on an administrator's slow sendmail, {times:.0} times that", REPORTED.1.as_secs()),
            ),
            (false, _) => String::new(),
        };
        [
            row("accepted", &how(storm.elapsed)),
            row("delivered", &format!("{}; the sink counted as many", how(*delivered))),
            row("latency", &latency),
            row("flushes", &format!("{} of the disk: {each:.1} messages share one", thousands(*syncs))),
            compared,
        ]
        .concat()
    }

    /// Returns the text before the kill, with the next hop.
    pub(super) fn before_the_kill(&self, next_hop: SocketAddr) -> String {
        format!(
            "2. The same storm, and kill -9 of the relay in the middle of it\n{}",
            row(
                "next hop",
                &format!(
                    "{next_hop}, in this process. It remembers every message, and needs {} ms for each until the kill, \
                     so that mail queues",
                    SLOW.as_millis()
                )
            )
            .trim_end()
        )
    }

    pub(super) fn killed_text(&self, second: &Second) -> String {
        let Second { process, arrived, ready, emptied, counted } = second;
        let half = thousands(self.arguments.messages / 2);
        let unanswered = match counted.unanswered {
            0 => String::new(),
            number => format!("; {} of them without a 250, which was on its way at the kill", thousands(number)),
        };
        let twice = match counted.twice {
            0 => "0".to_owned(),
            number => format!(
                "{}: they had arrived, and the relay died before its disk knew; it rather sends twice than not at all",
                thousands(number)
            ),
        };
        let findings = match counted.wrong.len() {
            0 => String::new(),
            number => {
                let shown: Vec<&str> = counted.wrong.iter().take(FINDINGS_MAX).map(String::as_str).collect();
                format!("\nWRONG, {}:\n  {}\n", count(number as u64, "finding"), shown.join("\n  "))
            }
        };
        let kill = format!("process {process}, {half} messages acknowledged, {} arrived", thousands(*arrived));
        let restart =
            format!("ready after {}, the queue empty {} later", milliseconds(us(*ready)), milliseconds(us(*emptied)));
        [
            row("kill -9", &kill),
            row("restart", &restart),
            row("acknowledged", &format!("{} with 250", thousands(counted.acknowledged))),
            row("arrived", &format!("{}, each with its checksum{unanswered}", thousands(counted.arrived))),
            row("twice", &twice),
            row("lost", &thousands(counted.lost)),
            findings,
            "\nA kill -9 takes the process and leaves the page cache. \"make crash\" cuts the\n\
             power of a disk a thousand times and counts in the same way."
                .to_owned(),
        ]
        .concat()
    }

    fn page_text(&self) -> String {
        match (self.arguments.page, self.arguments.http) {
            (Some(page), _) => row("page", &format!("http://{page}/: open it, and see storm and kill")),
            (None, wanted) => row("page", &format!("none: {wanted} is taken; --http HOST:PORT takes another")),
        }
    }

    /// Returns the commands to try.
    pub(super) fn commands_text(&self, address: SocketAddr, sink: &Sink) -> String {
        let program = program();
        let program = program.display();
        let control = self.arguments.control();
        let control = control.display();
        let (log, hop, process) = (self.arguments.log(), sink.address(), sink.process());
        let log = log.display();
        let page = self.arguments.page.map(|page| format!("Its page is http://{page}/\n\n")).unwrap_or_default();
        format!(
            "\n3. A relay to a new sink stays up on {address}.\n\n{page}In another terminal:\n\n\
             \x20 tail -f {log}\n\
             \x20 swaks --server {address} --to you@example.org\n\
             \x20 {program} status --control {control}\n\
             \x20 {program} storm --to {address} -n 20000 -s 100\n\n\
             A next hop that is down: end the sink, send, see the reason; start another sink,\n\
             and do not wait for the next attempt:\n\n\
             \x20 kill {process}\n\
             \x20 swaks --server {address} --to you@example.org\n\
             \x20 {program} queue list --control {control}\n\
             \x20 {program} sink --listen {hop} &\n\
             \x20 {program} queue retry --all --control {control}\n\n\
             Nothing leaves this machine: the sink forgets what it takes.\n\n\
             Ctrl-C ends relay and sink."
        )
    }

    /// Returns the last lines.
    pub(super) fn end_text(&self, cut_off: usize, taken: Option<u64>) -> String {
        let cut = match cut_off {
            0 => String::new(),
            number => format!(" {} cut off.", count(number as u64, "session")),
        };
        let taken = taken.map_or_else(String::new, |taken| format!(" The sink took {}.", count(taken, "message")));
        format!(
            "\nStopped.{cut}{taken} What is left in the queue is in the spool:\n\n  {} spool stats {}",
            program().display(),
            self.arguments.spool().display()
        )
    }
}

/// This program, as it was called.
fn program() -> PathBuf {
    std::env::args_os().next().map_or_else(|| "mailrace".into(), PathBuf::from)
}

fn us(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

/// Messages a second.
#[expect(clippy::cast_precision_loss, reason = "a rate for a person")]
fn rate(number: u64, time: Duration) -> String {
    let rate = format!("{:.0}", number as f64 / time.as_secs_f64().max(1e-3));
    rate.parse().map(thousands).unwrap_or(rate)
}

#[expect(clippy::cast_precision_loss, reason = "a time for a person")]
fn milliseconds(us: u64) -> String {
    let ms = us as f64 / 1000.0;
    if ms < 100.0 { format!("{ms:.1} ms") } else { format!("{ms:.0} ms") }
}

/// A figure with its name before it, on as many lines as it needs. Words are not cut.
fn row(name: &str, figure: &str) -> String {
    let mut text = format!("     {name:<14}");
    let mut column = INDENT;
    for word in figure.split(' ') {
        let long = word.chars().count();
        if column > INDENT && column + 1 + long > COLUMNS {
            text.push_str(&format!("\n{:INDENT$}", ""));
            column = INDENT;
        }
        if column > INDENT {
            text.push(' ');
            column += 1;
        }
        text.push_str(word);
        column += long;
    }
    text.push('\n');
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rows_fit_a_terminal() {
        assert_eq!(row("lost", "0"), "     lost          0\n");
        let text = row("twice", &"word ".repeat(40));
        assert!(text.lines().count() == 4 && text.lines().all(|line| line.len() <= COLUMNS), "{text}");
        assert!(text.lines().skip(1).all(|line| line.starts_with(&" ".repeat(INDENT))), "{text}");
        let long = "x".repeat(90);
        assert!(row("spool", &format!("{long} on ext4")).starts_with(&format!("     spool         {long}\n")));
    }
}

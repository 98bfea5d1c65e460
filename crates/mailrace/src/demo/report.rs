//! What the demonstration tells. No line is longer than 80 columns, unless a path in it is.

use super::Arguments;
use crate::exit::Exit;
use crate::output::{bytes, count, thousands};
use bench::storm;
use serde_json::Value;
use spool::Recovery;
use spool::disk::Space;
use std::net::SocketAddr;
use std::path::PathBuf;

/// The size of the storm's messages, for people.
const SIZE: u64 = 4096;
/// Findings shown.
const FINDINGS_MAX: usize = 10;

/// What all parts of the story need.
pub(super) struct Report {
    pub(super) arguments: Arguments,
    pub(super) space: Space,
}

/// What the spool of the dead server had.
#[derive(Default)]
pub(super) struct Counted {
    /// Messages of the first storm, all acknowledged.
    pub(super) earlier: u64,
    /// Messages of the second storm that were acknowledged.
    pub(super) acknowledged: u64,
    pub(super) found: u64,
    /// Found and not acknowledged: their 250 was on its way.
    pub(super) unanswered: u64,
    pub(super) lost: u64,
    pub(super) recovery: Recovery,
    /// Whatever is not as it should be, in words.
    pub(super) wrong: Vec<String>,
}

impl Counted {
    pub(super) fn exit(&self) -> Exit {
        match (self.lost, self.wrong.is_empty() && self.recovery.damage.is_empty()) {
            (0, true) => Exit::Ok,
            (0, false) => Exit::Damaged,
            _ => Exit::Lost,
        }
    }
}

impl Report {
    pub(super) fn opening(&self, address: SocketAddr, process: u32) -> String {
        let Arguments { messages, sessions, .. } = &self.arguments;
        let durable = match self.space.volatile {
            true => "VOLATILE: a power cut takes all; choose a disk with --dir",
            false => "a message with 250 survives a power cut",
        };
        format!(
            "mailrace demo: a server, a storm, a kill -9, and a count\n\n\
             {}{}\
             1. A storm: {} of {} over {} sessions",
            row("server", &format!("{address}, process {process}")),
            row("spool", &format!("{} on {}; {durable}\n", self.arguments.spool().display(), self.space.file_system)),
            count(*messages, "message"),
            bytes(SIZE),
            sessions,
        )
    }

    pub(super) fn storm(&self, storm: &storm::Report, status: &Value) -> String {
        let number = |place: &str| status.pointer(place).and_then(Value::as_u64).unwrap_or(0);
        let rate = format!("{:.0}", storm.per_second());
        let rate = rate.parse().map(thousands).unwrap_or(rate);
        let syncs = number("/spool/syncs");
        #[expect(clippy::cast_precision_loss, reason = "figures for people")]
        let each = storm.accepted as f64 / syncs.max(1) as f64;
        format!(
            "{}{}{}{}\n\
             2. The same storm, and kill -9 of the server in the middle of it",
            row("accepted", &format!("{} in {:.2} s", thousands(storm.accepted), storm.elapsed.as_secs_f64())),
            row("rate", &format!("{rate} messages/s")),
            row(
                "latency",
                &format!(
                    "{} median, 99 % within {}, final dot to 250",
                    milliseconds(storm.latency.p50),
                    milliseconds(storm.latency.p99)
                )
            ),
            row("flushes", &format!("{} of the disk: {each:.1} messages share one", thousands(syncs))),
        )
    }

    pub(super) fn count(&self, counted: &Counted) -> String {
        let Counted { earlier, acknowledged, found, unanswered, lost, recovery, wrong } = counted;
        let more = match unanswered {
            0 => String::new(),
            number => format!("; {} whose 250 was on its way", thousands(*number)),
        };
        let wrong: Vec<String> = wrong.iter().cloned().chain(recovery.damage.iter().map(ToString::to_string)).collect();
        let findings = match wrong.len() {
            0 => String::new(),
            number => {
                let shown: Vec<&str> = wrong.iter().take(FINDINGS_MAX).map(String::as_str).collect();
                format!("\nWRONG, {}:\n  {}\n", count(number as u64, "finding"), shown.join("\n  "))
            }
        };
        format!(
            "{}{}{}{}{findings}\n\
             A kill -9 takes the process and leaves the page cache. \"make crash\" cuts the\n\
             power of a disk a thousand times and counts in the same way.",
            row(
                "acknowledged",
                &format!("{}, and {} of the first storm", thousands(*acknowledged), thousands(*earlier))
            ),
            row("reopened", &format!("in {}", milliseconds(recovery.took_us))),
            row("found", &format!("{}, each with its checksum{more}", thousands(*found))),
            row("lost", &thousands(*lost)),
        )
    }

    /// What to try.
    pub(super) fn invitation(&self, address: SocketAddr) -> String {
        let program = std::env::args_os().next().map_or_else(|| "mailrace".into(), PathBuf::from);
        let program = program.display();
        let (ip, port) = (address.ip(), address.port());
        let control = self.arguments.control();
        let control = control.display();
        let log = self.arguments.log();
        format!(
            "\n3. A server on that spool, on {address}. It stays up. In another terminal:\n\n\
             \x20 swaks --server {address} --to you@example.org\n\
             \x20 telnet {ip} {port}\n\
             \x20 {program} storm --to {address} -n 20000 -s 100\n\
             \x20 {program} status --control {control}\n\
             \x20 {program} smtp --control {control}\n\
             \x20 {program} config show\n\
             \x20 tail -f {}\n\n\
             Mail is kept and goes nowhere: delivery is not there yet. The next demonstration\n\
             removes it.\n\nCtrl-C ends the server.",
            log.display()
        )
    }

    /// The end.
    pub(super) fn farewell(&self, cut_off: usize) -> String {
        let cut = match cut_off {
            0 => String::new(),
            number => format!(" {} cut off.", count(number as u64, "session")),
        };
        let program = std::env::args_os().next().map_or_else(|| "mailrace".into(), PathBuf::from);
        format!(
            "\nStopped.{cut} The mail is still there:\n\n  {} spool stats {}",
            program.display(),
            self.arguments.spool().display()
        )
    }
}

#[expect(clippy::cast_precision_loss, reason = "a time for a person")]
fn milliseconds(us: u64) -> String {
    let ms = us as f64 / 1000.0;
    if ms < 100.0 { format!("{ms:.1} ms") } else { format!("{ms:.0} ms") }
}

/// A figure with its name before it.
fn row(name: &str, figure: &str) -> String {
    format!("     {name:<14}{figure}\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lost_message_fails_the_demonstration() {
        let mut counted = Counted::default();
        assert_eq!(counted.exit(), Exit::Ok);
        counted.wrong.push("a message that is there twice".to_owned());
        assert_eq!(counted.exit(), Exit::Damaged);
        counted.lost = 1;
        assert_eq!(counted.exit(), Exit::Lost);
    }
}

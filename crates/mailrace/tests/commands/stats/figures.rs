//! The figures of the source's tools, from logs that were made to their numbers and have the form of its time.

use super::{Logs, printed, run, stats};
use std::fmt::Write as _;
use std::path::Path;

/// A log of sendmail of 1997.
#[derive(Default)]
struct OldLog {
    text: String,
    /// Queue ids are numbered.
    number: u32,
}

impl OldLog {
    /// Appends a line about an attempt: `stat` is its end.
    fn attempt(&mut self, stamp: &str, id: &str, to: &str, stat: &str) {
        writeln!(
            self.text,
            "{stamp} ace sendmail[24338]: {id}: to={to}, ctladdr=kolstad (101/0), delay=00:00:07, xdelay=00:00:06, \
             mailer=smtp, relay=mailhub.example. [10.0.0.18], stat={stat}"
        )
        .expect("a string takes everything");
    }

    /// Appends as many transactions as `hosts`, all in one second, for as many recipients.
    fn transactions(&mut self, stamp: &str, (hosts, recipients): (u32, u32), stat: &str) {
        for host in 0..hosts {
            self.number += 1;
            let share = recipients / hosts + u32::from(host < recipients % hosts);
            let names: Vec<String> = (0..share).map(|name| format!("u{name}@h{host}.example")).collect();
            let id = format!("AAA{:05}", self.number);
            self.attempt(stamp, &id, &names.join(","), stat);
        }
    }
}

const SENT: &str = "Sent (Message received and queued)";
const DEFERRED: &str = "Deferred: Connection timed out with mailhub.example.";

/// An hour of mailstat: failed hosts and recipients, delivered hosts and recipients.
type Hour = (u32, (u32, u32), (u32, u32));

fn mailstat(hours: &[Hour], last: &str) -> String {
    let mut log = OldLog::default();
    for (hour, failed, sent) in hours {
        log.transactions(&format!("Feb 22 {hour:02}:00:00"), *failed, DEFERRED);
        log.transactions(&format!("Feb 22 {hour:02}:03:00"), *sent, SENT);
    }
    writeln!(log.text, "Feb 22 {last} ace sendmail[1]: starting daemon (8.8.5): SMTP").expect("written");
    let logs = Logs::new();
    printed(&["mail", "--year", "1997"], &logs.write("maillog", log.text))
}

#[test]
fn mailstat_of_a_slow_day() {
    let hours = [
        (2, (433, 612), (1_111, 1_111)),
        (3, (495, 696), (1_298, 1_298)),
        (4, (431, 615), (1_137, 1_137)),
        (5, (421, 610), (810, 810)),
        (6, (422, 606), (717, 717)),
        (7, (411, 587), (931, 931)),
        (8, (427, 616), (1_039, 1_039)),
        (9, (22, 22), (105, 105)),
    ];
    let expected = "\
mailstat: Sat Feb 22 09:05:40 MST 1997
             failed      deliveries
MMM DD HH mhosts/recipt mhosts/recipt
=== == == ============= =============
Feb 22 02    433/   612   1111/  1111
Feb 22 03    495/   696   1298/  1298
Feb 22 04    431/   615   1137/  1137
Feb 22 05    421/   610    810/   810
Feb 22 06    422/   606    717/   717
Feb 22 07    411/   587    931/   931
Feb 22 08    427/   616   1039/  1039
Feb 22 09     22/    22    105/   105
========= ============= =============
Totals      3062/  4364   7148/  7148
";
    assert_eq!(mailstat(&hours, "09:05:40"), expected);
}

#[test]
fn mailstat_of_few_deliveries_and_many_failures() {
    let hours = [
        (3, (18_811, 18_811), (522, 522)),
        (4, (27_065, 27_065), (574, 574)),
        (5, (29_342, 29_346), (1_738, 1_887)),
        (6, (29_973, 29_978), (8, 8)),
        (7, (26_668, 26_675), (1_556, 1_690)),
        (8, (11_768, 11_787), (1_347, 1_464)),
        (9, (1_893, 1_896), (566, 606)),
    ];
    let expected = "\
mailstat: Sat Feb 22 09:03:49 MST 1997
             failed      deliveries
MMM DD HH mhosts/recipt mhosts/recipt
=== == == ============= =============
Feb 22 03  18811/ 18811    522/   522
Feb 22 04  27065/ 27065    574/   574
Feb 22 05  29342/ 29346   1738/  1887
Feb 22 06  29973/ 29978      8/     8
Feb 22 07  26668/ 26675   1556/  1690
Feb 22 08  11768/ 11787   1347/  1464
Feb 22 09   1893/  1896    566/   606
========= ============= =============
Totals    145520/145558   6311/  6751
";
    assert_eq!(mailstat(&hours, "09:03:49"), expected);
}

/// Seconds of the day as a stamp.
fn stamp(second: u32) -> String {
    format!("Feb 22 {:02}:{:02}:{:02}", second / 3_600, second / 60 % 60, second % 60)
}

#[test]
fn realstat_of_a_slow_period() {
    let expected = " 9:00:00   480/  2
 9:00:15   960/  4
 9:00:30   960/  4 --
 9:00:45  2160/  9 *--
 9:01:00  1920/  8 *--
 9:01:15   720/  3 --
 9:01:30  2400/ 10 **--
 9:01:45   720/  3 --
 9:02:00  1440/  6 *-
 9:02:15   960/  4 -
 9:02:30   960/  4 --
 9:02:45  1440/  6 *--
";
    let mut log = OldLog::default();
    let mut end = 9 * 3_600;
    for line in expected.lines() {
        let sent = line.split('/').nth(1).and_then(|rest| rest.split_whitespace().next()).expect("a number");
        let dashes = u32::try_from(line.matches('-').count()).expect("few");
        // The first and the last second of the interval, and some more failures than the marks stand for.
        log.transactions(&stamp(end - 15), (1, 1), SENT);
        log.transactions(&stamp(end - 1), (1, sent.parse::<u32>().expect("a number") - 1), SENT);
        log.transactions(&stamp(end - 8), (1, 5 * dashes + 4), DEFERRED);
        end += 15;
    }
    let logs = Logs::new();
    let path = logs.write("maillog", log.text);
    assert_eq!(printed(&["real", "--year", "1997"], &path), expected);
    let wide = printed(&["real", "--year", "1997", "--interval", "60", "--scale", "1"], &path);
    assert!(wide.starts_with(" 9:00:00   120/  2 **----\n 9:01:00  1500/ 25 *"), "{wide}");
}

#[test]
fn mailqq_lists_the_stragglers_of_a_list() {
    let queue = [
        (3, "BAA08598", 1_554, "01:02"),
        (3, "BAA08677", 1_017, "01:29"),
        (3, "FAA10201", 1_438, "05:24"),
        (3, "FAA10208", 1_438, "05:24"),
        (3, "HAA10369", 1_527, "07:46"),
        (3, "IAA10524", 423, "08:52"),
        (4, "HAA10371", 1_527, "07:46"),
        (4, "HAA10383", 1_527, "07:46"),
        (4, "IAA10544", 423, "08:53"),
        (4, "IAA10558", 423, "08:53"),
        (5, "IAA10541", 423, "08:53"),
    ];
    let mut log = OldLog::default();
    let mut expected = "nrecipients  length  date              sender\n".to_owned();
    for (waiting, id, size, time) in queue {
        let stamp = format!("Feb 22 {time}:30");
        writeln!(
            log.text,
            "{stamp} ace sendmail[1]: {id}: from=<inet-access@earth.com>, size={size}, class=-60, pri=1, nrcpts=20, \
             msgid=<x@earth.com>, proto=ESMTP, relay=earth.com [10.0.0.1]"
        )
        .expect("written");
        let names =
            |from: u32, to: u32| (from..to).map(|one| format!("u{one}@x.example")).collect::<Vec<_>>().join(",");
        log.attempt(&stamp, id, &names(0, waiting), DEFERRED);
        log.attempt(&stamp, id, &names(waiting, 20), SENT);
        // A second attempt changes nothing.
        log.attempt("Feb 22 08:59:00", id, &names(0, waiting), DEFERRED);
        writeln!(expected, "{waiting} {id} {size:>5} Sat Feb 22 {time} <inet-access@earth.com>").expect("written");
    }
    expected.push_str("39 recipients of 11 messages\n");
    let logs = Logs::new();
    assert_eq!(printed(&["queue", "--year", "1997"], &logs.write("maillog", log.text)), expected);
}

#[test]
fn latedudes_names_recipients_with_their_messages() {
    let late = [
        (82, "todd@acc.com"),
        (127, "glennh@netstation.net"),
        (127, "ispmail@zhi.dialup.access.net"),
        (388, "cbrown@matnet.com"),
        (595, "list.inet-access@optimum.net"),
    ];
    let mut log = OldLog::default();
    let mut expected = String::new();
    for (messages, address) in late {
        for message in 0..messages {
            let id = format!("AAA{message:05}");
            log.attempt("Feb 20 01:00:00", &id, address, DEFERRED);
            log.attempt("Feb 22 01:00:00", &id, address, DEFERRED);
        }
        writeln!(expected, "{messages:>4} {address}").expect("written");
    }
    // Delivered in the end.
    log.attempt("Feb 20 01:00:00", "AAA00001", "fast@acc.com", DEFERRED);
    log.attempt("Feb 20 02:00:00", "AAA00001", "fast@acc.com", SENT);
    let logs = Logs::new();
    let path = logs.write("maillog", log.text);
    assert_eq!(printed(&["late", "--short", "--year", "1997"], &path), expected);
    let long = printed(&["late", "--year", "1997"], &path);
    assert!(long.contains("     595    2d0h  list.inet-access@optimum.net"), "{long}");
    assert!(long.contains("mailhub.example: Connection timed out with mailhub.example."), "{long}");
    let hosts = printed(&["late", "--by", "host", "--year", "1997"], &path);
    assert!(hosts.lines().nth(1).is_some_and(|line| line.starts_with("    1319    2d0h  mailhub.example")), "{hosts}");
}

#[test]
fn the_names_of_the_source_are_names_of_the_program() {
    let mut log = OldLog::default();
    log.transactions("Feb 22 09:00:00", (1, 2), DEFERRED);
    log.transactions("Feb 22 09:00:00", (2, 2), SENT);
    let logs = Logs::new();
    let path = logs.write("maillog", log.text);
    let pairs: [(&str, &[&str]); 5] = [
        ("batchstat", &["batch"]),
        ("realstat", &["real"]),
        ("mailstat", &["mail"]),
        ("mailqq", &["queue"]),
        ("latedudes", &["late", "--short"]),
    ];
    for (name, kind) in pairs {
        let expected = printed(&[kind, &["--year", "1997"]].concat(), &path);
        let link = logs.path(name);
        std::os::unix::fs::symlink(testkit::harness::program_path(), &link).expect("a link");
        for mut command in [std::process::Command::new(&link), testkit::harness::program()] {
            if Path::new(command.get_program()) != link {
                command.arg(name);
            }
            command.args(["--year", "1997"]).arg(&path).env("TZ", "MST7");
            assert_eq!(run(command, 0).0, expected, "{name}");
        }
    }
    let (_, error) = run(stats(&["mailstat"], &[&path]), 64);
    assert!(error.contains("unrecognized subcommand"), "{error}");
}

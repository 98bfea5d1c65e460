//! Logs as they lie on a disk: rotated, packed, damaged, followed while they are written.

use super::{Logs, POSTFIX, YEAR, json, printed, run, sendmail_lines, stats};
use flate2::Compression;
use flate2::write::GzEncoder;
use std::io::{BufRead as _, BufReader, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use testkit::harness::{needs, poll, run_with_input};

fn gzip(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    encoder.write_all(text.as_bytes()).expect("memory");
    encoder.finish().expect("memory")
}

/// A line about a delivery at this time.
fn sent(stamp: &str) -> String {
    format!(
        "{stamp} mx sm-mta[1]: 6AR3Q3e2031093: to=<x@d.test>, delay=00:00:00, xdelay=00:00:00, mailer=esmtp, \
         pri=30040, relay=mx.d.test. [10.9.9.1], dsn=2.0.0, stat=Sent (ok)\n"
    )
}

#[test]
fn packed_logs_are_read_by_their_content() {
    let logs = Logs::new();
    let plain = logs.write("mail.log", POSTFIX);
    let expected = json(&[&["mail"][..], &YEAR].concat(), &plain);
    assert_eq!(expected["total"]["sent"], 69);
    let half = POSTFIX.lines().count() / 2;
    let (first, second): (Vec<_>, Vec<_>) = POSTFIX.split_inclusive('\n').enumerate().partition(|(at, _)| *at < half);
    let join = |part: Vec<(usize, &str)>| part.into_iter().map(|(_, line)| line).collect::<String>();
    let members = [gzip(&join(first)), gzip(&join(second))].concat();
    // The name says nothing: a rotation script gives any.
    assert_eq!(json(&[&["mail"][..], &YEAR].concat(), &logs.write("mail.log.0", members)), expected);
    for name in ["xz", "zstd"] {
        let Some(packer) = needs::program(name) else { continue };
        let output = Command::new(packer).arg("-c").arg(&plain).output().expect("it runs");
        let path = logs.write(&format!("mail.{name}"), [&output.stdout[..], &output.stdout].concat());
        let twice = json(&[&["mail"][..], &YEAR].concat(), &path);
        assert_eq!(twice["lines"]["all"], 2 * POSTFIX.lines().count(), "{name}: archives one behind the other");
    }
    let (_, error) = run(stats(&["mail"], &[&logs.write("mail.bz2", b"BZh91AY")]), 65);
    assert!(error.contains("packed by bzip2; unpack it: bzip2 -dc "), "{error}");
}

#[test]
fn a_damaged_archive_counts_as_far_as_it_goes() {
    let logs = Logs::new();
    let lines: String = (0..40_000).map(|at| sent(&format!("Feb 22 {:02}:00:00", at / 4_000))).collect();
    let whole = gzip(&lines);
    let path = logs.write("mail.gz", &whole[..whole.len() / 2]);
    let (table, error) = run(stats(&["mail", "--year", "1997"], &[&path]), 65);
    assert!(table.contains("Feb 22 00      0/     0   4000/  4000"), "{table}");
    assert!(error.contains("mail.gz: damaged: ") && error.contains("the lines before that are counted"), "{error}");
}

#[test]
fn rotated_logs_are_read_in_the_order_of_their_lines() {
    let logs = Logs::new();
    let old = logs.write("mail.log.1", [sent("Dec 31 22:00:00"), sent("Dec 31 23:59:59")].concat());
    let new = logs.write("mail.log", [sent("Jan  1 00:00:00"), sent("Jan  1 01:00:00")].concat());
    for files in [[&*new, &*old], [&*old, &*new]] {
        let (table, _) = run(stats(&["mail", "--year", "2025"], &files), 0);
        let hours: Vec<&str> = table.lines().filter_map(|line| line.get(..9)).skip(4).collect();
        assert_eq!(hours, ["Dec 31 22", "Dec 31 23", "Jan  1 00", "Jan  1 01", "=========", "Totals   "], "{table}");
        assert!(table.starts_with("mailstat: Thu Jan  1 01:00:00 MST 2026\n"), "{table}");
    }
    // Without a year the stamps are of the last year before the change of the file, which is now.
    let value = json(&["mail"], &old);
    let hour = value["hours"][0]["hour"].as_str().expect("a time");
    assert!(hour.ends_with("-12-31T22:00:00"), "{value}");
}

#[test]
fn damaged_lines_are_counted_and_nothing_else() {
    let logs = Logs::new();
    let good = sendmail_lines();
    let expected = json(&[&["mail"][..], &YEAR].concat(), &logs.write("good", &good));
    let cut = good.lines().find(|line| line.contains(": to=")).and_then(|line| line.split_once(", dsn=")).expect("one");
    let mut broken = good.clone().into_bytes();
    broken.extend_from_slice(cut.0.as_bytes());
    broken.extend_from_slice(b"\n\xff\xfe\x00\nNov 27 03:26\n");
    broken.extend_from_slice(&vec![b'x'; 200_000]);
    broken.extend_from_slice(b"\nNov 27 03:26:03 mx last message repeated 3 times\n");
    let path = logs.write("broken", broken);
    let (text, error) = run(stats(&[&["mail", "--json"][..], &YEAR].concat(), &[&path]), 0);
    let found: serde_json::Value = serde_json::from_str(&text).expect("JSON");
    assert_eq!((&found["total"], &found["lines"]["broken"]), (&expected["total"], &4.into()));
    assert!(error.contains("4 of ") && error.contains(" lines are damaged and not counted"), "{error}");
}

#[test]
fn failures_have_the_status_of_sysexits() {
    let logs = Logs::new();
    let path = logs.write("log", sent("Feb 22 01:00:00"));
    let missing = logs.path("missing");
    let (_, error) = run(stats(&["mail"], &[&path, &missing]), 66);
    assert!(error.contains("missing: there is no such file"), "{error}");
    let (_, error) = run(stats(&["mail"], &[logs.0.path()]), 66);
    assert!(error.contains("a directory; name the logs in it"), "{error}");
    let (_, error) = run(stats(&["mail"], &[&logs.write("other", "Feb 22 01:00:00 mx kernel: x\n")]), 65);
    assert!(error.contains("no line about mail in 1 lines, 1 of other programs"), "{error}");
    for words in [&["mail", "--year", "x"][..], &["batch", "--date", "2026-02-30"], &["real", "--scale", "0"], &["x"]] {
        run(stats(words, &[&path]), 64);
    }
    let (_, error) = run(stats(&["mail", "--control"], &[&missing]), 69);
    assert!(error.contains("missing: no server answers there"), "{error}");
    let picture = logs.path("no/such/directory.svg");
    let (_, error) = run(stats(&["batch", "--svg"], &[&picture, &path]), 73);
    assert!(error.contains("name a file that can be written"), "{error}");
    run(stats(&["mail"], &[Path::new("-"), Path::new("-")]), 64);
}

#[test]
fn standard_input_is_a_log() {
    let mut command = stats(&["mail", "--year", "1997"], &[Path::new("-")]);
    let output = run_with_input(&mut command, &sent("Feb 22 01:00:00"));
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    assert!(String::from_utf8_lossy(&output.stdout).contains("Feb 22 01      0/     0      1/     1\n"), "{output:?}");
}

/// `stats real --follow` while the test writes.
struct Follower {
    child: Child,
    lines: std::io::Lines<BufReader<std::process::ChildStdout>>,
    path: PathBuf,
    /// Lines that the test has written.
    appended: u64,
    /// Deliveries of all intervals so far.
    counted: u64,
}

impl Follower {
    fn start(path: &Path) -> Self {
        let mut command = stats(&["real", "--follow", "--json", "--interval", "1"], &[path]);
        let mut child = command.stdout(Stdio::piped()).spawn().expect("it runs");
        let lines = BufReader::new(child.stdout.take().expect("piped")).lines();
        Self { child, lines, path: path.to_owned(), appended: 0, counted: 0 }
    }

    fn append_line(&mut self) {
        let mut file = std::fs::OpenOptions::new().append(true).create(true).open(&self.path).expect("open");
        file.write_all(sent("Feb 22 01:00:00").as_bytes()).expect("written");
        self.appended += 1;
    }

    /// Returns the deliveries of the next interval.
    fn next(&mut self) -> u64 {
        let line = self.lines.next().expect("it goes on").expect("UTF-8");
        let value: serde_json::Value = serde_json::from_str(&line).unwrap_or_else(|error| panic!("{error}: {line}"));
        let deliveries = value["sent"].as_u64().expect("a number");
        self.counted += deliveries;
        deliveries
    }

    /// Appends a line in each interval until one is counted.
    fn append_until_counted(&mut self) {
        poll("no line is counted", || {
            self.append_line();
            (self.next() > 0).then_some(())
        });
    }
}

impl Drop for Follower {
    fn drop(&mut self) {
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

#[test]
fn a_log_is_followed_through_a_rotation() {
    let logs = Logs::new();
    let path = logs.write("maillog", sent("Feb 22 00:00:00").repeat(500));
    let mut follower = Follower::start(&path);
    follower.append_until_counted();
    #[expect(clippy::disallowed_methods, reason = "a rotation, as a script does it")]
    std::fs::rename(&path, logs.path("maillog.1")).expect("renamed");
    follower.append_until_counted();
    // Cut, as copytruncate does it.
    logs.write("maillog", "");
    follower.append_until_counted();
    for _ in 0..3 {
        follower.next();
    }
    let Follower { counted, appended, .. } = &follower;
    assert!(counted <= appended, "lines that were there before, or came once, count once: {counted} of {appended}");
}

#[test]
fn the_lines_of_a_long_log_may_come_from_several_files() {
    let logs = Logs::new();
    let text: String = (0..24_u32).map(|hour| sent(&format!("Feb 22 {hour:02}:00:00")).repeat(10)).collect();
    let path = logs.write("maillog", &text);
    let table = printed(&["mail", "--year", "1997"], &path);
    assert!(table.contains("Totals         0/     0    240/   240\n"), "{table}");
}

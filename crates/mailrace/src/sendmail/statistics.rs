//! `hoststat`, `purgestat` and `mailstats`: the figures of the running server, in sendmail's columns.

use super::site::Site;
use super::{ctime, print, said};
use crate::control_client::Control;
use crate::exit::Failure;
use operator::answers::{HostsAnswer, MailerCounts, MailersAnswer};
use operator::control::Request;
use std::fmt::Write as _;

const HOSTS_HEAD: &str = " -------------- Hostname --------------- How long ago ---------Results---------\n";
/// sendmail's numbers of its mailers, in their order.
const MAILERS: [&str; 9] = ["prog", "*file*", "*include*", "local", "smtp", "esmtp", "smtp8", "dsmtp", "relay"];

/// Asks, and reads the answer by its type.
fn ask_for<T: serde::de::DeserializeOwned>(site: &Site, request: &Request) -> Result<T, Failure> {
    Control::connect(&site.config.control.path)?.ask_for(request)
}

/// Runs `hoststat`, and returns the exit status.
pub(super) fn run_hoststat(site: &Site, is_verbose: bool) -> u8 {
    match ask_for(site, &Request::Hosts) {
        Ok(answer) => print(&hosts_text(&answer, is_verbose)),
        Err(failure) => said("hoststat", &failure),
    }
}

/// `purgestat`: the exit status.
pub(super) fn forget_hosts(site: &Site) -> u8 {
    let asked =
        Control::connect(&site.config.control.path).and_then(|mut control| control.request(&Request::ForgetHosts));
    match asked {
        Ok(_) => 0,
        Err(failure) => said("purgestat", &failure),
    }
}

fn hosts_text(answer: &HostsAnswer, is_verbose: bool) -> String {
    let mut text = String::new();
    if answer.hosts.is_empty() {
        return text;
    }
    text.push_str(HOSTS_HEAD);
    for host in &answer.hosts {
        let (name, failures) = (&host.address, host.failures);
        let result = match failures {
            0 => "OK".to_owned(),
            _ => {
                let plural = if failures == 1 { "" } else { "s" };
                let mut text = format!("Deferred: {failures} failure{plural}");
                if let Some(retry) = host.retry_in {
                    write!(text, ", passed over for {}", interval(retry)).expect("a string takes everything");
                }
                text
            }
        };
        let width = if is_verbose { 78 } else { 25 };
        let result: String = result.chars().take(width).collect();
        writeln!(text, " {name:<39} {:>12} {result}", interval(host.ago)).expect("a string takes everything");
    }
    text
}

/// `1+02:03:04`, as sendmail writes times.
fn interval(seconds: u64) -> String {
    let days = seconds / 86_400;
    let rest = format!("{:02}:{:02}:{:02}", seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    if days > 0 { format!("{days}+{rest}") } else { rest }
}

/// How `mailstats` prints.
#[derive(Clone, Copy, Debug, Default)]
struct PrintOptions {
    /// `-p` and `-P`: for programs.
    is_for_programs: bool,
    /// `-o`: without the names of mailers.
    is_nameless: bool,
}

/// Runs `mailstats`, and returns the exit status. Nothing is cleared, also not with `-p`: the numbers are those since
/// the start.
pub(super) fn run_mailstats(site: &Site, words: &[String]) -> u8 {
    let (mut form, mut words) = (PrintOptions::default(), words.iter());
    while let Some(word) = words.next() {
        match word.as_str() {
            "-p" | "-P" => form.is_for_programs = true,
            "-o" => form.is_nameless = true,
            "-c" => {}
            "-C" | "-f" => drop(words.next()),
            attached if attached.starts_with("-C") || attached.starts_with("-f") => {}
            _ => {
                eprintln!("usage: mailstats [-C FILE] [-c] [-P] [-f FILE] [-o] [-p]");
                return super::exit::USAGE;
            }
        }
    }
    match ask_for(site, &Request::Mailers) {
        Ok(answer) => print(&mailers_text(&answer, form)),
        Err(failure) => said("mailstats", &failure),
    }
}

fn mailers_text(answer: &MailersAnswer, form: PrintOptions) -> String {
    let place = |name: &str| MAILERS.iter().position(|one| *one == name).unwrap_or(MAILERS.len());
    let mut rows: Vec<(usize, &MailerCounts)> = answer.mailers.iter().map(|row| (place(&row.mailer), row)).collect();
    rows.sort_by_key(|(place, _)| *place);
    let sum = |count: fn(&MailerCounts) -> u64| rows.iter().map(|(_, row)| count(row)).sum::<u64>();
    let total = MailerCounts {
        mailer: String::new(),
        messages_from: sum(|row| row.messages_from),
        bytes_from: sum(|row| row.bytes_from),
        messages_to: sum(|row| row.messages_to),
        bytes_to: sum(|row| row.bytes_to),
        rejected: sum(|row| row.rejected),
    };
    let MailersAnswer { since, connections, connections_to, connections_refused: refused, .. } = *answer;
    let mut text = String::new();
    if form.is_for_programs {
        writeln!(text, "{since} {}", os::clock::unix_us() / 1_000_000).expect("a string takes everything");
    } else {
        let at = ctime(since.saturating_mul(1_000_000));
        text.push_str(&format!("Statistics from {at}\n"));
        text.push_str(" M   msgsfr  bytes_from   msgsto    bytes_to  msgsrej msgsdis msgsqur");
        text.push_str(if form.is_nameless { "\n" } else { "  Mailer\n" });
    }
    for (place, row) in &rows {
        let name = if form.is_nameless { String::new() } else { format!("  {}", row.mailer) };
        text.push_str(&format!("{place:>2}{}{name}\n", columns(row, form)));
    }
    if form.is_for_programs {
        text.push_str(&format!(" T{}\n", columns(&total, form)));
        text.push_str(&format!(" C {connections:>8} {connections_to:>8} {refused:>6}\n"));
        return text;
    }
    text.push_str(&"=".repeat(69));
    text.push_str(&format!("\n T{}\n", columns(&total, form)));
    text.push_str(&format!(" C {connections:>8} {:>11} {connections_to:>8} {:>11}   {refused:>6}\n", "", ""));
    text
}

fn columns(row: &MailerCounts, form: PrintOptions) -> String {
    let unit = if form.is_for_programs { "" } else { "K" };
    let kib = |bytes: u64| bytes.div_ceil(1_024);
    format!(
        " {:>8} {:>10}{unit} {:>8} {:>10}{unit}   {:>6}  {:>6}  {:>6}",
        row.messages_from,
        kib(row.bytes_from),
        row.messages_to,
        kib(row.bytes_to),
        row.rejected,
        0,
        0,
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use operator::answers;
    use serde_json::json;

    /// With times as other runs have them.
    fn plain(text: &str) -> String {
        let (first, rest) = text.split_once('\n').unwrap();
        let first = if first.starts_with("Statistics") { "Statistics" } else { "times" };
        format!("{first}\n{rest}")
    }

    #[test]
    fn columns_are_what_sendmail_prints() {
        let row = |mailer: &str, from: u64, to: u64| {
            json!({ "mailer": mailer, "messages_from": from, "bytes_from": from * 1_000, "messages_to": to, "bytes_to": to * 1_024,
                    "rejected": 0 })
        };
        let answer = json!({ "since": 0, "connections": 0, "connections_to": 3, "connections_refused": 0,
                             "mailers": [row("prog", 0, 1), row("esmtp", 0, 1), row("local", 8, 1)] });
        for (form, recorded) in [
            (PrintOptions::default(), include_str!("recorded/mailstats")),
            (PrintOptions { is_for_programs: true, ..PrintOptions::default() }, include_str!("recorded/mailstats-p")),
            (PrintOptions { is_nameless: true, ..PrintOptions::default() }, include_str!("recorded/mailstats-o")),
        ] {
            assert_eq!(plain(&mailers_text(&answers::from_line(&answer).unwrap(), form)), plain(recorded));
        }
    }

    #[test]
    fn hosts_stand_where_sendmail_puts_them() {
        // Its words are the last reply of each host, ours say how it is.
        let recorded: Vec<&str> = include_str!("recorded/hoststat").lines().collect();
        let hosts = json!({ "hosts": [{ "address": "mx.down.test", "ago": 2, "failures": 1 }] });
        let text = hosts_text(&answers::from_line(&hosts).unwrap(), false);
        let lines: Vec<&str> = text.lines().collect();
        let theirs = recorded.iter().find(|line| line.contains("mx.down.test")).unwrap();
        assert_eq!((lines[0], lines[1].get(..45)), (recorded[0], theirs.get(..45)));
        assert_eq!(theirs.find("Deferred: "), lines[1].find("Deferred: "));
        let longest = recorded.iter().map(|line| line.chars().count()).filter(|length| *length <= 79).max();
        let long =
            json!({ "hosts": [{ "address": "mx.down.test", "ago": 2, "failures": 100_000, "retry_in": 99_999_999 }] });
        assert_eq!(
            hosts_text(&answers::from_line(&long).unwrap(), false).lines().last().map(|line| line.chars().count()),
            longest
        );
    }

    #[test]
    fn hosts_stand_in_sendmails_columns() {
        assert_eq!(hosts_text(&HostsAnswer::default(), false), "");
        let hosts = json!({ "hosts": [
            { "address": "192.0.2.1:25", "ago": 44, "failures": 0 },
            { "address": "192.0.2.2:25", "ago": 90_061, "failures": 2, "retry_in": 60 },
        ]});
        let lines: Vec<String> =
            hosts_text(&answers::from_line(&hosts).unwrap(), false).lines().map(str::to_owned).collect();
        assert_eq!(lines[1], " 192.0.2.1:25                                00:00:44 OK");
        assert_eq!(lines[2], " 192.0.2.2:25                              1+01:01:01 Deferred: 2 failures, pas");
    }
}

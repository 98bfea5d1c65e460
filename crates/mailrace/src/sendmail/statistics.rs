//! `hoststat`, `purgestat` and `mailstats`: what the running server knows, in sendmail's columns.

use super::site::Site;
use super::{ctime, print, said};
use crate::control_client::Control;
use serde_json::{Value, json};
use server::control::Request;
use std::fmt::Write as _;

const HOSTS_HEAD: &str = " -------------- Hostname --------------- How long ago ---------Results---------\n";
/// sendmail's numbers of its mailers, in their order.
const MAILERS: [&str; 9] = ["prog", "*file*", "*include*", "local", "smtp", "esmtp", "smtp8", "dsmtp", "relay"];

fn ask(site: &Site, request: &Request) -> Result<Value, crate::exit::Failure> {
    Control::connect(&site.config.control.path)?.ask(request)
}

fn number(value: &Value, name: &str) -> u64 {
    value.get(name).and_then(Value::as_u64).unwrap_or(0)
}

/// `hoststat`: the exit status.
pub(super) fn hosts(site: &Site, is_verbose: bool) -> u8 {
    match ask(site, &Request::Hosts) {
        Ok(answer) => print(&hosts_text(&answer, is_verbose)),
        Err(failure) => said("hoststat", &failure),
    }
}

/// `purgestat`: the exit status.
pub(super) fn forget_hosts(site: &Site) -> u8 {
    match ask(site, &Request::ForgetHosts) {
        Ok(_) => 0,
        Err(failure) => said("purgestat", &failure),
    }
}

fn hosts_text(answer: &Value, is_verbose: bool) -> String {
    let hosts = answer.get("hosts").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let mut text = String::new();
    if hosts.is_empty() {
        return text;
    }
    text.push_str(HOSTS_HEAD);
    for host in hosts {
        let name = host.get("address").and_then(Value::as_str).unwrap_or_default();
        let failures = number(host, "failures");
        let result = match failures {
            0 => "OK".to_owned(),
            _ => {
                let plural = if failures == 1 { "" } else { "s" };
                let mut text = format!("Deferred: {failures} failure{plural}");
                if let Some(retry) = host.get("retry_in").and_then(Value::as_u64) {
                    write!(text, ", passed over for {}", interval(retry)).expect("a string takes everything");
                }
                text
            }
        };
        let width = if is_verbose { 78 } else { 25 };
        let result: String = result.chars().take(width).collect();
        writeln!(text, " {name:<39} {:>12} {result}", interval(number(host, "ago")))
            .expect("a string takes everything");
    }
    text
}

/// `1+02:03:04`, as sendmail writes times.
fn interval(seconds: u64) -> String {
    let days = seconds / 86_400;
    let rest = format!("{:02}:{:02}:{:02}", seconds / 3_600 % 24, seconds / 60 % 60, seconds % 60);
    if days > 0 { format!("{days}+{rest}") } else { rest }
}

/// `mailstats`: the exit status. `-p` and `-P` are for programs.
pub(super) fn mailers(site: &Site, words: &[String]) -> u8 {
    let (mut is_for_programs, mut words) = (false, words.iter());
    while let Some(word) = words.next() {
        match word.as_str() {
            "-p" | "-P" => is_for_programs = true,
            "-C" | "-c" | "-f" => drop(words.next()),
            "-o" => {}
            _ => {
                eprintln!("usage: mailstats [-C FILE] [-P] [-f FILE] [-o] [-p]");
                return super::exit::USAGE;
            }
        }
    }
    match ask(site, &Request::Mailers) {
        Ok(answer) => print(&mailers_text(&answer, is_for_programs)),
        Err(failure) => said("mailstats", &failure),
    }
}

fn mailers_text(answer: &Value, is_for_programs: bool) -> String {
    let mut rows: Vec<(usize, &Value)> = answer
        .get("mailers")
        .and_then(Value::as_array)
        .into_iter()
        .flatten()
        .map(|row| {
            let name = row.get("mailer").and_then(Value::as_str).unwrap_or_default();
            (MAILERS.iter().position(|one| *one == name).unwrap_or(MAILERS.len()), row)
        })
        .collect();
    rows.sort_by_key(|(place, _)| *place);
    let sum = |name: &str| rows.iter().map(|(_, row)| number(row, name)).sum::<u64>();
    let total = json!({
        "messages_from": sum("messages_from"), "bytes_from": sum("bytes_from"), "messages_to": sum("messages_to"),
        "bytes_to": sum("bytes_to"), "rejected": sum("rejected"),
    });
    let (since, connections) = (number(answer, "since"), number(answer, "connections"));
    let mut text = String::new();
    if is_for_programs {
        writeln!(text, "{since} {}", server::env::clock::unix_us() / 1_000_000).expect("a string takes everything");
    } else {
        let at = ctime(since.saturating_mul(1_000_000));
        text.push_str(&format!("Statistics from {at}\n"));
        text.push_str(" M   msgsfr  bytes_from   msgsto    bytes_to  msgsrej msgsdis msgsqur  Mailer\n");
    }
    for (place, row) in &rows {
        let name = row.get("mailer").and_then(Value::as_str).unwrap_or_default();
        text.push_str(&format!("{place:>2}{}  {name}\n", columns(row)));
    }
    if !is_for_programs {
        text.push_str(&"=".repeat(69));
        text.push('\n');
    }
    text.push_str(&format!(" T{}\n", columns(&total)));
    text.push_str(&format!(" C {connections:>8} {:>11} {:>8} {:>11}   {:>6}\n", "", 0, "", 0));
    text
}

fn columns(row: &Value) -> String {
    let kib = |name: &str| number(row, name).div_ceil(1_024);
    format!(
        " {:>8} {:>10}K {:>8} {:>10}K   {:>6}  {:>6} {:>7}",
        number(row, "messages_from"),
        kib("bytes_from"),
        number(row, "messages_to"),
        kib("bytes_to"),
        number(row, "rejected"),
        0,
        0,
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_sendmails() {
        let row = |mailer: &str, from: u64, bytes: u64| json!({ "mailer": mailer, "messages_from": from, "bytes_from": bytes, "messages_to": 0, "bytes_to": 0, "rejected": 0 });
        let answer =
            json!({ "since": 0, "connections": 0, "mailers": [row("esmtp", 1, 1_000), row("local", 12, 6_144)] });
        let text = mailers_text(&answer, false);
        let lines: Vec<&str> = text.lines().collect();
        assert_eq!(
            &lines[1..],
            [
                " M   msgsfr  bytes_from   msgsto    bytes_to  msgsrej msgsdis msgsqur  Mailer",
                " 3       12          6K        0          0K        0       0       0  local",
                " 5        1          1K        0          0K        0       0       0  esmtp",
                "=====================================================================",
                " T       13          7K        0          0K        0       0       0",
                " C        0                    0                    0",
            ]
        );
    }

    #[test]
    fn hosts_stand_in_sendmails_columns() {
        assert_eq!(hosts_text(&json!({ "hosts": [] }), false), "");
        let hosts = json!({ "hosts": [
            { "address": "192.0.2.1:25", "ago": 44, "failures": 0 },
            { "address": "192.0.2.2:25", "ago": 90_061, "failures": 2, "retry_in": 60 },
        ]});
        let lines: Vec<String> = hosts_text(&hosts, false).lines().map(str::to_owned).collect();
        assert_eq!(lines[1], " 192.0.2.1:25                                00:00:44 OK");
        assert_eq!(lines[2], " 192.0.2.2:25                              1+01:01:01 Deferred: 2 failures, pas");
    }
}

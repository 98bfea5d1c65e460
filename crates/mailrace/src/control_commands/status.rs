//! What `mailrace status` prints for people.

use crate::output::{Output, bytes, count, next_try, plain, thousands, waits_for};
use serde_json::Value;

/// Prints the answer to `status` for a person.
pub(super) fn lines(output: &mut Output, answer: &Value) {
    let number = |place: &str| answer.pointer(place).and_then(Value::as_u64).unwrap_or(0);
    let text = |place: &str| answer.pointer(place).and_then(Value::as_str).unwrap_or("?");
    let rate = |place: &str| format!("{:.1}", answer.pointer(place).and_then(Value::as_f64).unwrap_or(0.0));
    let yes = |place: &str| answer.pointer(place).and_then(Value::as_bool).unwrap_or(false);
    let (version, host) = (text("/version"), text("/hostname"));
    let (pid, uptime) = (number("/pid"), duration(number("/uptime_seconds")));
    let stopping = if yes("/stopping") { ", stopping" } else { "" };
    let stop = answer.get("stop").is_some_and(Value::is_object).then(|| {
        let (sessions, left) = (number("/connections/open"), number("/stop/seconds_left"));
        let deliveries = match number("/stop/deliveries") {
            1 => "1 delivery".to_owned(),
            many => format!("{} deliveries", thousands(many)),
        };
        format!("  STOPPING     {} and {deliveries} under way; {left} s at most", count(sessions, "session"))
    });
    output.line(format_args!("mailrace {version} on {host}, process {pid}, up {uptime}{stopping}"));
    stop.into_iter().for_each(|line| output.line(line));
    let listen = answer.get("listen").and_then(Value::as_array).map(Vec::as_slice).unwrap_or_default();
    let listen: Vec<&str> = listen.iter().filter_map(Value::as_str).collect();
    output.line(format_args!("  listens      {}", listen.join(" ")));
    output.line(format_args!(
        "  connections  {} of {} open; {} since the start, {} turned away",
        thousands(number("/connections/open")),
        thousands(number("/connections/max")),
        thousands(number("/connections/total")),
        thousands(number("/connections/refused")),
    ));
    let (accepted, refused) = (number("/messages/accepted"), number("/messages/refused"));
    let recipients = match number("/recipients/refused") {
        0 => String::new(),
        many => format!(", {} refused", count(many, "recipient")),
    };
    output.line(format_args!(
        "  messages     {} accepted, {} refused{recipients}; {} a second",
        thousands(accepted),
        thousands(refused),
        rate("/messages/accepted_per_second"),
    ));
    for one in answer.get("logins_over").and_then(Value::as_array).into_iter().flatten() {
        output.line(format_args!(
            "  LOGIN        {} had {} recipients in an hour, from {}: auth.recipients_hour_max; is its password stolen?",
            plain(one.get("user").and_then(Value::as_str).unwrap_or("?")),
            thousands(one.get("recipients").and_then(Value::as_u64).unwrap_or(0)),
            one.get("client").and_then(Value::as_str).unwrap_or("?"),
        ));
    }
    if answer.get("deliveries").is_some_and(Value::is_object) {
        output.line(format_args!(
            "  deliveries   {} sent, {} deferred, {} failed; {} a second",
            thousands(number("/deliveries/sent")),
            thousands(number("/deliveries/deferred")),
            thousands(number("/deliveries/failed")),
            rate("/deliveries/sent_per_second"),
        ));
        next_hops(answer).into_iter().for_each(|text| output.line(format_args!("  next hops    {text}")));
    }
    queue(output, answer);
    let handed_in = number("/pickup/files");
    if handed_in > 0 {
        let full = if yes("/pickup/full") { ", TOO MANY: more are refused; the log says why they wait" } else { "" };
        output.line(format_args!("  pickup       {} not taken yet{full}", count(handed_in, "message")));
    }
    output.line(format_args!(
        "  spool        {} on {}; {} of {} segments in use, pressure {}",
        text("/spool/path"),
        text("/spool/file_system"),
        thousands(number("/spool/segments").saturating_sub(number("/spool/segments_free"))),
        thousands(number("/spool/segments_max")),
        text("/spool/pressure"),
    ));
    if !yes("/spool/durable") {
        output.line("  NOT DURABLE  a power cut takes the queue with it; set spool.path to a directory on a disk");
    }
    let (failures, bad) = (number("/spool/failures"), number("/spool/segments_bad"));
    if failures + bad > 0 {
        let (failures, bad) = (count(failures, "write"), count(bad, "segment"));
        output.line(format_args!(
            "  STORAGE      {failures} failed, {bad} put aside; look at the disk and the kernel log"
        ));
    }
    if answer.pointer("/log/failing").is_some_and(Value::is_object) {
        output.line(format_args!(
            "  LOG          {} cannot be written: {}; {} waiting, then more are dropped; mail goes on",
            plain(text("/log/failing/target")),
            plain(text("/log/failing/reason")),
            count(number("/log/waiting"), "line")
        ));
    }
    let dropped = number("/log/dropped");
    if dropped > 0 {
        output.line(format_args!(
            "  LOG          {} dropped; the log's disk or log.queue_lines_max is too small",
            count(dropped, "line")
        ));
    }
}

/// Connections to next hops; an older server does not say.
fn next_hops(answer: &Value) -> Option<String> {
    let number = |name: &str| answer.pointer(&format!("/deliveries/connections/{name}")).and_then(Value::as_u64);
    let silent = match number("silent")? {
        0 => String::new(),
        some => {
            format!("; {} more, of {}, to hosts that were silent", thousands(some), thousands(number("silent_max")?))
        }
    };
    Some(format!("{} of {} connections{silent}", thousands(number("open")?), thousands(number("max")?)))
}

/// What is in the queue, and where most of it goes.
fn queue(output: &mut Output, answer: &Value) {
    let number = |place: &str| answer.pointer(place).and_then(Value::as_u64).unwrap_or(0);
    output.line(format_args!(
        "  queue        {} for {} at {}, {}",
        count(number("/queue/messages"), "message"),
        count(number("/queue/recipients"), "recipient"),
        count(number("/queue/destinations"), "destination"),
        bytes(number("/spool/live_bytes")),
    ));
    let (waiting, held) = (number("/queue/waiting"), number("/queue/held"));
    let on_command = answer.pointer("/queue/on_command").and_then(Value::as_bool).unwrap_or(false);
    if held > 0 || on_command {
        let until = if on_command { " for \"mailrace queue retry\"" } else { "" };
        output.line(format_args!("               {} waiting{until}, {} held", thousands(waiting), thousands(held)));
    }
    for place in answer.pointer("/queue/fullest").and_then(Value::as_array).into_iter().flatten() {
        let text = |field: &str| place.get(field).and_then(Value::as_str).map(plain);
        let figure = |field: &str| place.get(field).and_then(Value::as_u64).unwrap_or(0);
        let down = text("down").map(|why| format!(", down, {}: {why}", next_try(place)));
        let waits = waits_for(place).map(|words| format!(", {words}")).unwrap_or_default();
        let name = text("destination").unwrap_or_default();
        let recipients = thousands(figure("recipients"));
        output.line(format_args!("    {recipients:>9}  {name}{}{waits}", down.unwrap_or_default()));
    }
}

/// A time in its two largest units.
fn duration(seconds: u64) -> String {
    let (days, hours, minutes) = (seconds / 86_400, seconds / 3_600 % 24, seconds / 60 % 60);
    match (days, hours, minutes) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min {} s", seconds % 60),
        (0, hours, minutes) => format!("{hours} h {minutes} min"),
        (days, hours, _) => format!("{} {hours} h", count(days, "day")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_for_people() {
        assert_eq!(
            [5, 61, 3_720, 90_000, 200_000].map(duration),
            ["5 s", "1 min 1 s", "1 h 2 min", "1 day 1 h", "2 days 7 h"]
        );
    }
}

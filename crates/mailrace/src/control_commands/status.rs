//! The output of `mailrace status` for people.

use crate::output::{Output, bytes, count, next_try, thousands, waits_for};
use crate::terminal_text::plain;
use operator::answers::{
    ClockStatus, DeliveryConnections, DeliveryCounts, DestinationLine, FailingLog, FilterStatus, LimitLine, LogStatus,
    MadeCounts, ResultCounts, RuleLine, ScreenCounts, ScreenQueueStatus, SenderCheckCounts, SignatureCounts,
    SpoolStatus, StatusAnswer, StopStatus,
};
use std::time::Duration;

/// Stands for a text that the server did not send.
const UNKNOWN: &str = "?";

/// Prints the answer to `status` for a person.
pub(super) fn print_status(output: &mut Output, answer: &StatusAnswer) {
    first_lines(output, answer);
    clients(output, answer);
    if let Some(deliveries) = &answer.deliveries {
        output.print_line(format_args!(
            "  deliveries   {} sent, {} deferred, {} failed; {:.1} a second",
            thousands(deliveries.sent),
            thousands(deliveries.deferred),
            thousands(deliveries.failed),
            deliveries.sent_per_second,
        ));
        next_hops(deliveries).into_iter().for_each(|text| output.print_line(format_args!("  next hops    {text}")));
    }
    queue(output, answer);
    if answer.pickup.files > 0 {
        let full = if answer.pickup.full { ", TOO MANY: more are refused; the log says why they wait" } else { "" };
        output.print_line(format_args!("  pickup       {} not taken yet{full}", count(answer.pickup.files, "message")));
    }
    spool(output, &answer.spool);
    log(output, &answer.log);
}

/// Prints the identity of the server, the state of a stop, and the listeners.
fn first_lines(output: &mut Output, answer: &StatusAnswer) {
    let stopping = if answer.stopping { ", stopping" } else { "" };
    output.print_line(format_args!(
        "mailrace {} on {}, process {}, up {}{stopping}",
        known(&answer.version),
        known(&answer.hostname),
        answer.pid,
        duration(answer.uptime_seconds)
    ));
    if let Some(StopStatus { deliveries, seconds_left }) = answer.stop {
        let sessions = count(answer.connections.open, "session");
        let deliveries = match deliveries {
            1 => "1 delivery".to_owned(),
            many => format!("{} deliveries", thousands(many)),
        };
        output
            .print_line(format_args!("  STOPPING     {sessions} and {deliveries} under way; {seconds_left} s at most"));
    }
    if let Some(ClockStatus { machine, server }) = answer.clock {
        let date = |seconds: u64| mail::submission::date(seconds.saturating_mul(1_000_000), 0);
        let (machine, server) = (date(machine), date(server));
        output.print_line(format_args!("  CLOCK        the machine's clock says {machine}; mail goes by {server}"));
    }
    output.print_line(format_args!("  listens      {}", answer.listen.join(" ")));
}

/// Prints the counts of connections and messages from clients.
fn clients(output: &mut Output, answer: &StatusAnswer) {
    let (connections, messages) = (&answer.connections, &answer.messages);
    output.print_line(format_args!(
        "  connections  {} of {} open; {} since the start, {} turned away",
        thousands(connections.open),
        thousands(connections.max),
        thousands(connections.total),
        thousands(connections.refused),
    ));
    let recipients = match answer.recipients.refused {
        0 => String::new(),
        many => format!(", {} refused", count(many, "recipient")),
    };
    output.print_line(format_args!(
        "  messages     {} accepted, {} refused{recipients}; {:.1} a second",
        thousands(messages.accepted),
        thousands(messages.refused),
        messages.accepted_per_second,
    ));
    if let Some(text) = screened(&answer.screen) {
        output.print_line(format_args!("  screened     {text}"));
    }
    for filter in &answer.filters {
        output.print_line(format_args!("  {}", connected(filter)));
    }
    if let Some(waiting) = answer.screen_queue.as_ref().filter(|waiting| waiting.messages > 0) {
        wait_for_filters(output, waiting);
    }
    let SenderCheckCounts { iprev, spf, dkim, dmarc, arc } = &answer.sender_checks;
    for (method, counts) in [("iprev", iprev), ("spf", spf), ("dkim", dkim), ("dmarc", dmarc), ("arc", arc)] {
        if let Some(text) = checked(counts) {
            output.print_line(format_args!("  {method:<12} {text}"));
        }
    }
    if let Some(text) = signed(&answer.signatures) {
        output.print_line(format_args!("  signed       {text}"));
    }
    for login in &answer.logins_over {
        output.print_line(format_args!(
            "  LOGIN        {} had {} recipients in an hour, from {}: auth.recipients_hour_max; is its password stolen?",
            plain(known(&login.user)),
            thousands(login.recipients),
            login.client.as_deref().unwrap_or(UNKNOWN),
        ));
    }
}

/// Prints the messages that wait for filters, and the filters that fail.
fn wait_for_filters(output: &mut Output, waiting: &ScreenQueueStatus) {
    let slow = match waiting.delay_ms {
        0 => String::new(),
        delay => {
            format!("; NEAR ITS LIMIT: each 250 is delayed by {:.1} s", Duration::from_millis(delay).as_secs_f64())
        }
    };
    output.print_line(format_args!(
        "  filters      {} of {} wait for them, {} of {}{slow}",
        thousands(waiting.messages),
        count(waiting.messages_max, "message"),
        bytes(waiting.bytes),
        bytes(waiting.bytes_max),
    ));
    for one in &waiting.filters {
        let failing = one.failing.as_deref().map(|why| {
            let next = one.retry_in.filter(|seconds| *seconds > 0);
            let next = next.map_or_else(|| "being tried now".to_owned(), |seconds| format!("next try in {seconds} s"));
            format!(", FAILING, {next}: {}", plain(why))
        });
        output.print_line(format_args!(
            "    {:>9}  {}{}",
            thousands(one.messages),
            plain(&one.filters),
            failing.unwrap_or_default(),
        ));
    }
}

/// Describes the decisions of content rules and filters; `None`: there was none.
fn screened(counts: &ScreenCounts) -> Option<String> {
    let all = [
        (counts.reject, "rejected"),
        (counts.defer, "deferred"),
        (counts.discard, "discarded"),
        (counts.quarantine, "in quarantine"),
        (counts.hold, "held"),
        (counts.edit, "header edits"),
        (counts.reroute, "rerouted"),
        (counts.accept, "accepted by a rule"),
        (counts.not_judged, "NOT JUDGED"),
    ];
    let some = all.into_iter().filter(|(count, _)| *count > 0);
    let words: Vec<String> = some.map(|(count, word)| format!("{} {word}", thousands(count))).collect();
    (!words.is_empty()).then(|| words.join(", "))
}

/// Describes the signatures of mail that left; `None`: there was none.
fn signed(counts: &SignatureCounts) -> Option<String> {
    let of = |counts: &MadeCounts, noun: &str| {
        let failed = match counts.failed {
            0 => String::new(),
            some => format!(", {} FAILED", thousands(some)),
        };
        (counts.made + counts.failed > 0).then(|| format!("{}{failed}", count(counts.made, noun)))
    };
    let words: Vec<String> =
        [of(&counts.dkim, "DKIM signature"), of(&counts.arc, "ARC set")].into_iter().flatten().collect();
    (!words.is_empty()).then(|| words.join("; "))
}

/// Describes a filter and the connections to it.
fn connected(filter: &FilterStatus) -> String {
    let failed = match filter.failed {
        0 => String::new(),
        some => format!("{} NOT ANSWERED, ", thousands(some)),
    };
    let stale = match filter.stale {
        0 => String::new(),
        some => format!(" ({} closed by the filter)", thousands(some)),
    };
    format!(
        "filter       {} at {}: {failed}{} made, {} reuses{stale}, {} idle",
        plain(&filter.name),
        plain(&filter.address),
        count(filter.opened, "connection"),
        thousands(filter.reused),
        thousands(filter.idle),
    )
}

/// Describes the results of a method of sender authentication; `None`: there was none.
fn checked(counts: &ResultCounts) -> Option<String> {
    let all = [
        (counts.pass, "pass"),
        (counts.fail, "fail"),
        (counts.softfail, "softfail"),
        (counts.neutral, "neutral"),
        (counts.none, "none"),
        (counts.policy, "policy"),
        (counts.permerror, "permerror"),
        (counts.temperror, "TEMPERROR"),
    ];
    let some = all.into_iter().filter(|(count, _)| *count > 0);
    let words: Vec<String> = some.map(|(count, word)| format!("{} {word}", thousands(count))).collect();
    (!words.is_empty()).then(|| words.join(", "))
}

/// Describes the connections to next hops; `None` if the server is older than their counts.
fn next_hops(deliveries: &DeliveryCounts) -> Option<String> {
    let DeliveryConnections { open, max, silent, silent_max } = deliveries.connections;
    let more = match silent {
        0 => String::new(),
        some => format!("; {} more, of {}, to hosts that were silent", thousands(some), thousands(silent_max)),
    };
    (max > 0).then(|| format!("{} of {} connections{more}", thousands(open), thousands(max)))
}

/// Prints the size of the queue and its fullest destinations.
fn queue(output: &mut Output, answer: &StatusAnswer) {
    let queue = &answer.queue;
    output.print_line(format_args!(
        "  queue        {} for {} at {}, {}",
        count(queue.messages, "message"),
        count(queue.recipients, "recipient"),
        count(queue.destinations, "destination"),
        bytes(answer.spool.live_bytes),
    ));
    if queue.held > 0 || queue.on_command {
        let until = if queue.on_command { " for \"mailrace queue retry\"" } else { "" };
        let (waiting, held) = (thousands(queue.waiting), thousands(queue.held));
        output.print_line(format_args!("               {waiting} waiting{until}, {held} held"));
    }
    for DestinationLine { destination, recipients, status } in &queue.fullest {
        let down = status.down.as_deref().map(|why| format!(", down, {}: {}", next_try(status), plain(why)));
        let waits = waits_for(status).map(|words| format!(", {words}"));
        let state = [down, waits].into_iter().flatten().collect::<String>();
        output.print_line(format_args!("    {:>9}  {}{state}", thousands(*recipients), plain(destination)));
    }
    for RuleLine { rule, expression, set_by, .. } in &queue.rules {
        let (rule, expression, set_by) = (plain(rule), plain(expression), plain(set_by));
        output.print_line(format_args!("               {rule} of {set_by} holds {expression}"));
    }
    for LimitLine { destination, connections, rate, set_by, .. } in &queue.limits {
        let connections = connections.map(|number| format!(" connections={number}")).unwrap_or_default();
        let rate = rate.as_deref().map(|rate| format!(" rate={}", plain(rate))).unwrap_or_default();
        let (destination, set_by) = (plain(destination), plain(set_by));
        output.print_line(format_args!("               {destination} is limited by {set_by}:{connections}{rate}"));
    }
}

/// Prints the state of the spool, and its faults.
fn spool(output: &mut Output, spool: &SpoolStatus) {
    output.print_line(format_args!(
        "  spool        {} on {}; {} of {} segments in use, pressure {}",
        known(&spool.path),
        known(&spool.file_system),
        thousands(spool.segments.saturating_sub(spool.segments_free)),
        thousands(spool.segments_max),
        known(&spool.pressure),
    ));
    if !spool.durable {
        output
            .print_line("  NOT DURABLE  a power cut takes the queue with it; set spool.path to a directory on a disk");
    }
    if spool.failures + spool.segments_bad > 0 {
        let (failures, bad) = (count(spool.failures, "write"), count(spool.segments_bad, "segment"));
        output.print_line(format_args!(
            "  STORAGE      {failures} failed, {bad} put aside; look at the disk and the kernel log"
        ));
    }
}

/// Prints the faults of the log.
fn log(output: &mut Output, log: &LogStatus) {
    if let Some(FailingLog { target, reason }) = &log.failing {
        output.print_line(format_args!(
            "  LOG          {} cannot be written: {}; {} waiting, then more are dropped; mail goes on",
            plain(target),
            plain(reason),
            count(log.waiting, "line")
        ));
    }
    if log.dropped > 0 {
        output.print_line(format_args!(
            "  LOG          {} dropped; the log's disk or log.queue_lines_max is too small",
            count(log.dropped, "line")
        ));
    }
}

/// Returns the text, or a question mark if the server did not send it.
fn known(text: &str) -> &str {
    if text.is_empty() { UNKNOWN } else { text }
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

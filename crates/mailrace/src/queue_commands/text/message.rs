//! Prints messages and their recipients.

use super::destination::learned_pace;
use crate::output::{Output, age, count, next_try, short_bytes, thousands};
use crate::terminal_text::plain;
use operator::answers::{HoldLine, MessageLine, RecipientLine};

/// Column of a recipient's state, if the address leaves room for it.
const STATE_COLUMN: usize = 44;

/// Prints a message of a list.
pub(super) fn print_listed(output: &mut Output, line: &MessageLine) {
    let size = line.size.map_or_else(|| "?".to_owned(), short_bytes);
    output.print_line(format_args!("{}  {:>6}  {size:>5}  {}", id(line), age(line.age), sender(line)));
    if let Some(trouble) = &line.trouble {
        output.print_line(format_args!("    its envelope cannot be read: {}", plain(trouble)));
    }
    recipients(output, line, false);
    let more = line.more_recipients;
    if more > 0 {
        output.print_line(format_args!("    and {}; mailrace queue show has them", count(more, "more recipient")));
    }
}

/// Prints the facts of a message as a whole.
pub(super) fn print_head(output: &mut Output, line: &MessageLine) {
    output.print_line(id(line));
    let mut row = |name: &str, value: String| output.print_line(format_args!("  {name:<12} {value}"));
    row("from", sender(line));
    row("age", age(line.age));
    if let Some(size) = line.size {
        row("size", count(size, "byte"));
    }
    if let (Some(client), Some(protocol)) = (&line.client, &line.protocol) {
        let helo = line.helo.as_deref().map(|name| format!(", which calls itself {}", plain(name)));
        row("came from", format!("{}{}, by {protocol}", plain(client), helo.unwrap_or_default()));
    }
    for (name, value) in [("parameters", &line.params), ("TROUBLE", &line.trouble)] {
        if let Some(value) = value {
            row(name, plain(value));
        }
    }
    row("recipients", thousands(line.waiting));
}

/// Prints the recipients of a message that is shown, the state of their destinations, and its header section.
pub(super) fn print_shown(output: &mut Output, line: &MessageLine) {
    recipients(output, line, true);
    for (name, status) in &line.destinations {
        if let Some(why) = &status.down {
            output.print_line(format_args!("  {} is down, {}: {}", plain(name), next_try(status), plain(why)));
        }
        if let Some(pace) = learned_pace(status) {
            output.print_line(format_args!("  {} is {pace}", plain(name)));
        }
    }
    if let Some(headers) = &line.headers {
        output.print_line("");
        headers.lines().for_each(|line| output.print_line(format_args!("  | {}", plain(&line.replace('\t', "    ")))));
    }
}

/// Prints the recipients that a command changes, one on a line, as the log names them.
pub(super) fn print_changed(output: &mut Output, line: &MessageLine) {
    let from = sender(line);
    let copy = line.copy.as_deref().map(|copy| format!(" copy={}", plain(copy))).unwrap_or_default();
    for one in &line.recipients {
        output.print_line(format_args!("{} from={from} to=<{}>{copy}", id(line), address(one)));
    }
}

/// Prints the recipients of a line with their states, and below each its route, its failure and its parameters.
fn recipients(output: &mut Output, line: &MessageLine, has_params: bool) {
    let now = line.arrived + line.age;
    for one in &line.recipients {
        let address = address(one);
        let state = state(one, now);
        if address.chars().count() + 5 < STATE_COLUMN {
            output.print_line(format_args!("    {address:<width$}{state}", width = STATE_COLUMN - 4));
        } else {
            output.print_line(format_args!("    {address}\n{:STATE_COLUMN$}{state}", ""));
        }
        let is_elsewhere = !one.destination.is_empty() && !address.ends_with(&format!("@{}", one.destination));
        let via = is_elsewhere.then(|| format!("by way of {}", plain(&one.destination)));
        let hold = one.hold.as_ref().map(|hold| held(hold, now));
        let reason = one.reason.as_deref().map(plain);
        let params = one.params.as_deref().filter(|_| has_params).map(plain);
        for below in [via, hold, reason, params].into_iter().flatten() {
            output.print_line(format_args!("      {below}"));
        }
    }
}

/// Says who holds a recipient, why, and until when.
fn held(hold: &HoldLine, now: u64) -> String {
    let HoldLine { kind, by, text, until } = hold;
    if kind == "screen" {
        let by = plain(by.as_deref().unwrap_or_default());
        return format!("waits for filter{} {by}", if by.contains(',') { "s" } else { "" });
    }
    let by = by.as_deref().map_or_else(String::new, |by| format!(" {}", plain(by)));
    let left = until.map(|until| u64::from(until).saturating_sub(now));
    let until = left.map_or_else(String::new, |left| format!(" for {}", age(left)));
    let text = text.as_deref().map_or_else(String::new, |text| format!(": {}", plain(text)));
    format!("held by {}{by}{until}{text}", plain(kind))
}

/// Describes the state of a recipient in a few words.
fn state(one: &RecipientLine, now: u64) -> String {
    let tries = one.tries.unwrap_or(0);
    let mut words = vec![
        match one.state.as_str() {
            "active" => "being delivered",
            "delivered" => "delivered, its report is being written",
            "" => "?",
            word => word,
        }
        .to_owned(),
    ];
    if tries > 0 {
        let plural = if tries == 1 { "y" } else { "ies" };
        words.push(format!("{tries} tr{plural}"));
    }
    if one.state == "waiting" {
        words.push(next_attempt(one, now));
    }
    words.extend(one.class.clone());
    if one.warned {
        words.push("sender warned".to_owned());
    }
    words.join(", ")
}

/// Says when a recipient that waits is tried.
pub(in crate::queue_commands) fn next_attempt(one: &RecipientLine, now: u64) -> String {
    match (one.until, one.due.map(u64::from), one.retry_at) {
        (Some(until), ..) => {
            let time = mail::submission::date(u64::from(until).saturating_mul(1_000_000), 0);
            format!("until {time}, as its sender asked")
        }
        (_, _, Some(at)) if at > now => format!("host down, next in {}", age(at - now)),
        (_, _, Some(_)) => "host down, being tried now".to_owned(),
        (_, Some(due), None) if due > now => format!("next in {}", age(due - now)),
        (_, Some(_), None) => "due now".to_owned(),
        (_, None, None) => "new".to_owned(),
    }
}

fn id(line: &MessageLine) -> &str {
    if line.id.is_empty() { "?" } else { &line.id }
}

fn sender(line: &MessageLine) -> String {
    line.from.as_deref().map_or_else(|| "?".to_owned(), |from| format!("<{}>", plain(from)))
}

fn address(one: &RecipientLine) -> String {
    match &one.to {
        Some(address) => plain(address),
        None if one.destination.is_empty() => format!("? (recipient {} at ?)", one.position),
        None => format!("? (recipient {} at {})", one.position, plain(&one.destination)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_held_recipient_says_by_whom_and_why() {
        for (hold, expected) in [
            (json!({ "kind": "operator", "by": "ann" }), "held by operator ann"),
            (json!({ "kind": "rule", "text": "a virus" }), "held by rule: a virus"),
            (json!({ "kind": "screen", "by": "clamav" }), "waits for filter clamav"),
            (json!({ "kind": "screen", "by": "clamav,spam" }), "waits for filters clamav,spam"),
            (
                json!({ "kind": "rule", "by": "spam", "text": "looks so", "until": 1_720 }),
                "held by rule spam for 12m: looks so",
            ),
        ] {
            let hold: HoldLine = operator::answers::from_line(&hold).unwrap();
            assert_eq!(held(&hold, 1_000), expected);
        }
    }

    #[test]
    fn states_in_a_few_words() {
        for (one, expected) in [
            (json!({ "state": "waiting", "tries": 0 }), "waiting, new"),
            (json!({ "state": "waiting", "tries": 1, "due": 1_720 }), "waiting, 1 try, next in 12m"),
            (
                json!({ "state": "waiting", "tries": 3, "due": 1_000, "warned": true, "class": "bulk" }),
                "waiting, 3 tries, due now, bulk, sender warned",
            ),
            (json!({ "state": "waiting", "tries": 0, "retry_at": 1_720 }), "waiting, host down, next in 12m"),
            (
                json!({ "state": "waiting", "tries": 1, "due": 900, "retry_at": 990 }),
                "waiting, 1 try, host down, being tried now",
            ),
            (
                json!({ "state": "waiting", "tries": 0, "due": 1_720, "until": 1_720, "retry_at": 1_720 }),
                "waiting, until Thu, 1 Jan 1970 00:28:40 +0000, as its sender asked",
            ),
            (json!({ "state": "held", "tries": 2, "due": 9_000 }), "held, 2 tries"),
            (json!({ "state": "active", "tries": 0 }), "being delivered"),
            (json!({ "state": "delivered", "warned": true }), "delivered, its report is being written, sender warned"),
        ] {
            let one: RecipientLine = operator::answers::from_line(&one).unwrap();
            assert_eq!(state(&one, 1_000), expected);
        }
    }
}

//! Prints destinations and groups of recipients that have waited for long.

use crate::output::{Output, age, count, next_try, thousands};
use crate::terminal_text::plain;
use operator::answers::{DestinationLine, DestinationStatus, StragglerLine};

/// Prints a destination and, below it, its state.
pub(super) fn print_destination(output: &mut Output, line: &DestinationLine) {
    let DestinationLine { destination, recipients, status } = line;
    output.print_line(format_args!("{:>10}  {}", thousands(*recipients), plain(destination)));
    state(output, status, &[destination]);
}

/// Prints a group of recipients, and below it why they wait.
pub(super) fn print_straggler(output: &mut Output, line: &StragglerLine) {
    let host = line.host.as_deref();
    let name = host.or(line.to.as_deref()).or(line.destination.as_deref()).unwrap_or("?");
    let (recipients, messages) = (thousands(line.recipients), thousands(line.messages));
    output.print_line(format_args!("{recipients:>10}  {messages:>8}  {:>6}  {}", age(line.oldest), plain(name)));
    if host.is_some() {
        output.print_line(format_args!("            {}", destinations_of_host(line)));
    }
    let down = line.status.down.as_deref();
    if down.is_some() {
        let named: Vec<&str> = host.into_iter().chain(line.destination.as_deref()).collect();
        state(output, &line.status, &named);
    }
    match (down, line.reason.as_deref()) {
        (None, Some(reason)) => output.print_line(format_args!("            {}", plain(reason))),
        (Some(down), Some(reason)) if host.is_some() && down != reason => {
            output.print_line(format_args!("            last said: {}", plain(reason)));
        }
        _ => {}
    }
}

/// Names the destinations for which mail waits at a host.
fn destinations_of_host(line: &StragglerLine) -> String {
    let names: Vec<String> = line.named.iter().flatten().map(|name| plain(name)).collect();
    let all = line.destinations.unwrap_or(0);
    let others = all.saturating_sub(names.len() as u64);
    let more = if others > 0 { format!(" and {} more", thousands(others)) } else { String::new() };
    let known = if line.status.site.is_some() { "for" } else { "hosts not known yet, for" };
    format!("{known} {}: {}{more}", count(all, "destination"), names.join(" "))
}

/// Prints the state of a destination below its line, which has these names.
fn state(output: &mut Output, status: &DestinationStatus, named: &[&str]) {
    let connections = status.connections.unwrap_or(0);
    if let Some(why) = &status.down {
        output.print_line(format_args!("            down, {}: {}", next_try(status), plain(why)));
        if let Some(node) = status.reported_by {
            output.print_line(format_args!("            no attempt before that, by the report of node {node}"));
        }
    } else if connections > 0 {
        let messages = count(status.in_flight.unwrap_or(0), "message");
        output.print_line(format_args!("            {} with {messages} under way", count(connections, "connection")));
    }
    if let Some(waits) = waits_for(status) {
        let more = if status.has_more { ", and more in the spool" } else { "" };
        output.print_line(format_args!("            {waits}"));
        output.print_line(format_args!("            {} in memory{more}", count(status.ready, "message")));
    }
    let slow = match status.lane {
        Some(_) => ", which were silent: long time limits, few connections",
        None => "",
    };
    if let Some(site) = status.site.as_deref().filter(|site| !named.contains(site)) {
        output.print_line(format_args!("            goes to {}{slow}", plain(site)));
    }
    if let Some(rate) = status.messages_per_second {
        output.print_line(format_args!(
            "            paced: {rate} messages a second at most, by its [[destination]] rule"
        ));
    }
    if let Some(pace) = learned_pace(status) {
        output.print_line(format_args!("            {pace}"));
    }
}

/// Says what mail that is due and not tried waits for, with the limit of connections.
fn waits_for(status: &DestinationStatus) -> Option<String> {
    let what = crate::output::waits_for(status)?;
    let most = thousands(status.connections_max.unwrap_or(0));
    let part = if status.lane.is_some() { "the tenth" } else { "all that it may have" };
    Some(match status.waits_for.as_deref() {
        Some("connection") => format!("{what}: {part} of delivery.connections_max = {most} is in use"),
        _ => what,
    })
}

/// Says at which pace a destination gets mail, if it refused more.
pub(super) fn learned_pace(status: &DestinationStatus) -> Option<String> {
    let rate = status.learned_messages_per_second?;
    Some(format!("paced: {rate} messages a second, learned from its 421 and 4xx replies"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pace_that_was_learned() {
        let status = DestinationStatus { messages_per_second: Some(2.0), ..DestinationStatus::default() };
        assert_eq!(learned_pace(&status), None);
        let status = DestinationStatus { learned_messages_per_second: Some(0.912), ..DestinationStatus::default() };
        assert_eq!(
            learned_pace(&status).unwrap(),
            "paced: 0.912 messages a second, learned from its 421 and 4xx replies"
        );
    }

    #[test]
    fn mail_that_is_due_says_what_it_waits_for() {
        let status = |waits_for: &str, lane: Option<&str>| DestinationStatus {
            waits_for: Some(waits_for.to_owned()),
            waits_since: Some(12),
            connections_max: Some(1_000),
            lane: lane.map(str::to_owned),
            ..DestinationStatus::default()
        };
        assert_eq!(waits_for(&DestinationStatus { ready: 3, ..DestinationStatus::default() }), None);
        for (what, lane, words) in [
            (
                "connection",
                None,
                "waits for a connection since 12s: all that it may have of delivery.connections_max = 1,000 is in use",
            ),
            (
                "connection",
                Some("slow"),
                "waits for a connection since 12s: the tenth of delivery.connections_max = 1,000 is in use",
            ),
            ("rate", None, "waits for the rate of its [[destination]] rule"),
            ("pace", None, "waits for its pace"),
            ("share", None, "waits for its share of a limit of all nodes"),
        ] {
            assert_eq!(waits_for(&status(what, lane)).unwrap(), words);
        }
    }

    #[test]
    fn hosts_name_a_few_of_their_destinations() {
        let line = |site: Option<&str>, destinations, named: &[&str]| StragglerLine {
            destinations: Some(destinations),
            named: Some(named.iter().map(|name| (*name).to_owned()).collect()),
            status: DestinationStatus { site: site.map(str::to_owned), ..DestinationStatus::default() },
            ..StragglerLine::default()
        };
        assert_eq!(
            destinations_of_host(&line(Some("mx:25"), 1_007, &["a.test", "b\u{7}.test"])),
            "for 1,007 destinations: a.test b?.test and 1,005 more"
        );
        assert_eq!(destinations_of_host(&line(None, 1, &["a.test"])), "hosts not known yet, for 1 destination: a.test");
    }
}

//! Lines as sendmail writes them, and this server.
//!
//! `from=` is an arrival, `to=` an attempt for all recipients of one transaction. The code in `dsn=` decides the
//! outcome: it stands before all text of peers, while `reply=` of sendmail may hold anything. Logs of before 1998 have
//! no `dsn=`; there `stat=` decides.

use super::LineUse;
use super::fields::{Fields, Recipients, host_of, is_id, number, recipients};
use super::messages::Messages;
use crate::counters::Outcome;
use crate::stats::{Arrival, Attempt, COMMAND_REJECTED, Fact, TOO_MANY_CONNECTIONS, without_brackets};
use std::time::Duration;

/// Reads the part of a line behind the program.
pub(super) fn read(text: &str, messages: &mut Messages, each: &mut impl FnMut(&Fact<'_>)) -> LineUse {
    let Some((id, rest)) = split_id(text) else {
        return read_refusal(text, each);
    };
    if let Some(to) = rest.strip_prefix("to=") {
        return read_attempt(id, to, messages, each);
    }
    if let Some(from) = rest.strip_prefix("from=") {
        return read_arrival(id, from, messages, each);
    }
    if let Some((second, what)) = split_id(rest) {
        return read_second(id, second, what, messages, each);
    }
    if rest == "discarded" {
        messages.remove(id);
        each(&Fact::Ended { id });
        return LineUse::Used;
    }
    read_refusal(rest, each)
}

/// Splits `6AR3Q3e2031093: rest`.
fn split_id(text: &str) -> Option<(&str, &str)> {
    let at = memchr::memchr(b':', text.as_bytes().get(..text.len().min(24))?)?;
    let id = text.get(..at)?;
    Some((id, text.get(at..)?.strip_prefix(": ")?)).filter(|_| is_id(id))
}

fn read_arrival(id: &str, text: &str, messages: &mut Messages, each: &mut impl FnMut(&Fact<'_>)) -> LineUse {
    let Some(Recipients { rest, .. }) = recipients(text) else { return LineUse::Broken };
    let from = text.get(..text.len() - rest.len() - 2).unwrap_or_default();
    let (mut size, mut nrcpts, mut client) = (None, None, "");
    for (key, value) in Fields::new(rest) {
        match key {
            "size" => size = number(value),
            "nrcpts" => nrcpts = number(value),
            "relay" => client = value,
            _ => {}
        }
    }
    let (Some(size), Some(nrcpts)) = (size, nrcpts) else { return LineUse::Broken };
    // No recipient was left, or the content was refused.
    if nrcpts == 0 {
        return LineUse::Used;
    }
    if let Some(message) = messages.entry(id) {
        (message.size, message.is_arrived) = (size, true);
    }
    each(&Fact::Arrival(Arrival { id, from: without_brackets(from), size, recipients: nrcpts, client }));
    LineUse::Used
}

/// The fields of an attempt.
#[derive(Default)]
struct AttemptFields<'a> {
    delay: Option<Duration>,
    relay: &'a str,
    dsn: Option<u8>,
    stat: Option<&'a str>,
    goes_on: bool,
}

impl<'a> AttemptFields<'a> {
    fn of(text: &'a str) -> Self {
        let mut found = Self::default();
        let mut fields = Fields::new(text);
        loop {
            // The last field may hold commas.
            if let Some(stat) = fields.rest().strip_prefix("stat=") {
                found.stat = Some(stat);
                return found;
            }
            let Some((key, value)) = fields.next() else { return found };
            match key {
                "delay" => found.delay = interval(value),
                "relay" if found.dsn.is_none() => found.relay = value,
                "dsn" if found.dsn.is_none() => found.dsn = value.bytes().next(),
                "" if value == "[more]" => found.goes_on = true,
                _ => {}
            }
        }
    }

    fn outcome(&self) -> Option<Outcome> {
        let stat = self.stat?;
        match self.dsn {
            _ if ["queued", "quarantined", "discarded"].contains(&stat) => None,
            Some(b'2') => Some(Outcome::Sent),
            Some(b'4') => Some(Outcome::Deferred),
            Some(b'5') => Some(Outcome::Failed),
            _ if stat.starts_with("Sent") => Some(Outcome::Sent),
            _ if stat.starts_with("Deferred") => Some(Outcome::Deferred),
            _ => Some(Outcome::Failed),
        }
    }
}

fn read_attempt(id: &str, text: &str, messages: &mut Messages, each: &mut impl FnMut(&Fact<'_>)) -> LineUse {
    let Some(Recipients { to, count, rest }) = recipients(text) else { return LineUse::Broken };
    let fields = AttemptFields::of(rest);
    let Some(stat) = fields.stat else { return LineUse::Broken };
    let Some(outcome) = fields.outcome() else { return LineUse::Used };
    let host = if fields.relay.is_empty() { "" } else { host_of(fields.relay) };
    let size = messages.get(id).map_or(0, |message| message.size);
    each(&Fact::Attempt(Attempt {
        id,
        to,
        recipients: count,
        host,
        outcome,
        delay: fields.delay,
        size,
        text: stat.strip_prefix("Deferred: ").unwrap_or(stat),
        is_transaction: !fields.goes_on,
    }));
    if outcome == Outcome::Sent && is_own(fields.relay) && accepted_as(stat).is_some_and(|id| is_here(id, messages)) {
        each(&Fact::Handover);
    }
    LineUse::Used
}

/// Returns whether the message of this id came by a line of this log.
pub(super) fn is_here(id: &str, messages: &mut Messages) -> bool {
    messages.get(id).is_some_and(|message| message.is_arrived)
}

/// Returns whether a relay is this machine.
pub(super) fn is_own(relay: &str) -> bool {
    let address = memchr::memchr(b'[', relay.as_bytes()).and_then(|at| relay.get(at..)).unwrap_or_default();
    ["[127.", "[::1]", "[IPv6:::1]"].into_iter().any(|own| address.starts_with(own))
}

/// Returns the id under which the next hop has taken a message: `(ID Message accepted for delivery)`,
/// `queued as ID`.
pub(super) fn accepted_as(stat: &str) -> Option<&str> {
    let found = match stat.split_once("queued as ") {
        Some((_, rest)) => rest.split([' ', ')']).next(),
        None => stat.strip_prefix("Sent (")?.split_once(" Message accepted").map(|(id, _)| id),
    };
    // sendmail puts the code before it.
    found.map(|id| id.trim_start_matches("2.0.0 ")).filter(|id| is_id(id))
}

/// `[D+]HH:MM:SS`
fn interval(text: &str) -> Option<Duration> {
    let (days, time) = match text.split_once('+') {
        Some((days, time)) => (number(days)?, time),
        None => (0, text),
    };
    let mut parts = time.split(':').map(number);
    let (hours, minutes, seconds) = (parts.next()??, parts.next()??, parts.next()??);
    let sum = days.checked_mul(86_400)?.checked_add(hours.checked_mul(3_600)?)?;
    Some(Duration::from_secs(sum.checked_add(minutes.checked_mul(60)?)?.checked_add(seconds)?))
}

/// `ID: ID2: clone: owner=…`, `ID: ID2: DSN: User unknown`, and their like.
fn read_second(
    id: &str,
    second: &str,
    what: &str,
    messages: &mut Messages,
    each: &mut impl FnMut(&Fact<'_>),
) -> LineUse {
    if what.starts_with("clone: ") {
        // The clone has the recipients of the first, or some of them; how many is not said.
        if let Some(first) = messages.get(id).copied()
            && let Some(message) = messages.entry(second)
        {
            (message.size, message.is_arrived) = (first.size, first.is_arrived);
        }
        each(&Fact::Cloned { id, clone: second });
        return LineUse::Used;
    }
    let report = ["DSN: ", "return to sender: ", "sender notify: ", "postmaster notify: "];
    let Some(reason) = report.into_iter().find_map(|word| what.strip_prefix(word)) else { return LineUse::Other };
    each(&Fact::Report);
    // Time is up for all recipients that are left.
    if reason.starts_with("Cannot send message for") || reason.starts_with("Cannot send message within") {
        messages.remove(id);
        each(&Fact::Ended { id });
    }
    LineUse::Used
}

/// `ruleset=…, reject=550 …`, `<x@y>... User unknown`, `… [rejected]`.
fn read_refusal(text: &str, each: &mut impl FnMut(&Fact<'_>)) -> LineUse {
    let text = text.strip_prefix("NOQUEUE: ").unwrap_or(text);
    if text.starts_with("ruleset=") {
        let Some((_, reply)) = text.split_once(", reject=") else { return LineUse::Other };
        each(&Fact::Refusal { text: reply });
        return LineUse::Used;
    }
    if text.starts_with('<')
        && let Some((_, reply)) = text.split_once(">... ")
    {
        each(&Fact::Refusal { text: reply });
        return LineUse::Used;
    }
    if text.ends_with(" [rejected]") || text.starts_with("rejecting connections on daemon ") {
        each(&Fact::Refusal { text: if text.ends_with(']') { COMMAND_REJECTED } else { TOO_MANY_CONNECTIONS } });
        return LineUse::Used;
    }
    LineUse::Other
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_of_next_hops() {
        assert_eq!(accepted_as("Sent (Ok: queued as 4F1D2A)"), Some("4F1D2A"));
        assert_eq!(accepted_as("Sent (6AR3Q3e2031093 Message accepted for delivery)"), Some("6AR3Q3e2031093"));
        assert_eq!(accepted_as("Sent (2.0.0 6AR3Q3e2031093 Message accepted for delivery)"), Some("6AR3Q3e2031093"));
        assert_eq!(accepted_as("Sent (ok)"), None);
        assert!(is_own("localhost [127.0.0.1]") && is_own("127.0.0.1[127.0.0.1]:10025") && !is_own("a [10.0.0.1]"));
    }

    #[test]
    fn intervals() {
        assert_eq!(interval("00:01:02"), Some(Duration::from_secs(62)));
        assert_eq!(interval("2+01:00:00"), Some(Duration::from_secs(176_400)));
        assert_eq!([interval("1:2"), interval("x"), interval("99999999999999999999+00:00:00")], [None; 3]);
    }
}

//! Lines of Postfix.
//!
//! The arrival of a message is told by `client=` or `uid=`, and its sender and size by the queue manager, which tells
//! them again at each attempt: only the first time counts. Reports have neither and count as reports. Each recipient
//! has a line of its own; those of one transaction share process, message, host, result and time, as far as a log shows
//! it.

use super::LineUse;
use super::fields::{Fields, Recipients, host_of, is_id, number, recipients};
use super::messages::{IdKey, Messages};
use super::sendmail_lines::{accepted_as, is_here, is_own};
use crate::counters::Outcome;
use crate::stats::{Arrival, Attempt, Fact, without_brackets};
use std::collections::HashMap;
use std::hash::{BuildHasher as _, BuildHasherDefault, DefaultHasher};
use std::time::Duration;

/// A line behind its stamp.
pub(super) struct PostfixLine<'a> {
    /// The program without the name of the instance: `smtp`, `qmgr`.
    pub(super) service: &'a str,
    pub(super) pid: &'a str,
    pub(super) time: i64,
    pub(super) text: &'a str,
}

/// The last transactions of each process, by outcome: a process has one at a time.
#[derive(Debug, Default)]
pub(super) struct Transactions(HashMap<(u32, u8), Transaction>);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Transaction {
    id: IdKey,
    host: u64,
    time: i64,
}

impl Transactions {
    /// Numbers of processes that are kept.
    const PROCESSES_MAX: usize = 10_000;

    /// Returns whether a line belongs to no transaction of the lines before.
    fn is_new(&mut self, process: &str, outcome: Outcome, now: Transaction) -> bool {
        if self.0.len() >= Self::PROCESSES_MAX {
            self.0.clear();
        }
        let before = self.0.insert((process.parse().unwrap_or(0), outcome as u8), now);
        !before.is_some_and(|before| {
            (before.id, before.host) == (now.id, now.host) && (0..=1).contains(&now.time.saturating_sub(before.time))
        })
    }
}

/// Facts of earlier lines that later lines depend on.
pub(super) struct PostfixState<'k> {
    pub(super) messages: &'k mut Messages,
    pub(super) transactions: &'k mut Transactions,
}

/// Reads a line.
pub(super) fn read(line: &PostfixLine<'_>, state: &mut PostfixState<'_>, each: &mut impl FnMut(&Fact<'_>)) -> LineUse {
    let Some((id, rest)) = split_at(line.text, b':', ": ") else { return LineUse::Other };
    if let Some(rest) = rest.strip_prefix("reject: ").or_else(|| rest.strip_prefix("milter-reject: ")) {
        each(&Fact::Refusal { text: reply_of_reject(rest) });
        return LineUse::Used;
    }
    if !is_id(id) || id == "NOQUEUE" {
        return LineUse::Other;
    }
    if let Some(to) = rest.strip_prefix("to=") {
        return read_attempt(line, id, to, state, each);
    }
    let messages = &mut *state.messages;
    if let Some(from) = rest.strip_prefix("from=") {
        return read_sender(line, id, from, messages, each);
    }
    if rest.starts_with("client=") || rest.starts_with("uid=") {
        if let Some(message) = messages.entry(id)
            && !message.is_arrived
        {
            message.is_new = true;
        }
        return LineUse::Used;
    }
    if rest.starts_with("message-id=") {
        return LineUse::Used;
    }
    if rest == "removed" {
        messages.remove(id);
        each(&Fact::Ended { id });
        return LineUse::Used;
    }
    if rest.starts_with("sender non-delivery notification: ") || rest.starts_with("sender delay notification: ") {
        each(&Fact::Report);
        return LineUse::Used;
    }
    LineUse::Other
}

/// Splits at the first octet `begin`, if `mark` stands there.
fn split_at<'a>(text: &'a str, begin: u8, mark: &str) -> Option<(&'a str, &'a str)> {
    let at = memchr::memchr(begin, text.as_bytes())?;
    Some((text.get(..at)?, text.get(at..)?.strip_prefix(mark)?))
}

/// The reply in `RCPT from host[ip]: 554 5.7.1 <x@y>: Relay access denied; from=<a@b> …`.
fn reply_of_reject(rest: &str) -> &str {
    let reply = rest.split_once("]: ").map_or(rest, |(_, reply)| reply);
    reply.split_once("; ").map_or(reply, |(reply, _)| reply)
}

/// `<a@b>, size=459, nrcpt=2 (queue active)`, `<a@b>, status=expired, returned to sender`.
fn read_sender(
    line: &PostfixLine<'_>,
    id: &str,
    text: &str,
    messages: &mut Messages,
    each: &mut impl FnMut(&Fact<'_>),
) -> LineUse {
    // `pickup` names the sender before the queue manager does.
    if line.service == "pickup" {
        return LineUse::Used;
    }
    let Some(Recipients { rest, .. }) = recipients(text) else { return LineUse::Broken };
    if rest.starts_with("status=expired") || rest.starts_with("status=force-expired") {
        each(&Fact::Ended { id });
        return LineUse::Used;
    }
    let from = without_brackets(text.get(..text.len() - rest.len() - 2).unwrap_or_default());
    let mut fields = Fields::new(rest);
    let mut value_of = |wanted| fields.find(|(key, _)| *key == wanted).and_then(|(_, value)| number(value));
    let (Some(size), Some(nrcpt)) = (value_of("size"), value_of("nrcpt")) else { return LineUse::Broken };
    let Some(message) = messages.entry(id) else { return LineUse::Other };
    let is_new = std::mem::take(&mut message.is_new);
    message.size = size;
    if is_new {
        message.is_arrived = true;
        each(&Fact::Arrival(Arrival { id, from, size, recipients: nrcpt, client: "" }));
    }
    LineUse::Used
}

/// `<a@b>, relay=mx[10.0.0.1]:25, delay=0.5, delays=…, dsn=2.0.0, status=sent (250 ok)`.
fn read_attempt(
    line: &PostfixLine<'_>,
    id: &str,
    text: &str,
    state: &mut PostfixState<'_>,
    each: &mut impl FnMut(&Fact<'_>),
) -> LineUse {
    let Some(Recipients { to, count, rest }) = recipients(text) else { return LineUse::Broken };
    let (mut relay, mut delay) = ("", None);
    let mut fields = Fields::new(rest);
    let status = loop {
        if let Some(status) = fields.rest().strip_prefix("status=") {
            break status;
        }
        match fields.next() {
            Some(("relay", value)) => relay = value,
            Some(("delay", value)) => {
                delay = value.parse().ok().and_then(|time| Duration::try_from_secs_f64(time).ok())
            }
            Some(_) => {}
            None => return LineUse::Broken,
        }
    };
    let (word, text) = split_at(status, b' ', " (").unwrap_or((status, ""));
    let outcome = match word {
        "sent" => Outcome::Sent,
        "deferred" => Outcome::Deferred,
        "bounced" | "expired" => Outcome::Failed,
        // Probes of addresses, and words of other programs.
        _ => return LineUse::Other,
    };
    let text = text.strip_suffix(")").unwrap_or(text);
    let host = if relay == "none" { "" } else { host_of(relay) };
    let is_transaction = IdKey::of(id).is_none_or(|id| {
        let host = BuildHasherDefault::<DefaultHasher>::default().hash_one(relay);
        state.transactions.is_new(line.pid, outcome, Transaction { id, host, time: line.time })
    });
    let messages = &mut *state.messages;
    let size = messages.get(id).map_or(0, |message| message.size);
    each(&Fact::Attempt(Attempt { id, to, recipients: count, host, outcome, delay, size, text, is_transaction }));
    let came_back = is_transaction && outcome == Outcome::Sent && is_own(relay);
    if came_back && accepted_as(text).is_some_and(|id| is_here(id, messages)) {
        each(&Fact::Handover);
    }
    LineUse::Used
}

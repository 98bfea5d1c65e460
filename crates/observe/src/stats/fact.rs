//! One thing that statistics count, from an event of the server or from a line of a log.

use crate::counters::Outcome;
use crate::sendmail::write_address;
use crate::{Event, Relay};
use std::time::Duration;

/// One thing that is counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fact<'a> {
    /// A message came.
    Arrival(Arrival<'a>),
    /// Recipients of a message have an outcome.
    Attempt(Attempt<'a>),
    /// A client, a command or a message was refused.
    Refusal {
        /// The reply, or the rule.
        text: &'a str,
    },
    /// A report about mail was made.
    Report,
    /// The message of the last attempt went to a filter or another queue of this machine, and its arrival there is
    /// counted too.
    Handover,
    /// An address of a message goes on as a message of its own: a list with an owner.
    Cloned {
        /// The message.
        id: &'a str,
        /// The new one.
        clone: &'a str,
    },
    /// Nothing more happens to a message; recipients without an outcome are given up.
    Ended {
        /// The message.
        id: &'a str,
    },
}

/// A message that came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival<'a> {
    /// Its queue id.
    pub id: &'a str,
    /// The sender, without brackets; empty for the null sender.
    pub from: &'a str,
    /// Octets.
    pub size: u64,
    /// Recipients.
    pub recipients: u64,
    /// The client; empty where the log does not say it.
    pub client: &'a str,
}

/// An attempt to deliver a message to some recipients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attempt<'a> {
    /// The queue id of the message.
    pub id: &'a str,
    /// The recipients.
    pub to: Addresses<'a>,
    /// Their number.
    pub recipients: u64,
    /// The name of the next hop, or its address where it has none; empty where none was tried.
    pub host: &'a str,
    /// The result.
    pub outcome: Outcome,
    /// Since the arrival of the message, where that is known.
    pub delay: Option<Duration>,
    /// Octets of the message; 0 where they are not known.
    pub size: u64,
    /// The reply or the reason.
    pub text: &'a str,
    /// Whether this is a transaction of its own. A log may tell of further recipients of a transaction in further
    /// lines.
    pub is_transaction: bool,
}

/// The recipients of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Addresses<'a> {
    /// As in a line of a log: `<a@b>,<c@d>` or `a@b,c@d`.
    Text(&'a str),
    /// As in an event.
    List(&'a [&'a str]),
}

impl<'a> Addresses<'a> {
    /// Calls `each` with every address, without its brackets.
    pub fn for_each(self, mut each: impl FnMut(&'a str)) {
        match self {
            Self::List(list) => list.iter().for_each(|one| each(without_brackets(one))),
            Self::Text(text) => {
                let mut rest = text;
                while !rest.is_empty() {
                    let end = end_of_address(rest);
                    each(without_brackets(rest.get(..end).unwrap_or(rest).trim()));
                    rest = rest.get(end + 1..).unwrap_or_default();
                }
            }
        }
    }

    /// Returns how many there are.
    #[must_use]
    pub fn count(self) -> u64 {
        let mut count = 0;
        self.for_each(|_| count += 1);
        count
    }
}

/// Returns the address without `<` and `>`.
pub(crate) fn without_brackets(address: &str) -> &str {
    address.strip_prefix("<").and_then(|rest| rest.strip_suffix(">")).unwrap_or(address)
}

/// Returns where the first address of a list ends: at a comma that is in no quoted string.
pub(crate) fn end_of_address(text: &str) -> usize {
    let (mut is_quoted, mut is_escaped, mut before) = (false, false, b'<');
    for (at, octet) in text.bytes().enumerate() {
        match octet {
            _ if is_escaped => is_escaped = false,
            b'\\' if is_quoted => is_escaped = true,
            // RFC 5321 §4.1.2: a local part is quoted as a whole.
            b'"' if is_quoted || before == b'<' => is_quoted = !is_quoted,
            b',' if !is_quoted => return at,
            _ => {}
        }
        before = octet;
    }
    // A quotation mark without its pair belongs to a local part that is not quoted.
    if is_quoted { text.find(',').unwrap_or(text.len()) } else { text.len() }
}

impl Fact<'_> {
    /// Calls `each` with the fact of an event, if it has one. An id is written into `id`.
    pub fn of_event(event: &Event<'_>, each: impl FnOnce(&Fact<'_>)) {
        let mut id_text = [0; mail::QueueId::TEXT_LEN];
        let mut text = |id: mail::QueueId| id_text = id.text();
        match *event {
            Event::Accepted { id, from, size, nrcpts, relay, .. } => {
                text(id);
                let id = std::str::from_utf8(&id_text).unwrap_or_default();
                let client = match relay {
                    Relay::Host { name, .. } => name.unwrap_or_default(),
                    Relay::Local { user } => user,
                };
                let recipients = u64::try_from(nrcpts).unwrap_or(u64::MAX);
                each(&Fact::Arrival(Arrival { id, from: without_brackets(from), size, recipients, client }));
            }
            Event::Delivery { id, to, delay, relay, stat, .. } => {
                text(id);
                // A next hop without a name has its address in place of it, as in the log.
                let mut literal = String::new();
                if let (None, Some(address)) = (relay.name(), relay.address()) {
                    write_address(address, &mut literal);
                }
                each(&Fact::Attempt(Attempt {
                    id: std::str::from_utf8(&id_text).unwrap_or_default(),
                    to: Addresses::List(to),
                    recipients: u64::try_from(to.len()).unwrap_or(u64::MAX),
                    host: relay.name().unwrap_or(&literal),
                    outcome: Outcome::of(stat),
                    delay: Some(delay),
                    size: 0,
                    text: stat.text(),
                    is_transaction: true,
                }));
            }
            Event::Rejected { reply, ruleset, .. } => {
                each(&Fact::Refusal { text: refused_command(ruleset.name(), first_line(reply)) });
            }
            Event::ConnectionRefused { limit, reply, .. } => {
                each(&Fact::Refusal { text: refused_connection(limit.name(), first_line(reply)) });
            }
            // A limit that refuses something also has the event of the refusal.
            Event::Reported { .. } => each(&Fact::Report),
            _ => {}
        }
    }
}

fn first_line(reply: &mail::Reply) -> &str {
    reply.lines().next().unwrap_or_default()
}

/// The refusal of VRFY and EXPN, of which a log in sendmail's form has no reply.
pub(crate) const COMMAND_REJECTED: &str = "command rejected";
/// The refusal of a connection for all clients, of which a log in sendmail's form has no reply.
pub(crate) const TOO_MANY_CONNECTIONS: &str = "too many connections";

/// Returns the words for a refused command.
pub(crate) fn refused_command<'a>(ruleset: &str, reply: &'a str) -> &'a str {
    if ["check_vrfy", "check_expn"].contains(&ruleset) { COMMAND_REJECTED } else { reply }
}

/// Returns the words for a refused connection.
pub(crate) fn refused_connection<'a>(limit: &str, reply: &'a str) -> &'a str {
    let is_for_all = ["accept.connections_max", "listen.connections_max", "accept.rate"].contains(&limit);
    if is_for_all { TOO_MANY_CONNECTIONS } else { reply }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn addresses(text: &str) -> Vec<&str> {
        let mut found = Vec::new();
        Addresses::Text(text).for_each(|one| found.push(one));
        found
    }

    #[test]
    fn lists_are_split_at_commas_outside_of_quotes() {
        assert_eq!(addresses("<a@b>,<c@d>"), ["a@b", "c@d"]);
        assert_eq!(addresses("a@b,c@d"), ["a@b", "c@d"]);
        assert_eq!(addresses("<\"a,\\\"b\"@c>,<d@e>"), ["\"a,\\\"b\"@c", "d@e"]);
        assert_eq!(addresses("<a\"b@c>,<d@e>"), ["a\"b@c", "d@e"], "an unpaired quotation mark");
        assert_eq!(addresses(""), [""; 0]);
        assert_eq!(Addresses::List(&["<a@b>"]).count(), 1);
    }
}

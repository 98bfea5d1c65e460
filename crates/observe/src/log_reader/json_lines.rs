//! Lines of this server as JSON, as [`crate::json`] writes them.
//!
//! Values are found by their keys without a parser: the writer escapes every quotation mark inside of a string, so
//! `,"key":` stands in a line only where it is a key.

use super::LineUse;
use super::fields::number;
use super::messages::Messages;
use crate::counters::Outcome;
use crate::stats::{Addresses, Arrival, Attempt, Fact, refused_command, refused_connection, without_brackets};
use std::borrow::Cow;
use std::time::Duration;

/// Reads an object.
pub(super) fn read(line: &str, messages: &mut Messages, each: &mut impl FnMut(&Fact<'_>)) -> LineUse {
    if !line.ends_with('}') {
        return LineUse::Broken;
    }
    let Some(event) = raw(line, ",\"event\":").and_then(string) else { return LineUse::Broken };
    match &*event {
        "accepted" => read_arrival(line, messages, each),
        "sent" => read_attempt(line, Outcome::Sent, messages, each),
        "deferred" => read_attempt(line, Outcome::Deferred, messages, each),
        "failed" => read_attempt(line, Outcome::Failed, messages, each),
        "reported" => {
            each(&Fact::Report);
            Some(())
        }
        "discarded" => raw(line, ",\"id\":").and_then(string).map(|id| {
            messages.remove(&id);
            each(&Fact::Ended { id: &id });
        }),
        "rejected" => {
            let ruleset = raw(line, ",\"ruleset\":").and_then(string).unwrap_or_default();
            let reply = raw(line, ",\"reply\":").and_then(string);
            reply.map(|reply| each(&Fact::Refusal { text: refused_command(&ruleset, &reply) }))
        }
        "connection_refused" => {
            let limit = raw(line, ",\"limit\":").and_then(string).unwrap_or_default();
            let reply = raw(line, ",\"reply\":").and_then(string);
            reply.map(|reply| each(&Fact::Refusal { text: refused_connection(&limit, &reply) }))
        }
        _ => return LineUse::Other,
    }
    .map_or(LineUse::Broken, |()| LineUse::Used)
}

fn read_arrival(line: &str, messages: &mut Messages, each: &mut impl FnMut(&Fact<'_>)) -> Option<()> {
    let text = |key| raw(line, key).and_then(string);
    let (id, from) = (text(",\"id\":")?, text(",\"from\":")?);
    let (size, recipients) = (number(raw(line, ",\"size\":")?)?, number(raw(line, ",\"nrcpts\":")?)?);
    let client = text(",\"client_name\":").or_else(|| text(",\"client_user\":")).unwrap_or_default();
    if let Some(message) = messages.entry(&id) {
        (message.size, message.is_arrived) = (size, true);
    }
    let from = without_brackets(&from);
    each(&Fact::Arrival(Arrival { id: &id, from, size, recipients, client: &client }));
    Some(())
}

fn read_attempt(line: &str, outcome: Outcome, messages: &mut Messages, each: &mut impl FnMut(&Fact<'_>)) -> Option<()> {
    let text = |key| raw(line, key).and_then(string);
    let id = text(",\"id\":")?;
    let to = strings(raw(line, ",\"to\":")?)?;
    let list: Vec<&str> = to.iter().map(|one| &**one).collect();
    let delay = raw(line, ",\"delay\":")?;
    let delay = delay.get(..memchr::memchr2(b',', b'}', delay.as_bytes()).unwrap_or(delay.len()))?.parse().ok()?;
    let host = text(",\"relay\":").or_else(|| text(",\"relay_ip\":").map(|address| literal(&address).into()));
    let host = host.unwrap_or_default();
    let size = messages.get(&id).map_or(0, |message| message.size);
    let recipients = u64::try_from(list.len()).ok()?;
    each(&Fact::Attempt(Attempt {
        id: &id,
        to: Addresses::List(&list),
        recipients,
        host: &host,
        outcome,
        delay: Duration::try_from_secs_f64(delay).ok(),
        size,
        text: &text(",\"text\":").unwrap_or_default(),
        is_transaction: true,
    }));
    Some(())
}

/// Returns an address as lines in sendmail's form have it in place of a name.
fn literal(address: &str) -> String {
    if address.contains(':') { format!("[IPv6:{address}]") } else { format!("[{address}]") }
}

/// Returns the line from the value of a key on; the key stands there with all that surrounds it, as `,"from":`.
fn raw<'a>(line: &'a str, key: &str) -> Option<&'a str> {
    line.get(memchr::memmem::find(line.as_bytes(), key.as_bytes())? + key.len()..)
}

/// Reads a string at the beginning of a text.
fn string(text: &str) -> Option<Cow<'_, str>> {
    text_and_rest(text).map(|(text, _)| text)
}

fn strings(text: &str) -> Option<Vec<Cow<'_, str>>> {
    let mut rest = text.strip_prefix("[")?;
    let mut found = Vec::new();
    while !rest.starts_with(']') {
        let (text, behind) = text_and_rest(rest)?;
        found.push(text);
        rest = behind.strip_prefix(",").unwrap_or(behind);
    }
    Some(found)
}

fn text_and_rest(text: &str) -> Option<(Cow<'_, str>, &str)> {
    let text = text.strip_prefix("\"")?;
    let end = memchr::memchr2(b'"', b'\\', text.as_bytes())?;
    if text.as_bytes().get(end) == Some(&b'"') {
        return Some((Cow::Borrowed(text.get(..end)?), text.get(end + 1..)?));
    }
    let mut out = String::new();
    let mut rest = text;
    loop {
        let at = memchr::memchr2(b'"', b'\\', rest.as_bytes())?;
        out.push_str(rest.get(..at)?);
        let behind = rest.get(at + 1..)?;
        if rest.as_bytes().get(at) == Some(&b'"') {
            return Some((Cow::Owned(out), behind));
        }
        rest = push_escaped(behind, &mut out)?;
    }
}

/// Appends the character of an escape behind its backslash, and returns the text behind it.
// RFC 8259 §7
fn push_escaped<'a>(text: &'a str, out: &mut String) -> Option<&'a str> {
    let kind = text.chars().next()?;
    let mut rest = text.get(kind.len_utf8()..)?;
    match kind {
        'n' => out.push('\n'),
        'r' => out.push('\r'),
        't' => out.push('\t'),
        'u' => {
            let mut units = vec![u16::from_str_radix(rest.get(..4)?, 16).ok()?];
            rest = rest.get(4..)?;
            if (0xD800..0xDC00).contains(units.first()?)
                && let Some(second) = rest.strip_prefix("\\u").and_then(|rest| rest.get(..4))
            {
                units.push(u16::from_str_radix(second, 16).ok()?);
                rest = rest.get(6..)?;
            }
            out.push_str(&String::from_utf16_lossy(&units));
        }
        other => out.push(other),
    }
    Some(rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_read_back() {
        let read = |text| string(text).map(Cow::into_owned);
        assert_eq!(read("\"abc\",\"x\":1"), Some("abc".to_owned()));
        assert_eq!(read("\"a\\\"b\\u001b\\ud83d\\ude00\\\\\""), Some("a\"b\u{1b}\u{1f600}\\".to_owned()));
        assert_eq!([read("\"abc"), read("\"a\\u12"), read("1")], [None, None, None]);
        assert_eq!(strings("[\"<a@b>\",\"<c@d>\"],").map(|list| list.len()), Some(2));
        assert_eq!(raw("{\"ts\":\"x\",\"a\":\"\\\"to\\\":\",\"to\":[]}", ",\"to\":"), Some("[]}"));
    }
}

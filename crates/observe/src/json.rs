//! Events as JSON, one object per line.
//!
//! `ts`, `event`, `level`, `severity` are always there; `stop` and `id` where the event has them; then the values of
//! the event under the names of sendmail's fields. Fields without a value are left out, never `null`. Strings hold the
//! original text, without the escapes of sendmail's form; only the very long are cut. Written by hand: a line per
//! message is made at storm rates, and objects, names and numbers of ours need no library; a test reads them back with
//! one.

use crate::Event;
use crate::escape::{self, is_unsafe};
use crate::fields::{Value, Visitor};
use crate::sendmail::split;
use std::fmt::Write as _;

/// Longest string, in octets of UTF-8 before JSON's own escapes.
pub const STRING_MAX: usize = 1_200;
/// Most strings in a list.
const LIST_MAX: usize = 100;

/// Appends the object, without a line end. `ts` is the moment as RFC 3339 has it, in UTC with microseconds.
///
/// A list of recipients may need several lines: then the rest is returned as an event to write next.
pub fn write<'a>(event: &Event<'a>, ts: &str, out: &mut String) -> Option<Event<'a>> {
    let class = event.class();
    let (event, rest) = split(event);
    out.push_str("{\"ts\":");
    string(ts, out);
    out.push_str(",\"event\":\"");
    out.push_str(class.name);
    out.push('"');
    if let Some(stop) = class.stop {
        out.push_str(",\"stop\":\"");
        out.push_str(stop.name());
        out.push('"');
    }
    put(out, format_args!(",\"level\":{},\"severity\":\"{}\"", class.level, class.severity.name()));
    if let Some(id) = event.id() {
        out.push_str(",\"id\":\"");
        escape::push_id(out, id);
        out.push('"');
    }
    event.visit(&mut Visitor(&mut |name, field| {
        out.push_str(",\"");
        out.push_str(name);
        out.push_str("\":");
        value(field, out);
    }));
    if let Some(reply) = event.reply() {
        if let Some(enhanced) = reply.enhanced() {
            put(out, format_args!(",\"enhanced\":\"{enhanced}\""));
        }
        out.push_str(",\"reply\":\"");
        let mut room = STRING_MAX;
        for (index, line) in reply.lines().enumerate() {
            if index > 0 && room > 0 {
                out.push(' ');
                room -= 1;
            }
            room -= characters(line, room, out);
        }
        out.push('"');
    }
    out.push('}');
    rest
}

fn value(value: Value<'_>, out: &mut String) {
    match value {
        Value::Text(text) => string(text, out),
        Value::Number(number) => put(out, format_args!("{number}")),
        Value::Signed(number) => put(out, format_args!("{number}")),
        Value::Seconds(time) => put(out, format_args!("{}.{:03}", time.as_secs(), time.subsec_millis())),
        Value::Flag(flag) => out.push_str(if flag { "true" } else { "false" }),
        Value::Id(id) => {
            out.push('"');
            escape::push_id(out, id);
            out.push('"');
        }
        Value::Enhanced(code) => put(out, format_args!("\"{code}\"")),
        Value::Address(address) => put(out, format_args!("\"{address}\"")),
        Value::Socket(address) => put(out, format_args!("\"{address}\"")),
        Value::Texts(texts) => list(texts.iter().map(String::as_str), out),
        Value::List(texts) => list(texts.iter().copied(), out),
    }
}

fn list<'a>(texts: impl Iterator<Item = &'a str>, out: &mut String) {
    out.push('[');
    let mut room = STRING_MAX;
    for (index, text) in texts.take(LIST_MAX).enumerate() {
        if room == 0 {
            break;
        }
        out.push_str(if index > 0 { ",\"" } else { "\"" });
        room -= characters(text, room, out);
        out.push('"');
    }
    out.push(']');
}

// RFC 8259 §7
fn string(text: &str, out: &mut String) {
    out.push('"');
    characters(text, STRING_MAX, out);
    out.push('"');
}

/// Appends at most `max` octets of the text, escaped, and says how many it were before the escapes.
fn characters(text: &str, max: usize, out: &mut String) -> usize {
    let end = if text.len() <= max { text.len() } else { text.floor_char_boundary(max) };
    let text = text.get(..end).unwrap_or_default();
    if text.bytes().all(|b| matches!(b, b' '..=b'~') && b != b'"' && b != b'\\') {
        out.push_str(text);
        return end;
    }
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            c if is_unsafe(c) => {
                c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| put(out, format_args!("\\u{unit:04x}")));
            }
            c => out.push(c),
        }
    }
    end
}

fn put(out: &mut String, arguments: std::fmt::Arguments<'_>) {
    out.write_fmt(arguments).expect("a string takes everything");
}

//! Text from other servers and users, made safe for a terminal: what [`mail::is_unprintable`] names is never printed as
//! it is.

use serde_json::Value;
use std::borrow::Cow;

/// Text from elsewhere on a line of its own for a terminal: nothing in it moves the cursor, turns the order of the line
/// or is not seen.
pub(crate) fn plain(text: &str) -> String {
    text.chars().map(|c| if mail::is_unprintable(c) { '?' } else { c }).collect()
}

/// The same for text that has lines and columns.
pub(crate) fn plain_lines(text: &str) -> Cow<'_, str> {
    let is_bad = |c: char| mail::is_unprintable(c) && !matches!(c, '\n' | '\t');
    if !text.contains(is_bad) {
        return Cow::Borrowed(text);
    }
    text.chars().map(|c| if is_bad(c) { '?' } else { c }).collect()
}

/// A value on one line, with unprintable characters escaped (RFC 8259 §7).
pub(crate) fn plain_json(value: &Value) -> String {
    let text = value.to_string();
    if !text.contains(mail::is_unprintable) {
        return text;
    }
    let mut out = String::with_capacity(text.len() + 32);
    for c in text.chars() {
        if mail::is_unprintable(c) {
            // Outside of strings JSON has none of them.
            c.encode_utf16(&mut [0; 2]).iter().for_each(|unit| out.push_str(&format!("\\u{unit:04x}")));
        } else {
            out.push(c);
        }
    }
    out
}

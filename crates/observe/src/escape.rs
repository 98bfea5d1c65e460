//! Text from outside on its way into a line: nothing in it can end the line, fake a field, or make the line endless.
//!
//! Control characters (C0, DEL, C1), the separators U+2028 and U+2029, marks that turn the direction of writing and
//! other characters that are not seen ([`mail::is_unprintable`]) become `\ooo`, three octal digits for each octet, as
//! sendmail prints them. Other UTF-8 stays as it is, and so does the backslash, so that quoted local parts look as they
//! do in sendmail's log; a reader that needs the exact octets reads JSON. A value that is too long ends in `...`, and
//! an escape is never cut through.

/// Where the text stands in the line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TextPosition {
    /// A word: a space becomes `\040` and a comma `\054`, since a space of ours may follow.
    Word,
    /// A value that other fields follow: the space in `, ` becomes `\040`, so that a line splits at `, ` into the
    /// fields that we wrote.
    Value,
    /// One of several values with commas between them; otherwise as `Value`.
    Item,
    /// The end of the line: spaces and commas are as they are.
    End,
}

/// The end of a shortened value.
const CUT: &str = "...";

/// Appends `text`, escaped for its place, at most `max` octets.
pub(crate) fn push(out: &mut String, text: &str, place: TextPosition, max: usize) {
    if text.len() <= max && is_plain(text, place) {
        out.push_str(text);
        return;
    }
    let start = out.len();
    // Up to here there is room for the mark of a cut.
    let mut keep = start;
    let mut before = if place == TextPosition::Item { ',' } else { '\0' };
    for c in text.chars() {
        push_char(out, c, before, place);
        before = c;
        let length = out.len() - start;
        if length > max {
            out.truncate(keep);
            out.push_str(CUT);
            return;
        }
        if length + CUT.len() <= max {
            keep = out.len();
        }
    }
}

/// Appends a queue id.
pub(crate) fn push_id(out: &mut String, id: mail::QueueId) {
    let text = id.text();
    out.push_str(str::from_utf8(&text).unwrap_or_default());
}

/// How many octets [`push`] appends at most.
pub(crate) fn cost(text: &str, place: TextPosition, max: usize) -> usize {
    if is_plain(text, place) { text.len().min(max) } else { max }
}

/// True when nothing has to be escaped; may say false too often.
fn is_plain(text: &str, place: TextPosition) -> bool {
    match place {
        TextPosition::Word => text.bytes().all(|b| b.is_ascii_graphic() && b != b','),
        TextPosition::End => text.bytes().all(|b| matches!(b, b' '..=b'~')),
        TextPosition::Value | TextPosition::Item => {
            let mut before = if place == TextPosition::Item { b',' } else { 0 };
            text.bytes().all(|b| {
                let plain = matches!(b, b' '..=b'~') && !(b == b' ' && before == b',');
                before = b;
                plain
            })
        }
    }
}

fn push_char(out: &mut String, c: char, before: char, place: TextPosition) {
    let escaped = match place {
        TextPosition::Word => is_unsafe(c) || c.is_whitespace() || c == ',',
        TextPosition::Value | TextPosition::Item => is_unsafe(c) || (c == ' ' && before == ','),
        TextPosition::End => is_unsafe(c),
    };
    if !escaped {
        out.push(c);
        return;
    }
    let mut octets = [0; 4];
    for octet in c.encode_utf8(&mut octets).bytes() {
        out.push('\\');
        for shift in [6, 3, 0] {
            out.push(char::from(b'0' + ((octet >> shift) & 7)));
        }
    }
}

/// True for characters that could end a line, move a terminal's cursor, or make a line read otherwise than it is.
pub(crate) const fn is_unsafe(c: char) -> bool {
    mail::is_unprintable(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pushed(text: &str, place: TextPosition, max: usize) -> String {
        let mut out = String::new();
        push(&mut out, text, place, max);
        out
    }

    #[test]
    fn what_is_escaped_and_what_is_not() {
        let table = [
            (TextPosition::Value, "<a@b>", "<a@b>"),
            (TextPosition::Value, "<\"a\\\"b\"@c>", "<\"a\\\"b\"@c>"),
            (TextPosition::Value, "<a,b@c>", "<a,b@c>"),
            (TextPosition::Value, "<a, relay=[10.0.0.1]>", "<a,\\040relay=[10.0.0.1]>"),
            (TextPosition::Value, "a\r\nb\0\x7f", "a\\015\\012b\\000\\177"),
            (TextPosition::Value, "grün", "grün"),
            (TextPosition::Value, "a\u{85}b", "a\\302\\205b"),
            (TextPosition::End, "5.7.1 no, \u{202e}never", "5.7.1 no, \\342\\200\\256never"),
            (TextPosition::Word, "a b,", "a\\040b\\054"),
            (TextPosition::End, "a\u{2066}b\u{200b}\u{e0041}", "a\\342\\201\\246b\\342\\200\\213\\363\\240\\201\\201"),
            (TextPosition::Item, " a", "\\040a"),
            (TextPosition::Word, "a\u{a0}b", "a\\302\\240b"),
        ];
        for (place, text, line) in table {
            assert_eq!(pushed(text, place, 100), line);
        }
    }

    #[test]
    fn long_values_are_cut_between_characters() {
        assert_eq!(pushed("abcdefgh", TextPosition::Value, 8), "abcdefgh");
        assert_eq!(pushed("abcdefghi", TextPosition::Value, 8), "abcde...");
        assert_eq!(pushed("abcd\r\n", TextPosition::Value, 8), "abcd...");
        assert_eq!(pushed("aü\u{fc}üü", TextPosition::Value, 8), "aüü...");
    }
}

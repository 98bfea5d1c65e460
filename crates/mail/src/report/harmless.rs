//! Foreign text made fit to stand in a report.
//!
//! Replies, names and subjects come from any peer. They must not begin a line or a field of their own, hide or reorder
//! the text beside them, or fill the report.

use std::borrow::Cow;

/// Longest name of a server that is shown, in octets.
pub(super) const NAME_OCTETS_MAX: usize = 255;

/// The text on one line of at most `octets_max`, with `?` for characters that are not visible: controls, separators of
/// lines, and marks that turn the direction of writing.
pub(super) fn line(text: &str, octets_max: usize) -> Cow<'_, str> {
    let text = text.trim();
    let cut = text.get(..text.floor_char_boundary(octets_max)).unwrap_or_default();
    if cut.len() == text.len() && !cut.contains(is_harmful) {
        return Cow::Borrowed(cut);
    }
    let mut out: String = cut.chars().map(|c| if is_harmful(c) { '?' } else { c }).collect();
    if cut.len() < text.len() {
        out.push_str("...");
    }
    Cow::Owned(out)
}

/// The same in ASCII, for fields that have no encoding.
pub(super) fn ascii_line(text: &str, octets_max: usize) -> String {
    line(text, octets_max).chars().map(|c| if c.is_ascii() { c } else { '?' }).collect()
}

/// A host's name for addresses and identifiers that we make: only characters of a domain or a literal.
pub(super) fn host(name: &str) -> String {
    let name = crate::address::DomainName::new(name).map_or_else(|_| name.to_owned(), |name| name.ascii().to_owned());
    let kept = |c: &char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '[' | ']' | ':');
    let name: String = name.chars().filter(kept).take(NAME_OCTETS_MAX).collect();
    if name.is_empty() { "localhost".to_owned() } else { name }
}

fn is_harmful(c: char) -> bool {
    crate::is_unprintable(c)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines() {
        assert_eq!(line(" a\r\nTo: b\0\u{202e}\u{2028}\u{85}c ", 100), "a??To: b????c");
        assert_eq!(line("\u{fc}\u{fc}\u{fc}", 3), "\u{fc}...");
        assert!(matches!(line("gr\u{fc}n", 100), Cow::Borrowed("gr\u{fc}n")));
        assert_eq!(ascii_line("gr\u{fc}n", 100), "gr?n");
    }

    #[test]
    fn hosts() {
        assert_eq!(host("Mail.Example"), "mail.example");
        assert_eq!(host("m\u{fc}ller.example"), "xn--mller-kva.example");
        assert_eq!(host("a>\r\nb"), "ab");
        assert_eq!(host(""), "localhost");
        assert_eq!(host("[192.0.2.1]"), "[192.0.2.1]");
    }
}

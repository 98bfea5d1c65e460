//! Characters that a line for people must not show as they are: they move a terminal's cursor, end a line, or make text
//! read otherwise than it is.
//!
//! Addresses, replies and header fields come from outside, and since RFC 6531 they may hold any character. Log lines,
//! answers of commands and reports escape or replace what [`is_unprintable`] names.

/// Whether a character is a control, a line or paragraph separator, or a format character without a shape of its own.
///
/// - Controls: C0, DEL and C1, where U+009B begins a command to a terminal as ESC and `[` do.
/// - U+2028 and U+2029 end a line in some viewers.
/// - Marks of bidirectional text turn the order of the text behind them: U+202E shows `fdp.exe` for `exe.pdf` (Unicode
///   Technical Report 36, section 2.8).
/// - Default ignorable characters (Unicode 15.1, `DerivedCoreProperties`) and other format controls are not seen: two
///   addresses that look the same may differ in them.
#[must_use]
pub const fn is_unprintable(c: char) -> bool {
    match c {
        ' '..='~' => false,
        '\0'..='\u{9f}' => true,
        _ => is_separator_or_format(c),
    }
}

const fn is_separator_or_format(c: char) -> bool {
    matches!(
        c,
        '\u{ad}'
            | '\u{34f}'
            | '\u{61c}'
            | '\u{70f}'
            | '\u{115f}'..='\u{1160}'
            | '\u{17b4}'..='\u{17b5}'
            | '\u{180b}'..='\u{180f}'
            | '\u{200b}'..='\u{200f}'
            | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}'
            | '\u{3164}'
            | '\u{fe00}'..='\u{fe0f}'
            | '\u{feff}'
            | '\u{ffa0}'
            | '\u{fff0}'..='\u{fffb}'
            | '\u{13430}'..='\u{1343f}'
            | '\u{1bca0}'..='\u{1bca3}'
            | '\u{1d173}'..='\u{1d17a}'
            | '\u{e0000}'..='\u{e0fff}'
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_people_can_see_and_what_not() {
        for c in [
            '\0', '\n', '\u{1b}', '\u{7f}', '\u{80}', '\u{9b}', '\u{ad}', '\u{200b}', '\u{200d}', '\u{2028}',
            '\u{2029}',
        ] {
            assert!(is_unprintable(c), "{c:?}");
        }
        // Each mark of the bidirectional algorithm: ALM, LRM, RLM, LRE, RLE, PDF, LRO, RLO, LRI, RLI, FSI, PDI.
        for c in
            "\u{61c}\u{200e}\u{200f}\u{202a}\u{202b}\u{202c}\u{202d}\u{202e}\u{2066}\u{2067}\u{2068}\u{2069}".chars()
        {
            assert!(is_unprintable(c), "{c:?}");
        }
        for c in [
            '\u{2060}',
            '\u{2064}',
            '\u{206a}',
            '\u{feff}',
            '\u{fe0f}',
            '\u{fffb}',
            '\u{e0001}',
            '\u{e007f}',
            '\u{e01ef}',
        ] {
            assert!(is_unprintable(c), "{c:?}");
        }
        for c in " ~aüß€漢עא\u{a0}\u{2007}\u{fffd}😀".chars() {
            assert!(!is_unprintable(c), "{c:?}");
        }
    }
}

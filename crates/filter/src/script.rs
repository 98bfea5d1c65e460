//! The writing system of a text: the share of its letters that are Han, Cyrillic, Arabic, …
//!
//! Charsets and spellings do not matter here, since the text is decoded. Digits, punctuation and symbols count for no
//! script (Unicode calls theirs Common), and neither does the markup of HTML.

use unicode_script::{Script, UnicodeScript as _};

/// Finds a script by its name in Unicode, such as `Han`, or its code in ISO 15924, such as `Hani`, in any case of
/// letters.
#[must_use]
pub fn by_name(name: &str) -> Option<Script> {
    let words: Vec<String> = name.split(['_', ' ']).map(capitalised).collect();
    let found = Script::from_full_name(&words.join("_")).or_else(|| Script::from_short_name(&capitalised(name)));
    found.filter(|script| !matches!(script, Script::Common | Script::Inherited | Script::Unknown))
}

fn capitalised(word: &str) -> String {
    let mut letters = word.chars();
    let first = letters.next().map(|letter| letter.to_ascii_uppercase());
    first.into_iter().chain(letters.map(|letter| letter.to_ascii_lowercase())).collect()
}

/// The letters of a text by script.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct Letters {
    /// Scripts with the number of their letters, in the order of appearance.
    counts: Vec<(Script, usize)>,
    all: usize,
}

impl Letters {
    /// Counts the letters of a text. With `is_html`, text between `<` and `>` does not count.
    ///
    /// ```
    /// let letters = filter::script::Letters::of("OK \u{67e5}\u{6536}!", false);
    /// assert_eq!(letters.percent(filter::script::by_name("han").unwrap()), 50);
    /// ```
    #[must_use]
    pub fn of(text: &str, is_html: bool) -> Self {
        let mut out = Self::default();
        let mut latin = 0;
        let mut rest = text;
        while !rest.is_empty() {
            let (shown, behind) = if is_html { split_markup(rest) } else { (rest, "") };
            for letter in shown.chars() {
                if letter.is_ascii() {
                    latin += usize::from(letter.is_ascii_alphabetic());
                } else if letter.is_alphabetic() {
                    out.add(letter.script(), 1);
                }
            }
            rest = behind;
        }
        if latin > 0 {
            out.add(Script::Latin, latin);
        }
        out
    }

    fn add(&mut self, script: Script, letters: usize) {
        if matches!(script, Script::Common | Script::Inherited | Script::Unknown) {
            return;
        }
        self.all += letters;
        match self.counts.iter_mut().find(|(known, _)| *known == script) {
            Some((_, count)) => *count += letters,
            None => self.counts.push((script, letters)),
        }
    }

    /// Returns the number of letters of a script.
    #[must_use]
    pub fn count(&self, script: Script) -> usize {
        self.counts.iter().find(|(known, _)| *known == script).map_or(0, |(_, count)| *count)
    }

    /// Returns the share of a script in percent, rounded down; 0 for a text without letters.
    #[must_use]
    pub fn percent(&self, script: Script) -> usize {
        (self.count(script) * 100).checked_div(self.all).unwrap_or(0)
    }
}

/// Splits HTML into the text before the next tag and the rest behind the tag. A `<` that opens none is text.
fn split_markup(html: &str) -> (&str, &str) {
    let tag = html.match_indices('<').find(|(at, _)| {
        let first = html.get(at + 1..).and_then(|rest| rest.chars().next());
        first.is_some_and(|first| first.is_ascii_alphabetic() || matches!(first, '/' | '!' | '?'))
    });
    let Some((start, _)) = tag else { return (html, "") };
    let (shown, tag) = html.split_at_checked(start).unwrap_or((html, ""));
    let is_hidden = |name: &str| tag.get(1..=name.len()).is_some_and(|word| word.eq_ignore_ascii_case(name));
    // Style sheets and scripts are long, Latin and not shown.
    let closing = if is_hidden("style") {
        "</style"
    } else if is_hidden("script") {
        "</script"
    } else {
        ">"
    };
    let end = find_ignoring_case(tag, closing).map(|at| at + if closing == ">" { 1 } else { 0 });
    // A tag without an end is text.
    match end {
        Some(end) => (shown, tag.get(end..).unwrap_or_default()),
        None if shown.is_empty() => (tag, ""),
        None => (shown, tag.get(1..).unwrap_or_default()),
    }
}

fn find_ignoring_case(text: &str, wanted: &str) -> Option<usize> {
    if wanted.len() == 1 {
        return text.find(wanted);
    }
    text.match_indices("</")
        .map(|(at, _)| at)
        .find(|at| text.get(*at..at + wanted.len()).is_some_and(|found| found.eq_ignore_ascii_case(wanted)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn percent(text: &str, is_html: bool, script: &str) -> usize {
        Letters::of(text, is_html).percent(by_name(script).unwrap())
    }

    #[test]
    fn names() {
        assert_eq!(by_name("HAN"), Some(Script::Han));
        assert_eq!(by_name("Hani"), Some(Script::Han));
        assert_eq!(by_name("cyrillic"), Some(Script::Cyrillic));
        assert_eq!(by_name("old italic"), Some(Script::Old_Italic));
        for none in ["", "Chinese", "common", "\u{fc}"] {
            assert_eq!(by_name(none), None, "{none}");
        }
    }

    #[test]
    fn shares() {
        assert_eq!(percent("\u{8bf7}\u{67e5}\u{6536}\u{ff01}", false, "Han"), 100);
        assert_eq!(percent("abc \u{8bf7} 123", false, "Han"), 25);
        assert_eq!(percent("\u{41f}\u{440}\u{438}\u{432}\u{435}\u{442} ok", false, "Cyrillic"), 75);
        assert_eq!(percent("123 !!! \u{3002}", false, "Han"), 0);
        assert_eq!(percent("", true, "Latin"), 0);
    }

    #[test]
    fn markup_does_not_count() {
        let html = "<html><style>p { color: red }</style><p class=long>\u{8bf7}\u{67e5}</p><script>var x</script >";
        assert_eq!(percent(html, true, "Han"), 100);
        assert_eq!(percent("a < b \u{8bf7}\u{8bf7}<unfinished", true, "Han"), 14, "text where no tag ends");
        assert_eq!(percent("<style>\u{8bf7}", true, "Han"), 16);
    }
}

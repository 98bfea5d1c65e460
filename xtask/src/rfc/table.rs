//! The marks as a printed table, as JSON, and as the page `docs/rfc-status.md`.
//!
//! All three are sorted by RFC, section and place, so the same marks always give the same bytes.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write;

use serde_json::json;

use super::mark::{Malformed, Mark, Says};

/// Titles for the page; an RFC that is missing here is listed by its number.
const TITLES: &[(u32, &str)] = &[
    (821, "Simple Mail Transfer Protocol (1982)"),
    (822, "Standard for ARPA Internet text messages (1982)"),
    (1047, "Duplicate messages and SMTP"),
    (1123, "Requirements for Internet hosts"),
    (1870, "SIZE"),
    (2033, "Local Mail Transfer Protocol"),
    (2034, "Enhanced error codes in SMTP"),
    (2045, "MIME: format of bodies"),
    (2046, "MIME: media types"),
    (2047, "MIME: words in headers"),
    (2183, "Content-Disposition"),
    (2231, "MIME: parameter values"),
    (2369, "URLs as meta-syntax for mail list commands"),
    (2822, "Internet Message Format (2001)"),
    (2852, "Deliver By"),
    (2920, "PIPELINING"),
    (3030, "CHUNKING and BINARYMIME"),
    (3207, "STARTTLS"),
    (3461, "SMTP extension for delivery status notifications"),
    (3462, "multipart/report (2003)"),
    (3463, "Enhanced status codes"),
    (3464, "Delivery status notifications: message format"),
    (3720, "iSCSI (CRC-32C)"),
    (3834, "Automatic responses"),
    (4291, "IPv6 addressing"),
    (4648, "Base64"),
    (4865, "FUTURERELEASE"),
    (4954, "AUTH"),
    (5321, "Simple Mail Transfer Protocol"),
    (5322, "Internet Message Format"),
    (5891, "IDNA protocol"),
    (5952, "Text form of IPv6 addresses"),
    (6152, "8BITMIME"),
    (6409, "Message submission"),
    (6522, "multipart/report"),
    (6531, "SMTPUTF8"),
    (6532, "Internationalized headers"),
    (6533, "Internationalized delivery status notifications"),
    (6710, "MT-PRIORITY"),
    (7504, "Codes 521 and 556"),
    (7505, "Null MX"),
];

/// Where a section is done, tested and incomplete.
#[derive(Default)]
pub(super) struct Section {
    done: BTreeSet<(String, usize)>,
    test: BTreeSet<(String, usize)>,
    gap: BTreeSet<(String, String, usize)>,
}

/// RFC number, then the section in the order a reader expects (2 before 10).
type Key = (u32, Vec<(u32, String)>, String);

/// All sections, sorted.
pub(super) fn sections(marks: &[Mark]) -> BTreeMap<Key, Section> {
    let mut found: BTreeMap<Key, Section> = BTreeMap::new();
    for mark in marks {
        let order = mark.section.split('.').map(|part| match part.parse() {
            Ok(number) => (number, String::new()),
            // Appendices come last.
            Err(_) => (u32::MAX, part.to_owned()),
        });
        let section = found.entry((mark.rfc, order.collect(), mark.section.clone())).or_default();
        let place = (mark.path.clone(), mark.line);
        match &mark.says {
            Says::Done => section.done.insert(place),
            Says::Test => section.test.insert(place),
            Says::Gap(text) => section.gap.insert((text.clone(), place.0, place.1)),
        };
    }
    found
}

/// The table for a terminal, with lines.
pub(super) fn text(sections: &BTreeMap<Key, Section>) -> String {
    let mut out = String::new();
    let mut last = None;
    for ((rfc, _, name), section) in sections {
        if last != Some(*rfc) {
            let _infallible = writeln!(out, "RFC {rfc}{}", title(*rfc).map_or(String::new(), |t| format!(" {t}")));
            last = Some(*rfc);
        }
        let mut label = format!("§{name}");
        for (word, places) in [("done", &section.done), ("test", &section.test)] {
            if !places.is_empty() {
                let places: Vec<String> = places.iter().map(|(path, line)| format!("{path}:{line}")).collect();
                let _infallible = writeln!(out, "  {label:<14} {word}  {}", places.join(" "));
                label.clear();
            }
        }
        for (gap, path, line) in &section.gap {
            let _infallible = writeln!(out, "  {label:<14} gap   {gap}  {path}:{line}");
            label.clear();
        }
    }
    let count = |test: fn(&Section) -> bool| sections.values().filter(|section| test(section)).count();
    let _infallible = writeln!(
        out,
        "rfc-check: {} sections, {} done, {} tested, {} with a gap",
        sections.len(),
        count(|s| !s.done.is_empty()),
        count(|s| !s.test.is_empty()),
        count(|s| !s.gap.is_empty())
    );
    out
}

/// The same as JSON.
pub(super) fn json(sections: &BTreeMap<Key, Section>, malformed: &[Malformed], stale: bool) -> String {
    let place = |path: &String, line: &usize| json!({"path": path, "line": line});
    let sections: Vec<_> = sections
        .iter()
        .map(|((rfc, _, name), section)| {
            let done: Vec<_> = section.done.iter().map(|(path, line)| place(path, line)).collect();
            let test: Vec<_> = section.test.iter().map(|(path, line)| place(path, line)).collect();
            let gap: Vec<_> = section
                .gap
                .iter()
                .map(|(text, path, line)| json!({"text": text, "path": path, "line": line}))
                .collect();
            json!({"rfc": rfc, "section": name, "done": done, "test": test, "gap": gap})
        })
        .collect();
    let malformed: Vec<_> =
        malformed.iter().map(|m| json!({"path": m.path, "line": m.line, "message": m.message})).collect();
    format!("{:#}\n", json!({"sections": sections, "malformed": malformed, "stale": stale}))
}

/// The width of the page.
const COLUMNS: usize = 120;

/// The page `docs/rfc-status.md`.
pub(super) fn page(sections: &BTreeMap<Key, Section>) -> String {
    let mut out = String::from(
        "# RFC status\n\n\
         Which rule of which RFC is followed, tested or missing? Generated from the marks in the source by\n\
         `cargo run -p xtask -- rfc-check --write`; do not edit. `cargo run -p xtask -- rfc-check` prints files and lines.\n\n\
         Code follows a section that is *done*, a test names one that is *tested*. A section that is not listed has no\n\
         mark, which says nothing about it.\n",
    );
    let mut rest = sections.iter().peekable();
    while let Some(&(&(rfc, ..), _)) = rest.peek() {
        let title = title(rfc).map_or(String::new(), |title| format!(": {title}"));
        let _infallible = writeln!(out, "\n## RFC {rfc}{title}\n");
        let mut of_rfc = Vec::new();
        while let Some(((_, _, name), section)) = rest.next_if(|(key, _)| key.0 == rfc) {
            of_rfc.push((name.as_str(), section));
        }
        out.push_str(&list(&of_rfc));
    }
    out
}

/// The sections of one RFC: their numbers by state, then their gaps.
fn list(of_rfc: &[(&str, &Section)]) -> String {
    let mut out = String::new();
    let kinds = [("Done and tested", true, true), ("Done", true, false), ("Tested", false, true)];
    for (word, done, test) in kinds {
        let fits = |section: &Section| section.done.is_empty() != done && section.test.is_empty() != test;
        let names: Vec<&str> = of_rfc.iter().filter(|(_, section)| fits(section)).map(|(name, _)| *name).collect();
        if !names.is_empty() {
            item(&mut out, &format!("{word}: {}", names.join(", ")));
        }
    }
    for (name, section) in of_rfc {
        let gaps: BTreeSet<&str> = section.gap.iter().map(|(text, ..)| text.as_str()).collect();
        for gap in gaps {
            item(&mut out, &format!("**Gap** in {name}: {gap}"));
        }
    }
    out
}

/// Appends an item of a list, in lines of at most [`COLUMNS`].
fn item(out: &mut String, text: &str) {
    let mut column = 0;
    for word in text.split_whitespace() {
        let length = word.chars().count();
        let (before, width) = match column {
            0 => ("- ", 2),
            _ if column + 1 + length > COLUMNS => ("\n  ", 2),
            _ => (" ", column + 1),
        };
        out.push_str(before);
        out.push_str(word);
        column = width + length;
    }
    out.push('\n');
}

fn title(rfc: u32) -> Option<&'static str> {
    TITLES.iter().find(|(number, _)| *number == rfc).map(|(_, title)| *title)
}

#[cfg(test)]
mod tests {
    use super::{item, page, sections, text};
    use crate::rfc::mark::{Mark, Says};

    fn mark(section: &str, says: Says, line: usize) -> Mark {
        Mark { rfc: 5321, section: section.to_owned(), says, path: "crates/mail/src/a.rs".to_owned(), line }
    }

    #[test]
    fn sections_are_sorted_as_read() {
        let marks = ["A.1", "10", "4.1.10", "2", "4.1.2", "4.1"].map(|s| mark(s, Says::Done, 1));
        let order: Vec<String> = sections(&marks).into_keys().map(|(_, _, name)| name).collect();
        assert_eq!(order, ["2", "4.1", "4.1.2", "4.1.10", "10", "A.1"]);
    }

    #[test]
    fn items_end_at_the_width_of_the_page() {
        let mut out = String::new();
        item(&mut out, &"1234 ".repeat(50));
        assert_eq!(out.lines().map(str::len).collect::<Vec<_>>(), [116, 116, 21], "{out}");
        assert!(out.lines().skip(1).all(|line| line.starts_with("  1234")), "{out}");
    }

    #[test]
    fn the_page_does_not_change_when_code_moves() {
        let at =
            |line| [mark("2", Says::Done, line), mark("2", Says::Test, line), mark("3", Says::Gap("a|b".into()), line)];
        let first = page(&sections(&at(1)));
        assert_eq!(first, page(&sections(&at(900))));
        assert!(first.contains("\n- Done and tested: 2\n- **Gap** in 3: a|b\n"), "{first}");
        assert_ne!(first, page(&sections(&at(1)[..1])));
        assert!(text(&sections(&at(7))).contains("2 sections, 1 done, 1 tested, 1 with a gap"));
    }
}

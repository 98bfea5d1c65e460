//! The texts one of which a message must hold for a pattern to match: what makes a thousand rules cheap.
//!
//! One pass over a message finds the literals of all rules, and only patterns with a hit run. The literals are case
//! folded, and [`fold`] folds the message the same way, so no pattern loses a match by its flags: a class of characters
//! counts as a letter only if all of them fold to it.

use regex_syntax::hir::{Class, Hir, HirKind, Repetition};

/// Strings that a set of literals has at most.
const SET_MAX: usize = 32;
/// Characters of one literal; the rest adds nothing.
const CHARACTERS_MAX: usize = 48;
/// Octets below which a literal is in nearly every message.
const OCTETS_MIN: usize = 2;

/// Folds the case of a text.
pub(crate) fn fold(text: &str, out: &mut String) {
    out.clear();
    if text.is_ascii() {
        out.push_str(text);
        out.make_ascii_lowercase();
    } else {
        out.extend(text.chars().map(fold_character));
    }
}

/// Folds the case of a text into a string of its own.
pub(crate) fn folded(text: &str) -> String {
    let mut out = String::new();
    fold(text, &mut out);
    out
}

fn fold_character(c: char) -> char {
    if c == '\u{17f}' {
        return 's';
    }
    let mut lower = c.to_lowercase();
    match (lower.next(), lower.next()) {
        (Some(one), None) => one,
        _ => c,
    }
}

/// Returns folded texts of which each match of the pattern holds at least one; `None` if there are no such texts.
pub(crate) fn required(pattern: &Hir) -> Option<Vec<String>> {
    Strings::of(pattern).best()
}

/// The knowledge about a piece of a pattern.
struct Strings {
    /// All that the piece matches, if these are few.
    exact: Option<Vec<String>>,
    /// One of these is in each match.
    required: Option<Vec<String>>,
}

impl Strings {
    const UNKNOWN: Self = Self { exact: None, required: None };

    fn exact(strings: Vec<String>) -> Self {
        Self { exact: Some(strings), required: None }
    }

    fn of(hir: &Hir) -> Self {
        match hir.kind() {
            HirKind::Empty | HirKind::Look(_) => Self::exact(vec![String::new()]),
            HirKind::Literal(literal) => match str::from_utf8(&literal.0) {
                Ok(text) => Self::exact(vec![folded(text)]),
                Err(_) => Self::UNKNOWN,
            },
            HirKind::Class(class) => Self::of_class(class),
            HirKind::Capture(capture) => Self::of(&capture.sub),
            HirKind::Repetition(repetition) => Self::of_repetition(repetition),
            HirKind::Concat(pieces) => Self::of_sequence(pieces),
            HirKind::Alternation(branches) => Self::of_branches(branches),
        }
    }

    fn of_class(class: &Class) -> Self {
        let Class::Unicode(class) = class else { return Self::UNKNOWN };
        let size: usize = class.ranges().iter().map(regex_syntax::hir::ClassUnicodeRange::len).sum();
        if size > SET_MAX {
            return Self::UNKNOWN;
        }
        let characters = class.ranges().iter().flat_map(|range| range.start()..=range.end());
        let mut strings: Vec<String> = characters.map(|c| fold_character(c).to_string()).collect();
        strings.sort();
        strings.dedup();
        Self::exact(strings)
    }

    fn of_repetition(repetition: &Repetition) -> Self {
        let sub = Self::of(&repetition.sub);
        match (repetition.min, repetition.max) {
            (1, Some(1)) => sub,
            (0, Some(1)) => match sub.exact {
                Some(mut exact) if exact.len() < SET_MAX => {
                    exact.push(String::new());
                    Self::exact(exact)
                }
                _ => Self::UNKNOWN,
            },
            (0, _) => Self::UNKNOWN,
            _ => Self { exact: None, required: sub.best() },
        }
    }

    fn of_sequence(pieces: &[Hir]) -> Self {
        let mut candidates: Vec<Vec<String>> = Vec::new();
        let mut run = vec![String::new()];
        let mut is_exact = true;
        for piece in pieces {
            let strings = Self::of(piece);
            if let Some(exact) = &strings.exact {
                if let Some(longer) = joined(&run, exact) {
                    run = longer;
                    continue;
                }
                candidates.push(std::mem::replace(&mut run, exact.clone()));
            } else {
                candidates.push(std::mem::replace(&mut run, vec![String::new()]));
                candidates.extend(strings.required);
            }
            is_exact = false;
        }
        if is_exact {
            return Self::exact(run);
        }
        candidates.push(run);
        let required = candidates.into_iter().filter(|set| is_useful(set)).max_by_key(|set| {
            let shortest = set.iter().map(String::len).min().unwrap_or(0);
            (shortest.min(8), std::cmp::Reverse(set.len()), shortest)
        });
        Self { exact: None, required }
    }

    fn of_branches(branches: &[Hir]) -> Self {
        let all: Vec<Self> = branches.iter().map(Self::of).collect();
        let exact = merged(all.iter().map(|one| one.exact.clone()));
        match exact {
            Some(exact) => Self::exact(exact),
            None => Self { exact: None, required: merged(all.into_iter().map(Self::best)) },
        }
    }

    fn best(self) -> Option<Vec<String>> {
        self.exact.filter(|set| is_useful(set)).or(self.required)
    }
}

fn is_useful(set: &[String]) -> bool {
    !set.is_empty() && set.iter().all(|text| text.len() >= OCTETS_MIN)
}

/// Appends each string of `next` to each of `run`; `None` if that makes too many or too long ones.
fn joined(run: &[String], next: &[String]) -> Option<Vec<String>> {
    let longest = |set: &[String]| set.iter().map(String::len).max().unwrap_or(0);
    if run.len() * next.len() > SET_MAX || longest(run) + longest(next) > CHARACTERS_MAX * 4 {
        return None;
    }
    Some(run.iter().flat_map(|head| next.iter().map(move |tail| format!("{head}{tail}"))).collect())
}

/// Joins sets; `None` if one is unknown or there are too many strings.
fn merged(sets: impl Iterator<Item = Option<Vec<String>>>) -> Option<Vec<String>> {
    let mut all = Vec::new();
    for set in sets {
        all.extend(set?);
        if all.len() > SET_MAX * 8 {
            return None;
        }
    }
    all.sort();
    all.dedup();
    Some(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn parse(pattern: &str) -> Option<Hir> {
        let mut builder = regex_syntax::ParserBuilder::new();
        builder.case_insensitive(true).multi_line(true).crlf(true).build().parse(pattern).ok()
    }

    #[track_caller]
    fn check(pattern: &str, wanted: &[&str]) {
        let mut found = required(&parse(pattern).unwrap()).unwrap_or_default();
        found.sort();
        assert_eq!(found, wanted, "{pattern}");
    }

    #[test]
    fn literals_of_patterns() {
        check("viagra", &["viagra"]);
        check(r"\bVIAGRA\s+(now|today)", &["viagra"]);
        check(
            r#"(charset="gb(k|2312)"|=\?GB(K|2312)\?)"#,
            &["=?gb2312?", "=?gbk?", "charset=\"gb2312\"", "charset=\"gbk\""],
        );
        check("colou?r", &["color", "colour"]);
        check("(?-i)Привет", &["привет"]);
        check("(abc)+x*", &["abc"]);
        check("[a-z]+", &[]);
        check("abc|[0-9]+", &[]);
        check("a.b", &[]);
        check("", &[]);
        check("x{3}yes", &["yes"]);
    }

    proptest! {
        /// A match holds one of the literals, in any case of letters and with any letters that fold alike.
        #[test]
        fn no_match_is_lost(pattern in pattern(), text in "[a-cA-CkKsſK\u{3a3}\u{3c3}\u{3c2} ]{0,12}") {
            if let (Some(hir), Ok(regex)) = (
                parse(&pattern),
                regex::RegexBuilder::new(&pattern).case_insensitive(true).multi_line(true).crlf(true).build(),
            ) && regex.is_match(&text) && let Some(literals) = required(&hir) {
                let folded = folded(&text);
                prop_assert!(literals.iter().any(|one| folded.contains(one.as_str())), "{literals:?} {folded:?}");
            }
        }
    }

    fn pattern() -> impl Strategy<Value = String> {
        let leaf =
            prop_oneof!["[a-cksK\u{3c3}]{1,3}", Just("[ab]".to_owned()), Just(".".to_owned()), Just("\\b".to_owned())];
        leaf.prop_recursive(4, 24, 3, |inner| {
            prop_oneof![
                (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("{a}{b}")),
                (inner.clone(), inner.clone()).prop_map(|(a, b)| format!("({a}|{b})")),
                inner.clone().prop_map(|a| format!("({a})?")),
                inner.clone().prop_map(|a| format!("({a})+")),
                inner.prop_map(|a| format!("({a}){{2}}")),
            ]
        })
    }
}

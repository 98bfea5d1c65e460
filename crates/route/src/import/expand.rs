//! The names that a file defines, as m4 treats them: they stand for their values, with arguments or without, and decide
//! conditions.
//!
//! Only what the files themselves define is known. A name that sendmail's own macros may define is neither there nor
//! not there.

use std::cell::{Cell, RefCell};
use std::collections::{HashMap, HashSet};

/// Names within the values of names.
const DEPTH_MAX: usize = 16;
/// Octets of a text with its names replaced.
pub(super) const OCTETS_MAX: usize = 64 << 10;
/// Names replaced in one text.
const STEPS_MAX: usize = 10_000;

/// The result of a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Decided<'a> {
    /// This text holds.
    Holds(&'a str),
    /// Nothing does.
    Nothing,
    /// It depends on values that are not known here.
    Unknown,
}

/// The text that replaces a call.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Called {
    /// This text.
    Text(String),
    /// More than can be meant.
    TooLong,
    /// The name is not defined here.
    Unknown,
}

/// The names that were defined so far.
#[derive(Default)]
pub(super) struct Names {
    /// `None`: it was undefined.
    values: HashMap<String, Option<String>>,
    /// Names that were needed.
    used: RefCell<HashSet<String>>,
}

impl Names {
    pub(super) fn define(&mut self, name: &str, value: &str) {
        self.values.insert(name.to_owned(), Some(value.to_owned()));
    }

    pub(super) fn undefine(&mut self, name: &str) {
        self.values.insert(name.to_owned(), None);
    }

    /// Whether some text or condition needed the name.
    pub(super) fn is_used(&self, name: &str) -> bool {
        self.used.borrow().contains(name)
    }

    fn value(&self, name: &str) -> Option<&str> {
        let value = self.values.get(name)?.as_deref()?;
        self.used.borrow_mut().insert(name.to_owned());
        Some(value)
    }

    /// The text with values in the places of names, in those values too.
    pub(super) fn expand(&self, text: &str) -> String {
        let (mut out, steps) = (String::with_capacity(text.len()), Cell::new(0));
        self.expand_into(text, 0, &steps, &mut out);
        out
    }

    fn expand_into(&self, text: &str, depth: usize, steps: &Cell<usize>, out: &mut String) {
        let mut rest = text;
        while let Some(c) = rest.chars().next() {
            let is_word = c.is_ascii_alphabetic() || c == '_';
            let is_end = |c: char| is_word != (c.is_ascii_alphabetic() || c == '_' || is_word && c.is_ascii_digit());
            // Digits before a letter belong to no name.
            let end = rest.find(is_end).unwrap_or(rest.len());
            let (word, after) = rest.split_at_checked(end).unwrap_or((rest, ""));
            rest = after;
            let value = if is_word && depth < DEPTH_MAX && steps.get() < STEPS_MAX && out.len() < OCTETS_MAX {
                self.value(word)
            } else {
                None
            };
            match value {
                Some(value) => {
                    steps.set(steps.get() + 1);
                    self.expand_into(value, depth + 1, steps, out);
                }
                None => out.push_str(word),
            }
        }
    }

    /// The text that stands for a call.
    pub(super) fn call(&self, name: &str, arguments: &[String]) -> Called {
        let Some(body) = self.value(name) else { return Called::Unknown };
        let mut out = String::with_capacity(body.len());
        let mut rest = body;
        while let Some((before, after)) = rest.split_once('$') {
            out.push_str(before);
            rest = after;
            match after.chars().next() {
                Some(digit @ '1'..='9') => {
                    let at = digit.to_digit(10).map_or(0, |digit| digit as usize);
                    out.push_str(arguments.get(at - 1).map_or("", String::as_str));
                    rest = after.get(1..).unwrap_or_default();
                }
                _ => out.push('$'),
            }
            if out.len() > OCTETS_MAX {
                return Called::TooLong;
            }
        }
        out.push_str(rest);
        Called::Text(out)
    }

    /// `ifdef(name, then, else)`. `is_known`: a name without a definition here is not defined.
    pub(super) fn ifdef<'a>(&self, arguments: &'a [String], is_known: bool) -> Decided<'a> {
        let text = |at: usize| match arguments.get(at).map_or("", String::as_str) {
            "" => Decided::Nothing,
            text => Decided::Holds(text),
        };
        let name = arguments.first().map_or("", |name| name.trim());
        self.used.borrow_mut().insert(name.to_owned());
        match self.values.get(name) {
            Some(Some(_)) => text(1),
            Some(None) => text(2),
            None if is_known => text(2),
            None => Decided::Unknown,
        }
    }

    /// `ifelse(a, b, then, …, else)`.
    pub(super) fn ifelse<'a>(&self, arguments: &'a [String]) -> Decided<'a> {
        let mut rest = arguments;
        loop {
            rest = match rest {
                [a, b, then, more @ ..] => {
                    let (a, b) = (self.expand(a), self.expand(b));
                    if !is_plain(&a) || !is_plain(&b) {
                        return Decided::Unknown;
                    }
                    if a == b {
                        return if then.is_empty() { Decided::Nothing } else { Decided::Holds(then) };
                    }
                    more
                }
                // The last argument stands for "else".
                [text] if arguments.len() > 1 && !text.is_empty() => return Decided::Holds(text),
                _ => return Decided::Nothing,
            }
        }
    }
}

/// A text without names that sendmail's macros may define, and without calls.
fn is_plain(text: &str) -> bool {
    let is_name = |word: &str| {
        let is_upper = word.len() > 2
            && !word.chars().any(|c| c.is_ascii_lowercase())
            && word.chars().any(|c| c.is_ascii_uppercase());
        is_upper || word.starts_with("conf")
    };
    !text.contains(['(', '$', '`']) && !text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_').any(is_name)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(all: &[(&str, &str)]) -> Names {
        let mut names = Names::default();
        all.iter().for_each(|(name, value)| names.define(name, value));
        names
    }

    #[test]
    fn names_stand_for_their_values() {
        let names =
            names(&[("DOM", "example.com"), ("HOST", "mx.DOM"), ("LOOP", "x LOOP"), ("A", "B B"), ("B", "A A")]);
        assert_eq!(names.expand("HOST,DOMAIN,a_DOM,1DOM"), "mx.example.com,DOMAIN,a_DOM,1example.com");
        assert!(names.expand("LOOP").ends_with("x LOOP"));
        assert!(names.expand("A").len() <= OCTETS_MAX + 100);
        assert!(names.is_used("DOM") && !names.is_used("DOMAIN"));
    }

    #[test]
    fn calls_have_arguments() {
        let names = names(&[("MAP", "FEATURE(`$1', `hash /etc/$1')$9$x")]);
        let expected = "FEATURE(`access_db', `hash /etc/access_db')$x";
        assert_eq!(names.call("MAP", &["access_db".to_owned()]), Called::Text(expected.to_owned()));
        assert_eq!(names.call("OTHER", &[]), Called::Unknown);
        assert_eq!(names.call("MAP", &["x".repeat(OCTETS_MAX)]), Called::TooLong);
    }

    #[test]
    fn conditions_are_decided_where_all_is_known() {
        let mut names = names(&[("HERE", "mx1"), ("EMPTY", "")]);
        names.undefine("GONE");
        let list = |text: &str| text.split(',').map(str::to_owned).collect::<Vec<_>>();
        for (arguments, is_known, expected) in [
            ("HERE,a,b", false, Decided::Holds("a")),
            ("GONE,a,b", false, Decided::Holds("b")),
            ("GONE,a", false, Decided::Nothing),
            ("OTHER,a,b", false, Decided::Unknown),
            ("OTHER,a,b", true, Decided::Holds("b")),
        ] {
            assert_eq!(names.ifdef(&list(arguments), is_known), expected, "{arguments}");
        }
        for (arguments, expected) in [
            ("HERE,mx1,yes,no", Decided::Holds("yes")),
            ("HERE,mx2,yes,no", Decided::Holds("no")),
            ("HERE,mx2,yes", Decided::Nothing),
            ("HERE,mx2,yes,HERE,mx1,second,no", Decided::Holds("second")),
            ("EMPTY,,yes,no", Decided::Holds("yes")),
            ("confTHING,x,yes,no", Decided::Unknown),
            ("UNKNOWN_NAME,x,yes", Decided::Unknown),
            ("a comment", Decided::Nothing),
        ] {
            assert_eq!(names.ifelse(&list(arguments)), expected, "{arguments}");
        }
    }
}

//! Rule sets: parsed from files as a whole, or not at all.
//!
//! A file is lines of statements in blocks; `docs/rules.md` describes it for the person who writes one. Every problem
//! names file and line, and all problems of all files are reported at once.

mod actions;
mod conditions;
mod parser;
mod pattern;
mod statement;
mod tokens;

use std::fmt;

use crate::action::Action;
use crate::condition::{Condition, Test};
use crate::literal_search::LiteralSearch;
use crate::message::Direction;
use crate::texts::Kinds;

/// Rules of one set.
pub const RULES_MAX: usize = 10_000;

/// A rule.
#[derive(Clone, Debug)]
pub struct Rule {
    name: String,
    file: usize,
    line: usize,
    pub(crate) listeners: Option<Vec<String>>,
    pub(crate) direction: Option<Direction>,
    pub(crate) recipients: Option<Vec<String>>,
    pub(crate) lists: Option<Vec<String>>,
    pub(crate) condition: Condition,
    pub(crate) actions: Vec<Action>,
}

impl Rule {
    /// The name, which no other rule of the set has.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// The line on which it begins, counted from 1.
    #[must_use]
    pub const fn line(&self) -> usize {
        self.line
    }

    /// The actions, at most one of them final and that the last.
    #[must_use]
    pub fn actions(&self) -> &[Action] {
        &self.actions
    }
}

/// A fault of a rule file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// The name of the file.
    pub file: String,
    /// Counted from 1.
    pub line: usize,
    /// The fault, and the next step.
    pub text: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} line {}: {}", self.file, self.line, self.text)
    }
}

impl std::error::Error for Problem {}

/// A literal's test and the kinds of texts in which it counts.
#[derive(Clone, Copy, Debug)]
pub(crate) struct LiteralTest {
    pub(crate) test: u32,
    pub(crate) kinds: Kinds,
}

/// Rules in their order, ready to be evaluated.
#[derive(Clone, Debug)]
pub struct RuleSet {
    pub(crate) rules: Vec<Rule>,
    files: Vec<String>,
    pub(crate) tests: Vec<Test>,
    pub(crate) kinds: Kinds,
    pub(crate) search: Option<LiteralSearch>,
    /// The tests of each literal of the search.
    pub(crate) literal_tests: Vec<Vec<LiteralTest>>,
    /// The rules that may hold because a test of theirs has a hit.
    pub(crate) rules_of_test: Vec<Vec<usize>>,
    /// The rules that may hold without a hit.
    pub(crate) unfiltered: Vec<bool>,
}

impl RuleSet {
    /// Parses files of rules, each with its name for messages.
    ///
    /// ```
    /// let text = "rule junk {\n  match any {\n    header Subject ~ /viagra/\n  }\n  reject\n}\n";
    /// let rules = filter::RuleSet::parse(&[("a.rules", text)]).unwrap();
    /// assert_eq!(rules.rules()[0].name(), "junk");
    /// let problems = filter::RuleSet::parse(&[("a.rules", "rule x {\n  rejekt\n}\n")]).unwrap_err();
    /// assert!(problems[0].to_string().starts_with("a.rules line 2: "));
    /// ```
    ///
    /// # Errors
    /// All problems of all files; no rule is in force then.
    pub fn parse(files: &[(&str, &str)]) -> Result<Self, Vec<Problem>> {
        let mut parser = parser::Parser::default();
        for (index, (name, text)) in files.iter().enumerate() {
            parser.file(index, name, text);
        }
        let parser::Parser { rules, tests, problems, .. } = parser;
        if !problems.is_empty() {
            return Err(problems);
        }
        let names = files.iter().map(|(name, _)| (*name).to_owned()).collect();
        Self::of(rules, tests, names).map_err(|text| {
            let file = files.first().map_or_else(String::new, |(name, _)| (*name).to_owned());
            vec![Problem { file, line: 1, text }]
        })
    }

    /// Returns the rules in their order.
    #[must_use]
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// Returns the name of a rule's file.
    #[must_use]
    pub fn file_of(&self, rule: &Rule) -> &str {
        self.files.get(rule.file).map_or("", String::as_str)
    }

    fn of(rules: Vec<Rule>, tests: Vec<Test>, files: Vec<String>) -> Result<Self, String> {
        let mut literals: Vec<(&str, LiteralTest)> = Vec::new();
        let mut kinds = Kinds::NOTHING;
        for (index, test) in tests.iter().enumerate() {
            kinds = kinds | test.kinds();
            let test_index = u32::try_from(index).map_err(|_| "too many conditions".to_owned())?;
            for literal in &test.literals {
                literals.push((literal, LiteralTest { test: test_index, kinds: test.kinds() }));
            }
        }
        literals.sort_by_key(|(literal, one)| (*literal, one.test));
        let mut distinct: Vec<&str> = Vec::new();
        let mut literal_tests: Vec<Vec<LiteralTest>> = Vec::new();
        for (literal, test) in literals {
            if distinct.last() != Some(&literal) {
                distinct.push(literal);
                literal_tests.push(Vec::new());
            }
            if let Some(last) = literal_tests.last_mut() {
                last.push(test);
            }
        }
        let search = match distinct.is_empty() {
            true => None,
            false => Some(
                LiteralSearch::new(&distinct)
                    .map_err(|error| format!("the literals of all patterns are too large together: {error}"))?,
            ),
        };

        let mut rules_of_test = vec![Vec::new(); tests.len()];
        let mut unfiltered = vec![false; rules.len()];
        let is_prefiltered = |index: usize| tests.get(index).is_some_and(Test::is_prefiltered);
        for (index, rule) in rules.iter().enumerate() {
            match rule.condition.needed(&is_prefiltered) {
                Some(needed) => {
                    for test in needed {
                        if let Some(rules) = rules_of_test.get_mut(test) {
                            rules.push(index);
                        }
                    }
                }
                None => {
                    if let Some(one) = unfiltered.get_mut(index) {
                        *one = true;
                    }
                }
            }
        }
        Ok(Self { rules, files, tests, kinds, search, literal_tests, rules_of_test, unfiltered })
    }
}

#[cfg(test)]
mod tests;

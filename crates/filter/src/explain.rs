//! The reasons of an evaluation: for each rule, which condition held and which text showed it.

use crate::condition::{Question, Test};
use crate::evaluate::Evaluation;
use crate::mime::Part;
use crate::texts::{Kinds, Text};

/// Characters of a text that an explanation shows on each side of a match.
const CONTEXT_CHARACTERS: usize = 40;
/// Characters of a match that it shows.
const FOUND_CHARACTERS: usize = 120;

/// The text that showed a condition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Evidence {
    /// The place, such as `header Subject, decoded` or `text of part 2`.
    pub place: String,
    /// The matched text, decoded; cut if it is long.
    pub found: String,
    /// The text around it on one line.
    pub context: String,
}

/// A condition and its answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConditionReport {
    /// The line of the file, counted from 1.
    pub line: usize,
    /// The condition as the file spells it.
    pub source: String,
    /// Whether it holds.
    pub holds: bool,
    /// The text that showed it, where a text did.
    pub evidence: Option<Evidence>,
}

/// A rule and its conditions.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RuleReport {
    /// Its conditions hold.
    pub holds: bool,
    /// It is for this listener and direction, and for a recipient.
    pub is_in_scope: bool,
    /// The conditions in their order.
    pub conditions: Vec<ConditionReport>,
}

impl Evaluation<'_, '_> {
    /// Explains a rule by its index in the set; every condition is asked, also those that did not matter.
    #[must_use]
    pub fn explain(&self, rule: usize) -> Option<RuleReport> {
        let rule = self.rules.rules.get(rule)?;
        let mut tests = Vec::new();
        rule.condition.tests(&mut tests);
        let report = |index: usize| {
            let test = self.rules.tests.get(index)?;
            Some(ConditionReport {
                line: test.line,
                source: test.source.clone(),
                holds: self.answer(index),
                evidence: self.evidence(index, test),
            })
        };
        Some(RuleReport {
            holds: rule.condition.holds(&mut |index| self.answer(index)),
            is_in_scope: self.is_in_scope(rule) && self.is_for_someone(rule),
            conditions: tests.into_iter().filter_map(report).collect(),
        })
    }

    fn evidence(&self, index: usize, test: &Test) -> Option<Evidence> {
        match &test.question {
            Question::Text(field, _) | Question::Script { field, .. } => {
                let (text, range) = self.find_text(index, test)?;
                let text = self.texts.list.get(text)?;
                let view = field.view(text);
                let found = view.get(range.clone()).unwrap_or_default();
                Some(Evidence {
                    place: self.place(text),
                    found: found.chars().take(FOUND_CHARACTERS).collect(),
                    context: context(view, range),
                })
            }
            Question::Damage(_) if !self.texts.damage.is_empty() => {
                let faults: Vec<&str> = self.texts.damage.iter().map(crate::mime::Damage::name).collect();
                let found = faults.join(", ");
                Some(Evidence { place: "structure".to_owned(), context: found.clone(), found })
            }
            Question::NotFullyScanned if !self.texts.limits_reached.is_empty() => {
                let found = self.texts.limits_reached.join(", ");
                Some(Evidence { place: "limits".to_owned(), context: found.clone(), found })
            }
            _ => None,
        }
    }

    /// Names the place of a text.
    fn place(&self, text: &Text<'_>) -> String {
        let part: Option<&Part> = self.texts.tree.as_ref().and_then(|tree| tree.parts.get(text.part));
        let of_part = match part.map(|part| part.number.as_str()) {
            Some("") | None => String::new(),
            Some(number) => format!(" of part {number}"),
        };
        let kinds = text.kinds;
        if kinds.overlaps(Kinds::HEADER) {
            let how = if !kinds.overlaps(Kinds::RAW_HEADER) && !kinds.overlaps(Kinds::PART_HEADER) {
                ", decoded"
            } else {
                ""
            };
            let name = if text.name.is_empty() { "line that is no field" } else { text.name };
            return format!("header {name}{of_part}{how}");
        }
        let what = [
            (Kinds::BODY, "text"),
            (Kinds::SENDER, "sender"),
            (Kinds::RECIPIENT, "recipient"),
            (Kinds::CLIENT_NAME, "client name"),
            (Kinds::HELO, "helo"),
            (Kinds::ATTACHMENT_NAME, "attachment name"),
            (Kinds::ATTACHMENT_TYPE, "attachment type"),
            (Kinds::PART_TYPE, "part type"),
            (Kinds::CHARSET, "charset"),
        ];
        let what = what.iter().find(|(kind, _)| kinds.overlaps(*kind)).map_or("text", |(_, what)| what);
        format!("{what}{of_part}")
    }
}

/// Returns a range of a text with what stands around it, on one line.
fn context(text: &str, range: std::ops::Range<usize>) -> String {
    let before = text.get(..range.start).unwrap_or_default();
    let start = before.char_indices().rev().take(CONTEXT_CHARACTERS).last().map_or(range.start, |(at, _)| at);
    let found = text.get(start..).unwrap_or_default();
    let characters = CONTEXT_CHARACTERS * 2 + FOUND_CHARACTERS;
    found.chars().take(characters).map(|c| if c.is_whitespace() { ' ' } else { c }).collect()
}

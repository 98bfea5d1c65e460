//! Content rules from outside: the rules of the example files, faults that other filters had, generated input, and the
//! automaton against a plain evaluation.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, clippy::panic, reason = "a panic fails the test")]

mod complaints;
mod examples;
mod fuzz_bodies;
mod prefilter;
mod spf;

use filter::{Evaluation, Limits, Message, Recipient, RuleSet};
use mail::header::LineEnd;

/// Parses one file of rules.
#[track_caller]
fn rules(text: &str) -> RuleSet {
    RuleSet::parse(&[("test.rules", text)]).unwrap_or_else(|problems| panic!("{problems:#?}"))
}

/// Parses a rule with these conditions.
#[track_caller]
fn condition(lines: &str) -> RuleSet {
    rules(&format!("rule one {{\n match any {{\n{lines}\n }}\n reject\n}}\n"))
}

/// A message for one recipient.
fn message(content: &[u8]) -> Message<'_> {
    let mut message = Message::new(content, LineEnd::Crlf);
    message.recipients = vec![Recipient { address: "to@example.com", list: None }];
    message
}

/// The names of the rules that hold.
fn names<'r>(rules: &'r RuleSet, evaluation: &Evaluation<'_, '_>) -> Vec<&'r str> {
    evaluation.matches().iter().map(|one| rules.rules()[one.rule].name()).collect()
}

/// Whether a rule with the condition holds for a message.
#[track_caller]
fn check(lines: &str, content: &[u8], wanted: bool) {
    let rules = condition(lines);
    let evaluation = rules.evaluate(message(content), &Limits::default());
    let holds = !evaluation.matches().is_empty();
    assert_eq!(holds, wanted, "{lines}\n{}\n{:#?}", content.escape_ascii(), evaluation.explain(0));
}

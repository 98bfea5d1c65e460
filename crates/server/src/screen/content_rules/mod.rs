//! The judge that evaluates content rules.

use super::AT_ONCE_BYTES;
use super::judge::{ContentJudge, JudgeError, Judging};
use super::judgement::{Judgement, ScreenDecision, ScreenNote, Screening};
use super::message::ScreenedMessage;
use filter::{Action, Evaluation, Final, Limits, Rule, RuleSet};
use observe::ScreenVerdict;
use os::blocking;
use route::access::tag::is_group;
use route::destination::Destination;
use schedule::Class;
use std::sync::Arc;

/// Content rules that can be carried out.
#[derive(Clone, Debug)]
pub(super) struct ContentRules(Arc<RuleSet>);

impl ContentRules {
    /// Takes the rules of a set, if the server can carry out their actions.
    ///
    /// # Errors
    /// Every action that it cannot carry out, with the file and the line of its rule.
    pub(super) fn new(set: RuleSet) -> Result<Self, Vec<filter::Problem>> {
        let mut problems = Vec::new();
        for rule in set.rules() {
            for text in rule.actions().iter().filter_map(fault) {
                let text = format!("rule {}: {text}", rule.name());
                problems.push(filter::Problem { file: set.file_of(rule).to_owned(), line: rule.line(), text });
            }
        }
        if problems.is_empty() { Ok(Self(Arc::new(set))) } else { Err(problems) }
    }

    /// Returns the rules.
    pub(super) fn set(&self) -> &RuleSet {
        &self.0
    }

    /// Returns whether a rule sends a copy elsewhere.
    pub(super) fn may_copy(&self) -> bool {
        self.0.rules().iter().flat_map(Rule::actions).any(|action| matches!(action, Action::Copy(_)))
    }
}

/// Returns why an action cannot be carried out.
fn fault(action: &Action) -> Option<String> {
    match action {
        Action::Route(text) => Destination::parse(text.as_bytes()).err().map(|_| {
            format!("route \"{text}\" is no route; write one such as \"smtp:[192.0.2.1]:25\" or \"example.com\"")
        }),
        Action::Class(name) if class(name).is_none() => {
            Some(format!("there is no class {name}; write urgent, normal or bulk"))
        }
        Action::QueueGroup(name) if !is_group(name) => Some(format!("\"{name}\" is no name of a queue group")),
        _ => None,
    }
}

/// Finds a class by its name.
fn class(name: &str) -> Option<Class> {
    match name {
        "urgent" => Some(Class::Urgent),
        "normal" => Some(Class::Normal),
        "bulk" => Some(Class::Bulk),
        _ => None,
    }
}

impl ContentJudge for ContentRules {
    fn judge<'a>(&'a self, message: &'a Arc<ScreenedMessage>) -> Judging<'a> {
        Box::pin(async move {
            if message.content.len() <= AT_ONCE_BYTES {
                return Ok(evaluate(&self.0, message));
            }
            let (rules, content) = (Arc::clone(&self.0), Arc::clone(message));
            let evaluated = blocking::run(move || evaluate(&rules, &content)).await;
            evaluated.map_err(|_| JudgeError {
                by: "rules".to_owned(),
                place: String::new(),
                text: "the evaluation of content rules broke off".to_owned(),
            })
        })
    }
}

/// Evaluates the rules on a message.
fn evaluate(rules: &RuleSet, message: &ScreenedMessage) -> Screening {
    let evaluation = rules.evaluate(message.for_rules(), &Limits::default());
    if evaluation.matches().is_empty() {
        return Screening::default();
    }
    let scopes = message.recipients.iter().map(|one| usize::from(one.scope) + 1).max().unwrap_or_default();
    let judgements = (0..scopes).map(|scope| judgement(rules, message, &evaluation, scope)).collect();
    Screening { judgements, notes: notes(rules, message, &evaluation) }
}

/// Returns the judgement of a scope: that of its first recipient, since all of them have the same.
fn judgement(rules: &RuleSet, message: &ScreenedMessage, evaluation: &Evaluation<'_, '_>, scope: usize) -> Judgement {
    let mut judgement = Judgement::default();
    let Some(first) = message.recipients.iter().position(|one| usize::from(one.scope) == scope) else {
        return judgement;
    };
    for found in evaluation.matches().iter().filter(|found| found.recipients.contains(&first)) {
        let Some(rule) = rules.rules().get(found.rule) else { continue };
        for action in rule.actions() {
            match action {
                Action::Final(Final::Accept) => {}
                Action::Final(action) => {
                    let (by, place) = (rule.name().to_owned(), place(rules, rule));
                    judgement.decision = Some(ScreenDecision { by, place, action: action.clone() });
                }
                Action::Edit(edit) => judgement.edits.push(edit.clone()),
                Action::Redirect(to) => judgement.redirects.push(to.clone()),
                Action::Copy(to) => judgement.copies.push(to.clone()),
                Action::Route(text) => judgement.route = Destination::parse(text.as_bytes()).ok(),
                Action::Class(name) => judgement.class = class(name),
                Action::QueueGroup(name) => judgement.queue_group = Some(name.as_str().into()),
            }
        }
    }
    judgement
}

/// Returns every action of the rules that hold, for the log.
fn notes(rules: &RuleSet, message: &ScreenedMessage, evaluation: &Evaluation<'_, '_>) -> Vec<ScreenNote> {
    let mut notes = Vec::new();
    for found in evaluation.matches() {
        let Some(rule) = rules.rules().get(found.rule) else { continue };
        let to = found.recipients.iter().filter_map(|one| message.recipients.get(*one));
        let to: Vec<String> = to.map(|one| format!("<{}>", one.address)).collect();
        let to = to.join(",");
        let note = |action: &Action| ScreenNote {
            verdict: verdict(action),
            by: rule.name().to_owned(),
            place: place(rules, rule),
            to: to.clone(),
            action: action.to_string(),
        };
        notes.extend(rule.actions().iter().map(note));
    }
    notes
}

/// Returns file and line of a rule.
fn place(rules: &RuleSet, rule: &Rule) -> String {
    format!("{}:{}", rules.file_of(rule), rule.line())
}

/// Returns the kind of an action.
const fn verdict(action: &Action) -> ScreenVerdict {
    match action {
        Action::Final(Final::Accept) => ScreenVerdict::Accept,
        Action::Final(Final::Reject(_)) => ScreenVerdict::Reject,
        Action::Final(Final::Defer(_)) => ScreenVerdict::Defer,
        Action::Final(Final::Discard) => ScreenVerdict::Discard,
        Action::Final(Final::Quarantine(_)) => ScreenVerdict::Quarantine,
        Action::Final(Final::Hold) => ScreenVerdict::Hold,
        Action::Edit(_) => ScreenVerdict::Edit,
        Action::Redirect(_) | Action::Copy(_) | Action::Route(_) | Action::Class(_) | Action::QueueGroup(_) => {
            ScreenVerdict::Reroute
        }
    }
}

#[cfg(test)]
mod tests;

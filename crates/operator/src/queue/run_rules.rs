//! The commands that set, end and show hold rules and suspensions.
//!
//! A suspension is in force for new mail before it holds what waits, and ends for new mail before its mail is released:
//! no message passes between. A command that is broken off leaves the rule; `held:NAME` names the mail that it holds.

use super::command::{Action, Command};
use super::hold_rule::{HoldRule, RuleKind};
use super::run::{CommandRun, PeerGone, QueueChange, seconds};
use super::scan_totals::last;
use super::steering::NewRule;
use crate::answers::reply::{ListPart, Reason};
use crate::answers::{QueueLine, QueueTotals, to_fields};
use spool::Hold;

impl CommandRun<'_> {
    /// Shows the rules in force.
    pub(super) fn rules(&self) -> Result<ListPart, PeerGone> {
        for rule in self.delivery.steering().rules() {
            self.send(&QueueLine::Rule(Box::new(rule.to_line())))?;
        }
        Ok(last(QueueTotals::default()))
    }

    /// Sets a rule for mail that comes.
    pub(super) fn set_hold_rule(&self, now_us: u64) -> Result<ListPart, PeerGone> {
        if self.command.dry_run {
            return Ok(last(QueueTotals { dry_run: true, ..QueueTotals::default() }));
        }
        Ok(match self.set_rule(RuleKind::Hold, now_us) {
            Ok(rule) => last(QueueTotals { rule: Some(rule.name()), ..QueueTotals::default() }),
            Err(error) => ListPart::Failed { reason: Reason::Request, error },
        })
    }

    /// Sets a suspension, and holds what waits.
    pub(super) fn suspend(&self, now_us: u64) -> Result<ListPart, PeerGone> {
        if self.command.dry_run {
            return self.preview(Action::Suspend, now_us);
        }
        let rule = match self.set_rule(RuleKind::Suspension, now_us) {
            Ok(rule) => rule,
            Err(error) => return Ok(ListPart::Failed { reason: Reason::Request, error }),
        };
        let ended = self.change(Action::Suspend, now_us, Some(rule.hold()))?;
        Ok(with_name(ended, &rule))
    }

    /// Ends a rule or a suspension, and releases what it holds.
    pub(super) fn resume(&self, now_us: u64) -> Result<ListPart, PeerGone> {
        let name = self.command.selection.held_by.as_deref().unwrap_or_default();
        let known = self.delivery.steering().without_rule(name);
        let Some((_, rule)) = known else {
            let error =
                format!("{name:?}: no such rule or suspension is in force; \"mailrace queue rules\" names them");
            return Ok(ListPart::Failed { reason: Reason::Request, error });
        };
        if self.command.dry_run {
            return self.preview(Action::Resume, now_us);
        }
        let changed = self.delivery.change_steering(&mut |steering| {
            // Another command may have ended it meanwhile.
            Ok(steering.without_rule(name).map_or_else(|| steering.clone(), |(next, _)| next))
        });
        if let Err(error) = changed {
            return Ok(ListPart::Failed { reason: Reason::Failed, error });
        }
        (self.on_change)(&QueueChange::RuleEnded { rule: &rule, by: self.by });
        let ended = match self.command.keep_held {
            true => last(QueueTotals::default()),
            false => self.change(Action::Resume, now_us, None::<Hold>)?,
        };
        Ok(with_name(ended, &rule))
    }

    /// Puts a rule in force.
    fn set_rule(&self, kind: RuleKind, now_us: u64) -> Result<HoldRule, String> {
        let Command { selection, reason, .. } = self.command;
        let expression = selection.expression.clone().ok_or("a rule needs an expression")?;
        let new = NewRule {
            kind,
            expression,
            reason: reason.clone(),
            set_by: self.by.name(),
            until: self.end_of_hold(now_us),
        };
        let mut set = None;
        self.delivery.change_steering(&mut |steering| {
            let next = steering.with_rule(new.clone(), seconds(now_us).into())?;
            set = next.rules().last().cloned();
            Ok(next)
        })?;
        let rule = set.ok_or("the rule was not set")?;
        (self.on_change)(&QueueChange::RuleSet { rule: &rule, by: self.by });
        Ok(rule)
    }
}

/// Adds the name of the rule to the last line.
fn with_name(ended: ListPart, rule: &HoldRule) -> ListPart {
    match ended {
        ListPart::Last(mut fields) => {
            fields.extend(
                to_fields(&QueueTotals { rule: Some(rule.name()), ..QueueTotals::default() }).remove_entry("rule"),
            );
            ListPart::Last(fields)
        }
        ListPart::Failed { reason, error } => ListPart::Failed {
            reason,
            error: format!("{error}; {} is in force or ended all the same: mailrace queue rules", rule.name()),
        },
        line @ ListPart::Line(_) => line,
    }
}

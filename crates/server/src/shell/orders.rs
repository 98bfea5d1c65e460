//! Orders of operators that stay in force: sets and removes limits of destinations, and ends orders with their time.
//!
//! A limit is part of the configuration in force, which is replaced as by a reload; no file of the operator changes.

use super::server::Server;
use crate::active_config::ActiveConfig;
use crate::dispatch::Renewal;
use crate::steering::{limits_of, read_limit};
use observe::{CommandBy, Event, Severity};
use operator::answers::{LimitLine, LimitsAnswer, to_fields};
use operator::control::{Answer, LimitOrder, Reason};
use operator::queue::HoldRule;
use operator::requester::Requester;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

/// How often the server looks for orders that have ended.
const INTERVAL: Duration = Duration::from_secs(5);

impl Server {
    /// Returns the limits that operators have set.
    pub(super) fn answer_limits(&self) -> Answer {
        Answer::Done(to_fields(&LimitsAnswer { limits: self.context.steering.orders().limits().to_vec() }))
    }

    /// Sets or removes a limit. It is durable and in force with the answer.
    pub(super) async fn answer_limit(self: &Arc<Self>, order: LimitOrder, by: Requester) -> Answer {
        if self.context.spool().is_none() {
            return Answer::refused(Reason::Failed, "a sink delivers nothing");
        }
        if self.reloading.swap(true, Ordering::SeqCst) {
            return Answer::refused(Reason::Busy, "a reload or another change of a limit is going on; try again");
        }
        let server = Arc::clone(self);
        let changed = tokio::task::spawn_blocking(move || server.change_limit(&order, &by)).await;
        self.reloading.store(false, Ordering::SeqCst);
        changed.unwrap_or_else(|_| Answer::refused(Reason::Failed, "the change broke off; the log says why"))
    }

    fn change_limit(&self, order: &LimitOrder, by: &Requester) -> Answer {
        let now_s = self.context.unix_now().as_secs();
        let line = LimitLine {
            destination: order.destination.clone(),
            connections: order.connections,
            rate: order.rate.clone(),
            reason: order.reason.as_ref().map(ToString::to_string),
            set_by: by.name(),
            set_at: now_s,
            until: order.time.map(|time| now_s.saturating_add(time.as_secs())),
        };
        let orders = self.context.steering.orders();
        let before = orders.limits().iter().find(|one| one.destination == line.destination).cloned();
        let line = match (order.removes, before) {
            (true, None) => {
                let error = format!(
                    "{:?}: no limit is set for it; \"mailrace destination limits\" shows those that are",
                    line.destination
                );
                return Answer::refused(Reason::Request, error);
            }
            (true, Some(before)) => before,
            (false, _) => match read_limit(&line) {
                Ok(_) => line,
                Err(error) => return Answer::refused(Reason::Request, error),
            },
        };
        let changed = self.context.steering.change(&mut |orders| match order.removes {
            true => Ok(orders.without_limit(&line.destination).unwrap_or_else(|| orders.clone())),
            false => orders.with_limit(line.clone()),
        });
        if let Err(error) = changed {
            return Answer::refused(Reason::Failed, error);
        }
        self.renew_limits();
        let what = if order.removes { "ended" } else { "set" };
        record_limit(self, what, &line, Some(command_by(by)));
        Answer::Done(to_fields(&line))
    }

    /// Puts the limits of the orders in force.
    fn renew_limits(&self) {
        let mut live = ActiveConfig::clone(&self.context.live.load());
        live.config.set_limits = limits_of(&self.context.steering.orders());
        self.context.live.store(Arc::new(live));
        self.reconfigure_dispatch(&Renewal::of_limits());
    }

    /// Ends orders whose time is over, until the server stops.
    pub(super) async fn end_orders_periodically(self: Arc<Self>) {
        let mut is_told = false;
        loop {
            tokio::select! {
                () = self.context.stop.begun() => return,
                () = tokio::time::sleep(INTERVAL) => {}
            }
            let now_s = self.context.unix_now().as_secs();
            let nothing_over = self.context.steering.orders().without_ended(now_s).is_none();
            // The configuration in force is replaced by one at a time.
            if nothing_over || self.reloading.swap(true, Ordering::SeqCst) {
                continue;
            }
            let server = Arc::clone(&self);
            let ended = tokio::task::spawn_blocking(move || server.end_orders(now_s)).await;
            self.reloading.store(false, Ordering::SeqCst);
            match ended {
                Ok(Ok(())) => is_told = false,
                Ok(Err(text)) if !std::mem::replace(&mut is_told, true) => {
                    self.context.record(&Event::Spool { severity: Severity::Error, text: &text });
                }
                // The operator knows it, or a panic is reported where it happens.
                _ => {}
            }
        }
    }

    /// Ends orders whose time is over. Blocks.
    ///
    /// # Errors
    /// They end later, for this reason.
    fn end_orders(&self, now_s: u64) -> Result<(), String> {
        let ended = self.context.steering.end_overdue(now_s)?;
        ended.rules.iter().for_each(|rule| self.context.record(&rule_event("ended", None, &text_of(rule))));
        ended.limits.iter().for_each(|limit| record_limit(self, "ended", limit, None));
        if !ended.limits.is_empty() {
            self.renew_limits();
        }
        Ok(())
    }
}

/// Returns the event of a rule that was set or has ended; `text` is that of [`text_of`].
pub(super) fn rule_event<'a>(
    what: &'a str,
    by: Option<CommandBy<'a>>,
    (name, text): &'a (String, String),
) -> Event<'a> {
    Event::StandingOrder { what, name, text, by }
}

/// Returns the name of a rule, and its expression with the reason.
pub(super) fn text_of(rule: &HoldRule) -> (String, String) {
    let reason = rule.reason.as_ref().map(|reason| format!("{reason}: ")).unwrap_or_default();
    (rule.name(), format!("{reason}{}", rule.expression.as_str()))
}

fn record_limit(server: &Server, what: &str, limit: &LimitLine, by: Option<CommandBy<'_>>) {
    let mut values = Vec::new();
    values.extend(limit.connections.map(|number| format!("connections={number}")));
    values.extend(limit.rate.as_ref().map(|rate| format!("rate={rate}")));
    let reason = limit.reason.as_ref().map(|reason| format!("{reason}: ")).unwrap_or_default();
    let (name, text) = (format!("limit {}", limit.destination), format!("{reason}{}", values.join(" ")));
    server.context.record(&Event::StandingOrder { what, name: &name, text: &text, by });
}

/// Returns the party that asked, as the log names it.
pub(super) fn command_by(by: &Requester) -> CommandBy<'_> {
    match by {
        Requester::User(uid) => CommandBy::User(*uid),
        Requester::Token(name) => CommandBy::Token(name),
    }
}

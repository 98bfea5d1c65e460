//! Mail that waited too long at a destination that is down: nobody tries it, so its age is seen by the walk over its queue.

use super::Dispatch;
use crate::deliver::{Outgoing, Unfit};
use crate::resolve;
use crate::service::Service;
use crate::settle::{self, Attempt, Cause, Fate};
use mail::{EnhancedCode, Outcome, QueueId};
use observe::{Event, NextHop, Severity};
use schedule::{Health, Overdue, Positions};
use spool::{Change, State, Status, Store as _};
use std::sync::Arc;
use std::time::Duration;

/// Tells the sender, and records what he was told. False: it could not be done, and is to be tried later. Nothing is done for recipients that do not wait any more.
pub(super) async fn settle(
    service: &Arc<Service>,
    dispatch: &Arc<Dispatch>,
    destination: &[u8],
    message: QueueId,
    recipients: &Positions,
    kind: Overdue,
) -> bool {
    if service.keeper.pressure() == spool::Pressure::Poisoned {
        return false;
    }
    let outgoing = match Outgoing::load(&dispatch.spool, message, recipients).await {
        Ok(outgoing) => outgoing,
        Err(Unfit::Nothing) => return true,
        Err(Unfit::Unreadable(why)) => {
            let text =
                format!("message {message} is overdue and cannot be read: {why}; run mailrace spool verify on a copy");
            service.tell(&Event::Spool { severity: Severity::Error, text: &text });
            return false;
        }
    };
    let down = dispatch.lock().scheduler.state(destination).map(|view| view.health);
    let why = match down {
        Some(Health::Down { why, .. }) => Some(why),
        _ => recipients.iter().find_map(|position| dispatch.reasons.of(message, position)),
    };
    let text = why.map_or_else(
        || "it could not be delivered, and the last reason is not known any more".to_owned(),
        |why| why.to_string(),
    );
    let status = EnhancedCode::of(Outcome::Transient, 4, 7);
    let attempt = Attempt {
        envelope: &outgoing.envelope,
        positions: &outgoing.positions,
        content_bytes: outgoing.content_bytes,
        recipients_left: outgoing.recipients_left,
        next_hop: NextHop::None,
        mailer: resolve::mailer(&service.live.load().config.route),
        xdelay: Duration::ZERO,
        passes_dsn: false,
    };
    let fates = vec![Fate::Deferred(Cause::new(status, text, None)); outgoing.positions.len()];
    let settled = settle::settle(service, &attempt, fates).await;
    // Nobody tried: what waits on is due as before, and no attempt is counted.
    let changes = settled.changes.into_iter().zip(&outgoing.positions).map(|(change, (_, before))| {
        let state = match (kind, change.state.status) {
            (Overdue::Warn, Status::Waiting) => {
                let state = State { due: before.due, attempts: before.attempts, ..change.state };
                if change.state.is_warned() { state.warned() } else { state }
            }
            _ => change.state,
        };
        Change { state, ..change }
    });
    let changes: Vec<Change> = changes.collect();
    // If it cannot be recorded, the next walk finds it again.
    let is_told = changes.iter().all(|change| change.state.status != Status::Waiting || change.state.is_warned());
    dispatch.spool.record(&changes).is_ok() && is_told
}

//! Ends holds that have an end: their recipients are released as by a command.

use super::change::ChangeBatcher;
use super::command::Action;
use super::delivery_control::DeliveryControl;
use super::scan::{QueueScan, ScanResult};
use super::selection::{RecipientStatus, Selection};
use mail::QueueId;
use spool::{Error, Hold, Spool, Status};
use std::collections::{BTreeMap, HashSet};

/// Recipients of a shard that are released together.
const TOGETHER: usize = 1_000;

/// A message of which a hold has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedHold {
    /// The message.
    pub id: QueueId,
    /// Recipients that were released.
    pub recipients: u64,
    /// The hold, of the first of them.
    pub hold: Hold,
}

/// Releases recipients whose hold has ended by the clock of the server, and has them tried. Some thousands at most; the
/// caller asks again while it returns messages. Blocks; the release is durable on return.
///
/// # Errors
/// The spool takes no changes. Recipients that are held still are released by a later call.
pub fn release_ended_holds(spool: &Spool, delivery: &dyn DeliveryControl) -> Result<Vec<EndedHold>, Error> {
    let now_us = delivery.now_us();
    let now_s = u32::try_from(now_us / 1_000_000).unwrap_or(u32::MAX);
    let mut ended: BTreeMap<QueueId, HashSet<u32>> = BTreeMap::new();
    for (id, position) in spool.ended_holds(now_s, TOGETHER) {
        ended.entry(id).or_default().insert(position);
    }
    let mut changes = ChangeBatcher::new(spool, None);
    let mut released = Vec::new();
    for (id, positions) in ended {
        let selection = Selection { ids: vec![id], state: Some(RecipientStatus::Held), ..Selection::default() };
        let scan = QueueScan { spool, delivery, selection: &selection, now_us, reads: false };
        let ScanResult::FoundMessage(mut found) = scan.read_message(id) else { continue };
        found.recipients.retain(|one| positions.contains(&one.position));
        let Some(hold) = found.recipients.first().and_then(|one| one.hold.clone()) else { continue };
        // A time that the sender asked for holds.
        scan.mark_early(&mut found, Status::Held);
        changes.apply(Action::Release, &mut found, now_s);
        released.push(EndedHold { id, recipients: found.recipients.len() as u64, hold });
        if changes.is_full() {
            changes.record_pending()?;
        }
    }
    changes.finish_and_notify(Action::Release, delivery)?;
    Ok(released)
}

//! Asks whether this node owns the messages that a command ends. In a cluster another node may have adopted one: it
//! delivers the message, whatever is recorded here, and a report to the sender would be wrong.
//!
//! A doubt that may pass soon, as just after a start or behind many ends, is waited for. A command waits for five
//! seconds in vain at most: then it leaves such messages alone without a wait.

use super::delivery_control::DeliveryControl;
use super::recipient_status::RecipientStatus;
use super::scan::{FoundMessage, FoundRecipient};
use mail::QueueId;
use std::cell::Cell;
use std::time::Duration;

/// How long a command waits in vain for ownership.
const PATIENCE: Duration = Duration::from_secs(5);
/// Time between two looks meanwhile.
const LOOK_INTERVAL: Duration = Duration::from_millis(10);

/// A message that is left alone, and the reason.
pub(super) type NotOwned = (QueueId, String);

/// Asks for the messages of one command.
#[derive(Debug)]
pub(super) struct OwnerCheck<'a> {
    delivery: &'a dyn DeliveryControl,
    patience: Cell<Duration>,
}

impl<'a> OwnerCheck<'a> {
    pub(super) const fn new(delivery: &'a dyn DeliveryControl) -> Self {
        Self { delivery, patience: Cell::new(PATIENCE) }
    }

    /// Returns why the message must not be ended here now; `None` if it may be, which is so on a machine alone and for
    /// mail without copies. To be asked immediately before the end is recorded.
    ///
    /// Blocks for a moment where that may help.
    #[expect(clippy::disallowed_methods, reason = "ownership comes without an event, on a thread that may wait")]
    pub(super) fn doubt(&self, id: QueueId) -> Option<String> {
        let mut waited = Duration::ZERO;
        loop {
            let doubt = self.delivery.doubt_about_end(id);
            let left = self.patience.get();
            match doubt {
                None => {
                    // The wait was not in vain.
                    self.patience.set(if waited.is_zero() { left } else { PATIENCE });
                    return None;
                }
                Some(doubt) if !doubt.may_pass || left.is_zero() => return Some(doubt.text),
                Some(_) => {
                    std::thread::sleep(LOOK_INTERVAL);
                    waited += LOOK_INTERVAL;
                    self.patience.set(left.saturating_sub(LOOK_INTERVAL));
                }
            }
        }
    }
}

/// The messages that a deletion left alone.
#[derive(Debug, Default)]
pub(super) struct RefusedEnds {
    /// Messages that were left alone.
    pub(super) messages: u64,
    /// Their recipients that were meant.
    pub(super) recipients: u64,
    /// Those of them with an attempt under way.
    pub(super) active: u64,
}

impl RefusedEnds {
    /// Counts those of the messages that were refused, and returns the others.
    pub(super) fn part(&mut self, meant: Vec<FoundMessage>, refused: &[NotOwned]) -> Vec<FoundMessage> {
        if refused.is_empty() {
            return meant;
        }
        let is_refused = |found: &FoundMessage| refused.iter().any(|(id, _)| *id == found.id);
        let (left, others): (Vec<_>, Vec<_>) = meant.into_iter().partition(is_refused);
        for found in left {
            self.messages += 1;
            self.recipients += found.recipients.len() as u64;
            let is_active = |one: &&FoundRecipient| one.status == RecipientStatus::Active;
            self.active += found.recipients.iter().filter(is_active).count() as u64;
        }
        others
    }
}

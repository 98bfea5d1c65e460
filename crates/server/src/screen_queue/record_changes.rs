//! Steps that end a hold: each names the reason that it ends, and concerns those recipients alone that are held for it.

use super::ScreenQueue;
use crate::context::Context;
use crate::intake::NewMessage;
use crate::routing::message_properties::MessageProperties;
use mail::{Address, Envelope, QueueId};
use observe::Event;
use schedule::Class;
use spool::envelope::Encoded;
use spool::{Change, Hold, HoldKind, State, Status};
use std::collections::HashSet;
use std::sync::Arc;

/// Logs recipients that are dropped.
pub(super) fn report_dropped<'a>(context: &Context, id: QueueId, addresses: impl Iterator<Item = &'a Address>) {
    context.record_discarded(id, addresses);
    context.record(&Event::Discarded { id });
}

/// Changes those recipients that are held for the reason `from`, waits until that is durable, and returns their
/// positions. An operator may have released or deleted the others.
pub(super) async fn record_from(
    queue: &ScreenQueue,
    from: HoldKind,
    changes: &[Change],
    hold: Option<&Hold>,
) -> Result<HashSet<u32>, String> {
    let recorded = queue.dispatch.spool.record_from(from, changes, hold);
    let (commit, changed) = recorded.map_err(|error| error.to_string())?;
    commit.await.map_err(|error| error.to_string())?;
    for (id, recipient) in &changed {
        queue.dispatch.settler.reasons.forget(*id, *recipient);
    }
    Ok(changed.into_iter().map(|(_, recipient)| recipient).collect())
}

/// Returns a message that waits for delivery, as dispatch takes it.
pub(super) fn released(envelope: &Envelope, destinations: Vec<Vec<u8>>, state: State) -> NewMessage {
    let class = Class::from_bits(state.class());
    NewMessage {
        envelope: Arc::new(envelope.clone()),
        encoded: Arc::new(Encoded::with(envelope, destinations)),
        first: State { status: Status::Waiting, ..state },
        // It is looked at when the time has come until which it waits.
        kind: MessageProperties { queue_only: state.due > 0, ..MessageProperties::default() },
        class,
        held: None,
        is_partly_held: false,
        accepts_local: false,
    }
}

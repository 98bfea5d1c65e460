//! A message as the spool takes it, and the wait until it is durable there.

use crate::routing::expansions::MEMBERS_AT_ONCE;
use crate::sabotage::{Sabotage, is_sabotaged};
use mail::QueueId;
use os::blocking;
use spool::envelope::Encoded;
use spool::{Change, Commit, Error, Hold, NewBody, NewRecipient, Spool, State, Status};
use std::sync::Arc;

/// A message with its encoded envelope, as the spool takes it.
#[derive(Clone, Debug)]
pub(super) struct FramedMessage {
    /// The first message of its transaction, which chooses the shard.
    pub(super) first: QueueId,
    pub(super) encoded: Arc<Encoded>,
    pub(super) body: NewBody,
    /// The state in which its recipients begin.
    pub(super) state: State,
    /// Why its recipients are held, if they begin held.
    pub(super) hold: Option<Hold>,
    /// It may use the room that the spool keeps from ordinary mail.
    pub(super) reserved: bool,
    /// No attempt follows at once.
    pub(super) waits: bool,
    /// It is taken without a copy at another node of the cluster.
    pub(super) accepts_local: bool,
}

impl FramedMessage {
    /// A message that is alone in its transaction, and attempted at once.
    pub(super) fn alone(encoded: &Arc<Encoded>, body: NewBody, state: State) -> Self {
        let (first, encoded) = (encoded.id(), Arc::clone(encoded));
        Self { first, encoded, body, state, hold: None, reserved: false, waits: false, accepts_local: false }
    }

    pub(super) fn id(&self) -> QueueId {
        self.encoded.id()
    }

    pub(super) fn recipients(&self) -> Vec<NewRecipient<'_>> {
        self.encoded.recipients()
    }

    /// It is taken without a copy at another node of the cluster.
    pub(super) const fn accepts_local(&self) -> bool {
        self.accepts_local
    }

    /// Converts it for the spool; `recipients` are those of its encoded envelope.
    pub(super) fn as_new<'a>(&'a self, recipients: &'a [NewRecipient<'a>]) -> spool::NewMessage<'a> {
        let Self { encoded, body, state, hold, reserved, waits, .. } = self;
        let message = encoded.message(recipients, body.clone());
        spool::NewMessage { reserved: *reserved, state: *state, hold: hold.as_ref(), waits: *waits, ..message }
    }
}

/// Returns the changes that declare a stored message done without a report: its client keeps it. `first`: the state in
/// which its recipients began.
pub(super) fn withdrawal(id: QueueId, recipients: usize, first: State) -> impl Iterator<Item = Change> {
    let state = State { status: Status::Done, ..first };
    (0..).take(recipients).map(move |recipient| Change { id, recipient, state, destination: None })
}

/// Appends the messages of a transaction in one batch and waits until they are durable. While the disk is behind, the
/// client waits, and with it the network.
///
/// # Errors
/// As [`Spool::append_all`].
pub(super) async fn append_to_spool(spool: &Arc<Spool>, messages: &[FramedMessage]) -> Result<(), Error> {
    let Some(first) = messages.first().map(|message| message.first) else { return Ok(()) };
    loop {
        let handed_over = if messages.iter().map(|message| message.encoded.len()).sum::<usize>() > MEMBERS_AT_ONCE {
            let (spool, messages) = (Arc::clone(spool), messages.to_vec());
            let done = blocking::run(move || hand_over(&spool, first, &messages)).await;
            // A panic: whether the messages are in the spool is unknown, as after a failed write.
            done.unwrap_or(Err(Error::Failed))
        } else {
            hand_over(spool, first, messages)
        };
        match handed_over {
            Ok(_) if is_sabotaged(Sabotage::AnswerEarly) => return Ok(()),
            Ok(commit) => return commit.await,
            Err(Error::Busy) => spool.room(first).await?,
            Err(error) => return Err(error),
        }
    }
}

fn hand_over(spool: &Spool, first: QueueId, messages: &[FramedMessage]) -> Result<Commit, Error> {
    if let [only] = messages {
        return spool.append_all(first, &[only.as_new(&only.encoded.recipients())]);
    }
    let recipients: Vec<_> = messages.iter().map(|message| message.encoded.recipients()).collect();
    let new: Vec<_> =
        messages.iter().zip(&recipients).map(|(message, recipients)| message.as_new(recipients)).collect();
    spool.append_all(first, &new)
}

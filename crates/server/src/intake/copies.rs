//! Stores new messages here and, in a cluster, at another node at the same time.
//!
//! The copy is on its way before the spool has the message: a `250` waits for the slower of the two. Without a copy the
//! client gets a temporary error, or its `250` from the spool alone, as its listener says (`listen.on_no_replica`). The
//! spool then declares the message done before the client has its answer; after a crash in between it is delivered
//! although its client sends it again.

use super::framed_message::{FramedMessage, append_to_spool, withdrawal};
use crate::cluster::{ClusterMember, CopyEnvelope};
use crate::message_store::MessageStore;
use bytes::Bytes;
use cluster::{AcceptAnswer, Content, NewMessage, OnNoReplica};
use mail::QueueId;
use spool::{Change, Error, NewBody, Spool, State, Store as _};
use std::sync::Arc;

/// Appends the messages of a transaction in one batch, and waits until they and their copies are durable.
///
/// # Errors
/// As `Spool::append_all`, or `NoCopy`; nothing of them is delivered.
/// # Cancel safety
/// No: a dropped call may leave messages that wait for the next start.
pub(super) async fn append(message_store: &MessageStore, messages: &[FramedMessage]) -> Result<(), Error> {
    let MessageStore::Spool { spool, .. } = message_store else { return Ok(()) };
    match message_store.cluster() {
        None => append_to_spool(spool, messages).await,
        Some(member) => append_with_copies(member, spool, messages).await,
    }
}

async fn append_with_copies(
    member: &ClusterMember,
    spool: &Arc<Spool>,
    messages: &[FramedMessage],
) -> Result<(), Error> {
    let begun: Vec<_> = messages.iter().map(|message| begin_copy(member, message)).collect();
    let stored = append_to_spool(spool, messages).await;
    if let Err(error) = stored {
        messages.iter().for_each(|message| member.store_refused(message.id()));
        return Err(error);
    }
    messages.iter().for_each(|message| member.stored(message.id()));
    let mut is_copied = true;
    for answer in begun {
        let answer = match answer {
            Some(answer) => answer.await,
            // The spool takes no envelope that cannot be encoded.
            None => AcceptAnswer::TempFail,
        };
        is_copied &= answer != AcceptAnswer::TempFail;
    }
    if is_copied {
        return Ok(());
    }
    withdraw(spool, messages).await?;
    Err(Error::NoCopy)
}

/// Sends a message to its holder; returns the answer to come.
fn begin_copy(member: &ClusterMember, message: &FramedMessage) -> Option<impl Future<Output = AcceptAnswer> + use<>> {
    let recipients = message.recipients();
    let new = message.as_new(&recipients);
    let section = spool::new_envelope(&new)?;
    let (header, content) = match &new.body {
        NewBody::Whole { content, .. } => (Bytes::new(), Content::Whole(content.clone())),
        NewBody::Chunks { header, .. } => (header.clone(), Content::Streamed),
    };
    let id = new.id;
    let copy = NewMessage {
        id,
        queued_at_us: id.unix_us(),
        expires_at_us: 0,
        recipients: u32::try_from(recipients.len()).ok()?,
        envelope: CopyEnvelope { section, header }.encode(),
        content,
    };
    let policy = if message.accepts_local() { OnNoReplica::AcceptLocal } else { OnNoReplica::TempFail };
    Some(member.accept(copy, policy))
}

/// Declares messages without a copy done.
async fn withdraw(spool: &Spool, messages: &[FramedMessage]) -> Result<(), Error> {
    let of_message = |message: &FramedMessage| withdrawal(message.id(), message.recipients().len(), State::default());
    let changes: Vec<Change> = messages.iter().flat_map(of_message).collect();
    spool.record(&changes)?.await
}

/// Sends a piece of a large body to a holder while it arrives.
pub(super) fn stream(message_store: &MessageStore, id: QueueId, octets: &[u8]) {
    if let Some(member) = message_store.cluster() {
        member.stream_body(id, &Bytes::copy_from_slice(octets));
    }
}

/// Forgets the pieces of a body that will have no message.
pub(super) fn abort(message_store: &MessageStore, id: QueueId) {
    if let Some(member) = message_store.cluster() {
        member.abort_body(id);
    }
}

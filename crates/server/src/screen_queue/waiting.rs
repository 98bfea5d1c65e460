//! Reads a message that waits for its filters: the envelope with those recipients that wait, its record, and the
//! content if a filter takes one of its size.

use super::ScreenQueue;
use super::record::ScreeningRecord;
use crate::message::ReadError;
use crate::screen::filters::{FilterContent, PooledFilter};
use bytes::Bytes;
use mail::header::{HeaderSection, LineEnd};
use mail::{Envelope, QueueId};
use spool::envelope::{decode_head, decode_recipient, decode_screening};
use spool::{HoldKind, Recent, Spool, State, Status, Store as _, StoredEnvelope, StoredRecipient};
use std::sync::Arc;

/// A message that waits.
#[derive(Debug)]
pub(super) struct WaitingMessage {
    /// With the recipients that wait.
    pub(super) envelope: Envelope,
    /// The position, state and destination of each.
    pub(super) recipients: Vec<(u32, State, Bytes)>,
    /// These are all recipients that the message ever had.
    pub(super) is_whole: bool,
    pub(super) record: ScreeningRecord,
    /// The content as filters see it; of a message that is too large for all of them the header section.
    pub(super) content: FilterContent,
    /// Octets of the content.
    pub(super) size: u64,
    /// Octets of the header section with the empty line.
    pub(super) body_offset: u64,
    /// An empty line ends the header section.
    pub(super) is_closed: bool,
    /// The filters that are asked.
    pub(super) filters: Vec<Arc<PooledFilter>>,
    /// A filter that the configuration has no more.
    pub(super) missing: Option<String>,
}

/// Why a message that waits is not screened now.
#[derive(Debug)]
pub(super) enum WaitingError {
    /// No recipient waits any more: released, deleted, bounced.
    Nothing,
    /// It cannot be read.
    Unread(ReadError),
}

impl From<ReadError> for WaitingError {
    fn from(error: ReadError) -> Self {
        match error {
            ReadError::Gone => Self::Nothing,
            error => Self::Unread(error),
        }
    }
}

/// Returns those recipients that are held for this reason.
pub(super) fn held(spool: &Spool, stored: &StoredEnvelope, id: QueueId, kind: HoldKind) -> Vec<StoredRecipient> {
    let waits = |one: &&StoredRecipient| one.state.status == Status::Held && is_held(spool, id, one.position, kind);
    stored.recipients.iter().filter(waits).cloned().collect()
}

impl WaitingMessage {
    /// Reads a message.
    ///
    /// # Errors
    /// Nothing of it waits, or it cannot be read.
    /// # Cancel safety
    /// Yes.
    pub(super) async fn read(queue: &ScreenQueue, id: QueueId) -> Result<Self, WaitingError> {
        let reading = &queue.dispatch.messages.reading;
        let FoundContent { stored, recipients_left, body } = find(queue, id).await?;
        let waiting = held(&queue.dispatch.spool, &stored, id, HoldKind::Screen);
        let last = waiting.last().ok_or(WaitingError::Nothing)?;
        // A recipient that is done, or was let go, has left a gap.
        let is_whole = usize::try_from(last.position).is_ok_and(|last| last + 1 == waiting.len())
            && waiting.len() == recipients_left;
        let (envelope, record) = decode(id, &stored, &waiting).map_err(ReadError::Bad)?;
        let live = queue.context.live.load_full();
        let screen = live.screen.as_ref();
        let known = |name: &String| screen.and_then(|screen| screen.filter(name)).cloned();
        let missing = record.filters.iter().find(|name| known(name).is_none()).cloned();
        let filters: Vec<_> = record.filters.iter().filter_map(known).collect();
        let largest = filters.iter().map(|filter| filter.settings.size_max).max().unwrap_or(0);
        let is_complete = stored.body_bytes <= largest;
        let octets = match (is_complete, body) {
            (true, Some(body)) => body.concat(),
            (true, None) => reading.read(move |spool| spool.body(id)).await?.concat(),
            (false, _) => reading.read(move |spool| spool.header(id)).await?.to_vec(),
        };
        Ok(Self {
            content: FilterContent::read(&octets, record.own_fields.left_in(&octets), is_complete),
            envelope,
            recipients: waiting.into_iter().map(|one| (one.position, one.state, one.destination)).collect(),
            is_whole,
            record,
            size: stored.body_bytes,
            body_offset: stored.body_offset.into(),
            is_closed: HeaderSection::read(&octets, LineEnd::Crlf).is_closed(),
            filters,
            missing,
        })
    }

    /// Returns the state of the first recipient, which has the class of the message.
    pub(super) fn first_state(&self) -> State {
        self.recipients.first().map(|(_, state, _)| *state).unwrap_or_default()
    }
}

/// The envelope of a message, and its content where it is in memory.
struct FoundContent {
    /// Those that wait are among its recipients.
    stored: StoredEnvelope,
    /// Recipients that are not done.
    recipients_left: usize,
    body: Option<Vec<Bytes>>,
}

/// Finds a message in memory, where it has just been stored, or else on the disk, on a thread that may wait for it.
async fn find(queue: &ScreenQueue, id: QueueId) -> Result<FoundContent, WaitingError> {
    let spool = &queue.dispatch.spool;
    let wanted: Vec<u32> = spool
        .states(id)
        .into_iter()
        .map(|(entry, _)| entry)
        .filter(|one| one.state.status == Status::Held && is_held(spool, id, one.recipient, HoldKind::Screen))
        .map(|one| one.recipient)
        .collect();
    if wanted.is_empty() {
        return Err(WaitingError::Nothing);
    }
    if let Some(Recent { envelope: stored, recipients_left, body }) = spool.recent(id, wanted) {
        return Ok(FoundContent { stored, recipients_left, body: Some(body) });
    }
    let stored = queue.dispatch.messages.reading.read(move |spool| spool.envelope(id)).await?;
    Ok(FoundContent { recipients_left: stored.recipients.len(), stored, body: None })
}

fn is_held(spool: &Spool, id: QueueId, recipient: u32, kind: HoldKind) -> bool {
    spool.hold(id, recipient).is_some_and(|hold| hold.kind() == kind)
}

fn decode(
    id: QueueId,
    stored: &StoredEnvelope,
    waiting: &[StoredRecipient],
) -> Result<(Envelope, ScreeningRecord), String> {
    let envelope = decode_head(id, &stored.head).map_err(|error| error.to_string())?;
    let recipients = waiting.iter().map(|one| decode_recipient(&one.data)).collect::<Result<_, _>>();
    let recipients = recipients.map_err(|error| error.to_string())?;
    let record = decode_screening(&stored.head).map_err(|error| error.to_string())?;
    let record = ScreeningRecord::parse(&record.ok_or("it has no record of screen")?)?;
    Ok((Envelope { recipients, ..envelope }, record))
}

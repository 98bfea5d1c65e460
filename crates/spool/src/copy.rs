//! Messages that another log takes over: the envelope as this log writes it, and back.
//!
//! The envelope section of a frame (`docs/spool.md` section 3.4) is what travels: head, recipients at their positions,
//! their states, destinations and holds. A log that takes a copy writes a new frame under a queue id of its own, since
//! a queue id is used once in a log; recipients keep their positions.

use crate::batch::MessageFrame;
use crate::commit::Commit;
use crate::error::Error;
use crate::footer::FooterBuilder;
use crate::hold::Hold;
use crate::sections::{Envelope, EnvelopeWriter, Listed, Sequenced};
use crate::shard::{Shard, encode_envelope, lock};
use crate::spool::Spool;
use crate::store::{NewBody, NewMessage, NewRecipient, Status};
use bytes::Bytes;
use mail::QueueId;
use std::collections::BTreeSet;

/// A live message as another log can take it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MessageCopy {
    /// The envelope section with the present states.
    pub envelope: Bytes,
    /// All recipients, finished ones included.
    pub recipients: u32,
    /// Header section and body, in pieces.
    pub content: Vec<Bytes>,
}

/// Writes the envelope of a new message as [`MessageCopy::envelope`] has it; `None` if it is too long for any log.
#[must_use]
pub fn new_envelope(message: &NewMessage<'_>) -> Option<Bytes> {
    let header_bytes = u32::try_from(message.body.header_bytes()).ok()?;
    encode_envelope(message, header_bytes, u32::try_from(message.recipients.len()).ok()?)
}

impl Spool {
    /// Reads a live message with the present states of its recipients. May read from the disk.
    ///
    /// # Errors
    /// `Unknown`, `Corrupt`, `Unreadable`.
    pub fn copy(&self, id: QueueId) -> Result<MessageCopy, Error> {
        self.holder(id)?.copy(id)
    }

    /// All recipients of a live message, finished ones included, and the positions of those; `None` of a message that
    /// is finished or unknown. From memory.
    #[must_use]
    pub fn progress(&self, id: QueueId) -> Option<(u32, Vec<u32>)> {
        let states = lock(&self.holder(id).ok()?.book).index.states(id.to_u64())?;
        let is_done = |(_, (one, _)): &(u32, &(Sequenced, Option<Bytes>))| one.state.status == Status::Done;
        let finished = (0_u32..).zip(&states).filter(is_done).map(|(position, _)| position).collect();
        Some((u32::try_from(states.len()).unwrap_or(u32::MAX), finished))
    }

    /// Takes a message of another log under a queue id that was never used here. Recipients at `finished` positions,
    /// and those that the envelope has as finished, are done from the beginning. The handle resolves when the message
    /// is on stable storage; `None` if no recipient is left, and nothing is stored.
    ///
    /// The body may have been appended in chunks under the new id. `first` is as in [`Spool::append_all`].
    ///
    /// # Errors
    /// As [`Store::append`](crate::Store::append); `Corrupt` if the envelope makes no sense.
    /// # Cancel safety
    /// As [`Store::append`](crate::Store::append).
    pub fn append_copy(
        &self,
        id: QueueId,
        envelope: &[u8],
        finished: &[u32],
        body: NewBody,
    ) -> Result<Option<Commit>, Error> {
        self.home(id)?.append_copy(id, envelope, finished, body)
    }
}

impl Shard {
    fn copy(&self, id: QueueId) -> Result<MessageCopy, Error> {
        let cached = lock(&self.cache).envelope(id.to_u64());
        let section = match cached {
            Some((section, _)) => section,
            None => self.read_message(id, false)?.envelope,
        };
        let corrupt = || Error::Corrupt { id, what: "the envelope makes no sense".to_owned() };
        let recipients = Envelope::parse(&section).ok_or_else(corrupt)?.recipients;
        let content = self.body(id)?;
        // Last, so that the states are no older than the content.
        let envelope = self.present_section(id.to_u64(), &section).ok_or(Error::Unknown(id))?;
        Ok(MessageCopy { envelope, recipients, content })
    }

    /// An envelope section with the states of this moment; `None` if the message is finished.
    pub(crate) fn present_section(&self, id: u64, section: &[u8]) -> Option<Bytes> {
        let (states, holds) = {
            let book = lock(&self.book);
            (book.index.states(id)?, book.index.holds(id)?)
        };
        let envelope = Envelope::parse(section)?;
        let mut writer = EnvelopeWriter::new(envelope.body_offset, envelope.head, envelope.recipients).ok()?;
        let mut listed = envelope.positions().peekable();
        for ((sequenced, destination), position) in states.iter().zip(0_u32..) {
            let data = listed.next_if(|(at, ..)| *at == position).map(|(_, _, recipient)| recipient.data);
            match (data, destination) {
                (Some(data), Some(destination)) if sequenced.state.status != Status::Done => {
                    let recipient = NewRecipient { data, destination };
                    writer.recipient(*sequenced, recipient, holds.get(&position)).ok()?;
                }
                _ => writer.finished(1),
            }
        }
        Some(writer.into_bytes().into())
    }

    fn append_copy(
        &self,
        id: QueueId,
        envelope: &[u8],
        finished: &[u32],
        body: NewBody,
    ) -> Result<Option<Commit>, Error> {
        self.admit(false)?;
        match self.lay_out_copy(id, envelope, finished, body)? {
            Some((frame, commit)) => {
                let batch = self.staging.push(frame)?;
                Ok(Some(commit.unwrap_or(batch)))
            }
            None => Ok(None),
        }
    }

    fn lay_out_copy(
        &self,
        id: QueueId,
        envelope: &[u8],
        finished: &[u32],
        body: NewBody,
    ) -> Result<Option<(MessageFrame, Option<Commit>)>, Error> {
        let corrupt = || Error::Corrupt { id, what: "the envelope of a copy makes no sense".to_owned() };
        let envelope = Envelope::parse(envelope).ok_or_else(corrupt)?;
        let finished: BTreeSet<u32> = finished.iter().copied().collect();
        let header_bytes = self.header_bytes(&body)?;
        let mut writer =
            EnvelopeWriter::new(header_bytes, envelope.head, envelope.recipients).map_err(|_| corrupt())?;
        let (mut position, mut live, mut name_bytes) = (0_u32, 0_usize, 0_usize);
        for listed in envelope.iter() {
            match listed.ok_or_else(corrupt)? {
                Listed::One(sequenced, recipient, hold) if !finished.contains(&position) => {
                    // This log counts the changes of the recipient anew.
                    let first = Sequenced { sequence: 0, ..sequenced };
                    writer.recipient(first, recipient, hold.as_ref()).map_err(|_| corrupt())?;
                    name_bytes += recipient.destination.len() + hold.as_ref().map_or(0, Hold::encoded_len);
                    live += 1;
                    position = position.saturating_add(1);
                }
                Listed::One(..) => {
                    writer.finished(1);
                    position = position.saturating_add(1);
                }
                Listed::Finished(count) => {
                    writer.finished(count);
                    position = position.saturating_add(count);
                }
            }
        }
        if live == 0 {
            return Ok(None);
        }
        let cell = matches!(body, NewBody::Chunks { .. }).then(std::sync::Arc::default);
        // Each recipient may be followed by a run of finished ones.
        let footer = |list: usize| FooterBuilder::message_bytes(2 * live + 1, name_bytes, list);
        let frame = self.lay_out_section(id, writer.into_bytes().into(), &body, footer, (true, cell.as_ref()))?;
        Ok(Some((frame, cell.map(|cell| Commit::new(&cell)))))
    }
}

//! Reads the recipients and bodies that several readers want, and keeps what they share in memory (`read_cache`).
//!
//! The states and destinations of recipients are those of the moment of the call.

use crate::chunk_list::ChunkList;
use crate::error::Error;
use crate::read_cache::{BODY_BYTES_MAX, SharedMessage};
use crate::sections::{body_offset, head, recipient_at};
use crate::shard::{ReadMessage, Shard, count, cut, lock};
use crate::store::{Part, StoredEnvelope, StoredRecipient};
use bytes::Bytes;
use mail::QueueId;
use std::ops::Range;

impl Shard {
    /// Some recipients of a message, if it was read before and is still in memory.
    pub(crate) fn known_part(&self, id: QueueId, wanted: impl Iterator<Item = u32>) -> Option<Part> {
        let number = id.to_u64();
        let kept = lock(&self.shared).get(number)?;
        let part = self.part_of(number, &kept.envelope, kept.body_bytes, wanted, |position| kept.place(position))?;
        count(&self.counters.shared_hits, 1);
        Some(part)
    }

    /// Some recipients of a message, which is read if it is not in memory.
    pub(crate) fn part(&self, id: QueueId, wanted: &[u32]) -> Result<Part, Error> {
        if let Some(part) = self.known_part(id, wanted.iter().copied()) {
            return Ok(part);
        }
        let number = id.to_u64();
        count(&self.counters.shared_misses, 1);
        let ticket = lock(&self.shared).begin(number);
        let read = self.read_message(id, false).and_then(|found| {
            found.kept().ok_or_else(|| Error::Corrupt { id, what: "the envelope makes no sense".to_owned() })
        });
        let left = lock(&self.book).index.left(number).unwrap_or(0);
        let keeps = read.as_ref().ok().filter(|_| left > wanted.len()).cloned();
        lock(&self.shared).end(number, ticket, keeps);
        let kept = read?;
        let place = |position| kept.place(position);
        let part = self.part_of(number, &kept.envelope, kept.body_bytes, wanted.iter().copied(), place);
        part.ok_or(Error::Unknown(id))
    }

    /// Those of the wanted recipients that are not done, as they are now; `None` if the message is finished.
    pub(crate) fn part_of(
        &self,
        number: u64,
        section: &Bytes,
        body_bytes: u64,
        wanted: impl Iterator<Item = u32>,
        place: impl Fn(u32) -> Option<u32>,
    ) -> Option<Part> {
        let mut recipients = Vec::new();
        let book = lock(&self.book);
        let recipients_left = book.index.left(number)?;
        for position in wanted {
            let Some((state, destination)) = book.index.state_of(number, position) else { continue };
            let Some(recipient) = place(position).and_then(|place| recipient_at(section, place)) else { continue };
            recipients.push(StoredRecipient { position, data: section.slice_ref(recipient.data), destination, state });
        }
        drop(book);
        let head = section.slice_ref(head(section)?);
        let body_offset = body_offset(section)?;
        Some(Part { envelope: StoredEnvelope { head, body_bytes, body_offset, recipients }, recipients_left })
    }

    /// Reads a message with its body, if that is in one frame. Both are kept if several recipients are left, since each
    /// may need it.
    pub(crate) fn read_to_share(&self, id: QueueId) -> Result<ReadMessage, Error> {
        let number = id.to_u64();
        if lock(&self.book).index.left(number).is_none_or(|left| left < 2) {
            return self.read_message(id, true);
        }
        count(&self.counters.shared_misses, 1);
        let ticket = lock(&self.shared).begin(number);
        let read = self.read_message(id, true);
        let keeps = read.as_ref().ok().and_then(ReadMessage::kept);
        lock(&self.shared).end(number, ticket, keeps);
        read
    }

    /// Content in chunks, read whole for those who want it next; `None` where it is too long, or its message is not
    /// kept.
    pub(crate) fn chunks_to_share(&self, id: QueueId, chunks: &ChunkList) -> Option<Result<Bytes, Error>> {
        let number = id.to_u64();
        let bytes = chunks.content_bytes();
        if bytes > BODY_BYTES_MAX {
            return None;
        }
        let (ticket, kept) = {
            let mut shared = lock(&self.shared);
            let kept = shared.get(number)?;
            if let Some(body) = kept.body {
                count(&self.counters.shared_hits, 1);
                return Some(Ok(body));
            }
            (shared.begin(number), kept)
        };
        count(&self.counters.shared_misses, 1);
        let read = self.chunk_range(id, chunks, &(0..bytes)).map(Bytes::from);
        let keeps = read.as_ref().ok().map(|body| kept.with_body(body.clone()));
        lock(&self.shared).end(number, ticket, keeps);
        Some(read)
    }

    /// Whether reading the body would put it in memory for others.
    pub(crate) fn shares_body(&self, id: QueueId) -> bool {
        let book = lock(&self.book);
        let number = id.to_u64();
        let has_others = book.index.left(number).is_some_and(|left| left > 1);
        // In one frame it is not long.
        let bytes = book.index.chunks(number).map(ChunkList::content_bytes);
        has_others && bytes.is_none_or(|bytes| bytes <= BODY_BYTES_MAX)
    }

    /// A range of the body, if that is in one piece in memory.
    pub(crate) fn known_body_range(&self, id: QueueId, range: &Range<u64>) -> Option<Bytes> {
        let number = id.to_u64();
        let recent =
            lock(&self.cache).content(number).filter(|parts| parts.len() == 1).and_then(|mut parts| parts.pop());
        let (body, hits) = match recent {
            Some(body) => (body, &self.counters.cache_hits),
            None => (lock(&self.shared).get(number)?.body?, &self.counters.shared_hits),
        };
        count(hits, 1);
        Some(cut(&body, 0, range))
    }
}

impl ReadMessage {
    /// Returns the parts of a message that other readers may share; `None` where its envelope makes no sense. The body
    /// is copied out of the buffer of the frame, which would stay with it.
    fn kept(&self) -> Option<SharedMessage> {
        let is_read = self.chunks.is_none() && self.content.len() as u64 == self.body_bytes.min(BODY_BYTES_MAX);
        let body = is_read.then(|| Bytes::copy_from_slice(&self.content));
        SharedMessage::new(self.envelope.clone(), self.body_bytes, body)
    }
}

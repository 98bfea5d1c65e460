//! The content of a transaction while it arrives: the header section once, the body for each message that the
//! transaction becomes.
//!
//! The header section stays in memory until all messages are stored, so that a rule that needs the whole body (a
//! signature over it) can still add and change header fields. The body of large content goes to the spool in chunks
//! while it arrives ([`Content`]). Content that comes whole with [`TransactionContent::finish`] is not taken apart: the
//! spool gets the offset of its body.
//!
//! A header section ends behind the first empty line; content without one is all header section. The spool takes
//! [`MessageStore::header_bytes_max`] octets of it. Of a larger one, which `message.header_bytes_max` must allow, the
//! fields behind that limit count to the body, as they do where header fields are rewritten.

use super::content::{ArrivingBody, FinishedContent};
use super::header_end::{header_end, in_memory};
use super::new_message::NewMessage;
use crate::message_store::MessageStore;
use bytes::Bytes;
use mail::QueueId;
use mail::header::{HeaderSection, LineEnd};
use spool::Error;

/// The content of the messages of one transaction; empty between two transactions.
#[derive(Debug, Default)]
pub struct TransactionContent {
    /// The header section of large content, as far as it has come.
    header: Vec<u8>,
    /// Further octets belong to the body.
    is_header_whole: bool,
    /// The body for each message; the first one has the name of the transaction.
    messages: Vec<ArrivingBody>,
    /// The beginning of a large body, for *screen*.
    kept: Vec<u8>,
    /// Octets of a body that are kept.
    kept_max: usize,
    /// Octets that would be kept of a message that does not come back from a filter; none: the same.
    kept_otherwise: Option<usize>,
    /// Octets of large content that have come.
    bytes: u64,
}

/// Content as *screen* sees it.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ContentBeginning {
    /// Header section, empty line and body; of a large body the beginning.
    pub(crate) octets: Vec<u8>,
    /// That is all of it.
    pub(crate) is_complete: bool,
    /// Octets of the whole content.
    pub(crate) size: u64,
}

impl TransactionContent {
    /// Begins the content of a transaction with this name.
    #[must_use]
    pub fn new(first: QueueId) -> Self {
        Self::of(first, [first])
    }

    /// Begins the content of the messages of a transaction that is stored where the message `first` belongs.
    pub(crate) fn of(first: QueueId, messages: impl IntoIterator<Item = QueueId>) -> Self {
        let messages = messages.into_iter().map(|id| ArrivingBody::new(first, id)).collect();
        Self { messages, ..Self::default() }
    }

    /// Adds a message of the transaction. No octet of the content has come.
    pub(crate) fn add(&mut self, id: QueueId) {
        let first = self.id().unwrap_or(id);
        self.messages.push(ArrivingBody::new(first, id));
    }

    /// Has the first `octets` of a large body kept in memory for [`Self::beginning`].
    pub(crate) const fn keep_beginning(&mut self, octets: usize) {
        self.kept_max = octets;
    }

    /// Has at least `octets` of a large body kept, until [`Self::keep_as_before`].
    pub(crate) const fn keep_at_least(&mut self, octets: usize) {
        if octets > self.kept_max {
            self.kept_otherwise = Some(self.kept_max);
            self.kept_max = octets;
        }
    }

    /// Whether more is kept than was asked for at first, of content whose header section is whole.
    pub(crate) const fn is_kept_for_more(&self) -> bool {
        self.kept_otherwise.is_some() && self.is_header_whole
    }

    /// Keeps as much as was asked for at first.
    pub(crate) fn keep_as_before(&mut self) {
        let Some(octets) = self.kept_otherwise.take() else { return };
        self.kept_max = octets;
        self.kept.truncate(octets);
        self.kept.shrink_to_fit();
    }

    /// Returns the header section of large content as far as it has come.
    pub(crate) fn header(&self) -> &[u8] {
        &self.header
    }

    /// Returns the content as far as it was kept, whose `rest` has come and was not pushed.
    pub(crate) fn beginning(&self, rest: &[u8]) -> ContentBeginning {
        let size = self.bytes + rest.len() as u64;
        let room = self.kept_max.saturating_sub(self.kept.len());
        let rest = if self.is_small() || !self.is_header_whole { rest } else { rest.get(..room).unwrap_or(rest) };
        let octets = [&self.header, &self.kept, rest].concat();
        ContentBeginning { is_complete: octets.len() as u64 == size, octets, size }
    }

    /// Replaces the fields of large content. `false`: a part of its header section counts to the body.
    pub(crate) fn replace_header(&mut self, fields: &[u8]) -> bool {
        self.edit_header(|_| fields.to_vec())
    }

    /// Replaces the fields of large content by what `edit` makes of them. `false`: a part of its header section has not
    /// come, or counts to the body.
    pub(crate) fn edit_header(&mut self, edit: impl FnOnce(&[u8]) -> Vec<u8>) -> bool {
        let section = HeaderSection::read(&self.header, LineEnd::Crlf);
        if !section.is_closed() {
            return false;
        }
        let rest = self.header.get(section.as_bytes().len()..).unwrap_or_default();
        let header = [&edit(section.as_bytes()), rest].concat();
        self.bytes = self.bytes.saturating_sub(self.header.len() as u64).saturating_add(header.len() as u64);
        self.header = header;
        true
    }

    /// Forgets all content that has come: other content comes in its place.
    ///
    /// # Cancel safety
    /// Not cancel-safe: a dropped call may leave content. Call [`Self::abandon`] then.
    pub(crate) async fn begin_again(&mut self, message_store: &MessageStore) {
        for message in &mut self.messages {
            message.begin_again(message_store).await;
        }
        (self.header, self.kept) = (Vec::new(), Vec::new());
        (self.is_header_whole, self.bytes) = (false, 0);
    }

    /// The name of the transaction, if there is one.
    #[must_use]
    pub fn id(&self) -> Option<QueueId> {
        self.messages.first().map(ArrivingBody::id)
    }

    /// The names of its messages.
    pub(crate) fn ids(&self) -> impl Iterator<Item = QueueId> {
        self.messages.iter().map(ArrivingBody::id)
    }

    /// Whether all of it will come with [`Self::finish`].
    #[must_use]
    pub fn is_small(&self) -> bool {
        self.header.is_empty() && !self.is_header_whole
    }

    /// Takes the next piece of large content.
    ///
    /// # Cancel safety
    /// As [`Content::push`].
    pub async fn push(&mut self, message_store: &MessageStore, piece: &[u8]) {
        let (beyond, rest) = self.take_header(piece, message_store.header_bytes_max());
        self.bytes += piece.len() as u64;
        for part in [beyond.as_slice(), rest] {
            let room = self.kept_max.saturating_sub(self.kept.len());
            self.kept.extend_from_slice(part.get(..room).unwrap_or(part));
            for message in &mut self.messages {
                message.push(message_store, part).await;
            }
        }
    }

    /// Takes what of `piece` belongs to the header section. Returns what it took before and belongs to the body, and
    /// the rest of `piece`.
    fn take_header<'a>(&mut self, piece: &'a [u8], max: usize) -> (Vec<u8>, &'a [u8]) {
        if self.is_header_whole {
            return (Vec::new(), piece);
        }
        let mut rest: &[u8] = &[];
        if self.header.is_empty()
            && let Some((header, body)) = header_end(piece, max).and_then(|end| piece.split_at_checked(end))
        {
            (self.header, rest) = (header.to_vec(), body);
            self.is_header_whole = true;
            return (Vec::new(), rest);
        }
        self.header.extend_from_slice(piece);
        let Some(end) = header_end(&self.header, max) else { return (Vec::new(), rest) };
        self.is_header_whole = true;
        (self.header.split_off(end.min(self.header.len())), rest)
    }

    /// Ends the content with its `rest`, and joins it with each of the messages. Large bodies are in the spool when
    /// this returns; small content and header sections stay in memory.
    ///
    /// # Errors
    /// As [`spool::Spool::append_chunk_of`]; the chunks of all messages are forgotten.
    /// # Cancel safety
    /// Not cancel-safe: a dropped call leaves chunks that no message names; the spool counts them as dead.
    pub(crate) async fn finish(
        mut self,
        message_store: &MessageStore,
        messages: Vec<NewMessage>,
        rest: Bytes,
    ) -> Result<Vec<(NewMessage, FinishedContent)>, Error> {
        // Lists with members in common become fewer messages than there were contents.
        for content in self.messages.split_off(messages.len().min(self.messages.len())) {
            content.abandon(message_store);
        }
        if self.is_small() {
            let body = in_memory(rest, message_store.header_bytes_max());
            let contents = self.messages.into_iter().map(|content| content.finish_small(body.clone()));
            return Ok(messages.into_iter().zip(contents).collect());
        }
        self.keep_beginning(0);
        self.kept = Vec::new();
        self.push(message_store, &rest).await;
        drop(rest);
        let header = Bytes::from(self.header);
        let mut finished: Vec<(NewMessage, FinishedContent)> = Vec::with_capacity(messages.len());
        let mut pairs = messages.into_iter().zip(self.messages);
        while let Some((message, content)) = pairs.next() {
            match content.finish(message_store, header.clone()).await {
                Ok(content) => finished.push((message, content)),
                Err(error) => {
                    finished.iter().for_each(|(_, content)| content.abandon(message_store));
                    pairs.for_each(|(_, content)| content.abandon(message_store));
                    return Err(error);
                }
            }
        }
        Ok(finished)
    }

    /// Forgets the chunks in the spool: the transaction ended without a message.
    pub fn abandon(self, message_store: &MessageStore) {
        self.messages.into_iter().for_each(|content| content.abandon(message_store));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The parts into which content comes apart that is brought in pieces.
    fn taken_apart(pieces: &[&[u8]], max: usize) -> (Vec<u8>, Vec<u8>) {
        let (mut content, mut body) = (TransactionContent::default(), Vec::new());
        for piece in pieces {
            let (beyond, rest) = content.take_header(piece, max);
            body.extend_from_slice(&beyond);
            body.extend_from_slice(rest);
        }
        (content.header, body)
    }

    #[test]
    fn content_comes_apart_in_the_same_way_wherever_pieces_end() {
        let content = b"a: b\r\nc: d\r\n e\r\nf: g\r\n\r\nbody\r\n\r\nmore";
        for max in [100, 24, 23, 16, 6, 3] {
            let offset = header_end(content, max).unwrap();
            let expected = (content[..offset].to_vec(), content[offset..].to_vec());
            for first in 0..=content.len() {
                for second in first..=content.len() {
                    let pieces = [&content[..first], &content[first..second], &content[second..]];
                    let found = taken_apart(&pieces, max);
                    assert_eq!([&*found.0, &*found.1].concat(), content, "{max} {first} {second}");
                    if max >= 24 {
                        assert_eq!(found, expected, "{max} {first} {second}");
                    }
                    assert!(found.0.len() <= max, "{max} {first} {second}");
                }
            }
        }
    }
}

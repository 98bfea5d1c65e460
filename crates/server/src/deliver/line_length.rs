//! Shortens the lines of a message for a next hop: RFC 5321 lets no line be longer than 998 octets, and Exim sends such
//! mail back.
//!
//! The content is looked through before its transaction begins, since MAIL already says its size. Almost always that is
//! all. Content that is not in memory is read for it in pieces, once for all connections that send the message.

use super::outbound_session::{OutboundSession, Unread};
use crate::env::blocking;
use crate::message::{Content, OutboundMessage};
use mail::Body;
use mail::long_line::LineWatch;
use mail::seven_bit::shorten_lines;
use schedule::Job;
use std::collections::VecDeque;

/// Octets of stored content that are looked through at once.
const PIECE_BYTES: u64 = 256 << 10;

impl OutboundSession<'_> {
    /// Folds long header lines and encodes bodies with long lines, as `delivery.line_bytes_max` says. Returns
    /// whether the content has changed.
    ///
    /// A signed body and a part that cannot be converted go out as they are: most next hops take them.
    // RFC 5321 §4.5.3.1.6: a text line has at most 1,000 octets with its CRLF
    pub(super) async fn shorten(&self, job: &Job, outgoing: &mut OutboundMessage) -> Result<bool, Unread> {
        let max = self.work.context.live.load().config.delivery.line_bytes_max;
        // A mailbox server stores lines of any length, and binary content has none.
        let is_exempt = self.link.is_lmtp || outgoing.envelope.params.body == Some(Body::BinaryMime);
        if max == 0 || is_exempt || !self.has_long_line(outgoing, max).await? {
            return Ok(false);
        }
        // Whole messages are in memory: a few at a time. The semaphore is never closed.
        let _permit = self.work.dispatch.conversions.acquire().await;
        let content = match &outgoing.content {
            Content::Here(pieces) => pieces.iter().flat_map(|piece| piece.iter().copied()).collect(),
            Content::Stored { .. } => self.whole(job, outgoing).await?,
        };
        let shortened = blocking::run(move || shorten_lines(&content, max)).await;
        let content = shortened.map_err(|_| Unread::broken())?.content;
        outgoing.content_bytes = content.len() as u64;
        outgoing.content = Content::Here(VecDeque::from([content.into()]));
        Ok(true)
    }

    async fn has_long_line(&self, outgoing: &OutboundMessage, max: usize) -> Result<bool, Unread> {
        let mut watch = LineWatch::new(max);
        if let Content::Here(pieces) = &outgoing.content {
            return Ok(pieces.iter().any(|piece| watch.finds(piece)) || watch.ends_over());
        }
        let (messages, id, end) = (&self.work.dispatch.messages, outgoing.envelope.id, outgoing.content_bytes);
        if let Some(known) = messages.line_checks.get(id, max) {
            return Ok(known);
        }
        let (mut at, mut has_long_line) = (0, false);
        while at < end && !has_long_line {
            let next = (at + PIECE_BYTES).min(end);
            let piece = OutboundMessage::part(&messages.reading, id, at, next).await.map_err(Unread::Why)?;
            has_long_line = watch.finds(&piece);
            at = next;
        }
        let has_long_line = has_long_line || watch.ends_over();
        messages.line_checks.remember(id, max, has_long_line);
        Ok(has_long_line)
    }
}

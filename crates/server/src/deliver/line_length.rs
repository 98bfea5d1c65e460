//! Shortens the lines of a message for a next hop: RFC 5321 lets no line be longer than 998 octets, and Exim sends such
//! mail back.
//!
//! The content is looked through before its transaction begins, since MAIL already says its size. Almost always that is
//! all. Content that is not in memory is read for it in pieces, once for all connections that send the message; content
//! of at most 64 KiB is sent from what was read.

use super::outbound_session::{OutboundSession, Unread};
use crate::message::{Content, OutboundMessage};
use mail::Body;
use mail::seven_bit::shorten_lines;
use os::blocking;
use schedule::Job;
use std::collections::VecDeque;

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
        if max == 0 || is_exempt {
            return Ok(false);
        }
        let has_long_line = outgoing.has_long_line(&self.work.dispatch.messages, max).await;
        if !has_long_line.map_err(Unread::Why)? {
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
}

//! Rewrites addresses in the header section of our users' mail to the addresses that others know them by, before the
//! spool gets any part of the content.
//!
//! Content passes unchanged where no map and no masquerade asks for a rewrite. Otherwise the session holds back the
//! beginning of the content until the header section is complete, [`HELD_BYTES_MAX`] at most; `route` rewrites the
//! section ([`route::resolve::header`]) once for all messages of the transaction. Content behind it passes as it
//! arrives.
//!
//! A map that cannot answer fails the message: the session stores nothing more of it and answers 451 at its end.

use super::Connection;
use route::resolve::header::{last_field, section_end};
use std::sync::Arc;

/// The most octets of a header section that are held back. Of a larger one, which `message.header_bytes_max` must
/// allow, the fields beyond stay as they are.
pub(super) const HELD_BYTES_MAX: usize = 1 << 20;

/// State of the header section of the message that arrives.
#[derive(Debug, Default)]
pub(super) enum HeaderRewrite {
    /// No rewrite is wanted, or it is done.
    #[default]
    Done,
    /// The part of the section that has arrived so far; the rewrite waits for the rest.
    Held(Vec<u8>),
    /// A map could not answer, for this reason.
    Failed(Arc<str>),
}

impl Connection {
    /// A message begins.
    pub(super) fn begin_header_rewrite(&mut self) {
        let admission = self.routing.as_ref().and_then(|routing| routing.admission());
        let is_wanted = admission.is_some_and(|admission| admission.router.has_headers());
        self.header_rewrite =
            if is_wanted && !self.plan.is_nothing() { HeaderRewrite::Held(Vec::new()) } else { HeaderRewrite::Done };
    }

    /// Returns why the header section cannot be written now.
    pub(super) fn header_rewrite_failure(&mut self) -> Option<Arc<str>> {
        match std::mem::take(&mut self.header_rewrite) {
            HeaderRewrite::Failed(why) => Some(why),
            HeaderRewrite::Done | HeaderRewrite::Held(_) => None,
        }
    }

    /// Takes the next piece of the content and returns the content that may be stored now; `is_end`: it is the last
    /// piece.
    pub(super) async fn rewrite_header(&mut self, piece: Vec<u8>, is_end: bool) -> Vec<u8> {
        let content = match std::mem::take(&mut self.header_rewrite) {
            HeaderRewrite::Done => return piece,
            HeaderRewrite::Failed(why) => {
                self.header_rewrite = HeaderRewrite::Failed(why);
                return Vec::new();
            }
            HeaderRewrite::Held(held) if held.is_empty() => piece,
            HeaderRewrite::Held(mut held) => {
                held.extend_from_slice(&piece);
                held
            }
        };
        let end = match section_end(&content) {
            Some(end) => end,
            None if is_end => content.len(),
            None if content.len() < HELD_BYTES_MAX => {
                self.header_rewrite = HeaderRewrite::Held(content);
                return Vec::new();
            }
            None => last_field(&content),
        };
        match self.rewritten_section(content.get(..end).unwrap_or_default()).await {
            Ok(None) => content,
            Ok(Some(mut section)) => {
                section.extend_from_slice(content.get(end..).unwrap_or_default());
                section
            }
            Err(why) => {
                self.header_rewrite = HeaderRewrite::Failed(why);
                Vec::new()
            }
        }
    }

    /// Returns the header section as it is known outside, if it is mail of ours and changes.
    async fn rewritten_section(&self, section: &[u8]) -> Result<Option<Vec<u8>>, Arc<str>> {
        let Some(routing) = self.routing.clone() else { return Ok(None) };
        let Some(admission) = routing.admission() else { return Ok(None) };
        let subject = self.subject();
        let decided = routing.decide(|ask| match subject.sends_anywhere(admission, ask)? {
            true => admission.router.header(ask, section),
            false => Ok(None),
        });
        decided.await
    }
}

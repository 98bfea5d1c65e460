//! Reads the content of a message in pieces, each of which fits on a line.

use crate::answers::ContentLine;
use mail::{QueueId, base64};
use spool::{Spool, Store as _};

/// Octets of content on one line.
const PIECE_BYTES: u64 = 48 << 10;

/// The pieces of a content, in order; the last is shorter than the others, or empty. A piece that cannot be read is the
/// last.
#[derive(Debug)]
pub(super) struct ContentPieces<'a> {
    spool: &'a Spool,
    id: QueueId,
    /// Octets that were read; `None` behind the end.
    at: Option<u64>,
}

impl<'a> ContentPieces<'a> {
    pub(super) const fn new(spool: &'a Spool, id: QueueId) -> Self {
        Self { spool, id, at: Some(0) }
    }
}

impl Iterator for ContentPieces<'_> {
    type Item = Result<ContentLine, String>;

    fn next(&mut self) -> Option<Self::Item> {
        let at = self.at.take()?;
        match self.spool.body_range(self.id, at..at + PIECE_BYTES) {
            Ok(piece) => {
                let length = piece.len() as u64;
                self.at = (length == PIECE_BYTES).then_some(at + length);
                Some(Ok(ContentLine {
                    of: self.id.to_string(),
                    at,
                    octets: base64::encode(&piece).map(char::from).collect(),
                }))
            }
            Err(error) => Some(Err(error.to_string())),
        }
    }
}

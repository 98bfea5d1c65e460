//! The places where a message can be, and the recipients that may not be tried now.

use super::{LineChecks, Reading, Reservations, Signatures};
use crate::intake::uncommitted::UncommittedMessages;
use spool::Spool;
use std::sync::Arc;

/// Finds messages for attempts and reports.
#[derive(Debug)]
pub(crate) struct MessageReader {
    pub(crate) spool: Arc<Spool>,
    /// The spool, as attempts read messages from it.
    pub(crate) reading: Reading,
    /// Messages that are not in the spool.
    pub(crate) early: UncommittedMessages,
    /// Recipients whose report is in progress without an attempt.
    pub(crate) reservations: Reservations,
    /// Which stored messages have long lines.
    pub(crate) line_checks: LineChecks,
    /// Signatures of stored messages.
    pub(crate) signatures: Signatures,
}

impl MessageReader {
    /// Reads from this spool.
    pub(crate) fn new(spool: Arc<Spool>) -> Self {
        Self {
            reading: Reading::new(Arc::clone(&spool)),
            spool,
            early: UncommittedMessages::default(),
            reservations: Reservations::default(),
            line_checks: LineChecks::default(),
            signatures: Signatures::default(),
        }
    }
}

//! The queue, as far as intake uses it: *dispatch* implements it.

use super::new_message::NewMessage;
use super::uncommitted::UncommittedMessages;
use mail::Envelope;
use schedule::{Class, Positions};
use spool::envelope::Encoded;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

/// Recipients of one destination that is down, and why it is.
pub(crate) type DownRecipients = (Positions, Arc<str>);

/// The queue, as far as intake uses it.
pub(crate) trait Enqueue: fmt::Debug + Send + Sync {
    /// Puts the recipients of a durable message in line. `bytes`: of its content.
    fn enqueue(&self, message: &NewMessage, bytes: u64, class: Class);

    /// Has the destinations of a durable message looked through when its recipients are due.
    fn enqueue_later(&self, message: &NewMessage);

    /// Returns the messages that are in line and not in the spool.
    fn uncommitted(&self) -> &UncommittedMessages;

    /// Puts a message that is not in the spool in line. False: for some of it that is of no use, it has to be stored.
    fn enqueue_uncommitted(&self, envelope: &Envelope, encoded: &Encoded, class: Class) -> bool;

    /// Puts the recipients that are left of a message in line when it is durable, but for those that are in line.
    /// Returns those whose destination is down.
    fn enqueue_rest(
        &self,
        envelope: &Envelope,
        encoded: &Encoded,
        class: Class,
        is_left: &dyn Fn(u32) -> bool,
    ) -> Vec<DownRecipients>;

    /// Logs recipients of a fresh message that wait because their destination is down.
    fn log_down(&self, envelope: &Envelope, bytes: u64, recipients: &[DownRecipients]);

    /// Runs a task that the end of the server waits for; drops it if that has come.
    fn spawn(&self, task: Pin<Box<dyn Future<Output = ()> + Send>>);
}

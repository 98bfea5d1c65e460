//! The trait of everything that judges a message.

use super::judgement::Screening;
use super::message::ScreenedMessage;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;

/// A judge that is at work.
pub(super) type Judging<'a> = Pin<Box<dyn Future<Output = Result<Screening, JudgeError>> + Send + 'a>>;

/// Something that judges messages: content rules or a filter.
pub(super) trait ContentJudge: fmt::Debug + Send + Sync {
    /// Judges a message. Keeps no state between messages.
    ///
    /// # Errors
    /// It could not be judged; nothing of the judgement counts then.
    /// # Cancel safety
    /// Yes: the judge forgets the message.
    fn judge<'a>(&'a self, message: &'a Arc<ScreenedMessage>) -> Judging<'a>;
}

/// Why a message could not be judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct JudgeError {
    /// The name of the judge.
    pub(crate) by: String,
    /// Where it stands: its file or address.
    pub(crate) place: String,
    /// The reason, and the next step.
    pub(crate) text: String,
}

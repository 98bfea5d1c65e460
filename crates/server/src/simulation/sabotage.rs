//! Faults made on purpose, one at a time.

use std::cell::Cell;

/// A rule that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sabotage {
    /// 250 is said before the message is durable.
    AnswerEarly,
    /// Recipients are done when their transaction begins.
    RecordEarly,
    /// Outcomes are not recorded.
    ForgetOutcome,
    /// A recipient that was deferred is never looked at again.
    DropDeferred,
    /// A report is not stored, and its recipient is done all the same.
    DropReport,
}

impl Sabotage {
    pub(super) const ALL: [Self; 5] =
        [Self::AnswerEarly, Self::RecordEarly, Self::ForgetOutcome, Self::DropDeferred, Self::DropReport];
}

thread_local! {
    static NOW: Cell<Option<Sabotage>> = const { Cell::new(None) };
}

/// Whether this rule is broken now, on this thread.
pub(crate) fn is_sabotaged(how: Sabotage) -> bool {
    NOW.get() == Some(how)
}

/// Breaks a rule until the guard goes.
pub(super) fn begin(how: Option<Sabotage>) -> Guard {
    NOW.set(how);
    Guard(())
}

/// Ends it.
pub(super) struct Guard(());

impl Drop for Guard {
    fn drop(&mut self) {
        NOW.set(None);
    }
}

//! Answers for the scheduler that come even if the task that owes them breaks off.
//!
//! The scheduler counts the subject of a task as in progress until the task answers. A task that breaks off would not
//! answer, and its mail would wait for the next start; so it holds one of these, which then gives the answer that is
//! right when nothing is known.

/// An answer that is given when this is dropped, unless there was a better one.
#[must_use]
pub(crate) struct CompletionGuard<F: FnOnce()>(Option<F>);

impl<F: FnOnce()> CompletionGuard<F> {
    /// `otherwise` gives the answer.
    pub(crate) const fn new(otherwise: F) -> Self {
        Self(Some(otherwise))
    }

    /// Another answer was given.
    pub(crate) fn complete(mut self) {
        self.0 = None;
    }
}

impl<F: FnOnce()> Drop for CompletionGuard<F> {
    fn drop(&mut self) {
        if let Some(otherwise) = self.0.take() {
            otherwise();
        }
    }
}

//! Faults made on purpose, one at a time.

use std::cell::{Cell, RefCell};

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
    /// What is bounced is tried until it is done.
    Unclaimed,
    /// A report is not stored, and its recipient is done all the same.
    DropReport,
    /// Nobody looks for reports that are owed of what was delivered before a start.
    ForgetOwed,
    /// What is delivered waits as before until its sender is told.
    OweDelivery,
    /// Of several reports on one message none is recorded before all are stored.
    RecordLate,
    /// Limits of destinations are not told to the scheduler.
    ForgetLimits,
    /// All are waited for as long as those that were slow, in one lane.
    OneLane,
    /// A message with one recipient goes when nothing waits any more where it is to go.
    SinglesLast,
    /// Whatever is in the spool may be in memory.
    LoadAll,
    /// Who waits for a connection that is over is remembered.
    KeepPosts,
    /// Mail that a host put off goes there again, whoever else would take it.
    SameHostAgain,
    /// After a 421 to the first MAIL the next message knocks at once.
    KnockAgain,
    /// Nothing is learned of how much a site takes that turns mail away.
    NoPace,
    /// Transactions of a list follow each other on a connection before the first is answered.
    ListsAhead,
    /// However many recipients are on their way over a connection, more follow.
    SendAhead,
    /// TLS is tried with each host each time.
    ForgetTls,
    /// No host is passed over for what it did.
    PassOverNobody,
    /// A site that is down is tried every few seconds.
    Tireless,
    /// Whoever does not greet or answer is waited for.
    Patient,
    /// Whatever a host says is listened to.
    AllEars,
    /// Who has a whole message is hung up on as anybody else.
    HangUp,
    /// Each change of where mail goes has what is under way looked through by itself.
    PassEach,
    /// What is under way is looked through for ever.
    PassOn,
    /// Messages of a transaction that was not taken stay in the spool.
    KeepPartOfTransaction,
}

impl Sabotage {
    /// Those that lose mail or deliver it twice.
    pub(super) const ALL: [Self; 5] =
        [Self::AnswerEarly, Self::RecordEarly, Self::ForgetOutcome, Self::DropDeferred, Self::DropReport];
}

thread_local! {
    static NOW: Cell<Option<Sabotage>> = const { Cell::new(None) };
    static HELD_BACK: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
}

/// Keeps mail for a destination from going in line; [`let_go`] gives it back.
pub(crate) fn hold_back(destination: &[u8]) {
    HELD_BACK.with_borrow_mut(|held| held.push(destination.into()));
}

/// Destinations whose mail was held back and may go.
pub(crate) fn let_go(may_go: impl Fn(&[u8]) -> bool) -> Vec<Box<[u8]>> {
    HELD_BACK.with_borrow_mut(|held| held.extract_if(.., |name| may_go(name)).collect())
}

/// Whether this rule is broken now, on this thread.
pub(crate) fn is_sabotaged(how: Sabotage) -> bool {
    NOW.get() == Some(how)
}

/// Breaks a rule until the guard goes.
pub(crate) fn begin(how: Option<Sabotage>) -> Guard {
    NOW.set(how);
    HELD_BACK.take();
    Guard(())
}

/// Ends it.
pub(crate) struct Guard(());

impl Drop for Guard {
    fn drop(&mut self) {
        NOW.set(None);
    }
}

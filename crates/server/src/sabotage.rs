//! Faults made on purpose, one at a time, so that tests show that each safety check is noticed when it is missing.
//!
//! The code of a fault stands where the rule is that it breaks. Only a test makes one: in the product
//! [`is_sabotaged`] is always false, and the compiler removes the fault.

#[cfg(test)]
pub(crate) use thread_state::{begin, hold_back, is_sabotaged, let_go};

/// A rule that is broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Sabotage {
    /// 250 is sent before the message is durable.
    AnswerEarly,
    /// Recipients are done when their transaction begins.
    RecordEarly,
    /// Outcomes are not recorded.
    ForgetOutcome,
    /// A recipient that was deferred is never looked at again.
    DropDeferred,
    /// A recipient that is being bounced may be tried as well.
    Unclaimed,
    /// A report is not stored, and its recipient is done all the same.
    DropReport,
    /// Reports that are owed for deliveries before a start are never made.
    ForgetOwed,
    /// A delivered recipient waits as before until its report is sent, and does not count as delivered.
    OweDelivery,
    /// Of several reports on one message none is recorded before all are stored.
    RecordLate,
    /// The scheduler does not get the limits of destinations.
    ForgetLimits,
    /// All connections have the patience of the slow lane.
    OneLane,
    /// A message with one recipient goes only when no other mail for its destination waits.
    SinglesLast,
    /// The number of jobs in memory has no limit.
    #[cfg(test)]
    LoadAll,
    /// State of a connection stays when the connection ends.
    KeepPosts,
    /// Mail that a host deferred goes to the same host again, although another would take it.
    SameHostAgain,
    /// After a 421 to the first MAIL the next message is sent to the host at once.
    KnockAgain,
    /// The scheduler does not learn the pace of a site that refuses mail.
    NoPace,
    /// Transactions of a list follow each other on a connection before the first is answered.
    ListsAhead,
    /// More recipients are sent over a connection, however many are unanswered.
    SendAhead,
    /// TLS is tried with each host each time.
    ForgetTls,
    /// No host is passed over for its failures.
    PassOverNobody,
    /// A site that is down is tried every few seconds.
    Tireless,
    /// A peer that does not greet or answer is waited for without limit.
    Patient,
    /// A reply may have any length.
    AllEars,
    /// A peer that may have a whole message is disconnected as soon as any other.
    HangUp,
    /// Each change of routes starts a pass of its own over mail in progress.
    PassEach,
    /// The pass over mail in progress never ends.
    PassOn,
    /// Messages of a transaction that was not accepted stay in the spool.
    KeepPartOfTransaction,
    /// A message that waits for its filters is delivered before they have judged it.
    ReleaseUnscreened,
    /// A message stays when another has taken its place.
    KeepReplaced,
    /// An operator may release a message while another takes its place.
    ReplaceUnclaimed,
    /// A message in quarantine is done before the copy of it is stored that an operator sends.
    EndBeforeCopy,
}

/// Returns whether this rule is broken now.
#[cfg(not(test))]
pub(crate) const fn is_sabotaged(_: Sabotage) -> bool {
    false
}

/// Keeps mail for a destination from going in line; [`let_go`] releases it.
#[cfg(not(test))]
pub(crate) const fn hold_back(_: &[u8]) {}

/// Returns destinations whose mail was held back and may go.
#[cfg(not(test))]
pub(crate) const fn let_go(_: impl Fn(&[u8]) -> bool + Copy) -> [Box<[u8]>; 0] {
    []
}

#[cfg(test)]
impl Sabotage {
    /// Those that lose mail or deliver it twice.
    pub(crate) const ALL: [Self; 5] =
        [Self::AnswerEarly, Self::RecordEarly, Self::ForgetOutcome, Self::DropDeferred, Self::DropReport];
}

#[cfg(test)]
mod thread_state {
    use super::Sabotage;
    use std::cell::{Cell, RefCell};

    thread_local! {
        static NOW: Cell<Option<Sabotage>> = const { Cell::new(None) };
        static HELD_BACK: RefCell<Vec<Box<[u8]>>> = const { RefCell::new(Vec::new()) };
    }

    /// Keeps mail for a destination from going in line; [`let_go`] releases it.
    pub(crate) fn hold_back(destination: &[u8]) {
        HELD_BACK.with_borrow_mut(|held| held.push(destination.into()));
    }

    /// Returns destinations whose mail was held back and may go.
    pub(crate) fn let_go(may_go: impl Fn(&[u8]) -> bool) -> Vec<Box<[u8]>> {
        HELD_BACK.with_borrow_mut(|held| held.extract_if(.., |name| may_go(name)).collect())
    }

    /// Returns whether this rule is broken now, on this thread.
    pub(crate) fn is_sabotaged(how: Sabotage) -> bool {
        NOW.get() == Some(how)
    }

    /// Breaks a rule until the guard goes.
    pub(crate) fn begin(how: Option<Sabotage>) -> Guard {
        NOW.set(how);
        HELD_BACK.take();
        Guard(())
    }

    /// Ends the fault when it is dropped.
    pub(crate) struct Guard(());

    impl Drop for Guard {
        fn drop(&mut self) {
            NOW.set(None);
        }
    }
}

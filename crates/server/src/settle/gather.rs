//! One report for all that a sender has to hear of a message within a few seconds, whichever hosts say it.
//!
//! A list has recipients at many hosts, and some of them fail at the same time as others, or grow too old with them. What is
//! to be told of one is kept here for [`GATHER`], and its recipient waits in the spool as if nothing had been said; then all go into
//! one report, which is durable before they are done. A crash in between forgets what was kept: the recipients are tried
//! again after [`PARKED`], and fail again. A message with one recipient, or all at one host, is reported at once.

use super::{Attempt, Cause, Fate};
use crate::deliver::Outgoing;
use crate::resolve;
use crate::service::Service;
use mail::QueueId;
use observe::NextHop;
use schedule::Positions;
use spool::Store as _;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

/// How long after the first a report waits for others.
const GATHER: Duration = Duration::from_secs(5);
/// When a recipient is tried again whose report did not come about.
pub(super) const PARKED: Duration = Duration::from_secs(120);
/// Recipients that are kept; beyond them reports are made at once.
const RECIPIENTS_MAX: usize = 100_000;

/// What is to be told.
#[derive(Debug, Default)]
pub(crate) struct Gathering(Mutex<Kept>);

#[derive(Debug, Default)]
struct Kept {
    messages: HashMap<QueueId, BTreeMap<u32, Fate>>,
    recipients: usize,
}

/// What came of one more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Gathered {
    /// It is the first of its message: somebody has to see to the report.
    First,
    /// It goes with others.
    More,
    /// There is no room.
    No,
}

impl Gathering {
    fn kept(&self) -> MutexGuard<'_, Kept> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Keeps what is to be told of a recipient; what was said of him last counts.
    pub(super) fn add(&self, id: QueueId, position: u32, fate: Fate) -> Gathered {
        let mut kept = self.kept();
        if kept.recipients >= RECIPIENTS_MAX {
            return Gathered::No;
        }
        let message = kept.messages.entry(id).or_default();
        let is_first = message.is_empty();
        if message.insert(position, fate).is_none() {
            kept.recipients += 1;
        }
        if is_first { Gathered::First } else { Gathered::More }
    }

    fn take(&self, id: QueueId) -> BTreeMap<u32, Fate> {
        let mut kept = self.kept();
        let message = kept.messages.remove(&id).unwrap_or_default();
        kept.recipients -= message.len();
        message
    }
}

/// Whether others may have to be told of with the recipients of this attempt.
pub(super) fn may_have_more(service: &Service, attempt: &Attempt<'_>) -> bool {
    !attempt.is_told
        && attempt.recipients_left > attempt.positions.len()
        && attempt.envelope.sender.address().is_some()
        && !service.stop.has_begun()
}

/// Has the report made when its time has come.
pub(super) fn report_later(service: &Arc<Service>, id: QueueId) {
    let Some(dispatch) = &service.dispatch else { return };
    let service = Arc::clone(service);
    dispatch.spawn(Box::pin(async move {
        tokio::select! {
            // Its recipients wait in the spool.
            () = service.stop.begun() => {}
            () = tokio::time::sleep(GATHER) => report(&service, id).await,
        }
    }));
}

/// Reports all that was kept of a message, and records it.
async fn report(service: &Arc<Service>, id: QueueId) {
    let (Some(dispatch), Some(spool)) = (&service.dispatch, service.spool()) else { return };
    let mut fates = dispatch.gathering.take(id);
    let positions: Vec<u32> = fates.keys().copied().collect();
    // What was held, deleted or delivered meanwhile is not told of. What cannot be read is tried again, and then that is said.
    let Ok(outgoing) = Outgoing::load(dispatch, id, &Positions::from(positions.as_slice())).await else { return };
    let fates: Vec<Fate> = outgoing.positions.iter().filter_map(|(position, _)| fates.remove(position)).collect();
    let mailer = resolve::mailer(&service.live.load().config.route);
    let attempt = outgoing.attempt(NextHop::None, mailer, Duration::ZERO, false);
    let attempt = Attempt { is_try: false, is_told: true, ..attempt };
    let settled = super::settle(service, &attempt, fates).await;
    let changes = super::untried(settled.changes, &outgoing.positions);
    // If it cannot be recorded they are tried again, and told of again.
    drop(spool.record(&changes));
}

impl Cause {
    /// The same, with the host that said it.
    pub(super) fn said_by(mut self, next_hop: &NextHop<'_>) -> Self {
        let host = super::report::remote(next_hop);
        self.host = (!host.is_empty()).then(|| Arc::from(host));
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::{EnhancedCode, Outcome};

    #[test]
    fn the_first_of_a_message_is_told_from_the_others_and_room_is_bounded() {
        let gathering = Gathering::default();
        let fate = |text: &str| Fate::Failed(Cause::new(EnhancedCode::of(Outcome::Permanent, 1, 1), text.into(), None));
        let other = QueueId::from_u64(QueueId::MIN.to_u64() + 1).unwrap();
        assert_eq!(gathering.add(QueueId::MIN, 3, fate("a")), Gathered::First);
        assert_eq!(gathering.add(QueueId::MIN, 1, fate("b")), Gathered::More);
        assert_eq!(gathering.add(QueueId::MIN, 1, fate("c")), Gathered::More);
        assert_eq!(gathering.add(other, 0, fate("d")), Gathered::First);
        let taken = gathering.take(QueueId::MIN);
        assert_eq!(taken.into_iter().collect::<Vec<_>>(), [(1, fate("c")), (3, fate("a"))]);
        assert_eq!(gathering.kept().recipients, 1);
        gathering.kept().recipients = RECIPIENTS_MAX;
        assert_eq!(gathering.add(other, 1, fate("e")), Gathered::No);
    }
}

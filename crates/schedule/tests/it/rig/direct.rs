//! Helpers for tests that make each call themselves: ids of messages, answers to `Resolve`, and connections that open.

use std::time::Duration;

use mail::{Node, QueueId};
use schedule::{
    Action, AddResult, Class, ConnectionId, Job, Lane, Limits, NextJob, Positions, QueueEntry, Scheduler,
    SiteAssignment,
};

use super::START;

/// How long a site assignment holds.
const HOLD: Duration = Duration::from_secs(3_600);

pub fn id(number: u64) -> QueueId {
    QueueId::new(1_800_000_000_000_000 + number, Node::default()).unwrap()
}

/// One recipient of a message.
pub fn job(number: u64) -> Job {
    Job { message: id(number), recipients: Positions::One(0), probe: false }
}

/// Returns its recipient as an entry of the spool, due at this second; 0: never tried.
pub fn waiting(number: u64, due_s: u32) -> QueueEntry {
    QueueEntry {
        message: id(number),
        recipient: 0,
        due_s,
        attempts: u8::from(due_s > 0),
        warned: false,
        held: false,
        class: Class::Normal,
        timed: false,
        owed: false,
    }
}

/// Adds a job for a destination whose site has the same name.
#[track_caller]
pub fn add(scheduler: &mut Scheduler, name: &str, number: u64) {
    assert_eq!(scheduler.add(name.as_bytes(), job(number), Class::Normal, START), AddResult::Ready);
}

/// Returns the next action after answering each `Resolve`: with this site, or with one of the destination's name.
pub fn next_at(scheduler: &mut Scheduler, site: Option<&[u8]>, limits: Limits, now: Duration) -> Option<Action> {
    loop {
        let action = scheduler.poll(now)?;
        let Action::Resolve { destination } = action else { return Some(action) };
        let own = scheduler.destination_name(destination).unwrap().to_vec();
        let site = site.unwrap_or(&own);
        // Some names tell how fast their hosts were.
        let expected = site.strip_prefix(b"known-fast").map(|_| Duration::from_millis(1));
        let place = SiteAssignment { site, limits, expected, until: now + HOLD };
        assert_eq!(scheduler.resolved(destination, &place, now), []);
    }
}

/// Returns all actions after answering each `Resolve`. Each destination has a site of its own.
pub fn act(scheduler: &mut Scheduler, limits: Limits, now: Duration) -> Vec<Action> {
    std::iter::from_fn(|| next_at(scheduler, None, limits, now)).collect()
}

/// Returns the connections to open, with their lanes.
pub fn opened(actions: &[Action]) -> Vec<(ConnectionId, Lane)> {
    let of = |action: &Action| match action {
        Action::Open { connection, lane, .. } => Some((*connection, *lane)),
        _ => None,
    };
    actions.iter().filter_map(of).collect()
}

/// Returns the connections to open.
pub fn opening(actions: &[Action]) -> Vec<ConnectionId> {
    opened(actions).into_iter().map(|(connection, _)| connection).collect()
}

/// Returns the only action, which opens a connection.
#[track_caller]
pub fn opens_one(scheduler: &mut Scheduler, limits: Limits, now: Duration) -> (ConnectionId, Lane) {
    match act(scheduler, limits, now)[..] {
        [Action::Open { connection, lane, .. }] => (connection, lane),
        ref other => panic!("{other:?}"),
    }
}

/// Returns the next job of a connection.
#[track_caller]
pub fn taken(scheduler: &mut Scheduler, connection: ConnectionId, now: Duration) -> Job {
    match scheduler.next_job(connection, now) {
        NextJob::Job(job) => job,
        other => panic!("{other:?}"),
    }
}

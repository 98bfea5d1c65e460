//! A driver by hand, for tests that say each call themselves: the names of messages, answers to what is asked about places, and what
//! is to be opened.

use std::time::Duration;

use mail::{Node, QueueId};
use schedule::{
    Action, AddResult, Class, ConnectionId, Job, Lane, Limits, NextJob, Positions, QueueEntry, Scheduler,
    SiteAssignment,
};

use super::START;

/// How long an answer about a place holds.
const HOLD: Duration = Duration::from_secs(3_600);

pub fn id(number: u64) -> QueueId {
    QueueId::new(1_800_000_000_000_000 + number, Node::default()).unwrap()
}

/// One recipient of a message.
pub fn job(number: u64) -> Job {
    Job { message: id(number), recipients: Positions::One(0), probe: false }
}

/// Its recipient as the spool lists him, due at this second; nobody has tried him if that is 0.
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

/// Adds a job for a site that is named as its destination.
#[track_caller]
pub fn add(scheduler: &mut Scheduler, name: &str, number: u64) {
    assert_eq!(scheduler.add(name.as_bytes(), job(number), Class::Normal, START), AddResult::Ready);
}

/// What is next to do besides telling places: this one of all destinations, or each has one of its own name.
pub fn next_at(scheduler: &mut Scheduler, site: Option<&[u8]>, limits: Limits, now: Duration) -> Option<Action> {
    loop {
        let action = scheduler.poll(now)?;
        let Action::Resolve { destination } = action else { return Some(action) };
        let own = scheduler.destination_name(destination).unwrap().to_vec();
        let site = site.unwrap_or(&own);
        // Names say how fast their hosts were.
        let expected = site.strip_prefix(b"known-fast").map(|_| Duration::from_millis(1));
        let place = SiteAssignment { site, limits, expected, until: now + HOLD };
        assert_eq!(scheduler.resolved(destination, &place, now), []);
    }
}

/// All that is to be done besides telling places. Each destination is a site of its own.
pub fn act(scheduler: &mut Scheduler, limits: Limits, now: Duration) -> Vec<Action> {
    std::iter::from_fn(|| next_at(scheduler, None, limits, now)).collect()
}

/// Connections that are to be opened, and in which lane.
pub fn opened(actions: &[Action]) -> Vec<(ConnectionId, Lane)> {
    let of = |action: &Action| match action {
        Action::Open { connection, lane, .. } => Some((*connection, *lane)),
        _ => None,
    };
    actions.iter().filter_map(of).collect()
}

/// The same without the lanes.
pub fn opening(actions: &[Action]) -> Vec<ConnectionId> {
    opened(actions).into_iter().map(|(connection, _)| connection).collect()
}

/// The connection that opens; nothing else is to be done.
#[track_caller]
pub fn opens_one(scheduler: &mut Scheduler, limits: Limits, now: Duration) -> (ConnectionId, Lane) {
    match act(scheduler, limits, now)[..] {
        [Action::Open { connection, lane, .. }] => (connection, lane),
        ref other => panic!("{other:?}"),
    }
}

/// The job that a connection takes.
#[track_caller]
pub fn taken(scheduler: &mut Scheduler, connection: ConnectionId, now: Duration) -> Job {
    match scheduler.next_job(connection, now) {
        NextJob::Job(job) => job,
        other => panic!("{other:?}"),
    }
}

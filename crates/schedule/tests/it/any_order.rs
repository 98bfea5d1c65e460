//! Calls in any order, with ids that exist, existed or never will. No order panics, and the promises about connections
//! hold.
//!
//! Call sequences that failed are added to [`KEPT`] as they are printed.

use std::collections::BTreeSet;
use std::time::Duration;

use mail::{Node, QueueId};
use proptest::prelude::*;
use schedule::{
    Action, Class, ConnectionId, DestinationId, Failure, Feedback, Job, Lag, Limits, NextJob, Positions, QueueEntry,
    ResolveFailure, Scheduler, Settings, SiteAssignment, SiteReport,
};

const START: Duration = Duration::from_secs(1_800_000_000);

fn id(number: u64) -> QueueId {
    QueueId::new(1_799_999_000_000_000 + number, Node::default()).unwrap()
}

/// The ids that the driver has seen.
#[derive(Default)]
struct Seen {
    connections: Vec<ConnectionId>,
    destinations: Vec<DestinationId>,
    jobs: Vec<Job>,
    told: Vec<(DestinationId, QueueId, Positions)>,
}

const FEEDBACKS: [Feedback; 6] =
    [Feedback::Good, Feedback::Slowdown, Feedback::Neutral, Feedback::Broken, Feedback::Unsent, Feedback::NoReply];

const FAILURES: [Failure; 6] =
    [Failure::Refused, Failure::Silent, Failure::Throttled, Failure::Broken, Failure::Tls, Failure::Local];

/// A call, and two numbers that select its arguments.
type Call = (u8, u64, u64);

fn pick<T: Clone>(from: &[T], number: u64) -> Option<T> {
    let at = usize::try_from(number).unwrap() % from.len().max(1);
    from.get(at).cloned()
}

/// Answers an `Overdue` action.
fn answer(scheduler: &mut Scheduler, seen: &Seen, name: &[u8], now: Duration, (one, two): (u64, u64)) {
    let Some((destination, message, recipients)) = pick(&seen.told, one) else { return };
    let soon = now.saturating_add(Duration::from_secs(one % 100));
    match two % 4 {
        0 if two / 4 % 2 == 0 => scheduler.age_settled(destination, message, &recipients, soon, now),
        0 => scheduler.report_settled(destination, message, &recipients, soon, now),
        1 => scheduler.deadline_settled(destination, message, &recipients, None, now),
        _ => {
            let again = now.saturating_add(Duration::from_secs(two / 4));
            scheduler.deadline_settled(destination, message, &recipients, Some(again), now);
            scheduler.set_deadline(name, message, &recipients, again);
        }
    }
}

/// Gives a destination another site, as a connection finds out that was opened for the old one.
fn moves(scheduler: &mut Scheduler, name: &[u8], two: u64, now: Duration) {
    let Some(id) = scheduler.destination_id(name) else { return };
    let limits =
        Limits { connections: 3, messages_per_second: None, recipients_per_transaction: 5, messages_per_connection: 7 };
    let (site, until) = (format!("s{}", two % 3).into_bytes(), now + Duration::from_secs(two % 60));
    drop(scheduler.resolved(id, &SiteAssignment { site: &site, limits, expected: None, until }, now));
}

fn apply(scheduler: &mut Scheduler, seen: &mut Seen, now: &mut Duration, (what, one, two): Call) {
    let name = format!("d{}", one % 5).into_bytes();
    let class = Class::from_bits(u8::try_from(two % 4).unwrap());
    let connection = pick(&seen.connections, one);
    let destination = pick(&seen.destinations, one);
    let job = pick(&seen.jobs, two);
    let recipients: Positions = (0..u32::try_from(two % 30).unwrap()).map(|number| (number * 7) % 30).collect();
    match (what, connection, destination, job) {
        (0, ..) => {
            scheduler.add(&name, Job { message: id(two), recipients, probe: two.is_multiple_of(3) }, class, *now);
        }
        (1, ..) => scheduler.restore(&name, *now),
        (2, ..) => *now += Duration::from_millis(1 << (one % 24)),
        (3, _, Some(destination), _) => {
            let limits = Limits {
                connections: u32::try_from(two % 4).unwrap(),
                messages_per_second: two.is_multiple_of(3).then_some(u32::try_from(two % 2_000).unwrap()),
                recipients_per_transaction: usize::try_from(two % 9).unwrap(),
                messages_per_connection: u32::try_from(two % 7).unwrap(),
            };
            let site = format!("s{}", two % 3).into_bytes();
            let expected = two.is_multiple_of(2).then_some(Duration::MAX);
            let until = if one.is_multiple_of(2) { Duration::ZERO } else { Duration::MAX };
            drop(scheduler.resolved(destination, &SiteAssignment { site: &site, limits, expected, until }, *now));
        }
        (4, _, Some(destination), _) => drop(scheduler.resolve_failed(
            destination,
            "no",
            if two.is_multiple_of(2) { ResolveFailure::Domain } else { ResolveFailure::Resolver },
            *now,
        )),
        (5, Some(connection), ..) => scheduler.greeted(connection, *now),
        (6 | 7, Some(connection), ..) => {
            if let NextJob::Job(job) = scheduler.next_job(connection, *now) {
                seen.jobs.push(job);
            }
        }
        (8 | 9, Some(connection), _, Some(job)) => {
            let feedback = FEEDBACKS[usize::try_from(two % 6).unwrap()];
            let retry = two.is_multiple_of(2).then_some(*now + Duration::from_secs(two));
            scheduler.job_done(connection, &job, feedback, retry, *now);
        }
        (10, Some(connection), _, Some(job)) => scheduler.give_back(connection, &job, *now),
        (11, Some(connection), ..) => {
            let failure = FAILURES[usize::try_from(two % 6).unwrap()];
            drop(scheduler.unreachable(connection, failure, "refused", *now));
        }
        (12, Some(connection), ..) if two.is_multiple_of(3) => scheduler.abandon(connection, *now),
        (12, Some(connection), ..) => drop(scheduler.closed(connection, *now)),
        (13, Some(connection), ..) => {
            moves(scheduler, &name, two, *now);
            scheduler.abandon(connection, *now);
        }
        (14, Some(connection), ..) => {
            let lag = Lag { has_others: two.is_multiple_of(2), is_whole: two.is_multiple_of(3) };
            scheduler.lagging(connection, lag, *now);
        }
        (15, _, Some(destination), _) => {
            let page: Vec<QueueEntry> = (0..two % 50)
                .map(|number| QueueEntry {
                    message: id(number / 3),
                    recipient: u32::try_from(number + two % 4).unwrap(),
                    due_s: u32::try_from((number % 3) * 1_799_999_990).unwrap_or(u32::MAX),
                    attempts: 0,
                    warned: number.is_multiple_of(5),
                    held: number.is_multiple_of(7),
                    class,
                    timed: number.is_multiple_of(4),
                    owed: number.is_multiple_of(11),
                })
                .collect();
            scheduler.page_loaded(destination, &page, two.is_multiple_of(2), *now);
        }
        (16, ..) => answer(scheduler, seen, &name, *now, (one, two)),
        (17, ..) => scheduler.retry_now(two.is_multiple_of(2).then_some(&*name), *now),
        (18, ..) => {
            let settings = Settings {
                connections_max: usize::try_from(one % 6).unwrap(),
                silent_max: usize::try_from(two % 4).unwrap(),
                ready_max: usize::try_from(two % 30).unwrap(),
                resolves_max: usize::try_from(two % 3).unwrap(),
                job_wait_max: Duration::from_millis(one % 3_000),
                jobs_per_connection: u32::try_from(two % 5).unwrap(),
                ..Settings::default()
            };
            scheduler.reconfigure(settings, *now);
        }
        (19, Some(connection), ..) => scheduler.silent(connection, *now),
        (20, Some(connection), ..) => scheduler.stalling(connection, *now),
        (21, ..) => {
            let (wait, later) = (Duration::from_secs(one * two), Duration::from_secs(two));
            let report = SiteReport { by: 2, why: "node 2", wait, until: *now + later };
            drop(scheduler.site_reported(format!("s{}", one % 3).as_bytes(), &report, *now));
        }
        (22, ..) => {
            scheduler.site_reported_up(format!("s{}", one % 3).as_bytes(), *now);
            let changes = scheduler.take_site_changes();
            assert!(changes.len() < 1_000 && changes.iter().all(|change| change.site.starts_with(b"s")));
        }
        _ => {}
    }
}

/// Sequences that always run; the first is a list in small transactions over a connection that loses them.
const KEPT: &[&[Call]] = &[&[
    (0, 0, 25),
    (3, 0, 5),
    (5, 0, 0),
    (6, 0, 0),
    (6, 0, 0),
    (14, 0, 0),
    (12, 0, 1),
    (2, 20, 0),
    (6, 1, 0),
    (8, 1, 4),
    (17, 0, 0),
]];

fn play(calls: &[Call]) {
    let mut scheduler = Scheduler::new(Settings { connections_max: 5, ..Settings::default() }, 3);
    scheduler.collect_site_changes();
    let (mut seen, mut now) = (Seen::default(), START);
    let mut ids = BTreeSet::new();
    for call in calls.iter().copied() {
        apply(&mut scheduler, &mut seen, &mut now, call);
        for step in 0.. {
            let Some(action) = scheduler.poll(now) else { break };
            assert!(step < 10_000, "it goes round in circles: {action:?}");
            match action {
                Action::Open { site, connection, .. } => {
                    assert!(ids.insert(connection));
                    assert!(scheduler.site_name(site).is_some() && scheduler.example_destination(site).is_some());
                    seen.connections.push(connection);
                }
                Action::Resolve { destination } | Action::Load { destination, .. } => {
                    assert!(scheduler.destination_name(destination).is_some());
                    seen.destinations.push(destination);
                }
                Action::Overdue { destination, message, recipients, .. } => {
                    seen.told.push((destination, message, recipients));
                }
                Action::Wake(_) | Action::Close(_) => {}
            }
        }
        assert!(scheduler.wake_at().is_none_or(|at| at > now));
        assert!(scheduler.destination_views().all(|view| view.ready == view.ready_by_class.iter().sum::<usize>()));
        let connections: usize = scheduler.site_views(now).map(|site| site.connections).sum();
        assert_eq!(connections, scheduler.connections());
    }
}

#[test]
fn kept_call_sequences_do_not_panic() {
    KEPT.iter().for_each(|calls| play(calls));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn no_order_of_calls_panics(calls in prop::collection::vec((0_u8..23, 0_u64..1_000, 0_u64..1_000), 1..400)) {
        play(&calls);
    }
}

//! Hosts that accept a limited rate: how much of a list they accept, how often they refuse, and how the pace ends.

use std::time::Duration;

use crate::rig::direct::{add, opens_one};
use crate::rig::{Host, LIMITS, Manner, Rig, START};
use schedule::{Failure, Feedback, Limits, NextJob, Scheduler, Settings};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// The result of a list in the ten minutes after the first one.
#[derive(Debug)]
struct Course {
    taken: usize,
    refused: usize,
    connections: usize,
    /// The pace at the end, in messages per 1,000 seconds.
    pace: Option<u32>,
}

impl Course {
    /// Returns whether at most this percentage of the attempted messages was refused.
    fn refuses_at_most(&self, percent: usize) -> bool {
        100 * self.refused <= percent * (self.taken + self.refused)
    }
}

fn list(host: Host, messages: usize, learn_pace: bool, seed: u64) -> Rig {
    let settings = Settings { learn_pace, ..Settings::default() };
    let mut rig = Rig::new(settings, Manner::default(), vec![host], seed);
    for _ in 0..messages {
        rig.add(0, 1, false);
    }
    rig
}

fn ten_minutes(rig: &mut Rig) -> Course {
    rig.run(MINUTE);
    let (taken, refused, connections) = (rig.delivered.len(), rig.refused[0], rig.opened[0]);
    rig.run(10 * MINUTE);
    Course {
        taken: rig.delivered.len() - taken,
        refused: rig.refused[0] - refused,
        connections: rig.opened[0] - connections,
        pace: rig.scheduler.site_views(rig.now).next().and_then(|site| site.pace),
    }
}

fn course(host: Host, messages: usize, learn_pace: bool, seed: u64) -> Course {
    let mut rig = list(host, messages, learn_pace, seed);
    let course = ten_minutes(&mut rig);
    assert!(rig.waiting() > 0, "it was not asked for all it would take: {course:?}");
    course
}

/// Returns whether a course accepts at least `taken` messages and refuses at most this percentage.
fn keeps(course: &Course, taken: usize, percent: usize) -> bool {
    course.taken >= taken && course.refuses_at_most(percent)
}

#[test]
fn a_host_that_bears_so_much_gets_it_and_seldom_more() {
    // Close to the measured values: these are the figures of docs/hosts.md, "A learned pace".
    for (host, messages, taken, percent) in [
        (Host::Paces(SECOND), 2_000, 555, 9),
        (Host::Paces(100 * MS), 12_000, 5_330, 1),
        (Host::Paces(10 * SECOND), 2_000, 51, 12),
        (Host::Counts(100, MINUTE), 4_000, 860, 4),
        (Host::Murmurs(SECOND), 2_000, 505, 14),
    ] {
        for seed in 1..5 {
            let learned = course(host, messages, true, seed);
            assert!(keeps(&learned, taken, percent), "{host:?}: {learned:?}");
            assert!(learned.pace.is_some(), "{host:?}: {learned:?}");
            // One at a time, and again after each disconnect.
            assert!(learned.connections <= learned.refused + learned.taken / 8 + 60, "{host:?}: {learned:?}");
        }
        let unlearned = course(host, messages, false, 1);
        assert!(!keeps(&unlearned, taken, percent), "it would do without: {host:?}: {unlearned:?}");
    }
}

#[test]
fn a_host_that_ends_each_connection_after_some_messages_is_not_paced() {
    for most in [1, 5, 60] {
        let run = |learn_pace| {
            let mut rig = list(Host::Tires(most), 6_000, learn_pace, 3);
            rig.run(20 * SECOND);
            let pace = rig.scheduler.site_views(rig.now).next().and_then(|site| site.pace);
            assert_eq!(pace, None, "{most} on a connection");
            (rig.delivered.len(), rig.opened[0])
        };
        let (learned, unlearned) = (run(true), run(false));
        assert!(learned.0 >= unlearned.0 * 95 / 100, "{most} on a connection: {learned:?}, {unlearned:?}");
    }
}

#[test]
fn a_host_that_was_paced_and_then_ends_connections_is_paced_no_more() {
    let weary = [2, 4, 6, 9, 20].map(Host::Wearies);
    for host in [Host::Tires(1), Host::Tires(5), Host::Tires(60)].into_iter().chain(weary) {
        let mut rig = list(Host::Paces(SECOND), 6_000, true, 3);
        rig.run(2 * MINUTE);
        assert!(rig.scheduler.site_views(rig.now).next().unwrap().pace.is_some());
        rig.hosts[0] = host;
        rig.run(8 * MINUTE);
        assert!(rig.waiting() <= 100, "{host:?}: {} wait", rig.waiting());
    }
}

#[test]
fn a_pace_is_known_for_as_long_as_the_host_has_it() {
    let one = Limits { messages_per_connection: 1, ..LIMITS };
    let cases = [
        (Host::Paces(SECOND), one),
        (Host::Paces(3 * SECOND), one),
        (Host::Both(SECOND, 6), LIMITS),
        (Host::Both(4 * SECOND, 9), LIMITS),
    ];
    for (host, limits) in cases {
        for seed in 1..4 {
            let mut rig = list(host, 2_000, true, seed);
            rig.limits[0] = limits;
            rig.run(MINUTE);
            for second in 0..900 {
                let pace = rig.scheduler.site_views(rig.now).next().and_then(|site| site.pace);
                assert!(pace.is_some(), "{host:?}, {limits:?}: forgotten after {second} s");
                rig.run(SECOND);
            }
            let (Host::Paces(each) | Host::Both(each, _)) = host else { panic!("{host:?}") };
            let most = usize::try_from((960 * SECOND).as_millis() / each.as_millis()).unwrap();
            let taken = rig.delivered.len();
            assert!(taken * 10 >= most * 6, "{host:?}, {limits:?}: {taken} of {most}");
            assert!(rig.refused[0] * 3 <= taken, "{host:?}, {limits:?}: {} refused, {taken} taken", rig.refused[0]);
        }
    }
}

#[test]
fn a_host_that_takes_nothing_is_asked_no_more_often_than_without_a_pace() {
    for host in [Host::Refuses, Host::Counts(1_000, 60 * MINUTE)] {
        let learned = course(host, 4_000, true, 2);
        // A host that accepted mail until now may count per minute: it is tried each quarter of a minute for five
        // minutes.
        let most = if host == Host::Refuses { 8 } else { 25 };
        assert!(learned.connections <= most, "{host:?}: {learned:?}");
    }
    let unlearned = course(Host::Refuses, 4_000, false, 2);
    let learned = course(Host::Refuses, 4_000, true, 2);
    assert!(learned.connections <= unlearned.connections, "{learned:?}, {unlearned:?}");
}

#[test]
fn a_host_that_throttles_no_more_is_at_full_speed_within_minutes() {
    let mut rig = list(Host::Paces(SECOND), 8_000, true, 1);
    rig.run(3 * MINUTE);
    assert!(rig.delivered.len() < 181);
    rig.hosts[0] = Host::Alive;
    rig.run(6 * MINUTE);
    // At the old pace 360 more, and deferred ones have their own time.
    assert!(rig.waiting() < 50, "{} wait", rig.waiting());
    for _ in 0..300 {
        rig.add(0, 1, false);
        rig.run(SECOND);
    }
    let site = rig.scheduler.site_views(rig.now).next();
    assert_eq!(site.and_then(|site| site.pace), None, "what is not felt is forgotten");
}

#[test]
fn a_host_that_begins_to_throttle_is_found_out_within_seconds() {
    let mut rig = list(Host::Alive, 3_000, true, 1);
    rig.run(SECOND / 2);
    rig.hosts[0] = Host::Paces(SECOND);
    rig.run(20 * SECOND);
    // Most of them in the first moment, on all connections.
    let (taken, refused) = (rig.delivered.len(), rig.refused[0]);
    assert!(refused < 50, "{refused}");
    rig.run(2 * MINUTE);
    let (taken, refused) = (rig.delivered.len() - taken, rig.refused[0] - refused);
    assert!(taken >= 108 && refused <= 9, "{taken}, {refused}");
}

#[test]
fn of_the_learned_pace_and_that_of_a_rule_the_slower_one_holds() {
    for (milli, taken, refused) in [(500, 295..=301, 0), (5_000, 555..=600, 54)] {
        let mut rig = list(Host::Paces(SECOND), 2_000, true, 1);
        rig.limits[0] = Limits { messages_per_second: Some(milli), ..LIMITS };
        // The rig checks each window of time against the rule.
        let course = ten_minutes(&mut rig);
        assert!(taken.contains(&course.taken) && course.refused <= refused, "{milli}: {course:?}");
    }
}

#[test]
fn retry_now_ends_the_pace() {
    let mut rig = list(Host::Paces(SECOND), 2_000, true, 1);
    rig.run(MINUTE);
    rig.hosts[0] = Host::Alive;
    rig.retry_now(Some(0));
    rig.run(20 * SECOND);
    assert!(rig.waiting() < 50, "{}", rig.waiting());
}

/// A site with two connections. The second one got 421 to its first message: the site is in a stop.
fn stopped() -> (Scheduler, Duration) {
    let mut scheduler = Scheduler::new(Settings::default(), 1);
    for number in 0..7 {
        add(&mut scheduler, "d", number);
    }
    for feedback in [Feedback::Good, Feedback::Slowdown] {
        let (connection, _) = opens_one(&mut scheduler, LIMITS, START);
        scheduler.greeted(connection, START);
        let NextJob::Job(job) = scheduler.next_job(connection, START) else { panic!("there is work") };
        scheduler.job_done(connection, &job, feedback, None, START);
        if feedback == Feedback::Good {
            assert_eq!(scheduler.closed(connection, START), []);
        } else {
            assert_eq!(scheduler.unreachable(connection, Failure::Throttled, "421 too fast", START), []);
        }
    }
    assert_eq!(scheduler.poll(START), None, "one is tried after a pause");
    let now = scheduler.wake_at().unwrap();
    (scheduler, now)
}

#[test]
fn an_unsent_job_does_not_change_the_pace() {
    let (mut scheduler, now) = stopped();
    let pace = |scheduler: &Scheduler| scheduler.site_views(now).next().unwrap().pace;
    let (connection, _) = opens_one(&mut scheduler, LIMITS, now);
    scheduler.greeted(connection, now);
    // Deleted, unreadable, or not for this host: the next message is tried at once.
    for _ in 0..3 {
        let NextJob::Job(job) = scheduler.next_job(connection, now) else { panic!("one is to be tried") };
        scheduler.job_done(connection, &job, Feedback::Unsent, None, now);
        assert_eq!(pace(&scheduler), None, "nothing was taken");
    }
    let NextJob::Job(job) = scheduler.next_job(connection, now) else { panic!("one is to be tried") };
    assert_eq!(scheduler.next_job(connection, now), NextJob::Idle, "one at a time");
    scheduler.job_done(connection, &job, Feedback::Good, None, now);
    assert!(pace(&scheduler).is_some());
}

//! Who has a connection while more are wanted than there may be, and who gets none although it could have one.

#![allow(clippy::indexing_slicing, clippy::unwrap_used, reason = "what is missing here is a failed test")]

mod rig;

use std::time::Duration;

use rig::direct::{act, add, opened, opens_one, taken};
use rig::{Host, LIMITS, Manner, Rig, START};
use schedule::{Action, Class, Feedback, Limits, NextJob, Scheduler, Settings};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// Live sites and so many connections of the fast lane.
fn rig(places: usize, sites: usize, service: Duration) -> Rig {
    let settings = Settings { connections_max: places + 1, ..Settings::default() };
    Rig::new(settings, Manner { service, ..Manner::default() }, vec![Host::Alive; sites], 7)
}

/// Sites that have work for all of the time, each over one connection that would serve it without end. What came of each
/// after three turns, and how many messages after thirty more; and how many connections were opened.
fn busy(sites: usize, time_slice: Duration) -> (Vec<usize>, Vec<usize>, usize) {
    let span = Settings::default().time_slice;
    let mut rig = rig(4, sites, SECOND / 10);
    rig.set(Settings { time_slice, ..rig.settings.clone() });
    rig.limits = vec![Limits { connections: 1, messages_per_connection: u32::MAX, ..LIMITS }; sites];
    for number in 0..sites * 2_000 {
        rig.add(number % sites, 1, false);
    }
    let came = |rig: &Rig| rig.lists.iter().map(|list| 2_000 - list.len()).collect::<Vec<usize>>();
    rig.run(3 * span);
    let first = came(&rig);
    rig.run(30 * span);
    (first, came(&rig), rig.opened.iter().sum())
}

#[test]
fn sites_with_one_connection_take_turns() {
    let time_slice = Settings::default().time_slice;
    let (first, all, opened) = busy(12, time_slice);
    // Four of twelve at a time: each has had a turn after three of them.
    assert!(first.iter().all(|came| *came > 0), "{first:?}");
    let (least, most) = (all.iter().min().unwrap(), all.iter().max().unwrap());
    assert!(most * 4 <= least * 5, "all have the same share, but for a turn: {all:?}");
    // A turn is long: what a handshake costs is little beside it.
    assert!(opened <= 4 * 34, "{opened}");
    // Who has no others beside him is not disturbed.
    assert_eq!(busy(4, time_slice).2, 4);
    // Without turns four have all.
    let (_, all, opened) = busy(12, Duration::MAX);
    assert_eq!((all.iter().filter(|came| **came == 0).count(), opened), (8, 4), "{all:?}");
}

#[test]
fn urgent_mail_does_not_stand_behind_all_who_want_a_connection() {
    let came_after = |class: Class| {
        let mut rig = rig(1, 42, SECOND);
        rig.class = Class::Bulk;
        for to in 0..41 {
            rig.add(to, 1, false);
        }
        rig.run(SECOND);
        rig.class = class;
        let (message, committed) = (rig.add(41, 1, false), rig.now);
        rig.run(120 * SECOND);
        assert_eq!(rig.waiting(), 0);
        rig.delivered[&(message, 0)] - committed
    };
    assert!(came_after(Class::Urgent) < 4 * SECOND, "{:?}", came_after(Class::Urgent));
    assert!(came_after(Class::Normal) > 40 * SECOND, "{:?}", came_after(Class::Normal));
}

/// A site that is known to be fast stands before others as soon as it has given a place up.
#[test]
fn who_gives_a_place_up_had_a_job_and_does_not_get_it_back_at_once() {
    let mut scheduler = Scheduler::new(Settings { connections_max: 5, ..Settings::default() }, 1);
    (0..100).for_each(|number| add(&mut scheduler, "known-fast", number));
    let all = opened(&act(&mut scheduler, LIMITS, START));
    let [(first, _), (second, _), (third, _), _] = all[..] else { panic!("{all:?}") };
    (100..140).for_each(|number| add(&mut scheduler, "other", number));
    assert_eq!(act(&mut scheduler, LIMITS, START), []);
    for connection in [first, second, third] {
        taken(&mut scheduler, connection, START);
    }
    // For one that has none it gives way at once, but not before it had a job.
    assert_eq!(scheduler.next_job(first, START), NextJob::Close);
    assert_eq!(scheduler.closed(first, START), []);
    let (other, _) = opens_one(&mut scheduler, LIMITS, START);
    taken(&mut scheduler, other, START);
    assert_eq!(act(&mut scheduler, LIMITS, START), []);
    // The other one wants a second connection, and stands behind: it would get none.
    taken(&mut scheduler, second, START);
    let later = START + SECOND / 2;
    assert_eq!(scheduler.next_job(third, later), NextJob::Close);
    assert_eq!(scheduler.closed(third, later), []);
    let actions = act(&mut scheduler, LIMITS, later);
    let [Action::Open { site, connection, .. }] = actions[..] else { panic!("{actions:?}") };
    assert_eq!(scheduler.site_name(site).map(|name| &**name), Some(b"other".as_slice()));
    taken(&mut scheduler, connection, later);
}

/// Twelve sites with eight places, and a message for each of them in each gap.
fn burst(gap: Duration) -> usize {
    let mut rig = rig(8, 12, 3 * MS);
    for _ in 0..(300 / gap.as_millis()) {
        for to in 0..12 {
            rig.add(to, 1, false);
        }
        rig.run(gap);
    }
    rig.run(2 * SECOND);
    assert_eq!(rig.waiting(), 0);
    rig.opened.iter().sum()
}

#[test]
fn a_connection_is_not_closed_in_the_moment_between_two_messages_of_a_burst() {
    let opened = burst(10 * MS);
    assert!(opened <= 2 * 12, "{opened} for 30 messages to 12 sites");
    // What comes seldom is not waited for: each message has its handshake, as there are more sites than places.
    let opened = burst(100 * MS);
    assert!(opened > 2 * 12, "{opened} for 3 messages to 12 sites");
}

#[test]
fn who_gets_one_message_keeps_no_place_after_it() {
    let mut rig = rig(8, 400, 3 * MS);
    for to in 0..400 {
        rig.add(to, 1, false);
    }
    rig.run(3 * SECOND);
    assert_eq!((rig.waiting(), rig.opened.iter().sum::<usize>()), (0, 400));
}

/// One connection that was woken for many messages and asks for work so much later: what is opened then, and when at the latest.
fn woken(late: Duration) -> (usize, Duration) {
    let mut scheduler = Scheduler::new(Settings::default(), 1);
    add(&mut scheduler, "a", 0);
    let (connection, _) = opens_one(&mut scheduler, LIMITS, START);
    let job = taken(&mut scheduler, connection, START);
    scheduler.job_done(connection, &job, Feedback::Good, None, START);
    assert_eq!(scheduler.next_job(connection, START), NextJob::Idle);
    add(&mut scheduler, "a", 1);
    assert_eq!(act(&mut scheduler, LIMITS, START), [Action::Wake(connection)]);
    let mut now = START + late;
    taken(&mut scheduler, connection, now);
    (2..42).for_each(|number| add(&mut scheduler, "a", number));
    let at_once = opened(&act(&mut scheduler, LIMITS, now)).len();
    while at_once == 0 && now < START + SECOND {
        now = scheduler.wake_at().unwrap();
        if !opened(&act(&mut scheduler, LIMITS, now)).is_empty() {
            break;
        }
    }
    (at_once, now - START)
}

#[test]
fn who_waits_for_us_gets_no_second_connection_for_a_moment() {
    assert_eq!(woken(20 * MS), (2, 20 * MS));
    assert_eq!(woken(50 * MS), (0, 300 * MS));
}

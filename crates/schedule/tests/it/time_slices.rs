//! Which sites have a connection while more sites want one than the budget allows.

use std::time::Duration;

use crate::rig::direct::{act, add, opened, opens_one, taken};
use crate::rig::{Host, LIMITS, Manner, Rig, START};
use schedule::{Action, Class, Feedback, Limits, NextJob, Scheduler, Settings};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

/// A rig with live sites and this many places in the fast lane.
fn rig(places: usize, sites: usize, service: Duration) -> Rig {
    let settings = Settings { connections_max: places + 1, ..Settings::default() };
    Rig::new(settings, Manner { service, ..Manner::default() }, vec![Host::Alive; sites], 7)
}

/// Sites with endless work, each over one connection that would serve it forever. Returns the messages per site after
/// three time slices and after thirty more, and the number of connections.
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
    // Four of twelve at a time: each has had a time slice after three of them.
    assert!(first.iter().all(|came| *came > 0), "{first:?}");
    let (least, most) = (all.iter().min().unwrap(), all.iter().max().unwrap());
    assert!(most * 4 <= least * 5, "all have the same share, but for a turn: {all:?}");
    // A time slice is long compared to a handshake.
    assert!(opened <= 4 * 34, "{opened}");
    // Without other waiting sites no connection closes.
    assert_eq!(busy(4, time_slice).2, 4);
    // Without time slices four sites get everything.
    let (_, all, opened) = busy(12, Duration::MAX);
    assert_eq!((all.iter().filter(|came| **came == 0).count(), opened), (8, 4), "{all:?}");
}

#[test]
fn urgent_mail_does_not_wait_behind_all_sites_that_want_a_connection() {
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

/// A site that is known to be fast ranks ahead of others as soon as it gives up a place.
#[test]
fn a_site_that_gives_up_a_place_had_a_job_and_does_not_get_it_back_at_once() {
    let mut scheduler = Scheduler::new(Settings { connections_max: 5, ..Settings::default() }, 1);
    (0..100).for_each(|number| add(&mut scheduler, "known-fast", number));
    let all = opened(&act(&mut scheduler, LIMITS, START));
    let [(first, _), (second, _), (third, _), _] = all[..] else { panic!("{all:?}") };
    (100..140).for_each(|number| add(&mut scheduler, "other", number));
    assert_eq!(act(&mut scheduler, LIMITS, START), []);
    for connection in [first, second, third] {
        taken(&mut scheduler, connection, START);
    }
    // It gives way at once to a site without a connection, but not before it had a job.
    assert_eq!(scheduler.next_job(first, START), NextJob::Close);
    assert_eq!(scheduler.closed(first, START), []);
    let (other, _) = opens_one(&mut scheduler, LIMITS, START);
    taken(&mut scheduler, other, START);
    assert_eq!(act(&mut scheduler, LIMITS, START), []);
    // The other site wants a second connection, and ranks behind: it would get none.
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
    // Rare messages are not waited for: each has its handshake, because there are more sites than places.
    let opened = burst(100 * MS);
    assert!(opened > 2 * 12, "{opened} for 3 messages to 12 sites");
}

#[test]
fn a_site_that_gets_one_message_keeps_no_place_after_it() {
    let mut rig = rig(8, 400, 3 * MS);
    for to in 0..400 {
        rig.add(to, 1, false);
    }
    rig.run(3 * SECOND);
    assert_eq!((rig.waiting(), rig.opened.iter().sum::<usize>()), (0, 400));
}

/// One connection that was woken for many messages and asks for work this much later. Returns what opens then, and when
/// at the latest.
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
fn an_overloaded_machine_opens_no_second_connection_for_a_moment() {
    assert_eq!(woken(20 * MS), (2, 20 * MS));
    assert_eq!(woken(50 * MS), (0, 300 * MS));
}

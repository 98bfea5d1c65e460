//! Mail that waits at a site that is up and accepts little: notices about age and deliver-by times are sent in time.

use std::time::Duration;

use crate::rig::direct::{act, id, next_at, opens_one, taken, waiting};
use crate::rig::{Host, LIMITS, Manner, Rig, START};
use schedule::{Action, Feedback, Limits, NextJob, Overdue, QueueEntry, Scheduler, Settings};

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3_600);
const DAY: Duration = Duration::from_secs(24 * 3_600);

/// Why a site accepts little.
#[derive(Clone, Copy, Debug)]
enum Slow {
    Rate,
    Pace,
    /// Another site shares the only connection.
    Budget,
}

const SLOW: [Slow; 3] = [Slow::Rate, Slow::Pace, Slow::Budget];

fn slow(why: Slow, settings: Settings) -> Rig {
    let is_short = matches!(why, Slow::Budget);
    let (connections_max, silent_max) = if is_short { (1, 0) } else { (settings.connections_max, settings.silent_max) };
    let manner = Manner { service: if is_short { 15 * SECOND } else { SECOND / 100 }, ..Manner::default() };
    let host = if matches!(why, Slow::Pace) { Host::Paces(MINUTE) } else { Host::Alive };
    let mut rig = Rig::new(Settings { connections_max, silent_max, ..settings }, manner, vec![host; 2], 7);
    if matches!(why, Slow::Rate) {
        rig.limits = vec![Limits { messages_per_second: Some(10), ..LIMITS }; 2];
    }
    rig
}

fn pass(rig: &mut Rig, span: Duration) {
    let end = rig.now + span;
    while rig.now < end {
        rig.run((10 * MINUTE).min(end - rig.now));
    }
}

#[test]
fn fresh_mail_is_tried_although_nothing_may_wait() {
    let settings = Settings { give_up_after: Duration::ZERO, warn_after: None, ..Settings::default() };
    let mut rig = Rig::new(settings, Manner { service: 5 * SECOND, ..Manner::default() }, vec![Host::Alive], 7);
    rig.limits[0].connections = 1;
    for _ in 0..8 {
        rig.add(0, 1, false);
    }
    rig.run(60 * SECOND);
    assert_eq!((rig.delivered.len(), rig.given_up.len()), (8, 0));
}

#[test]
fn senders_hear_in_time_of_what_waits_for_its_turn() {
    for why in SLOW {
        let settings = Settings { give_up_after: 12 * HOUR, ..Settings::default() };
        let mut rig = slow(why, settings);
        for _ in 0..3_000 {
            (0..2).for_each(|to| {
                rig.add(to, 1, false);
            });
            rig.run(SECOND / 10);
        }
        pass(&mut rig, 4 * HOUR + 10 * MINUTE);
        let (came, warned) = (rig.delivered.len(), rig.warned.len());
        assert!(came < 2_500, "{why:?}: {came}");
        assert!(came + warned >= 6_000, "{why:?}: of {came} and {warned} of 6,000 something was heard");
        assert!(rig.lateness()[0] < 2 * MINUTE, "{why:?}: {:?}", rig.lateness());
        let before = rig.entries_read;
        pass(&mut rig, 7 * HOUR);
        // With each refusal of a paced host an entry becomes due at another time: then some hundred entries per second
        // are read, otherwise few.
        let most = if matches!(why, Slow::Pace) { 6_000_000 } else { 200_000 };
        assert!(rig.entries_read - before < most, "{why:?}: {} were read", rig.entries_read - before);
        assert!(rig.delivered.len() > came + 80, "{why:?}: it takes mail all the time: {}", rig.delivered.len());
        assert_eq!(rig.given_up.len(), 0);
        pass(&mut rig, HOUR);
        assert_eq!(rig.waiting(), 0, "{why:?}");
        assert!(rig.lateness()[0] < 2 * MINUTE, "{why:?}: {:?}", rig.lateness());
    }
}

#[test]
fn the_end_of_a_time_given_by_a_sender_is_acted_on_while_its_message_waits_for_its_turn() {
    for (why, restarts) in SLOW.into_iter().flat_map(|why| [(why, false), (why, true)]) {
        let mut rig = slow(why, Settings { warn_after: None, ..Settings::default() });
        for number in 0..3_000 {
            rig.by = (number % 3 > 0).then(|| HOUR + number % 1_000 * 7 * SECOND);
            (0..2).for_each(|to| {
                rig.add(to, 1, false);
            });
        }
        rig.run(MINUTE);
        if restarts {
            rig.restart();
        }
        pass(&mut rig, 3 * HOUR);
        assert!(rig.too_late.len() > 3_000 && rig.delivered.len() > 20, "{why:?}: {}", rig.too_late.len());
        assert_eq!(rig.lists.iter().flatten().filter(|entry| entry.timed).count(), 0, "{why:?}");
        assert!(rig.lateness()[1] <= MINUTE, "{why:?}, {restarts}: {:?}", rig.lateness());
    }
}

#[test]
fn a_part_withdrawn_for_a_notice_keeps_its_position() {
    for (why, ready_max) in [(Slow::Rate, 1_024), (Slow::Rate, 50), (Slow::Budget, 1_024)] {
        let mut rig = slow(why, Settings { ready_max, ..Settings::default() });
        for number in 0..400 {
            rig.by = (number % 3 == 0).then_some(100 * HOUR);
            rig.add(0, 1, false);
            rig.run(SECOND / 10);
        }
        pass(&mut rig, 12 * HOUR);
        assert!(rig.warned.len() > 200 || matches!(why, Slow::Budget), "{}", rig.warned.len());
        let came: Vec<Duration> = rig.delivered.values().copied().collect();
        assert!(came.len() > 350 && came.is_sorted(), "{why:?}, {ready_max}: {} came", came.len());
    }
}

#[test]
fn a_server_that_was_off_for_a_week_tries_all_at_a_slow_site_before_it_gives_up() {
    for host in [Host::Alive, Host::Defers] {
        for ready_max in [10, 1_024] {
            let settings = Settings { hold_fresh: true, ready_max, ..Settings::default() };
            let mut rig = Rig::new(settings, Manner::default(), vec![host], 7);
            rig.limits[0].messages_per_second = Some(10);
            for _ in 0..100 {
                rig.add(0, 1, false);
            }
            pass(&mut rig, 7 * DAY);
            rig.settings.hold_fresh = false;
            rig.restart();
            pass(&mut rig, 100 * 100 * SECOND + 5 * MINUTE);
            assert_eq!((rig.taken, rig.waiting(), rig.warned.len()), (100, 0, 0), "{host:?}");
            assert_eq!(rig.given_up.len(), if host == Host::Alive { 0 } else { 100 });
        }
    }
}

#[test]
fn a_server_that_was_off_for_some_hours_tells_of_no_delay_before_it_had_an_hour() {
    let mut rig = slow(Slow::Rate, Settings { hold_fresh: true, ..Settings::default() });
    (0..200).for_each(|_| {
        rig.add(0, 1, false);
    });
    pass(&mut rig, 5 * HOUR);
    rig.settings.hold_fresh = false;
    rig.restart();
    pass(&mut rig, HOUR - MINUTE);
    assert_eq!(rig.warned.len(), 0);
    pass(&mut rig, 10 * MINUTE);
    assert!(rig.warned.len() > 150 && rig.warned.len() + rig.delivered.len() >= 200, "{}", rig.warned.len());
}

/// A recipient that is skipped because another one of its message ended while the page was read.
#[test]
fn a_recipient_skipped_because_its_message_changed_gets_its_notice_in_time() {
    let settings = Settings { ready_max: 2, ..Settings::default() };
    let limits = Limits { messages_per_second: Some(1), ..LIMITS };
    let mut scheduler = Scheduler::new(settings, 1);
    let second = |span: u64| u32::try_from((START + SECOND * u32::try_from(span).unwrap()).as_secs()).unwrap();
    let load = |actions: &[Action]| {
        let of = |action: &Action| match action {
            Action::Load { destination, .. } => Some(*destination),
            _ => None,
        };
        actions.iter().find_map(of)
    };
    // One recipient of the message is tried now, the other in a minute.
    let later = QueueEntry { recipient: 1, ..waiting(0, second(60)) };
    scheduler.restore(b"a", START);
    let destination = load(&act(&mut scheduler, limits, START)).unwrap();
    scheduler.page_loaded(destination, &[waiting(0, second(0)), later], true, START);
    let (connection, _) = opens_one(&mut scheduler, limits, START);
    let first = taken(&mut scheduler, connection, START);
    let now = START + MINUTE;
    assert_eq!(load(&act(&mut scheduler, limits, now)), Some(destination));
    // The first recipient is delivered while the page is read. Entries behind the second fill the ready queue.
    scheduler.job_done(connection, &first, Feedback::Good, None, now);
    let page = [later, waiting(1, second(60)), waiting(2, second(60))];
    scheduler.page_loaded(destination, &page, true, now);
    assert_eq!(scheduler.next_job(connection, now), NextJob::Idle, "there is no token");
    // The site accepts nothing meanwhile.
    let mut told = Vec::new();
    for minute in 2..=(4 * 60 + 3) {
        let now = START + MINUTE * minute;
        while let Some(action) = next_at(&mut scheduler, None, limits, now) {
            match action {
                Action::Load { destination, .. } => scheduler.page_loaded(destination, &page, true, now),
                Action::Overdue { message, kind: Overdue::Warn, .. } => told.push((message, minute)),
                _ => {}
            }
        }
    }
    told.sort_unstable();
    assert_eq!(told.iter().map(|(message, _)| *message).collect::<Vec<_>>(), [id(0), id(1), id(2)]);
    assert!(told.iter().all(|(_, minute)| (240..=242).contains(minute)), "{told:?}");
}

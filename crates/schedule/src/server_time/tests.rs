//! A table of wrong clocks, and the time and age that follow from each.

use super::*;

const BUILD: Duration = Duration::from_secs(1_780_000_000);

const fn days(number: u64) -> Duration {
    Duration::from_secs(number * 24 * 3_600)
}

/// A time after the build.
fn day(number: u64) -> Duration {
    BUILD + days(number)
}

/// Returns the time of the next server, after the file.
fn restart(last: &ServerTime, wall: Duration) -> (ServerTime, Option<ClockEvent>) {
    let last = ServerTime::from_text(&last.to_text()).unwrap();
    ServerTime::begin(Some(last), wall, BUILD)
}

fn first(wall: Duration) -> (ServerTime, Option<ClockEvent>) {
    ServerTime::begin(None, wall, BUILD)
}

/// Returns the age that a message of `at` has, in hours.
fn hours(time: &ServerTime, at: Duration) -> u64 {
    time.at().saturating_sub(time.steps().counts_from(at, time.at())).as_secs() / 3_600
}

#[test]
fn a_right_clock_is_the_time_and_the_time_off_is_age() {
    let (mut time, event) = first(day(900));
    assert_eq!((time.at(), event, time.doubted()), (day(900), None, None));
    assert_eq!(time.observe(day(901), day(901), BUILD), None);
    let (time, event) = restart(&time, day(903));
    assert_eq!((time.at(), event, hours(&time, day(900))), (day(903), None, 72));
}

#[test]
fn a_clock_of_1970_at_the_first_start_then_put_right() {
    let (mut time, event) = first(Duration::from_secs(60));
    assert_eq!((time.at(), event), (BUILD, Some(ClockEvent::Implausible)));
    assert_eq!(time.doubted(), Some(Duration::from_secs(60)));
    let taken = BUILD + Duration::from_secs(60);
    // It stays in 1970 for days: the clock is never accepted.
    assert_eq!(time.observe(day(3), days(3), BUILD), None);
    assert_eq!(hours(&time, taken), 71);
    let mut running = time.clone();
    let event = running.observe(day(4), day(800), BUILD);
    assert_eq!(event, Some(ClockEvent::Accepted(ClockStep { from: day(4), to: day(800) })));
    assert_eq!((running.at(), hours(&running, taken), running.doubted()), (day(800), 95, None));
    let (again, event) = restart(&time, day(800));
    assert_eq!(event, Some(ClockEvent::Accepted(ClockStep { from: day(3), to: day(800) })));
    assert_eq!((again.at(), hours(&again, taken)), (day(800), 71));
    // A crash before the time went on leaves mail that is younger than the file.
    let (again_soon, _) = restart(&first(Duration::from_secs(60)).0, day(800));
    assert_eq!(hours(&again_soon, taken), 0);
    // And it is right from now on.
    assert_eq!((restart(&again, day(801)).1, restart(&again, day(801)).0.at()), (None, day(801)));
}

#[test]
fn a_clock_behind_the_last_known_time_at_a_boot_then_right_by_ntp() {
    let (time, _) = first(day(500));
    for wall in [Duration::from_secs(5), day(100)] {
        let (mut time, event) = restart(&time, wall);
        assert_eq!((time.at(), event), (day(500), Some(ClockEvent::Implausible)), "{wall:?}");
        let now = day(500) + Duration::from_secs(90);
        assert_eq!(
            time.observe(now, day(502), BUILD),
            Some(ClockEvent::Accepted(ClockStep { from: now, to: day(502) }))
        );
        assert_eq!((hours(&time, day(499)), hours(&time, now)), (24, 0));
    }
}

#[test]
fn a_clock_that_jumps_by_years_and_back_while_the_server_runs() {
    let (mut time, _) = first(day(500));
    assert_eq!(time.observe(day(501), day(4_000), BUILD), Some(ClockEvent::Jumped));
    assert_eq!((time.observe(day(502), day(4_001), BUILD), time.at()), (None, day(502)));
    assert_eq!(time.doubted(), Some(day(4_001)));
    let (off, event) = restart(&time, day(4_001));
    assert_eq!((off.at(), event), (day(502), Some(ClockEvent::Implausible)));
    assert_eq!((time.observe(day(503), day(503), BUILD), time.doubted()), (None, None));
    // A jump of weeks that a restart meets again is known as one, and the time off is age.
    assert_eq!(time.observe(day(504), day(534), BUILD), Some(ClockEvent::Jumped));
    let (off, event) = restart(&time, day(536));
    assert_eq!(event, Some(ClockEvent::Accepted(ClockStep { from: day(504), to: day(534) })));
    assert_eq!((off.at(), hours(&off, day(503))), (day(536), 72));
}

#[test]
fn a_clock_that_is_far_ahead_at_a_boot() {
    let (time, _) = first(day(500));
    let (mut time, event) = restart(&time, day(9_000));
    assert_eq!((time.at(), event), (day(500), Some(ClockEvent::Implausible)));
    assert_eq!(time.observe(day(500) + days(1) / 2, day(9_000) + days(1) / 2, BUILD), None);
    let mut right = time.clone();
    assert!(matches!(right.observe(day(501), day(503), BUILD), Some(ClockEvent::Accepted(_))));
    // A clock that stays is accepted after a day, and no mail expires by it.
    assert!(matches!(time.observe(day(501), day(9_001), BUILD), Some(ClockEvent::Accepted(_))));
    assert_eq!((time.at(), hours(&time, day(499))), (day(9_001), 48));
}

#[test]
fn a_clock_that_was_ahead_when_mail_came_and_is_right_later() {
    let (time, event) = first(day(2_000));
    assert_eq!(event, None, "it looks right");
    let (mut time, event) = restart(&time, day(500));
    assert_eq!((time.at(), event), (day(2_000), Some(ClockEvent::Implausible)));
    assert_eq!(time.observe(day(2_001), day(501), BUILD), Some(ClockEvent::NextStart));
    assert_eq!(time.observe(day(2_002), day(502), BUILD), None, "once");
    assert_eq!(hours(&time, day(2_000)), 48);
    let (mut time, event) = restart(&time, day(503));
    assert_eq!((time.at(), event), (day(503), None));
    time.set_ahead(true);
    assert_eq!(time.observe(day(505), day(505), BUILD), None);
    assert_eq!((hours(&time, day(2_000)), hours(&time, day(504))), (48, 24));
    let (mut time, _) = restart(&time, day(506));
    time.set_ahead(true);
    assert_eq!(hours(&time, day(2_000)), 72, "over restarts");
    time.set_ahead(false);
    assert_eq!(time.steps().ahead_since(), None);
}

#[test]
fn a_program_of_years_ago_believes_the_clock_and_not_one_of_the_next_century() {
    assert_eq!(first(day(5_000)).1, None);
    assert_eq!(first(day(40_000)).1, Some(ClockEvent::Implausible));
    assert_eq!(first(BUILD - days(1)).1, Some(ClockEvent::Implausible));
}

#[test]
fn a_damaged_file_is_none() {
    let (mut time, _) = first(Duration::from_secs(60));
    let _: Option<ClockEvent> = time.observe(day(4), day(800), BUILD);
    time.set_ahead(true);
    let text = time.to_text();
    assert_eq!(ServerTime::from_text(&text), Some(time));
    for cut in 0..text.len() {
        assert_eq!(ServerTime::from_text(&text[..cut]), None, "{cut}");
    }
    assert_eq!(ServerTime::from_text(&text.replace("step", "stop")), None);
}

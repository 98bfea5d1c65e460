//! The clock of a spool over restarts: wrong wall clocks, power cuts, ids from the future, a damaged file.

use super::*;
use mail::{Client, Node, Protocol, QueueId, QueueIds, Received, ReversePath};
use std::path::Path;

/// 2027-01-15.
const TODAY: u64 = 1_800_000_000;
const DAY: Duration = Duration::from_secs(24 * 3_600);

fn config(directory: &Path) -> Config {
    let text = format!("[spool]\npath = {:?}\n", directory.display().to_string());
    crate::config::load(&text, None, &[], &crate::config::Machine::default()).unwrap().config
}

/// Opens the clock of a spool while the wall clock says `seconds`.
fn open(config: &Config, seconds: u64, newest: Option<Duration>) -> (ServerClock, Vec<String>) {
    let _guard = clock::simulated::begin(seconds * 1_000_000);
    ServerClock::open(config, newest)
}

fn envelope(id: QueueId, params: &str) -> Envelope {
    let received = Received { at_us: 0, client: Client::Internal, helo: None, protocol: Protocol::Local };
    Envelope { id, sender: ReversePath::Null, params: params.parse().unwrap(), received, recipients: Vec::new() }
}

/// Returns the age of a message by a clock.
fn age(clock: &ServerClock, envelope: &Envelope) -> Duration {
    clock.now_of(envelope).saturating_sub(envelope.waits_since())
}

#[test]
fn mail_of_1970_is_young_when_the_clock_is_right_running_and_after_a_restart() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path());
    let (clock, texts) = open(&config, 60, None);
    assert!(texts.len() == 1 && texts[0].contains("says Thu, 1 Jan 1970 00:01:00 +0000, which is not"), "{texts:?}");
    assert_eq!(clock.doubted().map(|wall| wall.as_secs()), Some(60));
    let message = envelope(QueueIds::new(Node::default()).next(micros(clock.now())), "BY=3600;R");
    let (text, is_new) = clock.look_at(Duration::from_secs(TODAY));
    assert!(is_new && text.is_some_and(|text| text.contains("is no age of mail")));
    assert!(clock.now() >= Duration::from_secs(TODAY) && clock.doubted().is_none());
    let (next, texts) = open(&config, TODAY, None);
    assert!(texts.len() == 1 && texts[0].contains("counts from now on"), "{texts:?}");
    for clock in [&clock, &next] {
        assert!(age(clock, &message) < DAY, "{:?}", age(clock, &message));
        let (deadline, _) = message.deliver_by().unwrap();
        let deadline = clock.time_of(&message, deadline);
        assert!(deadline > clock.now() && deadline < clock.now() + DAY);
    }
}

#[test]
fn files_of_a_wrong_clock_have_no_age() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path());
    let hour = Duration::from_secs(3_600);
    let today = Duration::from_secs(TODAY);
    let (clock, _) = open(&config, TODAY, None);
    let age = clock.age_of_file(today - hour);
    assert!(age >= hour && age < hour + DAY, "{age:?}");
    assert_eq!(clock.age_of_file(Duration::from_secs(60)), Duration::ZERO, "written in 1970");
    clock.save().unwrap();
    // The machine thinks that it is 1970, or a year to come: no file has an age.
    for wall in [60, TODAY + 800 * 86_400] {
        let (clock, _) = open(&config, wall, None);
        assert!(clock.doubted().is_some(), "{wall}");
        assert_eq!(clock.age_of_file(today - hour), Duration::ZERO, "{wall}");
    }
}

#[test]
fn after_a_power_cut_the_ids_say_that_the_clock_was_never_right() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path());
    let message = envelope(QueueIds::new(Node::default()).next(micros(BUILD) + 5_000_000), "");
    let (clock, texts) = open(&config, TODAY, Some(Duration::from_micros(message.id.unix_us())));
    assert!(texts.len() == 1 && age(&clock, &message) < DAY, "{texts:?}");
}

#[test]
fn a_clock_in_1970_after_a_good_one_continues_it_and_mail_ages() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path());
    let (clock, texts) = open(&config, TODAY, None);
    assert_eq!(texts, Vec::<String>::new());
    let message = envelope(QueueIds::new(Node::default()).next((TODAY - 86_400) * 1_000_000), "");
    clock.save().unwrap();
    let (clock, texts) = open(&config, 60, None);
    assert_eq!(texts.len(), 1);
    assert!(clock.now() >= Duration::from_secs(TODAY));
    assert!(age(&clock, &message) >= DAY && age(&clock, &message) < 2 * DAY);
}

#[test]
fn mail_from_the_future_ages_from_the_first_start_that_sees_it() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path());
    let newest = Duration::from_secs(TODAY) + 900 * DAY;
    let message = envelope(QueueIds::new(Node::default()).next(micros(newest)), "");
    let (clock, texts) = open(&config, TODAY, Some(newest));
    assert!(texts.len() == 1 && texts[0].contains("counts as accepted now"), "{texts:?}");
    assert!(age(&clock, &message) < DAY);
    clock.save().unwrap();
    let (clock, texts) = open(&config, TODAY + 3 * 86_400, Some(newest));
    assert_eq!(texts, Vec::<String>::new());
    assert!(age(&clock, &message) >= 3 * DAY);
}

#[test]
fn a_damaged_file_is_reported_and_replaced() {
    let directory = tempfile::tempdir().unwrap();
    let config = config(directory.path());
    std::fs::write(directory.path().join(FILE), "rubbish").unwrap();
    let (clock, texts) = open(&config, TODAY, None);
    assert!(texts.len() == 1 && texts[0].contains("clock: the last known time is forgotten"), "{texts:?}");
    clock.save().unwrap();
    assert_eq!(open(&config, TODAY, None).1, Vec::<String>::new());
}

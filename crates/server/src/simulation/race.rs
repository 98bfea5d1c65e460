//! The time of the `250`: a slow disk against slow next hops, in each mode of `listen.acknowledge`.

use super::book::Answer;
use super::host::{Fault, Mood, Point};
use super::run;
use super::scene::Scene;
use crate::config::Acknowledge;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);
/// When the message comes.
const SENT: Duration = SECOND;
/// Time of next hops for each reply: longer than a client takes to read one.
const LATENCY: Duration = Duration::from_millis(20);
/// How long a slow disk takes to write, and how long `interactive` waits for next hops.
const DISK: Duration = Duration::from_secs(10);
const PATIENCE: Duration = Duration::from_secs(5);

/// The event that the client waited for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Heard {
    /// Neither the disk nor the end of patience.
    AtOnce,
    /// The end of patience.
    AfterPatience,
    /// The disk.
    AfterDisk,
    /// The end of patience, and then the disk.
    AfterBoth,
}

/// Disk and next hops of a run.
#[derive(Clone, Copy, Debug)]
struct Place {
    is_disk_slow: bool,
    /// Next hops that do not answer the end of a message for two minutes; the others do so at once.
    late: usize,
    prompt: usize,
}

/// Returns when the client heard of a message to all next hops, and how many of these had it by then.
#[track_caller]
fn heard(how: Acknowledge, place: Place) -> (Heard, usize) {
    let plan = move || {
        let count = place.late + place.prompt;
        let mut scene = Scene::new(count + 1, LATENCY);
        for host in scene.hosts.iter_mut().take(place.late) {
            host.days = vec![(10 * MINUTE, vec![Mood::Faulty(Point::Dot, Fault::Late, 1)])];
        }
        scene.config.listen[0].acknowledge = how;
        scene.config.delivery.interactive_time = PATIENCE;
        scene.postmaster_at(count);
        let recipients = (0..count).map(|host| scene.at(&format!("r0.{host}"), host)).collect();
        scene.send(String::new(), recipients, SENT);
        let (mut plan, book) = scene.plan(MINUTE, 60 * MINUTE);
        plan.flush = Some(if place.is_disk_slow { DISK } else { Duration::from_millis(1) });
        (plan, book)
    };
    let (book, wrong) = run::run_planned(1, plan, None);
    assert!(wrong.is_empty(), "{how:?} {place:?}: {wrong:#?}");
    let facts = book.facts();
    let [sent] = facts.sent.as_slice() else { panic!("{:?}", facts.sent) };
    let Answer::Accepted(at) = sent.answer else { panic!("{how:?} {place:?}: {sent:?}") };
    // The dialog itself takes less than this.
    let after = |least: Duration| (least..least + 2 * SECOND).contains(&(at - SENT));
    let heard = match () {
        () if after(Duration::ZERO) => Heard::AtOnce,
        () if after(PATIENCE) => Heard::AfterPatience,
        () if after(DISK) => Heard::AfterDisk,
        () if after(PATIENCE + DISK) => Heard::AfterBoth,
        () => panic!("{how:?} {place:?}: {:?} after it was sent", at - SENT),
    };
    let had = facts.taken.iter().filter(|taken| taken.acked.is_some_and(|acked| acked <= at));
    (heard, had.count())
}

/// One of the places tells each mode from both others.
#[track_caller]
fn check(place: Place, expected: [(Acknowledge, Heard, usize); 3]) {
    for (how, expected, had) in expected {
        assert_eq!(heard(how, place), (expected, had), "{how:?} {place:?}");
    }
}

#[test]
fn race_does_not_wait_for_the_disk_when_all_next_hops_have_it() {
    check(
        Place { is_disk_slow: true, late: 0, prompt: 2 },
        [
            (Acknowledge::Race, Heard::AtOnce, 2),
            (Acknowledge::Durable, Heard::AfterDisk, 0),
            (Acknowledge::Interactive, Heard::AtOnce, 2),
        ],
    );
}

#[test]
fn race_waits_for_the_disk_while_one_next_hop_does_not_have_it() {
    check(
        Place { is_disk_slow: true, late: 1, prompt: 1 },
        [
            (Acknowledge::Race, Heard::AfterDisk, 1),
            (Acknowledge::Durable, Heard::AfterDisk, 0),
            (Acknowledge::Interactive, Heard::AfterBoth, 1),
        ],
    );
}

#[test]
fn race_does_not_wait_for_next_hops_when_it_is_on_the_disk() {
    check(
        Place { is_disk_slow: false, late: 1, prompt: 0 },
        [
            (Acknowledge::Race, Heard::AtOnce, 0),
            (Acknowledge::Durable, Heard::AtOnce, 0),
            (Acknowledge::Interactive, Heard::AfterPatience, 0),
        ],
    );
}

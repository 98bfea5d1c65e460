//! Lists and single messages at one site, from outside: how long mail may have to wait.

use std::time::Duration;

use crate::rig::{Host, Manner, Rig, START};
use mail::{Node, QueueId};
use schedule::{AddResult, Class, Job, Positions, Scheduler, Settings};

const MS: Duration = Duration::from_millis(1);
const SECOND: Duration = Duration::from_secs(1);

fn rig() -> Rig {
    let manner = Manner { service: 100 * MS, ..Manner::default() };
    let mut rig = Rig::new(Settings::default(), manner, vec![Host::Alive], 7);
    rig.limits[0].connections = 3;
    rig
}

/// Adds single messages during other work, and returns the longest wait of one.
fn longest_wait(rig: &mut Rig, class: Class) -> Duration {
    let mut added = Vec::new();
    rig.class = class;
    for _ in 0..40 {
        added.push((rig.add(0, 1, false), rig.now));
        rig.run(270 * MS);
    }
    rig.run(SECOND);
    added.iter().map(|(message, at)| *rig.delivered.get(&(*message, 0)).expect("delivered") - *at).max().unwrap()
}

#[test]
fn one_message_behind_a_long_list_goes_at_once() {
    let mut rig = rig();
    rig.class = Class::Normal;
    rig.add(0, 30_000, false);
    rig.run(2 * SECOND);
    assert!(rig.delivered.len() > 1_000, "the list goes on: {}", rig.delivered.len());
    let wait = longest_wait(&mut rig, Class::Normal);
    assert!(wait <= 210 * MS, "its own transaction, and one before it: {wait:?}");
    assert!(rig.delivered.len() > 15_000, "and still goes on: {}", rig.delivered.len());
    rig.run(60 * SECOND);
    assert_eq!(rig.waiting(), 0);
}

/// A list for a site with five recipients per transaction, over connections that pipeline four transactions. Returns
/// how far it got in two seconds, and the longest wait of a single message behind it.
fn behind_a_list_in_small_parts(isolate_lists: bool) -> (usize, Duration) {
    let manner = Manner { service: 100 * MS, ahead: 4, ..Manner::default() };
    let settings = Settings { isolate_lists, ..Settings::default() };
    let mut rig = Rig::new(settings, manner, vec![Host::Alive], 7);
    (rig.limits[0].connections, rig.limits[0].recipients_per_transaction) = (3, 5);
    rig.add(0, 3_000, false);
    rig.run(2 * SECOND);
    (rig.delivered.len(), longest_wait(&mut rig, Class::Normal))
}

#[test]
fn one_message_waits_for_one_transaction_of_a_list_however_small_these_are() {
    let (delivered, wait) = behind_a_list_in_small_parts(true);
    assert!(wait <= 210 * MS, "its own transaction, and one before it: {wait:?}");
    assert!(delivered >= 3 * 5 * 15, "and the list goes on: {delivered}");
    let (_, wait) = behind_a_list_in_small_parts(false);
    assert!(wait > 310 * MS, "not noticed: {wait:?}");
}

#[test]
fn messages_with_few_recipients_follow_each_other_at_once() {
    let manner = Manner { service: 100 * MS, ahead: 4, ..Manner::default() };
    let mut rig = Rig::new(Settings::default(), manner, vec![Host::Alive], 7);
    (rig.limits[0].connections, rig.limits[0].recipients_per_transaction) = (1, 2);
    // Four transactions each, as a list with four times as many recipients would have.
    (0..2).for_each(|_| {
        rig.add(0, 8, false);
    });
    // It is connected, and nothing is answered yet.
    rig.run(90 * MS);
    assert_eq!(rig.scheduler.site_views(rig.now).map(|site| site.in_flight).sum::<usize>(), 4);
    assert_eq!(rig.delivered.len(), 0);
}

#[test]
fn one_message_among_many_lists_and_much_bulk_goes_at_once() {
    let mut rig = rig();
    for _ in 0..40 {
        rig.class = Class::Normal;
        rig.add(0, 2_000, false);
        rig.class = Class::Bulk;
        (0..100).for_each(|_| {
            rig.add(0, 1, false);
        });
    }
    rig.run(2 * SECOND);
    for class in [Class::Urgent, Class::Normal] {
        let wait = longest_wait(&mut rig, class);
        assert!(wait <= 310 * MS, "{class:?}: {wait:?}");
    }
}

#[test]
fn a_flood_of_fresh_mail_does_not_keep_out_what_waits_in_the_spool() {
    let mut rig = rig();
    rig.hosts[0] = Host::Defers;
    for _ in 0..100 {
        rig.add(0, 1, false);
    }
    rig.run(20 * SECOND);
    let old: usize = rig.lists[0].len();
    assert_eq!(old, 100);
    rig.hosts[0] = Host::Alive;
    // More than three connections can carry, until the old mail had its turn.
    let first = rig.lists[0].last().unwrap().message;
    for _ in 0..500 {
        (0..35).for_each(|_| {
            rig.add(0, 1, false);
        });
        rig.run(SECOND);
    }
    let left = rig.lists[0].iter().filter(|entry| entry.message <= first).count();
    assert_eq!(left, 0, "of {old}");
    let view = rig.scheduler.destination_view(&Rig::name(0)).unwrap();
    assert!(view.ready <= 2 * 1_024 && view.more, "{view:?}");
}

#[test]
fn bulk_leaves_memory_for_what_is_more_urgent() {
    let mut rig = rig();
    rig.class = Class::Bulk;
    (0..5_000).for_each(|_| {
        rig.add(0, 1, false);
    });
    rig.run(5 * SECOND);
    assert!(rig.waiting() > 4_000);
    for class in [Class::Normal, Class::Urgent] {
        let wait = longest_wait(&mut rig, class);
        assert!(wait <= 210 * MS, "{class:?}: {wait:?}");
    }
    rig.run(600 * SECOND);
    assert_eq!(rig.waiting(), 0);
}

#[test]
fn each_class_has_its_share_of_the_memory_for_fresh_mail() {
    let mut scheduler = Scheduler::new(Settings::default(), 1);
    let mut number = 0;
    let mut ready = |class: Class| {
        let added = (0..2_000).map(|_| {
            number += 1;
            let message = QueueId::new(1_800_000_000_000_000 + number, Node::default()).unwrap();
            scheduler.add(b"a", Job { message, recipients: Positions::One(0), probe: false }, class, START)
        });
        added.filter(|added| *added == AddResult::Ready).count()
    };
    assert_eq!([Class::Bulk, Class::Normal, Class::Urgent].map(&mut ready), [512, 384, 128]);
}

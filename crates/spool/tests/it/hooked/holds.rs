//! Why recipients are held: the reason is as durable as the state, and goes with it.

use super::{RECIPIENTS, append, body, change, done, id, open, small, work};
use spool::disk::sim::SimDisk;
use spool::{Hold, HoldKind, NewBody, NewMessage, Spool, State, Status, Store};

fn because(text: &str) -> Hold {
    Hold::new(HoldKind::Operator, "ann", text).until(1_900_000_000)
}

fn give_held(spool: &Spool, number: u64, hold: Option<&Hold>) {
    let body = NewBody::whole(body(number, 300), 0);
    let state = State { status: Status::Held, ..State::default() };
    let message = NewMessage { state, hold, ..NewMessage::new(id(number), b"head", &RECIPIENTS, body) };
    drop(spool.append(message).expect("room"));
}

#[test]
fn a_reason_lasts_until_the_release() {
    let disk = SimDisk::new(1);
    let (spool, mut stepper, _) = open(disk.clone(), &small(20));
    for number in [1, 2] {
        drop(append(&spool, number, 300).expect("room"));
    }
    let rule = Hold::new(HoldKind::Rule, "access", "a virus");
    give_held(&spool, 3, Some(&rule));
    give_held(&spool, 4, None);
    work(&disk, &mut stepper);
    drop(spool.record_hold(&[change(1, 0, Status::Held), change(2, 1, Status::Held)], &because("one")).expect("taken"));
    // A change that leaves a recipient held leaves the reason, and a new reason takes its place.
    drop(spool.record(&[change(1, 0, Status::Held)]).expect("taken"));
    drop(spool.record_hold(&[change(2, 1, Status::Held)], &because("two")).expect("taken"));
    drop(spool.record(&[change(3, 1, Status::Waiting)]).expect("taken"));
    work(&disk, &mut stepper);
    let expected = [
        (1, [Some(because("one")), None]),
        (2, [None, Some(because("two"))]),
        (3, [Some(rule), None]),
        (4, [None, None]),
    ];
    let check = |spool: &Spool, what: &str| {
        for (number, holds) in &expected {
            assert_eq!([0, 1].map(|at| spool.hold(id(*number), at)), *holds, "{what}: message {number}");
        }
        let mut ended = spool.ended_holds(1_900_000_000, 9);
        ended.sort_unstable();
        assert_eq!(ended, [(id(1), 0), (id(2), 1)], "{what}");
        assert_eq!((spool.ended_holds(1_900_000_000, 1).len(), spool.ended_holds(1_899_999_999, 9).len()), (1, 0));
    };
    check(&spool, "recorded");
    drop((spool, stepper));
    let disk = disk.kill();
    let (spool, mut stepper, recovery) = open(disk.clone(), &small(20));
    assert!(recovery.scanned > 0);
    check(&spool, "after a crash, from the batches");
    // Recovery has left footers to be written.
    work(&disk, &mut stepper);
    drop((spool, stepper));
    let (spool, _stepper, recovery) = open(disk.kill(), &small(20));
    assert_eq!(recovery.scanned, 0);
    check(&spool, "from a footer");
    drop(spool.record(&[change(1, 0, Status::Waiting)]).expect("taken"));
    assert_eq!(spool.hold(id(1), 0), None);
    assert_eq!(spool.ended_holds(u32::MAX, 9), [(id(2), 1)]);
    drop(spool.record(&[change(1, 0, Status::Held)]).expect("taken"));
    assert_eq!(spool.hold(id(1), 0), None, "a released reason does not come back");
    drop(spool.record(&done(2)).expect("taken"));
    assert_eq!(spool.hold(id(2), 1), None);
}

/// Two callers that end one hold: the first does, whatever the second wants.
#[test]
fn a_hold_is_ended_by_one_caller() {
    let disk = SimDisk::new(1);
    let (spool, mut stepper, _) = open(disk.clone(), &small(20));
    let screen = Hold::new(HoldKind::Screen, "clamav", "");
    give_held(&spool, 1, Some(&screen));
    work(&disk, &mut stepper);
    let claim = Hold::new(HoldKind::Replacement, "clamav", "");
    let (_, held) = spool.record_from(HoldKind::Screen, &[change(1, 1, Status::Held)], Some(&claim)).expect("taken");
    assert_eq!(held, [(id(1), 1)]);
    let both = [change(1, 0, Status::Waiting), change(1, 1, Status::Waiting), change(2, 0, Status::Waiting)];
    let (_, held) = spool.record_from(HoldKind::Screen, &both, None).expect("taken");
    assert_eq!(held, [(id(1), 0)], "one is claimed, and one message is not there");
    let states = |spool: &Spool| spool.states(id(1)).iter().map(|(one, _)| one.state.status).collect::<Vec<_>>();
    work(&disk, &mut stepper);
    for spool in [spool, open(disk.kill(), &small(20)).0] {
        assert_eq!(states(&spool), [Status::Waiting, Status::Held]);
        assert_eq!([0, 1].map(|at| spool.hold(id(1), at)), [None, Some(claim.clone())]);
    }
}

#[test]
fn reasons_are_carried_over_when_segments_are_emptied_and_used_again() {
    let config = small(12);
    let disk = SimDisk::new(1);
    let (spool, mut stepper, _) = open(disk.clone(), &config);
    for number in [1, 2] {
        drop(append(&spool, number, 300).expect("room"));
    }
    work(&disk, &mut stepper);
    for number in 1_000..1_200 {
        drop(append(&spool, number, 6_000).expect("room"));
        work(&disk, &mut stepper);
        if number == 1_100 {
            // In a segment of its own, which is used again while the message stays where it was moved.
            drop(spool.record_hold(&[change(1, 0, Status::Held)], &because("moved")).expect("taken"));
        }
        drop(spool.record(&done(number)).expect("taken"));
    }
    give_held(&spool, 3, Some(&because("stored")));
    for number in 2_000..2_200 {
        drop(append(&spool, number, 6_000).expect("room"));
        work(&disk, &mut stepper);
        drop(spool.record(&done(number)).expect("taken"));
    }
    work(&disk, &mut stepper);
    assert!(spool.statistics().relocated >= 3, "{:?}", spool.statistics());
    drop((spool, stepper));
    let (spool, _stepper, recovery) = open(disk.kill(), &config);
    assert_eq!((recovery.damage.len(), recovery.messages), (0, 3));
    assert_eq!((spool.hold(id(1), 0), spool.hold(id(1), 1)), (Some(because("moved")), None));
    assert_eq!([0, 1].map(|at| spool.hold(id(3), at)), [Some(because("stored")), Some(because("stored"))]);
}

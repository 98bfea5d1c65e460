//! Recorded states: the time when they count as durable, the effect of states that cannot be stored on the others, and
//! the states that are known without reading from the disk.

use super::disk::{Call, HookedDisk};
use super::{append, append_chunks, body, change, done, give, id, open, small, work};
use bytes::Bytes;
use spool::disk::sim::SimDisk;
use spool::{Change, NewBody, State, Status, Store};
use std::sync::{Arc, Mutex};
use std::time::Duration;

#[test]
fn a_repeated_change_is_durable_no_sooner_than_the_first() {
    let disk = SimDisk::new(1);
    let hooked = HookedDisk::new(&disk);
    let (spool, mut stepper, _) = open(hooked.clone(), &small(20));
    let spool = Arc::new(spool);
    drop(append(&spool, 1, 100).expect("room"));
    stepper.commit(0);
    let first = spool.record(&done(1)).expect("recorded");
    disk.advance(60_000);
    // The books know the end already, the disk does not: the queue is empty and the batch is being written.
    let (again, seen) = (Arc::downgrade(&spool), Arc::new(Mutex::new(None)));
    let told = Arc::clone(&seen);
    hooked.set(move |call, _| {
        if call == Call::Write
            && let Some(spool) = again.upgrade()
        {
            *told.lock().expect("sound") = Some(spool.record(&done(1)).expect("recorded").poll_now());
        }
        Ok(())
    });
    stepper.commit(0);
    hooked.clear();
    assert_eq!(*seen.lock().expect("sound"), Some(None), "nothing was durable at that moment");
    assert_eq!(first.poll_now(), Some(Ok(())));
}

#[test]
fn a_destination_too_long_to_store_is_ignored_and_harms_no_other_change() {
    let disk = SimDisk::new(1);
    let mut config = small(20);
    config.segment_bytes = 4 << 20;
    config.size_max = 20 * (4 << 20);
    config.batch_bytes_max = 1 << 20;
    let (spool, mut stepper, _) = open(disk.clone(), &config);
    for number in 1..4 {
        drop(append(&spool, number, 100).expect("room"));
    }
    stepper.commit(0);
    // One byte more than the length field of an entry can say.
    let mut long = change(1, 0, Status::Held);
    long.destination = Some(vec![b'x'; 65_535]);
    let commit = spool
        .record(&[long, change(2, 0, Status::Done), change(3, 0, Status::Held)])
        .expect("a name is no reason to refuse");
    work(&disk, &mut stepper);
    assert_eq!(commit.poll_now(), Some(Ok(())));
    drop((spool, stepper));
    let (spool, _stepper, _) = open(disk.crash(1), &config);
    let recipient = spool.envelope(id(1)).expect("there").recipients.remove(0);
    assert_eq!((recipient.state.status, &recipient.destination[..]), (Status::Held, &b"a.example"[..]));
    assert_eq!(spool.envelope(id(2)).expect("there").recipients.len(), 1, "a durable end came undone");
    assert_eq!(spool.envelope(id(3)).expect("there").recipients[0].state.status, Status::Held);
}

#[test]
fn a_state_larger_than_a_batch_takes_does_not_hold_up_those_behind_it() {
    let disk = SimDisk::new(1);
    let (spool, mut stepper, _) = open(disk.clone(), &small(20));
    for number in 1..3 {
        drop(append(&spool, number, 100).expect("room"));
    }
    stepper.commit(0);
    let mut large = change(1, 0, Status::Waiting);
    large.destination = Some(vec![b'x'; 8_000]);
    drop(spool.record(&[large]).expect("recorded"));
    let behind = spool.record(&[change(2, 0, Status::Done)]).expect("recorded");
    for _ in 0..5 {
        work(&disk, &mut stepper);
    }
    assert_eq!(behind.poll_now(), Some(Ok(())));
}

#[test]
fn attempts_and_the_warning_share_a_byte() {
    let mut state = State { due: 9, ..State::default() };
    assert_eq!((state.tries(), state.is_warned()), (0, false));
    for tries in 1..=200_u8 {
        state = state.tried();
        assert_eq!((state.tries(), state.is_warned(), state.due), (tries.min(State::TRIES_MAX), false, 9));
    }
    let warned = state.warned().tried();
    assert_eq!((warned.tries(), warned.is_warned()), (State::TRIES_MAX, true));
    let early = State::default().warned().tried();
    assert_eq!((early.tries(), early.is_warned(), early.warned()), (1, true, early));
    let kinds = || (0..=State::CLASS_MAX).flat_map(|class| [false, true].map(|is_marked| (class, is_marked)));
    for (before, (class, is_marked)) in kinds().flat_map(|before| kinds().map(move |kind| (before, kind))) {
        let state = State::default().of_class(before.0, before.1).tried().warned().of_class(class, is_marked);
        let all = |state: State| (state.class(), state.is_marked(), state.tries(), state.is_warned());
        assert_eq!(all(state), (class, is_marked, 1, true));
        let most = if class == 0 { State::TRIES_MAX } else { State::TRIES_MAX_CLASSED };
        let worn = (0..100).fold(state, |state, _| state.tried());
        assert_eq!(all(worn), (class, is_marked, most, true));
        assert_eq!(worn.of_class(1, true).tries(), State::TRIES_MAX_CLASSED);
    }
    // As it is on the disk: 0 ordinary, 1 and 2 with a mark of their own, 3 ordinary with the mark.
    let bytes = kinds().map(|(class, is_marked)| State::default().of_class(class, is_marked).attempts);
    assert_eq!(bytes.collect::<Vec<_>>(), [0, 0x60, 0x20, 0x30, 0x40, 0x50]);
    assert_eq!(State::default().of_class(State::CLASS_MAX + 1, false), State::default());
}

#[test]
fn a_recent_message_is_given_without_the_disk_and_with_its_present_states() {
    let disk = SimDisk::new(1);
    let hooked = HookedDisk::new(&disk);
    let (spool, mut stepper, _) = open(hooked.clone(), &small(20));
    drop(append(&spool, 1, 100).expect("room"));
    assert_eq!(spool.recent(id(1), 0..2), None, "not committed yet");
    let text = body(2, 5_000);
    append_chunks(&spool, 2, &text, 2_000);
    drop(give(&spool, 2, NewBody::Chunks { header: Bytes::new(), count: 3, bytes: 5_000 }, false).expect("room"));
    while stepper.commit(0) {}
    hooked.set(|call, _| {
        assert_ne!(call, Call::Read, "nothing is to be read");
        Ok(())
    });
    for (number, bytes, pieces) in [(1, 100, 1), (2, 5_000, 3)] {
        let recent = spool.recent(id(number), 0..2).expect("it came just now");
        assert_eq!((recent.envelope.recipients.len(), recent.envelope.body_bytes), (2, bytes as u64));
        assert_eq!((recent.body.len(), recent.body.concat()), (pieces, body(number, bytes)));
        let some = spool.recent(id(number), [1, 7, u32::MAX]).expect("still there");
        assert_eq!((some.envelope.head, some.recipients_left), (recent.envelope.head, 2));
        assert_eq!(some.envelope.recipients, recent.envelope.recipients[1..]);
    }
    drop(spool.record(&[change(1, 0, Status::Done), change(1, 1, Status::Held)]).expect("recorded"));
    let recent = spool.recent(id(1), 0..2).expect("still there");
    let [left] = recent.envelope.recipients.as_slice() else { panic!("{recent:?}") };
    assert_eq!(recent.recipients_left, 1);
    assert_eq!((left.position, left.state.status), (1, Status::Held));
    let states = spool.states(id(1));
    let [(entry, destination)] = states.as_slice() else { panic!("{states:?}") };
    assert_eq!((entry.recipient, entry.state.status, &destination[..]), (1, Status::Held, &b"b.example"[..]));
    drop(spool.record(&[change(1, 1, Status::Done)]).expect("recorded"));
    assert_eq!((spool.recent(id(1), 0..2), spool.states(id(1))), (None, Vec::new()), "finished");
    // The cache has 16 KiB: others push it out, and nothing is read for it.
    for number in 3..6 {
        drop(append(&spool, number, 5_000).expect("room"));
        stepper.commit(0);
    }
    assert_eq!(spool.recent(id(2), 0..2), None);
    assert_eq!(spool.states(id(2)).len(), 2, "it is still queued");
    hooked.clear();
    assert_eq!(spool.body(id(2)).expect("there").concat(), text);
}

#[test]
fn held_recipients_are_counted() {
    let disk = SimDisk::new(1);
    let (spool, mut stepper, _) = open(disk.clone(), &small(20));
    for number in 1..4 {
        drop(append(&spool, number, 100).expect("room"));
    }
    stepper.commit(0);
    let mut held = Vec::new();
    for (number, recipient, status) in [
        (1, 0, Status::Held),
        (1, 1, Status::Held),
        (2, 0, Status::Held),
        (1, 0, Status::Held),
        (2, 0, Status::Waiting),
        (1, 0, Status::Done),
        (3, 1, Status::Held),
        (1, 1, Status::Done),
    ] {
        drop(spool.record(&[change(number, recipient, status)]).expect("recorded"));
        held.push(spool.statistics().held);
    }
    assert_eq!(held, [1, 2, 3, 3, 2, 1, 2, 1]);
    work(&disk, &mut stepper);
    drop((spool, stepper));
    let (spool, _stepper, _) = open(disk.crash(1), &small(20));
    assert_eq!((spool.statistics().held, spool.statistics().recipients), (1, 4), "known again after a crash");
}

#[test]
fn what_is_owed_outlives_a_crash_and_is_not_finished() {
    let disk = SimDisk::new(1);
    let (spool, mut stepper, _) = open(disk.clone(), &small(20));
    drop(append(&spool, 1, 100).expect("room"));
    stepper.commit(0);
    let owing = State { attempts: 7, ..State::default() }.of_class(2, true).warned().owing(3, Duration::from_secs(90));
    assert_eq!((owing.owed(), owing.class(), owing.is_marked(), owing.is_warned()), (Some(3), 2, true, true));
    assert_eq!((owing.due, State::default().owed()), (90, None));
    let most = State::default().owing(u8::MAX, Duration::ZERO);
    assert_eq!((most.owed(), most.class(), most.is_warned()), (Some(State::OWED_MAX), 0, false));
    let owed = Change { state: owing, ..change(1, 0, Status::Owed) };
    drop(spool.record(&[owed, change(1, 1, Status::Done)]).expect("recorded"));
    work(&disk, &mut stepper);
    drop((spool, stepper));
    let (spool, _stepper, _) = open(disk.crash(1), &small(20));
    let left = spool.envelope(id(1)).expect("there").recipients;
    assert_eq!(left.iter().map(|one| (one.position, one.state)).collect::<Vec<_>>(), [(0, owing)]);
    assert_eq!(spool.by_destination(&left[0].destination, None, 9).len(), 1, "it is found in its list");
    assert_eq!(spool.statistics().recipients, 1);
}

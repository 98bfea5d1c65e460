//! A storage that takes no more segments, though it does not say so before: the reserve lasts, and the spool goes on.

use super::disk::{Call, HookedDisk};
use super::{append, body, change, done, give, open, small};
use spool::disk::sim::SimDisk;
use spool::{Commit, Config, Error, NewBody, Pressure, Spool, Status, Stepper, Store};
use std::io;
use std::sync::mpsc::channel;
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// How long growth rests after it was refused, in microseconds.
const REST_US: u64 = 10_000_000;

fn config() -> Config {
    let mut config = small(40);
    config.state_delay_ms = 0;
    config
}

/// Gives the spool mail until it takes no more, with a turn of the janitor after each message or only where the
/// committer waits for it. Returns the number of messages.
fn fill(disk: &SimDisk, spool: &Spool, stepper: &mut Stepper, tidy: bool) -> u64 {
    for number in 0.. {
        match append(spool, number, 6000) {
            Ok(commit) => {
                stepper.commit(0);
                disk.advance(1000);
                assert_eq!(commit.poll_now(), Some(Ok(())), "message {number} was admitted and must be stored");
                if tidy {
                    stepper.tidy(0);
                }
            }
            Err(Error::Full) => return number,
            Err(error) => panic!("message {number}: {error}"),
        }
    }
    unreachable!("the pool is bounded");
}

fn refuse_growth(hooked: &HookedDisk, segments: usize) {
    let refused = format!("/00/new-{segments:06}");
    hooked.set(move |call, path| match call {
        Call::Create if path.to_string_lossy().ends_with(&refused) => Err(io::ErrorKind::StorageFull.into()),
        _ => Ok(()),
    });
}

/// A full spool, and the number of its messages.
struct Full {
    disk: SimDisk,
    hooked: HookedDisk,
    spool: Spool,
    stepper: Stepper,
    stored: u64,
}

/// A full spool of so many segments, some of them free.
fn with_free(segments: usize, left: u64) -> Full {
    let disk = SimDisk::new(1);
    let hooked = HookedDisk::new(&disk);
    refuse_growth(&hooked, segments);
    let (spool, mut stepper, _) = open(hooked.clone(), &config());
    let mut stored = fill(&disk, &spool, &mut stepper, true);
    assert!(spool.statistics().segments_free >= 2, "{:?}", spool.statistics());
    while spool.statistics().segments_free > left {
        let commit = give(&spool, stored, NewBody::whole(body(stored, 6000), 0), true).expect("admitted");
        stepper.commit(0);
        assert_eq!(commit.poll_now(), Some(Ok(())));
        stored += 1;
    }
    Full { disk, hooked, spool, stepper, stored }
}

/// Does all that waits.
fn settle(disk: &SimDisk, stepper: &mut Stepper) {
    for _ in 0..30 {
        disk.advance(60_000);
        stepper.tidy(0);
        stepper.commit(0);
    }
}

#[test]
fn the_reserve_is_touched_only_after_growth_is_refused() {
    let disk = SimDisk::new(1);
    let hooked = HookedDisk::new(&disk);
    refuse_growth(&hooked, 12);
    let (spool, mut stepper, _) = open(hooked, &config());
    fill(&disk, &spool, &mut stepper, false);
    // One takes the message that was admitted before.
    assert!(spool.statistics().segments_free >= 1, "{:?}", spool.statistics());
}

#[test]
fn no_mail_is_admitted_while_refused_growth_is_tried_again() {
    let Full { disk, hooked, spool, mut stepper, stored } = with_free(12, 2);
    let spool = Arc::new(spool);
    let tried = Arc::<Mutex<Vec<bool>>>::default();
    let (sender, seen) = (Arc::downgrade(&spool), Arc::clone(&tried));
    hooked.set(move |call, _| {
        if call != Call::Create {
            return Ok(());
        }
        if let Some(spool) = sender.upgrade() {
            seen.lock().unwrap().push(matches!(append(&spool, stored, 6000), Err(Error::Full)));
        }
        Err(io::ErrorKind::StorageFull.into())
    });
    disk.advance(REST_US);
    settle(&disk, &mut stepper);
    assert_eq!(*tried.lock().unwrap(), [true]);
    // It takes mail again as soon as it could grow.
    hooked.clear();
    disk.advance(REST_US);
    settle(&disk, &mut stepper);
    assert_eq!(spool.pressure(), Pressure::None, "{:?}", spool.statistics());
}

/// Ends messages. The handles say when that is durable.
fn end(spool: &Spool, numbers: impl Iterator<Item = u64>) -> Vec<Commit> {
    numbers.map(|number| spool.record(&done(number)).expect("recorded")).collect()
}

#[test]
fn a_restart_with_one_free_segment_finishes_the_mail() {
    let Full { disk, spool, stepper, stored, .. } = with_free(12, 1);
    drop((spool, stepper));
    let disk = disk.crash(1);
    let hooked = HookedDisk::new(&disk);
    refuse_growth(&hooked, 12);
    let (spool, mut stepper, _) = open(hooked, &config());
    // Two of three end: what is left of their segments is worth moving, which takes a segment too.
    let mut ends = end(&spool, (0..stored).filter(|number| number % 3 > 0));
    settle(&disk, &mut stepper);
    assert_eq!(spool.statistics().messages, stored.div_ceil(3));
    ends.extend(end(&spool, (0..stored).step_by(3)));
    settle(&disk, &mut stepper);
    assert!(ends.iter().all(|commit| commit.poll_now() == Some(Ok(()))), "{:?}", spool.statistics());
    assert!(spool.statistics().segments_free >= 10, "{:?}", spool.statistics());
    let commit = append(&spool, stored, 6000).expect("room");
    stepper.commit(0);
    assert_eq!(commit.poll_now(), Some(Ok(())));
    drop((spool, stepper));
    let (spool, _, _) = open(disk.crash(2), &config());
    assert_eq!(spool.statistics().messages, 1, "none of the others is back");
}

/// The thread of the committer stops at the reserve for as long as the janitor makes a segment.
#[test]
fn a_storm_waits_for_growth_before_it_takes_a_reserved_segment() {
    let disk = SimDisk::new(1);
    let hooked = HookedDisk::new(&disk);
    let (spool, _) = Spool::open(config(), Arc::new(hooked.clone())).unwrap();
    let (go_on, wait) = channel::<()>();
    let wait = Mutex::new(wait);
    hooked.set(move |call, _| {
        if call == Call::Create {
            // Until the sender is gone.
            assert!(wait.lock().unwrap().recv().is_err());
        }
        Ok(())
    });
    let commits: Vec<Commit> = (0..60).map(|number| append(&spool, number, 6000).expect("admitted")).collect();
    // A committer that does not wait has taken all by then.
    let (_sender, never) = channel::<()>();
    for round in 0.. {
        assert!(never.recv_timeout(Duration::from_millis(10)).is_err());
        if round >= 20 && spool.statistics().segments_free <= 2 {
            break;
        }
        assert!(round < 6000, "{:?}", spool.statistics());
    }
    assert_eq!(spool.statistics().segments_free, 2);
    drop(go_on);
    assert!(commits.into_iter().all(|commit| commit.wait() == Ok(())));
}

/// Enough is free, so nothing tries to grow; callers are told to be slow for want of room only until growth rests no
/// more.
#[test]
fn refused_growth_is_forgotten_where_room_is_enough() {
    let Full { disk, hooked, spool, mut stepper, stored } = with_free(30, 2);
    for number in 0..stored {
        if spool.statistics().segments_free >= 5 {
            break;
        }
        drop(end(&spool, number..number + 1));
        settle(&disk, &mut stepper);
    }
    assert_eq!(spool.pressure(), Pressure::Slow, "{:?}", spool.statistics());
    hooked.clear();
    disk.advance(REST_US);
    stepper.tidy(0);
    assert_eq!(spool.pressure(), Pressure::None, "{:?}", spool.statistics());
    assert_eq!(spool.statistics().segments, 30);
}

/// A segment full of states is free again only when they are written again, and there is no cold segment to write to.
#[test]
fn with_two_free_segments_states_are_recorded_for_ever() {
    let Full { disk, spool, mut stepper, stored, .. } = with_free(12, 2);
    for round in 0..2000 {
        let mut next = change(round % stored, 0, Status::Waiting);
        next.state.due = u32::try_from(round).unwrap();
        next.destination = Some(vec![b'd'; 200]);
        let commit = spool.record(&[next]).expect("recorded");
        // The states of a dead segment may stand before it.
        for _ in 0..8 {
            disk.advance(1000);
            stepper.commit(0);
            stepper.tidy(0);
        }
        assert_eq!(commit.poll_now(), Some(Ok(())), "round {round}: {:?}", spool.statistics());
    }
    drop((spool, stepper));
    let (spool, _, _) = open(disk.crash(1), &config());
    assert_eq!(spool.statistics().messages, stored);
    for number in 0..stored {
        let newest = (0..2000).rev().find(|round| round % stored == number).unwrap();
        let state = spool.envelope(super::id(number)).unwrap().recipients[0].state;
        assert_eq!(u64::from(state.due), newest, "message {number}");
    }
}

//! Threads that cannot go on: they sleep, the spool can be closed, and no caller waits for ever.

use super::disk::{Call, HookedDisk};
use super::{append, body, change, give, id, open, small};
use spool::disk::sim::SimDisk;
use spool::{Config, Error, NewBody, Spool, Status, Stepper, Store};
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

/// Does it on a thread of its own, so that what never ends fails the test and does not hang it.
fn ends<T: Send + 'static>(work: impl FnOnce() -> T + Send + 'static) -> T {
    let (sender, receiver) = channel();
    drop(std::thread::spawn(move || drop(sender.send(work()))));
    receiver.recv_timeout(Duration::from_secs(60)).expect("ends, without a panic")
}

/// Fills the pool to the last segment, on a disk that makes no more files; returns how many messages it took.
fn exhaust(disk: &SimDisk, hooked: &HookedDisk, spool: &Spool, stepper: &mut Stepper) -> u64 {
    let mut number = 0;
    while append(spool, number, 6000).is_ok() {
        stepper.commit(0);
        disk.advance(1000);
        stepper.tidy(0);
        number += 1;
    }
    hooked.fail(Call::Create, "/");
    loop {
        let text = NewBody::whole(body(number, 6000), 0);
        let commit = give(spool, number, text, true).expect("admitted");
        stepper.commit(0);
        match commit.poll_now() {
            Some(Ok(())) => number += 1,
            refused => {
                assert_eq!(refused, Some(Err(Error::Failed)), "the reserve is gone as well");
                return number;
            }
        }
    }
}

fn config() -> Config {
    let mut config = small(12);
    config.state_delay_ms = 0;
    config
}

#[test]
fn a_spool_that_takes_no_more_writes_can_be_closed() {
    ends(|| {
        let disk = SimDisk::new(1);
        let hooked = HookedDisk::new(&disk);
        let mut config = small(20);
        // The good batch is not attested before the failures come: the disk's clock hardly moves.
        config.state_delay_ms = 60_000;
        let (spool, _) = Spool::open(config, Arc::new(hooked.clone())).expect("opens");
        append(&spool, 1, 100).expect("room").wait().expect("stored");
        hooked.fail(Call::Sync, "/00/");
        // The janitor asks for a batch as well after the first failure: this may take one message or two.
        for number in 2..4 {
            let answer = append(&spool, number, 100).and_then(|commit| commit.wait());
            assert!(matches!(answer, Err(Error::Failed | Error::Poisoned)), "{answer:?}");
        }
        assert!(matches!(append(&spool, 4, 100), Err(Error::Poisoned)));
        drop(spool);
    });
}

#[test]
fn an_exhausted_pool_leaves_nothing_to_do_but_wait() {
    let disk = SimDisk::new(1);
    let hooked = HookedDisk::new(&disk);
    let (spool, mut stepper, _) = open(hooked.clone(), &config());
    exhaust(&disk, &hooked, &spool, &mut stepper);
    disk.advance(1_000_000);
    assert!(!stepper.commit(0), "its thread would never sleep again");
}

#[test]
fn closing_answers_those_whose_states_found_no_room() {
    let disk = SimDisk::new(1);
    let hooked = HookedDisk::new(&disk);
    let (spool, mut stepper, _) = open(hooked.clone(), &config());
    let stored = exhaust(&disk, &hooked, &spool, &mut stepper);
    // Small states still find a place behind the last message, until that is used up too.
    let next = move |round: u64| {
        let mut next = change(round % stored, 0, Status::Waiting);
        next.state.due = round as u32;
        next.destination = Some(vec![b'd'; 200]);
        next
    };
    let stuck = (0..100).map(|round| spool.record(&[next(round)]).expect("recorded")).find(|commit| {
        disk.advance(1000);
        stepper.commit(0);
        commit.poll_now().is_none()
    });
    let stuck = stuck.expect("the pool was meant to be full");
    drop((spool, stepper));
    assert_eq!(stuck.poll_now(), Some(Err(Error::Failed)));
    // The same with threads, which have to notice it by themselves: a restart finds the pool as full as it was.
    let fate = ends(move || {
        let (spool, _) = Spool::open(config(), Arc::new(hooked)).expect("opens");
        assert!(spool.envelope(id(0)).is_ok());
        let commit = spool.record(&[next(1000)]).expect("recorded");
        drop(spool);
        commit.poll_now()
    });
    assert_eq!(fate, Some(Err(Error::Failed)));
}

//! A pool that runs out: mail is refused in time, outcomes are still recorded, and room comes back.

use super::{plan, small};
use mail::QueueId;
use spool::disk::Disk;
use spool::disk::sim::SimDisk;
use spool::{
    Change, Config, Error, Event, NewBody, NewMessage, NewRecipient, Pressure, Spool, State, Status, Stepper, Store,
};
use std::sync::Arc;

fn id(number: u64) -> QueueId {
    QueueId::from_u64(QueueId::MIN.to_u64() + 1 + number).expect("in range")
}

fn append(spool: &Spool, number: u64, bytes: usize, reserved: bool) -> Result<spool::Commit, Error> {
    let recipients = [NewRecipient { data: b"user@example", destination: b"example" }];
    let body = NewBody::whole(vec![number as u8; bytes], 0);
    spool.append(NewMessage { reserved, ..NewMessage::new(id(number), b"head", &recipients, body) })
}

fn done(number: u64) -> Change {
    let state = State { status: Status::Done, attempts: 1, due: 0 };
    Change { id: id(number), recipient: 0, state, destination: None }
}

fn open(disk: &SimDisk, config: &Config) -> (Spool, Stepper) {
    let handle: Arc<dyn Disk> = Arc::new(disk.clone());
    let (spool, stepper, _) = Spool::open_stepped(config.clone(), handle).expect("opens");
    (spool, stepper)
}

/// Writes everything that waits.
fn settle(disk: &SimDisk, stepper: &mut Stepper) {
    for _ in 0..30 {
        disk.advance(60_000);
        stepper.tidy(0);
        stepper.commit(0);
    }
}

/// Fills the pool; returns how many messages it took.
fn fill(disk: &SimDisk, spool: &Spool, stepper: &mut Stepper) -> u64 {
    let mut number = 0;
    loop {
        match append(spool, number, 6000, false) {
            Ok(commit) => {
                stepper.commit(0);
                disk.advance(1000);
                assert_eq!(commit.poll_now(), Some(Ok(())), "message {number} was admitted and must be stored");
                number += 1;
            }
            Err(Error::Full) => return number,
            Err(error) => panic!("message {number}: {error}"),
        }
        stepper.tidy(0);
        assert!(number < 10_000, "a pool of bounded size never filled up");
    }
}

#[test]
fn a_full_pool_refuses_mail_and_still_records_outcomes() {
    // Small and large: a tenth is kept from ordinary mail, and must not keep it out for ever.
    for segments in [20, 60] {
        full_and_empty_again(small(segments));
    }
}

fn full_and_empty_again(config: Config) {
    let disk = SimDisk::new(1);
    let (spool, mut stepper) = open(&disk, &config);
    assert_eq!(spool.pressure(), Pressure::None);
    let stored = fill(&disk, &spool, &mut stepper);
    assert_eq!(spool.pressure(), Pressure::Full);
    // Notices to senders still get in, and so do outcomes.
    let notice = append(&spool, 100_000, 500, true).expect("reserved room");
    for number in 0..stored {
        drop(spool.record(&[done(number)]).expect("recorded"));
    }
    settle(&disk, &mut stepper);
    assert_eq!(notice.poll_now(), Some(Ok(())));
    assert_eq!(spool.statistics().messages, 1);
    assert_eq!(spool.pressure(), Pressure::None, "{:?}", spool.statistics());
    // The whole room is there again, and everything survives a power cut.
    let again = fill(&disk, &spool, &mut stepper);
    assert!(again * 10 >= stored * 8, "{again} messages where {stored} fitted before");
    drop((spool, stepper));
    let (spool, _stepper) = open(&disk.crash(7), &config);
    assert_eq!(spool.statistics().messages, again + 1);
}

#[test]
fn restarting_a_full_spool_again_and_again_never_sticks() {
    let disk = SimDisk::new(2);
    let config = small(12);
    let (spool, mut stepper) = open(&disk, &config);
    let stored = fill(&disk, &spool, &mut stepper);
    drop((spool, stepper));
    let mut disk = disk;
    for round in 0..40 {
        disk = if round % 2 == 0 { disk.crash(round) } else { disk.kill() };
        let (spool, mut stepper) = open(&disk, &config);
        assert_eq!(spool.statistics().messages, stored, "round {round}");
        // One state each time: it needs a hot segment, and sooner or later another.
        let state = State { status: Status::Waiting, attempts: 1, due: round as u32 };
        let change = Change { id: id(round % stored), recipient: 0, state, destination: None };
        let commit = spool.record(&[change]).expect("recorded");
        settle(&disk, &mut stepper);
        assert_eq!(commit.poll_now(), Some(Ok(())), "round {round}: {:?}", spool.statistics());
    }
    let (spool, mut stepper) = open(&disk.kill(), &config);
    for number in 0..stored {
        drop(spool.record(&[done(number)]).expect("recorded"));
    }
    drop(spool);
    stepper.tidy(0);
}

#[test]
fn a_full_file_system_stops_growth_not_mail() {
    let disk = SimDisk::new(3);
    let mut config = small(64);
    config.free_min = 1 << 20;
    disk.set_free((1 << 20) + 9 * (64 << 10));
    let (spool, mut stepper) = open(&disk, &config);
    let stored = fill(&disk, &spool, &mut stepper);
    assert!(stored >= 28, "only {stored} messages fitted into nine segments");
    assert!(spool.statistics().segments <= 9, "{:?}", spool.statistics());
    // The file system itself refuses: said once, mail goes on.
    disk.set_free(0);
    for number in 0..stored {
        drop(spool.record(&[done(number)]).expect("recorded"));
    }
    settle(&disk, &mut stepper);
    let told: Vec<Event> = spool.take_events();
    assert!(told.len() < 5, "an operator reads this: {told:?}");
    assert!(append(&spool, 200_000, 1000, false).is_ok(), "{:?}", spool.statistics());
}

#[test]
fn a_message_that_cannot_fit_is_refused_with_its_size() {
    let disk = SimDisk::new(4);
    let (spool, _stepper) = open(&disk, &small(20));
    match append(&spool, 1, 60_000, false) {
        Err(Error::TooLarge { bytes, max }) => assert!(bytes > 60_000 && max < 60_000),
        other => panic!("{other:?}"),
    }
    assert!(matches!(spool.envelope(id(1)), Err(Error::Unknown(_))));
}

#[test]
fn two_failures_in_a_row_poison_and_a_restart_recovers() {
    use spool::disk::sim::Op;
    let disk = SimDisk::new(5);
    let config = small(20);
    let (spool, mut stepper) = open(&disk, &config);
    let good = append(&spool, 1, 100, false).expect("admitted");
    stepper.commit(0);
    assert_eq!(good.poll_now(), Some(Ok(())));
    disk.configure(|config| config.rates.sync = 1_000_000);
    disk.fail(Op::Sync, 0);
    let first = append(&spool, 2, 100, false).expect("admitted");
    stepper.commit(0);
    assert_eq!(first.poll_now(), Some(Err(Error::Failed)), "451, and the client comes again");
    let second = append(&spool, 3, 100, false).expect("one failure is not the end");
    stepper.commit(0);
    assert_eq!(second.poll_now(), Some(Err(Error::Failed)));
    assert!(matches!(append(&spool, 4, 100, false), Err(Error::Poisoned)));
    assert!(matches!(spool.record(&[done(1)]), Err(Error::Poisoned)));
    assert_eq!(spool.pressure(), Pressure::Poisoned);
    assert!(spool.body(id(1)).is_ok(), "what was accepted can still be read: {:?}", spool.body(id(1)));
    let told = spool.take_events();
    assert!(told.iter().any(|event| matches!(event, Event::ReadOnly { .. })), "{told:?}");
    drop((spool, stepper));
    let healed = disk.kill();
    healed.configure(|config| config.rates.sync = 0);
    let (spool, mut stepper) = open(&healed, &config);
    assert!(spool.body(id(1)).is_ok());
    let commit = append(&spool, 5, 100, false).expect("admitted");
    stepper.commit(0);
    assert_eq!(commit.poll_now(), Some(Ok(())));
}

#[test]
fn a_newer_format_and_a_second_process_are_refused() {
    use spool::OpenError;
    let disk = SimDisk::new(6);
    let config = plan().config;
    let (spool, _stepper) = open(&disk, &config);
    let handle: Arc<dyn Disk> = Arc::new(disk.clone());
    assert!(matches!(Spool::open_stepped(config.clone(), Arc::clone(&handle)), Err(OpenError::Locked { .. })));
    drop(spool);
    let path = config.path.join("SPOOL");
    let text = String::from_utf8(disk.contents(&path).expect("there")).expect("text");
    disk.set_contents(&path, text.replace("format 2", "format 7").as_bytes()).expect("written");
    match Spool::open_stepped(config, handle) {
        Err(OpenError::OtherFormat { found: 7, supported: 2, .. }) => {}
        other => panic!("{other:?}"),
    }
}

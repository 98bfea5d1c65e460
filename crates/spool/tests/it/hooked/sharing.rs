//! Messages that were read for one attempt and serve others: how often the disk is asked, and that no stale value is
//! used.

use super::disk::{Call, HookedDisk};
use super::{append, append_chunks, body, change, done, id, open, small, work};
use bytes::Bytes;
use spool::disk::sim::SimDisk;
use spool::{Change, Config, Error, NewBody, NewMessage, NewRecipient, Part, Spool, State, Status, Store};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// Recipients of the list: too many for its envelope to fit the first read.
const MANY: u32 = 500;

fn sharing(shared_bytes: usize) -> Config {
    let mut config = small(40);
    config.segment_bytes = 1 << 20;
    config.size_max = 40 << 20;
    config.cache_bytes = 0;
    config.shared_bytes = shared_bytes;
    config
}

/// Appends a message with a destination for each recipient, whose data say `what`.
fn list(spool: &Spool, number: u64, recipients: u32, what: &str) {
    list_with(spool, number, recipients, what, NewBody::whole(body(number, 3_000), 0));
}

fn list_with(spool: &Spool, number: u64, recipients: u32, what: &str, body: NewBody) {
    let names: Vec<(String, String)> =
        (0..recipients).map(|at| (format!("{what} {at}"), format!("d{at}.example"))).collect();
    let recipients: Vec<_> =
        names.iter().map(|(data, name)| NewRecipient { data: data.as_bytes(), destination: name.as_bytes() }).collect();
    let state = State::default();
    drop(spool.append(NewMessage { state, ..NewMessage::new(id(number), b"head", &recipients, body) }).expect("room"));
}

/// Whether a message is in memory for its first attempt, and how many octets are.
fn kept(waits: bool, body: &dyn Fn(&Spool) -> NewBody) -> (bool, u64) {
    let (spool, mut stepper, _) = open(SimDisk::new(1), &Config { cache_bytes: 1 << 20, ..sharing(0) });
    let message = NewMessage { waits, ..NewMessage::new(id(1), b"head", &super::RECIPIENTS, body(&spool)) };
    drop(spool.append(message).expect("room"));
    while stepper.commit(0) {}
    let is_there = spool.recent(id(1), [0, 1]).is_some();
    assert_eq!(spool.body(id(1)).expect("there").iter().map(Bytes::len).sum::<usize>(), 5_000);
    (is_there, spool.statistics().cache_bytes)
}

#[test]
fn only_a_message_whose_attempt_follows_is_kept_in_memory() {
    let whole = |_: &Spool| NewBody::whole(body(1, 5_000), 0);
    let chunked = |spool: &Spool| {
        append_chunks(spool, 1, &body(1, 5_000), 3_000);
        NewBody::Chunks { header: Bytes::new(), count: 2, bytes: 5_000 }
    };
    for body in [&whole as &dyn Fn(&Spool) -> NewBody, &chunked] {
        assert!(matches!(kept(false, body), (true, 5_000..)));
        assert_eq!(kept(true, body), (false, 0));
    }
}

/// Counts reads of segments.
fn counted(disk: &HookedDisk) -> Arc<AtomicUsize> {
    let reads = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&reads);
    disk.set(move |call, _| {
        count.fetch_add(usize::from(call == Call::Read), Ordering::SeqCst);
        Ok(())
    });
    reads
}

/// Reads of the disk that the attempts for all recipients of a list come to, envelope and body.
fn reads_of_all(shared_bytes: usize) -> usize {
    let disk = SimDisk::new(1);
    let hooked = HookedDisk::new(&disk);
    let (spool, mut stepper, _) = open(hooked.clone(), &sharing(shared_bytes));
    list(&spool, 1, MANY, "r");
    stepper.commit(0);
    let reads = counted(&hooked);
    for at in 0..MANY {
        let part = spool.part(id(1), &[at]).expect("there");
        assert_eq!(part.recipients_left, (MANY - at) as usize);
        assert_eq!((&part.envelope.head[..], part.envelope.body_bytes), (&b"head"[..], 3_000));
        let [one] = part.envelope.recipients.as_slice() else { panic!("{part:?}") };
        assert_eq!(
            (one.position, &one.data[..], &one.destination[..]),
            (at, format!("r {at}").as_bytes(), format!("d{at}.example").as_bytes())
        );
        let known = spool.known_body_range(id(1), 1_000..9_000);
        let range = spool.body_range(id(1), 1_000..9_000).expect("there");
        assert_eq!(range, &body(1, 3_000)[1_000..]);
        assert!(known.is_none_or(|known| known == range));
        let state = State { status: Status::Done, ..State::default() };
        drop(spool.record(&[Change { id: id(1), recipient: at, state, destination: None }]).expect("recorded"));
    }
    assert_eq!(spool.known_part(id(1), [0]), None, "it is finished");
    assert_eq!(spool.known_body_range(id(1), 0..1), None);
    let figures = spool.statistics();
    assert_eq!((figures.cache_bytes, figures.shared_bytes), (0, 0));
    // All but those that went to the disk: each recipient asks for the envelope once, and twice for the body.
    let (hits, misses) = (figures.shared_hits, figures.shared_misses);
    let many = u64::from(MANY);
    match shared_bytes {
        0 => assert!(hits == 0 && misses >= 2 * many - 1, "{hits} hits, {misses} misses"),
        _ => assert!(hits >= 3 * many - 4 && (1..=2).contains(&misses), "{hits} hits, {misses} misses"),
    }
    reads.load(Ordering::SeqCst)
}

#[test]
fn a_list_is_read_once_for_all_its_destinations() {
    // Its beginning, which is too short, and then all of it; the last recipient shares with no other.
    assert_eq!(reads_of_all(1 << 20), 2);
    // The same without: the count is able to see more.
    assert!(reads_of_all(0) >= 2 * MANY as usize);
}

/// The same for a body in chunks that no frame has whole. Reads, and whether the body is in memory after the first.
fn reads_of_chunks(shared_bytes: usize, bytes: usize) -> (usize, bool) {
    const EACH: usize = 60 << 10;
    let disk = SimDisk::new(1);
    let hooked = HookedDisk::new(&disk);
    let (spool, mut stepper, _) = open(hooked.clone(), &sharing(shared_bytes));
    let text = body(1, bytes);
    append_chunks(&spool, 1, &text, EACH);
    let count = u32::try_from(bytes.div_ceil(EACH)).expect("few");
    list_with(&spool, 1, MANY, "r", NewBody::Chunks { header: Bytes::new(), count, bytes: bytes as u64 });
    while stepper.commit(0) {}
    let reads = counted(&hooked);
    assert!(spool.shares_body(id(1)) == (bytes <= 256 << 10));
    for at in 0..MANY {
        spool.part(id(1), &[at]).expect("there");
        let end = bytes.min(EACH);
        assert_eq!(spool.body_range(id(1), 1_000..end as u64).expect("there"), &text[1_000..end]);
    }
    (reads.load(Ordering::SeqCst), spool.known_body_range(id(1), 0..1).is_some())
}

#[test]
fn a_body_in_chunks_is_read_once_unless_it_is_long() {
    assert_eq!(reads_of_chunks(1 << 20, 150_000), (2 + 3, true));
    // Each delivery of a long one reads the piece that it sends.
    assert_eq!(reads_of_chunks(1 << 20, 300_000), (2 + MANY as usize, false));
    assert_eq!(reads_of_chunks(0, 150_000), (3 * MANY as usize, false));
}

#[test]
fn whom_nobody_shares_with_takes_no_memory() {
    let (spool, mut stepper, _) = open(SimDisk::new(1), &sharing(1 << 20));
    list(&spool, 1, 2, "r");
    stepper.commit(0);
    assert_eq!(spool.part(id(1), &[0, 1]).expect("there").envelope.recipients.len(), 2);
    assert_eq!((spool.known_part(id(1), [0]), spool.statistics().shared_bytes), (None, 0));
    spool.part(id(1), &[1]).expect("there");
    assert!(spool.known_part(id(1), [0]).is_some());
    let figures = spool.statistics();
    assert_eq!((figures.shared_hits, figures.shared_misses, figures.cache_bytes), (1, 2, 0));
    assert!(figures.shared_bytes > 0);
    assert_eq!(spool.known_part(id(2), [0]), None);
    assert!(matches!(spool.part(id(2), &[0]), Err(Error::Unknown(_))));
}

/// Returns the values of each wanted recipient.
fn said(part: &Part) -> Vec<(u32, Status, u8, u32, String)> {
    let of = part.envelope.recipients.iter();
    of.map(|one| {
        let State { status, attempts, due } = one.state;
        (one.position, status, attempts, due, String::from_utf8(one.destination.to_vec()).expect("text"))
    })
    .collect()
}

#[test]
fn what_is_shared_is_never_out_of_date() {
    let disk = SimDisk::new(1);
    let (spool, mut stepper, _) = open(disk.clone(), &sharing(1 << 20));
    list(&spool, 1, MANY, "r");
    stepper.commit(0);
    spool.part(id(1), &[0]).expect("there");
    let wanted = [0, 1, 2, 3];
    let parts = || {
        let known = spool.known_part(id(1), wanted).expect("it is in memory");
        // The shared envelope and the envelope on the disk with the present states agree.
        let stored = spool.envelope(id(1)).expect("there");
        let of_these = |one: &spool::StoredRecipient| wanted.contains(&one.position);
        let stored: Vec<_> = stored.recipients.into_iter().filter(of_these).collect();
        assert_eq!(known.envelope.recipients, stored);
        said(&known)
    };
    let record = |recipient, status, attempts, due, destination: Option<&[u8]>| {
        let state = State { status, attempts, due };
        let destination = destination.map(<[u8]>::to_vec);
        drop(spool.record(&[Change { id: id(1), recipient, state, destination }]).expect("recorded"));
    };
    let name = |at: u32| format!("d{at}.example");
    record(0, Status::Held, 0, 0, None);
    record(1, Status::Waiting, 3, 99, None);
    record(2, Status::Waiting, 0, 0, Some(b"elsewhere.example"));
    record(3, Status::Done, 0, 0, None);
    let expected = [
        (0, Status::Held, 0, 0, name(0)),
        (1, Status::Waiting, 3, 99, name(1)),
        (2, Status::Waiting, 0, 0, "elsewhere.example".to_owned()),
    ];
    assert_eq!(parts(), expected);
    // Released again, tried again, and the last word: done.
    record(0, Status::Waiting, 0, 5, None);
    record(1, Status::Done, 0, 0, None);
    assert_eq!(
        parts(),
        [(0, Status::Waiting, 0, 5, name(0)), (2, Status::Waiting, 0, 0, "elsewhere.example".to_owned())]
    );
    // A crash: the same from the disk.
    work(&disk, &mut stepper);
    let before = parts();
    let (after, _stepper, _) = open(disk.crash(1), &sharing(1 << 20));
    assert_eq!(said(&after.part(id(1), &wanted).expect("there")), before);
}

#[test]
fn a_message_that_ends_while_it_is_read_leaves_nothing() {
    let disk = SimDisk::new(1);
    let hooked = HookedDisk::new(&disk);
    let (spool, mut stepper, _) = open(hooked.clone(), &sharing(1 << 20));
    let spool = Arc::new(spool);
    drop(append(&spool, 1, 9_000).expect("room"));
    stepper.commit(0);
    let again = Arc::downgrade(&spool);
    hooked.set(move |call, _| {
        if call == Call::Read
            && let Some(spool) = again.upgrade()
            && spool.envelope_is(1)
        {
            // It was delivered meanwhile, and the same id begins anew: the reader has the old one.
            drop(spool.record(&done(1)).expect("recorded"));
            list(&spool, 1, 2, "new");
        }
        Ok(())
    });
    assert!(matches!(spool.part(id(1), &[0]), Err(Error::Unknown(_))));
    hooked.clear();
    stepper.commit(0);
    assert_eq!(spool.known_part(id(1), [0]), None);
    let part = spool.part(id(1), &[0]).expect("there");
    assert_eq!(part.envelope.recipients[0].data, "new 0");
}

/// Whether a message has its first recipients, and not those of a list.
trait Envelopes {
    fn envelope_is(&self, number: u64) -> bool;
}

impl Envelopes for Spool {
    fn envelope_is(&self, number: u64) -> bool {
        self.states(id(number)).iter().any(|(_, destination)| destination == "a.example")
    }
}

#[test]
fn what_moves_is_shared_before_and_after() {
    let disk = SimDisk::new(1);
    let config = sharing(1 << 20);
    let (spool, mut stepper, _) = open(disk.clone(), &config);
    // Stragglers of two lists among mail that ends: their segments are emptied.
    list(&spool, 1, MANY, "r");
    list(&spool, 2, MANY, "s");
    for number in 3..200 {
        drop(append(&spool, number, 30_000).expect("room"));
        work(&disk, &mut stepper);
        drop(spool.record(&done(number)).expect("recorded"));
        if number == 20 {
            let ends = |of| (0..MANY - 2).map(move |at| change(of, at, Status::Done));
            drop(spool.record(&ends(1).chain(ends(2)).collect::<Vec<_>>()).expect("recorded"));
            spool.part(id(1), &[MANY - 1]).expect("there");
        }
    }
    for _ in 0..50 {
        work(&disk, &mut stepper);
    }
    assert!(spool.statistics().relocated > 0, "they were meant to move: {:?}", spool.statistics());
    let last = |part: Part| part.envelope.recipients[0].data.clone();
    assert_eq!(last(spool.known_part(id(1), [MANY - 1]).expect("kept before it moved")), format!("r {}", MANY - 1));
    assert_eq!(last(spool.part(id(2), &[MANY - 2]).expect("there")), format!("s {}", MANY - 2));
    assert_eq!(last(spool.known_part(id(2), [MANY - 1]).expect("kept after it moved")), format!("s {}", MANY - 1));
    assert_eq!(spool.body(id(2)).expect("there").concat(), body(2, 3_000));
    assert_eq!(spool.known_body_range(id(2), 0..9).as_deref(), Some(&body(2, 3_000)[..9]));
}

//! A message goes from one spool to another, as a cluster moves it.

use crate::threads::Directory;
use mail::QueueId;
use spool::disk::real::RealDisk;
use spool::{
    Change, Chunk, Config, Error, Hold, HoldKind, NewBody, NewMessage, NewRecipient, Spool, State, Status, Store as _,
    new_envelope,
};
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

fn open(path: &Path) -> Spool {
    let mut config = Config::new(path);
    (config.segment_bytes, config.size_max, config.free_min) = (1 << 20, 16 << 20, 0);
    Spool::open(config, Arc::new(RealDisk::new())).unwrap().0
}

fn id(number: u64) -> QueueId {
    QueueId::from_u64(QueueId::MIN.to_u64() + 1 + number * 4096).unwrap()
}

fn change(id: QueueId, recipient: u32, state: State, destination: Option<&[u8]>) -> Change {
    Change { id, recipient, state, destination: destination.map(<[u8]>::to_vec) }
}

const CONTENT: &[u8] = b"Subject: x\r\n\r\nbody\r\n";

/// Four recipients: done, held, moved to another destination, as it came.
fn fill(spool: &Spool) {
    let recipients: Vec<NewRecipient<'_>> =
        [b"a", b"b", b"c", b"d"].iter().map(|data| NewRecipient { data: *data, destination: b"example" }).collect();
    let message = NewMessage::new(id(1), b"head", &recipients, NewBody::whole(CONTENT, 14));
    assert_eq!(new_envelope(&message).map(|envelope| envelope.is_empty()), Some(false));
    spool.append(message).unwrap().wait().unwrap();
    let done = State { status: Status::Done, ..State::default() };
    let held = State { status: Status::Held, ..State::default() };
    let later = State::default().tried().until(Duration::from_secs(1_800_000_000));
    spool.record(&[change(id(1), 0, done, None), change(id(1), 2, later, Some(b"elsewhere"))]).unwrap().wait().unwrap();
    let why = Hold::new(HoldKind::Rule, "rule 7", "looks odd");
    spool.record_hold(&[change(id(1), 1, held, None)], &why).unwrap().wait().unwrap();
}

#[test]
fn a_copy_has_states_destinations_and_holds_and_outlives_a_start() {
    let (from_place, to_place) = (Directory::new("copy-from"), Directory::new("copy-to"));
    let (from, to) = (open(&from_place.0), open(&to_place.0));
    fill(&from);
    assert_eq!(from.progress(id(1)), Some((4, vec![0])));
    let copy = from.copy(id(1)).unwrap();
    assert_eq!((copy.recipients, copy.content.concat()), (4, CONTENT.to_vec()));

    // The fourth was finished after the copy was made.
    let new = id(900);
    to.append_copy(new, &copy.envelope, &[3], NewBody::whole(CONTENT, 14)).unwrap().unwrap().wait().unwrap();
    let check = |spool: &Spool| {
        assert_eq!(spool.progress(new), Some((4, vec![0, 3])));
        let stored = spool.envelope(new).unwrap();
        assert_eq!(&*stored.head, b"head");
        let seen: Vec<_> = stored.recipients.iter().map(|one| (one.position, &*one.data, &*one.destination)).collect();
        assert_eq!(seen, [(1, &b"b"[..], &b"example"[..]), (2, b"c", b"elsewhere")]);
        let states: Vec<_> = stored.recipients.iter().map(|one| (one.state.status, one.state.due)).collect();
        assert_eq!(states, [(Status::Held, 0), (Status::Waiting, 1_800_000_000)]);
        assert_eq!(spool.hold(new, 1).map(|hold| hold.text().to_owned()), Some("looks odd".to_owned()));
        assert_eq!(spool.body(new).unwrap().concat(), CONTENT);
    };
    check(&to);
    drop(to);
    let to = open(&to_place.0);
    check(&to);

    // Changes are counted anew, and the last recipient ends the message.
    let done = State { status: Status::Done, ..State::default() };
    to.record(&[change(new, 1, done, None), change(new, 2, done, None)]).unwrap().wait().unwrap();
    assert_eq!(to.progress(new), None);
    drop(to);
    assert_eq!(open(&to_place.0).messages(), []);
}

#[test]
fn a_body_in_chunks_is_copied_and_nothing_is_stored_of_a_finished_or_damaged_one() {
    let place = Directory::new("copy-chunks");
    let spool = open(&place.0);
    let recipients = [NewRecipient { data: b"a", destination: b"example" }];
    let body = vec![7; 100_000];
    for (piece, number) in body.chunks(50_000).zip(0..) {
        let mut chunk = Chunk::new(50_000);
        chunk.push(piece);
        spool.append_chunk(id(1), number, chunk).unwrap().wait().unwrap();
    }
    let large = NewBody::Chunks { header: (&b"A: b\r\n\r\n"[..]).into(), count: 2, bytes: 100_000 };
    spool.append(NewMessage::new(id(1), b"head", &recipients, large)).unwrap().wait().unwrap();
    let copy = spool.copy(id(1)).unwrap();
    assert_eq!(copy.content.concat(), [&b"A: b\r\n\r\n"[..], &body].concat());

    let whole = || NewBody::whole(copy.content.concat(), 8);
    assert!(spool.append_copy(id(2), &copy.envelope, &[0], whole()).unwrap().is_none());
    let cut = copy.envelope.slice(..copy.envelope.len() - 1);
    assert!(matches!(spool.append_copy(id(2), &cut, &[], whole()), Err(Error::Corrupt { .. })));
    assert!(matches!(spool.append_copy(id(1), &copy.envelope, &[], whole()), Err(Error::Exists(_))));
    assert_eq!(spool.messages(), [id(1)]);
    assert!(matches!(spool.copy(id(2)), Err(Error::Unknown(_))));
}

#[test]
fn the_observer_is_told_of_each_end() {
    let place = Directory::new("copy-observer");
    let spool = open(&place.0);
    fill(&spool);
    let told = Arc::<Mutex<Vec<(QueueId, u32)>>>::default();
    let kept = Arc::clone(&told);
    spool.observe_done(Box::new(move |done| kept.lock().unwrap().extend_from_slice(done)));
    let done = State { status: Status::Done, ..State::default() };
    spool.record(&[change(id(1), 3, done, None), change(id(1), 2, State::default(), None)]).unwrap().wait().unwrap();
    let both = [change(id(1), 1, done, None), change(id(1), 2, done, None)];
    drop(spool.record_from(HoldKind::Rule, &both, None).unwrap());
    assert_eq!(*told.lock().unwrap(), [(id(1), 3), (id(1), 1)]);
}

#[test]
fn the_observer_is_told_of_each_hold_and_each_release_whoever_records_it() {
    let place = Directory::new("copy-holds");
    let spool = open(&place.0);
    fill(&spool);
    let told = Arc::<Mutex<Vec<(Vec<QueueId>, bool)>>>::default();
    let kept = Arc::clone(&told);
    spool.observe_holds(Box::new(move |messages, is_held| kept.lock().unwrap().push((messages.to_vec(), is_held))));
    let taken = || std::mem::take(&mut *told.lock().unwrap());
    let (held, done) =
        (State { status: Status::Held, ..State::default() }, State { status: Status::Done, ..State::default() });
    let hold = Hold::new(HoldKind::Operator, "ann", "");
    drop(spool.record_hold(&[change(id(1), 2, held, None)], &hold).unwrap());
    assert_eq!(taken(), [(vec![id(1)], true)]);
    // An attempt that failed, and a hold that stays at another destination.
    drop(spool.record(&[change(id(1), 3, State::default(), None), change(id(1), 2, held, Some(b"other"))]).unwrap());
    assert_eq!(taken(), []);
    // The release of an operator has no reason.
    drop(spool.record(&[change(id(1), 2, State::default(), None)]).unwrap());
    assert_eq!(taken(), [(vec![id(1)], false)]);
    drop(spool.record_from(HoldKind::Rule, &[change(id(1), 1, State::default(), None)], None).unwrap());
    assert_eq!(taken(), [(vec![id(1)], false)]);
    drop(spool.record_hold(&[change(id(1), 1, held, None)], &hold).unwrap());
    assert_eq!(taken(), [(vec![id(1)], true)]);
    drop(spool.record(&[change(id(1), 1, done, None)]).unwrap());
    assert_eq!(taken(), [], "the end of a held recipient is no release");
}

//! Negative controls of the checker: each kind of broken promise, made on purpose in a store that works.

use super::*;
use crate::crash::letter::queue_id;
use spool::{Change, NewBody, NewMessage, NewRecipient, State, Status};
use std::sync::atomic::{AtomicU32, Ordering};
use testkit::memory_store::MemoryStore;

/// A store with a ledger in a directory of its own.
struct Scene {
    dir: PathBuf,
    store: MemoryStore,
    ledger: CrashLedger,
}

impl Drop for Scene {
    fn drop(&mut self) {
        drop(std::fs::remove_dir_all(&self.dir));
    }
}

impl Scene {
    fn new() -> Self {
        static NUMBER: AtomicU32 = AtomicU32::new(0);
        let name = format!("mailrace-checker-{}-{}", std::process::id(), NUMBER.fetch_add(1, Ordering::Relaxed));
        let dir = std::env::temp_dir().join(name);
        std::fs::create_dir_all(&dir).unwrap();
        let store = MemoryStore::default();
        let ledger = CrashLedger::append_to(&dir.join("ledger")).unwrap();
        Self { dir, store, ledger }
    }

    /// The first small messages of a cycle that have two recipients at least.
    fn letters(&self) -> impl Iterator<Item = PlannedMessage> {
        (0..)
            .map(|number| PlannedMessage::of(queue_id(3, 0, number)))
            .filter(|letter| letter.recipients >= 2 && (1..10_000).contains(&letter.bytes))
    }

    fn letter(&self) -> PlannedMessage {
        self.letters().next().unwrap()
    }

    fn store(&self, letter: &PlannedMessage, head: &[u8], body: Vec<u8>) {
        let data: Vec<_> = (0..letter.recipients).map(|position| letter.recipient(position)).collect();
        let to: Vec<_> = (0..letter.recipients).map(|position| letter.destination(position, 0)).collect();
        let recipients: Vec<_> =
            data.iter().zip(&to).map(|(data, destination)| NewRecipient { data, destination }).collect();
        let body = NewBody::whole(body, 0);
        let message = NewMessage::new(letter.id, head, &recipients, body);
        self.store.append(message).unwrap().wait().unwrap();
    }

    fn stored(&self) -> PlannedMessage {
        let letter = self.letter();
        self.store(&letter, &letter.head(), letter.body());
        letter
    }

    fn note(&self, letter: &PlannedMessage, events: &[Event]) {
        for event in events {
            self.ledger.write(letter.id, *event).unwrap();
        }
    }

    fn accepted(&self) -> PlannedMessage {
        let letter = self.stored();
        self.note(&letter, &[Event::Offered, Event::Acknowledged]);
        letter
    }

    fn change(&self, letter: &PlannedMessage, recipient: u32, state: State) {
        let change = Change { id: letter.id, recipient, state, destination: None };
        self.store.record(&[change]).unwrap().wait().unwrap();
    }

    fn check(&self, cycle: u64) -> Findings {
        let book = Book::read(&self.dir.join("ledger"), u64::MAX, u64::MAX).unwrap();
        let (findings, details, _) = compare(&self.store, &book, cycle);
        assert_eq!(findings.violations() == 0, details.is_empty(), "{details:?}");
        findings
    }
}

const DONE: State = State { status: Status::Done, attempts: 0, due: 0 };
const LATER: State = State { status: Status::Waiting, attempts: 1, due: 2_000_000_000 };

#[test]
fn a_kept_promise_is_no_finding() {
    let scene = Scene::new();
    let letter = scene.accepted();
    scene
        .note(&letter, &[Event::Changing(0, LATER), Event::Changed(0, LATER), Event::Finishing(1), Event::Finished(1)]);
    scene.change(&letter, 0, LATER);
    scene.change(&letter, 1, DONE);
    let findings = scene.check(3);
    assert_eq!((findings.violations(), findings.required, findings.present), (0, 1, 1));
}

#[test]
fn what_a_crash_may_do_is_no_violation() {
    let scene = Scene::new();
    let mut letters = scene.letters();
    let (unanswered, repeated) = (letters.next().unwrap(), letters.next().unwrap());
    for letter in [&unanswered, &repeated] {
        scene.store(letter, &letter.head(), letter.body());
        scene.note(letter, &[Event::Offered]);
    }
    scene.note(&repeated, &[Event::Acknowledged, Event::Finishing(0), Event::Changing(1, LATER)]);
    let findings = scene.check(3);
    assert_eq!((findings.violations(), findings.unanswered, findings.repeated), (0, 1, 1));
}

#[test]
fn lost_messages_and_recipients_are_found() {
    let scene = Scene::new();
    scene.note(&scene.letter(), &[Event::Offered, Event::Acknowledged]);
    assert_eq!(scene.check(3).lost, 1);
    let scene = Scene::new();
    let letter = scene.accepted();
    scene.change(&letter, 0, DONE);
    assert_eq!(scene.check(3).lost, 1);
}

#[test]
fn what_was_finished_must_not_come_back() {
    let scene = Scene::new();
    let letter = scene.accepted();
    scene.note(&letter, &[Event::Finishing(0), Event::Finished(0)]);
    assert_eq!(scene.check(3).resurrected, 1);
}

#[test]
fn a_message_nobody_offered_is_found() {
    let scene = Scene::new();
    scene.stored();
    assert_eq!(scene.check(3).invented, 1);
    assert_eq!(scene.check(4).resurrected, 1, "of an earlier cycle: it was gone once");
}

#[test]
fn wrong_bytes_are_found() {
    let scene = Scene::new();
    let letter = scene.letter();
    scene.note(&letter, &[Event::Offered, Event::Acknowledged]);
    let mut body = letter.body();
    *body.last_mut().unwrap() ^= 1;
    scene.store(&letter, b"another head", body);
    let findings = scene.check(3);
    assert_eq!((findings.wrong_body, findings.wrong_envelope), (1, 1));
}

#[test]
fn states_nobody_recorded_or_long_overtaken_are_found() {
    let scene = Scene::new();
    let letter = scene.accepted();
    scene.change(&letter, 0, LATER);
    assert_eq!(scene.check(3).wrong_state, 1);
    let scene = Scene::new();
    let letter = scene.accepted();
    scene.note(&letter, &[Event::Changing(0, LATER), Event::Changed(0, LATER)]);
    assert_eq!(scene.check(3).wrong_state, 1);
}

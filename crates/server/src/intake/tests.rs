//! Content that goes into a real spool on a simulated disk.

use super::commit::store_all;
use super::content::CHUNK_BYTES;
use super::*;
use crate::config::{Config, SEGMENT_BYTES_MIN};
use crate::context::Context;
use crate::message_store::MessageStore;
use crate::routing::expansions::PlannedMessage;
use crate::routing::message_properties::MessageProperties;
use crate::sabotage::{self, Sabotage};
use crate::simulation::{spool_on, spool_with};
use bytes::Bytes;
use mail::{AddressError, Client, Envelope, Node, Protocol, QueueId, QueueIds, Received, ReversePath};
use route::resolve::HoldReason;
use schedule::Class;
use spool::disk::sim::{Op, SimDisk};
use spool::envelope::Encoded;
use spool::{Error, Hold, HoldKind, Spool, State, Store as _};
use std::sync::Arc;

/// Returns a message with no recipient but one.
fn envelope(id: QueueId) -> Result<Envelope, AddressError> {
    let address = mail::Address::parse(b"b@d.test")?;
    Ok(Envelope {
        id,
        sender: ReversePath::parse(b"<a@b.test>")?,
        params: mail::MailParams::default(),
        received: Received { at_us: 1, client: Client::Internal, helo: None, protocol: Protocol::Local },
        recipients: vec![mail::Recipient { address, params: mail::RecipientParams::default() }],
    })
}

/// Returns a message to `b@d.test` that begins in the default state.
fn message(id: QueueId) -> NewMessage {
    let envelope = envelope(id).unwrap();
    let encoded = Arc::new(Encoded::new(&envelope));
    let (first, kind, class) = (State::default(), MessageProperties::default(), Class::Normal);
    NewMessage {
        envelope: Arc::new(envelope),
        encoded,
        first,
        kind,
        class,
        held: None,
        is_partly_held: false,
        accepts_local: false,
    }
}

/// Finishes the content and stores the message; returns the octets.
async fn store(message_store: &MessageStore, content: TransactionContent, rest: Vec<u8>) -> Result<u64, Error> {
    let message = message(content.id().unwrap());
    let messages = content.finish(message_store, vec![message], inline(rest)).await?;
    let bytes = messages[0].1.bytes;
    match store_all(message_store, &messages, (Origin::Session, false)).await {
        Ok(()) => Ok(bytes),
        Err((error, _)) => {
            messages[0].1.abandon(message_store);
            Err(error)
        }
    }
}

struct Trial {
    disk: SimDisk,
    spool: Arc<Spool>,
    message_store: MessageStore,
}

impl Trial {
    fn new(segment_bytes: u32) -> Self {
        let disk = SimDisk::new(1);
        let spool = spool_on(&disk, |config| {
            config.segment_bytes = segment_bytes;
            config.size_max = 16 * u64::from(segment_bytes);
            config.cache_bytes = 0;
        });
        let message_store = MessageStore::spool(Arc::clone(&spool), QueueIds::new(Node::default()), 1);
        Self { disk, spool, message_store }
    }

    /// Brings `body` as a session does: in pieces, and the rest at the end.
    async fn bring(&self, body: &[u8]) -> Result<QueueId, Error> {
        let id = self.message_store.next_id();
        let mut content = TransactionContent::new(id);
        let mut pieces = body.chunks(PIECE_BYTES).peekable();
        while let Some(piece) = pieces.next() {
            if pieces.peek().is_none() {
                let stored = store(&self.message_store, content, piece.to_vec()).await?;
                assert_eq!(stored, body.len() as u64);
                return Ok(id);
            }
            content.push(&self.message_store, piece).await;
        }
        panic!("a body has octets");
    }
}

fn body(bytes: usize) -> Vec<u8> {
    (0..bytes).map(|at| u8::try_from(at % 251).unwrap()).collect()
}

#[tokio::test]
async fn every_size_comes_back_as_it_went() {
    let trial = Trial::new(1 << 20);
    for bytes in
        [1, PIECE_BYTES, PIECE_BYTES + 1, CHUNK_BYTES, CHUNK_BYTES + 1, 2 * CHUNK_BYTES, 3 * PIECE_BYTES, 700_001]
    {
        let body = body(bytes);
        let id = trial.bring(&body).await.unwrap();
        assert!(trial.spool.body(id).unwrap().concat() == body, "{bytes} octets");
    }
}

#[tokio::test]
async fn the_header_section_is_stored_apart_from_the_body() {
    let trial = Trial::new(1 << 20);
    let max = trial.spool.header_bytes_max();
    let field = b"X-Field: of sixty-four octets with its line end, and no less...\r\n";
    for fields in [0, 1, PIECE_BYTES / field.len(), max / field.len() - 1, max / field.len() + 1] {
        for body_bytes in [0, 100, 2 * PIECE_BYTES] {
            let header = [field.repeat(fields).as_slice(), b"\r\n"].concat();
            let content = [header.as_slice(), &body(body_bytes)].concat();
            let id = trial.bring(&content).await.unwrap();
            let what = format!("{fields} fields, {body_bytes} octets of body");
            let stored = trial.spool.header(id).unwrap();
            // Of one that is too large the last whole field within the limit ends it.
            let expected = if header.len() <= max { header.len() } else { (max - 1) / field.len() * field.len() };
            assert!(stored == content[..expected], "{what}: {} octets", stored.len());
            assert!(trial.spool.body(id).unwrap().concat() == content, "{what}");
        }
    }
}

#[tokio::test]
async fn the_smallest_spool_that_is_configured_takes_a_large_message() {
    let mut text = format!("[spool]\nsegment_bytes = {}\nsize_max = \"1GiB\"\n", SEGMENT_BYTES_MIN);
    let machine = crate::config::Machine::default();
    assert!(crate::config::load(&text, None, &[], &machine).is_ok());
    text = text.replace(&SEGMENT_BYTES_MIN.to_string(), &(SEGMENT_BYTES_MIN / 2).to_string());
    assert!(crate::config::load(&text, None, &[], &machine).is_err(), "the test knows the least");
    let trial = Trial::new(SEGMENT_BYTES_MIN);
    for bytes in [PIECE_BYTES, 4 * CHUNK_BYTES] {
        assert!(trial.bring(&body(bytes)).await.is_ok(), "{bytes} octets");
    }
}

#[tokio::test]
async fn a_failed_disk_is_told_and_leaves_no_message() {
    for bytes in [1_000, 5 * CHUNK_BYTES] {
        let trial = Trial::new(1 << 20);
        trial.bring(b"first").await.unwrap();
        trial.disk.fail(Op::Sync, 0);
        let body = body(bytes);
        assert!(trial.bring(&body).await.is_err(), "{bytes} octets");
        assert_eq!(trial.spool.messages().len(), 1);
        // The next message is not damaged by the remains of this one.
        trial.disk.clear_faults();
        let id = trial.bring(&body).await.unwrap();
        assert!(trial.spool.body(id).unwrap().concat() == body);
    }
}

#[tokio::test]
async fn content_that_is_given_up_takes_no_room() {
    let trial = Trial::new(1 << 20);
    // Sixteen megabytes in all: forty times one would not fit.
    for _ in 0..40 {
        let mut content = TransactionContent::of(QueueId::MIN, [trial.message_store.next_id()]);
        for piece in body(1 << 20).chunks(PIECE_BYTES) {
            content.push(&trial.message_store, piece).await;
        }
        content.abandon(&trial.message_store);
    }
    assert!(trial.spool.messages().is_empty());
}

#[tokio::test]
async fn a_busy_disk_is_waited_for() {
    let spool = spool_with(|config| {
        (config.segment_bytes, config.size_max) = (4 << 20, 128 << 20);
        config.staged_bytes_max = 128 << 10;
    });
    let message_store = Arc::new(MessageStore::spool(spool, QueueIds::new(Node::default()), 1));
    let bringing: Vec<_> = (0..100)
        .map(|_| {
            let message_store = Arc::clone(&message_store);
            tokio::spawn(async move {
                let id = message_store.next_id();
                store(&message_store, TransactionContent::new(id), body(50_000)).await
            })
        })
        .collect();
    for one in bringing {
        assert_eq!(one.await.unwrap(), Ok(50_000));
    }
}

#[tokio::test]
async fn a_message_in_quarantine_keeps_its_reason_after_a_crash() {
    for (origin, kind) in [(Origin::Session, HoldKind::Rule), (Origin::Import, HoldKind::Import)] {
        let trial = Trial::new(1 << 20);
        let mut held = message(trial.message_store.next_id());
        let id = held.envelope.id;
        held.kind.hold = Some(HoldReason::new("access", "a virus"));
        held.first.status = spool::Status::Held;
        let content = TransactionContent::new(id);
        let messages = content.finish(&trial.message_store, vec![held], Bytes::from(body(100))).await.unwrap();
        assert!(store_all(&trial.message_store, &messages, (origin, false)).await.is_ok());
        let spool = spool_on(&trial.disk.crash(0), |config| config.segment_bytes = 1 << 20);
        assert_eq!(spool.hold(id, 0), Some(Hold::new(kind, "access", "a virus")));
    }
}

/// A transaction of several messages that is ready to be stored, on a simulated disk.
struct Transaction {
    disk: SimDisk,
    spool: Arc<Spool>,
    context: Arc<Context>,
    ids: Vec<QueueId>,
    finished: Vec<(NewMessage, FinishedContent)>,
    content: Vec<u8>,
}

impl Transaction {
    /// `messages` messages with `bytes` octets of content each.
    async fn new(messages: usize, bytes: usize) -> Self {
        let disk = SimDisk::new(1);
        let spool = spool_on(&disk, spool_limits);
        let context = Context::trial(Config::default(), Some(&spool));
        let message_store = &context.message_store;
        let messages: Vec<NewMessage> = (0..messages)
            .map(|_| {
                let envelope = Arc::new(envelope(message_store.next_id()).unwrap());
                let encoded = Arc::new(Encoded::new(&envelope));
                NewMessage::new(
                    &context,
                    PlannedMessage { envelope, encoded, kind: MessageProperties::default() },
                    Class::Normal,
                )
            })
            .collect();
        let ids: Vec<QueueId> = messages.iter().map(|message| message.envelope.id).collect();
        let mut arriving = TransactionContent::of(ids[0], ids.iter().copied());
        let content = body(bytes);
        let mut rest = Bytes::from(content.clone());
        if bytes > PIECE_BYTES {
            arriving.push(message_store, &content).await;
            rest = Bytes::new();
        }
        let finished = arriving.finish(message_store, messages, rest).await.unwrap();
        Self { disk, spool, context, ids, finished, content }
    }

    /// Commits it while the `fail_at`th sync fails. Returns whether it was taken and how many of its messages are in
    /// the spool.
    async fn commit(self, origin: Origin, fail_at: Option<u64>) -> (bool, usize) {
        if let Some(fail_at) = fail_at {
            self.disk.fail(Op::Sync, fail_at);
        }
        let committed = commit(&self.context, origin, self.finished).await;
        self.disk.clear_faults();
        if let Ok(stored) = &committed {
            assert_eq!(stored.messages().iter().map(|one| one.envelope.id).collect::<Vec<_>>(), self.ids);
            for id in &self.ids {
                assert!(self.spool.body(*id).unwrap().concat() == self.content);
            }
        }
        (committed.is_ok(), self.spool.messages().len())
    }

    /// Commits it while the power is cut after `operations` writes and syncs. Returns whether it was acknowledged and
    /// how many of its messages are there after the restart.
    async fn crash(self, operations: u64, choice: u64) -> (bool, usize) {
        self.disk.cut_power_after(operations);
        let committed = commit(&self.context, Origin::Session, self.finished).await;
        let after = self.disk.crash(choice);
        let spool = spool_on(&after, spool_limits);
        for id in spool.messages() {
            assert!(spool.body(id).unwrap().concat() == self.content);
        }
        (committed.is_ok(), spool.messages().len())
    }
}

/// The size of a segment in these trials; the frames of one batch have a quarter of it.
const SEGMENT_BYTES: u32 = 1 << 20;

fn spool_limits(config: &mut spool::Config) {
    (config.segment_bytes, config.size_max) = (SEGMENT_BYTES, 64 * u64::from(SEGMENT_BYTES));
    // Segments that are filled ahead take planned faults in place of the transaction.
    (config.state_delay_ms, config.ready_bytes) = (0, 0);
}

const ORIGINS: [Origin; 3] = [Origin::Session, Origin::Import, Origin::Report];

#[tokio::test]
async fn a_transaction_of_any_origin_is_stored_whole_or_not_at_all() {
    for origin in ORIGINS {
        // Small content; chunks; small content of so many messages that one batch does not take them.
        for (messages, bytes) in [(3, 1_000), (3, 3 * CHUNK_BYTES), (6, 60_000)] {
            let mut refused = 0;
            for fail_at in [None, Some(0), Some(1), Some(2)] {
                let (is_taken, stored) = Transaction::new(messages, bytes).await.commit(origin, fail_at).await;
                assert_eq!(stored, if is_taken { messages } else { 0 }, "{origin:?} {messages} x {bytes} {fail_at:?}");
                refused += usize::from(!is_taken);
            }
            assert!((1..=3).contains(&refused), "{origin:?} {messages} x {bytes}: {refused} of four were refused");
        }
    }
}

/// Crashes a transaction at each of its first writes and syncs. Returns how many of its messages the restarts found,
/// and fails if an acknowledged one lacks some.
async fn found_after_crashes(bytes: usize) -> Vec<usize> {
    let mut found = Vec::new();
    for operations in 0..6 {
        for choice in 0..8 {
            let (is_taken, stored) = Transaction::new(3, bytes).await.crash(operations, choice).await;
            assert!(!is_taken || stored == 3, "acknowledged, and {stored} of 3 are there");
            found.push(stored);
        }
    }
    found
}

#[tokio::test]
async fn a_crash_leaves_all_messages_of_a_transaction_or_none() {
    for bytes in [1_000, 3 * CHUNK_BYTES] {
        let found = found_after_crashes(bytes).await;
        assert!(found.iter().all(|stored| [0, 3].contains(stored)), "{bytes}: {found:?}");
        assert!(found.contains(&0) && found.contains(&3), "{bytes}: no crash before, or none after: {found:?}");
    }
}

/// The trials above notice a store that leaves a part of a transaction.
#[tokio::test]
async fn a_part_of_a_transaction_that_stays_is_noticed() {
    let _guard = sabotage::begin(Some(Sabotage::KeepPartOfTransaction));
    let mut trials = Vec::new();
    // The spool's growth syncs too, at a moment of its own; so the number of the sync that does it varies.
    for fail_at in (0..4).cycle().take(200) {
        trials.push(Transaction::new(3, 1_000).await.commit(Origin::Session, Some(fail_at)).await);
        if matches!(trials.last(), Some((false, 1..))) {
            break;
        }
    }
    assert!(matches!(trials.last(), Some((false, 1..))), "no failed sync lay between two messages: {trials:?}");
    assert!(found_after_crashes(1_000).await.iter().any(|stored| [1, 2].contains(stored)), "no crash lay between them");
}

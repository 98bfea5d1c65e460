//! Content on its way into a real spool on a simulated disk.

use super::*;
use crate::simulation::{spool_on, spool_with};
use mail::{AddressError, Client, Node, Protocol, Received, ReversePath};
use spool::disk::sim::{Op, SimDisk};

/// A message with no recipient but one.
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
        let mut content = Content::new(id);
        let mut pieces = body.chunks(PIECE_BYTES).peekable();
        while let Some(piece) = pieces.next() {
            if pieces.peek().is_none() {
                let stored = content
                    .commit(
                        &self.message_store,
                        &Arc::new(Encoded::new(&envelope(id).unwrap())),
                        piece.to_vec(),
                        State::default(),
                    )
                    .await?;
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
        // The next one is not hurt by what is left of it.
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
        let mut content = Content::new(trial.message_store.next_id());
        for piece in body(1 << 20).chunks(PIECE_BYTES) {
            content.push(&trial.message_store, piece).await;
        }
        assert_eq!(content.failed, None);
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
                Content::new(id)
                    .commit(
                        &message_store,
                        &Arc::new(Encoded::new(&envelope(id).unwrap())),
                        body(50_000),
                        State::default(),
                    )
                    .await
            })
        })
        .collect();
    for one in bringing {
        assert_eq!(one.await.unwrap(), Ok(50_000));
    }
}

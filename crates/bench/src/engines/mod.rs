//! Other ways to keep mail, behind the spool's own trait, so that the same load runs on all of them.
//!
//! The single-writer engines (fjall, redb, SQLite) get a leader/follower group commit ([`group`]) in front of them and
//! the settings a careful user would choose; one file per message ([`files`]) does what Postfix does. All of them are
//! durable when a commit resolves. All share one in-memory index of recipients ([`index`]), because none of them has
//! one.
//!
//! Not here: anything fit for service. Errors become texts for the person at the terminal, a failed write poisons the
//! store for good, and queues by destination are searched whole.

pub mod files;
#[cfg(feature = "engines")]
mod fjall;
pub mod group;
mod index;
mod nothing;
mod record;
#[cfg(feature = "engines")]
mod redb;
#[cfg(feature = "engines")]
mod sqlite;

use bytes::Bytes;
use mail::QueueId;
use spool::{Commit, Spool, Store};
use std::fmt;
use std::path::Path;

pub use record::{Body, CHUNK_BYTES};

/// A way to keep mail.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, clap::ValueEnum)]
pub enum Kind {
    /// The spool of mailrace.
    Mailrace,
    /// fjall 3, a log-structured merge tree.
    Fjall,
    /// redb 4, a copy-on-write B-tree.
    Redb,
    /// SQLite, write-ahead log, synchronous = FULL.
    Sqlite,
    /// One file per message, as Postfix does it.
    Files,
    /// Forgets the bodies at once: what the load itself costs.
    Nothing,
}

impl Kind {
    /// Its name in tables.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Mailrace => "mailrace",
            Self::Fjall => "fjall",
            Self::Redb => "redb",
            Self::Sqlite => "SQLite",
            Self::Files => "file per message",
            Self::Nothing => "load alone",
        }
    }

    /// Whether this program was built with it.
    #[must_use]
    pub fn is_built(self) -> bool {
        cfg!(feature = "engines") || matches!(self, Self::Mailrace | Self::Files | Self::Nothing)
    }

    /// Opens or makes a store of this kind in `dir`, which exists.
    ///
    /// # Errors
    /// What the store says, or that it was not built.
    pub fn open(self, dir: &Path, room: Room) -> Result<Box<dyn Contender>, String> {
        match self {
            Self::Mailrace => crate::spool_bench::open_spool(dir, room),
            Self::Files => Ok(Box::new(files::Files::open(dir)?)),
            Self::Nothing => Ok(Box::new(nothing::Nothing::default())),
            #[cfg(feature = "engines")]
            Self::Fjall => Ok(Box::new(group::Grouped::new(fjall::Fjall::open(dir).map_err(|e| e.to_string())?)?)),
            #[cfg(feature = "engines")]
            Self::Redb => Ok(Box::new(group::Grouped::new(redb::Redb::open(dir).map_err(|e| e.to_string())?)?)),
            #[cfg(feature = "engines")]
            Self::Sqlite => Ok(Box::new(group::Grouped::new(sqlite::Sqlite::open(dir).map_err(|e| e.to_string())?)?)),
            #[cfg(not(feature = "engines"))]
            Self::Fjall | Self::Redb | Self::Sqlite => {
                Err(format!("{} is not in this program; build it with --features engines", self.name()))
            }
        }
    }
}

/// A store that takes part in a comparison.
pub trait Contender: Store {
    /// Resolves when something that was refused as busy may be offered again; `None` if the store cannot tell.
    fn room(&self, _id: QueueId) -> Option<Commit> {
        None
    }
}

impl Contender for Spool {
    fn room(&self, id: QueueId) -> Option<Commit> {
        Some(self.room(id))
    }
}

impl Contender for files::Files {}
impl Contender for nothing::Nothing {}
impl<E: Engine> Contender for group::Grouped<E> {}

/// How much a store may take where it is opened.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Bytes all its files together may take.
    pub bytes_max: u64,
    /// Bytes of free space it must leave on the file system.
    pub free_min: u64,
}

/// A single-writer engine: what [`group::Grouped`] puts itself in front of.
pub trait Engine: Send + Sync + fmt::Debug + 'static {
    /// Applies all operations or none, durable on return.
    ///
    /// # Errors
    /// The engine's words; the engine is not used any more.
    fn write(&self, operations: &[Operation]) -> Result<(), EngineError>;

    /// Reads the record of a message.
    ///
    /// # Errors
    /// The engine's words.
    fn record(&self, id: u64) -> Result<Option<Bytes>, EngineError>;

    /// Reads the body of a message, as pieces in order; nothing if there is no such message.
    ///
    /// # Errors
    /// The engine's words.
    fn body(&self, id: u64) -> Result<Vec<Bytes>, EngineError>;

    /// Gives the record of every message to `each`.
    ///
    /// # Errors
    /// The engine's words.
    fn scan(&self, each: &mut dyn FnMut(u64, &[u8])) -> Result<(), EngineError>;
}

/// One change of what an engine holds.
#[derive(Debug)]
pub enum Operation {
    /// A new message.
    Insert {
        /// Its queue id.
        id: u64,
        /// Its envelope, encoded.
        record: Vec<u8>,
        /// Its body.
        body: Body,
    },
    /// New states of recipients.
    Replace {
        /// Its queue id.
        id: u64,
        /// Its envelope, encoded again.
        record: Vec<u8>,
    },
    /// The message is finished.
    Remove {
        /// Its queue id.
        id: u64,
        /// Pieces of its body.
        pieces: u32,
    },
}

/// What an engine said.
pub type EngineError = Box<dyn std::error::Error + Send + Sync>;

#[cfg(test)]
mod tests {
    use super::*;
    use mail::{Node, QueueIds};
    use spool::{Change, Chunk, Error, NewBody, NewMessage, NewRecipient, State, Status};

    /// What every store must do, whatever it is made of.
    #[track_caller]
    fn check(kind: Kind) {
        let dir = std::env::temp_dir().join(format!("mailrace-engines-{}-{kind:?}", std::process::id()));
        std::fs::create_dir_all(&dir).unwrap();
        let room = Room { bytes_max: 1 << 30, free_min: 0 };
        let mut ids = QueueIds::new(Node::default());
        let mut id = || ids.next(1_795_161_879_000_000);
        let (one, large, gone) = (id(), id(), id());
        let both =
            [NewRecipient { data: b"a", destination: b"north" }, NewRecipient { data: b"b", destination: b"south" }];
        let message = |id, recipients, body| NewMessage {
            id,
            head: b"head",
            recipients,
            body,
            reserved: false,
            state: State::default(),
        };
        let done = |id, recipient| Change {
            id,
            recipient,
            state: State { status: Status::Done, attempts: 1, due: 0 },
            destination: None,
        };
        let later = State { status: Status::Waiting, attempts: 1, due: 1_800_000_000 };
        {
            let store = kind.open(&dir, room).unwrap();
            let whole = |text: &'static [u8]| NewBody::Whole(Bytes::from_static(text));
            store.append(message(one, &both, whole(b"first"))).unwrap().wait().unwrap();
            store.append(message(gone, &both[..1], whole(b"gone"))).unwrap().wait().unwrap();
            for (number, fill) in [(0, CHUNK_BYTES), (1, 100)] {
                let mut chunk = Chunk::new(CHUNK_BYTES);
                chunk.push(&vec![b'c'; fill]);
                store.append_chunk(large, number, chunk).unwrap().wait().unwrap();
            }
            let chunks = NewBody::Chunks { count: 2, bytes: CHUNK_BYTES as u64 + 100 };
            store.append(message(large, &both[1..], chunks)).unwrap().wait().unwrap();
            store.record(&[done(one, 0), done(gone, 0), done(gone, 0)]).unwrap().wait().unwrap();
            let change = Change { id: large, recipient: 0, state: later, destination: None };
            store.record(&[change]).unwrap().wait().unwrap();
            assert_eq!(store.body(gone), Err(Error::Unknown(gone)));
            assert_eq!(store.statistics().commits, 3);
        }
        let store = kind.open(&dir, room).unwrap();
        let mut held = store.messages();
        held.sort_unstable();
        assert_eq!(held, [one, large], "{kind:?}");
        assert_eq!(store.body(one).unwrap().concat(), b"first");
        assert_eq!(store.body(large).unwrap().concat(), vec![b'c'; CHUNK_BYTES + 100]);
        assert_eq!(store.body_range(one, 1..3).unwrap(), b"ir".as_slice());
        let envelope = store.envelope(one).unwrap();
        assert_eq!((envelope.head.as_ref(), envelope.recipients.len()), (b"head".as_slice(), 1));
        assert_eq!(envelope.recipients[0].position, 1);
        assert_eq!(store.by_destination(b"north", None, 9), []);
        let south = store.by_destination(b"south", None, 9);
        assert_eq!(south.iter().map(|entry| (entry.id, entry.recipient)).collect::<Vec<_>>(), [(one, 1), (large, 0)]);
        assert_eq!(store.by_destination(b"south", Some(south[0]), 9).len(), 1);
        if kind != Kind::Files {
            assert_eq!(south[1].state, later, "{kind:?}");
        }
        drop(store);
        std::fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn files_keep_mail() {
        check(Kind::Files);
    }

    #[cfg(feature = "engines")]
    #[test]
    fn engines_keep_mail() {
        for kind in [Kind::Fjall, Kind::Redb, Kind::Sqlite] {
            check(kind);
        }
    }
}

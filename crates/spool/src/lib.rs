//! The durable log: the only room that stores mail.
//!
//! A transaction is appended as one frame to a log of recycled, preallocated segments and is durable after one sync
//! that it shares with everything that arrived meanwhile. `docs/spool.md` defines the bytes and the rules; the files
//! here follow a message's way:
//!
//! ```text
//! store      what others ask of a spool          spool      shards, threads, the directory's lock
//! shard      append, record, read                staging    the queue in front of the committer
//! cache      fresh messages in memory            read_cache messages that were read and are wanted again
//! sharing    reading for several readers         pressure   the lack of room, for callers
//! batch      frames laid out for one write       committer  one writer: write, sync, publish, wake
//! log        a segment from header to footer     footer     what recovery reads instead of the batches
//! book       what is known in memory: index (messages, recipients, destinations), segments, moves
//! janitor    footers, reuse, growth              relocate   stragglers into cold segments, by destination
//! cold       segments that take moved messages   report     what an opening found
//! copy       messages that another log takes over
//! recovery   from bytes to the book              scan       torn tail or rot; scrub: looking for it in time
//! format, sections, chunk_list: the bytes        disk       the only room that touches a file
//! inspect    what a stopped spool holds, in words  hold     why a recipient is held
//! ```
//!
//! [`Spool::append_all`] stores the messages that one transaction became all or none. A crash at each point leaves:
//!
//! | Crash | After recovery |
//! |---|---|
//! | chunks are appended, the call was not made | none; the chunks are dead |
//! | the frames are staged, or their batch is being written | none, or all if the whole batch reached the disk |
//! | the sync has returned | all |
//! | the write or sync failed | all, or none once the next batch with their DONEs is durable |
//!
//! Invariants: a [`Commit`] resolves after the sync that covers it; nothing acknowledged is in memory only; a finished
//! message does not come back, but for outcomes recorded within `state_delay_ms` of a crash; a frame that can be read
//! is never thrown away.
//!
//! Not here: the meaning of an envelope, the time of the next attempt, the destination of mail. Addresses and bodies
//! are not kept in memory.

#![deny(unsafe_code)]

mod ahead;
mod batch;
mod book;
pub mod buffer;
mod cache;
mod chunk_list;
mod cold;
mod commit;
mod committer;
mod config;
mod copy;
pub mod disk;
pub mod envelope;
mod envelope_reader;
mod error;
mod event;
mod files;
mod footer;
mod format;
#[doc(hidden)]
pub mod fuzz;
mod hold;
mod index;
pub mod inspect;
mod janitor;
mod log;
mod pressure;
mod read_cache;
mod recovery;
mod relocate;
mod report;
mod scan;
mod scrub;
mod sections;
mod segments;
mod shard;
mod sharing;
mod spool;
mod staging;
mod store;

pub use commit::{Commit, Settle};
pub use config::Config;
#[cfg(feature = "sabotage")]
pub use config::Sabotage;
pub use copy::{MessageCopy, new_envelope};
pub use envelope_reader::EnvelopeReader;
pub use error::{Error, OpenError};
pub use event::Event;
pub use format::VERSION;
pub use hold::{Hold, HoldKind};
pub use pressure::Pressure;
pub use report::{Damage, Recovery};
pub use spool::{DoneObserver, HoldObserver, Spool, Stepper};
pub use store::{
    Change, Chunk, Entry, NewBody, NewMessage, NewRecipient, Part, Recent, State, Statistics, Status, Store,
    StoredEnvelope, StoredRecipient,
};

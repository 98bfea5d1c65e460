//! The history: what became of every message, and how much mail went by, in an SQLite file beside the spool.
//!
//! It is fed with the events of the server and is never in the way of mail: [`History::record`] puts a copy of an event
//! into a queue of bounded size and waits for nothing; one thread of low priority writes what has gathered. If it
//! cannot keep up, or the disk is full, entries are dropped and counted, and mail goes on. The files:
//!
//! - `entry`: the copy of an event; `entry_queue`: where it waits;
//! - `writer`: the thread; `tables`: the tables, what is written to them, and how they stay within their bounds;
//! - `storage`: opens the file, and puts aside one that is damaged or foreign;
//! - `search`: the expression that selects messages; `reader`: finds them.
//!
//! The file helps and may be lost: no mail depends on it, and it is not synced with the mail.

mod entry;
mod entry_queue;
mod reader;
mod search;
mod storage;
mod tables;
mod writer;

pub use entry::HistoryWindow;
pub(crate) use entry::host;
pub use reader::{SearchLimits, SearchQuestion};
pub use search::HistoryExpression;
pub use writer::{EarlierRuns, History, HistorySettings};

//! The durable log: the only room that stores mail.

#![deny(unsafe_code)]

pub mod buffer;
mod commit;
mod config;
pub mod disk;
mod error;
mod store;

pub use commit::{Commit, Settle};
pub use config::Config;
pub use error::{Error, OpenError};
pub use store::{
    Change, Chunk, Entry, NewBody, NewMessage, NewRecipient, State, Statistics, Status, Store, StoredEnvelope,
    StoredRecipient,
};

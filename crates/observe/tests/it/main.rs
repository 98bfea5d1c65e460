//! The lines of the log: as sendmail has them, safe whatever a peer sends, and as `docs/log.md` shows them.

#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "a test program: a panic is its way to say no"
)]

mod document;
mod golden;
mod hostile;
mod kinds;
mod logs;

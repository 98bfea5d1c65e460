//! Support of tests that several crates share: a server to start, clients, what a machine has, fuzz bodies on
//! mutated seeds, sendmail's recorded answers.
//!
//! Only `dev-dependencies` name this crate. A helper that panics fails its test.
#![forbid(unsafe_code)]
#![allow(
    missing_docs,
    clippy::missing_panics_doc,
    clippy::missing_errors_doc,
    clippy::must_use_candidate,
    clippy::new_without_default,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    reason = "support of tests: a panic fails the test, and no name here is an interface of the program"
)]

pub mod client;
pub mod harness;
pub mod lock_holder;
pub mod memory_store;
pub mod mutation;
pub mod name_server;
pub mod nats;
pub mod needs;
pub mod oracle;

//! The spool seen from outside: simulated disks by seed, disks with hooks, real threads, stored spools of each version.

#![allow(
    clippy::cast_possible_truncation,
    clippy::indexing_slicing,
    clippy::unwrap_used,
    unreachable_pub,
    reason = "a test program: small numbers, and a panic fails the test"
)]

mod copy;
mod fixtures;
mod hooked;
mod simulation;
mod threads;

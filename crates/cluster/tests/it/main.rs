//! The crate seen from outside: bytes of blocks, decisions, and a deterministic simulation of whole clusters.

#![allow(
    clippy::indexing_slicing,
    clippy::unwrap_used,
    clippy::cast_possible_truncation,
    clippy::print_stdout,
    reason = "a test program: small numbers, and a panic is its way to say no"
)]

mod chance;
mod format;
mod shares;
mod simulation;

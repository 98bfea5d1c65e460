//! Addresses, MIME conversion and DSN texts seen from outside, with published test cases and a MIME reader of the
//! tests' own.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic fails the test")]

mod fuzz_bodies;
mod isemail;
mod mime;
mod report;
mod seven_bit;

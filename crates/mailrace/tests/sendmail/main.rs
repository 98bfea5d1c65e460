//! The program called as `sendmail`, `mailq` and their like: with the server up, down, and killed in between.
#![allow(clippy::indexing_slicing, reason = "a test program: an index that is out of range is a failure")]
#![allow(clippy::print_stdout, reason = "what is skipped is said")]

#[path = "../server/harness.rs"]
#[allow(dead_code, reason = "the harness of another test, of which some is not used here")]
mod harness;

mod callers;
mod crash;
mod crowd;
mod desk;
mod flags;
mod forged;
mod lists;
mod reports;
mod submission;

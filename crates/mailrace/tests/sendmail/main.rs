//! The program called as `sendmail`, `mailq` and their like: with the server up, down, and killed in between.

#[path = "../server/harness.rs"]
#[allow(dead_code, reason = "the harness of another test, of which some is not used here")]
mod harness;

mod callers;
mod crash;
mod desk;
mod lists;
mod submission;

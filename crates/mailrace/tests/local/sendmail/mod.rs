//! The program called as `sendmail`, `mailq` and their like: with the server up, down, and killed in between.
#![allow(clippy::print_stdout, reason = "what is skipped is said")]

mod callers;
mod crash;
mod crowd;
mod desk;
mod flags;
mod forged;
mod lists;
mod reports;
mod submission;

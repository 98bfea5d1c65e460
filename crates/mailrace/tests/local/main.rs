//! The built server and the mailboxes, programs and files of a machine: with the rights of users, without them, and
//! with other programs that deliver or lock.
//!
//! A test stores messages over SMTP in a server that delivers nothing, gives their recipients the destinations it wants
//! in the spool, and starts a server that delivers. Most of it needs root, to become another user; a test that cannot
//! run prints a line and passes.
#![allow(clippy::indexing_slicing, reason = "a test program: an index that is out of range is a failure")]

mod disk;
mod dovecot;
mod files;
mod hardening;
mod locks;
mod office;
mod programs;
mod reload;
mod repeats;
mod rights;
mod sendmail;
mod speed;
mod workers;

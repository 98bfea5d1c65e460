//! Writes mailboxes of this machine and runs programs of aliases, with the rights of one user at a time.
//!
//! An [`order`] is the delivery of a message for one recipient. An [`agent`](agent::Agent) carries orders out, on a
//! thread of the server that may wait, or in a process of its own that was root until its first order ([`privileged`]).
//!
//! | File | Holds |
//! |---|---|
//! | [`order`] | what is to be done, what came of it, and the settings |
//! | [`person`] | the user whose rights are used, and whether they may be |
//! | [`letter`], [`loops`] | the message as a mailbox or a program gets it, and whether the recipient had it before |
//! | `file`, `lock` | mailbox files and files of aliases |
//! | `maildir`, `quota` | Maildirs, and their limits |
//! | `program`, [`command`], `status` | programs |
//! | `again`, `sweep` | what crashes leave in mailboxes |
//! | [`agent`] | deliveries in any process |
//! | [`privileged`], [`workers`], [`stream`] | the process that is root, the processes of users, their messages |
//!
//! Invariant: a verdict of success comes after the copy is durable, or after the program has taken the message. The
//! same order may come again after a crash: a Maildir has one copy all the same, and a mailbox file as well if no other
//! program has changed it.

#![forbid(unsafe_code)]

mod again;
pub mod agent;
pub mod command;
mod file;
pub mod letter;
mod lock;
pub mod loops;
mod maildir;
mod medium;
pub mod order;
pub mod person;
pub mod privileged;
mod program;
mod quota;
mod status;
pub mod stream;
mod sweep;
pub mod workers;

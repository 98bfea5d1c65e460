//! Where mail goes: sendmail's maps and aliases, the order in which they are asked, and the result for a recipient.
//!
//! ```text
//! request ──► router ──► resolution      deliveries, or a refusal; with every step that led there
//!               ▲  └───► questions       to the caller: a directory, a file, a user
//!               └── answers ◄──┘
//! ```
//!
//! | File | Holds |
//! |---|---|
//! | [`map`] | files of keys and values: text, Berkeley DB, CDB |
//! | [`access`] | who may connect, send, receive and relay |
//! | [`class`] | the names of this machine and of those for whom it relays |
//! | [`question`] | what has to be asked outside, and the answers |
//! | [`destination`] | the name of a queue: where its mail goes and how |
//! | [`alias`] | the aliases file, `:include:`, `.forward`: who gets the mail of a user |
//! | [`tables`] | sendmail's tables, key by key |
//! | [`resolve`] | from a recipient to where his mail goes |
//! | [`refusal`] | what a client is told whose mail is not taken |
//! | [`step`] | one decision on the way, for people |
//! | [`import`] | the configuration of sendmail as one of ours, and the messages of its queue |
//! | [`lint`] | what is doubtful in a map |
//!
//! Everything is a function of its arguments. A value outside memory (LDAP, SQLite, an `:include:` file, a user's
//! `.forward`) is a [`question::Question`]: the caller finds the answer and asks again with it, so the code reads in
//! one line from the address to its destination, and a test answers from a table.
//!
//! Invariant: a failed look-up is a temporary failure, never a refusal and never "not there".

#![forbid(unsafe_code)]

pub mod access;
pub mod alias;
pub mod class;
pub mod destination;
#[doc(hidden)]
pub mod fuzz;
pub mod import;
pub mod lint;
pub mod map;
mod network;
pub mod question;
pub mod refusal;
pub mod resolve;
pub mod step;
pub mod tables;

pub use access::Access;
pub use class::{Class, Classes};
pub use destination::Destination;
pub use lint::{Lint, Severity};
pub use map::{Hit, Table};
pub use question::{Answer, Answers, Ask, EntryLocation, MapEntry, Question, Source, Stop};
pub use refusal::Refusal;
pub use step::Step;

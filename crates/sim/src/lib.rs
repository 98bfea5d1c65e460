//! A simulated internet, without its sockets: the addresses and characters of hosts, the answers of the DNS, the
//! replies of a host, and the messages it took.
//!
//! ```text
//! plan ──► world ──► zone      a DNS query becomes an answer
//!            └─────► mailhost  octets of a client become flights of replies with times, and ledger records
//! ```
//!
//! | File | Holds |
//! |---|---|
//! | [`plan`] | what a world is made from: numbers, shares, times; and its limits |
//! | [`character`] | what a host can be, and its script over time |
//! | [`world`] | hosts, sites, domains, the list of recipients |
//! | [`zone`] | DNS answers |
//! | [`mailhost`] | one connection to one host |
//! | [`magic`] | recipients that ask for an answer |
//! | [`ledger`] | what was taken, as lines |
//! | [`tally`] | what was taken, as numbers |
//!
//! Everything is a function of its arguments: time is a [`Duration`](std::time::Duration) since the start, given by the
//! caller, and chance comes from the seed. So the same hosts serve `mailrace sim`, where they stand behind sockets, and
//! a simulation in one process under a clock of its own. Nothing here judges a client; the reader of the ledger does.

#![forbid(unsafe_code)]

mod chance;
pub mod character;
pub mod ledger;
pub mod magic;
pub mod mailhost;
pub mod plan;
pub mod tally;
pub mod world;
pub mod zone;

pub use character::{Character, Door, Episode, Hostility, Script};
pub use ledger::{How, Taken};
pub use mailhost::{Flight, Mailhost, Then};
pub use plan::{Change, Plan, Share};
pub use tally::Tally;
pub use world::{Outlook, World};

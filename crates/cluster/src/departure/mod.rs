//! The end of a node's membership: its rows in the tables of shared limits go back, and a mark says that it left.
//!
//! A node that leaves by itself hands its mail over first (`owner::departure`), and then removes its rows and writes
//! its mark. For a node that is dead an operator does both at another one, by a [`Removal`]. Its streams and claims
//! stay: when it returns they tell it which mail was adopted.
//!
//! | File | What it holds |
//! |---|---|
//! | `limit_rows` | the rows of one node in all tables, watched and removed |
//! | `waiting_mail` | mail that a dead node leaves behind, by the ends of streams |
//! | `removal` | the removal of a dead node, step by step |

mod limit_rows;
mod removal;
mod waiting_mail;

pub use limit_rows::{ROW_WATCH, RowAction, RowRemoval, RowRemovalEnd};
pub use removal::{Removal, RemovalAction, RemovalEnd};
pub use waiting_mail::{WaitingMail, WaitingReason};

//! Statistics of mail: counts in windows of time, delays, the names that occur most, the mail that still waits.
//!
//! A [`Fact`] is one thing that is counted. The server makes facts of its events ([`Fact::of_event`]), and
//! [`crate::log_reader`] makes them of the lines of a log, so both give the same figures. [`Statistics`] has the sums;
//! [`LateRecipients`] and [`WaitingMessages`] keep what has no outcome yet. Time is an argument: seconds on any
//! axis, as since 1970 or as a clock on the wall shows them.
//!
//! Everything is bounded: windows by their number, lists by their length, and what was left out is counted.

mod counts;
mod delays;
mod fact;
mod late;
mod series;
mod storms;
mod sums;
mod top;
mod waiting;

pub use counts::Counts;
pub use delays::Delays;
pub use fact::{Addresses, Arrival, Attempt, Fact};
pub(crate) use fact::{COMMAND_REJECTED, TOO_MANY_CONNECTIONS, refused_command, refused_connection, without_brackets};
pub use late::{LATE_MAX, LateRecipient, LateRecipients};
pub use series::{Series, Slot};
pub use storms::{MailStorm, find_storms};
pub use sums::{Statistics, TOP_MAX, WindowSizes};
pub use top::{TopList, TopName};
pub use waiting::{WAITING_MAX, WaitingMessage, WaitingMessages};

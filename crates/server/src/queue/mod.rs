//! The queue tools: what an operator may see of the queue and do to it while the server runs.
//!
//! A request of the control socket becomes a [`Command`]: an action and a [`Selection`] of recipients. [`Tools`] carries it
//! out against the spool on a thread that may block, message by message, the oldest first, and answers line by line; the
//! whole queue is never in memory, only its ids. The files, in the order of a command:
//!
//! - `command` what is asked, to and from JSON; `pattern` what an address is compared with; `selection` which recipients;
//! - `tools` admits commands and owns their threads; `walk` finds messages; `change` changes them, `bounce` has them fail;
//!   `view` shows them;
//! - `stragglers` adds up who has been waiting for long;
//! - `nudge` is what the dispatcher is asked and told.
//!
//! Invariants: a change is durable before the last line of the answer is sent; what was delivered or deleted never comes
//! back; a list reads no envelope it does not show, unless addresses are asked for. Recipients are the unit: a message of which
//! only some match keeps the others as they are. Nobody is sent a
//! notice of what is deleted; senders are told of what is bounced before it is done.

mod bounce;
mod change;
mod command;
mod nudge;
mod pattern;
mod selection;
mod stragglers;
mod tools;
mod view;
mod walk;

pub use command::{Action, By, Command, LIST_MAX, reason};
pub use nudge::{Bounced, DestinationState, Destinations, Down, Meant, Nobody, Nudge, Trouble, Waits};
pub use pattern::{Pattern, PatternError};
pub use selection::{Selection, Standing};
pub use tools::{COMMANDS_MAX, Deed, Tell, Tools};

#[cfg(test)]
mod tests;

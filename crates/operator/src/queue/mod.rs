//! The queue commands: they show an operator the queue and change it while the server runs.
//!
//! A request of the control socket becomes a [`Command`]: an action and a [`Selection`] of recipients.
//! [`QueueCommands`] carries it out against the spool on a thread that may block, message by message, the oldest first,
//! and answers line by line; the whole queue is never in memory, only its ids. The files, in the order of a command:
//!
//! - `command`: the request, to and from JSON; `pattern`: the pattern that an address is compared with; `expression`:
//!   conditions as one text; `selection`: the recipients that a command is for;
//! - `run` admits commands and owns their threads; `scan` finds messages, `scan_totals` counts them; `change` changes
//!   them, `bounce` has them fail, `reroute` sends them elsewhere, `resubmit` sends copies out of quarantine;
//! - `owner_check` asks whether another node of a cluster may own a message that a command ends;
//! - `view` shows messages, `content` shows what they hold;
//! - `ended_holds` releases what was held for a time;
//! - `hold_rule` holds mail that comes; `steering` has all orders that stay in force, `run_rules` sets and ends them;
//! - `stragglers` adds up recipients that have been waiting for long;
//! - `delivery_control`: the questions and commands to the dispatcher.
//!
//! Invariants: a change is durable before the last line of the answer is sent; delivered or deleted mail never comes
//! back; a list reads no envelope it does not show, unless addresses are asked for. Recipients are the unit: a message
//! of which only some match keeps the others as they are. A deletion sends no notice; a bounce stores the report to the
//! sender before the recipient is done. No command ends a message that another node of the cluster may own.

mod bounce;
mod change;
mod command;
mod content;
mod delivery_control;
mod ended_holds;
mod expression;
mod hold_rule;
mod owner_check;
mod pattern;
mod recipient_status;
mod reroute;
mod resubmit;
mod run;
mod run_rules;
mod scan;
mod scan_totals;
mod selection;
mod steering;
mod stragglers;
mod view;

pub use command::{
    Action, Command, GroupBy, HOLD_TIME_MAX, LIST_MAX, LISTED_RECIPIENTS, LISTED_RECIPIENTS_MAX, parse_forward_address,
    parse_reason,
};
pub use delivery_control::{
    BounceError, Bounced, DeliveryControl, DestinationState, Destinations, DownState, EndDoubt, GiveUpReason,
    NoDelivery, RecipientSelection, Rerouted, Resubmission, ResubmitError, Resubmitted, WaitCause,
};
pub use ended_holds::{EndedHold, release_ended_holds};
pub use expression::{Expression, ExpressionError, age};
pub(crate) use expression::{expression_words, hosts_match};
pub use hold_rule::{HoldRule, NewMail, RuleKind};
pub use pattern::{Pattern, PatternError, glob};
pub use recipient_status::RecipientStatus;
pub use run::{COMMANDS_MAX, ChangeListener, QueueChange, QueueCommands};
pub use selection::Selection;
pub use steering::{EndedOrders, HOLD_RULES_MAX, NewRule, SET_LIMITS_MAX, STEERING_BYTES_MAX, Steering};

#[cfg(test)]
mod long_queue_tests;
#[cfg(test)]
mod test_spool;
#[cfg(test)]
mod tests;

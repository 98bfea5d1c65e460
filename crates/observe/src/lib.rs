//! Typed events, and the log lines that describe them.
//!
//! The server makes one [`Event`] where a thing is decided and hands it to its log. From the same value come sendmail's
//! line ([`sendmail`]), the JSON line ([`json`]), the counters ([`counters`]) and the statistics ([`stats`]); so they
//! cannot disagree. [`log_reader`] makes the same statistics of the lines of a log.
//!
//! The crate is pure: no clock, disk, socket, async, thread, lock, global or randomness. Time is given. Nothing here
//! decides whether a line is wanted; the caller compares [`Event::level`] with its own.

#![forbid(unsafe_code)]

mod class;
pub mod counters;
mod delay;
mod delivery;
mod escape;
mod event;
mod fields;
pub mod json;
mod limit;
pub mod log_reader;
pub mod reason;
mod relay;
mod ruleset;
mod sasl;
mod screening;
mod sender_check;
pub mod sendmail;
mod signature;
pub mod stats;

pub use class::{Class, Severity, Stop};
pub use delay::DelayClass;
pub use delivery::{NextHop, ReportKind, Stat};
pub use event::{CommandBy, Controller, Event};
pub use limit::Limit;
pub use reason::Reason;
pub use relay::Relay;
pub use ruleset::{Fate, Ruleset};
pub use sasl::SaslError;
pub use screening::ScreenVerdict;
pub use sender_check::{CheckMethod, CheckResult};
pub use signature::SignatureKind;

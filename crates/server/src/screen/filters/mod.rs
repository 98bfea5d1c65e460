//! Filters: programs of others that judge mail, over milter, policy delegation, clamd, spamd, rspamd and
//! SMTP.
//!
//! | Module | Task |
//! |---|---|
//! | [`settings`] | a `[[filter]]` table |
//! | [`connection`] | the socket, with the time for an answer and for a message |
//! | [`pool`] | connections that stay open for the next message |
//! | [`facts`] | facts about session and transaction, as macros and attributes |
//! | [`content`] | the message that filters see and change |
//! | [`milter`], [`policy`], [`scanners`] | questions in each protocol |
//! | [`smtp`] | the session with a filter that gives mail back by SMTP |
//! | [`reinjection`], [`trace_token`] | mail that comes back, and how it is recognised |
//! | [`outcome`] | decision and changes, whatever the protocol |
//! | [`session`] | the filters of one SMTP session in order, failure rules, staged changes |
//! | [`replay`] | the same about a message that is in the spool |
//! | [`verdict`] | the joined decision of all filters on a message |
//! | [`check`], [`size_check`] | questions of `mailrace check`, and the sizes that pass unscanned |
//!
//! The codecs are in crate `filter`. A filter that fails costs one message at most: its connection is dropped with all
//! that it staged, and `on_failure` decides on the message as it came.

mod check;
mod connection;
mod content;
mod facts;
mod milter;
mod outcome;
mod policy;
mod pool;
mod reinjection;
mod replay;
mod scanners;
mod session;
mod settings;
mod size_check;
mod smtp;
mod trace_token;
mod verdict;

pub use check::filter_faults;
pub(crate) use content::{FilterContent, OwnFields};
pub(crate) use facts::FilterFacts;
pub(crate) use outcome::FilterDecision;
pub(crate) use pool::{PoolCounts, PooledFilter};
pub(crate) use reinjection::{Reinjection, Reinjections, ReturnedMessage};
pub(crate) use replay::{FilterRefusal, ReplayAnswer, replay};
pub(crate) use session::{FilterNote, FilterSession, FilterStep, StepVerdict};
pub(crate) use settings::FilterSettings;
pub(crate) use trace_token::{TRACE_FIELD, TraceToken, trace_fields, without_trace_fields};
pub(crate) use verdict::FilterVerdict;

//! Messages as they leave the spool: for an attempt, for a report, for a log line.
//!
//! A [`MessageReader`] knows where a message is: in memory alone, in the memory of the spool, or on the disk. It gives
//! an [`OutboundMessage`] with those recipients that may be tried. Reads of the disk are shared ([`Reading`]), and
//! those for the log alone take turns ([`Deferrals`]).

mod deferrals;
mod line_checks;
mod outbound;
mod reader;
mod reading;
mod reservations;
mod signatures;

pub(crate) use deferrals::Deferrals;
pub(crate) use line_checks::LineChecks;
pub(crate) use outbound::{Content, ContentForm, LoadError, OutboundMessage};
pub(crate) use reader::MessageReader;
pub(crate) use reading::{ReadError, Reading};
pub(crate) use reservations::{Purpose, Reservations};
pub(crate) use signatures::Signatures;

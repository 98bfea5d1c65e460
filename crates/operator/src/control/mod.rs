//! The control socket: how a program on this machine asks the running server something.
//!
//! A UNIX stream socket at `control.path`. One request is one line of JSON, `{"command":"status"}`, and so is one
//! answer; a long list comes as several lines, of which the last has the field `ok`. The files, in the order of a
//! request:
//!
//! - [`socket`] claims the path and lets go of it;
//! - [`peer`] knows the other end and its rights;
//! - [`request`] reads the line, `limit_order` the fields of a limit;
//! - the server's [`Handler`] answers with an [`Answer`];
//! - [`serve`] keeps the connections and their limits; [`rate`] says how fast counters grow, for `status`.
//!
//! A request does nothing by itself: the handler carries out commands. The protocol is in `docs/operation.md`.

mod adopt_order;
mod connection_order;
mod limit_order;
mod peer;
mod rate;
mod request;
mod request_error;
mod serve;
mod socket;

pub use crate::answers::reply::{Answer, ListPart, Problem, Reason, Takeover};
pub use connection_order::{TRANSCRIPT_LINES_MAX, TRANSCRIPT_TIME_MAX, TranscriptOrder};
pub use limit_order::LimitOrder;
pub use peer::{Gate, Peer, Rights};
pub use rate::Rate;
pub use request::{HistoryQuestion, LINE_BYTES_MAX, Request, RouteQuestion};
pub use request_error::RequestError;
pub use serve::{CONNECTIONS_MAX, GUEST_CONNECTIONS_MAX, GUESTS_MAX, Handler, LINE_TIME_MAX, RESERVED, serve};
pub use socket::{BindError, ControlSocket};

#[cfg(test)]
mod tests;

//! The first stop of a message's way: from a bound port to a connection that may have a session.
//!
//! [`door`] is the loop, and the steps of a connection up to its greeting. [`listener`] binds the ports and accepts
//! connections, [`limits`] decides whether one more may have a session, `client` asks the access map for limits of
//! the client's own, [`proxy`] reads the client's address where a proxy stands in front. The port never closes: a
//! connection above a limit is accepted, answered `421` and closed, without a task or a buffer of its own.
//!
//! Not here: TLS, the greeting and its pause, and all input of the client behind the PROXY header.

mod client;
pub(crate) mod door;
#[doc(hidden)]
pub mod fuzz;
pub mod limits;
pub mod listener;
pub mod proxy;

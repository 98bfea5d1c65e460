//! The first stop of a message's way: from a bound port to a connection that may have a session.
//!
//! [`door`] is the loop, and the way of a connection to its greeting. [`listener`] binds the ports and takes
//! connections off them, [`limits`] says whether one more may have a session, `client` asks the access map what limits
//! a client has of its own, [`proxy`] reads who the client really is where a proxy stands in front. The port never
//! closes: a connection above a limit is taken, answered `421` and closed, without a task or a buffer of its own.
//!
//! Not here: TLS, the greeting and its pause, and everything the client says after the PROXY header.

mod client;
pub(crate) mod door;
#[doc(hidden)]
pub mod fuzz;
pub mod limits;
pub mod listener;
pub mod proxy;

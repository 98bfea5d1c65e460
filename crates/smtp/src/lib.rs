//! SMTP, ESMTP and LMTP without sockets: bytes and events in, replies and questions out.
//!
//! A [`server::Session`] is one conversation seen from the server. Its driver feeds it bytes and the time that has
//! passed, sends its output, and answers its questions: may this sender, may this recipient, is it durable now. The
//! same machine serves a socket, a TLS stream, the standard input of a process, and a simulated network. A
//! [`client::ClientSession`] is its twin: one conversation seen from the client, which takes messages and returns the
//! result for each recipient.
//!
//! The crate is pure: no clock, socket, async, lock, global or randomness. It keeps no message: content leaves it in
//! pieces as it arrives.

#![forbid(unsafe_code)]

pub mod client;
#[doc(hidden)]
pub mod client_rehearsal;
#[doc(hidden)]
pub mod dialog;
#[doc(hidden)]
pub mod fuzz;
#[doc(hidden)]
pub mod rehearsal;
pub mod server;
pub mod trace;

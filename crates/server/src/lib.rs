//! Sockets, TLS, names, threads and time for the pure rooms.
//!
//! The files follow the way of a message: [`accept`] takes connections, `session` drives the protocol, [`admit`]
//! decides which client may send to which recipient, [`intake`] makes messages durable. `shell` starts, reloads and
//! ends the server; `context` has the state that all connections share, `hosts` the state of next hops; `state_file`
//! keeps tables that help and may be lost. [`config`], [`log`], [`auth`], [`tls`], [`dns`] and the crate `os` serve them;
//! The control socket is that of crate `operator`. [`submit`] and `pickup` are the two ends of the directory
//! where programs of this machine submit mail.

#![forbid(unsafe_code)]

pub mod accept;
pub mod admit;
pub mod auth;
mod client_network;
mod completion_guard;
pub mod config;
mod context;
mod deadline;
mod deliver;
mod dispatch;
pub mod dns;
pub mod file_system;
pub mod hardening;
mod hosts;
pub mod intake;
pub mod local_delivery;
pub mod log;
mod lookup;
mod message;
mod next_hop;
mod pickup;
mod resolve;
mod routing;
pub mod server_clock;
mod session;
mod settle;
mod shell;
#[cfg(test)]
mod simulation;
pub mod sink;
mod sliding_window;
mod state_file;
mod stop;
pub mod submit;
mod tasks;
pub mod tls;
mod transport;

pub use shell::{ConfigSource, ShutdownSummary, StartError, explain, start};

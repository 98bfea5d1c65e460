//! Sockets, TLS, names, threads and time for the pure crates.
//!
//! The modules follow the way of a message: [`accept`] takes connections, `session` drives the protocol, [`admit`]
//! decides which client may send to which recipient, [`intake`] makes messages durable, `dispatch` gives attempts,
//! `deliver` makes them, `settle` records their outcomes. `shell` starts, reloads and ends the server.
//!
//! All of them share the state of `context`. `inbound` adds what only accepting mail needs, `outbound` what only
//! delivering it needs, as the state of next hops (`hosts`). `state_file` keeps tables that help and may be lost,
//! `secret_key` the key of tokens and links, `steering` the orders of operators that stay in force.
//! [`config`], [`log`], [`auth`], [`tls`] and [`dns`] serve the others; the control socket is that of crate `operator`.
//! [`submit`] and `pickup` are the two ends of the directory where programs of this machine submit mail.

#![forbid(unsafe_code)]

pub mod accept;
mod active_config;
pub mod admit;
mod adopt;
pub mod auth;
mod client_network;
pub mod cluster;
mod completion_guard;
pub mod config;
mod context;
mod deadline;
mod deliver;
mod delivery_test;
mod digest;
mod dispatch;
pub mod dns;
pub mod file_system;
pub mod fuzz;
pub mod hardening;
mod hosts;
mod http_exchange;
mod inbound;
pub mod intake;
mod listener_profile;
pub mod local_delivery;
pub mod log;
mod lookup;
mod message;
pub mod message_store;
mod next_hop;
mod outbound;
mod pickup;
mod resolve;
mod routing;
mod sabotage;
pub mod screen;
mod screen_queue;
mod secret_key;
pub mod sender_check;
pub mod server_clock;
mod session;
mod settle;
pub mod setup_checks;
mod shell;
pub mod signing;
#[cfg(test)]
mod simulation;
pub mod sink;
mod sliding_window;
mod state_file;
mod steering;
mod stop;
pub mod submit;
mod tasks;
pub mod tls;
mod transcript;
mod transport;
mod webhook;

pub use shell::{ConfigSource, ShutdownSummary, StartError, explain, start};

//! The program around the modules: start, configuration reload, administrative commands and end.
//!
//! The files, in the order in which a server uses them:
//!
//! - [`start`] prepares sockets, rights and files, and starts the threads;
//! - `load` reads certificates, password files and thread counts for the start and for reloads;
//! - `server` owns the listeners and the tasks until the end;
//! - `map_files` puts files of maps that have changed in force, `state_files` writes what helps and may be lost;
//! - `hold_ends` releases mail that was held for a time, `orders` sets limits of destinations and ends them;
//! - `connections` shows and ends connections to next hops, and passes their dialogs on;
//! - `notes` logs the notes that spool, resolver and certificates collect;
//! - `reload` puts a changed configuration in force, whole or not at all;
//! - `shared` puts revisions of the configuration that all nodes of a cluster share in force;
//! - `leave` ends the membership of this node of a cluster for good, `leave_state` tells how far that is;
//! - `admin` answers the requests of the control socket, `status` collects the answer to `status`,
//!   `cluster_status` its part about the cluster, `cluster_adopt` the state of mail of absent nodes;
//! - `http` binds the address of HTTP, reads its tokens, and answers its questions;
//! - [`explain`] traces the route of one recipient without a running server.

pub(crate) mod admin;
mod agent_check;
mod cluster_adopt;
mod cluster_status;
mod connections;
pub mod explain;
mod history;
mod history_search;
mod hold_ends;
mod http;
mod http_tls;
mod leave;
mod leave_state;
mod load;
mod map_files;
mod notes;
mod orders;
mod reload;
mod server;
mod shared_config;
mod source;
pub mod start;
mod start_error;
mod state_files;
mod status;

pub use server::ShutdownSummary;
pub use source::ConfigSource;
pub use start_error::StartError;

//! Sockets, TLS, names, threads and time for the pure rooms.

pub mod accept;
pub mod admit;
pub mod config;
pub mod dns;

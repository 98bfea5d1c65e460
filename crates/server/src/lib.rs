//! Sockets, TLS, names, threads and time for the pure rooms.

pub mod config;
pub mod control;
pub mod env;

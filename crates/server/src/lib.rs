//! Sockets, TLS, names, threads and time for the pure rooms.

#![deny(unsafe_code)]

pub mod config;
pub mod control;
pub mod env;

//! Sockets, TLS, names, threads and time for the pure rooms.

#![deny(unsafe_code)]

pub mod auth;
pub mod config;
pub mod env;
pub mod tls;

//! Commands of the built program as a user meets them, and the program beside directories, name services and sendmail's
//! answers.

#![allow(clippy::indexing_slicing, reason = "an index out of bounds fails the test")]

mod answers;
mod auth;
mod cluster;
mod cluster_leave;
mod config;
mod control;
mod demo;
mod dkim;
mod filter;
mod import;
mod ldap;
mod nss;
mod oracle;
mod reason;
mod setup;
mod sim;
mod spool;
mod stats;

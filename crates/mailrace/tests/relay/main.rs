//! The built server between clients and next hops, over TCP: an accepted message arrives once, or its sender gets a
//! report.
//!
//! Next hops are threads of the test ([`hop`]) that behave as they are told. Every test starts a server of its own on
//! free ports with a spool of its own. Nothing sleeps: a test waits for an expected event, with a limit. Whether there
//! was more than that is asked when the server has ended and its spool is empty.
#![allow(clippy::indexing_slicing, reason = "a test program: an index that is out of range is a failure")]

mod balancer;
mod bounce;
mod cluster;
mod cluster_adopt;
mod cluster_hosts;
mod cluster_leave;
mod cluster_operator;
mod cluster_push;
mod digest;
mod dsn;
mod early;
mod expansions;
mod extensions;
mod fields;
mod filters;
mod given;
mod history;
mod hop;
mod hostile;
mod hosts;
mod log;
mod logins;
mod mailtest;
mod maps;
mod operator;
mod outside;
mod poison;
mod readers;
mod refused;
mod report;
mod reroute;
mod restart;
mod routes;
mod signatures;
mod stats;
mod steering;
mod storm;
mod tags;
mod takeover;
mod watch;
mod webhook;
mod wire;
mod world;
mod zones;

//! The built server, over TCP: its promises to clients and to its operator, seen from outside.
//!
//! Every test starts a server of its own on free ports with a spool of its own; nothing waits for time but the limits
//! that are measured in it. The spool is read when the server is dead.
#![allow(clippy::indexing_slicing, reason = "a test program: an index that is out of range is a failure")]

mod accept;
mod auth;
mod dialogs;
mod end;
mod hardening;
mod http;
mod http_page;
mod http_tls;
mod limits;
mod log;
mod operator;
mod queue;
mod relaying;
mod reload;
mod screen;
mod start;
mod storage;
mod tags;
mod terminal;
mod tls;
mod trust;
mod verify;

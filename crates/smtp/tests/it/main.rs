//! Server and client state machines seen from outside: dialogs as data, a model, random input, both against each other.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic fails the test")]

mod client_and_server;
mod client_dialogs;
mod client_memory;
mod dialogs;
mod folder;
mod fuzz_bodies;
mod model;
mod smuggling;
mod state;
mod times;

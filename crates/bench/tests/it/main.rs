//! The load of `mailrace storm` against servers of the test's own, and the simulated internet over real sockets.

#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "a panic fails the test")]

mod internet;
#[cfg(feature = "rigs")]
mod power_disk;
mod storm;

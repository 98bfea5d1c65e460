//! Load for `mailrace storm`, a receiver that remembers for `mailrace demo`, the sockets of `mailrace sim`, and with
//! the feature `rigs` what the program `mailrace-bench` is made of: measurements and proof rigs.

#![forbid(unsafe_code)]

#[cfg(feature = "rigs")]
pub mod accept_bench;
mod clock;
#[cfg(feature = "rigs")]
pub mod crash;
#[cfg(feature = "rigs")]
pub mod expand_bench;
#[cfg(feature = "rigs")]
pub mod filter_bench;
#[cfg(feature = "rigs")]
pub mod filtered_bench;
pub mod internet;
#[cfg(feature = "rigs")]
pub mod list_bench;
#[cfg(feature = "rigs")]
pub mod logs_bench;
#[cfg(feature = "rigs")]
mod machine;
#[cfg(feature = "rigs")]
pub mod maps_bench;
#[cfg(feature = "rigs")]
pub mod queue_bench;
pub mod receiver;
#[cfg(feature = "rigs")]
pub mod relay_bench;
#[cfg(feature = "rigs")]
mod side_by_side;
#[cfg(feature = "rigs")]
pub mod sign_bench;
pub mod storm;
#[cfg(feature = "rigs")]
pub mod verify_bench;

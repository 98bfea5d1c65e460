//! Measurements and proof rigs: what the program `mailrace-bench` is made of.

#![forbid(unsafe_code)]

mod clock;
pub mod crash;
pub mod engines;
pub mod spool_bench;

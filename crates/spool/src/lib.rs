//! The durable log: the only room that stores mail.

#![deny(unsafe_code)]

pub mod buffer;
pub mod disk;

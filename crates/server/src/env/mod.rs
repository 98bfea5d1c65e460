//! What the operating system is asked for: time.

pub mod clock;

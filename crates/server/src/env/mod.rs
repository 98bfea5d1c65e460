//! What the operating system is asked for: time, and later users, limits, signals and the service manager.

pub mod clock;

//! Services of the machine and of the process that started the server: time, users, limits, signals, the service
//! manager.
//!
//! A start goes through these files in this order, and all of it happens before the first thread exists,
//! because user ids belong to single threads, and the environment has no lock:
//!
//! 1. [`systemd`] takes what the service manager left in the environment, and the sockets it opened;
//! 2. [`machine`] says who and where we are, [`limits`] allows more open files, [`memory`] sets the size of pages;
//! 3. the caller binds what is still to bind;
//! 4. [`accounts`] finds the user to become, [`privileges`] gives it its directories and becomes it, for good;
//! 5. [`landlock`] and [`seccomp`] close files and system calls that are not needed from then on.
//!
//! The helper of local delivery, which stays root, keeps few [`capabilities`]. Afterwards [`addresses`], [`clock`],
//! [`error`], [`signals`] and [`quickack`] serve the running server. `unsafe` stands here and in the disk of the spool,
//! nowhere else; each block says why it is sound.

#![deny(unsafe_code)]

pub mod accounts;
pub mod addresses;
pub mod blocking;
pub mod capabilities;
pub mod clock;
pub mod descriptors;
pub mod error;
pub mod landlock;
pub mod limits;
pub mod login;
pub mod machine;
pub mod memory;
pub mod nss;
pub mod privileges;
pub mod quickack;
pub mod safe_file;
pub mod seccomp;
pub mod signals;
pub mod systemd;
#[cfg(any(test, feature = "sim"))]
pub mod test_deadline;
pub mod threads;
pub mod turns;

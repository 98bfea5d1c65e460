//! What the server asks of the machine and of whoever started it: time, users, limits, signals, the service manager.
//!
//! A start goes through these files in this order, and all of it happens before the first thread exists,
//! because user ids and the environment belong to single threads and to nobody:
//!
//! 1. [`systemd`] takes what the service manager left in the environment, and the sockets it opened;
//! 2. [`machine`] says who and where we are, [`limits`] allows more open files;
//! 3. the caller binds what is still to bind;
//! 4. [`accounts`] finds the user to become, [`privileges`] gives it its directories and becomes it, for good;
//! 5. [`landlock`] and [`seccomp`] close what is not needed from then on.
//!
//! The helper of local delivery, which stays root, keeps few [`capabilities`]. Afterwards [`addresses`], [`clock`], [`signals`] and [`quickack`] serve the running server. This is the one folder of the crate in which
//! `unsafe` may stand; each block says why it is sound.

pub mod accounts;
pub mod addresses;
pub(crate) mod blocking;
pub mod capabilities;
pub mod clock;
pub mod descriptors;
pub mod landlock;
pub mod limits;
pub mod machine;
pub mod nss;
#[cfg(test)]
pub(crate) mod patience;
pub mod privileges;
pub mod quickack;
pub(crate) mod safe_file;
pub mod seccomp;
pub mod signals;
pub mod systemd;
pub(crate) mod threads;
pub(crate) mod turns;

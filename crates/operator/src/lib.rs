//! Values that the server and the commands of an operator share.
//!
//! [`answers`] has the answers of the control socket as structs: the server fills them in, the commands `status`,
//! `queue`, `mailq`, `hoststat` and `mailstats` read them. [`mailer_statistics`] counts messages by mailer,
//! [`delivery_watch`] passes delivery results to sessions that wait for them.

#![forbid(unsafe_code)]

pub mod answers;
pub mod delivery_watch;
pub mod mailer_statistics;

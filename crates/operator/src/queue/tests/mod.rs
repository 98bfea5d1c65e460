//! Commands on a real spool on a simulated disk, with a dispatcher that records its commands.

mod actions;
mod answers;
mod held_mail;
mod not_owned;
pub(super) mod trial;

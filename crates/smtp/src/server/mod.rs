//! The server's side of a conversation.

mod auth;
mod command;
mod commands;
mod content;
mod expiry;
mod forgiving;
mod header;
mod lines;
mod message;
mod phase;
mod replies;
mod session;
mod settings;
mod step;
mod times;
mod view;
mod xclient;

pub(crate) use session::NOTES_MAX;
pub use session::Session;
pub use settings::{AuthOffer, BareNewline, Dialect, Forgiving, Limits, Settings};
pub use step::{Ending, Note, Question, Step, Tls, Transaction, Verdict, Xclient};

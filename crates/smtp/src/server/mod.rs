//! The server's side of a conversation.

mod session;
mod settings;
mod step;

pub use session::Session;
pub use settings::{AuthOffer, BareNewline, Dialect, Limits, Settings};
pub use step::{Ending, Note, Question, Step, Tls, Transaction, Verdict, Xclient};

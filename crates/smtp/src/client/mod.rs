//! The client's side of a conversation.

mod offers;
mod session;
mod settings;
mod step;

pub use offers::{Offers, PeerLimits};
pub use session::Session;
pub use settings::{Dialect, Limits, Settings, TlsUse};
pub use step::{Answer, Closing, Finished, Loss, Misfit, Outcome, Stage, Step, Transaction};

//! The client's side of a conversation.

mod answers;
mod authentication;
mod commands;
mod dots;
mod ending;
mod exchange;
mod flight;
mod login;
mod offers;
mod open;
mod output;
mod replies;
mod session;
mod settings;
mod step;

pub use login::{FailedMechanism, Login, Mechanism, Security, UNVERIFIED};
pub use offers::{Mechanisms, Offers, PeerLimits};
pub use session::Session;
pub use settings::{Dialect, Limits, Settings, TlsUse};
pub use step::{Answer, Closing, Finished, Loss, Misfit, Outcome, Stage, Step, Transaction};

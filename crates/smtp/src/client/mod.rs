//! The client's side of a conversation.

mod answers;
mod authentication;
mod commands;
mod dots;
mod ending;
mod exchange;
mod flight;
mod login;
mod mechanism;
mod offers;
mod open;
mod output;
mod replies;
mod reply_stream;
mod session;
mod settings;
mod step;

pub use dots::data_octets;
pub use login::{FailedMechanism, Login, Security, UNVERIFIED};
pub use mechanism::{Mechanism, Mechanisms};
pub use offers::{Offers, PeerLimits};
pub use reply_stream::{ReplyFault, ReplyStream};
pub use session::ClientSession;
pub use settings::{ClientDialect, ClientLimits, ClientSettings, TlsUse};
pub use step::{Answer, ClientStep, ClientTransaction, Closing, Finished, Loss, Misfit, Outcome, Stage};

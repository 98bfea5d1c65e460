//! The session: from the greeting to QUIT.

use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use super::offers::Offers;
use super::settings::Settings;
use super::step::{Closing, Misfit, Step, Transaction};

/// One conversation, seen from the client.
#[derive(Debug)]
pub struct Session {
    settings: Arc<Settings>,
    offers: Offers,
    closing: Option<Closing>,
}

impl Session {
    /// A session on a connection that has just been made.
    #[must_use]
    pub fn new(settings: Arc<Settings>) -> Self {
        Self { settings, offers: Offers::default(), closing: None }
    }

    /// Takes what the server has said.
    pub fn receive(&mut self, _input: &[u8], _now: Duration) {}

    /// The server has closed the connection, or the network has.
    pub fn end_of_input(&mut self, _now: Duration) {}

    /// A deadline may have passed.
    pub fn expire(&mut self, _now: Duration) {}

    /// What the driver has to do next.
    pub fn step(&mut self) -> Step {
        Step::Wait
    }

    /// When, counted from the beginning, [`Session::expire`] is to be called; `Duration::MAX` for never.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        self.settings.limits.greeting
    }

    /// Puts what is to be sent into `into`, and says how many slices there are.
    pub fn output_slices<'a>(&'a self, _into: &mut [IoSlice<'a>]) -> usize {
        0
    }

    /// Whether something is to be sent.
    #[must_use]
    pub const fn has_output(&self) -> bool {
        false
    }

    /// So many octets of the output were sent.
    pub fn sent(&mut self, _octets: usize, _now: Duration) {}

    /// After [`Step::StartTls`]: the handshake is done.
    pub fn tls_started(&mut self, _now: Duration) {}

    /// Whether EHLO, HELO or LHLO has been answered for good: transactions can be begun.
    #[must_use]
    pub const fn is_greeted(&self) -> bool {
        false
    }

    /// What the server offers.
    #[must_use]
    pub const fn offers(&self) -> &Offers {
        &self.offers
    }

    /// How the server names itself.
    #[must_use]
    pub fn peer_name(&self) -> Option<&str> {
        None
    }

    /// Whether a transaction may be sent to this server as it is.
    ///
    /// # Errors
    /// Why not.
    pub fn fits(&self, _transaction: &Transaction) -> Result<(), Misfit> {
        Ok(())
    }

    /// After [`Step::Ready`]: begins a transaction that [`Session::fits`].
    pub fn begin(&mut self, _transaction: Transaction, _now: Duration) {}

    /// After [`Step::Content`]: the next piece.
    pub fn content(&mut self, _piece: Bytes, _now: Duration) {}

    /// After [`Step::Content`]: the content cannot be read any more. The session is over.
    pub fn abort_content(&mut self, _now: Duration) {}

    /// Says QUIT when all open transactions are over.
    pub fn quit(&mut self, _now: Duration) {}

    /// Why the conversation ended.
    #[must_use]
    pub const fn closing(&self) -> Option<&Closing> {
        self.closing.as_ref()
    }

    /// Transactions that are open.
    #[must_use]
    pub const fn in_flight(&self) -> usize {
        0
    }
}

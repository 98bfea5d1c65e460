//! SKELETON: signatures only.

use super::{Ending, Note, Settings, Step, Tls, Transaction, Verdict, Xclient};
use mail::{Client, HeloName, Protocol, Recipient, Reply};
use std::sync::Arc;
use std::time::Duration;

/// One conversation, seen from the server.
#[derive(Debug)]
pub struct Session {
    settings: Arc<Settings>,
    client: Client,
}

#[allow(unused_variables, missing_docs, clippy::todo, clippy::missing_panics_doc)]
impl Session {
    /// A session that has said nothing yet. All times are counted from here.
    ///
    /// `tls` is given where the connection began with TLS.
    pub fn new(settings: Arc<Settings>, client: Client, tls: Option<Tls>) -> Self { Self { settings, client } }

    /// Ends the pause before the greeting: the client may speak (`Accept`), or is turned away (`Refuse` with 554 keeps the
    /// connection and answers 503 to all but QUIT, RFC 5321 §3.1; `Close`). Input given to `advance` before makes
    /// the client an early talker: 554 5.5.0 and close, whatever the verdict.
    pub fn greet(&mut self, verdict: Verdict, now: Duration) { todo!() }

    /// Uses input and says what to do next, and how much of `input` was used. What was not used is given again.
    ///
    /// # Panics
    /// When a question is open.
    pub fn advance(&mut self, input: &[u8], now: Duration) -> (usize, Step) { todo!() }

    /// What is to be sent. The driver clears it with [`Session::sent`].
    pub fn output(&self) -> &[u8] { todo!() }
    /// `bytes` of the output were sent.
    pub fn sent(&mut self, bytes: usize) { todo!() }

    /// Answers Helo, Mail, Recipient, Xclient; Data when it is refused.
    pub fn answer(&mut self, verdict: Verdict, now: Duration) { todo!() }
    /// Answers Verify and Expand.
    pub fn answer_with(&mut self, reply: Reply) { todo!() }
    /// Answers Data: the content may come; `trace` is put in front of it and counts for no limit.
    pub fn begin_content(&mut self, trace: &[u8], now: Duration) { todo!() }
    /// Content so far that was not yet taken, with the trace line in front of the first piece. CRLF line ends, dots
    /// unstuffed.
    pub fn take_content(&mut self) -> Vec<u8> { todo!() }
    /// Answers Message. One verdict, or in LMTP one for each recipient in order. The transaction is over.
    pub fn finish(&mut self, verdicts: &[Verdict], now: Duration) { todo!() }

    pub fn auth_mechanism(&self) -> &str { todo!() }
    pub fn auth_response(&self) -> Option<&[u8]> { todo!() }
    pub fn auth_challenge(&mut self, challenge: &[u8]) { todo!() }
    /// `last` is data the mechanism sends with success; where it exists it goes as one more 334 whose answer is empty.
    pub fn auth_succeeded(&mut self, identity: &str) { todo!() }
    pub fn auth_failed(&mut self, verdict: Verdict) { todo!() }

    /// After [`Step::StartTls`]: the session is as new, HELO and AUTH forgotten.
    pub fn tls_started(&mut self, tls: Tls, now: Duration) { todo!() }

    /// XCLIENT is offered from now on.
    pub fn trust_xclient(&mut self) { todo!() }

    /// When, counted from the beginning, [`Session::expire`] is to be called unless the session moves before.
    pub fn deadline(&self) -> Duration { todo!() }
    /// A deadline has passed: puts 421 in the output. The next step is Close (if the deadline has really passed).
    pub fn expire(&mut self, now: Duration) -> bool { todo!() }
    /// The server is going down: 421 4.3.2 at the next point where no transaction is open. True if that is now.
    pub fn shut_down(&mut self, now: Duration) -> bool { todo!() }

    pub fn client(&self) -> &Client { &self.client }
    pub fn settings(&self) -> &Arc<Settings> { &self.settings }
    /// New settings from the next transaction on.
    pub fn replace_settings(&mut self, settings: Arc<Settings>) { todo!() }
    pub fn helo(&self) -> Option<&HeloName> { todo!() }
    pub fn protocol(&self) -> Protocol { todo!() }
    pub fn tls(&self) -> Option<&Tls> { todo!() }
    /// The authenticated user.
    pub fn identity(&self) -> Option<&str> { todo!() }
    pub fn transaction(&self) -> Option<&Transaction> { todo!() }
    /// The recipient that [`super::Question::Recipient`] is about.
    pub fn candidate(&self) -> Option<&Recipient> { todo!() }
    pub fn argument(&self) -> &str { todo!() }
    pub fn xclient(&self) -> Option<&Xclient> { todo!() }
    /// Octets of content of the open message, stored form, without trace line.
    pub fn content_bytes(&self) -> u64 { todo!() }
    /// The Message-ID of the open message once its header has passed, for the log; at most 256 octets, printable.
    pub fn message_id(&self) -> Option<&str> { todo!() }
    /// Takes what is to be logged; at most 100 since the last call.
    pub fn take_notes(&mut self) -> Vec<Note> { todo!() }
    /// The connection is gone or closed.
    pub fn ending(&self) -> Ending { todo!() }
}

//! The session: the calls of its driver, and the conversation around the transactions.
//!
//! The driver sends the slices of [`ClientSession::output_slices`] and reports it with [`ClientSession::sent`], gives
//! its input to [`ClientSession::receive`], and after each of these calls [`ClientSession::step`] until that returns
//! Wait or Closed (or Ready, when it has nothing to send). `flight` writes transactions, `answers` applies replies to
//! them, `ending` ends the session.
//!
//! Invariants: replies belong to commands in order; a recipient is delivered only by a 2xx to content of which every
//! octet was sent; every transaction that was begun comes out once.
//!
//! Not here: the use of a result, and the choice of the server.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;

use mail::{AttemptPhase, PhaseTimes, Reply, ReplyClass};

use super::commands;
use super::exchange::LoginExchange;
use super::login::{FailedMechanism, Security};
use super::offers::Offers;
use super::open::PendingTransaction;
use super::output::Output;
use super::replies::{Form, Raw, ReplyReader};
use super::settings::{ClientDialect, ClientSettings, TlsUse};
use super::step::{ClientStep, ClientTransaction, Closing, Finished, Loss, Misfit, Stage};

/// Where the conversation stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ClientPhase {
    Greeting,
    /// EHLO or LHLO was said.
    Extended,
    /// HELO was said.
    Plain,
    StartTls,
    Handshake,
    /// AUTH was said.
    Login,
    Up,
    /// QUIT was said, perhaps behind transactions that await replies.
    Quit,
    Closed,
}

/// The end is known, and answers may still come.
#[derive(Debug)]
pub(super) struct PendingClose {
    pub(super) closing: Closing,
    pub(super) until: Duration,
}

/// One conversation, seen from the client.
#[derive(Debug)]
pub struct ClientSession {
    pub(super) settings: Arc<ClientSettings>,
    pub(super) phase: ClientPhase,
    pub(super) offers: Offers,
    pub(super) security: Security,
    is_greeted: bool,
    peer_name: Option<Box<str>>,
    /// The reply to EHLO, while HELO is tried.
    pub(super) ehlo_refusal: Option<Reply>,
    /// The dialog of AUTH.
    pub(super) exchange: Option<LoginExchange>,
    /// Mechanisms of AUTH that the server refused.
    pub(super) failed_mechanisms: Vec<FailedMechanism>,
    pub(super) reader: ReplyReader,
    /// Replies before the first transaction that nothing asked for.
    spare_replies: usize,
    pub(super) out: Output,
    /// In the order in which they were begun. Only the last may be partly written.
    pub(super) open: VecDeque<PendingTransaction>,
    pub(super) finished: VecDeque<Finished>,
    /// When the first line without a code came where a reply is awaited.
    pub(super) noise_since: Option<Duration>,
    /// When something was last sent or answered.
    pub(super) progress: Duration,
    /// When the first of the open transactions was begun, or the one before it was over.
    pub(super) turn_began: Duration,
    /// How long the phases since the end of the last transaction took, and when the phase at hand began.
    pub(super) times: PhaseTimes,
    pub(super) phase_began: Duration,
    /// The server may have a transaction open that is none here.
    pub(super) needs_rset: bool,
    /// Messages whose end was answered.
    pub(super) messages: u64,
    pub(super) wants_quit: bool,
    /// Transactions behind those that are open were withdrawn: the last answer to these is the end.
    pub(super) is_cut: bool,
    pub(super) pending_close: Option<PendingClose>,
    pub(super) closing: Option<Closing>,
}

impl ClientSession {
    /// A session on a connection that has just been made; its time begins at zero.
    #[must_use]
    pub fn new(settings: Arc<ClientSettings>) -> Self {
        Self {
            settings,
            phase: ClientPhase::Greeting,
            offers: Offers::default(),
            security: Security::Clear,
            is_greeted: false,
            peer_name: None,
            ehlo_refusal: None,
            exchange: None,
            failed_mechanisms: Vec::new(),
            reader: ReplyReader::default(),
            spare_replies: 0,
            out: Output::default(),
            open: VecDeque::new(),
            finished: VecDeque::new(),
            noise_since: None,
            progress: Duration::ZERO,
            turn_began: Duration::ZERO,
            times: PhaseTimes::default(),
            phase_began: Duration::ZERO,
            needs_rset: false,
            messages: 0,
            wants_quit: false,
            is_cut: false,
            pending_close: None,
            closing: None,
        }
    }

    /// Takes what the server has said. Output that has left must have been reported by [`ClientSession::sent`] before.
    pub fn receive(&mut self, mut input: &[u8], now: Duration) {
        let mut reader = std::mem::take(&mut self.reader);
        while !input.is_empty() && self.phase != ClientPhase::Closed {
            // RFC 3207 §5: text in clear behind the 220 may be an attacker's; a server says nothing before the client's
            // hello
            if self.phase == ClientPhase::Handshake {
                self.lose(Loss::Injected);
                break;
            }
            let form = if self.phase == ClientPhase::StartTls { Form::Strict } else { Form::Lenient };
            match reader.read(input, form, &self.settings.limits) {
                // Octets that were put in front of the reply to STARTTLS make nonsense of it.
                Err(_) if self.phase == ClientPhase::StartTls => self.lose(Loss::Injected),
                Err(what) => self.lose(Loss::Protocol(what)),
                Ok((used, found)) => {
                    if let Some(raw) = found {
                        self.progress = self.progress.max(now);
                        self.take(&raw, now);
                    }
                    input = input.get(used..).unwrap_or_default();
                }
            }
        }
        reader.release();
        self.noise_since = reader.has_only_noise().then(|| self.noise_since.unwrap_or(now));
        self.reader = reader;
    }

    /// The server has closed the connection, or the network has.
    ///
    /// A last line that has a code and no line end counts: the server had nothing more to say.
    pub fn end_of_input(&mut self, now: Duration) {
        let mut reader = std::mem::take(&mut self.reader);
        let is_asked = self.out.is_empty()
            && !matches!(self.phase, ClientPhase::StartTls | ClientPhase::Handshake | ClientPhase::Closed);
        if let Some(raw) = is_asked.then(|| reader.read_unfinished(&self.settings.limits)).flatten()
            // A success that opens the way for commands leads nowhere now.
            && (matches!(self.phase, ClientPhase::Up | ClientPhase::Quit) || raw.code.class() != ReplyClass::Success)
        {
            self.take(&raw, now);
        }
        self.reader = reader;
        self.lose(self.reader.loss(Loss::Closed));
    }

    /// Returns the next task of the driver. Ready and Content come again as long as they hold.
    pub fn step(&mut self) -> ClientStep {
        if let Some(finished) = self.finished.pop_front() {
            return ClientStep::Done(finished);
        }
        match self.phase {
            ClientPhase::Closed => ClientStep::Closed,
            ClientPhase::Handshake => ClientStep::StartTls,
            ClientPhase::Up if self.wants_content() => ClientStep::Content,
            ClientPhase::Up if self.can_begin() => ClientStep::Ready,
            _ => ClientStep::Wait,
        }
    }

    /// Puts the output into `into`, and returns the number of slices; there may be more than fit.
    pub fn output_slices<'a>(&'a self, into: &mut [IoSlice<'a>]) -> usize {
        self.out.slices(into)
    }

    /// Whether something is to be sent.
    #[must_use]
    pub fn has_output(&self) -> bool {
        !self.out.is_empty()
    }

    /// Counts so many octets of the output as sent; they cannot be taken back.
    ///
    /// # Panics
    /// When there was less to send.
    pub fn sent(&mut self, octets: usize, now: Duration) {
        self.out.sent(octets);
        if octets > 0 {
            self.progress = self.progress.max(now);
        }
    }

    /// After [`ClientStep::StartTls`]: the handshake is done, and EHLO is sent again. `is_verified`: a
    /// trusted authority has signed the certificate for this server.
    ///
    /// # Panics
    /// When no handshake was asked for.
    pub fn tls_started(&mut self, is_verified: bool, now: Duration) {
        assert!(self.phase == ClientPhase::Handshake, "tls_started() without Step::StartTls");
        // RFC 3207 §4.2: all that was learnt before is forgotten
        self.security = if is_verified { Security::Verified } else { Security::Encrypted };
        self.offers = Offers::default();
        self.peer_name = None;
        self.reader = ReplyReader::default();
        self.progress = self.progress.max(now);
        self.end_phase(AttemptPhase::Tls, now);
        self.say_hello();
    }

    /// Whether EHLO, HELO or LHLO has been answered for good: transactions can be begun.
    #[must_use]
    pub const fn is_greeted(&self) -> bool {
        self.is_greeted
    }

    /// Returns the extensions that the server offers.
    #[must_use]
    pub const fn offers(&self) -> &Offers {
        &self.offers
    }

    /// How the server names itself, for logs: printable, at most 255 octets.
    #[must_use]
    pub fn peer_name(&self) -> Option<&str> {
        self.peer_name.as_deref()
    }

    /// Whether a transaction may be sent to this server as it is.
    ///
    /// # Errors
    /// Why not.
    pub fn fits(&self, transaction: &ClientTransaction) -> Result<(), Misfit> {
        let is_relay = self.settings.dialect == ClientDialect::Smtp;
        commands::misfit(transaction, &self.offers, self.chunking(), is_relay).map_or(Ok(()), Err)
    }

    /// Says QUIT when no transaction is open any more, or behind the last one where that is allowed.
    pub fn quit(&mut self, now: Duration) {
        self.wants_quit = true;
        self.touch(now);
        self.speak();
    }

    /// Why the conversation ended.
    #[must_use]
    pub const fn closing(&self) -> Option<&Closing> {
        self.closing.as_ref()
    }

    /// Transactions that are open.
    #[must_use]
    pub fn in_flight(&self) -> usize {
        self.open.len()
    }

    /// Whether commands go without waiting for the replies to those before.
    #[must_use]
    pub fn pipelining(&self) -> bool {
        self.offers.pipelining && self.settings.pipelining
    }

    /// Whether content goes by BDAT, but for LMTP.
    #[must_use]
    pub fn chunking(&self) -> bool {
        self.offers.chunking && self.settings.chunking
    }

    /// A time begins with our own doing, if none was running.
    pub(super) fn touch(&mut self, now: Duration) {
        if self.out.is_empty() {
            self.progress = self.progress.max(now);
        }
    }

    /// Adds the time of a phase that ends now; the next one begins.
    fn end_phase(&mut self, phase: AttemptPhase, now: Duration) {
        self.times.add(phase, now.saturating_sub(self.phase_began));
        self.phase_began = now;
    }

    /// A reply has come.
    fn take(&mut self, raw: &Raw<'_>, now: Duration) {
        let is_early = !self.out.is_empty();
        if self.is_spare(raw, is_early) {
            self.spare_replies += 1;
            return;
        }
        if let Some(phase) = self.stage().phase() {
            self.end_phase(phase, now);
        }
        match self.phase {
            // A reply before the command has left: it waits there for the command, to be taken for the answer.
            ClientPhase::StartTls if is_early && raw.code.get() != DISMISSAL => self.lose(Loss::Injected),
            ClientPhase::Extended | ClientPhase::Plain | ClientPhase::StartTls | ClientPhase::Login if is_early => {
                self.unsolicited(raw)
            }
            ClientPhase::Greeting => self.take_greeting(raw),
            ClientPhase::Extended => self.take_extended(raw),
            ClientPhase::Plain => match raw.code.class() {
                ReplyClass::Success => self.hello_done(raw),
                _ => self.refused(Stage::Hello, raw),
            },
            ClientPhase::StartTls => match raw.code.class() {
                ReplyClass::Success => self.phase = ClientPhase::Handshake,
                // RFC 3207 §4.1: the client decides whether it goes on in clear
                ReplyClass::Transient | ReplyClass::Permanent
                    if self.settings.tls == TlsUse::IfOffered && raw.code.get() != DISMISSAL =>
                {
                    self.log_in();
                }
                _ => self.refused(Stage::StartTls, raw),
            },
            ClientPhase::Login => self.take_login(raw),
            ClientPhase::Up => self.take_answer(raw, now),
            ClientPhase::Quit if !self.open.is_empty() => self.take_answer(raw, now),
            ClientPhase::Quit => self.quit_done(),
            ClientPhase::Handshake | ClientPhase::Closed => {}
        }
    }

    /// Whether a reply that nothing asked for belongs to the one before it: a server wrote each line of the greeting or
    /// of the reply to EHLO as a last line. Only before the first transaction, and a bounded number of them: later such
    /// a reply could be taken for the answer to a command.
    fn is_spare(&self, raw: &Raw<'_>, is_early: bool) -> bool {
        let is_unasked = match self.phase {
            ClientPhase::Extended => is_early || raw.code.get() == GREETING,
            ClientPhase::Plain => is_early,
            ClientPhase::Up => {
                let sent_to = self.out.sent_to();
                let has_begun = self.open.front().is_some_and(|open| sent_to > open.begins_at);
                self.messages == 0 && self.finished.is_empty() && !has_begun
            }
            _ => false,
        };
        let is_success = raw.code.class() == ReplyClass::Success;
        is_unasked && is_success && self.spare_replies < self.settings.limits.reply_lines
    }

    // RFC 5321 §3.1: 220 opens, 554 refuses
    fn take_greeting(&mut self, raw: &Raw<'_>) {
        if raw.code.class() != ReplyClass::Success {
            return self.refused(Stage::Greeting, raw);
        }
        self.learn_name(raw);
        self.say_hello();
    }

    fn take_extended(&mut self, raw: &Raw<'_>) {
        match raw.code.class() {
            ReplyClass::Success => {
                // RFC 5321 §4.1.1.1: the reply lists the extensions offered
                self.offers = Offers::read(raw.lines()).of_use(&self.settings);
                self.hello_done(raw);
            }
            // RFC 5321 §3.2: a server that does not know EHLO knows HELO
            // RFC 2033 §4.1: LHLO has no older form
            ReplyClass::Permanent if self.settings.dialect == ClientDialect::Smtp => {
                self.ehlo_refusal = Some(raw.reply());
                self.out.write(format_args!("HELO {}\r\n", self.settings.hello));
                self.phase = ClientPhase::Plain;
            }
            _ => self.refused(Stage::Hello, raw),
        }
    }

    fn say_hello(&mut self) {
        let verb = match self.settings.dialect {
            ClientDialect::Smtp => "EHLO",
            ClientDialect::Lmtp => "LHLO",
        };
        self.out.write(format_args!("{verb} {}\r\n", self.settings.hello));
        self.phase = ClientPhase::Extended;
    }

    fn hello_done(&mut self, raw: &Raw<'_>) {
        self.learn_name(raw);
        self.ehlo_refusal = None;
        let tls = if self.security > Security::Clear { TlsUse::Never } else { self.settings.tls };
        match (tls, self.offers.starttls) {
            (TlsUse::IfOffered | TlsUse::Required, true) => {
                self.out.text(b"STARTTLS\r\n");
                self.phase = ClientPhase::StartTls;
            }
            (TlsUse::Required, false) => {
                let loss = Some(Loss::Protocol("TLS is required and STARTTLS is not offered"));
                self.leave(Closing { stage: Stage::StartTls, reply: None, loss, orderly: false });
            }
            _ => self.log_in(),
        }
    }

    pub(super) fn go_up(&mut self) {
        self.phase = ClientPhase::Up;
        self.is_greeted = true;
        self.speak();
    }

    /// Keeps the first word of a reply.
    fn learn_name(&mut self, raw: &Raw<'_>) {
        let line = raw.lines().next().unwrap_or_default();
        let word = line.split(u8::is_ascii_whitespace).find(|word| !word.is_empty());
        if let Some(word) = word.and_then(|word| word.get(..word.len().min(255))) {
            let text = String::from_utf8_lossy(word);
            self.peer_name = Some(text.chars().map(|c| if c.is_ascii_graphic() { c } else { '?' }).collect());
        }
    }
}

/// The code of a greeting.
const GREETING: u16 = 220;

/// The code with which a server says that it closes.
pub(super) const DISMISSAL: u16 = 421;

//! One conversation, seen from the server: the calls of its driver, and its state.
//!
//! `advance` works through input until it needs an answer, an action or more input; replies pile up in `output`, so
//! that the replies to pipelined commands leave in one write. Commands are carried out in `commands.rs` and
//! `message.rs`, AUTH in `auth.rs`, time in `times.rs`.
//!
//! Invariants: at most one question is open; a transaction ends at the latest with the message, with an error in its
//! content, with RSET, with a new HELO, with TLS; after [`Step::Close`] no input is looked at any more.

use std::sync::Arc;
use std::time::Duration;

use mail::{Client, Recipient, Reply, ReplyClass};

use super::command::{self, TLS_RECORD};
use super::content::Content;
use super::lines::{LineEnd, LineReader};
use super::phase::{AuthExchange, Counts, Hello, OpenTransaction, PendingQuestion, Phase};
use super::replies::{CloseReason, Refusal, printable, say};
use super::times::Times;
use super::{Dialect, Ending, Note, Question, Settings, Step, Tls, Transaction, Verdict, Xclient};

/// Notes kept until they are taken.
pub(crate) const NOTES_MAX: usize = 100;
/// Room for output that is kept while there is none.
const IDLE_OUTPUT_OCTETS: usize = 1_024;

/// One conversation, seen from the server.
///
/// ```
/// use smtp::server::{Question, Session, Settings, Step, Verdict};
/// use std::{sync::Arc, time::Duration};
///
/// let client = mail::Client::Network("192.0.2.1:1025".parse().expect("an address"));
/// let mut session = Session::new(Arc::new(Settings::new("mx.example")), client, None);
/// let now = Duration::ZERO;
/// session.greet(Verdict::Accept, now);
/// assert_eq!(session.output(), b"220 mx.example ESMTP mailrace ready\r\n");
/// session.sent(session.output().len());
/// assert_eq!(session.advance(b"HELO a.example\r\nQUIT\r\n", now), (16, Step::Ask(Question::Helo)));
/// session.answer(Verdict::Accept, now);
/// assert_eq!(session.advance(b"QUIT\r\n", now), (6, Step::Close));
/// ```
#[derive(Debug)]
pub struct Session {
    pub(super) settings: Arc<Settings>,
    pub(super) next_settings: Option<Arc<Settings>>,
    pub(super) client: Client,
    pub(super) tls: Option<Tls>,
    pub(super) phase: Phase,
    output: Vec<u8>,
    pub(super) lines: LineReader,
    pub(super) hello: Option<Hello>,
    /// The new greeting, while the driver decides on it.
    pub(super) new_hello: Option<Hello>,
    pub(super) identity: Option<Box<str>>,
    pub(super) open: Option<OpenTransaction>,
    pub(super) new_transaction: Option<Transaction>,
    pub(super) candidate: Option<Recipient>,
    pub(super) argument: String,
    pub(super) exchange: Option<AuthExchange>,
    pub(super) xclient: Option<Xclient>,
    pub(super) xclient_trusted: bool,
    /// The driver is asked about commands that are not known.
    pub(super) asks_unknown: bool,
    /// The driver counts the client among its own.
    pub(super) client_trusted: bool,
    /// The reply by which the last MAIL was refused for the client.
    pub(super) client_refusal: Option<Reply>,
    /// The wall time from which all times are counted.
    pub(super) began_unix: Option<Duration>,
    pub(super) counts: Counts,
    pub(super) times: Times,
    notes: Vec<Note>,
    /// The driver has to forget content before anything else happens.
    abandon: bool,
    shutting_down: bool,
    /// Greeted with 554: only QUIT is left.
    pub(super) turned_away: bool,
    pub(super) ending: Ending,
}

impl Session {
    /// A session that has said nothing yet. All times are counted from here.
    ///
    /// `tls` is given where the connection began with TLS.
    #[must_use]
    pub fn new(settings: Arc<Settings>, client: Client, tls: Option<Tls>) -> Self {
        let ending = Ending {
            after: "startup",
            issued_command: false,
            in_transaction: false,
            messages: 0,
            quit: false,
            timed_out: false,
        };
        Self {
            settings,
            next_settings: None,
            client,
            tls,
            phase: Phase::Pause,
            output: Vec::new(),
            lines: LineReader::default(),
            hello: None,
            new_hello: None,
            identity: None,
            open: None,
            new_transaction: None,
            candidate: None,
            argument: String::new(),
            exchange: None,
            xclient: None,
            xclient_trusted: false,
            asks_unknown: false,
            client_trusted: false,
            client_refusal: None,
            began_unix: None,
            counts: Counts::default(),
            times: Times::default(),
            notes: Vec::new(),
            abandon: false,
            shutting_down: false,
            turned_away: false,
            ending,
        }
    }

    /// Ends the pause before the greeting: the client may speak (`Accept`), or is turned away (`Refuse` with 554 keeps
    /// the connection and answers 503 to all but QUIT, RFC 5321 §3.1; `Close`). A client that spoke before was answered
    /// 554 5.5.0 by `advance`, and the verdict counts no more.
    pub fn greet(&mut self, verdict: Verdict, now: Duration) {
        if !matches!(self.phase, Phase::Pause) {
            return;
        }
        self.phase = Phase::Command;
        self.times.wait_from(now);
        if self.shutting_down {
            return;
        }
        match verdict {
            Verdict::Accept => self.push_greeting(),
            Verdict::AcceptWith(reply) => self.push(&reply),
            Verdict::Refuse(reply) => {
                self.push(&reply);
                self.turned_away = true;
            }
            Verdict::Close(reply) => {
                self.push(&reply);
                self.phase = Phase::Closing;
            }
        }
    }

    // RFC 5321 §4.3.1; RFC 2033 §3: the greeting says LMTP, no client needs it
    pub(super) fn push_greeting(&mut self) {
        let word = if self.settings.dialect == Dialect::Lmtp { "LMTP" } else { "ESMTP" };
        say(&mut self.output, format_args!("220 {} {word} mailrace ready\r\n", self.settings.hostname));
    }

    /// Uses input and says what to do next, and how much of `input` was used. The caller gives unused input again.
    ///
    /// # Panics
    /// When a question is open.
    pub fn advance(&mut self, input: &[u8], now: Duration) -> (usize, Step) {
        self.times.resume(now);
        let mut used = 0;
        loop {
            if std::mem::take(&mut self.abandon) {
                return (used, Step::Abandon);
            }
            if self.shutting_down && self.may_shut_down() {
                self.close(CloseReason::ShutDown);
            }
            let rest = input.get(used..).unwrap_or_default();
            let (octets, step) = match &self.phase {
                Phase::Asked(asked) => panic!("advance() while {asked:?} is not answered"),
                Phase::Closing => return (input.len(), Step::Close),
                Phase::Handshake => return (input.len(), Step::StartTls),
                _ if rest.is_empty() && !self.is_chunk_complete() => return (used, Step::Read),
                Phase::Pause => {
                    self.early_talker();
                    (0, None)
                }
                Phase::Command | Phase::AuthLine => self.read_line(rest, now),
                Phase::Data => self.read_data(rest, now),
                Phase::Chunk(_) => self.read_chunk(rest, now),
            };
            used += octets;
            match step {
                // RFC 3207 §5: text in clear behind STARTTLS is never looked at
                Some(Step::StartTls) => return (input.len(), Step::StartTls),
                Some(step) => return (used, step),
                None => {}
            }
        }
    }

    // RFC 5321 §4.3.1: a client waits for the greeting
    fn early_talker(&mut self) {
        self.note(Note::EarlyTalker);
        say(
            &mut self.output,
            format_args!("554 5.5.0 {} You spoke before the greeting, closing connection\r\n", self.settings.hostname),
        );
        self.phase = Phase::Closing;
    }

    fn read_line(&mut self, rest: &[u8], now: Duration) -> (usize, Option<Step>) {
        self.times.now = now;
        let is_auth = matches!(self.phase, Phase::AuthLine);
        if !is_auth && self.lines.first_two(rest) == Some(TLS_RECORD) {
            self.foreign(b"TLS handshake");
            return (0, None);
        }
        let limits = &self.settings.limits;
        let max =
            if is_auth { limits.auth_line_bytes } else { limits.command_line_bytes.max(self.auth_command_max(rest)) };
        let (used, found) = self.lines.read(rest, max);
        let step = match found {
            None => None,
            Some(LineEnd::InInput) => self.line(rest.get(..used).unwrap_or_default(), now),
            Some(LineEnd::Held) => {
                let line = self.lines.take();
                let step = self.line(&line, now);
                self.lines.give_back(line);
                step
            }
            Some(LineEnd::TooLong { bare }) => {
                self.times.wait_from(now);
                self.overlong_line(is_auth, bare);
                None
            }
        };
        (used, step)
    }

    /// A line that has just ended, with its line end.
    fn line(&mut self, line: &[u8], now: Duration) -> Option<Step> {
        self.times.wait_from(now);
        let (line, bare) = match line.strip_suffix(b"\r\n") {
            Some(line) => (line, false),
            None => (line.strip_suffix(b"\n").unwrap_or(line), true),
        };
        if self.is_bare(bare || line.contains(&b'\r')) {
            self.refuse_bare(line);
            return None;
        }
        let blanks = self.is_forgiving().then(|| command::blanks(line));
        // RFC 5321 §2.3.8, §4.1.2: no control character belongs into a command
        let line = command::trim_end(blanks.as_deref().unwrap_or(line));
        if line.iter().any(|byte| byte.is_ascii_control()) {
            self.refuse_line(line, &Refusal::ControlCharacter);
            return None;
        }
        if matches!(self.phase, Phase::AuthLine) { self.auth_line(line) } else { self.command(line) }
    }

    /// Whether a bare CR or LF matters in a command.
    fn is_bare(&self, found: bool) -> bool {
        found && !self.normalizes()
    }

    /// Refuses a line with a bare CR or LF, and closes. The lines that follow may be commands or content for the
    /// client, so none is carried out.
    fn refuse_bare(&mut self, line: &[u8]) {
        self.note(Note::BareNewline);
        self.refuse_line(line, &Refusal::BareNewline);
        self.close(CloseReason::AfterNewline);
    }

    /// Refuses a line for its form; an AUTH exchange ends with it.
    fn refuse_line(&mut self, line: &[u8], refusal: &Refusal<'_>) {
        let is_auth = matches!(self.phase, Phase::AuthLine);
        if is_auth {
            self.fail_exchange();
        }
        self.phase = Phase::Command;
        self.refuse(line, refusal);
    }

    fn overlong_line(&mut self, is_auth: bool, bare: bool) {
        let (limit, refusal) = if is_auth {
            ("smtp.auth_line_bytes_max", Refusal::AuthLineTooLong)
        } else {
            ("smtp.command_line_bytes_max", Refusal::LineTooLong)
        };
        self.note(Note::Limit(limit));
        self.refuse_line(b"", &refusal);
        if self.is_bare(bare) {
            self.note(Note::BareNewline);
            self.close(CloseReason::AfterNewline);
        }
    }

    /// Returns the octets to send. The driver clears it with [`Session::sent`].
    #[must_use]
    pub fn output(&self) -> &[u8] {
        &self.output
    }

    /// `bytes` of the output were sent.
    ///
    /// # Panics
    /// When there was less to send.
    pub fn sent(&mut self, bytes: usize) {
        self.output.drain(..bytes);
        // A client that once had many replies need not cost their memory for hours.
        if self.output.is_empty() && self.output.capacity() > IDLE_OUTPUT_OCTETS {
            self.output = Vec::new();
        }
    }

    /// Answers Helo, Mail, Recipient, Unknown, Xclient; Data when it is refused.
    ///
    /// # Panics
    /// When none of these is asked, when Data is accepted by this call, and when a reply has the wrong class.
    pub fn answer(&mut self, verdict: Verdict, now: Duration) {
        check_class(&verdict);
        self.times.wait_from(now);
        match self.take_question() {
            PendingQuestion::Helo => self.answer_helo(verdict),
            PendingQuestion::Mail => self.answer_mail(verdict, now),
            PendingQuestion::Recipient => self.answer_recipient(verdict),
            PendingQuestion::Xclient => self.answer_xclient(verdict),
            PendingQuestion::Unknown(line) => self.answer_unknown(&line, verdict),
            PendingQuestion::Data => self.refuse_data(verdict),
            PendingQuestion::FirstChunk { octets, last } => self.refuse_first_chunk(verdict, octets, last),
            asked => panic!("answer() when {asked:?} is asked"),
        }
    }

    /// Answers Verify and Expand.
    ///
    /// # Panics
    /// When neither is asked.
    pub fn answer_with(&mut self, reply: Reply, now: Duration) {
        self.times.wait_from(now);
        let asked = self.take_question();
        assert!(matches!(asked, PendingQuestion::Look), "answer_with() when {asked:?} is asked");
        self.push(&reply);
        self.argument.clear();
    }

    /// Takes the open question; the session is ready for the next command.
    pub(super) fn take_question(&mut self) -> PendingQuestion {
        match std::mem::replace(&mut self.phase, Phase::Command) {
            Phase::Asked(asked) => asked,
            phase => panic!("an answer although nothing is asked, in {phase:?}"),
        }
    }

    /// After [`Step::StartTls`]: the session is as new, HELO and AUTH forgotten.
    ///
    /// # Panics
    /// When no handshake was asked for.
    // RFC 3207 §4.2: all that was learnt before is forgotten
    pub fn tls_started(&mut self, tls: Tls, now: Duration) {
        assert!(matches!(self.phase, Phase::Handshake), "tls_started() without Step::StartTls");
        self.tls = Some(tls);
        self.hello = None;
        self.identity = None;
        self.client_refusal = None;
        self.reset();
        self.lines.clear();
        self.phase = Phase::Command;
        self.times.wait_from(now);
    }

    /// [`Question::Unknown`] is asked from now on.
    pub fn ask_unknown(&mut self) {
        self.asks_unknown = true;
    }

    /// XCLIENT is offered from now on.
    pub fn trust_xclient(&mut self) {
        self.xclient_trusted = true;
    }

    /// Says whether the client is one of our own, though it does not log in: its priorities above zero count, and
    /// [`super::BareNewline::Own`] and [`super::Forgiving::Own`] hold for it. After XCLIENT the driver says it anew.
    pub fn trust_client(&mut self, is_own: bool) {
        self.client_trusted = is_own;
    }

    /// Says that the open [`Question::Mail`] is refused for the client, whoever the sender is: RCPT and DATA behind it
    /// get `reply` too, as sendmail says it.
    pub fn refuse_client(&mut self, reply: Reply) {
        self.client_refusal = Some(reply);
    }

    /// Sets the time since 1970 when the session began. Without it nothing is held until a time.
    pub fn begins_at(&mut self, unix: Duration) {
        self.began_unix = Some(unix);
    }

    /// The server is going down: 421 4.3.2 at the next point where no transaction is open. True if that is now.
    pub fn shut_down(&mut self, _now: Duration) -> bool {
        self.shutting_down = true;
        if self.may_shut_down() {
            self.close(CloseReason::ShutDown);
        }
        matches!(self.phase, Phase::Closing)
    }

    fn may_shut_down(&self) -> bool {
        self.open.is_none() && matches!(self.phase, Phase::Pause | Phase::Command | Phase::AuthLine)
    }

    /// Takes the notes to log; at most 100 since the last call.
    pub fn take_notes(&mut self) -> Vec<Note> {
        std::mem::take(&mut self.notes)
    }

    /// The connection is gone or closed.
    #[must_use]
    pub fn ending(&self) -> Ending {
        Ending { in_transaction: self.open.is_some(), ..self.ending }
    }

    pub(super) fn content(&self) -> Option<&Content> {
        self.open.as_ref().and_then(|open| open.content.as_ref())
    }

    pub(super) fn content_mut(&mut self) -> Option<&mut Content> {
        self.open.as_mut().and_then(|open| open.content.as_mut())
    }

    /// Ends the transaction without a message.
    pub(super) fn reset(&mut self) {
        if let Some(open) = self.open.take() {
            self.abandon |= open.content.is_some();
        }
        self.transaction_over();
    }

    /// Ends the transaction and drops the state that was kept for it.
    pub(super) fn transaction_over(&mut self) {
        self.new_transaction = None;
        self.candidate = None;
        self.times.transaction_over();
        if let Some(settings) = self.next_settings.take() {
            self.settings = settings;
        }
    }

    pub(super) fn push(&mut self, reply: &Reply) {
        reply.write_to(&mut self.output);
    }

    pub(super) fn push_text(&mut self, text: std::fmt::Arguments<'_>) {
        say(&mut self.output, text);
    }

    pub(super) fn push_octets(&mut self, octets: &[u8]) {
        self.output.extend_from_slice(octets);
    }

    /// Says 421 and closes.
    pub(super) fn close(&mut self, reason: CloseReason) {
        if matches!(self.phase, Phase::Closing) {
            return;
        }
        let reply = reason.reply(&self.settings.hostname);
        self.push(&reply);
        self.closing();
    }

    /// Closes; the last reply has been given.
    pub(super) fn closing(&mut self) {
        self.abandon |= self.content().is_some();
        self.phase = Phase::Closing;
    }

    pub(super) fn forget_abandon(&mut self) {
        self.abandon = false;
    }

    /// Refuses a command on our own account.
    pub(super) fn refuse(&mut self, command: &[u8], refusal: &Refusal<'_>) {
        let reply = refusal.reply(&self.settings.limits);
        self.push(&reply);
        self.refused(command, reply);
    }

    /// Notes and counts a refusal whose reply has been given or will be.
    pub(super) fn refused(&mut self, command: &[u8], reply: Reply) {
        let is_error = reply.code().class() == ReplyClass::Permanent;
        let command = self.without_secret(command);
        self.note(Note::Refused { command, reply });
        if is_error {
            self.count_error();
        }
    }

    /// A line for a note. A password may stand in an AUTH command, and on the lines that a client sends behind one
    /// although it was refused.
    fn without_secret(&mut self, line: &[u8]) -> Box<str> {
        let verb = line.trim_ascii_start().get(..4);
        if verb.is_some_and(|verb| verb.eq_ignore_ascii_case(b"AUTH")) {
            self.ending.after = "AUTH";
            return "AUTH".into();
        }
        if self.ending.after == "AUTH" { "(line behind AUTH)".into() } else { printable(line).into() }
    }

    /// Counts a command that did not work, and closes above the limit.
    pub(super) fn count_error(&mut self) {
        self.counts.errors = self.counts.errors.saturating_add(1);
        if self.counts.errors >= self.settings.limits.errors {
            self.limit("smtp.errors_max", CloseReason::TooManyErrors);
        }
    }

    /// Closes for a limit.
    pub(super) fn limit(&mut self, name: &'static str, reason: CloseReason) {
        if !matches!(self.phase, Phase::Closing) {
            self.note(Note::Limit(name));
            self.close(reason);
        }
    }

    pub(super) fn foreign(&mut self, line: &[u8]) {
        let line = self.without_secret(line);
        self.note(Note::ForeignProtocol { line });
        self.close(CloseReason::Foreign);
    }

    pub(super) fn note(&mut self, note: Note) {
        if self.notes.len() < NOTES_MAX {
            self.notes.push(note);
        }
    }

    pub(super) fn ask(&mut self, asked: PendingQuestion, question: Question) -> Option<Step> {
        self.phase = Phase::Asked(asked);
        Some(Step::Ask(question))
    }
}

/// A driver's verdict and its reply must say the same.
pub(super) fn check_class(verdict: &Verdict) {
    let (reply, fits): (_, fn(ReplyClass) -> bool) = match verdict {
        Verdict::Accept => return,
        Verdict::AcceptWith(reply) => (reply, |class| class == ReplyClass::Success),
        Verdict::Refuse(reply) | Verdict::Close(reply) => {
            (reply, |class| matches!(class, ReplyClass::Transient | ReplyClass::Permanent))
        }
    };
    assert!(fits(reply.code().class()), "{verdict:?}: the reply says something else");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_replies_leave_no_memory_behind() {
        let mut settings = Settings::new("mx.test");
        settings.limits.idle_commands = u32::MAX;
        let client = Client::Network("192.0.2.1:1025".parse().unwrap());
        let mut session = Session::new(Arc::new(settings), client, None);
        session.greet(Verdict::Accept, Duration::ZERO);
        let flood = b"HELP\r\n".repeat(1_000);
        assert_eq!(session.advance(&flood, Duration::ZERO), (flood.len(), Step::Read));
        assert!(session.output().len() > 100_000);
        session.sent(session.output().len() - 1);
        session.sent(1);
        assert!(session.output.capacity() <= IDLE_OUTPUT_OCTETS);
    }

    #[test]
    fn a_failure_that_the_driver_found_is_not_noted_as_well() {
        let mut settings = Settings::new("mx.test");
        settings.auth =
            super::super::AuthOffer { mechanisms: vec!["PLAIN".into()], without_tls: true, required: false };
        let client = Client::Network("192.0.2.1:1025".parse().unwrap());
        let mut session = Session::new(Arc::new(settings), client, None);
        session.greet(Verdict::Accept, Duration::ZERO);
        session.advance(b"EHLO a.test\r\n", Duration::ZERO);
        session.answer(Verdict::Accept, Duration::ZERO);
        assert_eq!(session.advance(b"AUTH PLAIN AHQAeA==\r\n", Duration::ZERO).1, Step::Ask(Question::Auth));
        let no = Reply::new(mail::ReplyCode::of(535), None, "5.7.8 No");
        session.auth_failed(Verdict::Refuse(no), Duration::ZERO);
        assert_eq!(session.take_notes(), []);
    }
}

//! A driver without a network: it answers a session's questions from the rules of a [`Dialog`] and keeps a record.
//!
//! Tests, fuzz bodies and load figures without I/O use it; a server has its own. It holds the session to its side of
//! the border: all input is used, output is lines, content is handed over only while a transaction is open.

use std::sync::Arc;
use std::time::Duration;

use mail::{Client, Reply, ReplyCode};

use crate::dialog::Dialog;
use crate::server::{Note, Question, Session, Settings, Step, Tls, Verdict};

/// The trace line that stands in front of every message here.
pub const TRACE: &[u8] = b"Received: by rehearsal\r\n";

/// A message that was accepted.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stored {
    /// As MAIL has it, with brackets.
    pub sender: String,
    /// The recipients that it was accepted for.
    pub recipients: Vec<String>,
    /// The content, without the trace line.
    pub content: Vec<u8>,
}

/// A session and its driver.
#[derive(Debug)]
pub struct Rehearsal {
    /// The session itself.
    pub session: Session,
    rules: Dialog,
    /// The time.
    pub now: Duration,
    /// All that was said.
    pub said: Vec<u8>,
    /// All that was accepted.
    pub stored: Vec<Stored>,
    /// All that was noted.
    pub notes: Vec<Note>,
    /// The session has closed.
    pub closed: bool,
    /// The session waits for the handshake.
    pub wants_tls: bool,
    /// The largest piece of content that waited in the session.
    pub waited: usize,
    taken: Vec<u8>,
    begun: bool,
}

impl Rehearsal {
    /// A session that has not yet been greeted.
    #[must_use]
    pub fn new(settings: Settings, rules: Dialog) -> Self {
        let client = Client::Network(([192, 0, 2, 1], 1_025).into());
        let mut session = Session::new(Arc::new(settings), client, None);
        // Friday, 15 January 2027, 08:00 UTC
        session.begins_at(Duration::from_secs(1_800_000_000));
        Self {
            session,
            rules,
            now: Duration::ZERO,
            said: Vec::new(),
            stored: Vec::new(),
            notes: Vec::new(),
            closed: false,
            wants_tls: false,
            waited: 0,
            taken: Vec::new(),
            begun: false,
        }
    }

    /// Greets the client.
    pub fn greet(&mut self) {
        let verdict = self.rules.verdict("client", "192.0.2.1");
        self.session.greet(verdict, self.now);
        self.collect();
        self.feed(b"");
    }

    /// Gives input and does what the session asks for, until it wants more.
    ///
    /// # Panics
    /// When the session breaks a rule of the border.
    pub fn feed(&mut self, mut input: &[u8]) {
        while !self.closed && !self.wants_tls {
            let (used, step) = self.session.advance(input, self.now);
            input = input.get(used..).expect("no more is used than was given");
            self.collect();
            match step {
                Step::Read => {
                    assert!(input.is_empty(), "input is left");
                    return;
                }
                Step::Ask(question) => self.answer(question),
                Step::Content => self.take(),
                Step::Abandon => {
                    assert!(self.begun, "nothing was begun");
                    self.taken.clear();
                    self.begun = false;
                }
                Step::StartTls => self.wants_tls = true,
                Step::Close => self.closed = true,
            }
            self.collect();
        }
    }

    /// Does the handshake.
    pub fn tls(&mut self) {
        self.wants_tls = false;
        let tls = Tls { version: "TLSv1.3".into(), cipher: "NULL".into(), bits: 0, server_name: None };
        self.session.tls_started(tls, self.now);
        self.feed(b"");
    }

    /// Lets time pass.
    ///
    /// # Panics
    /// When a deadline that has passed stays.
    pub fn wait(&mut self, time: Duration) {
        let until = self.now.saturating_add(time);
        while !self.closed && self.session.deadline() <= until {
            let deadline = self.session.deadline();
            self.now = self.now.max(deadline);
            let expired = self.session.expire(self.now);
            assert!(expired || self.session.deadline() > deadline, "the deadline stays");
            self.collect();
            if expired {
                assert_eq!(self.session.advance(b"NOOP\r\n", self.now), (6, Step::Close));
                self.closed = true;
            }
        }
        self.now = until;
    }

    /// The server is going down.
    pub fn shut_down(&mut self) {
        if self.session.shut_down(self.now) {
            self.closed = true;
        }
        self.collect();
    }

    /// Takes the replies since the last call.
    pub fn take_said(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.said)
    }

    fn collect(&mut self) {
        let output = self.session.output();
        assert!(output.is_empty() || output.ends_with(b"\r\n"), "half a line");
        self.said.extend_from_slice(output);
        self.session.sent(output.len());
        self.notes.append(&mut self.session.take_notes());
    }

    fn take(&mut self) {
        let piece = self.session.take_content();
        assert!(self.begun || piece.is_empty(), "content without a transaction");
        self.waited = self.waited.max(piece.len());
        self.taken.extend_from_slice(&piece);
    }

    fn answer(&mut self, question: Question) {
        let now = self.now;
        match question {
            Question::Helo => {
                let name = self.session.helo().map(ToString::to_string).unwrap_or_default();
                self.session.answer(self.rules.verdict("helo", &name), now);
            }
            Question::Mail => {
                let verdict = self.rules.verdict("sender", &self.sender());
                self.session.answer(verdict, now);
            }
            Question::Recipient => {
                let recipient = self.session.candidate().map(|candidate| candidate.address.to_string());
                self.session.answer(self.rules.verdict("recipient", &recipient.unwrap_or_default()), now);
            }
            Question::Data => match self.rules.verdict("data", &self.sender()) {
                Verdict::Accept => {
                    assert!(!self.begun && self.taken.is_empty(), "content of an older message");
                    self.begun = true;
                    self.session.begin_content(TRACE, now);
                }
                verdict => self.session.answer(verdict, now),
            },
            Question::Message => self.message(),
            Question::Auth | Question::AuthResponse => self.auth(),
            Question::Verify => self.look("verify"),
            Question::Expand => self.look("expand"),
            Question::Xclient => self.session.answer(self.rules.verdict("xclient", ""), now),
            Question::Unknown => {
                let line = self.session.unknown_command().unwrap_or_default();
                let line = String::from_utf8_lossy(line).into_owned();
                self.session.answer(self.rules.verdict("unknown", &line), now);
            }
        }
    }

    fn sender(&self) -> String {
        let sender = self.session.transaction().map(|transaction| transaction.sender.to_string()).unwrap_or_default();
        sender.trim_matches(['<', '>']).to_owned()
    }

    fn message(&mut self) {
        self.take();
        let transaction = self.session.transaction().expect("a message has a transaction").clone();
        let recipients: Vec<String> = transaction.recipients.iter().map(|r| r.address.to_string()).collect();
        assert!(!recipients.is_empty(), "a message without recipients");
        let verdicts: Vec<Verdict> = recipients.iter().map(|r| self.rules.verdict("message", r)).collect();
        let content = self.taken.strip_prefix(TRACE).expect("the trace line stands first").to_vec();
        assert_eq!(content.len() as u64, self.session.content_bytes());
        self.session.finish(&verdicts, self.now);
        let is_taken = |verdict: &Verdict| matches!(verdict, Verdict::Accept | Verdict::AcceptWith(_));
        let is_lmtp = self.session.settings().dialect == crate::server::Dialect::Lmtp;
        let whole = !is_lmtp && verdicts.first().is_some_and(is_taken);
        let accepted = recipients.into_iter().zip(&verdicts).filter(|(_, v)| whole || (is_lmtp && is_taken(v)));
        let accepted: Vec<String> = accepted.map(|(recipient, _)| recipient).collect();
        if !accepted.is_empty() {
            self.stored.push(Stored { sender: transaction.sender.to_string(), recipients: accepted, content });
        }
        self.taken.clear();
        self.begun = false;
    }

    fn look(&mut self, kind: &str) {
        let reply = match self.rules.verdict(kind, self.session.argument()) {
            Verdict::Accept => Reply::new(ReplyCode::of(252), "2.5.2".parse().ok(), "Perhaps"),
            Verdict::AcceptWith(reply) | Verdict::Refuse(reply) | Verdict::Close(reply) => reply,
        };
        self.session.answer_with(reply, self.now);
    }

    /// PLAIN in one or two steps; any other mechanism is LOGIN's dance.
    fn auth(&mut self) {
        let Some(response) = self.session.auth_response().map(<[u8]>::to_vec) else {
            let is_plain = self.session.auth_mechanism() == "PLAIN";
            return self.session.auth_challenge(if is_plain { b"" } else { b"Username:" }, self.now);
        };
        let text = String::from_utf8_lossy(&response).into_owned();
        let name = match (self.session.auth_mechanism(), text.split('\0').collect::<Vec<_>>().as_slice()) {
            ("PLAIN", [_, name, password]) => {
                let known = self.rules.users.iter().any(|(n, p)| n == name && p == password);
                known.then(|| (*name).to_owned())
            }
            // Without a password: what matters here is the number of steps.
            ("LOGIN", [name]) => self.rules.users.iter().any(|(n, _)| n == name).then(|| (*name).to_owned()),
            _ => None,
        };
        match name {
            Some(name) => self.session.auth_succeeded(&name, self.now),
            None => {
                let reply = Reply::new(ReplyCode::of(535), "5.7.8".parse().ok(), "Authentication credentials invalid");
                self.session.auth_failed(Verdict::Refuse(reply), self.now);
            }
        }
    }
}

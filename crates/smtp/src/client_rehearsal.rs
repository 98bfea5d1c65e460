//! A client's driver without a network: it has a list of messages, gives them when the session is ready, and keeps what
//! becomes of them.
//!
//! Tests and fuzz bodies use it. It holds the session to its side of the border: each transaction comes out once, with
//! an outcome for each recipient; no recipient is delivered before the last octet was sent; content is asked for only
//! as far as there is some.

use std::collections::{BTreeMap, VecDeque};
use std::io::IoSlice;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::client::{Answer, ClientSession, ClientSettings, ClientStep, ClientTransaction, Finished};

/// A message to be sent.
#[derive(Clone, Debug)]
pub struct Job {
    /// Its envelope; `content_bytes` is set from the content.
    pub transaction: ClientTransaction,
    /// Its content.
    pub content: Bytes,
}

/// A session and its driver.
#[derive(Debug)]
pub struct ClientRehearsal {
    /// The session itself.
    pub session: ClientSession,
    /// The time.
    pub now: Duration,
    /// The sent octets that the test has not looked at.
    pub wire: Vec<u8>,
    /// Messages that wait for their turn.
    pub jobs: VecDeque<Job>,
    /// The results of transactions, in the order in which they ended.
    pub done: Vec<Finished>,
    /// Octets of a piece of content.
    pub piece: usize,
    /// Octets that the network still takes.
    pub room: usize,
    /// The content cannot be read.
    pub aborts: bool,
    /// The session wants the handshake.
    pub wants_tls: bool,
    /// The session has closed.
    pub closed: bool,
    /// Messages that do not fit, with the reason.
    pub misfits: Vec<(u64, crate::client::Misfit)>,
    /// Recipients of the transactions that are open.
    open: BTreeMap<u64, usize>,
    content: Bytes,
    /// The transaction whose content it is, and whether some of it was given.
    content_of: Option<(u64, bool)>,
    /// The most transactions that were open at a time.
    pub most_open: usize,
}

impl ClientRehearsal {
    /// A session on a new connection.
    #[must_use]
    pub fn new(settings: ClientSettings) -> Self {
        Self {
            session: ClientSession::new(Arc::new(settings)),
            now: Duration::ZERO,
            wire: Vec::new(),
            jobs: VecDeque::new(),
            done: Vec::new(),
            piece: usize::MAX,
            room: usize::MAX,
            aborts: false,
            wants_tls: false,
            closed: false,
            misfits: Vec::new(),
            open: BTreeMap::new(),
            content: Bytes::new(),
            content_of: None,
            most_open: 0,
        }
    }

    /// Carries out the steps of the session and sends its output, until it waits.
    ///
    /// # Panics
    /// When the session breaks a rule of the border.
    pub fn pump(&mut self) {
        loop {
            self.send();
            match self.session.step() {
                ClientStep::Wait => break,
                ClientStep::StartTls => {
                    assert!(!self.session.has_output(), "the handshake before all is sent");
                    self.wants_tls = true;
                    break;
                }
                ClientStep::Ready if self.jobs.is_empty() => break,
                ClientStep::Ready => self.begin(),
                ClientStep::Content if self.aborts => self.session.abort_content(self.now),
                ClientStep::Content => {
                    assert!(!self.content.is_empty(), "more content is asked for than there is");
                    self.content_of = self.content_of.map(|(token, _)| (token, true));
                    let piece = self.content.split_to(self.piece.min(self.content.len()));
                    self.session.content(piece, self.now);
                }
                ClientStep::Done(finished) => self.finished(finished),
                ClientStep::Closed => {
                    assert!(self.open.is_empty(), "open transactions did not come out: {:?}", self.open);
                    assert!(self.session.closing().is_some() && !self.session.has_output());
                    assert_eq!(self.session.deadline(), Duration::MAX);
                    self.closed = true;
                    break;
                }
            }
        }
        assert_eq!(self.session.in_flight(), self.open.len());
    }

    fn begin(&mut self) {
        let Some(Job { mut transaction, content }) = self.jobs.pop_front() else { return };
        transaction.content_bytes = content.len() as u64;
        if let Err(misfit) = self.session.fits(&transaction) {
            self.misfits.push((transaction.token, misfit));
            return;
        }
        let before = self.open.insert(transaction.token, transaction.recipients.len());
        assert!(before.is_none(), "tokens are used once");
        self.most_open = self.most_open.max(self.open.len());
        let is_begun = self.content_of.is_some_and(|(_, is_given)| is_given);
        assert!(!is_begun || self.content.is_empty(), "begun before the content of the one before was given");
        self.content = content;
        self.content_of = Some((transaction.token, false));
        self.session.begin(transaction, self.now);
    }

    fn finished(&mut self, finished: Finished) {
        let recipients = self.open.remove(&finished.token);
        assert_eq!(recipients, Some(finished.outcomes.len()), "an outcome for each recipient, once");
        for outcome in &finished.outcomes {
            if let Answer::Reply(reply) = &outcome.answer {
                let is_refusal = matches!(reply.code().get(), 400..=599);
                assert!(is_refusal || outcome.is_delivered(), "{outcome:?}");
            }
            assert!(!(outcome.is_delivered() && finished.stopped_content), "delivered without its end");
        }
        if let Some((_, is_given)) = self.content_of.take_if(|(token, _)| *token == finished.token) {
            let is_left = !std::mem::take(&mut self.content).is_empty();
            assert!(!is_given || is_left == finished.stopped_content, "content that was begun is stopped or whole");
        }
        self.done.push(finished);
    }

    fn send(&mut self) {
        while self.session.has_output() && self.room > 0 {
            let mut slices = [IoSlice::new(&[]); 3];
            let count = self.session.output_slices(&mut slices);
            let mut octets = 0;
            for slice in slices.iter().take(count) {
                let taken = slice.get(..slice.len().min(self.room)).unwrap_or_default();
                self.wire.extend_from_slice(taken);
                self.room = self.room.saturating_sub(if self.room == usize::MAX { 0 } else { taken.len() });
                octets += taken.len();
            }
            assert!(octets > 0, "there is output, and its slices are empty");
            self.session.sent(octets, self.now);
        }
    }

    /// Does the handshake, with a certificate that is verified or not.
    pub fn tls(&mut self, is_verified: bool) {
        self.wants_tls = false;
        self.session.tls_started(is_verified, self.now);
        self.pump();
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
            self.session.expire(self.now);
            assert!(self.session.deadline() > deadline, "the deadline stays");
            self.pump();
        }
        self.now = until;
    }

    /// Takes the octets sent since the last call.
    pub fn take_wire(&mut self) -> Vec<u8> {
        std::mem::take(&mut self.wire)
    }
}

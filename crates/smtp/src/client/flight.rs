//! How transactions are written: in one flight, or command by command, one behind the other.
//!
//! Only the last open transaction may be partly written. [`ClientSession::speak`] writes of it what may be written now,
//! and is called whenever that may have changed. With PIPELINING a flight is MAIL, every RCPT and DATA, or with
//! CHUNKING the content itself; the next flight follows the dot or the last octet. Without it each command awaits the
//! reply to the one before.

use std::time::Duration;

use bytes::Bytes;
use mail::Body;

use super::commands;
use super::open::{Awaits, GreetedProtocol, PendingTransaction};
use super::session::{ClientPhase, ClientSession};
use super::settings::ClientDialect;
use super::step::ClientTransaction;

impl ClientSession {
    /// After [`super::ClientStep::Ready`]: begins a transaction that [`ClientSession::fits`].
    ///
    /// # Panics
    /// When the session is not ready, when there is no recipient, and when the transaction does not fit.
    pub fn begin(&mut self, transaction: ClientTransaction, now: Duration) {
        assert!(self.phase == ClientPhase::Up && self.can_begin(), "begin() without Step::Ready");
        assert!(!transaction.recipients.is_empty(), "transaction {} has no recipient", transaction.token);
        let fits = self.fits(&transaction);
        assert!(fits.is_ok(), "transaction {} does not fit: {fits:?}", transaction.token);
        self.touch(now);
        // How many replies a LMTP server has for a chunk it refuses is not agreed upon, so LMTP uses DATA where it can.
        let is_binary = transaction.params.body == Some(Body::BinaryMime);
        let uses_bdat = self.chunking() && (is_binary || self.settings.dialect == ClientDialect::Smtp);
        let ahead = self.ahead_octets().saturating_add(transaction.content_bytes);
        let may_be_ahead = self.pipelining() && self.settings.dialect == ClientDialect::Smtp;
        let is_ahead = uses_bdat && may_be_ahead && ahead <= self.settings.limits.content_ahead_octets as u64;
        // A server that refuses BDAT keeps its transaction (RFC 3030 §2), and a MAIL within it would be refused.
        let behind_bdat = self.open.back().is_some_and(|open| open.uses_bdat);
        let has_rset = std::mem::take(&mut self.needs_rset) || behind_bdat;
        let utf8 = commands::uses_utf8(&transaction, &self.offers);
        if self.open.is_empty() {
            (self.turn_began, self.phase_began) = (now, now);
        }
        let open = PendingTransaction::new(transaction, self.out.written());
        self.open.push_back(open.with(uses_bdat, is_ahead, has_rset, utf8));
        self.speak();
    }

    /// After [`super::ClientStep::Content`]: the next piece. It may be of any length; it is not copied unless it is
    /// small.
    ///
    /// # Panics
    /// When no content is wanted, and when there is more of it than the transaction said.
    pub fn content(&mut self, piece: Bytes, now: Duration) {
        self.touch(now);
        let open = self.open.back_mut().expect("content() without Step::Content");
        let left = open.left.expect("content() without Step::Content");
        let left = left.checked_sub(piece.len() as u64).expect("more content than content_bytes");
        open.left = Some(left);
        if open.uses_bdat {
            self.out.piece(piece);
        } else {
            open.dots.write(&piece, &mut self.out);
        }
        self.speak();
    }

    /// Whether a transaction may be begun.
    pub(super) fn can_begin(&self) -> bool {
        if self.wants_quit || self.is_cut || self.pending_close.is_some() {
            return false;
        }
        let limits = &self.settings.limits;
        self.open.back().is_none_or(|last| {
            // RFC 2920 §3.1: commands may follow the end of the content
            self.pipelining()
                && last.spoken == GreetedProtocol::All
                && self.open.len() < limits.transactions_ahead
                && self.ahead_octets() < limits.content_ahead_octets as u64
        })
    }

    /// Whether a piece of content is to be given now.
    pub(super) fn wants_content(&self) -> bool {
        let is_asked = self.open.back().is_some_and(|open| open.left.is_some());
        is_asked
            && self.pending_close.is_none()
            && self.out.waiting() < self.settings.limits.content_ahead_octets as u64
    }

    /// Octets of content that go before their recipients are known.
    fn ahead_octets(&self) -> u64 {
        self.open.iter().filter(|open| open.is_ahead).map(|open| open.transaction.content_bytes).sum()
    }

    /// Writes what may be written now.
    pub(super) fn speak(&mut self) {
        if self.phase != ClientPhase::Up || self.pending_close.is_some() {
            return;
        }
        let pipelining = self.pipelining();
        let Self { open, out, offers, .. } = self;
        if let Some(open) = open.back_mut() {
            let recipients = open.transaction.recipients.len();
            let mut first_at = None;
            loop {
                match (open.spoken, open.awaits) {
                    (GreetedProtocol::Nothing, _) if open.has_rset => {
                        out.text(b"RSET\r\n");
                        open.spoken = GreetedProtocol::Rset;
                    }
                    (GreetedProtocol::Nothing | GreetedProtocol::Rset, awaits)
                        if pipelining || awaits == Awaits::Mail =>
                    {
                        commands::mail(out, &open.transaction, offers, open.utf8);
                        open.spoken = GreetedProtocol::Mail;
                    }
                    (GreetedProtocol::Mail, awaits) if pipelining || awaits == Awaits::Rcpt(0) => {
                        commands::rcpt(out, &open.transaction, 0, offers, open.utf8);
                        open.spoken = GreetedProtocol::Rcpts(1);
                    }
                    (GreetedProtocol::Rcpts(count), awaits)
                        if count < recipients && (pipelining || awaits == Awaits::Rcpt(count)) =>
                    {
                        commands::rcpt(out, &open.transaction, count, offers, open.utf8);
                        open.spoken = GreetedProtocol::Rcpts(count + 1);
                    }
                    // RFC 2920 §3.1: DATA ends a flight
                    (GreetedProtocol::Rcpts(_), awaits)
                        if !open.uses_bdat && (pipelining || awaits == Awaits::Data) =>
                    {
                        out.text(b"DATA\r\n");
                        open.spoken = GreetedProtocol::Data;
                    }
                    // RFC 3030 §2: the octets follow the command without waiting
                    (GreetedProtocol::Rcpts(_), awaits)
                        if open.uses_bdat && (open.is_ahead || matches!(awaits, Awaits::End(_))) =>
                    {
                        out.write(format_args!("BDAT {} LAST\r\n", open.transaction.content_bytes));
                        open.spoken = GreetedProtocol::Content;
                        open.left = Some(open.transaction.content_bytes);
                    }
                    (GreetedProtocol::Content, _) if open.left == Some(0) => {
                        if !open.uses_bdat {
                            std::mem::take(&mut open.dots).end(out);
                        }
                        open.left = None;
                        open.spoken = GreetedProtocol::All;
                        open.end_at = Some(out.written());
                        break;
                    }
                    _ => break,
                }
                first_at = first_at.or_else(|| Some(out.written()));
            }
            open.command_at = first_at.unwrap_or(open.command_at);
        }
        self.say_quit();
    }

    fn say_quit(&mut self) {
        // RFC 2920 §3.1: QUIT may follow the end of the content, as the last command of its flight
        let may_follow = self.pipelining() && self.open.back().is_some_and(|last| last.spoken == GreetedProtocol::All);
        if self.wants_quit && !self.is_cut && (self.open.is_empty() || may_follow) {
            self.out.text(b"QUIT\r\n");
            self.phase = ClientPhase::Quit;
        }
    }
}

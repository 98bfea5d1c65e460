//! The effects of replies on transactions.
//!
//! A reply belongs to the first open transaction, to the first of its commands that has none. A refusal decides the
//! recipients it is about; only a 2xx to content that was sent whole delivers. A reply that cannot belong to its
//! command ends the conversation, because from there on it is unknown which reply belongs to which command.

use std::time::Duration;

use mail::{Reply, ReplyClass};

use super::open::{Awaits, GreetedProtocol, PendingTransaction};
use super::replies::Raw;
use super::session::{ClientSession, DISMISSAL, PendingClose};
use super::settings::ClientDialect;
use super::step::{Closing, Loss, Stage};

/// The reason for a refusal that may belong to another command than the one it is read for.
const REFUSED_BEHIND_NOISE: &str = "it sends lines without a reply code among its replies";

/// The effect of a reply on the session.
enum Next {
    /// More replies come, or more can be said.
    Go,
    /// The transaction is over here and there.
    Over,
    /// The transaction is over here; the server may keep it.
    Left,
    /// No reply can be trusted any more.
    Nonsense(&'static str),
    /// The transaction was refused before the server had all of it: how it reads on is unknown.
    Stopped,
}

impl ClientSession {
    /// A reply while transactions can be open.
    pub(super) fn take_answer(&mut self, raw: &Raw<'_>, now: Duration) {
        let sent_to = self.out.sent_to();
        let dialect = self.settings.dialect;
        let is_used = self.messages > 0;
        let is_flight = self.pipelining();
        let Some(open) = self.open.front_mut().filter(|open| sent_to >= open.command_at) else {
            return self.unsolicited(raw);
        };
        let stage = open.stage(sent_to);
        let is_dismissal = raw.code.get() == DISMISSAL;
        if is_dismissal {
            open.dismissed = Some(stage);
            // The connection was used up when this transaction came to it: 421 is not about the message.
            if is_used && matches!(stage, Stage::Rset | Stage::Mail) && open.pending() > 0 {
                open.spare();
            }
        }
        let is_command = !matches!(open.awaits, Awaits::End(_));
        open.is_doubtful |= is_flight && is_command && raw.is_behind_noise;
        // The refusal may be the answer to a later command.
        let is_misplaced = open.is_doubtful && is_command && raw.code.class() == ReplyClass::Permanent;
        let next = match open.awaits {
            _ if is_misplaced => Next::Nonsense(REFUSED_BEHIND_NOISE),
            Awaits::Rset => open.take_rset(raw, is_dismissal),
            Awaits::Mail => open.take_mail(raw),
            Awaits::Rcpt(index) => open.take_rcpt(raw, index),
            Awaits::Data => open.take_data(raw, dialect),
            Awaits::End(_) if !open.is_whole(sent_to) => open.take_early(raw),
            Awaits::End(index) => {
                self.messages += 1;
                open.take_end(raw, index, dialect)
            }
        };
        if is_dismissal && self.pending_close.is_none() {
            let closing = Closing { stage, reply: Some(raw.reply()), loss: None, orderly: true };
            self.pending_close =
                Some(PendingClose { closing, until: now.saturating_add(self.settings.limits.farewell) });
            self.out.clear();
        }
        self.go_on(&next, stage, raw);
        if self.pending_close.is_some() {
            self.end_when_nothing_is_due();
        }
        self.speak();
    }

    fn go_on(&mut self, next: &Next, stage: Stage, raw: &Raw<'_>) {
        match next {
            Next::Go => {}
            Next::Over => self.finish_first(),
            Next::Left => {
                self.finish_first();
                // The one behind it has its RSET already.
                self.needs_rset |= self.open.is_empty();
            }
            Next::Nonsense(what) => self.lose(Loss::Protocol(what)),
            Next::Stopped => {
                let orderly = raw.code.get() == DISMISSAL;
                self.end(Closing { stage, reply: Some(raw.reply()), loss: None, orderly });
            }
        }
    }

    fn finish_first(&mut self) {
        if let Some(open) = self.open.pop_front() {
            self.finished.push_back(open.finish(std::mem::take(&mut self.times)));
            // By the reply that has just come.
            self.turn_began = self.progress;
        }
        if self.is_cut && self.open.is_empty() {
            self.end(Closing { stage: Stage::End, reply: None, loss: None, orderly: false });
        }
    }

    /// A reply to nothing that was asked.
    // RFC 5321 §3.8: a server may say 421 at any time
    pub(super) fn unsolicited(&mut self, raw: &Raw<'_>) {
        if raw.code.get() != DISMISSAL {
            return self.lose(Loss::Protocol("a reply came that nothing had asked for"));
        }
        let stage = self.stage();
        let reply = raw.reply();
        let sent_to = self.out.sent_to();
        // As with a 421 that is asked for, a connection that was used up says nothing about the next message.
        let is_late = self.messages > 0 && matches!(stage, Stage::Rset | Stage::Mail);
        if let Some(open) = self.open.front_mut().filter(|open| sent_to > open.begins_at && !is_late) {
            open.decide_all(stage, || reply.clone());
        }
        self.end(Closing { stage, reply: Some(reply), loss: None, orderly: true });
    }
}

impl PendingTransaction {
    fn take_rset(&mut self, raw: &Raw<'_>, is_dismissal: bool) -> Next {
        if is_dismissal {
            self.decide_all(Stage::Rset, || raw.reply());
        } else if raw.code.class() != ReplyClass::Success {
            // RFC 5321 §4.1.1.5: RSET is answered with 250 and nothing else
            return Next::Nonsense("RSET was refused");
        }
        self.awaits = Awaits::Mail;
        Next::Go
    }

    // RFC 5321 §3.3: MAIL is accepted with 250
    fn take_mail(&mut self, raw: &Raw<'_>) -> Next {
        match raw.code.class() {
            ReplyClass::Success => {}
            ReplyClass::Intermediate => return Next::Nonsense("an intermediate reply to MAIL"),
            ReplyClass::Transient | ReplyClass::Permanent => {
                self.mail_refused = true;
                self.decide_all(Stage::Mail, || raw.reply());
            }
        }
        self.awaits = Awaits::Rcpt(0);
        // In a flight the replies to the rest of it follow.
        if self.mail_refused && self.spoken == GreetedProtocol::Mail { Next::Over } else { Next::Go }
    }

    // RFC 5321 §3.3: each RCPT has a reply of its own
    fn take_rcpt(&mut self, raw: &Raw<'_>, index: usize) -> Next {
        match raw.code.class() {
            ReplyClass::Success => self.is_odd |= self.mail_refused,
            ReplyClass::Intermediate => return Next::Nonsense("an intermediate reply to RCPT"),
            ReplyClass::Transient | ReplyClass::Permanent => {
                self.decide_by(index, Stage::Rcpt, raw);
            }
        }
        if index + 1 < self.transaction.recipients.len() {
            self.awaits = Awaits::Rcpt(index + 1);
            return Next::Go;
        }
        if self.uses_bdat {
            self.awaits = Awaits::End(self.pending_from(0).unwrap_or(0));
        } else {
            self.awaits = Awaits::Data;
        }
        let is_said = !matches!(self.spoken, GreetedProtocol::Rcpts(_));
        // RFC 5321 §3.3: without a recipient no content is sent
        match (self.pending(), is_said) {
            (0, false) if self.mail_refused => Next::Over,
            (0, false) => Next::Left,
            _ => Next::Go,
        }
    }

    fn take_data(&mut self, raw: &Raw<'_>, dialect: ClientDialect) -> Next {
        match raw.code.class() {
            ReplyClass::Success => Next::Nonsense("DATA was answered as if the content had come"),
            ReplyClass::Transient | ReplyClass::Permanent => {
                self.decide_all(Stage::Data, || raw.reply());
                Next::Left
            }
            ReplyClass::Intermediate => {
                let has_recipient = self.pending() > 0;
                // A dot would deliver an empty message to them, or would have no known number of replies.
                if !has_recipient && (self.is_odd || dialect == ClientDialect::Lmtp) {
                    return Next::Nonsense("DATA was accepted although no recipient was");
                }
                // RFC 2920 §3.1: with no recipient left, the 354 is answered with a dot alone
                self.left = Some(if has_recipient { self.transaction.content_bytes } else { 0 });
                self.spoken = GreetedProtocol::Content;
                self.awaits = Awaits::End(self.pending_from(0).unwrap_or(0));
                Next::Go
            }
        }
    }

    /// A reply to content of which the server cannot have the end.
    fn take_early(&mut self, raw: &Raw<'_>) -> Next {
        match raw.code.class() {
            ReplyClass::Success | ReplyClass::Intermediate => {
                Next::Nonsense("an answer came before the end of the content")
            }
            ReplyClass::Transient | ReplyClass::Permanent => {
                self.decide_all(Stage::Content, || raw.reply());
                Next::Stopped
            }
        }
    }

    fn take_end(&mut self, raw: &Raw<'_>, index: usize, dialect: ClientDialect) -> Next {
        let class = raw.code.class();
        if class == ReplyClass::Intermediate {
            return Next::Nonsense("an intermediate reply to the content");
        }
        let is_taken = class == ReplyClass::Success;
        let has_recipient = self.pending() > 0;
        if self.pending() == 0 && self.is_odd && is_taken {
            return Next::Nonsense("content was taken behind a refused MAIL");
        }
        // RFC 2033 §4.2: one reply for each accepted recipient, in their order
        if dialect == ClientDialect::Lmtp {
            self.decide_by(index, Stage::End, raw);
            if let Some(next) = self.pending_from(index) {
                self.awaits = Awaits::End(next);
                return Next::Go;
            }
        } else {
            // RFC 5321 §3.3: one reply for all of them
            self.decide_all(Stage::End, || raw.reply());
        }
        // A server that accepts a recipient and does not know BDAT has read the content as commands.
        if self.uses_bdat && has_recipient && matches!(raw.code.get(), 500..=504) {
            return Next::Stopped;
        }
        // RFC 3030 §2: after a refused BDAT the transaction is still open
        if self.uses_bdat && !is_taken { Next::Left } else { Next::Over }
    }
}

impl PendingTransaction {
    /// The connection ends with 421: it is the answer to the pending recipients of this transaction.
    pub(super) fn dismiss(&mut self, reply: &Reply) {
        if let Some(stage) = self.dismissed {
            self.decide_all(stage, || reply.clone());
        }
    }
}

//! How a conversation ends, and the results of open transactions.
//!
//! Without a reply, a transaction is lost when the server may have acted on it: its commands were sent and its replies
//! awaited, or all of its content was sent. A transaction behind it whose end the server cannot have was not tried.
//! After a 421 the server may still answer messages that it had taken before, so the session waits a short time for
//! these replies.

use std::time::Duration;

use mail::{PhaseTimes, ReplyClass};

use super::open::Awaits;
use super::replies::Raw;
use super::session::{ClientPhase, ClientSession, DISMISSAL, PendingClose};
use super::step::{Closing, Loss, Stage};

impl ClientSession {
    /// When, counted from the beginning, [`ClientSession::expire`] is to be called unless something moves before;
    /// `Duration::MAX` while the server owes nothing.
    #[must_use]
    pub fn deadline(&self) -> Duration {
        if self.phase == ClientPhase::Closed {
            return Duration::MAX;
        }
        if let Some(pending) = &self.pending_close {
            return pending.until;
        }
        let limits = &self.settings.limits;
        let stage = self.stage();
        let time = match stage {
            Stage::Greeting => limits.greeting,
            Stage::Hello | Stage::Auth => limits.hello,
            Stage::StartTls => limits.tls,
            Stage::Rset => limits.rset,
            Stage::Mail => limits.mail,
            Stage::Rcpt => limits.rcpt,
            Stage::Data => limits.data,
            Stage::End => limits.end,
            Stage::Quit => limits.farewell,
            Stage::Content if self.out.is_empty() => return Duration::MAX,
            Stage::Content => limits.block,
            Stage::Idle => return Duration::MAX,
        };
        // A server that is busy with its input need not read on.
        let time = if self.out.is_empty() || self.open.is_empty() { time } else { time.max(limits.block) };
        let time = if self.may_hurry(stage) { time.min(limits.hurry) } else { time };
        let until = self.progress.saturating_add(time).min(self.transaction_deadline());
        // Giving up on a message that the server may have makes a duplicate.
        let since = self.noise_since.filter(|_| !self.may_have_message());
        since.map_or(until, |since| until.min(since.saturating_add(limits.noise)))
    }

    /// Since when, counted from the beginning, the server has neither answered nor taken anything, while it owes that
    /// to a transaction.
    #[must_use]
    pub fn owed_since(&self) -> Option<Duration> {
        (!self.open.is_empty() && self.deadline() != Duration::MAX).then_some(self.progress)
    }

    /// Since when, counted from the beginning, the server has said and taken nothing while it may have the first open
    /// transaction whole.
    #[must_use]
    pub fn unanswered_since(&self) -> Option<Duration> {
        let is_whole = self.open.front().is_some_and(|open| open.is_whole(self.out.sent_to()));
        (is_whole && self.pending_close.is_none()).then_some(self.progress)
    }

    /// Takes back a transaction that the server cannot have whole, behind one that it may have whole: its result is not
    /// tried. The session waits for the others as before and closes behind the last of them, for the commands of the
    /// one taken back are never ended.
    pub fn withdraw(&mut self) {
        let sent_to = self.out.sent_to();
        let whole = self.open.iter().take_while(|open| open.is_whole(sent_to)).count();
        if whole == 0 || whole == self.open.len() || self.pending_close.is_some() || self.phase != ClientPhase::Up {
            return;
        }
        self.finished.extend(self.open.drain(whole..).map(|open| open.finish(PhaseTimes::default())));
        self.out.clear();
        self.is_cut = true;
    }

    /// Checks the deadline: if it has passed, the awaited reply is lost and the session closes.
    pub fn expire(&mut self, now: Duration) {
        if now >= self.deadline() {
            let is_too_long = self.pending_close.is_none() && now >= self.transaction_deadline();
            self.lose(self.reader.loss(if is_too_long { Loss::TooLong } else { Loss::TimedOut }));
        }
    }

    /// Whether the server may have a message whole of which the answer is missing: ending the session now may deliver
    /// it twice.
    #[must_use]
    pub fn may_have_message(&self) -> bool {
        // The first that is open is the first to be whole.
        self.open.front().is_some_and(|open| open.is_whole(self.out.sent_to()))
    }

    /// Whether the server can have no such message, and is owed nothing but an answer.
    fn may_hurry(&self, stage: Stage) -> bool {
        !self.may_have_message() && matches!(stage, Stage::Rset | Stage::Mail | Stage::Rcpt | Stage::Data)
    }

    /// The time when the first open transaction has taken too long, whatever progress there is.
    fn transaction_deadline(&self) -> Duration {
        let limits = &self.settings.limits;
        self.open.front().map_or(Duration::MAX, |open| {
            let until = self.turn_began.saturating_add(limits.transaction);
            if open.is_whole(self.out.sent_to()) { until.saturating_add(limits.end) } else { until }
        })
    }

    /// After [`super::ClientStep::Content`]: the content cannot be read any more. It is never ended, so no recipient
    /// gets it; answers to messages that were sent whole are still awaited, then the session closes.
    ///
    /// # Panics
    /// When no content is wanted.
    pub fn abort_content(&mut self, now: Duration) {
        let is_asked = self.open.back().is_some_and(|open| open.left.is_some());
        assert!(is_asked && self.pending_close.is_none(), "abort_content() without Step::Content");
        let closing = Closing { stage: Stage::Content, reply: None, loss: None, orderly: false };
        self.pending_close = Some(PendingClose { closing, until: now.saturating_add(self.settings.limits.end) });
        self.out.clear();
        self.end_when_nothing_is_due();
    }

    /// Returns the stage that the session is in.
    pub(super) fn stage(&self) -> Stage {
        match (self.phase, self.open.front()) {
            (ClientPhase::Greeting, _) => Stage::Greeting,
            (ClientPhase::Extended | ClientPhase::Plain, _) => Stage::Hello,
            (ClientPhase::StartTls | ClientPhase::Handshake, _) => Stage::StartTls,
            (ClientPhase::Login, _) => Stage::Auth,
            (_, Some(open)) => open.stage(self.out.sent_to()),
            (ClientPhase::Quit, None) => Stage::Quit,
            (ClientPhase::Up | ClientPhase::Closed, None) => Stage::Idle,
        }
    }

    /// Ends a conversation whose end is known, as soon as no answer can decide anything any more.
    pub(super) fn end_when_nothing_is_due(&mut self) {
        let sent_to = self.out.sent_to();
        let is_due = self.open.iter().any(|open| open.pending() > 0 && open.is_whole(sent_to));
        if !is_due {
            self.finish_close();
        }
    }

    /// Ends after a farewell, if there was one: recipients without an answer were not tried, except those that the 421
    /// answered.
    fn finish_close(&mut self) -> bool {
        let Some(PendingClose { closing, .. }) = self.pending_close.take() else { return false };
        if let Some(reply) = &closing.reply {
            self.open.iter_mut().for_each(|open| open.dismiss(reply));
        } else {
            // The client ended it, and the server may have taken the messages that it had.
            let sent_to = self.out.sent_to();
            let whole = self.open.iter_mut().filter(|open| open.is_whole(sent_to));
            whole.for_each(|open| open.lose(Stage::End, Loss::Closed));
        }
        self.end(closing);
        true
    }

    /// Ends because the server, the network or sense is gone.
    pub(super) fn lose(&mut self, loss: Loss) {
        if self.phase == ClientPhase::Closed || self.finish_close() {
            return;
        }
        if self.phase == ClientPhase::Quit && self.open.is_empty() && loss == Loss::Closed {
            return self.quit_done();
        }
        let stage = self.stage();
        let sent_to = self.out.sent_to();
        let is_used = self.messages > 0;
        let mut is_first = true;
        for open in &mut self.open {
            if open.is_whole(sent_to) {
                // RFC 5321 §4.5.4.1: the end was sent, so the server may have taken it; it is tried again later
                open.lose(Stage::End, loss);
            } else if is_first && sent_to > open.begins_at {
                // A connection that was good for others and closes without a word was closed while we began.
                let is_late = is_used && loss == Loss::Closed && matches!(open.awaits, Awaits::Rset | Awaits::Mail);
                if !is_late {
                    open.lose(stage, loss);
                }
            }
            is_first = false;
        }
        let closing = self.closing.take();
        let reply = self.ehlo_refusal.take();
        self.end(closing.unwrap_or(Closing { stage, reply, loss: Some(loss), orderly: false }));
    }

    /// The server refuses the session.
    pub(super) fn refused(&mut self, stage: Stage, raw: &Raw<'_>) {
        if raw.code.class() == ReplyClass::Intermediate || raw.code.class() == ReplyClass::Success {
            return self.lose(Loss::Protocol("a reply of a kind that does not fit the command"));
        }
        let orderly = raw.code.get() == DISMISSAL;
        let closing = Closing { stage, reply: Some(raw.reply()), loss: None, orderly };
        if orderly { self.end(closing) } else { self.leave(closing) }
    }

    /// Says QUIT where there will be no transaction.
    // RFC 5321 §3.1: a client that was refused says QUIT
    pub(super) fn leave(&mut self, closing: Closing) {
        self.closing = Some(closing);
        self.out.text(b"QUIT\r\n");
        self.phase = ClientPhase::Quit;
    }

    /// QUIT was answered, or the server cannot answer it any more.
    // RFC 5321 §4.1.1.10: the client waits for the reply to QUIT
    pub(super) fn quit_done(&mut self) {
        let closing = self.closing.take();
        let quit = Closing { stage: Stage::Quit, reply: None, loss: None, orderly: true };
        self.end(closing.map_or(quit, |closing| Closing { orderly: true, ..closing }));
    }

    /// Ends: all open transactions come out as they are.
    pub(super) fn end(&mut self, closing: Closing) {
        if self.phase == ClientPhase::Closed {
            return;
        }
        self.finished.extend(self.open.drain(..).map(|open| open.finish(std::mem::take(&mut self.times))));
        self.out.clear();
        self.pending_close = None;
        self.phase = ClientPhase::Closed;
        self.closing = Some(closing);
    }
}

//! A transaction between its beginning and its end: the commands sent, the replies, the results of recipients.
//!
//! A recipient is pending until it is decided: by a refusal of itself, or of the whole, or at the end. A decision is
//! never changed.

use mail::{PhaseTimes, Reply};

use super::dots::Dots;
use super::replies::{Raw, Room};
use super::step::{Answer, ClientTransaction, Finished, Loss, Outcome, Stage};

/// How far a transaction has been written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum GreetedProtocol {
    /// Nothing.
    Nothing,
    /// RSET alone.
    Rset,
    /// Up to MAIL.
    Mail,
    /// Up to so many RCPT.
    Rcpts(usize),
    /// Up to DATA.
    Data,
    /// Up to somewhere in the content, with BDAT in front of it or behind the 354.
    Content,
    /// All of it.
    All,
}

/// Which reply comes next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Awaits {
    Rset,
    Mail,
    /// To the RCPT at this index.
    Rcpt(usize),
    Data,
    /// To the content; in LMTP for the recipient at this index.
    End(usize),
}

/// An open transaction.
#[derive(Debug)]
pub(super) struct PendingTransaction {
    pub(super) transaction: ClientTransaction,
    pub(super) uses_bdat: bool,
    /// The content may follow before the recipients are known.
    pub(super) is_ahead: bool,
    /// RSET stands in front.
    pub(super) has_rset: bool,
    /// SMTPUTF8 is said.
    pub(super) utf8: bool,
    pub(super) spoken: GreetedProtocol,
    pub(super) awaits: Awaits,
    /// MAIL was refused.
    pub(super) mail_refused: bool,
    /// A RCPT was accepted although MAIL was refused.
    pub(super) is_odd: bool,
    /// Lines without a code came among the replies to a flight: each may have stood in the place of a reply.
    pub(super) is_doubtful: bool,
    /// Octets of content that the driver has yet to give, while it is asked for them.
    pub(super) left: Option<u64>,
    pub(super) dots: Dots,
    /// Where its first octet stands in the output.
    pub(super) begins_at: u64,
    /// The position behind the first of the commands written last: before that is sent nothing can be answered.
    pub(super) command_at: u64,
    /// The position behind its last octet, once that is written.
    pub(super) end_at: Option<u64>,
    /// 421 was said in reply to it.
    pub(super) dismissed: Option<Stage>,
    outcomes: Vec<Outcome>,
    pending: usize,
    /// Octets of the replies to single recipients.
    replies_octets: usize,
}

impl PendingTransaction {
    /// A transaction of which nothing is written, in commands that begin at this position.
    pub(super) fn new(transaction: ClientTransaction, begins_at: u64) -> Self {
        let recipients = transaction.recipients.len();
        Self {
            transaction,
            uses_bdat: false,
            is_ahead: false,
            has_rset: false,
            utf8: false,
            spoken: GreetedProtocol::Nothing,
            awaits: Awaits::Mail,
            mail_refused: false,
            is_odd: false,
            is_doubtful: false,
            left: None,
            dots: Dots::default(),
            begins_at,
            command_at: u64::MAX,
            end_at: None,
            dismissed: None,
            outcomes: vec![Outcome { stage: Stage::Mail, answer: Answer::NotTried }; recipients],
            pending: recipients,
            replies_octets: 0,
        }
    }

    /// The transaction with the manner in which it is written.
    pub(super) fn with(self, uses_bdat: bool, is_ahead: bool, has_rset: bool, utf8: bool) -> Self {
        let awaits = if has_rset { Awaits::Rset } else { Awaits::Mail };
        Self { uses_bdat, is_ahead, has_rset, utf8, awaits, ..self }
    }

    /// Recipients that are not decided.
    pub(super) const fn pending(&self) -> usize {
        self.pending
    }

    /// The first pending recipient at or behind `from`.
    pub(super) fn pending_from(&self, from: usize) -> Option<usize> {
        let rest = self.outcomes.get(from..).filter(|_| self.pending > 0)?;
        rest.iter().position(|outcome| outcome.answer == Answer::NotTried).map(|at| from + at)
    }

    /// Whether the server may have all of it, `sent_to` being the position up to which output was sent.
    pub(super) fn is_whole(&self, sent_to: u64) -> bool {
        self.end_at.is_some_and(|end| sent_to >= end)
    }

    /// Returns the stage that the next reply is about.
    pub(super) fn stage(&self, sent_to: u64) -> Stage {
        match self.awaits {
            Awaits::Rset => Stage::Rset,
            Awaits::Mail => Stage::Mail,
            Awaits::Rcpt(_) => Stage::Rcpt,
            Awaits::Data => Stage::Data,
            Awaits::End(_) if self.is_whole(sent_to) => Stage::End,
            Awaits::End(_) => Stage::Content,
        }
    }

    /// Decides the recipient at `index`, if it is pending.
    pub(super) fn decide(&mut self, index: usize, stage: Stage, answer: impl FnOnce() -> Answer) {
        let outcome = self.outcomes.get_mut(index).filter(|outcome| outcome.answer == Answer::NotTried);
        if let Some(outcome) = outcome.filter(|_| self.pending > 0) {
            *outcome = Outcome { stage, answer: answer() };
            self.pending -= 1;
        }
    }

    /// Decides the recipient at `index` by a reply to him alone, if he is pending.
    pub(super) fn decide_by(&mut self, index: usize, stage: Stage, raw: &Raw<'_>) {
        let room = Room::beside(self.replies_octets);
        let mut octets = 0;
        self.decide(index, stage, || {
            let reply = raw.reply_in(room);
            octets = reply.text_octets();
            Answer::Reply(reply)
        });
        self.replies_octets += octets;
    }

    /// Decides all that are pending by a reply.
    pub(super) fn decide_all(&mut self, stage: Stage, reply: impl FnOnce() -> Reply) {
        if self.pending == 0 {
            return;
        }
        let answer = Answer::Reply(reply());
        let mut last = None;
        for outcome in self.outcomes.iter_mut().filter(|outcome| outcome.answer == Answer::NotTried) {
            if let Some(before) = last.replace(outcome) {
                *before = Outcome { stage, answer: answer.clone() };
            }
        }
        if let Some(outcome) = last {
            *outcome = Outcome { stage, answer };
        }
        self.pending = 0;
    }

    /// There will be no reply for those that are pending.
    pub(super) fn lose(&mut self, stage: Stage, loss: Loss) {
        for index in 0..self.outcomes.len() {
            self.decide(index, stage, || Answer::Lost(loss));
        }
    }

    /// Marks the pending recipients as not tried, whatever replies come later.
    pub(super) const fn spare(&mut self) {
        self.pending = 0;
    }

    pub(super) fn finish(self, times: PhaseTimes) -> Finished {
        let stopped_content = self.left.is_some();
        Finished { token: self.transaction.token, outcomes: self.outcomes, stopped_content, times }
    }
}

//! DATA and BDAT: from the command to the reply for the message.
//!
//! A chunk's octets are always taken off the input, even when the chunk is refused: octets that the client counts as
//! content are never read as commands. A fault in content ends the transaction; DATA is answered at its true end, BDAT
//! at the end of the chunk in which it was found.

use std::time::Duration;

use mail::{Body, Reply, ReplyClass};

use super::content::{Content, ContentError};
use super::phase::{Chunk, PendingQuestion, Phase};
use super::replies::{Refusal, printable};
use super::session::{Session, check_class};
use super::{Note, Question, Step, Verdict};

impl Session {
    // RFC 5321 §4.1.1.4
    pub(super) fn data(&mut self, line: &[u8]) -> Option<Step> {
        self.ending.after = "DATA";
        if self.repeats_refusal(line) {
            return None;
        }
        let refusal = match &self.open {
            None => Refusal::MailFirst("DATA"),
            // RFC 3030 §2: DATA after BDAT is 503
            Some(open) if open.content.is_some() => Refusal::NotAfterChunks,
            // RFC 5321 §3.3: no valid recipient, no data; RFC 2033 §4.2: 503 in LMTP
            Some(open) if open.transaction.recipients.is_empty() => Refusal::RecipientFirst("DATA"),
            // RFC 3030 §3
            Some(open) if open.transaction.params.body == Some(Body::BinaryMime) => Refusal::BinaryNeedsChunks,
            Some(_) => return self.ask(PendingQuestion::Data, Question::Data),
        };
        self.refuse(line, &refusal);
        None
    }

    // RFC 3030 §2
    pub(super) fn bdat(&mut self, line: &[u8], octets: u64, last: bool) -> Option<Step> {
        self.ending.after = "BDAT";
        let max = self.settings.limits.message_bytes;
        let is_idle = octets == 0 && !last;
        if is_idle && !self.count_idle() {
            return None;
        }
        let refusal = match &self.open {
            None => Refusal::MailFirst("BDAT"),
            Some(open) if open.transaction.recipients.is_empty() => Refusal::RecipientFirst("BDAT"),
            // RFC 1870 §6.3: more than is allowed, known before it comes
            Some(_) if octets > max.saturating_sub(self.content_bytes()) => {
                self.note(Note::Limit("message.size_max"));
                let times = self.replies_wanted(last);
                self.swallow_chunk(line, octets, times, &Refusal::Content(ContentError::Size));
                self.reset();
                return None;
            }
            Some(open) if open.content.is_some() => {
                self.begin_chunk(octets, last, None);
                return None;
            }
            Some(_) => return self.ask(PendingQuestion::FirstChunk { octets, last }, Question::Data),
        };
        self.swallow_chunk(line, octets, 1, &refusal);
        None
    }

    /// How many replies the client waits for behind a chunk.
    // RFC 2033 §4.2: one for each recipient behind the last chunk
    fn replies_wanted(&self, last: bool) -> usize {
        if last && self.is_lmtp() { self.recipients().max(1) } else { 1 }
    }

    fn recipients(&self) -> usize {
        self.open.as_ref().map_or(0, |open| open.transaction.recipients.len())
    }

    fn begin_chunk(&mut self, octets: u64, last: bool, refusal: Option<(Reply, usize)>) {
        self.phase = Phase::Chunk(Chunk { octets, left: octets, last, refusal });
    }

    /// Refuses a BDAT command; the answer follows its octets.
    pub(super) fn swallow_chunk(&mut self, line: &[u8], octets: u64, times: usize, refusal: &Refusal<'_>) {
        let reply = refusal.reply(&self.settings.limits);
        self.note(Note::Refused { command: printable(line).into(), reply: reply.clone() });
        self.begin_chunk(octets, false, Some((reply, times)));
    }

    /// Answers Data: the content may come; `trace` is put in front of it and counts for no limit.
    ///
    /// # Panics
    /// When Data is not asked.
    pub fn begin_content(&mut self, trace: &[u8], now: Duration) {
        self.times.wait_from(now);
        let asked = self.take_question();
        let settings = self.settings.clone();
        let normalizes = self.normalizes();
        let Some(open) = &mut self.open else { return };
        let params = &open.transaction.params;
        let binary = params.body == Some(Body::BinaryMime);
        let content = |expected| Content::new(&settings.limits, normalizes, binary, trace, expected);
        match asked {
            PendingQuestion::Data => {
                open.content = Some(content(params.size));
                self.push_octets(b"354 Enter mail, end with \".\" on a line by itself\r\n");
                self.phase = Phase::Data;
            }
            PendingQuestion::FirstChunk { octets, last } => {
                open.content = Some(content(params.size.or_else(|| last.then_some(octets))));
                self.begin_chunk(octets, last, None);
            }
            asked => panic!("begin_content() when {asked:?} is asked"),
        }
    }

    pub(super) fn refuse_data(&mut self, verdict: Verdict) {
        assert!(!is_success(&verdict), "Data is accepted by begin_content()");
        self.reset();
        self.push_refusal(verdict);
    }

    pub(super) fn refuse_first_chunk(&mut self, verdict: Verdict, octets: u64, last: bool) {
        assert!(!is_success(&verdict), "Data is accepted by begin_content()");
        let times = self.replies_wanted(last);
        self.reset();
        match verdict {
            Verdict::Refuse(reply) => self.begin_chunk(octets, false, Some((reply, times))),
            verdict => self.push_refusal(verdict),
        }
    }

    /// A chunk may end without more input.
    pub(super) fn is_chunk_complete(&self) -> bool {
        matches!(&self.phase, Phase::Chunk(chunk) if chunk.left == 0)
    }

    pub(super) fn read_data(&mut self, input: &[u8], now: Duration) -> (usize, Option<Step>) {
        let piece = self.settings.limits.content_piece_bytes.max(1);
        let Some(content) = self.content_mut() else { return (0, None) };
        let room = piece.saturating_sub(content.waiting()).max(1);
        let (used, ended) = content.data(input.get(..room).unwrap_or(input));
        let is_full = content.waiting() >= piece;
        self.times.content(used, now);
        if ended {
            self.times.wait_from(now);
            return (used, self.message_complete());
        }
        (used, self.hand_over(is_full))
    }

    fn hand_over(&mut self, is_full: bool) -> Option<Step> {
        is_full.then(|| {
            self.times.pause();
            Step::Content
        })
    }

    pub(super) fn read_chunk(&mut self, input: &[u8], now: Duration) -> (usize, Option<Step>) {
        let piece = self.settings.limits.content_piece_bytes.max(1);
        let Phase::Chunk(chunk) = &mut self.phase else { return (0, None) };
        let mut used = usize::try_from(chunk.left).unwrap_or(usize::MAX).min(input.len());
        let content =
            if chunk.refusal.is_none() { self.open.as_mut().and_then(|open| open.content.as_mut()) } else { None };
        let mut is_full = false;
        if let Some(content) = content {
            used = used.min(piece.saturating_sub(content.waiting()).max(1));
            content.chunk(input.get(..used).unwrap_or(input));
            is_full = content.waiting() >= piece;
        }
        chunk.left = chunk.left.saturating_sub(used as u64);
        let ended = chunk.left == 0;
        if used > 0 {
            self.times.content(used, now);
        }
        if ended {
            self.times.wait_from(now);
            return (used, self.chunk_complete());
        }
        (used, self.hand_over(is_full))
    }

    /// All octets of a chunk have come.
    fn chunk_complete(&mut self) -> Option<Step> {
        let Phase::Chunk(chunk) = std::mem::replace(&mut self.phase, Phase::Command) else { return None };
        if let Some((reply, times)) = chunk.refusal {
            for _ in 0..times {
                self.push(&reply);
            }
            if reply.code().class() == ReplyClass::Permanent {
                self.count_error();
            }
            return None;
        }
        if chunk.last {
            if let Some(content) = self.content_mut() {
                content.end_chunks();
            }
            return self.message_complete();
        }
        match self.content().and_then(Content::problem) {
            Some(problem) => self.refuse_content(problem, 1),
            None => self.push_text(format_args!("250 2.0.0 {} octets received\r\n", chunk.octets)),
        }
        None
    }

    fn message_complete(&mut self) -> Option<Step> {
        self.phase = Phase::Command;
        match self.content().and_then(Content::problem) {
            None => self.ask(PendingQuestion::Message, Question::Message),
            Some(problem) => {
                self.refuse_content(problem, self.replies_wanted(true));
                None
            }
        }
    }

    /// Refuses the message for its content; the transaction is over.
    fn refuse_content(&mut self, problem: ContentError, times: usize) {
        let reply = Refusal::Content(problem).reply(&self.settings.limits);
        for _ in 0..times {
            self.push(&reply);
        }
        match problem {
            ContentError::BareNewline | ContentError::Nul => self.note(Note::BareNewline),
            ContentError::Size => self.note(Note::Limit("message.size_max")),
            ContentError::Line => self.note(Note::Limit("message.line_bytes_max")),
            ContentError::HeaderSize => self.note(Note::Limit("message.header_bytes_max")),
            ContentError::HeaderFields => self.note(Note::Limit("message.header_fields_max")),
            ContentError::Hops => self.note(Note::Limit("message.hops_max")),
        }
        self.note(Note::Content { reply, bytes: self.content_bytes() });
        self.reset();
        self.count_error();
    }

    /// Content so far that was not yet taken, with the trace line in front of the first piece. CRLF line ends, dots
    /// unstuffed. Nothing once the content has broken a rule.
    pub fn take_content(&mut self) -> Vec<u8> {
        self.content_mut().map(Content::take).unwrap_or_default()
    }

    /// Answers Message. One verdict, or in LMTP one for each recipient in order. The transaction is over.
    ///
    /// # Panics
    /// When Message is not asked, when there is no verdict for a recipient, and when a reply has the wrong class.
    // RFC 5321 §6.1: the driver has made the message durable before it accepts
    pub fn finish(&mut self, verdicts: &[Verdict], now: Duration) {
        let asked = self.take_question();
        assert!(matches!(asked, PendingQuestion::Message), "finish() when {asked:?} is asked");
        self.times.wait_from(now);
        let wanted = self.replies_wanted(true);
        assert!(verdicts.len() >= wanted, "{} verdicts for {wanted} replies", verdicts.len());
        let mut is_accepted = false;
        let mut is_error = false;
        let mut closes = false;
        for verdict in verdicts.iter().take(wanted) {
            check_class(verdict);
            match verdict {
                Verdict::Accept => {
                    is_accepted = true;
                    self.push_octets(b"250 2.0.0 Message accepted for delivery\r\n");
                }
                Verdict::AcceptWith(reply) => {
                    is_accepted = true;
                    self.push(reply);
                }
                Verdict::Refuse(reply) => {
                    is_error |= reply.code().class() == ReplyClass::Permanent;
                    self.push(reply);
                }
                Verdict::Close(reply) => {
                    closes = true;
                    self.push(reply);
                }
            }
        }
        self.open = None;
        self.transaction_over();
        self.counts.idle = 0;
        if is_accepted {
            self.ending.messages = self.ending.messages.saturating_add(1);
        } else if is_error {
            self.count_error();
        }
        if closes {
            self.closing();
        }
    }
}

fn is_success(verdict: &Verdict) -> bool {
    matches!(verdict, Verdict::Accept | Verdict::AcceptWith(_))
}

//! Reports the events of a session to the log.

use super::{Connection, SessionEnd};
use crate::auth::{AuthFailure, Exchange};
use crate::intake::report_waiting;
use crate::tls::HandshakeError;
use mail::{Envelope, QueueId, Reply, ReplyClass};
use observe::{Event, Fate, Limit, Relay, Ruleset, SaslError, Severity};
use os::clock;
use smtp::server::{Note, Question, Verdict};
use spool::{Error, Statistics};
use std::fmt::Write as _;
use std::path::Path;

impl Connection {
    /// Returns the client, as log lines name it.
    pub(super) fn relay(&self) -> Relay<'_> {
        self.opening.relay(self.session.client())
    }

    pub(super) fn daemon(&self) -> &str {
        &self.lane.listen.name
    }

    /// Begins a transaction: gives it a queue id, and remembers its sender for the log.
    pub(super) fn begin_transaction(&mut self) {
        let first = self.first_id.take();
        self.id = Some(first.unwrap_or_else(|| self.context.message_store.next_id()));
        self.from.clear();
        if let Some(transaction) = self.session.transaction() {
            write!(self.from, "{}", transaction.sender).expect("a string takes everything");
        }
    }

    /// Returns the queue id of the open transaction, which it gets now if it has none.
    pub(super) fn transaction_id(&mut self) -> QueueId {
        *self.id.get_or_insert_with(|| self.context.message_store.next_id())
    }

    /// Returns the queue id of the open transaction, else the one that the next transaction gets: the lines of a
    /// session before its first message have the id of that message.
    pub(super) fn session_id(&mut self) -> QueueId {
        let next = || self.context.message_store.next_id();
        self.id.unwrap_or_else(|| *self.first_id.get_or_insert_with(next))
    }

    /// The transaction became a message.
    pub(super) fn forget_transaction(&mut self) {
        self.id = None;
        self.refused = 0;
    }

    /// Logs a transaction that became no message, if there was one and a recipient was refused in it.
    pub(super) fn end_transaction(&mut self) {
        let Some(id) = self.id.take() else { return };
        if std::mem::take(&mut self.refused) > 0 {
            self.context.record(&Event::TransactionRefused {
                id: Some(id),
                from: &self.from,
                size: std::mem::take(&mut self.refused_bytes).max(self.session.content_bytes()),
                protocol: self.session.protocol(),
                daemon: self.daemon(),
                relay: self.relay(),
            });
        }
    }

    /// Passes a verdict on, and logs it when it is a refusal.
    pub(super) fn refuse(&mut self, ruleset: Ruleset, verdict: Verdict) -> Verdict {
        let (Verdict::Refuse(reply) | Verdict::Close(reply)) = &verdict else { return verdict };
        if self.is_again && reply.code().class() == ReplyClass::Transient {
            return verdict;
        }
        if ruleset == Ruleset::Relay {
            self.report_client_refused(reply);
            return verdict;
        }
        self.refused += 1;
        let recipient;
        let arg1 = match (ruleset, self.session.candidate()) {
            (Ruleset::Rcpt, Some(candidate)) => {
                recipient = format!("<{}>", candidate.address);
                Some(recipient.as_str())
            }
            _ => Some(self.from.as_str()),
        };
        let event = Event::Rejected { id: self.id, ruleset, arg1, arg2: None, relay: self.relay(), reply };
        self.context.record(&event);
        verdict
    }

    /// Logs that the client is refused, whatever mail it has.
    fn report_client_refused(&self, reply: &Reply) {
        let relay = self.relay();
        let address = match relay {
            Relay::Host { address, .. } => address.to_string(),
            Relay::Local { user } => user.to_owned(),
        };
        let literal = format!("[{address}]");
        let (arg1, arg2) = (Some(self.opening.name().unwrap_or(&literal)), Some(&*address));
        self.context.record(&Event::Rejected { id: None, ruleset: Ruleset::Relay, arg1, arg2, relay, reply });
    }

    /// Logs that VRFY or EXPN was asked and not answered.
    pub(super) fn report_not_verified(&mut self, question: Question, reply: &Reply) {
        let id = Some(self.session_id());
        let ruleset = if question == Question::Expand { Ruleset::Expn } else { Ruleset::Vrfy };
        let (arg1, relay) = (Some(self.session.argument()), self.relay());
        self.context.record(&Event::Rejected { id, ruleset, arg1, arg2: None, relay, reply });
    }

    /// Logs that an entry of the access map has a message dropped or held.
    pub(super) fn report_ruled(&self, ruleset: Ruleset, arg1: &str, fate: Fate<'_>) {
        if !self.is_again {
            self.context.record(&Event::Ruled { id: self.id, ruleset, arg1, relay: self.relay(), fate });
        }
    }

    /// A map cannot be asked.
    pub(super) fn report_unanswered(&self, why: &str) {
        if !self.is_again {
            self.context.record(&Event::ConfigWarning { text: &format!("a map cannot be asked: {why}") });
        }
    }

    /// The message is durable.
    pub(super) fn report_accepted(&mut self, id: QueueId, envelope: &Envelope, class: i32) {
        let relay = self.relay();
        self.context.record(&Event::Accepted {
            id,
            from: &self.from,
            size: self.session.content_bytes(),
            class,
            nrcpts: envelope.recipients.len(),
            msgid: self.session.message_id(),
            bodytype: envelope.params.body,
            mt_priority: envelope.params.mt_priority,
            protocol: envelope.received.protocol,
            daemon: self.daemon(),
            identity: self.session.identity(),
            relay,
        });
        if self.context.live.load().queues_only() {
            report_waiting(&self.context, envelope, self.session.content_bytes(), class, None);
        }
    }

    /// The transaction became one more message.
    pub(super) fn report_clone(&self, first: QueueId, envelope: &Envelope) {
        let owner = envelope.sender.to_string();
        self.context.record(&Event::Cloned { first, id: envelope.id, owner: owner.trim_matches(['<', '>']) });
    }

    /// Logs that the transaction was accepted and is dropped. `is_ruled`: the access map says so about all of it.
    pub(super) fn report_discarded(&mut self, envelope: &Envelope, class: i32, is_ruled: bool) {
        let id = envelope.id;
        self.report_accepted(id, envelope, class);
        // Of a decision about all of them there is a line already.
        if !is_ruled {
            self.context.record_discarded(id, envelope.recipients.iter().map(|one| &one.address));
        }
        self.context.record(&Event::Discarded { id });
    }

    /// Logs that the spool did not store the message, not more often than [`StoreFaults`] allows. The refusal itself is
    /// logged with the reply.
    ///
    /// [`StoreFaults`]: crate::intake::StoreFaults
    pub(super) fn report_not_stored(&mut self, error: &Error) {
        let severity = match error {
            Error::Full | Error::Busy | Error::TooLarge { .. } => Severity::Warning,
            Error::Poisoned => Severity::Critical,
            _ => Severity::Error,
        };
        let mut text = error.to_string();
        if *error == Error::Full {
            let live = self.context.live.load_full();
            let spool = &live.config.spool;
            let (why, limit) = full(&self.context.message_store.statistics(), &spool.path, spool.free_min);
            text = why;
            self.report_limit(limit);
        }
        let Some(others) = self.inbound.store_faults.count(error, clock::now()) else { return };
        if others > 0 {
            write!(text, " ({others} more messages since the last such line)").expect("a string takes everything");
        }
        self.context.record(&Event::Spool { severity, text: &text });
    }

    /// Reports notes of the machine as events. A transaction that is over by then loses its queue id, so that no
    /// later line has it.
    pub(super) fn report_notes(&mut self) {
        for note in self.session.take_notes() {
            self.report_note(&note);
            if let Note::AuthFailed { .. } = note {
                self.exchange = None;
            }
            if let Note::Content { bytes, .. } = note {
                self.refused += 1;
                self.refused_bytes = bytes;
            }
        }
        if self.id.is_some() && self.session.transaction().is_none() {
            self.end_transaction();
        }
    }

    fn report_note(&mut self, note: &Note) {
        if let Note::Limit(name) = note {
            return self.report_limit(name);
        }
        let id = Some(self.session_id());
        let relay = self.relay();
        let context = &self.context;
        match note {
            Note::Refused { command, reply } => context.record(&Event::Rejected {
                id,
                ruleset: Ruleset::Command,
                arg1: Some(command),
                arg2: None,
                relay,
                reply,
            }),
            Note::Content { reply, .. } => context.record(&Event::Rejected {
                id: self.id,
                ruleset: Ruleset::Eom,
                arg1: Some(&self.from),
                arg2: None,
                relay,
                reply,
            }),
            Note::Limit(_) => {}
            Note::NotVerified { question, argument, reply } => {
                let ruleset = if *question == Question::Expand { Ruleset::Expn } else { Ruleset::Vrfy };
                let arg1 = Some(&**argument);
                context.record(&Event::Rejected { id, ruleset, arg1, arg2: None, relay, reply });
            }
            Note::EarlyTalker => {
                context.record(&Event::EarlyTalker { id, relay, after_seconds: self.elapsed().as_secs() });
                self.is_early_talker = true;
            }
            Note::ForeignProtocol { line } => context.record(&Event::ForeignProtocol { id, relay, command: line }),
            Note::BareNewline => {
                let refused = !self.session.normalizes();
                context.record(&Event::BareNewline { id: self.id, relay, refused });
            }
            Note::AuthFailed { mechanism } => {
                let identity = self.exchange.as_ref().and_then(Exchange::user);
                let (error, reason) = (SaslError::Protocol, "given up by the client");
                context.record(&Event::AuthFailed { id, relay, identity, mechanism, error, reason });
            }
        }
    }

    pub(super) fn report_limit(&mut self, name: &str) {
        let limit = Limit::from_name(name);
        let max = self.context.live.load().limit(limit);
        let id = Some(self.session_id());
        self.context.record(&Event::LimitReached { id, relay: self.relay(), limit, max });
    }

    /// Block lists have spoken.
    pub(super) fn report_listings(&self) {
        let relay = self.relay();
        for listing in &self.opening.listings.listed {
            for answer in &listing.answers {
                let zone = listing.zone.as_str();
                self.context.record(&Event::DnsblListed { relay, zone, answer: *answer, weight: listing.weight });
            }
        }
        for note in &self.opening.listings.notes {
            self.context.record(&Event::ConfigWarning { text: &note.to_string() });
        }
    }

    /// The handshake failed.
    pub(super) fn report_tls_failure(&self, error: &HandshakeError) {
        self.context.record(&Event::TlsFailed { relay: self.relay(), reason: &error.to_string() });
    }

    /// A user is known.
    pub(super) fn report_auth(&self, identity: &str) {
        let mechanism = self.session.auth_mechanism();
        self.context.record(&Event::Auth { relay: self.relay(), identity, mechanism });
    }

    /// A user is not known.
    pub(super) fn report_auth_failure(&mut self, failure: &AuthFailure) {
        let id = Some(self.session_id());
        let (mechanism, error, reason) = (self.session.auth_mechanism(), failure.sasl_error(), &*failure.why);
        let identity = self.exchange.as_ref().and_then(Exchange::user);
        self.context.record(&Event::AuthFailed { id, relay: self.relay(), identity, mechanism, error, reason });
        if let Some(limit) = failure.limit() {
            self.report_limit(limit.name());
        }
    }

    /// Reports a login that has had too many recipients; `count`: the log tells the operator now.
    pub(super) fn report_login_over(&mut self, count: Option<u32>, max: u32) {
        if let (Some(count), Some(identity)) = (count, self.session.identity()) {
            let (relay, count, max) = (self.relay(), count.into(), max.into());
            self.context.record(&Event::LoginOverLimit { relay, identity, count, max });
        }
        self.report_limit(Limit::AuthRecipientsHourMax.name());
    }

    /// A fault of ours.
    pub(super) fn report_internal(&self, place: &str, text: &str) {
        self.context.record(&Event::InternalError { place, text });
    }

    /// The last line of the session.
    pub(super) fn report_end(&mut self, end: SessionEnd, in_content: bool) {
        self.report_notes();
        let ending = self.session.ending();
        let is_silent = !ending.issued_command && !self.is_early_talker;
        let is_told = ending.timed_out || end == SessionEnd::Lost && ending.in_transaction || is_silent;
        let id = is_told.then(|| self.session_id());
        let ending = self.session.ending();
        let relay = self.relay();
        let context = &self.context;
        let daemon = self.daemon();
        if ending.timed_out {
            let during = if in_content { "message content read" } else { "server cmd read" };
            context.record(&Event::TimedOut { id, relay, during });
        } else if end == SessionEnd::Lost && ending.in_transaction {
            context.record(&Event::LostInput { id, relay, daemon, after: ending.after });
        } else if is_silent {
            context.record(&Event::NoMail { id, relay, daemon });
        }
        self.end_transaction();
    }
}

/// Returns why the spool takes no more, with the next step, and the limit that was reached: its own, or the room that
/// the file system has.
fn full(spool: &Statistics, path: &Path, free_min: u64) -> (String, &'static str) {
    let Statistics { segments, segments_max, .. } = spool;
    if segments >= segments_max {
        let text = format!(
            "spool full: no room in {segments} of {segments_max} segments; raise spool.size_max, or see what waits: \
             mailrace queue destinations"
        );
        return (text, "spool.size_max");
    }
    let text = format!(
        "spool full: no room in {segments} of {segments_max} segments, and the file system of {} has none for another beside \
         spool.free_min, {free_min} octets; free disk space",
        path.display()
    );
    (text, "spool.free_min")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_disk_is_not_called_a_full_spool() {
        let of = |segments| Statistics { segments, segments_max: 64, ..Statistics::default() };
        let (text, limit) = full(&of(64), Path::new("/spool"), 1_024);
        assert!(text.contains("64 of 64 segments; raise spool.size_max") && limit == "spool.size_max", "{text}");
        let (text, limit) = full(&of(9), Path::new("/spool"), 1_024);
        assert!(text.contains("9 of 64 segments, and the file system of /spool has none"), "{text}");
        assert!(!text.contains("size_max") && limit == "spool.free_min", "{text}");
        assert_eq!(Limit::from_name(limit).name(), limit);
    }
}

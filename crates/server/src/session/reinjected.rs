//! A message that comes back from a filter by SMTP: its trace token says which message it is and which filters it has
//! passed.
//!
//! | The token | The message |
//! |---|---|
//! | of a question that is open | is handed to the session that asks, which stores it in place of its own |
//! | of a question that was given up, or of a message that still waits for its filters | 451: it is asked about anew |
//! | of another question | is mail of its own, which is not judged again by the filters that it has passed |
//! | forged, or from a client that may not relay | is mail of its own, judged like any other |
//!
//! In the first two cases nothing is stored here. Trace fields are removed in every case.

use super::Connection;
use super::answers::{accepted, reply};
use crate::intake::TransactionContent;
use crate::routing::plan::Plan;
use crate::screen::filters::{
    Reinjection, ReturnedMessage, TRACE_FIELD, TraceToken, trace_fields, without_trace_fields,
};
use crate::screen_queue::ScreenQueue;
use mail::Address;
use mail::header::{HeaderSection, LineEnd};
use observe::{Event, Ruleset, ScreenVerdict};
use smtp::server::Verdict;
use std::sync::Arc;

impl Connection {
    /// Has a message that may come back from a filter kept in memory as it arrives.
    pub(super) fn keep_reinjected(&mut self) {
        let live = self.context.live.load();
        let largest = live.screen.as_ref().and_then(|screen| screen.given_back_max());
        if let Some(largest) = largest.filter(|_| self.is_own_client(&live)) {
            self.content.keep_at_least(largest);
        }
    }

    /// Forgets the beginning of a large message that has no trace field.
    pub(super) fn keep_if_reinjected(&mut self) {
        if self.content.is_kept_for_more() && trace_fields(self.content.header()).is_empty() {
            self.content.keep_as_before();
        }
    }

    /// Takes a message that comes back from a filter, whose last octets are `rest`. Returns the rest of one that is
    /// mail of its own, without trace fields.
    ///
    /// # Errors
    /// The answer to the message: another session has it, or it is refused.
    pub(super) fn take_reinjected(
        &mut self,
        content: &mut TransactionContent,
        rest: Vec<u8>,
    ) -> Result<Vec<u8>, Verdict> {
        self.passed_filters = Vec::new();
        let live = self.context.live.load_full();
        if live.screen.as_ref().and_then(|screen| screen.given_back_max()).is_none() {
            return Ok(rest);
        }
        let fields = trace_fields(if content.is_small() { &rest } else { content.header() });
        if fields.is_empty() {
            return Ok(rest);
        }
        let may_give_back = self.is_own_client(&live);
        let token = fields.first().and_then(|text| self.context.reinjections.token(text)).filter(|_| may_give_back);
        match token {
            Some(token) => self.give_back(&token, content, &rest)?,
            None => self.report_forged(),
        }
        Ok(without_fields(content, rest))
    }

    /// Gives the message to the session that asks about it. Returns if it is mail of its own.
    fn give_back(&mut self, token: &TraceToken, content: &TransactionContent, rest: &[u8]) -> Result<(), Verdict> {
        let beginning = content.beginning(rest);
        if !beginning.is_complete {
            return Err(Verdict::Refuse(reply(552, "5.3.4 Message is larger than filter.size_max allows")));
        }
        let Some(transaction) = self.session.transaction() else { return Ok(()) };
        let section = HeaderSection::read(&beginning.octets, LineEnd::Crlf).as_bytes().len();
        let (header, body) = beginning.octets.split_at(section);
        let recipients: Vec<Address> = transaction.recipients.iter().map(|one| one.address.clone()).collect();
        let returned = ReturnedMessage {
            sender: transaction.sender.clone(),
            recipients,
            content: [&without_trace_fields(header, true), body].concat(),
        };
        let reinjection = self.context.reinjections.give_back(token, returned);
        let waits = |queue: &Arc<ScreenQueue>| queue.has(token.id);
        let is_asked_anew = self.inbound.screen_queue.as_ref().is_some_and(waits);
        let (verdict, action) = match reinjection {
            Reinjection::Taken => (ScreenVerdict::Accept, "given back"),
            Reinjection::GivenUp => (ScreenVerdict::Defer, "given back too late, refused with 451"),
            Reinjection::OfItsOwn if is_asked_anew => (ScreenVerdict::Defer, "given back too late, refused with 451"),
            Reinjection::OfItsOwn => (ScreenVerdict::Accept, "given back as mail of its own"),
        };
        self.report_reinjected(token, verdict, action);
        match (reinjection, verdict) {
            (Reinjection::Taken, _) => Err(Verdict::AcceptWith(accepted(&token.id.to_string()))),
            (_, ScreenVerdict::Defer) => {
                let text = "4.7.1 This message is no longer waited for, the filters are asked about it again";
                Err(Verdict::Refuse(reply(451, text)))
            }
            _ => {
                self.passed_filters.clone_from(&token.filters);
                if let Some(filters) = &mut self.filters {
                    filters.skip(&token.filters);
                }
                Ok(())
            }
        }
    }

    /// Ends the transaction of a message that another session has, or that is refused. Nothing of it is stored.
    pub(super) fn end_reinjected(&mut self, content: TransactionContent, verdict: Verdict) {
        content.abandon(&self.context.message_store);
        self.routing = None;
        self.screening = None;
        self.sender_check = None;
        self.plan = Plan::default();
        drop(self.header_rewrite_failure());
        let verdict = self.refuse(Ruleset::Eom, verdict);
        self.end_transaction();
        let due = self.verdicts_due();
        self.forget_transaction();
        let now = self.elapsed();
        self.session.finish(&vec![verdict; due], now);
    }

    fn report_reinjected(&self, token: &TraceToken, verdict: ScreenVerdict, action: &str) {
        let by = token.filters.last().map(String::as_str).unwrap_or_default();
        self.context.record(&Event::Screened { id: token.id, verdict, by, place: self.daemon(), to: "", action });
    }

    fn report_forged(&mut self) {
        let action = "a trace field that is not of this server, or of a client that may not relay, was removed";
        let id = self.session_id();
        let (by, place) = (TRACE_FIELD, self.daemon());
        self.context.record(&Event::Screened { id, verdict: ScreenVerdict::Edit, by, place, to: "", action });
    }
}

/// Removes the trace fields of a message.
fn without_fields(content: &mut TransactionContent, rest: Vec<u8>) -> Vec<u8> {
    if !content.is_small() {
        content.edit_header(|section| without_trace_fields(section, false));
        return rest;
    }
    let section = HeaderSection::read(&rest, LineEnd::Crlf).as_bytes();
    [&without_trace_fields(section, false), rest.get(section.len()..).unwrap_or_default()].concat()
}

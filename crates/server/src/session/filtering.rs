//! Asks the filters of a listener at each step of the session, before the client gets its answer.
//!
//! A filter is asked last: about senders and recipients that the server itself accepts. Its refusal is the answer to
//! the command.

use super::Connection;
use super::answers::reply;
use super::routed::RecipientRuled;
use crate::routing::expansions::{Expanded, Resolved};
use crate::screen::ScreenedMessage;
use crate::screen::filters::{
    FilterContent, FilterFacts, FilterNote, FilterSession, FilterStep, FilterVerdict, OwnFields, StepVerdict,
};
use mail::{Client, Recipient, ReplyClass, ReversePath};
use observe::{Event, Ruleset};
use route::access::Ruling;
use route::resolve::{Outcome, Resolution};
use smtp::server::{Question, Verdict};
use std::sync::Arc;

impl Connection {
    /// Whether filters are asked about this session.
    pub(super) const fn has_filters(&self) -> bool {
        self.filters.is_some()
    }

    /// Asks the filters about the client. A 5yz reply turns it away, a 4yz reply closes the connection.
    pub(super) async fn filter_client(&mut self) -> Verdict {
        match self.filter_step(FilterStep::Connect, Ruleset::Relay).await {
            // RFC 5321 §3.1: 554 in place of the greeting
            Verdict::Refuse(said) if said.code().class() == ReplyClass::Permanent => {
                Verdict::Refuse(reply(554, &format!("5.7.1 {}", said.lines().next().unwrap_or_default())))
            }
            Verdict::Refuse(said) => {
                Verdict::Close(reply(421, &format!("4.7.1 {}", said.lines().next().unwrap_or_default())))
            }
            verdict => verdict,
        }
    }

    /// Answers a command: the server's own decision, then the filters'.
    pub(super) async fn answer_with_filters(&mut self, question: Question) {
        let verdict = match question {
            Question::Helo => {
                let verdict = self.context.live.load().policies.helo(&self.facts()).verdict;
                match self.refuse(Ruleset::Helo, verdict) {
                    Verdict::Accept => self.filter_step(FilterStep::Helo, Ruleset::Helo).await,
                    refusal => refusal,
                }
            }
            Question::Mail => {
                let verdict = match self.routing.clone() {
                    Some(routing) => match routing.admission() {
                        Some(admission) => self.sender_in_time(&routing, admission).await,
                        None => Verdict::Accept,
                    },
                    None => self.admit_sender(),
                };
                match verdict {
                    Verdict::Accept => self.filter_step(FilterStep::Mail, Ruleset::Mail).await,
                    refusal => refusal,
                }
            }
            Question::Recipient => {
                let verdict = self.recipient_with_filters().await;
                let now = self.elapsed();
                return self.answer_recipient(verdict, now);
            }
            Question::Unknown => self.filter_step(FilterStep::Unknown, Ruleset::Command).await,
            _ => match self.filter_step(FilterStep::Data, Ruleset::Data).await {
                Verdict::Accept => {
                    let now = self.elapsed();
                    return self.begin_message(now);
                }
                refusal => refusal,
            },
        };
        let now = self.elapsed();
        self.session.answer(verdict, now);
    }

    async fn recipient_with_filters(&mut self) -> Verdict {
        let Some(candidate) = self.session.candidate().cloned() else { return Verdict::Accept };
        let Some(routing) = self.routing.clone() else {
            let verdict = self.admit_recipient();
            return self.filter_recipient(verdict).await;
        };
        let Some(admission) = routing.admission() else { return Verdict::Accept };
        let ruled = self.recipient_in_time(&routing, admission, &candidate).await;
        if self.is_welcome(&candidate, &ruled) {
            let verdict = self.filter_step(FilterStep::Recipient, Ruleset::Rcpt).await;
            if verdict != Verdict::Accept {
                return verdict;
            }
            return self.rule_recipient(&candidate, ruled);
        }
        match self.rule_recipient(&candidate, ruled) {
            Verdict::Accept => Verdict::Accept,
            refusal => self.filter_recipient(refusal).await,
        }
    }

    /// Asks the filters about a recipient that the server accepts, or tells those that wish it of a refused one.
    async fn filter_recipient(&mut self, verdict: Verdict) -> Verdict {
        let reply = match &verdict {
            Verdict::Accept | Verdict::AcceptWith(_) => {
                return self.filter_step(FilterStep::Recipient, Ruleset::Rcpt).await;
            }
            Verdict::Refuse(reply) | Verdict::Close(reply) => reply,
        };
        let status = reply.enhanced().map(|status| status.to_string()).unwrap_or_default();
        let text = reply.lines().next().unwrap_or_default().to_owned();
        let facts = FilterFacts { refusal: Some((status, text)), ..self.filter_facts() };
        match self.ask_filters(FilterStep::RefusedRecipient, &facts).await {
            StepVerdict::Close(reply) => self.refuse(Ruleset::Rcpt, Verdict::Close(reply)),
            StepVerdict::Continue | StepVerdict::Refuse(_) => verdict,
        }
    }

    /// Whether the server itself accepts the recipient.
    fn is_welcome(&self, candidate: &Recipient, ruled: &Result<RecipientRuled, Arc<str>>) -> bool {
        let Ok(RecipientRuled { admitted, resolved }) = ruled else { return false };
        let is_unknown = matches!(
            resolved,
            Some(
                Resolved::Short(Resolution { outcome: Outcome::Refuse(_), .. }) | Resolved::Long(Expanded::Refused(_))
            )
        );
        if is_unknown || matches!(admitted.ruling, Ruling::Refuse(_)) {
            return false;
        }
        let live = self.context.live.load();
        admitted.spares_checks || live.checks.recipient(&self.facts(), candidate).verdict == Verdict::Accept
    }

    /// Asks all filters at a step.
    async fn filter_step(&mut self, step: FilterStep, ruleset: Ruleset) -> Verdict {
        let facts = self.filter_facts();
        match self.ask_filters(step, &facts).await {
            StepVerdict::Continue => Verdict::Accept,
            StepVerdict::Refuse(reply) => self.refuse(ruleset, Verdict::Refuse(reply)),
            StepVerdict::Close(reply) => self.refuse(ruleset, Verdict::Close(reply)),
        }
    }

    /// Asks all filters, and logs what they decide.
    async fn ask_filters(&mut self, step: FilterStep, facts: &FilterFacts) -> StepVerdict {
        let Some(mut filters) = self.filters.take() else { return StepVerdict::Continue };
        let verdict = filters.step(step, facts).await;
        self.report_filters(&mut filters);
        self.filters = Some(filters);
        verdict
    }

    /// Answers XCLIENT: the filters forget the front end, and hear of its client as of one that connects.
    ///
    /// # Cancel safety
    /// No: drop the session.
    pub(super) async fn become_client_with_filters(&mut self) {
        if let Some(filters) = &mut self.filters {
            filters.forget_client().await;
        }
        let facts = self.facts_by_xclient();
        let verdict = match self.ask_filters(FilterStep::Connect, &facts).await {
            StepVerdict::Continue => Verdict::Accept,
            StepVerdict::Refuse(reply) => self.refuse(Ruleset::Relay, Verdict::Refuse(reply)),
            StepVerdict::Close(reply) => self.refuse(Ruleset::Relay, Verdict::Close(reply)),
        };
        let now = self.elapsed();
        if verdict == Verdict::Accept {
            return self.become_client(now);
        }
        // The session stays that of the front end, of which they hear anew at MAIL.
        if let Some(filters) = &mut self.filters {
            filters.forget_client().await;
        }
        self.session.answer(verdict, now);
    }

    /// Returns the facts about the client that XCLIENT names.
    fn facts_by_xclient(&self) -> FilterFacts {
        let mut facts = FilterFacts { auth_mechanism: String::new(), ..self.filter_facts() };
        let Some(xclient) = self.session.xclient() else { return facts };
        facts.client = xclient.address.or(facts.client);
        match &xclient.name {
            Some(name) => facts.client_name = name.as_deref().map(str::to_owned),
            None if xclient.address.is_some() => facts.client_name = None,
            None => {}
        }
        facts.user = xclient.login.clone().flatten().map(String::from);
        facts
    }

    /// Asks the filters about the content; `None`: there are none.
    pub(super) async fn filter_content(&mut self, message: &ScreenedMessage) -> Option<(FilterVerdict, FilterContent)> {
        let mut filters = self.filters.take()?;
        let facts = FilterFacts { size: message.size, ..self.filter_facts() };
        let mut content =
            FilterContent::read(&message.content, OwnFields::with_results(message.result_fields), message.is_complete);
        let verdict = Box::pin(filters.content(&mut content, message.size, &facts)).await;
        self.report_filters(&mut filters);
        self.filters = Some(filters);
        Some((verdict, content))
    }

    fn report_filters(&mut self, filters: &mut FilterSession) {
        let to = self.session.candidate().map(|candidate| format!("<{}>", candidate.address)).unwrap_or_default();
        for FilterNote { filter, address, stage, elapsed, verdict, words } in filters.take_notes() {
            let action = format!("{words} ({stage}, {:.3} s)", elapsed.as_secs_f64());
            let (id, by, place, to, action) = (self.session_id(), &*filter, &*address, &*to, &*action);
            self.context.record(&Event::Screened { id, verdict, by, place, to, action });
        }
    }

    /// Returns the facts that filters ask for.
    pub(super) fn filter_facts(&self) -> FilterFacts {
        let transaction = self.session.transaction();
        let certificate = self.opening.shown.verified();
        let settings = self.session.settings();
        FilterFacts {
            hostname: settings.hostname.to_string(),
            listener: self.lane.listen.name.clone(),
            server: matches!(self.session.client(), Client::Network(_)).then_some(self.lane.listen.address),
            client: if let Client::Network(address) = self.session.client() { Some(*address) } else { None },
            client_name: self.opening.name().map(str::to_owned),
            helo: self.session.helo().map_or_else(|| settings.hostname.to_string(), ToString::to_string),
            protocol: self.session.protocol().to_string(),
            tls: self.session.tls().map(|tls| (tls.version.to_string(), tls.cipher.to_string(), tls.bits)),
            certificate_subject: certificate.map(|names| names.subject.to_string()).unwrap_or_default(),
            certificate_issuer: certificate.map(|names| names.issuer.to_string()).unwrap_or_default(),
            user: self.session.identity().map(str::to_owned),
            auth_mechanism: self.auth_mechanism.to_string(),
            queue_id: self.id.map(|id| id.to_string()).unwrap_or_default(),
            sender: transaction.map(|transaction| bare(&transaction.sender)).unwrap_or_default(),
            sender_parameters: transaction
                .map(|transaction| transaction.params.to_string().split_whitespace().map(str::to_owned).collect())
                .unwrap_or_default(),
            refusal: None,
            command: self.session.unknown_command().unwrap_or_default().to_vec(),
            recipient: self.session.candidate().map(|candidate| candidate.address.to_string()).unwrap_or_default(),
            recipients: transaction
                .map(|transaction| transaction.recipients.iter().map(|one| one.address.to_string()).collect())
                .unwrap_or_default(),
            size: transaction.and_then(|transaction| transaction.params.size).unwrap_or_default(),
            passed_filters: Vec::new(),
            version: env!("CARGO_PKG_VERSION"),
        }
    }
}

/// Returns a sender without brackets; empty for the null sender.
fn bare(sender: &ReversePath) -> String {
    match sender {
        ReversePath::Null => String::new(),
        ReversePath::Address(address) => address.to_string(),
    }
}

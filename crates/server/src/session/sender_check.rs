//! Has the sender of a stranger's message checked, and carries out what follows from the results.
//!
//! The checks begin with the content, and end before rules and filters judge it. Their results stand on top of the
//! message in Authentication-Results; fields of that name that claim to be of this server are removed before. Mail of
//! own users and programs is not checked.

use super::Connection;
use super::header_rewrite::HeaderRewrite;
use crate::active_config::ActiveConfig;
use crate::intake::TransactionContent;
use crate::screen::ScreenDecision;
use crate::sender_check::{
    CheckedSender, SenderCheckTask, SenderChecks, SenderDecision, SenderResults, SenderVerdict, iprev, sender_decision,
};
use filter::auth_results::{self, with_results};
use filter::{Final, Keeper};
use mail::header::{HeaderSection, LineEnd};
use mail::{Client, Envelope, Reply, ReplyClass, ReplyCode, ReversePath};
use observe::{Event, ScreenVerdict};
use os::clock;
use smtp::server::Verdict;

/// The field of a message that is tagged.
const TAG: &str = "X-Sender-Check";

/// The results for a message, and a quarantine that follows from them.
#[derive(Debug)]
pub(super) struct CheckedMessage {
    results: SenderResults,
    quarantine: Option<ScreenDecision>,
    /// Fields that the message got above its trace field.
    fields: usize,
}

impl CheckedMessage {
    /// Returns the results as content rules ask for them.
    pub(super) fn for_rules(&self) -> Vec<(String, String)> {
        self.results.for_rules()
    }

    /// Returns the quarantine that follows from the results.
    pub(super) const fn quarantine(&self) -> Option<&ScreenDecision> {
        self.quarantine.as_ref()
    }

    /// Returns how many fields stand above the trace field.
    pub(super) const fn fields(&self) -> usize {
        self.fields
    }
}

impl Connection {
    /// Returns whether mail of this session is that of own users or programs.
    pub(super) fn is_own_client(&self, live: &ActiveConfig) -> bool {
        self.client_ip().is_none_or(|ip| live.rights.is_from(ip)) || self.session.identity().is_some()
    }

    /// Begins the checks of the message that arrives, whose first `trace_bytes` octets are our trace field.
    pub(super) fn begin_sender_check(&mut self, trace_bytes: usize) {
        let live = self.context.live.load();
        let settings = &live.config.auth_results;
        let Client::Network(client) = *self.session.client() else { return };
        if !self.lane.listen.auth_results || settings.checks.is_empty() || self.is_own_client(&live) {
            return;
        }
        let sender = match self.session.transaction().map(|transaction| &transaction.sender) {
            Some(ReversePath::Address(address)) => address.to_string(),
            Some(ReversePath::Null) | None => String::new(),
        };
        let sender = CheckedSender {
            ip: Some(client.ip().to_canonical()),
            iprev: live.config.accept.reverse_dns.then(|| iprev(&self.opening.name)),
            helo: self.session.helo().map(ToString::to_string).unwrap_or_default(),
            sender,
            receiver: self.session.settings().hostname.to_string(),
            now: clock::unix_us() / 1_000_000,
        };
        let (resolver, checks) = (self.context.resolver.load_full(), SenderChecks::of(&settings.checks));
        let task = SenderCheckTask::begin(resolver, sender, checks, settings.time_max, trace_bytes);
        self.sender_check = Some(Box::new(task));
    }

    /// Ends the checks, and puts the results on top of the message, whose last octets are `rest`. Returns the rest, and
    /// the results; none if the message is not checked.
    ///
    /// # Errors
    /// The refusal for all recipients; it is logged.
    /// # Cancel safety
    /// As [`TransactionContent::push`].
    pub(super) async fn check_sender(
        &mut self,
        envelope: &Envelope,
        content: &mut TransactionContent,
        rest: Vec<u8>,
    ) -> Result<(Vec<u8>, Option<Box<CheckedMessage>>), Vec<Verdict>> {
        let Some(mut task) = self.sender_check.take() else { return Ok((rest, None)) };
        if matches!(self.header_rewrite, HeaderRewrite::Failed(_)) {
            // The message is refused: a map cannot be asked.
            return Ok((rest, None));
        }
        task.push(&rest);
        let mut results = task.finish().await;
        let live = self.context.live.load_full();
        let settings = &live.config.auth_results;
        results.trust_sealers(&settings.trusted_arc_sealers);
        self.report_results(envelope, &results);
        let decision = sender_decision(&results, settings, &self.lane.listen);
        if let Some(decision) = &decision {
            self.report_decision(envelope, decision);
        }
        let mut field = auth_results::field(&settings.id, &results.methods());
        let (mut quarantine, mut fields) = (None, 1);
        match decision {
            Some(SenderDecision { verdict: SenderVerdict::Refuse(refusal), .. }) => {
                return Err(vec![Verdict::Refuse(refusal); self.verdicts_due()]);
            }
            Some(SenderDecision { verdict: SenderVerdict::Quarantine, by, key, failure }) => {
                let (by, place) = (by.to_owned(), format!("{key}: {failure}"));
                quarantine = Some(ScreenDecision { by, place, action: Final::Quarantine(Keeper::Administrator) });
            }
            Some(SenderDecision { verdict: SenderVerdict::Tag, failure, .. }) => {
                field.push_str(&format!("{TAG}: {failure}\r\n"));
                fields += 1;
            }
            None => {}
        }
        let edit = |section: &[u8]| with_results(section, &settings.id, &field);
        let rest = if content.is_small() {
            let section = HeaderSection::read(&rest, LineEnd::Crlf).as_bytes();
            [&edit(section), rest.get(section.len()..).unwrap_or_default()].concat()
        } else {
            content.push(&self.context.message_store, &rest).await;
            if !content.edit_header(edit) {
                // Forged fields may stand in the part that is in the spool.
                let refusal = Reply::new(
                    ReplyCode::of(554),
                    None,
                    "5.6.0 Header section too large for the results of sender authentication",
                );
                return Err(vec![Verdict::Refuse(refusal); self.verdicts_due()]);
            }
            Vec::new()
        };
        Ok((rest, Some(Box::new(CheckedMessage { results, quarantine, fields }))))
    }

    fn report_results(&self, envelope: &Envelope, results: &SenderResults) {
        self.context.record(&Event::SenderChecked {
            id: envelope.id,
            summary: results.summary(),
            author: results.author.domain().unwrap_or_default(),
            results: &results.for_log(),
            why: &results.reasons(),
        });
    }

    fn report_decision(&self, envelope: &Envelope, decision: &SenderDecision) {
        let SenderDecision { verdict, by, key, failure } = decision;
        let (verdict, action) = match verdict {
            SenderVerdict::Tag => (ScreenVerdict::Edit, format!("tag: {failure}")),
            SenderVerdict::Quarantine => (ScreenVerdict::Quarantine, format!("quarantine: {failure}")),
            SenderVerdict::Refuse(reply) => match reply.code().class() {
                ReplyClass::Permanent => (ScreenVerdict::Reject, format!("reject {reply}: {failure}")),
                _ => (ScreenVerdict::Defer, format!("defer {reply}: {failure}")),
            },
        };
        let to: Vec<String> = envelope.recipients.iter().map(|one| format!("<{}>", one.address)).collect();
        let (id, place, to, action) = (envelope.id, *key, &*to.join(","), &*action);
        self.context.record(&Event::Screened { id, verdict, by, place, to, action });
    }
}

//! Reports to senders (RFC 3464): decides who gets one and which part of the message it returns, and stores it in the
//! spool.
//!
//! One report has as many recipients of one attempt as fit, and further reports have the others and return no content
//! again. Where the spool has only the room that is kept for small messages, a report has fewer recipients and
//! returns less. A report is a message like any other, from the null sender.

use super::receipt::FORGOTTEN;
use super::{Attempt, AttemptOutcome, Receipt, RecipientDecision, Settler, report_time};
use crate::context::Context;
use crate::deadline;
use crate::intake::{self, Enqueue};
use crate::message::OutboundMessage;
use crate::sabotage::{Sabotage, is_sabotaged};
use mail::report::{Addressee, Kind, Original, RECIPIENTS_MAX, RecipientReport, Report, fitting, returns_content};
use mail::{EnhancedCode, Outcome, Recipient, Reply};
use observe::{Event, NextHop, Reason, ReportKind, Severity};
use std::sync::Arc;

/// Octets of a report besides the returned content. Some thousand recipients: few reports, and any host accepts the
/// size.
pub(crate) const REPORT_OCTETS: usize = 512 << 10;

/// Result of making a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReportResult {
    /// It is durable.
    Yes,
    /// The sender did not ask for it.
    NotWanted,
    /// It is wanted and the spool did not take it.
    NotStored,
    /// A report to the postmaster failed: a person has to look.
    NobodyLeft,
}

/// Returns how a report names a host; nothing if there was none.
pub(super) fn remote(next_hop: &NextHop<'_>) -> String {
    match (next_hop.name(), next_hop.address()) {
        (Some(name), Some(address)) => format!("{name} [{address}]"),
        (Some(name), None) => name.to_owned(),
        (None, Some(address)) => format!("[{address}]"),
        (None, None) => String::new(),
    }
}

/// Reports that are due, by the numbers of recipients in the attempt.
#[derive(Debug, Default)]
pub(super) struct Due {
    /// Recipients to report, all to the same address.
    pub(super) wanted: Vec<usize>,
    /// Recipients whose report the sender did not ask for.
    pub(super) unwanted: Vec<usize>,
    /// A report to the postmaster that failed: a person has to look.
    pub(super) nobody_left: Vec<usize>,
}

/// Finds the reports that are due for the decisions of an attempt.
pub(super) fn due(context: &Context, attempt: &Attempt<'_>, judged: &[RecipientDecision]) -> Due {
    let postmaster = context.live.load().config.postmaster();
    let sender = &attempt.envelope.sender;
    let mut due = Due::default();
    for (at, (one, recipient)) in judged.iter().zip(&attempt.envelope.recipients).enumerate() {
        let Some(kind) = one.kind else { continue };
        if Addressee::of(sender, recipient, kind, &postmaster) != Addressee::Nobody {
            due.wanted.push(at);
        } else if kind == Kind::Failed && sender.address().is_none() && recipient.address.key() == postmaster.key() {
            let id = attempt.envelope.id;
            let text = format!(
                "report to the postmaster <{}> failed; it is held, see mailrace queue show {id}",
                recipient.address
            );
            context.record(&Event::Unreportable { id, text: &text });
            due.nobody_left.push(at);
        } else {
            due.unwanted.push(at);
        }
    }
    due
}

/// Reports the first of `wanted`, as many as fit. Returns the result, and how many those are.
pub(super) async fn report_recipients(
    settler: &Settler,
    attempt: &Attempt<'_>,
    judged: &[RecipientDecision],
    wanted: &[usize],
) -> (ReportResult, usize) {
    let live = settler.context.live.load_full();
    let postmaster = live.config.postmaster();
    let envelope = attempt.envelope;
    let (at_us, offset_seconds) = report_time();
    let given_up = deadline::tried_until(envelope, live.config.delivery.give_up_after);
    let given_up = settler.context.time_of(envelope, given_up);
    let facts = AttemptFacts {
        remote: remote(&attempt.next_hop),
        is_try: attempt.is_try,
        at_us,
        given_up_us: u64::try_from(given_up.as_micros()).unwrap_or(u64::MAX),
        is_past_time: deadline::is_late(envelope, settler.context.now_of(envelope)),
    };
    let of = |at: &usize| facts.recipient_report(judged.get(*at)?, envelope.recipients.get(*at)?);
    let reports: Vec<RecipientReport<'_>> = wanted.iter().take(RECIPIENTS_MAX).filter_map(of).collect();
    let first = reports.first().map(|one| Addressee::of(&envelope.sender, one.recipient, one.kind, &postmaster));
    let (to, is_postmaster) = match first {
        Some(Addressee::Sender(to)) => (to, false),
        Some(Addressee::Postmaster(to)) => (to, true),
        Some(Addressee::Nobody) | None => return (ReportResult::NotWanted, wanted.len()),
    };
    let mut report = Report {
        reporting_mta: &live.config.hostname,
        envelope,
        recipients: &reports,
        at_us,
        offset_seconds,
        id: settler.context.message_store.next_id(),
        postmaster: is_postmaster,
        is_further: settler.dsn_batcher.report_count(envelope.id, foremost(&reports)) > 0,
        to,
    };
    report.recipients = reports.get(..fitting(&report, REPORT_OCTETS)).unwrap_or(&reports);
    let these = wanted.get(..report.recipients.len()).unwrap_or(wanted);
    let reason = these.iter().filter_map(|at| judged.get(*at)).find_map(|one| match &one.fate {
        AttemptOutcome::Failed(cause) => Some(&*cause.text),
        _ => None,
    });
    store(settler, attempt, &report, live.config.delivery.return_bytes_max, reason).await
}

/// Facts of an attempt that the report on each of its recipients repeats.
struct AttemptFacts {
    /// The next hop; empty if there was none.
    remote: String,
    /// A host was tried.
    is_try: bool,
    /// The time of the report, since 1970.
    at_us: u64,
    /// The end of the attempts, since 1970.
    given_up_us: u64,
    /// The sender's time for the delivery is over.
    is_past_time: bool,
}

impl AttemptFacts {
    /// Makes the part of a report on one recipient; `None` if the decision calls for no report.
    fn recipient_report<'a>(
        &'a self,
        one: &'a RecipientDecision,
        recipient: &'a Recipient,
    ) -> Option<RecipientReport<'a>> {
        let kind = one.kind?;
        let success = EnhancedCode::of(Outcome::Success, 0, 0);
        let (status, reply, text, host, reason) = match &one.fate {
            AttemptOutcome::Delivered(reply) => (reply.status().unwrap_or(success), Some(reply), "", None, None),
            AttemptOutcome::Receipt(Receipt { reply, host }) => {
                let status = reply.as_ref().and_then(Reply::status).unwrap_or(success);
                let text = if reply.is_some() { "" } else { FORGOTTEN };
                (status, reply.as_ref(), text, host.as_deref(), None)
            }
            // The words of the other server say more than ours for them.
            AttemptOutcome::Deferred(cause) | AttemptOutcome::Failed(cause) => {
                let text = if cause.reply.is_some() { "" } else { &*cause.text };
                (cause.status, cause.reply.as_ref(), text, cause.host.as_deref(), cause.reason.map(Reason::name))
            }
        };
        Some(RecipientReport {
            recipient,
            kind,
            status,
            reply,
            remote_mta: host.or(Some(self.remote.as_str())).filter(|remote| !remote.is_empty()),
            text,
            reason,
            last_attempt_us: (self.is_try || host.is_some()).then_some(self.at_us),
            will_retry_until_us: (kind == Kind::Delayed).then_some(self.given_up_us),
            is_past_time: self.is_past_time,
        })
    }
}

/// Returns the kind that weighs most: bad news before good.
fn foremost(recipients: &[RecipientReport<'_>]) -> Kind {
    let has = |kind| recipients.iter().any(|one| one.kind == kind);
    [Kind::Failed, Kind::Delayed].into_iter().find(|kind| has(*kind)).unwrap_or(Kind::Delivered)
}

/// Composes the report and makes it durable. `reason` is that of the first failed recipient. Returns how many
/// recipients it has.
async fn store(
    settler: &Settler,
    attempt: &Attempt<'_>,
    report: &Report<'_>,
    return_bytes_max: u64,
    reason: Option<&str>,
) -> (ReportResult, usize) {
    let id = attempt.envelope.id;
    let foremost = foremost(report.recipients);
    let has_failures = foremost == Kind::Failed;
    // A message that the next hop refuses for its size or its encoding would not get back over the same host either.
    let is_unbearable =
        |one: &RecipientReport<'_>| matches!((one.status.subject(), one.status.detail()), (3, 4) | (6, 1 | 3));
    let is_whole = !report.is_further
        && !report.recipients.iter().any(is_unbearable)
        && returns_content(attempt.envelope, has_failures, attempt.content_bytes, return_bytes_max);
    let content = original(settler, attempt, is_whole).await;
    let original = match &content {
        Some(content) if is_whole => Original::Whole(content),
        Some(content) => Original::Headers(content),
        None => Original::None,
    };
    if is_sabotaged(Sabotage::DropReport) {
        return (ReportResult::Yes, report.recipients.len());
    }
    let queue = settler.queue().map(|queue| queue as Arc<dyn Enqueue>);
    match intake::submit_report(&settler.context, queue.as_ref(), report, original).await {
        Ok(stored) => {
            // A report with little room does not reduce the next one.
            if !stored.is_less {
                settler.dsn_batcher.count_report(id, foremost);
            }
            let first = report.recipients.first().map(|one| one.kind);
            let kind = match (report.postmaster, has_failures, first) {
                (true, ..) => ReportKind::Postmaster,
                (false, false, Some(Kind::Delayed)) => ReportKind::Delayed,
                _ => ReportKind::Dsn,
            };
            let text = match first {
                Some(Kind::Delayed) => "Warning: could not send message yet",
                Some(Kind::Failed) => reason.unwrap_or_default(),
                _ => "Return receipt",
            };
            settler.context.record(&Event::Reported { id, report: stored.id, kind, text });
            (ReportResult::Yes, stored.recipients)
        }
        Err(error) => {
            let text =
                format!("report on {id} to <{}> not stored: {error}; its recipients stay in the queue", report.to);
            settler.context.record(&Event::Spool { severity: Severity::Error, text: &text });
            (ReportResult::NotStored, report.recipients.len())
        }
    }
}

/// Returns the message the report is about, or as much of it as a report needs.
async fn original(settler: &Settler, attempt: &Attempt<'_>, is_whole: bool) -> Option<Vec<u8>> {
    /// Octets within which a header section ends.
    const HEADER_BYTES_MAX: u64 = 64 << 10;
    let end = if is_whole { attempt.content_bytes } else { attempt.content_bytes.min(HEADER_BYTES_MAX) };
    match OutboundMessage::part(&settler.messages.reading, attempt.envelope.id, 0, end).await {
        Ok(content) => Some(content.to_vec()),
        Err(why) => {
            let text = format!("report on {} goes without the message: {why}; {}", attempt.envelope.id, why.advice());
            settler.context.record(&Event::Spool { severity: Severity::Error, text: &text });
            None
        }
    }
}

//! Reports to senders (RFC 3464): who gets one, what it returns of the message, and into the spool with it.
//!
//! All recipients of one attempt stand in one report. A report is a message like any other, from the null sender, and may use
//! the part of the spool that is kept from ordinary mail.

use super::{Attempt, Fate, Judged, report_time};
use crate::commit;
use crate::deliver::Outgoing;
use crate::service::Service;
#[cfg(test)]
use crate::simulation::{Sabotage, is_sabotaged};
use mail::report::{Addressee, Kind, Original, RecipientReport, Report, compose, returns_content};
use mail::{Address, EnhancedCode, Outcome};
use observe::{Event, NextHop, Reason, ReportKind, Severity};
use std::sync::Arc;

/// What came of a report.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// It is durable.
    Yes,
    /// Nobody wants it.
    NotWanted,
    /// It is wanted and the spool did not take it.
    NotStored,
    /// A report to the postmaster failed: a person has to look.
    NobodyLeft,
}

/// How a report names a host; nothing if there was none.
pub(super) fn remote(next_hop: &NextHop<'_>) -> String {
    match (next_hop.name(), next_hop.address()) {
        (Some(name), Some(address)) => format!("{name} [{address}]"),
        (Some(name), None) => name.to_owned(),
        (None, Some(address)) => format!("[{address}]"),
        (None, None) => String::new(),
    }
}

/// Reports what was judged, where somebody wants to hear it.
pub(super) async fn to_sender(service: &Arc<Service>, attempt: &Attempt<'_>, judged: &[Judged]) -> Told {
    let live = service.live.load_full();
    let postmaster = live.config.postmaster();
    let envelope = attempt.envelope;
    let remote = remote(&attempt.next_hop);
    let (at_us, offset_seconds) = report_time();
    let give_up = u64::try_from(live.config.delivery.give_up_after.as_micros()).unwrap_or(u64::MAX);
    let mut addressee = Addressee::Nobody;
    let mut reports = Vec::new();
    for (one, recipient) in judged.iter().zip(&envelope.recipients) {
        let Some(kind) = one.kind else { continue };
        let who = Addressee::of(&envelope.sender, recipient, kind, &postmaster);
        if who == Addressee::Nobody {
            if kind == Kind::Failed
                && envelope.sender.address().is_none()
                && recipient.address.key() == postmaster.key()
            {
                let text = format!(
                    "report to the postmaster <{}> failed; it is held, see mailrace queue show",
                    recipient.address
                );
                service.tell(&Event::Unreportable { id: envelope.id, text: &text });
                return Told::NobodyLeft;
            }
            continue;
        }
        addressee = who;
        let (status, reply, text) = match &one.fate {
            Fate::Delivered(reply) => {
                (reply.status().unwrap_or(EnhancedCode::of(Outcome::Success, 0, 0)), Some(reply), "")
            }
            // The other server's own words say more than ours for them.
            Fate::Deferred(cause) | Fate::Failed(cause) => {
                let text = if cause.reply.is_some() { "" } else { cause.text.as_str() };
                (cause.status, cause.reply.as_ref(), text)
            }
        };
        let host = match &one.fate {
            Fate::Delivered(_) => None,
            Fate::Deferred(cause) | Fate::Failed(cause) => cause.host.as_deref(),
        };
        reports.push(RecipientReport {
            recipient,
            kind,
            status,
            reply,
            remote_mta: host.or(Some(remote.as_str())).filter(|remote| !remote.is_empty()),
            text,
            reason: match &one.fate {
                Fate::Delivered(_) => None,
                Fate::Deferred(cause) | Fate::Failed(cause) => cause.reason.map(Reason::name),
            },
            last_attempt_us: (attempt.is_try || host.is_some()).then_some(at_us),
            will_retry_until_us: (kind == Kind::Delayed).then(|| envelope.id.unix_us().saturating_add(give_up)),
        });
    }
    let (to, is_postmaster) = match addressee {
        Addressee::Sender(to) => (to, false),
        Addressee::Postmaster(to) => (to, true),
        Addressee::Nobody => return Told::NotWanted,
    };
    let report = Report {
        reporting_mta: &live.config.hostname,
        envelope,
        recipients: &reports,
        at_us,
        offset_seconds,
        id: service.keeper.next_id(),
        postmaster: is_postmaster,
        to,
    };
    store(service, attempt, judged, &report, live.config.delivery.return_bytes_max, to).await
}

/// Composes the report and makes it durable.
async fn store(
    service: &Arc<Service>,
    attempt: &Attempt<'_>,
    judged: &[Judged],
    report: &Report<'_>,
    return_bytes_max: u64,
    to: &Address,
) -> Told {
    let id = attempt.envelope.id;
    let has_failures = report.recipients.iter().any(|one| one.kind == Kind::Failed);
    // What the next hop did not bear, for its size or its encoding, would not get back over the same host either.
    let is_unbearable =
        |one: &RecipientReport<'_>| matches!((one.status.subject(), one.status.detail()), (3, 4) | (6, 1 | 3));
    let is_whole = !report.recipients.iter().any(is_unbearable)
        && returns_content(attempt.envelope, has_failures, attempt.content_bytes, return_bytes_max);
    let content = original(service, attempt, is_whole).await;
    let original = match &content {
        Some(content) if is_whole => Original::Whole(content),
        Some(content) => Original::Headers(content),
        None => Original::None,
    };
    let composed = compose(report, original);
    let envelope = report.envelope_for(&composed);
    #[cfg(test)]
    if is_sabotaged(Sabotage::DropReport) {
        return Told::Yes;
    }
    match commit::submit(service, &envelope, composed.content).await {
        Ok(()) => {
            let first = report.recipients.first().map(|one| one.kind);
            let kind = match (report.postmaster, has_failures, first) {
                (true, ..) => ReportKind::Postmaster,
                (false, false, Some(Kind::Delayed)) => ReportKind::Delayed,
                _ => ReportKind::Dsn,
            };
            let reason = judged.iter().find_map(|one| match &one.fate {
                Fate::Failed(cause) => Some(cause.text.as_str()),
                _ => None,
            });
            let text = match first {
                Some(Kind::Delayed) => "Warning: could not send message yet",
                Some(Kind::Failed) => reason.unwrap_or_default(),
                _ => "Return receipt",
            };
            service.tell(&Event::Reported { id, report: envelope.id, kind, text });
            Told::Yes
        }
        Err(error) => {
            let text = format!("report on {id} to <{to}> not stored: {error}; its recipients stay in the queue");
            service.tell(&Event::Spool { severity: Severity::Error, text: &text });
            Told::NotStored
        }
    }
}

/// The message the report is about, or as much of it as a report needs.
async fn original(service: &Arc<Service>, attempt: &Attempt<'_>, is_whole: bool) -> Option<Vec<u8>> {
    /// Octets within which a header section ends.
    const HEADER_BYTES_MAX: u64 = 64 << 10;
    let spool = service.spool()?;
    let end = if is_whole { attempt.content_bytes } else { attempt.content_bytes.min(HEADER_BYTES_MAX) };
    match Outgoing::part(spool, attempt.envelope.id, 0, end).await {
        Ok(content) => Some(content.to_vec()),
        Err(text) => {
            service.tell(&Event::Spool { severity: Severity::Error, text: &text });
            None
        }
    }
}

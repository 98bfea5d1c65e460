//! Reports refused recipients of a submitted message to its sender, where no command waits for the result.

use super::file::{Refused, SubmittedFile};
use crate::inbound::Inbound;
use crate::intake::{self, Reported};
use crate::settle::REPORT_OCTETS;
use mail::report::{Addressee, Kind, Original, RecipientReport, Report, fitting, returns_content};
use mail::{Client, EnhancedCode, Envelope, Outcome, Protocol, QueueId, Received, Recipient, Reply};
use observe::{Event, ReportKind, Severity};
use os::{blocking, clock};
use std::sync::Arc;

/// Octets within which a header section is looked for.
const HEADER_BYTES_MAX: u64 = 64 << 10;

/// Stores reports on refused recipients. Returns the positions of those that are reported durably, or that the sender
/// wants no report of.
pub(super) async fn report_refused(
    inbound: &Inbound,
    handed: &Arc<SubmittedFile>,
    id: QueueId,
    refused: &[Refused],
) -> Vec<usize> {
    let context = &inbound.context;
    let live = context.live.load_full();
    let at_us = clock::unix_us();
    let envelope = envelope_of(handed, id, at_us);
    let is_whole = returns_content(&envelope, true, handed.content_bytes, live.config.delivery.return_bytes_max);
    let content = returned_content(handed, is_whole).await;
    let original = match &content {
        Some(content) if is_whole => Original::Whole(content),
        Some(content) => Original::Headers(content),
        None => Original::None,
    };
    let postmaster = live.config.postmaster();
    let addressee = |recipient: &Recipient| Addressee::of(&envelope.sender, recipient, Kind::Failed, &postmaster);
    let is_wanted = |recipient: &Recipient| addressee(recipient) != Addressee::Nobody;
    let (wanted, positions, mut told) = sorted(&envelope, refused, is_wanted);
    let (mut rest, mut positions) = (wanted.as_slice(), positions.as_slice());
    let mut is_further = false;
    while let Some(first) = rest.first() {
        let (to, postmaster) = match addressee(first.recipient) {
            Addressee::Sender(to) => (to, false),
            Addressee::Postmaster(to) => (to, true),
            Addressee::Nobody => break,
        };
        let mut report = Report {
            reporting_mta: &live.config.hostname,
            envelope: &envelope,
            recipients: rest,
            at_us,
            offset_seconds: clock::local_offset_seconds(at_us),
            id: context.message_store.next_id(),
            postmaster,
            is_further,
            to,
        };
        report.recipients = rest.get(..fitting(&report, REPORT_OCTETS)).unwrap_or(rest);
        let original = match original {
            Original::Whole(content) if is_further => Original::Headers(content),
            original => original,
        };
        let Some(stored) = store(inbound, &report, original).await else { break };
        let these;
        (these, positions) = positions.split_at_checked(stored.recipients).unwrap_or((positions, &[]));
        told.extend(these);
        rest = rest.get(stored.recipients..).unwrap_or_default();
        is_further |= !stored.is_less;
    }
    told
}

/// Returns the parts of a report on refused recipients whose sender wants one, with their positions, and the positions
/// of the others.
fn sorted<'a>(
    envelope: &'a Envelope,
    refused: &'a [Refused],
    is_wanted: impl Fn(&Recipient) -> bool,
) -> (Vec<RecipientReport<'a>>, Vec<usize>, Vec<usize>) {
    let (mut wanted, mut positions, mut unwanted) = (Vec::new(), Vec::new(), Vec::new());
    for (position, reply) in refused {
        match envelope.recipients.get(*position).filter(|one| is_wanted(one)) {
            None => unwanted.push(*position),
            Some(recipient) => {
                positions.push(*position);
                wanted.push(refused_recipient(recipient, reply));
            }
        }
    }
    (wanted, positions, unwanted)
}

/// Stores a report, and logs that. `None`: the spool did not take it.
async fn store(inbound: &Inbound, report: &Report<'_>, original: Original<'_>) -> Option<Reported> {
    let context = &inbound.context;
    let id = report.envelope.id;
    match intake::submit_report(context, inbound.queue.as_ref(), report, original).await {
        Ok(stored) => {
            let kind = if report.postmaster { ReportKind::Postmaster } else { ReportKind::Dsn };
            let text = report.recipients.first().and_then(|first| first.reply).map(ToString::to_string);
            context.record(&Event::Reported { id, report: stored.id, kind, text: &text.unwrap_or_default() });
            Some(stored)
        }
        Err(error) => {
            let to = report.to;
            let text =
                format!("report on {id} to <{to}> not stored: {error}; the message stays in the pickup directory");
            context.record(&Event::Spool { severity: Severity::Error, text: &text });
            None
        }
    }
}

/// Makes the envelope of a submitted message as the spool would have it.
fn envelope_of(handed: &SubmittedFile, id: QueueId, at_us: u64) -> Envelope {
    let submission = &handed.submission;
    Envelope {
        id,
        sender: submission.sender.clone(),
        params: submission.params.clone(),
        received: Received {
            at_us,
            client: Client::Process { uid: handed.uid },
            helo: None,
            protocol: Protocol::Local,
        },
        recipients: submission.recipients.clone(),
    }
}

/// Reads the content that a report returns: all of it, or as much as may hold the header section.
async fn returned_content(handed: &Arc<SubmittedFile>, is_whole: bool) -> Option<Vec<u8>> {
    let reader = Arc::clone(handed);
    let most = if is_whole { handed.content_bytes } else { HEADER_BYTES_MAX };
    blocking::run(move || reader.beginning(most)).await.ok().and_then(Result::ok)
}

/// Makes the part of a report on one refused recipient.
fn refused_recipient<'a>(recipient: &'a Recipient, reply: &'a Reply) -> RecipientReport<'a> {
    RecipientReport {
        recipient,
        kind: Kind::Failed,
        status: reply.status().unwrap_or(EnhancedCode::of(Outcome::Permanent, 0, 0)),
        reply: Some(reply),
        remote_mta: None,
        text: "",
        reason: None,
        last_attempt_us: None,
        will_retry_until_us: None,
        is_past_time: false,
    }
}

//! Tells the sender of a message that was handed in who is refused, where nobody waits at the command line to hear it.

use super::courier::Refused;
use super::file::Handed;
use crate::commit;
use crate::env::{blocking, clock};
use crate::service::Service;
use mail::report::{Addressee, Kind, Original, RECIPIENTS_MAX, RecipientReport, Report, compose, returns_content};
use mail::{Client, EnhancedCode, Envelope, Outcome, Protocol, QueueId, Received};
use observe::{Event, ReportKind, Severity};
use std::sync::Arc;

/// Octets within which a header section is looked for.
const HEADER_BYTES_MAX: u64 = 64 << 10;

/// Stores reports on the refused. True: they are durable, or nobody wants them.
pub(super) async fn to_sender(service: &Arc<Service>, handed: &Arc<Handed>, id: QueueId, refused: &[Refused]) -> bool {
    let live = service.live.load_full();
    let return_max = live.config.delivery.return_bytes_max;
    let (at_us, submission) = (clock::unix_us(), &handed.submission);
    let envelope = Envelope {
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
    };
    let is_whole = returns_content(&envelope, true, handed.content_bytes, return_max);
    let reader = Arc::clone(handed);
    let most = if is_whole { handed.content_bytes } else { HEADER_BYTES_MAX };
    let content = blocking::run(move || reader.beginning(most)).await.ok().and_then(Result::ok);
    let original = match &content {
        Some(content) if is_whole => Original::Whole(content),
        Some(content) => Original::Headers(content),
        None => Original::None,
    };
    let postmaster = live.config.postmaster();
    for some in refused.chunks(RECIPIENTS_MAX) {
        let mut addressee = Addressee::Nobody;
        let mut reports = Vec::new();
        for (position, reply) in some {
            let Some(recipient) = envelope.recipients.get(*position) else { continue };
            match Addressee::of(&envelope.sender, recipient, Kind::Failed, &postmaster) {
                Addressee::Nobody => continue,
                found => addressee = found,
            }
            reports.push(RecipientReport {
                recipient,
                kind: Kind::Failed,
                status: reply.status().unwrap_or(EnhancedCode::of(Outcome::Permanent, 0, 0)),
                reply: Some(reply),
                remote_mta: None,
                text: "",
                reason: None,
                last_attempt_us: None,
                will_retry_until_us: None,
            });
        }
        let (to, postmaster) = match addressee {
            Addressee::Sender(to) => (to, false),
            Addressee::Postmaster(to) => (to, true),
            Addressee::Nobody => continue,
        };
        let report = Report {
            reporting_mta: &live.config.hostname,
            envelope: &envelope,
            recipients: &reports,
            at_us,
            offset_seconds: clock::local_offset_seconds(at_us),
            id: service.keeper.next_id(),
            postmaster,
            to,
        };
        let composed = compose(&report, original);
        let own = report.envelope_for(&composed);
        if let Err(error) = commit::submit(service, &own, composed.content).await {
            let text =
                format!("report on {id} to <{to}> not stored: {error}; the message stays in the pickup directory");
            service.tell(&Event::Spool { severity: Severity::Error, text: &text });
            return false;
        }
        let kind = if postmaster { ReportKind::Postmaster } else { ReportKind::Dsn };
        let text = some.first().map(|(_, reply)| reply.to_string()).unwrap_or_default();
        service.tell(&Event::Reported { id, report: own.id, kind, text: &text });
    }
    true
}

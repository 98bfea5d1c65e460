//! Messages of our own, which are reports: their route is looked up as for any other recipient, and they are in the
//! spool before the recipients they report are done.
//!
//! A report may be for a user, a list owner or a program of this machine. It keeps the null sender on all routes,
//! also through a list with an owner: a message without a sender is never answered, so no chain of reports goes on
//! for ever.

use super::{Enqueue, HeaderHints, NewMessage, Origin, PIECE_BYTES, TransactionContent, class_of, commit};
use crate::context::Context;
use crate::routing::Routing;
use crate::routing::expansions::{
    ClientKey, ExpandError, Expanded, ExpansionRequest, ExpansionSettings, PlannedMessage, PlannedMessages, Resolved,
};
use crate::routing::message_properties::MessageProperties;
use crate::routing::plan::{NotAdded, Plan};
use bytes::Bytes;
use mail::report::{Original, Report, compose, fitting};
use mail::{Envelope, QueueId};
use observe::Event;
use route::resolve::{Failed, Outcome, Resolution};
use spool::Error;
use std::fmt;
use std::sync::Arc;

/// Why a message of ours was not stored.
#[derive(Debug)]
pub(crate) enum NotStored {
    /// The spool did not take it.
    Spool(Error),
    /// The maps cannot be asked now for the route of the report.
    Map(Arc<str>),
}

impl fmt::Display for NotStored {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Spool(error) => error.fmt(f),
            Self::Map(why) => write!(f, "a map cannot be asked: {why}"),
        }
    }
}

/// Octets of a report besides the returned content where there is room for small messages only: so the header section
/// of the message mostly fits, too.
const SMALL_REPORT_OCTETS: usize = PIECE_BYTES - (16 << 10);

/// A report in the spool.
pub(crate) struct Reported {
    /// Its name.
    pub(crate) id: QueueId,
    /// Recipients in the report, from the first on.
    pub(crate) recipients: usize,
    /// There was little room: it has fewer recipients than it could, or returns less content.
    pub(crate) is_less: bool,
}

/// Stores a report and puts it in line of `queue`. It may use the room that is kept from ordinary mail. Where the spool
/// has room for small messages only, the report has fewer recipients and returns less of its message.
///
/// # Errors
/// As [`Store::append`](spool::Store::append), or a map cannot be asked. No message of the report remains.
/// # Cancel safety
/// No: the message may be durable and not in line; it is after the next start.
pub(crate) async fn submit_report(
    context: &Arc<Context>,
    queue: Option<&Arc<dyn Enqueue>>,
    report: &Report<'_>,
    original: Original<'_>,
) -> Result<Reported, NotStored> {
    let composed = compose(report, original);
    let is_small = composed.content.len() <= PIECE_BYTES;
    let full = match give(context, queue, &report.envelope_for(&composed), composed.content).await {
        Err(error @ NotStored::Spool(Error::Full)) if !is_small => error,
        given => {
            return given.map(|()| Reported { id: report.id, recipients: report.recipients.len(), is_less: false });
        }
    };
    let header = match original {
        Original::Whole(content) | Original::Headers(content) => Original::Headers(content),
        Original::None => Original::None,
    };
    let recipients = fitting(report, SMALL_REPORT_OCTETS);
    for less in [header, Original::None] {
        // `give` has removed the chunks that it stored under the first id.
        let some = report.recipients.get(..recipients).unwrap_or(report.recipients);
        let again = Report { id: context.message_store.next_id(), recipients: some, ..*report };
        let composed = compose(&again, less);
        if composed.content.len() <= PIECE_BYTES {
            let given = give(context, queue, &again.envelope_for(&composed), composed.content).await;
            return given.map(|()| Reported { id: again.id, recipients: some.len(), is_less: true });
        }
    }
    Err(full)
}

/// Stores another message of our own, and puts it in line of `queue`. It has no sender, and the route of a report.
///
/// # Errors
/// As [`submit_report`].
/// # Cancel safety
/// As [`submit_report`].
pub(crate) async fn submit_own(
    context: &Arc<Context>,
    queue: Option<&Arc<dyn Enqueue>>,
    envelope: &Envelope,
    content: Vec<u8>,
) -> Result<(), NotStored> {
    give(context, queue, envelope, content).await
}

/// Stores a message of our own.
async fn give(
    context: &Arc<Context>,
    queue: Option<&Arc<dyn Enqueue>>,
    envelope: &Envelope,
    content: Vec<u8>,
) -> Result<(), NotStored> {
    if context.spool().is_none() {
        return Ok(());
    }
    let content = Bytes::from(content);
    let class = class_of(&envelope.params, HeaderHints::default(), false);
    let routing = context.routing.load_full();
    let (planned, _turn) = if routing.is_plain() {
        let encoded = Arc::new(context.live.load().encode(envelope));
        let envelope = Arc::new(envelope.clone());
        (vec![PlannedMessage { envelope, encoded, kind: MessageProperties::default() }], None)
    } else {
        let mut plan = plan(context, &routing, envelope).await?;
        context.record_discarded(envelope.id, &plan.take_discarded());
        if plan.is_nothing() {
            context.record(&Event::Discarded { id: envelope.id });
            return Ok(());
        }
        let more = (1..plan.len()).map(|_| context.message_store.next_id());
        let ids = std::iter::once(envelope.id).chain(more).collect();
        let made = context.expansions.messages(ClientKey::Internal, plan, envelope.clone(), ids).await;
        let PlannedMessages { messages, turn } = made.map_err(not_now)?;
        (messages, turn)
    };
    let messages: Vec<NewMessage> =
        planned.into_iter().map(|planned| NewMessage::new(context, planned, class)).collect();
    let mut arriving = TransactionContent::of(envelope.id, messages.iter().map(|message| message.envelope.id));
    let octets = content.len() as u64;
    let mut rest = content;
    if rest.len() > PIECE_BYTES {
        arriving.push(&context.message_store, &rest).await;
        rest = Bytes::new();
    }
    let messages = arriving.finish(&context.message_store, messages, rest).await.map_err(NotStored::Spool)?;
    let stored = commit(context, Origin::Report, messages).await.map_err(NotStored::Spool)?;
    stored.enqueue(context, queue, octets).await;
    Ok(())
}

fn not_now(error: ExpandError) -> NotStored {
    NotStored::Map(error.to_string().into())
}

/// Plans the recipients of a report. A refused recipient fails in the plan, so that the postmaster gets the report.
async fn plan(context: &Arc<Context>, routing: &Arc<Routing>, envelope: &Envelope) -> Result<Plan, NotStored> {
    // RFC 5321 §4.5.5: a report has the null sender
    let mut plan = Plan::default();
    plan.is_report = true;
    let settings = ExpansionSettings::of(&context.live.load().config.maps);
    for recipient in &envelope.recipients {
        let wanted = ExpansionRequest {
            client: ClientKey::Internal,
            sender: envelope.sender.clone(),
            recipient: recipient.address.clone(),
            ip: None,
            is_local_submission: false,
        };
        let resolved = context.expansions.resolve(routing, &wanted, &settings).await.map_err(not_now)?;
        let added = match resolved {
            Resolved::Short(Resolution { outcome: Outcome::Deliver(deliveries), failed, .. }) => {
                plan.add(recipient, deliveries, failed)
            }
            Resolved::Long(Expanded::Members(members)) => plan.add_members(recipient, members),
            Resolved::Short(Resolution { outcome: Outcome::Refuse(refusal), .. })
            | Resolved::Long(Expanded::Refused(refusal)) => {
                let address = recipient.address.clone();
                plan.add(recipient, Vec::new(), vec![Failed { address, refusal, sender: None, copy: None }])
            }
            Resolved::Short(Resolution { outcome: Outcome::Discard, .. }) | Resolved::Long(Expanded::Discarded) => {
                plan.discard(recipient);
                Ok(())
            }
        };
        // A report has few recipients.
        added.map_err(|_: NotAdded| {
            NotStored::Map(format!("rules make too many messages of <{}>", recipient.address).into())
        })?;
    }
    Ok(plan)
}

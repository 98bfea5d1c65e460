//! Messages of our own, which are reports: where they go is asked as for any other recipient, and the spool has them before
//! what they tell of is done.
//!
//! A report may be for a user, a list owner or a program of this machine. It keeps the null sender on every way, also through
//! a list with an owner: what has no sender is never answered, and so no chain of reports goes on for ever.

use super::{Content, PIECE_BYTES, append, class_of, first_state};
use crate::context::Context;
use crate::intake::HeaderHints;
use crate::routing::Routing;
use crate::routing::expansions::{
    ClientKey, ExpandError, Expanded, PlannedMessage, PlannedMessages, Resolved, Settings, Wanted,
};
use crate::routing::plan::{Kind, NotAdded, Plan};
use bytes::Bytes;
use mail::report::{Original, Report, compose, fitting};
use mail::{Envelope, QueueId};
use observe::Event;
use route::resolve::{Failed, Outcome, Resolution};
use schedule::Class;
use spool::envelope::Encoded;
use spool::{Error, NewBody, Spool, Status, Store as _};
use std::fmt;
use std::sync::Arc;

/// Why a message of ours was not stored.
#[derive(Debug)]
pub(crate) enum NotStored {
    /// The spool did not take it.
    Spool(Error),
    /// Nobody can say now where it goes.
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

/// Octets of a report beside what it returns where there is room for small messages only: so the header section of the message
/// mostly fits, too.
const SMALL_REPORT_OCTETS: usize = PIECE_BYTES - (16 << 10);

/// A report in the spool.
pub(crate) struct Reported {
    /// Its name.
    pub(crate) id: QueueId,
    /// It tells of so many recipients, from the first on.
    pub(crate) recipients: usize,
    /// There was little room: it tells of fewer than it could, or returns less.
    pub(crate) is_less: bool,
}

/// Stores a report and hands it to *dispatch*. It may use the room that is kept from ordinary mail. Where the spool has room for
/// small messages only, the report tells of fewer and returns less of the message it is about.
///
/// # Errors
/// As [`Store::append`](spool::Store::append), or a map cannot be asked. Whoever tries again may send a part of it twice, if rules
/// made several messages of it.
/// # Cancel safety
/// No: the message may be durable and not in line; it is after the next start.
pub(crate) async fn submit_report(
    service: &Context,
    report: &Report<'_>,
    original: Original<'_>,
) -> Result<Reported, NotStored> {
    let composed = compose(report, original);
    let is_small = composed.content.len() <= PIECE_BYTES;
    let full = match give(service, &report.envelope_for(&composed), composed.content).await {
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
        // What was begun under the first id is forgotten there.
        let some = report.recipients.get(..recipients).unwrap_or(report.recipients);
        let again = Report { id: service.message_store.next_id(), recipients: some, ..*report };
        let composed = compose(&again, less);
        if composed.content.len() <= PIECE_BYTES {
            let given = give(service, &again.envelope_for(&composed), composed.content).await;
            return given.map(|()| Reported { id: again.id, recipients: some.len(), is_less: true });
        }
    }
    Err(full)
}

/// Stores a message of our own.
async fn give(service: &Context, envelope: &Envelope, content: Vec<u8>) -> Result<(), NotStored> {
    let Some(spool) = service.spool() else { return Ok(()) };
    let content = Bytes::from(content);
    let class = class_of(&envelope.params, HeaderHints::default(), false);
    let routing = service.routing.load_full();
    if routing.is_plain() {
        let encoded = Arc::new(service.live.load().encode(envelope));
        return store(service, spool, envelope, &encoded, &Kind::default(), content, class).await;
    }
    let mut plan = plan(service, &routing, envelope).await?;
    service.tell_discarded(envelope.id, &plan.take_discarded());
    if plan.is_nothing() {
        service.tell(&Event::Discarded { id: envelope.id });
        return Ok(());
    }
    let more = (1..plan.len()).map(|_| service.message_store.next_id());
    let ids = std::iter::once(envelope.id).chain(more).collect();
    let made = service.expansions.messages(ClientKey::Internal, plan, envelope.clone(), ids).await;
    let PlannedMessages { messages, turn: _turn } = made.map_err(not_now)?;
    for PlannedMessage { envelope, encoded, kind } in messages {
        store(service, spool, &envelope, &encoded, &kind, content.clone(), class).await?;
    }
    Ok(())
}

fn not_now(error: ExpandError) -> NotStored {
    NotStored::Map(error.to_string().into())
}

/// What the recipients of a message of ours become. Whoever is refused is in it as one who fails: then the postmaster hears of it.
async fn plan(service: &Context, routing: &Arc<Routing>, envelope: &Envelope) -> Result<Plan, NotStored> {
    // RFC 5321 §4.5.5: a report has the null sender
    let mut plan = Plan::default();
    plan.is_report = true;
    let settings = Settings::of(&service.live.load().config.maps);
    for recipient in &envelope.recipients {
        let wanted = Wanted {
            client: ClientKey::Internal,
            sender: envelope.sender.clone(),
            recipient: recipient.address.clone(),
            ip: None,
            is_local_submission: false,
        };
        let resolved = service.expansions.resolve(routing, &wanted, &settings).await.map_err(not_now)?;
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

/// Makes a message durable, and puts it in line if it is not held.
async fn store(
    service: &Context,
    spool: &Arc<Spool>,
    envelope: &Envelope,
    encoded: &Arc<Encoded>,
    kind: &Kind,
    content: Bytes,
    class: Class,
) -> Result<(), NotStored> {
    let bytes = content.len() as u64;
    let body = if content.len() <= PIECE_BYTES {
        NewBody::Whole(content)
    } else {
        let mut pieces = Content::new(envelope.id);
        pieces.push(&service.message_store, &content).await;
        pieces.hand_over(spool);
        pieces.wait_for_chunk().await;
        if let Some(error) = pieces.failed {
            spool.abort(envelope.id);
            return Err(NotStored::Spool(error));
        }
        NewBody::Chunks { count: pieces.chunks, bytes: pieces.bytes }
    };
    let mut first = first_state(envelope, class);
    if kind.hold.is_some() {
        first.status = Status::Held;
    } else if kind.queue_only {
        first = first.until(service.unix_now() + service.live.load().config.delivery.give_up_after);
    }
    append(spool, encoded, body, first, true).await.map_err(NotStored::Spool)?;
    if kind.queue_only
        && let Some(dispatch) = &service.dispatch
    {
        dispatch.accepted_for_later(envelope, encoded);
    }
    if first.status == Status::Waiting && !kind.queue_only {
        service.dispatch(envelope, encoded, bytes, class);
    }
    Ok(())
}

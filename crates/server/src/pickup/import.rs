//! Stores a message that another server has accepted, with the state that it had there.
//!
//! It was accepted once, so the server does not judge again whether it may be sent: no access map is asked, and its
//! header gets no field; a recipient that the present maps do not reach gets a report like any failed address. Its
//! queue id has the time of its arrival there, so that its age counts from then; tries and the warning of its sender
//! are kept; a message that was in quarantine is held.

use super::file::SubmittedFile;
use super::session::PickupResult;
use crate::inbound::Inbound;
use crate::intake::{
    self, HeaderHints, NewMessage, Origin, PIECE_BYTES, StoredTransaction, TransactionContent, class_of,
};
use crate::routing::expansions::{
    ClientKey, ExpandError, Expanded, ExpansionRequest, ExpansionSettings, HeldTurn, PlannedMessage, Resolved,
};
use crate::routing::members::Members;
use crate::routing::message_properties::MessageProperties;
use crate::routing::plan::Plan;
use crate::routing::{Admission, Routing};
use crate::submit::import::ImportedMessage;
use mail::header::{HeaderSection, Item, LineEnd};
use mail::{Address, Client, Envelope, Protocol, QueueId, Received, Recipient, ReversePath};
use observe::{Event, Relay, Severity};
use os::blocking;
use route::resolve::{Failed, HoldReason, Outcome, Resolution, SenderKind};
use schedule::Class;
use spool::{Pressure, State};
use std::sync::Arc;

/// Recipients in one message.
const RECIPIENTS_MAX: usize = 50_000;
/// Octets in which the server looks for the header fields that give the class.
const HEADER_BYTES_MAX: u64 = 64 << 10;
/// The name that its line in the log has in place of a listener's.
const DAEMON: &str = "import";

/// A message that is being imported.
pub(super) struct Import {
    pub(super) inbound: Arc<Inbound>,
    pub(super) handed: Arc<SubmittedFile>,
    pub(super) adopted: ImportedMessage,
    /// The name it will have in the spool.
    pub(super) id: QueueId,
    /// Login name or number of the user that wrote the file.
    pub(super) user: String,
}

/// Facts from its header.
#[derive(Default)]
struct HeaderFacts {
    sort: HeaderHints,
    message_id: Option<String>,
}

impl Import {
    /// Stores it and hands it to *dispatch*.
    ///
    /// # Cancel safety
    /// No: it may be durable and not in line; it is after the next start.
    pub(super) async fn run(self) -> PickupResult {
        if self.inbound.context.message_store.pressure() >= Pressure::Full {
            return PickupResult::Later("452 4.3.1 Insufficient system storage".to_owned(), Vec::new());
        }
        let said = self.header().await;
        let live = self.inbound.context.live.load_full();
        let class = class_of(&self.handed.submission.params, said.sort, live.config.delivery.bulk_precedence);
        let (messages, dropped, _turns) = match self.outgoing(class).await {
            Ok(outgoing) => outgoing,
            Err(why) => return PickupResult::Later(why.to_string(), Vec::new()),
        };
        let stored = match self.store(messages).await {
            Ok(stored) => stored,
            Err(why) => return PickupResult::Later(why, Vec::new()),
        };
        self.log_import(stored.messages(), &dropped, &said);
        stored.enqueue(&self.inbound.context, self.inbound.queue.as_ref(), self.handed.content_bytes).await;
        PickupResult::Done(None)
    }

    async fn header(&self) -> HeaderFacts {
        let handed = Arc::clone(&self.handed);
        let read = blocking::run(move || handed.beginning(HEADER_BYTES_MAX)).await;
        let content = read.ok().and_then(Result::ok).unwrap_or_default();
        said(&content)
    }

    fn envelope(&self) -> Envelope {
        let submission = &self.handed.submission;
        Envelope {
            id: self.id,
            sender: submission.sender.clone(),
            params: submission.params.clone(),
            received: Received {
                at_us: self.adopted.arrived.saturating_mul(1_000_000),
                client: Client::Process { uid: self.handed.uid },
                helo: None,
                protocol: Protocol::Local,
            },
            recipients: Vec::new(),
        }
    }

    /// Returns the messages that it becomes by the maps in force, nothing if they drop all of it; and the recipients
    /// that they drop.
    async fn outgoing(&self, class: Class) -> Result<(Vec<NewMessage>, Vec<Address>, HeldTurn), Arc<str>> {
        let routing = self.inbound.context.routing.load_full();
        let envelope = self.envelope();
        let recipients = &self.handed.submission.recipients;
        let (parts, dropped, turns) = match routing.admission() {
            Some(admission) => self.by_maps(&routing, admission, envelope).await?,
            None => {
                let hold = self.adopted.hold.as_deref().map(|reason| HoldReason::new("", reason));
                let kind = MessageProperties { hold, ..MessageProperties::default() };
                let live = self.inbound.context.live.load();
                let part = |(number, some): (usize, &[Recipient])| {
                    let part = Envelope { id: self.id_of(number), recipients: some.to_vec(), ..envelope.clone() };
                    let encoded = Arc::new(live.encode(&part));
                    PlannedMessage { envelope: Arc::new(part), encoded, kind: kind.clone() }
                };
                (recipients.chunks(RECIPIENTS_MAX).enumerate().map(part).collect(), Vec::new(), None)
            }
        };
        Ok((parts.into_iter().map(|planned| self.new_message(planned, class)).collect(), dropped, turns))
    }

    async fn by_maps(
        &self,
        routing: &Arc<Routing>,
        admission: &Admission,
        mut envelope: Envelope,
    ) -> Result<(Vec<PlannedMessage>, Vec<Address>, HeldTurn), Arc<str>> {
        let text = |error: ExpandError| Arc::<str>::from(error.to_string());
        let expansions = &self.inbound.context.expansions;
        let client = ClientKey::Process(self.handed.uid);
        let settings = ExpansionSettings::of(&self.inbound.context.live.load().config.maps);
        let (mut plans, mut dropped) = (vec![self.plan()], Vec::new());
        for recipient in &self.handed.submission.recipients {
            let wanted = ExpansionRequest {
                client: client.clone(),
                sender: envelope.sender.clone(),
                recipient: recipient.address.clone(),
                ip: None,
                is_local_submission: true,
            };
            let resolved = expansions.resolve(routing, &wanted, &settings).await.map_err(text)?;
            if !self.add(&mut plans, recipient, resolved)? {
                dropped.push(recipient.address.clone());
            }
        }
        if envelope.sender != ReversePath::Null {
            let sender = envelope.sender.clone();
            let known = routing.decide(|ask| admission.router.sender(ask, &sender, SenderKind::Envelope));
            envelope.sender = known.await?;
        }
        let mut number = 0;
        let (mut made, mut turns): (_, HeldTurn) = (Vec::new(), None);
        for plan in plans.into_iter().filter(|plan| !plan.is_nothing()) {
            // There may be no other.
            drop(turns.take());
            let ids = (number..number + plan.len()).map(|number| self.id_of(number)).collect();
            let part = expansions.messages(client.clone(), plan, envelope.clone(), ids).await.map_err(text)?;
            number += part.messages.len();
            made.extend(part.messages);
            turns = part.turn;
        }
        Ok((made, dropped, turns))
    }

    /// Puts a recipient into the last plan, or into one more; false: it is dropped.
    fn add(&self, plans: &mut Vec<Plan>, recipient: &Recipient, resolved: Resolved) -> Result<bool, Arc<str>> {
        let members = match resolved {
            Resolved::Short(Resolution { outcome: Outcome::Discard, .. }) | Resolved::Long(Expanded::Discarded) => {
                return Ok(false);
            }
            Resolved::Short(Resolution { outcome: Outcome::Refuse(refusal), .. })
            | Resolved::Long(Expanded::Refused(refusal)) => {
                if refusal.code < 500 {
                    return Err(format!("{} {} <{}>", refusal.code, refusal.text, recipient.address).into());
                }
                let address = recipient.address.clone();
                Arc::new(Members::new(Vec::new(), vec![Failed { address, refusal, sender: None, copy: None }]))
            }
            Resolved::Short(Resolution { outcome: Outcome::Deliver(deliveries), failed, .. }) => {
                Arc::new(Members::new(deliveries, failed))
            }
            Resolved::Long(Expanded::Members(members)) => members,
        };
        let fits = plans.last_mut().map(|plan| plan.add_members(recipient, Arc::clone(&members)));
        if fits != Some(Ok(())) {
            let mut plan = self.plan();
            plan.add_members(recipient, members)
                .map_err(|_| Arc::<str>::from(format!("<{}> leads to too many lists", recipient.address)))?;
            plans.push(plan);
        }
        Ok(true)
    }

    fn plan(&self) -> Plan {
        let mut plan = Plan::default();
        plan.quarantine = self.adopted.hold.as_deref().map(|reason| HoldReason::new("", reason));
        plan
    }

    /// Returns the queue id of a message: the first has the name that the file has, the others get one of the same
    /// time.
    fn id_of(&self, number: usize) -> QueueId {
        match number {
            0 => self.id,
            _ => self.inbound.context.message_store.past_id(self.id.unix_us()),
        }
    }

    /// Returns a message with the tries and the warning that it had on the other server.
    fn new_message(&self, planned: PlannedMessage, class: Class) -> NewMessage {
        let mut message = NewMessage::new(&self.inbound.context, planned, class);
        for _ in 0..self.adopted.tries.min(State::TRIES_MAX.into()) {
            message.first = message.first.tried();
        }
        if self.adopted.is_warned {
            message.first = message.first.warned();
        }
        message
    }

    /// Makes all messages durable, or none; the error text is the reason.
    async fn store(&self, messages: Vec<NewMessage>) -> Result<StoredTransaction, String> {
        let (content, rest) = self.content(messages.iter().map(|message| message.envelope.id)).await?;
        let finished = content.finish(&self.inbound.context.message_store, messages, intake::inline(rest)).await;
        let finished = finished.map_err(|error| error.to_string())?;
        let stored = intake::commit(&self.inbound.context, Origin::Import, finished).await;
        stored.map_err(|error| error.to_string())
    }

    /// Reads the file into the content of the messages, and returns what of small content is left to end it with.
    async fn content(&self, ids: impl Iterator<Item = QueueId>) -> Result<(TransactionContent, Vec<u8>), String> {
        let mut content = TransactionContent::of(self.id, ids);
        let mut rest = Vec::new();
        let is_small = self.handed.content_bytes <= PIECE_BYTES as u64;
        let mut at = 0;
        while at < self.handed.content_bytes {
            let handed = Arc::clone(&self.handed);
            let read = blocking::run(move || handed.piece(at)).await;
            let piece = match read.map_err(|error| error.to_string()).and_then(|read| read.map_err(|e| e.to_string())) {
                Ok(piece) => piece,
                Err(why) => {
                    content.abandon(&self.inbound.context.message_store);
                    return Err(why);
                }
            };
            at += piece.len() as u64;
            if is_small {
                rest = piece;
            } else {
                content.push(&self.inbound.context.message_store, &piece).await;
            }
        }
        Ok((content, rest))
    }

    fn log_import(&self, messages: &[NewMessage], dropped: &[Address], said: &HeaderFacts) {
        let submission = &self.handed.submission;
        let from = submission.sender.to_string();
        self.inbound.context.record(&Event::Accepted {
            id: self.id,
            from: &from,
            size: self.handed.content_bytes,
            class: said.sort.precedence,
            nrcpts: submission.recipients.len(),
            msgid: said.message_id.as_deref(),
            bodytype: submission.params.body,
            mt_priority: submission.params.mt_priority,
            protocol: Protocol::Local,
            daemon: DAEMON,
            identity: None,
            relay: Relay::Local { user: &self.user },
        });
        let text = format!("{} was taken over, it was {} before", self.id, self.adopted.source);
        self.inbound.context.record(&Event::Spool { severity: Severity::Info, text: &text });
        self.inbound.context.record_discarded(self.id, dropped);
        if messages.is_empty() {
            self.inbound.context.record(&Event::Discarded { id: self.id });
        }
        for message in messages.iter().filter(|message| message.envelope.id != self.id) {
            let owner = message.envelope.sender.to_string();
            let (first, owner) = (self.id, owner.trim_matches(['<', '>']));
            self.inbound.context.record(&Event::Cloned { first, id: message.envelope.id, owner });
        }
    }
}

/// Reads the class of a message, and its id, from its header.
fn said(content: &[u8]) -> HeaderFacts {
    let mut said = HeaderFacts::default();
    for item in HeaderSection::read(content, LineEnd::Crlf).items() {
        let Item::Field(field) = item else { continue };
        let value = || String::from_utf8_lossy(&field.unfolded()).trim().to_owned();
        if field.has_name("list-id") {
            said.sort.has_list_id = true;
        } else if field.has_name("message-id") && said.message_id.is_none() {
            said.message_id = Some(value());
        } else if field.has_name("precedence") {
            said.sort.precedence = match value().to_ascii_lowercase().as_str() {
                "list" => -30,
                "bulk" => -60,
                "junk" => -100,
                "first-class" => 0,
                "special-delivery" => 100,
                _ => said.sort.precedence,
            };
        }
    }
    said
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_the_header_says() {
        let found =
            said(b"Message-Id: <1@a.test>\r\nPrecedence: Bulk\r\nList-Id: <l.test>\r\n\r\nPrecedence: junk\r\n");
        assert_eq!((found.sort.precedence, found.sort.has_list_id), (-60, true));
        assert_eq!(found.message_id.as_deref(), Some("<1@a.test>"));
        let found = said(b"");
        assert_eq!((found.sort.precedence, found.sort.has_list_id, found.message_id), (0, false, None));
    }
}

//! Finds the messages that a command selects, the oldest first, one in memory at a time.
//!
//! Only the ids of the queue are collected, eight bytes each. The index decides first; an envelope is read when
//! addresses are asked for, or to be shown. The queue moves meanwhile: a message that is finished before the walk comes
//! to it is not there, one that arrives behind its start is not seen.

use super::delivery_control::DeliveryControl;
use super::expression::{EnvelopeFacts, Expression, QueueFacts};
use super::recipient_status::RecipientStatus;
use super::selection::Selection;
use bytes::Bytes;
use mail::{Envelope, QueueId, Recipient};
use schedule::Class;
use spool::{Entry, EnvelopeReader, Error, Hold, Spool, State, Status, Store as _, StoredEnvelope, StoredRecipient};
use std::cell::RefCell;
use std::time::Duration;

/// Holds a message with its selected recipients.
#[derive(Debug)]
pub(super) struct FoundMessage {
    pub(super) id: QueueId,
    /// Its recipients that are meant, by position.
    pub(super) recipients: Vec<FoundRecipient>,
    /// Its recipients that are not done, meant or not.
    pub(super) waiting: usize,
    /// The content of its envelope, if that was read.
    pub(super) summary: Option<EnvelopeSummary>,
    /// Why the envelope could not be read.
    pub(super) trouble: Option<String>,
}

/// Holds the envelope of a message without its recipients, and the size of its content.
#[derive(Debug)]
pub(super) struct EnvelopeSummary {
    /// Without its recipients.
    pub(super) envelope: Envelope,
    /// Octets of content.
    pub(super) size: u64,
}

impl EnvelopeSummary {
    /// Returns when the recipient may be tried first by the wish of its sender, in seconds since 1970; `None` if that
    /// time is over or was not given.
    // RFC 4865 §4.2
    pub(super) fn requested_release(&self, state: State, now_us: u64) -> Option<u32> {
        let at = self.envelope.release_at()?;
        let is_asked = at > Duration::from_micros(now_us);
        (state.status == Status::Waiting && is_early(state, now_us) && is_asked).then_some(state.due)
    }
}

/// Whether a recipient was not tried yet and its time is to come, as where its sender gave the time. This may be so for
/// a held one.
pub(super) fn is_early(state: State, now_us: u64) -> bool {
    state.tries() == 0 && u64::from(state.due) > now_us / 1_000_000
}

/// Holds a selected recipient.
#[derive(Debug)]
pub(super) struct FoundRecipient {
    pub(super) position: u32,
    pub(super) state: State,
    pub(super) status: RecipientStatus,
    pub(super) destination: Bytes,
    /// The recipient in the envelope, if that was read and is valid.
    pub(super) recipient: Option<Recipient>,
    /// It keeps the time that its sender gave, whatever else the command changes.
    pub(super) keeps_time: bool,
    /// Why it is held.
    pub(super) hold: Option<Hold>,
}

/// Says whether a message is selected.
#[derive(Debug)]
pub(super) enum ScanResult {
    /// It is meant.
    FoundMessage(Box<FoundMessage>),
    /// It is not meant.
    Other,
    /// There is no such message in the queue.
    Missing,
    /// Whether it is meant cannot be known: its envelope cannot be read.
    Unreadable(String),
}

/// Finds messages for a selection.
#[derive(Debug)]
pub(super) struct QueueScan<'a> {
    pub(super) spool: &'a Spool,
    pub(super) delivery: &'a dyn DeliveryControl,
    pub(super) selection: &'a Selection,
    pub(super) now_us: u64,
    /// Read envelopes also where nothing asks for addresses.
    pub(super) reads: bool,
    /// Reads them one behind the other.
    pub(super) envelopes: &'a RefCell<EnvelopeReader>,
}

impl QueueScan<'_> {
    /// Ids to look at, the oldest first. Those that were named are there even if the queue does not know them.
    pub(super) fn ids(&self) -> Vec<QueueId> {
        let mut ids = if self.selection.ids.is_empty() { self.spool.messages() } else { self.selection.ids.clone() };
        ids.retain(|id| self.selection.after.is_none_or(|after| *id > after));
        ids.retain(|id| self.selection.matches_age(self.delivery.counts_from_us(*id), self.now_us));
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// Returns whether a message may match the selection, as far as the index in memory tells. Reads nothing.
    pub(super) fn may_match(&self, id: QueueId) -> bool {
        let states = self.spool.states(id);
        states.iter().any(|(entry, destination)| self.matches_entry(entry, destination))
    }

    fn matches_entry(&self, entry: &Entry, destination: &[u8]) -> bool {
        self.selection.matches_destination(destination, || self.status(entry.id, entry.recipient, entry.state))
            && self.matches_hold(entry.id, entry.recipient)
            && self.matches_expression(entry.id, entry.recipient, entry.state, destination)
    }

    fn matches_expression(&self, id: QueueId, recipient: u32, state: State, destination: &[u8]) -> bool {
        let Some(expression) = &self.selection.expression else { return true };
        expression.matches_queue(&EntryFacts { scan: self, id, recipient, state, destination })
    }

    fn matches_hold(&self, id: QueueId, recipient: u32) -> bool {
        !self.selection.needs_hold()
            || self.spool.hold(id, recipient).is_some_and(|hold| self.selection.matches_hold(&hold))
    }

    fn status(&self, id: QueueId, recipient: u32, state: State) -> RecipientStatus {
        RecipientStatus::of_state(state, || self.delivery.is_active(id, recipient))
    }

    /// Finds the selected recipients of a message; may read its envelope from the disk.
    pub(super) fn read_message(&self, id: QueueId) -> ScanResult {
        let states = self.spool.states(id);
        if states.is_empty() {
            return ScanResult::Missing;
        }
        if !states.iter().any(|(entry, destination)| self.matches_entry(entry, destination)) {
            return ScanResult::Other;
        }
        if !self.reads && !self.selection.needs_addresses() {
            return self.found(self.by_index(id, &states));
        }
        let read = match self.envelopes.borrow_mut().envelope(self.spool, id) {
            Ok(stored) => self.by_envelope(id, &stored),
            Err(Error::Unknown(_)) => return ScanResult::Missing,
            Err(error) => Err(error.to_string()),
        };
        match read {
            Ok(found) => self.found(found),
            // The user that submitted it is not known.
            Err(_) if self.selection.handed_in_by.is_some() => ScanResult::Other,
            Err(what) if self.selection.needs_addresses() => ScanResult::Unreadable(what),
            // It can be shown, held and deleted all the same.
            Err(what) => self.found(FoundMessage { trouble: Some(what), ..self.by_index(id, &states) }),
        }
    }

    /// Marks the recipients in this state that are not to be tried yet, as their sender asked, and returns their
    /// number.
    ///
    /// May read the envelope. An unreadable envelope marks no recipient: it cannot be sent either.
    pub(super) fn mark_early(&self, found: &mut FoundMessage, status: Status) -> u64 {
        let is_early = |one: &FoundRecipient| one.state.status == status && is_early(one.state, self.now_us);
        if !found.recipients.iter().any(is_early) {
            return 0;
        }
        let read = || {
            let stored = self.envelopes.borrow_mut().envelope(self.spool, found.id).ok()?;
            let envelope = spool::envelope::decode_head(found.id, &stored.head).ok()?;
            Some(EnvelopeSummary { envelope, size: stored.body_bytes })
        };
        let Some(summary) = found.summary.take().or_else(read) else { return 0 };
        let mut marked = 0;
        if summary.envelope.release_at().is_some_and(|at| at > Duration::from_micros(self.now_us)) {
            for one in found.recipients.iter_mut().filter(|one| is_early(one)) {
                one.keeps_time = true;
                marked += 1;
            }
        }
        found.summary = Some(summary);
        marked
    }

    fn found(&self, found: FoundMessage) -> ScanResult {
        // A state may have changed since the first look.
        if found.recipients.is_empty() { ScanResult::Other } else { ScanResult::FoundMessage(Box::new(found)) }
    }

    /// Returns a message with the fields that the index has.
    fn by_index(&self, id: QueueId, states: &[(Entry, Bytes)]) -> FoundMessage {
        let meant = states.iter().filter(|(entry, destination)| self.matches_entry(entry, destination));
        let recipients = meant.map(|(entry, destination)| FoundRecipient {
            position: entry.recipient,
            state: entry.state,
            status: self.status(id, entry.recipient, entry.state),
            destination: destination.clone(),
            recipient: None,
            keeps_time: false,
            hold: self.spool.hold(id, entry.recipient),
        });
        FoundMessage { id, recipients: recipients.collect(), waiting: states.len(), summary: None, trouble: None }
    }

    /// Returns a message with the fields of its envelope, and the states of this moment.
    fn by_envelope(&self, id: QueueId, stored: &StoredEnvelope) -> Result<FoundMessage, String> {
        let envelope = spool::envelope::decode_head(id, &stored.head).map_err(|error| error.to_string())?;
        let is_from = self.selection.matches_sender(envelope.sender.address())
            && self.selection.matches_client(envelope.received.client);
        let listed = stored.recipients.iter().filter(|_| is_from);
        let (mut recipients, mut trouble) = (Vec::new(), None);
        for one in listed {
            let StoredRecipient { position, data, destination, state } = one;
            let status = || self.status(id, *position, *state);
            if !self.selection.matches_destination(destination, status)
                || !self.matches_hold(id, *position)
                || !self.matches_expression(id, *position, *state, destination)
            {
                continue;
            }
            let recipient =
                spool::envelope::decode_recipient(data).map_err(|error| trouble = Some(error.to_string())).ok();
            let address = recipient.as_ref().map(|recipient| &recipient.address);
            let facts = EnvelopeFacts {
                sender: envelope.sender.address(),
                recipient: address,
                size: stored.body_bytes,
                client: envelope.received.client,
            };
            let is_meant = |expression: &Expression| expression.matches_envelope(&facts);
            if self.selection.matches_address(address) && self.selection.expression.as_ref().is_none_or(is_meant) {
                let (position, state, destination) = (*position, *state, destination.clone());
                let status = status();
                let (keeps_time, hold) = (false, self.spool.hold(id, position));
                recipients.push(FoundRecipient { position, state, status, destination, recipient, keeps_time, hold });
            }
        }
        let summary = Some(EnvelopeSummary { envelope, size: stored.body_bytes });
        Ok(FoundMessage { id, recipients, waiting: stored.recipients.len(), summary, trouble })
    }
}

/// The facts of a recipient, as an expression asks for them.
struct EntryFacts<'a> {
    scan: &'a QueueScan<'a>,
    id: QueueId,
    recipient: u32,
    state: State,
    destination: &'a [u8],
}

impl QueueFacts for EntryFacts<'_> {
    fn destination(&self) -> String {
        String::from_utf8_lossy(self.destination).into_owned()
    }

    fn host(&self) -> Option<String> {
        self.scan.delivery.destination(self.destination)?.site
    }

    fn status(&self) -> RecipientStatus {
        self.scan.status(self.id, self.recipient, self.state)
    }

    fn class(&self) -> Class {
        Class::from_bits(self.state.class())
    }

    fn held_by(&self) -> Option<String> {
        self.scan.spool.hold(self.id, self.recipient).map(|hold| hold.by().to_owned())
    }

    fn reason(&self) -> Option<&'static str> {
        self.scan.delivery.reason_kind(self.id, self.recipient).map(observe::Reason::name)
    }

    fn reply(&self) -> Option<String> {
        self.scan.delivery.reason(self.id, self.recipient)
    }

    fn age(&self) -> Duration {
        Duration::from_micros(self.scan.now_us.saturating_sub(self.scan.delivery.counts_from_us(self.id)))
    }

    fn tries(&self) -> u64 {
        // The spool does not keep the number of attempts of a delivered recipient.
        let tries = if self.state.owed().is_none() { u64::from(self.state.tries()) } else { 0 };
        tries + u64::from(self.scan.delivery.unsent(self.id, self.recipient))
    }
}

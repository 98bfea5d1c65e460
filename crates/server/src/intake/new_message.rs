//! A message of a transaction, from its plan until it is stored.

use crate::context::Context;
use crate::deadline;
use crate::routing::expansions::PlannedMessage;
use crate::routing::message_properties::MessageProperties;
use mail::{Envelope, QueueId, Recipient};
use observe::Event;
use route::resolve::HoldReason;
use schedule::Class;
use spool::envelope::Encoded;
use spool::{Hold, HoldKind, State, Status};
use std::sync::Arc;
use std::time::Duration;

/// The source of a transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// A client over SMTP or LMTP, or a program through the pickup directory.
    Session,
    /// A message that another server accepted before.
    Import,
    /// A report of this server. It may use the room that the spool keeps from ordinary mail, and the log has no line
    /// that it waits.
    Report,
}

impl Origin {
    /// The source of the reason why a message is held.
    const fn hold_kind(self) -> HoldKind {
        match self {
            Self::Session | Self::Report => HoldKind::Rule,
            Self::Import => HoldKind::Import,
        }
    }
}

/// A message as it is stored.
#[derive(Clone, Debug)]
pub(crate) struct NewMessage {
    pub(crate) envelope: Arc<Envelope>,
    pub(crate) encoded: Arc<Encoded>,
    /// The state in which its recipients begin.
    pub(crate) first: State,
    pub(crate) kind: MessageProperties,
    pub(crate) class: Class,
    /// Why it is held, where *screen* or a rule of an operator holds it.
    pub(crate) held: Option<Hold>,
    /// Some recipients are let go when it is durable.
    pub(crate) is_partly_held: bool,
    /// It is taken without a copy at another node of the cluster, if there is none.
    pub(crate) accepts_local: bool,
}

impl NewMessage {
    /// Makes a message of a plan. One that is in quarantine is held; one that waits for an operator is due when it
    /// would expire.
    pub(crate) fn new(context: &Context, planned: PlannedMessage, class: Class) -> Self {
        let PlannedMessage { envelope, encoded, kind } = planned;
        let mut first = first_state(&envelope, class);
        if kind.hold.is_some() {
            first.status = Status::Held;
        } else if kind.queue_only {
            first = first.until(context.unix_now() + context.live.load().config.delivery.give_up_after);
        }
        Self { envelope, encoded, first, kind, class, held: None, is_partly_held: false, accepts_local: false }
    }

    /// Has the message begin held, for this reason.
    pub(crate) fn hold(&mut self, reason: Hold) {
        self.first.status = Status::Held;
        self.kind.hold = Some(HoldReason::new(reason.by(), reason.text()));
        self.held = Some(reason);
    }

    /// Has the message begin held until its filters have judged it; `record` is what they are to know of it.
    pub(crate) fn wait_for_filters(&mut self, record: &str, reason: Hold) {
        self.first.status = Status::Held;
        self.held = Some(reason);
        self.encoded = Arc::new(Encoded::clone(&self.encoded).with_screening(record));
    }

    /// Returns why the message begins held.
    pub(crate) fn hold_reason(&self, origin: Origin) -> Option<Hold> {
        let by_kind = || self.kind.hold.as_ref().map(|why| Hold::new(origin.hold_kind(), &why.by, &why.text));
        self.held.clone().or_else(by_kind)
    }

    /// Gives the message another class.
    pub(crate) fn put_into(&mut self, class: Class) {
        self.class = class;
        self.first = self.first.of_class(class.bits(), deadline::to_come(&self.envelope).is_some());
    }

    /// Gives the message other recipients, each with its destination.
    pub(crate) fn send_to(&mut self, recipients: Vec<(Recipient, Vec<u8>)>) {
        let (recipients, destinations) = recipients.into_iter().unzip();
        let envelope = Envelope { recipients, ..Envelope::clone(&self.envelope) };
        self.encoded = Arc::new(Encoded::with(&envelope, destinations));
        self.envelope = Arc::new(envelope);
    }

    /// Gives the message another queue id.
    pub(crate) fn renamed(mut self, id: QueueId) -> Self {
        let destinations = self.recipients().map(|(_, destination)| destination.to_vec()).collect();
        let envelope = Envelope { id, ..Envelope::clone(&self.envelope) };
        self.encoded = Arc::new(Encoded::with(&envelope, destinations));
        self.envelope = Arc::new(envelope);
        self
    }

    /// Returns its recipients, each with its destination.
    pub(crate) fn recipients(&self) -> impl Iterator<Item = (&Recipient, &[u8])> {
        let recipients = self.envelope.recipients.iter().enumerate();
        recipients.map(|(position, one)| (one, self.encoded.destination(position)))
    }

    /// Returns whether it is attempted without a command of an operator.
    pub(super) fn is_due(&self) -> bool {
        self.first.status == Status::Waiting && !self.kind.queue_only
    }
}

/// Logs that a message waits, with its priority by sendmail's formula; `class` is that of `Precedence:`.
pub(crate) fn report_waiting(
    context: &Context,
    envelope: &Envelope,
    octets: u64,
    class: i32,
    quarantine: Option<&str>,
) {
    let recipients: Vec<String> = envelope.recipients.iter().map(|one| format!("<{}>", one.address)).collect();
    let to: Vec<&str> = recipients.iter().map(String::as_str).collect();
    let priority = crate::log::priority(octets, to.len(), 0, class);
    context.record(&Event::Queued { id: envelope.id, to: &to, mailer: "esmtp", priority, quarantine });
}

/// Returns the state in which the recipients of a new message begin: their class, a mark if the sender gave a time by
/// which to deliver it, and the time at which the message is released, so that a crash forgets none of it.
// RFC 4865 §4.2: it is kept until then
pub(crate) fn first_state(envelope: &Envelope, class: Class) -> State {
    let state = State::default().of_class(class.bits(), deadline::to_come(envelope).is_some());
    match envelope.release_at() {
        // Up to the next second: never too early.
        Some(at) => state.until(at + Duration::from_millis(999)),
        None => state,
    }
}

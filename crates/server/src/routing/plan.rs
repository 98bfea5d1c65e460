//! What a transaction becomes: one message in the spool as a rule, several where recipients have to be kept apart.
//!
//! Each recipient that is accepted becomes deliveries. Those of one message have the same sender and begin in the same state:
//! the members of a list with an owner are a message of their own, and so is what is held. All messages of a transaction
//! are durable before its one `250`.
//!
//! Invariant: nobody is in two messages by the same way, however many recipients and lists led to him. Whoever is on two lists
//! with owners has it from the list that was named first, as with sendmail.

use crate::config;
use mail::{Address, Envelope, Notify, QueueId, Recipient, RecipientParams, ReversePath};
use route::destination::{Destination, To};
use route::resolve::{Acknowledge, CopyDsn, Delivery, Failed};
use std::collections::HashSet;

/// Messages that one transaction may become; a recipient beyond is refused for now, and comes in another transaction.
pub(crate) const MESSAGES_MAX: usize = 16;
/// Recipients in one message: what is more goes into another, so that an envelope is of a size that the spool takes.
const RECIPIENTS_MAX: usize = 50_000;

/// What the recipients so far become.
#[derive(Debug, Default)]
pub(crate) struct Plan {
    messages: Vec<Message>,
    /// Who is in `messages` already, and where his mail goes.
    known: HashSet<(Box<str>, Vec<u8>)>,
    /// Recipients that were accepted and are dropped, as an entry demands.
    discarded: Vec<Address>,
    /// All of it is dropped, as an entry for client or sender demands.
    pub(crate) is_discarded: bool,
    /// All of it is held, for this reason.
    pub(crate) quarantine: Option<Box<str>>,
    /// The safest of what rules say of when it is said to be accepted.
    acknowledge: Option<Acknowledge>,
    /// For some of it no rule says that.
    has_unruled: bool,
}

/// A message that a transaction becomes.
#[derive(Debug)]
pub(crate) struct Message {
    kind: Kind,
    recipients: Vec<Recipient>,
    destinations: Vec<Vec<u8>>,
}

/// What the recipients of one message have in common.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Kind {
    /// The sender, where it is not that of the transaction.
    pub(crate) sender: Option<ReversePath>,
    /// Why it is held.
    pub(crate) hold: Option<Box<str>>,
    /// It waits until an operator sends it.
    pub(crate) queue_only: bool,
}

/// There are too many messages already.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct TooMany;

impl Plan {
    /// An accepted recipient becomes these deliveries.
    ///
    /// # Errors
    /// The transaction would become too many messages; nothing of the recipient is in the plan then.
    pub(crate) fn add(
        &mut self,
        recipient: &Recipient,
        deliveries: Vec<Delivery>,
        failed: Vec<Failed>,
    ) -> Result<(), TooMany> {
        let is_alone = deliveries.iter().filter(|one| !one.is_copy).count() + failed.len() == 1;
        let mut parts = Vec::with_capacity(deliveries.len() + failed.len());
        let mut ruled = Vec::with_capacity(parts.capacity());
        for one in deliveries {
            ruled.push(one.acknowledge);
            let kind = Kind { sender: one.sender, hold: one.hold, queue_only: one.queue_only };
            let copy = one.is_copy.then_some(one.copy_dsn);
            let params = params(recipient, is_alone, copy, kind.sender.is_some());
            parts.push((kind, one.address, params, one.destination));
        }
        for one in failed {
            ruled.push(None);
            let kind = Kind { sender: one.sender, ..Kind::default() };
            let params = params(recipient, is_alone, one.copy, kind.sender.is_some());
            let (status, text) = (one.refusal.status, one.refusal.text.into());
            parts.push((kind, one.address, params, Destination::new(To::Error { status, text })));
        }
        let mut kinds: Vec<&Kind> = self.messages.iter().map(|message| &message.kind).collect();
        for (kind, ..) in &parts {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        if kinds.len() > MESSAGES_MAX {
            return Err(TooMany);
        }
        self.acknowledge = self.acknowledge.into_iter().chain(ruled.iter().flatten().copied()).min();
        self.has_unruled |= ruled.contains(&None);
        for (kind, address, params, destination) in parts {
            let who = destination.who(&address);
            let destination = destination.to_bytes();
            if self.known.insert((who, destination.clone())) {
                let message = self.message_of(&kind);
                message.recipients.push(Recipient { address, params });
                message.destinations.push(destination);
            }
        }
        Ok(())
    }

    /// When all of it is said to be accepted, where the listener says this: the safest for anybody.
    pub(crate) fn acknowledge(&self, listener: config::Acknowledge) -> config::Acknowledge {
        let by_rules = self.acknowledge.map(|acknowledge| match acknowledge {
            Acknowledge::Durable => config::Acknowledge::Durable,
            Acknowledge::Race => config::Acknowledge::Race,
            Acknowledge::Interactive => config::Acknowledge::Interactive,
        });
        match by_rules {
            Some(by_rules) if self.has_unruled => by_rules.min(listener),
            Some(by_rules) => by_rules,
            None => listener,
        }
    }

    /// An accepted recipient is dropped.
    pub(crate) fn discard(&mut self, recipient: &Recipient) {
        self.discarded.push(recipient.address.clone());
    }

    /// The recipients that were dropped one by one.
    pub(crate) fn take_discarded(&mut self) -> Vec<Address> {
        std::mem::take(&mut self.discarded)
    }

    /// Whether nothing of the transaction goes anywhere.
    pub(crate) fn is_nothing(&self) -> bool {
        self.is_discarded || self.messages.is_empty()
    }

    fn message_of(&mut self, kind: &Kind) -> &mut Message {
        let fits = |message: &Message| message.kind == *kind && message.recipients.len() < RECIPIENTS_MAX;
        let at = self.messages.iter().rposition(fits).unwrap_or_else(|| {
            let (recipients, destinations) = (Vec::new(), Vec::new());
            self.messages.push(Message { kind: kind.clone(), recipients, destinations });
            self.messages.len() - 1
        });
        self.messages.get_mut(at).expect("it was found or pushed")
    }

    /// How many messages it becomes.
    pub(crate) fn len(&self) -> usize {
        self.messages.len()
    }

    /// The messages, made from the transaction's own envelope; the first has its name, the others those of `next_id`.
    pub(crate) fn into_messages(
        mut self,
        envelope: &Envelope,
        mut id_of: impl FnMut(usize) -> QueueId,
    ) -> Vec<(Envelope, Vec<Vec<u8>>, Kind)> {
        // What has the sender's own name comes first, and has the name that he is told.
        self.messages.sort_by_key(|message| message.kind != Kind::default());
        let quarantine = self.quarantine;
        let made = self.messages.into_iter().enumerate().map(|(number, message)| {
            let Message { mut kind, recipients, destinations } = message;
            kind.hold = kind.hold.or_else(|| quarantine.clone());
            let mut made = Envelope { id: id_of(number), recipients, ..envelope.clone() };
            if let Some(sender) = &kind.sender {
                made.sender = sender.clone();
                // RFC 3461 §5.2.7.3: what a list sends is a new message, whose envelope id is not that of the sender
                made.params.envid = None;
            }
            (made, destinations, kind)
        });
        made.collect()
    }
}

/// What the sender asked for a recipient, as it holds for one of the addresses that he became.
fn params(recipient: &Recipient, is_alone: bool, copy: Option<CopyDsn>, is_list: bool) -> RecipientParams {
    let mut params = recipient.params.clone();
    let notify = match copy {
        Some(CopyDsn::Never) => Some(Notify::NEVER),
        // RFC 3461 §5.2.7.3: reports go to the owner of the list, of what failed
        _ if is_list => None,
        _ => params.notify,
    };
    params.notify = notify;
    if is_list || (!is_alone && params.orcpt.is_none()) {
        params.orcpt = None;
    }
    params
}

//! Plans the messages of a transaction: one message in the spool as a rule, several where recipients have to be kept
//! apart.
//!
//! Each accepted recipient becomes deliveries. Those of one message have the same sender and begin in the same state:
//! the members of a list with an owner are a message of their own, and so are held recipients. All messages of a
//! transaction are durable before its one `250`.
//!
//! A recipient with few deliveries goes into the messages at once. Of a long list the plan holds the shared
//! [`Members`] alone, and decides by their figures whether the transaction takes one more; [`Plan::merge`] makes
//! messages of them at the end, where time linear in their number delays no other session. Recipients behind a long
//! list wait for that too, so that the order stays.
//!
//! Invariant: no recipient is in two messages by the same way, however many recipients and lists lead to it. A
//! recipient on two lists with owners gets the message from the list that was named first, as with sendmail.

use super::members::Members;
use super::message_properties::MessageProperties;
use crate::config;
use mail::{Address, Envelope, Notify, QueueId, Recipient, RecipientParams};
use route::destination::{Destination, To};
use route::resolve::{Acknowledge, CopyDsn, Delivery, Failed, HoldReason, Outcome, Resolution};
use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;

/// Messages that one transaction may become; a recipient beyond is refused for now, and comes in another transaction.
pub(crate) const MESSAGES_MAX: usize = 16;
/// Recipients in one message; more go into another, so that an envelope is of a size that the spool takes.
const RECIPIENTS_MAX: usize = 50_000;

/// Messages of the recipients so far.
#[derive(Debug)]
pub(crate) struct Plan {
    messages: Vec<RoutedMessage>,
    /// Recipients in `messages`, each with its destination.
    known: HashSet<(Box<str>, Vec<u8>)>,
    /// Recipients that were accepted after `messages` and are not in them yet, from the first long list on.
    later: Vec<Later>,
    /// Recipients of each kind in all; those that two of `later` have count twice.
    totals: Vec<(MessageProperties, usize)>,
    /// Recipients that were accepted and are dropped, as an entry demands.
    discarded: Vec<Address>,
    /// All messages are dropped, as an entry for client or sender demands.
    pub(crate) is_discarded: bool,
    /// All messages are held, for this reason.
    pub(crate) quarantine: Option<HoldReason>,
    /// Recipients of it were lost: it becomes no message.
    is_lost: bool,
    /// It is a report, which keeps the null sender on a list too.
    pub(crate) is_report: bool,
    /// The scope of content rules of the recipient that is judged or added now. Recipients of different scopes are
    /// kept apart.
    pub(crate) scope: u16,
    /// The safest time of the `250` that rules demand.
    acknowledge: Option<Acknowledge>,
    /// A part of it has no such rule.
    has_unruled: bool,
    /// [`RECIPIENTS_MAX`], or fewer in a test.
    recipients_max: usize,
}

/// A recipient whose members are in no message yet.
#[derive(Debug)]
struct Later {
    params: RecipientParams,
    members: Arc<Members>,
    scope: u16,
}

/// A message that a transaction becomes.
#[derive(Debug)]
pub(crate) struct RoutedMessage {
    kind: MessageProperties,
    recipients: Vec<Recipient>,
    destinations: Vec<Vec<u8>>,
}

/// Why a recipient is not in the plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotAdded {
    /// The transaction would become too many messages.
    TooMany,
    /// The answer takes [`Plan::merge`]: long lists may have members in common.
    Unmerged,
}

impl Default for Plan {
    fn default() -> Self {
        Self {
            messages: Vec::new(),
            known: HashSet::new(),
            later: Vec::new(),
            totals: Vec::new(),
            discarded: Vec::new(),
            is_discarded: false,
            quarantine: None,
            is_lost: false,
            is_report: false,
            scope: 0,
            acknowledge: None,
            has_unruled: false,
            recipients_max: RECIPIENTS_MAX,
        }
    }
}

impl Plan {
    /// Makes a plan whose recipients are elsewhere. If they do not come back it becomes no message.
    pub(super) fn lost() -> Self {
        Self { is_lost: true, ..Self::default() }
    }

    /// Returns whether recipients of it were lost, so that nothing of it may be accepted.
    pub(crate) const fn is_lost(&self) -> bool {
        self.is_lost
    }

    /// Adds an accepted recipient with these deliveries.
    ///
    /// # Errors
    /// Nothing of the recipient is in the plan then.
    pub(crate) fn add(
        &mut self,
        recipient: &Recipient,
        deliveries: Vec<Delivery>,
        failed: Vec<Failed>,
    ) -> Result<(), NotAdded> {
        if !self.later.is_empty() {
            return self.add_members(recipient, Arc::new(Members::new(deliveries, failed)));
        }
        let is_alone = deliveries.iter().filter(|one| !one.is_copy).count() + failed.len() == 1;
        let mut parts = Vec::with_capacity(deliveries.len() + failed.len());
        let mut ruled = Vec::with_capacity(parts.capacity());
        for one in deliveries {
            ruled.push(one.acknowledge);
            let kind = self.kind_here(&MessageProperties::of(&one)).into_owned();
            let copy = one.is_copy.then_some(one.copy_dsn);
            let params = params(&recipient.params, is_alone, copy, kind.sender.is_some());
            parts.push((kind, one.address, params, one.destination));
        }
        for one in failed {
            ruled.push(None);
            let kind = self.kind_here(&MessageProperties::of_failed(&one)).into_owned();
            let params = params(&recipient.params, is_alone, one.copy, kind.sender.is_some());
            let (status, text) = (one.refusal.status, one.refusal.text.into());
            parts.push((kind, one.address, params, Destination::new(To::Error { status, text })));
        }
        let mut kinds: Vec<&MessageProperties> = self.messages.iter().map(|message| &message.kind).collect();
        for (kind, ..) in &parts {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        if kinds.len() > MESSAGES_MAX {
            return Err(NotAdded::TooMany);
        }
        self.acknowledge = self.acknowledge.into_iter().chain(ruled.iter().flatten().copied()).min();
        self.has_unruled |= ruled.contains(&None);
        for (kind, address, params, destination) in parts {
            let who = destination.who(&address);
            let destination = destination.to_bytes();
            if self.known.insert((who, destination.clone())) {
                self.push(&kind, Recipient { address, params }, destination);
            }
        }
        Ok(())
    }

    /// Adds an accepted recipient with these members. The time does not depend on their number.
    ///
    /// # Errors
    /// Nothing of the recipient is in the plan then.
    pub(crate) fn add_members(&mut self, recipient: &Recipient, members: Arc<Members>) -> Result<(), NotAdded> {
        self.judge(members.kinds().map(|(kind, _)| kind))?;
        self.acknowledge = self.acknowledge.into_iter().chain(members.acknowledge).min();
        self.has_unruled |= members.has_unruled;
        // A list that was named before adds no recipient.
        if self.later.iter().any(|later| Arc::ptr_eq(&later.members, &members)) {
            return Ok(());
        }
        if self.later.is_empty() {
            self.totals = self.totals_of_messages();
        }
        // A kind of which all are duplicates has no message.
        for (kind, count) in members.kinds().filter(|(_, count)| *count > 0) {
            let kind = &*self.kind_here(kind);
            match self.totals.iter_mut().find(|(known, _)| known == kind) {
                Some((_, total)) => *total += count,
                None => self.totals.push((kind.clone(), count)),
            }
        }
        self.later.push(Later { params: recipient.params.clone(), members, scope: self.scope });
        Ok(())
    }

    /// Checks that there is room for recipients of these kinds, as [`Plan::add`] does.
    fn judge<'k>(&self, kinds: impl Iterator<Item = &'k MessageProperties> + Clone) -> Result<(), NotAdded> {
        let new = |is_known: &dyn Fn(&MessageProperties) -> bool| {
            let mut new: Vec<Cow<'_, MessageProperties>> = Vec::new();
            for kind in kinds.clone().map(|kind| self.kind_here(kind)) {
                if !is_known(&kind) && !new.contains(&kind) {
                    new.push(kind);
                }
                if new.len() > MESSAGES_MAX {
                    break;
                }
            }
            new.len()
        };
        let fewest = self.messages.len() + new(&|kind| self.messages.iter().any(|message| message.kind == *kind));
        if fewest > MESSAGES_MAX {
            return Err(NotAdded::TooMany);
        }
        if self.later.is_empty() {
            return Ok(());
        }
        let most = self.len() + new(&|kind| self.totals.iter().any(|(known, _)| known == kind));
        if most > MESSAGES_MAX { Err(NotAdded::Unmerged) } else { Ok(()) }
    }

    /// Returns the kind of message that recipients of this kind go into.
    fn kind_here<'k>(&self, kind: &'k MessageProperties) -> Cow<'k, MessageProperties> {
        let scope = self.scope;
        match self.is_report && kind.sender.is_some() {
            true => Cow::Owned(MessageProperties { sender: None, scope, ..kind.clone() }),
            false if kind.scope != scope => Cow::Owned(MessageProperties { scope, ..kind.clone() }),
            false => Cow::Borrowed(kind),
        }
    }

    /// Returns whether it takes [`Self::merge`] to decide if there is room for the deliveries of a recipient.
    pub(crate) fn may_have_to_merge(&self, resolution: &Resolution) -> bool {
        let Outcome::Deliver(deliveries) = &resolution.outcome else { return false };
        if self.later.is_empty() {
            return false;
        }
        let mut kinds: Vec<MessageProperties> = Vec::new();
        let of = deliveries
            .iter()
            .map(MessageProperties::of)
            .chain(resolution.failed.iter().map(MessageProperties::of_failed));
        for kind in of {
            if !kinds.contains(&kind) {
                kinds.push(kind);
            }
        }
        self.judge(kinds.iter()) == Err(NotAdded::Unmerged)
    }

    /// Does the same for members.
    pub(crate) fn may_have_to_merge_members(&self, members: &Members) -> bool {
        self.judge(members.kinds().map(|(kind, _)| kind)) == Err(NotAdded::Unmerged)
    }

    fn totals_of_messages(&self) -> Vec<(MessageProperties, usize)> {
        let mut totals: Vec<(MessageProperties, usize)> = Vec::new();
        for message in &self.messages {
            match totals.iter_mut().find(|(kind, _)| *kind == message.kind) {
                Some((_, total)) => *total += message.recipients.len(),
                None => totals.push((message.kind.clone(), message.recipients.len())),
            }
        }
        totals
    }

    /// Puts all recipients into messages that are in none yet. The time is linear in the number of members.
    pub(crate) fn merge(&mut self) {
        self.merge_later(false);
    }

    /// `is_last`: nothing is added any more.
    fn merge_later(&mut self, is_last: bool) {
        let later = std::mem::take(&mut self.later);
        self.totals = Vec::new();
        // The members of a list that is alone are all new, and do not meet any later.
        let is_only = is_last && self.messages.is_empty() && later.len() == 1;
        for Later { params: of, members, scope } in later {
            self.scope = scope;
            for one in members.iter() {
                if !is_only && !self.known.insert((one.destination.who(one.address), one.name.to_vec())) {
                    continue;
                }
                let kind = self.kind_here(one.kind);
                let params = params(&of, members.is_alone, one.copy, kind.sender.is_some());
                self.push(&kind, Recipient { address: one.address.clone(), params }, one.name.to_vec());
            }
        }
    }

    /// Returns how many recipients its messages have, at most.
    pub(crate) fn recipients_max(&self) -> usize {
        self.messages.iter().map(|message| message.recipients.len()).sum::<usize>()
            + self.later.iter().map(|later| later.members.len()).sum::<usize>()
    }

    /// Returns the time of the `250` for all of it, where the listener has this setting: the safest of all.
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

    /// Returns the recipients that were dropped one by one.
    pub(crate) fn take_discarded(&mut self) -> Vec<Address> {
        std::mem::take(&mut self.discarded)
    }

    /// Returns whether nothing of the transaction goes anywhere.
    pub(crate) fn is_nothing(&self) -> bool {
        self.is_discarded || (!self.is_lost && self.messages.is_empty() && self.later.is_empty())
    }

    /// Returns whether this holds for each recipient with its destination, and there is at least one. Ends at the
    /// first for which it does not.
    pub(crate) fn is_all(&self, mut holds: impl FnMut(&Address, &[u8]) -> bool) -> bool {
        let of_messages = self.messages.iter().flat_map(|one| one.recipients.iter().zip(&one.destinations));
        let of_messages = of_messages.map(|(one, destination)| (&one.address, destination.as_slice()));
        let of_lists = self.later.iter().flat_map(|later| later.members.iter().map(|one| (one.address, one.name)));
        let mut recipients = of_messages.chain(of_lists).peekable();
        recipients.peek().is_some() && recipients.all(|(address, destination)| holds(address, destination))
    }

    fn push(&mut self, kind: &MessageProperties, recipient: Recipient, destination: Vec<u8>) {
        let most = self.recipients_max;
        let fits = |message: &RoutedMessage| message.recipients.len() < most && message.kind == *kind;
        let at = self.messages.iter().rposition(fits).unwrap_or_else(|| {
            let (recipients, destinations) = (Vec::new(), Vec::new());
            self.messages.push(RoutedMessage { kind: kind.clone(), recipients, destinations });
            self.messages.len() - 1
        });
        let message = self.messages.get_mut(at).expect("it was found or pushed");
        message.recipients.push(recipient);
        message.destinations.push(destination);
    }

    /// Returns how many messages it becomes; at most so many, before [`Self::merge`] of lists that have members in
    /// common.
    pub(crate) fn len(&self) -> usize {
        if self.later.is_empty() {
            return self.messages.len();
        }
        self.totals.iter().map(|(_, total)| total.div_ceil(self.recipients_max)).sum()
    }

    /// Returns the messages, made from the transaction's own envelope; the first has its name, the others those of
    /// `id_of`. The time is linear in the number of recipients.
    pub(crate) fn into_messages(
        mut self,
        envelope: &Envelope,
        mut id_of: impl FnMut(usize) -> QueueId,
    ) -> Vec<(Envelope, Vec<Vec<u8>>, MessageProperties)> {
        self.merge_later(true);
        // The message with the transaction's own sender comes first and has the queue id that the client gets.
        self.messages.sort_by_key(|message| message.kind != MessageProperties::default());
        let quarantine = self.quarantine;
        let made = self.messages.into_iter().enumerate().map(|(number, message)| {
            let RoutedMessage { mut kind, recipients, destinations } = message;
            kind.hold = kind.hold.or_else(|| quarantine.clone());
            let mut made = Envelope { id: id_of(number), recipients, ..envelope.clone() };
            if let Some(sender) = &kind.sender {
                made.sender = sender.clone();
                // RFC 3461 §5.2.7.3: a message from a list is a new one, whose envelope id is not that of the sender
                made.params.envid = None;
            }
            (made, destinations, kind)
        });
        made.collect()
    }
}

/// Returns the parameters of a recipient as they hold for one of the addresses that it became.
fn params(of: &RecipientParams, is_alone: bool, copy: Option<CopyDsn>, is_list: bool) -> RecipientParams {
    let mut params = of.clone();
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

#[cfg(test)]
mod tests;

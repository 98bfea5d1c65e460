//! Ends holds that have an end: their recipients are released as by a command, those in quarantine are deleted, and
//! those that a rule or suspension in force covers are held by it from then on.

use super::change::ChangeBatcher;
use super::command::Action;
use super::delivery_control::DeliveryControl;
use super::hold_rule::{HoldRule, NewMail};
use super::recipient_status::RecipientStatus;
use super::scan::{FoundMessage, FoundRecipient, QueueScan, ScanResult};
use super::selection::Selection;
use super::steering::Steering;
use mail::QueueId;
use schedule::Class;
use spool::{Change, Commit, Error, Hold, HoldKind, Spool, Status};
use std::cell::RefCell;
use std::collections::{BTreeMap, HashSet};

/// Recipients of a shard that are released together.
const TOGETHER: usize = 1_000;

/// A message of which a hold has ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EndedHold {
    /// The message.
    pub id: QueueId,
    /// Recipients that were released, deleted, or held on.
    pub recipients: u64,
    /// The hold, of the first of them.
    pub hold: Hold,
    /// The addresses of recipients whose time in quarantine is over, and that were deleted; none if they were released.
    pub deleted: Vec<String>,
    /// The hold of the rule or suspension that holds the recipients now; `None` if they were released or deleted.
    pub next: Option<Hold>,
}

/// Releases recipients whose hold has ended by the clock of the server, and has them tried. Deletes those in
/// quarantine, unless another node of the cluster may own the message, and leaves those held that a rule or suspension
/// covers.
/// Some thousands at most; the caller asks again while it returns messages. Blocks; the changes are durable on return.
///
/// # Errors
/// The spool takes no changes. Recipients that are held still are dealt with by a later call.
pub fn release_ended_holds(spool: &Spool, delivery: &dyn DeliveryControl) -> Result<Vec<EndedHold>, Error> {
    let now_us = delivery.now_us();
    let now_s = u32::try_from(now_us / 1_000_000).unwrap_or(u32::MAX);
    let mut ended: BTreeMap<QueueId, HashSet<u32>> = BTreeMap::new();
    for (id, position) in spool.ended_holds(now_s, TOGETHER) {
        ended.entry(id).or_default().insert(position);
    }
    // Held until all is recorded: a suspension that is set meanwhile waits for it.
    let orders = delivery.steering();
    let mut changes = ChangeBatcher::new(spool, delivery, None);
    let mut held_on: Vec<Commit> = Vec::new();
    let mut released = Vec::new();
    for (id, positions) in ended {
        let selection = Selection { ids: vec![id], state: Some(RecipientStatus::Held), ..Selection::default() };
        let reads = !orders.rules().is_empty()
            || positions.iter().any(|at| spool.hold(id, *at).is_some_and(|hold| is_quarantine(&hold)));
        let envelopes = RefCell::default();
        let scan = QueueScan { spool, delivery, selection: &selection, now_us, reads, envelopes: &envelopes };
        let ScanResult::FoundMessage(mut found) = scan.read_message(id) else { continue };
        found.recipients.retain(|one| positions.contains(&one.position));
        let is_kept = |one: &FoundRecipient| one.hold.as_ref().is_some_and(is_quarantine);
        let (quarantined, others) = found.recipients.drain(..).partition(is_kept);
        let (covered, others) = covered_by_rules(&orders, &found, others, now_us / 1_000_000);
        for (next, recipients) in covered {
            let Some(hold) = recipients.first().and_then(|one| one.hold.clone()) else { continue };
            held_on.push(spool.record_hold(&held_still(id, &recipients), &next)?);
            let recipients = recipients.len() as u64;
            released.push(EndedHold { id, recipients, hold, deleted: Vec::new(), next: Some(next) });
        }
        for (action, recipients) in [(Action::Delete, quarantined), (Action::Release, others)] {
            found.recipients = recipients;
            let Some(hold) = found.recipients.first().and_then(|one| one.hold.clone()) else { continue };
            // A time that the sender asked for holds.
            scan.mark_early(&mut found, Status::Held);
            changes.apply(action, &mut found, now_s);
            let deleted = if action == Action::Delete { addresses(&found) } else { Vec::new() };
            released.push(EndedHold { id, recipients: found.recipients.len() as u64, hold, deleted, next: None });
        }
        if changes.is_full() {
            changes.record_pending()?;
        }
    }
    changes.finish_and_notify(Action::Release)?;
    // Their time is over still, so a later call deletes them, if no other node has them by then.
    let refused: HashSet<QueueId> = changes.take_refused().into_iter().map(|(id, _)| id).collect();
    released.retain(|one| one.deleted.is_empty() || !refused.contains(&one.id));
    held_on.into_iter().map(|commit| commit.wait()).fold(Ok(()), Result::and)?;
    Ok(released)
}

/// Parts the recipients that rules cover, by the hold of the rule, from the others.
fn covered_by_rules(
    orders: &Steering,
    found: &FoundMessage,
    recipients: Vec<FoundRecipient>,
    now_s: u64,
) -> (Vec<(Hold, Vec<FoundRecipient>)>, Vec<FoundRecipient>) {
    let Some(summary) = &found.summary else { return (Vec::new(), recipients) };
    let (mut covered, mut others): (Vec<(Hold, Vec<FoundRecipient>)>, _) = (Vec::new(), Vec::new());
    for one in recipients {
        let envelope = &summary.envelope;
        let class = Class::from_bits(one.state.class());
        let mail = NewMail { sender: envelope.sender.address(), client: envelope.received.client, class };
        let address = one.recipient.as_ref().map(|recipient| &recipient.address);
        let rule = address.and_then(|address| orders.rule_for(&mail, address, &one.destination, now_s));
        match rule.map(HoldRule::hold) {
            None => others.push(one),
            Some(hold) => match covered.iter_mut().find(|(next, _)| *next == hold) {
                Some((_, recipients)) => recipients.push(one),
                None => covered.push((hold, vec![one])),
            },
        }
    }
    (covered, others)
}

fn held_still(id: QueueId, recipients: &[FoundRecipient]) -> Vec<Change> {
    let change = |one: &FoundRecipient| Change { id, recipient: one.position, state: one.state, destination: None };
    recipients.iter().map(change).collect()
}

fn is_quarantine(hold: &Hold) -> bool {
    hold.kind() == HoldKind::Quarantine
}

/// Returns the recipients as the log writes them. One whose record cannot be read has its position.
fn addresses(found: &FoundMessage) -> Vec<String> {
    let address = |one: &FoundRecipient| match &one.recipient {
        Some(recipient) => format!("<{}>", recipient.address),
        None => format!("recipient {}", one.position),
    };
    found.recipients.iter().map(address).collect()
}

#[cfg(test)]
mod tests {
    use super::super::NoDelivery;
    use super::super::test_spool::spool_with;
    use super::super::tests::trial::Dispatcher;
    use super::super::{Expression, NewRule, RuleKind};
    use super::*;
    use mail::{Address, Client, Envelope, MailParams, Node, Protocol, Received, Recipient, ReversePath};
    use spool::{Change, NewBody, State, Store as _};

    fn append(spool: &Spool, to: &[&str]) -> QueueId {
        let id = QueueId::new(os::clock::unix_us(), Node::default()).unwrap();
        let recipient = |text: &&str| Recipient::new(Address::parse(text.as_bytes()).unwrap());
        let envelope = Envelope {
            id,
            sender: ReversePath::Null,
            params: MailParams::default(),
            received: Received { at_us: 7_000_000, client: Client::Internal, helo: None, protocol: Protocol::Local },
            recipients: to.iter().map(recipient).collect(),
        };
        let encoded = spool::envelope::Encoded::new(&envelope);
        let body = NewBody::whole("Subject: x\r\n\r\n", 14);
        spool.append(encoded.message(&encoded.recipients(), body)).unwrap().wait().unwrap();
        id
    }

    fn hold(spool: &Spool, id: QueueId, recipient: u32, kind: HoldKind, until: u32) {
        let state = State { status: Status::Held, ..State::default() };
        let change = Change { id, recipient, state, destination: None };
        let hold = Hold::new(kind, "a_rule", "for the recipient").until(until);
        spool.record_hold(&[change], &hold).unwrap().wait().unwrap();
    }

    /// A quarantine that is over ends with the mail deleted, another hold with the mail released, also of one message.
    #[test]
    fn mail_leaves_quarantine_by_being_deleted() {
        let spool = spool_with(|config| config.state_delay_ms = 0);
        let id = append(&spool, &["kept@a.test", "over@a.test", "later@a.test"]);
        hold(&spool, id, 0, HoldKind::Rule, 1);
        hold(&spool, id, 1, HoldKind::Quarantine, 1);
        hold(&spool, id, 2, HoldKind::Quarantine, u32::MAX);
        let ended = release_ended_holds(&spool, &NoDelivery).unwrap();
        let said: Vec<(u64, &[String])> = ended.iter().map(|one| (one.recipients, one.deleted.as_slice())).collect();
        assert_eq!(said, [(1, ["<over@a.test>".to_owned()].as_slice()), (1, [].as_slice())]);
        let left: Vec<(u32, Status)> =
            spool.states(id).iter().map(|(entry, _)| (entry.recipient, entry.state.status)).collect();
        assert_eq!(left, [(0, Status::Waiting), (2, Status::Held)]);
        assert_eq!(release_ended_holds(&spool, &NoDelivery), Ok(Vec::new()), "nothing else has ended");
    }

    /// A suspension that was set while mail was held otherwise holds it when that hold ends.
    #[test]
    fn a_suspension_holds_on() {
        let spool = spool_with(|config| config.state_delay_ms = 0);
        let id = append(&spool, &["one@slow.test", "two@fast.test"]);
        hold(&spool, id, 0, HoldKind::Operator, 1);
        hold(&spool, id, 1, HoldKind::Operator, 1);
        let trial = Dispatcher::default();
        let expression = Expression::parse("to:@slow.test").unwrap();
        let new = NewRule { kind: RuleKind::Suspension, expression, reason: None, set_by: "ann".into(), until: None };
        trial.change_steering(&mut |orders| orders.with_rule(new.clone(), 7)).unwrap();
        let ended = release_ended_holds(&spool, &trial).unwrap();
        let next: Vec<Option<&str>> = ended.iter().map(|one| one.next.as_ref().map(Hold::by)).collect();
        assert_eq!(next, [Some("suspension-1"), None]);
        let left: Vec<(u32, Status, Option<String>)> = spool
            .states(id)
            .iter()
            .map(|(entry, _)| {
                let by = spool.hold(id, entry.recipient).map(|hold| hold.by().to_owned());
                (entry.recipient, entry.state.status, by)
            })
            .collect();
        assert_eq!(left, [(0, Status::Held, Some("suspension-1".to_owned())), (1, Status::Waiting, None)]);
        assert_eq!(release_ended_holds(&spool, &trial), Ok(Vec::new()), "it ends with its order");
    }
}

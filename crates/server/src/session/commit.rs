//! The end of the content: the transaction becomes messages, and `250` is said when all of them are durable.
//!
//! As a rule it is one. Where the plan says more, each goes into the spool for itself, side by side. If one of them is not taken
//! the others are declared done before anything of them is delivered, and the client hears that the message was not taken; a
//! crash in between leaves some of them, and the client, which has no answer, sends it again.

use super::Connection;
use super::answers::{accepted, not_stored, reply};
use crate::commit::{Content, PIECE_BYTES, Sort, class_of, early, first_state};
use crate::config::Acknowledge;
use crate::routing::plan::Kind;
use mail::{Envelope, ReversePath};
use observe::Ruleset;
use route::resolve::SenderKind;
use schedule::Class;
use smtp::server::Verdict;
use spool::envelope::Encoded;
use spool::{Change, Error, Pressure, State, Status, Store as _};
use std::sync::Arc;
use std::time::Duration;

/// How much later a message is answered while the spool is short of room, so that what is delivered can catch up.
const SLOW_DOWN: Duration = Duration::from_millis(100);

/// The most content that is not cut into chunks: a piece, and what a header section grew by.
const INLINE_BYTES_MAX: usize = 2 * PIECE_BYTES;

/// A message as it is stored.
struct Outgoing {
    envelope: Envelope,
    encoded: Encoded,
    first: State,
    kind: Kind,
}

impl Connection {
    /// Makes the message durable, and only then says so.
    pub(super) async fn commit(&mut self) {
        let rest = self.session.take_content();
        let rest = self.pass_outside(rest, true).await;
        let mut contents = std::mem::take(&mut self.contents);
        let (Some(id), Some(transaction)) = (contents.first().map(Content::id), self.session.transaction()) else {
            let verdict = Verdict::Refuse(reply(451, "4.3.0 Internal error, message not taken"));
            self.report_internal("session", "a message ended that had not begun");
            return self.session.finish(&[verdict], self.elapsed());
        };
        let envelope = Envelope {
            id,
            sender: transaction.sender.clone(),
            params: transaction.params.clone(),
            received: self.received(),
            recipients: transaction.recipients.clone(),
        };
        let sort = Sort { precedence: self.session.precedence(), has_list_id: self.session.has_list_id() };
        let bulk_precedence = self.service.live.load().config.delivery.bulk_precedence;
        let class = class_of(&envelope.params, sort, bulk_precedence);
        let rest = self.kept_small(&mut contents, rest).await;
        let dropped = self.plan.take_discarded();
        let how = self.plan.acknowledge(self.lane.listen.acknowledge);
        let outgoing = match self.outside_failure() {
            Some(why) => Err(why),
            None => self.outgoing(&envelope, &contents, class).await,
        };
        let verdict = match outgoing {
            Ok(messages) if messages.is_empty() => {
                contents.into_iter().for_each(|content| content.abandon(&self.service.keeper));
                self.report_discarded(&envelope, sort.precedence);
                Verdict::AcceptWith(accepted(&id.to_string()))
            }
            Ok(messages) => match self.store(contents, &messages, rest, class, how).await {
                Ok(in_line) => {
                    self.report_accepted(id, &envelope, sort.precedence);
                    self.service.tell_discarded(id, &dropped);
                    self.dispatch(&messages, in_line, class);
                    Verdict::AcceptWith(accepted(&id.to_string()))
                }
                Err(error) => {
                    self.report_not_stored(&error);
                    let verdict = self.refuse(Ruleset::Eom, not_stored(&error));
                    self.end_transaction();
                    verdict
                }
            },
            Err(why) => {
                contents.into_iter().for_each(|content| content.abandon(&self.service.keeper));
                self.report_unanswered(&why);
                let refusal = reply(451, "4.3.0 Temporary system failure. Please try again later.");
                let verdict = self.refuse(Ruleset::Eom, Verdict::Refuse(refusal));
                self.end_transaction();
                verdict
            }
        };
        if self.service.keeper.pressure() == Pressure::Slow {
            tokio::time::sleep(SLOW_DOWN).await;
        }
        let recipients = self.verdicts_due();
        self.forget_transaction();
        let now = self.elapsed();
        self.session.finish(&vec![verdict; recipients], now);
    }

    /// The rest of the content as far as it travels inline: after a large header section that was held back it is more.
    async fn kept_small(&self, contents: &mut [Content], rest: Vec<u8>) -> Vec<u8> {
        if rest.len() <= INLINE_BYTES_MAX {
            return rest;
        }
        for content in contents {
            content.push(&self.service.keeper, &rest).await;
        }
        Vec::new()
    }

    /// What the transaction becomes; nothing if all of it is dropped.
    async fn outgoing(
        &mut self,
        envelope: &Envelope,
        contents: &[Content],
        class: Class,
    ) -> Result<Vec<Outgoing>, Arc<str>> {
        let Some(routing) = self.routing.take() else {
            let encoded = self.service.live.load().encode(envelope);
            let (mut first, mut kind) = (first_state(envelope, class), Kind::default());
            self.put_off(&mut first, &mut kind);
            return Ok(vec![Outgoing { envelope: envelope.clone(), encoded, first, kind }]);
        };
        let plan = std::mem::take(&mut self.plan);
        let Some(admission) = routing.admission().filter(|_| !plan.is_nothing()) else { return Ok(Vec::new()) };
        let mut envelope = Envelope { recipients: Vec::new(), ..envelope.clone() };
        if envelope.sender != ReversePath::Null {
            let sender = envelope.sender.clone();
            let known = routing.decide(|ask| admission.router.sender(ask, &sender, SenderKind::Envelope));
            envelope.sender = known.await?;
        }
        let give_up = self.service.live.load().config.delivery.give_up_after;
        let now = self.service.unix_now();
        let id_of = |number: usize| contents.get(number).map_or(envelope.id, Content::id);
        let made = plan.into_messages(&envelope, id_of).into_iter().map(|(envelope, destinations, mut kind)| {
            let encoded = Encoded::with(&envelope, destinations);
            let mut first = first_state(&envelope, class);
            if kind.hold.is_some() {
                first.status = Status::Held;
            } else if kind.queue_only {
                first = first.until(now + give_up);
            } else {
                self.put_off(&mut first, &mut kind);
            }
            Outgoing { envelope, encoded, first, kind }
        });
        Ok(made.collect())
    }

    /// A message that was handed in to be queued waits, unless something else has it wait longer.
    fn put_off(&self, first: &mut State, kind: &mut Kind) {
        let Some(time) = self.queue_time else { return };
        let due = self.service.unix_now() + time;
        if u64::from(first.due) < due.as_secs() {
            *first = first.until(due);
        }
        kind.queue_only = true;
    }

    /// Stores all messages; all are durable when this returns `Ok`. Says how many octets of content those have that are not in
    /// line yet.
    async fn store(
        &mut self,
        contents: Vec<Content>,
        messages: &[Outgoing],
        rest: Vec<u8>,
        class: Class,
        how: Acknowledge,
    ) -> Result<Option<u64>, Error> {
        let live = self.service.live.load_full();
        if let ([only], [content]) = (messages, contents.as_slice()) {
            let is_early = how != Acknowledge::Durable
                && content.is_small()
                && only.kind == Kind::default()
                && !live.queues_only()
                && self.service.keeper.pressure() == Pressure::None
                && early::may_be_early(&only.envelope);
            if is_early {
                let (envelope, encoded) = (only.envelope.clone(), only.encoded.clone());
                let message = early::Message { envelope, encoded, content: rest.into(), class };
                return early::commit(&self.service, how, message).await.map(|_| None);
            }
        }
        let mut bytes = 0;
        let mut stored = Vec::new();
        let mut failed = None;
        let mut rest = Some(rest);
        // The one with the name of the transaction is the last: where it is, all are. The pickup directory relies on that.
        for (number, (content, message)) in contents.into_iter().zip(messages).enumerate().rev() {
            if failed.is_some() {
                content.abandon(&self.service.keeper);
                continue;
            }
            let rest = if number == 0 { rest.take() } else { rest.clone() }.unwrap_or_default();
            match content.commit(&self.service.keeper, &message.encoded, rest, message.first).await {
                Ok(octets) => {
                    bytes = octets;
                    stored.push(message);
                }
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            None => Ok(Some(bytes)),
            Some(error) => {
                self.take_back(&stored);
                Err(error)
            }
        }
    }

    /// What is stored of a transaction that was not taken is done, and nobody gets it.
    fn take_back(&self, stored: &[&Outgoing]) {
        let Some(spool) = self.service.spool() else { return };
        for message in stored {
            let id = message.envelope.id;
            let done = |recipient| Change {
                id,
                recipient,
                state: State { status: Status::Done, ..message.first },
                destination: None,
            };
            let changes: Vec<Change> = (0..).zip(&message.envelope.recipients).map(|(at, _)| done(at)).collect();
            if let Err(error) = spool.record(&changes) {
                let text = format!("{id} was not taken and cannot be removed: {error}; it may be delivered twice");
                self.service.tell(&observe::Event::Spool { severity: observe::Severity::Error, text: &text });
            }
        }
    }

    /// What is due goes in line. `bytes`: of the content; `None`: it is in line already.
    fn dispatch(&self, messages: &[Outgoing], bytes: Option<u64>, class: Class) {
        for (number, message) in messages.iter().enumerate() {
            let Outgoing { envelope, encoded, first, kind } = message;
            if number > 0 || kind.sender.is_some() {
                self.report_clone(envelope);
            }
            if let Some(reason) = &kind.hold {
                self.report_held(envelope, reason);
            } else if kind.queue_only {
                self.report_queued(envelope);
                if let Some(dispatch) = &self.service.dispatch {
                    dispatch.accepted_for_later(envelope, encoded);
                }
            }
            let is_due = first.status == Status::Waiting && !kind.queue_only;
            if let Some(bytes) = bytes.filter(|_| is_due) {
                self.service.dispatch(envelope, encoded, bytes, class);
            }
        }
    }
}

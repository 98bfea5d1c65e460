//! The end of the content: the transaction becomes messages, and `250` is said when all of them are durable.
//!
//! As a rule it is one. Where the plan says more, each goes into the spool for itself, side by side. If one of them is not taken
//! the others are declared done before anything of them is delivered, and the client hears that the message was not taken; a
//! crash in between leaves some of them, and the client, which has no answer, sends it again.

use super::Connection;
use super::answers::{accepted, not_stored, reply};
use super::report::report_waiting;
use crate::config::Acknowledge;
use crate::context::Context;
use crate::env::blocking;
use crate::intake::{Content, HeaderHints, PIECE_BYTES, class_of, first_state, uncommitted};
use crate::routing::expansions::{HeldTurn, MEMBERS_AT_ONCE, PlannedMessage, PlannedMessages};
use crate::routing::plan::Kind;
use mail::{Envelope, ReversePath};
use observe::Ruleset;
use route::resolve::SenderKind;
use schedule::Class;
use smtp::server::Verdict;
use spool::envelope::Encoded;
use spool::{Change, Error, Pressure, Spool, State, Status, Store as _};
use std::sync::Arc;
use std::time::Duration;

/// How much later a message is answered while the spool is short of room, so that what is delivered can catch up.
const SLOW_DOWN: Duration = Duration::from_millis(100);

/// The most content that is not cut into chunks: a piece, and what a header section grew by.
const INLINE_BYTES_MAX: usize = 2 * PIECE_BYTES;

/// A message as it is stored.
#[derive(Clone)]
struct NewMessage {
    envelope: Arc<Envelope>,
    encoded: Arc<Encoded>,
    first: State,
    kind: Kind,
}

impl Connection {
    /// Makes the message durable, and only then says so.
    pub(super) async fn commit(&mut self) {
        let rest = self.session.take_content();
        let rest = self.rewrite_header(rest, true).await;
        let mut contents = std::mem::take(&mut self.contents);
        let (Some(id), Some(transaction)) = (contents.first().map(Content::id), self.session.transaction()) else {
            let verdict = Verdict::Refuse(reply(451, "4.3.0 Internal error, message not taken"));
            self.report_internal("session", "a message ended that had not begun");
            return self.session.finish(&[verdict], self.elapsed());
        };
        if let Some(refusal) = self.loop_refusal() {
            return self.refuse_loop(contents, refusal);
        }
        let envelope = Envelope {
            id,
            sender: transaction.sender.clone(),
            params: transaction.params.clone(),
            received: self.received(),
            recipients: transaction.recipients.clone(),
        };
        let sort = HeaderHints { precedence: self.session.precedence(), has_list_id: self.session.has_list_id() };
        let bulk_precedence = self.service.live.load().config.delivery.bulk_precedence;
        let class = class_of(&envelope.params, sort, bulk_precedence);
        let rest = self.kept_small(&mut contents, rest).await;
        let dropped = self.plan.take_discarded();
        let how = self.plan.acknowledge(self.lane.listen.acknowledge);
        let outgoing = match self.header_rewrite_failure() {
            Some(why) => Err(why),
            None => self.outgoing(&envelope, &contents, class).await,
        };
        let (outgoing, turn) = match outgoing {
            Ok((messages, turn)) => (Ok(messages), turn),
            Err(why) => (Err(why), None),
        };
        let verdict = match outgoing {
            Ok(messages) if messages.is_empty() => {
                contents.into_iter().for_each(|content| content.abandon(&self.service.message_store));
                self.report_discarded(&envelope, sort.precedence);
                Verdict::AcceptWith(accepted(&id.to_string()))
            }
            Ok(messages) => match self.store(contents, &messages, rest, class, how).await {
                Ok(in_line) => {
                    self.report_accepted(id, &envelope, sort.precedence);
                    self.service.tell_discarded(id, &dropped);
                    self.dispatch(messages, in_line, class, turn).await;
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
                contents.into_iter().for_each(|content| content.abandon(&self.service.message_store));
                self.report_unanswered(&why);
                let refusal = reply(451, "4.3.0 Temporary system failure. Please try again later.");
                let verdict = self.refuse(Ruleset::Eom, Verdict::Refuse(refusal));
                self.end_transaction();
                verdict
            }
        };
        if self.service.message_store.pressure() == Pressure::Slow {
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
            content.push(&self.service.message_store, &rest).await;
        }
        Vec::new()
    }

    /// What the transaction becomes; nothing if all of it is dropped.
    async fn outgoing(
        &mut self,
        envelope: &Envelope,
        contents: &[Content],
        class: Class,
    ) -> Result<(Vec<NewMessage>, HeldTurn), Arc<str>> {
        let Some(routing) = self.routing.take() else {
            let encoded = Arc::new(self.service.live.load().encode(envelope));
            let (mut first, mut kind) = (first_state(envelope, class), Kind::default());
            self.put_off(&mut first, &mut kind);
            return Ok((vec![NewMessage { envelope: Arc::new(envelope.clone()), encoded, first, kind }], None));
        };
        let plan = std::mem::take(&mut self.plan);
        let Some(admission) = routing.admission().filter(|_| !plan.is_nothing()) else {
            return Ok((Vec::new(), None));
        };
        if plan.is_lost() {
            return Err("recipients of the transaction were lost when their lists were merged".into());
        }
        let mut envelope = Envelope { recipients: Vec::new(), ..envelope.clone() };
        if envelope.sender != ReversePath::Null {
            let sender = envelope.sender.clone();
            let known = routing.decide(|ask| admission.router.sender(ask, &sender, SenderKind::Envelope));
            envelope.sender = known.await?;
        }
        let give_up = self.service.live.load().config.delivery.give_up_after;
        let now = self.service.unix_now();
        let client = self.subject().key();
        let ids = contents.iter().map(Content::id).collect();
        let planned = self.service.expansions.messages(client, plan, envelope, ids).await;
        let PlannedMessages { messages, turn } = planned.map_err(|error| Arc::<str>::from(error.to_string()))?;
        let made = messages.into_iter().map(|PlannedMessage { envelope, encoded, mut kind }| {
            let mut first = first_state(&envelope, class);
            if kind.hold.is_some() {
                first.status = Status::Held;
            } else if kind.queue_only {
                first = first.until(now + give_up);
            } else {
                self.put_off(&mut first, &mut kind);
            }
            NewMessage { envelope, encoded, first, kind }
        });
        Ok((made.collect(), turn))
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
        messages: &[NewMessage],
        rest: Vec<u8>,
        class: Class,
        how: Acknowledge,
    ) -> Result<Option<u64>, Error> {
        let live = self.service.live.load_full();
        if let ([only], [content]) = (messages, contents.as_slice()) {
            let is_early = how != Acknowledge::Durable
                && content.is_small()
                && only.encoded.len() <= MEMBERS_AT_ONCE
                && only.kind == Kind::default()
                && !live.queues_only()
                && self.service.message_store.pressure() == Pressure::None
                && uncommitted::may_be_early(&only.envelope);
            if is_early {
                let (envelope, encoded) = (Envelope::clone(&only.envelope), Arc::clone(&only.encoded));
                let message = uncommitted::Message { envelope, encoded, content: rest.into(), class };
                return uncommitted::commit(&self.service, how, message).await.map(|_| None);
            }
        }
        let mut contents = contents;
        // Lists with members in common become fewer messages than was thought when the content began.
        for content in contents.split_off(messages.len().min(contents.len())) {
            content.abandon(&self.service.message_store);
        }
        let mut bytes = 0;
        let mut stored = Vec::new();
        let mut failed = None;
        let mut rest = Some(rest);
        // The one with the name of the transaction is the last: where it is, all are. The pickup directory relies on that.
        for (number, (content, message)) in contents.into_iter().zip(messages).enumerate().rev() {
            if failed.is_some() {
                content.abandon(&self.service.message_store);
                continue;
            }
            let rest = if number == 0 { rest.take() } else { rest.clone() }.unwrap_or_default();
            match content.commit(&self.service.message_store, &message.encoded, rest, message.first).await {
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
                let (spool, service) = (self.service.spool().cloned(), Arc::clone(&self.service));
                let stored: Vec<NewMessage> = stored.into_iter().cloned().collect();
                where_it_fits(stored, move |stored| take_back(&service, spool.as_deref(), stored)).await;
                Err(error)
            }
        }
    }

    /// What is due goes in line. `bytes`: of the content; `None`: it is in line already.
    async fn dispatch(&self, messages: Vec<NewMessage>, bytes: Option<u64>, class: Class, turn: HeldTurn) {
        for (number, message) in messages.iter().enumerate() {
            if number > 0 || message.kind.sender.is_some() {
                self.report_clone(&message.envelope);
            }
        }
        let (service, octets) = (Arc::clone(&self.service), self.session.content_bytes());
        let dispatch = move |messages: &[NewMessage]| {
            messages.iter().for_each(|message| dispatch(&service, message, octets, bytes, class));
        };
        where_it_fits(messages, dispatch).await;
        // They take memory up to here.
        drop(turn);
    }
}

/// Does something with messages: here and now if they have few recipients, else where it holds up nobody.
async fn where_it_fits(messages: Vec<NewMessage>, what: impl FnOnce(&[NewMessage]) + Send + 'static) {
    if messages.iter().map(|message| message.encoded.len()).sum::<usize>() <= MEMBERS_AT_ONCE {
        return what(&messages);
    }
    // What it panics about is reported where panics are.
    drop(blocking::run(move || what(&messages)).await);
}

/// What is stored of a transaction that was not taken is done, and nobody gets it.
fn take_back(service: &Context, spool: Option<&Spool>, stored: &[NewMessage]) {
    let Some(spool) = spool else { return };
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
            service.tell(&observe::Event::Spool { severity: observe::Severity::Error, text: &text });
        }
    }
}

/// A message goes in line if it is due. `octets`: of what the client sent; `bytes`: of its content; `None`: it is in line already.
fn dispatch(service: &Context, message: &NewMessage, octets: u64, bytes: Option<u64>, class: Class) {
    let NewMessage { envelope, encoded, first, kind } = message;
    if let Some(reason) = &kind.hold {
        report_waiting(service, envelope, octets, 0, Some(reason));
    } else if kind.queue_only {
        report_waiting(service, envelope, octets, 0, None);
        if let Some(dispatch) = &service.dispatch {
            dispatch.accepted_for_later(envelope, encoded);
        }
    }
    let is_due = first.status == Status::Waiting && !kind.queue_only;
    if let Some(bytes) = bytes.filter(|_| is_due) {
        service.dispatch(envelope, encoded, bytes, class);
    }
}

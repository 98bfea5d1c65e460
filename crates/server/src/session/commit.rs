//! The end of the content: the transaction becomes messages, and `250` is sent when all of them are durable.
//!
//! Usually it becomes one message; a plan with lists may become more. [`intake::commit`] stores all or none. If they
//! are not stored, the client gets the reason as a reply and keeps the message.

use super::Connection;
use super::answers::{accepted, not_stored, reply};
use super::screening::JudgedMessage;
use super::sender_check::CheckedMessage;
use crate::config::{Acknowledge, OnNoReplica};
use crate::intake::{
    self, HeaderHints, NewMessage, Origin, PIECE_BYTES, StoredTransaction, TransactionContent, class_of, uncommitted,
};
use crate::routing::Routing;
use crate::routing::expansions::{ClientKey, HeldTurn, MEMBERS_AT_ONCE, PlannedMessage, PlannedMessages};
use crate::routing::message_properties::MessageProperties;
use crate::screen::filters::{FilterContent, OwnFields};
use mail::{Address, Envelope, ReversePath};
use observe::{Event, Ruleset};
use route::resolve::SenderKind;
use schedule::Class;
use smtp::server::Verdict;
use spool::{Error, Pressure};
use std::sync::Arc;
use std::time::Duration;

/// Delay of the reply to a message while the spool is short of room, so that deliveries can catch up.
const SLOW_DOWN: Duration = Duration::from_millis(100);

/// The most content that is not cut into chunks: a piece, and the growth of a header section.
const INLINE_BYTES_MAX: usize = 2 * PIECE_BYTES;

impl Connection {
    /// Makes the message durable, and only then sends `250`.
    pub(super) async fn commit(&mut self) {
        let rest = self.session.take_content();
        let rest = self.rewrite_header(rest, true).await;
        let mut content = std::mem::take(&mut self.content);
        let (Some(id), Some(_)) = (content.id(), self.session.transaction()) else {
            let verdict = Verdict::Refuse(reply(451, "4.3.0 Internal error, message not taken"));
            self.report_internal("session", "a message ended that had not begun");
            return self.session.finish(&[verdict], self.elapsed());
        };
        let rest = match self.take_reinjected(&mut content, rest) {
            Ok(rest) => rest,
            Err(verdict) => return self.end_reinjected(content, verdict),
        };
        if let Some(refusal) = self.loop_refusal() {
            return self.refuse_loop(content, refusal);
        }
        let Some(transaction) = self.session.transaction() else { return };
        let mut envelope = Envelope {
            id,
            sender: transaction.sender.clone(),
            params: transaction.params.clone(),
            received: self.received(),
            recipients: transaction.recipients.clone(),
        };
        let (rest, checked) = match Box::pin(self.check_sender(&envelope, &mut content, rest)).await {
            Ok(checked) => checked,
            Err(verdicts) => return self.refuse_content(content, verdicts),
        };
        let mut rest = self.kept_small(&mut content, rest).await;
        let mut judged = match self.judge(&envelope, &content, &rest, checked.as_deref()).await {
            Ok(judged) => judged,
            Err(verdicts) => return self.refuse_content(content, verdicts),
        };
        let mut own_fields = OwnFields::with_results(checked.as_deref().map_or(0, CheckedMessage::fields));
        if let Some(judged) = &mut judged {
            if let Some(sender) = judged.take_sender() {
                envelope.sender = sender;
            }
            if let Some((changed, has_new_body)) = judged.take_content() {
                own_fields = changed.own_fields();
                rest = self.changed_content(&mut content, rest, &changed, has_new_body).await;
            }
        }
        let verdict = self.take_message(&envelope, content, rest, (judged.as_ref(), own_fields)).await;
        if self.context.message_store.pressure() == Pressure::Slow {
            tokio::time::sleep(SLOW_DOWN).await;
        }
        let due = self.verdicts_due();
        self.forget_transaction();
        let now = self.elapsed();
        let verdicts = match (&judged, &verdict) {
            (Some(judged), Verdict::AcceptWith(_)) => judged.verdicts(&verdict, due),
            _ => vec![verdict; due],
        };
        self.session.finish(&verdicts, now);
    }

    /// Puts the message as filters changed it in the place of the content; returns the part that travels inline.
    async fn changed_content(
        &self,
        content: &mut TransactionContent,
        rest: Vec<u8>,
        changed: &FilterContent,
        has_new_body: bool,
    ) -> Vec<u8> {
        if !content.is_small() && !has_new_body && content.replace_header(&changed.header()) {
            return rest;
        }
        if !changed.is_complete() {
            // Only the beginning of the message is here, and its header section is longer than the spool stores apart.
            let text = "a message is accepted without the changes of its filters: it is larger than filter.size_max, \
                        and its header section does not fit apart; raise filter.size_max";
            self.context.record(&Event::ConfigWarning { text });
            return rest;
        }
        content.begin_again(&self.context.message_store).await;
        self.kept_small(content, changed.whole()).await
    }

    /// Refuses the message by its content, and keeps nothing of it.
    fn refuse_content(&mut self, content: TransactionContent, verdicts: Vec<Verdict>) {
        content.abandon(&self.context.message_store);
        self.routing = None;
        self.screening = None;
        drop(self.header_rewrite_failure());
        if let Some(first) = verdicts.first() {
            self.refuse(Ruleset::Eom, first.clone());
        }
        self.end_transaction();
        self.forget_transaction();
        let now = self.elapsed();
        self.session.finish(&verdicts, now);
    }

    /// Stores the messages that the transaction becomes, and puts them in line. Returns the verdict for the client.
    async fn take_message(
        &mut self,
        envelope: &Envelope,
        mut content: TransactionContent,
        rest: Vec<u8>,
        (judged, own_fields): (Option<&JudgedMessage>, OwnFields),
    ) -> Verdict {
        let id = envelope.id;
        let sort = HeaderHints { precedence: self.session.precedence(), has_list_id: self.session.has_list_id() };
        let bulk_precedence = self.context.live.load().config.delivery.bulk_precedence;
        let class = class_of(&envelope.params, sort, bulk_precedence);
        let dropped = self.plan.take_discarded();
        let is_ruled = self.plan.is_discarded;
        let how = self.plan.acknowledge(self.lane.listen.acknowledge);
        let outgoing = match self.header_rewrite_failure() {
            Some(why) => Err(why),
            None => self.outgoing(envelope, &mut content, class, judged).await,
        };
        let (mut messages, turn) = match outgoing {
            Ok(outgoing) => outgoing,
            Err(why) => {
                content.abandon(&self.context.message_store);
                self.report_unanswered(&why);
                let refusal = reply(451, "4.3.0 Temporary system failure. Please try again later.");
                return self.refuse_message(Verdict::Refuse(refusal));
            }
        };
        if messages.iter().all(|message| judged.is_some_and(|judged| judged.drops(message))) {
            content.abandon(&self.context.message_store);
            self.report_discarded(envelope, sort.precedence, is_ruled);
            return Verdict::AcceptWith(accepted(&id.to_string()));
        }
        let waiting = match self.wait_for_filters(&mut messages, (judged, own_fields)) {
            Ok(waiting) => waiting,
            Err(limit) => {
                content.abandon(&self.context.message_store);
                self.report_limit(limit.name());
                let refusal = reply(451, "4.3.2 Too much mail waits to be checked, try again later");
                return self.refuse_message(Verdict::Refuse(refusal));
            }
        };
        let judged_away: Vec<Address> = judged.map(|judged| judged.discarded(&messages)).unwrap_or_default();
        let stored = match self.store(content, messages, rest, class, (how, judged)).await {
            Ok(stored) => stored,
            Err(error) => {
                self.report_not_stored(&error);
                return self.refuse_message(not_stored(&error));
            }
        };
        self.report_accepted(id, envelope, sort.precedence);
        self.context.record_discarded(id, dropped.iter().chain(&judged_away));
        if let Some(stored) = stored {
            self.enqueue(stored).await;
        }
        if let Some(waiting) = waiting {
            waiting.begin();
            self.slow_down_for_filters().await;
        }
        // The messages take memory up to here.
        drop(turn);
        Verdict::AcceptWith(accepted(&id.to_string()))
    }

    /// Refuses the message at its end.
    fn refuse_message(&mut self, refusal: Verdict) -> Verdict {
        let verdict = self.refuse(Ruleset::Eom, refusal);
        self.end_transaction();
        verdict
    }

    /// The rest of the content as far as it travels inline: after a large header section that was held back it is more.
    async fn kept_small(&self, content: &mut TransactionContent, rest: Vec<u8>) -> Vec<u8> {
        if rest.len() <= INLINE_BYTES_MAX {
            return rest;
        }
        content.push(&self.context.message_store, &rest).await;
        Vec::new()
    }

    /// Returns the messages that the transaction becomes; nothing if all of it is dropped.
    async fn outgoing(
        &mut self,
        envelope: &Envelope,
        content: &mut TransactionContent,
        class: Class,
        judged: Option<&JudgedMessage>,
    ) -> Result<(Vec<NewMessage>, HeldTurn), Arc<str>> {
        let routing = self.routing.take();
        let (mut messages, turn) = self.planned(routing.as_ref(), envelope, (content, judged), class).await?;
        if let Some(judged) = judged.filter(|judged| !judged.is_nothing()) {
            self.carry_out(judged, routing.as_ref(), content, &mut messages).await?;
        }
        Ok((messages, turn))
    }

    /// Returns the messages that the plan of the transaction makes.
    async fn planned(
        &mut self,
        routing: Option<&Arc<Routing>>,
        envelope: &Envelope,
        (content, judged): (&TransactionContent, Option<&JudgedMessage>),
        class: Class,
    ) -> Result<(Vec<NewMessage>, HeldTurn), Arc<str>> {
        let Some(routing) = routing else {
            let planned = self.by_scope(envelope, content, judged).into_iter();
            return Ok((planned.map(|planned| self.new_message(planned, class)).collect(), None));
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
        let client = ClientKey::new(self.session.client(), self.session.identity());
        let ids = content.ids().collect();
        let planned = self.context.expansions.messages(client, plan, envelope, ids).await;
        let PlannedMessages { messages, turn } = planned.map_err(|error| Arc::<str>::from(error.to_string()))?;
        Ok((messages.into_iter().map(|planned| self.new_message(planned, class)).collect(), turn))
    }

    fn new_message(&self, planned: PlannedMessage, class: Class) -> NewMessage {
        let mut message = NewMessage::new(&self.context, planned, class);
        message.accepts_local = self.lane.listen.on_no_replica == OnNoReplica::AcceptLocal;
        if message.kind.hold.is_none() && !message.kind.queue_only {
            self.put_off(&mut message);
        }
        message
    }

    /// Has a message wait that was submitted to be queued, unless it waits longer anyway.
    fn put_off(&self, message: &mut NewMessage) {
        let Some(time) = self.queue_time else { return };
        let due = self.context.unix_now() + time;
        if u64::from(message.first.due) < due.as_secs() {
            message.first = message.first.until(due);
        }
        message.kind.queue_only = true;
    }

    /// Makes all messages durable, or none. `None`: the message was durable or taken early, and is in line already.
    async fn store(
        &mut self,
        content: TransactionContent,
        messages: Vec<NewMessage>,
        rest: Vec<u8>,
        class: Class,
        (how, judged): (Acknowledge, Option<&JudgedMessage>),
    ) -> Result<Option<StoredTransaction>, Error> {
        let live = self.context.live.load_full();
        if let ([only], 1) = (messages.as_slice(), content.ids().count()) {
            // Held until the message is in line: a suspension that is set meanwhile waits for it.
            let orders = self.context.steering.orders();
            let is_early = how != Acknowledge::Durable
                && judged.is_none_or(JudgedMessage::is_nothing)
                && content.is_small()
                && only.encoded.len() <= MEMBERS_AT_ONCE
                && only.kind == MessageProperties::default()
                && only.held.is_none()
                && orders.rules().is_empty()
                && !live.queues_only()
                && self.context.message_store.pressure() == Pressure::None
                && uncommitted::may_be_early(&only.envelope);
            if is_early {
                let (envelope, encoded) = (Envelope::clone(&only.envelope), Arc::clone(&only.encoded));
                let message = uncommitted::Message { envelope, encoded, content: rest.into(), class };
                return uncommitted::commit(&self.context, self.inbound.queue.as_ref(), how, message)
                    .await
                    .map(|_| None);
            }
        }
        let rest = intake::inline(rest);
        let mut messages = content.finish(&self.context.message_store, messages, rest).await?;
        if let Some(judged) = judged.filter(|judged| !judged.is_nothing()) {
            messages = self.edited(judged, messages);
        }
        intake::commit(&self.context, Origin::Session, messages).await.map(Some)
    }

    /// Logs the messages that a transaction became beside its own, and puts all in line.
    async fn enqueue(&self, stored: StoredTransaction) {
        let messages = stored.messages();
        for (number, message) in messages.iter().enumerate() {
            if number > 0 || message.kind.sender.is_some() {
                let first = messages.first().map_or(message.envelope.id, |first| first.envelope.id);
                self.report_clone(first, &message.envelope);
            }
        }
        stored.enqueue(&self.context, self.inbound.queue.as_ref(), self.session.content_bytes()).await;
    }
}

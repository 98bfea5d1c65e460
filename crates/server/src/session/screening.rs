//! Has the message of a transaction judged before it is committed, and carries the judgement out.
//!
//! | Judgement on a scope | Effect |
//! |---|---|
//! | `reject`, `defer` for all recipients | the client gets the reply, nothing is stored |
//! | `defer` for some | the same: SMTP has one answer, and nothing may be lost; in LMTP each recipient has its own |
//! | `reject` for some | the others get the message; the sender gets a report for these; in LMTP they are refused |
//! | `discard` | its messages are not stored |
//! | `quarantine`, `hold` | its messages begin held, with the rule as the reason |
//! | edits, `class`, `route`, `queue group` | change its messages |
//! | `redirect` | its messages go there |
//! | `copy` | one more message, as the content came |
//!
//! The message with the queue id of the transaction always stays where one stays: the pickup directory knows by it that
//! a transaction was stored.

use super::Connection;
use super::sender_check::CheckedMessage;
use crate::intake::{FinishedContent, NewMessage, TransactionContent, resolve_redirects};
use crate::routing::Routing;
use crate::routing::expansions::{Expanded, PlannedMessage, Resolved};
use crate::routing::message_properties::MessageProperties;
use crate::screen::filters::{FilterContent, FilterSession, FilterVerdict};
use crate::screen::{
    JudgeError, Judgement, Scopes, Screen, ScreenDecision, ScreenedMessage, ScreenedRecipient, Screening, decision_of,
    failure_destination, hold_of,
};
use filter::{Direction, Final, HeaderEdit};
use mail::header::LineEnd;
use mail::{Address, Envelope, Recipient, Reply, ReplyCode, ReversePath};
use observe::{Event, ScreenVerdict};
use route::resolve::{Outcome, Resolution};
use smtp::server::{Dialect, Verdict};
use std::sync::Arc;

/// The scope of a copy, for which no judgement is.
const COPY_SCOPE: u16 = u16::MAX;

/// Holds the judges of the open transaction, and its recipients so far.
#[derive(Debug)]
pub(super) struct TransactionScreen {
    screen: Arc<Screen>,
    scopes: Scopes,
    /// Recipients that are lists.
    lists: Vec<Address>,
}

/// A message that was judged.
#[derive(Debug)]
pub(super) struct JudgedMessage {
    screening: Screening,
    /// The scope of each recipient of the transaction.
    scopes: Vec<u16>,
    is_lmtp: bool,
    /// Changes that filters ask for.
    filtered: FilterChanges,
    /// Names of filters that failed and are to be asked after the 250.
    later: Vec<String>,
}

/// The changes of filters, which concern all recipients.
#[derive(Debug, Default)]
struct FilterChanges {
    /// Recipients that get the message as well.
    added: Vec<Address>,
    /// Recipients that do not get it.
    removed: Vec<Address>,
    /// Addresses that get it in place of all recipients.
    redirects: Vec<Address>,
    /// The sender in place of the client's.
    sender: Option<ReversePath>,
    /// The message, if it changed, and whether its body did.
    content: Option<(FilterContent, bool)>,
}

impl TransactionScreen {
    /// Begins a transaction; `None`: nothing judges it before its 250.
    pub(super) fn begin(screen: Option<&Arc<Screen>>, has_filters: bool) -> Option<Box<Self>> {
        let screen = screen.filter(|screen| has_filters || screen.has_rules())?;
        Some(Box::new(Self { screen: Arc::clone(screen), scopes: screen.scopes(), lists: Vec::new() }))
    }

    /// Returns how many messages with a body of their own the transaction may become, where its plan makes `planned`.
    pub(super) fn contents(&self, planned: usize) -> usize {
        planned.max(self.scopes.len()) + if self.screen.may_copy() { self.scopes.len() } else { 0 }
    }

    /// Has the beginning of a large body kept.
    pub(super) fn keep_beginning(&self, filters: Option<&FilterSession>, content: &mut TransactionContent) {
        let for_filters = filters.map_or(0, FilterSession::size_max);
        let for_filters = usize::try_from(for_filters).unwrap_or(usize::MAX);
        content.keep_beginning(self.screen.body_bytes_max().max(for_filters));
    }

    fn scope_of(&mut self, address: &Address) -> u16 {
        let list = self.lists.contains(address).then(|| address.local_part().as_str());
        self.scopes.of(&address.to_string(), list)
    }
}

impl Connection {
    /// Notes which rules are for a recipient, before the plan takes it.
    pub(super) fn enter_scope(&mut self, candidate: &Recipient, resolved: Option<&Resolved>) {
        let Some(screening) = &mut self.screening else { return };
        let is_list = match resolved {
            Some(Resolved::Short(Resolution { outcome: Outcome::Deliver(deliveries), .. })) => {
                deliveries.iter().any(|one| one.sender.is_some())
            }
            Some(Resolved::Long(Expanded::Members(members))) => members.has_owner(),
            _ => false,
        };
        if is_list && !screening.lists.contains(&candidate.address) {
            screening.lists.push(candidate.address.clone());
        }
        self.plan.scope = screening.scope_of(&candidate.address);
    }

    /// Has the message judged, whose sender was `checked`. `Ok(None)`: nothing judges it.
    ///
    /// # Errors
    /// The refusal for all recipients; it is logged.
    /// # Cancel safety
    /// Yes.
    pub(super) async fn judge(
        &mut self,
        envelope: &Envelope,
        content: &TransactionContent,
        rest: &[u8],
        checked: Option<&CheckedMessage>,
    ) -> Result<Option<JudgedMessage>, Vec<Verdict>> {
        let is_lmtp = self.session.settings().dialect == Dialect::Lmtp;
        let quarantine = checked.and_then(CheckedMessage::quarantine);
        let Some(mut screening) = self.screening.take() else {
            let scopes = vec![0; envelope.recipients.len()];
            return Ok(quarantine.map(|decision| JudgedMessage::new(scopes, is_lmtp).decided(decision)));
        };
        let message = Arc::new(self.screened(&mut screening, envelope, (content, rest), checked));
        let judged = screening.screen.judge(&message).await;
        let scopes = message.recipients.iter().map(|one| one.scope).collect();
        let screening = match judged {
            Ok(screening) => screening,
            Err(error) => {
                self.report_not_judged(envelope, &error);
                let text = "4.7.1 Message cannot be judged now, try again later";
                let refusal = Reply::new(ReplyCode::of(451), None, text);
                return Err(vec![Verdict::Refuse(refusal); self.verdicts_due()]);
            }
        };
        for note in &screening.notes {
            self.context.record(&Event::Screened {
                id: envelope.id,
                verdict: note.verdict,
                by: &note.by,
                place: &note.place,
                to: &note.to,
                action: &note.action,
            });
        }
        let mut judged = JudgedMessage { screening, ..JudgedMessage::new(scopes, is_lmtp) };
        if judged.refusal().is_none()
            && let Some((verdict, content)) = self.filter_content(&message).await
        {
            judged.take_filters(verdict, content);
        }
        if let Some(decision) = quarantine {
            judged = judged.decided(decision);
        }
        match judged.refusal() {
            None => Ok(Some(judged)),
            Some(refusal) => Err(judged.verdicts(&Verdict::Refuse(refusal), self.verdicts_due())),
        }
    }

    fn screened(
        &self,
        screening: &mut TransactionScreen,
        envelope: &Envelope,
        (content, rest): (&TransactionContent, &[u8]),
        checked: Option<&CheckedMessage>,
    ) -> ScreenedMessage {
        let beginning = content.beginning(rest);
        let rules_body_max = screening.screen.body_bytes_max();
        let ip = self.client_ip();
        let is_own = self.is_own_client(&self.context.live.load());
        let recipients = envelope.recipients.iter().map(|one| ScreenedRecipient {
            address: one.address.to_string(),
            list: screening.lists.contains(&one.address).then(|| one.address.local_part().as_str().to_owned()),
            scope: screening.scope_of(&one.address),
        });
        ScreenedMessage {
            content: beginning.octets,
            is_complete: beginning.is_complete,
            rules_body_max,
            size: beginning.size,
            sender: match &envelope.sender {
                ReversePath::Null => String::new(),
                ReversePath::Address(address) => address.to_string(),
            },
            recipients: recipients.collect(),
            client_address: ip,
            client_name: self.opening.name().map(str::to_owned),
            helo: self.session.helo().map(ToString::to_string),
            listener: self.lane.listen.name.clone(),
            direction: if is_own { Direction::Outbound } else { Direction::Inbound },
            authentication: checked.map(CheckedMessage::for_rules).unwrap_or_default(),
            result_fields: checked.map_or(0, CheckedMessage::fields),
        }
    }

    fn report_not_judged(&self, envelope: &Envelope, error: &JudgeError) {
        self.context.record(&Event::Screened {
            id: envelope.id,
            verdict: ScreenVerdict::NotJudged,
            by: &error.by,
            place: &error.place,
            to: "",
            action: &error.text,
        });
    }

    /// Makes messages of a transaction that no plan has divided: one for each scope.
    pub(super) fn by_scope(
        &self,
        envelope: &Envelope,
        ids: &TransactionContent,
        judged: Option<&JudgedMessage>,
    ) -> Vec<PlannedMessage> {
        let live = self.context.live.load();
        if judged.is_none_or(|judged| judged.scopes.iter().all(|scope| *scope == 0)) {
            let (envelope, encoded) = (Arc::new(envelope.clone()), Arc::new(live.encode(envelope)));
            return vec![PlannedMessage { envelope, encoded, kind: MessageProperties::default() }];
        }
        let mut parts: Vec<(u16, Vec<Recipient>)> = Vec::new();
        for (at, recipient) in envelope.recipients.iter().enumerate() {
            let scope = judged.and_then(|judged| judged.scopes.get(at)).copied().unwrap_or_default();
            match parts.iter_mut().find(|(known, _)| *known == scope) {
                Some((_, recipients)) => recipients.push(recipient.clone()),
                None => parts.push((scope, vec![recipient.clone()])),
            }
        }
        let part = |(id, (scope, recipients))| {
            let envelope = Envelope { id, recipients, ..envelope.clone() };
            let encoded = Arc::new(live.encode(&envelope));
            let kind = MessageProperties { scope, ..MessageProperties::default() };
            PlannedMessage { envelope: Arc::new(envelope), encoded, kind }
        };
        ids.ids().zip(parts).map(part).collect()
    }

    /// Changes the messages of the transaction as the judgement says, all but their content.
    ///
    /// # Errors
    /// A look-up failed, or an address of a rule is refused; nothing is stored then.
    /// # Cancel safety
    /// Yes.
    pub(super) async fn carry_out(
        &self,
        judged: &JudgedMessage,
        routing: Option<&Arc<Routing>>,
        content: &mut TransactionContent,
        messages: &mut Vec<NewMessage>,
    ) -> Result<(), Arc<str>> {
        self.change_recipients(judged, routing, messages).await?;
        let mut copies = Vec::new();
        let keep = self.context.live.load().config.quarantine.keep;
        let keep_until = u32::try_from((self.context.unix_now() + keep).as_secs()).unwrap_or(u32::MAX);
        for (scope, judgement) in judged.judgements() {
            let Some(first) = messages.iter().position(|message| message.kind.scope == scope) else { continue };
            let redirected = self.resolved(routing, messages, first, &judgement.redirects).await?;
            let copied = self.resolved(routing, messages, first, &judgement.copies).await?;
            if let (Some(message), false) = (messages.get(first), copied.is_empty()) {
                let mut copy = message.clone();
                copy.kind.scope = COPY_SCOPE;
                copy.send_to(copied);
                copies.push(copy);
            }
            Self::change_scope(judged, (scope, judgement), messages, (redirected, keep_until));
        }
        let mut spare: Vec<_> = content.ids().skip(messages.len()).collect();
        if content.is_small() {
            // Its body comes later, so that there may be one for each copy.
            for _ in spare.len()..copies.len() {
                let id = self.context.message_store.next_id();
                content.add(id);
                spare.push(id);
            }
        }
        if copies.len() > spare.len() {
            return Err("there is no body for a copy that a rule demands".into());
        }
        messages.extend(spare.into_iter().zip(copies).map(|(id, copy)| copy.renamed(id)));
        keep_the_first(judged, messages);
        Ok(())
    }

    /// Changes the header sections as the judgement says, and forgets the messages that it drops.
    pub(super) fn edited(
        &self,
        judged: &JudgedMessage,
        messages: Vec<(NewMessage, FinishedContent)>,
    ) -> Vec<(NewMessage, FinishedContent)> {
        let store = &self.context.message_store;
        let mut kept = Vec::with_capacity(messages.len());
        for (message, mut content) in messages {
            if judged.drops(&message) {
                content.abandon(store);
                continue;
            }
            let edits = judged.edits(&message);
            if !edits.is_empty() {
                content.edit_header(store, |section| filter::edit::apply(section, LineEnd::Crlf, edits.iter()));
            }
            kept.push((message, content));
        }
        kept
    }

    /// Adds, removes and replaces recipients as filters say.
    async fn change_recipients(
        &self,
        judged: &JudgedMessage,
        routing: Option<&Arc<Routing>>,
        messages: &mut [NewMessage],
    ) -> Result<(), Arc<str>> {
        let FilterChanges { added, removed, redirects, .. } = &judged.filtered;
        let owned = |(one, to): (&Recipient, &[u8])| (one.clone(), to.to_vec());
        if !removed.is_empty() || !redirects.is_empty() {
            let stays = |one: &Recipient| {
                redirects.is_empty() && !removed.iter().any(|address| address.key() == one.address.key())
            };
            for message in messages.iter_mut() {
                let left = message.recipients().filter(|(one, _)| stays(one)).map(owned).collect();
                message.send_to(left);
            }
        }
        for addresses in [added, redirects] {
            let mut resolved = self.resolved(routing, messages, 0, addresses).await?;
            let is_there = |added: &Recipient| {
                messages
                    .iter()
                    .flat_map(NewMessage::recipients)
                    .any(|(one, _)| one.address.key() == added.address.key())
            };
            resolved.retain(|(added, _)| !is_there(added));
            if let (Some(first), false) = (messages.first_mut(), resolved.is_empty()) {
                let mut recipients: Vec<_> = first.recipients().map(owned).collect();
                recipients.extend(resolved);
                first.send_to(recipients);
            }
        }
        Ok(())
    }

    /// Looks up where mail for these addresses goes.
    async fn resolved(
        &self,
        routing: Option<&Arc<Routing>>,
        messages: &[NewMessage],
        of: usize,
        addresses: &[Address],
    ) -> Result<Vec<(Recipient, Vec<u8>)>, Arc<str>> {
        match messages.get(of).filter(|_| !addresses.is_empty()) {
            Some(message) => resolve_redirects(&self.context, routing, &message.envelope, addresses).await,
            None => Ok(Vec::new()),
        }
    }

    fn change_scope(
        judged: &JudgedMessage,
        (scope, judgement): (u16, &Judgement),
        messages: &mut [NewMessage],
        (mut redirected, keep_until): (Vec<(Recipient, Vec<u8>)>, u32),
    ) {
        let is_redirected = !judgement.redirects.is_empty();
        for message in messages.iter_mut().filter(|message| message.kind.scope == scope) {
            if is_redirected {
                // The other messages of the scope have no recipient left.
                message.send_to(std::mem::take(&mut redirected));
            }
            if judgement.route.is_some() || judgement.queue_group.is_some() {
                let moved = message.recipients().map(|(one, to)| (one.clone(), judgement.destination(to))).collect();
                message.send_to(moved);
            }
            if let Some(class) = judgement.class {
                message.put_into(class);
            }
            match &judgement.decision {
                Some(ScreenDecision { action: Final::Reject(refusal), .. }) if !judged.is_lmtp => {
                    let failed =
                        message.recipients().map(|(one, _)| (one.clone(), failure_destination(refusal))).collect();
                    message.send_to(failed);
                }
                Some(decision) => {
                    if let Some(hold) = hold_of(decision, keep_until) {
                        message.hold(hold);
                    }
                }
                None => {}
            }
        }
    }
}

/// Gives the message with the queue id of the transaction the recipients of one that stays, if it would not stay.
fn keep_the_first(judged: &JudgedMessage, messages: &mut [NewMessage]) {
    let Some((first, others)) = messages.split_first_mut().filter(|(first, _)| judged.drops(first)) else { return };
    if let Some(stays) = others.iter_mut().find(|message| !judged.drops(message)) {
        let (first_id, id) = (first.envelope.id, stays.envelope.id);
        std::mem::swap(first, stays);
        *first = first.clone().renamed(first_id);
        *stays = stays.clone().renamed(id);
    }
}

impl JudgedMessage {
    /// Returns whether the judgement changes nothing.
    pub(super) fn is_nothing(&self) -> bool {
        let FilterChanges { added, removed, redirects, .. } = &self.filtered;
        self.screening.is_nothing() && added.is_empty() && removed.is_empty() && redirects.is_empty()
    }

    /// Begins without a decision. `scopes`: that of each recipient.
    fn new(scopes: Vec<u16>, is_lmtp: bool) -> Self {
        Self { screening: Screening::default(), scopes, is_lmtp, filtered: FilterChanges::default(), later: Vec::new() }
    }

    /// Adds a decision for all recipients that have none.
    fn decided(mut self, decision: &ScreenDecision) -> Self {
        self.screening.decide_for_all(self.scope_count(), decision);
        self
    }

    fn scope_count(&self) -> usize {
        self.scopes.iter().max().map_or(1, |max| usize::from(*max) + 1)
    }

    /// Joins the decision of filters with that of the rules.
    fn take_filters(&mut self, verdict: FilterVerdict, content: FilterContent) {
        let scopes = self.scope_count();
        let decided = verdict.decision.and_then(|(by, place, decision)| decision_of(by, place, decision));
        if let Some(decision) = decided {
            self.screening.decide_for_all(scopes, &decision);
        }
        self.later = verdict.later.into_iter().map(|(name, _)| name).collect();
        self.filtered = FilterChanges {
            added: verdict.copies,
            removed: verdict.removed,
            redirects: verdict.redirects,
            sender: verdict.sender,
            content: verdict.is_changed.then_some((content, verdict.has_new_body)),
        };
    }

    /// Returns the names of filters that failed and are to be asked after the 250.
    pub(super) fn later(&self) -> &[String] {
        &self.later
    }

    /// Takes the sender that filters gave the message.
    pub(super) const fn take_sender(&mut self) -> Option<ReversePath> {
        self.filtered.sender.take()
    }

    /// Takes the message as filters changed it, and whether its body changed.
    pub(super) const fn take_content(&mut self) -> Option<(FilterContent, bool)> {
        self.filtered.content.take()
    }

    fn judgements(&self) -> impl Iterator<Item = (u16, &Judgement)> {
        let all = (0_u16..).zip(&self.screening.judgements);
        all.filter(|(_, judgement)| !judgement.is_nothing())
    }

    /// Returns the one refusal of the message, if all of it is refused.
    fn refusal(&self) -> Option<Reply> {
        let of = |scope: &u16| self.screening.of(*scope)?.decision.as_ref();
        let decisions = || self.scopes.iter().map(of);
        let deferred = decisions().flatten().find_map(|decision| match &decision.action {
            Final::Defer(reply) => Some(reply),
            _ => None,
        });
        let rejected = decisions().flatten().find_map(|decision| match &decision.action {
            Final::Reject(reply) => Some(reply),
            _ => None,
        });
        let refuses = |decision: Option<&ScreenDecision>| {
            decision.is_some_and(|decision| matches!(decision.action, Final::Reject(_) | Final::Defer(_)))
        };
        if decisions().all(refuses) {
            return deferred.or(rejected).cloned();
        }
        deferred.filter(|_| !self.is_lmtp).cloned()
    }

    /// Returns the answers: the one of the message, or in LMTP that of each recipient.
    pub(super) fn verdicts(&self, of_message: &Verdict, due: usize) -> Vec<Verdict> {
        if !self.is_lmtp {
            return vec![of_message.clone(); due];
        }
        let of = |scope: Option<&u16>| match scope.and_then(|scope| self.screening.of(*scope)?.decision.as_ref()) {
            Some(ScreenDecision { action: Final::Reject(reply) | Final::Defer(reply), .. }) => {
                Verdict::Refuse(reply.clone())
            }
            _ => of_message.clone(),
        };
        (0..due).map(|recipient| of(self.scopes.get(recipient))).collect()
    }

    /// Returns whether a message is not stored.
    pub(super) fn drops(&self, message: &NewMessage) -> bool {
        let Some(judgement) = self.screening.of(message.kind.scope) else {
            return message.envelope.recipients.is_empty();
        };
        message.envelope.recipients.is_empty()
            || match &judgement.decision {
                Some(ScreenDecision { action: Final::Discard, .. }) => true,
                _ => self.is_lmtp && judgement.is_refused(),
            }
    }

    /// Returns the recipients that are accepted and dropped.
    pub(super) fn discarded(&self, messages: &[NewMessage]) -> Vec<Address> {
        let is_discarded = |message: &&NewMessage| {
            let decision = self.screening.of(message.kind.scope).and_then(|judgement| judgement.decision.as_ref());
            decision.is_some_and(|decision| decision.action == Final::Discard)
        };
        let discarded = messages.iter().filter(is_discarded);
        discarded.flat_map(|message| message.envelope.recipients.iter().map(|one| one.address.clone())).collect()
    }

    /// Returns the changes of a message's header section.
    pub(super) fn edits(&self, message: &NewMessage) -> &[HeaderEdit] {
        self.screening.of(message.kind.scope).map_or(&[], |judgement| &judgement.edits)
    }
}

//! The stop *settle*: the outcome of an attempt becomes the state of its recipients, a line in the log, and a report to
//! the sender where one is due.
//!
//! Mail is safe by this order: a report is durable before its recipient is done, so that a crash in between repeats
//! the attempt and perhaps the report, and loses neither. Where a report cannot be stored, the recipient stays in the
//! queue. A delivered recipient is never tried again: until its report is stored, the report is [owed](receipt).
//!
//! | Outcome | State | Report to the sender |
//! |---|---|---|
//! | delivered | done; or owed, until its report has gone out with others | if asked for (below) |
//! | refused for good | done | yes, unless the sender asked for none |
//! | … since `Delivered-To:` of mail from outside shows a loop | done | no: the sender may be forged |
//! | not now | waiting, due later; its age decides below | |
//! | … older than `delivery.give_up_after` | done | yes |
//! | … older than `delivery.warn_after`, the first time | waiting, marked as warned | that it takes longer |
//! | … and the time of the sender (BY) is over | done; or waiting, marked as warned | yes; or that it takes longer |
//! | a report to the postmaster that failed | held, for a person | none |
//!
//! A delivery is reported if the sender asked for it and the next hop does not report it itself, or if he gave a time
//! (BY) that the next hop does not know.

mod dsn_batcher;
mod gathered_report;
mod log;
mod outbound;
mod reasons;
mod receipt;
mod report;
mod settler;

pub(crate) use dsn_batcher::{DsnBatcher, PendingReport};
pub(crate) use gathered_report::report_owed;
pub(crate) use log::{account_of_sender, log_deferred, log_fate};
pub(crate) use reasons::Reasons;
pub(crate) use receipt::Receipt;
pub(crate) use report::REPORT_OCTETS;
pub(crate) use settler::{ReportQueue, Settler};

use crate::deadline;
use crate::sabotage::{Sabotage, is_sabotaged};
use ::local::loops::is_from_outside;
use dsn_batcher::Gathered;
use mail::report::{Kind, wants};
use mail::{EnhancedCode, Envelope, Outcome, PhaseTimes, Recipient, Reply};
use observe::reason::{Case, Rules, Stage, words_of};
use observe::{NextHop, Reason};
use os::clock;
use report::ReportResult;
use spool::{Change, State, Status, Store as _};
use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

/// Time until a report that could not be stored is tried again.
pub(crate) const REPORT_AGAIN: Duration = Duration::from_secs(300);

/// One attempt on some recipients of one message.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Attempt<'a> {
    /// With the recipients of the attempt alone.
    pub(crate) envelope: &'a Envelope,
    /// Position of each in the message, and its state before.
    pub(crate) positions: &'a [(u32, State)],
    /// Octets of the content.
    pub(crate) content_bytes: u64,
    /// Recipients of the message that were not done before, here and elsewhere.
    pub(crate) recipients_left: usize,
    /// The host that answered, or did not.
    pub(crate) next_hop: NextHop<'a>,
    /// `esmtp`, `smtp`, `lmtp`
    pub(crate) mailer: &'a str,
    /// The time that the attempt took.
    pub(crate) xdelay: Duration,
    /// How long each phase took.
    pub(crate) phases: PhaseTimes,
    /// The next hop sends the reports that the sender asked for (RFC 3461 §5.2.1).
    pub(crate) passes_dsn: bool,
    /// The next hop knows by when the message is to be delivered (RFC 2852).
    pub(crate) passes_by: bool,
    /// A host was tried. False for mail that only grew old.
    pub(crate) is_try: bool,
    /// The result was logged before, and is reported now together with others.
    pub(crate) is_told: bool,
    /// The recipient has the message in the end: a mailbox, a program, a file.
    pub(crate) is_final: bool,
    /// Name of a program or file that the log has in place of the recipients; these then follow it.
    pub(crate) name: Option<&'a str>,
    /// User and group whose rights run the program or write the file.
    pub(crate) owner: Option<(u32, u32)>,
}

/// Result of an attempt for one recipient.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum AttemptOutcome {
    /// The next hop has it.
    Delivered(Reply),
    /// Not now.
    Deferred(Cause),
    /// Never.
    Failed(Cause),
    /// The next hop has had it for some time, and only the report is to be made.
    Receipt(Receipt),
}

/// Why a recipient was not reached.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Cause {
    /// For reports and log lines.
    pub(crate) status: EnhancedCode,
    /// In sendmail's words, as `stat=` has it. Shared by all recipients with this reason.
    pub(crate) text: Arc<str>,
    /// The reply of the next hop, if there was one.
    pub(crate) reply: Option<Reply>,
    /// The kind of reason, if it is known already.
    reason: Option<Reason>,
    /// The recipient need not wait: it was one too many in its transaction.
    is_crowded: bool,
    /// The host that said it, where that is not the host of the attempt.
    host: Option<Arc<str>>,
}

impl Cause {
    /// Makes a reason to fail, or to wait.
    pub(crate) fn new(status: EnhancedCode, text: impl Into<Arc<str>>, reply: Option<Reply>) -> Self {
        Self { status, text: text.into(), reply, reason: None, is_crowded: false, host: None }
    }

    /// Adds the kind of reason.
    pub(crate) fn with_reason(self, reason: Reason) -> Self {
        Self { reason: Some(reason), ..self }
    }

    /// Makes the reason to send a message no more, if its time is over and it comes back then.
    pub(crate) fn too_late(envelope: &Envelope, now: Duration) -> Option<Self> {
        // RFC 3463 §3.5: delivery time expired
        let status = EnhancedCode::of(Outcome::Permanent, 4, 7);
        let text = "the time by which the sender wanted it delivered is over (RFC 2852)";
        deadline::is_over(envelope, now).then(|| Self::new(status, text, None).with_reason(Reason::Other))
    }

    /// Makes the failure of a message that is in a loop.
    // RFC 3463 §3.5: X.4.6
    fn is_loop(&self) -> bool {
        (self.status.subject(), self.status.detail()) == (4, 6)
    }

    /// Returns the kind of reason: as it was found out, or by the words.
    pub(crate) fn reason(&self, rules: &Rules) -> Reason {
        self.reason.unwrap_or_else(|| {
            let words = self.reply.as_ref().map(words_of);
            let code = self.reply.as_ref().map(|reply| reply.code().get());
            let text = words.as_deref().unwrap_or(&self.text);
            rules.find(&Case { stage: None, code, status: Some(self.status), text }).reason
        })
    }
}

/// Returns the kind of reason why a destination cannot be reached, by our words for it.
pub(crate) fn reason_of(rules: &Rules, why: &str) -> Reason {
    rules.find(&Case { stage: Some(Stage::Connect), code: None, status: None, text: why }).reason
}

impl AttemptOutcome {
    /// Adds the kind of reason.
    fn with_reason(mut self, rules: &Rules) -> Self {
        if let Self::Deferred(cause) | Self::Failed(cause) = &mut self {
            cause.reason = Some(cause.reason(rules));
        }
        self
    }

    /// Makes a recipient due at once that was one too many in a transaction which other recipients passed.
    // RFC 5321 §4.5.3.1.10: 452 means that the others are to be sent in another transaction
    pub(crate) fn retry_soon(&mut self) {
        let Self::Deferred(cause) = self else { return };
        cause.is_crowded = cause.reply.as_ref().is_some_and(is_one_too_many);
    }
}

/// Returns whether a reply to a recipient, in a transaction that took others, says that the transaction has too many.
// RFC 5321 §4.5.3.1.10: 452, and 552 of old servers
fn is_one_too_many(reply: &Reply) -> bool {
    if !matches!(reply.code().get(), 452 | 552) {
        return false;
    }
    match reply.enhanced().map(|code| (code.subject(), code.detail())) {
        Some((5, 3)) => true,
        // The mailbox is full, disabled or not there.
        Some((1 | 2, _)) => false,
        Some(_) => says_too_many_recipients(reply),
        // Without another reason in the text the code means too many recipients.
        None => says_too_many_recipients(reply) || !says_other_reason(reply),
    }
}

/// Returns whether a reply without an enhanced code speaks of a mailbox, of room or of a time.
fn says_other_reason(reply: &Reply) -> bool {
    let words = words_of(reply).to_ascii_lowercase();
    ["full", "quota", "storage", "space", "mailbox", "grey", "gray", "later"].iter().any(|word| words.contains(word))
}

/// Returns whether a reply speaks of a limit of recipients, in any words.
pub(crate) fn says_too_many_recipients(reply: &Reply) -> bool {
    let words = words_of(reply).to_ascii_lowercase();
    let has = |words_of_one: &[&str]| words_of_one.iter().any(|word| words.contains(word));
    has(&["recipient", "rcpt", "addressee"])
        && has(&["too many", "limit", "maxim", "exceed", "per message", "per session"])
}

/// Changes that an attempt has recorded.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    /// For the spool.
    pub(crate) changes: Vec<Change>,
    /// The due time of the earliest waiting recipient, since 1970.
    pub(crate) retry: Option<Duration>,
}

/// Decision on a recipient, with its age taken into account.
struct RecipientDecision {
    fate: AttemptOutcome,
    kind: Option<Kind>,
    state: State,
}

impl RecipientDecision {
    /// Returns the change to record. Where no host was tried, a waiting recipient keeps its due time, and no attempt
    /// is counted.
    fn change(&self, attempt: &Attempt<'_>, (position, before): &(u32, State)) -> Change {
        let mut state = self.state;
        if !attempt.is_try && state.status == Status::Waiting {
            let untried = State { due: before.due, attempts: before.attempts, ..state };
            state = if state.is_warned() { untried.warned() } else { untried };
        }
        Change { id: attempt.envelope.id, recipient: *position, state, destination: None }
    }
}

/// Judges an attempt, logs it, and stores the reports that are due. The caller gives the changes to the spool,
/// several attempts at a time; only changes whose report is followed by another are recorded already.
///
/// # Cancel safety
/// No: a report may have been stored whose recipient is not done.
pub(crate) async fn settle(settler: &Arc<Settler>, attempt: &Attempt<'_>, fates: Vec<AttemptOutcome>) -> Settled {
    let id = attempt.envelope.id;
    let reasons = Arc::clone(&settler.context.live.load().reasons);
    let mut judged: Vec<RecipientDecision> = fates
        .into_iter()
        .map(|fate| fate.with_reason(&reasons))
        .zip(attempt.positions)
        .zip(&attempt.envelope.recipients)
        .map(|((fate, (_, state)), recipient)| judge(settler, attempt, recipient, fate, *state))
        .collect();
    if !attempt.is_told {
        log::log(settler, attempt, &judged);
    }
    put_off_reports(settler, attempt, &mut judged);
    if judged.iter().any(|one| one.kind.is_some()) {
        Box::pin(report_to_sender(settler, attempt, &mut judged)).await;
    }
    let mut settled = Settled::default();
    let all = 0..judged.len();
    keep_marks(settler, attempt, &mut judged, all);
    for (one, place) in judged.iter().zip(attempt.positions) {
        let position = &place.0;
        let due = Duration::from_secs(one.state.due.into());
        if matches!(one.state.status, Status::Waiting | Status::Owed) {
            settled.retry = Some(settled.retry.map_or(due, |earliest| earliest.min(due)));
        }
        if let AttemptOutcome::Deferred(cause) | AttemptOutcome::Failed(cause) = &one.fate {
            let reason = cause.reason.unwrap_or(Reason::Other);
            settler.reasons.remember(id, *position, one.state.status, reason, &cause.text);
        } else if place.1.tries() > 0 {
            settler.reasons.forget(id, *position);
        }
        settled.changes.push(one.change(attempt, place));
    }
    settled
}

/// Leaves results to the batcher while other recipients of the message are in progress, so that one report has
/// several results.
fn put_off_reports(settler: &Arc<Settler>, attempt: &Attempt<'_>, judged: &mut [RecipientDecision]) {
    if !gathered_report::may_have_more(&settler.context, attempt) {
        return;
    }
    let id = attempt.envelope.id;
    let host = gathered_report::host_of(&attempt.next_hop);
    let mut is_first = false;
    for ((one, (position, before)), recipient) in
        judged.iter_mut().zip(attempt.positions).zip(&attempt.envelope.recipients)
    {
        let Some(kind) = one.kind else { continue };
        if !wants(recipient.params.notify, kind) {
            continue;
        }
        let fate = match one.fate.clone() {
            AttemptOutcome::Failed(cause) => AttemptOutcome::Failed(cause.said_by(host.as_ref())),
            AttemptOutcome::Deferred(cause) => AttemptOutcome::Deferred(cause.said_by(host.as_ref())),
            AttemptOutcome::Delivered(reply) => {
                AttemptOutcome::Receipt(Receipt { reply: Some(reply), host: host.clone() })
            }
            AttemptOutcome::Receipt(_) => continue,
        };
        match settler.dsn_batcher.add(id, *position, fate) {
            Gathered::No if matches!(kind, Kind::Failed | Kind::Delayed) => continue,
            // A walk over the spool's lists finds an owed report when there may be room.
            Gathered::No => {}
            Gathered::First => is_first = true,
            Gathered::More => {}
        }
        one.kind = None;
        let parked = || settler.context.unix_now() + settler.dsn_batcher.retry_delay(id);
        one.state = match kind {
            Kind::Failed => before.tried().until(parked()),
            Kind::Delayed => one.state,
            _ if is_sabotaged(Sabotage::OweDelivery) => before.until(parked()),
            kind => receipt::with_owed_report(*before, kind, parked()).unwrap_or(one.state),
        };
    }
    if is_first {
        gathered_report::report_later(settler, id);
    }
}

/// Keeps the marks that recipients got during the attempt: one that an operator held stays held, and one whose sender
/// was warned stays warned. `these` are numbers of recipients in the attempt.
fn keep_marks(
    settler: &Settler,
    attempt: &Attempt<'_>,
    judged: &mut [RecipientDecision],
    these: impl Iterator<Item = usize>,
) {
    let waits = |at: &usize| judged.get(*at).is_some_and(|one| one.state.status == Status::Waiting);
    let place = |at: usize| Some((attempt.positions.get(at)?.0, at));
    let waiting: HashMap<u32, usize> = these.filter(waits).filter_map(place).collect();
    // A list may have very many others: only these are asked for.
    for (entry, _) in settler.spool.states_of(attempt.envelope.id, waiting.keys().copied()) {
        let one = waiting.get(&entry.recipient).and_then(|at| judged.get_mut(*at));
        let Some(one) = one else { continue };
        if entry.state.is_warned() {
            one.state = one.state.warned();
        }
        if entry.state.status == Status::Held {
            one.state.status = Status::Held;
        }
    }
}

/// Decides on a deferred recipient by its age.
fn judge(
    settler: &Settler,
    attempt: &Attempt<'_>,
    recipient: &Recipient,
    fate: AttemptOutcome,
    before: State,
) -> RecipientDecision {
    let live = settler.context.live.load();
    let delivery = &live.config.delivery;
    let done = State { status: Status::Done, ..before.tried() };
    if let Some(kind) = receipt::owed_report(before) {
        return receipt::receipt_decision(fate, kind, before);
    }
    let cause = match fate {
        AttemptOutcome::Delivered(_) | AttemptOutcome::Receipt(_) => {
            let kind = match attempt.is_final {
                true => Some(Kind::Delivered),
                false if !attempt.passes_dsn && wants(recipient.params.notify, Kind::Relayed) => Some(Kind::Relayed),
                false => deadline::wants_trace(attempt.envelope, attempt.passes_by, before).then_some(Kind::Traced),
            };
            return RecipientDecision { fate, kind, state: done };
        }
        AttemptOutcome::Failed(cause) => {
            // Fields that any client can write must not make us send mail to the sender that it names.
            let is_forgeable = attempt.is_final && cause.is_loop() && is_from_outside(attempt.envelope);
            let kind = (!is_forgeable).then_some(Kind::Failed);
            return RecipientDecision { fate: AttemptOutcome::Failed(cause), kind, state: done };
        }
        AttemptOutcome::Deferred(cause) => cause,
    };
    let now = settler.context.unix_now();
    let envelope = attempt.envelope;
    let now_of = settler.context.now_of(envelope);
    if let Some(cause) = Cause::too_late(envelope, now_of) {
        return RecipientDecision { fate: AttemptOutcome::Failed(cause), kind: Some(Kind::Failed), state: done };
    }
    // RFC 4865 §4.2: a message that was held has waited since it was released
    let age = now_of.saturating_sub(envelope.waits_since());
    if age >= delivery.give_up_after {
        return RecipientDecision { fate: AttemptOutcome::Failed(cause), kind: Some(Kind::Failed), state: done };
    }
    let tried = before.tried();
    let due = match cause.is_crowded {
        true => now,
        false => {
            let seed = seed_of(attempt, tried.tries());
            now + live.retry.retry_after(tried.tries(), seed)
        }
    };
    let state = tried.until(deadline::cap_due(envelope, due, now, |at| settler.context.time_of(envelope, at)));
    let is_late = match deadline::wants_to_hear(envelope) {
        Some(at) => now_of >= at,
        None => !delivery.warn_after.is_zero() && age >= delivery.warn_after,
    };
    let is_late = is_late && !before.is_warned();
    RecipientDecision { fate: AttemptOutcome::Deferred(cause), kind: is_late.then_some(Kind::Delayed), state }
}

/// Returns the seed that spreads the next attempts: another one for each message, attempt and transaction. The
/// recipients of one transaction stay together.
fn seed_of(attempt: &Attempt<'_>, tries: u8) -> u64 {
    let first = attempt.positions.first().map_or(0, |(position, _)| *position);
    // Odd numbers, so that few of these meet.
    let id = attempt.envelope.id.to_u64();
    id.wrapping_add(u64::from(first).wrapping_mul(0x9e37_79b9))
        .wrapping_add(u64::from(tries).wrapping_mul(0x85eb_ca6b_27d5))
}

/// Reports to the sender, and marks the recipients: in one report, or in as many as it takes. The recipients of one
/// report are recorded before the next is made, so that a crash in between repeats none of it.
async fn report_to_sender(settler: &Arc<Settler>, attempt: &Attempt<'_>, judged: &mut [RecipientDecision]) {
    let now = settler.context.unix_now();
    let mark = |judged: &mut [RecipientDecision], these: &[usize], told: ReportResult| {
        for at in these {
            let Some(one) = judged.get_mut(*at) else { continue };
            match (&one.kind, told) {
                (Some(Kind::Failed), ReportResult::NotStored) => {
                    // The recipient will fail again, and then perhaps the report can be stored.
                    one.state = one.state.until(now + REPORT_AGAIN);
                }
                (Some(Kind::Failed), ReportResult::NobodyLeft) => one.state.status = Status::Held,
                (Some(Kind::Delayed), ReportResult::Yes | ReportResult::NotWanted) => one.state = one.state.warned(),
                // The recipient is not delivered again for that.
                (Some(kind), ReportResult::NotStored) => {
                    one.state = receipt::with_owed_report(one.state, *kind, now + REPORT_AGAIN).unwrap_or(one.state);
                }
                _ => {}
            }
        }
    };
    let report::Due { wanted, unwanted, nobody_left } = report::due(&settler.context, attempt, judged);
    mark(judged, &unwanted, ReportResult::NotWanted);
    mark(judged, &nobody_left, ReportResult::NobodyLeft);
    let mut rest = wanted.as_slice();
    while !rest.is_empty() {
        let (told, count) = report::report_recipients(settler, attempt, judged, rest).await;
        // If the spool does not store this report, it stores no other.
        let count = if told == ReportResult::Yes { count.max(1) } else { rest.len() };
        let (these, others) = rest.split_at_checked(count).unwrap_or((rest, &[]));
        mark(judged, these, told);
        rest = others;
        if is_sabotaged(Sabotage::RecordLate) {
            continue;
        }
        if !rest.is_empty() {
            record(settler, attempt, judged, these).await;
        }
    }
}

/// Records some results of an attempt, so that they are durable no later than the next report.
async fn record(settler: &Settler, attempt: &Attempt<'_>, judged: &mut [RecipientDecision], these: &[usize]) {
    keep_marks(settler, attempt, judged, these.iter().copied());
    let change = |at: &usize| Some(judged.get(*at)?.change(attempt, attempt.positions.get(*at)?));
    let changes: Vec<Change> = these.iter().filter_map(change).collect();
    // If they cannot be recorded, the recipients are tried again, and reported again.
    let Ok(recorded) = settler.spool.record(&changes) else { return };
    // A single shard writes the record before the next report, or with it. With several, the report may be in another
    // one.
    if settler.spool.shards() > 1 {
        drop(recorded.await);
    }
}

/// Returns the present time as reports and trace fields have it.
pub(crate) fn report_time() -> (u64, i32) {
    let at_us = clock::unix_us();
    (at_us, clock::local_offset_seconds(at_us))
}

#[cfg(test)]
mod tests;

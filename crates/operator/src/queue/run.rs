//! Commands on the queue: their number at a time, their threads, and their answers.
//!
//! A command runs on a thread of the runtime that may block, and sends its lines through a channel that the control
//! socket empties. When the asker goes away the channel is closed, and the command ends at the next message; its
//! changes until then are made durable and stay.

use super::bounce::{BounceResult, Bounces, remove_active};
use super::change::{ChangeBatcher, ChangeTotals, changed_state};
use super::command::{Action, Command, GroupBy};
use super::content::ContentPieces;
use super::delivery_control::{DeliveryControl, GiveUpReason, ResubmitError};
use super::hold_rule::HoldRule;
use super::owner_check::{NotOwned, RefusedEnds};
use super::reroute::Reroutes;
use super::resubmit::Resubmissions;
use super::scan::{FoundMessage, FoundRecipient, QueueScan, ScanResult};
use super::scan_totals::{ScanStep, ScanTotals, last, some_if_any};
use super::stragglers::Stragglers;
use super::view::{QueueView, destination_text};
use crate::answers::reply::{Answer, ListPart, Reason};
use crate::answers::{
    DestinationLine, MissingLine, NotOwnedLine, ProgressLine, QueueLine, QueueTotals, UnreadableLine,
};
use crate::requester::Requester;
use mail::QueueId;
use os::clock;
use spool::{EnvelopeReader, Error, Hold, HoldKind, Spool, Status, Store as _};
use std::cell::RefCell;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

/// Commands at the same time; more are refused as busy.
pub const COMMANDS_MAX: usize = 4;
/// Commands of guests at the same time, beside those.
pub(super) const GUEST_COMMANDS_MAX: usize = 1;
/// How long a guest waits for another.
const GUEST_TIME_MAX: Duration = Duration::from_secs(20);
/// Lines that wait for the control socket to take them.
const LINES_WAITING_MAX: usize = 64;
/// A command that finds nothing says so often that it is at work.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(1);

/// Describes a change that a command made, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum QueueChange<'a> {
    /// Recipients of a message were deleted or bounced.
    Removed {
        /// Which of the two.
        action: Action,
        /// The message.
        id: QueueId,
        /// Its sender; empty for the null sender, and where the envelope cannot be read.
        from: &'a str,
        /// How many.
        recipients: usize,
        /// The party that asked.
        by: &'a Requester,
    },
    /// A copy of a message in quarantine was sent.
    Resubmitted {
        /// Release or forward.
        action: Action,
        /// The message.
        id: QueueId,
        /// The copy.
        copy: QueueId,
        /// The address that gets it, if it is not for the recipients.
        to: Option<&'a str>,
        /// How many recipients the message is kept for.
        recipients: usize,
        /// The client whose command it was.
        by: &'a Requester,
    },
    /// The content of a message was shown. It changes nothing, but operators have to answer for it.
    ContentShown {
        /// The message.
        id: QueueId,
        /// How many of its recipients are not done.
        recipients: usize,
        /// The client whose command it was.
        by: &'a Requester,
    },
    /// A hold rule or a suspension was set.
    RuleSet {
        /// The rule.
        rule: &'a HoldRule,
        /// The party that asked.
        by: &'a Requester,
    },
    /// A hold rule or a suspension was ended by a command.
    RuleEnded {
        /// The rule.
        rule: &'a HoldRule,
        /// The party that asked.
        by: &'a Requester,
    },
    /// A command that changed something came to its end.
    Ended {
        /// The action of the command.
        action: Action,
        /// Messages of which a recipient was changed.
        messages: u64,
        /// Recipients that were changed.
        recipients: u64,
        /// Mail was released although its filters had not judged it.
        is_unscreened: bool,
        /// The party that asked.
        by: &'a Requester,
    },
}

/// Receives every change, for the log.
pub type ChangeListener = Arc<dyn Fn(&QueueChange<'_>) + Send + Sync>;

/// Carries out commands on the queue of a spool.
#[derive(Clone, Debug)]
pub struct QueueCommands {
    spool: Arc<Spool>,
    delivery: Arc<dyn DeliveryControl>,
    room: Arc<Semaphore>,
    guest_room: Arc<Semaphore>,
}

impl QueueCommands {
    /// Tools for the queue of this spool.
    #[must_use]
    pub fn new(spool: Arc<Spool>, delivery: Arc<dyn DeliveryControl>) -> Self {
        let room = |most| Arc::new(Semaphore::new(most));
        Self { spool, delivery, room: room(COMMANDS_MAX), guest_room: room(GUEST_COMMANDS_MAX) }
    }

    /// Begins a command that `by` asked for; its lines come as they are found. To be called on the runtime.
    #[must_use]
    pub fn answer(&self, command: Command, by: Requester, on_change: ChangeListener) -> Answer {
        let Ok(room) = Arc::clone(&self.room).try_acquire_owned() else {
            let error = format!("{COMMANDS_MAX} commands on the queue are at work; wait for one to end, and ask again");
            return Answer::refused(Reason::Busy, error);
        };
        let (to, lines) = mpsc::channel(LINES_WAITING_MAX);
        self.begin(command, by, on_change, to, room);
        Answer::List(lines)
    }

    fn begin(
        &self,
        command: Command,
        by: Requester,
        on_change: ChangeListener,
        to: mpsc::Sender<ListPart>,
        room: OwnedSemaphorePermit,
    ) {
        let Self { spool, delivery, .. } = self.clone();
        // Not joined: it ends by itself when its lines are not taken any more.
        drop(tokio::task::spawn_blocking(move || {
            let envelopes = RefCell::default();
            let run = CommandRun {
                spool: &spool,
                envelopes: &envelopes,
                delivery: delivery.as_ref(),
                command: &command,
                by: &by,
                on_change: &on_change,
                to: &to,
            };
            run.whole();
            drop(room);
        }));
    }

    /// The same for a guest, who may only look: beside the commands of operators, one guest after the other.
    #[must_use]
    pub fn answer_guest(&self, command: Command, uid: u32) -> Answer {
        if command.action.changes_mail() || command.action == Action::Content {
            return Answer::refused(Reason::Permission, "you may look at the queue and no more");
        }
        let (to, lines) = mpsc::channel(LINES_WAITING_MAX);
        let commands = self.clone();
        drop(tokio::spawn(async move {
            match tokio::time::timeout(GUEST_TIME_MAX, Arc::clone(&commands.guest_room).acquire_owned()).await {
                Ok(Ok(room)) => {
                    commands.begin(command, Requester::User(uid), Arc::new(|_: &QueueChange<'_>| {}), to, room)
                }
                _ => {
                    let error = "others are looking at the queue; ask again in a minute".to_owned();
                    drop(to.send(ListPart::Failed { reason: Reason::Busy, error }).await);
                }
            }
        }));
        Answer::List(lines)
    }

    /// Returns the fullest destinations with the recipients that wait for them, and the dispatcher's state of each.
    ///
    /// Blocks for as long as it takes to look at every destination: call it on a thread that may wait.
    #[must_use]
    pub fn fullest_destinations(&self, limit: usize) -> Vec<DestinationLine> {
        let view = QueueView { delivery: self.delivery.as_ref(), now_us: self.delivery.now_us() };
        destinations(&self.spool).iter().take(limit).map(|one| destination(&view, one)).collect()
    }
}

/// Destinations with how many recipients wait for each, the fullest first, then by name.
fn destinations(spool: &Spool) -> Vec<(bytes::Bytes, u64)> {
    let mut all = spool.destinations();
    all.sort_unstable_by(|(one, more), (other, less)| less.cmp(more).then_with(|| one.cmp(other)));
    all
}

fn destination(view: &QueueView<'_>, (name, recipients): &(bytes::Bytes, u64)) -> DestinationLine {
    DestinationLine {
        destination: destination_text(name),
        recipients: *recipients,
        status: view.destination_status(name).unwrap_or_default(),
    }
}

/// Reports that the peer closed its connection.
pub(super) struct PeerGone;

/// Runs one command.
pub(super) struct CommandRun<'a> {
    pub(super) spool: &'a Spool,
    pub(super) envelopes: &'a RefCell<EnvelopeReader>,
    pub(super) delivery: &'a dyn DeliveryControl,
    pub(super) command: &'a Command,
    pub(super) by: &'a Requester,
    pub(super) on_change: &'a ChangeListener,
    pub(super) to: &'a mpsc::Sender<ListPart>,
}

impl fmt::Debug for CommandRun<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("CommandRun").field("command", self.command).finish_non_exhaustive()
    }
}

impl CommandRun<'_> {
    fn whole(&self) {
        let now_us = self.delivery.now_us();
        let last = match self.command.action {
            Action::Destinations => self.destinations(now_us),
            Action::Stragglers => self.stragglers(now_us),
            Action::List | Action::Show => self.list(now_us),
            Action::Count => self.count(now_us),
            Action::Content => self.content(now_us),
            Action::Rules => self.rules(),
            Action::HoldRule => self.set_hold_rule(now_us),
            Action::Suspend => self.suspend(now_us),
            Action::Resume => self.resume(now_us),
            action if self.command.dry_run => self.preview(action, now_us),
            Action::Bounce | Action::Expire => self.bounce(now_us),
            Action::Reroute => self.reroute(now_us),
            Action::Forward => self.resubmit(now_us),
            Action::Release if self.command.selection.quarantined => self.resubmit(now_us),
            action => self.change(action, now_us, self.hold(now_us)),
        };
        // A client that has disconnected gets no last line.
        if let Ok(mut last) = last {
            if let ListPart::Last(fields) = &mut last
                && self.command.selection.handed_in_by.is_some()
            {
                fields.insert("own".to_owned(), true.into());
            }
            drop(self.to.blocking_send(last));
        }
    }

    pub(super) fn send(&self, line: &QueueLine) -> Result<(), PeerGone> {
        self.to.blocking_send(ListPart::Line(line.to_fields())).map_err(|_| PeerGone)
    }

    fn send_unreadable(&self, id: QueueId, trouble: &str) -> Result<(), PeerGone> {
        let unreadable = id.to_string();
        self.send(&QueueLine::Unreadable(UnreadableLine { unreadable, trouble: trouble.to_owned() }))
    }

    fn send_not_owned(&self, messages: Vec<NotOwned>) -> Result<(), PeerGone> {
        messages.into_iter().try_for_each(|(id, trouble)| {
            self.send(&QueueLine::NotOwned(NotOwnedLine { not_owned: id.to_string(), trouble }))
        })
    }

    /// Whether the action takes messages out of the queue of this node.
    fn ends_mail(&self, action: Action) -> bool {
        matches!(action, Action::Delete | Action::Bounce | Action::Expire)
            || action == Action::Release && self.command.selection.quarantined
    }

    fn scan(&self, now_us: u64, reads: bool) -> QueueScan<'_> {
        let (spool, delivery, selection) = (self.spool, self.delivery, &self.command.selection);
        QueueScan { spool, delivery, selection, now_us, reads, envelopes: self.envelopes }
    }

    fn destinations(&self, now_us: u64) -> Result<ListPart, PeerGone> {
        let view = QueueView { delivery: self.delivery, now_us };
        let all = destinations(self.spool);
        let limit = self.command.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        for one in all.iter().take(limit) {
            self.send(&QueueLine::Destination(Box::new(destination(&view, one))))?;
        }
        let more = all.len().saturating_sub(limit);
        let destinations = Some(all.len().min(limit) as u64);
        Ok(last(QueueTotals { destinations, more: more as u64, ..QueueTotals::default() }))
    }

    /// Adds up the selected recipients. The limit is one of lines, not of messages.
    fn stragglers(&self, now_us: u64) -> Result<ListPart, PeerGone> {
        let view = QueueView { delivery: self.delivery, now_us };
        let mut sums = Stragglers::new(self.command.by, self.delivery);
        let all = Command { limit: None, ..self.command.clone() };
        let run = CommandRun { command: &all, ..*self };
        let scanned = run.each(now_us, self.command.by == GroupBy::Recipient, &mut |found| {
            sums.count_message(&found);
            Ok(ScanStep::of(found.recipients.len()))
        })?;
        let limit = self.command.limit.map_or(usize::MAX, |limit| usize::try_from(limit).unwrap_or(usize::MAX));
        let unseen = sums.unseen;
        let (lines, more) = sums.into_lines(&view, limit);
        lines.into_iter().try_for_each(|line| self.send(&QueueLine::Straggler(Box::new(line))))?;
        Ok(ScanTotals { more: more as u64, unseen, ..scanned }.into_last())
    }

    /// Shows messages, and changes nothing.
    fn list(&self, now_us: u64) -> Result<ListPart, PeerGone> {
        let Command { action, headers, .. } = *self.command;
        let view = QueueView { delivery: self.delivery, now_us };
        let totals = self.each(now_us, true, &mut |found| {
            let lines = match action {
                Action::Show => view.detail_lines(&found, self.spool, headers),
                _ => vec![view.list_line(&found, self.command.recipients)],
            };
            lines.into_iter().try_for_each(|line| self.send(&QueueLine::Message(Box::new(line))))?;
            Ok(ScanStep::of(found.recipients.len()))
        })?;
        Ok(totals.into_last())
    }

    /// Shows messages and their content, piece by piece; the log says so of each.
    fn content(&self, now_us: u64) -> Result<ListPart, PeerGone> {
        let view = QueueView { delivery: self.delivery, now_us };
        let mut unreadable = 0;
        let totals = self.each(now_us, true, &mut |found| {
            let lines = view.detail_lines(&found, self.spool, false);
            lines.into_iter().try_for_each(|line| self.send(&QueueLine::Message(Box::new(line))))?;
            let (id, recipients) = (found.id, found.recipients.len());
            (self.on_change)(&QueueChange::ContentShown { id, recipients, by: self.by });
            for piece in ContentPieces::new(self.spool, id) {
                match piece {
                    Ok(line) => self.send(&QueueLine::Content(line))?,
                    Err(why) => {
                        unreadable += 1;
                        self.send_unreadable(id, &why)?;
                        break;
                    }
                }
            }
            Ok(ScanStep::of(recipients))
        })?;
        Ok(ScanTotals { unreadable: totals.unreadable + unreadable, ..totals }.into_last())
    }

    /// Counts messages, and shows none.
    fn count(&self, now_us: u64) -> Result<ListPart, PeerGone> {
        let totals = self.each(now_us, false, &mut |found| Ok(ScanStep::of(found.recipients.len())))?;
        Ok(totals.into_last())
    }

    /// Gives the selected recipients another destination.
    fn reroute(&self, now_us: u64) -> Result<ListPart, PeerGone> {
        let name = self.command.destination.as_deref().unwrap_or_default();
        let to = match self.delivery.read_destination(name) {
            Ok(to) => to,
            Err(error) => return Ok(ListPart::Failed { reason: Reason::Request, error }),
        };
        let mut reroutes = Reroutes::new(self.delivery, to);
        let mut failed = None;
        let scanned = self.each(now_us, false, &mut |found| match reroutes.apply(&found, seconds(now_us).max(1)) {
            Ok(moved) => Ok(ScanStep::of(moved)),
            Err(error) => {
                failed = Some(error);
                Ok(ScanStep::Stop)
            }
        });
        let finished = reroutes.finish();
        let ChangeTotals { messages, recipients, unchanged, active } = reroutes.totals;
        (self.on_change)(&QueueChange::Ended {
            action: Action::Reroute,
            messages,
            recipients,
            is_unscreened: false,
            by: self.by,
        });
        if let Some(error) = failed.or_else(|| finished.err()) {
            let error = format!(
                "reroute: stopped after {recipients} recipients of {messages} messages; the others stay where they are: {error}"
            );
            return Ok(ListPart::Failed { reason: Reason::Failed, error });
        }
        let (unchanged, kept, active) = (Some(unchanged), Some(0), Some(active));
        Ok(last(QueueTotals { unchanged, kept, active, ..scanned?.into_totals() }))
    }

    /// Sends copies of messages in quarantine, to their recipients or to another address.
    fn resubmit(&self, now_us: u64) -> Result<ListPart, PeerGone> {
        let view = QueueView { delivery: self.delivery, now_us };
        let Command { action, ref forward_to, .. } = *self.command;
        let to = forward_to.as_ref().map(ToString::to_string);
        let mut resubmissions = Resubmissions::new(self.delivery, forward_to.as_ref());
        let (mut unreadable, mut not_owned, mut stops) = (0, 0, None);
        let scanned = self.each(now_us, true, &mut |mut found| match resubmissions.apply(&mut found) {
            Ok(Some(copy)) => {
                let (id, recipients) = (found.id, found.recipients.len());
                let to = to.as_deref();
                (self.on_change)(&QueueChange::Resubmitted { action, id, copy, to, recipients, by: self.by });
                for mut line in view.recipient_lines(&found) {
                    line.copy = Some(copy.to_string());
                    self.send(&QueueLine::Message(Box::new(line)))?;
                }
                Ok(ScanStep::of(recipients))
            }
            Ok(None) => Ok(ScanStep::Skip),
            Err(ResubmitError::Unreadable(why)) => {
                unreadable += 1;
                self.send_unreadable(found.id, &why)?;
                Ok(ScanStep::Skip)
            }
            Err(ResubmitError::NotOwned(why)) => {
                not_owned += 1;
                self.send_not_owned(vec![(found.id, why)])?;
                Ok(ScanStep::Skip)
            }
            Err(ResubmitError::Refused(why) | ResubmitError::NotStored(why)) => {
                stops = Some(format!("{}: {why}", found.id));
                Ok(ScanStep::Stop)
            }
        });
        let ChangeTotals { messages, recipients, unchanged, .. } = resubmissions.totals;
        (self.on_change)(&QueueChange::Ended { action, messages, recipients, is_unscreened: false, by: self.by });
        if let Some(why) = stops {
            let name = action.name();
            let error = format!("{name}: stopped after {messages} messages; the others stay in quarantine: {why}");
            return Ok(ListPart::Failed { reason: Reason::Failed, error });
        }
        let scanned = scanned?;
        let scanned = ScanTotals { unreadable: scanned.unreadable + unreadable, ..scanned };
        let (unchanged, kept, active, not_owned) = (Some(unchanged), Some(0), Some(0), some_if_any(not_owned));
        Ok(last(QueueTotals { unchanged, kept, active, not_owned, ..scanned.into_totals() }))
    }

    /// Shows what a command would change.
    pub(super) fn preview(&self, action: Action, now_us: u64) -> Result<ListPart, PeerGone> {
        let (view, now_s) = (QueueView { delivery: self.delivery, now_us }, seconds(now_us));
        let (mut unchanged, mut kept, mut active, mut unscreened, mut not_owned) = (0, 0, 0, 0, 0);
        let totals = self.each(now_us, true, &mut |mut found| {
            let doubt = self.ends_mail(action).then(|| self.delivery.doubt_about_end(found.id)).flatten();
            if let Some(doubt) = doubt {
                not_owned += 1;
                self.send_not_owned(vec![(found.id, doubt.text)])?;
                return Ok(ScanStep::Skip);
            }
            keep_rule_holds(action, &mut found);
            unscreened += self.keep_unscreened(action, &mut found);
            kept += self.keep(action, &mut found, now_us);
            if matches!(action, Action::Bounce | Action::Expire | Action::Reroute) {
                active += remove_active(&mut found);
            }
            let before = found.recipients.len();
            found.recipients.retain(|one| changed_state(action, one, now_s).is_some());
            unchanged += before - found.recipients.len();
            view.recipient_lines(&found)
                .into_iter()
                .try_for_each(|line| self.send(&QueueLine::Message(Box::new(line))))?;
            Ok(ScanStep::of(found.recipients.len()))
        })?;
        let unchanged = Some(unchanged as u64);
        let (kept, active) = (Some(kept), Some(active));
        let (unscreened, not_owned) = (some_if_any(unscreened), some_if_any(not_owned));
        Ok(last(QueueTotals { unchanged, kept, active, unscreened, not_owned, dry_run: true, ..totals.into_totals() }))
    }

    /// Returns the hold of mail that the command holds.
    fn hold(&self, now_us: u64) -> Option<Hold> {
        let end = self.end_of_hold(now_us).map_or(0, |end| u32::try_from(end).unwrap_or(u32::MAX));
        let reason = self.command.reason.as_deref().unwrap_or_default();
        let by_operator = || Hold::new(HoldKind::Operator, &self.by.name(), reason).until(end);
        (self.command.action == Action::Hold).then(by_operator)
    }

    /// Returns when mail is released that the command holds, in seconds since 1970, if it holds for a time.
    pub(super) fn end_of_hold(&self, now_us: u64) -> Option<u64> {
        self.command.hold_time.map(|time| u64::from(seconds(now_us)).saturating_add(time.as_secs()).max(1))
    }

    /// Changes the selected recipients. Only deleted messages have lines: they cannot be shown afterwards.
    pub(super) fn change(&self, action: Action, now_us: u64, hold: Option<Hold>) -> Result<ListPart, PeerGone> {
        let (view, now_s) = (QueueView { delivery: self.delivery, now_us }, seconds(now_us));
        let is_delete = action == Action::Delete;
        let mut changes = ChangeBatcher::new(self.spool, self.delivery, hold);
        // The deleted messages, kept until the spool has the change: they cannot be read afterwards.
        let (mut deleted, mut refused) = (Vec::new(), RefusedEnds::default());
        let mut failed: Option<Error> = None;
        let (mut kept, mut unscreened) = (0, 0);
        let mut is_unscreened = false;
        let scanned = self.each(now_us, is_delete, &mut |mut found| {
            keep_rule_holds(action, &mut found);
            unscreened += self.keep_unscreened(action, &mut found);
            is_unscreened |= action == Action::Release && found.recipients.iter().any(is_unscreened_hold);
            kept += self.keep(action, &mut found, now_us);
            changes.apply(action, &mut found, now_s);
            let outcome = ScanStep::of(found.recipients.len());
            if is_delete && !found.recipients.is_empty() {
                deleted.push(*found);
            }
            if changes.is_full() {
                if let Err(error) = changes.record_pending() {
                    failed = Some(error);
                    return Ok(ScanStep::Stop);
                }
                let not_owned = changes.take_refused();
                let recorded = refused.part(std::mem::take(&mut deleted), &not_owned);
                self.log_removed(action, &recorded);
                self.show_removed(&view, &recorded)?;
                self.send_not_owned(not_owned)?;
            }
            Ok(outcome)
        });
        let finished = changes.finish_and_notify(action);
        let not_owned = changes.take_refused();
        let deleted = refused.part(deleted, &not_owned);
        if failed.is_none() && finished.is_ok() {
            self.log_removed(action, &deleted);
        }
        let ChangeTotals { messages, recipients, unchanged, active } = changes.totals.without(&refused);
        (self.on_change)(&QueueChange::Ended { action, messages, recipients, is_unscreened, by: self.by });
        if let Some(error) = failed.or_else(|| finished.err()) {
            let error = format!(
                "{}: stopped after {recipients} recipients of {messages} messages, of which not all will stay so after a restart: {error}",
                action.name()
            );
            return Ok(ListPart::Failed { reason: Reason::Failed, error });
        }
        self.show_removed(&view, &deleted)?;
        self.send_not_owned(not_owned)?;
        let (unchanged, kept, active) = (Some(unchanged), Some(kept), Some(active));
        let (unscreened, not_owned) = (some_if_any(unscreened), some_if_any(refused.messages));
        let scanned = scanned?.without(&refused);
        Ok(last(QueueTotals { unchanged, kept, active, unscreened, not_owned, ..scanned.into_totals() }))
    }

    /// Fails the selected recipients, and has reports sent to their senders.
    fn bounce(&self, now_us: u64) -> Result<ListPart, PeerGone> {
        let view = QueueView { delivery: self.delivery, now_us };
        let why = match (self.command.action, &self.command.reason) {
            (Action::Expire, _) => GiveUpReason::Expired,
            (_, Some(reason)) => GiveUpReason::Postmaster(format!("Given up by the postmaster: {reason}").into()),
            (_, None) => GiveUpReason::Postmaster("Given up by the postmaster".into()),
        };
        let action = self.command.action;
        let mut bounces = Bounces::new(self.delivery, &why);
        let (mut stops, mut unreadable, mut left) = (None, 0, 0);
        let mut settle = |bounces: &mut Bounces<'_>| -> Result<bool, PeerGone> {
            let BounceResult { done, unreadable: these, not_owned, stops: why } = bounces.bounce_added();
            self.log_removed(action, &done);
            self.show_removed(&view, &done)?;
            unreadable += these.len() as u64;
            these.iter().try_for_each(|(id, trouble)| self.send_unreadable(*id, trouble))?;
            left += not_owned.len() as u64;
            self.send_not_owned(not_owned)?;
            stops = why;
            Ok(stops.is_none())
        };
        let scanned = self.each(now_us, true, &mut |found| {
            let count = bounces.add_message(*found);
            match bounces.is_full() && !settle(&mut bounces)? {
                true => Ok(ScanStep::Stop),
                false => Ok(ScanStep::of(count)),
            }
        });
        // Messages are not bounced for a client that has disconnected; the bounces made until then stay.
        let settled = if scanned.is_ok() { settle(&mut bounces).map(drop) } else { Ok(()) };
        let ChangeTotals { messages, recipients, unchanged, active } = bounces.totals();
        (self.on_change)(&QueueChange::Ended { action, messages, recipients, is_unscreened: false, by: self.by });
        if let Some(why) = stops {
            let error = format!(
                "{}: stopped after {recipients} recipients of {messages} messages, whose senders are told; the others stay in the queue: {why}",
                action.name()
            );
            return Ok(ListPart::Failed { reason: Reason::Failed, error });
        }
        settled?;
        let scanned = scanned?;
        let scanned = ScanTotals { messages, recipients, unreadable: scanned.unreadable + unreadable, ..scanned };
        Ok(last(QueueTotals {
            unchanged: Some(unchanged),
            kept: Some(0),
            active: Some(active),
            not_owned: some_if_any(left),
            ..scanned.into_totals()
        }))
    }

    /// Keeps the times that senders gave and that have not come; returns the number of such recipients. A retry leaves
    /// them waiting, a release lets them wait until then. A command that names messages by their ids ignores the times.
    fn keep(&self, action: Action, found: &mut FoundMessage, now_us: u64) -> u64 {
        let status = match action {
            Action::Retry => Status::Waiting,
            Action::Release | Action::Resume => Status::Held,
            _ => return 0,
        };
        if !self.command.selection.ids.is_empty() {
            return 0;
        }
        let kept = self.scan(now_us, false).mark_early(found, status);
        if action == Action::Retry {
            found.recipients.retain(|one| !one.keeps_time);
        }
        kept
    }

    /// Leaves recipients out that wait for filters, unless the command releases them unscreened; returns their number.
    /// A message that takes the place of another is let go by the server alone.
    fn keep_unscreened(&self, action: Action, found: &mut FoundMessage) -> u64 {
        if !matches!(action, Action::Retry | Action::Release | Action::Resume) {
            return 0;
        }
        let before = found.recipients.len();
        let is_meant = |hold: &Hold| self.command.unscreened && hold.kind() == HoldKind::Screen;
        found.recipients.retain(|one| !is_unscreened_hold(one) || one.hold.as_ref().is_some_and(is_meant));
        (before - found.recipients.len()) as u64
    }

    /// Logs the messages that the spool has removed, so that a later search in the log finds them.
    fn log_removed(&self, action: Action, removed: &[FoundMessage]) {
        for found in removed {
            let sender = found.summary.as_ref().and_then(|summary| summary.envelope.sender.address());
            let from = sender.map(ToString::to_string).unwrap_or_default();
            (self.on_change)(&QueueChange::Removed {
                action,
                id: found.id,
                from: &from,
                recipients: found.recipients.len(),
                by: self.by,
            });
        }
    }

    fn show_removed(&self, view: &QueueView<'_>, removed: &[FoundMessage]) -> Result<(), PeerGone> {
        removed
            .iter()
            .flat_map(|found| view.recipient_lines(found))
            .try_for_each(|line| self.send(&QueueLine::Message(Box::new(line))))
    }

    /// Hands every message that is meant to `take`, up to the limit, and counts the rest as far as that costs no
    /// reading.
    fn each(
        &self,
        now_us: u64,
        reads: bool,
        take: &mut dyn FnMut(Box<FoundMessage>) -> Result<ScanStep, PeerGone>,
    ) -> Result<ScanTotals, PeerGone> {
        let scan = self.scan(now_us, reads);
        let ids = scan.ids();
        let mut scanned = ScanTotals::default();
        let mut progress = Progress { of: ids.len(), reported_at: clock::now() };
        for (seen, id) in ids.iter().copied().enumerate() {
            if self.command.limit.is_some_and(|limit| scanned.messages >= limit) {
                let rest = ids.get(seen..).unwrap_or_default();
                scanned.count_rest(rest, &scan);
                break;
            }
            progress.report(seen, self)?;
            match scan.read_message(id) {
                ScanResult::FoundMessage(found) => match take(found)? {
                    ScanStep::Counts(recipients) => {
                        scanned.messages += 1;
                        scanned.recipients += recipients;
                    }
                    ScanStep::Skip => {}
                    ScanStep::Stop => break,
                },
                ScanResult::Other => {}
                // A message that the command does not name and that is finished meanwhile is not reported.
                ScanResult::Missing if self.command.selection.ids.is_empty() => {}
                ScanResult::Missing => {
                    scanned.missing += 1;
                    self.send(&QueueLine::Missing(MissingLine { missing: id.to_string() }))?;
                }
                ScanResult::Unreadable(trouble) => {
                    scanned.unreadable += 1;
                    self.send_unreadable(id, &trouble)?;
                }
            }
        }
        Ok(scanned)
    }
}

/// Sends progress lines at an interval, and notices that the peer closed its connection.
struct Progress {
    of: usize,
    reported_at: Instant,
}

impl Progress {
    fn report(&mut self, seen: usize, run: &CommandRun<'_>) -> Result<(), PeerGone> {
        if run.to.is_closed() {
            return Err(PeerGone);
        }
        let now = clock::now();
        if now.saturating_duration_since(self.reported_at) < PROGRESS_INTERVAL {
            return Ok(());
        }
        self.reported_at = now;
        run.send(&QueueLine::Progress(ProgressLine { seen: seen as u64, of: self.of as u64 }))
    }
}

/// Leaves out recipients that a content rule or a filter of the same name holds: the end of a rule of operators is not
/// about them.
fn keep_rule_holds(action: Action, found: &mut FoundMessage) {
    if action == Action::Resume {
        let is_of_rule = |hold: &Hold| hold.kind() == HoldKind::Operator;
        found.recipients.retain(|one| one.hold.as_ref().is_some_and(is_of_rule));
    }
}

/// Whether a recipient is held since its filters have not judged the message.
fn is_unscreened_hold(one: &FoundRecipient) -> bool {
    one.hold.as_ref().is_some_and(|hold| hold.kind().is_unscreened())
}

/// Whole seconds since 1970, as states have them.
pub(super) fn seconds(us: u64) -> u32 {
    u32::try_from(us / 1_000_000).unwrap_or(u32::MAX)
}

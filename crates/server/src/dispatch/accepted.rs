//! Puts accepted messages in line: at once, when they are due, or again when a message in memory is stored.

use super::{Dispatch, TaskFuture};
use crate::deadline;
use crate::intake::uncommitted::UncommittedMessages;
use crate::intake::{DownRecipients, Enqueue, NewMessage};
use crate::next_hop::smart_hosts;
use crate::sabotage::{Sabotage, hold_back, is_sabotaged};
use crate::settle::{self, ReportQueue};
use mail::{Envelope, QueueId};
use observe::Event;
use schedule::{AddResult, Class, Job, Positions, Scheduler};
use spool::Status;
use spool::envelope::Encoded;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

/// Destinations of one message that go in line while the scheduler is locked: with hundreds of thousands that would
/// take long.
const NAMES_IN_A_ROW: usize = 500;

/// Result of putting a message in line.
#[derive(Default)]
struct Lined {
    /// Recipients whose destination is down, and why.
    deferred: Vec<DownRecipients>,
    /// Some wait in the spool until there is room.
    waits: bool,
}

impl Enqueue for Dispatch {
    fn enqueue(&self, message: &NewMessage, bytes: u64, class: Class) {
        let deferred = self.accepted(&message.envelope, &message.encoded, class);
        if !deferred.is_empty() {
            self.log_deferred(&message.envelope, bytes, &deferred);
        }
    }

    fn enqueue_later(&self, message: &NewMessage) {
        self.accepted_for_later(&message.envelope, &message.encoded);
    }

    fn uncommitted(&self) -> &UncommittedMessages {
        &self.messages.early
    }

    fn enqueue_uncommitted(&self, envelope: &Envelope, encoded: &Encoded, class: Class) -> bool {
        let lined = self.line_up(envelope, encoded, class, |_, _, _| true);
        lined.deferred.is_empty() && !lined.waits
    }

    fn enqueue_rest(
        &self,
        envelope: &Envelope,
        encoded: &Encoded,
        class: Class,
        is_left: &dyn Fn(u32) -> bool,
    ) -> Vec<DownRecipients> {
        let is_idle = |scheduler: &Scheduler, name: &[u8], position| {
            is_left(position)
                && !scheduler.is_active(name, envelope.id, position)
                && !self.settler.has_last_result(envelope.id, position)
        };
        self.line_up(envelope, encoded, class, is_idle).deferred
    }

    fn log_down(&self, envelope: &Envelope, bytes: u64, recipients: &[DownRecipients]) {
        self.log_deferred(envelope, bytes, recipients);
    }

    fn spawn(&self, task: TaskFuture) {
        Self::spawn(self, task);
    }
}

impl ReportQueue for Dispatch {
    fn look_at(&self, message: QueueId) {
        Self::look_at(self, message);
    }
}

impl Dispatch {
    /// Puts the recipients of a durable message in line. Returns those that are deferred at once, since their
    /// destination is down, with the reason.
    pub(crate) fn accepted(&self, envelope: &Envelope, encoded: &Encoded, class: Class) -> Vec<DownRecipients> {
        if envelope.release_at().is_some_and(|at| at > self.now()) {
            // It is not due yet: a walk over the list of the spool finds out when it is.
            self.accepted_for_later(envelope, encoded);
            return Vec::new();
        }
        self.line_up(envelope, encoded, class, |_, _, _| true).deferred
    }

    /// A message is durable and waits for an operator: its destinations are looked at when that time is over.
    pub(crate) fn accepted_for_later(&self, envelope: &Envelope, encoded: &Encoded) {
        let names: BTreeSet<&[u8]> = (0..envelope.recipients.len()).map(|at| encoded.destination(at)).collect();
        let names: Vec<&[u8]> = names.into_iter().collect();
        for some in names.chunks(NAMES_IN_A_ROW) {
            self.with_scheduler(|scheduler, now| some.iter().for_each(|name| scheduler.restore(name, now)));
        }
    }

    fn line_up(
        &self,
        envelope: &Envelope,
        encoded: &Encoded,
        class: Class,
        is_meant: impl Fn(&Scheduler, &[u8], u32) -> bool,
    ) -> Lined {
        let message = envelope.id;
        let by_time = deadline::to_come(envelope);
        let mut lined = Lined::default();
        let mut add = |scheduler: &mut Scheduler, name: &[u8], recipients: Positions, now| {
            let job = Job { message, recipients: recipients.clone(), probe: false };
            let added = scheduler.add(name, job, class, now);
            if let Some(at) = by_time {
                scheduler.set_deadline(name, message, &recipients, at);
            }
            match added {
                AddResult::Ready => {}
                AddResult::SpoolOnly => lined.waits = true,
                AddResult::Down { why, .. } => lined.deferred.push((recipients, why)),
            }
        };
        if let [_] = envelope.recipients.as_slice() {
            let name = encoded.destination(0);
            if is_sabotaged(Sabotage::SinglesLast)
                && self.lock().scheduler.destination_view(name).is_some_and(|view| view.ready > 0)
            {
                hold_back(name);
                return lined;
            }
            self.with_scheduler(|scheduler, now| {
                if is_meant(scheduler, name, 0) && (!self.moves(now) || !self.here(message, vec![0], name).is_empty()) {
                    add(scheduler, name, Positions::One(0), now);
                }
            });
            return lined;
        }
        let mut jobs: BTreeMap<&[u8], Vec<u32>> = BTreeMap::new();
        for (number, position) in (0..envelope.recipients.len()).zip(0_u32..) {
            jobs.entry(encoded.destination(number)).or_default().push(position);
        }
        let mut jobs = jobs.into_iter().peekable();
        while jobs.peek().is_some() {
            // The others need the scheduler too.
            self.with_scheduler(|scheduler, now| {
                for (name, mut positions) in jobs.by_ref().take(NAMES_IN_A_ROW) {
                    positions.retain(|position| is_meant(scheduler, name, *position));
                    let positions = if self.moves(now) { self.here(message, positions, name) } else { positions };
                    if !positions.is_empty() {
                        add(scheduler, name, Positions::from(positions.as_slice()), now);
                    }
                }
            });
        }
        lined
    }

    /// Logs recipients of a fresh message that wait because their destination is down.
    fn log_deferred(&self, envelope: &Envelope, bytes: u64, deferred: &[DownRecipients]) {
        let (context, live) = (&self.context, self.context.live.load());
        let sender = if deferred.is_empty() { None } else { settle::account_of_sender(context, envelope) };
        let controller = sender.as_ref().map(|(address, owner)| observe::Controller { address, owner: Some(*owner) });
        for (recipients, why) in deferred {
            let at =
                |position: u32| usize::try_from(position).ok().and_then(|position| envelope.recipients.get(position));
            let reason = settle::reason_of(&live.reasons, why);
            let names: Vec<String> =
                recipients.iter().filter_map(at).map(|recipient| format!("<{}>", recipient.address)).collect();
            let to: Vec<&str> = names.iter().map(String::as_str).collect();
            for position in recipients.iter() {
                self.settler.reasons.remember(envelope.id, position, Status::Waiting, reason, why);
            }
            context.record(&Event::Delivery {
                id: envelope.id,
                to: &to,
                controller,
                delay: Duration::ZERO,
                xdelay: Duration::ZERO,
                phases: mail::PhaseTimes::default(),
                mailer: smart_hosts::mailer(&live.config.route),
                priority: crate::log::priority(bytes, envelope.recipients.len(), 0, 0),
                relay: observe::NextHop::None,
                dsn: mail::EnhancedCode::of(mail::Outcome::Transient, 4, 1),
                reply: None,
                stat: observe::Stat::Deferred(why),
                reason: Some(reason),
            });
        }
    }
}

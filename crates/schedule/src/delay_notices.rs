//! Mail that is due and waits for its turn at a site that is up: when its senders hear of its age, and of the end of the time they gave.
//!
//! A site may take less than there is for it: by its rate, by the pace that was learned, or since others have the connections. What waits in
//! line is looked through when the first of its times comes, all parts of the destination at once; those whose time has come leave the
//! line, are told of as those that a walk finds, and come back to where they stood. Their room is kept for them.
//!
//! A time counts that comes while the recipient waits here. One that was over when it became due, or before this server knew of the
//! destination, does not: then it is tried first, and only the delay is told of, when it waits on for [`GRACE`].

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use mail::QueueId;

use crate::chance::ById;
use crate::destination::Destination;
use crate::job::{Action, DestinationId, Overdue, Positions};
use crate::ready_queue::{NoticeState, Part, QueuePosition, ReadyQueue};
use crate::scan::{OVERDUE_MAX, OVERDUE_MAX_ALL, TELL_AGAIN};
use crate::scheduler::{Scheduler, site_of};
use crate::settings::Settings;
use crate::site::Site;

/// How long what was late before it could be tried waits for its attempt before its sender hears of that.
const GRACE: Duration = Duration::from_secs(3_600);
/// What was late by no more when it became due, or known here, was not kept waiting by somebody else: walks have their rests.
const JUST_LATE: Duration = Duration::from_secs(5 * 60);
/// What is put in line, or back, although its time is over has so long for its attempt.
pub(crate) const LAST_TRY: Duration = Duration::from_secs(60);
/// After so long in line it is asked by when a recipient is to be delivered, if that is not known.
pub(crate) const ASK_AFTER: Duration = Duration::from_secs(20);
/// The least time between two looks through what is in line.
const LOOK_REST: Duration = Duration::from_secs(10);
/// And so much for each part that was looked at.
const LOOK_REST_PER_PART: Duration = Duration::from_micros(100);

/// Parts that are out of the line since their senders are being told.
#[derive(Debug, Default)]
pub(crate) struct PendingNotices {
    parts: ById<QueueId, Vec<PendingNotice>>,
    /// Those of them that came fresh, and that walks found.
    pub(crate) fresh: usize,
    pub(crate) walked: usize,
}

#[derive(Debug)]
struct PendingNotice {
    part: Part,
    spot: Option<QueuePosition>,
    kind: Overdue,
}

impl PendingNotices {
    fn keep(&mut self, message: QueueId, away: PendingNotice) {
        self.fresh += usize::from(away.part.fresh);
        self.walked += usize::from(!away.part.fresh);
        self.parts.entry(message).or_default().push(away);
    }

    fn take(&mut self, message: QueueId, recipients: &Positions) -> Option<PendingNotice> {
        let parts = self.parts.get_mut(&message)?;
        let at = parts.iter().position(|away| away.part.recipients == *recipients)?;
        let away = parts.swap_remove(at);
        if parts.is_empty() {
            self.parts.remove(&message);
        }
        self.fresh -= usize::from(away.part.fresh);
        self.walked -= usize::from(!away.part.fresh);
        Some(away)
    }

    /// The places in line belong to a site that is not theirs any more.
    pub(crate) fn forget_spots(&mut self) {
        self.parts.values_mut().flatten().for_each(|away| away.spot = None);
    }
}

impl Scheduler {
    /// Has senders told of what waits in memory for too long, and of times that are over.
    pub(crate) fn tell_of_times(&mut self, id: DestinationId, now: Duration) {
        let Some(destination) = self.destinations.get_mut(&id) else { return };
        let mut site = site_of(&mut self.sites, destination);
        let before = destination.ready();
        destination.expire(site.as_deref_mut(), &mut self.overdue, now, &mut self.actions);
        destination.look_through(site.as_deref_mut(), &mut self.overdue, &self.settings, now, &mut self.actions);
        if let (Some(site), Some(id)) = (site, destination.site.filter(|_| destination.ready() < before)) {
            self.marks.site(id, site);
        }
    }
}

impl Destination {
    /// What the sender of a recipient that is due and waits here is to be told now, and when it is to be looked at again.
    pub(crate) fn judge(
        &self,
        message: QueueId,
        wait: &NoticeState,
        settings: &Settings,
        now: Duration,
    ) -> (Option<Overdue>, Duration) {
        let created = Duration::from_micros(message.unix_us());
        let was_off = created.saturating_add(JUST_LATE) < self.known_since;
        let known = if was_off { self.known_since } else { Duration::ZERO };
        let grace = if was_off { known + GRACE } else { Duration::ZERO };
        let young = self.times.as_ref().and_then(|times| times.young(message)).unwrap_or_default();
        let over = created.saturating_add(settings.give_up_after).max(young);
        let counts = |at: Duration, from: Duration| at.saturating_add(JUST_LATE) > from;
        let give_up = if counts(over, known.max(wait.due)) { over.max(grace).max(wait.rest) } else { Duration::MAX };
        let late = settings.warn_after.filter(|_| !wait.warned).map(|after| {
            let late = created.saturating_add(after).max(young);
            let late = if counts(late, wait.due) { late } else { wait.due + GRACE };
            late.max(grace).max(wait.rest)
        });
        // What is too old for it is not to be given up as if it were told of its delay.
        let late = late.filter(|late| now.max(*late) < over).unwrap_or(Duration::MAX);
        let kind = match () {
            () if give_up <= now => Some(Overdue::GiveUp),
            () if late <= now => Some(Overdue::Warn),
            () if wait.ask <= now => Some(Overdue::ByTime),
            () => None,
        };
        let next = [give_up, late, wait.ask].into_iter().filter(|at| *at > now).min();
        (kind, next.unwrap_or(Duration::MAX))
    }

    /// Since when a recipient waits, as far as that counts: `due`, if it was late by then.
    pub(crate) fn late_since(message: QueueId, due: Duration, warned: bool, settings: &Settings) -> Duration {
        let created = Duration::from_micros(message.unix_us());
        let gives_up = created.saturating_add(settings.give_up_after);
        let warns = settings.warn_after.filter(|_| !warned).map(|after| created.saturating_add(after));
        if due >= warns.map_or(gives_up, |warns| warns.min(gives_up)) { due } else { Duration::ZERO }
    }

    /// Has what is in line looked through when the time of a part comes.
    pub(crate) fn watch(&mut self, message: QueueId, wait: &NoticeState, settings: &Settings, now: Duration) {
        let (kind, next) = self.judge(message, wait, settings, now);
        let at = if kind.is_some() { now + LOOK_REST } else { next };
        if at < Duration::MAX {
            self.looks_by(at);
        }
    }

    /// Has what is in line looked through by then.
    pub(crate) fn looks_by(&mut self, at: Duration) {
        self.line_look = Some(self.line_look.map_or(at, |before| before.min(at)));
    }

    /// Whether it or its site is down.
    fn is_down(&self, site: Option<&Site>) -> bool {
        self.down.is_some() || site.is_some_and(|site| site.down.is_some())
    }

    /// Whether what is in line is the probe, and about to be tried: not one that waits for a place or for the rate.
    fn is_probing(&self, site: Option<&Site>) -> bool {
        self.down.is_some() || site.is_some_and(|site| site.down.is_some() && site.coming() > 0)
    }

    /// Has senders told of what is in line for too long. `told`: `Overdue` actions of all destinations.
    fn look_through(
        &mut self,
        mut site: Option<&mut Site>,
        told: &mut usize,
        settings: &Settings,
        now: Duration,
        actions: &mut VecDeque<Action>,
    ) {
        if self.line_look.is_none_or(|at| at > now) {
            return;
        }
        let is_probing = self.is_probing(site.as_deref());
        let mut left = OVERDUE_MAX.saturating_sub(self.overdue).min(OVERDUE_MAX_ALL.saturating_sub(*told));
        if self.ready() == 0 || is_probing || left == 0 {
            self.line_look = (self.ready() > 0).then_some(now + TELL_AGAIN);
            return;
        }
        let rest = LOOK_REST + LOOK_REST_PER_PART.saturating_mul(u32::try_from(self.ready()).unwrap_or(u32::MAX));
        let pending = std::mem::take(&mut self.pending);
        let (mut stay, mut found) = (VecDeque::new(), Vec::new());
        let mut next = Duration::MAX;
        let mut judge = |message: QueueId, part: &Part| {
            let (kind, at) = self.judge(message, &part.wait, settings, now);
            if kind.is_some() && left > 0 {
                left -= 1;
                return kind;
            }
            next = next.min(if kind.is_some() { now + TELL_AGAIN } else { at });
            None
        };
        if let Some(site) = site.as_deref_mut() {
            for message in self.active.messages() {
                let mut kinds = VecDeque::new();
                let parts = site.line.take_out(message, self.id, |part| {
                    let kind = judge(message, part);
                    kinds.extend(kind);
                    kind.is_some()
                });
                found.extend(parts.into_iter().zip(kinds).map(|((part, spot), kind)| (message, part, spot, kind)));
            }
        }
        for (message, part) in pending {
            match judge(message, &part) {
                Some(kind) => found.push((message, part, None, kind)),
                None => stay.push_back((message, part)),
            }
        }
        self.pending = stay;
        self.line_look = (next < Duration::MAX).then(|| next.max(now.saturating_add(rest)));
        for (message, part, spot, kind) in found {
            let line = site.as_deref_mut().map(|site| &mut site.line);
            *told += 1;
            self.tell_of(message, PendingNotice { part, spot, kind }, line, actions);
        }
    }

    /// Has the sender told of a part that was taken out of the line.
    fn tell_of(
        &mut self,
        message: QueueId,
        away: PendingNotice,
        line: Option<&mut ReadyQueue>,
        actions: &mut VecDeque<Action>,
    ) {
        self.leaves(&away.part);
        if let Some(line) = line {
            line.away += usize::from(!away.part.fresh);
        }
        self.overdue += 1;
        let (recipients, kind) = (away.part.recipients.clone(), away.kind);
        actions.push_back(Action::Overdue { destination: self.id, message, recipients, kind });
        self.told.keep(message, away);
    }

    /// Has senders told whose time is over, but of what is under way: the attempt looks at that, and if it comes to none, it is looked at
    /// again. `told`: `Overdue` actions of all destinations.
    fn expire(&mut self, mut site: Option<&mut Site>, told: &mut usize, now: Duration, actions: &mut VecDeque<Action>) {
        let Some(mut times) = self.times.take() else { return };
        let is_probing = self.is_probing(site.as_deref());
        let (kind, mut later) = (Overdue::ByTime, Vec::new());
        while times.next().is_some_and(|at| at <= now) {
            if self.overdue >= OVERDUE_MAX || *told >= OVERDUE_MAX_ALL {
                times.rest_until = now + TELL_AGAIN;
                break;
            }
            let Some((message, all)) = times.due(now) else { break };
            let (busy, idle): (Vec<u32>, Vec<u32>) = all.iter().partition(|one| self.active.contains(message, *one));
            if !idle.is_empty() {
                let recipients = Positions::from(idle.as_slice());
                self.active.insert(message, recipients.clone());
                self.overdue += 1;
                *told += 1;
                actions.push_back(Action::Overdue { destination: self.id, message, recipients, kind });
            }
            if busy.is_empty() {
                continue;
            }
            let parts = if is_probing { Vec::new() } else { self.take_out(message, &busy, site.as_deref_mut()) };
            let out: BTreeSet<u32> = parts.iter().flat_map(|(part, _)| part.recipients.iter()).collect();
            for (part, spot) in parts {
                *told += 1;
                let line = site.as_deref_mut().map(|site| &mut site.line);
                self.tell_of(message, PendingNotice { part, spot, kind }, line, actions);
            }
            later.push((message, busy.into_iter().filter(|one| !out.contains(one)).collect::<Positions>()));
        }
        for (message, recipients) in later.into_iter().filter(|(_, recipients)| !recipients.is_empty()) {
            if let Some(crowded_out) = times.keep(message, &recipients, now + TELL_AGAIN) {
                self.look_by(crowded_out);
            }
        }
        self.times = Some(times);
    }

    /// Takes the parts of a message out that wait and have some of these recipients, which are in ascending order.
    fn take_out(
        &mut self,
        message: QueueId,
        whom: &[u32],
        site: Option<&mut Site>,
    ) -> Vec<(Part, Option<QueuePosition>)> {
        let is_it = |part: &Part| part.recipients.iter().any(|recipient| whom.binary_search(&recipient).is_ok());
        if let Some(site) = site {
            return site.line.take_out(message, self.id, is_it);
        }
        let (out, stay): (VecDeque<_>, VecDeque<_>) =
            std::mem::take(&mut self.pending).into_iter().partition(|(of, part)| *of == message && is_it(part));
        self.pending = stay;
        out.into_iter().map(|(_, part)| (part, None)).collect()
    }

    /// Senders were told of recipients, or are to be told at `again`: what came out of the line goes back if it may wait on
    /// (`is_left`), the rest is in the spool alone. Says whether it went back.
    pub(crate) fn is_told(
        &mut self,
        message: QueueId,
        recipients: &Positions,
        (again, is_left): (Duration, bool),
        mut site: Option<&mut Site>,
        settings: &Settings,
        now: Duration,
    ) -> bool {
        self.overdue = self.overdue.saturating_sub(1);
        let away = self.told.take(message, recipients);
        if let (Some(away), Some(site)) = (&away, site.as_deref_mut()) {
            site.line.away -= usize::from(!away.part.fresh);
        }
        let Some(PendingNotice { mut part, spot, kind }) = away.filter(|away| is_left && away.kind != Overdue::GiveUp)
        else {
            self.release(message, recipients);
            return false;
        };
        match kind {
            Overdue::Warn => part.wait.warned |= again <= now,
            _ => part.wait.ask = Duration::MAX,
        }
        self.goes_back(message, part, spot, site, settings, now);
        true
    }

    /// Puts a part back that was not tried: where it stood, or first in line.
    pub(crate) fn goes_back(
        &mut self,
        message: QueueId,
        part: Part,
        spot: Option<QueuePosition>,
        site: Option<&mut Site>,
        settings: &Settings,
        now: Duration,
    ) {
        if self.is_down(site.as_deref()) {
            self.release(message, &part.recipients);
            return self.is_left(message, &part, settings, now);
        }
        self.comes(&part);
        self.watch(message, &part.wait, settings, now);
        match site {
            Some(site) => site.line.put_back(message, part, spot, now),
            None => self.pending.push_front((message, part)),
        }
    }
}

//! The next action: looks at destinations and sites that changed.
//!
//! A destination may need a look-up or a page of its list, a site a wake-up or a new connection. A site that needs a
//! connection beyond the budget waits for it. Room is made by closing an idle connection, or by cancelling one that
//! lags or is not greeted.

use std::time::Duration;

use crate::connection_wait::{WaitKind, Waiter};
use crate::destination::ResolveState;
use crate::dirty::TimerKey;
use crate::job::{Action, ConnectionId, DestinationId, Lane, SiteId};
use crate::pool::{BudgetKind, Connection, Phase};
use crate::scheduler::Scheduler;
use crate::settings::Mechanism;
use crate::site::Site;

impl Scheduler {
    /// Returns the next action; `None` if there is none until the next call or [`wake_at`](Self::wake_at).
    pub fn poll(&mut self, now: Duration) -> Option<Action> {
        loop {
            if let Some(action) = self.actions.pop_front() {
                return Some(action);
            }
            self.fire_timers(now);
            self.pool.end_lingering(now);
            let room =
                self.next_resolve().or_else(|| self.make_room(Lane::Fast)).or_else(|| self.make_room(Lane::Slow));
            let urgent = room.or_else(|| self.cancel_ungreeted(now));
            if urgent.is_some() {
                return urgent;
            }
            let lanes = if self.budget.is_shared() {
                self.wait_queue.lane_order()
            } else if self.pool.count(Lane::Slow) == 0 {
                // Lagging connections hold places of both lanes: the slow lane must not wait for their end.
                [Lane::Slow, Lane::Fast]
            } else {
                [Lane::Fast, Lane::Slow]
            };
            let fed = lanes.into_iter().find_map(|lane| self.grant(lane)).map(TimerKey::Site);
            let next = fed.map_or_else(|| self.dirty.pop(), Some)?;
            let action = match next {
                TimerKey::Destination(id) => self.serve_destination(id, now),
                TimerKey::Site(id) => self.serve_site(id, now),
            };
            if action.is_some() {
                return action;
            }
            debug_assert!(
                fed.is_none() || !self.is_next(next),
                "a waiter that was just removed is next again: {next:?}"
            );
        }
    }

    /// Returns when to call [`poll`](Self::poll) without an event.
    #[must_use]
    pub fn wake_at(&self) -> Option<Duration> {
        let timer = self.timers.first().map(|&(at, _)| at);
        let is_short = self.waiting_count(Lane::Fast) + self.waiting_count(Lane::Slow) > 0;
        let rests = if is_short { self.pool.next_linger_end() } else { None };
        timer.into_iter().chain(rests).chain(self.next_cancel().map(|(at, _)| at)).min()
    }

    /// Adds the owners of expired timers to `dirty`.
    fn fire_timers(&mut self, now: Duration) {
        while let Some(&(at, key)) = self.timers.first()
            && at <= now
        {
            self.timers.pop_first();
            match key {
                TimerKey::Destination(id) => {
                    if let Some(destination) = self.destinations.get_mut(&id) {
                        destination.timer = None;
                        self.dirty.add_destination(destination);
                    }
                }
                TimerKey::Site(id) => {
                    if let Some(site) = self.sites.get_mut(&id) {
                        site.timer = None;
                        self.dirty.add_site(id, site);
                    }
                }
            }
        }
    }

    /// Removes the next waiter if the budget has a place for it. It is checked at once whether it still wants a
    /// connection.
    fn grant(&mut self, lane: Lane) -> Option<SiteId> {
        if !self.pool.may_open(lane, &self.budget) {
            return None;
        }
        let id = self.next_waiter(lane)?;
        let waiter = self.sites.get_mut(&id)?.waiter.take()?;
        self.wait_queue.remove(id, &waiter);
        self.wait_queue.granted(&waiter);
        Some(id)
    }

    /// Returns the waiter that gets the next place of a lane. If the fast lane is full, a probe of it may use a place
    /// of the slow lane that nothing waits for.
    fn next_waiter(&self, lane: Lane) -> Option<SiteId> {
        let own = self.wait_queue.next(lane, self.retry_room() > 0);
        let lends = lane == Lane::Slow && self.pool.is_full(Lane::Fast, &self.budget);
        own.or_else(|| if lends { self.wait_queue.next_probe(Lane::Fast) } else { None })
    }

    /// Returns whether a waiter would be next again.
    fn is_next(&self, key: TimerKey) -> bool {
        let TimerKey::Site(id) = key else { return false };
        let is_first =
            |lane| self.pool.may_open(lane, &self.budget) && self.next_waiter(lane).is_some_and(|first| first == id);
        is_first(Lane::Fast) || is_first(Lane::Slow)
    }

    /// Returns the next look-up.
    fn next_resolve(&mut self) -> Option<Action> {
        while self.resolves_pending < self.settings.resolves_max.max(1) {
            let id = self.urgent_resolves.pop_front().or_else(|| self.normal_resolves.pop_front())?;
            if let Some(destination) = self.destinations.get_mut(&id)
                && destination.resolve_state == ResolveState::Queued
            {
                destination.resolve_state = ResolveState::Pending;
                self.resolves_pending += 1;
                return Some(Action::Resolve { destination: id });
            }
        }
        None
    }

    /// Closes an idle or lagging connection if its place is needed.
    fn make_room(&mut self, lane: Lane) -> Option<Action> {
        let wanted = self.waiting_count(lane);
        let (count, most) = (self.pool.count(lane), self.budget.of(lane));
        let (all, all_most) = (self.pool.counted(), self.budget.all);
        let connection = if wanted == 0 {
            None
        } else if count >= most {
            let is_coming = self.pool.closing(lane) + most >= wanted + count;
            if is_coming { None } else { self.pool.longest_idle(lane) }
        } else if all >= all_most {
            let is_coming = self.pool.all_ending() + all_most >= wanted + all;
            let lags = |pool: &mut crate::pool::ConnectionPool| {
                if lane == Lane::Fast { pool.cancel_lagging(all_most) } else { None }
            };
            if is_coming { None } else { self.pool.any_idle().or_else(|| lags(&mut self.pool)) }
        } else {
            None
        }?;
        let found = self.pool.get(connection)?;
        let (id, phase) = (found.site, if found.phase.is_opening() { Phase::Dropping } else { Phase::Closing });
        let site = self.sites.get_mut(&id)?;
        self.pool.set_phase(connection, phase, &mut site.counts, &mut site.idle);
        Some(Action::Close(connection))
    }

    /// Returns how many waiters of a lane may get a place.
    fn waiting_count(&self, lane: Lane) -> usize {
        self.wait_queue.len(lane) + self.wait_queue.retries(lane).min(self.retry_room())
    }

    /// Returns how many more connections may be opening to sites with a cancelled attempt.
    fn retry_room(&self) -> usize {
        self.budget.retries.saturating_sub(self.greeting_timer.retries())
    }

    /// Closes a connection that is not greeted in the time that hosts usually need, if a site waits for its place.
    fn cancel_ungreeted(&mut self, now: Duration) -> Option<Action> {
        while let Some((_, connection)) = self.next_cancel().filter(|(at, _)| *at <= now) {
            let (cancels, _) = self.greeting_timer.stop(connection)?;
            let id = self.pool.get(connection)?.site;
            let site = self.sites.get_mut(&id)?;
            // If another connection of the site was greeted meanwhile, this one keeps its time-outs.
            if site.counts.greeted() == 0 {
                site.cancels = site.cancels.max(cancels + 1);
                self.pool.set_phase(connection, Phase::Dropping, &mut site.counts, &mut site.idle);
                self.dirty.add_site(id, site);
                return Some(Action::Close(connection));
            }
        }
        None
    }

    /// Returns which connection is cancelled next, and when.
    fn next_cancel(&self) -> Option<(Duration, ConnectionId)> {
        let others = self.wait_queue.len(Lane::Fast);
        let (count, most) = (self.pool.count(Lane::Fast), self.budget.fast);
        let (all, all_most) = (self.pool.counted(), self.budget.all);
        let is_coming = if count >= most {
            self.pool.closing(Lane::Fast) + most >= others + count
        } else {
            self.pool.all_ending() + all_most >= others + all
        };
        if others > 0 && !is_coming && (count >= most || all >= all_most) {
            return self.greeting_timer.next_timeout(false);
        }
        if self.wait_queue.retries(Lane::Fast) > 0 && self.retry_room() == 0 {
            self.greeting_timer.next_timeout(true)
        } else {
            None
        }
    }

    /// Returns the action that a destination needs.
    fn serve_destination(&mut self, id: DestinationId, now: Duration) -> Option<Action> {
        self.send_notices(id, now);
        let destination = self.destinations.get_mut(&id)?;
        destination.is_dirty = false;
        let mut site = destination.site_in(&mut self.sites);
        if destination.wants_resolve(site.as_deref(), now) {
            destination.resolve_state = ResolveState::Queued;
            let queue = if destination.is_urgent() { &mut self.urgent_resolves } else { &mut self.normal_resolves };
            queue.push_back(id);
        }
        let room = destination.scan_room(site.as_deref(), &self.settings, now);
        if let Some((after, limit)) = destination.next_page(&room, now) {
            if let Some(site) = site {
                site.pages_pending += 1;
                destination.scan_site = destination.site;
            }
            self.dirty.add_destination(destination);
            return Some(Action::Load { destination: id, after, limit });
        }
        if let (Some(site), Some(at)) = (site.as_deref_mut(), destination.site)
            && destination.waiting_site != Some(at)
            && destination.waits_for_room(&room, now)
        {
            destination.waiting_site = Some(at);
            site.scans_waiting.push_back(id);
            self.dirty.add_site(at, site);
        }
        let is_over = destination.is_unused() && !destination.is_kept(site.as_deref(), now);
        let next = if is_over { None } else { destination.next_event(site.as_deref(), &self.settings, now) };
        if next != destination.timer {
            if let Some(before) = destination.timer {
                self.timers.remove(&(before, TimerKey::Destination(id)));
            }
            self.timers.extend(next.map(|at| (at, TimerKey::Destination(id))));
            destination.timer = next;
        }
        if is_over {
            if let (Some(site), Some(at)) = (site, destination.site) {
                site.destinations -= 1;
                self.dirty.add_site(at, site);
            }
            self.names.remove(&destination.name);
            self.destinations.remove(&id);
            self.update_ready_quota();
        }
        None
    }

    /// Returns the action that a site needs.
    fn serve_site(&mut self, id: SiteId, now: Duration) -> Option<Action> {
        let (has_queues, has_timer) = (self.has(Mechanism::WaitQueues), self.has(Mechanism::GreetingTimer));
        let site = self.sites.get_mut(&id)?;
        site.is_dirty = false;
        if site.has_scan_room(&self.settings, now) {
            // One at a time: it may take all the room.
            while let Some(next) = site.scans_waiting.pop_front() {
                if let Some(destination) = self.destinations.get_mut(&next)
                    && destination.waiting_site == Some(id)
                {
                    destination.waiting_site = None;
                    self.dirty.add_destination(destination);
                    self.dirty.add_site(id, site);
                    break;
                }
            }
        }
        if site.wants_wake(now)
            && let Some(&connection) = site.idle.last()
        {
            self.pool.set_phase(connection, Phase::Awake, &mut site.counts, &mut site.idle);
            if let Some(found) = self.pool.get_mut(connection) {
                found.woken_at = Some(now);
            }
            self.dirty.add_site(id, site);
            return Some(Action::Wake(connection));
        }
        let wants = site.wants_connection(&self.settings, self.overload, now);
        let want = if has_queues { site.wait_kind() } else { WaitKind::First };
        // The same condition as in `ConnectionWaitQueue::next`: a waiter that was just removed must not return to the
        // same place.
        let has_room = want != WaitKind::Retry || self.budget.retries > self.greeting_timer.retries();
        let place = self.pool.lane_for(site.lane, want == WaitKind::Probe, &self.budget).filter(|_| wants && has_room);
        let waiter = (wants && place.is_none()).then(|| {
            let since = *site.wants_since.get_or_insert(now);
            Waiter { lane: site.lane, want, at: if has_queues { site.wait_key(since) } else { since } }
        });
        if waiter != site.waiter {
            if let Some(before) = site.waiter.take() {
                self.wait_queue.remove(id, &before);
            }
            if let Some(waiter) = &waiter {
                self.wait_queue.insert(id, waiter);
            }
            site.waiter = waiter;
        }
        if waiter.is_none() {
            site.wants_since = None;
        }
        if let Some(place) = place {
            self.step += 1;
            let (lane, is_probe) = (site.lane, site.down.is_some());
            let connection = self.pool.open(id, &mut site.counts, place, is_probe, self.step);
            if lane == Lane::Fast && !is_probe && site.counts.greeted() == 0 && has_timer {
                self.greeting_timer.start(connection, site.cancels, now);
            }
            // Other sites are served before it opens a second connection.
            self.dirty.add_site(id, site);
            return Some(Action::Open { site: id, connection, lane });
        }
        self.finish_site(id, now);
        None
    }

    /// Forgets a site that is empty, or sets its timer.
    fn finish_site(&mut self, id: SiteId, now: Duration) {
        let Some(site) = self.sites.get_mut(&id) else { return };
        let is_over = site.is_empty(now);
        let next = if is_over { None } else { site.next_event(&self.settings, self.overload, now) };
        // A busy site keeps a timer that is early: otherwise each message would move it.
        let keeps_timer = !is_over
            && site.counts.greeted() > 0
            && site.timer.is_some_and(|at| at > now && next.is_none_or(|next| at <= next));
        if next != site.timer && !keeps_timer {
            if let Some(before) = site.timer {
                self.timers.remove(&(before, TimerKey::Site(id)));
            }
            self.timers.extend(next.map(|at| (at, TimerKey::Site(id))));
            site.timer = next;
        }
        if is_over {
            self.site_names.remove(&site.name);
            self.sites.remove(&id);
            self.shared.remove(&id);
        }
    }

    /// Returns whether a connection that asks for work has to close instead.
    pub(crate) fn must_close(&self, connection: ConnectionId, now: Duration) -> bool {
        let Some(found) = self.pool.get(connection) else { return true };
        let Some(site) = self.sites.get(&found.site) else { return true };
        let is_over = match found.budget_kind {
            BudgetKind::Fast => self.exceeds_share(Lane::Fast, found, site, now),
            BudgetKind::Slow => self.exceeds_share(Lane::Slow, found, site, now),
            BudgetKind::Silent => self.must_leave_lane(found, site.lane, now),
            BudgetKind::Extra => self.pool.counted() - self.pool.all_closing() > self.budget.all,
        };
        is_over || is_used_up(found, site)
    }

    /// Returns whether a connection that returned to a full lane has to close: others wait, and it used its time slice.
    fn must_leave_lane(&self, connection: &Connection, lane: Lane, now: Duration) -> bool {
        !connection.is_silent && self.used_time_slice(connection, now) && self.is_short_of_places(lane)
    }

    /// Moves a connection that was silent back to its lane, if that has a place.
    pub(crate) fn return_from_silence(&mut self, connection: ConnectionId) {
        let is_back = |found: &&Connection| found.budget_kind == BudgetKind::Silent && !found.is_silent;
        let Some(found) = self.pool.get(connection).filter(is_back) else { return };
        let Some(site) = self.sites.get(&found.site).filter(|site| !is_used_up(found, site)) else { return };
        self.pool.return_to_lane(connection, site.lane, &self.budget);
    }

    /// Returns whether more waiters want a place of a lane than are about to get one, and no connection is idle.
    fn is_short_of_places(&self, lane: Lane) -> bool {
        self.waiting_count(lane) > self.pool.closing(lane) && self.pool.longest_idle(lane).is_none()
    }

    fn used_time_slice(&self, connection: &Connection, now: Duration) -> bool {
        now >= connection.greeted_at.saturating_add(self.settings.time_slice)
    }

    /// Returns whether a lane exceeds its budget, or a site its share of the lane.
    fn exceeds_share(&self, lane: Lane, connection: &Connection, site: &Site, now: Duration) -> bool {
        let (count, closing, most) = (self.pool.count(lane), self.pool.closing(lane), self.budget.of(lane));
        // A site gives up a connection if it has at least two more than the first waiter, or if the connection used its
        // time slice and the waiter has none. Never before the connection carried a job, and never if its site would at
        // once rank ahead of that waiter.
        let had_slice = self.used_time_slice(connection, now);
        let first = self.wait_queue.next(lane, self.retry_room() > 0).and_then(|first| self.sites.get(&first));
        let goes_before =
            |waiter: &Waiter| waiter.want != WaitKind::Extra && site.open() > 1 || waiter.at <= site.wait_key(now);
        let gives_way = connection.jobs_taken > 0
            && count >= most
            && self.is_short_of_places(lane)
            && first.is_some_and(|first| {
                (site.open() >= 2 + first.open() || had_slice && first.open() == 0)
                    && first.waiter.as_ref().is_some_and(goes_before)
            });
        count - closing > most || gives_way
    }
}

/// Returns whether a connection has to close before its next job even if nothing waits for its place.
fn is_used_up(connection: &Connection, site: &Site) -> bool {
    connection.phase == Phase::Closing
        || connection.jobs_taken >= site.limits.messages_per_connection.max(1)
        || site.has_too_many()
        || site.doubts(connection)
}

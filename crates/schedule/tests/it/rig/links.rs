//! Connections of the rig: what each host does with them and with its mail.
//!
//! Checks windows, rates and lanes, and that no recipient is tried twice at a time or before it is due.

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use schedule::{ConnectionId, Failure, Feedback, Health, Job, Lag, Lane, NextJob, SiteId};

use super::{Event, Host, LAG, Link, Poison, Rig};

/// Time-outs of the driver for a connection, in the fast and in the slow lane.
const CONNECT_TIME: [Duration; 2] = [Duration::from_secs(5), Duration::from_secs(120)];
/// Time without a reply until the driver calls `lagging`.
const FAST_TIME: Duration = Duration::from_secs(20);
/// How long the bad host of a site with two is passed over.
const PASSED_OVER: Duration = Duration::from_secs(60);
/// Time without a reply to a whole message until the driver calls `stalling`.
const STALL_TIME: Duration = Duration::from_millis(500);
/// Time without any reply until the driver calls `silent`.
const SILENT_TIME: Duration = Duration::from_secs(1);
/// Time without a reply until the driver gives up.
const REPLY_TIME: Duration = Duration::from_secs(600);

impl Rig {
    pub(super) fn open(&mut self, site: SiteId, connection: ConnectionId, lane: Lane) {
        let name = self.scheduler.site_name(site).expect("a site with a connection is known").to_vec();
        let to: usize = String::from_utf8(name.clone()).unwrap().strip_prefix("site-").unwrap().parse().unwrap();
        let whose = self.scheduler.example_destination(site).expect("it has work").to_vec();
        let whose = String::from_utf8(whose).unwrap().strip_prefix("domain-").unwrap().parse().unwrap();
        assert_eq!(self.said[whose], Some(to), "it opens for somebody whose mail goes there");
        // At the moment of its end, other connections may be reported first.
        let is_aside = |link: &Link| link.lagged && link.is_bad || link.stuck_until >= self.now;
        let others = self.links.values().filter(|link| link.to == to && !link.closing && !is_aside(link)).count();
        let view = self.scheduler.site_views(self.now).find(|view| *view.name == *name).unwrap();
        assert_eq!(view.lane, lane);
        assert!(others < view.window as usize && view.window <= view.limits.connections, "window: {view:?}");
        // The new one is included; a limit that was lowered meanwhile counts from now on.
        assert!(view.connections <= view.limits.connections.max(1) as usize, "limit: {view:?}");
        if let Health::Down { until, .. } = view.health {
            assert!(until <= self.now, "back-off: {view:?}");
            let aside = self.links.values().filter(|link| link.to == to && is_aside(link)).count();
            assert_eq!((view.connections, view.ready), (1 + aside, 1), "one probe at a time");
        }
        self.opened[to] += 1;
        let is_bad = matches!(self.hosts[to], Host::HalfStalls | Host::HalfBreaks) && self.now >= self.passed_over[to];
        let link = Link {
            to,
            lane,
            lagged: false,
            over: 0,
            whose,
            flights: VecDeque::new(),
            is_open: false,
            parked: 0,
            closing: false,
            has_delivered: false,
            is_bad,
            stuck_until: Duration::ZERO,
            is_silent: false,
        };
        assert!(self.links.insert(connection, link).is_none(), "ids are not used twice");
        let after = match self.hosts[to] {
            Host::Dead => Duration::from_millis(self.chance(4_000)),
            Host::Hung => CONNECT_TIME[usize::from(lane == Lane::Slow)],
            Host::Late(after) => after.min(CONNECT_TIME[usize::from(lane == Lane::Slow)]),
            _ => Duration::from_millis(self.chance(60)),
        };
        let after = after + self.work(self.manner.machine[0]);
        self.later(after, Event::Connected(connection));
    }

    /// Lets a connection take jobs.
    pub(super) fn take(&mut self, connection: ConnectionId) {
        loop {
            let link = &self.links[&connection];
            let to = link.to;
            if link.closing || link.flights.len() >= self.manner.ahead {
                return;
            }
            let next = self.scheduler.next_job(connection, self.now);
            if matches!(next, NextJob::Idle) {
                self.links.get_mut(&connection).unwrap().is_silent = false;
            }
            match next {
                NextJob::Job(job) => self.start(connection, to, job),
                NextJob::Idle => {
                    self.sequence += 1;
                    let (parked, idle) = (self.sequence, self.manner.idle);
                    self.links.get_mut(&connection).unwrap().parked = parked;
                    self.later(idle, Event::IdleOut(connection, parked));
                    return;
                }
                // The driver asks again when a job is over.
                NextJob::Later => return,
                NextJob::Close => {
                    let link = self.links.get_mut(&connection).unwrap();
                    link.closing = true;
                    if link.flights.is_empty() {
                        self.later(Duration::ZERO, Event::Ended(connection));
                    }
                    return;
                }
            }
        }
    }

    pub(super) fn start(&mut self, connection: ConnectionId, to: usize, job: Job) {
        let most = self.told[to].recipients_per_transaction;
        assert!(!job.recipients.is_empty() && job.recipients.len() <= most, "{} of {most}", job.recipients.len());
        assert!(job.recipients.as_slice().is_sorted(), "{job:?}");
        self.taken += 1;
        self.check_rate(to);
        let now_s = self.now.as_secs();
        let mut homes = BTreeSet::new();
        for recipient in job.recipients.iter() {
            let whom = (job.message, recipient);
            assert!(self.flying.insert(whom), "{whom:?} tried by two at the same time");
            let home = self.home(to, job.message, recipient);
            homes.extend(home);
            if !self.touched.contains(&whom) {
                let home = home.expect("a job names who waits in the spool");
                assert_eq!(self.said[home], Some(to), "mail goes where its destination is");
                let entry = *self.entry(home, job.message, recipient).unwrap();
                assert!(u64::from(entry.due_s) <= now_s && !entry.held, "tried before its time: {entry:?}");
                assert!(!self.settings.hold_fresh || entry.due_s > 0 || self.manner.lag, "fresh mail waits");
            }
        }
        self.joined += usize::from(homes.len() > 1);
        let link = self.links.get_mut(&connection).unwrap();
        link.parked = 0;
        let (service, count) = (self.manner.service, u32::try_from(link.flights.len() + 1).unwrap());
        let (over, is_bad) = (link.over, link.is_bad);
        let poison = job.recipients.iter().find_map(|one| self.poisons.get(&(job.message, one)));
        link.flights.push_back(job);
        if poison == Some(&Poison::Hangs) && link.flights.len() == 1 {
            link.stuck_until = self.now + REPLY_TIME;
            self.later(STALL_TIME, Event::Stalls(connection, over));
            self.later(FAST_TIME, Event::Lags(connection, over));
            return self.later(REPLY_TIME, Event::Finished(connection));
        }
        let service = match self.hosts[to] {
            Host::Stalls => REPLY_TIME,
            Host::HalfStalls if is_bad => REPLY_TIME,
            Host::Crawls => FAST_TIME * 3 / 2,
            _ => service,
        };
        if service > SILENT_TIME {
            self.later(SILENT_TIME, Event::Silent(connection, over));
        }
        if service > FAST_TIME {
            self.later(FAST_TIME, Event::Lags(connection, over));
        }
        let after = service * count + self.work(self.manner.machine[1]);
        self.later(after, Event::Finished(connection));
    }

    /// Checks that no window of time has more transactions than the rate and one burst.
    pub(super) fn check_rate(&mut self, to: usize) {
        let Some(milli) = self.told[to].messages_per_second else { return self.began[to].clear() };
        self.began[to].push(self.now);
        let burst = f64::from((milli / 1_000).max(1));
        for (count, from) in self.began[to].iter().rev().take(100).enumerate() {
            let most = (self.now - *from).as_secs_f64() * f64::from(milli) / 1_000.0 + burst;
            assert!(f64::from(u32::try_from(count + 1).unwrap()) <= most + 1e-6, "{} at {milli}", count + 1);
        }
    }

    pub(super) fn connected(&mut self, connection: ConnectionId) {
        let Some(link) = self.links.get(&connection).filter(|link| !link.closing) else { return };
        let (to, whose, lane) = (link.to, link.whose, link.lane);
        let live = self.links.values().filter(|link| link.to == to && link.is_open).count();
        if self.sites[whose] != to && self.dns[whose] || self.strays && self.chance(20) == 0 {
            // The connection finds the answer expired, and the scheduler learns the new one before it ends.
            self.links.remove(&connection);
            if let Some(id) = self.scheduler.destination_id(&Self::name(whose)) {
                self.resolved(id, whose);
            }
            return self.scheduler.abandon(connection, self.now);
        }
        let refused = match self.hosts[to] {
            Host::Dead => Some(Failure::Refused),
            Host::Hung => Some(Failure::Silent),
            Host::Late(after) => (after >= CONNECT_TIME[usize::from(lane == Lane::Slow)]).then_some(Failure::Silent),
            Host::Few(most) => (live >= most).then_some(Failure::Refused),
            Host::Moody => (self.chance(4) == 0).then_some(Failure::Refused),
            _ => None,
        };
        if let Some(failure) = refused {
            self.links.remove(&connection);
            let jobs = self.scheduler.unreachable(connection, failure, "Connection refused", self.now);
            self.check_left(&jobs);
        } else {
            let link = self.links.get_mut(&connection).unwrap();
            (link.is_open, link.stuck_until) = (true, Duration::ZERO);
            self.scheduler.greeted(connection, self.now);
            self.take(connection);
        }
    }

    pub(super) fn check_left(&mut self, jobs: &[Job]) {
        self.left += jobs.len();
        let whom: BTreeSet<_> = jobs.iter().flat_map(|job| job.recipients.iter().map(|r| (job.message, r))).collect();
        assert_eq!(whom.len(), jobs.iter().map(|job| job.recipients.len()).sum::<usize>(), "logged twice");
        assert!(whom.is_disjoint(&self.flying), "deferred while it is being tried");
        for (message, recipient) in whom {
            let is_active =
                (0..self.lists.len()).any(|to| self.scheduler.is_active(&Self::name(to), message, recipient));
            assert!(!is_active, "it left memory");
        }
    }

    pub(super) fn lags(&mut self, connection: ConnectionId, over: u64) {
        let Some(link) = self.links.get_mut(&connection) else { return };
        if link.over == over && !link.flights.is_empty() {
            link.lagged = true;
            let (to, is_bad) = (link.to, link.is_bad);
            if is_bad {
                self.passed_over[to] = self.now + PASSED_OVER;
            }
            self.scheduler.lagging(connection, Lag { has_others: is_bad, ..LAG }, self.now);
        }
    }

    fn is_poison(&self, job: &Job, poison: Poison) -> bool {
        job.recipients.iter().any(|one| self.poisons.get(&(job.message, one)) == Some(&poison))
    }

    pub(super) fn stalls(&mut self, connection: ConnectionId, over: u64) {
        let Some(link) = self.links.get_mut(&connection).filter(|link| link.over == over) else { return };
        (link.parked, link.is_silent) = (0, true);
        self.scheduler.stalling(connection, self.now);
    }

    pub(super) fn silent(&mut self, connection: ConnectionId, over: u64) {
        let link = self.links.get_mut(&connection).filter(|link| link.over == over && !link.flights.is_empty());
        let Some(link) = link else { return };
        (link.parked, link.is_silent) = (0, true);
        self.scheduler.silent(connection, self.now);
    }

    /// Ends jobs without a reply, and their connection.
    fn unanswered(&mut self, connection: ConnectionId, poison: Poison) {
        let count = if poison == Poison::Hangs { usize::MAX } else { 1 };
        let link = self.links.get_mut(&connection).unwrap();
        let lost: Vec<Job> = link.flights.drain(..count.min(link.flights.len())).collect();
        let (to, has_served) = (link.to, link.over > 0);
        // A disconnect comes in time, unlike silence.
        link.over += u64::from(poison == Poison::Drops);
        for job in lost {
            let mut retry = None;
            for recipient in job.recipients.iter() {
                self.lands((job.message, recipient));
                let seed = self.chance(1 << 30);
                let Some(to) = self.home(to, job.message, recipient) else { continue };
                let attempts = self.entry(to, job.message, recipient).unwrap().attempts.saturating_add(1);
                if self.comes_too_late(to, job.message, recipient) {
                    continue;
                }
                let due_s = self.due_s(job.message, attempts, seed);
                let entry = self.entry(to, job.message, recipient).unwrap();
                (entry.attempts, entry.due_s) = (attempts, due_s);
                let due = Duration::from_secs(entry.due_s.into());
                retry = Some(retry.map_or(due, |before: Duration| before.min(due)));
            }
            self.scheduler.unanswered(connection, &job, poison == Poison::Drops);
            let feedback = if poison == Poison::Hangs { Feedback::NoReply } else { Feedback::Broken };
            self.scheduler.job_done(connection, &job, feedback, retry, self.now);
        }
        self.settle();
        if poison == Poison::Drops && !has_served {
            self.ended(connection, (Failure::Broken, "it hung up"));
        } else {
            self.lost(connection);
        }
    }

    /// Continues after the job that hung: the jobs behind it get their turns.
    fn hangs_no_more(&mut self, connection: ConnectionId) {
        let link = self.links.get_mut(&connection).unwrap();
        link.stuck_until = Duration::ZERO;
        let (behind, service) = (link.flights.len().saturating_sub(1), self.manner.service);
        for number in 1..=u32::try_from(behind).unwrap() {
            self.later(service * number, Event::Finished(connection));
        }
    }

    pub(super) fn finished(&mut self, connection: ConnectionId) {
        let Some(link) = self.links.get(&connection) else { return };
        if link.stuck_until > self.now {
            return;
        }
        if link.flights.front().is_some_and(|job| self.is_poison(job, Poison::Hangs)) {
            if link.stuck_until == self.now {
                return self.unanswered(connection, Poison::Hangs);
            }
            // It was behind others until now.
            let over = link.over;
            self.links.get_mut(&connection).unwrap().stuck_until = self.now + REPLY_TIME;
            self.later(STALL_TIME, Event::Stalls(connection, over));
            self.later(FAST_TIME, Event::Lags(connection, over));
            return self.later(REPLY_TIME, Event::Finished(connection));
        }
        if link.stuck_until == self.now {
            self.hangs_no_more(connection);
        }
        let link = &self.links[&connection];
        if link.flights.front().is_some_and(|job| self.is_poison(job, Poison::Drops)) {
            // A connection that served may have closed for another reason: this is no attempt.
            return if link.over > 0 { self.lost(connection) } else { self.unanswered(connection, Poison::Drops) };
        }
        let (to, host) = (link.to, self.hosts[link.to]);
        let breaks = match host {
            Host::Drops | Host::Dead | Host::Hung => true,
            Host::Moody => self.chance(8) == 0,
            _ => false,
        };
        if breaks {
            return self.lost(connection);
        }
        let link = self.links.get_mut(&connection).unwrap();
        let Some(job) = link.flights.pop_front() else { return };
        let (over, is_bad) = (link.over, link.is_bad);
        let is_refused = self.is_too_much(to, over);
        self.asked_to[to] += 1;
        self.refused[to] += usize::from(is_refused);
        let is_dismissed = is_refused && !matches!(host, Host::Murmurs(_));
        let link = self.links.get_mut(&connection).unwrap();
        if is_dismissed && over > 0 {
            // A connection that served ends with a 421: this is no attempt.
            link.flights.push_front(job);
            return if link.has_delivered { self.lost(connection) } else { self.dismissed(connection) };
        }
        link.over += 1;
        self.useful += usize::from(!is_refused && !link.has_delivered);
        link.has_delivered |= !is_refused;
        let mut retry = None;
        for recipient in job.recipients.iter() {
            self.lands((job.message, recipient));
            let defers = match host {
                Host::Defers | Host::Stalls => true,
                Host::HalfStalls | Host::HalfBreaks => is_bad,
                Host::Moody => self.chance(3) == 0,
                _ => is_refused,
            };
            let Some(to) = self.home(to, job.message, recipient) else { continue };
            let (now, seed) = (self.now, self.chance(1 << 30));
            let Some(entry) = self.entry(to, job.message, recipient).copied() else { continue };
            if entry.held || defers && self.comes_too_late(to, job.message, recipient) {
                continue;
            }
            if defers {
                let attempts = entry.attempts.saturating_add(1);
                let due_s = self.due_s(job.message, attempts, seed);
                let entry = self.entry(to, job.message, recipient).unwrap();
                (entry.attempts, entry.due_s) = (attempts, due_s);
                let due = Duration::from_secs(due_s.into());
                retry = Some(retry.map_or(due, |before: Duration| before.min(due)));
            } else {
                self.lists[to].retain(|entry| (entry.message, entry.recipient) != (job.message, recipient));
                assert!(self.delivered.insert((job.message, recipient), now).is_none(), "delivered twice");
            }
        }
        let feedback = match (host, self.chance(6)) {
            (Host::Stalls, _) => Feedback::NoReply,
            (Host::HalfStalls, _) if is_bad => Feedback::NoReply,
            (Host::HalfBreaks, _) if is_bad => Feedback::Broken,
            (Host::Moody, 0) => Feedback::Slowdown,
            _ if is_refused => Feedback::Slowdown,
            (_, 1) => Feedback::Neutral,
            _ => Feedback::Good,
        };
        self.scheduler.job_done(connection, &job, feedback, retry, self.now);
        if host == Host::Stalls {
            // The driver does not wait for a second reply.
            return self.lost(connection);
        }
        if is_bad {
            self.settle();
            return self.host_failed(connection);
        }
        if is_dismissed {
            // The server also performs the actions before it reports the end of the connection.
            self.settle();
            return self.dismissed(connection);
        }
        let link = &self.links[&connection];
        if link.closing && link.flights.is_empty() {
            self.later(Duration::from_millis(1), Event::Ended(connection));
        } else if link.parked == 0 || self.chance(2) == 0 {
            self.take(connection);
        }
    }

    /// Returns whether a host refuses one more message now, on a connection that carried `over`.
    fn is_too_much(&mut self, to: usize, over: u64) -> bool {
        match self.hosts[to] {
            Host::Paces(each) | Host::Murmurs(each) => {
                let is_early = self.now < self.free_from[to];
                if !is_early {
                    self.free_from[to] = self.now + each;
                }
                is_early
            }
            Host::Counts(most, span) => {
                let number = self.now.as_nanos() / span.as_nanos();
                let counted = &mut self.counted[to];
                if counted.0 != number {
                    *counted = (number, 0);
                }
                let is_over = counted.1 >= most;
                counted.1 += u32::from(!is_over);
                is_over
            }
            Host::Tires(most) => over >= most,
            Host::Wearies(least) => self.is_weary(to, least, over),
            Host::Both(_, least) if self.is_weary(to, least, over) => true,
            Host::Both(each, _) => {
                let is_early = self.now < self.free_from[to];
                if !is_early {
                    self.free_from[to] = self.now + each;
                }
                is_early
            }
            Host::Refuses => true,
            _ => false,
        }
    }

    fn is_weary(&self, to: usize, least: u64, over: u64) -> bool {
        over >= least + self.opened[to] as u64 * 7 % (least + 1)
    }

    /// Ends a connection to the bad host of a site with another one.
    pub(super) fn host_failed(&mut self, connection: ConnectionId) {
        let link = self.links.remove(&connection).unwrap();
        self.passed_over[link.to] = self.now + PASSED_OVER;
        for (message, recipient) in link.flights.iter().flat_map(|job| job.recipients.iter().map(|r| (job.message, r)))
        {
            self.lands((message, recipient));
        }
        self.scheduler.abandon(connection, self.now);
    }

    /// Ends a connection on which the host refused a message with 421: a failure if it accepted none before.
    pub(super) fn dismissed(&mut self, connection: ConnectionId) {
        if self.links[&connection].has_delivered {
            return self.lost(connection);
        }
        self.ended(connection, (Failure::Throttled, "421 too fast"));
    }

    fn ended(&mut self, connection: ConnectionId, (failure, why): (Failure, &str)) {
        let link = self.links.remove(&connection).unwrap();
        for (message, recipient) in link.flights.iter().flat_map(|job| job.recipients.iter().map(|r| (job.message, r)))
        {
            self.lands((message, recipient));
        }
        let jobs = self.scheduler.unreachable(connection, failure, why, self.now);
        self.check_left(&jobs);
    }

    /// Breaks a connection: its jobs are given back by name or by its end.
    pub(super) fn lost(&mut self, connection: ConnectionId) {
        let link = self.links.remove(&connection).unwrap();
        let by_name = self.chance(2) == 0;
        for job in link.flights.iter().rev() {
            for recipient in job.recipients.iter() {
                self.lands((job.message, recipient));
            }
            if by_name {
                self.scheduler.give_back(connection, job, self.now);
            }
        }
        let jobs = self.scheduler.closed(connection, self.now);
        self.check_left(&jobs);
    }
}

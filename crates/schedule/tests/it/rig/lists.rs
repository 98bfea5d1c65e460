//! The answers of the rig's spool and name servers: pages, site assignments, and `Overdue` actions.

use std::time::Duration;

use mail::QueueId;
use schedule::{DestinationId, Overdue, Positions, QueueEntry, SiteAssignment};

use super::{Event, Rig};

impl Rig {
    /// Answers a `Resolve` action.
    pub(super) fn resolved(&mut self, destination: DestinationId, to: usize) {
        self.asked.remove(&destination);
        self.resolved += 1;
        let jobs = if self.dns[to] {
            let site = self.sites[to];
            let until = self.now + Duration::from_secs(self.chance(600));
            let (key, limits) = (format!("site-{site}").into_bytes(), self.limits[site]);
            let place = SiteAssignment { site: &key, limits, expected: None, until };
            self.said[to] = Some(site);
            if self.told[site].messages_per_second != limits.messages_per_second {
                self.began[site].clear();
            }
            self.told[site] = limits;
            self.scheduler.resolved(destination, &place, self.now)
        } else {
            self.said[to] = None;
            self.scheduler.resolve_failed(destination, "no answer from name servers", self.blame, self.now)
        };
        self.check_left(&jobs);
        self.apply_report(self.sites[to]);
    }

    pub(super) fn load(&mut self, destination: DestinationId, after: Option<QueueEntry>, limit: usize) {
        let to = self.destination(destination);
        assert!(limit > 0 && limit <= self.settings.ready_max.max(1_024));
        let list = &self.lists[to];
        let found = after.and_then(|a| list.iter().position(|e| (e.message, e.recipient) == (a.message, a.recipient)));
        let start = found.map_or(0, |at| at + 1);
        let page: Vec<QueueEntry> = list.iter().skip(start).take(limit).copied().collect();
        let is_end = start + page.len() == list.len();
        self.loads += 1;
        self.entries_read += page.len();
        if self.manner.lag {
            let after = Duration::from_millis(self.chance(50));
            self.later(after, Event::Loaded(destination, page, is_end));
        } else {
            self.scheduler.page_loaded(destination, &page, is_end, self.now);
        }
    }

    pub(super) fn check_overdue(&mut self, to: usize, message: QueueId, recipients: &Positions, kind: Overdue) {
        let age = self.now.saturating_sub(Duration::from_micros(message.unix_us()));
        for recipient in recipients.iter() {
            assert!(!self.flying.contains(&(message, recipient)), "overdue while it is being tried");
            let is_touched = self.touched.contains(&(message, recipient));
            let Some(entry) = self.entry(to, message, recipient) else {
                let is_touched = is_touched || kind == Overdue::ByTime;
                assert!(is_touched, "overdue and gone");
                continue;
            };
            assert!(!entry.held || is_touched || kind == Overdue::ByTime, "held and overdue");
            match kind {
                Overdue::GiveUp => assert!(age >= self.settings.give_up_after),
                Overdue::Warn => {
                    assert!(!entry.warned || is_touched, "warned twice");
                    assert!(age >= self.settings.warn_after.unwrap());
                }
                Overdue::ByTime => assert!(entry.timed, "it has no time"),
                Overdue::Owed => panic!("nothing is owed"),
            }
        }
    }

    pub(super) fn settled(
        &mut self,
        destination: DestinationId,
        to: usize,
        message: QueueId,
        whom: &Positions,
        kind: Overdue,
    ) {
        let now = self.now;
        if kind == Overdue::ByTime {
            return self.timed(destination, to, message, whom);
        }
        for recipient in whom.iter() {
            let Some(entry) = self.entry(to, message, recipient) else { continue };
            let told = match kind {
                Overdue::ByTime | Overdue::Owed => None,
                Overdue::Warn => {
                    entry.warned = true;
                    self.warned.insert((message, recipient), now)
                }
                Overdue::GiveUp => {
                    self.lists[to].retain(|entry| (entry.message, entry.recipient) != (message, recipient));
                    self.given_up.insert((message, recipient), now)
                }
            };
            assert!(told.is_none(), "told twice: {kind:?}");
        }
        match kind {
            Overdue::Owed => self.scheduler.report_settled(destination, message, whom, now, now),
            _ => self.scheduler.age_settled(destination, message, whom, now, now),
        }
    }

    /// Returns a recipient to its sender after a failed attempt if its deliver-by time is over. Returns whether it is.
    pub(super) fn comes_too_late(&mut self, to: usize, message: QueueId, recipient: u32) -> bool {
        let is_over = self.by_times.get(&message).is_some_and(|by| *by <= self.now);
        if is_over {
            self.lists[to].retain(|entry| (entry.message, entry.recipient) != (message, recipient));
            assert!(self.too_late.insert((message, recipient), self.now).is_none(), "told twice");
        }
        is_over
    }

    /// Returns recipients whose deliver-by time is over, and answers with the next time of the rest.
    pub(super) fn timed(&mut self, destination: DestinationId, to: usize, message: QueueId, whom: &Positions) {
        let by = self.by_times[&message];
        let again = (by > self.now).then_some(by);
        if again.is_none() {
            let is_meant = |e: &QueueEntry| e.message == message && whom.contains(e.recipient) && !e.held;
            let gone: Vec<u32> = self.lists[to].iter().filter(|e| is_meant(e)).map(|e| e.recipient).collect();
            self.lists[to].retain(|e| !is_meant(e));
            for recipient in gone {
                assert!(self.too_late.insert((message, recipient), self.now).is_none(), "told twice");
            }
        }
        self.scheduler.deadline_settled(destination, message, whom, again, self.now);
    }
}

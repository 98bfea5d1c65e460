//! Sites whose limits several machines keep together: this one uses only its share of them.
//!
//! The driver knows the shares. It reads what a site uses and could use ([`Scheduler::shared_sites`]), and sets what it
//! may use ([`Scheduler::set_share`]). A shared site without a share opens no connection and starts no transaction.

use std::sync::Arc;
use std::time::Duration;

use crate::job::{Action, ConnectionId, SiteShare};
use crate::pool::Phase;
use crate::scheduler::Scheduler;
use crate::view::SharedSite;

impl Scheduler {
    /// Begins to share the limits of a site: it has no share until the driver sets one.
    pub fn share_site(&mut self, site: &[u8], now: Duration) {
        let is_shared = |id| self.sites.get(&id).is_some_and(|site| site.share.is_some());
        if !self.site_names.get(site).is_none_or(is_shared) {
            self.set_share(site, SiteShare { messages_per_second: Some(0), ..SiteShare::default() }, now);
        }
    }

    /// Ends the sharing: this machine may use the limits in full.
    pub fn unshare_site(&mut self, site: &[u8], now: Duration) {
        let Some(id) = self.site_names.get(site).filter(|id| self.shared.remove(id)) else { return };
        if let Some(site) = self.sites.get_mut(&id) {
            site.share = None;
            site.set_rate(site.limits.messages_per_second, now);
            self.dirty.add_site(id, site);
        }
    }

    /// Sets the share of a site. Idle connections above it close, others after their transactions.
    pub fn set_share(&mut self, site: &[u8], share: SiteShare, now: Duration) {
        let Some(id) = self.site_names.get(site) else { return };
        let Some(site) = self.sites.get_mut(&id) else { return };
        if site.share == Some(share) {
            return;
        }
        site.set_share(share, now);
        self.shared.insert(id);
        self.dirty.add_site(id, site);
        while site.counts.staying() > site.connections_max() {
            let Some(idle) = site.idle.first().copied() else { break };
            self.pool.set_phase(idle, Phase::Closing, &mut site.counts, &mut site.idle);
            self.actions.push_back(Action::Close(idle));
        }
    }

    /// Ends connections of a site that are not greeted. Returns how many of `excess` are left, to be ended by the
    /// driver.
    pub fn drop_opening(&mut self, site: &[u8], excess: u32, opening: &[ConnectionId]) -> u32 {
        let Some(site) = self.site_names.get(site).and_then(|id| self.sites.get_mut(&id)) else { return 0 };
        let mut left = excess;
        for connection in opening {
            let is_opening = self.pool.get(*connection).is_some_and(|found| found.phase == Phase::Opening);
            if left > 0 && is_opening {
                self.pool.set_phase(*connection, Phase::Dropping, &mut site.counts, &mut site.idle);
                self.actions.push_back(Action::Close(*connection));
                left -= 1;
            }
        }
        left
    }

    /// Returns what the shared sites use and could use.
    pub fn shared_sites(&self, now: Duration) -> impl Iterator<Item = SharedSite> + '_ {
        self.shared.iter().filter_map(|id| self.sites.get(id)).filter_map(move |site| {
            let work = u32::try_from(site.work() + site.in_flight).unwrap_or(u32::MAX);
            let is_waiting = site.down.as_ref().is_some_and(|down| down.until > now);
            let probes = site.down.is_some() && !site.scans_waiting.is_empty();
            let wanted = if is_waiting { 0 } else { work.max(u32::from(probes)).min(site.window()) };
            Some(SharedSite {
                name: Arc::clone(&site.name),
                limits: site.limits,
                share: site.share?,
                connections: site.counts.total(),
                wanted,
                work,
                started: site.started,
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::{AddResult, Class, Job, Limits, NextJob, Positions, SiteAssignment};
    use crate::settings::Settings;
    use mail::QueueId;

    const NOW: Duration = Duration::from_secs(1_000);
    const LIMITS: Limits = Limits {
        connections: 4,
        messages_per_second: Some(8_000),
        recipients_per_transaction: 1,
        messages_per_connection: 100,
    };

    fn with_messages(count: u64) -> Scheduler {
        let settings = Settings { jobs_per_connection: 1, window_start: 4, ..Settings::default() };
        let mut scheduler = Scheduler::new(settings, 1);
        for number in 1..=count {
            let id = QueueId::from_u64(QueueId::MIN.to_u64() + number).unwrap();
            let job = Job { message: id, recipients: Positions::from([0].as_slice()), probe: false };
            let added = scheduler.add(b"example.com", job, Class::Normal, NOW);
            assert!(!matches!(added, AddResult::SpoolOnly), "{added:?}");
        }
        while let Some(action) = scheduler.poll(NOW) {
            let Action::Resolve { destination } = action else { continue };
            let until = NOW + Duration::from_secs(600);
            let place = SiteAssignment { site: b"mx", limits: LIMITS, expected: None, until };
            drop(scheduler.resolved(destination, &place, NOW));
            scheduler.share_site(b"mx", NOW);
        }
        scheduler
    }

    fn opened(scheduler: &mut Scheduler, now: Duration) -> Vec<ConnectionId> {
        let mut opened = Vec::new();
        while let Some(action) = scheduler.poll(now) {
            if let Action::Open { connection, .. } = action {
                opened.push(connection);
            }
        }
        opened
    }

    fn share(connections: u32, rate: u32) -> SiteShare {
        SiteShare { connections, messages_per_second: Some(rate) }
    }

    #[test]
    fn a_site_opens_no_more_than_its_share() {
        let mut scheduler = with_messages(9);
        assert_eq!(
            scheduler.shared_sites(NOW).map(|site| (site.connections, site.wanted)).collect::<Vec<_>>(),
            [(0, 4)]
        );
        scheduler.set_share(b"mx", share(2, 8_000), NOW);
        let later = NOW + Duration::from_secs(1);
        scheduler.set_share(b"mx", share(2, 8_001), later);
        let all = opened(&mut scheduler, later);
        assert_eq!(all.len(), 2);
        for connection in &all {
            scheduler.greeted(*connection, later);
        }
        scheduler.set_share(b"mx", share(1, 8_001), later);
        let later = later + Duration::from_secs(1);
        assert!(matches!(scheduler.next_job(all[0], later), NextJob::Close), "one too many");
        assert!(matches!(scheduler.next_job(all[1], later), NextJob::Job(_)));
        assert_eq!(scheduler.shared_sites(later).next().unwrap().started, 1);
    }

    #[test]
    fn a_share_of_a_rate_begins_without_tokens_and_ends_with_none() {
        let mut scheduler = with_messages(9);
        scheduler.set_share(b"mx", share(1, 2_000), NOW);
        let (mut now, mut sent) = (NOW, 0);
        let step = Duration::from_millis(100);
        let connection = loop {
            if let Some(first) = opened(&mut scheduler, now).first() {
                break *first;
            }
            now += step;
            assert!(now < NOW + Duration::from_secs(1), "the first token comes after half a second");
        };
        assert!(now >= NOW + Duration::from_millis(500), "{now:?}");
        while now < NOW + Duration::from_secs(3) {
            sent += u32::from(matches!(scheduler.next_job(connection, now), NextJob::Job(_)));
            now += step;
        }
        assert_eq!(sent, 5);
        scheduler.set_share(b"mx", share(1, 0), now);
        assert!(!matches!(scheduler.next_job(connection, now + Duration::from_secs(60)), NextJob::Job(_)));
        scheduler.set_share(b"mx", share(1, 2_000), now);
        assert!(!matches!(scheduler.next_job(connection, now), NextJob::Job(_)), "nothing was saved");
    }

    #[test]
    fn a_site_that_is_shared_no_more_has_its_limits_in_full() {
        let mut scheduler = with_messages(9);
        let now = NOW + Duration::from_secs(1);
        scheduler.set_share(b"mx", SiteShare { connections: 0, messages_per_second: None }, now);
        assert!(opened(&mut scheduler, now).is_empty());
        scheduler.unshare_site(b"mx", now);
        let later = now + Duration::from_secs(1);
        assert_eq!((opened(&mut scheduler, later).len(), scheduler.shared_sites(later).count()), (4, 0));
    }

    #[test]
    fn opening_connections_in_excess_end_first() {
        let mut scheduler = with_messages(9);
        scheduler.set_share(b"mx", share(3, 1_000_000), NOW);
        let now = NOW + Duration::from_secs(1);
        let all = opened(&mut scheduler, now);
        assert_eq!(all.len(), 3);
        scheduler.greeted(all[0], now);
        scheduler.set_share(b"mx", share(0, 0), now);
        assert_eq!(scheduler.drop_opening(b"mx", 3, &all), 1, "the greeted one is left");
        let mut closed = 0;
        while let Some(action) = scheduler.poll(now) {
            closed += u32::from(matches!(action, Action::Close(_)));
        }
        assert_eq!(closed, 2);
    }
}

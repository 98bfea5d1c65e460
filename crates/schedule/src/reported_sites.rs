//! Reports of other machines at the sites that they are about, and results of this machine (`site_report`).

use std::sync::Arc;
use std::time::Duration;

use crate::chance::Chance;
use crate::destination::Destination;
use crate::job::Failure;
use crate::pool::Connection;
use crate::scheduler::Scheduler;
use crate::settings::{Settings, jitter};
use crate::site::{DownState, Site, truncated};
use crate::site_report::{AppliedReport, ReportEffect, SiteChange, SiteReport, SiteResult};

impl Scheduler {
    /// Collects results that other machines should know from now on, for
    /// [`take_site_changes`](Self::take_site_changes).
    pub fn collect_site_changes(&mut self) {
        self.site_changes.get_or_insert_default();
    }

    /// Takes the results of this machine that others should know, in their order.
    pub fn take_site_changes(&mut self) -> Vec<SiteChange> {
        self.site_changes.as_mut().map(std::mem::take).unwrap_or_default()
    }

    /// Returns whether a site is known.
    #[must_use]
    pub fn has_site(&self, site: &[u8]) -> bool {
        self.site_names.get(site).is_some()
    }

    /// Takes a report of another machine. The same report may be given again, as after a look-up.
    #[must_use]
    pub fn site_reported(&mut self, site: &[u8], report: &SiteReport<'_>, now: Duration) -> ReportEffect {
        let Some(id) = self.site_names.get(site) else { return ReportEffect::Nothing };
        let Some(site) = self.sites.get_mut(&id) else { return ReportEffect::Nothing };
        if site.is_live() {
            return ReportEffect::Contradicted;
        }
        site.is_reported = true;
        let Some((until, limit)) = site.until_by(report, &self.settings, now, &mut self.chance) else {
            return ReportEffect::Nothing;
        };
        if self.has_deadlines {
            // An attempt must not come too late by a report.
            let of_site = self.destinations.values().filter(|destination| destination.site == Some(id));
            if of_site.filter_map(Destination::next_deadline).any(|at| at < until) {
                return ReportEffect::Nothing;
            }
        }
        let is_new = site.put_off(report, (until, limit), &self.settings, now);
        self.dirty.add_site(id, site);
        ReportEffect::PutOff { jobs: self.drain_site(id, false, now), is_new }
    }

    /// Another machine has reached a site: a wait by reports ends, and so does a back-off of this machine, if that
    /// happened to it for the last time longer ago than the longest back-off. Returns whether something ended.
    pub fn site_reported_up(&mut self, site: &[u8], now: Duration) -> bool {
        let Some(id) = self.site_names.get(site) else { return false };
        let Some(site) = self.sites.get_mut(&id) else { return false };
        let ended = site.reported_up(&self.settings, now);
        if ended {
            self.dirty.add_site(id, site);
        }
        ended
    }
}

impl Site {
    /// Returns whether a failure or a report came after its last finished transaction.
    pub(crate) const fn is_in_doubt(&self) -> bool {
        self.doubted || self.is_reported
    }

    /// Returns the machine by whose report it is down, or down for longer.
    pub(crate) fn reported_by(&self) -> Option<u16> {
        self.down.as_ref()?.report.as_ref().map(|report| report.by)
    }

    /// Returns whether connections work.
    fn is_live(&self) -> bool {
        let silent = self.counts.stalled + self.counts.at_bad_host;
        self.down.is_none() && !self.doubted && self.counts.greeted() > silent
    }

    /// Returns until when a report puts the next attempt off, and the time beyond which none does so; `None` if it has
    /// no effect.
    fn until_by(
        &self,
        report: &SiteReport<'_>,
        settings: &Settings,
        now: Duration,
        chance: &mut Chance,
    ) -> Option<(Duration, Duration)> {
        if self.is_forced || self.counts.total() > 0 || report.until <= now {
            return None;
        }
        let (limit, before) = match &self.down {
            Some(down) => (down.report_limit, down.until),
            None => (now + jitter(settings.down_max, chance.next()), now),
        };
        let until = report.until.min(limit);
        (until > before.max(now)).then_some((until, limit))
    }

    /// Puts the next attempt off. Returns whether it was not down before.
    fn put_off(
        &mut self,
        report: &SiteReport<'_>,
        (until, report_limit): (Duration, Duration),
        settings: &Settings,
        now: Duration,
    ) -> bool {
        let applied = AppliedReport { by: report.by, since: now, step: step_of(report.wait, settings.down_first) };
        // Afterwards the queue drains over one connection until a message is answered, as after a failure.
        self.doubted = true;
        let Some(down) = &mut self.down else {
            let (why, own_until, report) = (truncated(report.why), None, Some(applied));
            self.down = Some(Box::new(DownState { why, until, greets: false, own_until, report_limit, report }));
            return true;
        };
        if down.is_only_reported() {
            down.why = truncated(report.why);
        }
        down.until = until;
        down.report = Some(applied);
        false
    }

    /// Ends a wait by reports alone: an attempt follows at once.
    pub(crate) fn end_report(&mut self) {
        if let Some(down) = self.down.as_mut().filter(|down| down.is_only_reported())
            && let Some(report) = &down.report
        {
            (down.until, down.report_limit) = (down.until.min(report.since), report.since);
        }
    }

    /// Returns whether only reports keep it down, and until after this time.
    pub(crate) fn has_report_beyond(&self, at: Duration) -> bool {
        self.down.as_ref().is_some_and(|down| down.is_only_reported() && at < down.until)
    }

    fn reported_up(&mut self, settings: &Settings, now: Duration) -> bool {
        self.is_reported = false;
        let Some(down) = &mut self.down else { return false };
        let Some(own_until) = down.own_until else {
            self.down = None;
            return true;
        };
        let before = down.until;
        let may_end = self.up_taken_at.is_none_or(|at| now >= at.saturating_add(settings.down_max));
        if may_end && before > now {
            (down.until, self.up_taken_at) = (now, Some(now));
        } else {
            down.until = before.min(own_until);
        }
        down.report = None;
        down.until < before
    }
}

/// Returns whether other machines should know a failure: the site was not reached, or said that it takes less. Other
/// failures after the greeting may be those of a message.
pub(crate) const fn concerns_others(ended: &Connection, failure: Failure) -> bool {
    match failure {
        Failure::Throttled => true,
        Failure::Refused | Failure::Silent | Failure::Tls => ended.phase.is_opening(),
        Failure::Broken | Failure::Local => false,
    }
}

/// Records a result that other machines should know.
pub(crate) fn record(changes: &mut Option<Vec<SiteChange>>, site: &Site, result: SiteResult) {
    if let Some(changes) = changes {
        changes.push(SiteChange { site: Arc::clone(&site.name), result });
    }
}

/// Returns the step of a back-off, from 1, whose wait this is. Waits differ from their step by a quarter.
fn step_of(wait: Duration, first: Duration) -> u32 {
    let firsts = wait.as_micros().saturating_mul(4) / 3 / first.as_micros().max(1);
    1 + firsts.max(1).ilog2()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::settings::back_off;

    #[test]
    fn a_wait_is_of_the_step_that_made_it() {
        let (first, longest) = (Duration::from_secs(60), Duration::from_secs(1 << 30));
        for step in 1..=20 {
            for seed in 0..100 {
                assert_eq!(step_of(back_off(step, first, longest, seed), first), step);
            }
        }
        assert_eq!(step_of(Duration::ZERO, first), 1);
        assert!(step_of(Duration::MAX, Duration::ZERO) < 200);
    }
}

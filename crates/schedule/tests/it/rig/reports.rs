//! Reports between rigs, as between the nodes of a cluster.

use std::time::Duration;

use schedule::{ReportEffect, SiteReport, SiteResult};

use super::Rig;

impl Rig {
    /// Returns the sites with a new result, and the back-off of those that are down.
    pub fn results(&mut self) -> Vec<(usize, Option<Duration>)> {
        let mut results = Vec::new();
        for change in self.scheduler.take_site_changes() {
            let name = String::from_utf8(change.site.to_vec()).unwrap();
            let site = name.strip_prefix("site-").unwrap().parse().unwrap();
            self.heard.remove(&site);
            results.push(match change.result {
                SiteResult::Up => (site, None),
                SiteResult::Down { wait, .. } => (site, Some(wait)),
            });
        }
        results
    }

    /// Takes a result of another rig.
    pub fn hear(&mut self, by: u16, site: usize, wait: Option<Duration>) {
        if let Some(wait) = wait {
            let spread = u32::try_from(self.chance(250)).unwrap();
            let until = self.now + wait + wait / 8 + wait * spread / 1_000;
            self.heard.insert(site, (by, wait, until));
            self.apply_report(site);
        } else {
            self.heard.remove(&site);
            self.scheduler.site_reported_up(format!("site-{site}").as_bytes(), self.now);
        }
        self.settle();
    }

    /// Tells the scheduler of the report on a site, if there is one.
    pub(super) fn apply_report(&mut self, site: usize) {
        let Some((by, wait, until)) = self.heard.get(&site).copied().filter(|heard| heard.2 > self.now) else { return };
        let report = SiteReport { by, why: "another node reports it", wait, until };
        let effect = self.scheduler.site_reported(format!("site-{site}").as_bytes(), &report, self.now);
        if let ReportEffect::PutOff { jobs, .. } = effect {
            self.check_left(&jobs);
        }
    }
}

//! Limits of next hops that the nodes of a cluster keep together (`docs/cluster.md`, *Shared limits*).
//!
//! Some times in a second this node reports what it does at each next hop with such a limit, and gets its share until
//! the next report. A share that shrinks counts for what begins after it. When this node cannot renew its share, the
//! connections above its reserve end before others may use them: idle and opening ones at once, the others before the
//! end of the content. One whose peer has a whole message may end with its answer.

use super::Dispatch;
use super::site_names::name_in_cluster;
use cluster::LimitUse;
use schedule::{ConnectionId, SharedSite, SiteShare};
use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Weak};
use std::time::Duration;

/// Time between two reports: a lapsed lease is noticed well within the second that others wait longer.
const REPORT_INTERVAL: Duration = Duration::from_millis(200);

/// Transactions that each site had started at the last report.
type Started = HashMap<Arc<[u8]>, u64>;

/// Keeps the shares of this node until the dispatcher is gone.
pub(crate) async fn keep_shares(dispatch: Weak<Dispatch>) {
    let mut started = Started::new();
    let mut ticks = tokio::time::interval(REPORT_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        ticks.tick().await;
        let Some(dispatch) = dispatch.upgrade() else { return };
        dispatch.renew_shares(&mut started);
    }
}

impl Dispatch {
    /// Reports what the sites with shared limits do, and sets their shares.
    fn renew_shares(&self, started: &mut Started) {
        let now = self.now();
        let sites: Vec<SharedSite> = self.lock().scheduler.shared_sites(now).collect();
        let mut limits: BTreeMap<String, Vec<SharedSite>> = BTreeMap::new();
        for site in sites {
            limits.entry(name_in_cluster(&site.name)).or_default().push(site);
        }
        let before = std::mem::take(started);
        for (name, sites) in limits {
            started.extend(sites.iter().map(|site| (Arc::clone(&site.name), site.started)));
            self.renew_share(&name, &sites, &before);
        }
    }

    /// Reports on the sites of one limit: those of the same hosts that differ in their source address or name here.
    fn renew_share(&self, name: &str, sites: &[SharedSite], before: &Started) {
        let Some(member) = self.context.message_store.cluster() else { return };
        let takes_part = !member.is_draining() && !self.context.stop.has_begun();
        let limit = |of: fn(&SharedSite) -> u32| sites.iter().map(of).min().unwrap_or(0);
        let sum = |of: &dyn Fn(&SharedSite) -> u32| sites.iter().fold(0_u32, |sum, site| sum.saturating_add(of(site)));
        let began = |site: &SharedSite| {
            let since = site.started - before.get(&site.name).copied().unwrap_or(site.started).min(site.started);
            u32::try_from(since).unwrap_or(u32::MAX)
        };
        let connections = LimitUse {
            limit: limit(|site| site.limits.connections),
            demand: if takes_part { sum(&|site| site.wanted.max(site.connections)) } else { 0 },
            in_use: sum(&|site| site.connections),
            granted: sum(&|site| site.share.connections),
            messages: sum(&began),
        };
        let grant = member.use_limit(&format!("connections/{name}"), connections);
        let rate = sites.iter().filter_map(|site| site.limits.messages_per_second).min().map(|limit| {
            let wanted = |site: &SharedSite| site.work.min(site.wanted.saturating_mul(1_000)).saturating_mul(1_000);
            let rate = LimitUse {
                limit,
                demand: if takes_part { sum(&wanted).min(limit) } else { 0 },
                in_use: 0,
                granted: sum(&|site| site.share.messages_per_second.unwrap_or(0)),
                messages: connections.messages,
            };
            member.use_limit(&format!("rate/{name}"), rate).amount
        });
        self.divide(sites, grant.amount, rate);
        if grant.excess > 0 {
            sites.iter().fold(grant.excess, |left, site| self.shed(&site.name, left.min(site.connections)));
        }
    }

    /// Divides what this node may use among its sites, in their order.
    fn divide(&self, sites: &[SharedSite], mut connections: u32, mut rate: Option<u32>) {
        let count = u32::try_from(sites.len()).unwrap_or(u32::MAX);
        self.with_scheduler(|scheduler, now| {
            for (site, left) in sites.iter().zip((1..=count).rev()) {
                // The last one gets the rest, so that a site alone may begin what it did not ask for yet.
                let of = |amount: u32, wanted: u32| if left == 1 { amount } else { amount.min(wanted) };
                let share = SiteShare {
                    connections: of(connections, site.wanted.max(site.connections)),
                    messages_per_second: rate.map(|rate| of(rate, rate.div_ceil(left))),
                };
                connections -= share.connections;
                rate = rate.map(|rate| rate - share.messages_per_second.unwrap_or(0));
                scheduler.set_share(&site.name, share, now);
            }
        });
    }

    /// Ends connections of a site that this node has no share for any more, the newest first. Returns how many were not
    /// found.
    fn shed(&self, site: &[u8], excess: u32) -> u32 {
        let name = String::from_utf8_lossy(site);
        self.with_state(|state, _| {
            let is_it = |names: &[String]| names.get(1).is_some_and(|one| **one == *name);
            let posts = state.posts.iter().filter(|(_, post)| is_it(&post.names));
            let mut posts: Vec<_> = posts.map(|(id, post)| (*id, Arc::clone(post))).collect();
            posts.sort_unstable_by_key(|(_, post)| std::cmp::Reverse(post.number));
            let all: Vec<ConnectionId> = posts.iter().map(|(id, _)| *id).collect();
            let mut left = state.scheduler.drop_opening(site, excess, &all);
            for (_, post) in posts.iter().filter(|(id, _)| !state.scheduler.messages_of(*id).is_empty()) {
                if left > 0 {
                    post.is_shed.store(true, Ordering::Release);
                    post.bell.notify_one();
                    left -= 1;
                }
            }
            left
        })
    }
}

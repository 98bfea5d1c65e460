//! The side of dispatch that serves the queue commands: their questions and their orders.

use super::{Dispatch, micros};
use mail::QueueId;
use operator::queue::{
    Bounced, DeliveryControl, DestinationState, Destinations, DownState, RecipientSelection, WaitCause,
};
use schedule::{Health, SiteView};
use spool::Store as _;
use std::sync::Arc;
use std::time::Duration;

impl DeliveryControl for Dispatch {
    fn released(&self, destinations: Destinations<'_>) {
        self.retry(destinations);
    }

    fn retry(&self, destinations: Destinations<'_>) {
        let all: Vec<_>;
        let names = match destinations {
            Destinations::These(names) => names,
            Destinations::All => {
                all = self.spool.destinations().into_iter().map(|(name, _)| name).collect();
                &all
            }
        };
        self.with_scheduler(|scheduler, now| {
            for name in names {
                scheduler.restore(name, now);
                scheduler.retry_now(Some(name), now);
            }
        });
    }

    fn now_us(&self) -> u64 {
        micros(self.now())
    }

    fn counts_from_us(&self, id: QueueId) -> u64 {
        micros(self.clock.counts_from(Duration::from_micros(id.unix_us())))
    }

    fn reason(&self, id: QueueId, recipient: u32) -> Option<String> {
        self.settler.reasons.get(id, recipient).map(|(_, text)| text.to_string())
    }

    fn unsent(&self, id: QueueId, recipient: u32) -> u32 {
        self.settler.reasons.unsent_attempts(id, recipient)
    }

    fn reason_kind(&self, id: QueueId, recipient: u32) -> Option<observe::Reason> {
        self.settler.reasons.get(id, recipient).map(|(reason, _)| reason)
    }

    fn filter_failure(&self, filters: &str) -> Option<String> {
        self.filter_failures.get()?.upgrade()?.failure(filters)
    }

    fn is_active(&self, id: QueueId, recipient: u32) -> bool {
        self.lock().scheduler.is_in_flight(id, recipient)
    }

    fn bounce(&self, meant: Vec<RecipientSelection>, why: &str) -> Option<Vec<Bounced>> {
        self.bounce_some(meant, Arc::from(why)).blocking_recv().ok()
    }

    fn destination(&self, name: &[u8]) -> Option<DestinationState> {
        let now = self.now();
        let state = self.lock();
        let view = state.scheduler.destination_view(name)?;
        let site = state.scheduler.site_view(name, now);
        let most = state.config.delivery.connections_max;
        drop(state);
        let has_work = view.ready > 0 || view.more;
        let waits = site.filter(|_| has_work).and_then(|site| waits_of(&site, most, now));
        let down = match view.health {
            Health::Down { why, until } => Some(DownState { why: why.to_string(), retry_at: until }),
            Health::Up | Health::Idle => None,
        };
        let count = |number: usize| u64::try_from(number).unwrap_or(u64::MAX);
        Some(DestinationState {
            down,
            connections: count(view.connections),
            in_flight: count(view.in_flight),
            site: view.site.map(|site| String::from_utf8_lossy(&site).into_owned()),
            is_slow: view.lane == schedule::Lane::Slow,
            window: view.window.into(),
            rate: view.limits.and_then(|limits| limits.messages_per_second),
            pace: view.pace,
            waits,
            ready: count(view.ready),
            has_more: view.more,
        })
    }
}

/// Returns the cause for which mail of a site waits; none, if it is delivered as it comes.
fn waits_of(site: &SiteView, most: u32, now: Duration) -> Option<WaitCause> {
    if let Some(since) = site.waits_since {
        return Some(WaitCause::Connection { since: now.saturating_sub(since), most });
    }
    let rate = site.limits.messages_per_second.unwrap_or(u32::MAX);
    let is_learned = site.pace.is_some_and(|pace| pace < rate);
    site.waits_for_rate.then_some(if is_learned { WaitCause::Pace } else { WaitCause::Rate })
}

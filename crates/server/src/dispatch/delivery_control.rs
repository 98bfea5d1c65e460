//! The side of dispatch that serves the queue commands: their questions and their orders.

use super::rehome::{MOVES_MAX, Moved, move_some};
use super::{Dispatch, micros};
use bytes::Bytes;
use mail::QueueId;
use operator::queue::{
    Bounced, DeliveryControl, DestinationState, Destinations, DownState, EndDoubt, GiveUpReason, RecipientSelection,
    Rerouted, Resubmission, ResubmitError, Resubmitted, Steering, WaitCause,
};
use route::destination::Destination;
use schedule::{Health, SiteView};
use spool::Store as _;
use std::sync::Arc;
use std::time::Duration;

/// Destinations that are made due while the scheduler is locked.
const NAMES_IN_A_ROW: usize = 200;
/// How a destination of other hosts is written.
const DESTINATION_FORMS: &str = "write a domain, an address in brackets, or hosts as in smtp:[192.0.2.1]:25";

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
        // Deliveries need the scheduler too.
        for some in names.chunks(NAMES_IN_A_ROW) {
            self.with_scheduler(|scheduler, now| {
                for name in some {
                    scheduler.restore(name, now);
                    scheduler.retry_now(Some(name), now);
                }
            });
        }
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

    fn read_destination(&self, text: &str) -> Result<Bytes, String> {
        match Destination::parse(text.as_bytes()) {
            Ok(destination) if destination.is_remote() => {
                Ok(Destination { is_rerouted: true, ..destination }.to_bytes().into())
            }
            Ok(_) => Err(format!("{text:?} is no destination of other hosts; {DESTINATION_FORMS}")),
            Err(error) => Err(format!("{text:?} is no destination: {error}; {DESTINATION_FORMS}")),
        }
    }

    fn reroute(
        &self,
        meant: &RecipientSelection,
        from: &[u8],
        to: &Bytes,
        due_s: u32,
    ) -> Result<Rerouted, spool::Error> {
        let homes: Vec<(u32, Vec<u8>)> = meant.recipients.iter().map(|position| (*position, to.to_vec())).collect();
        let mut rerouted = Rerouted::default();
        for some in homes.chunks(MOVES_MAX) {
            let (mut moved, mut outcome) = (Moved::default(), Ok(None));
            self.move_alone(&mut |scheduler| {
                outcome = move_some(&self.spool, from, meant.id, some, Some(due_s), scheduler, &mut moved);
            });
            rerouted.commit = outcome?.or(rerouted.commit);
            rerouted.moved += moved.count;
            rerouted.active += moved.left;
        }
        // Another node that adopts the message must not deliver it to the destination that it had.
        if rerouted.moved > 0
            && let Some(member) = self.context.message_store.cluster()
        {
            member.rerouted_in_log(meant.id);
        }
        Ok(rerouted)
    }

    fn doubt_about_end(&self, id: QueueId) -> Option<EndDoubt> {
        self.end_doubt(id)
    }

    fn steering(&self) -> Arc<Steering> {
        self.context.steering.orders()
    }

    fn change_steering(&self, change: &mut dyn FnMut(&Steering) -> Result<Steering, String>) -> Result<(), String> {
        self.context.steering.change(change)
    }

    fn bounce(&self, meant: Vec<RecipientSelection>, why: &GiveUpReason) -> Option<Vec<Bounced>> {
        self.bounce_some(meant, why.clone()).blocking_recv().ok()
    }

    fn resubmit(&self, order: Resubmission) -> Result<Resubmitted, ResubmitError> {
        let ended = || ResubmitError::NotStored("the server is going down".to_owned());
        self.resubmit_soon(order).blocking_recv().map_err(|_| ended())?
    }

    fn destination(&self, name: &[u8]) -> Option<DestinationState> {
        let now = self.now();
        let state = self.lock();
        let view = state.scheduler.destination_view(name)?;
        let site = state.scheduler.site_view(name, now);
        let most = state.config.delivery.connections_max;
        let set_limit = state.sites.peek(name).and_then(|site| site.rule.set_limit);
        drop(state);
        let set_limit = set_limit.and_then(|index| self.context.steering.orders().limits().get(index).cloned());
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
            reported_by: view.reported_by,
            set_limit,
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
    if site.share.is_some_and(|share| share.connections == 0 || share.messages_per_second == Some(0)) {
        return Some(WaitCause::Share);
    }
    let rate = site.limits.messages_per_second.unwrap_or(u32::MAX);
    let is_learned = site.pace.is_some_and(|pace| pace < rate);
    site.waits_for_rate.then_some(if is_learned { WaitCause::Pace } else { WaitCause::Rate })
}

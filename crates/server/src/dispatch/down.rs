//! Sites, and destinations without one, that cannot be reached: each is logged once when it goes down and once when it
//! is up again.

use super::{Dispatch, DispatchState};
use observe::Event;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Destinations that are remembered as down, at most, before those that the scheduler has forgotten are dropped.
const DOWN_MAX: usize = 10_000;
/// Time between two looks for destinations in `down` that the scheduler has forgotten.
const PURGE_INTERVAL: Duration = Duration::from_secs(60);

impl Dispatch {
    /// Logs once that a destination is up again.
    pub(super) fn note_up(&self, name: &Arc<[u8]>) {
        let since = self.lock().down.remove(name);
        if let Some(since) = since {
            let down = self.now().saturating_sub(since);
            self.context.record(&Event::DestinationUp { destination: &String::from_utf8_lossy(name), down });
        }
    }

    /// Logs once that a site is down, by one of its destinations.
    pub(super) fn note_down(&self, name: &Arc<[u8]>, destination: &Arc<[u8]>, why: &str) {
        let now = self.now();
        let mut state = self.lock();
        let Some(until) = state.scheduler.down_until(destination).filter(|_| !state.down.contains_key(name)) else {
            return;
        };
        if state.down.len() >= DOWN_MAX {
            let DispatchState { down, scheduler, purged, .. } = &mut *state;
            // Each purge looks at all of them. While there are too many, the log does not name each.
            if now < *purged + PURGE_INTERVAL {
                return;
            }
            *purged = now;
            let known: BTreeSet<Arc<[u8]>> = scheduler.site_views(now).map(|site| site.name).collect();
            down.retain(|name, _| known.contains(name) || scheduler.destination_view(name).is_some());
        }
        state.down.insert(Arc::clone(name), now);
        drop(state);
        let (destination, retry) = (&*String::from_utf8_lossy(name), until.saturating_sub(now));
        self.context.record(&Event::DestinationDown { destination, why, retry });
    }
}

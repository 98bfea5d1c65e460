//! Files of maps that change while the server runs.

use crate::dispatch::{self, Renewal};
use crate::outbound::Outbound;
use crate::routing::Routing;
use crate::routing::load::{self, Loaded};
use observe::Event;
use os::blocking;
use std::sync::Arc;
use std::time::Duration;

/// How often it is looked whether `maps.interval` has been set.
const OFF_INTERVAL: Duration = Duration::from_secs(5);

/// Looks at the files from time to time and puts changed ones in force, until the server stops.
pub(super) async fn watch(outbound: Arc<Outbound>) {
    let context = &outbound.context;
    let mut told = Vec::new();
    loop {
        let interval = context.live.load().config.maps.interval;
        tokio::select! {
            () = context.stop.begun() => return,
            () = tokio::time::sleep(if interval.is_zero() { OFF_INTERVAL } else { interval }) => {}
        }
        let routing = context.routing.load_full();
        if interval.is_zero() || routing.is_plain() {
            continue;
        }
        let config = context.live.load().config.clone();
        let old = Arc::clone(&routing);
        let looked =
            blocking::run(move || old.have_files_changed().then(|| load::load(&config, &old.lookups(), Some(&old))));
        match looked.await {
            Ok(Some(Ok(loaded))) => {
                told.clear();
                put_in_force(&outbound, &routing, loaded);
            }
            // Logged once, however often the files are checked.
            Ok(Some(Err(faults))) if faults != told => {
                for fault in &faults {
                    let text = format!("{fault}; all maps stay as they were");
                    context.record(&Event::ConfigWarning { text: &text });
                }
                told = faults;
            }
            Ok(_) | Err(_) => {}
        }
    }
}

/// Puts loaded maps in force, unless a reload came in between.
fn put_in_force(outbound: &Outbound, old: &Arc<Routing>, loaded: Loaded) {
    let context = &outbound.context;
    let Loaded { routing, notes, refused } = loaded;
    let leads_elsewhere = !routing.has_hosts_of(old);
    let before = context.routing.compare_and_swap(old, Arc::new(routing));
    if !Arc::ptr_eq(&before, old) {
        return;
    }
    for text in &refused {
        context.record(&Event::FileRefused { text });
    }
    for text in &notes {
        context.record(&Event::ConfigWarning { text });
    }
    let renewal = if leads_elsewhere { Renewal::of_maps() } else { Renewal::default() };
    context.record(&Event::Reloaded { path: "maps", retried: renewal.text().as_deref() });
    if let Some(dispatch) = &outbound.dispatch {
        dispatch::reconfigure(dispatch, &renewal);
    }
}

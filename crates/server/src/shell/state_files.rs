//! Writes the files of the spool directory that hold no mail: `hosts`, `replies` and `clock`.

use crate::outbound::Outbound;
use observe::{Event, Severity};
use os::blocking;
use std::sync::Arc;
use std::time::Duration;

/// How often they are written.
const SAVE_INTERVAL: Duration = Duration::from_secs(60);

/// Writes all of them once a minute until the server ends.
pub(crate) async fn save_periodically(outbound: Arc<Outbound>) {
    loop {
        tokio::select! {
            () = outbound.context.stop.begun() => return,
            () = tokio::time::sleep(SAVE_INTERVAL) => save(&outbound).await,
        }
    }
}

/// Writes them now.
///
/// # Cancel safety
/// Each file is the old one or the new one.
pub(crate) async fn save(outbound: &Arc<Outbound>) {
    let context = &outbound.context;
    if let Some(dispatch) = &outbound.dispatch {
        if let Some(text) = dispatch.look_at_clock() {
            context.record(&Event::Spool { severity: Severity::Warning, text: &text });
        }
        if context.stop.has_begun() {
            dispatch.clock.save_soon();
        }
    }
    let saver = Arc::clone(outbound);
    let saved = blocking::run(move || {
        let replies = saver.dispatch.as_ref().map_or(Ok(()), |dispatch| dispatch.settler.reasons.save());
        let last_time = saver.dispatch.as_ref().map_or(Ok(()), |dispatch| dispatch.clock.save());
        [saver.hosts.save(), replies, last_time]
    });
    // A panic is reported where it happens.
    for text in saved.await.into_iter().flatten().filter_map(Result::err) {
        context.record(&Event::Spool { severity: Severity::Warning, text: &text });
    }
}

//! Mail that waits goes to the destinations that it belongs to now, and is due there: at the start, and when the
//! configuration leads elsewhere.

use super::task::Task;
use super::{Dispatch, Renewal, rehome};
use crate::sabotage::{Sabotage, is_sabotaged};
use bytes::Bytes;
use observe::{Event, Severity};
use operator::queue::{DeliveryControl as _, Destinations};
use os::blocking;
use schedule::Scheduler;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

/// Pause before the next try to move mail of old smart hosts that is in progress.
const REHOME_AGAIN: Duration = Duration::from_secs(30);

/// Mail that is looked at after it was moved to its present destinations.
#[derive(Clone, Copy)]
pub(crate) enum Pass {
    /// All waiting mail, at the start. Mail that came since is in progress already.
    First,
    /// All waiting mail, and every host: the configuration has changed where it goes.
    Anew,
    /// The mail that was moved.
    Moved,
}

/// Moves mail to its present destinations, and makes it due there.
pub(crate) async fn restore(dispatch: &Arc<Dispatch>, pass: Pass) {
    #[cfg(test)]
    dispatch.passes.fetch_add(1, Ordering::Relaxed);
    let context = &dispatch.context;
    let (live, spool) = (context.live.load_full(), Arc::clone(&dispatch.spool));
    let (config, routing) = (live.config.clone(), context.routing.load_full());
    let dispatcher = Arc::clone(dispatch);
    let alone = move |step: &mut dyn FnMut(&mut Scheduler)| dispatcher.move_alone(step);
    let moved = Arc::new(Mutex::new(rehome::Moved::default()));
    let counts = Arc::clone(&moved);
    // The counts hold also for mail that was moved before an error or a panic.
    let outcome = blocking::run(move || rehome::rehome(&spool, &config, &routing, &alone, &counts));
    if let Ok(Err(error)) = outcome.await {
        let text = format!("mail that waits for old hosts cannot be given new destinations: {error}");
        context.record(&Event::Spool { severity: Severity::Error, text: &text });
    }
    let moved = std::mem::take(&mut *moved.lock().unwrap_or_else(PoisonError::into_inner));
    // With `delivery.mode = "queue"` the scheduler leaves alone mail that was not released.
    match pass {
        Pass::First => dispatch.restore(false),
        Pass::Anew => dispatch.restore(true),
        Pass::Moved => {
            let names: Vec<Bytes> = moved.to.into_iter().map(Bytes::from).collect();
            dispatch.retry(Destinations::These(&names));
        }
    }
    // The next pass uses the configuration of its time: one pass is enough for all requests.
    let is_left = moved.left > 0;
    let is_left = is_left || is_sabotaged(Sabotage::PassOn);
    if is_sabotaged(Sabotage::PassEach) {
        dispatch.rehomes_again.store(false, Ordering::Release);
    }
    if is_left && !dispatch.rehomes_again.swap(true, Ordering::AcqRel) {
        tokio::select! {
            () = context.stop.begun() => {}
            () = tokio::time::sleep(REHOME_AGAIN) => {
                dispatch.rehomes_again.store(false, Ordering::Release);
                dispatch.send(Task::Rehome);
            }
        }
    }
}

/// Puts a new configuration in force for waiting mail.
pub(crate) fn reconfigure(dispatch: &Dispatch, renewal: &Renewal) {
    let context = &dispatch.context;
    dispatch.configure(&context.live.load().config, context.routing.load_full(), renewal);
    if !renewal.ways().is_empty() {
        dispatch.send(Task::Restore);
    }
}

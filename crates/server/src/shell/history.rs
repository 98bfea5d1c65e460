//! The history: starts it, and feeds it with windows of the statistics.

use super::start_error::StartError;
use crate::config::Config;
use crate::context::Context;
use crate::log::Log;
use observe::{Event, Severity};
use operator::history::{EarlierRuns, History, HistorySettings};
use os::{blocking, clock};
use std::sync::Arc;
use std::time::Duration;

/// How often windows of the statistics are kept.
const WINDOWS_INTERVAL: Duration = Duration::from_secs(5);

/// Starts the history, if the configuration has one.
///
/// # Errors
/// The system gives no thread.
pub(super) fn start_history(config: &Config, log: &Log) -> Result<Option<(History, EarlierRuns)>, StartError> {
    let Some(path) = config.history.path.clone() else { return Ok(None) };
    let bounds = &config.history;
    let (days, messages_max, size_max) = (bounds.days.into(), bounds.messages_max, bounds.size_max);
    let settings = HistorySettings { path, days, messages_max, size_max };
    let log = log.clone();
    let notify = move |text: &str| log.event(&Event::Spool { severity: Severity::Warning, text });
    let started = History::start(settings, notify);
    let failed = |error| StartError::Unavailable(format!("cannot start a thread for the history: {error}"));
    started.map(Some).map_err(failed)
}

/// Hands windows of the statistics to the history until the server has ended.
pub(super) async fn keep_windows(context: Arc<Context>) {
    let Some(history) = &context.history else { return };
    let mut from = present_windows();
    loop {
        tokio::time::sleep(WINDOWS_INTERVAL).await;
        let (windows, last) = context.live_statistics.windows_from(from);
        from = last;
        history.record_windows(windows);
    }
}

/// Writes the last windows and entries, and ends the history.
pub(super) async fn close_history(context: &Arc<Context>) {
    if context.history.is_none() {
        return;
    }
    let context = Arc::clone(context);
    let closing = blocking::run(move || {
        let Some(history) = &context.history else { return };
        let [second, minute, hour] = present_windows();
        let last = [second - i64::try_from(2 * WINDOWS_INTERVAL.as_secs()).unwrap_or(0), minute - 60, hour];
        history.record_windows(context.live_statistics.windows_from(last).0);
        history.close();
    });
    // A panic is reported where it happens.
    drop(closing.await);
}

/// The beginnings of the present windows in civil time.
fn present_windows() -> [i64; 3] {
    let (unix_us, offset) = civil_clock();
    let now = i64::try_from(unix_us / 1_000_000).unwrap_or(0) + offset;
    [1, 60, 3_600].map(|step| now - now.rem_euclid(step))
}

/// The time in microseconds since 1970, and how far civil time is ahead of it in seconds.
pub(super) fn civil_clock() -> (u64, i64) {
    let unix_us = clock::unix_us();
    (unix_us, clock::local_offset_seconds(unix_us).into())
}

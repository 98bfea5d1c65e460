//! The limits of the scheduler, from the configuration.

use crate::config::{Config, DeliveryMode};
use crate::sabotage::{Sabotage, is_sabotaged};
use schedule::{ClockSteps, Settings};
use std::time::Duration;

/// Initial number of connections to a destination whose state is unknown.
const WINDOW_START: u32 = 5;
/// Jobs of a destination that are in memory while they wait.
pub(super) const READY_MAX: usize = 1_024;
/// Destinations whose hosts are looked up at a time; the resolver has its own bounds for slow look-ups.
const RESOLVES_MAX: usize = 2_048;
/// The first pause before a destination that cannot be reached is tried again, which doubles up to
/// `delivery.retry_max`.
const DOWN_FIRST: Duration = Duration::from_secs(60);

/// Returns the scheduler's limits as they are configured.
pub(super) fn settings(config: &Config, clock_steps: ClockSteps) -> Settings {
    let delivery = &config.delivery;
    let count = |number: u32| usize::try_from(number).unwrap_or(usize::MAX);
    let retry_max = delivery.retry_max.min(if is_sabotaged(Sabotage::Tireless) { DOWN_FIRST } else { Duration::MAX });
    let (learn_pace, isolate_lists) = (!is_sabotaged(Sabotage::NoPace), !is_sabotaged(Sabotage::ListsAhead));
    Settings {
        connections_max: count(delivery.connections_max),
        silent_max: count(delivery.connections_silent_max),
        window_start: WINDOW_START.min(delivery.connections_per_destination),
        ready_max: READY_MAX,
        jobs_max: count(delivery.jobs_max),
        resolves_max: RESOLVES_MAX,
        down_first: DOWN_FIRST.min(delivery.retry_first),
        down_max: retry_max,
        warn_after: Some(delivery.warn_after).filter(|after| !after.is_zero()),
        give_up_after: delivery.give_up_after,
        learn_pace,
        isolate_lists,
        hold_fresh: delivery.mode == DeliveryMode::Queue,
        clock_steps,
        ..Settings::default()
    }
}

//! The time that a worker rests before it takes up a message, so that filters after the 250 leave the processors to
//! intake.
//!
//! A task of the server that is ready to run waits until a processor is free for it. While there are enough, that takes
//! microseconds. One such wait says little: also on a busy machine most of them are short. So the workers share the
//! longest one of late ([`ProcessorShortage`]), and each rest is many times as long. The filters, which may be programs
//! of this machine, get what intake leaves over; and nothing has to be known about the machine.
//!
//! That must not delay mail for long: a message that came a while ago, and one of a backlog at which the 250 is delayed
//! already, get no rest.

use super::ScreenQueue;
use mail::QueueId;
use os::clock;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The rest for each wait for a processor.
const RESTS_EACH: u32 = 64;
/// Waits below this are those of a machine with processors to spare.
const WAIT_MIN: Duration = Duration::from_micros(100);
/// The longest rest.
const REST_MAX: Duration = Duration::from_millis(200);
/// The age of a message from which on it gets no rest.
const AGE_MAX: Duration = Duration::from_secs(5);

/// Time in which a wait loses half of its weight.
const HALF_LIFE: Duration = Duration::from_millis(100);

/// The longest wait for a processor of late: half of it counts after [`HALF_LIFE`], a quarter after twice that.
#[derive(Debug, Default)]
pub(super) struct ProcessorShortage {
    longest: Mutex<Option<(Duration, Instant)>>,
}

impl ProcessorShortage {
    /// Adds a wait that is over now. Returns the longest one of late.
    fn add(&self, waited: Duration, now: Instant) -> Duration {
        let mut longest = self.longest.lock().unwrap_or_else(PoisonError::into_inner);
        let before = longest.map_or(Duration::ZERO, |(wait, at)| {
            let halves = now.saturating_duration_since(at).as_millis() / HALF_LIFE.as_millis();
            wait / 2_u32.saturating_pow(u32::try_from(halves).unwrap_or(u32::MAX))
        });
        if waited >= before {
            *longest = Some((waited, now));
        }
        waited.max(before)
    }
}

/// Rests before a message, if processors are short.
///
/// # Cancel safety
/// Yes.
pub(super) async fn rest(queue: &ScreenQueue, id: QueueId) {
    let age = queue.context.unix_now().saturating_sub(Duration::from_micros(id.unix_us()));
    if age >= AGE_MAX || !queue.delay().is_zero() {
        return;
    }
    let ready = clock::now();
    tokio::task::yield_now().await;
    let now = clock::now();
    let time = rest_after(queue.shortage.add(now.saturating_duration_since(ready), now));
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

/// Returns the rest while the longest wait for a processor is so long.
fn rest_after(waited: Duration) -> Duration {
    match waited < WAIT_MIN {
        true => Duration::ZERO,
        false => waited.saturating_mul(RESTS_EACH).min(REST_MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rests_grow_with_the_wait_up_to_their_limit() {
        let rests = [0, 99, 100, 1_000, 100_000].map(|us| rest_after(Duration::from_micros(us)).as_micros());
        assert_eq!(rests, [0, 0, 6_400, 64_000, 200_000]);
    }

    #[test]
    fn a_long_wait_counts_for_a_while() {
        let (shortage, start) = (ProcessorShortage::default(), clock::now());
        let add = |us, ms| shortage.add(Duration::from_micros(us), start + Duration::from_millis(ms)).as_micros();
        assert_eq!([add(4_000, 0), add(50, 10), add(50, 100), add(50, 250)], [4_000, 4_000, 2_000, 1_000]);
        assert_eq!([add(1_500, 260), add(50, 300), add(50, 100_000)], [1_500, 1_500, 50]);
    }
}

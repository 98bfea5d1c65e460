//! The time that a worker rests before it takes up a message, so that filters after the 250 leave the processors to
//! intake.
//!
//! A task of the server that is ready to run waits until a processor is free for it. While there are enough, that takes
//! microseconds. Where they are short, each rest is many times as long as the wait, so that the filters, which may be
//! programs of this machine, get what intake leaves over; and nothing has to be known about the machine.
//!
//! That must not delay mail for long: a message that came a while ago, and one of a backlog at which the 250 is delayed
//! already, get no rest.

use super::ScreenQueue;
use mail::QueueId;
use os::clock;
use std::time::Duration;

/// The rest for each wait for a processor.
const RESTS_EACH: u32 = 64;
/// Waits below this are those of a machine with processors to spare.
const WAIT_MIN: Duration = Duration::from_micros(100);
/// The longest rest.
const REST_MAX: Duration = Duration::from_millis(200);
/// The age of a message from which on it gets no rest.
const AGE_MAX: Duration = Duration::from_secs(5);

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
    let time = rest_after(clock::now().saturating_duration_since(ready));
    if !time.is_zero() {
        tokio::time::sleep(time).await;
    }
}

/// Returns the rest after a wait for a processor.
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
}

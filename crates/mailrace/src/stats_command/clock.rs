//! The time of this machine as logs show it, and the one place where the command waits.

use os::clock;
use std::time::Duration;

/// Returns the present as seconds of civil time.
pub(super) fn civil_now() -> i64 {
    civil_of(clock::unix_us() / 1_000_000)
}

/// Returns the civil time of seconds since 1970.
pub(super) fn civil_of(unix: u64) -> i64 {
    let offset = clock::local_offset_seconds(unix.saturating_mul(1_000_000));
    i64::try_from(unix).unwrap_or(i64::MAX / 2) + i64::from(offset)
}

/// Returns the name of the zone at a civil time, as `MST`.
pub(super) fn zone_at(civil: i64) -> String {
    let now = clock::unix_us();
    let unix = civil.saturating_sub(clock::local_offset_seconds(now).into());
    clock::zone_name(u64::try_from(unix).unwrap_or(0).saturating_mul(1_000_000))
}

/// Returns the seconds that civil time is ahead of UTC now.
pub(super) fn offset_now() -> i64 {
    clock::local_offset_seconds(clock::unix_us()).into()
}

/// Waits.
#[expect(clippy::disallowed_methods, reason = "this is the clock module, and the file or server is asked again then")]
pub(super) fn pause(time: Duration) {
    std::thread::sleep(time);
}

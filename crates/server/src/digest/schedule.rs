//! The times of digests, and the file that keeps the last one. No clock.

use crate::config::DigestTime;

/// Seconds of a day.
const DAY: u64 = 86_400;
/// How far the time of the last digest may lie ahead: the clock may have been set back a little since.
const AHEAD_MAX: u64 = 3_600;
/// The first words of the file.
const HEAD: &str = "mailrace digest 1 ";

/// Returns the time of the digest that follows one at `last`. All times are seconds since 1970; `offset`: seconds by
/// which local time is ahead.
pub(super) fn next_time(time: DigestTime, last: u64, offset: i32) -> u64 {
    match time {
        DigestTime::Every(every) => last.saturating_add(every.as_secs().max(1)),
        DigestTime::Daily(after_midnight) => {
            let local = last.saturating_add_signed(offset.into());
            let of_day = local / DAY * DAY + after_midnight.as_secs();
            let next = if of_day > local { of_day } else { of_day + DAY };
            next.saturating_add_signed(-i64::from(offset))
        }
    }
}

/// Returns whether the time of the last digest can be right. One far ahead is of a clock that was wrong, and no digest
/// would come until then.
pub(super) const fn is_believed(last: u64, now: u64) -> bool {
    last <= now.saturating_add(AHEAD_MAX)
}

/// Returns the content of the file.
pub(super) fn time_text(last: u64) -> Vec<u8> {
    format!("{HEAD}{last}\n").into_bytes()
}

/// Reads the content of the file; `None`: it is damaged.
pub(super) fn read_time(text: &[u8]) -> Option<u64> {
    str::from_utf8(text).ok()?.strip_prefix(HEAD)?.strip_suffix('\n')?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn a_daily_digest_has_its_time_of_the_local_day() {
        let eight = DigestTime::Daily(Duration::from_secs(8 * 3_600));
        let day = 20_000 * DAY;
        for (last, offset, next) in [
            (day, 0, day + 8 * 3_600),
            (day + 8 * 3_600 - 1, 0, day + 8 * 3_600),
            (day + 8 * 3_600, 0, day + DAY + 8 * 3_600),
            (day, 3_600, day + 7 * 3_600),
            (day + 23 * 3_600, 3_600, day + DAY + 7 * 3_600),
            (day, -5 * 3_600, day + 13 * 3_600),
            // The server was off for days: one digest is due.
            (day - 9 * DAY, 0, day - 9 * DAY + 8 * 3_600),
        ] {
            assert_eq!(next_time(eight, last, offset), next, "{last} {offset}");
        }
        assert_eq!(next_time(DigestTime::Every(Duration::from_secs(90)), day, 3_600), day + 90);
    }

    #[test]
    fn a_time_of_a_wrong_clock_puts_no_digest_off() {
        let now = 20_000 * DAY;
        assert!(is_believed(0, now) && is_believed(now, now) && is_believed(now + 60, now), "a small step back");
        assert!(!is_believed(now + DAY, now) && !is_believed(u64::MAX, now));
    }

    #[test]
    fn the_file_reads_back() {
        assert_eq!(read_time(&time_text(1_790_000_000)), Some(1_790_000_000));
        for text in ["", "mailrace digest 1 ", "mailrace digest 1 x\n", "mailrace digest 2 7\n", "mailrace digest 1 7"]
        {
            assert_eq!(read_time(text.as_bytes()), None, "{text:?}");
        }
    }
}

//! Moments as the header of a report and its reader want them, in local time.

use crate::civil::CivilTime;
use crate::decimal::{push_decimal, push_two_digits};

const DAYS: [&str; 7] = ["Thursday", "Friday", "Saturday", "Sunday", "Monday", "Tuesday", "Wednesday"];
const MONTHS: [&str; 12] = [
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
/// 9999-12-31: later moments are no moments.
const LAST_SECOND: i64 = 253_402_214_400;

/// A moment taken apart.
struct Local {
    civil: CivilTime,
    day: &'static str,
    month: &'static str,
    /// Whole minutes east of UTC.
    zone_minutes: i64,
}

impl Local {
    fn new(unix_us: u64, offset_seconds: i32) -> Self {
        // A zone that is none counts as UTC.
        let zone_minutes = if offset_seconds.unsigned_abs() < 86_400 { i64::from(offset_seconds / 60) } else { 0 };
        let unix = i64::try_from(unix_us / 1_000_000).unwrap_or(LAST_SECOND).min(LAST_SECOND);
        let seconds = unix + zone_minutes * 60;
        let civil = CivilTime::from_unix(seconds);
        let name = |names: &[&'static str], at: i64| {
            usize::try_from(at).ok().and_then(|at| names.get(at).copied()).unwrap_or("?")
        };
        let day = name(&DAYS, seconds.div_euclid(86_400).rem_euclid(7));
        let month = name(&MONTHS, civil.month - 1);
        Self { civil, day, month, zone_minutes }
    }
}

/// For a field: `Fri, 20 Nov 2026 16:35:11 +0100`.
// RFC 5322 §3.3
pub(crate) fn for_field(unix_us: u64, offset_seconds: i32) -> String {
    let Local { civil, day, month, zone_minutes } = Local::new(unix_us, offset_seconds);
    // Each trace field has one: written without `core::fmt`.
    let mut text = String::with_capacity("Fri, 20 Nov 2026 16:35:11 +0100".len());
    let short = |name: &'static str| name.get(..3).unwrap_or(name);
    text.push_str(short(day));
    text.push_str(", ");
    push_decimal(&mut text, civil.day.unsigned_abs());
    text.push(' ');
    text.push_str(short(month));
    text.push(' ');
    push_decimal(&mut text, civil.year.unsigned_abs());
    for (separator, number) in [(' ', civil.hour), (':', civil.minute), (':', civil.second)] {
        text.push(separator);
        push_two_digits(&mut text, number.unsigned_abs());
    }
    text.push_str(if zone_minutes < 0 { " -" } else { " +" });
    push_two_digits(&mut text, zone_minutes.unsigned_abs() / 60);
    push_two_digits(&mut text, zone_minutes.unsigned_abs() % 60);
    text
}

/// As the `From ` line of a mailbox file has it, in local time: `Fri Nov 20 16:35:11 2026`.
// RFC 4155 §A
#[must_use]
pub fn for_mbox(unix_us: u64, offset_seconds: i32) -> String {
    let Local { civil, day, month, .. } = Local::new(unix_us, offset_seconds);
    let CivilTime { year, day: day_of_month, hour, minute, second, .. } = civil;
    format!("{day:.3} {month:.3} {day_of_month:2} {hour:02}:{minute:02}:{second:02} {year:04}")
}

/// For a person: `Friday, 20 November 2026, 16:35 (UTC+1)`.
pub(super) fn for_person(unix_us: u64, offset_seconds: i32) -> String {
    let Local { civil, day, month, zone_minutes } = Local::new(unix_us, offset_seconds);
    let sign = if zone_minutes < 0 { '-' } else { '+' };
    let zone = match (zone_minutes.abs() / 60, zone_minutes.abs() % 60) {
        (0, 0) => "UTC".to_owned(),
        (hours, 0) => format!("UTC{sign}{hours}"),
        (hours, minutes) => format!("UTC{sign}{hours}:{minutes:02}"),
    };
    let CivilTime { year, day: day_of_month, hour, minute, .. } = civil;
    format!("{day}, {day_of_month} {month} {year}, {hour:02}:{minute:02} ({zone})")
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 5322 §3.3 (test)
    #[test]
    fn dates() {
        // date -u -d @1795161879: Fri Nov 20 08:04:39 UTC 2026
        let us = 1_795_161_879_123_456;
        assert_eq!(for_field(us, 0), "Fri, 20 Nov 2026 08:04:39 +0000");
        assert_eq!(for_mbox(us, 3_600), "Fri Nov 20 09:04:39 2026");
        assert_eq!(for_mbox(0, 0), "Thu Jan  1 00:00:00 1970");
        assert_eq!(for_field(us, -12_600), "Fri, 20 Nov 2026 04:34:39 -0330");
        assert_eq!(for_field(0, 3_600), "Thu, 1 Jan 1970 01:00:00 +0100");
        assert_eq!(for_person(us, 0), "Friday, 20 November 2026, 08:04 (UTC)");
        assert_eq!(for_person(us, 3_600), "Friday, 20 November 2026, 09:04 (UTC+1)");
        assert_eq!(for_person(us, 19_800), "Friday, 20 November 2026, 13:34 (UTC+5:30)");
        assert_eq!(for_field(u64::MAX, i32::MAX), "Fri, 31 Dec 9999 00:00:00 +0000");
        assert_eq!(for_field(0, -86_000), "Wed, 31 Dec 1969 00:07:00 -2353");
    }
}

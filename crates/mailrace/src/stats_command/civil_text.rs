//! Civil times as text, and dates of the command line.

use mail::CivilTime;

const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];
const DAYS: [&str; 7] = ["Thu", "Fri", "Sat", "Sun", "Mon", "Tue", "Wed"];
/// Seconds of a day.
pub(super) const DAY: i64 = 86_400;

/// `Feb`
pub(super) fn month(time: CivilTime) -> &'static str {
    usize::try_from(time.month - 1).ok().and_then(|at| MONTHS.get(at)).copied().unwrap_or("???")
}

/// `Sat`
pub(super) fn weekday(civil: i64) -> &'static str {
    // The first day of 1970 was a Thursday.
    usize::try_from(civil.div_euclid(DAY).rem_euclid(7)).ok().and_then(|at| DAYS.get(at)).copied().unwrap_or("???")
}

/// `Sat Feb 22 09:05`, as the first 16 characters of `ctime`.
pub(super) fn minute(civil: i64) -> String {
    let time = CivilTime::from_unix(civil);
    let (month, day, hour, minute) = (month(time), time.day, time.hour, time.minute);
    format!("{} {month} {day:>2} {hour:02}:{minute:02}", weekday(civil))
}

/// `Sat Feb 22 09:05:40 MST 1997`, as `date` prints it.
pub(super) fn date(civil: i64, zone: &str) -> String {
    let time = CivilTime::from_unix(civil);
    format!("{}:{:02} {zone} {}", minute(civil), time.second, time.year)
}

/// `1997-02-22`
pub(super) fn day(civil: i64) -> String {
    let time = CivilTime::from_unix(civil);
    format!("{:04}-{:02}-{:02}", time.year, time.month, time.day)
}

/// `1997-02-22T09:05:40`
pub(crate) fn iso(civil: i64) -> String {
    let time = CivilTime::from_unix(civil);
    format!("{}T{:02}:{:02}:{:02}", day(civil), time.hour, time.minute, time.second)
}

/// A day of the command line: its first second. `today` and `yesterday` are those of `now`.
///
/// # Errors
/// It is no date.
pub(super) fn parse_day(text: &str, now: i64) -> Result<i64, String> {
    let today = now.div_euclid(DAY) * DAY;
    match text {
        "today" => return Ok(today),
        "yesterday" => return Ok(today - DAY),
        _ => {}
    }
    let numbers: Option<Vec<i64>> = text.split('-').map(|part| part.parse().ok()).collect();
    let found = match numbers.as_deref() {
        Some(&[year, month, day]) => CivilTime { year, month, day, hour: 0, minute: 0, second: 0 }.to_unix(),
        _ => None,
    };
    found.ok_or_else(|| format!("{text:?} is no date; write today, yesterday, or as in 2026-11-20"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_written_and_read() {
        let civil = CivilTime { year: 1997, month: 2, day: 22, hour: 9, minute: 5, second: 40 }.to_unix().unwrap();
        assert_eq!(date(civil, "MST"), "Sat Feb 22 09:05:40 MST 1997");
        assert_eq!((iso(civil).as_str(), minute(civil).as_str()), ("1997-02-22T09:05:40", "Sat Feb 22 09:05"));
        let midnight = civil - civil.rem_euclid(DAY);
        assert_eq!(parse_day("1997-02-22", 0), Ok(midnight));
        assert_eq!([parse_day("today", civil), parse_day("yesterday", civil + DAY)], [Ok(midnight), Ok(midnight)]);
        for wrong in ["1997-02-30", "22.2.1997", "", "1997-2", "a-b-c"] {
            assert!(parse_day(wrong, civil).is_err(), "{wrong}");
        }
    }
}

//! The time at the beginning of a line.
//!
//! Forms: `Nov 20 13:00:00 ` (RFC 3164 §4.1.2), `2026-11-20T13:00:00.123456+01:00 ` (RFC 5424 §6.2.3), both perhaps
//! after `<22>`; and `"ts":"2026-11-20T13:00:00.000000Z"` in JSON.

use super::LogReaderSettings;
use mail::CivilTime;

const DAY: i64 = 86_400;
/// A jump that is larger than this is a change of the year, and not a line out of order.
const HALF_YEAR: i64 = 183 * DAY;
/// Octets of `Nov 20 13:00:00`.
const SYSLOG_OCTETS: usize = 15;
/// Octets of `2026-11-20T13:00:00`.
const RFC3339_OCTETS: usize = 19;

/// A time, and the line behind it.
#[derive(Debug)]
pub(super) struct Stamp<'a> {
    pub(super) time: i64,
    pub(super) rest: &'a str,
}

/// Reads stamps in their order.
#[derive(Debug)]
pub(super) struct Stamps {
    settings: LogReaderSettings,
    /// The year of the line before, and its time.
    year: Option<i64>,
    last: i64,
    /// The text of the last stamp, and its time: most lines share the second of the line before.
    known: ([u8; RFC3339_OCTETS], i64),
}

impl Stamps {
    pub(super) fn new(settings: LogReaderSettings) -> Self {
        Self { settings, year: settings.year, last: i64::MIN, known: ([0; RFC3339_OCTETS], 0) }
    }

    /// Takes the stamp off a line.
    pub(super) fn of_line<'a>(&mut self, line: &'a str) -> Option<Stamp<'a>> {
        let line = without_priority(line);
        if line.as_bytes().first()?.is_ascii_digit() {
            let (time, rest) = self.rfc3339(line)?;
            return Some(Stamp { time, rest: rest.strip_prefix(" ")? });
        }
        let rest = line.get(SYSLOG_OCTETS..)?.strip_prefix(" ")?;
        let text = line.as_bytes().get(..SYSLOG_OCTETS)?;
        let (known, time) = &self.known;
        if known.get(..SYSLOG_OCTETS) == Some(text) && known.get(SYSLOG_OCTETS) == Some(&0) {
            return Some(Stamp { time: *time, rest });
        }
        let time = self.syslog(text)?;
        self.remember(text, time);
        Some(Stamp { time, rest })
    }

    /// Reads the stamp of an object, which is its first value.
    pub(super) fn of_json(&mut self, line: &str) -> Option<i64> {
        let (time, rest) = self.rfc3339(line.strip_prefix("{\"ts\":\"")?)?;
        rest.starts_with('"').then_some(time)
    }

    fn remember(&mut self, text: &[u8], time: i64) {
        let mut known = [0; RFC3339_OCTETS];
        known.iter_mut().zip(text).for_each(|(to, from)| *to = *from);
        self.known = (known, time);
    }

    fn rfc3339<'a>(&mut self, line: &'a str) -> Option<(i64, &'a str)> {
        let text = line.as_bytes().get(..RFC3339_OCTETS)?;
        let mut rest = line.get(RFC3339_OCTETS..)?;
        if let Some(fraction) = rest.strip_prefix(".") {
            rest = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
        }
        let (is_utc, rest) = match rest.strip_prefix("Z") {
            Some(rest) => (true, rest),
            None => (false, rest.get(6..).filter(|_| rest.starts_with(['+', '-']))?),
        };
        let time = if self.known.0 == text {
            self.known.1
        } else {
            let number = |from: usize, to: usize| digits(text.get(from..to)?);
            let civil = CivilTime {
                year: number(0, 4)?,
                month: number(5, 7)?,
                day: number(8, 10)?,
                hour: number(11, 13)?,
                minute: number(14, 16)?,
                second: number(17, 19)?.min(59),
            };
            let time = civil.to_unix()?;
            self.remember(text, time);
            time
        };
        Some((time + if is_utc { self.settings.utc_offset } else { 0 }, rest))
    }

    /// Reads `Nov 20 13:00:00` and finds its year.
    fn syslog(&mut self, text: &[u8]) -> Option<i64> {
        let month = month(text.get(..3)?)?;
        let number = |from: usize, to: usize| digits(text.get(from..to)?.trim_ascii_start());
        let (day, hour, minute) = (number(4, 6)?, number(7, 9)?, number(10, 12)?);
        let second = number(13, 15)?.min(59);
        let at = |year| CivilTime { year, month, day, hour, minute, second }.to_unix();
        let Some(year) = self.year else {
            let latest = CivilTime::from_unix(self.settings.now + DAY).year;
            // Eight years back there is a leap day, also around a century without one.
            let time = (latest - 8..=latest).rev().filter_map(at).find(|time| *time <= self.settings.now + DAY)?;
            self.year = Some(CivilTime::from_unix(time).year);
            self.last = time;
            return Some(time);
        };
        let time = at(year).or_else(|| at(year + 1))?;
        if self.last != i64::MIN && time < self.last - HALF_YEAR {
            let time = at(year + 1)?;
            self.year = Some(year + 1);
            self.last = time;
            return Some(time);
        }
        if self.last != i64::MIN && time > self.last + HALF_YEAR {
            // Out of order around the new year: the year stays as it is.
            return at(year - 1);
        }
        self.last = time;
        Some(time)
    }
}

/// Returns the line without `<22>` before it.
fn without_priority(line: &str) -> &str {
    let Some(rest) = line.strip_prefix("<") else { return line };
    match rest.split_once('>') {
        Some((number, rest)) if number.len() <= 3 && number.bytes().all(|b| b.is_ascii_digit()) => rest,
        _ => line,
    }
}

fn month(text: &[u8]) -> Option<i64> {
    const MONTHS: [&[u8]; 12] =
        [b"Jan", b"Feb", b"Mar", b"Apr", b"May", b"Jun", b"Jul", b"Aug", b"Sep", b"Oct", b"Nov", b"Dec"];
    let at = MONTHS.iter().position(|known| *known == text)?;
    i64::try_from(at + 1).ok()
}

/// Reads digits and nothing else.
fn digits(text: &[u8]) -> Option<i64> {
    if text.is_empty() || text.len() > 9 {
        return None;
    }
    text.iter().try_fold(0, |number, octet| Some(number * 10 + i64::from(octet.checked_sub(b'0').filter(|d| *d < 10)?)))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(year: i64, month: i64, day: i64, hour: i64) -> i64 {
        CivilTime { year, month, day, hour, minute: 0, second: 0 }.to_unix().unwrap()
    }

    fn stamps(now: i64) -> Stamps {
        Stamps::new(LogReaderSettings { now, year: None, utc_offset: 3_600 })
    }

    fn times(now: i64, lines: &[&str]) -> Vec<Option<i64>> {
        let mut stamps = stamps(now);
        lines.iter().map(|line| stamps.of_line(line).map(|stamp| stamp.time)).collect()
    }

    #[test]
    fn forms_of_stamps() {
        let now = at(2026, 11, 21, 0);
        let lines = [
            "Nov 20 13:00:00 mx x",
            "<22>Nov 20 13:00:00 x",
            "2026-11-20T13:00:00+01:00 mx x",
            "2026-11-20T13:00:00.123456-05:00 mx x",
            "2026-11-20T12:00:00Z mx x",
        ];
        let noon = Some(at(2026, 11, 20, 13));
        assert_eq!(times(now, &lines), [noon; 5]);
        assert_eq!(times(now, &["Feb  2 01:00:00 mx x"]), [Some(at(2026, 2, 2, 1))]);
        assert_eq!(stamps(now).of_json("{\"ts\":\"2026-11-20T12:00:00.000000Z\",\"event\":\"sent\"}"), noon);
        for damaged in [
            "",
            "Nov",
            "Nov 20 13:00:00",
            "Foo 20 13:00:00 x",
            "Nov 31 13:00:00 x",
            "Nov 20 24:00:00 x",
            "x y",
            "2026-11-20T13:00:00 x",
            "2026-13-20T13:00:00Z x",
            "Növ 20 13:00:0 x",
            "<99999>Nov 20 13:00:00 x",
        ] {
            assert_eq!(times(now, &[damaged]), [None], "{damaged}");
        }
    }

    #[test]
    fn the_year_is_found_and_wraps() {
        let now = at(2027, 1, 2, 12);
        let lines = [
            "Dec 30 23:00:00 m x",
            "Dec 31 23:00:00 m x",
            "Jan  1 00:00:00 m x",
            "Dec 31 22:00:00 m x",
            "Jan  2 00:00:00 m x",
        ];
        let expected =
            [at(2026, 12, 30, 23), at(2026, 12, 31, 23), at(2027, 1, 1, 0), at(2026, 12, 31, 22), at(2027, 1, 2, 0)];
        assert_eq!(times(now, &lines), expected.map(Some));
        // A little ahead of the clock of the reader; and a leap day of an earlier year.
        assert_eq!(times(now, &["Jan  3 11:00:00 m x"]), [Some(at(2027, 1, 3, 11))]);
        assert_eq!(times(now, &["Feb 29 11:00:00 m x"]), [Some(at(2024, 2, 29, 11))]);
        let mut stamps = Stamps::new(LogReaderSettings { now, year: Some(1997), utc_offset: 0 });
        assert_eq!(stamps.of_line("Feb 22 09:00:00 m x").map(|stamp| stamp.time), Some(at(1997, 2, 22, 9)));
    }
}

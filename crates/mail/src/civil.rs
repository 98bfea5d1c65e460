//! Civil date and time in UTC ↔ seconds since the Unix epoch.
//!
//! Queue ids, `HOLDUNTIL` and later `Received:` and `Date:` fields need it. It is the proleptic Gregorian calendar,
//! counted in eras of 400 years that begin in March, so that the leap day is the last day of its year. Leap seconds do
//! not exist here, as they do not in Unix time. No time zones, no names of days or months, no clock.

const SECONDS_PER_DAY: i64 = 86_400;
const DAYS_PER_ERA: i64 = 146_097;
/// Days from 0000-03-01, where the first era begins, to 1970-01-01.
const DAYS_BEFORE_EPOCH: i64 = 719_468;

/// A moment in UTC, to the second. Fields are only checked by [`CivilTime::to_unix`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CivilTime {
    /// With the century.
    pub year: i64,
    /// 1..=12
    pub month: i64,
    /// 1..=31
    pub day: i64,
    /// 0..=23
    pub hour: i64,
    /// 0..=59
    pub minute: i64,
    /// 0..=59
    pub second: i64,
}

impl CivilTime {
    /// Splits seconds since 1970-01-01T00:00:00Z.
    #[must_use]
    pub fn from_unix(seconds: i64) -> Self {
        let days = seconds.div_euclid(SECONDS_PER_DAY);
        let of_day = seconds.rem_euclid(SECONDS_PER_DAY);

        let shifted = days + DAYS_BEFORE_EPOCH;
        let era = shifted.div_euclid(DAYS_PER_ERA);
        let day_of_era = shifted.rem_euclid(DAYS_PER_ERA);
        let year_of_era = (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
        let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
        // March is month 0 here: the lengths 31, 30, 31, 30, 31 repeat from it, 153 days at a time.
        let month_from_march = (5 * day_of_year + 2) / 153;
        let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
        Self {
            year: era * 400 + year_of_era + i64::from(month <= 2),
            month,
            day: day_of_year - (153 * month_from_march + 2) / 5 + 1,
            hour: of_day / 3_600,
            minute: of_day / 60 % 60,
            second: of_day % 60,
        }
    }

    /// Seconds since the epoch, or `None` when there is no such date or time (30 February, 24:00, second 60).
    #[must_use]
    pub fn to_unix(self) -> Option<i64> {
        let exists = (0..=9_999).contains(&self.year)
            && (1..=12).contains(&self.month)
            && (1..=31).contains(&self.day)
            && (0..24).contains(&self.hour)
            && (0..60).contains(&self.minute)
            && (0..60).contains(&self.second);
        if !exists {
            return None;
        }
        let year = self.year - i64::from(self.month <= 2);
        let era = year.div_euclid(400);
        let year_of_era = year.rem_euclid(400);
        let month_from_march = (self.month + 9) % 12;
        let day_of_year = (153 * month_from_march + 2) / 5 + self.day - 1;
        let day_of_era = year_of_era * 365 + year_of_era / 4 - year_of_era / 100 + day_of_year;
        let days = era * DAYS_PER_ERA + day_of_era - DAYS_BEFORE_EPOCH;
        let seconds = days * SECONDS_PER_DAY + self.hour * 3_600 + self.minute * 60 + self.second;
        // A day past the end of its month counts into the next one; the way back shows it.
        (Self::from_unix(seconds) == self).then_some(seconds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(year: i64, month: i64, day: i64) -> CivilTime {
        CivilTime { year, month, day, hour: 0, minute: 0, second: 0 }
    }

    #[test]
    fn known_moments() {
        assert_eq!(at(1970, 1, 1).to_unix(), Some(0));
        assert_eq!(at(2000, 2, 29).to_unix(), Some(951_782_400));
        assert_eq!(at(2020, 1, 1).to_unix(), Some(1_577_836_800));
        assert_eq!(at(2080, 1, 1).to_unix(), Some(3_471_292_800));
        let last = CivilTime { year: 2038, month: 1, day: 19, hour: 3, minute: 14, second: 7 };
        assert_eq!(last.to_unix(), Some(i64::from(i32::MAX)));
        assert_eq!(CivilTime::from_unix(-1).second, 59);
    }

    #[test]
    fn dates_that_do_not_exist() {
        for date in [at(2021, 2, 29), at(1900, 2, 29), at(2024, 4, 31), at(2024, 13, 1), at(2024, 0, 1), at(2024, 1, 0)]
        {
            assert_eq!(date.to_unix(), None, "{date:?}");
        }
        assert_eq!(CivilTime { hour: 24, ..at(2024, 1, 1) }.to_unix(), None);
        assert_eq!(CivilTime { second: 60, ..at(2024, 1, 1) }.to_unix(), None);
    }

    #[test]
    fn every_day_of_a_century_comes_back() {
        let mut before = None;
        for day in 0..40_000 {
            let seconds = day * SECONDS_PER_DAY + 4_711;
            let civil = CivilTime::from_unix(seconds);
            assert_eq!(civil.to_unix(), Some(seconds), "{civil:?}");
            let ordered = (civil.year, civil.month, civil.day);
            assert!(before < Some(ordered), "{ordered:?} after {before:?}");
            before = Some(ordered);
        }
    }
}

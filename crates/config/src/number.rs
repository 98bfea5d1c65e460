//! Sizes and times as people write them: `50MiB`, `64k`, `1h30m`, `500ms`.

use std::fmt::{self, Write as _};
use std::str::FromStr;
use std::time::Duration;

const SIZES: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
/// In the order they must come in, with their milliseconds.
const TIMES: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Why a size is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoSize {
    /// Not a number with a unit.
    Form,
    /// `MB`: to some 1,000,000 bytes, to others 1,048,576. The values of both readings.
    Ambiguous { binary: String, decimal: i64 },
}

/// Reads `65536`, `64k`, `64K`, `64KiB`, `2G`.
pub(crate) fn size(text: &str) -> Result<i64, NoSize> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at_checked(digits).ok_or(NoSize::Form)?;
    let number: i64 = number.parse().map_err(|_| NoSize::Form)?;
    let unit = unit.trim_start_matches(' ');
    if unit.is_empty() || unit == "B" {
        return Ok(number);
    }
    for (at, (name, shift)) in SIZES.iter().enumerate() {
        let letter = name.get(..1).unwrap_or_default();
        if unit.eq_ignore_ascii_case(name) || unit.eq_ignore_ascii_case(letter) {
            return number.checked_mul(1 << shift).ok_or(NoSize::Form);
        }
        if unit.len() == 2 && unit.to_ascii_uppercase().strip_suffix('B') == Some(letter) {
            let power = u32::try_from(4 - at).map_err(|_| NoSize::Form)?;
            let decimal = number.checked_mul(1_000_i64.pow(power)).ok_or(NoSize::Form)?;
            return Err(NoSize::Ambiguous { binary: format!("{number}{name}"), decimal });
        }
    }
    Err(NoSize::Form)
}

/// Reads a size in octets; `None`: the text is no size, or may mean two.
#[must_use]
pub fn octets(text: &str) -> Option<u64> {
    size(text).ok()?.try_into().ok()
}

/// Returns a size in the largest unit that divides it; without a unit if none does.
#[must_use]
pub fn size_text(bytes: i64) -> String {
    match SIZES.iter().find(|(_, shift)| bytes > 0 && bytes % (1 << shift) == 0) {
        Some((name, shift)) => format!("{}{name}", bytes >> shift),
        None => bytes.to_string(),
    }
}

/// Reads `5s`, `1h30m`, `500ms`, `0`: units from large to small, each at most once.
pub fn time(text: &str) -> Option<Duration> {
    if text == "0" {
        return Some(Duration::ZERO);
    }
    let mut rest = text;
    let mut units = TIMES.iter();
    let mut milliseconds = 0_u64;
    while !rest.is_empty() {
        let (number, tail) = rest.split_at_checked(rest.bytes().take_while(u8::is_ascii_digit).count())?;
        let (unit, tail) = tail.split_at_checked(tail.bytes().take_while(u8::is_ascii_alphabetic).count())?;
        let (_, each) = units.find(|(name, _)| *name == unit)?;
        milliseconds = number.parse::<u64>().ok()?.checked_mul(*each)?.checked_add(milliseconds)?;
        rest = tail;
    }
    (!text.is_empty()).then(|| Duration::from_millis(milliseconds))
}

/// A time in its units, as [`time`] reads it.
pub(crate) fn time_text(time: Duration) -> String {
    let mut rest = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
    let mut text = String::new();
    for (name, each) in TIMES {
        if rest >= each {
            // Writing to a String cannot fail.
            let _infallible = write!(text, "{}{name}", rest / each);
            rest %= each;
        }
    }
    if text.is_empty() { "0".to_owned() } else { text }
}

/// So many a second, in thousandths: `0.5` is one in two seconds. None at all is no limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Rate(u32);

impl Rate {
    /// No limit.
    pub const NONE: Self = Self(0);
    /// A million a second.
    pub(crate) const MAX: Self = Self(1_000_000_000);

    /// So many in a thousand seconds.
    #[must_use]
    pub const fn of_milli(milli: u32) -> Self {
        Self(milli)
    }

    /// How many in a thousand seconds; 0 for no limit.
    #[must_use]
    pub const fn milli(self) -> u32 {
        self.0
    }

    /// The same, `None` for no limit.
    #[must_use]
    pub const fn limit(self) -> Option<u32> {
        if self.0 == 0 { None } else { Some(self.0) }
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 1_000, self.0 % 1_000);
        if rest == 0 {
            return write!(f, "{whole}");
        }
        let decimals = format!("{rest:03}");
        write!(f, "{whole}.{}", decimals.trim_end_matches('0'))
    }
}

impl FromStr for Rate {
    type Err = ();

    /// Reads `5`, `0.5`, `1.25`: up to three decimals. A number above any limit is read as more than [`Rate::MAX`].
    fn from_str(text: &str) -> Result<Self, ()> {
        let (whole, decimals) = text.split_once('.').unwrap_or((text, "0"));
        let is_number = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        if !is_number(whole) || !is_number(decimals) || decimals.trim_end_matches('0').len() > 3 {
            return Err(());
        }
        let milli: u32 = format!("{:0<3.3}", decimals).parse().map_err(|_| ())?;
        let whole: u32 = whole.parse().unwrap_or(u32::MAX);
        Ok(Self(whole.saturating_mul(1_000).saturating_add(milli)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("0", 0),
            ("64k", 65_536),
            ("64K", 65_536),
            ("1KiB", 1_024),
            ("50MiB", 50 << 20),
            ("8G", 8 << 30),
            ("2 TiB", 2 << 40),
            ("7B", 7),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
            assert_eq!(size(&size_text(bytes)), Ok(bytes));
        }
        for text in ["", "k", "1.5G", "-1", "1X", "9999999999999999999", "9999999T", "1GiBs", "ü"] {
            assert_eq!(size(text), Err(NoSize::Form), "{text}");
        }
        assert_eq!(size("50MB"), Err(NoSize::Ambiguous { binary: "50MiB".to_owned(), decimal: 50_000_000 }));
        assert_eq!(size("1kB"), Err(NoSize::Ambiguous { binary: "1KiB".to_owned(), decimal: 1_000 }));
        assert_eq!([0, 1, 1_023, 1_536, 8 << 30].map(size_text), ["0", "1", "1023", "1536", "8GiB"]);
    }

    #[test]
    fn rates() {
        for (text, milli) in
            [("0", 0), ("5", 5_000), ("0.5", 500), ("1.25", 1_250), ("0.001", 1), ("10.0", 10_000), ("2.500000", 2_500)]
        {
            let rate: Rate = text.parse().unwrap_or_else(|()| panic!("{text}"));
            assert_eq!(rate.milli(), milli, "{text}");
            assert_eq!(rate.to_string().parse(), Ok(rate));
        }
        for text in ["", ".", ".5", "5.", "0.0001", "-1", "1e3", "inf", "nan", "1_0", "1,5", "½"] {
            assert_eq!(text.parse::<Rate>(), Err(()), "{text}");
        }
        assert!("99999999999".parse::<Rate>().is_ok_and(|rate| rate > Rate::MAX));
        assert_eq!(
            [0, 500, 1_250, 3_000, 10].map(|n| Rate::of_milli(n).to_string()),
            ["0", "0.5", "1.25", "3", "0.01"]
        );
        assert_eq!((Rate::NONE.limit(), Rate::of_milli(7).limit()), (None, Some(7)));
    }

    #[test]
    fn times() {
        for (text, milliseconds) in [
            ("0", 0),
            ("5s", 5_000),
            ("2m", 120_000),
            ("1h30m", 5_400_000),
            ("500ms", 500),
            ("1d1ms", 86_400_001),
            ("90s", 90_000),
        ] {
            assert_eq!(time(text), Some(Duration::from_millis(milliseconds)), "{text}");
            assert_eq!(time(&time_text(Duration::from_millis(milliseconds))), time(text));
        }
        for text in [
            "",
            "5",
            "s",
            "5x",
            "5s5s",
            "5s1h",
            "1.5s",
            "-5s",
            "5 s",
            "99999999999999999999s",
            "99999999999999999d",
            "5ü",
        ] {
            assert_eq!(time(text), None, "{text}");
        }
        assert_eq!(time_text(Duration::from_secs(90)), "1m30s");
    }
}

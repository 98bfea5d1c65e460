//! Sizes and times as people write them: `50MiB`, `64k`, `1h30m`, `500ms`.

use std::fmt::Write as _;
use std::time::Duration;

const SIZES: [(&str, u32); 4] = [("TiB", 40), ("GiB", 30), ("MiB", 20), ("KiB", 10)];
/// In the order they must come in, with their milliseconds.
const TIMES: [(&str, u64); 5] = [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)];

/// Why a size is none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum NoSize {
    /// Not a number with a unit.
    Form,
    /// `MB`: to some 1,000,000 bytes, to others 1,048,576. What each would be.
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

/// A size in the largest unit that divides it; without a unit if none does.
pub(crate) fn size_text(bytes: i64) -> String {
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

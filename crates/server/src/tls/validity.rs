//! When a certificate expires.
//!
//! rustls checks it only in certificates of peers. Anything unexpected is `None`, never a panic.

use super::der::{GENERALIZED_TIME, Parts, UTC_TIME, take};
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

/// `notAfter` of a certificate in DER, in seconds since 1970.
// RFC 5280 §4.1.2.5: Validity
pub(crate) fn not_after(certificate: &[u8]) -> Option<u64> {
    let (_, not_after) = time(Parts::of(certificate)?.validity)?;
    time(not_after)?.0
}

/// Returns a time, and what follows it; times before 1970 count as 1970.
fn time(der: &[u8]) -> Option<(Option<u64>, &[u8])> {
    let (text, year_digits, rest) = match take(der, UTC_TIME) {
        Some((text, rest)) => (text, 2, rest),
        None => take(der, GENERALIZED_TIME).map(|(text, rest)| (text, 4, rest))?,
    };
    Some((seconds(text, year_digits), rest))
}

fn seconds(text: &[u8], year_digits: usize) -> Option<u64> {
    let text = str::from_utf8(text).ok()?.strip_suffix('Z')?;
    if text.len() != year_digits + 10 || !text.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let year: i16 = text.get(..year_digits)?.parse().ok()?;
    let year = match year_digits {
        // RFC 5280 §4.1.2.5.1: 50 to 99 are of the twentieth century
        2 if year < 50 => year + 2000,
        2 => year + 1900,
        _ => year,
    };
    let field = |at: usize| text.get(year_digits + 2 * at..year_digits + 2 * at + 2)?.parse::<i8>().ok();
    let time = DateTime::new(year, field(0)?, field(1)?, field(2)?, field(3)?, field(4)?, 0).ok()?;
    Some(u64::try_from(time.to_zoned(TimeZone::UTC).ok()?.timestamp().as_second()).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(year: i32) -> Vec<u8> {
        let mut params = rcgen::CertificateParams::new(vec!["mx.example.org".to_owned()]).unwrap();
        params.not_after = rcgen::date_time_ymd(year, 2, 28);
        params.self_signed(&rcgen::KeyPair::generate().unwrap()).unwrap().der().to_vec()
    }

    // RFC 5280 §4.1.2.5 (test)
    #[test]
    fn both_forms_of_time() {
        assert_eq!(not_after(&certificate(2027)), Some(1_803_772_800));
        assert_eq!(not_after(&certificate(2068)), Some(3_097_612_800));
        assert_eq!(seconds(b"500101000000Z", 2), Some(0));
        assert_eq!(seconds(b"20261331000000Z", 4), None);
        assert_eq!(seconds(b"261120", 2), None);
    }

    #[test]
    fn damage_is_no_panic() {
        let good = certificate(2027);
        for at in 0..good.len().min(200) {
            assert_eq!(not_after(&good[..at]), None);
            for byte in [0, 0x7f, 0x84, 0x88, 0xff] {
                let mut bad = good.clone();
                bad[at] = byte;
                not_after(&bad);
            }
        }
    }
}

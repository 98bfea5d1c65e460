//! The extensions that a server offers in its reply to EHLO or LHLO.

use super::mechanism::Mechanisms;
use super::settings::ClientSettings;

/// The extensions that a server offers. The default is the offer of a server that knows only HELO: nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Offers {
    /// PIPELINING (RFC 2920)
    pub pipelining: bool,
    /// CHUNKING (RFC 3030)
    pub chunking: bool,
    /// 8BITMIME (RFC 6152)
    pub eight_bit_mime: bool,
    /// BINARYMIME (RFC 3030)
    pub binary_mime: bool,
    /// SMTPUTF8 (RFC 6531)
    pub smtputf8: bool,
    /// DSN (RFC 3461)
    pub dsn: bool,
    /// STARTTLS (RFC 3207)
    pub starttls: bool,
    /// ENHANCEDSTATUSCODES (RFC 2034)
    pub enhanced: bool,
    /// AUTH (RFC 4954)
    pub auth: bool,
    /// Its mechanisms.
    pub mechanisms: Mechanisms,
    /// DELIVERBY (RFC 2852): the least time for mode R in seconds, 0 when none is told.
    pub deliverby: Option<u32>,
    /// REQUIRETLS (RFC 8689)
    pub requiretls: bool,
    /// MT-PRIORITY (RFC 6710)
    pub mt_priority: bool,
    /// FUTURERELEASE (RFC 4865)
    pub future_release: bool,
    /// SIZE (RFC 1870): `None` when it is not offered, `Some(0)` when no limit is told.
    pub size: Option<u64>,
    /// LIMITS (RFC 9422)
    pub limits: PeerLimits,
}

/// Limits that a server tells (RFC 9422 §4); `None` when it does not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PeerLimits {
    /// MAILMAX: transactions in a session.
    pub transactions: Option<u32>,
    /// RCPTMAX: recipients in a transaction.
    pub recipients: Option<u32>,
    /// RCPTDOMAINMAX: domains of recipients in a transaction.
    pub domains: Option<u32>,
}

impl Offers {
    /// Reads the lines of a reply to EHLO, the first of which names the server. Unknown keywords are skipped, and of a
    /// keyword given twice the last counts.
    // RFC 5321 §4.1.1.1: keywords in any case, parameters behind them
    pub(super) fn read<'a>(lines: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut offers = Self::default();
        for line in lines.skip(1) {
            let mut words = line.split(u8::is_ascii_whitespace).filter(|word| !word.is_empty());
            if let Some(keyword) = words.next() {
                offers.take(&keyword.to_ascii_uppercase(), words);
            }
        }
        offers
    }

    /// The offers without those that these settings leave out.
    pub(super) fn of_use(self, settings: &ClientSettings) -> Self {
        Self {
            size: self.size.filter(|_| settings.size),
            eight_bit_mime: self.eight_bit_mime && settings.eight_bit_mime,
            binary_mime: self.binary_mime && settings.eight_bit_mime,
            dsn: self.dsn && settings.dsn,
            ..self
        }
    }

    fn take<'a>(&mut self, keyword: &[u8], mut words: impl Iterator<Item = &'a [u8]>) {
        match keyword {
            b"PIPELINING" => self.pipelining = true,
            b"CHUNKING" => self.chunking = true,
            b"8BITMIME" => self.eight_bit_mime = true,
            b"BINARYMIME" => self.binary_mime = true,
            b"SMTPUTF8" => self.smtputf8 = true,
            b"DSN" => self.dsn = true,
            b"STARTTLS" => self.starttls = true,
            b"ENHANCEDSTATUSCODES" => self.enhanced = true,
            // RFC 4954 §3: the mechanisms
            b"AUTH" => {
                self.auth = true;
                words.for_each(|word| self.mechanisms.add(word));
            }
            // As servers wrote it for clients of before the RFC; it promises no parameter of MAIL.
            _ if keyword.starts_with(b"AUTH=") => {
                self.mechanisms.add(keyword.get(5..).unwrap_or_default());
                words.for_each(|word| self.mechanisms.add(word));
            }
            // RFC 2852 §2: the least time, and perhaps what later versions add behind a comma
            b"DELIVERBY" => {
                let least = words.next().and_then(|word| word.split(|octet| *octet == b',').next()).and_then(number);
                self.deliverby = Some(least.map_or(0, |least| u32::try_from(least).unwrap_or(u32::MAX)));
            }
            b"REQUIRETLS" => self.requiretls = true,
            b"MT-PRIORITY" => self.mt_priority = true,
            b"FUTURERELEASE" => self.future_release = true,
            // RFC 1870 §4: no number or 0 means that no limit is told
            b"SIZE" => self.size = Some(words.next().and_then(number).unwrap_or(0)),
            b"LIMITS" => self.limits = PeerLimits::read(words),
            _ => {}
        }
    }

    /// The longest content that is taken.
    pub(super) fn size_max(&self) -> Option<u64> {
        self.size.filter(|max| *max > 0)
    }
}

impl PeerLimits {
    // RFC 9422 §4: name=value pairs; a zero is none
    fn read<'a>(words: impl Iterator<Item = &'a [u8]>) -> Self {
        let mut limits = Self::default();
        for word in words {
            let mut parts = word.splitn(2, |octet| *octet == b'=');
            let name = parts.next().unwrap_or_default().to_ascii_uppercase();
            let value = parts.next().and_then(number).filter(|value| *value > 0);
            let value = value.map(|value| u32::try_from(value).unwrap_or(u32::MAX));
            match &name[..] {
                b"MAILMAX" => limits.transactions = value,
                b"RCPTMAX" => limits.recipients = value,
                b"RCPTDOMAINMAX" => limits.domains = value,
                _ => {}
            }
        }
        limits
    }
}

fn number(digits: &[u8]) -> Option<u64> {
    let is_number = (1..=20).contains(&digits.len()) && digits.iter().all(u8::is_ascii_digit);
    // RFC 1870 §4: up to 20 digits
    is_number.then(|| str::from_utf8(digits).ok().and_then(|text| text.parse().ok()).unwrap_or(u64::MAX))
}

#[cfg(test)]
mod tests {
    use super::*;

    // RFC 2852 §2 (test)
    #[test]
    fn the_least_time_is_read() {
        for (line, wanted) in [
            ("DELIVERBY", Some(0)),
            ("deliverby 240", Some(240)),
            ("DELIVERBY 30,X", Some(30)),
            ("DELIVERBY x", Some(0)),
            ("DELIVERBY 99999999999", Some(u32::MAX)),
            ("DELIVERBYE 5", None),
        ] {
            assert_eq!(Offers::read([&b""[..], line.as_bytes()].into_iter()).deliverby, wanted, "{line}");
        }
    }

    // RFC 5321 §4.1.1.1 (test), RFC 1870 §4 (test), RFC 9422 §4 (test)
    #[test]
    fn offers_are_read() {
        let lines = "PIPELINING is my name|pipelining|Size  1000|8BITMIME|AUTH PLAIN LOGIN|X-UNKNOWN y||\
            LIMITS rcptmax=100 MAILMAX=0 RCPTDOMAINMAX=x FOO=1|DSN\t";
        let offers = Offers::read(lines.split('|').map(str::as_bytes));
        let limits = PeerLimits { recipients: Some(100), ..PeerLimits::default() };
        let wanted = Offers {
            pipelining: true,
            size: Some(1_000),
            eight_bit_mime: true,
            auth: true,
            mechanisms: Mechanisms { plain: true, login: true, cram_md5: false },
            dsn: true,
            limits,
            ..Offers::default()
        };
        assert_eq!(offers, wanted);
        let old = Offers::read([&b""[..], b"AUTH=LOGIN cram-md5"].into_iter());
        assert_eq!((old.auth, old.mechanisms), (false, Mechanisms { plain: false, login: true, cram_md5: true }));
        for (line, size, max) in [
            ("SIZE", 0, None),
            ("SIZE 0", 0, None),
            ("SIZE 99999999999999999999", u64::MAX, Some(u64::MAX)),
            ("SIZE -1", 0, None),
        ] {
            let offers = Offers::read([&b""[..], line.as_bytes()].into_iter());
            assert_eq!((offers.size, offers.size_max()), (Some(size), max), "{line}");
        }
    }
}

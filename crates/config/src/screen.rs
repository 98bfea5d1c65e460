//! Settings of *screen*: rule files, filters and their failures.

use super::number::time;
use mail::Address;
use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;
use std::time::Duration;

/// The rules that judge the content of mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Screen {
    /// Rule files; a `*` or `?` in the last part stands for any letters or one.
    pub rules: Vec<PathBuf>,
    /// Octets of a body that rules look at.
    pub body_bytes_max: u64,
    /// Messages that filters judge after the 250 at a time, for each list of filters.
    pub workers: u32,
    /// Messages that wait for filters after the 250.
    pub backlog_max: u64,
    /// Octets of these messages.
    pub backlog_bytes_max: u64,
}

/// Mail in quarantine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Quarantine {
    /// How long it is kept.
    pub keep: Duration,
    /// When recipients hear of it, as [`DigestTime`] reads it; empty: never.
    pub digest: String,
    /// The author of that mail; none: the postmaster.
    pub digest_from: Option<Address>,
    /// Its subject.
    pub digest_subject: String,
    /// The domains whose recipients get it; none: all.
    pub digest_domains: Vec<String>,
}

/// When recipients hear of their mail in quarantine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DigestTime {
    /// Each day, so long after midnight of the local time.
    Daily(Duration),
    /// Again and again after this time.
    Every(Duration),
}

/// A text is no time of a digest.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoDigestTimeError;

impl FromStr for DigestTime {
    type Err = NoDigestTimeError;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let Some((hour, minute)) = text.split_once(':') else {
            let every = time(text).filter(|every| every.as_secs() > 0 && every.subsec_nanos() == 0);
            return every.map(Self::Every).ok_or(NoDigestTimeError);
        };
        let number = |digits: &str, end: u64| {
            let is_number = (1..=2).contains(&digits.len()) && digits.bytes().all(|digit| digit.is_ascii_digit());
            digits.parse::<u64>().ok().filter(|number| is_number && *number < end).ok_or(NoDigestTimeError)
        };
        let minute = if minute.len() == 2 { number(minute, 60)? } else { return Err(NoDigestTimeError) };
        Ok(Self::Daily(Duration::from_secs(number(hour, 24)? * 3_600 + minute * 60)))
    }
}

/// One `[[filter]]`: a program that judges mail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Filter {
    /// The name in `filters` of listeners.
    pub name: String,
    /// Its protocol.
    pub kind: FilterKind,
    /// Where it listens, as [`FilterAddress`] reads it.
    pub address: String,
    /// When it is asked.
    pub when: FilterStage,
    /// The effect on a message that it cannot judge.
    pub on_failure: FilterFailure,
    /// The effect on a message that it refuses after the 250.
    pub on_reject: FilterReject,
    /// The longest wait for one answer.
    pub timeout: Duration,
    /// The longest time with one message.
    pub total_timeout: Duration,
    /// Octets of the largest message that it gets.
    pub size_max: u64,
    /// Macros of steps in place of the usual ones, as [`super::MilterMacros`] reads them.
    pub macros: Vec<String>,
    /// Values of macros in place of the session's, as [`super::MacroValue`] reads them.
    pub macro_values: Vec<String>,
    /// Connections that stay open between two messages.
    pub idle_max: u32,
    /// How long one stays open.
    pub idle_time: Duration,
}

/// The protocol of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterKind {
    /// sendmail's milter protocol.
    Milter,
    /// Postfix's policy delegation protocol.
    Policy,
    /// ClamAV's daemon.
    Clamd,
    /// SpamAssassin's daemon.
    Spamd,
    /// rspamd over HTTP.
    Rspamd,
    /// A filter that takes mail by SMTP, and gives it back by SMTP.
    Smtp,
    /// The same, which takes it by LMTP.
    Lmtp,
}

impl FilterKind {
    /// Whether the filter gives mail back by SMTP.
    #[must_use]
    pub const fn gives_back(self) -> bool {
        matches!(self, Self::Smtp | Self::Lmtp)
    }
}

/// When a filter is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterStage {
    /// While the client waits for its answer.
    Before250,
    /// When the message is durable and accepted.
    After250,
}

/// The effect on a message that a filter cannot judge.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterFailure {
    /// The client tries again.
    Defer,
    /// It passes as if there were no such filter.
    Pass,
    /// It passes with a header field that names the filter.
    Tag,
    /// It is held in quarantine.
    Quarantine,
    /// It is accepted, and judged when the filter is back.
    Later,
}

/// The effect on a message that a filter refuses when its client cannot hear of it any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FilterReject {
    /// It is held in quarantine.
    Quarantine,
    /// Its sender gets a report.
    Bounce,
    /// It is dropped.
    Discard,
}

/// Where a filter listens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum FilterAddress {
    /// A socket of this machine.
    Unix(PathBuf),
    /// A host name or address, and a port.
    Tcp(String, u16),
}

/// The text names no socket of this machine, and no host with a port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoFilterAddressError;

impl FromStr for FilterAddress {
    type Err = NoFilterAddressError;

    /// Reads `unix:/path`, `host:port` or `[2001:db8::1]:port`.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if let Some(path) = text.strip_prefix("unix:") {
            return path.starts_with('/').then(|| Self::Unix(path.into())).ok_or(NoFilterAddressError);
        }
        let (host, port) = text.rsplit_once(':').ok_or(NoFilterAddressError)?;
        let port = port.parse().ok().filter(|port| *port > 0).ok_or(NoFilterAddressError)?;
        let bare = host.strip_prefix('[').and_then(|host| host.strip_suffix(']')).unwrap_or(host);
        let is_name = |c: char| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_');
        let is_right = if bare == host { host.chars().all(is_name) } else { bare.parse::<std::net::IpAddr>().is_ok() };
        if bare.is_empty() || !is_right {
            return Err(NoFilterAddressError);
        }
        Ok(Self::Tcp(bare.to_owned(), port))
    }
}

impl fmt::Display for FilterAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix(path) => write!(f, "unix:{}", path.display()),
            Self::Tcp(host, port) if host.contains(':') => write!(f, "[{host}]:{port}"),
            Self::Tcp(host, port) => write!(f, "{host}:{port}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_digests() {
        let daily = |seconds| Ok(DigestTime::Daily(Duration::from_secs(seconds)));
        for (text, wanted) in [("08:00", daily(28_800)), ("8:05", daily(29_100)), ("00:00", daily(0))] {
            assert_eq!(text.parse(), wanted, "{text}");
        }
        assert_eq!("1d".parse(), Ok(DigestTime::Every(Duration::from_secs(86_400))));
        for text in ["", "8", "24:00", "08:60", "08:0", ":00", "8:000", "+8:00", "0s", "500ms", "daily", "08:00:00"] {
            assert_eq!(text.parse::<DigestTime>(), Err(NoDigestTimeError), "{text}");
        }
    }

    #[test]
    fn addresses_of_filters() {
        for text in ["unix:/run/clamd.sock", "localhost:11332", "127.0.0.1:783", "[2001:db8::1]:8891"] {
            assert_eq!(text.parse::<FilterAddress>().map(|address| address.to_string()), Ok(text.to_owned()));
        }
        for text in ["", "unix:", "unix:run/a", "localhost", ":25", "localhost:0", "2001:db8::1:25", "a b:25", "[x]:1"]
        {
            assert_eq!(text.parse::<FilterAddress>(), Err(NoFilterAddressError), "{text}");
        }
    }
}

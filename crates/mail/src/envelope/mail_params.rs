//! The parameters of `MAIL FROM:` as values, read from a command and written for the next hop.
//!
//! Every parameter is optional, given at most once, and holds only what its RFC allows. Written text reads back as the
//! same value, so the text is also a way to store them. Which extensions are offered, and whether a combination is
//! allowed in this session (REQUIRETLS without TLS, HOLDFOR outside submission), is decided by the session.

use std::fmt;
use std::num::NonZeroU32;
use std::str::FromStr;

use super::extension::{Extension, Extensions};
use crate::address::Address;
use crate::civil::CivilTime;
use crate::parameter::{ParamError, ParamReason, ParamWriter, fill, parameters};
use crate::xtext;

/// The parameters of a client for the message as a whole.
///
/// ```
/// use mail::{MailParams, ParamReason};
/// let params: MailParams = "size=1000 RET=HDRS ENVID=a+2Bb".parse()?;
/// assert_eq!(params.envid.as_ref().map(|id| id.as_str()), Some("a+b"));
/// assert_eq!(params.to_string(), "SIZE=1000 RET=HDRS ENVID=a+2Bb");
/// let error = MailParams::parse(b"FROB=1").unwrap_err();
/// assert_eq!(error.reason(), ParamReason::Unknown); // 555
/// # Ok::<(), mail::ParamError>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct MailParams {
    /// `SIZE=`: the client's estimate in octets; `u64::MAX` for anything larger (RFC 1870 §3).
    pub size: Option<u64>,
    /// `BODY=`: how the content is encoded. Not given means 7BIT by the letter and anything in practice.
    pub body: Option<Body>,
    /// `SMTPUTF8`: addresses or header fields may be UTF-8.
    pub smtputf8: bool,
    /// `RET=`: how much of the message a bounce returns.
    pub ret: Option<Ret>,
    /// `ENVID=`: the sender's name for this envelope.
    pub envid: Option<EnvId>,
    /// `AUTH=`: who submitted the message first.
    pub auth: Option<Submitter>,
    /// `MT-PRIORITY=`
    pub mt_priority: Option<MtPriority>,
    /// `REQUIRETLS`: never hand it to a next hop without verified TLS.
    pub requiretls: bool,
    /// `HOLDFOR=` or `HOLDUNTIL=`
    pub hold: Option<Hold>,
    /// `BY=`: the time by which it must be delivered.
    pub by: Option<DeliverBy>,
}

impl MailParams {
    /// Reads what follows the path of `MAIL FROM:`.
    ///
    /// # Errors
    /// The first parameter that is malformed, given twice, or unknown.
    pub fn parse(bytes: &[u8]) -> Result<Self, ParamError> {
        let mut params = Self::default();
        let (mut smtputf8, mut requiretls) = (None, None);
        for parameter in parameters(bytes) {
            let parameter = parameter?;
            let value = parameter.value;
            let filled = match parameter.keyword.to_ascii_uppercase().as_str() {
                "SIZE" => fill(&mut params.size, value.and_then(size)),
                "BODY" => fill(&mut params.body, value.and_then(Body::from_keyword)),
                "SMTPUTF8" => fill(&mut smtputf8, value.is_none().then_some(())),
                "RET" => fill(&mut params.ret, value.and_then(Ret::from_keyword)),
                "ENVID" => fill(&mut params.envid, value.and_then(xtext::decode).and_then(|id| EnvId::new(&id))),
                "AUTH" => fill(&mut params.auth, value.and_then(Submitter::parse)),
                "MT-PRIORITY" => fill(&mut params.mt_priority, value.and_then(MtPriority::parse)),
                "REQUIRETLS" => fill(&mut requiretls, value.is_none().then_some(())),
                // RFC 4865 §3: one of the two, once
                "HOLDFOR" => fill(&mut params.hold, value.and_then(Hold::parse_seconds)),
                "HOLDUNTIL" => fill(&mut params.hold, value.and_then(Hold::parse_time)),
                "BY" => fill(&mut params.by, value.and_then(DeliverBy::parse)),
                // RFC 5321 §4.1.1.11: unknown parameters are refused, 555
                _ => Err(ParamReason::Unknown),
            };
            filled.map_err(|reason| ParamError::new(parameter, reason))?;
        }
        params.smtputf8 = smtputf8.is_some();
        params.requiretls = requiretls.is_some();
        Ok(params)
    }

    /// The extensions whose parameters are used.
    #[must_use]
    pub fn extensions(&self) -> Extensions {
        [
            (self.size.is_some(), Extension::Size),
            (matches!(self.body, Some(Body::SevenBit | Body::EightBitMime)), Extension::EightBitMime),
            (self.body == Some(Body::BinaryMime), Extension::BinaryMime),
            (self.smtputf8, Extension::SmtpUtf8),
            (self.ret.is_some() || self.envid.is_some(), Extension::Dsn),
            (self.auth.is_some(), Extension::Auth),
            (self.mt_priority.is_some(), Extension::MtPriority),
            (self.requiretls, Extension::RequireTls),
            (self.hold.is_some(), Extension::FutureRelease),
            (self.by.is_some(), Extension::DeliverBy),
        ]
        .into_iter()
        .filter_map(|(used, extension)| used.then_some(extension))
        .collect()
    }
}

/// Writes the parameters with single spaces between them and none before the first.
impl fmt::Display for MailParams {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = ParamWriter::new(f);
        out.value("SIZE", self.size)?;
        out.value("BODY", self.body)?;
        out.flag("SMTPUTF8", self.smtputf8)?;
        out.value("RET", self.ret)?;
        out.value("ENVID", self.envid.as_ref().map(|id| xtext::encode(id.as_str())))?;
        out.value("AUTH", self.auth.as_ref())?;
        out.value("MT-PRIORITY", self.mt_priority)?;
        out.flag("REQUIRETLS", self.requiretls)?;
        match self.hold {
            Some(Hold::For(seconds)) => out.value("HOLDFOR", Some(seconds))?,
            Some(Hold::Until(time)) => out.value("HOLDUNTIL", Some(time))?,
            None => {}
        }
        out.value("BY", self.by)
    }
}

impl FromStr for MailParams {
    type Err = ParamError;

    fn from_str(text: &str) -> Result<Self, ParamError> {
        Self::parse(text.as_bytes())
    }
}

// RFC 1870 §3: size-value = 1*20DIGIT
fn size(value: &str) -> Option<u64> {
    digits(value, 20).map(|digits| digits.parse().unwrap_or(u64::MAX))
}

/// The value if it is one to `max` decimal digits.
fn digits(value: &str, max: usize) -> Option<&str> {
    let fits = (1..=max).contains(&value.len()) && value.bytes().all(|byte| byte.is_ascii_digit());
    fits.then_some(value)
}

/// How the content is encoded (RFC 6152 §2, RFC 3030 §3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Body {
    /// `7BIT`
    SevenBit,
    /// `8BITMIME`
    EightBitMime,
    /// `BINARYMIME`: neither lines nor line lengths mean anything; needs BDAT.
    BinaryMime,
}

impl Body {
    const ALL: [Self; 3] = [Self::SevenBit, Self::EightBitMime, Self::BinaryMime];

    /// The value on the wire.
    #[must_use]
    pub const fn keyword(self) -> &'static str {
        match self {
            Self::SevenBit => "7BIT",
            Self::EightBitMime => "8BITMIME",
            Self::BinaryMime => "BINARYMIME",
        }
    }

    fn from_keyword(value: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|body| body.keyword().eq_ignore_ascii_case(value))
    }
}

impl fmt::Display for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.keyword())
    }
}

/// The part of the message that a bounce returns (RFC 3461 §4.3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Ret {
    /// `FULL`: all of it.
    Full,
    /// `HDRS`: its header section.
    Headers,
}

impl Ret {
    /// The value on the wire.
    #[must_use]
    pub const fn keyword(self) -> &'static str {
        match self {
            Self::Full => "FULL",
            Self::Headers => "HDRS",
        }
    }

    fn from_keyword(value: &str) -> Option<Self> {
        [Self::Full, Self::Headers].into_iter().find(|ret| ret.keyword().eq_ignore_ascii_case(value))
    }
}

impl fmt::Display for Ret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.keyword())
    }
}

/// The name a sender gave the envelope, to know its bounces by (RFC 3461 §4.4): printable ASCII, held decoded.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct EnvId(Box<str>);

impl EnvId {
    /// Longest name, in octets as encoded: RFC 3461 §4.4.
    pub const OCTETS_MAX: usize = 100;

    /// Takes a decoded name. `None` when it is empty, too long once encoded, or not printable ASCII: it will stand in a
    /// header of the bounce.
    #[must_use]
    pub fn new(text: &str) -> Option<Self> {
        let printable = text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        let fits = !text.is_empty() && printable && xtext::encode(text).len() <= Self::OCTETS_MAX;
        fits.then(|| Self(text.into()))
    }

    /// The name, decoded.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// The first submitter of the message to the mail system, as far as the client knows and may be believed (RFC 4954 §5).
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Submitter {
    /// `AUTH=<>`: unknown, or not to be trusted.
    Unknown,
    /// `AUTH=a@b`, in xtext.
    Address(Address),
}

impl Submitter {
    // RFC 4954 §5
    fn parse(value: &str) -> Option<Self> {
        let text = xtext::decode(value)?;
        if text == "<>" { Some(Self::Unknown) } else { text.parse().ok().map(Self::Address) }
    }
}

impl fmt::Display for Submitter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unknown => f.write_str("<>"),
            Self::Address(address) => f.write_str(&xtext::encode(&address.to_string())),
        }
    }
}

/// A priority from -9 to 9, 0 being normal (RFC 6710 §3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct MtPriority(i8);

impl MtPriority {
    /// Makes a priority; `None` outside -9..=9.
    #[must_use]
    pub const fn new(value: i8) -> Option<Self> {
        if value >= -9 && value <= 9 { Some(Self(value)) } else { None }
    }

    /// The value, -9..=9, higher is more urgent.
    #[must_use]
    pub const fn get(self) -> i8 {
        self.0
    }

    // RFC 6710 §7: priority-value = (["-"] NZDIGIT) / "0"
    fn parse(value: &str) -> Option<Self> {
        let digit = value.strip_prefix('-').unwrap_or(value);
        let is_one = matches!(digit.as_bytes(), [b'1'..=b'9']) || value == "0";
        Self::new(value.parse().ok().filter(|_| is_one)?)
    }
}

impl fmt::Display for MtPriority {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// How long a submitted message is held before delivery begins (RFC 4865 §3).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Hold {
    /// `HOLDFOR=`, in seconds from submission.
    For(HoldSeconds),
    /// `HOLDUNTIL=`
    Until(HoldTime),
}

impl Hold {
    // RFC 4865 §3: future-release-integer = %x31-39 *8DIGIT
    fn parse_seconds(value: &str) -> Option<Self> {
        let seconds = digits(value, 9).filter(|digits| !digits.starts_with('0'))?.parse().ok()?;
        HoldSeconds::new(seconds).map(Self::For)
    }

    fn parse_time(value: &str) -> Option<Self> {
        parse_date_time(value).and_then(HoldTime::new).map(Self::Until)
    }
}

/// Seconds to hold a message, 1..=999999999.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HoldSeconds(u32);

impl HoldSeconds {
    /// Makes a duration; `None` for 0 and for more than nine digits.
    #[must_use]
    pub const fn new(seconds: u32) -> Option<Self> {
        if seconds >= 1 && seconds <= NINE_DIGITS { Some(Self(seconds)) } else { None }
    }

    /// The seconds.
    #[must_use]
    pub const fn get(self) -> u32 {
        self.0
    }
}

impl fmt::Display for HoldSeconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

/// The moment until which a message is held, in whole seconds since the Unix epoch, before the year 10000.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HoldTime(i64);

impl HoldTime {
    /// 9999-12-31T23:59:59Z
    const LAST: i64 = 253_402_300_799;

    /// Makes a moment; `None` before 1970 and after 9999.
    #[must_use]
    pub const fn new(unix_seconds: i64) -> Option<Self> {
        if unix_seconds >= 0 && unix_seconds <= Self::LAST { Some(Self(unix_seconds)) } else { None }
    }

    /// Seconds since the Unix epoch.
    #[must_use]
    pub const fn unix_seconds(self) -> i64 {
        self.0
    }
}

/// Writes the moment as in `2026-11-20T08:04:39Z`.
impl fmt::Display for HoldTime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let CivilTime { year, month, day, hour, minute, second } = CivilTime::from_unix(self.0);
        write!(f, "{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}Z")
    }
}

/// Reads a date-time with any offset; a fraction of a second is dropped.
// RFC 3339 §5.6 (gap: the leap second 60 is refused)
fn parse_date_time(value: &str) -> Option<i64> {
    let number = |range: std::ops::Range<usize>| -> Option<i64> {
        let text = value.get(range)?;
        digits(text, 4)?.parse().ok()
    };
    let is_at = |at: usize, letter: u8| value.as_bytes().get(at).is_some_and(|byte| byte.eq_ignore_ascii_case(&letter));
    let marks = is_at(4, b'-') && is_at(7, b'-') && is_at(10, b'T') && is_at(13, b':') && is_at(16, b':');
    let local = CivilTime {
        year: number(0..4).filter(|_| marks)?,
        month: number(5..7)?,
        day: number(8..10)?,
        hour: number(11..13)?,
        minute: number(14..16)?,
        second: number(17..19)?,
    }
    .to_unix()?;
    let mut zone = value.get(19..)?;
    if let Some(fraction) = zone.strip_prefix('.') {
        zone = fraction.trim_start_matches(|c: char| c.is_ascii_digit());
        if zone.len() == fraction.len() {
            return None;
        }
    }
    if zone.eq_ignore_ascii_case("Z") {
        return Some(local);
    }
    let sign = match zone.as_bytes().first()? {
        b'+' => 1,
        b'-' => -1,
        _ => return None,
    };
    let (hours, minutes) = zone.get(1..)?.split_once(':')?;
    if hours.len() != 2 || minutes.len() != 2 {
        return None;
    }
    let hours: i64 = digits(hours, 2)?.parse().ok().filter(|hours| *hours < 24)?;
    let minutes: i64 = digits(minutes, 2)?.parse().ok().filter(|minutes| *minutes < 60)?;
    Some(local - sign * (hours * 3_600 + minutes * 60))
}

const NINE_DIGITS: u32 = 999_999_999;

/// The time by which a message must be delivered, counted from the MAIL command (RFC 2852 §4).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeliverBy {
    deadline: Deadline,
    trace: bool,
}

/// The action at the deadline, and the time left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Deadline {
    /// Mode `R`: the message comes back. Seconds to go, never zero or less.
    Return(NonZeroU32),
    /// Mode `N`: the sender is told that it is late. Seconds to go; below zero when told already.
    Notify(i32),
}

impl DeliverBy {
    /// Makes a deadline, with `trace` asking for reports of each relay. `None` beyond nine digits.
    #[must_use]
    pub const fn new(deadline: Deadline, trace: bool) -> Option<Self> {
        let seconds = match deadline {
            Deadline::Return(seconds) => seconds.get(),
            Deadline::Notify(seconds) => seconds.unsigned_abs(),
        };
        if seconds <= NINE_DIGITS { Some(Self { deadline, trace }) } else { None }
    }

    /// Returns the action and the time left.
    #[must_use]
    pub const fn deadline(self) -> Deadline {
        self.deadline
    }

    /// Whether relaying to a host that knows deadlines is reported too.
    #[must_use]
    pub const fn trace(self) -> bool {
        self.trace
    }

    /// Returns the deadline after so many seconds; `None` when a time of mode R is over.
    // RFC 2852 §4.1.4: the time is lessened by the time that has passed
    #[must_use]
    pub fn after(self, seconds: u64) -> Option<Self> {
        let deadline = match self.deadline {
            Deadline::Return(left) => {
                let left = u64::from(left.get()).checked_sub(seconds)?;
                Deadline::Return(u32::try_from(left).ok().and_then(NonZeroU32::new)?)
            }
            Deadline::Notify(left) => {
                let left = i64::from(left).saturating_sub_unsigned(seconds).max(-i64::from(NINE_DIGITS));
                Deadline::Notify(i32::try_from(left).ok()?)
            }
        };
        Some(Self { deadline, ..self })
    }

    // RFC 2852 §4: by-value = by-time ";" by-mode [by-trace]
    fn parse(value: &str) -> Option<Self> {
        let (time, mode) = value.split_once(';')?;
        let unsigned = time.strip_prefix(['-', '+']).unwrap_or(time);
        let seconds: i32 = digits(unsigned, 9).and_then(|_| time.parse().ok())?;
        let mode = mode.to_ascii_uppercase();
        let (mode, trace) = mode.strip_suffix('T').map_or((mode.as_str(), false), |mode| (mode, true));
        let deadline = match mode {
            "R" => Deadline::Return(u32::try_from(seconds).ok().and_then(NonZeroU32::new)?),
            "N" => Deadline::Notify(seconds),
            _ => return None,
        };
        Self::new(deadline, trace)
    }
}

impl fmt::Display for DeliverBy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.deadline {
            Deadline::Return(seconds) => write!(f, "{seconds};R")?,
            Deadline::Notify(seconds) => write!(f, "{seconds};N")?,
        }
        if self.trace { f.write_str("T") } else { Ok(()) }
    }
}

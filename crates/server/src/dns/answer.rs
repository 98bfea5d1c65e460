//! Questions to the DNS, and how replies to them are read.
//!
//! The library follows aliases and tells an empty answer from an error, but some of its empty answers are a broken
//! DNS: a referral where an answer should be, or a chain of aliases without an end. A message would be returned that
//! another try delivers if these counted as "no such record", so [`read`] tells them apart.

use std::cmp::Ordering;
use std::net::IpAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::{DnsError, NetError, NoRecords};
use hickory_resolver::proto::op::ResponseCode;
use hickory_resolver::proto::rr::{RData, RecordType};

use super::Failure;

/// Records that are kept of one answer.
pub const RECORDS_MAX: usize = 32;

/// The longest time for which answers are kept. The block lists' own times are minutes; a name that moves is seen
/// soon.
const POSITIVE_MAX: Duration = Duration::from_secs(3_600);
/// The least time for which the hosts of a domain are kept, whatever the DNS says: some answers change each time.
const EXCHANGES_MIN: Duration = Duration::from_secs(5);
/// The longest time for which "there is none" is kept, and the time where the zone gives none.
const NEGATIVE_MAX: Duration = Duration::from_secs(900);
const NEGATIVE_DEFAULT: Duration = Duration::from_secs(60);
/// Time for which a failure counts as the answer, so that a storm does not ask again for each connection.
const FAILURE: Duration = Duration::from_secs(5);

/// Type of the records that a question asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Kind {
    A,
    Aaaa,
    Mx,
    Ptr,
    Txt,
}

/// One record of an answer. Names are as the DNS has them, with the last dot and unchecked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Data {
    Address(IpAddr),
    Exchange {
        preference: u16,
        name: Box<str>,
    },
    Name(Box<str>),
    /// The strings of a TXT record, joined.
    Text(Box<[u8]>),
}

/// The records of an answer, perhaps none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RecordSet {
    pub(super) records: Arc<[Data]>,
    /// False if the DNS answers that there is no such name at all.
    pub(super) exists: bool,
}

impl RecordSet {
    pub(super) fn addresses(&self) -> impl Iterator<Item = IpAddr> {
        self.records.iter().filter_map(|data| if let Data::Address(ip) = data { Some(*ip) } else { None })
    }
}

pub(super) type Answer = Result<RecordSet, Failure>;

/// An answer and its time.
#[derive(Clone, Debug)]
pub(super) struct CachedAnswer {
    pub(super) answer: Answer,
    /// When it has to be asked for again.
    pub(super) until: Instant,
    /// Its time is over, and the servers gave no other.
    pub(super) is_stale: bool,
}

impl CachedAnswer {
    /// Makes the failure for now.
    pub(super) fn failed(failure: Failure, now: Instant) -> Self {
        Self { answer: Err(failure), until: now + FAILURE, is_stale: false }
    }

    /// Returns whether it may serve when its time is over: "there is no such name" may not, since mail is sent back
    /// for it.
    pub(super) fn may_serve_longer(&self, kind: Kind) -> bool {
        kind != Kind::Ptr && self.answer.as_ref().is_ok_and(|found| found.exists)
    }
}

/// Result of reading a reply.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum AnswerReading {
    /// An answer, and how long it holds.
    Answer(Answer, Duration),
    /// Empty, if aliases that begin at the name have an end.
    EmptyIfAliasesEnd(Duration),
    /// Nothing came in time.
    Silence,
}

impl AnswerReading {
    pub(super) const fn failed() -> Self {
        Self::Answer(Err(Failure::Failed), FAILURE)
    }

    /// Makes the failure for a missing answer, with the time for which it is kept.
    pub(super) const fn timed_out() -> (Answer, Duration) {
        (Err(Failure::TimedOut), FAILURE)
    }

    pub(super) fn empty(exists: bool, time: Duration) -> Self {
        Self::Answer(Ok(RecordSet { records: Arc::from([]), exists }), time)
    }
}

/// Reads a reply to a question for `kind`.
pub(super) fn read(kind: Kind, reply: &Result<Lookup, NetError>) -> AnswerReading {
    match reply {
        Ok(lookup) => read_records(kind, lookup),
        Err(NetError::Dns(DnsError::NoRecordsFound(none))) => read_none(none),
        Err(NetError::Timeout) => AnswerReading::Silence,
        Err(_) => AnswerReading::failed(),
    }
}

/// Returns whether the server has told something about the name, if only that there is nothing.
pub(super) fn is_answer(error: &NetError) -> bool {
    let NetError::Dns(DnsError::NoRecordsFound(none)) = error else { return false };
    matches!(none.response_code, ResponseCode::NXDomain | ResponseCode::NoError) && !is_referral(none)
}

/// RFC 6891 §7: whether the server does not know EDNS.
pub(super) fn is_for_edns(error: &NetError) -> bool {
    matches!(error, NetError::Dns(DnsError::ResponseCode(ResponseCode::FormErr | ResponseCode::NotImp)))
}

/// RFC 2308 §2.2: name servers without a SOA record are a referral, which a server for us may not answer with: it does
/// not recurse, or the zone is delegated to one that does not have it.
fn is_referral(none: &NoRecords) -> bool {
    none.response_code == ResponseCode::NoError && none.ns.is_some() && none.soa.is_none()
}

/// Returns whether nothing at all came from the resolver.
pub(super) const fn is_silence(error: &NetError) -> bool {
    matches!(error, NetError::Timeout | NetError::NoConnections | NetError::Busy | NetError::Io(_))
}

fn read_records(kind: Kind, lookup: &Lookup) -> AnswerReading {
    let records = lookup.answers().iter();
    // RFC 2181 §5.2: the least of a set that disagrees
    let ttl = records.clone().map(|record| record.ttl).min().unwrap_or(0);
    let mut data: Vec<Data> = records.filter_map(|record| kind.data(&record.data)).collect();
    if data.is_empty() {
        // The reply has records, but not where an answer belongs.
        return AnswerReading::failed();
    }
    // The records that are cut off must be the least preferred ones, and the same for every answer.
    data.sort_by(|one, other| match (one, other) {
        (Data::Exchange { preference, name }, Data::Exchange { preference: its, name: other }) => {
            (preference, name).cmp(&(its, other))
        }
        _ => Ordering::Equal,
    });
    data.truncate(RECORDS_MAX);
    let found = RecordSet { records: data.into(), exists: true };
    // A set of hosts that changes with each reply would keep its mail from going anywhere.
    let least = if kind == Kind::Mx { EXCHANGES_MIN } else { Duration::ZERO };
    AnswerReading::Answer(Ok(found), Duration::from_secs(ttl.into()).clamp(least, POSITIVE_MAX))
}

fn read_none(none: &NoRecords) -> AnswerReading {
    // RFC 2308 §5
    let time = none.negative_ttl.map_or(NEGATIVE_DEFAULT, |ttl| Duration::from_secs(ttl.into())).min(NEGATIVE_MAX);
    match none.response_code {
        ResponseCode::NXDomain => AnswerReading::empty(false, time),
        ResponseCode::NoError if is_referral(none) => AnswerReading::failed(),
        // A reply of the library about an alias that it did not follow to its end has no authority section either.
        ResponseCode::NoError if none.authorities.is_none() => AnswerReading::EmptyIfAliasesEnd(time),
        ResponseCode::NoError => AnswerReading::empty(true, time),
        _ => AnswerReading::failed(),
    }
}

impl Kind {
    pub(super) const fn record_type(self) -> RecordType {
        match self {
            Self::A => RecordType::A,
            Self::Aaaa => RecordType::AAAA,
            Self::Mx => RecordType::MX,
            Self::Ptr => RecordType::PTR,
            Self::Txt => RecordType::TXT,
        }
    }

    /// Returns the record, if it is of this kind; aliases are not.
    fn data(self, record: &RData) -> Option<Data> {
        match (self, record) {
            (Self::A, RData::A(a)) => Some(Data::Address(a.0.into())),
            (Self::Aaaa, RData::AAAA(aaaa)) => Some(Data::Address(aaaa.0.into())),
            (Self::Mx, RData::MX(mx)) => {
                Some(Data::Exchange { preference: mx.preference, name: mx.exchange.to_ascii().into() })
            }
            // RFC 6376 §3.6.2.2, RFC 7208 §3.3: strings are joined without anything between them
            (Self::Txt, RData::TXT(text)) => Some(Data::Text(text.txt_data.concat().into())),
            (Self::Ptr, RData::PTR(name)) => Some(Data::Name(name.0.to_ascii().into())),
            _ => None,
        }
    }
}

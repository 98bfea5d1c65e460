//! A body for fuzzing: any bytes as the reply of a name server.

use super::answer::{self, AnswerReading, Kind, RECORDS_MAX};
use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::{DnsError, NetError};
use hickory_resolver::proto::op::{DnsResponse, Message, Query};
use hickory_resolver::proto::rr::{Name, RecordType};
use std::time::Duration;

/// Times of answers are no longer than that.
const TIME_MAX: Duration = Duration::from_secs(3_600);

/// Reads a reply to each kind of question. Asserts no panic, and that records and times are bounded.
///
/// # Panics
/// When one of these does not hold.
pub fn dns_reply(data: &[u8]) {
    let Ok(message) = Message::from_vec(data) else { return };
    let first = message.queries.first().cloned();
    let query = first.unwrap_or_else(|| Query::query(Name::root(), RecordType::A));
    for kind in [Kind::A, Kind::Aaaa, Kind::Mx, Kind::Ptr] {
        let lookup = Lookup::new_with_max_ttl(query.clone(), message.answers.clone());
        assert_bounded(&answer::read(kind, &Ok(lookup)));
        if let Ok(response) = DnsResponse::from_message(message.clone())
            && let Err(error) = DnsError::from_response(response)
        {
            assert_bounded(&answer::read(kind, &Err(NetError::Dns(error))));
        }
    }
}

fn assert_bounded(reading: &AnswerReading) {
    match reading {
        AnswerReading::Answer(answer, time) => {
            assert!(*time <= TIME_MAX, "{time:?}");
            assert!(answer.as_ref().is_ok_and(|found| found.records.len() <= RECORDS_MAX) || answer.is_err());
        }
        AnswerReading::EmptyIfAliasesEnd(time) => assert!(*time <= TIME_MAX, "{time:?}"),
        AnswerReading::Silence => {}
    }
}

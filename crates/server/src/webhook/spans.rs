//! Events as spans of OTLP/JSON: what a collector of traces takes at `/v1/traces`.
//!
//! | Span | Kind | Parent |
//! |---|---|---|
//! | `accept` of a message, at the time of its queue id | server | none |
//! | `deliver`, an attempt | client | `accept` |
//! | a phase of the attempt: `dns`, `connect`, … `content` | internal | `deliver` |
//!
//! The trace of a message is its queue id as a number behind eight fixed octets, so that it is found without a look at
//! the log, and attempts after a restart belong to it.
// https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding

use crate::secret_key::random_number;
use mail::{PhaseTimes, QueueId};
use observe::{Event, Stat};
use serde_json::{Value, json};
use std::time::Duration;

/// The first half of every trace id: `mailrace`.
const TRACE_PREFIX: u64 = u64::from_be_bytes(*b"mailrace");
/// Recipients that a span names.
const RECIPIENTS_MAX: usize = 20;

/// `SpanKind` and `StatusCode` of the protocol.
const INTERNAL: u8 = 1;
const SERVER: u8 = 2;
const CLIENT: u8 = 3;
const OK: u8 = 1;
const ERROR: u8 = 2;

/// Returns the spans of an event that is over now, as JSON with commas in between; `None` for an event that has none.
pub(super) fn spans(event: &Event<'_>, now_us: u64) -> Option<String> {
    let spans = match *event {
        Event::Accepted { id, from, size, nrcpts, .. } => {
            let attributes = json!([
                text("mailrace.queue_id", &id.to_string()),
                text("mailrace.from", from),
                number("mailrace.size", size),
                number("mailrace.recipients", u64::try_from(nrcpts).unwrap_or(u64::MAX)),
            ]);
            let times = (id.unix_us().min(now_us), now_us);
            vec![span(id, (id.to_u64(), None), ("accept", SERVER), times, &attributes)]
        }
        Event::Delivery { id, to, xdelay, phases, relay, dsn, reply, stat, .. } => {
            let reply = reply.map_or_else(|| stat.text().to_owned(), ToString::to_string);
            let mut attributes = vec![
                text("mailrace.queue_id", &id.to_string()),
                text("mailrace.outcome", stat.word()),
                text("mailrace.status", &dsn.to_string()),
                text("mailrace.reply", &reply),
                number("mailrace.recipients", u64::try_from(to.len()).unwrap_or(u64::MAX)),
                list("mailrace.to", to),
            ];
            attributes.extend(relay.name().map(|name| text("server.address", name)));
            attributes.extend(relay.address().map(|address| text("network.peer.address", &address.to_string())));
            let number = random_number();
            let took = xdelay.max(phases.iter().map(|(_, took)| took).sum());
            let times = (now_us.saturating_sub(micros(took)), now_us);
            let status = match stat {
                Stat::Sent(_) => json!({ "code": OK }),
                Stat::Deferred(_) | Stat::Failed(_) => json!({ "code": ERROR, "message": reply }),
            };
            let names = (number, Some(id.to_u64()));
            let deliver = span(id, names, ("deliver", CLIENT), times, &Value::Array(attributes));
            let deliver = with(deliver, "status", status);
            std::iter::once(deliver).chain(phase_spans(id, number, &phases, now_us)).collect()
        }
        _ => return None,
    };
    Some(spans.iter().map(Value::to_string).collect::<Vec<_>>().join(",\n"))
}

/// Returns the body of a request with spans.
pub(super) fn request_body(hostname: &str, spans: &[String]) -> String {
    let resource = json!({ "attributes": [
        text("service.name", "mailrace"),
        text("service.version", env!("CARGO_PKG_VERSION")),
        text("host.name", hostname),
    ] });
    let spans = spans.join(",\n");
    format!(
        "{{\"resourceSpans\":[{{\"resource\":{resource},\"scopeSpans\":[{{\"scope\":{{\"name\":\"mailrace\"}},\"spans\":[{spans}]}}]}}]}}"
    )
}

/// The phases of an attempt, one behind the other; the last one ends with the attempt.
fn phase_spans(id: QueueId, parent: u64, phases: &PhaseTimes, now_us: u64) -> Vec<Value> {
    let mut ends = now_us;
    let mut spans: Vec<Value> = Vec::new();
    for (phase, took) in phases.iter().collect::<Vec<_>>().into_iter().rev() {
        let begins = ends.saturating_sub(micros(took));
        let names = (random_number(), Some(parent));
        spans.push(span(id, names, (phase.name(), INTERNAL), (begins, ends), &json!([])));
        ends = begins;
    }
    spans.reverse();
    spans
}

/// `(number, parent)`, `(name, kind)`, `(begin, end)` in microseconds since 1970.
fn span(
    id: QueueId,
    (number, parent): (u64, Option<u64>),
    (name, kind): (&str, u8),
    (begins, ends): (u64, u64),
    attributes: &Value,
) -> Value {
    let nanos = |us: u64| (u128::from(us) * 1_000).to_string();
    let span = json!({
        "traceId": format!("{TRACE_PREFIX:016x}{:016x}", id.to_u64()),
        "spanId": format!("{:016x}", number.max(1)),
        "name": name,
        "kind": kind,
        "startTimeUnixNano": nanos(begins),
        "endTimeUnixNano": nanos(ends),
        "attributes": attributes,
    });
    match parent {
        Some(parent) => with(span, "parentSpanId", json!(format!("{:016x}", parent.max(1)))),
        None => span,
    }
}

/// Adds a field to an object.
fn with(mut object: Value, key: &str, value: Value) -> Value {
    if let Some(fields) = object.as_object_mut() {
        fields.insert(key.to_owned(), value);
    }
    object
}

fn text(key: &str, value: &str) -> Value {
    json!({ "key": key, "value": { "stringValue": value } })
}

fn number(key: &str, value: u64) -> Value {
    json!({ "key": key, "value": { "intValue": value.to_string() } })
}

fn list(key: &str, values: &[&str]) -> Value {
    let values: Vec<Value> = values.iter().take(RECIPIENTS_MAX).map(|value| json!({ "stringValue": value })).collect();
    json!({ "key": key, "value": { "arrayValue": { "values": values } } })
}

fn micros(time: Duration) -> u64 {
    u64::try_from(time.as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::{AttemptPhase, EnhancedCode, Outcome};
    use observe::NextHop;

    fn delivery<'a>(id: QueueId, phases: PhaseTimes, stat: Stat<'a>) -> Event<'a> {
        Event::Delivery {
            id,
            to: &["<ann@d.test>"],
            controller: None,
            delay: Duration::from_secs(9),
            xdelay: Duration::from_millis(2),
            phases,
            mailer: "esmtp",
            priority: 0,
            relay: NextHop::Name("mx.d.test"),
            dsn: EnhancedCode::of(Outcome::Transient, 4, 2),
            reply: None,
            stat,
            reason: None,
        }
    }

    #[test]
    fn an_attempt_is_a_span_with_its_phases_in_the_trace_of_the_message() {
        let id: QueueId = "6AK9BQPE592284".parse().unwrap();
        let mut phases = PhaseTimes::default();
        phases.add(AttemptPhase::Connect, Duration::from_millis(3));
        phases.add(AttemptPhase::Content, Duration::from_millis(4));
        let now = 1_795_788_000_000_000;
        let spans = spans(&delivery(id, phases, Stat::Deferred("later \"x\"")), now).unwrap();
        let body: Value = serde_json::from_str(&request_body("mx.test", &[spans])).unwrap();
        let scope = &body["resourceSpans"][0]["scopeSpans"][0];
        let found = scope["spans"].as_array().unwrap();
        let names: Vec<&str> = found.iter().map(|span| span["name"].as_str().unwrap()).collect();
        assert_eq!(names, ["deliver", "connect", "content"]);
        let time = |span: usize, key: &str| found[span][key].as_str().unwrap().parse::<u64>().unwrap() / 1_000_000;
        let ends = now / 1_000;
        assert_eq!((time(0, "startTimeUnixNano"), time(0, "endTimeUnixNano")), (ends - 7, ends));
        assert_eq!((time(1, "startTimeUnixNano"), time(1, "endTimeUnixNano")), (ends - 7, ends - 4));
        assert_eq!((time(2, "startTimeUnixNano"), time(2, "endTimeUnixNano")), (ends - 4, ends));
        let trace = format!("6d61696c72616365{:016x}", id.to_u64());
        assert!(found.iter().all(|span| span["traceId"] == trace.as_str()), "{found:?}");
        assert_eq!(found[0]["parentSpanId"], format!("{:016x}", id.to_u64()));
        assert!(found[1..].iter().all(|span| span["parentSpanId"] == found[0]["spanId"]));
        assert_eq!((&found[0]["status"]["code"], &found[0]["status"]["message"]), (&json!(2), &json!("later \"x\"")));
    }

    #[test]
    fn other_events_have_no_span() {
        assert_eq!(spans(&Event::LogDropped { lines: 7 }, 1), None);
    }
}

//! Reads the fields of a request: those of a query, or the object in a body.

use super::counts::{HttpCounts, HttpLimit};
use super::handler::HttpLimits;
use super::response::Refusal;
use super::route_table::{Field, FieldKind};
use hyper::StatusCode;
use hyper::body::{Body as _, Incoming};
use serde_json::{Map, Value, json};
use std::pin::Pin;
use tokio::time::timeout;

/// Reads a query into the fields of a request. Every field must be known.
///
/// # Errors
/// Names the field that is unknown, stands twice or has no value of its kind.
pub(super) fn read_query(query: &str, fields: &[Field]) -> Result<Map<String, Value>, Refusal> {
    let mut found = Map::new();
    for (name, text) in form_urlencoded::parse(query.as_bytes()) {
        let Some(field) = fields.iter().find(|field| field.name == name) else {
            return Err(unknown(&name, fields));
        };
        let value = match field.kind {
            FieldKind::Text => Some(json!(text)),
            FieldKind::Number => text.parse::<u64>().ok().map(|number| json!(number)),
            FieldKind::Flag => text.parse::<bool>().ok().map(|flag| json!(flag)),
            FieldKind::Ids => Some(text.split(',').map(Value::from).collect()),
        };
        let Some(value) = value else {
            let wanted = if field.kind == FieldKind::Number { "a number from 0" } else { "true or false" };
            return Err(bad(format!("\"{}\" is {:?}, not {wanted}", field.name, shown(&text))));
        };
        if found.insert(field.name.to_owned(), value).is_some() {
            return Err(bad(format!("\"{}\" stands twice", field.name)));
        }
    }
    Ok(found)
}

/// Reads the object in the body of a change. Every field must be known.
///
/// # Errors
/// The body is too long, too slow or no object of these fields.
pub(super) async fn read_object(
    body: Incoming,
    limits: &HttpLimits,
    counts: &HttpCounts,
    fields: &[Field],
) -> Result<Map<String, Value>, Refusal> {
    let bytes_max = limits.body_bytes_max;
    let Ok(read) = timeout(limits.request_time_max, read_body(body, bytes_max)).await else {
        counts.refuse(HttpLimit::RequestTime);
        let error =
            format!("the body did not arrive within {} s (http.request_time_max)", limits.request_time_max.as_secs());
        return Err(Refusal::new(StatusCode::REQUEST_TIMEOUT, error));
    };
    let bytes = match read {
        BodyRead::Whole(bytes) => bytes,
        BodyRead::TooLong => {
            counts.refuse(HttpLimit::BodyBytes);
            let error = format!("a body has at most {bytes_max} octets (http.body_bytes_max)");
            return Err(Refusal::new(StatusCode::PAYLOAD_TOO_LARGE, error));
        }
        BodyRead::Broken => return Err(bad("the body broke off".to_owned())),
    };
    if bytes.is_empty() {
        return Ok(Map::new());
    }
    let object: Map<String, Value> = serde_json::from_slice(&bytes)
        .map_err(|error| bad(format!("the body is no JSON object: {}", shown(&error.to_string()))))?;
    match object.keys().find(|name| fields.iter().all(|field| field.name != name.as_str())) {
        Some(name) => Err(unknown(name, fields)),
        None => Ok(object),
    }
}

enum BodyRead {
    Whole(Vec<u8>),
    TooLong,
    Broken,
}

async fn read_body(mut body: Incoming, bytes_max: usize) -> BodyRead {
    if body.size_hint().lower() > bytes_max as u64 {
        return BodyRead::TooLong;
    }
    let mut whole = Vec::new();
    loop {
        match std::future::poll_fn(|cx| Pin::new(&mut body).poll_frame(cx)).await {
            None => return BodyRead::Whole(whole),
            Some(Err(_)) => return BodyRead::Broken,
            Some(Ok(frame)) => {
                // Trailers mean nothing here.
                let Ok(data) = frame.into_data() else { continue };
                if whole.len() + data.len() > bytes_max {
                    return BodyRead::TooLong;
                }
                whole.extend_from_slice(&data);
            }
        }
    }
}

fn bad(error: String) -> Refusal {
    Refusal::new(StatusCode::BAD_REQUEST, error)
}

fn unknown(name: &str, fields: &[Field]) -> Refusal {
    let names: Vec<&str> = fields.iter().map(|field| field.name).collect();
    let known = if names.is_empty() { "there are none".to_owned() } else { format!("there are {}", names.join(", ")) };
    bad(format!("there is no field {:?} here; {known}", shown(name)))
}

/// The beginning of a text of the client, without control characters.
fn shown(text: &str) -> String {
    text.chars().filter(|letter| !letter.is_control()).take(80).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const FIELDS: &[Field] = &[
        Field { name: "expression", kind: FieldKind::Text, meaning: "" },
        Field { name: "limit", kind: FieldKind::Number, meaning: "" },
        Field { name: "headers", kind: FieldKind::Flag, meaning: "" },
        Field { name: "ids", kind: FieldKind::Ids, meaning: "" },
    ];

    #[test]
    fn a_query_has_typed_fields() {
        let read = read_query("expression=to%3A%40b.test+age%3E2h&limit=7&headers=true&ids=a,b", FIELDS).unwrap();
        let expected = json!({ "expression": "to:@b.test age>2h", "limit": 7, "headers": true, "ids": ["a", "b"] });
        assert_eq!(Value::Object(read), expected);
        assert_eq!(read_query("", FIELDS), Ok(Map::new()));
    }

    #[test]
    fn mistakes_are_named() {
        for (query, part) in [
            ("limit=x", "not a number"),
            ("limit=-1", "not a number"),
            ("headers=1", "not true or false"),
            ("limit=1&limit=2", "stands twice"),
            ("nonsense=%1b%5bx", "no field \"nonsense\" here; there are expression, limit"),
            ("%00%1b%5b=1", "no field \"[\" here"),
        ] {
            let refusal = read_query(query, FIELDS).unwrap_err();
            assert!(
                format!("{refusal:?}").contains(&format!("{part:?}")[1..])
                    || format!("{refusal:?}").contains(&part.replace('"', "\\\"")),
                "{query}: {refusal:?}"
            );
        }
    }
}

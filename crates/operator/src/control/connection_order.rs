//! The requests about connections to next hops: list them, end one, watch the dialogs of a destination.

use super::request_error::RequestError;
use crate::answers::reply::shortened_json;
use serde_json::{Map, Value, json};
use std::time::Duration;

/// The longest time for which dialogs are watched.
pub const TRANSCRIPT_TIME_MAX: Duration = Duration::from_secs(3_600);
/// The most lines of a transcript.
pub const TRANSCRIPT_LINES_MAX: u64 = 100_000;

/// Dialogs that an operator watches.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TranscriptOrder {
    /// A destination, a site or a host; `*` for any text.
    pub destination: String,
    /// For how long.
    pub time: Duration,
    /// At most so many lines.
    pub lines: u64,
}

impl TranscriptOrder {
    /// Ten minutes of a destination, 10,000 lines at most.
    #[must_use]
    pub fn new(destination: &str) -> Self {
        Self { destination: destination.to_owned(), time: Duration::from_secs(600), lines: 10_000 }
    }

    pub(super) fn to_fields(&self) -> Map<String, Value> {
        Map::from_iter([
            ("destination".to_owned(), json!(self.destination)),
            ("for".to_owned(), json!(self.time.as_secs())),
            ("limit".to_owned(), json!(self.lines)),
        ])
    }

    /// Reads the fields of a request, all of which must be known.
    ///
    /// # Errors
    /// Names the field and its value.
    pub fn from_fields(mut fields: Map<String, Value>) -> Result<Self, RequestError> {
        let destination = match fields.remove("destination") {
            Some(Value::String(name)) if !name.is_empty() => name,
            _ => return Err(RequestError::new("\"transcript\" needs \"destination\", a destination or a host")),
        };
        let mut order = Self::new(&destination);
        if let Some(seconds) = number(&mut fields, "for", TRANSCRIPT_TIME_MAX.as_secs())? {
            order.time = Duration::from_secs(seconds);
        }
        if let Some(lines) = number(&mut fields, "limit", TRANSCRIPT_LINES_MAX)? {
            order.lines = lines;
        }
        end(&fields, "transcript")?;
        Ok(order)
    }
}

/// Reads the field of `connections`: the destination, `*` without one.
pub(super) fn read_destination(mut fields: Map<String, Value>) -> Result<String, RequestError> {
    let destination = match fields.remove("destination") {
        None => "*".to_owned(),
        Some(Value::String(name)) => name,
        Some(other) => {
            return Err(RequestError::new(format!("\"destination\" is {}, not a string", shortened_json(&other))));
        }
    };
    end(&fields, "connections")?;
    Ok(destination)
}

/// Reads the field of `abort`: the number of a connection.
pub(super) fn read_connection(mut fields: Map<String, Value>) -> Result<u64, RequestError> {
    let connection = number(&mut fields, "connection", u64::MAX)?;
    end(&fields, "abort")?;
    connection.ok_or_else(|| RequestError::new("\"abort\" needs \"connection\", a number that \"connections\" names"))
}

fn number(fields: &mut Map<String, Value>, name: &str, most: u64) -> Result<Option<u64>, RequestError> {
    let Some(value) = fields.remove(name) else { return Ok(None) };
    match value.as_u64().filter(|number| (1..=most).contains(number)) {
        Some(number) => Ok(Some(number)),
        None => {
            let text = format!("{name:?} is {}, not a number from 1 to {most}", shortened_json(&value));
            Err(RequestError::new(text))
        }
    }
}

fn end(fields: &Map<String, Value>, command: &str) -> Result<(), RequestError> {
    match fields.keys().next() {
        None => Ok(()),
        Some(field) => Err(RequestError::new(format!("\"{command}\" has no field {field:?}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn orders_read_back_within_their_limits() {
        let order = TranscriptOrder { lines: 5, ..TranscriptOrder::new("slow.example") };
        assert_eq!(TranscriptOrder::from_fields(order.to_fields()), Ok(order));
        let read = |text: &str| TranscriptOrder::from_fields(serde_json::from_str(text).unwrap());
        for text in [
            "{}",
            r#"{"destination":"*","for":0}"#,
            r#"{"destination":"*","for":3601}"#,
            r#"{"destination":"*","limit":100001}"#,
            r#"{"destination":"*","x":1}"#,
        ] {
            assert!(read(text).is_err(), "{text}");
        }
        assert_eq!(read_destination(Map::new()), Ok("*".to_owned()));
        assert!(read_connection(Map::new()).is_err());
    }
}

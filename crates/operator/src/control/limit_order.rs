//! The request that sets or removes a limit of a destination.

use super::request_error::RequestError;
use crate::answers::reply::shortened_json;
use crate::queue::{HOLD_TIME_MAX, parse_reason};
use serde_json::{Map, Value, json};
use std::time::Duration;

/// A limit that is to be set, or removed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct LimitOrder {
    /// The next hops, as `destination.match` names them.
    pub destination: String,
    /// Connections at once; `None`: as configured.
    pub connections: Option<u32>,
    /// Transactions in a second, as `2.5`; `None`: as configured.
    pub rate: Option<String>,
    /// Why.
    pub reason: Option<Box<str>>,
    /// For how long, in whole seconds; `None`: until it is removed.
    pub time: Option<Duration>,
    /// Remove the limit that is there.
    pub removes: bool,
}

impl LimitOrder {
    /// The fields of the request.
    pub(super) fn to_fields(&self) -> Map<String, Value> {
        let Self { destination, connections, rate, reason, time, removes } = self;
        let fields = [
            ("destination", Some(json!(destination))),
            ("connections", connections.map(|number| json!(number))),
            ("rate", rate.as_ref().map(|rate| json!(rate))),
            ("reason", reason.as_ref().map(|reason| json!(reason))),
            ("for", time.map(|time| json!(time.as_secs()))),
            ("remove", removes.then_some(json!(true))),
        ];
        fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?))).collect()
    }

    /// Reads the fields of a request, all of which must be known.
    ///
    /// # Errors
    /// Names the field and its value.
    pub fn from_fields(mut fields: Map<String, Value>) -> Result<Self, RequestError> {
        let wrong = |name: &str, value: &Value, wanted: &str| {
            RequestError::new(format!("{name:?} is {}, not {wanted}", shortened_json(value)))
        };
        let mut take = |name: &str| fields.remove(name);
        let text = |name: &str, value: Option<Value>| match value {
            None => Ok(None),
            Some(Value::String(text)) => Ok(Some(text)),
            Some(other) => Err(wrong(name, &other, "a string")),
        };
        let number = |name: &str, value: Option<Value>, most: u64| match value {
            None => Ok(None),
            Some(value) => match value.as_u64().filter(|number| (1..=most).contains(number)) {
                Some(number) => Ok(Some(number)),
                None => Err(wrong(name, &value, &format!("a number from 1 to {most}"))),
            },
        };
        let destination = text("destination", take("destination"))?.unwrap_or_default();
        let connections = number("connections", take("connections"), u32::MAX.into())?;
        let rate = match take("rate") {
            Some(Value::Number(number)) => Some(number.to_string()),
            other => text("rate", other)?,
        };
        let reason = text("reason", take("reason"))?.map(|words| parse_reason(&words)).transpose();
        let reason = reason.map_err(|error| RequestError::new(format!("\"reason\": {error}")))?;
        let time = number("for", take("for"), HOLD_TIME_MAX.as_secs())?.map(Duration::from_secs);
        let removes = match take("remove") {
            None => false,
            Some(Value::Bool(removes)) => removes,
            Some(other) => return Err(wrong("remove", &other, "true or false")),
        };
        if let Some(field) = fields.keys().next() {
            return Err(RequestError::new(format!("\"limit\" has no field {field:?}")));
        }
        let connections = connections.and_then(|number| u32::try_from(number).ok());
        let order = Self { destination, connections, rate, reason, time, removes };
        order.check().map_err(RequestError::new)?;
        Ok(order)
    }

    fn check(&self) -> Result<(), String> {
        let sets = self.connections.is_some() || self.rate.is_some();
        match (self.removes, sets) {
            _ if self.destination.is_empty() => Err("\"limit\" needs \"destination\"".to_owned()),
            (false, false) => Err("\"limit\" needs \"connections\" or \"rate\", or \"remove\":true".to_owned()),
            (true, true) => Err("\"remove\" stands without \"connections\" and \"rate\"".to_owned()),
            _ => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<LimitOrder, String> {
        LimitOrder::from_fields(serde_json::from_str(text).unwrap()).map_err(|error| error.to_string())
    }

    #[test]
    fn orders_read_back() {
        let destination = ".example.com".to_owned();
        let set = LimitOrder {
            connections: Some(3),
            rate: Some("2.5".to_owned()),
            reason: Some("they asked".into()),
            time: Some(Duration::from_secs(60)),
            ..LimitOrder { destination: destination.clone(), ..LimitOrder::default() }
        };
        let removed = LimitOrder { destination, removes: true, ..LimitOrder::default() };
        for order in [set, removed] {
            assert_eq!(LimitOrder::from_fields(order.to_fields()), Ok(order));
        }
        assert_eq!(read(r#"{"destination":"a.test","rate":2}"#).unwrap().rate.as_deref(), Some("2"));
    }

    #[test]
    fn other_fields_are_refused_with_a_reason() {
        for (text, part) in [
            ("{}", "needs \"destination\""),
            (r#"{"destination":"a.test"}"#, "needs \"connections\" or \"rate\""),
            (r#"{"destination":"a.test","connections":0}"#, "0, not a number from 1"),
            (r#"{"destination":"a.test","connections":2,"remove":true}"#, "\"remove\" stands without"),
            (r#"{"destination":"a.test","connections":2,"for":0}"#, "\"for\" is 0"),
            (r#"{"destination":"a.test","connections":2,"reason":"\n"}"#, "a reason is one line"),
            (r#"{"destination":"a.test","connections":2,"speed":2}"#, "no field \"speed\""),
            (r#"{"destination":7}"#, "7, not a string"),
        ] {
            let error = read(text).unwrap_err();
            assert!(error.contains(part), "{text}: {error}");
        }
    }
}

//! The field of the request about mail of absent nodes of a cluster.

use super::request_error::RequestError;
use crate::answers::reply::{shortened, shortened_json};
use serde_json::{Map, Value, json};

/// The name of the request.
pub(super) const CLUSTER_ADOPT: &str = "cluster-adopt";
/// The largest number of a node.
const NODE_MAX: u64 = 63;

/// The field of a request to adopt the mail of a node.
pub(super) fn node_field(node: Option<u16>) -> Map<String, Value> {
    node.map(|node| ("node".to_owned(), json!(node))).into_iter().collect()
}

/// Reads the field: the node whose mail is to be adopted, none for a look.
pub(super) fn read_node(mut fields: Map<String, Value>) -> Result<Option<u16>, RequestError> {
    let node = match fields.remove("node") {
        None => None,
        Some(value) => {
            let number = value.as_u64().filter(|number| (1..=NODE_MAX).contains(number));
            let number = number.and_then(|number| u16::try_from(number).ok());
            let text = || format!("\"node\" is {}, not the number of a node, 1 to {NODE_MAX}", shortened_json(&value));
            Some(number.ok_or_else(|| RequestError::new(text()))?)
        }
    };
    match fields.keys().next() {
        None => Ok(node),
        Some(field) => Err(RequestError::new(format!("\"{CLUSTER_ADOPT}\" has no field {:?}", shortened(field)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_field_reads_back_and_others_are_refused() {
        for node in [None, Some(1), Some(63)] {
            assert_eq!(read_node(node_field(node)), Ok(node));
        }
        for text in [r#"{"node":0}"#, r#"{"node":64}"#, r#"{"node":"1"}"#, r#"{"node":1,"x":1}"#] {
            assert!(read_node(serde_json::from_str(text).unwrap()).is_err(), "{text}");
        }
    }
}

//! The route of a recipient as JSON, for `mailrace route --json` and for operators of the running server.

use super::{Disposition, ExplainedSender, NextHop, RouteTrace, next_hop};
use crate::config::Config;
use mail::Address;
use route::resolve::Delivery;
use route::{Refusal, Step};
use serde_json::{Value, json};

/// Returns the route of a recipient as JSON. `refused_files` are files of users and lists that do not count, each with
/// the reason.
#[must_use]
pub fn route_json(
    config: &Config,
    recipient: &Address,
    sender: &ExplainedSender,
    way: &RouteTrace,
    refused_files: &[String],
) -> Value {
    let steps: Vec<Value> = way.steps.iter().map(step_json).collect();
    let list = |deliveries: &[Delivery]| -> Vec<Value> {
        deliveries.iter().map(|one| delivery_json(one, next_hop(config, one).as_ref())).collect()
    };
    let mut value = json!({
        "recipient": recipient.to_string(),
        "sender": sender.address.to_string(),
        "client": sender.client.map(|ip| ip.to_string()),
        "steps": steps,
        "refused_files": refused_files,
    });
    let end = match &way.end {
        Disposition::Deliver(deliveries, failed) => {
            let failed: Vec<Value> = failed
                .iter()
                .map(|one| json!({ "address": one.address.to_string(), "refusal": refusal_json(&one.refusal) }))
                .collect();
            json!({ "outcome": "deliver", "deliveries": list(deliveries), "failed": failed })
        }
        Disposition::Hold(reason, deliveries) => {
            json!({ "outcome": "hold", "reason": reason, "deliveries": list(deliveries) })
        }
        Disposition::Discard => json!({ "outcome": "discard" }),
        Disposition::Refuse(refusal) => json!({ "outcome": "refuse", "refusal": refusal_json(refusal) }),
        Disposition::Defer(why) => json!({ "outcome": "defer", "reason": &**why }),
    };
    if let (Some(value), Value::Object(end)) = (value.as_object_mut(), end) {
        value.extend(end);
    }
    value
}

fn step_json(step: &Step) -> Value {
    let found = step.found.as_ref();
    json!({
        "stage": step.stage,
        "map": found.map(|found| &*found.place.map),
        "file": found.map(|found| &*found.place.file),
        "line": found.and_then(|found| found.place.line),
        "key": found.map(|found| &*found.key),
        "value": found.map(|found| &*found.value),
        "text": step.text,
    })
}

fn delivery_json(one: &Delivery, hop: Option<&NextHop>) -> Value {
    json!({
        "address": one.address.to_string(),
        "destination": one.destination.to_string(),
        "via": one.via,
        "sender": one.sender.as_ref().map(ToString::to_string),
        "controller": one.controller.as_deref(),
        "hold": one.hold.as_ref().map(|why| &*why.text),
        "queue_only": one.queue_only,
        "acknowledge": one.acknowledge.map(route::resolve::Acknowledge::name),
        "copy": one.is_copy,
        "next_hop": hop.map(|hop| json!({
            "name": hop.name,
            "override": hop.dns_override,
            "hosts": hop.given,
            "destination": hop.destination,
            "connections": hop.rule.connections,
        })),
    })
}

fn refusal_json(refusal: &Refusal) -> Value {
    json!({ "code": refusal.code, "status": refusal.status.to_string(), "text": refusal.text })
}

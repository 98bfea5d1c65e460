//! The OpenAPI description of the API, made from the table of addresses.

use super::access::HttpRights;
use super::route_table::{Call, Field, FieldKind, ROUTES, Route};
use serde_json::{Map, Value, json};

/// Describes every address.
pub(super) fn open_api() -> Map<String, Value> {
    let mut paths: Map<String, Value> = Map::new();
    for route in ROUTES {
        let path = paths.entry(route.path).or_insert_with(|| json!({}));
        if let Some(methods) = path.as_object_mut() {
            methods.insert(route.method.as_str().to_lowercase(), operation(route));
        }
    }
    let description = json!({
        "openapi": "3.1.0",
        "info": {
            "title": "mailrace",
            "version": env!("CARGO_PKG_VERSION"),
            "summary": "State, queue and metrics of a mail server.",
            "license": { "name": "Apache-2.0 OR MIT", "identifier": "Apache-2.0 OR MIT" },
        },
        "servers": [{ "url": "/" }],
        "security": [{}, { "token": [] }],
        "paths": paths,
        "components": components(),
    });
    match description {
        Value::Object(fields) => fields,
        _ => Map::new(),
    }
}

fn components() -> Value {
    json!({
        "securitySchemes": { "token": { "type": "http", "scheme": "bearer" } },
        "responses": {
            "Refused": {
                "description": "The request is refused.",
                "content": { "application/json": { "schema": { "$ref": "#/components/schemas/Refusal" } } },
            },
        },
        "schemas": {
            "Refusal": {
                "type": "object",
                "required": ["reason", "error"],
                "properties": {
                    "reason": { "enum": ["request", "permission", "busy", "config", "failed"] },
                    "error": { "type": "string", "description": "The error and the next step." },
                },
            },
            "Answer": {
                "type": "object",
                "description": "The fields of the control socket's answer, with the same names as --json prints.",
            },
            "Page": {
                "type": "object",
                "required": ["totals"],
                "properties": {
                    "messages": { "type": "array", "items": { "$ref": "#/components/schemas/Answer" } },
                    "destinations": { "type": "array", "items": { "$ref": "#/components/schemas/Answer" } },
                    "stragglers": { "type": "array", "items": { "$ref": "#/components/schemas/Answer" } },
                    "missing": { "type": "array", "items": { "type": "string" } },
                    "next": { "type": "string", "description": "The field after of the next page." },
                    "totals": { "$ref": "#/components/schemas/Answer" },
                },
            },
        },
    })
}

fn operation(route: &Route) -> Value {
    let parts = route.path.split(['/', '{', '}', '.']).filter(|part| !part.is_empty());
    let name = parts.collect::<Vec<_>>().join("_");
    let mut parameters: Vec<Value> = Vec::new();
    if let Some((_, rest)) = route.path.split_once('{') {
        let name = rest.split('}').next().unwrap_or_default();
        parameters.push(json!({ "name": name, "in": "path", "required": true, "schema": { "type": "string" } }));
    }
    let mut body = None;
    if route.is_change() {
        parameters.push(json!({
            "name": "X-Mailrace", "in": "header", "required": true, "schema": { "const": "1" },
            "description": "The page of another site cannot send it.",
        }));
        body = Some(json!({ "content": { "application/json": { "schema": object(route.fields) } } }));
    } else {
        let of = |field: &Field| json!({ "name": field.name, "in": "query", "description": field.meaning, "schema": schema(field.kind) });
        parameters.extend(route.fields.iter().map(of));
    }
    let fields = [
        ("operationId", Some(json!(format!("{}_{name}", route.method.as_str().to_lowercase())))),
        ("summary", Some(json!(route.summary))),
        ("x-right", Some(json!(route.rights.name()))),
        ("parameters", Some(Value::Array(parameters))),
        ("requestBody", body),
        ("responses", Some(responses(route))),
    ];
    some_fields(fields)
}

fn responses(route: &Route) -> Value {
    let (media, schema) = match route.call {
        Call::Live | Call::Ready | Call::Metrics => ("text/plain", json!({ "type": "string" })),
        Call::Look(_) | Call::Quarantine | Call::Message => {
            ("application/json", json!({ "$ref": "#/components/schemas/Page" }))
        }
        Call::Feed => ("text/event-stream", json!({ "type": "string" })),
        Call::Change(_) => ("application/x-ndjson", json!({ "$ref": "#/components/schemas/Answer" })),
        _ => ("application/json", json!({ "$ref": "#/components/schemas/Answer" })),
    };
    let content = Value::Object(Map::from_iter([(media.to_owned(), json!({ "schema": schema }))]));
    let unready = || json!({ "description": "The server takes no mail; the text says why." });
    let refused = || json!({ "$ref": "#/components/responses/Refused" });
    some_fields([
        ("200", Some(json!({ "description": "Done.", "content": content }))),
        ("503", (route.call == Call::Ready).then(unready)),
        ("default", (route.rights != HttpRights::None).then(refused)),
    ])
}

fn object(fields: &[Field]) -> Value {
    let properties = fields.iter().map(|field| {
        let described = json!({ "allOf": [schema(field.kind)], "description": field.meaning });
        (field.name.to_owned(), described)
    });
    json!({ "type": "object", "additionalProperties": false, "properties": properties.collect::<Map<_, _>>() })
}

/// An object of the fields that have a value.
fn some_fields(fields: impl IntoIterator<Item = (&'static str, Option<Value>)>) -> Value {
    let fields = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
    Value::Object(fields.collect())
}

fn schema(kind: FieldKind) -> Value {
    match kind {
        FieldKind::Text => json!({ "type": "string" }),
        FieldKind::Number => json!({ "type": "integer", "minimum": 0 }),
        FieldKind::Flag => json!({ "type": "boolean" }),
        FieldKind::Ids => json!({ "type": "array", "items": { "type": "string" } }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_address_is_described_with_its_fields() {
        let described = Value::Object(open_api());
        let mut count = 0;
        for route in ROUTES {
            let operation = &described["paths"][route.path][route.method.as_str().to_lowercase()];
            assert_eq!(operation["summary"], route.summary, "{}", route.path);
            for field in route.fields {
                let properties = &operation["requestBody"]["content"]["application/json"]["schema"]["properties"];
                let in_query = |one: &Value| one["name"] == field.name && one["in"] == "query";
                let is_there = properties.get(field.name).is_some()
                    || operation["parameters"].as_array().unwrap().iter().any(in_query);
                assert!(is_there, "{} {}", route.path, field.name);
            }
            count += 1;
        }
        let methods = described["paths"].as_object().unwrap().values().map(|path| path.as_object().unwrap().len());
        assert_eq!(methods.sum::<usize>(), count, "nothing else is described");
    }

    /// References lead somewhere, and every operation has a name of its own.
    #[test]
    fn the_description_is_whole() {
        let described = Value::Object(open_api());
        let mut names = std::collections::HashSet::new();
        let mut open = vec![&described];
        while let Some(value) = open.pop() {
            if let Some(target) = value.get("$ref").and_then(Value::as_str) {
                assert!(described.pointer(target.trim_start_matches('#')).is_some(), "{target}");
            }
            if let Some(name) = value.get("operationId").and_then(Value::as_str) {
                assert!(names.insert(name.to_owned()), "{name}");
            }
            open.extend(value.as_object().into_iter().flat_map(Map::values));
            open.extend(value.as_array().into_iter().flatten());
        }
        assert_eq!(names.len(), ROUTES.len());
    }
}

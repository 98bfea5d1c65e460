//! Values as the file writes them.

use super::kind::Kind;
use super::number::{size_text, time_text};
use super::toml_string::quoted;
use super::value::Value;

/// The value in TOML.
pub(crate) fn value_text(kind: &Kind, value: &Value) -> String {
    match value {
        Value::Flag(flag) => flag.to_string(),
        Value::Number(bytes) if matches!(kind, Kind::Bytes { .. }) => {
            let text = size_text(*bytes);
            if text.bytes().all(|byte| byte.is_ascii_digit()) { text } else { quoted(&text) }
        }
        Value::Number(number) => number.to_string(),
        Value::Time(time) => quoted(&time_text(*time)),
        Value::Rate(rate) => rate.to_string(),
        Value::Text(text) => quoted(text),
        Value::Path(path) => quoted(&path.to_string_lossy()),
        Value::Network(network) => quoted(&network.to_string()),
        Value::Address(address) => quoted(&address.to_string()),
        Value::Ip(ip) => quoted(&ip.to_string()),
        Value::List(items) | Value::Each(items) => {
            let of = if let Kind::List { of, .. } = kind { of } else { kind };
            let text = |item: &Value| match (of, item) {
                // In a list a list of one needs no brackets.
                (Kind::List { of, .. }, Value::List(one)) if one.len() == 1 => {
                    one.iter().map(|item| value_text(of, item)).collect()
                }
                _ => value_text(of, item),
            };
            let items: Vec<String> = items.iter().map(text).collect();
            format!("[{}]", items.join(", "))
        }
    }
}

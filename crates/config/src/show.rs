//! A configuration as TOML that reads back as the same one, with the default and the place of each value beside it.

use super::instance::instance;
use super::loaded::Loaded;
use super::number::time_text;
use super::parameter::{Parameter, Preset, Section};
use super::parameters::SECTIONS;
use super::toml_text::value_text;
use super::value::Value;
use super::{Config, Machine};
use serde_json::{Value as Json, json};
use std::fmt::Write as _;

/// The column at which remarks begin, where values leave it free.
const REMARK_AT: usize = 48;

/// All values; with `keys`, those with these keys or below them.
pub(crate) fn text(loaded: &Loaded, keys: &[String]) -> String {
    let mut text = String::new();
    if keys.is_empty() {
        match &loaded.path {
            Some(path) => line(&mut text, &format!("# file: {}", path.display()), ""),
            None => line(&mut text, "# no file: all values are defaults unless --set gave them", ""),
        }
    }
    // Keys with dots are of the top-level table and must stand before the first [[list of tables]].
    let (lists, plain): (Vec<&Section>, Vec<&Section>) = SECTIONS.iter().partition(|section| section.group.is_some());
    for section in plain {
        let shown: Vec<&Parameter> = section.parameters.iter().filter(|p| is_wanted(p, keys)).collect();
        if keys.is_empty() && !shown.is_empty() {
            text.push('\n');
        }
        for parameter in shown {
            line(&mut text, &assignment(parameter.key, parameter, loaded, 0), &remark(parameter, loaded, 0));
        }
    }
    for section in lists {
        let shown: Vec<&Parameter> = section.parameters.iter().filter(|p| is_wanted(p, keys)).collect();
        if shown.is_empty() {
            continue;
        }
        let count = section.group.map_or(0, |group| (group.len)(&loaded.config));
        for index in 0..count {
            line(&mut text, &format!("\n[[{}]]", section.key), "");
            for parameter in &shown {
                line(
                    &mut text,
                    &assignment(parameter.name(), parameter, loaded, index),
                    &remark(parameter, loaded, index),
                );
            }
        }
        if count == 0 {
            line(&mut text, &format!("\n# [[{}]]: none", section.key), "");
        }
    }
    text.trim_start_matches('\n').to_owned()
}

/// The same for other programs.
pub(crate) fn json_list(loaded: &Loaded, keys: &[String]) -> Json {
    let mut list = Vec::new();
    for section in SECTIONS {
        let count = section.group.map_or(1, |group| (group.len)(&loaded.config));
        for index in 0..count {
            for parameter in section.parameters.iter().filter(|parameter| is_wanted(parameter, keys)) {
                let value = parameter.get(&loaded.config, index);
                let default = default_value(parameter, &loaded.config, &loaded.machine, index);
                list.push(json!({
                    "key": instance(parameter, index),
                    "value": value.as_ref().map(json_value),
                    "default": default.as_ref().map(json_value),
                    "set": loaded.origin(parameter, index).to_string(),
                }));
            }
        }
    }
    Json::Array(list)
}

/// True if the key is one of these, or below one.
pub(crate) fn is_wanted(parameter: &Parameter, keys: &[String]) -> bool {
    let is_below = |key: &String| {
        parameter.key.strip_prefix(key.as_str()).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    };
    keys.is_empty() || keys.iter().any(is_below)
}

fn line(text: &mut String, assignment: &str, remark: &str) {
    // Writing to a String cannot fail.
    let _infallible = if remark.is_empty() {
        writeln!(text, "{assignment}")
    } else {
        writeln!(text, "{assignment:<REMARK_AT$} # {remark}")
    };
}

fn assignment(name: &str, parameter: &Parameter, loaded: &Loaded, index: usize) -> String {
    let value = parameter.get(&loaded.config, index);
    value.map_or_else(String::new, |value| format!("{name} = {}", value_text(&parameter.kind, &value)))
}

fn remark(parameter: &Parameter, loaded: &Loaded, index: usize) -> String {
    let origin = loaded.origin(parameter, index).to_string();
    // A name of a file may hold anything, and a remark ends with its line.
    let origin: String = origin.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect();
    if origin == "default" {
        return origin;
    }
    match default_text(parameter, &loaded.config, &loaded.machine, index) {
        Some(default) => format!("{origin}; default {default}"),
        None => origin,
    }
}

/// The default as the file would write it; nothing where a value is required.
pub(crate) fn default_text(parameter: &Parameter, config: &Config, machine: &Machine, index: usize) -> Option<String> {
    default_value(parameter, config, machine, index).map(|value| value_text(&parameter.kind, &value))
}

fn default_value(parameter: &Parameter, config: &Config, machine: &Machine, index: usize) -> Option<Value> {
    match parameter.preset {
        Preset::Derived { value, .. } => Some(value(config, machine, index)),
        Preset::Fixed(_) | Preset::ConfiguredValue { .. } | Preset::Required => parameter.fixed(),
    }
}

/// A value for other programs: sizes in bytes, times as the file writes them.
fn json_value(value: &Value) -> Json {
    match value {
        Value::Flag(flag) => json!(flag),
        Value::Number(number) => json!(number),
        Value::Time(time) => json!(time_text(*time)),
        Value::Rate(rate) => json!(f64::from(rate.milli()) / 1_000.0),
        Value::Text(text) => json!(text),
        Value::Path(path) => json!(path.to_string_lossy()),
        Value::Network(network) => json!(network.to_string()),
        Value::Address(address) => json!(address.to_string()),
        Value::Ip(ip) => json!(ip.to_string()),
        Value::List(items) | Value::Each(items) => items.iter().map(json_value).collect(),
    }
}

/// Each table of a list on one line, without default values.
pub(crate) fn inline_tables(section: &Section, config: &Config) -> Vec<String> {
    let count = section.group.map_or(0, |group| (group.len)(config));
    let machine = Machine::default();
    let table = |index| {
        let pairs: Vec<String> = section
            .parameters
            .iter()
            .filter_map(|parameter| {
                let value = value_text(&parameter.kind, &parameter.get(config, index)?);
                let is_default = default_text(parameter, config, &machine, index).as_ref() == Some(&value);
                (!is_default).then(|| format!("{} = {value}", parameter.name()))
            })
            .collect();
        format!("{{ {} }}", pairs.join(", "))
    };
    (0..count).map(table).collect()
}

//! The table of parameters is sound: each key once, in its table, with a field that takes its values.

use super::super::kind::Kind;
use super::super::parameter::Preset;
use super::super::parameters::{SECTIONS, all, section};
use super::super::reader::Draft;
use super::super::value::Value;
use super::super::{Config, Machine, blank, build};
use std::collections::BTreeSet;

#[test]
fn each_key_is_there_once_and_in_its_table() {
    let mut seen = BTreeSet::new();
    for section in SECTIONS {
        for parameter in section.parameters {
            assert!(seen.insert(parameter.key), "{} twice", parameter.key);
            let table = parameter.key.rsplit_once('.').map_or("", |(table, _)| table);
            assert_eq!(table, section.key, "{}", parameter.key);
        }
        assert_eq!(
            section.group.is_some(),
            section.key.ends_with("list")
                || [
                    "listen",
                    "accept.greet_pause_for",
                    "dns.override",
                    "destination",
                    "dkim.key",
                    "http.token",
                    "http.client",
                    "webhook",
                    "route.rule",
                    "ldap",
                    "sqlite",
                    "filter"
                ]
                .contains(&section.key)
        );
    }
    assert!(seen.len() > 70, "{}", seen.len());
    // A name that is a table and a value could not be told apart.
    assert!(seen.iter().all(|key| section(key).is_none()));
}

#[test]
fn defaults_and_examples_are_values() {
    for parameter in all() {
        let example = parameter.kind.read_bare(parameter.example);
        assert!(example.is_ok(), "{}: {example:?}", parameter.key);
        if let Preset::Fixed(text) = parameter.preset {
            let default = parameter.kind.read_bare(text);
            assert!(default.is_ok(), "{}: {default:?}", parameter.key);
            assert_ne!(example, default, "{}: the example should show something else", parameter.key);
        }
        assert!(!parameter.summary.ends_with('.') && parameter.summary.len() < 90, "{}", parameter.key);
        assert!(parameter.reason.is_empty() || parameter.reason.ends_with('.'), "{}", parameter.key);
        for text in [parameter.summary, parameter.reason] {
            assert!(!text.contains(['\n', '|', '<', '*', '`']), "{}", parameter.key);
        }
    }
}

#[test]
fn fields_take_the_ends_of_their_range() {
    let mut config = Config::default();
    config.accept.greet_pause_for.push((Vec::new(), std::time::Duration::ZERO));
    config.dnsbl.list.push(blank::dnsbl_list());
    config.dns.overrides.push(blank::dns_override());
    config.dkim.keys.push(blank::dkim_key());
    config.http.tokens.push(blank::http_token());
    config.http.clients.push(blank::http_client());
    config.webhooks.push(blank::webhook());
    config.destinations.push(blank::destination());
    config.rules.push(blank::route_rule());
    config.ldap.push(blank::ldap());
    config.sqlite.push(blank::sqlite());
    config.filters.push(blank::filter());
    for parameter in all() {
        let values: Vec<Value> = match parameter.kind {
            Kind::Number { min, max, .. } | Kind::Bytes { min, max } => vec![Value::Number(min), Value::Number(max)],
            Kind::Time { min, max } => vec![Value::Time(min), Value::Time(max)],
            Kind::Choice(words) => words.iter().map(|(word, _)| Value::Text((*word).to_owned())).collect(),
            Kind::Flag => vec![Value::Flag(true), Value::Flag(false)],
            _ => parameter
                .kind
                .read_bare(parameter.example)
                .into_iter()
                .filter(|v| !matches!(v, Value::Each(_)))
                .collect(),
        };
        for value in values {
            parameter.set(&mut config, 0, &value);
            assert_eq!(parameter.get(&config, 0), Some(value), "{}", parameter.key);
        }
    }
}

#[test]
fn every_field_has_a_parameter() {
    // Two configurations that differ in every field become equal when the table has written over them.
    let fill = |n| build::fill(blank::config(n), &mut Draft::default(), &Machine::default()).0;
    assert_eq!(fill(0), fill(1));
    assert_ne!(blank::config(0), blank::config(1));
}

#[test]
fn defaults_depend_on_the_machine() {
    let user = Config::default();
    assert_eq!(user.listen.len(), 1);
    assert_eq!(user.listen[0].address.to_string(), "127.0.0.1:2525");
    let root = Config::new(&Machine::new("mx.example.com", None));
    let addresses: Vec<String> = root.listen.iter().map(|listen| listen.address.to_string()).collect();
    assert_eq!(addresses, ["0.0.0.0:25", "[::]:25"]);
    assert_eq!((root.hostname.as_str(), root.spool.path.to_str()), ("mx.example.com", Some("/var/spool/mailrace")));
    assert_eq!(Machine::new("not a name", None).hostname, "localhost");
}

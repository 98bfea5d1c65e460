//! The files and directories that a configuration names, with the keys that name them.

use super::Config;
use super::parameters::SECTIONS;
use super::value::Value;
use std::path::PathBuf;

/// Every value that is a path, in the order of the pages; a key with several paths is there once for each of them.
///
/// Not among them: the program of `auth.program` and the templates of `local.mailbox` and `local.files`, which are
/// texts.
#[must_use]
pub fn paths(config: &Config) -> Vec<(&'static str, PathBuf)> {
    let mut found = Vec::new();
    for section in SECTIONS {
        let tables = section.group.map_or(1, |group| (group.len)(config));
        for parameter in section.parameters {
            for value in (0..tables).filter_map(|index| parameter.get(config, index)) {
                collect(parameter.key, value, &mut found);
            }
        }
    }
    found
}

fn collect(key: &'static str, value: Value, found: &mut Vec<(&'static str, PathBuf)>) {
    match value {
        Value::Path(path) if !path.as_os_str().is_empty() => found.push((key, path)),
        Value::List(values) | Value::Each(values) => values.into_iter().for_each(|value| collect(key, value, found)),
        _ => {}
    }
}

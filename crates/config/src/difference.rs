//! The changes that a reload would make.
//!
//! A reload is whole or not at all: the running server always has the values of one file. If a value has changed that
//! counts after a restart only, the reload is refused, nothing changes, and the differences say which value it is.

use super::Config;
use super::parameter::Change;
use super::parameters::SECTIONS;
use super::show::inline_tables;
use super::toml_text::value_text;
use std::fmt;

/// A value that differs.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// The key; of a list of tables the key of the list.
    pub key: String,
    /// The value before, as the file writes it; empty for a table that is new.
    pub from: String,
    /// The value after; empty for a table that is gone.
    pub to: String,
    /// True if a reload cannot bring it.
    pub needs_restart: bool,
}

impl fmt::Display for Difference {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (self.from.as_str(), self.to.as_str()) {
            ("", to) => write!(f, "{} added: {to}", self.key)?,
            (from, "") => write!(f, "{} removed: {from}", self.key)?,
            (from, to) => write!(f, "{} changed from {from} to {to}", self.key)?,
        }
        f.write_str(if self.needs_restart { ": takes effect after a restart" } else { "" })
    }
}

/// Returns the differences between two configurations, in the order of the pages.
#[must_use]
pub fn differences(old: &Config, new: &Config) -> Vec<Difference> {
    let mut found = Vec::new();
    for section in SECTIONS {
        if section.group.is_some() {
            let (before, after) = (inline_tables(section, old), inline_tables(section, new));
            let needs_restart = section.parameters.iter().any(|parameter| parameter.change == Change::Restart);
            let one = |from: &str, to: &str| Difference {
                key: section.key.to_owned(),
                from: shown(section.key, from),
                to: shown(section.key, to),
                needs_restart,
            };
            let (gone, come) = (without(&before, &after), without(&after, &before));
            if gone.is_empty() && come.is_empty() && before != after {
                // The same tables in another order, which decides where the first that fits counts.
                found.push(one(&before.join(", "), &after.join(", ")));
            }
            found.extend(gone.iter().map(|table| one(table, "")));
            found.extend(come.iter().map(|table| one("", table)));
            continue;
        }
        for parameter in section.parameters {
            let (Some(from), Some(to)) = (parameter.get(old, 0), parameter.get(new, 0)) else { continue };
            if from != to {
                found.push(Difference {
                    key: parameter.key.to_owned(),
                    from: value_text(&parameter.kind, &from),
                    to: value_text(&parameter.kind, &to),
                    needs_restart: parameter.change == Change::Restart,
                });
            }
        }
    }
    found
}

/// Returns the text of tables without the queries in addresses of webhooks: they may hold a secret, and a reload logs
/// the differences.
fn shown(section: &str, tables: &str) -> String {
    if section != "webhook" {
        return tables.to_owned();
    }
    let mut parts = tables.split("url = \"");
    let mut text = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let (url, rest) = part.split_once('"').unwrap_or((part, ""));
        let shown = url.split_once('?').map_or_else(|| url.to_owned(), |(shown, _)| format!("{shown}?..."));
        text.push_str(&format!("url = \"{shown}\"{rest}"));
    }
    text
}

/// Returns the elements of `these` that are not in `those`, counting equal ones.
fn without<'a>(these: &'a [String], those: &[String]) -> Vec<&'a str> {
    let mut those: Vec<&String> = those.iter().collect();
    let mut rest = Vec::new();
    for table in these {
        match those.iter().position(|other| *other == table) {
            Some(at) => drop(those.swap_remove(at)),
            None => rest.push(table.as_str()),
        }
    }
    rest
}

/// Why a reload to these differences is refused; nothing if it is not.
#[must_use]
pub fn refuses_reload(differences: &[Difference]) -> Option<String> {
    let lines: Vec<String> =
        differences.iter().filter(|difference| difference.needs_restart).map(ToString::to_string).collect();
    (!lines.is_empty())
        .then(|| format!("{}; nothing was changed: restart the server, or take this back", lines.join("; ")))
}

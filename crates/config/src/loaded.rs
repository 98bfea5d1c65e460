//! A configuration that was read, with the places where its values were set.

use super::parameter::Parameter;
use super::parameters::{find, section};
use super::problem::{OVERRIDES_FILE, Problem, Severity, SourceLocation};
use super::{Config, Machine};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::path::PathBuf;

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Origin {
    /// The default applies.
    Default,
    /// A file, and the line in it.
    File {
        /// As it was named.
        file: String,
        /// Counted from 1.
        line: usize,
    },
    /// `--set`.
    Override,
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("default"),
            Self::File { file, line } => write!(f, "{file}:{line}"),
            Self::Override => f.write_str("--set"),
        }
    }
}

/// A configuration that can be used, and its warnings.
#[derive(Clone, Debug)]
pub struct Loaded {
    /// The values.
    pub config: Config,
    /// Values that are allowed and that the operator should look at.
    pub warnings: Vec<Problem>,
    /// The file, if there was one.
    pub path: Option<PathBuf>,
    /// The shared file below it, if there was one.
    pub shared: Option<PathBuf>,
    /// The machine whose defaults hold.
    pub machine: Machine,
    pub(crate) places: Places,
}

impl Loaded {
    /// How many keys were set.
    #[must_use]
    pub fn keys_set(&self) -> usize {
        let set: BTreeSet<_> =
            self.places.given.values().map(|place| (&place.file, place.line, place.column, &place.source)).collect();
        set.len()
    }

    /// Makes a problem. Its place is that of the key that `text` begins with, in a form such as `maps.access: …`,
    /// `route.rule[2].reject: …` or `route.rule[2] …`; nowhere if that is not set.
    #[must_use]
    pub fn problem(&self, severity: Severity, text: impl Into<String>) -> Problem {
        let text = text.into();
        let name = text.split([' ', ':']).next().unwrap_or_default();
        let place = self.place_of(name);
        let key = if place.is_some() { name.to_owned() } else { String::new() };
        SourceLocation::problem(place, severity, key, text)
    }

    /// Returns where a key was set, as `FILE:LINE` or in the words of a command line; `None`: its default holds.
    #[must_use]
    pub fn set_at(&self, key: &str) -> Option<String> {
        let place = self.place_of(key)?;
        Some(if place.file == OVERRIDES_FILE { "--set".to_owned() } else { format!("{}:{}", place.file, place.line) })
    }

    fn place_of(&self, name: &str) -> Option<&SourceLocation> {
        let Some((table, rest)) = name.split_once('[') else {
            return self.places.of(find(name)?.key, 0);
        };
        let (number, key) = rest.split_once(']')?;
        let index = number.parse::<usize>().ok()?.checked_sub(1)?;
        let of_key = find(&format!("{table}{key}")).and_then(|parameter| self.places.of(parameter.key, index));
        of_key.or_else(|| self.places.of_table(section(table)?.key, index))
    }

    /// Where the value of a parameter came from.
    pub(crate) fn origin(&self, parameter: &Parameter, index: usize) -> Origin {
        match self.places.of(parameter.key, index) {
            None => Origin::Default,
            Some(place) if place.file == OVERRIDES_FILE => Origin::Override,
            Some(place) => Origin::File { file: place.file.clone(), line: place.line },
        }
    }
}

/// Where values were set.
#[derive(Clone, Debug, Default)]
pub(crate) struct Places {
    pub(super) given: BTreeMap<(&'static str, usize), SourceLocation>,
    pub(super) tables: BTreeMap<(&'static str, usize), SourceLocation>,
    /// Keys with values that could not be read.
    pub(super) unread: BTreeSet<&'static str>,
}

impl Places {
    /// Where a key was set.
    pub(crate) fn of(&self, key: &'static str, index: usize) -> Option<&SourceLocation> {
        self.given.get(&(key, index))
    }

    /// Where a table of a list begins.
    pub(crate) fn of_table(&self, key: &'static str, index: usize) -> Option<&SourceLocation> {
        self.tables.get(&(key, index))
    }

    /// True if the value of this key is not the one that was written.
    pub(crate) fn is_unread(&self, key: &str) -> bool {
        self.unread.contains(key)
    }
}

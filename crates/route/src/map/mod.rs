//! Maps in memory.

use std::collections::HashMap;

/// A map whose entries are in memory.
#[derive(Debug, Default)]
pub struct Table {
    name: String,
    file: String,
    entries: HashMap<String, (String, Option<u32>)>,
}

/// An entry of a table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Hit<'a> {
    /// As it is stored.
    pub key: &'a str,
    /// As it is stored.
    pub value: &'a str,
    /// The line of a text file.
    pub line: Option<u32>,
}

impl Table {
    /// A map of these entries.
    #[must_use]
    pub fn from_entries(name: &str, entries: impl IntoIterator<Item = (String, String)>) -> Self {
        let entries = entries.into_iter().map(|(key, value)| (key.to_lowercase(), (value, None))).collect();
        Self { name: name.to_owned(), file: name.to_owned(), entries }
    }

    /// What people call it.
    #[must_use]
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its file.
    #[must_use]
    pub fn file(&self) -> &str {
        &self.file
    }

    /// The entry of a key; upper and lower case are the same.
    #[must_use]
    pub fn get(&self, key: &str) -> Option<Hit<'_>> {
        let (key, (value, line)) = self.entries.get_key_value(&key.to_lowercase())?;
        Some(Hit { key, value, line: *line })
    }
}

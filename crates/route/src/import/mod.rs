//! From sendmail's configuration to one of ours: text in, TOML and notes out; and its queued messages as values.
//!
//! | File | Holds |
//! |---|---|
//! | [`macros`] | the m4 of a `.mc` file |
//! | [`expand`] | names that it defines, and conditions |
//! | [`include`] | files that it names |
//! | [`mc`] | what its macros mean |
//! | [`cf`] | lines of a `.cf` file |
//! | [`options`] | options, which both have, and our keys for them |
//! | [`maps`] | tables and the options behind their names |
//! | [`ldap`] | directories: maps, routing, and where they are |
//! | [`values`] | times, numbers, hosts as sendmail writes them |
//! | [`settings`] | the keys found so far, and their TOML |
//! | [`queue`] | a message of sendmail's queue |
//!
//! No value is guessed: a statement without a key, or with a value that our key cannot have, becomes a [`Note`]. An
//! omission is always the stricter side: no relaying, no listener that would take mail without the login it had.

mod cf;
mod expand;
mod include;
mod ldap;
mod ldap_statements;
mod macros;
mod maps;
mod mc;
mod options;
pub mod queue;
mod settings;
#[cfg(test)]
mod tests;
mod values;

use std::fmt;

/// How much a note matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    /// It was not carried over; the operator must set it.
    Missing,
    /// It was carried over and means something a little different here.
    Differs,
    /// Nothing is to be done: it is always so here, or there is no such thing to set.
    Needless,
}

impl Weight {
    /// The word for people and programs.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Missing => "missing",
            Self::Differs => "differs",
            Self::Needless => "needless",
        }
    }
}

/// A note on a statement.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Note {
    /// How much it matters.
    pub weight: Weight,
    /// The file, as it was named.
    pub file: String,
    /// The line, counted from 1; 0 for a note without a line.
    pub line: usize,
    /// The statement, shortened.
    pub statement: String,
    /// Why.
    pub reason: String,
    /// The next step; empty for none.
    pub hint: String,
}

impl fmt::Display for Note {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}: {}: {}: {}", self.file, self.line, self.weight.name(), self.statement, self.reason)?;
        if self.hint.is_empty() { Ok(()) } else { write!(f, "; {}", self.hint) }
    }
}

/// The result of an import.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Imported {
    /// The configuration, with the line each key comes from.
    pub toml: String,
    /// In the order of the file.
    pub notes: Vec<Note>,
}

/// The language of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Language {
    /// Macros of m4: `sendmail.mc`.
    Mc,
    /// The output of m4: `sendmail.cf`.
    Cf,
}

impl Language {
    /// By the name of the file, else by its lines: a `.cf` file has options (`O Name=value`).
    #[must_use]
    pub fn of(name: &str, text: &str) -> Self {
        if name.ends_with(".mc") {
            Self::Mc
        } else if name.ends_with(".cf") || text.lines().any(|line| line.starts_with("O ") && line.contains('=')) {
            Self::Cf
        } else {
            Self::Mc
        }
    }
}

/// The files beside the one that is imported, as the caller sees them.
#[derive(Clone, Copy)]
pub struct Files<'a> {
    /// Whether a path names a file: for maps that may be text or a database, and for files that sendmail reads only if
    /// they are there.
    pub is_there: &'a dyn Fn(&str) -> bool,
    /// The text of a file that is included, or of a list of domains; `None` if it cannot be read, or is no text.
    pub read: &'a dyn Fn(&str) -> Option<String>,
}

impl fmt::Debug for Files<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Files")
    }
}

/// Carries a file over. `name` is its path, for notes and for the files that it includes.
#[must_use]
pub fn import(name: &str, text: &str, language: Language, files: Files<'_>) -> Imported {
    let mut settings = settings::ImportedSettings::new(name, files);
    match language {
        Language::Mc => include::read(&mut settings, text),
        Language::Cf => cf::read(&mut settings, text),
    }
    ldap::finish(&mut settings);
    settings.finish()
}

//! Faults and doubtful entries of a map, found before mail meets them.

use crate::question::EntryLocation;
use std::fmt;

/// How bad it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    /// It works, though perhaps not as meant.
    Warning,
    /// The entry has no effect, or refuses mail it should not.
    Error,
}

/// One doubt about an entry.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lint {
    /// The entry.
    pub place: EntryLocation,
    /// How bad it is.
    pub severity: Severity,
    /// The fault, with the key and the value.
    pub text: String,
    /// The text to write instead.
    pub hint: String,
}

impl Lint {
    /// A doubt.
    #[must_use]
    pub fn warning(place: EntryLocation, text: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { place, severity: Severity::Warning, text: text.into(), hint: hint.into() }
    }

    /// A fault.
    #[must_use]
    pub fn error(place: EntryLocation, text: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { place, severity: Severity::Error, text: text.into(), hint: hint.into() }
    }
}

/// `mailertable /etc/mail/mailertable line 42: "smtp:[10.0.0.5" lacks "]"; write smtp:[10.0.0.5]`.
impl fmt::Display for Lint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.place.map, self.place.file)?;
        if let Some(line) = self.place.line {
            write!(f, " line {line}")?;
        }
        write!(f, ": {}; {}", self.text, self.hint)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_lint_names_place_fault_and_next_step() {
        let place = EntryLocation { map: "mailertable".into(), file: "/etc/mail/mailertable".into(), line: Some(42) };
        let lint = Lint::error(place, "\"smtp:[10.0.0.5\" lacks \"]\"", "write smtp:[10.0.0.5]");
        assert_eq!(
            lint.to_string(),
            "mailertable /etc/mail/mailertable line 42: \"smtp:[10.0.0.5\" lacks \"]\"; write smtp:[10.0.0.5]"
        );
    }
}

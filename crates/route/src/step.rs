//! One decision on the way of a mail: the entry that decided, and the effect. `mailrace route` prints them.

use crate::question::MapEntry;
use std::fmt;

/// One decision.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Step {
    /// The map or rule: `virtusertable`, `mailertable`, `rule`, `aliases`, `access To:`.
    pub stage: &'static str,
    /// The entry that decided; `None`: none did, or the decision needs none.
    pub found: Option<MapEntry>,
    /// The result: `joe@new.example`, `smtp:[10.1.1.1]:25`.
    pub text: String,
}

impl Step {
    /// A decision without an entry.
    #[must_use]
    pub fn new(stage: &'static str, text: impl Into<String>) -> Self {
        Self { stage, found: None, text: text.into() }
    }

    /// A decision of an entry.
    #[must_use]
    pub fn of(stage: &'static str, found: MapEntry, text: impl Into<String>) -> Self {
        Self { stage, found: Some(found), text: text.into() }
    }
}

/// `mailertable /etc/mail/mailertable line 7: "partner.example" = "esmtp:[10.1.1.1]" → smtp:[10.1.1.1]:25`.
impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.stage)?;
        if let Some(found) = &self.found {
            write!(f, " {}", found.place.file)?;
            if let Some(line) = found.place.line {
                write!(f, " line {line}")?;
            }
            write!(f, ": \"{}\" = \"{}\"", found.key, found.value)?;
            return write!(f, " → {}", self.text);
        }
        write!(f, ": {}", self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::question::EntryLocation;

    #[test]
    fn a_step_names_its_entry() {
        let place = EntryLocation { map: "mailertable".into(), file: "/etc/mail/mailertable".into(), line: Some(7) };
        let found = MapEntry { key: "a.example".into(), value: "esmtp:[10.1.1.1]".into(), place };
        assert_eq!(
            Step::of("mailertable", found, "smtp:[10.1.1.1]:25").to_string(),
            "mailertable /etc/mail/mailertable line 7: \"a.example\" = \"esmtp:[10.1.1.1]\" → smtp:[10.1.1.1]:25"
        );
        assert_eq!(Step::new("mx", "hosts of b.example").to_string(), "mx: hosts of b.example");
    }
}

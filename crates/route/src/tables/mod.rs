//! sendmail's tables of routing: their look-ups and the meaning of their values.
//!
//! | File | Key | Value |
//! |---|---|---|
//! | [`mailertable`] | `host.example`, `.example`, `.` | [`mailer`] value |
//! | [`smarttable`] | the sender, `@domain`, `domain`, `@` | [`mailer`] value |
//! | [`virtusertable`] | `user@domain`, `user+*@domain`, `@domain` | address, user, `error:` |
//! | [`domaintable`] | `old.example` | `new.example` |
//! | [`genericstable`] | `user`, `user@domain`, `@domain` | what a sender is called outside |
//! | [`ldap_routing`] | address, `@domain` | `mailHost`, `mailRoutingAddress` |
//!
//! [`substitute`] puts parts of the key into values, [`error_value`] reads `error:` in its two dialects.
//! [`resolve`](crate::resolve) knows the effects of the values.

pub mod domaintable;
pub mod error_value;
pub mod genericstable;
pub mod ldap_routing;
pub mod mailer;
pub mod mailertable;
pub mod smarttable;
pub mod substitute;
pub mod virtusertable;

use crate::question::{Ask, MapEntry, Source, Stop};

/// An entry, and its value with the parts of the key in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableEntry {
    /// Where it stands.
    pub found: MapEntry,
    /// Its value, with `%1` and the others filled in.
    pub value: String,
}

/// The fault of a value, and the text to write instead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ValueError {
    /// The fault.
    pub text: String,
    /// The text to write instead.
    pub hint: String,
}

impl ValueError {
    fn new(text: impl Into<String>, hint: impl Into<String>) -> Self {
        Self { text: text.into(), hint: hint.into() }
    }
}

/// Looks up several keys of one map, of which the first that is there counts. Each comes with the texts for `%1`, `%2`,
/// `%3`.
///
/// Sources outside are asked for all keys in one round.
fn first<'k>(
    ask: &mut Ask<'_>,
    map: &str,
    sources: &[Source],
    keys: impl IntoIterator<Item = (&'k str, [&'k str; 3])>,
) -> Result<Option<TableEntry>, Stop> {
    if sources.is_empty() {
        return Ok(None);
    }
    let mut is_open = false;
    for (key, parts) in keys {
        match ask.find(map, sources, key) {
            Ok(Some(found)) if !is_open => {
                let value = substitute::substitute(&found.value, key, &parts);
                return Ok(Some(TableEntry { found, value }));
            }
            Ok(_) => {}
            Err(Stop::Open) => is_open = true,
            // Behind an open question it may not matter.
            Err(Stop::Trouble(why)) if !is_open => return Err(Stop::Trouble(why)),
            Err(Stop::Trouble(_)) => {}
            Err(Stop::TooMuchWork) => return Err(Stop::TooMuchWork),
        }
    }
    if is_open { Err(Stop::Open) } else { Ok(None) }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use crate::map::Table;
    use crate::question::Answers;
    use std::sync::Arc;

    /// A map of these entries.
    pub(crate) fn map(name: &str, entries: &[(&str, &str)]) -> Vec<Source> {
        let entries = entries.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned()));
        vec![Source::Loaded(Arc::new(Table::from_entries(name, entries)))]
    }

    #[test]
    fn sources_outside_are_asked_for_all_keys_at_once() {
        let sources = [Source::Outside("ldap:x".into())];
        let answers = Answers::new();
        let mut ask = Ask::new(&answers);
        let none = ["", "", ""];
        assert_eq!(first(&mut ask, "m", &sources, [("a", none), ("b", none), ("c", none)]), Err(Stop::Open));
        assert_eq!(ask.into_open().len(), 3);
    }
}

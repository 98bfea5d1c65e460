//! domaintable: other names of domains. The whole domain is the key, the domain that is meant the value; one step, no
//! chain.

use super::{TableEntry, ValueError, first};
use crate::question::{Ask, Source, Stop};
use mail::DomainName;

/// The name of the map in messages.
pub const NAME: &str = "domaintable";

/// The entry that says what a domain is called instead.
///
/// # Errors
/// As [`Ask::find`].
pub fn find(ask: &mut Ask<'_>, sources: &[Source], domain: &str) -> Result<Option<TableEntry>, Stop> {
    first(ask, NAME, sources, [(domain, ["", "", ""])])
}

/// Reads a value.
///
/// # Errors
/// It is no domain.
pub fn parse(value: &str) -> Result<DomainName, ValueError> {
    let value = value.trim();
    let name = value.strip_suffix('.').unwrap_or(value);
    DomainName::new(name).map_err(|error| {
        ValueError::new(format!("\"{value}\" is no domain: {error}"), "write a domain, as new.example")
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::question::Answers;
    use crate::tables::tests::map;

    #[test]
    fn a_domain_has_another_name_and_those_below_it_have_not() {
        let table = map(NAME, &[("old.test", "New.test"), ("bad.test", "a b")]);
        let ask = |domain: &str| {
            let entry = find(&mut Ask::new(&Answers::new()), &table, domain).unwrap();
            entry.map(|entry| parse(&entry.value))
        };
        assert_eq!(ask("old.test").unwrap().unwrap().ascii(), "new.test");
        assert_eq!(ask("sub.old.test"), None);
        assert!(ask("bad.test").unwrap().is_err());
    }
}

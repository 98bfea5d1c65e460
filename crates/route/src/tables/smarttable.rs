//! smarttable: hosts for a sender, in the place of the smart host.
//!
//! Keys in their order for `u+d@a.b.example`: the address, `u@a.b.example`, `@a.b.example`, `a.b.example`,
//! `.b.example`, `b.example`, `.example`, `example`. The null sender has the key `@`, and no other. Andrzej Filip's
//! `smarttable.m4` asks for the address and for `@a.b.example` only.

use super::{TableEntry, first};
use crate::question::{Ask, Source, Stop};
use mail::{Domain, ReversePath};

/// The name of the map in messages.
pub const NAME: &str = "smarttable";

/// The entry for a sender.
///
/// # Errors
/// As [`Ask::find`].
pub fn find(
    ask: &mut Ask<'_>,
    sources: &[Source],
    sender: &ReversePath,
    delimiter: Option<char>,
) -> Result<Option<TableEntry>, Stop> {
    const NONE: [&str; 3] = [""; 3];
    if sources.is_empty() {
        return Ok(None);
    }
    let ReversePath::Address(address) = sender else { return first(ask, NAME, sources, [("@", NONE)]) };
    let domain = match address.domain() {
        Domain::Name(name) => name.ascii().to_owned(),
        Domain::Literal(literal) => literal.to_string(),
    };
    let local = address.local_part().to_string();
    let mut keys = vec![format!("{local}@{domain}")];
    if let Some((user, _)) = super::virtusertable::detail(&local, delimiter) {
        keys.push(format!("{user}@{domain}"));
    }
    keys.push(format!("@{domain}"));
    keys.push(domain.clone());
    if !domain.starts_with('[') {
        for (dot, _) in domain.match_indices('.') {
            keys.extend(domain.get(dot..).map(str::to_owned));
            keys.extend(domain.get(dot + 1..).map(str::to_owned));
        }
    }
    first(ask, NAME, sources, keys.iter().map(|key| (key.as_str(), NONE)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::question::Answers;
    use crate::tables::tests::map;

    #[test]
    fn keys_are_asked_from_the_address_up() {
        let table = map(
            NAME,
            &[
                ("boss@corp.example", "relay:[crypt]"),
                ("@corp.example", "relay:[corp]"),
                ("old.example", "relay:[old]"),
                (".dot.example", "relay:[dot]"),
                ("below.example", "relay:[below]"),
                ("@", "relay:[bounces]"),
            ],
        );
        for (sender, value) in [
            ("<boss@corp.example>", Some("relay:[crypt]")),
            ("<Boss+x@CORP.example>", Some("relay:[crypt]")),
            ("<clerk@corp.example>", Some("relay:[corp]")),
            ("<x@a.corp.example>", None),
            ("<x@old.example>", Some("relay:[old]")),
            ("<x@a.dot.example>", Some("relay:[dot]")),
            ("<x@dot.example>", None),
            ("<x@a.b.below.example>", Some("relay:[below]")),
            ("<>", Some("relay:[bounces]")),
            ("<x@[192.0.2.1]>", None),
        ] {
            let path: ReversePath = sender.parse().unwrap();
            let entry = find(&mut Ask::new(&Answers::new()), &table, &path, Some('+')).unwrap();
            assert_eq!(entry.as_ref().map(|entry| entry.value.as_str()), value, "{sender}");
        }
    }
}

//! genericstable: the outside addresses of senders.
//!
//! Keys in their order for `u+d@g.example`, whose domain is one of those that the table is for:
//!
//! | Key | `%1` |
//! |---|---|
//! | `u+d@g.example` | |
//! | `u+*@g.example` | `d` |
//! | `u@g.example` | |
//! | `@g.example` | `u+d` |
//! | `u+d` | |
//! | `u+*` | `d` |
//! | `u` | |
//!
//! Without a detail: `u@g.example`, `@g.example`, `u`. A value without a domain is a user of this machine.

use super::virtusertable::detail;
use super::{TableEntry, first};
use crate::question::{Ask, Source, Stop};

/// The name of the map in messages.
pub const NAME: &str = "genericstable";

/// The entry for a sender, whose domain is in the form of the DNS; `None` for a name without one.
///
/// # Errors
/// As [`Ask::find`].
pub fn find(
    ask: &mut Ask<'_>,
    sources: &[Source],
    local: &str,
    domain: &str,
    delimiter: Option<char>,
) -> Result<Option<TableEntry>, Stop> {
    if sources.is_empty() {
        return Ok(None);
    }
    let sign = delimiter.unwrap_or('+');
    let mut keys = vec![(format!("{local}@{domain}"), "")];
    let plus = detail(local, delimiter);
    if let Some((user, behind)) = plus {
        keys.push((format!("{user}{sign}*@{domain}"), behind));
        keys.push((format!("{user}@{domain}"), ""));
    }
    keys.push((format!("@{domain}"), local));
    keys.push((local.to_owned(), ""));
    if let Some((user, behind)) = plus {
        keys.push((format!("{user}{sign}*"), behind));
        keys.push((user.to_owned(), ""));
    }
    first(ask, NAME, sources, keys.iter().map(|(key, part)| (key.as_str(), [*part, "", ""])))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::question::Answers;
    use crate::tables::tests::map;

    /// As sendmail 8.17 answered `/try esmtp` for senders in the envelope.
    #[test]
    fn keys_are_asked_in_sendmails_order() {
        let table = map(
            NAME,
            &[
                ("joe", "Joe.Doe@corp.example"),
                ("ann+x", "Ann.X@corp.example"),
                ("ann+*", "Ann.%1@corp.example"),
                ("ann", "Ann.D@corp.example"),
                ("full@g.test", "full-%1@out.example"),
                ("det+*@g.test", "det-%1@out.example"),
                ("plain@g.test", "plain-%1@out.example"),
                ("@g2.test", "%1@out2.example"),
                ("unq", "otheruser"),
            ],
        );
        for (address, value) in [
            ("joe@g.test", Some("Joe.Doe@corp.example")),
            ("ann@g.test", Some("Ann.D@corp.example")),
            ("ann+x@g.test", Some("Ann.X@corp.example")),
            ("ann+y@g.test", Some("Ann.y@corp.example")),
            ("full@g.test", Some("full-@out.example")),
            ("full+z@g.test", Some("full-@out.example")),
            ("det@g.test", None),
            ("det+q@g.test", Some("det-q@out.example")),
            ("det+@g.test", Some("det-@out.example")),
            ("plain+r@g.test", Some("plain-@out.example")),
            ("nobody@g.test", None),
            ("x@g2.test", Some("x@out2.example")),
            ("x+y@g2.test", Some("x+y@out2.example")),
            ("joe@g2.test", Some("joe@out2.example")),
            ("unq@g.test", Some("otheruser")),
        ] {
            let (local, domain) = address.rsplit_once('@').unwrap();
            let entry = find(&mut Ask::new(&Answers::new()), &table, local, domain, Some('+')).unwrap();
            assert_eq!(entry.as_ref().map(|entry| entry.value.as_str()), value, "{address}");
        }
    }
}

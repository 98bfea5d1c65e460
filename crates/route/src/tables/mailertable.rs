//! mailertable: hosts for the domain of a recipient that is not local.
//!
//! Keys in their order for `a.b.example`: `a.b.example`, `.b.example`, `.example`, `.`. So `.example` is for names
//! below `example` and not for `example` itself, and `.` is for all that no other key fits. With a key that begins with
//! a dot `%1` is the part before it in the domain (`a`, `a.b`; with `.` the whole domain), and `%2` the last part of
//! that.

use super::{TableEntry, first};
use crate::question::{Ask, Source, Stop};

/// The name of the map in messages.
pub const NAME: &str = "mailertable";

/// The entry for a domain, in the form of the DNS.
///
/// # Errors
/// As [`Ask::find`].
pub fn find(ask: &mut Ask<'_>, sources: &[Source], domain: &str) -> Result<Option<TableEntry>, Stop> {
    let whole = std::iter::once((domain, ["", "", ""]));
    let parents = domain.match_indices('.').filter_map(|(dot, _)| {
        let (before, key) = domain.split_at_checked(dot)?;
        let last = before.rsplit('.').next().unwrap_or(before);
        Some((key, [before, last, ""]))
    });
    first(ask, NAME, sources, whole.chain(parents).chain(std::iter::once((".", [domain, "", ""]))))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::question::Answers;
    use crate::tables::tests::map;

    /// As sendmail 8.17 answered `-bv`.
    #[test]
    fn keys_are_asked_from_the_domain_up() {
        let table = map(
            NAME,
            &[
                ("h1.test", "smtp:[10.0.0.1]"),
                (".sub.test", "relay:%1.a.%2.b.%0.example"),
                (".deep.sub.test", "relay:%1%2%3%9%%x.example"),
                (".", "relay:[smart.%1]"),
            ],
        );
        for (domain, value) in [
            ("h1.test", "smtp:[10.0.0.1]"),
            ("H1.Test", "smtp:[10.0.0.1]"),
            ("x.sub.test", "relay:x.a.x.b..sub.test.example"),
            ("x.y.sub.test", "relay:x.y.a.y.b..sub.test.example"),
            ("sub.test", "relay:[smart.sub.test]"),
            ("a.b.deep.sub.test", "relay:a.bb%x.example"),
            ("com", "relay:[smart.com]"),
        ] {
            let entry = find(&mut Ask::new(&Answers::new()), &table, domain).unwrap().unwrap();
            assert_eq!(entry.value, value, "{domain}");
        }
        assert_eq!(find(&mut Ask::new(&Answers::new()), &map(NAME, &[(".a.test", "x:y")]), "a.test"), Ok(None));
    }
}

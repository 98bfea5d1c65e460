//! virtusertable: addresses of domains that have no mailboxes of their own.
//!
//! Keys in their order for `u+d@v.example`, with the values they give:
//!
//! | Key | `%1` | `%2` | `%3` |
//! |---|---|---|---|
//! | `u+d@v.example` | `u+d` | | |
//! | `u++@v.example`, if the detail is not empty | `u` | `d` | `+d` |
//! | `u+*@v.example` | `u` | `d` | `+d` |
//! | `u@v.example` | `u` | `d` | `+d` |
//! | `++@v.example`, if the detail is not empty | `u` | `d` | `+d` |
//! | `+*@v.example` | `u` | `d` | `+d` |
//! | `@v.example` | `u` | `d` | `+d` |
//!
//! Without a detail: `u@v.example`, `@v.example`, with `%1` alone. A value is an address, a user here, or `error:`. A
//! value `@new.example` keeps the local part; sendmail refuses such mail.

use super::error_value::ErrorValue;
use super::{TableEntry, ValueError, first};
use crate::question::{Ask, Source, Stop};
use mail::{Address, LocalPart};

/// The name of the map in messages.
pub const NAME: &str = "virtusertable";

/// The target that an address stands for.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum VirtualUserTarget {
    /// Another address.
    Address(Address),
    /// A user of this machine.
    User {
        /// His name, perhaps with a detail.
        name: LocalPart,
        /// `\joe`: his mailbox, without aliases.
        is_mailbox: bool,
    },
    /// The same local part at another domain.
    Domain(mail::DomainName),
    /// Mail for it is refused.
    Error(ErrorValue),
}

/// User and detail of a local part.
#[must_use]
pub fn detail(local: &str, delimiter: Option<char>) -> Option<(&str, &str)> {
    let delimiter = delimiter?;
    if local.starts_with('"') {
        return None;
    }
    let first = local.chars().next()?.len_utf8();
    let at = first + local.get(first..)?.find(delimiter)?;
    Some((local.get(..at)?, local.get(at + delimiter.len_utf8()..)?))
}

/// The entry for an address, as written, and its domain in the form of the DNS.
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
    let whole = format!("{local}@{domain}");
    let catch_all = format!("@{domain}");
    let Some((user, behind)) = detail(local, delimiter) else {
        let parts = [local, "", ""];
        return first(ask, NAME, sources, [(whole.as_str(), parts), (catch_all.as_str(), parts)]);
    };
    let sign = delimiter.unwrap_or('+');
    let with_sign = format!("{sign}{behind}");
    let parts = [user, behind, with_sign.as_str()];
    let some = (!behind.is_empty()).then_some(());
    let keys = [
        Some((whole, [local, "", ""])),
        some.map(|()| (format!("{user}{sign}{sign}@{domain}"), parts)),
        Some((format!("{user}{sign}*@{domain}"), parts)),
        Some((format!("{user}@{domain}"), parts)),
        some.map(|()| (format!("{sign}{sign}@{domain}"), parts)),
        Some((format!("{sign}*@{domain}"), parts)),
        Some((catch_all, parts)),
    ];
    first(ask, NAME, sources, keys.iter().flatten().map(|(key, parts)| (key.as_str(), *parts)))
}

/// Reads a value.
///
/// # Errors
/// The fault, and the text to write.
pub fn parse(value: &str) -> Result<VirtualUserTarget, ValueError> {
    let value = value.trim();
    if let Some(rest) = value.strip_prefix("error:") {
        return Ok(VirtualUserTarget::Error(ErrorValue::parse_virtual(rest)));
    }
    if value.starts_with(['|', '/', ':']) || value.starts_with("\"|") || value.starts_with("\"/") {
        return Err(ValueError::new(
            format!("\"{value}\" is a program, a file or a list, which only aliases may name"),
            "name a user here and give him an alias",
        ));
    }
    if let Some(domain) = value.strip_prefix('@') {
        return super::domaintable::parse(domain).map(VirtualUserTarget::Domain);
    }
    // sendmail drops what stands before a colon.
    let value = match super::mailer::split_mailer(value) {
        Some((_, rest)) => rest,
        None => value,
    };
    if value.contains('@') && !value.ends_with('"') {
        return Address::parse(value.as_bytes()).map(VirtualUserTarget::Address).map_err(|error| {
            let hint = match value.contains(',') {
                true => "write one address; name a user here and give him an alias for several",
                false => "write user@domain, a user here, or error:nouser 550 text",
            };
            ValueError::new(format!("\"{value}\" is no address: {error}"), hint)
        });
    }
    let (is_mailbox, name) = value.strip_prefix('\\').map_or((false, value), |name| (true, name));
    let is_name = !name.is_empty() && !name.contains([' ', ',', ';', '<', '>']);
    match LocalPart::new(name.trim_matches('"')) {
        Ok(name) if is_name => Ok(VirtualUserTarget::User { name, is_mailbox }),
        _ => Err(ValueError::new(
            format!("\"{value}\" is no address and no user"),
            "write user@domain, a user here, or error:nouser 550 text",
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::question::Answers;
    use crate::tables::tests::map;

    const TABLE: &[(&str, &str)] = &[
        ("u2+*@v.test", "sales-%2@crm.example"),
        ("u3++@v.test", "three-%1-%2-%3@crm.example"),
        ("u4@v.test", "four-%1-%2-%3@crm.example"),
        ("u5+x@v.test", "five-%1-%2-%3@crm.example"),
        ("u16@v.test", "%1%3@new.example"),
        ("++@w.test", "plus-%1-%2-%3@plus.example"),
        ("+*@w.test", "star-%1-%2-%3@plus.example"),
        ("@w.test", "%1%3@new.example"),
        ("@w2.test", "%1@other.example"),
    ];

    /// As sendmail 8.17 answered `-bv`.
    #[test]
    fn keys_are_asked_in_sendmails_order() {
        let table = map(NAME, TABLE);
        for (address, value) in [
            ("u2@v.test", None),
            ("u2+det@v.test", Some("sales-det@crm.example")),
            ("u2+@v.test", Some("sales-@crm.example")),
            ("u3@v.test", None),
            ("u3+det@v.test", Some("three-u3-det-+det@crm.example")),
            ("u3+@v.test", None),
            ("u4@v.test", Some("four-u4--@crm.example")),
            ("u4+det@v.test", Some("four-u4-det-+det@crm.example")),
            ("u4+@v.test", Some("four-u4--+@crm.example")),
            ("u5+x@v.test", Some("five-u5+x--@crm.example")),
            ("u16@v.test", Some("u16@new.example")),
            ("U16+det@v.test", Some("U16+det@new.example")),
            ("u16+@v.test", Some("u16+@new.example")),
            ("x@w.test", Some("x@new.example")),
            ("x+d@w.test", Some("plus-x-d-+d@plus.example")),
            ("x+@w.test", Some("star-x--+@plus.example")),
            ("x+d@w2.test", Some("x@other.example")),
            ("+d@w2.test", Some("+d@other.example")),
            ("a+b+c@w2.test", Some("a@other.example")),
            ("\"a+b c\"@w2.test", Some("\"a+b c\"@other.example")),
        ] {
            let (local, domain) = address.rsplit_once('@').unwrap();
            let entry = find(&mut Ask::new(&Answers::new()), &table, local, domain, Some('+')).unwrap();
            assert_eq!(entry.as_ref().map(|entry| entry.value.as_str()), value, "{address}");
        }
    }

    #[test]
    fn values_are_addresses_users_and_errors() {
        let address = |text: &str| VirtualUserTarget::Address(text.parse().unwrap());
        let user = |name: &str, is_mailbox| VirtualUserTarget::User { name: LocalPart::new(name).unwrap(), is_mailbox };
        for (value, target) in [
            ("a@b.example", address("a@b.example")),
            ("\"joe smith\"@new.example", address("\"joe smith\"@new.example")),
            ("joe", user("joe", false)),
            ("joe+bar", user("joe+bar", false)),
            ("\\joe", user("joe", true)),
            ("local:joe", user("joe", false)),
            ("smtp:x@y.example", address("x@y.example")),
            ("@new.example", VirtualUserTarget::Domain("new.example".parse().unwrap())),
            ("a@[192.0.2.1]", address("a@[192.0.2.1]")),
        ] {
            assert_eq!(parse(value), Ok(target), "{value}");
        }
        for (value, hint) in [
            ("a@b.example, c@d.example", "several"),
            ("\"|/bin/cat\"", "alias"),
            ("/var/mail/x", "alias"),
            (":include:/x", "alias"),
            ("joe ann", "user@domain"),
            ("@", "new.example"),
            ("a@b@c", "user@domain"),
        ] {
            let fault = parse(value).unwrap_err();
            assert!(fault.hint.contains(hint), "{value}: {fault:?}");
        }
    }
}

//! Accounts by name, so that the log can name the user whose rights a delivery has: sendmail's `(uid/gid)` behind
//! `ctladdr=`.
//!
//! Read with the maps and again when the file has changed: no line of the log waits for a disk.

use crate::config::{Config, Local};
use mail::Address;
use os::accounts::Accounts;
use std::collections::HashMap;

/// User and group, as numbers.
pub(crate) type Owner = (u32, u32);

/// Numbers of users and groups by login name.
#[derive(Debug, Default)]
pub(crate) struct AccountIndex {
    host: String,
    accounts: HashMap<Box<str>, Owner>,
    /// The user that runs programs of aliases, if the configured one exists.
    default: Option<Owner>,
}

impl AccountIndex {
    pub(super) fn new(config: &Config, accounts: &Accounts) -> Self {
        let local = &config.local;
        let default_user = Local::default_user_of(&local.default_user, |name| accounts.login(name).is_some());
        let (user, group) = default_user.split_once(':').unwrap_or((default_user, ""));
        let login = accounts.login(user).or_else(|| accounts.login_of(user.parse().ok()?));
        let default = login.map(|login| (login.uid, accounts.group(group).unwrap_or(login.gid)));
        Self { host: config.hostname.to_lowercase(), accounts: accounts.owners(), default }
    }

    /// Returns the account of a local part; `is_local` says whether a domain is of this machine, beside our own name.
    pub(super) fn account_of(&self, address: &Address, is_local: bool) -> Option<Owner> {
        let is_ours = is_local || address.domain().name().is_some_and(|domain| domain.ascii() == self.host);
        if !is_ours {
            return None;
        }
        let name = address.local_part().as_str();
        self.accounts.get(name).or_else(|| self.accounts.get(name.to_lowercase().as_str())).copied()
    }

    /// Returns the user that runs a program or writes a file: the one with this name; without a name, that of
    /// aliases.
    pub(super) fn user(&self, name: &str) -> Option<Owner> {
        if name.is_empty() { self.default } else { self.accounts.get(name).copied() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn people_have_numbers() {
        let accounts = Accounts::from_text("joe:x:1000:100::/:\nmailnull:x:47:47::/:\n", "daemon:x:2:\n");
        let mut config = Config { hostname: "mx.Example".into(), ..Config::default() };
        config.local.default_user = "mailnull:daemon".into();
        let people = AccountIndex::new(&config, &accounts);
        let of = |text: &str, is_local| people.account_of(&text.parse().unwrap(), is_local);
        assert_eq!(
            (of("joe@mx.example", false), of("Joe@mx.example", false)),
            (Some((1_000, 100)), Some((1_000, 100)))
        );
        assert_eq!((of("joe@other.test", false), of("joe@other.test", true)), (None, Some((1_000, 100))));
        assert_eq!(of("ann@mx.example", true), None);
        assert_eq!(
            (people.user(""), people.user("joe"), people.user("ann")),
            (Some((47, 2)), Some((1_000, 100)), None)
        );
    }
}

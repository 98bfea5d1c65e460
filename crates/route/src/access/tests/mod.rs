//! The decisions of the access map, compared with those of sendmail.

mod oracle;
mod relaying;
mod search;
mod tags;

use super::*;
use crate::class::{Class, Classes, Kind};
use crate::map::Table;
use crate::question::Answers;
use mail::{Address, DomainName, ReversePath};
use std::sync::Arc;

pub(super) fn table(entries: &[(&str, &str)]) -> Source {
    let lines = (1..).zip(entries).map(|(line, (key, value))| (*key, *value, line));
    Source::Loaded(Arc::new(Table::from_lines("access", "/etc/mail/access", lines).table))
}

pub(super) fn classes(local: &str, relay: &str, hosts_only: bool) -> Classes {
    Classes {
        local: Class::read(Kind::Local, "w", "w", local).0,
        relay: Class::read(Kind::Relay { hosts_only }, "R", "R", relay).0,
        hostname: DomainName::new("oracle.example").ok(),
        ..Classes::default()
    }
}

/// Returns the decision when no question is open.
pub(super) fn known<T>(decide: impl FnOnce(&mut Ask<'_>) -> Result<T, Stop>) -> T {
    decide(&mut Ask::new(&Answers::new())).map_err(|stop| format!("{stop:?}")).unwrap()
}

pub(super) fn told(ruled: &Ruled) -> String {
    match &ruled.ruling {
        Ruling::Refuse(refusal) => refusal.to_string(),
        _ => "+".to_owned(),
    }
}

pub(super) fn path(text: &str) -> ReversePath {
    ReversePath::parse(format!("<{text}>").as_bytes()).unwrap()
}

pub(super) fn address(text: &str) -> Address {
    text.parse().unwrap()
}

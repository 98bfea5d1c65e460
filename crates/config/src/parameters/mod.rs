//! The table of parameters: the only list of keys there is.
//!
//! The order is the order of the pages and of the example file. A value that is derived from others stands behind them.

mod auth_results;
mod cluster;
mod connection;
mod delivery;
mod destination;
mod dkim;
mod history;
mod http;
mod local;
mod lookup;
mod process;
mod routing;
mod screen;
mod session;
mod submit;
mod webhook;

use super::kind::Kind;
use super::parameter::{Access, Change, Parameter, Preset, Section};
use std::time::Duration;

/// All tables of the file.
pub(crate) static SECTIONS: &[&Section] = &[
    &process::TOP,
    &process::SERVER,
    &process::SPOOL,
    &session::TLS,
    &session::AUTH,
    &connection::LISTEN,
    &connection::ACCEPT,
    &connection::GREET_PAUSE_FOR,
    &connection::RELAY,
    &session::MESSAGE,
    &session::SMTP,
    &connection::DNS,
    &connection::DNS_OVERRIDE,
    &connection::DNSBL,
    &connection::DNSBL_LIST,
    &routing::MAPS,
    &lookup::LDAP,
    &lookup::SQLITE,
    &routing::ACCESS,
    &routing::GENERICS,
    &local::LOCAL,
    &delivery::ROUTE,
    &routing::ROUTE_RULE,
    &delivery::DELIVERY,
    &destination::DESTINATION,
    &dkim::DKIM_KEY,
    &dkim::ARC,
    &process::LOG,
    &process::CONTROL,
    &http::HTTP,
    &http::HTTP_TOKEN,
    &http::HTTP_CLIENT,
    &history::HISTORY,
    &cluster::CLUSTER,
    &webhook::WEBHOOK,
    &submit::SUBMIT,
    &screen::SCREEN,
    &auth_results::AUTH_RESULTS,
    &screen::QUARANTINE,
    &screen::FILTER,
];

/// The parameter with this key.
pub(crate) fn find(key: &str) -> Option<&'static Parameter> {
    all().find(|parameter| parameter.key == key)
}

/// The table with this key.
pub(crate) fn section(key: &str) -> Option<&'static Section> {
    SECTIONS.iter().copied().find(|section| section.key == key)
}

/// The table that a parameter stands in.
pub(crate) fn section_of(parameter: &Parameter) -> &'static Section {
    let key = parameter.key.rsplit_once('.').map_or("", |(table, _)| table);
    section(key).expect("a test of the table finds keys outside their table")
}

/// Every parameter.
pub(crate) fn all() -> impl Iterator<Item = &'static Parameter> {
    SECTIONS.iter().flat_map(|section| section.parameters)
}

/// A parameter with a default that depends on nothing; what changes it is a reload.
const fn fixed(
    key: &'static str,
    access: Access,
    kind: Kind,
    default: &'static str,
    example: &'static str,
    summary: &'static str,
    reason: &'static str,
) -> Parameter {
    let preset = Preset::Fixed(default);
    Parameter { key, kind, preset, example, summary, reason, since: "0.1.0", change: Change::Reload, access }
}

impl Parameter {
    /// A changed value counts after a restart.
    const fn restart(mut self) -> Self {
        self.change = Change::Restart;
        self
    }

    /// The default is not fixed.
    const fn preset(mut self, preset: Preset) -> Self {
        self.preset = preset;
        self
    }
}

const COUNT_MAX: i64 = 1_000_000;

/// A count up to a million.
const fn count(unit: &'static str) -> Kind {
    Kind::Number { min: 0, max: COUNT_MAX, unit }
}

/// The same, where none makes no sense.
const fn count_from_1(unit: &'static str) -> Kind {
    Kind::Number { min: 1, max: COUNT_MAX, unit }
}

const fn seconds(min: u64, max: u64) -> Kind {
    Kind::Time { min: Duration::from_secs(min), max: Duration::from_secs(max) }
}

const fn list(of: &'static Kind) -> Kind {
    Kind::List { of, flag: false }
}

const HOUR: u64 = 3_600;
const DAY: u64 = 24 * HOUR;
const PATH: Kind = Kind::Path { empty: false };
const NETWORKS: Kind = list(&Kind::Network);

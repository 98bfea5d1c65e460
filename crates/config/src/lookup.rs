//! The settings of directories and databases that hold maps: `[[ldap]]`, `[[sqlite]]`.

use super::RelayDomain;
use std::path::PathBuf;
use std::time::Duration;

/// The treatment of the detail in `user+detail` with LDAP routing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LdapDetail {
    /// It is part of the name.
    Keep,
    /// The look-up without the detail follows where the one with it finds no entry.
    Strip,
    /// As `Strip`, and the routing address gets it.
    Preserve,
}

/// The treatment of a directory's referral to another directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LdapReferrals {
    /// A key that is not found here counts as a failed look-up.
    Defer,
    /// A key that is not found here does not exist.
    Ignore,
}

/// `[[ldap]]`: one directory, and its queries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ldap {
    /// As maps name it: `ldap:NAME`.
    pub name: String,
    /// URLs, tried in order.
    pub servers: Vec<String>,
    /// Where searches begin.
    pub base: String,
    /// The DN to bind as; empty: anonymous.
    pub bind: String,
    /// Its password; the first line counts.
    pub password_file: Option<PathBuf>,
    /// TLS before anything else is said on `ldap://`.
    pub starttls: bool,
    /// The CAs of its certificates; none: those of the system.
    pub ca_file: Option<PathBuf>,
    /// The treatment of referrals to other directories.
    pub referrals: LdapReferrals,
    /// With `%k` for the key.
    pub filter: String,
    /// The attribute whose value is the value of the map.
    pub attribute: String,
    /// The separator between several values; empty: several values count as none.
    pub separator: String,
    /// Domains of LDAP routing, class `LDAPRoute`; none: it is no directory of that kind.
    pub routing_domains: Vec<RelayDomain>,
    /// Domains whose addresses are looked up at `routing_name`, class `LDAPRouteEquiv`.
    pub routing_equivalents: Vec<RelayDomain>,
    /// The domain that stands for those.
    pub routing_name: String,
    /// True refuses recipients that the directory does not know.
    pub bounce: bool,
    /// The treatment of details.
    pub detail: LdapDetail,
    /// `@domain` is not asked for.
    pub no_domain: bool,
    /// The longest wait for an answer, with connecting.
    pub timeout: Duration,
    /// The most connections at once.
    pub connections: u16,
    /// How long a value is kept.
    pub cache_time: Duration,
    /// How long it is kept that there is none.
    pub negative_time: Duration,
    /// How long beyond that an answer counts while the directory is down.
    pub stale_max: Duration,
    /// The most answers that are kept.
    pub cache_entries_max: u32,
}

/// `[[sqlite]]`: one file, and its queries.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sqlite {
    /// As maps name it: `sqlite:NAME`.
    pub name: String,
    /// The file.
    pub path: PathBuf,
    /// With `?1` for the key; the first column of the first row is the value.
    pub query: String,
    /// How long an answer is kept.
    pub cache_time: Duration,
}

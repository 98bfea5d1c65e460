//! Statements of sendmail about LDAP as they are collected, before tables `[[ldap]]` are made of them.

/// A map that is in a directory.
pub(super) struct LdapMap {
    /// Our key for the maps: `maps.access`.
    pub(super) key: &'static str,
    /// The name of its table.
    pub(super) name: String,
    /// As sendmail has it.
    pub(super) spec: String,
    /// The name of the map in sendmail's own schema.
    pub(super) schema: &'static str,
    pub(super) line: usize,
}

/// `FEATURE(ldap_routing)`, as far as it was said.
#[derive(Default)]
pub(super) struct LdapRoutingStatement {
    /// The specifications for `mailHost` and for `mailRoutingAddress`; empty for sendmail's own.
    pub(super) specs: [String; 2],
    pub(super) bounce: bool,
    pub(super) detail: Option<&'static str>,
    pub(super) no_domain: bool,
    pub(super) line: usize,
}

/// All that was said of LDAP.
#[derive(Default)]
pub(super) struct LdapStatements {
    pub(super) default: Option<(String, usize)>,
    pub(super) cluster: Option<String>,
    pub(super) routing: Option<LdapRoutingStatement>,
    pub(super) domains: Vec<String>,
    pub(super) equivalents: Vec<String>,
    pub(super) maps: Vec<LdapMap>,
    /// Finished tables.
    pub(super) tables: Vec<String>,
}

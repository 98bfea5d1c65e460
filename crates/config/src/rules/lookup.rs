//! Rules about `[[ldap]]` and `[[sqlite]]`: names, addresses, and maps that name them.

use super::super::{Ldap, MapSource};
use super::Rules;

impl Rules<'_> {
    pub(super) fn lookups(&mut self) {
        let config = self.config();
        let ldap: Vec<&str> = config.ldap.iter().map(|table| table.name.as_str()).collect();
        let sqlite: Vec<&str> = config.sqlite.iter().map(|table| table.name.as_str()).collect();
        self.each_name_once("ldap.name", &ldap);
        self.each_name_once("sqlite.name", &sqlite);
        for (index, table) in config.ldap.iter().enumerate() {
            self.directory(index, table);
            self.equivalents(index, table);
        }
        self.routing_agrees();
        for (index, table) in config.sqlite.iter().enumerate() {
            if !table.query.contains('?') {
                self.error(
                    &[("sqlite.query", index)],
                    format!("sqlite.query: \"{}\" does not ask for the key", table.query),
                    "write ?1 where the key belongs: \"SELECT value FROM routes WHERE key = ?1\"",
                );
            }
        }
        let maps = &config.maps;
        for (key, sources) in [
            ("maps.access", &maps.access),
            ("maps.mailertable", &maps.mailertable),
            ("maps.virtusertable", &maps.virtusertable),
            ("maps.genericstable", &maps.genericstable),
            ("maps.domaintable", &maps.domaintable),
            ("maps.smarttable", &maps.smarttable),
            ("maps.aliases", &maps.aliases),
        ] {
            for source in sources {
                let (table, name, names) = match source {
                    MapSource::File(_) => continue,
                    MapSource::Ldap(name) => ("ldap", name, &ldap),
                    MapSource::Sqlite(name) => ("sqlite", name, &sqlite),
                };
                if !names.contains(&name.as_str()) {
                    let there = if names.is_empty() { "none".to_owned() } else { names.join(", ") };
                    self.error(
                        &[(key, 0)],
                        format!("{key}: there is no [[{table}]] with name = \"{name}\""),
                        &format!("add that table, or name one that is there: {there}"),
                    );
                }
            }
        }
    }

    fn each_name_once(&mut self, key: &'static str, names: &[&str]) {
        for (index, name) in names.iter().enumerate() {
            if names.iter().take(index).any(|other| other == name) {
                self.error(
                    &[(key, index)],
                    format!("{key}: \"{name}\" is taken"),
                    "choose another name for one of them",
                );
            }
        }
    }

    fn directory(&mut self, index: usize, table: &Ldap) {
        if table.servers.is_empty() {
            self.error(&[("ldap.servers", index)], "ldap.servers names no server".to_owned(), "name one");
        }
        for server in &table.servers {
            if let Some(what) = bad_server(server) {
                self.error(
                    &[("ldap.servers", index)],
                    format!("ldap.servers: \"{server}\" {what}"),
                    "write \"ldap://host\", \"ldaps://host:port\" or \"ldapi://%2Frun%2Fslapd%2Fldapi\"",
                );
            }
        }
        let has_tls =
            |server: &String| server.starts_with("ldaps://") || table.starttls && server.starts_with("ldap://");
        for server in table.servers.iter().filter(|server| has_tls(server) && server.contains("://[")) {
            self.error(
                &[("ldap.servers", index)],
                format!("ldap.servers: \"{server}\" is an IPv6 address, whose certificate cannot be checked"),
                "write the host name that is in the certificate",
            );
        }
        if !table.filter.contains("%k") {
            self.error(
                &[("ldap.filter", index)],
                format!("ldap.filter: \"{}\" does not ask for the key", table.filter),
                "write %k where the key belongs: \"(mail=%k)\"",
            );
        } else if ldap3::parse_filter(table.filter.replace("%k", "x")).is_err() {
            self.error(
                &[("ldap.filter", index)],
                format!("ldap.filter: \"{}\" is no filter", table.filter),
                "write it as in RFC 4515: \"(&(objectClass=person)(mail=%k))\"",
            );
        }
        let keys = [("ldap.bind", index), ("ldap.password_file", index)];
        match (table.bind.is_empty(), table.password_file.is_some()) {
            (false, false) => self.error(
                &keys,
                "ldap.bind without ldap.password_file".to_owned(),
                "name the file of its password; servers take a bind without one for an anonymous one",
            ),
            (true, true) => self.error(
                &[keys[1], keys[0]],
                "ldap.password_file without ldap.bind".to_owned(),
                "name the DN that it is the password of",
            ),
            _ => {}
        }
        let is_open = |server: &String| server.starts_with("ldap://") && !is_here(server);
        if !table.bind.is_empty() && !table.starttls && table.servers.iter().any(is_open) {
            self.warn(
                &[("ldap.bind", index), ("ldap.servers", index)],
                "ldap.bind: its password crosses the network in clear text".to_owned(),
                "set ldap.starttls = true, or write ldaps://",
            );
        }
    }

    /// Domains that stand for another one, and that one.
    fn equivalents(&mut self, index: usize, table: &Ldap) {
        let keys = [("ldap.routing_equivalents", index), ("ldap.routing_name", index)];
        if !table.routing_name.is_empty() && mail::DomainName::new(&table.routing_name).is_err() {
            self.error(
                &[keys[1]],
                format!("ldap.routing_name: \"{}\" is no domain", table.routing_name),
                "write one: \"example.com\"",
            );
        }
        if !table.routing_equivalents.is_empty() && table.routing_name.is_empty() {
            self.error(
                &keys,
                "ldap.routing_equivalents without ldap.routing_name".to_owned(),
                "name the domain under which their people are in the directory",
            );
        }
        if !table.routing_equivalents.is_empty() && table.routing_domains.is_empty() {
            self.error(
                &[keys[0], ("ldap.routing_domains", index)],
                "ldap.routing_equivalents without ldap.routing_domains".to_owned(),
                "name the domains of LDAP routing, ldap.routing_name among them",
            );
        }
    }

    /// There is one LDAP routing, whose domains and directories come from all tables.
    fn routing_agrees(&mut self) {
        let tables = self.config().ldap.iter().enumerate().filter(|(_, table)| !table.routing_domains.is_empty());
        let mut tables = tables.collect::<Vec<_>>().into_iter();
        let Some((_, first)) = tables.next() else { return };
        for (index, table) in tables {
            let differs = [
                ("ldap.bounce", table.bounce != first.bounce),
                ("ldap.detail", table.detail != first.detail),
                ("ldap.no_domain", table.no_domain != first.no_domain),
                ("ldap.routing_name", table.routing_name != first.routing_name),
            ];
            for (key, _) in differs.iter().filter(|(_, differs)| *differs) {
                self.error(
                    &[(key, index), ("ldap.name", index)],
                    format!("{key} is not the same in [[ldap]] \"{}\" and \"{}\"", first.name, table.name),
                    "tables with routing_domains are asked one after the other; give them the same value",
                );
            }
        }
    }
}

/// Returns the fault of the URL of a server.
fn bad_server(server: &str) -> Option<&'static str> {
    let Some((scheme, rest)) = server.split_once("://") else { return Some("is no URL of a server") };
    let is_name = |c: char| c.is_ascii_alphanumeric() || "-._~%:[]".contains(c);
    let host = rest.strip_suffix('/').unwrap_or(rest);
    let after_literal = host.strip_prefix('[').and_then(|rest| rest.split_once(']'));
    let (is_literal, name, port) = match after_literal {
        Some((ip, port)) => (ip.parse::<std::net::Ipv6Addr>().is_ok(), ip, port.strip_prefix(':')),
        None => match host.split_once(':') {
            Some((name, port)) => (true, name, Some(port)),
            None => (true, host, None),
        },
    };
    match scheme {
        _ if name.is_empty() => Some("names no server"),
        "ldapi" if port.is_some() => Some("has a port; a socket has none"),
        "ldap" | "ldaps" | "ldapi" if !is_literal || !host.chars().all(is_name) => Some("is no URL of a server"),
        "ldap" | "ldaps" if port.is_some_and(|port| port.parse::<u16>().is_err()) => Some("has no good port"),
        "ldap" | "ldaps" | "ldapi" => None,
        _ => Some("has an unknown scheme"),
    }
}

/// Whether a server is on this machine, as far as its name says.
fn is_here(server: &str) -> bool {
    let host = server.split_once("://").map_or(server, |(_, host)| host);
    ["127.", "localhost", "[::1]"].iter().any(|here| host.starts_with(here))
}

#[cfg(test)]
mod tests {
    use super::bad_server;

    #[test]
    fn urls_of_servers() {
        for good in ["ldap://a.example", "ldaps://[2001:db8::1]:636", "ldap://10.0.0.1:3890/", "ldapi://%2Frun%2Fldapi"]
        {
            assert_eq!(bad_server(good), None, "{good}");
        }
        for bad in [
            "a.example",
            "http://a",
            "ldap://",
            "ldap:///",
            "ldap://:389",
            "ldap://a:b",
            "ldap://a b",
            "ldapi://x:1",
            "ldap://[x]",
        ] {
            assert!(bad_server(bad).is_some(), "{bad}");
        }
    }
}

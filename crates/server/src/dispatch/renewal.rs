//! Effects of a reload on mail that waits.
//!
//! Mail is tried before its time only where a changed setting decides where it goes or how. After a new certificate,
//! or a new limit on clients, hosts that are down are not tried, names are not asked for and lists are not read.
//! Pure; the callers add changes of name servers and of map files.

use crate::config::Config;
use std::collections::BTreeSet;

/// Work to do for mail that waits.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Renewal {
    /// Tables and keys that have changed and decide where mail goes. If there are any, hosts are asked for anew and
    /// all waiting mail is tried, whatever its back-off.
    ways: Vec<&'static str>,
    /// Limits or times of deliveries have changed: hosts are asked for anew and lists looked through; back-offs stand.
    has_limits: bool,
}

impl Renewal {
    /// Compares two configurations.
    pub(crate) fn between(old: &Config, new: &Config) -> Self {
        // The addresses of listeners are our own addresses, to which mail is not sent.
        let listeners = |config: &Config| config.listen.iter().map(|listen| listen.address).collect::<BTreeSet<_>>();
        let ways = [
            ("hostname", old.hostname != new.hostname),
            ("listen.address", listeners(old) != listeners(new)),
            ("maps", old.maps != new.maps),
            ("local", old.local != new.local),
            ("route", old.route != new.route),
            ("route.rule", old.rules != new.rules),
            ("ldap", old.ldap != new.ldap),
            ("sqlite", old.sqlite != new.sqlite),
            ("delivery.mode", old.delivery.mode != new.delivery.mode),
            ("delivery.address_family", old.delivery.address_family != new.delivery.address_family),
            ("destination", old.destinations != new.destinations),
        ];
        let ways = ways.into_iter().filter_map(|(name, is_other)| is_other.then_some(name)).collect();
        Self { ways, has_limits: old.delivery != new.delivery }
    }

    /// Returns the work for map files that have changed.
    pub(crate) fn of_maps() -> Self {
        let mut renewal = Self::default();
        renewal.add_maps();
        renewal
    }

    /// Returns the work for limits of destinations that an operator has set: hosts are asked for anew.
    pub(crate) fn of_limits() -> Self {
        Self { ways: Vec::new(), has_limits: true }
    }

    /// Adds a change of name servers, or of how they are asked.
    pub(crate) fn add_dns(&mut self) {
        self.ways.push("dns");
    }

    /// Map files lead elsewhere.
    pub(crate) fn add_maps(&mut self) {
        self.ways.push("map files");
    }

    /// Returns the changes for which all waiting mail is tried again; none if it keeps its times.
    pub(crate) fn ways(&self) -> &[&'static str] {
        &self.ways
    }

    /// Returns the changes as text.
    pub(crate) fn text(&self) -> Option<String> {
        (!self.ways.is_empty()).then(|| self.ways.join(", "))
    }

    /// Returns whether hosts are asked for anew.
    pub(super) fn asks_hosts(&self) -> bool {
        self.has_limits || !self.ways.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str) -> Config {
        crate::config::load(text, None, &[], &crate::config::Machine::default()).unwrap().config
    }

    #[test]
    fn only_what_says_where_mail_goes_has_it_tried_again() {
        let old = config("hostname = 'a.test'");
        for (text, ways, asks_hosts) in [
            ("", &[][..], false),
            ("[message]\nsize_max = '1MiB'\n[smtp]\nerrors_max = 3\n[accept]\nconnections_max = 7", &[], false),
            ("[relay]\nfrom = '192.0.2.0/24'\n[log]\nlevel = 12\n[dnsbl]\ntime_max = '1s'", &[], false),
            ("[[listen]]\naddress = '127.0.0.1:2525'\nconnections_max = 3", &[], false),
            ("[[listen]]\naddress = '127.0.0.1:2526'", &["listen.address"], true),
            ("[delivery]\nconnections_max = 7\nretry_max = '1h'", &[], true),
            (
                "[delivery]\nmode = 'queue'\naddress_family = 'ipv4'",
                &["delivery.mode", "delivery.address_family"],
                true,
            ),
            (
                "[route]\nsmart_host = 'b.test'\n[[destination]]\nmatch = 'c.test'\nconnections = 3",
                // With a smart host our own name is not local.
                &["local", "route", "destination"],
                true,
            ),
            ("[[route.rule]]\nsender = '@b.test'\nvia = 'c.test'", &["route.rule"], true),
            ("[maps]\nmailertable = '/etc/mail/mailertable'", &["maps"], true),
            ("[local]\ndomains = 'b.test'", &["local"], true),
        ] {
            let found = Renewal::between(&old, &config(&format!("hostname = 'a.test'\n{text}")));
            assert_eq!((found.ways(), found.asks_hosts()), (ways, asks_hosts), "{text}");
            assert_eq!(found.text().is_some(), !ways.is_empty(), "{text}");
        }
        assert_eq!(Renewal::between(&old, &config("hostname = 'b.test'")).ways(), ["hostname"]);
        assert_eq!(Renewal::of_maps().text().as_deref(), Some("map files"));
    }
}

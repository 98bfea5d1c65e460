//! `[[dns.override]]`: answers of the configuration in place of the DNS.

use std::collections::HashMap;

use crate::config::DnsOverride;

/// The answers by domain. A look costs as many steps as the name has labels, however many there are.
#[derive(Default)]
pub(super) struct Overrides {
    list: Vec<DnsOverride>,
    exact: HashMap<Box<str>, usize>,
    /// Domains that count with their subdomains.
    above: HashMap<Box<str>, usize>,
}

impl Overrides {
    pub(super) fn new(list: &[DnsOverride]) -> Self {
        let mut overrides = Self { list: list.to_vec(), ..Self::default() };
        for (index, one) in list.iter().enumerate() {
            let of = if one.domain.has_subdomains() { &mut overrides.above } else { &mut overrides.exact };
            // The first that fits counts.
            of.entry(one.domain.ascii().into()).or_insert(index);
        }
        overrides
    }

    /// Returns the answer for a name in its DNS form: the first in the configuration that fits.
    pub(super) fn of(&self, name: &str) -> Option<&DnsOverride> {
        self.list.get(self.index_of(name)?)
    }

    fn index_of(&self, name: &str) -> Option<usize> {
        if self.list.is_empty() {
            return None;
        }
        let name = name.to_ascii_lowercase();
        let parents = name.match_indices('.').filter_map(|(at, _)| name.get(at + 1..));
        let above = parents.chain([name.as_str()]).filter_map(|parent| self.above.get(parent));
        above.chain(self.exact.get(name.as_str())).copied().min()
    }
}

/// Returns which of the configured answers stands for a name in its DNS form, counted from 0.
pub(crate) fn index_of(list: &[DnsOverride], name: &str) -> Option<usize> {
    Overrides::new(list).index_of(name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};

    #[test]
    fn the_first_that_fits() {
        let of = |(number, domain): (u8, &&str)| DnsOverride {
            domain: domain.parse().expect("a domain"),
            mx: Vec::new(),
            address: vec![IpAddr::from(Ipv4Addr::new(192, 0, 2, number))],
        };
        let list: Vec<DnsOverride> =
            (0..).zip(&["a.example", ".b.example", "x.b.example", ".example", "c.example"]).map(of).collect();
        let overrides = Overrides::new(&list);
        for (name, expected) in [
            ("a.example", Some(0)),
            ("A.EXAMPLE", Some(0)),
            ("x.a.example", Some(3)),
            ("b.example", Some(1)),
            ("x.b.example", Some(1)),
            ("c.example", Some(3)),
            ("example", Some(3)),
            ("bexample", None),
            ("test", None),
            ("", None),
        ] {
            assert_eq!(overrides.of(name), expected.and_then(|index: usize| list.get(index)), "{name}");
        }
        assert_eq!(Overrides::default().of("a.example"), None);
    }
}

//! Entries of `relay.to`: a domain, or with a leading dot a domain and everything below it.

use mail::{AddressError, DomainName};
use std::fmt;
use std::str::FromStr;

/// Which recipient domains are accepted from anyone.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RelayDomain {
    domain: DomainName,
    subdomains: bool,
}

impl RelayDomain {
    /// One domain, and its subdomains if `subdomains`.
    #[must_use]
    pub const fn new(domain: DomainName, subdomains: bool) -> Self {
        Self { domain, subdomains }
    }

    /// The domain in its DNS form.
    #[must_use]
    pub fn ascii(&self) -> &str {
        self.domain.ascii()
    }

    /// Whether it includes the names below.
    #[must_use]
    pub const fn has_subdomains(&self) -> bool {
        self.subdomains
    }

    /// True for a recipient's domain that this entry names; spelling and case do not matter.
    #[must_use]
    pub fn matches(&self, name: &DomainName) -> bool {
        match name.ascii().strip_suffix(self.domain.ascii()) {
            Some("") => true,
            Some(below) => self.subdomains && below.ends_with('.'),
            None => false,
        }
    }
}

impl FromStr for RelayDomain {
    type Err = AddressError;

    fn from_str(text: &str) -> Result<Self, AddressError> {
        let (name, subdomains) = text.strip_prefix('.').map_or((text, false), |name| (name, true));
        Ok(Self::new(DomainName::new(name)?, subdomains))
    }
}

impl fmt::Display for RelayDomain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{}", if self.subdomains { "." } else { "" }, self.domain)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dot_adds_what_is_below() {
        for (entry, name, is_named) in [
            ("example.com", "example.com", true),
            ("example.com", "EXAMPLE.com", true),
            ("example.com", "a.example.com", false),
            (".example.com", "example.com", true),
            (".Example.com", "a.b.example.COM", true),
            (".example.com", "badexample.com", false),
            (".example.com", "com", false),
            ("bücher.example", "xn--bcher-kva.example", true),
        ] {
            let entry: RelayDomain = entry.parse().expect("an entry");
            assert_eq!(entry.matches(&DomainName::new(name).expect("a name")), is_named, "{entry} {name}");
            assert_eq!(entry.to_string().parse(), Ok(entry));
        }
        assert!("..example.com".parse::<RelayDomain>().is_err() && ".".parse::<RelayDomain>().is_err());
    }
}

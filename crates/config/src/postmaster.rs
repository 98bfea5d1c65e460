//! The address that gets reports which cannot go to the sender.

use super::Config;
use mail::{Address, DomainName, LocalPart};

impl Config {
    /// The address for reports that cannot be delivered to the sender: `delivery.postmaster`, else postmaster at our
    /// name.
    ///
    /// # Panics
    /// Where the hostname is none, which nothing that was loaded has.
    #[must_use]
    pub fn postmaster(&self) -> Address {
        self.delivery.postmaster.clone().unwrap_or_else(|| {
            self.postmaster_here().expect("a rule refuses a hostname that is too long, and its kind one that is none")
        })
    }

    /// Postmaster at our name; `None` if that is too long for an address.
    pub(crate) fn postmaster_here(&self) -> Option<Address> {
        // RFC 5321 §4.5.1
        let domain = DomainName::new(&self.hostname).ok()?;
        Address::new(LocalPart::new("postmaster").ok()?, domain.into()).ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_postmaster() {
        let mut config = Config::default();
        assert_eq!(config.postmaster().to_string(), "postmaster@localhost");
        config.delivery.postmaster = Some("a@b.example".parse().expect("an address"));
        assert_eq!(config.postmaster().to_string(), "a@b.example");
    }
}

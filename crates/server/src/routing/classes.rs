//! Reads from the configuration alone our own names and the right to relay, without the files that it names.
//!
//! The server judges by this where there are no maps (`admit::relay`), and adds the files of classes w and R where
//! there are ([`load`](super::load)).

use crate::config::{Config, RelayDomain};
use ipnet::IpNet;
use mail::DomainName;
use os::addresses;
use route::class::{Class, Classes};

/// Our name and addresses, `relay.from` and `relay.to`. Reads the addresses of this machine from the kernel.
pub(crate) fn of_configuration(config: &Config) -> Classes {
    let mut classes = of_relay(&config.relay.from, &config.relay.to);
    let listeners = config.listen.iter().map(|listen| listen.address.ip()).filter(|ip| !ip.is_unspecified());
    for ip in listeners.chain(addresses::of_this_machine()) {
        // A client at one of our own addresses has the rights that relay.from gives it.
        classes.ours.add_address(ip);
    }
    if let Ok(name) = DomainName::new(&config.hostname) {
        classes.ours.add_name(&name);
    }
    classes
}

/// `relay.from` and `relay.to`.
pub(crate) fn of_relay(from: &[IpNet], to: &[RelayDomain]) -> Classes {
    let mut classes = Classes { to: trees(to), ..Classes::default() };
    from.iter().for_each(|network| classes.relay.add_network(*network));
    classes
}

/// Makes a class of domains; one with a leading dot stands for its subdomains too.
pub(crate) fn trees(list: &[RelayDomain]) -> Class {
    let mut class = Class::default();
    for domain in list {
        if let Ok(name) = DomainName::new(domain.ascii()) {
            match domain.has_subdomains() {
                true => class.add_tree(&name),
                false => class.add_name(&name),
            }
        }
    }
    class
}

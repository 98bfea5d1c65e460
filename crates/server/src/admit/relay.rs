//! Who may send where: anybody to our domains, our clients and users to all domains.
//!
//! An address can name more hosts than the one behind its `@`: `user%other@ours`, `other!user@ours` and
//! `"user@other"@ours` ask us to pass the message on, and a router that reads sendmail's rules does so. Therefore every
//! host that an address names must be ours, or the client must have the right to relay. Source routes (`<@ours:u@other>`)
//! are dropped by the parser (RFC 5321 §4.1.1.3), so only the address behind them counts.
//!
//! Not here: whether a recipient at our domains exists.

use std::net::IpAddr;

use ipnet::IpNet;
use mail::{Address, Client, Domain, DomainName, Recipient};
use smtp::server::Verdict;

use super::{Facts, Policy, Ruling, refuse};
use crate::config::{Config, RelayDomain};

/// The rights to relay: `[relay]`, and who we are.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Rights {
    /// `relay.from`: networks whose clients may send anywhere.
    pub from: Vec<IpNet>,
    /// `relay.to`: domains accepted from anyone.
    pub to: Vec<RelayDomain>,
    /// `hostname`: mail to it is for us, that of its postmaster above all.
    pub hostname: Option<DomainName>,
    /// Our own addresses, for recipients like `postmaster@[192.0.2.1]`. Those of the listeners and of the machine.
    pub addresses: Vec<IpAddr>,
}

impl Rights {
    /// The rights that a configuration gives.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let addresses = config.listen.iter().map(|listen| listen.address.ip()).filter(|ip| !ip.is_unspecified());
        Self {
            from: config.relay.from.clone(),
            to: config.relay.to.clone(),
            hostname: DomainName::new(&config.hostname).ok(),
            addresses: addresses.collect(),
        }
    }

    /// Whether this client or user may send anywhere: a network in `relay.from`, a user who logged in, a process of
    /// this machine.
    #[must_use]
    pub fn is_trusted(&self, client: Client, identity: Option<&str>) -> bool {
        identity.is_some()
            || match client {
                Client::Network(address) => self.is_from(address.ip()),
                Client::Process { .. } | Client::Internal => true,
            }
    }

    /// Whether an address is in `relay.from`.
    #[must_use]
    pub fn is_from(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        self.from.iter().any(|network| network.contains(&ip))
    }

    /// Whether mail for this domain is accepted from anyone.
    #[must_use]
    pub fn is_ours(&self, domain: &Domain) -> bool {
        match domain {
            Domain::Name(name) => {
                self.hostname.as_ref().is_some_and(|own| own.ascii() == name.ascii())
                    || self.to.iter().any(|pattern| pattern.matches(name))
            }
            // RFC 5321 §4.1.3: an address stands for the host that has it
            Domain::Literal(literal) => literal.ip().is_some_and(|ip| {
                let ip = ip.to_canonical();
                self.addresses.iter().any(|own| own.to_canonical() == ip)
            }),
        }
    }

    /// Whether every host that the address names is ours.
    fn stays_here(&self, address: &Address) -> bool {
        if !self.is_ours(address.domain()) {
            return false;
        }
        // What a router would make of the local part, step by step; each step makes it shorter.
        let mut local = address.local_part().as_str();
        while let Some((host, rest)) = next_host(local) {
            if !Domain::parse(host.as_bytes()).is_ok_and(|domain| self.is_ours(&domain)) {
                return false;
            }
            local = rest;
        }
        true
    }
}

/// The host to which a local part would be passed on, and what is the local part there.
fn next_host(local: &str) -> Option<(&str, &str)> {
    // A quoted source route first, then @ and % from the right, ! from the left, as sendmail's ruleset 3 reads them.
    if let Some((route, rest)) = local.strip_prefix('@').and_then(|route| route.split_once([':', ','])) {
        return Some((route, rest));
    }
    if let Some((rest, host)) = local.rsplit_once('@').or_else(|| local.rsplit_once('%')) {
        return Some((host, rest));
    }
    local.split_once('!')
}

/// May this client send to this recipient?
///
/// Accepts, or refuses with sendmail's `550 5.7.1 <rcpt>... Relaying denied`.
// RFC 5321 §3.6.2: a server may refuse to relay; RFC 5321 §4.5.1: never its own postmaster
#[must_use]
pub fn may_relay(client: Client, identity: Option<&str>, recipient: &Address, rights: &Rights) -> Verdict {
    if rights.is_trusted(client, identity) || rights.stays_here(recipient) {
        return Verdict::Accept;
    }
    refuse(550, &format!("5.7.1 <{recipient}>... Relaying denied"))
}

impl Policy for Rights {
    fn name(&self) -> &'static str {
        "relay"
    }

    fn recipient(&self, facts: &Facts<'_>, recipient: &Recipient) -> Ruling {
        match may_relay(facts.client, facts.identity, &recipient.address, self) {
            Verdict::Accept => Ruling::Continue,
            refusal => Ruling::Decide(refusal),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::ForwardPath;

    fn rights() -> Rights {
        Rights {
            from: vec!["127.0.0.0/8".parse().unwrap(), "::1/128".parse().unwrap(), "10.1.0.0/16".parse().unwrap()],
            to: ["ours.example", ".sub.example", "bücher.example"].map(|name| name.parse().unwrap()).to_vec(),
            hostname: Some(DomainName::new("mx.ours.example").unwrap()),
            addresses: vec!["192.0.2.25".parse().unwrap(), "2001:db8::25".parse().unwrap()],
        }
    }

    fn network(ip: &str) -> Client {
        Client::Network((ip.parse::<IpAddr>().unwrap(), 4_000).into())
    }

    /// The path of RCPT as a stranger gives it; `None` when it is not even an address.
    fn stranger(path: &str) -> Option<Verdict> {
        let address =
            ForwardPath::parse(path.as_bytes()).ok()?.into_address(rights().hostname.as_ref().unwrap()).unwrap();
        Some(may_relay(network("198.51.100.7"), None, &address, &rights()))
    }

    #[test]
    fn an_open_relay_test_finds_nothing() {
        // The forms that relay testers try, with a stranger's client and their addresses for ours.
        for path in [
            "<victim@other.example>",
            "<victim@ours.example.other.example>",
            "<victim@notours.example>",
            "<victim@[198.51.100.7]>",
            "<victim@[IPv6:2001:db8::7]>",
            "<victim%other.example@ours.example>",
            "<victim%other.example@mx.ours.example>",
            "<victim%other.example@[192.0.2.25]>",
            "<victim%other.example%ours.example@ours.example>",
            "<\"victim%[198.51.100.7]\"@ours.example>",
            "<other.example!victim@ours.example>",
            "<other.example!victim@[192.0.2.25]>",
            "<ours.example!other.example!victim@ours.example>",
            "<other.example!victim%ours.example@ours.example>",
            "<\"victim@other.example\"@ours.example>",
            "<\"victim%other.example\"@ours.example>",
            "<\"other.example!victim\"@ours.example>",
            "<\"@ours.example:victim@other.example\"@ours.example>",
            "<\"@other.example,@ours.example:x\"@ours.example>",
            "<@ours.example:victim@other.example>",
            "<@mx.ours.example,@other.example:victim@other.example>",
            "<@[192.0.2.25]:victim@other.example>",
            "<@ours.example:victim%other.example@ours.example>",
            "<victim%@ours.example>",
            "<!victim@ours.example>",
            "<\"victim@\"@ours.example>",
            "<%other.example@ours.example>",
        ] {
            let Some(Verdict::Refuse(reply)) = stranger(path) else { panic!("{path}: {:?}", stranger(path)) };
            let mut wire = Vec::new();
            reply.write_to(&mut wire);
            let text = String::from_utf8(wire).unwrap();
            assert!(text.starts_with("550 5.7.1 <") && text.ends_with(">... Relaying denied\r\n"), "{text}");
        }
        for path in ["<victim>", "<\"victim@other.example\">", "<victim@other.example@ours.example>", "<@ours.example>"]
        {
            assert_eq!(stranger(path), None, "{path} is no address");
        }
    }

    #[test]
    fn mail_for_us_comes_from_anyone() {
        for path in [
            "<Postmaster>",
            "<postmaster@mx.ours.example>",
            "<user@OURS.example>",
            "<user+list=other.example@ours.example>",
            "<SRS0=x=y=other.example=user@ours.example>",
            "<user@sub.example>",
            "<user@a.sub.example>",
            "<user@a.b.sub.example>",
            "<user@b\u{fc}cher.example>",
            "<user@xn--bcher-kva.example>",
            "<user@[192.0.2.25]>",
            "<user@[IPv6:2001:db8::25]>",
            "<user@[IPv6:::ffff:192.0.2.25]>",
            "<@other.example:user@ours.example>",
            "<user%ours.example@ours.example>",
            "<a.sub.example!user@ours.example>",
        ] {
            assert_eq!(stranger(path), Some(Verdict::Accept), "{path}");
        }
    }

    #[test]
    fn who_may_send_anywhere() {
        let other = Address::parse(b"user@other.example").unwrap();
        let may = |client, identity| may_relay(client, identity, &other, &rights()) == Verdict::Accept;
        for client in ["127.0.0.1", "::1", "10.1.2.3", "::ffff:10.1.2.3"].map(network) {
            assert!(may(client, None), "{client:?}");
        }
        for client in ["10.2.0.1", "::2", "::ffff:10.2.0.1"].map(network) {
            assert!(!may(client, None), "{client:?}");
            assert!(may(client, Some("user")), "{client:?}");
        }
        assert!(may(Client::Process { uid: 1_000 }, None) && may(Client::Internal, None));
        assert!(!Rights::default().is_from("127.0.0.1".parse().unwrap()), "what is not listed is not trusted");
    }
}

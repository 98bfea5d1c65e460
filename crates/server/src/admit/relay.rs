//! Decides which client may send to which domain: any client to our domains, our clients and users to all domains.
//!
//! The decision is that of `route::access` ([`Access::client_right`] and the rules for `RCPT`), made here without
//! maps, from `relay.from`, `relay.to` and our own names. Where there are maps, `session::routed` asks the same
//! functions with them. So the server answers a client alike with maps and without, and `mailrace route` shows the
//! server's decision.
//!
//! An address can name more hosts than the one behind its `@`: `user%other@ours`, `other!user@ours` and
//! `"user@other"@ours` ask us to pass the message on. Therefore every host that an address names must be ours, or the
//! client must have the right to relay. Source routes (`<@ours:u@other>`) are dropped by the parser (RFC 5321
//! §4.1.1.3), so only the address behind them counts.
//!
//! A client has the address that PROXY protocol or XCLIENT gives it, and a proxy on this machine comes from loopback;
//! loopback has no right but the one that `relay.from` gives it.
//!
//! Not here: whether a recipient at our domains exists.

use std::net::IpAddr;
use std::sync::Arc;

use ipnet::IpNet;
use mail::{Address, Client, Recipient, ReversePath};
use route::access::{self, Access, ClientName, Options};
use route::class::Classes;
use route::{Answers, Ask, Stop};
use smtp::server::Verdict;

use super::{Facts, Policy, Ruling, refuse};
use crate::config::Config;

/// The rights to relay: `[relay]`, and our own names and addresses.
#[derive(Clone, Debug, Default)]
pub struct Rights {
    /// `relay.from`: networks whose clients may send anywhere.
    from: Vec<IpNet>,
    /// The decision without a map.
    access: Arc<Access>,
    /// `relay.from`, `relay.to`, our name and our addresses. Nothing is local: that is the business of maps.
    classes: Arc<Classes>,
}

impl Rights {
    /// Returns the rights that a configuration gives.
    #[must_use]
    pub fn new(config: &Config) -> Self {
        let classes = crate::routing::classes::of_configuration(config);
        Self {
            from: config.relay.from.clone(),
            access: Arc::new(Access::new(Vec::new(), Options { relay_loopback: false, ..Options::default() })),
            classes: Arc::new(classes),
        }
    }

    /// Returns whether this client or user may send anywhere: a network in `relay.from`, a user who logged in, a
    /// process of this machine.
    #[must_use]
    pub fn is_trusted(&self, client: Client, identity: Option<&str>) -> bool {
        let client = as_asked(client, identity);
        self.decide(|ask| self.access.client_right(ask, &client, &ReversePath::Null, &self.classes))
            .is_ok_and(|right| right.is_some())
    }

    /// Returns whether an address is in `relay.from`.
    #[must_use]
    pub fn is_from(&self, ip: IpAddr) -> bool {
        let ip = ip.to_canonical();
        self.from.iter().any(|network| network.contains(&ip))
    }

    /// Decides on `RCPT`, with the reason.
    fn recipient(&self, client: Client, identity: Option<&str>, recipient: &Address) -> Result<access::Ruled, Stop> {
        let client = as_asked(client, identity);
        self.decide(|ask| self.access.recipient(ask, &client, &ReversePath::Null, recipient, &self.classes))
    }

    /// Decides without maps, so no question stays open.
    fn decide<T>(&self, decision: impl FnOnce(&mut Ask<'_>) -> Result<T, Stop>) -> Result<T, Stop> {
        decision(&mut Ask::new(&Answers::new()))
    }
}

/// Returns a client without its name: without maps no name gives rights.
fn as_asked(client: Client, identity: Option<&str>) -> access::Client<'_> {
    let ip = if let Client::Network(address) = client { Some(address.ip().to_canonical()) } else { None };
    access::Client { ip, name: ClientName::NotAsked, identity, certificate: None }
}

/// May this client send to this recipient?
///
/// Accepts, or refuses with sendmail's `550 5.7.1 <rcpt>... Relaying denied`.
// RFC 5321 §3.6.2: a server may refuse to relay; RFC 5321 §4.5.1: never its own postmaster
#[must_use]
pub fn may_relay(client: Client, identity: Option<&str>, recipient: &Address, rights: &Rights) -> Verdict {
    match rights.recipient(client, identity, recipient).map(|ruled| ruled.ruling) {
        Ok(access::Ruling::Refuse(refusal)) => refuse(refusal.code, &format!("{} {}", refusal.status, refusal.text)),
        Ok(_) => Verdict::Accept,
        // Nothing is asked outside, so this is a fault of ours; it gives no right.
        Err(_) => refuse(451, "4.3.0 Temporary system failure. Please try again later."),
    }
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
impl Rights {
    /// Returns the rights of these networks and domains.
    pub(crate) fn of(from: &[&str], to: &[&str], hostname: &str, addresses: &[&str]) -> Self {
        let from: Vec<IpNet> = from.iter().map(|network| network.parse().unwrap()).collect();
        let to: Vec<crate::config::RelayDomain> = to.iter().map(|name| name.parse().unwrap()).collect();
        let mut classes = crate::routing::classes::of_relay(&from, &to);
        classes.ours.add_name(&mail::DomainName::new(hostname).unwrap());
        addresses.iter().for_each(|ip| classes.ours.add_address(ip.parse().unwrap()));
        let access = Access::new(Vec::new(), Options { relay_loopback: false, ..Options::default() });
        Self { from, access: Arc::new(access), classes: Arc::new(classes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::{DomainName, ForwardPath};

    const HOSTNAME: &str = "mx.ours.example";

    fn rights() -> Rights {
        Rights::of(
            &["127.0.0.0/8", "::1/128", "10.1.0.0/16"],
            &["ours.example", ".sub.example", "bücher.example"],
            HOSTNAME,
            &["192.0.2.25", "2001:db8::25"],
        )
    }

    fn network(ip: &str) -> Client {
        Client::Network((ip.parse::<IpAddr>().unwrap(), 4_000).into())
    }

    /// Returns the path of RCPT as a stranger gives it; `None` when it is not even an address.
    fn stranger(path: &str) -> Option<Verdict> {
        let address =
            ForwardPath::parse(path.as_bytes()).ok()?.into_address(&DomainName::new(HOSTNAME).unwrap()).unwrap();
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
        let nobody = Rights::of(&[], &["ours.example"], HOSTNAME, &["192.0.2.25"]);
        for client in ["127.0.0.1", "127.0.0.2", "::1", "::ffff:127.0.0.1", "192.0.2.25"].map(network) {
            assert!(!nobody.is_trusted(client, None), "{client:?} has nothing that relay.from does not give");
            assert_ne!(may_relay(client, None, &other, &nobody), Verdict::Accept, "{client:?}");
            assert!(nobody.is_trusted(client, Some("user")));
        }
        assert!(!Rights::default().is_from("127.0.0.1".parse().unwrap()), "what is not listed is not trusted");
    }
}

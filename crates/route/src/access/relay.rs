//! The right to relay: all clients may send to our domains, our clients and users to all domains.
//!
//! [`Access::client_right`] is the one decision on which client may send anywhere. The server asks it with maps and
//! without, and so does `mailrace route`. The address from which a client comes may be a claim (PROXY protocol,
//! XCLIENT) or that of a proxy on this machine, so with `relay_loopback = false` no address and no name of this machine
//! gives a right by itself: class R (`relay.from`, `relay.to_files`) and `RELAY` in the map do, since the operator
//! wrote them.
//!
//! An address can name more hosts than the one behind its `@`: `user%other@ours`, `other!user@ours` and
//! `"user@other"@ours` ask us to pass the message on, and a router that reads sendmail's rules does so. Therefore every
//! host that an address names must be ours, or the client must have the right to relay. sendmail takes
//! `"user@other"@ours` for a strange local user in some places; here it never is. Source routes (`<@ours:u@other>`) are
//! dropped by the parser of `RCPT` (RFC 5321 §4.1.1.3).

use super::key::{self, Tag};
use super::value::{self, AccessValue, RELAYING_DENIED};
use super::{Access, Client, ClientName, RelayMailFrom};
use crate::class::Classes;
use crate::question::{Ask, Stop};
use crate::refusal::Refusal;
use crate::step::Step;
use mail::decimal::push_ip;
use mail::{Address, Domain, EnhancedCode, Outcome, ReversePath};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// The most hosts that an address may name.
const HOSTS_MAX: usize = 16;

const CONNECT: Tag = Tag::or_bare("Connect");
const FROM: Tag = Tag::only("From");
const TO: Tag = Tag::or_bare("To");
const TO_ONLY: Tag = Tag::only("To");
const ISSUER: Tag = Tag::only("CertIssuer");
const SUBJECT: Tag = Tag::only("CertSubject");

/// Where an address leads when each of our hosts that it names passes it on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RelayTarget {
    pub(super) local: String,
    pub(super) domain: Domain,
    /// Why mail for it is taken from anyone; `None`: it is not.
    pub(super) ours: Option<Step>,
}

/// Whether a recipient may be sent to.
pub(super) struct Right {
    pub(super) step: Step,
    pub(super) refusal: Option<Refusal>,
    /// The client proved its identity: other checks of it are skipped.
    pub(super) is_by_login: bool,
}

impl Right {
    const fn given(step: Step) -> Self {
        Self { step, refusal: None, is_by_login: false }
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

/// Whether a client's name is in class w.
pub(super) fn is_local_name(name: &str, classes: &Classes) -> bool {
    Domain::parse(name.trim_end_matches('.').as_bytes()).is_ok_and(|domain| classes.is_local(&domain))
}

/// Whether a client is this machine: by its address, or by a name that is ours without being listed.
fn is_this_machine(name: &str, ip: IpAddr, classes: &Classes) -> bool {
    if ip.is_loopback() || classes.ours.has_literal(ip) || classes.local.has_literal(ip) {
        return true;
    }
    let name = name.trim_end_matches('.').to_ascii_lowercase();
    let own = classes.hostname.as_ref().is_some_and(|own| own.ascii() == name) || classes.ours.has_name(&name);
    // RFC 6761 §6.3, and the form that many machines have in /etc/hosts
    own || name == "localhost" || name.ends_with(".localhost") || name.starts_with("localhost.")
}

impl Access {
    /// The address without the hosts of class w that it names on its way.
    pub(super) fn behind_local_hosts(address: &Address, classes: &Classes) -> (String, Domain) {
        let mut local = address.local_part().as_str();
        let mut domain = classes.canonical(address.domain().clone());
        for _ in 0..HOSTS_MAX {
            let next = next_host(local).filter(|_| classes.is_local(&domain));
            let Some((next, rest)) = next.and_then(|(host, rest)| Some((Domain::parse(host.as_bytes()).ok()?, rest)))
            else {
                break;
            };
            (local, domain) = (rest, classes.canonical(next));
        }
        (local.to_owned(), domain)
    }

    /// Follows an address through the hosts that it names, as long as they are ours.
    pub(super) fn follow(&self, ask: &mut Ask<'_>, address: &Address, classes: &Classes) -> Result<RelayTarget, Stop> {
        let mut local = address.local_part().as_str();
        let mut domain = classes.canonical(address.domain().clone());
        for _ in 0..HOSTS_MAX {
            let Some(why) = self.takes(ask, &domain, classes)? else { break };
            match next_host(local) {
                None if local.is_empty() => break,
                None => return Ok(RelayTarget { local: local.to_owned(), domain, ours: Some(why) }),
                Some((host, rest)) => {
                    let Ok(next) = Domain::parse(host.as_bytes()) else { break };
                    (local, domain) = (rest, classes.canonical(next));
                }
            }
        }
        Ok(RelayTarget { local: local.to_owned(), domain, ours: None })
    }

    /// Why mail for a domain is taken from anyone.
    fn takes(&self, ask: &mut Ask<'_>, domain: &Domain, classes: &Classes) -> Result<Option<Step>, Stop> {
        let class = |text: &str| Ok(Some(Step::new("relay", format!("{domain} is in {text}"))));
        if classes.is_local(domain) {
            return class("class w");
        }
        if classes.relay.has(domain) {
            return class("class R");
        }
        if classes.ours.has(domain) {
            let what = if matches!(domain, Domain::Name(_)) { "hostname" } else { "address" };
            return Ok(Some(Step::new("relay", format!("{domain} is our {what}"))));
        }
        if classes.to.has(domain) {
            return class("relay.to");
        }
        let group = || match self.options.relay_hosts_only {
            true => [key::exact(TO, domain)],
            false => [key::domain(TO, domain, self.options.lookup_dot_domain)],
        };
        let entry = self.search(ask, group)?.filter(|entry| entry.value == AccessValue::Relay);
        Ok(entry.map(|entry| Step::of("access To:", entry.found, "RELAY")))
    }

    /// Whether the recipient may be sent to by this client. `target`: where it leads, if that could be found out.
    pub(super) fn may_relay(
        &self,
        ask: &mut Ask<'_>,
        client: &Client<'_>,
        sender: &ReversePath,
        recipient: &Address,
        target: Result<RelayTarget, Stop>,
        classes: &Classes,
    ) -> Result<Right, Stop> {
        if let Some(step) = self.proved(ask, client)? {
            return Ok(Right { step, refusal: None, is_by_login: true });
        }
        let ours = match target {
            // With relay_to_full_address an entry of the address counts before that of its domain.
            Ok(RelayTarget { ours: Some(step), .. }) if step.found.is_none() || !self.options.relay_to_full_address => {
                return Ok(Right::given(step));
            }
            Ok(target) => self.full_address(ask, &target),
            Err(stop) => Err(stop),
        };
        match ours {
            Ok(Some(step)) => return Ok(Right::given(step)),
            Ok(None) => {}
            Err(Stop::Open) => return Err(Stop::Open),
            // A client with the right to relay has it while the map cannot say whose the domain is.
            Err(trouble) => return self.client_may(ask, client, sender, classes)?.map(Right::given).ok_or(trouble),
        }
        if let Some(step) = self.client_may(ask, client, sender, classes)? {
            return Ok(Right::given(step));
        }
        let refusal = denied(client, recipient);
        let mut text = refusal.to_string();
        let own = client.ip.map(|ip| ip.to_canonical()).filter(|ip| ip.is_loopback() || classes.ours.has_literal(*ip));
        if let Some(ip) = own {
            text.push_str(&format!(
                "; {ip} is this machine, which may relay only if relay.from or the access map says so"
            ));
        }
        Ok(Right { step: Step::new("relay", text), refusal: Some(refusal), is_by_login: false })
    }

    /// Returns the reason why a client may send to any address: a certificate or login, or its network. `None`: it may
    /// not.
    ///
    /// # Errors
    /// When the map has to be asked, or cannot be.
    pub fn client_right(
        &self,
        ask: &mut Ask<'_>,
        client: &Client<'_>,
        sender: &ReversePath,
        classes: &Classes,
    ) -> Result<Option<Step>, Stop> {
        match self.proved(ask, client)? {
            Some(step) => Ok(Some(step)),
            None => self.client_may(ask, client, sender, classes),
        }
    }

    /// The right of a client that proved its identity.
    fn proved(&self, ask: &mut Ask<'_>, client: &Client<'_>) -> Result<Option<Step>, Stop> {
        let certified = self.certified(ask, client)?;
        let login = |identity| Step::new("relay", format!("{identity} logged in"));
        Ok(certified.or_else(|| client.identity.map(login)))
    }

    /// `CertIssuer:` and `CertSubject:`.
    fn certified(&self, ask: &mut Ask<'_>, client: &Client<'_>) -> Result<Option<Step>, Stop> {
        let Some(certificate) = client.certificate else { return Ok(None) };
        let entry = |access: &Self, ask: &mut Ask<'_>, tag, name: &str| access.search(ask, || [key::named(tag, name)]);
        let mut found = entry(self, ask, ISSUER, certificate.issuer)?;
        if found.as_ref().is_some_and(|entry| entry.value == AccessValue::Subject) {
            found = entry(self, ask, SUBJECT, certificate.subject)?;
        }
        Ok(found
            .filter(|entry| entry.value == AccessValue::Relay)
            .map(|entry| Step::of("access CertIssuer:", entry.found, "RELAY")))
    }

    /// `To:user@domain RELAY`, where that counts.
    fn full_address(&self, ask: &mut Ask<'_>, target: &RelayTarget) -> Result<Option<Step>, Stop> {
        // A local part that names another host asks to be passed on there, which the entry does not say.
        if !self.options.relay_to_full_address || next_host(&target.local).is_some() || target.local.is_empty() {
            return Ok(None);
        }
        let groups = || match self.options.relay_hosts_only {
            true => {
                let named = key::named(TO_ONLY, &format!("{}@{}", target.local, target.domain));
                vec![named, key::exact(TO, &target.domain)]
            }
            false => vec![
                key::full(TO, &target.local, &target.domain),
                key::domain(TO, &target.domain, self.options.lookup_dot_domain),
                key::named(TO, &format!("{}@", target.local)),
            ],
        };
        let entry = self.search(ask, groups)?.filter(|entry| entry.value == AccessValue::Relay);
        Ok(entry.map(|entry| Step::of("access To:", entry.found, "RELAY")))
    }

    /// Why a client may send anywhere without a proof of its identity.
    fn client_may(
        &self,
        ask: &mut Ask<'_>,
        client: &Client<'_>,
        sender: &ReversePath,
        classes: &Classes,
    ) -> Result<Option<Step>, Stop> {
        let because = |text: String| Ok(Some(Step::new("relay", text)));
        let Some(ip) = client.ip.map(|ip| ip.to_canonical()) else {
            return because("the client is a process of this machine".to_owned());
        };
        if self.options.relay_loopback && (ip == Ipv4Addr::LOCALHOST || ip == Ipv6Addr::LOCALHOST) {
            return because(format!("{ip} is this machine"));
        }
        if classes.relay.has_ip(ip) {
            let mut text = String::with_capacity(64);
            push_ip(&mut text, ip);
            text.push_str(" is in class R");
            return because(text);
        }
        if let Some(step) = self.relays(ask, || self.address(CONNECT, ip))? {
            return Ok(Some(step));
        }
        if self.options.relay_loopback && classes.local.has_literal(ip) {
            return because(format!("[{ip}] is in class w"));
        }
        if let Some(step) = self.sender_may(ask, sender, classes)? {
            return Ok(Some(step));
        }
        self.name_may(ask, client, ip, classes)
    }

    fn name_may(
        &self,
        ask: &mut Ask<'_>,
        client: &Client<'_>,
        ip: IpAddr,
        classes: &Classes,
    ) -> Result<Option<Step>, Stop> {
        let ClientName::Verified(name) = client.name else { return Ok(None) };
        if is_local_name(name, classes) && (self.options.relay_loopback || !is_this_machine(name, ip, classes)) {
            return Ok(Some(Step::new("relay", format!("{name} is in class w"))));
        }
        if classes.relay.has_name(name) {
            return Ok(Some(Step::new("relay", format!("{name} is in class R"))));
        }
        self.relays(ask, || match Domain::parse(name.trim_end_matches('.').as_bytes()) {
            Ok(domain) if self.options.relay_hosts_only => key::exact(CONNECT, &domain),
            _ => self.name_of(CONNECT, client.name, ip),
        })
    }

    fn relays(&self, ask: &mut Ask<'_>, group: impl FnOnce() -> key::Group) -> Result<Option<Step>, Stop> {
        let entry = self.search(ask, || [group()])?.filter(|entry| entry.value == AccessValue::Relay);
        Ok(entry.map(|entry| Step::of("access Connect:", entry.found, "RELAY")))
    }

    /// `relay_mail_from` and `relay_local_from`.
    fn sender_may(&self, ask: &mut Ask<'_>, sender: &ReversePath, classes: &Classes) -> Result<Option<Step>, Stop> {
        let Some(address) = sender.address() else { return Ok(None) };
        let (local, domain) = Self::behind_local_hosts(address, classes);
        if self.options.relay_local_from && classes.is_local(&domain) {
            return Ok(Some(Step::new("relay", format!("{domain} of the sender is in class w"))));
        }
        if self.options.relay_mail_from == RelayMailFrom::No {
            return Ok(None);
        }
        let groups = || {
            let mut groups = vec![key::full(FROM, &local, &domain)];
            match self.options.relay_mail_from {
                RelayMailFrom::No | RelayMailFrom::Address => {}
                RelayMailFrom::Domain if self.options.relay_hosts_only => groups.push(key::exact(FROM, &domain)),
                RelayMailFrom::Domain => groups.push(key::domain(FROM, &domain, self.options.lookup_dot_domain)),
            }
            groups
        };
        let entry = self.search(ask, groups)?.filter(|entry| entry.value == AccessValue::Relay);
        Ok(entry.map(|entry| Step::of("access From:", entry.found, "RELAY")))
    }
}

/// Returns the refusal for a client that may not relay.
// RFC 5321 §3.6.2: a server may refuse to relay
fn denied(client: &Client<'_>, recipient: &Address) -> Refusal {
    let (code, status, text) = RELAYING_DENIED;
    let ip = client.ip.map_or_else(String::new, key::written);
    let (code, status, text) = match client.name {
        ClientName::NotAsked | ClientName::Verified(_) => (code, status, text.to_owned()),
        ClientName::Forged => (code, status, format!("{text}. IP name possibly forged [{ip}]")),
        ClientName::NotFound => (code, status, format!("{text}. IP name lookup failed [{ip}]")),
        ClientName::Unavailable => {
            let text = format!("Relaying temporarily denied. Cannot resolve PTR record for {ip}");
            (450, EnhancedCode::of(Outcome::Transient, 4, 0), text)
        }
    };
    value::refusal((code, status, &text), Some(recipient))
}

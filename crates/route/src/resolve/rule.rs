//! Rules of the configuration: where mail of some senders or recipients goes, beside the maps.
//!
//! A rule fits if its senders, its recipients and its clients all do; an empty list fits all. At each place ([`At`])
//! rules are asked in their order. The first that does more than copy counts, and no later rule after it; copies add
//! up.

use crate::destination::Hosts;
use crate::question::EntryLocation;
use crate::refusal::Refusal;
use crate::tables::ValueError;
use crate::tables::mailer::{self, MailerValue};
use crate::tables::virtusertable::detail;
use ipnet::IpNet;
use mail::{Address, Domain, DomainName, ReversePath};
use std::collections::HashSet;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// `[[route.rule]]`
#[derive(Clone, Debug)]
pub struct Rule {
    /// Its name in messages.
    pub name: Box<str>,
    /// Where it stands.
    pub place: EntryLocation,
    /// When it is asked.
    pub at: At,
    /// Senders it is for.
    pub sender: Patterns,
    /// Recipients it is for.
    pub recipient: Patterns,
    /// Clients it is for; none: all.
    pub client: Vec<IpNet>,
    /// The action of the rule.
    pub action: RuleAction,
}

/// When a rule is asked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum At {
    /// Before all maps.
    First,
    /// Behind domaintable and LDAP routing, before virtusertable.
    BeforeVirtual,
    /// Behind virtusertable, before users and aliases.
    BeforeLocal,
    /// For recipients elsewhere, before mailertable and smarttable.
    #[default]
    BeforeMailertable,
    /// Behind all maps, before smart host and MX.
    Last,
}

/// The action of a rule.
#[derive(Clone, Debug, Default)]
pub struct RuleAction {
    /// Mail goes there.
    pub via: Option<MailerValue>,
    /// Copies go there.
    pub copies: Vec<CopyTo>,
    /// Whether the sender hears of copies.
    pub copy_dsn: CopyDsn,
    /// Mail is held, for this reason.
    pub hold: Option<Box<str>>,
    /// Mail waits until an operator sends it.
    pub queue_only: bool,
    /// When its sender hears that it is accepted; `None`: as the listener has it.
    pub acknowledge: Option<Acknowledge>,
    /// Where IPv4 connections come from.
    pub source4: Option<Ipv4Addr>,
    /// Where IPv6 connections come from.
    pub source6: Option<Ipv6Addr>,
    /// The name that this host gives itself.
    pub hello: Option<Box<str>>,
    /// The recipient is refused.
    pub reject: Option<Refusal>,
}

/// When the sender of a message hears that it is accepted, the safest first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Acknowledge {
    /// When it is on stable storage.
    Durable,
    /// Then, or when every next hop has taken it, whichever is first.
    Race,
    /// When every next hop has taken it; it is stored only if that does not happen soon.
    Interactive,
}

impl Acknowledge {
    /// The word for it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Durable => "durable",
            Self::Race => "race",
            Self::Interactive => "interactive",
        }
    }
}

/// Where a copy goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CopyTo {
    /// To another address, by the way that mail for it takes.
    Address(Address),
    /// To other hosts, for the same recipient.
    Mailer(MailerValue),
}

/// Whether the sender hears of a copy that cannot be delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum CopyDsn {
    /// Never.
    #[default]
    Never,
    /// As of the message itself.
    AsOriginal,
}

impl CopyTo {
    /// Reads `journal@example.com` or a value of mailertable.
    ///
    /// # Errors
    /// The fault, and the text to write.
    pub fn parse(text: &str, port: u16) -> Result<Self, ValueError> {
        let text = text.trim();
        let fault = |why: String| ValueError {
            text: why,
            hint: "write an address, or hosts as smtp:[archive.example.com]".into(),
        };
        if mailer::split_mailer(text).is_none() && text.contains('@') {
            return Address::parse(text.as_bytes())
                .map(Self::Address)
                .map_err(|error| fault(format!("\"{text}\" is no address: {error}")));
        }
        match MailerValue::parse(text, port)? {
            MailerValue::Error(_) | MailerValue::Discard => Err(fault(format!("\"{text}\" is no place for a copy"))),
            value => Ok(Self::Mailer(value)),
        }
    }
}

impl RuleAction {
    /// Whether the rule does nothing but copy.
    #[must_use]
    pub fn is_copy_alone(&self) -> bool {
        !self.copies.is_empty() && self.is_nothing()
    }

    /// Whether it does nothing, copies left aside.
    pub(super) fn is_nothing(&self) -> bool {
        self.via.is_none()
            && self.hold.is_none()
            && !self.queue_only
            && self.acknowledge.is_none()
            && self.source4.is_none()
            && self.source6.is_none()
            && self.hello.is_none()
            && self.reject.is_none()
    }

    /// Mail goes to these hosts.
    #[must_use]
    pub fn via(hosts: Hosts) -> Self {
        Self { via: Some(MailerValue::Hosts { hosts, recipient: None }), ..Self::default() }
    }
}

impl Rule {
    /// Whether it is for all mail.
    pub(super) fn fits_all(&self) -> bool {
        self.client.is_empty() && self.sender.is_any && self.recipient.is_any
    }

    /// Whether it is for mail of this sender from this client.
    #[must_use]
    pub fn fits(&self, sender: &ReversePath, client: Option<IpAddr>, delimiter: Option<char>) -> bool {
        let is_for_sender = match sender {
            ReversePath::Null => self.sender.has_null(),
            ReversePath::Address(address) => self.sender.has(address, delimiter),
        };
        let is_for_client =
            self.client.is_empty() || client.is_some_and(|ip| self.client.iter().any(|network| network.contains(&ip)));
        is_for_sender && is_for_client
    }
}

/// Addresses that a rule is for.
///
/// `user@example.com` (also with a detail), `user@` at any domain, `@example.com` and `example.com`, `.example.com` for
/// names below it, `<>` for the null sender, `*` for all. Upper and lower case are the same.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Patterns {
    is_any: bool,
    is_null: bool,
    addresses: HashSet<Box<str>>,
    users: HashSet<Box<str>>,
    domains: HashSet<Box<str>>,
    parents: HashSet<Box<str>>,
}

impl Patterns {
    /// Reads patterns; none fit all.
    ///
    /// # Errors
    /// The fault of the first text that is no pattern.
    pub fn parse<T: AsRef<str>>(texts: &[T]) -> Result<Self, ValueError> {
        let mut patterns = Self { is_any: texts.is_empty(), ..Self::default() };
        for text in texts {
            patterns.add(text.as_ref().trim())?;
        }
        Ok(patterns)
    }

    fn add(&mut self, text: &str) -> Result<(), ValueError> {
        let fault = |why: String| ValueError {
            text: format!("\"{text}\" is neither an address nor a domain: {why}"),
            hint: "write user@example.com, @example.com, .example.com, user@, <> or *".into(),
        };
        let domain = |text: &str| match Domain::parse(text.as_bytes()) {
            Ok(domain) => Ok(of_domain(&domain)),
            Err(error) => Err(fault(error.to_string())),
        };
        match text {
            "*" => self.is_any = true,
            "<>" => self.is_null = true,
            _ => match text.rsplit_once('@') {
                Some(("", name)) => _ = self.domains.insert(domain(name)?),
                Some((user, "")) => _ = self.users.insert(user.to_lowercase().into()),
                Some((user, name)) => {
                    _ = self.addresses.insert(format!("{}@{}", user.to_lowercase(), domain(name)?).into());
                }
                None => match text.strip_prefix('.') {
                    Some(name) => {
                        let name = DomainName::new(name).map_err(|error| fault(error.to_string()))?;
                        self.parents.insert(name.ascii().into());
                    }
                    None => _ = self.domains.insert(domain(text)?),
                },
            },
        }
        Ok(())
    }

    /// Whether the null sender is one of them.
    #[must_use]
    pub const fn has_null(&self) -> bool {
        self.is_any || self.is_null
    }

    /// Whether an address is one of them.
    #[must_use]
    pub fn has(&self, address: &Address, delimiter: Option<char>) -> bool {
        if self.is_any {
            return true;
        }
        let domain = of_domain(address.domain());
        if self.domains.contains(&domain) {
            return true;
        }
        if !self.parents.is_empty() {
            let mut rest: &str = &domain;
            while let Some((_, parent)) = rest.split_once('.') {
                if self.parents.contains(parent) {
                    return true;
                }
                rest = parent;
            }
        }
        if self.addresses.is_empty() && self.users.is_empty() {
            return false;
        }
        let local = address.local_part().to_string().to_lowercase();
        let user = detail(&local, delimiter).map(|(user, _)| user);
        [Some(local.as_str()), user]
            .into_iter()
            .flatten()
            .any(|name| self.users.contains(name) || self.addresses.contains(format!("{name}@{domain}").as_str()))
    }
}

fn of_domain(domain: &Domain) -> Box<str> {
    match domain {
        Domain::Name(name) => name.ascii().into(),
        Domain::Literal(literal) => literal.to_string().to_lowercase().into(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_addresses_users_domains_and_what_is_below_them() {
        let patterns =
            Patterns::parse(&["boss@corp.example", "@legal.example", "plain.example", ".sub.example", "abuse@", "<>"]);
        let patterns = patterns.unwrap();
        let has = |text: &str| patterns.has(&text.parse().unwrap(), Some('+'));
        for text in [
            "Boss@CORP.example",
            "boss+x@corp.example",
            "x@legal.example",
            "x@plain.example",
            "x@a.b.sub.example",
            "abuse@any.example",
        ] {
            assert!(has(text), "{text}");
        }
        for text in ["clerk@corp.example", "x@a.legal.example", "x@sub.example", "boss-x@corp.example", "x@[192.0.2.1]"]
        {
            assert!(!has(text), "{text}");
        }
        assert!(patterns.has_null());
        assert!(Patterns::parse::<&str>(&[]).unwrap().has(&"x@y.example".parse().unwrap(), None));
        assert!(!Patterns::parse(&["@a.example"]).unwrap().has_null());
        for text in ["a b", "@", "x@a..b", "."] {
            assert!(Patterns::parse(&[text]).is_err(), "{text}");
        }
    }

    #[test]
    fn copies_go_to_addresses_and_hosts() {
        assert_eq!(
            CopyTo::parse("journal@example.com", 25),
            Ok(CopyTo::Address("journal@example.com".parse().unwrap()))
        );
        let Ok(CopyTo::Mailer(value)) = CopyTo::parse("smtp:[archive.example.com]", 25) else { panic!() };
        assert_eq!(value.to_string(), "smtp:archive.example.com:25");
        for text in ["error:550 no", "discard:", "a b@c", "smtp:[x"] {
            assert!(CopyTo::parse(text, 25).is_err(), "{text}");
        }
    }
}

//! From a recipient to the destination of his mail: the maps in sendmail's order, rules between them, and the decision
//! of each step.
//!
//! ```text
//! rules "first" ─► domaintable ─► LDAP routing ─► rules "before-virtusertable" ─► virtusertable ──┐ from the start,
//!                                                                                  │             │ new address
//!   ┌──────────────────────────────────────────────────────────────────────────────┘◄────────────┘
//!   ▼
//! rules "before-local" ─► ours? ─► aliases ─► .forward ─► mailbox                each address found: from the start
//!   │ no
//!   ▼
//! rules "before-mailertable" ─► mailertable ─► smarttable ─► rules "last" ─► smart host, else MX
//!                                    with precedence "sender" the other way round
//! ```
//!
//! | File | Holds |
//! |---|---|
//! | [`rule`] | rules of the configuration |
//! | `run` | the way of one recipient, and of all it expands to |
//! | `maps` | one address, once through the maps |
//! | `ruling` | what rules do to an address on its way |
//! | `local` | users of this machine |
//! | `tags` | what the tags of the access map add: copies by `bcc:`, queue groups |
//! | `hosts` | what holds for a domain when its mail is sent |
//! | `sender` | what people are called outside |
//! | [`header`] | their addresses in the header section |
//! | `lint` | doubts that concern several maps |
//!
//! Invariants: every way ends, with any maps; a recipient is delivered, refused, discarded or waits, never forgotten;
//! the destination of each delivery reads back; a copy never leads to another copy; no recipient gets the same mail
//! twice by the same way.

pub mod header;
mod hosts;
mod lint;
mod local;
mod maps;
pub mod rule;
mod ruling;
mod run;
mod sender;
mod tags;

#[cfg(test)]
mod tests;

pub use hosts::HostsOrElse;
pub use rule::{Acknowledge, At, CopyDsn, CopyTo, Patterns, Rule, RuleAction};
pub use sender::{Masquerade, SenderKind};

use crate::access::Access;
use crate::class::{Class, Classes};
use crate::destination::{Destination, Hosts};
use crate::question::{Ask, Source, Stop};
use crate::refusal::Refusal;
use crate::step::Step;
use crate::tables::ldap_routing::LdapRouting;
use crate::tables::mailer::MailerValue;
use crate::tables::{TableEntry, smarttable};
use mail::{Address, Domain, DomainName, ReversePath};
use std::fmt;
use std::net::IpAddr;
use std::sync::Arc;

/// How often virtusertable may name another address that stands in it, as in sendmail.
pub const VIRTUAL_DEPTH_MAX: usize = 50;
/// The most steps that are kept for people; the steps of a large list are too many to read.
pub const STEPS_MAX: usize = 1_000;

/// All that decides where mail goes. Nothing in it changes; another configuration is another router.
#[derive(Clone, Debug)]
pub struct Router {
    /// Settings that are not maps.
    pub settings: RouterSettings,
    /// The maps.
    pub maps: Maps,
    /// Which domains are ours.
    pub classes: Classes,
    /// Rules of the configuration, in their order.
    pub rules: Vec<Rule>,
}

/// The maps, each a list of sources of which the first that has an entry counts.
#[derive(Clone, Debug, Default)]
pub struct Maps {
    /// Hosts for domains.
    pub mailertable: Vec<Source>,
    /// Addresses without mailboxes of their own.
    pub virtusertable: Vec<Source>,
    /// The outside addresses of senders.
    pub genericstable: Vec<Source>,
    /// Other names of domains.
    pub domaintable: Vec<Source>,
    /// Hosts for senders.
    pub smarttable: Vec<Source>,
    /// Other names of users.
    pub aliases: Vec<Source>,
    /// The directory that says at which host a mailbox is.
    pub ldap_routing: Option<LdapRouting>,
    /// The access map, for its tags `bcc:` and `QGRP:`.
    pub access: Arc<Access>,
}

/// Settings of a router.
#[derive(Clone, Debug)]
pub struct RouterSettings {
    /// Our own name: users without a domain are at it.
    pub hostname: DomainName,
    /// Which of mailertable and smarttable counts.
    pub precedence: Precedence,
    /// The character between user and detail; `None`: users have no details.
    pub delimiter: Option<char>,
    /// The port of hosts that maps name without one; 25.
    pub port: u16,
    /// Where mail goes that no map sends anywhere; `None`: to the MX hosts of its domain.
    pub smart_hosts: Option<Hosts>,
    /// Where mail for users of this machine goes.
    pub local: LocalMailer,
    /// How many aliases and forwards may follow each other; 10.
    pub alias_depth_max: usize,
    /// How many recipients one recipient may become; 1,000,000.
    pub expansion_max: usize,
    /// The senders that genericstable is for.
    pub generics: Generics,
    /// The domain that stands for ours in senders' addresses.
    pub masquerade: Option<Masquerade>,
    /// Whether a user's `.forward` counts.
    pub forward: bool,
    /// The destination of mail for unknown users; `None`: it is refused. Addresses get the host as their domain.
    pub luser_relay: Option<MailerValue>,
    /// Where mail of all users goes who have no alias; `None`: into their mailboxes here.
    pub mail_hub: Option<MailerValue>,
}

/// The senders for which genericstable is asked, and the places where its values are used.
#[derive(Clone, Debug, Default)]
pub struct Generics {
    /// Their domains: class G.
    pub domains: Class,
    /// The sender in the envelope has it too: `masquerade_envelope`.
    pub envelope: bool,
    /// Senders in the header have it.
    pub headers: bool,
    /// Recipients in the header have it too: `allmasquerade`.
    pub recipients: bool,
}

/// Which map counts when sender and recipient have an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum Precedence {
    /// mailertable, as in sendmail.
    #[default]
    Recipient,
    /// smarttable.
    Sender,
}

/// Where mail for users of this machine goes.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub enum LocalMailer {
    /// Into their mailboxes; there must be an account.
    #[default]
    Mailbox,
    /// To a server on this machine or beside it, by LMTP as a rule.
    Hosts {
        /// Which.
        hosts: Hosts,
        /// Whether there must be an account; if not, the server knows the accounts.
        accounts: bool,
    },
    /// Nowhere: there are only aliases.
    None,
}

impl RouterSettings {
    /// The defaults.
    #[must_use]
    pub fn new(hostname: DomainName) -> Self {
        Self {
            hostname,
            precedence: Precedence::Recipient,
            delimiter: Some('+'),
            port: 25,
            smart_hosts: None,
            local: LocalMailer::Mailbox,
            alias_depth_max: 10,
            expansion_max: 1_000_000,
            generics: Generics::default(),
            masquerade: None,
            forward: true,
            luser_relay: None,
            mail_hub: None,
        }
    }
}

/// A recipient of a message.
#[derive(Clone, Copy, Debug)]
pub struct Request<'a> {
    /// The sender in the envelope, as the client gave it.
    pub sender: &'a ReversePath,
    /// The recipient in the envelope.
    pub recipient: &'a Address,
    /// Where the client is.
    pub client: Option<IpAddr>,
    /// The message comes from a user of this machine.
    pub is_local_submission: bool,
}

/// The properties of sender and client that a resolution depends on ([`Router::sender_class`]).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SenderClass {
    /// The rules that are for them, by their numbers.
    rules: Vec<usize>,
    /// The entry of smarttable for the sender.
    host: Option<Box<str>>,
}

/// The result for a recipient, and the reasons.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolution {
    /// The result.
    pub outcome: Outcome,
    /// The decisions on the way, in order; at most [`STEPS_MAX`].
    pub steps: Vec<Step>,
    /// Members of a list and copies that are not delivered although the others are: a report to the sender (or to the
    /// owner of the list) and to the operator is due.
    pub failed: Vec<Failed>,
}

/// An address that a recipient became, and that is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// Which.
    pub address: Address,
    /// The refusal for a client.
    pub refusal: Refusal,
    /// The sender that gets the report, in place of that of the message.
    pub sender: Option<ReversePath>,
    /// It is a copy: the sender is told only if [`CopyDsn::AsOriginal`].
    pub copy: Option<CopyDsn>,
}

/// The result for a recipient.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is delivered; there is at least one.
    Deliver(Vec<Delivery>),
    /// The client is told.
    Refuse(Refusal),
    /// Accepted and dropped, as an entry demands.
    Discard,
}

/// Why mail is held.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HoldReason {
    /// The rule or map that says so; empty if it is not known.
    pub by: Box<str>,
    /// The reason in words.
    pub text: Box<str>,
}

impl HoldReason {
    /// Makes the reason of a rule or map.
    #[must_use]
    pub fn new(by: &str, text: &str) -> Self {
        Self { by: by.into(), text: text.into() }
    }
}

impl fmt::Display for HoldReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// One address, and where its mail goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// The recipient.
    pub address: Address,
    /// Where.
    pub destination: Destination,
    /// The sender, if it is not that of the message: the owner of a list.
    pub sender: Option<ReversePath>,
    /// With whose rights programs and files are run and written.
    pub controller: Option<Box<str>>,
    /// It is held, for this reason.
    pub hold: Option<HoldReason>,
    /// It waits until an operator sends it.
    pub queue_only: bool,
    /// When the sender of the message hears that it is accepted, if a rule says that.
    pub acknowledge: Option<Acknowledge>,
    /// It is a copy.
    pub is_copy: bool,
    /// Whether the sender hears of a copy; nothing for others.
    pub copy_dsn: CopyDsn,
    /// The hosts that apply now, for people.
    pub via: Option<String>,
}

impl Router {
    /// Where mail for a recipient goes.
    ///
    /// # Errors
    /// [`Stop::Open`] if something has to be asked first, [`Stop::Trouble`] if it cannot be said now: the client is to
    /// try again. [`Stop::TooMuchWork`] if it takes more work than `ask` allows.
    pub fn resolve(&self, ask: &mut Ask<'_>, request: &Request<'_>) -> Result<Resolution, Stop> {
        run::RecipientResolver::new(self, ask, request).all()
    }

    /// Returns the properties of a request's sender and client that take part in a resolution. Two requests for the
    /// same recipient with the same answer have the same resolution, as long as maps and answers are the same.
    ///
    /// # Errors
    /// As [`Self::resolve`], for the entry of smarttable.
    pub fn sender_class(&self, ask: &mut Ask<'_>, request: &Request<'_>) -> Result<SenderClass, Stop> {
        let delimiter = self.settings.delimiter;
        let fits = |rule: &Rule| rule.fits(request.sender, request.client, delimiter);
        let rules = self.rules.iter().enumerate().filter(|(_, rule)| fits(rule)).map(|(number, _)| number).collect();
        let entry = smarttable::find(ask, &self.maps.smarttable, request.sender, delimiter)?;
        let host = entry.map(|TableEntry { found, value }| {
            let line = found.place.line.unwrap_or_default();
            format!("{}\n{line}\n{}\n{}\n{value}", found.place.file, found.key, found.value).into()
        });
        Ok(SenderClass { rules, host })
    }

    /// Whether a host is this one.
    fn is_ours(&self, host: &str) -> bool {
        Domain::parse(host.as_bytes()).is_ok_and(|domain| self.classes.is_local(&domain))
            || host.eq_ignore_ascii_case(self.settings.hostname.ascii())
    }
}

//! From a recipient to where his mail goes: the maps in sendmail's order, rules between them, and what each step
//! decided.
//!
//! ```text
//! rules "first" ─► domaintable ─► LDAP routing ─► rules "before-virtusertable" ─► virtusertable ──┐ from the start, with the
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
//! Invariants: every way ends, whatever the maps say; a recipient is delivered, refused, discarded or waits, never
//! forgotten; the destination of each delivery reads back; a copy never leads to another copy; nobody gets the same
//! mail twice by the same way.

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
use crate::tables::{Entry, smarttable};
use mail::{Address, Domain, DomainName, ReversePath};
use std::net::IpAddr;
use std::sync::Arc;

/// How often virtusertable may name another address that stands in it, as in sendmail.
pub const VIRTUAL_DEPTH_MAX: usize = 50;
/// How many steps are kept for people; of a large list nobody reads all.
pub const STEPS_MAX: usize = 1_000;

/// All that decides where mail goes. Nothing in it changes; another configuration is another router.
#[derive(Clone, Debug)]
pub struct Router {
    /// Settings that are not maps.
    pub settings: Settings,
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
    /// What senders are called outside.
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
pub struct Settings {
    /// Our own name: users without a domain are at it.
    pub hostname: DomainName,
    /// Which of mailertable and smarttable counts.
    pub precedence: Precedence,
    /// What stands between user and detail; `None`: users have no details.
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
    /// For whom genericstable is.
    pub generics: Generics,
    /// The domain that stands for ours in senders' addresses.
    pub masquerade: Option<Masquerade>,
    /// Whether a user's `.forward` counts.
    pub forward: bool,
    /// Where mail of users goes whom nobody knows; `None`: it is refused. Addresses get the host as their domain.
    pub luser_relay: Option<MailerValue>,
    /// Where mail of all users goes who have no alias; `None`: into their mailboxes here.
    pub mail_hub: Option<MailerValue>,
}

/// For which senders genericstable is asked, and where they have what it says.
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
        /// Whether there must be an account; if not, the server says who is there.
        accounts: bool,
    },
    /// Nowhere: there are only aliases.
    None,
}

impl Settings {
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

/// What a resolution depends on of sender and client ([`Router::sender_class`]).
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct SenderClass {
    /// The rules that are for them, by their numbers.
    rules: Vec<usize>,
    /// The entry of smarttable for the sender.
    host: Option<Box<str>>,
}

/// What becomes of a recipient, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resolution {
    /// What becomes of it.
    pub outcome: Outcome,
    /// What led there, in order; at most [`STEPS_MAX`].
    pub steps: Vec<Step>,
    /// Members of a list and copies that nobody will get although the others do: a report to the sender (or to the
    /// owner of the list) and to the operator is due.
    pub failed: Vec<Failed>,
}

/// An address that a recipient became, and that is refused.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failed {
    /// Which.
    pub address: Address,
    /// What a client would be told.
    pub refusal: Refusal,
    /// The sender who is to be told, in place of that of the message.
    pub sender: Option<ReversePath>,
    /// It is a copy: the sender is told only if [`CopyDsn::AsOriginal`].
    pub copy: Option<CopyDsn>,
}

/// What becomes of a recipient.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It is delivered; there is at least one.
    Deliver(Vec<Delivery>),
    /// The client is told.
    Refuse(Refusal),
    /// Accepted and dropped, as an entry demands.
    Discard,
}

/// One address, and where its mail goes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Delivery {
    /// For whom.
    pub address: Address,
    /// Where.
    pub destination: Destination,
    /// The sender, if it is not that of the message: the owner of a list.
    pub sender: Option<ReversePath>,
    /// With whose rights programs and files are run and written.
    pub controller: Option<Box<str>>,
    /// It is held, for this reason.
    pub hold: Option<Box<str>>,
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
        run::Run::new(self, ask, request).all()
    }

    /// What takes part in a resolution of the sender and the client of a request. Two requests for the same recipient
    /// with the same answer have the same resolution, as long as maps and answers are the same.
    ///
    /// # Errors
    /// As [`Self::resolve`], for the entry of smarttable.
    pub fn sender_class(&self, ask: &mut Ask<'_>, request: &Request<'_>) -> Result<SenderClass, Stop> {
        let delimiter = self.settings.delimiter;
        let fits = |rule: &Rule| rule.fits(request.sender, request.client, delimiter);
        let rules = self.rules.iter().enumerate().filter(|(_, rule)| fits(rule)).map(|(number, _)| number).collect();
        let entry = smarttable::find(ask, &self.maps.smarttable, request.sender, delimiter)?;
        let host = entry.map(|Entry { found, value }| {
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

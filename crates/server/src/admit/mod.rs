//! The stop between a command and its reply: decides on client, sender and recipient.
//!
//! A [`Policy`] is a plain function over the [`Facts`] of a transaction: no I/O, no clock; facts from outside (names,
//! block lists, maps) were looked up before. [`Policies`] is the ordered list; the first policy that decides ends it,
//! and its name goes to the log. The usual list is [`Policies::usual`]: sender checks, block lists, relay rights.
//! Where there are maps, `session::routed` puts the access map in front of it, which then has the relay rights, and
//! the existence of recipients behind it.
//!
//! Invariant: a policy without an objection to a command returns [`Ruling::Continue`]; `Accept` is for one that
//! overrides all behind it. A command without an objection is accepted, so relay rights belong to every list.

pub mod dnsbl;
pub(crate) mod features;
mod greet_pause;
pub(crate) mod logins;
pub mod relay;
pub mod sender;

use std::fmt;
use std::net::IpAddr;

use mail::{Client, HeloName, Recipient, Reply, ReplyCode, ReversePath};
use smtp::server::Verdict;

use crate::dns::ClientName;
use dnsbl::Listings;
pub use greet_pause::greet_pause;
use std::sync::Arc;

/// Facts by which policies judge a command.
#[derive(Clone, Copy, Debug)]
pub struct Facts<'a> {
    /// The client, after PROXY protocol and XCLIENT.
    pub client: Client,
    /// The name of its address.
    pub client_name: &'a ClientName,
    /// The name that it gave in HELO or EHLO.
    pub helo: Option<&'a HeloName>,
    /// The authenticated user.
    pub identity: Option<&'a str>,
    /// From MAIL, when it was given.
    pub sender: Option<&'a ReversePath>,
    /// Recipients accepted so far.
    pub recipients: usize,
    /// The entries of block lists for the client.
    pub listings: &'a Listings,
}

impl Facts<'_> {
    /// Returns the client's address, if it is on the network.
    #[must_use]
    pub fn ip(&self) -> Option<IpAddr> {
        if let Client::Network(address) = self.client { Some(address.ip().to_canonical()) } else { None }
    }
}

/// The opinion of one policy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ruling {
    /// Nothing against it: the next policy is asked.
    Continue,
    /// This is the answer; later policies are not asked.
    Decide(Verdict),
}

/// One rule. Pure: the same facts give the same ruling.
pub trait Policy: fmt::Debug + Send + Sync {
    /// Returns the name in log lines and metrics: `relay`.
    fn name(&self) -> &'static str;

    /// May this client go on after HELO?
    fn helo(&self, _facts: &Facts<'_>) -> Ruling {
        Ruling::Continue
    }

    /// May [`Facts::sender`] send?
    fn sender(&self, _facts: &Facts<'_>) -> Ruling {
        Ruling::Continue
    }

    /// May this recipient receive?
    fn recipient(&self, _facts: &Facts<'_>, _recipient: &Recipient) -> Ruling {
        Ruling::Continue
    }
}

/// A verdict and the policy that made it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Decision {
    /// The answer.
    pub verdict: Verdict,
    /// The policy that decided; `None` when no policy objected.
    pub by: Option<&'static str>,
}

/// Policies in the order in which they are asked.
#[derive(Clone, Debug, Default)]
pub struct Policies(Arc<Vec<Box<dyn Policy>>>);

impl Policies {
    /// Makes a list. See the invariant at the head of this module.
    #[must_use]
    pub fn new(policies: Vec<Box<dyn Policy>>) -> Self {
        Self(Arc::new(policies))
    }

    /// Sender checks, block lists, relay rights.
    #[must_use]
    pub fn usual(rights: relay::Rights, dnsbl: &crate::config::Dnsbl) -> Self {
        let sender = sender::Sender::new(rights.clone());
        let blocklist = dnsbl::Blocklist::new(dnsbl, rights.clone());
        Self::new(vec![Box::new(sender), Box::new(blocklist), Box::new(rights)])
    }

    /// Sender checks and block lists. Maps have the relay rights.
    #[must_use]
    pub fn beside_maps(rights: relay::Rights, dnsbl: &crate::config::Dnsbl) -> Self {
        let sender = sender::Sender::new(rights.clone());
        Self::new(vec![Box::new(sender), Box::new(dnsbl::Blocklist::new(dnsbl, rights))])
    }

    /// Judges HELO.
    #[must_use]
    pub fn helo(&self, facts: &Facts<'_>) -> Decision {
        self.first(|policy| policy.helo(facts))
    }

    /// Judges MAIL.
    #[must_use]
    pub fn sender(&self, facts: &Facts<'_>) -> Decision {
        self.first(|policy| policy.sender(facts))
    }

    /// Judges RCPT.
    #[must_use]
    pub fn recipient(&self, facts: &Facts<'_>, recipient: &Recipient) -> Decision {
        self.first(|policy| policy.recipient(facts, recipient))
    }

    fn first(&self, ask: impl Fn(&dyn Policy) -> Ruling) -> Decision {
        for policy in self.0.iter() {
            if let Ruling::Decide(verdict) = ask(&**policy) {
                return Decision { verdict, by: Some(policy.name()) };
            }
        }
        Decision { verdict: Verdict::Accept, by: None }
    }
}

/// Returns a refusal with a text that begins with its enhanced code.
fn refuse(code: u16, text: &str) -> Verdict {
    Verdict::Refuse(Reply::new(ReplyCode::of(code), None, text))
}

#[cfg(test)]
mod tests;

//! Refuses senders to whom no bounce could ever be sent.
//!
//! The null sender is always accepted, with several recipients too: reports about one message to several people use
//! it. From our own clients and users every sender is accepted, since machines without a name of their own send mail
//! from `root@localhost`. From others an address is refused that leads nowhere by its form alone; the DNS is not
//! asked.
//!
//! Not here: lengths and characters, which the parser of `mail` has judged; the access map.

use mail::{Address, AddressLiteral, Domain, ReversePath};
use smtp::server::Verdict;

use super::relay::Rights;
use super::{Facts, Policy, Ruling, refuse};

/// Top-level names that never exist in the DNS of others.
// RFC 6761 §6.3, §6.4; RFC 7686 §2
const NOWHERE: &[&str] = &["invalid", "localhost", "onion"];

/// The sender checks.
#[derive(Clone, Debug)]
pub struct Sender {
    rights: Rights,
}

impl Sender {
    /// Checks all clients that have no trust by these rights.
    #[must_use]
    pub const fn new(rights: Rights) -> Self {
        Self { rights }
    }
}

impl Policy for Sender {
    fn name(&self) -> &'static str {
        "sender"
    }

    fn sender(&self, facts: &Facts<'_>) -> Ruling {
        match facts.sender {
            // RFC 5321 §4.5.5: the null reverse-path is valid and must be accepted
            None | Some(ReversePath::Null) => Ruling::Continue,
            // The right of the client costs more than the form of the address, and is asked only for a bad form.
            Some(ReversePath::Address(address)) => match may_send(address) {
                Some(refusal) if !self.rights.is_trusted(facts.client, facts.identity) => Ruling::Decide(refusal),
                _ => Ruling::Continue,
            },
        }
    }
}

/// Returns the refusal of a sender that leads nowhere.
fn may_send(sender: &Address) -> Option<Verdict> {
    match sender.domain() {
        Domain::Name(name) => {
            let top = name.ascii().rsplit('.').next().unwrap_or_default();
            NOWHERE
                .contains(&top)
                .then(|| refuse(553, &format!("5.1.8 <{sender}>... Domain of sender address {sender} does not exist")))
        }
        Domain::Literal(AddressLiteral::General(_)) => {
            Some(refuse(553, &format!("5.1.7 <{sender}>... Address literal of unknown kind")))
        }
        Domain::Literal(literal) => {
            let ip = literal.ip()?.to_canonical();
            (ip.is_loopback() || ip.is_unspecified() || ip.is_multicast())
                .then(|| refuse(553, &format!("5.1.8 <{sender}>... Address literal of no host")))
        }
    }
}

//! Mail that waits where the configuration and the maps would not put it any more is given other destinations.

use super::READY_MAX;
use crate::config::Config;
use crate::resolve;
use crate::routing::{Admission, Routing, Way};
use mail::{Address, ReversePath};
use route::destination::{Destination, To};
use route::resolve::{Outcome, Request};
use spool::{Entry, Spool, Store as _};
use std::collections::BTreeSet;

/// What became of mail that belongs elsewhere.
#[derive(Debug, Default)]
pub(super) struct Moved {
    /// The queues that it was given.
    pub(super) to: BTreeSet<Vec<u8>>,
    /// Recipients that belong elsewhere and stay, as they are in memory or under way.
    pub(super) left: usize,
}

/// Mail of queues whose name is no longer what the configuration gives is moved to the queue it belongs to now.
///
/// Mail for a domain goes to other hosts by itself when mailertable or the smart hosts change. What waits for hosts by their
/// names, or for a domain whose users are here now, is read to know its senders and recipients. A copy stays where it is.
///
/// # Errors
/// The spool cannot record it; the mail stays where it is.
pub(super) fn rehome(
    spool: &Spool,
    config: &Config,
    routing: &Routing,
    is_active: &dyn Fn(&[u8], &Entry) -> bool,
) -> Result<Moved, spool::Error> {
    let mut moved = Moved::default();
    let mover = Mover::new(config, routing);
    for (name, count) in spool.destinations().iter().filter(|(name, _)| mover.is_old(name)) {
        for entry in all_of(spool, name, *count) {
            let Some(destination) = mover.home(spool, name, &entry) else { continue };
            if is_active(name, &entry) {
                moved.left += 1;
                continue;
            }
            // The state as it is now: somebody may have held it since the list was read.
            let states = spool.states(entry.id);
            let now = states.iter().find(|(one, at)| one.recipient == entry.recipient && **at == **name);
            let Some((now, _)) = now else { continue };
            drop(spool.record(&[spool::Change {
                id: entry.id,
                recipient: entry.recipient,
                state: now.state,
                destination: Some(destination.clone()),
            }])?);
            moved.to.insert(destination);
        }
    }
    Ok(moved)
}

/// What says where mail belongs.
struct Mover<'a> {
    config: &'a Config,
    admission: Option<&'a Admission>,
    routing: &'a Routing,
    /// The queue of the smart hosts.
    smart_hosts: Option<Vec<u8>>,
}

impl<'a> Mover<'a> {
    fn new(config: &'a Config, routing: &'a Routing) -> Self {
        let smart_hosts = (!config.route.smart_host.is_empty()).then(|| resolve::smart_hosts(&config.route));
        Self { config, admission: routing.admission(), routing, smart_hosts }
    }

    /// Whether mail in a queue may belong elsewhere.
    fn is_old(&self, name: &[u8]) -> bool {
        let is_smart = self.smart_hosts.as_deref() == Some(name);
        let Some(admission) = self.admission else { return resolve::is_smart_hosts(name) && !is_smart };
        let Ok(read) = Destination::parse(name) else { return resolve::is_smart_hosts(name) && !is_smart };
        match read.to {
            To::Hosts(_) if is_smart => {
                let router = &admission.router;
                !router.maps.smarttable.is_empty() || !router.rules.is_empty() || !router.maps.mailertable.is_empty()
            }
            To::Hosts(_) => !read.is_copy,
            To::Domain(domain) => {
                matches!(Routing::decide_at_once(|ask| self.routing.way_of(ask, &domain)), Some(Ok(Way::Local)))
            }
            _ => false,
        }
    }

    /// Where a recipient belongs; `None`: where it is, or its message cannot be read.
    fn home(&self, spool: &Spool, name: &[u8], entry: &Entry) -> Option<Vec<u8>> {
        if self.admission.is_none()
            && let Some(all) = &self.smart_hosts
        {
            return Some(all.clone());
        }
        let stored = spool.envelope(entry.id).ok()?;
        let one = stored.recipients.iter().find(|one| one.position == entry.recipient)?;
        let recipient = spool::envelope::decode_recipient(&one.data).ok()?;
        let Some(admission) = self.admission else {
            return Some(resolve::destination(&self.config.route, &recipient.address));
        };
        let sender = spool::envelope::decode_head(entry.id, &stored.head).ok()?.sender;
        way_home(admission, &sender, &recipient.address, name)
    }
}

/// The queue that the maps give a recipient, if it is not the one he is in.
fn way_home(admission: &Admission, sender: &ReversePath, address: &Address, name: &[u8]) -> Option<Vec<u8>> {
    let request = Request { sender, recipient: address, client: None, is_local_submission: false };
    let resolution = Routing::decide_at_once(|ask| admission.router.resolve(ask, &request))?.ok()?;
    let Outcome::Deliver(deliveries) = resolution.outcome else { return None };
    let names: Vec<Vec<u8>> = deliveries.iter().map(|one| one.destination.to_bytes()).collect();
    if names.iter().any(|one| one == name) {
        return None;
    }
    // What became another address is not told apart from a new list; it stays.
    deliveries.iter().zip(names).find(|(one, _)| !one.is_copy && one.address == *address).map(|(_, name)| name)
}

/// Every recipient of a queue that has about `count`. One that moves while it is read may give some of them twice.
fn all_of(spool: &Spool, name: &[u8], count: u64) -> Vec<Entry> {
    let most = usize::try_from(count).unwrap_or(usize::MAX).saturating_mul(2).saturating_add(READY_MAX);
    let mut all: Vec<Entry> = Vec::new();
    loop {
        let page = spool.by_destination(name, all.last().copied(), READY_MAX);
        let is_end = page.len() < READY_MAX;
        all.extend(page);
        if is_end || all.len() > most {
            return all;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lookup::Lookups;
    use crate::simulation::spool_with;
    use mail::{Client, Envelope, MailParams, Node, Protocol, QueueId, Received, Recipient};
    use spool::NewBody;
    use std::sync::Arc;

    /// Hosts of before.
    const OLD: &str = "smtp:[192.0.2.9]";

    /// A rule that gives mail of `s.test` hosts by their names.
    fn rule() -> (Config, Routing) {
        let text = "[[route.rule]]\nsender = '@s.test'\nvia = '[192.0.2.1]'\n";
        let config = crate::config::load(text, None, &[], &crate::config::Machine::default()).unwrap().config;
        let routing = crate::routing::load::load(&config, &Arc::new(Lookups::new(&config)), None).unwrap().routing;
        (config, routing)
    }

    /// A spool with a message for `d.test` in the queue [`OLD`].
    fn spool() -> Arc<Spool> {
        let spool = spool_with(|config| config.state_delay_ms = 0);
        let envelope = Envelope {
            id: QueueId::new(1_800_000_000_000_000, Node::default()).unwrap(),
            sender: "<a@s.test>".parse().unwrap(),
            params: MailParams::default(),
            received: Received { at_us: 1, client: Client::Internal, helo: None, protocol: Protocol::Local },
            recipients: vec![Recipient::new("b@d.test".parse().unwrap())],
        };
        let encoded = spool::envelope::Encoded::new(&envelope);
        let mut recipients = encoded.recipients();
        recipients[0].destination = OLD.as_bytes();
        spool.append(encoded.message(&recipients, NewBody::Whole("x".into()))).unwrap().wait().unwrap();
        spool
    }

    #[test]
    fn what_is_under_way_where_it_belongs_is_not_left_behind() {
        let (config, routing) = rule();
        let spool = spool();
        let moved = |is_active| {
            let moved = rehome(&spool, &config, &routing, &|_, _| is_active).unwrap();
            (moved.to.len(), moved.left)
        };
        assert_eq!(moved(true), (0, 1), "it belongs elsewhere");
        assert_eq!(moved(false), (1, 0));
        assert_eq!(moved(true), (0, 0), "it is where it belongs");
    }
}

//! Mail that waits where the configuration and the maps would not put it any more is given other destinations.

use super::settings::READY_MAX;
use super::{Dispatch, micros};
use crate::config::Config;
use crate::next_hop::smart_hosts;
use crate::routing::{Admission, DomainRoute, Routing};
use bytes::Bytes;
use mail::{Address, QueueId, ReversePath};
use route::destination::{Destination, To};
use route::resolve::{Outcome, Request};
use schedule::{Positions, Scheduler};
use spool::{Change, Commit, Entry, Spool, State, Status, Store as _, StoredRecipient};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::atomic::Ordering;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

/// Recipients that are moved at a time: deliveries wait for that.
pub(super) const MOVES_MAX: usize = 64;

/// How long after it was stored a message may be put in line: its recipients may have been moved meanwhile.
const MOVES_ARE_SEEN: Duration = Duration::from_secs(600);

/// Runs a step while no other thread takes mail from a list, puts some in line or hands it to a connection.
pub(super) type Alone<'a> = &'a dyn Fn(&mut dyn FnMut(&mut Scheduler));

/// Counts of mail that belongs elsewhere.
#[derive(Debug, Default)]
pub(super) struct Moved {
    /// The queues that it was given.
    pub(super) to: BTreeSet<Vec<u8>>,
    /// Recipients that were given one.
    pub(super) count: usize,
    /// Recipients that belong elsewhere and stay, as they are in memory or in progress.
    pub(super) left: usize,
}

impl Dispatch {
    /// Returns whether mail stored before now may have been moved since then: most of the time no mail is moved.
    pub(super) fn moves(&self, now: Duration) -> bool {
        micros(now) < self.moves_until.load(Ordering::Acquire)
    }

    /// Returns the recipients of a stored message that are still in the list `name`.
    pub(super) fn here(&self, message: QueueId, positions: Vec<u32>, name: &[u8]) -> Vec<u32> {
        let states = self.spool.states_of(message, positions.iter().copied());
        let gone = states.iter().filter(|(_, list)| **list != *name).map(|(entry, _)| entry.recipient);
        let gone: BTreeSet<u32> = gone.collect();
        positions.into_iter().filter(|position| !gone.contains(position)).collect()
    }

    /// Moves recipients to other lists, while no other thread takes any from a list or puts some in line.
    pub(super) fn move_alone(&self, step: &mut dyn FnMut(&mut Scheduler)) {
        self.with_scheduler(|scheduler, now| {
            self.moves_until.store(micros(now + MOVES_ARE_SEEN), Ordering::Release);
            step(scheduler);
        });
    }
}

/// Moves mail of queues whose name the configuration no longer gives to the queues where it belongs now.
///
/// Mail for a domain needs no move when mailertable or the smart hosts change. Mail that waits for hosts by their
/// names, or for a domain whose users are here now, is read for its senders and recipients. A copy stays where it is.
///
/// `moved` has the counts also after an error.
///
/// # Errors
/// The spool cannot record it; the mail that was not moved stays where it is.
pub(super) fn rehome(
    spool: &Spool,
    config: &Config,
    routing: &Routing,
    alone: Alone<'_>,
    moved: &Mutex<Moved>,
) -> Result<(), spool::Error> {
    let mover = Mover::new(config, routing);
    let mut lists = spool.destinations();
    lists.retain(|(name, _)| mover.is_old(name));
    // In an order that a second run would take too.
    lists.sort_unstable();
    for (name, count) in &lists {
        for (id, positions) in by_message(&all_of(spool, name, *count)) {
            let homes = mover.homes(spool, name, id, &positions);
            for some in homes.chunks(MOVES_MAX) {
                let mut outcome = Ok(());
                let mut moved = moved.lock().unwrap_or_else(PoisonError::into_inner);
                alone(&mut |scheduler| {
                    outcome = move_some(spool, name, id, some, None, scheduler, &mut moved).map(drop);
                });
                outcome?;
            }
        }
    }
    Ok(())
}

/// Moves some recipients of one message from a queue to where they belong. A recipient that the scheduler has stays:
/// its attempt goes by its present list, and the other list would lead to a second one. With `due_s` those that wait
/// are due then, in seconds since 1970.
pub(super) fn move_some(
    spool: &Spool,
    name: &[u8],
    id: QueueId,
    homes: &[(u32, Vec<u8>)],
    due_s: Option<u32>,
    scheduler: &mut Scheduler,
    moved: &mut Moved,
) -> Result<Option<Commit>, spool::Error> {
    let idle: Vec<&(u32, Vec<u8>)> =
        homes.iter().filter(|(position, _)| !scheduler.is_active(name, id, *position)).collect();
    moved.left += homes.len() - idle.len();
    // The states as they are now: an operator may have held a recipient since the list was read.
    let states = spool.states_of(id, idle.iter().map(|(position, _)| *position));
    // A delivered recipient is not moved any more.
    let is_here = |(entry, at): &&(Entry, Bytes)| **at == *name && entry.state.status != Status::Owed;
    let here: HashMap<u32, State> =
        states.iter().filter(is_here).map(|(entry, _)| (entry.recipient, entry.state)).collect();
    let (mut changes, mut gone) = (Vec::new(), Vec::new());
    for (recipient, home) in idle {
        let Some(state) = here.get(recipient) else { continue };
        gone.push(*recipient);
        let due = due_s.filter(|_| state.status == Status::Waiting).unwrap_or(state.due);
        let state = State { due, ..*state };
        changes.push(Change { id, recipient: *recipient, state, destination: Some(home.clone()) });
        if !moved.to.contains(home) {
            moved.to.insert(home.clone());
        }
    }
    if changes.is_empty() {
        return Ok(None);
    }
    let commit = spool.record(&changes)?;
    moved.count += changes.len();
    gone.sort_unstable();
    scheduler.recipients_moved(name, id, &Positions::from(gone.as_slice()));
    Ok(Some(commit))
}

/// Parts of the configuration that give the queue of mail.
struct Mover<'a> {
    config: &'a Config,
    admission: Option<&'a Admission>,
    routing: &'a Routing,
    /// The queue of the smart hosts.
    smart_hosts: Option<Vec<u8>>,
}

impl<'a> Mover<'a> {
    fn new(config: &'a Config, routing: &'a Routing) -> Self {
        let smart_hosts = (!config.route.smart_host.is_empty()).then(|| smart_hosts::destination_of_all(&config.route));
        Self { config, admission: routing.admission(), routing, smart_hosts }
    }

    /// Returns whether mail in a queue may belong elsewhere.
    fn is_old(&self, name: &[u8]) -> bool {
        let is_smart = self.smart_hosts.as_deref() == Some(name);
        if Destination::parse(name).is_ok_and(|read| read.is_rerouted) {
            return false;
        }
        let Some(admission) = self.admission else { return smart_hosts::is_list(name) && !is_smart };
        let Ok(read) = Destination::parse(name) else { return smart_hosts::is_list(name) && !is_smart };
        match read.to {
            To::Hosts(_) if is_smart => {
                let router = &admission.router;
                !router.maps.smarttable.is_empty() || !router.rules.is_empty() || !router.maps.mailertable.is_empty()
            }
            To::Hosts(_) => !read.is_copy,
            To::Domain(domain) => {
                matches!(Routing::decide_at_once(|ask| self.routing.way_of(ask, &domain)), Some(Ok(DomainRoute::Local)))
            }
            _ => false,
        }
    }

    /// Returns the recipients of a message in a queue that belong elsewhere, and where; none of a message that cannot
    /// be read.
    ///
    /// Reads the message once, and not at all where all mail goes to the same hosts.
    fn homes(&self, spool: &Spool, name: &[u8], id: QueueId, positions: &[u32]) -> Vec<(u32, Vec<u8>)> {
        if self.admission.is_none()
            && let Some(all) = &self.smart_hosts
        {
            return positions.iter().map(|position| (*position, all.clone())).collect();
        }
        let Ok(part) = spool.part(id, positions) else { return Vec::new() };
        let Ok(head) = spool::envelope::decode_head(id, &part.envelope.head) else { return Vec::new() };
        let home = |one: &StoredRecipient| {
            let recipient = spool::envelope::decode_recipient(&one.data).ok()?;
            let home = match self.admission {
                Some(admission) => way_home(admission, &head.sender, &recipient.address, name)?,
                None => smart_hosts::destination(&self.config.route, &recipient.address),
            };
            Some((one.position, home))
        };
        part.envelope.recipients.iter().filter_map(home).collect()
    }
}

/// Returns the queue that the maps give a recipient, if it is not the one he is in.
fn way_home(admission: &Admission, sender: &ReversePath, address: &Address, name: &[u8]) -> Option<Vec<u8>> {
    let request = Request { sender, recipient: address, client: None, is_local_submission: false };
    let resolution = Routing::decide_at_once(|ask| admission.router.resolve(ask, &request))?.ok()?;
    let Outcome::Deliver(deliveries) = resolution.outcome else { return None };
    let names: Vec<Vec<u8>> = deliveries.iter().map(|one| one.destination.to_bytes()).collect();
    if names.iter().any(|one| one == name) {
        return None;
    }
    // A recipient that became another address looks like a new list; it stays.
    deliveries.iter().zip(names).find(|(one, _)| !one.is_copy && one.address == *address).map(|(_, name)| name)
}

/// Returns the positions of each message in a list, ascending and each once.
fn by_message(entries: &[Entry]) -> BTreeMap<QueueId, Vec<u32>> {
    let mut messages: BTreeMap<QueueId, Vec<u32>> = BTreeMap::new();
    for entry in entries {
        messages.entry(entry.id).or_default().push(entry.recipient);
    }
    for positions in messages.values_mut() {
        positions.sort_unstable();
        positions.dedup();
    }
    messages
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
    use crate::simulation::spool_on;
    use mail::{Client, Envelope, MailParams, Node, Protocol, Received, Recipient};
    use spool::NewBody;
    use spool::disk::sim::SimDisk;
    use spool::envelope::Encoded;
    use std::sync::Arc;

    /// Hosts of before.
    const OLD: &str = "smtp:[192.0.2.9]";

    /// Returns a rule that gives mail of `s.test` hosts by their names.
    fn rule() -> (Config, Routing) {
        let text = "[[route.rule]]\nsender = '@s.test'\nvia = '[192.0.2.1]'\n";
        let config = crate::config::load(text, None, &[], &crate::config::Machine::default()).unwrap().config;
        let routing = crate::routing::load::load(&config, &Arc::new(Lookups::new(&config)), None).unwrap().routing;
        (config, routing)
    }

    fn envelope(recipients: u32) -> Envelope {
        Envelope {
            id: QueueId::new(1_800_000_000_000_000, Node::default()).unwrap(),
            sender: "<a@s.test>".parse().unwrap(),
            params: MailParams::default(),
            received: Received { at_us: 1, client: Client::Internal, helo: None, protocol: Protocol::Local },
            recipients: (0..recipients).map(|one| Recipient::new(format!("b{one}@d.test").parse().unwrap())).collect(),
        }
    }

    /// Returns a message for so many at `d.test` in the queue [`OLD`].
    fn store(spool: &Spool, recipients: u32) -> Encoded {
        let encoded = Encoded::to(&envelope(recipients), |_| OLD.as_bytes().to_vec());
        let recipients = encoded.recipients();
        spool.append(encoded.message(&recipients, NewBody::whole("x", 0))).unwrap().wait().unwrap();
        encoded
    }

    /// Returns a spool on this disk with such a message, of which nothing is in memory.
    fn spool(disk: &SimDisk, recipients: u32) -> Arc<Spool> {
        let spool = spool_on(disk, |config| (config.state_delay_ms, config.cache_bytes) = (0, 0));
        store(&spool, recipients);
        spool
    }

    /// Returns a scheduler that has these recipients of [`OLD`] in line.
    fn alone_with(id: QueueId, active: &[u32]) -> impl Fn(&mut dyn FnMut(&mut Scheduler)) + use<> {
        let mut scheduler = Scheduler::new(schedule::Settings::default(), 1);
        let job = schedule::Job { message: id, recipients: Positions::from(active), probe: false };
        if !active.is_empty() {
            scheduler.add(OLD.as_bytes(), job, schedule::Class::Normal, Duration::from_secs(1));
        }
        let scheduler = std::cell::RefCell::new(scheduler);
        move |step| step(&mut scheduler.borrow_mut())
    }

    #[test]
    fn what_is_under_way_where_it_belongs_is_not_left_behind() {
        let (config, routing) = rule();
        let spool = spool(&SimDisk::new(1), 1);
        let id = *spool.messages().first().unwrap();
        let moved = |is_active| {
            let alone = alone_with(id, &if is_active { vec![0] } else { vec![] });
            let moved = Mutex::default();
            rehome(&spool, &config, &routing, &alone, &moved).unwrap();
            let moved: Moved = moved.into_inner().unwrap();
            (moved.to.len(), moved.left)
        };
        assert_eq!(moved(true), (0, 1), "it belongs elsewhere");
        assert_eq!(moved(false), (1, 0));
        assert_eq!(moved(true), (0, 0), "it is where it belongs");
    }

    #[test]
    fn mail_that_an_operator_rerouted_stays() {
        let (config, routing) = rule();
        let mover = Mover::new(&config, &routing);
        assert!(mover.is_old(b"smtp:[192.0.2.9]:25"));
        assert!(!mover.is_old(b"smtp:[192.0.2.9]:25 rerouted"));
    }

    #[test]
    fn a_list_is_read_once_however_many_it_has() {
        const COUNT: u32 = 3_000;
        let (config, routing) = rule();
        let disk = SimDisk::new(1);
        let spool = spool(&disk, COUNT);
        let id = *spool.messages().first().unwrap();
        let held = State { status: Status::Held, ..State::default() };
        let change = Change { id, recipient: 2_000, state: held, destination: None };
        spool.record(&[change]).unwrap().wait().unwrap();
        let before = disk.counters().reads;
        let moved = Mutex::default();
        rehome(&spool, &config, &routing, &alone_with(id, &[7, 1_007, 2_007]), &moved).unwrap();
        let moved: Moved = moved.into_inner().unwrap();
        let reads = disk.counters().reads - before;
        assert!(reads <= 4, "{reads} reads for {COUNT} recipients of one message");
        assert_eq!((moved.to.len(), moved.left), (1, 3));
        let states = spool.states(id);
        let left: Vec<u32> =
            states.iter().filter(|(_, name)| **name == *OLD.as_bytes()).map(|(entry, _)| entry.recipient).collect();
        assert_eq!((states.len(), left), (COUNT as usize, vec![7, 1_007, 2_007]));
        let is_held = |(entry, _): &&(Entry, Bytes)| entry.state.status == Status::Held;
        assert_eq!(states.iter().find(is_held).map(|(entry, _)| entry.recipient), Some(2_000), "it is held there too");
    }

    /// Tests that a message stored before a configuration came into force may go in line behind it.
    #[test]
    fn who_is_moved_before_he_is_in_line_is_in_one_line_only() {
        let (dispatch, spool) = Dispatch::trial(Config::default());
        let encoded = store(&spool, 2);
        let envelope = envelope(2);
        let (id, homes) = (envelope.id, [(1, b"smtp:[192.0.2.1]".to_vec())]);
        let mut moved = Moved::default();
        dispatch.move_alone(&mut |scheduler| {
            drop(move_some(&spool, OLD.as_bytes(), id, &homes, None, scheduler, &mut moved))
        });
        assert_eq!((moved.to.len(), moved.left), (1, 0));
        dispatch.accepted(&envelope, &encoded, schedule::Class::Normal);
        let is_active = |position| dispatch.lock().scheduler.is_active(OLD.as_bytes(), id, position);
        assert!(is_active(0) && !is_active(1));
        // A recipient in line stays.
        let homes = [(0, b"smtp:[192.0.2.1]".to_vec())];
        dispatch.move_alone(&mut |scheduler| {
            drop(move_some(&spool, OLD.as_bytes(), id, &homes, None, scheduler, &mut moved))
        });
        assert_eq!(moved.left, 1);
        assert_eq!(spool.by_destination(OLD.as_bytes(), None, 9).len(), 1);
    }
}

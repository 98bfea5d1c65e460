//! All addresses that a recipient became, as all transactions share them.
//!
//! A resolution of a long list is turned once into this form: small, without texts for people, with its duplicates
//! removed, and with the figures by which a transaction is judged without a look at the members. It does not change
//! any more.
//!
//! Invariants: of two members with the same delivery only the first is there; the order is that of the resolution,
//! deliveries before failures; `kinds` and `counts` agree with the members.

use super::message_properties::MessageProperties;
use mail::Address;
use route::destination::{Destination, To};
use route::resolve::{Acknowledge, CopyDsn, Delivery, Failed};
use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash, Hasher as _};
use tokio::runtime::Handle;

/// Members whose memory is freed where the last use ends.
const FREED_AT_ONCE: usize = 5_000;

/// All addresses that a recipient became.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Members {
    members: Long<Member>,
    /// The destinations of members, each once.
    destinations: Vec<(Destination, Box<[u8]>)>,
    /// The kinds of messages that they go into, in the order in which they are met.
    kinds: Vec<MessageProperties>,
    /// How many members there are of each kind.
    counts: Vec<usize>,
    /// The recipient became one address, and perhaps copies.
    pub(super) is_alone: bool,
    /// The safest time of the `250` that rules demand.
    pub(super) acknowledge: Option<Acknowledge>,
    /// A part of it has no such rule.
    pub(super) has_unruled: bool,
    /// Differs where members differ, as a rule.
    fingerprint: u64,
}

/// Many values. Where their last use ends on a thread of the runtime, another thread frees them.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Long<T: Send + 'static>(Vec<T>);

impl<T: Send + 'static> Default for Long<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<T: Send + 'static> Drop for Long<T> {
    fn drop(&mut self) {
        if self.0.len() > FREED_AT_ONCE
            && let Ok(runtime) = Handle::try_current()
        {
            let values = std::mem::take(&mut self.0);
            // At the end of the runtime they are freed here.
            drop(runtime.spawn_blocking(move || drop(values)));
        }
    }
}

/// An address that gets the mail.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Member {
    address: Address,
    destination: u32,
    kind: u32,
    /// It is a copy.
    copy: Option<CopyDsn>,
}

/// A member, as a message has it.
#[derive(Clone, Copy, Debug)]
pub(super) struct MemberRef<'a> {
    pub(super) address: &'a Address,
    pub(super) destination: &'a Destination,
    /// The name of the destination.
    pub(super) name: &'a [u8],
    pub(super) kind: &'a MessageProperties,
    pub(super) copy: Option<CopyDsn>,
}

/// Values, each with a number.
struct Numbers<T> {
    numbers: HashMap<T, u32>,
    values: Vec<T>,
}

impl<T: Clone + Eq + Hash> Numbers<T> {
    fn new() -> Self {
        Self { numbers: HashMap::new(), values: Vec::new() }
    }

    fn of(&mut self, value: T) -> u32 {
        let next = u32::try_from(self.values.len()).unwrap_or(u32::MAX);
        match self.numbers.get(&value) {
            Some(number) => *number,
            None => {
                self.values.push(value.clone());
                self.numbers.insert(value, next);
                next
            }
        }
    }
}

impl Members {
    /// Collects the members of a resolution. The time is linear in their number.
    pub(crate) fn new(deliveries: Vec<Delivery>, failed: Vec<Failed>) -> Self {
        let is_alone = deliveries.iter().filter(|one| !one.is_copy).count() + failed.len() == 1;
        let mut made = Self { is_alone, has_unruled: !failed.is_empty(), ..Self::default() };
        let (mut destinations, mut kinds) = (Numbers::new(), Numbers::new());
        let mut known: HashSet<(Box<str>, u32)> = HashSet::new();
        let mut add = |made: &mut Self, address: Address, destination: Destination, kind: MessageProperties, copy| {
            let who = destination.who(&address);
            let destination = destinations.of(destination);
            let kind = kinds.of(kind);
            if known.insert((who, destination)) {
                made.members.0.push(Member { address, destination, kind, copy });
            }
        };
        for one in deliveries {
            made.acknowledge = made.acknowledge.into_iter().chain(one.acknowledge).min();
            made.has_unruled |= one.acknowledge.is_none();
            let kind = MessageProperties::of(&one);
            add(&mut made, one.address, one.destination, kind, one.is_copy.then_some(one.copy_dsn));
        }
        for one in failed {
            let kind = MessageProperties::of_failed(&one);
            let (status, text) = (one.refusal.status, one.refusal.text.into());
            add(&mut made, one.address, Destination::new(To::Error { status, text }), kind, one.copy);
        }
        drop(known);
        let named = destinations.values.into_iter().map(|one| {
            let name = one.to_bytes().into();
            (one, name)
        });
        made.destinations = named.collect();
        made.kinds = kinds.values;
        made.counts = vec![0; made.kinds.len()];
        for member in &made.members.0 {
            if let Some(count) = made.counts.get_mut(index(member.kind)) {
                *count += 1;
            }
        }
        made.members.0.shrink_to_fit();
        let mut hasher = DefaultHasher::new();
        (&made.members, &made.destinations, &made.kinds).hash(&mut hasher);
        made.fingerprint = hasher.finish();
        made
    }

    /// Two lists that are the same have the same.
    pub(super) const fn fingerprint(&self) -> u64 {
        self.fingerprint
    }

    /// Returns how many there are.
    pub(crate) fn len(&self) -> usize {
        self.members.0.len()
    }

    /// Returns the kinds of messages that they go into, and how many go into each.
    pub(super) fn kinds(&self) -> impl Iterator<Item = (&MessageProperties, usize)> + Clone {
        self.kinds.iter().zip(self.counts.iter().copied())
    }

    /// Returns whether they are of a list with an owner.
    pub(crate) fn has_owner(&self) -> bool {
        self.kinds().any(|(kind, _)| kind.sender.is_some())
    }

    /// Returns all of them.
    pub(super) fn iter(&self) -> impl Iterator<Item = MemberRef<'_>> {
        self.members.0.iter().filter_map(|member| {
            let (destination, name) = self.destinations.get(index(member.destination))?;
            let kind = self.kinds.get(index(member.kind))?;
            Some(MemberRef { address: &member.address, destination, name, kind, copy: member.copy })
        })
    }

    /// Returns about how many octets of memory they take.
    pub(crate) fn octets(&self) -> usize {
        /// Cost of an allocation besides its octets.
        const ALLOCATION: usize = 16;
        let addresses = self.members.0.iter().map(|member| {
            let address = &member.address;
            let domain = address.domain().name().map_or(0, |name| name.as_str().len() + ALLOCATION);
            size_of::<Member>() + address.local_part().as_str().len() + ALLOCATION + domain
        });
        let destinations = self
            .destinations
            .iter()
            .map(|(_, name)| size_of::<(Destination, Box<[u8]>)>() + 2 * (name.len() + ALLOCATION));
        addresses.sum::<usize>()
            + destinations.sum::<usize>()
            + self.kinds.len() * (size_of::<MessageProperties>() + 100)
    }
}

fn index(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

//! The shares of this node in all limits that the nodes keep together, behind one call of the dispatcher.
//!
//! The dispatcher reports a few times in a second what it does at each next hop with such a limit and gets the amount
//! that it may use until its next report. A limit of which this node has not heard for [`UNUSED_TIME`] is forgotten;
//! its row in the table is empty by then.

use crate::action::{Action, Purpose, Token};
use crate::coordination::CoordinationReply;
use crate::identity::NodeId;
use crate::share::{Share, ShareRequest};
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;

/// Shared limits that a node uses at a time. A next hop beyond them waits until another one is not used any more.
pub const SHARED_LIMITS_MAX: usize = 1_000;
/// Time without a report after which a limit is forgotten; until then a demand that sinks is not told.
const UNUSED_TIME: Duration = Duration::from_secs(10);
/// The prefix of the keys of tables.
pub const LIMIT_PREFIX: &str = "limit/";

/// The use of a next hop with a shared limit by this node, in units of the limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitUse {
    /// The limit for all nodes together.
    pub limit: u32,
    /// The amount that this node could use now.
    pub demand: u32,
    /// The amount that is under way.
    pub in_use: u32,
    /// The amount that may be begun without asking: the last grant.
    pub granted: u32,
    /// Messages since the last report.
    pub messages: u32,
}

/// The permission of a node at a next hop until its next report.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitGrant {
    /// The amount that may be in use.
    pub amount: u32,
    /// Uses that must end now, whatever they do: another node may have the amount soon.
    pub excess: u32,
}

/// A shared limit as operators see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LimitStatus {
    /// Its name.
    pub name: String,
    /// The limit for all nodes together.
    pub limit: u32,
    /// The amount of this node.
    pub amount: u32,
    /// The amount that this node could use.
    pub demand: u32,
}

/// One limit.
#[derive(Debug)]
struct KeptLimit {
    name: String,
    share: Share,
    last: LimitUse,
    reported_at: Duration,
    /// The largest demand of late, and when it was reported.
    peak: (u32, Duration),
}

/// All shares of a node.
#[derive(Debug)]
pub(crate) struct SharedLimits {
    node: NodeId,
    limits: BTreeMap<u64, KeptLimit>,
    numbers: BTreeMap<String, u64>,
    next: u64,
    /// Requests that follow from answers.
    follow: VecDeque<Action>,
    /// No share has anything to do before.
    next_at: Option<Duration>,
    /// Next hops that got no place in `limits`.
    left_out: u64,
    /// This node leaves the cluster, and uses none any more.
    is_closed: bool,
}

impl SharedLimits {
    pub(crate) const fn new(node: NodeId) -> Self {
        Self {
            node,
            limits: BTreeMap::new(),
            numbers: BTreeMap::new(),
            next: 0,
            follow: VecDeque::new(),
            next_at: None,
            left_out: 0,
            is_closed: false,
        }
    }

    /// Takes a report and returns what may be done until the next one. `nodes` belong to the cluster.
    pub(crate) fn report(&mut self, now: Duration, name: &str, nodes: u32, usage: LimitUse) -> LimitGrant {
        if self.is_closed {
            return LimitGrant { amount: 0, excess: usage.in_use };
        }
        let number = match self.numbers.get(name) {
            Some(number) => *number,
            None if self.limits.len() >= SHARED_LIMITS_MAX => {
                self.left_out += 1;
                return LimitGrant { amount: 0, excess: usage.in_use };
            }
            None => self.begin(now, name, nodes, usage),
        };
        let Some(kept) = self.limits.get_mut(&number) else { return LimitGrant::default() };
        if usage.demand >= kept.peak.0 || now >= kept.peak.1 + UNUSED_TIME {
            kept.peak = (usage.demand, now);
        }
        kept.share.set_limit(usage.limit, nodes);
        kept.share.set_demand(now, kept.peak.0);
        kept.share.report(now, usage.in_use, usage.granted, usage.messages);
        (kept.last, kept.reported_at) = (usage, now);
        let grant = LimitGrant { amount: kept.share.amount(now), excess: kept.share.excess(now) };
        // From now on the dispatcher may use it.
        kept.share.report(now, usage.in_use, usage.granted.max(grant.amount), 0);
        let wake_at = kept.share.wake_at();
        self.look_at(wake_at);
        grant
    }

    fn begin(&mut self, now: Duration, name: &str, nodes: u32, usage: LimitUse) -> u64 {
        let number = self.next;
        self.next += 1;
        let share = Share::new(now, format!("{LIMIT_PREFIX}{name}"), self.node, usage.limit, nodes);
        let kept = KeptLimit { name: name.to_owned(), share, last: usage, reported_at: now, peak: (0, now) };
        self.limits.insert(number, kept);
        self.numbers.insert(name.to_owned(), number);
        number
    }

    /// Gives all limits up: none is renewed and none granted. Requests under way may still be carried out.
    pub(crate) fn close(&mut self) {
        self.is_closed = true;
        self.limits.clear();
        self.numbers.clear();
        self.follow.clear();
        self.next_at = None;
    }

    /// Has the shares looked at by this time.
    fn look_at(&mut self, at: Duration) {
        self.next_at = Some(self.next_at.map_or(at, |next| next.min(at)));
    }

    /// Returns the next request.
    pub(crate) fn poll(&mut self, now: Duration) -> Option<Action> {
        if let Some(action) = self.follow.pop_front() {
            return Some(action);
        }
        // A node is polled at each event: most times there is nothing to do here.
        if self.next_at.is_none_or(|at| now < at) {
            return None;
        }
        let mut found = None;
        self.limits.retain(|number, kept| {
            if now >= kept.reported_at + UNUSED_TIME {
                // No connection uses it: the dispatcher has no such next hop any more.
                kept.share.set_demand(now, 0);
                kept.share.report(now, 0, 0, 0);
                if kept.share.is_unused() {
                    self.numbers.remove(&kept.name);
                    return false;
                }
            }
            if found.is_none() {
                found = kept.share.poll(now).map(|request| action(*number, request));
            }
            true
        });
        if found.is_none() {
            self.next_at = self.limits.values().map(|kept| kept.share.wake_at()).min();
        }
        found
    }

    /// The next time at which [`SharedLimits::poll`] has something to do.
    pub(crate) fn wake_at(&self) -> Option<Duration> {
        let follows = (!self.follow.is_empty()).then_some(Duration::ZERO);
        follows.into_iter().chain(self.next_at).min()
    }

    /// Takes an answer for a limit.
    pub(crate) fn answered(&mut self, now: Duration, number: u64, attempt: u64, reply: CoordinationReply) {
        let Some(kept) = self.limits.get_mut(&number) else { return };
        let request = kept.share.answered(now, attempt, reply);
        let wake_at = kept.share.wake_at();
        self.follow.extend(request.map(|request| action(number, request)));
        self.look_at(wake_at);
    }

    /// A table was changed by another node.
    pub(crate) fn hasten(&mut self, now: Duration, key: &str) {
        let number = key.strip_prefix(LIMIT_PREFIX).and_then(|name| self.numbers.get(name));
        if let Some(kept) = number.and_then(|number| self.limits.get_mut(number)) {
            kept.share.hasten(now);
            let wake_at = kept.share.wake_at();
            self.look_at(wake_at);
        }
    }

    /// The limits in use, by name.
    pub(crate) fn status(&self, now: Duration) -> Vec<LimitStatus> {
        let of = |kept: &KeptLimit| LimitStatus {
            name: kept.name.clone(),
            limit: kept.last.limit,
            amount: kept.share.amount(now),
            demand: kept.peak.0,
        };
        let kept = self.numbers.values().filter_map(|number| self.limits.get(number));
        kept.map(of).collect()
    }

    /// Reports so far of next hops that had no place.
    pub(crate) const fn left_out(&self) -> u64 {
        self.left_out
    }
}

fn action(number: u64, request: ShareRequest) -> Action {
    let token = Token { purpose: Purpose::Limit(number), attempt: request.attempt };
    Action::Coordinate { token, request: request.request }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::coordination::{CoordinationRequest, KeyValue};

    const MS: Duration = Duration::from_millis(1);

    /// A store with one key that answers at once.
    #[derive(Default)]
    struct Store(Option<KeyValue>);

    impl Store {
        fn serve(&mut self, now: Duration, limits: &mut SharedLimits) {
            while let Some(Action::Coordinate { token, request }) = limits.poll(now) {
                let reply = match request {
                    CoordinationRequest::Get { .. } => CoordinationReply::Found(self.0.clone()),
                    CoordinationRequest::Put { key, value, expected, .. } => {
                        let revision = self.0.as_ref().map_or(0, |kv| kv.revision);
                        assert_eq!(revision, expected);
                        self.0 = Some(KeyValue { key, value, revision: revision + 1 });
                        CoordinationReply::Written { revision: revision + 1 }
                    }
                    _ => CoordinationReply::Unknown,
                };
                let Purpose::Limit(number) = token.purpose else { panic!("{token:?}") };
                limits.answered(now, number, token.attempt, reply);
            }
        }
    }

    fn usage(demand: u32, granted: u32) -> LimitUse {
        LimitUse { limit: 20, demand, in_use: granted, granted, messages: 0 }
    }

    #[test]
    fn a_node_alone_gets_what_it_wants_at_once_and_loses_it_without_a_store() {
        let (mut limits, mut store) = (SharedLimits::new(NodeId(1)), Store::default());
        assert_eq!(limits.report(MS, "mx.example", 2, usage(7, 0)).amount, 0, "nothing before the store says so");
        store.serve(MS, &mut limits);
        assert_eq!(limits.report(MS * 2, "mx.example", 2, usage(7, 0)).amount, 7);
        store.serve(MS * 2, &mut limits);
        let later = Duration::from_secs(11);
        let grant = limits.report(later, "mx.example", 2, usage(20, 7));
        assert_eq!(grant, LimitGrant { amount: 7, excess: 0 }, "its reserve is 10, of which it had 7");
    }

    #[test]
    fn a_second_node_gets_its_part_after_the_first_has_given_it_up() {
        let (mut a, mut b, mut store) = (SharedLimits::new(NodeId(1)), SharedLimits::new(NodeId(2)), Store::default());
        let (mut has_a, mut has_b) = (0, 0);
        for step in 0..60 {
            let now = Duration::from_millis(200) * step;
            has_a = a.report(now, "x", 2, usage(30, has_a)).amount;
            if step > 10 {
                has_b = b.report(now, "x", 2, usage(30, has_b)).amount;
            }
            store.serve(now, &mut a);
            store.serve(now, &mut b);
            assert!(has_a + has_b <= 20, "{has_a} and {has_b}");
            assert!(step != 10 || has_a == 20, "{has_a}");
        }
        assert_eq!((has_a, has_b), (10, 10));
    }

    #[test]
    fn an_unused_limit_is_given_up_and_forgotten() {
        let (mut limits, mut store) = (SharedLimits::new(NodeId(1)), Store::default());
        for step in 0..30 {
            limits.report(Duration::from_millis(200) * step, "x", 1, usage(u32::from(step < 5) * 5, 0));
            store.serve(Duration::from_millis(200) * step, &mut limits);
        }
        assert_eq!(limits.status(Duration::from_secs(6)).len(), 1);
        for second in 6..40 {
            store.serve(Duration::from_secs(second), &mut limits);
        }
        assert_eq!(limits.wake_at(), None);
        let table = crate::share_table::ShareTable::read(&store.0.unwrap().value).unwrap();
        assert_eq!(table.used(), 0, "{table:?}");
    }

    #[test]
    fn a_node_that_leaves_uses_no_limit_and_renews_none() {
        let (mut limits, mut store) = (SharedLimits::new(NodeId(1)), Store::default());
        limits.report(MS, "x", 1, usage(7, 0));
        store.serve(MS, &mut limits);
        assert_eq!(limits.report(MS * 2, "x", 1, usage(7, 0)).amount, 7);
        limits.close();
        assert_eq!(limits.report(MS * 3, "x", 1, usage(7, 3)), LimitGrant { amount: 0, excess: 3 });
        assert_eq!((limits.wake_at(), limits.poll(Duration::from_secs(60))), (None, None));
    }

    #[test]
    fn beyond_the_bound_a_next_hop_gets_nothing() {
        let mut limits = SharedLimits::new(NodeId(1));
        for number in 0..=SHARED_LIMITS_MAX {
            limits.report(MS, &number.to_string(), 1, usage(1, 0));
        }
        assert_eq!((limits.status(MS).len(), limits.left_out()), (SHARED_LIMITS_MAX, 1));
    }
}

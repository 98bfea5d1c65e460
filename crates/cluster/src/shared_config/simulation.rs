//! Pushers and nodes on one store in virtual time, with every step in any order, lost answers, crashes, new disks and
//! claims that expire.
//!
//! Checked: of two pushes from one state one is activated at most; a push says that it won if and only if it did; a
//! node takes only what was active and fitted there; without force nothing becomes active that a live node has
//! refused; at the end all nodes have the revision that counts.

use super::record::ACTIVE_KEY;
use super::*;
use crate::block::BlockVersions;
use crate::coordination::{CoordinationReply, CoordinationRequest, KeyValue};
use crate::identity::{ClusterId, Incarnation, NodeId};
use crate::membership::NodeEntry;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::time::Duration;

const CLUSTER: ClusterId = ClusterId([1; 16]);
const NODES: u16 = 3;

struct Chance(u64);

impl Chance {
    fn below(&mut self, bound: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % bound
    }
}

#[derive(Default)]
struct Store {
    keys: BTreeMap<String, (Bytes, u64, Option<Duration>)>,
    last: u64,
    /// Every active revision, in order.
    activated: Vec<ActiveRevision>,
    /// A fault: keys are written whatever was expected.
    compares_nothing: bool,
}

impl Store {
    fn carry_out(&mut self, now: Duration, request: &CoordinationRequest) -> CoordinationReply {
        self.keys.retain(|_, (_, _, ends)| ends.is_none_or(|ends| now < ends));
        let revision =
            |keys: &BTreeMap<String, (Bytes, u64, Option<Duration>)>, key: &str| keys.get(key).map_or(0, |one| one.1);
        let lax = self.compares_nothing;
        let fits = |keys: &BTreeMap<String, (Bytes, u64, Option<Duration>)>, key: &str, expected: u64| {
            revision(keys, key) == expected || lax
        };
        match request {
            CoordinationRequest::List { prefix } => {
                let found = self.keys.iter().filter(|(key, _)| key.starts_with(prefix.as_str()));
                let key = |(key, (value, revision, _)): (&String, &(Bytes, u64, Option<Duration>))| KeyValue {
                    key: key.clone(),
                    value: value.clone(),
                    revision: *revision,
                };
                CoordinationReply::Listed(found.map(key).collect())
            }
            CoordinationRequest::Put { key, value, expected, ttl } if fits(&self.keys, key, *expected) => {
                self.last += 1;
                self.keys.insert(key.clone(), (value.clone(), self.last, ttl.map(|ttl| now + ttl)));
                if key == ACTIVE_KEY {
                    self.activated.push(ActiveRevision::parse(value).unwrap());
                }
                CoordinationReply::Written { revision: self.last }
            }
            CoordinationRequest::Delete { key, expected } if revision(&self.keys, key) == *expected => {
                self.keys.remove(key);
                self.last += 1;
                CoordinationReply::Written { revision: self.last }
            }
            _ => CoordinationReply::Conflict,
        }
    }
}

struct SimNode {
    follower: Follower,
    kept: Option<(u64, BundleDigest)>,
    is_up: bool,
    up_since: Duration,
}

struct World {
    chance: Chance,
    now: Duration,
    store: Store,
    nodes: Vec<SimNode>,
    pushes: Vec<(Push, Option<PushEnd>, bool)>,
    late: Vec<CoordinationRequest>,
    /// Nodes at which bundles of odd digests do not fit, from a time on not any more.
    picky: Option<usize>,
    calm: bool,
    /// Active revisions that were judged.
    judged: usize,
}

fn bundle(number: u64) -> BundleName {
    BundleName { digest: BundleDigest([u8::try_from(number % 250).unwrap(); 32]), octets: 600_000 }
}

impl World {
    fn new(seed: u64) -> Self {
        let mut chance = Chance(seed.wrapping_mul(977) + 3);
        let nodes = (1..=NODES).map(|node| SimNode {
            follower: Follower::new(Duration::ZERO, NodeId(node), None),
            kept: None,
            is_up: true,
            up_since: Duration::ZERO,
        });
        let picky = (chance.below(3) == 0).then(|| usize::try_from(chance.below(3)).unwrap());
        Self {
            now: Duration::from_secs(1),
            store: Store::default(),
            nodes: nodes.collect(),
            pushes: Vec::new(),
            late: Vec::new(),
            picky,
            calm: false,
            judged: 0,
            chance,
        }
    }

    /// Carries out a request, loses the request or its answer, or delays its effect.
    fn ask(&mut self, request: &CoordinationRequest) -> CoordinationReply {
        match if self.calm { 9 } else { self.chance.below(24) } {
            0 => CoordinationReply::Unknown,
            1 => {
                self.store.carry_out(self.now, request);
                CoordinationReply::Unknown
            }
            2 => {
                self.late.push(request.clone());
                CoordinationReply::Unknown
            }
            _ => self.store.carry_out(self.now, request),
        }
    }

    fn push(&mut self) {
        let number = u64::try_from(self.pushes.len()).unwrap() + 1;
        let options = PushOptions { force: self.chance.below(5) == 0, dry_run: false };
        let by = NodeId(u16::try_from(self.chance.below(3)).unwrap() + 1);
        let push = Push::new(self.now, (CLUSTER, by), PushId(number), bundle(number), options);
        self.pushes.push((push, None, options.force));
    }

    fn step_push(&mut self, index: usize) {
        let now = self.now;
        if self.pushes[index].1.is_some() {
            return;
        }
        match self.pushes[index].0.next(now) {
            PushAction::Coordinate(request) => {
                let reply = self.ask(&request);
                self.pushes[index].0.answered(now, reply);
            }
            PushAction::Clean(_) | PushAction::Upload(_) => self.pushes[index].0.uploaded(now, Ok(())),
            PushAction::Rest(_) => {}
            PushAction::End(end) => {
                let id = PushId(u64::try_from(index).unwrap() + 1);
                let won = self.store.activated.iter().any(|active| active.push == id);
                match &end {
                    PushEnd::Activated(active) => assert!(won && self.store.activated.contains(active), "{end:?}"),
                    PushEnd::NoAnswer { may_be_active: true } => {}
                    _ => assert!(!won, "push {id:?} won and says {end:?}"),
                }
                self.pushes[index].1 = Some(end);
            }
        }
    }

    fn step_node(&mut self, index: usize) {
        let now = self.now;
        let picky = self.picky == Some(index) && !self.calm;
        if !self.nodes[index].is_up {
            return;
        }
        match self.nodes[index].follower.next(now) {
            FollowAction::Coordinate(request) => {
                let reply = self.ask(&request);
                self.nodes[index].follower.answered(now, reply);
            }
            FollowAction::Examine(bundle) => {
                let result = match self.chance.below(10) {
                    0 if !self.calm => Examined::Unavailable("lost".to_owned()),
                    _ if picky && bundle.digest.0[0] % 2 == 1 => Examined::Refused("odd".to_owned()),
                    _ => Examined::Fits,
                };
                self.nodes[index].follower.examined(now, result);
            }
            FollowAction::Take(active) => {
                let digest = active.bundle.digest;
                assert!(self.store.activated.contains(&active), "taken and never active: {active}");
                assert!(!(picky && digest.0[0] % 2 == 1), "taken where it does not fit");
                self.nodes[index].kept = Some((active.number, digest));
                self.nodes[index].follower.took(now, Ok(()));
            }
            FollowAction::Rest(_) => {}
        }
    }

    fn heartbeat(&mut self) {
        for index in 0..self.nodes.len() {
            if self.nodes[index].is_up {
                let node = NodeId(u16::try_from(index).unwrap() + 1);
                let entry = NodeEntry {
                    cluster: CLUSTER,
                    node,
                    name: format!("mx{}", node.0),
                    incarnation: Incarnation(1),
                    start: 1,
                    reads: BlockVersions { oldest: 1, newest: 1 },
                    writes: 1,
                    is_draining: false,
                    is_departing: false,
                    clock_us: 0,
                };
                let ends = Some(self.now + Duration::from_secs(15));
                self.store.last += 1;
                let value = (Bytes::from(entry.to_string()), self.store.last, ends);
                self.store.keys.insert(NodeEntry::key(node), value);
            }
        }
    }

    fn crash_or_start(&mut self) {
        let index = usize::try_from(self.chance.below(3)).unwrap();
        let node = NodeId(u16::try_from(index).unwrap() + 1);
        let one = &mut self.nodes[index];
        one.is_up = !one.is_up;
        // Memory is lost, the disk at times.
        if one.is_up && self.chance.below(4) == 0 {
            one.kept = None;
        }
        one.follower = Follower::new(self.now, node, one.kept);
        one.up_since = self.now;
    }

    fn step(&mut self) {
        let pushes = u64::try_from(self.pushes.len()).unwrap();
        match self.chance.below(40) {
            0 if !self.calm && self.chance.below(6) == 0 => self.crash_or_start(),
            1 if !self.calm && pushes < 12 && self.pushes.iter().filter(|(_, end, _)| end.is_none()).count() < 2 => {
                self.push()
            }
            // The pusher ends without a word.
            2 if !self.calm && pushes > 0 && self.chance.below(8) == 0 => {
                let index = usize::try_from(self.chance.below(pushes)).unwrap();
                self.pushes[index].1.get_or_insert(PushEnd::NoAnswer { may_be_active: true });
            }
            3..=6 => {
                if let Some(request) = self.late.pop() {
                    self.store.carry_out(self.now, &request);
                }
            }
            7..=20 if pushes > 0 => {
                let index = self.chance.below(pushes);
                self.step_push(usize::try_from(index).unwrap());
            }
            _ => {
                let index = self.chance.below(3);
                self.step_node(usize::try_from(index).unwrap());
            }
        }
        self.check_refusals();
        let pause = if self.chance.below(200) == 0 { 9_000 } else { self.chance.below(120) };
        self.now += Duration::from_millis(pause);
        self.heartbeat();
    }

    /// Nothing is active that a node refuses, unless by force, or unless the node began when it was too late.
    fn check_refusals(&mut self) {
        let Some(active) = self.store.activated.get(self.judged) else { return };
        self.judged += 1;
        let is_forced = self.pushes[usize::try_from(active.push.0).unwrap() - 1].2;
        for (index, node) in self.nodes.iter().enumerate() {
            let settled = node.is_up && self.now.saturating_sub(node.up_since) > Duration::from_secs(30);
            let is_odd = self.picky == Some(index) && active.bundle.digest.0[0] % 2 == 1 && !self.calm;
            assert!(!(settled && is_odd && !is_forced), "active although a node refuses: {active}");
        }
    }

    fn check(&self) {
        let numbers: Vec<u64> = self.store.activated.iter().map(|active| active.number).collect();
        assert!(numbers.is_sorted_by(|one, other| one < other), "numbers rise: {numbers:?}");
        for pair in self.store.activated.windows(2) {
            assert_eq!(pair[1].previous, Some(pair[0].bundle), "each follows the one before");
        }
        let ids: std::collections::BTreeSet<PushId> = self.store.activated.iter().map(|active| active.push).collect();
        assert_eq!(ids.len(), self.store.activated.len(), "a push is activated once");
    }
}

fn run(seed: u64, compares_nothing: bool) -> (usize, usize) {
    let mut world = World::new(seed);
    world.store.compares_nothing = compares_nothing;
    for _ in 0..6_000 {
        world.step();
        world.check();
    }
    world.calm = true;
    for node in world.nodes.iter_mut().filter(|node| !node.is_up) {
        (node.is_up, node.up_since) = (true, world.now);
    }
    for _ in 0..8_000 {
        world.step();
        world.check();
    }
    let last = world.store.activated.last().map(|active| (active.number, active.bundle.digest));
    for node in &world.nodes {
        assert_eq!(node.kept, last, "seed {seed}: a node lacks the revision that counts");
        assert!(node.follower.status().is_current() && node.follower.is_settled());
    }
    let lost = world.pushes.iter().filter(|(_, end, _)| {
        matches!(end, Some(PushEnd::Busy(_) | PushEnd::Overtaken(_) | PushEnd::ClaimLost | PushEnd::NotReady))
    });
    (world.store.activated.len(), lost.count())
}

#[test]
fn any_order_of_two_pushers_and_nodes_that_come_and_go() {
    let seeds: u64 = std::env::var("SIM_COUNT").ok().and_then(|count| count.parse().ok()).unwrap_or(60);
    let (mut activated, mut lost) = (0, 0);
    for seed in 0..seeds {
        let (won, refused) = run(seed, false);
        activated += won;
        lost += refused;
    }
    assert!(activated > 60 && lost > 30, "the simulation must reach both ends: {activated}, {lost}");
}

impl World {
    /// A world in which nothing is lost, with one revision that counts at all nodes.
    fn calm() -> Self {
        let mut world = Self::new(0);
        (world.calm, world.picky) = (true, None);
        world.heartbeat();
        world.push_calmly();
        world.play_to_end(0);
        world
    }

    fn push_calmly(&mut self) {
        let number = u64::try_from(self.pushes.len()).unwrap() + 1;
        let options = PushOptions { force: false, dry_run: false };
        self.pushes.push((
            Push::new(self.now, (CLUSTER, NodeId(1)), PushId(number), bundle(number), options),
            None,
            false,
        ));
    }

    /// Each node and this push take a step.
    fn round(&mut self, push: Option<usize>) {
        if let Some(push) = push {
            self.step_push(push);
        }
        (0..self.nodes.len()).for_each(|node| self.step_node(node));
        self.now += Duration::from_millis(100);
        self.heartbeat();
    }

    fn play_to_end(&mut self, push: usize) -> PushEnd {
        for _ in 0..2_000 {
            self.round(Some(push));
            if let Some(end) = &self.pushes[push].1 {
                return end.clone();
            }
        }
        panic!("push {push} has no end");
    }

    fn has_at_all_nodes(&self, number: u64) -> bool {
        let digest = bundle(number).digest;
        self.nodes.iter().all(|node| node.kept.is_some_and(|(_, kept)| kept == digest))
    }
}

/// A pusher that ends without a word leaves the files before in force everywhere, until its write of the revision. The
/// next push waits for the end of its claim, and succeeds.
#[test]
fn a_pusher_that_crashes_between_any_two_steps_changes_nothing_or_all() {
    let (mut changed_nothing, mut was_busy) = (0, 0);
    for steps in 0.. {
        let mut world = World::calm();
        assert!(world.has_at_all_nodes(1));
        world.push_calmly();
        for _ in 0..steps {
            world.round(Some(1));
        }
        let is_over = world.pushes[1].1.is_some();
        let counts = world.store.activated.last().unwrap().push;
        // The nodes go on without the pusher.
        for _ in 0..150 {
            world.round(None);
        }
        assert_eq!(world.store.activated.last().unwrap().push, counts, "{steps}: no node activates");
        assert!(world.has_at_all_nodes(counts.0), "{steps}: all nodes have what counts");
        changed_nothing += usize::from(counts == PushId(1));
        world.push_calmly();
        let mut end = world.play_to_end(2);
        if let PushEnd::Busy(claim) = &end {
            assert_eq!((claim.push, is_over), (PushId(2), false), "{steps}");
            was_busy += 1;
            for _ in 0..600 {
                world.round(None);
            }
            world.push_calmly();
            end = world.play_to_end(3);
        }
        let last = u64::try_from(world.pushes.len()).unwrap();
        assert!(matches!(&end, PushEnd::Activated(active) if active.push == PushId(last)), "{steps}: {end:?}");
        assert!(world.has_at_all_nodes(last), "{steps}");
        assert_eq!(world.store.activated.last().unwrap().previous, Some(bundle(counts.0)), "{steps}");
        if is_over {
            break;
        }
    }
    assert!(changed_nothing > 5 && was_busy > 5, "crashes before the activation: {changed_nothing}, {was_busy}");
}

/// A node that comes back with a new disk takes the revision that counts, also while another push is under way.
#[test]
fn a_node_with_a_new_disk_takes_what_counts() {
    for has_push in [false, true] {
        let mut world = World::calm();
        let node = &mut world.nodes[2];
        (node.kept, node.follower) = (None, Follower::new(world.now, NodeId(3), None));
        assert!(!world.nodes[2].follower.is_settled(), "it takes no mail before");
        if has_push {
            world.push_calmly();
            assert!(matches!(world.play_to_end(1), PushEnd::Activated(_)));
        }
        for _ in 0..150 {
            world.round(None);
        }
        assert!(world.nodes[2].follower.is_settled() && world.has_at_all_nodes(if has_push { 2 } else { 1 }));
    }
}

/// The negative control: without the comparison two pushes from one state both win.
#[test]
fn a_store_that_does_not_compare_is_noticed() {
    let is_noticed = |seed| std::panic::catch_unwind(|| run(seed, true)).is_err();
    assert!((0..1_000).any(is_noticed));
}

//! Shares of a limit over nodes that lose the store, crash and come back: the sum in use never exceeds the limit.

use crate::chance::Chance;
use crate::simulation::engine::KeyValueStore;
use cluster::{CoordinationReply, NodeId, ROW_WATCH, RowAction, RowRemoval, RowRemovalEnd, Share};
use std::time::Duration;

const TICK_MS: u64 = 50;

struct User {
    share: Option<Share>,
    in_use: u32,
    /// Hands out uses by itself between reports.
    is_driver: bool,
    granted: u32,
    messages: u32,
    /// Nodes of the cluster as this one believes.
    nodes: u32,
    demand: u32,
    /// Answers on their way, with the time in ms at which they come.
    answers: Vec<(u64, u64, CoordinationReply)>,
    is_cut: bool,
    rate_ppm: u64,
    served: u64,
    restart_at: Option<u64>,
}

struct Plan {
    nodes: u16,
    limit: u32,
    seconds: u64,
    has_faults: bool,
    /// Dispatchers report every 4 s instead of every 200 ms.
    is_slow: bool,
    /// An operator removes nodes of this kind, whose rows are watched for this time.
    removals: Option<(RemovedNode, Duration)>,
}

/// The node whose rows an operator removes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum RemovedNode {
    /// It does not run; it may start again at any time.
    Stopped,
    Running,
    /// It runs and does not reach the store.
    CutOff,
}

struct World {
    chance: Chance,
    store: KeyValueStore,
    users: Vec<User>,
    plan: Plan,
    now_ms: u64,
    most: u32,
    removal: Option<RowRemoval>,
    removed: usize,
    /// Removals that ended since the node renews its row.
    renewed: usize,
}

impl World {
    fn new(seed: u64, plan: Plan) -> Self {
        let mut chance = Chance::new(seed);
        let user = |chance: &mut Chance| User {
            share: None,
            in_use: 0,
            is_driver: chance.percent(70),
            granted: 0,
            messages: 0,
            nodes: if plan.has_faults { chance.between(1, u64::from(plan.nodes)) as u32 } else { plan.nodes.into() },
            demand: 30,
            answers: Vec::new(),
            is_cut: false,
            rate_ppm: chance.below(10_000),
            served: 0,
            restart_at: Some(chance.below(2_000)),
        };
        let users = (0..plan.nodes).map(|_| user(&mut chance)).collect();
        Self {
            chance,
            store: KeyValueStore::default(),
            users,
            plan,
            now_ms: 0,
            most: 0,
            removal: None,
            removed: 0,
            renewed: 0,
        }
    }

    fn local(&self, user: usize) -> Duration {
        Duration::from_micros(self.now_ms * (1_000_000 + self.users[user].rate_ppm) / 1_000)
    }

    fn run(&mut self) -> Result<(), String> {
        while self.now_ms < self.plan.seconds * 1_000 {
            self.now_ms += TICK_MS;
            for user in 0..self.users.len() {
                self.tick(user);
            }
            self.operate();
            let sum: u32 = self.users.iter().map(|user| user.in_use).sum();
            self.most = self.most.max(sum);
            if sum > self.plan.limit {
                let uses: Vec<u32> = self.users.iter().map(|user| user.in_use).collect();
                return Err(format!("at {} ms {uses:?} in use, the limit is {}", self.now_ms, self.plan.limit));
            }
        }
        Ok(())
    }

    /// Begins and drives removals, one at a time.
    fn operate(&mut self) {
        let (Some((kind, watch)), now) = (self.plan.removals, Duration::from_millis(self.now_ms)) else { return };
        let at = self.chance.below(self.users.len() as u64) as usize;
        let user = &self.users[at];
        let is_meant = match kind {
            RemovedNode::Stopped => user.share.is_none(),
            RemovedNode::Running => user.share.is_some(),
            RemovedNode::CutOff => user.share.is_some() && user.is_cut,
        };
        if self.removal.is_none() && is_meant && self.chance.percent(5) {
            let tables = vec!["limit/x".to_owned()];
            self.removal = Some(RowRemoval::watching(now, NodeId(at as u16 + 1), tables, watch));
        }
        let Some(mut removal) = self.removal.take() else { return };
        match removal.next(now) {
            RowAction::Coordinate(request) => {
                let reply = self.store.perform(self.now_ms * 1_000, request);
                let is_lost = self.plan.has_faults && self.chance.percent(10);
                removal.answered(now, if is_lost { CoordinationReply::Unknown } else { reply });
            }
            RowAction::Rest(_) => {}
            RowAction::End(RowRemovalEnd::Removed { rows }) => {
                self.removed += rows;
                return;
            }
            RowAction::End(RowRemovalEnd::Renewed { .. }) => {
                self.renewed += 1;
                return;
            }
            RowAction::End(_) => return,
        }
        self.removal = Some(removal);
    }

    fn tick(&mut self, at: usize) {
        let now = self.local(at);
        if self.plan.has_faults {
            if self.chance.below(1_200) == 0 {
                self.users[at].is_cut = !self.users[at].is_cut;
            }
            if self.chance.below(3_000) == 0 {
                let restart = self.now_ms + self.chance.below(40_000);
                let user = &mut self.users[at];
                (user.share, user.in_use, user.granted, user.restart_at) = (None, 0, 0, Some(restart));
                user.answers.clear();
            }
        }
        if self.plan.has_faults && self.chance.below(400) == 0 {
            self.users[at].demand = self.chance.pick(&[0, 1, 5, 30, 30]);
        }
        let limit = self.plan.limit;
        let user = &mut self.users[at];
        if user.restart_at.is_some_and(|restart| self.now_ms >= restart) {
            user.restart_at = None;
            user.share = Some(Share::new(now, "limit/x".into(), NodeId(at as u16 + 1), limit, user.nodes));
        }
        let Some(mut share) = user.share.take() else { return };
        share.set_demand(now, user.demand);
        let mut requests: Vec<_> = share.poll(now).into_iter().collect();
        let (due, later) = std::mem::take(&mut user.answers).into_iter().partition(|(time, _, _)| *time <= self.now_ms);
        user.answers = later;
        for (_, attempt, reply) in due {
            requests.extend(share.answered(now, attempt, reply));
        }
        for request in requests {
            let is_noisy = self.plan.has_faults && self.chance.percent(5);
            if self.users[at].is_cut || is_noisy && self.chance.percent(50) {
                continue;
            }
            let reply = self.store.perform(self.now_ms * 1_000, request.request);
            if is_noisy {
                continue;
            }
            let time =
                self.now_ms + if self.chance.percent(3) { self.chance.below(9_000) } else { self.chance.below(80) };
            self.users[at].answers.push((time, request.attempt, reply));
        }
        self.use_share(at, now, &mut share);
        self.users[at].share = Some(share);
    }

    fn use_share(&mut self, at: usize, now: Duration, share: &mut Share) {
        if self.users[at].is_driver {
            return self.drive(at, now, share);
        }
        let user = &mut self.users[at];
        for _ in 0..share.excess(now) {
            share.release(now, 0);
            user.in_use -= 1;
        }
        if user.in_use > 0 && (self.chance.percent(5) || share.is_giving_back()) {
            share.release(now, self.chance.below(60) as u32);
            user.in_use -= 1;
        }
        while user.in_use < user.demand && share.acquire(now) {
            user.in_use += 1;
            user.served += 1;
        }
    }
}

impl World {
    /// Uses a share as the dispatcher does: it reports every 200 ms and hands out what it was granted in between.
    fn drive(&mut self, at: usize, now: Duration, share: &mut Share) {
        let user = &mut self.users[at];
        if user.in_use > 0 && (self.chance.percent(5) || user.in_use > user.granted) {
            user.in_use -= 1;
            user.messages += self.chance.below(60) as u32;
        }
        if self.now_ms.is_multiple_of(if self.plan.is_slow { 4_000 } else { 200 }) {
            share.report(now, user.in_use, user.granted, std::mem::take(&mut user.messages));
            let excess = share.excess(now);
            user.granted = share.amount(now);
            user.in_use -= excess.min(user.in_use);
            share.report(now, user.in_use, user.granted, 0);
        }
        while user.in_use < user.demand.min(user.granted) {
            user.in_use += 1;
            user.served += 1;
        }
    }
}

#[test]
fn the_sum_never_exceeds_the_limit() {
    let count = std::env::var("SIM_COUNT").ok().and_then(|count| count.parse().ok()).unwrap_or(120);
    for seed in 1..=count {
        let mut chance = Chance::new(seed ^ 0x11);
        let plan = Plan {
            nodes: chance.between(2, 6) as u16,
            limit: chance.pick(&[1, 2, 3, 7, 20, 100]),
            seconds: 240,
            has_faults: true,
            is_slow: false,
            removals: None,
        };
        World::new(seed, plan).run().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
    }
}

#[test]
fn a_grant_that_is_used_for_too_long_is_noticed() {
    let plan = || Plan { nodes: 3, limit: 7, seconds: 240, has_faults: true, is_slow: true, removals: None };
    assert!((1..=100).any(|seed| World::new(seed, plan()).run().is_err()));
}

#[test]
fn the_limit_is_used_when_nodes_want_it() {
    for (nodes, limit) in [(3, 20), (5, 100), (2, 3), (4, 4)] {
        let mut world =
            World::new(7, Plan { nodes, limit, seconds: 60, has_faults: false, is_slow: false, removals: None });
        world.run().unwrap();
        assert!(world.most * 10 >= limit.min(30 * u32::from(nodes)) * 8, "{} of {limit} by {nodes}", world.most);
    }
}

/// Each node runs and reaches the store, and one alone wants some: whatever was before, it gets the whole limit.
#[test]
fn a_node_that_alone_wants_some_gets_the_whole_limit() {
    for seed in 1..=120 {
        let mut chance = Chance::new(seed ^ 0x22);
        let plan = Plan {
            nodes: chance.between(2, 6) as u16,
            limit: chance.pick(&[1, 2, 3, 7, 20]),
            seconds: 120,
            has_faults: chance.percent(50),
            is_slow: false,
            removals: None,
        };
        let mut world = World::new(seed, plan);
        world.run().unwrap();
        let lucky = chance.below(world.users.len() as u64) as usize;
        (world.plan.has_faults, world.plan.seconds) = (false, 180);
        let now_ms = world.now_ms;
        for (at, user) in world.users.iter_mut().enumerate() {
            (user.is_cut, user.demand) = (false, if at == lucky { 30 } else { 0 });
            user.restart_at = user.restart_at.map(|_| now_ms);
        }
        world.run().unwrap();
        let amount = world.users[lucky].share.as_ref().map_or(0, |share| share.amount(world.local(lucky)));
        assert_eq!(amount, world.plan.limit, "seed {seed}: {} nodes", world.users.len());
    }
}

#[test]
fn a_limit_below_the_number_of_nodes_goes_round() {
    for (nodes, limit) in [(3, 2), (5, 1), (6, 2)] {
        let mut world =
            World::new(3, Plan { nodes, limit, seconds: 300, has_faults: false, is_slow: false, removals: None });
        for user in &mut world.users {
            user.demand = 5;
        }
        world.run().unwrap();
        let served: Vec<u64> = world.users.iter().map(|user| user.served).collect();
        assert!(served.iter().all(|served| *served > 0), "{served:?} of {nodes} nodes, limit {limit}");
    }
}

fn with_removals(seed: u64, kind: RemovedNode, watch: Duration, has_faults: bool) -> World {
    let mut chance = Chance::new(seed ^ 0x1ea7e);
    let plan = Plan {
        nodes: chance.between(2, 6) as u16,
        limit: chance.pick(&[2, 3, 7, 20, 100]),
        seconds: 240,
        has_faults,
        is_slow: false,
        removals: Some((kind, watch)),
    };
    World::new(seed, plan)
}

#[test]
fn the_rows_of_stopped_nodes_go_and_the_sum_stays_below_the_limit() {
    let count = std::env::var("SIM_COUNT").ok().and_then(|count| count.parse().ok()).unwrap_or(120);
    let (mut removed, mut renewed) = (0, 0);
    for seed in 1..=count {
        let mut world = with_removals(seed, RemovedNode::Stopped, ROW_WATCH, true);
        world.run().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        removed += world.removed;
        renewed += world.renewed;
    }
    assert!(removed as u64 > count / 2 && renewed > 0, "{removed} rows removed, {renewed} nodes were back");
}

#[test]
fn a_node_that_runs_keeps_its_rows() {
    for seed in 1..=20 {
        let mut world = with_removals(seed, RemovedNode::Running, ROW_WATCH, false);
        world.run().unwrap_or_else(|error| panic!("seed {seed}: {error}"));
        assert_eq!(world.removed, 0, "seed {seed}");
        assert!(world.renewed > 5, "seed {seed}: {} removals were refused", world.renewed);
    }
}

/// The lease of a node that runs is not over.
#[test]
fn a_removal_that_does_not_wait_is_noticed() {
    let is_noticed = |seed| with_removals(seed, RemovedNode::Running, Duration::ZERO, false).run().is_err();
    assert!((1..=100).any(is_noticed));
}

/// No wait helps: it uses its reserve until it is stopped. So only an operator may say that a node is.
#[test]
fn the_removal_of_a_node_that_runs_cut_off_is_noticed() {
    let is_noticed = |seed| with_removals(seed, RemovedNode::CutOff, ROW_WATCH, true).run().is_err();
    assert!((1..=200).any(is_noticed));
}

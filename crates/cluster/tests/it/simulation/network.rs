//! The network of a run: requests of nodes on their way to the engines and the key-value store, and the answers.

use super::event::Event;
use super::world::{MILLI, SECOND, World};
use cluster::{CoordinationRequest, LogReply, LogRequest, Token};

impl World {
    pub(super) fn is_cut(&self, from: usize, to: usize) -> bool {
        from != to && self.cut.contains(&(from, to))
    }

    pub(super) fn travel(&mut self, from: usize, to: usize) -> u64 {
        let usual = if from == to { self.chance.between(50, 300) } else { self.chance.between(200, 3 * MILLI) };
        let is_late = self.is_noisy && self.chance.percent(self.plan.noise / 2);
        if is_late { usual + self.chance.between(SECOND, 9 * SECOND) } else { usual }
    }

    pub(super) fn is_lost(&mut self, from: usize, to: usize) -> bool {
        self.is_cut(from, to) || self.is_noisy && from != to && self.chance.percent(self.plan.noise)
    }

    /// An engine by which a machine reaches the key-value store now.
    pub(super) fn store_engine(&self, node: usize) -> Option<usize> {
        if self.without_store.contains(&node) {
            return None;
        }
        let count = self.plan.nodes;
        // Two machines have a third server elsewhere as a voter.
        let voters = count.max(3);
        let sees = |a: usize, b: usize| !self.is_cut(a, b) && !self.is_cut(b, a);
        (0..count).map(|step| (node + step) % count).find(|engine| {
            let up = (0..count).filter(|other| self.engines[*other].is_up && sees(*engine, *other)).count();
            let outside = voters - count;
            self.engines[*engine].is_up && !self.is_cut(node, *engine) && (up + outside) * 2 > voters
        })
    }

    pub(super) fn at_engine(&mut self, from: usize, life: u32, engine: usize, token: Token, request: LogRequest) {
        if !self.engines[engine].is_up || self.is_cut(from, engine) {
            return;
        }
        if self.engines[engine].is_slow {
            // Slow from the inside: the request waits, and may find another state than when it arrived.
            if self.chance.percent(60) {
                let at = self.now + self.chance.between(100 * MILLI, 2 * SECOND);
                self.push(at, Event::AtEngine { from, life, engine, token, request });
                return;
            }
        }
        let (stream, lane) = (request.stream, request.lane);
        let reply = self.engines[engine].perform(stream, lane, request.operation);
        if let LogReply::Appended { sequence } = reply {
            self.check_chain(engine, stream, lane, sequence);
            self.note_copies(engine, stream, lane, sequence);
        }
        if self.is_lost(engine, from) {
            return;
        }
        let at = self.now + self.chance.between(300, 4 * MILLI) + self.travel(engine, from);
        self.push(at, Event::LogAnswer { node: from, life, engine, token, reply });
    }

    pub(super) fn at_store(
        &mut self,
        from: usize,
        life: u32,
        engine: usize,
        token: Token,
        request: CoordinationRequest,
    ) {
        let is_reached = self.store_engine(from).is_some() && self.engines[engine].is_up && !self.is_cut(from, engine);
        if !is_reached {
            return;
        }
        let now = self.now;
        let key = match &request {
            CoordinationRequest::Put { key, .. } | CoordinationRequest::Delete { key, .. } => Some(key.clone()),
            _ => None,
        };
        let reply = self.store.perform(now, request);
        if let Some(key) = key.filter(|_| self.plan.has_watch) {
            self.tell_watches(&key);
        }
        if self.is_lost(engine, from) {
            return;
        }
        let at = self.now + self.chance.between(MILLI, 8 * MILLI) + self.travel(engine, from);
        self.push(at, Event::StoreAnswer { node: from, life, engine, token, reply });
    }

    /// Some nodes learn of a key, also of one that did not change.
    pub(super) fn tell_watches(&mut self, key: &str) {
        for node in 0..self.plan.nodes {
            if self.chance.percent(60) {
                let (at, life) = (self.now + self.chance.between(MILLI, SECOND), self.machines[node].life);
                self.push(at, Event::Changed { node, life, key: key.to_owned() });
            }
        }
    }
}

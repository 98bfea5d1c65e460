//! The mail process of a machine: its start and its ends, and the actions of its node.

use super::clients::body_of;
use super::event::Event;
use super::local_log::{LocalLog, State};
use super::world::{CLUSTER, IN_FLIGHT_MAX, MILLI, SECOND, World};
use cluster::{
    Accepted, Action, Content, Incarnation, NewMessage, Node, NodeId, Report, Settings, StoredBody, StreamId,
};
use mail::QueueId;
use std::time::Duration;

impl World {
    pub(super) fn settings(&self, node: usize) -> Settings {
        let machine = &self.machines[node];
        let id = NodeId(node as u16 + 1);
        let mut settings = Settings::new(CLUSTER, id, Incarnation(machine.incarnation), machine.start);
        settings.copies = self.plan.copies;
        settings.done_unstored_max = 8;
        settings.inline_body_max = 2_000;
        settings.piece_octets = 900;
        settings.compaction_octets_min = self.plan.compaction_octets_min;
        settings.scan_octets = 2_000;
        settings.part_messages_max = 5;
        settings.compressed_octets_min = 200;
        settings.block_versions.newest = if machine.life == 0 { self.plan.newest.0 } else { self.plan.newest.1 };
        settings.sabotage = self.plan.sabotage;
        settings
    }

    /// Starts the mail process of a machine.
    pub(super) fn start(&mut self, node: usize) {
        if self.machines[node].node.is_some() {
            return;
        }
        self.machines[node].start += 1;
        let settings = self.settings(node);
        let now = self.local(node);
        let streams: Vec<StreamId> = self.streams.iter().copied().collect();
        let machine = &mut self.machines[node];
        machine.life += 1;
        machine.wake = None;
        (machine.is_draining, machine.exits_at_release, machine.is_restarting) = (false, false, false);
        machine.drain_at = None;
        let local = machine.log.live();
        let life = machine.life;
        machine.node = Some(Node::new(now, settings, format!("mx{node}"), &streams, local));
        let at = self.now;
        self.push(at + 50 * MILLI, Event::Tick { node, life });
        self.log(|| format!("mx{node} starts, life {life}"));
        self.poll(node);
    }

    /// Ends the mail process of a machine as `kill -9` does; the disk keeps what was synced.
    pub(super) fn crash(&mut self, node: usize) {
        let machine = &mut self.machines[node];
        if machine.node.take().is_none() {
            return;
        }
        machine.life += 1;
        machine.paused_until = 0;
        let in_flight = std::mem::take(&mut machine.in_flight);
        let past_dot: Vec<_> = in_flight.into_iter().filter(|(_, is_taken)| *is_taken).map(|(key, _)| key).collect();
        let lost = machine.log.crash();
        self.history.may_repeat += past_dot.len() + lost.len();
        let (past_dot, lost) = (self.note_lost(node, past_dot), self.note_lost(node, lost));
        self.log(|| format!("mx{node} crashes; {past_dot} past the dot, {lost} results lost"));
    }

    fn note_lost(&mut self, node: usize, results: Vec<(QueueId, u32)>) -> usize {
        let count = results.len();
        self.history.lost_results.extend(results.into_iter().map(|(id, recipient)| (node, id, recipient)));
        count
    }

    /// Puts a new disk into a machine whose process does not run.
    pub(super) fn replace_disk(&mut self, node: usize) {
        let machine = &mut self.machines[node];
        for (id, entry) in &machine.log.entries {
            if entry.state == State::Live {
                self.history.on_lost_disk.insert(*id);
            }
        }
        machine.log = LocalLog::default();
        machine.incarnation = self.chance.next();
        machine.start = 0;
        self.log(|| format!("mx{node} gets a new disk"));
    }

    /// Calls the node of a machine, and carries out what it wants.
    pub(super) fn with(&mut self, node: usize, call: impl FnOnce(&mut Node, Duration, u64)) {
        let (now, wall) = (self.local(node), self.wall_us(node));
        if let Some(machine) = &mut self.machines[node].node {
            call(machine, now, wall);
            self.poll(node);
        }
    }

    pub(super) fn poll(&mut self, node: usize) {
        let (now, wall) = (self.local(node), self.wall_us(node));
        let mut actions = 0;
        while let Some(action) = self.machines[node].node.as_mut().and_then(|machine| machine.poll(now, wall)) {
            self.act(node, action);
            actions += 1;
            if actions > 100_000 {
                self.history.violate(format!("mx{node} does not stop to ask"));
                return;
            }
        }
        let machine = &mut self.machines[node];
        let Some(wake) = machine.node.as_ref().and_then(Node::wake_at) else { return };
        let wait = wake.saturating_sub(now).as_micros() as u64;
        let at = self.now + (wait + wait / 100).max(MILLI);
        if machine.wake.is_none_or(|wake| at < wake) {
            machine.wake = Some(at);
            let life = machine.life;
            self.push(at, Event::Wake { node, life, at });
        }
    }

    fn act(&mut self, node: usize, action: Action) {
        if self.is_logged {
            let text = format!("{action:?}");
            *self.asked.entry(format!("mx{node} {}", text.chars().take(90).collect::<String>())).or_default() += 1;
        }
        self.detail(node, &action);
        let life = self.machines[node].life;
        match action {
            Action::Log { token, request } => {
                let engine = usize::from(request.stream.holder.0) - 1;
                self.streams.insert(request.stream);
                if !self.is_lost(node, engine) {
                    let at = self.now + self.travel(node, engine);
                    self.push(at, Event::AtEngine { from: node, life, engine, token, request });
                }
            }
            Action::Coordinate { token, request } => {
                let Some(engine) = self.store_engine(node) else { return };
                if !self.is_lost(node, engine) {
                    let at = self.now + self.travel(node, engine);
                    self.push(at, Event::AtStore { from: node, life, engine, token, request });
                }
            }
            Action::Answer { id, answer } => self.answer(node, id, answer),
            Action::Read { id } => {
                let at = self.now + self.chance.between(100, 5 * MILLI);
                self.push(at, Event::Read { node, life, id });
            }
            Action::Store(accepted) => self.store_adopted(node, life, *accepted),
            Action::Complete(list) => {
                for one in list {
                    self.machines[node].log.finish(one.id, one.recipient);
                }
            }
            Action::Forget { stream, messages } => {
                for (id, hops) in messages {
                    self.machines[node].log.forget(id, hops);
                }
                let at = self.now + self.chance.between(100, 30 * MILLI);
                self.push(at, Event::Forgotten { node, life, stream });
            }
            Action::Report(report) => {
                self.log(|| format!("mx{node} {report:?}"));
                self.history.report(&report);
                if let Report::PossibleDuplicate { id }
                | Report::AdoptionUnknown { id }
                | Report::ResultUnknown { id } = report
                {
                    self.machines[node].log.flag(id);
                }
                if let Report::GivenUp { .. } = report {
                    self.history.given_up.insert((node, life));
                }
                if let Report::AdoptionUnknown { id } = report {
                    self.history.unknown.insert(id);
                }
                if let Report::AdoptionBegan { .. } = report {
                    // The owner's results that the stream does not have, and its transactions.
                    self.history.may_repeat += self.settings(node).done_unstored_max + 3 * IN_FLIGHT_MAX;
                }
            }
        }
    }

    fn store_adopted(&mut self, node: usize, life: u32, accepted: Accepted) {
        let (id, hops) = (accepted.id, accepted.hops);
        let StoredBody::Whole(body) = accepted.body else { return self.history.violate("a body in pieces".into()) };
        if body != body_of(id) {
            self.history.violate(format!("{id} was adopted with other octets"));
        }
        if !self.machines[node].log.wants(id, hops) {
            let (now, _) = (self.local(node), ());
            if let Some(machine) = &mut self.machines[node].node {
                machine.store_refused(now, id);
            }
            return;
        }
        let new = NewMessage {
            id,
            queued_at_us: accepted.queued_at_us,
            expires_at_us: accepted.expires_at_us,
            recipients: accepted.recipients,
            envelope: accepted.envelope,
            content: Content::Whole(body),
        };
        self.machines[node].log.add(&new, hops, accepted.finished.into_iter().collect(), accepted.may_be_duplicate);
        let at = self.now + self.chance.between(500, 20 * MILLI);
        self.push(at, Event::Synced { node, life, id });
    }

    pub(super) fn tick(&mut self, node: usize, life: u32) {
        self.machines[node].log.results_synced();
        if self.chance.percent(4)
            && self.store_engine(node).is_some()
            && let Some(machine) = &mut self.machines[node].node
        {
            let streams: Vec<StreamId> = self.streams.iter().copied().collect();
            machine.known_streams(&streams);
        }
        self.start_deliveries(node, life);
        let machine = &self.machines[node];
        if !machine.is_draining && machine.drain_at.is_some_and(|at| self.now >= at) {
            self.drain(node);
        }
        self.drain_on(node);
        let machine = &self.machines[node];
        let is_busy = machine.log.live_count() > 0 || machine.is_draining || machine.drain_at.is_some();
        let wait = if is_busy { self.chance.between(20 * MILLI, 100 * MILLI) } else { 500 * MILLI };
        self.push(self.now + wait, Event::Tick { node, life });
    }

    /// Begins a planned exit.
    pub(super) fn drain(&mut self, node: usize) {
        self.machines[node].is_draining = true;
        self.with(node, |machine, now, _| machine.drain(now));
    }

    /// Begins a departure for good.
    pub(super) fn depart(&mut self, node: usize) {
        if self.machines[node].node.is_some() {
            self.machines[node].drain_at = Some(self.now + 2 * SECOND);
            self.with(node, |machine, now, _| machine.announce_departure(now));
        }
    }

    pub(super) fn drain_on(&mut self, node: usize) {
        let machine = &mut self.machines[node];
        if !machine.is_draining || !machine.in_flight.is_empty() {
            return;
        }
        let Some(process) = &mut machine.node else { return };
        let (is_out, is_empty) = match machine.drain_at {
            Some(at) => {
                if process.adoptions() == 0 {
                    process.close_limits();
                    process.release();
                }
                let is_empty = process.copies_held().is_empty();
                (process.is_handed_over() && (is_empty || self.now > at + 40 * SECOND), is_empty)
            }
            None => {
                process.release();
                (process.is_released(), false)
            }
        };
        let is_departing = machine.drain_at.is_some();
        let has_entry = process.is_member();
        if is_out && !machine.exits_at_release {
            machine.exits_at_release = true;
            self.with(node, |machine, now, _| match is_departing {
                true => machine.depart(now, is_empty),
                false => machine.leave(now),
            });
        } else if is_departing && self.machines[node].exits_at_release && has_entry {
            self.poll(node);
        } else if self.machines[node].exits_at_release && !self.machines[node].is_restarting {
            // One tick later: the entry is gone, or will expire.
            self.machines[node].is_restarting = true;
        } else if self.machines[node].is_restarting {
            self.log(|| format!("mx{node} exits as planned"));
            self.machines[node].log.results_synced();
            let machine = &mut self.machines[node];
            machine.node = None;
            machine.life += 1;
            drop(machine.log.crash());
        } else {
            self.poll(node);
        }
    }
}

//! Deliveries of a run: each asks the owner when it starts and again before its final dot. Ends by hand ask it too.

use super::event::Event;
use super::local_log::State;
use super::world::{IN_FLIGHT_MAX, MILLI, SECOND, World};
use cluster::Outcome;
use mail::QueueId;

impl World {
    pub(super) fn start_deliveries(&mut self, node: usize, life: u32) {
        let now = self.local(node);
        let mut wanted = Vec::new();
        let machine = &self.machines[node];
        let Some(process) = &machine.node else { return };
        for (id, entry) in machine.log.entries.iter().filter(|(_, entry)| entry.state == State::Live) {
            if self.now < self.history.due(*id) {
                continue;
            }
            for recipient in (0..entry.recipients).filter(|recipient| !entry.finished.contains(recipient)) {
                let key = (*id, recipient);
                let is_waiting = machine.retry_at.get(&key).is_some_and(|at| self.now < *at);
                if !machine.in_flight.contains_key(&key) && !is_waiting && process.may_start_delivery(now, *id) {
                    wanted.push(key);
                }
            }
        }
        for (id, recipient) in wanted {
            if self.machines[node].in_flight.len() >= IN_FLIGHT_MAX {
                break;
            }
            self.check_sole(node, id, "starts");
            self.machines[node].in_flight.insert((id, recipient), false);
            let wait = if self.chance.percent(10) { self.chance.below(20 * SECOND) } else { self.chance.below(SECOND) };
            let at = self.now + 2 * MILLI + wait;
            self.push(at, Event::Dot { node, life, id, recipient });
        }
    }

    /// No other node may be able to deliver the message now.
    fn check_sole(&mut self, node: usize, id: QueueId, what: &str) {
        if self.history.unknown.contains(&id) {
            return;
        }
        for other in (0..self.plan.nodes).filter(|other| *other != node) {
            let now = self.local(other);
            let can = self.machines[other].node.as_ref().is_some_and(|other| other.may_send_final_dot(now, id));
            if can {
                self.history.violate(format!("mx{node} {what} {id}, and mx{other} may deliver it too"));
            }
        }
    }

    pub(super) fn dot(&mut self, node: usize, id: QueueId, recipient: u32) {
        let now = self.local(node);
        let machine = &mut self.machines[node];
        let is_live = machine.log.entries.get(&id).is_some_and(|entry| entry.state == State::Live);
        let may = is_live && machine.node.as_ref().is_some_and(|process| process.may_send_final_dot(now, id));
        if !may {
            machine.in_flight.remove(&(id, recipient));
            return;
        }
        self.check_sole(node, id, "ends");
        let is_delivered = self.chance.percent(85);
        if is_delivered {
            let machine = &mut self.machines[node];
            machine.in_flight.insert((id, recipient), true);
            let is_flagged = machine.log.entries.get(&id).is_some_and(|entry| entry.may_be_duplicate);
            let life = machine.life;
            self.log(|| format!("mx{node} delivers {id}/{recipient}"));
            self.history.delivered(node, life, id, recipient, is_flagged);
        }
        let at = self.now + self.chance.between(MILLI, 300 * MILLI);
        let life = self.machines[node].life;
        self.push(at, Event::Taken { node, life, id, recipient, is_delivered });
    }

    /// An operator ends a recipient, if this node says that it owns the message.
    fn end_by_hand(&mut self, node: usize, id: QueueId, recipient: u32) -> bool {
        let now = self.local(node);
        let machine = &self.machines[node];
        let entry = machine.log.entries.get(&id).filter(|entry| entry.state == State::Live);
        let may = machine.node.as_ref().is_some_and(|process| process.doubt_about_end(now, id).is_none());
        let Some(is_flagged) = entry.filter(|_| may).map(|entry| entry.may_be_duplicate) else { return false };
        self.check_sole(node, id, "ends by hand");
        self.log(|| format!("mx{node} ends {id}/{recipient} by hand"));
        let life = self.machines[node].life;
        self.history.delivered(node, life, id, recipient, is_flagged);
        self.machines[node].log.finish(id, Some(recipient));
        self.with(node, |machine, now, _| machine.completed(now, id, Some(recipient), Outcome::Withdrawn));
        true
    }

    pub(super) fn taken(&mut self, node: usize, id: QueueId, recipient: u32, is_delivered: bool) {
        let retry = self.now + self.chance.below(20 * SECOND);
        let machine = &mut self.machines[node];
        machine.in_flight.remove(&(id, recipient));
        if !is_delivered {
            machine.retry_at.insert((id, recipient), retry);
            if self.plan.has_ends_by_hand && self.end_by_hand(node, id, recipient) {
                return;
            }
            // An operator holds or releases some of the mail that waits.
            let (kind, now) = (id.to_u64() >> 7, self.now);
            if kind.is_multiple_of(3) {
                self.with(node, |machine, time, _| machine.changed(time, id, (now / MILLI).is_multiple_of(2)));
            }
            return;
        }
        machine.log.finish(id, Some(recipient));
        self.with(node, |machine, now, _| machine.completed(now, id, Some(recipient), Outcome::Delivered));
    }
}

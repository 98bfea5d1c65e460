//! Clients of a run: messages that come whole or in pieces, and the answers to them.

use super::event::Event;
use super::world::{EPOCH_US, MILLI, SECOND, World};
use bytes::Bytes;
use cluster::{AcceptAnswer, Content, NewMessage};
use mail::QueueId;
use std::collections::BTreeSet;

impl World {
    pub(super) fn submit(&mut self, node: usize) {
        if self.now < self.machines[node].paused_until {
            // The connection waits.
            let at = self.machines[node].paused_until;
            return self.push(at, Event::Submit { node });
        }
        if self.machines[node].node.is_none() {
            return;
        }
        self.submitted += 1;
        let id = QueueId::new(EPOCH_US + self.submitted, mail::Node::new(1).unwrap()).unwrap();
        let recipients = self.chance.between(1, 3) as u32;
        let delay = match self.chance.below(10) {
            0..6 => 0,
            6..8 => self.chance.below(30 * SECOND),
            _ => self.chance.below(200 * SECOND),
        };
        self.history.submitted(id, recipients, self.now + delay);
        if body_of(id).len() > 2_000 && self.chance.percent(50) {
            self.piece(node, id, recipients, 0);
        } else {
            self.accept(node, id, recipients, Content::Whole(body_of(id)));
        }
    }

    /// Passes a piece of a body on while the body arrives, and the message after the last one.
    pub(super) fn piece(&mut self, node: usize, id: QueueId, recipients: u32, from: usize) {
        let body = body_of(id);
        let until = body.len().min(from + 700);
        let octets = body.slice(from..until);
        self.with(node, |machine, now, _| machine.stream_body(now, id, &octets));
        if until == body.len() {
            return self.accept(node, id, recipients, Content::Streamed);
        }
        if !self.plan.has_slow_clients {
            return self.piece(node, id, recipients, until);
        }
        let wait = if self.chance.percent(20) { self.chance.below(3 * SECOND) } else { self.chance.below(5 * MILLI) };
        let (at, life) = (self.now + wait, self.machines[node].life);
        self.push(at, Event::Piece { node, life, id, recipients, from: until });
    }

    pub(super) fn accept(&mut self, node: usize, id: QueueId, recipients: u32, content: Content) {
        let mut new = NewMessage {
            id,
            queued_at_us: self.now,
            expires_at_us: 0,
            recipients,
            envelope: Bytes::from(format!("envelope of {id}")),
            content: Content::Whole(body_of(id)),
        };
        self.machines[node].log.add(&new, 0, BTreeSet::new(), false);
        let life = self.machines[node].life;
        let at = self.now + self.chance.between(500, 20 * MILLI);
        self.push(at, Event::Synced { node, life, id });
        let policy = self.plan.policy;
        new.content = content;
        self.with(node, |machine, now, _| machine.accept(now, new, policy));
    }

    pub(super) fn answer(&mut self, node: usize, id: QueueId, answer: AcceptAnswer) {
        self.log(|| format!("mx{node} answers {id}: {answer:?}"));
        match answer {
            AcceptAnswer::TempFail => self.machines[node].log.finish(id, None),
            AcceptAnswer::Replicated => self.history.acknowledged(id, true),
            AcceptAnswer::LocalOnly => self.history.acknowledged(id, false),
        }
    }
}

/// The content of a message, which follows from its id. Some are larger than a record takes.
pub(super) fn body_of(id: QueueId) -> Bytes {
    let length = match id.unix_us() % 10 {
        0 => 4_000,
        1 => 1_900,
        _ => 150,
    };
    let text = id.to_string();
    Bytes::from(text.bytes().cycle().take(length).collect::<Vec<u8>>())
}

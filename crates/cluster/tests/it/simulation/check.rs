//! The history of a run as clients and sink see it, and what it must fulfil.

use cluster::{Report, StreamId};
use mail::QueueId;
use std::collections::{BTreeMap, BTreeSet};

#[derive(Debug)]
struct Submitted {
    recipients: u32,
    due: u64,
    /// The client has its 250.
    is_acknowledged: bool,
    is_replicated: bool,
}

/// A delivery that the sink took.
#[derive(Clone, Copy, Debug)]
struct Delivery {
    node: usize,
    life: u32,
}

#[derive(Debug, Default)]
pub(super) struct History {
    submitted: BTreeMap<QueueId, Submitted>,
    deliveries: BTreeMap<(QueueId, u32), Vec<Delivery>>,
    /// Messages that were on a disk that was replaced.
    pub(super) on_lost_disk: BTreeSet<QueueId>,
    /// Of them those without a copy.
    pub(super) excused: BTreeSet<QueueId>,
    /// Messages whose owner returned after the list of adopted mail was lost with the holder's disk.
    pub(super) unknown: BTreeSet<QueueId>,
    /// Nodes with the life in which they learned that mail of theirs was adopted.
    pub(super) given_up: BTreeSet<(usize, u32)>,
    /// Recipients whose end some stream has stored.
    pub(super) done: BTreeSet<(QueueId, u32)>,
    /// The streams that have stored a record of a message, each with the stream of the other copy that it names.
    pub(super) copied: BTreeMap<QueueId, BTreeSet<(StreamId, Option<StreamId>)>>,
    /// Deliveries whose result a crash of the node lost: past the dot, or not yet synced.
    pub(super) lost_results: BTreeSet<(usize, QueueId, u32)>,
    /// Deliveries that may be repeated: past the dot at a crash, or not yet recorded.
    pub(super) may_repeat: usize,
    pub(super) violation: Option<String>,
    /// Orders to adopt by hand that nodes have taken.
    pub(super) orders: usize,
    pub(super) adopted: usize,
    pub(super) adoptions: usize,
    pub(super) handed_back: usize,
    pub(super) taken_back: usize,
    pub(super) duplicates: usize,
}

impl History {
    pub(super) fn violate(&mut self, text: String) {
        self.violation.get_or_insert(text);
    }

    pub(super) fn submitted(&mut self, id: QueueId, recipients: u32, due: u64) {
        let new = Submitted { recipients, due, is_acknowledged: false, is_replicated: false };
        self.submitted.insert(id, new);
    }

    pub(super) fn due(&self, id: QueueId) -> u64 {
        self.submitted.get(&id).map_or(0, |message| message.due)
    }

    pub(super) fn acknowledged(&mut self, id: QueueId, is_replicated: bool) {
        if is_replicated && !self.is_copied(id) {
            self.violate(format!("{id} was acknowledged with copies, and no engine has stored one that counts"));
        }
        match self.submitted.get_mut(&id) {
            Some(message) => (message.is_acknowledged, message.is_replicated) = (true, is_replicated),
            None => self.violate(format!("{id} was acknowledged and never submitted")),
        }
    }

    /// True if a record that names no other copy is stored, or all copies that a record names.
    fn is_copied(&self, id: QueueId) -> bool {
        let stored = |stream| self.copied.get(&id).is_some_and(|all| all.iter().any(|(one, _)| *one == stream));
        self.copied.get(&id).is_some_and(|all| all.iter().any(|(_, twin)| twin.is_none_or(stored)))
    }

    pub(super) fn delivered(&mut self, node: usize, life: u32, id: QueueId, recipient: u32, is_flagged: bool) {
        let Some(message) = self.submitted.get(&id) else {
            return self.violate(format!("{id} was delivered and never submitted"));
        };
        if recipient >= message.recipients {
            return self.violate(format!("{id} has no recipient {recipient}"));
        }
        let list = self.deliveries.entry((id, recipient)).or_default();
        if let Some(earlier) = list.last().copied() {
            self.duplicates += usize::from(!self.unknown.contains(&id));
            // A restart of the same node repeats what its local log did not have yet. If a stream had the result, and
            // was adopted meanwhile, that must be reported.
            let is_lost = self.lost_results.contains(&(node, id, recipient));
            let was_known = self.given_up.contains(&(node, life)) && self.done.contains(&(id, recipient));
            let is_restart = earlier.node == node && earlier.life != life && is_lost && !was_known;
            if !is_flagged && !is_restart && !self.unknown.contains(&id) {
                let text = format!("{id}/{recipient} went out twice, by {earlier:?} and mx{node}, unnoticed");
                self.violation.get_or_insert(text);
            }
        }
        list.push(Delivery { node, life });
    }

    pub(super) const fn report(&mut self, report: &Report) {
        match report {
            Report::AdoptionEnded { messages, is_handed_back, .. } => {
                self.adoptions += 1;
                self.adopted += *messages;
                if *is_handed_back {
                    self.handed_back += 1;
                }
            }
            Report::TakenBack { messages, .. } => self.taken_back += *messages,
            _ => {}
        }
    }

    /// True when all recipients of a message have it.
    pub(super) fn is_over(&self, id: QueueId) -> bool {
        let recipients = self.submitted.get(&id).map_or(0, |message| message.recipients);
        (0..recipients).all(|one| self.deliveries.contains_key(&(id, one)))
    }

    pub(super) fn deliveries_count(&self) -> usize {
        self.deliveries.values().map(Vec::len).sum()
    }

    pub(super) fn acknowledged_count(&self) -> usize {
        self.submitted.values().filter(|message| message.is_acknowledged).count()
    }

    /// Lists the faults at the end, when all mail must have gone.
    pub(super) fn problems(&self) -> Vec<String> {
        let mut problems = Vec::new();
        for (id, message) in self.submitted.iter().filter(|(_, message)| message.is_acknowledged) {
            let is_excused = self.excused.contains(id) || self.on_lost_disk.contains(id) && !message.is_replicated;
            let missing = (0..message.recipients).filter(|one| !self.deliveries.contains_key(&(*id, *one))).count();
            if missing > 0 && !is_excused {
                problems
                    .push(format!("{id} ({} recipients) was acknowledged, {missing} got nothing", message.recipients));
            }
        }
        let unanswered: Vec<_> = self.submitted.iter().filter(|(_, message)| !message.is_acknowledged).collect();
        if std::env::var("SIM_LOG").is_ok() {
            println!("not acknowledged: {unanswered:?}");
        }
        if self.duplicates > self.may_repeat {
            problems.push(format!("{} duplicates, {} were possible", self.duplicates, self.may_repeat));
        }
        let unflagged = self.deliveries.values().filter(|list| list.len() > 3).count();
        if unflagged > 0 {
            problems.push(format!("{unflagged} recipients got a message more than three times"));
        }
        problems
    }
}

//! A local log in memory, for members in tests.

use crate::cluster::{AdoptedNames, LocalMail};
use bytes::Bytes;
use cluster::{Accepted, Completion, Content, LocalMessage, NewMessage, Report, StreamId};
use mail::QueueId;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard};

#[derive(Clone, Debug)]
pub(super) struct Kept {
    pub(super) hops: u16,
    pub(super) finished: BTreeSet<u32>,
    pub(super) recipients: u32,
    pub(super) may_be_duplicate: bool,
    pub(super) is_moved: bool,
    pub(super) body: Bytes,
}

#[derive(Debug, Default)]
pub(super) struct Contents {
    pub(super) messages: BTreeMap<QueueId, Kept>,
    pub(super) streams: Vec<StreamId>,
    pub(super) reports: Vec<Report>,
    pub(super) problems: Vec<Option<String>>,
}

#[derive(Debug, Default)]
pub(super) struct MemoryLog {
    contents: Mutex<Contents>,
    /// All messages, under the names that they have in the cluster: none of them came before the node joined.
    pub(super) names: Arc<AdoptedNames>,
}

impl MemoryLog {
    pub(super) fn contents(&self) -> MutexGuard<'_, Contents> {
        self.contents.lock().unwrap()
    }

    pub(super) fn add(&self, message: &NewMessage) {
        let Content::Whole(body) = &message.content else { panic!("whole messages") };
        let kept = Kept {
            hops: 0,
            finished: BTreeSet::new(),
            recipients: message.recipients,
            may_be_duplicate: false,
            is_moved: false,
            body: body.clone(),
        };
        self.contents().messages.insert(message.id, kept);
        self.names.add(message.id, message.id);
    }

    pub(super) fn finish(&self, id: QueueId, recipient: u32) {
        self.contents().messages.get_mut(&id).unwrap().finished.insert(recipient);
    }

    /// The messages that a start has.
    pub(super) fn live(&self) -> Vec<LocalMessage> {
        let contents = self.contents();
        let live = contents.messages.iter().filter(|(_, kept)| kept.is_live());
        live.map(|(id, kept)| LocalMessage {
            id: *id,
            hops: kept.hops,
            recipients: kept.recipients,
            finished: kept.finished.iter().copied().collect(),
        })
        .collect()
    }

    pub(super) fn live_ids(&self) -> Vec<QueueId> {
        self.live().into_iter().map(|message| message.id).collect()
    }
}

impl Kept {
    fn is_live(&self) -> bool {
        !self.is_moved && self.finished.len() < self.recipients as usize
    }
}

impl LocalMail for MemoryLog {
    async fn keep_stream(&self, stream: StreamId) -> bool {
        self.contents().streams.push(stream);
        true
    }

    async fn read(&self, id: QueueId) -> Option<NewMessage> {
        let kept = self.contents().messages.get(&id).filter(|kept| kept.is_live()).cloned()?;
        Some(super::message_with(id, kept.recipients, &kept.body))
    }

    async fn store(&self, message: Accepted, body: Bytes) -> Option<bool> {
        let mut contents = self.contents();
        let is_wanted = contents.messages.get(&message.id).is_none_or(|kept| kept.hops < message.hops);
        if is_wanted {
            let kept = Kept {
                hops: message.hops,
                finished: message.finished.iter().copied().collect(),
                recipients: message.recipients,
                may_be_duplicate: message.may_be_duplicate,
                is_moved: false,
                body,
            };
            contents.messages.insert(message.id, kept);
            self.names.add(message.id, message.id);
        }
        Some(is_wanted)
    }

    fn complete(&self, completions: Vec<Completion>) {
        let mut contents = self.contents();
        for one in completions {
            let Some(kept) = contents.messages.get_mut(&one.id) else { continue };
            kept.finished.extend(one.recipient.map_or(0..kept.recipients, |at| at..at + 1));
        }
    }

    async fn forget(&self, messages: Vec<(QueueId, u16)>) -> bool {
        let mut contents = self.contents();
        for (id, hops) in messages {
            if let Some(kept) = contents.messages.get_mut(&id).filter(|kept| kept.hops <= hops) {
                kept.is_moved = true;
            }
        }
        true
    }

    fn report(&self, report: Report) {
        self.contents().reports.push(report);
    }

    fn engine_problem(&self, problem: Option<&str>) {
        self.contents().problems.push(problem.map(str::to_owned));
    }
}

//! Operations on an open spool, as the input lists them, and what must hold of them after a restart.
//!
//! Only acknowledgements bind: an operation that is refused, or that is not durable yet, promises nothing.

use super::Input;
use crate::disk::sim::{Op, SimDisk};
use crate::store::{Change, Chunk, NewBody, State, Status, Store as _};
use crate::{Commit, NewMessage, NewRecipient, Spool, Stepper};
use mail::QueueId;
use std::collections::HashMap;

/// Operations in one input, at the most.
const OPERATIONS_MAX: usize = 32;
/// Steps that a committer gets for its work.
const STEPS_MAX: u32 = 100;
/// Recipients of each message.
const RECIPIENTS: u32 = 2;
/// The header section of each message.
const HEADER: &[u8] = b"Subject: x\r\n\r\n";

/// The messages that the operations wrote.
#[derive(Default)]
pub(super) struct Operated {
    /// Content of the messages whose commit was acknowledged.
    committed: HashMap<QueueId, Vec<u8>>,
    /// Messages that were given up before their end came.
    aborted: Vec<QueueId>,
    /// Messages of which all recipients are done, acknowledged.
    finished: Vec<QueueId>,
    /// Messages of which a result was recorded that may end them.
    recorded: Vec<QueueId>,
}

/// A message of which chunks have come.
struct Open {
    id: QueueId,
    body: Vec<u8>,
    chunks: u32,
}

/// Carries out the operations, and lets the committer do its work after each.
pub(super) fn run(spool: &Spool, stepper: &mut Stepper, disk: &SimDisk, input: &mut Input<'_>) -> Operated {
    let mut operated = Operated::default();
    let mut open: Option<Open> = None;
    let mut next = QueueId::MAX.to_u64();
    for _ in 0..OPERATIONS_MAX {
        let Some(operation) = input.0.u8() else { break };
        let value = input.0.u8().unwrap_or(0);
        match operation % 7 {
            0 => {
                next -= 1;
                let id = QueueId::from_u64(next).expect("below the largest");
                let content = [HEADER, &vec![value; usize::from(value) * 8]].concat();
                let body = NewBody::whole(content.clone(), u32::try_from(HEADER.len()).expect("a short header"));
                operated.append(spool, stepper, id, body, content);
            }
            1 | 2 => {
                let one = open.get_or_insert_with(|| {
                    next -= 1;
                    Open { id: QueueId::from_u64(next).expect("below the largest"), body: Vec::new(), chunks: 0 }
                });
                let piece = vec![value; 1 + usize::from(value) * 16];
                let mut chunk = Chunk::new(piece.len());
                chunk.push(&piece);
                match spool.append_chunk(one.id, one.chunks, chunk) {
                    Ok(commit) => {
                        one.body.extend_from_slice(&piece);
                        one.chunks += 1;
                        settle(stepper, commit);
                    }
                    Err(_) => operated.abort(spool, stepper, open.take()),
                }
            }
            3 => {
                if let Some(one) = open.take() {
                    let bytes = one.body.len() as u64;
                    let body = NewBody::Chunks { header: HEADER.to_vec().into(), count: one.chunks, bytes };
                    let content = [HEADER, &one.body].concat();
                    if !operated.append(spool, stepper, one.id, body, content) {
                        spool.abort(one.id);
                    }
                }
            }
            4 => operated.abort(spool, stepper, open.take()),
            5 => operated.record(spool, stepper, value),
            // The messages of a batch that fails are taken back, and their clients are told.
            _ => disk.fail(if value & 1 == 0 { Op::Write } else { Op::Sync }, u64::from(value / 128)),
        }
        stepper.tidy(0);
    }
    operated.abort(spool, stepper, open.take());
    disk.clear_faults();
    operated
}

/// Lets the committer work, and returns whether `commit` is acknowledged.
fn settle(stepper: &mut Stepper, commit: Commit) -> bool {
    for _ in 0..STEPS_MAX {
        if !stepper.commit(0) {
            break;
        }
    }
    commit.poll_now() == Some(Ok(()))
}

impl Operated {
    fn append(&mut self, spool: &Spool, stepper: &mut Stepper, id: QueueId, body: NewBody, content: Vec<u8>) -> bool {
        let recipients = [NewRecipient { data: b"", destination: b"example.org" }; RECIPIENTS as usize];
        let Ok(commit) = spool.append(NewMessage::new(id, b"", &recipients, body)) else { return false };
        let is_committed = settle(stepper, commit);
        if is_committed {
            self.committed.insert(id, content);
        }
        is_committed
    }

    fn abort(&mut self, spool: &Spool, stepper: &mut Stepper, open: Option<Open>) {
        let Some(open) = open else { return };
        spool.abort(open.id);
        stepper.commit(0);
        self.aborted.push(open.id);
    }

    /// Records results of a message: of one recipient, or of all.
    fn record(&mut self, spool: &Spool, stepper: &mut Stepper, value: u8) {
        let mut ids: Vec<QueueId> = self.committed.keys().copied().collect();
        ids.sort();
        let Some(id) = ids.get(usize::from(value / 4) % ids.len().max(1)).copied() else { return };
        let status = if value & 1 == 0 { Status::Done } else { Status::Waiting };
        let is_whole = value & 2 != 0;
        let change = |recipient| {
            let state = State { status, attempts: value, due: u32::from(value) };
            Change { id, recipient, state, destination: (!is_whole).then(|| b"elsewhere.example".to_vec()) }
        };
        let changes: Vec<Change> = (0..if is_whole { RECIPIENTS } else { 1 }).map(change).collect();
        if status == Status::Done {
            self.recorded.push(id);
        }
        let Ok(commit) = spool.record(&changes) else { return };
        if settle(stepper, commit) && status == Status::Done && is_whole {
            self.finished.push(id);
        }
    }

    /// Asserts what a restart must keep: acknowledged messages whole, finished and aborted ones gone.
    pub(super) fn check(&self, spool: &Spool) {
        for (id, content) in self.committed.iter().filter(|(id, _)| !self.recorded.contains(id)) {
            let found = spool.body(*id).map(|pieces| pieces.concat());
            assert!(found.as_ref() == Ok(content), "{id} was acknowledged, and is {:?}", found.map(|body| body.len()));
        }
        for id in self.finished.iter().chain(&self.aborted) {
            assert!(spool.body(*id).is_err(), "{id} was finished or given up, and is there again");
        }
    }
}

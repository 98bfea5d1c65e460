//! Many clients at once: threads that commit one message after the other and say when each was acknowledged.

use super::{Arguments, letter};
use crate::exit::{Exit, Failure};
use mail::{QueueId, QueueIds};
use spool::disk::Disk;
use spool::envelope::Encoded;
use spool::{Error, NewBody, Spool, Store as _};
use std::sync::mpsc::{SyncSender, sync_channel};
use std::sync::{Mutex, PoisonError};

/// Acknowledgements that wait to be told; a slow reader holds up the clients.
const WAITING_MAX: usize = 1024;

/// A message that is on stable storage.
pub(super) struct Acknowledged {
    pub(super) id: QueueId,
    /// From the call of `append` until the handle resolved, in microseconds.
    pub(super) took_us: u64,
}

/// What the clients work on.
pub(super) struct Load<'a> {
    pub(super) spool: &'a Spool,
    pub(super) disk: &'a dyn Disk,
    pub(super) arguments: &'a Arguments,
    /// When the disk's clock stood at zero, about, in microseconds since 1970.
    pub(super) start_us: u64,
}

impl Load<'_> {
    /// Commits `messages` messages under ids from `ids` and tells `each` of every acknowledgement, in order of arrival.
    ///
    /// # Errors
    /// The first error of the spool or of `each`; the other clients end with the message they have.
    pub(super) fn run(
        &self,
        ids: QueueIds,
        messages: u64,
        each: &mut dyn FnMut(Acknowledged) -> Result<(), Failure>,
    ) -> Result<(), Failure> {
        let left = Mutex::new((ids, messages));
        let (tell, told) = sync_channel(WAITING_MAX);
        std::thread::scope(|scope| {
            for _ in 0..self.arguments.committers {
                let (tell, left) = (tell.clone(), &left);
                scope.spawn(move || self.client(left, &tell));
            }
            drop(tell);
            // When this ends early, `told` goes and with it all that the clients could say: they stop.
            for result in told {
                each(result.map_err(|error| refused(self.arguments, &error))?)?;
            }
            Ok(())
        })
    }

    fn client(&self, left: &Mutex<(QueueIds, u64)>, tell: &SyncSender<Result<Acknowledged, Error>>) {
        while let Some(id) = self.take(left) {
            let result = self.commit(id);
            let failed = result.is_err();
            if tell.send(result).is_err() || failed {
                return;
            }
        }
    }

    fn take(&self, left: &Mutex<(QueueIds, u64)>) -> Option<QueueId> {
        let mut guard = left.lock().unwrap_or_else(PoisonError::into_inner);
        let (ids, count) = &mut *guard;
        *count = count.checked_sub(1)?;
        Some(ids.next(self.start_us + self.disk.now_us()))
    }

    fn commit(&self, id: QueueId) -> Result<Acknowledged, Error> {
        let encoded = Encoded::new(&letter::envelope_of(id));
        let recipients = encoded.recipients();
        let body = letter::body_of(id, self.arguments.size);
        let started_us = self.disk.now_us();
        loop {
            match self.spool.append(encoded.message(&recipients, NewBody::Whole(body.clone()))) {
                Ok(commit) => {
                    commit.wait()?;
                    return Ok(Acknowledged { id, took_us: self.disk.now_us().saturating_sub(started_us) });
                }
                Err(Error::Busy) => self.spool.room(id).wait()?,
                Err(error) => return Err(error),
            }
        }
    }
}

fn refused(arguments: &Arguments, error: &Error) -> Failure {
    Failure::new(Exit::Io, format!("{}: {error}", arguments.dir.display()))
}

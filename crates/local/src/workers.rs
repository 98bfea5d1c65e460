//! Workers that wait for orders: processes that have become one user each, kept for a while.
//!
//! A batch of orders goes to a worker who is the person of its place ([`Login`], with all groups); if none waits, to a
//! new one. One that ended while it waited has begun nothing, and the batch goes to another. Workers end by themselves
//! after [`IDLE_TIME`] without an order; when too many wait, that which waited longest is sent away.

use super::letter::{Content, Orders};
use super::order::{DeliveryRequest, Settings, Verdict};
use super::privileged::{HandoverResult, Helper, IDLE_TIME, Worker};
use super::stream;
use bytes::Bytes;
use os::clock;
use os::login::Login;
use std::collections::VecDeque;
use std::io::{self, BufReader, BufWriter};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Workers that wait.
const WAITING_MAX: usize = 100;
/// For the verdicts of a worker that is over its own limits.
const SPARE: Duration = Duration::from_secs(60);
/// The octets that one write sends.
const BUFFER_BYTES: usize = 64 << 10;

/// An order with its message, which can be read more than once.
pub trait Job {
    /// Reads the message.
    type Content: Content;

    /// The delivery or the file to read.
    fn order(&self) -> &DeliveryRequest;

    /// The message, from its beginning.
    fn content(&self) -> Self::Content;
}

/// The helper, and the workers that wait.
#[derive(Debug)]
pub struct Workers {
    helper: Arc<Helper>,
    waiting: Mutex<VecDeque<Waiting>>,
}

#[derive(Debug)]
struct Waiting {
    login: Login,
    worker: Worker,
    since: Instant,
}

/// Why a batch has no verdicts.
enum WorkerError {
    /// Nothing was begun.
    NotBegun(io::Error),
    /// The result is unknown.
    Unknown(io::Error),
}

impl Workers {
    /// None wait yet; `helper` starts those that are missing.
    #[must_use]
    pub fn new(helper: Arc<Helper>) -> Self {
        Self { helper, waiting: Mutex::new(VecDeque::new()) }
    }

    /// Delivers a batch with the rights of a user; `None`: a worker finds out which. For a thread that may wait.
    ///
    /// A worker for one batch alone is not kept.
    pub fn deliver_batch(&self, who: Option<&Login>, batch: &[impl Job], settings: &Settings) -> Vec<HandoverResult> {
        while let Some(worker) = who.and_then(|login| self.take_worker(login)) {
            match talk(&worker, batch, settings) {
                Err(WorkerError::NotBegun(_)) => {}
                told => return self.settle(told, who, worker, batch),
            }
        }
        match self.helper.start_worker() {
            Ok(worker) => self.settle(talk(&worker, batch, settings), who, worker, batch),
            Err(no) => {
                let again = match &no {
                    HandoverResult::Verdict(verdict) | HandoverResult::Gone(verdict) => verdict.clone(),
                };
                let rest = (1..batch.len()).map(|_| HandoverResult::Verdict(again.clone())).collect::<Vec<_>>();
                std::iter::once(no).chain(rest).collect()
            }
        }
    }

    fn settle(
        &self,
        told: Result<Vec<Verdict>, WorkerError>,
        who: Option<&Login>,
        worker: Worker,
        batch: &[impl Job],
    ) -> Vec<HandoverResult> {
        let verdicts = match told {
            Ok(verdicts) => {
                if let Some(login) = who {
                    self.keep_worker(login.clone(), worker);
                }
                verdicts
            }
            Err(trouble) => vec![Verdict::deferred((3, 0), trouble.text()); batch.len()],
        };
        verdicts.into_iter().map(HandoverResult::Verdict).collect()
    }

    /// Returns the number of workers that wait for a batch.
    pub fn waiting_count(&self) -> usize {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner).len()
    }

    /// Takes the worker of a user that was kept last.
    fn take_worker(&self, login: &Login) -> Option<Worker> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let at = waiting.iter().rposition(|one| one.login == *login)?;
        waiting.remove(at).map(|one| one.worker)
    }

    fn keep_worker(&self, login: Login, worker: Worker) {
        let since = clock::now();
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let is_over = |one: &Waiting| since.saturating_duration_since(one.since) > IDLE_TIME;
        while waiting.front().is_some_and(is_over) || waiting.len() >= WAITING_MAX {
            drop(waiting.pop_front());
        }
        waiting.push_back(Waiting { login, worker, since });
    }
}

impl WorkerError {
    fn text(&self) -> String {
        let (error, so) = match self {
            Self::NotBegun(error) => (error, ""),
            Self::Unknown(error) => {
                (error, "; it is not known whether the message was delivered, and it is tried again")
            }
        };
        match error.kind() {
            io::ErrorKind::UnexpectedEof | io::ErrorKind::BrokenPipe | io::ErrorKind::ConnectionReset => {
                format!("the process of the delivery ended without an answer{so}")
            }
            io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => {
                format!("the process of the delivery does not answer{so}")
            }
            _ => format!("the process of the delivery does not answer: {error}{so}"),
        }
    }
}

/// Gives a worker a batch and waits for its verdicts.
fn talk<J: Job>(worker: &Worker, batch: &[J], settings: &Settings) -> Result<Vec<Verdict>, WorkerError> {
    let stream = &worker.stream;
    let limit = batch.iter().map(|job| settings.time_max(&job.order().what)).max().unwrap_or_default() + SPARE;
    let timed = stream.set_read_timeout(Some(limit)).and_then(|()| stream.set_write_timeout(Some(limit)));
    timed.map_err(WorkerError::NotBegun)?;
    let mut sending = Sending { rest: batch.iter(), now: None };
    let sent = stream::send_batch(&mut BufWriter::with_capacity(BUFFER_BYTES, stream), &mut sending);
    let mut from = BufReader::new(stream);
    stream::receive_begun(&mut from).map_err(WorkerError::NotBegun)?;
    let unread = sent.map_err(WorkerError::Unknown)?;
    let verdicts = batch.iter().map(|_| stream::receive_verdict(&mut from)).collect::<io::Result<Vec<_>>>();
    let mut verdicts = verdicts.map_err(WorkerError::Unknown)?;
    // The worker knows that a message broke off, and not why.
    for (verdict, why) in verdicts.iter_mut().zip(unread) {
        if let Some(why) = why {
            *verdict = super::letter::unreadable_verdict(why);
        }
    }
    Ok(verdicts)
}

/// A batch on its way: it can be sent again, to another.
struct Sending<'b, J: Job> {
    rest: std::slice::Iter<'b, J>,
    now: Option<J::Content>,
}

impl<J: Job> Content for Sending<'_, J> {
    fn next(&mut self) -> Result<Option<Bytes>, String> {
        self.now.as_mut().map_or(Ok(None), Content::next)
    }
}

impl<J: Job> Orders for Sending<'_, J> {
    fn next_order(&mut self) -> Option<DeliveryRequest> {
        let next = self.rest.next()?;
        self.now = Some(next.content());
        Some(next.order().clone())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn login(uid: u32, groups: &[u32]) -> Login {
        Login { name: "joe".into(), uid, gid: uid, groups: groups.to_vec(), home: "/".into(), shell: String::new() }
    }

    #[test]
    fn so_many_wait_and_the_longest_goes() {
        let (helper, _other) = Helper::socket_pair().unwrap();
        let workers = Workers::new(Arc::new(helper));
        for uid in 1..=150 {
            workers.keep_worker(login(uid, &[uid]), Worker::fake().unwrap());
        }
        assert_eq!(workers.waiting_count(), WAITING_MAX);
        assert!(workers.take_worker(&login(50, &[50])).is_none() && workers.take_worker(&login(51, &[51])).is_some());
        assert!(workers.take_worker(&login(51, &[51])).is_none(), "there was one");
        assert!(workers.take_worker(&login(60, &[60, 8])).is_none(), "with another group he is another");
        // A worker that has waited for longer than `IDLE_TIME` ends when the next one begins to wait.
        for one in workers.waiting.lock().unwrap().iter_mut().take(40) {
            one.since = one.since.checked_sub(IDLE_TIME + Duration::from_secs(1)).unwrap();
        }
        workers.keep_worker(login(1, &[1]), Worker::fake().unwrap());
        assert_eq!(workers.waiting_count(), WAITING_MAX - 1 - 40 + 1);
    }
}

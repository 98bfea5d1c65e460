//! Carries out local deliveries, in this process or by workers with the rights of users, and puts orders for the same
//! mailbox together.
//!
//! While a mailbox is being written to, orders for it gather. A thread that has carried out its order passes the turn
//! to the first of them, which takes as many others with it as fit ([`BATCH_MAX`], [`BATCH_BYTES`]): they share the
//! lock, the process and the syncs. One batch at a time goes to a mailbox, so deliveries do not wait for each other's
//! locks.
//!
//! A mailbox that has taken nothing for [`STUCK_AFTER`], since its user has stopped his worker or locked it for long,
//! keeps no more than a quarter of the deliveries busy; further mail for it is deferred, so that others have theirs.

use crate::config::Config;
use crate::lookup::files::Readers;
use ::local::agent::{Agent, DeliveryTarget};
use ::local::letter::{Content, Orders};
use ::local::order::{DeliveryRequest, Settings, Verdict, What};
use ::local::person::Rights;
use ::local::privileged::{HandoverResult, Helper};
use ::local::workers::{Job, Workers};
use bytes::Bytes;
use os::accounts::Kept;
use os::{blocking, clock};
use spool::Spool;
use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, SemaphorePermit, oneshot};

/// Messages that are carried out together.
const BATCH_MAX: usize = 64;
/// Octets of them, unless the first has more.
const BATCH_BYTES: u64 = 8 << 20;
/// A mailbox that has taken nothing for so long does not keep others waiting.
const STUCK_AFTER: Duration = Duration::from_secs(10);
/// Octets of a stored content that are read at once.
const PIECE_BYTES: u64 = 256 << 10;

/// The state of local delivery.
#[derive(Debug)]
pub(crate) struct LocalDelivery {
    settings: Settings,
    /// Finds places, and delivers with the rights of this process.
    agent: Agent,
    /// Those that have the rights of users; `None`: the server delivers with its own.
    workers: Option<Workers>,
    /// Those that read files with the rights of users.
    readers: Option<Arc<Readers>>,
    mailboxes: Semaphore,
    programs: Semaphore,
    files: Semaphore,
    /// Mailboxes that are written to, by their names.
    busy: Mutex<BTreeMap<String, MailboxQueue>>,
    /// Deliveries that may wait for a mailbox that takes nothing.
    stuck_max: usize,
}

/// Orders that wait for a mailbox.
#[derive(Debug)]
struct MailboxQueue {
    /// Since when the present batch is written.
    since: Instant,
    waiting: VecDeque<WaitingDelivery>,
}

#[derive(Debug)]
struct WaitingDelivery {
    place: DeliveryTarget,
    letters: LocalJob,
    tell: oneshot::Sender<JobReply>,
}

/// An order and its message.
#[derive(Clone, Debug)]
pub(crate) struct LocalJob {
    pub(crate) order: DeliveryRequest,
    pub(crate) source: Source,
}

impl Job for LocalJob {
    type Content = Source;

    fn order(&self) -> &DeliveryRequest {
        &self.order
    }

    fn content(&self) -> Source {
        self.source.clone()
    }
}

/// The answer to a job that waits.
#[derive(Debug)]
enum JobReply {
    /// It was carried out.
    Done(HandoverResult),
    /// It is his turn.
    Turn(Box<(DeliveryTarget, LocalJob)>),
}

/// The result of handing an order in.
enum HandedIn {
    Done(HandoverResult),
    /// Another thread delivers to that mailbox.
    Wait(oneshot::Receiver<JobReply>),
}

impl LocalDelivery {
    /// Without a helper: deliveries are made with the rights of this process.
    pub(crate) fn new(config: &Config) -> Self {
        Self::with(config, None)
    }

    /// With a helper, which is started now. For a process that is root and has one thread.
    ///
    /// # Errors
    /// The system refuses a process.
    pub(crate) fn as_root(config: &Config) -> std::io::Result<Self> {
        Ok(Self::with(config, Some(Helper::start(&Settings::new(config))?)))
    }

    fn with(config: &Config, helper: Option<Helper>) -> Self {
        let settings = Settings::new(config);
        let max = usize::try_from(config.local.deliveries_max).unwrap_or(1);
        let own = Rights::Own(rustix::process::geteuid().as_raw());
        let helper = helper.map(Arc::new);
        let readers = helper.as_ref().map(|helper| Arc::new(Readers::new(Arc::clone(helper))));
        let rights = if helper.is_some() { Rights::Anybody } else { own };
        Self {
            // An agent that may be any user only finds places: it carries nothing out.
            agent: Agent::new(
                settings.clone(),
                Kept::new(settings.accounts.clone()).with_nss(settings.has_nss),
                rights,
            ),
            settings,
            workers: helper.map(Workers::new),
            readers,
            mailboxes: Semaphore::new(max),
            programs: Semaphore::new(max),
            files: Semaphore::new(max),
            busy: Mutex::new(BTreeMap::new()),
            stuck_max: (max / 4).max(1),
        }
    }

    /// Returns whether programs of aliases and of users run: with a helper as their users, without one only where
    /// that is allowed.
    pub(crate) const fn runs_programs(&self) -> bool {
        self.workers.is_some() || self.settings.programs_as_server
    }

    /// Returns the processes that read files with the rights of users; `None`: the server reads with its own.
    pub(crate) fn readers(&self) -> Option<Arc<Readers>> {
        self.readers.clone()
    }

    /// Waits for the permit to deliver.
    ///
    /// # Cancel safety
    /// Yes.
    pub(crate) async fn turn(&self, what: &What) -> Option<SemaphorePermit<'_>> {
        let turn = match what {
            What::Mailbox => &self.mailboxes,
            What::Program { .. } => &self.programs,
            What::File { .. } => &self.files,
        };
        // Closed never.
        turn.acquire().await.ok()
    }

    /// Hands an order in. For a thread that may wait.
    fn hand_in(&self, letters: LocalJob) -> HandedIn {
        if self.workers.is_some() && !self.agent.reads_accounts() {
            // A worker sees more of the machine.
            return HandedIn::Done(self.carry_out_one(None, letters));
        }
        let place = match self.agent.find_target(&letters.order) {
            Ok(place) => place,
            Err(verdict) => return HandedIn::Done(HandoverResult::Verdict(verdict)),
        };
        if !place.is_mailbox() {
            return HandedIn::Done(self.carry_out_one(Some(&place), letters));
        }
        let now = clock::now();
        let mut busy = self.busy();
        if let Some(line) = busy.get_mut(&place.name()) {
            if line.waiting.len() >= self.stuck_max && now.saturating_duration_since(line.since) > STUCK_AFTER {
                let (path, waiting) = (place.name(), line.waiting.len() + 1);
                let text = format!(
                    "{path} takes nothing now, and {waiting} messages wait for it; look at its locks and processes"
                );
                return HandedIn::Done(HandoverResult::Verdict(Verdict::deferred((2, 0), text)));
            }
            let (tell, told) = oneshot::channel();
            line.waiting.push_back(WaitingDelivery { place, letters, tell });
            return HandedIn::Wait(told);
        }
        busy.insert(place.name(), MailboxQueue { since: now, waiting: VecDeque::new() });
        drop(busy);
        HandedIn::Done(self.lead(&place, letters))
    }

    /// Carries out an order together with those that wait for the same place, and passes the turn on. Returns the
    /// result of the first.
    fn lead(&self, place: &DeliveryTarget, first: LocalJob) -> HandoverResult {
        let passing = PassOn { local_delivery: self, name: place.name() };
        let mut bytes = first.source.bytes();
        let mut batch = vec![(first, None)];
        if let Some(line) = self.busy().get_mut(&passing.name) {
            line.since = clock::now();
            let fits = |next: &WaitingDelivery, bytes: u64| {
                next.place == *place && bytes + next.letters.source.bytes() <= BATCH_BYTES
            };
            while batch.len() < BATCH_MAX
                && line.waiting.front().is_some_and(|next| fits(next, bytes))
                && let Some(WaitingDelivery { letters, tell, .. }) = line.waiting.pop_front()
            {
                bytes += letters.source.bytes();
                batch.push((letters, Some(tell)));
            }
        }
        // A message that was cut short is completed before another one follows it.
        batch.sort_by_key(|(letters, _)| !letters.order.is_again);
        let (letters, tells): (Vec<_>, Vec<_>) = batch.into_iter().unzip();
        let mut handed = self.carry_out(Some(place), letters).into_iter();
        let mut own = None;
        for tell in tells {
            let handed = handed.next().unwrap_or_else(lost);
            match tell {
                // The receiver may have gone.
                Some(tell) => drop(tell.send(JobReply::Done(handed))),
                None => own = Some(handed),
            }
        }
        drop(passing);
        own.unwrap_or_else(lost)
    }

    fn carry_out_one(&self, place: Option<&DeliveryTarget>, letters: LocalJob) -> HandoverResult {
        self.carry_out(place, vec![letters]).pop().unwrap_or_else(lost)
    }

    /// Has a batch carried out. As many answers as there are orders.
    fn carry_out(&self, place: Option<&DeliveryTarget>, batch: Vec<LocalJob>) -> Vec<HandoverResult> {
        let who = place.filter(|place| !place.is_program()).map(|place| &place.person.login);
        match &self.workers {
            Some(workers) => workers.deliver_batch(who, &batch, &self.settings),
            None => {
                let mut batch = Batch { rest: batch.into(), now: None };
                self.agent.deliver_batch(&mut batch).into_iter().map(HandoverResult::Verdict).collect()
            }
        }
    }

    fn busy(&self) -> MutexGuard<'_, BTreeMap<String, MailboxQueue>> {
        self.busy.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Gives the turn at a mailbox to the next when it is dropped, also if the holder broke off.
struct PassOn<'o> {
    local_delivery: &'o LocalDelivery,
    name: String,
}

impl Drop for PassOn<'_> {
    fn drop(&mut self) {
        let mut busy = self.local_delivery.busy();
        while let Some(WaitingDelivery { place, letters, tell }) =
            busy.get_mut(&self.name).and_then(|line| line.waiting.pop_front())
        {
            if tell.send(JobReply::Turn(Box::new((place, letters)))).is_ok() {
                return;
            }
        }
        busy.remove(&self.name);
    }
}

/// Returns the result of a delivery without an answer, which only a panic causes.
fn lost() -> HandoverResult {
    HandoverResult::Verdict(Verdict::deferred((3, 0), "the delivering thread broke off"))
}

/// Has a message delivered to one recipient.
///
/// # Cancel safety
/// No: a delivery that has begun is finished, and its result is lost.
pub(crate) async fn deliver(local_delivery: Arc<LocalDelivery>, letters: LocalJob) -> HandoverResult {
    let _permit = local_delivery.turn(&letters.order.what).await;
    let at_work = Arc::clone(&local_delivery);
    let handed = blocking::run(move || at_work.hand_in(letters)).await;
    let told = match handed {
        Ok(HandedIn::Done(handed)) => return handed,
        Ok(HandedIn::Wait(told)) => told.await,
        Err(_) => return lost(),
    };
    match told {
        Ok(JobReply::Done(handed)) => handed,
        Ok(JobReply::Turn(turn)) => {
            let at_work = Arc::clone(&local_delivery);
            let led = blocking::run(move || {
                let (place, letters) = *turn;
                at_work.lead(&place, letters)
            });
            led.await.unwrap_or_else(|_| lost())
        }
        Err(_) => lost(),
    }
}

/// A batch for this process.
struct Batch {
    rest: VecDeque<LocalJob>,
    now: Option<Source>,
}

impl Content for Batch {
    fn next(&mut self) -> Result<Option<Bytes>, String> {
        self.now.as_mut().map_or(Ok(None), Source::next)
    }
}

impl Orders for Batch {
    fn next_order(&mut self) -> Option<DeliveryRequest> {
        let LocalJob { order, source } = self.rest.pop_front()?;
        self.now = Some(source);
        Some(order)
    }
}

/// The content of a message, for a thread that may wait.
#[derive(Clone, Debug)]
pub(crate) enum Source {
    /// In memory.
    Here(VecDeque<Bytes>),
    /// In the spool.
    Stored {
        /// Where it is.
        spool: Arc<Spool>,
        /// Its message.
        id: mail::QueueId,
        /// Octets that were read.
        read: u64,
        /// Octets that there are.
        end: u64,
    },
}

impl Source {
    /// Returns the octets that are left.
    pub(crate) fn bytes(&self) -> u64 {
        match self {
            Self::Here(pieces) => pieces.iter().map(|piece| piece.len() as u64).sum(),
            Self::Stored { read, end, .. } => end.saturating_sub(*read),
        }
    }
}

impl Content for Source {
    fn next(&mut self) -> Result<Option<Bytes>, String> {
        use spool::Store as _;
        match self {
            Self::Here(pieces) => Ok(pieces.pop_front()),
            Self::Stored { read, end, .. } if *read >= *end => Ok(None),
            Self::Stored { spool, id, read, end } => {
                let until = (*read + PIECE_BYTES).min(*end);
                let piece = spool.body_range(*id, *read..until).map_err(|error| error.to_string())?;
                if piece.is_empty() {
                    return Err(format!("its content ends at octet {read} of {end}"));
                }
                *read += piece.len() as u64;
                Ok(Some(piece))
            }
        }
    }
}

#[cfg(test)]
mod tests;

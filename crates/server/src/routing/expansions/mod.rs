//! Expansions of long lists: made once for each version of their sources, off the runtime, and shared by all
//! sessions.
//!
//! A recipient whose resolution takes little work ([`WORK_AT_ONCE`]) never comes here. One that takes more is
//! resolved on a thread of [`Expansions`], and the result is kept with all that it depends on:
//!
//! | It depends on | That is checked |
//! |---|---|
//! | maps in memory, rules, settings | it belongs to one [`Routing`], and another one has nothing of it |
//! | the recipient as it was written | part of the key |
//! | rules for sender or client, smarttable entry of the sender | part of the key ([`SenderClass`]) |
//! | answers: texts of lists, directories, users, `.forward` files | asked again, see below |
//!
//! Up to [`CHECKED_MAX`](cache::CHECKED_MAX) answers, texts of lists first, are asked again for every RCPT: a changed
//! list counts for the next one. Answers beyond (a list of ten thousand users has as many `.forward` files) are asked
//! again every `maps.interval`. The kept expansion still answers the first RCPT after that time, while one task asks;
//! after twice that time a RCPT waits for the answers. So a change of those counts after twice the interval at the
//! latest.
//!
//! Cases, and their effects:
//!
//! - **Many sessions name a list at once.** There is one expansion of a key at a time; the others wait for it.
//! - **A client names the same list again and again.** The kept expansion answers, which the transaction has already.
//! - **A client names a hundred lists, or one in a hundred spellings.** Each is an expansion; it has its turn after
//!   those of other clients ([`Turns`]). A session that waits for an expansion of another client has a place among
//!   its own client's requests too, so it never waits for the queue of another client. Beyond the limits a RCPT is
//!   answered `451 4.3.0`. Spellings with the same members share their memory. A session that finds no place waits
//!   with those that have asked for the same list, if there are any.
//! - **A session ends while its expansion waits.** Its place is given up. An expansion in progress is finished and
//!   kept, unless it has to ask a source and no session waits for it.
//! - **A list changes while it is expanded.** A session that asked before has the old members. One that came later
//!   checks the answers when the expansion is there, and has a new one made.
//! - **Maps are loaded again meanwhile.** A transaction keeps the maps it began with; the expansion is kept for them,
//!   and goes with them.
//! - **A source does not answer.** The expansion ends with that trouble for all who wait, and nothing is kept. The
//!   threads are not held meanwhile: a turn is given back before a source is asked.
//! - **An expansion is larger than `maps.expansions_size_max`.** It is used, and not kept.
//!
//! Threads have a lower priority than those of the runtime; they hold no lock while they work.

mod cache;

use self::cache::{CacheEntry, State};
use super::members::Members;
use super::message_properties::MessageProperties;
use super::plan::Plan;
use super::{Routing, WORK_AT_ONCE};
use crate::config;
use mail::{Address, Client, Envelope, QueueId, ReversePath};
use operator::answers::ExpansionCounts;
use os::clock;
use os::threads::Threads;
use os::turns::{NoTurnError, Turn, TurnLimits, Turns};
use route::question::Question;
use route::resolve::{Outcome, Request, Resolution, SenderClass};
use route::{Answers, Ask, Refusal, Stop};
use spool::envelope::Encoded;
use std::fmt;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};
use tokio::sync::watch;

/// Members that are made into messages on a thread of the runtime; more are a matter for other threads.
pub(crate) const MEMBERS_AT_ONCE: usize = 500;
/// Rounds of questions for one recipient: answers may lead to further questions.
const ROUNDS_MAX: usize = 64;
/// Times that a RCPT has a list expanded anew that changes all the time.
const VERSIONS_MAX: usize = 4;
/// Threads at most; half the processors, if those are fewer.
const THREADS_MAX: usize = 4;
/// The lower priority of these threads.
const NICENESS: i32 = 10;
/// Questions that a task asks before it lets others have its thread.
const QUESTIONS_IN_A_ROW: usize = 32;

/// A thread panicked, or the system gives none.
const BROKE_OFF: &str = "the expansion of a list broke off";

/// Limits of requests that wait for a thread: `expansions` in the answer to `status`.
const LIMITS: TurnLimits =
    TurnLimits { turns: 1, waiting_per_client: 20, waiting: 1_000, time: Duration::from_secs(60) };

/// The expansions that are kept, and the threads that make them.
#[derive(Debug)]
pub(crate) struct Expansions {
    threads: Threads,
    turns: Turns<ClientKey>,
    state: Mutex<State>,
    /// Recipients in `state`, so that most need not look.
    recipients: AtomicUsize,
    made: AtomicU64,
    shared: AtomicU64,
    refused: AtomicU64,
}

/// The client for which a list is expanded: each has its turns.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum ClientKey {
    /// A user who has logged in, from any address.
    Identity(Box<str>),
    /// An IPv4 address, or the network of an IPv6 address.
    Network(IpAddr),
    /// A user of this machine.
    Process(u32),
    /// This server: reports.
    Internal,
}

/// A recipient that is to be expanded.
#[derive(Clone, Debug)]
pub(crate) struct ExpansionRequest {
    pub(crate) client: ClientKey,
    pub(crate) sender: ReversePath,
    pub(crate) recipient: Address,
    /// As rules see the client.
    pub(crate) ip: Option<IpAddr>,
    pub(crate) is_local_submission: bool,
}

/// Settings of the configuration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ExpansionSettings {
    /// `maps.interval`.
    pub(crate) interval: Duration,
    /// `maps.expansions_size_max`.
    pub(crate) octets_max: u64,
}

/// Result of expanding a recipient.
#[derive(Clone, Debug)]
pub(crate) enum Expanded {
    /// The recipient becomes these.
    Members(Arc<Members>),
    /// The client gets this refusal.
    Refused(Refusal),
    /// It is accepted and dropped.
    Discarded,
}

/// Result of resolving a recipient, found with little work or with much.
pub(crate) enum Resolved {
    /// Found with little work.
    Short(Resolution),
    /// Found with much work: all sessions share it.
    Long(Expanded),
}

/// The turn of a client, where it needs one.
pub(crate) type HeldTurn = Option<Turn<ClientKey>>;

/// A message that a plan becomes.
pub(crate) struct PlannedMessage {
    pub(crate) envelope: Arc<Envelope>,
    pub(crate) encoded: Arc<Encoded>,
    pub(crate) kind: MessageProperties,
}

/// The messages of a plan.
pub(crate) struct PlannedMessages {
    pub(crate) messages: Vec<PlannedMessage>,
    /// Held while a transaction has many recipients in memory for itself alone.
    pub(crate) turn: HeldTurn,
}

/// Why a recipient is not expanded now. The client tries again.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum ExpandError {
    /// Something cannot be looked up.
    Trouble(Arc<str>),
    /// Too much waits.
    Busy(NoTurnError),
}

type Made = Result<Arc<CacheEntry>, Arc<str>>;

/// An expansion in progress, or one that waits for its turn.
#[derive(Debug)]
struct PendingExpansion {
    result: watch::Sender<Option<Made>>,
    is_begun: AtomicBool,
}

/// Ends an expansion with a result, even if its thread panics.
struct RunningExpansion(Arc<PendingExpansion>);

impl Drop for RunningExpansion {
    fn drop(&mut self) {
        self.0.result.send_if_modified(|result| {
            let is_missing = result.is_none();
            result.get_or_insert_with(|| Err(BROKE_OFF.into()));
            is_missing
        });
    }
}

impl fmt::Display for ExpandError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Trouble(why) => f.write_str(why),
            Self::Busy(why) => write!(f, "expansions of lists: {why}"),
        }
    }
}

impl ExpansionSettings {
    /// Returns the settings of the configuration.
    pub(crate) const fn of(maps: &config::Maps) -> Self {
        Self { interval: maps.interval, octets_max: maps.expansions_size_max }
    }
}

impl ClientKey {
    /// Makes the request of a session.
    pub(crate) fn new(client: &Client, identity: Option<&str>) -> Self {
        match (identity, client) {
            (Some(identity), _) => Self::Identity(identity.into()),
            (None, Client::Process { uid }) => Self::Process(*uid),
            (None, Client::Internal) => Self::Internal,
            (None, Client::Network(address)) => Self::Network(match address.ip().to_canonical() {
                IpAddr::V4(ip) => ip.into(),
                // One client has all of a network.
                IpAddr::V6(ip) => Ipv6Addr::from_bits(ip.to_bits() & (u128::MAX << 64)).into(),
            }),
        }
    }
}

impl ExpansionRequest {
    /// Converts it for the router.
    fn request(&self) -> Request<'_> {
        Request {
            sender: &self.sender,
            recipient: &self.recipient,
            client: self.ip,
            is_local_submission: self.is_local_submission,
        }
    }
}

impl Expanded {
    fn new(resolution: Resolution) -> Self {
        match resolution.outcome {
            Outcome::Deliver(deliveries) => Self::Members(Arc::new(Members::new(deliveries, resolution.failed))),
            Outcome::Refuse(refusal) => Self::Refused(refusal),
            Outcome::Discard => Self::Discarded,
        }
    }
}

fn broke_off() -> ExpandError {
    ExpandError::Trouble(BROKE_OFF.into())
}

impl Expansions {
    /// Makes it without expansions and without threads.
    pub(crate) fn new() -> Arc<Self> {
        let processors = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = (processors / 2).clamp(1, THREADS_MAX);
        Arc::new(Self {
            threads: Threads::new("expansion", threads).nice(NICENESS),
            turns: Turns::new(TurnLimits { turns: threads, ..LIMITS }),
            state: Mutex::default(),
            recipients: AtomicUsize::new(0),
            made: AtomicU64::new(0),
            shared: AtomicU64::new(0),
            refused: AtomicU64::new(0),
        })
    }

    /// Returns whether a recipient has taken much work before. Then it is not tried with little.
    pub(crate) fn is_long(&self, recipient: &Address) -> bool {
        self.recipients.load(Ordering::Acquire) > 0 && self.lock().kept.contains_key(recipient.to_string().as_str())
    }

    /// Figures for `status`.
    pub(crate) fn counts(&self) -> ExpansionCounts {
        let (kept, octets) = self.lock().size();
        let number = |count: usize| u64::try_from(count).unwrap_or(u64::MAX);
        ExpansionCounts {
            made: self.made.load(Ordering::Relaxed),
            shared: self.shared.load(Ordering::Relaxed),
            refused: self.refused.load(Ordering::Relaxed),
            waiting: number(self.turns.waiting()),
            kept: number(kept),
            kept_bytes: number(octets),
        }
    }

    /// Makes messages of the recipients of a plan so far, so that more can be judged.
    ///
    /// # Errors
    /// Too much waits, and the plan is as it was; or the work broke off, and the plan is lost and says so.
    /// # Cancel safety
    /// No: the plan may be lost.
    pub(crate) async fn merge(&self, client: ClientKey, plan: &mut Plan) -> Result<(), ExpandError> {
        let _turn = self.turns.take(client).await.map_err(|why| self.busy(why))?;
        let mut merging = std::mem::replace(plan, Plan::lost());
        let merge = move || {
            merging.merge();
            merging
        };
        *plan = self.threads.run(merge).await.map_err(|_| broke_off())?;
        Ok(())
    }

    fn busy(&self, why: NoTurnError) -> ExpandError {
        self.refused.fetch_add(1, Ordering::Relaxed);
        ExpandError::Busy(why)
    }

    /// Resolves a recipient, off the runtime where that is much work.
    ///
    /// # Errors
    /// Something cannot be looked up, or too much waits.
    /// # Cancel safety
    /// As [`Self::expand`].
    pub(crate) async fn resolve(
        self: &Arc<Self>,
        routing: &Arc<Routing>,
        wanted: &ExpansionRequest,
        settings: &ExpansionSettings,
    ) -> Result<Resolved, ExpandError> {
        if let Some(admission) = routing.admission().filter(|_| !self.is_long(&wanted.recipient)) {
            let resolve = |ask: &mut Ask<'_>| admission.router.resolve(ask, &wanted.request());
            let resolved = routing.decide_within(WORK_AT_ONCE, resolve).await;
            if let Some(resolution) = resolved.map_err(ExpandError::Trouble)? {
                return Ok(Resolved::Short(resolution));
            }
        }
        self.expand(routing, wanted, settings).await.map(Resolved::Long)
    }

    /// Returns the messages of a plan, whose names are those of `ids`; off the runtime where they have many
    /// recipients.
    ///
    /// # Errors
    /// Too much waits.
    /// # Cancel safety
    /// Yes.
    pub(crate) async fn messages(
        &self,
        client: ClientKey,
        plan: Plan,
        envelope: Envelope,
        ids: Vec<QueueId>,
    ) -> Result<PlannedMessages, ExpandError> {
        let make = move |plan: Plan| -> Vec<PlannedMessage> {
            let id_of = |number| ids.get(number).copied().unwrap_or(envelope.id);
            let made = plan.into_messages(&envelope, id_of).into_iter().map(|(envelope, destinations, kind)| {
                let encoded = Arc::new(Encoded::with(&envelope, destinations));
                PlannedMessage { envelope: Arc::new(envelope), encoded, kind }
            });
            made.collect()
        };
        if plan.recipients_max() <= MEMBERS_AT_ONCE {
            return Ok(PlannedMessages { messages: make(plan), turn: None });
        }
        let turn = self.turns.take(client).await.map_err(|why| self.busy(why))?;
        let messages = self.threads.run(move || make(plan)).await.map_err(|_| broke_off())?;
        Ok(PlannedMessages { messages, turn: Some(turn) })
    }

    /// Returns the kept expansion of a recipient if it still holds, else makes one.
    ///
    /// # Errors
    /// Something cannot be looked up, or too much waits.
    /// # Cancel safety
    /// Yes: an expansion that was begun goes on for others.
    pub(crate) async fn expand(
        self: &Arc<Self>,
        routing: &Arc<Routing>,
        wanted: &ExpansionRequest,
        settings: &ExpansionSettings,
    ) -> Result<Expanded, ExpandError> {
        let Some(admission) = routing.admission() else {
            return Err(ExpandError::Trouble("there are no maps".into()));
        };
        let class = routing.decide(|ask| admission.router.sender_class(ask, &wanted.request())).await;
        let class = class.map_err(ExpandError::Trouble)?;
        let recipient = wanted.recipient.to_string();
        let mut last = None;
        for _ in 0..VERSIONS_MAX {
            let known = self.lock().find(&recipient, routing, &class);
            if let Some(kept) = known {
                if kept.is_current(routing, settings).await {
                    self.shared.fetch_add(1, Ordering::Relaxed);
                    return Ok(kept.expanded.clone());
                }
                drop(self.remove(&recipient, &kept));
            }
            let (made, is_own) = self.join(routing, wanted, &recipient, &class, settings).await?;
            let made = made.map_err(ExpandError::Trouble)?;
            if is_own || made.is_current(routing, settings).await {
                return Ok(made.expanded.clone());
            }
            drop(self.remove(&recipient, &made));
            last = Some(made.expanded.clone());
        }
        // The list changes all the time: any version is as good as another.
        last.ok_or_else(|| ExpandError::Trouble("the list changes while it is read".into()))
    }

    /// Joins the expansion that is in progress, or begins one when it is the turn of the client; returns its result,
    /// and whether this call began it.
    async fn join(
        self: &Arc<Self>,
        routing: &Arc<Routing>,
        wanted: &ExpansionRequest,
        recipient: &str,
        class: &SenderClass,
        settings: &ExpansionSettings,
    ) -> Result<(Made, bool), ExpandError> {
        let flight = {
            let mut state = self.lock();
            let key = (recipient.into(), Arc::as_ptr(routing).addr(), class.clone());
            let found = state.under_way.get(&key).and_then(Weak::upgrade);
            found.unwrap_or_else(|| {
                let flight =
                    Arc::new(PendingExpansion { result: watch::channel(None).0, is_begun: AtomicBool::new(false) });
                state.under_way.retain(|_, flight| flight.strong_count() > 0);
                state.under_way.insert(key, Arc::downgrade(&flight));
                flight
            })
        };
        let mut waiting = flight.result.subscribe();
        let mut is_own = false;
        let asked = if flight.is_begun.load(Ordering::Acquire) {
            None
        } else {
            tokio::select! {
                biased;
                _ = waiting.wait_for(Option::is_some) => None,
                turn = self.turns.take(wanted.client.clone()) => Some(turn),
            }
        };
        let turn = match asked {
            None => None,
            Some(Ok(turn)) => Some(turn),
            // Other sessions wait for it, of the same client perhaps: one place is enough for all.
            Some(Err(why)) if flight.result.receiver_count() > 1 => {
                let is_done = tokio::time::timeout(LIMITS.time, waiting.wait_for(Option::is_some)).await.is_ok();
                if !is_done {
                    return Err(self.busy(why));
                }
                None
            }
            Some(Err(why)) => return Err(self.busy(why)),
        };
        if let Some(turn) = turn
            && !flight.is_begun.swap(true, Ordering::AcqRel)
        {
            is_own = true;
            let (expansions, routing, wanted) = (Arc::clone(self), Arc::clone(routing), wanted.clone());
            let (begun, class, octets_max) =
                (RunningExpansion(Arc::clone(&flight)), class.clone(), settings.octets_max);
            tokio::spawn(async move { expansions.fly(begun, &routing, wanted, class, octets_max, turn).await });
        }
        let made = waiting.wait_for(Option::is_some).await.ok().and_then(|made| made.clone());
        Ok((made.unwrap_or_else(|| Err(BROKE_OFF.into())), is_own))
    }

    /// Makes an expansion, keeps it, and gives it to all who wait.
    async fn fly(
        self: Arc<Self>,
        begun: RunningExpansion,
        routing: &Arc<Routing>,
        wanted: ExpansionRequest,
        class: SenderClass,
        octets_max: u64,
        turn: Turn<ClientKey>,
    ) {
        let key = (wanted.recipient.to_string().into_boxed_str(), Arc::as_ptr(routing).addr(), class.clone());
        let made = self.make(&begun, routing, Arc::new(wanted), class, octets_max, turn).await;
        self.lock().under_way.remove(&key);
        begun.0.result.send_replace(Some(made));
    }

    async fn make(
        self: &Arc<Self>,
        begun: &RunningExpansion,
        routing: &Arc<Routing>,
        wanted: Arc<ExpansionRequest>,
        class: SenderClass,
        octets_max: u64,
        turn: Turn<ClientKey>,
    ) -> Made {
        self.made.fetch_add(1, Ordering::Relaxed);
        let lookups = routing.lookups();
        let (mut answers, mut turn) = (Answers::new(), Some(turn));
        let at = clock::now();
        for _ in 0..ROUNDS_MAX {
            let held = match turn.take() {
                Some(turn) => Some(turn),
                None => self.turns.take_again(wanted.client.clone()).await,
            };
            let (expansions, routing, wanted, class) =
                (Arc::clone(self), Arc::clone(routing), Arc::clone(&wanted), class.clone());
            let round = move || expansions.round(&routing, &wanted, class, octets_max, answers, at);
            let done = self.threads.run(round).await;
            drop(held);
            let open = match done {
                Ok(Round::Done(made)) => return made,
                Ok(Round::Open(known, open)) => {
                    answers = known;
                    open
                }
                Err(_) => return Err(BROKE_OFF.into()),
            };
            for (number, question) in open.into_iter().enumerate() {
                if begun.0.result.receiver_count() == 0 {
                    return Err("nobody waits for it any more".into());
                }
                let answer = lookups.answer(&question).await;
                answers.insert(question, answer);
                if number % QUESTIONS_IN_A_ROW == 0 {
                    tokio::task::yield_now().await;
                }
            }
        }
        Err("one look-up leads to another without end".into())
    }

    /// Resolves with these answers, and keeps the result. The time is linear in the number of members.
    fn round(
        &self,
        routing: &Arc<Routing>,
        wanted: &ExpansionRequest,
        class: SenderClass,
        octets_max: u64,
        answers: Answers,
        at: Instant,
    ) -> Round {
        let Some(admission) = routing.admission() else { return Round::Done(Err("there are no maps".into())) };
        let mut ask = Ask::new(&answers);
        let resolution = match admission.router.resolve(&mut ask, &wanted.request()) {
            Ok(resolution) => resolution,
            Err(Stop::Trouble(why)) => return Round::Done(Err(why)),
            Err(Stop::Open | Stop::TooMuchWork) => {
                let open = ask.into_open();
                return Round::Open(answers, open);
            }
        };
        let mut expanded = Expanded::new(resolution);
        self.share(&mut expanded);
        let kept = Arc::new(CacheEntry::new(wanted, routing, class, expanded, answers, at));
        self.keep(&wanted.recipient.to_string(), &kept, octets_max);
        Round::Done(Ok(kept))
    }

    /// Uses the members of another expansion, if they are the same.
    fn share(&self, expanded: &mut Expanded) {
        let Expanded::Members(members) = expanded else { return };
        let others: Vec<Arc<Members>> = {
            let state = self.lock();
            let same = state.kept.values().flatten().filter_map(|kept| match &kept.expanded {
                Expanded::Members(other) if other.fingerprint() == members.fingerprint() => Some(Arc::clone(other)),
                _ => None,
            });
            same.collect()
        };
        // Not under the lock: they may be many.
        if let Some(same) = others.into_iter().find(|other| **other == **members) {
            *members = same;
        }
    }

    fn keep(&self, recipient: &str, kept: &Arc<CacheEntry>, octets_max: u64) {
        let octets_max = usize::try_from(octets_max).unwrap_or(usize::MAX);
        let removed = {
            let mut state = self.lock();
            let mut removed = match kept.routing.upgrade() {
                Some(routing) => state.remove(recipient, |one| one.is_of(&routing, &kept.class)),
                None => Vec::new(),
            };
            if kept.octets + kept.members_octets <= octets_max {
                state.insert(recipient, kept);
            }
            removed.extend(state.shrink(octets_max));
            self.recipients.store(state.kept.len(), Ordering::Release);
            removed
        };
        drop(removed);
    }

    fn remove(&self, recipient: &str, kept: &Arc<CacheEntry>) -> Vec<Arc<CacheEntry>> {
        let mut state = self.lock();
        let removed = state.remove(recipient, |one| Arc::ptr_eq(one, kept));
        self.recipients.store(state.kept.len(), Ordering::Release);
        removed
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Result of an attempt with the answers so far.
enum Round {
    Done(Made),
    Open(Answers, Vec<Question>),
}

#[cfg(test)]
mod tests;

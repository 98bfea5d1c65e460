//! The name servers that are asked, in turn.
//!
//! The first server is asked; the next one besides it when it has been silent for a while, and at once when it fails
//! or refuses. A server that was silent while a question waited for it comes last for [`SILENT`]: it costs one
//! question its patience, not each. Then one question tries it again.
//!
//! Not here: whether all of them are dead (`breaker`), and the meaning of an answer.

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::Poll;
use std::time::{Duration, Instant};

use hickory_resolver::lookup::Lookup;
use hickory_resolver::net::NetError;
use hickory_resolver::proto::op::Query;
use hickory_resolver::proto::rr::domain::usage;
use hickory_resolver::proto::rr::{Name, RecordType};
use hickory_resolver::{Hosts, TokioResolver};
use tokio::time::{Instant as Timer, timeout_at};

use super::exchange::QuestionExchange;
use super::{answer, now};

/// Time for which a silent server comes last.
pub(super) const SILENT: Duration = Duration::from_secs(30);
/// Servers that are asked; others of the configuration are not.
pub(super) const SERVERS_MAX: usize = 8;
/// How long one is waited for before the next is asked beside it, at most; less where the time limit is short.
const PATIENCE_MAX: Duration = Duration::from_secs(1);

/// The servers, in the order of the configuration.
pub(super) struct Servers {
    clients: Vec<Client>,
    /// /etc/hosts, which the library answers from.
    hosts: Arc<Hosts>,
    patience: Duration,
    /// How long an answer by [`QuestionExchange`] is waited for before the library asks again.
    exchange_time: Duration,
    memory: Mutex<Vec<Memory>>,
}

/// One server: a client of its own, so that it is known which server answered.
pub(super) struct Client {
    /// For the usual answers.
    pub(super) exchange: QuestionExchange,
    pub(super) edns: TokioResolver,
    /// Client for a server that does not know EDNS.
    pub(super) plain: TokioResolver,
}

/// State of a server, from its earlier answers.
#[derive(Clone, Copy, Default)]
struct Memory {
    answered: Option<Instant>,
    /// The server comes last until then.
    silent: Option<Instant>,
    /// It does not know EDNS.
    is_old: bool,
}

type Reply = Result<Lookup, NetError>;

impl Servers {
    /// Servers with one client each; a question has `timeout` in all.
    pub(super) fn new(mut clients: Vec<Client>, hosts: Arc<Hosts>, timeout: Duration) -> Self {
        clients.truncate(SERVERS_MAX);
        let memory = Mutex::new(vec![Memory::default(); clients.len()]);
        let patience = (timeout / 5).min(PATIENCE_MAX);
        Self { clients, hosts, patience, exchange_time: timeout / 4, memory }
    }

    /// Returns the answer of the first server that has one; of failures the last that is not silence. Ends with the
    /// time limit of the last client.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(super) async fn lookup(&self, name: &Name, kind: RecordType) -> Reply {
        if let [_] = self.clients.as_slice() {
            return self.ask(0, name, kind).await;
        }
        let mut order = self.order(now()).into_iter();
        let mut open = Vec::new();
        let mut worst = NetError::Timeout;
        loop {
            match order.next() {
                Some(server) => open.push((server, now(), Box::pin(self.ask(server, name, kind)))),
                None if open.is_empty() => return Err(worst),
                None => {}
            }
            let reply = if order.len() == 0 {
                first(&mut open).await
            } else {
                match timeout_at(Timer::now() + self.patience, first(&mut open)).await {
                    Ok(reply) => reply,
                    Err(_) => {
                        for (server, began, _) in &open {
                            self.silent(*server, *began);
                        }
                        continue;
                    }
                }
            };
            match reply {
                Err(error) if !answer::is_answer(&error) => {
                    if !answer::is_silence(&error) || answer::is_silence(&worst) {
                        worst = error;
                    }
                }
                reply => return reply,
            }
        }
    }

    async fn ask(&self, server: usize, name: &Name, kind: RecordType) -> Reply {
        let Some(client) = self.clients.get(server) else { return Err(NetError::NoConnections) };
        let began = now();
        // The library's future is large, and many exist that are not polled.
        let asking = async |client: &TokioResolver| Box::pin(client.lookup(name.clone(), kind)).await;
        let is_old = self.memory().get(server).is_some_and(|memory| memory.is_old);
        if !is_old && let Some(reply) = self.exchange(client, name, kind).await {
            if self.clients.len() > 1 {
                self.answered(server);
            }
            return reply;
        }
        let mut reply = asking(if is_old { &client.plain } else { &client.edns }).await;
        // RFC 6891 §6.2.2
        if !is_old && reply.as_ref().is_err_and(answer::is_for_edns) {
            reply = asking(&client.plain).await;
            if !reply.as_ref().is_err_and(answer::is_for_edns)
                && let Some(memory) = self.memory().get_mut(server)
            {
                memory.is_old = true;
            }
        }
        if self.clients.len() > 1 {
            if reply.as_ref().is_err_and(answer::is_silence) {
                self.silent(server, began);
            } else {
                self.answered(server);
            }
        }
        reply
    }

    /// Asks without the library; `None` where it has to ask.
    async fn exchange(&self, client: &Client, name: &Name, kind: RecordType) -> Option<Reply> {
        if is_answered_here(name) || self.hosts.lookup_static_host(&Query::query(name.clone(), kind)).is_some() {
            return None;
        }
        tokio::time::timeout(self.exchange_time, client.exchange.ask(name, kind)).await.ok().flatten()
    }

    fn answered(&self, server: usize) {
        if let Some(memory) = self.memory().get_mut(server) {
            *memory = Memory { answered: Some(now()), silent: None, ..*memory };
        }
    }

    /// Returns the servers in the order to ask them. One whose silence is over is first, for this question alone.
    fn order(&self, now: Instant) -> Vec<usize> {
        let (mut order, mut last) = (Vec::with_capacity(self.clients.len()), Vec::new());
        let mut has_trial = false;
        for (server, memory) in self.memory().iter_mut().enumerate() {
            match memory.silent {
                Some(until) if until > now || has_trial => last.push(server),
                Some(_) => {
                    memory.silent = Some(now + SILENT);
                    has_trial = true;
                    order.insert(0, server);
                }
                None => order.push(server),
            }
        }
        order.append(&mut last);
        order
    }

    /// Notes that a server did not answer a question of this time; unless it has answered another one since.
    fn silent(&self, server: usize, began: Instant) {
        if let Some(memory) = self.memory().get_mut(server)
            && memory.answered.is_none_or(|answered| answered < began)
        {
            memory.silent = Some(now() + SILENT);
        }
    }

    /// Returns how many come last now.
    pub(super) fn silent_count(&self) -> usize {
        let now = now();
        self.memory().iter().filter(|memory| memory.silent.is_some_and(|until| until > now)).count()
    }

    fn memory(&self) -> MutexGuard<'_, Vec<Memory>> {
        self.memory.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether the library answers for a name by itself. RFC 6761, RFC 7686
fn is_answered_here(name: &Name) -> bool {
    [
        &*usage::LOCALHOST,
        &*usage::IN_ADDR_ARPA_127,
        &*usage::IP6_ARPA_1,
        &*usage::INVALID,
        &*usage::LOCAL,
        &*usage::ONION,
    ]
    .iter()
    .any(|zone| zone.zone_of(name))
}

/// Returns the first reply that comes; its question is open no more. With nothing open it never ends.
async fn first<F: Future<Output = Reply>>(open: &mut Vec<(usize, Instant, Pin<Box<F>>)>) -> Reply {
    poll_fn(|context| {
        for index in 0..open.len() {
            let Some((_, _, asking)) = open.get_mut(index) else { continue };
            if let Poll::Ready(reply) = asking.as_mut().poll(context) {
                drop(open.swap_remove(index));
                return Poll::Ready(reply);
            }
        }
        Poll::Pending
    })
    .await
}

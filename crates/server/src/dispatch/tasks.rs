//! Tasks of dispatch: they open connections, ask for hosts, read lists and report overdue mail.
//!
//! The scheduler's actions only send a [`Task`] and never wait. One task ([`run`]) receives them, and owns the tasks
//! that it starts; at the end of the server it waits for those that are open.

use super::{CompletionGuard, ConnectTarget, ConnectionSignal, Dispatch, Renewal, bounce, overdue, rehome};
use crate::context::Context;
use crate::deliver;
use crate::dns::NoHosts;
use crate::env::blocking;
use crate::queue::{Bounced, DeliveryControl as _, Destinations, RecipientSelection};
use crate::resolve;
use crate::settle;
#[cfg(test)]
use crate::simulation::{Sabotage, is_sabotaged};
use bytes::Bytes;
use mail::{EnhancedCode, Outcome, QueueId};
use observe::{Event, Severity};
use schedule::{ConnectionId, DestinationId, Job, Overdue, Positions, QueueEntry, Scheduler};
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::oneshot;
use tokio::task::JoinSet;

/// Why mail waits whose hosts were not found for a fault of ours.
const BROKE_OFF: &str = "the look-up of its hosts broke off";

/// Pause before the next try to move mail of old smart hosts that is in progress.
const REHOME_AGAIN: Duration = Duration::from_secs(30);

pub(super) type TaskFuture = Pin<Box<dyn Future<Output = ()> + Send>>;

/// Work for the task that owns connections.
pub(super) enum Task {
    /// All waiting mail is due.
    Restore,
    /// Mail of old destinations that was in progress gets new ones.
    Rehome,
    /// Something else that the end of the server waits for.
    TaskFuture(TaskFuture),
    Resolve {
        destination: DestinationId,
        name: Arc<[u8]>,
    },
    Defer {
        jobs: Vec<Job>,
        why: Arc<str>,
    },
    Load {
        destination: DestinationId,
        name: Arc<[u8]>,
        after: Option<QueueEntry>,
        limit: usize,
    },
    Connect {
        way: ConnectTarget,
        connection: ConnectionId,
        post: Arc<ConnectionSignal>,
    },
    Overdue {
        destination: DestinationId,
        name: Arc<[u8]>,
        message: QueueId,
        recipients: Positions,
        kind: Overdue,
    },
    Bounce {
        meant: Vec<RecipientSelection>,
        why: Arc<str>,
        answer: oneshot::Sender<Vec<Bounced>>,
    },
}

/// Owns connections and waits for times, until the server ends and its connections are over.
pub(crate) async fn run(context: Arc<Context>) {
    let Some(dispatch) = context.dispatch.clone() else { return };
    let taken = dispatch.inbox.lock().unwrap_or_else(PoisonError::into_inner).take();
    let Some(mut inbox) = taken else { return };
    restore(&context, &dispatch, Pass::First).await;
    let mut tasks = JoinSet::new();
    loop {
        let pause = dispatch.pause();
        tokio::select! {
            biased;
            () = context.stop.begun() => break,
            Some(errand) = inbox.recv() => begin(&context, &dispatch, &mut tasks, errand),
            Some(_) = tasks.join_next() => {}
            () = dispatch.earlier.notified() => {}
            () = tokio::time::sleep(pause) => dispatch.with_scheduler(|_, _| ()),
        }
    }
    // Work that has not begun is dropped, and its callers see that.
    drop(inbox);
    // Connections see the end themselves, and finish their open transactions.
    while tasks.join_next().await.is_some() {}
}

/// Mail that is looked at after it was moved to its present destinations.
#[derive(Clone, Copy)]
enum Pass {
    /// All waiting mail, at the start. Mail that came since is in progress already.
    First,
    /// All waiting mail, and every host: the configuration has changed where it goes.
    Anew,
    /// The mail that was moved.
    Moved,
}

/// Moves mail to its present destinations, and makes it due there.
async fn restore(context: &Arc<Context>, dispatch: &Arc<Dispatch>, pass: Pass) {
    #[cfg(test)]
    dispatch.passes.fetch_add(1, Ordering::Relaxed);
    let (live, spool) = (context.live.load_full(), Arc::clone(&dispatch.spool));
    let (config, routing) = (live.config.clone(), context.routing.load_full());
    let dispatcher = Arc::clone(dispatch);
    let alone = move |step: &mut dyn FnMut(&mut Scheduler)| dispatcher.move_alone(step);
    let moved = Arc::new(Mutex::new(rehome::Moved::default()));
    let counts = Arc::clone(&moved);
    // The counts hold also for mail that was moved before an error or a panic.
    let outcome = blocking::run(move || rehome::rehome(&spool, &config, &routing, &alone, &counts));
    if let Ok(Err(error)) = outcome.await {
        let text = format!("mail that waits for old hosts cannot be given new destinations: {error}");
        context.record(&Event::Spool { severity: Severity::Error, text: &text });
    }
    let moved = std::mem::take(&mut *moved.lock().unwrap_or_else(PoisonError::into_inner));
    // With `delivery.mode = "queue"` the scheduler leaves alone mail that was not released.
    match pass {
        Pass::First => dispatch.restore(false),
        Pass::Anew => dispatch.restore(true),
        Pass::Moved => {
            let names: Vec<Bytes> = moved.to.into_iter().map(Bytes::from).collect();
            dispatch.retry(Destinations::These(&names));
        }
    }
    // The next pass uses the configuration of its time: one pass is enough for all requests.
    let is_left = moved.left > 0;
    #[cfg(test)]
    let is_left = is_left || is_sabotaged(Sabotage::PassOn);
    #[cfg(test)]
    if is_sabotaged(Sabotage::PassEach) {
        dispatch.rehomes_again.store(false, Ordering::Release);
    }
    if is_left && !dispatch.rehomes_again.swap(true, Ordering::AcqRel) {
        tokio::select! {
            () = context.stop.begun() => {}
            () = tokio::time::sleep(REHOME_AGAIN) => {
                dispatch.rehomes_again.store(false, Ordering::Release);
                dispatch.send(Task::Rehome);
            }
        }
    }
}

/// Puts a new configuration in force for waiting mail.
pub(crate) fn reconfigure(context: &Arc<Context>, renewal: &Renewal) {
    let Some(dispatch) = &context.dispatch else { return };
    dispatch.configure(&context.live.load().config, context.routing.load_full(), renewal);
    if !renewal.ways().is_empty() {
        dispatch.send(Task::Restore);
    }
}

fn begin(context: &Arc<Context>, dispatch: &Arc<Dispatch>, tasks: &mut JoinSet<()>, errand: Task) {
    let context = Arc::clone(context);
    match errand {
        Task::Restore => {
            let dispatch = Arc::clone(dispatch);
            tasks.spawn(async move { restore(&context, &dispatch, Pass::Anew).await });
        }
        Task::Rehome => {
            let dispatch = Arc::clone(dispatch);
            tasks.spawn(async move { restore(&context, &dispatch, Pass::Moved).await });
        }
        Task::Load { destination, name, after, limit } => dispatch.load(destination, &name, after, limit),
        Task::TaskFuture(task) => {
            tasks.spawn(task);
        }
        Task::Defer { jobs, why } => {
            tasks.spawn(async move { deliver::defer(&context, jobs, &why).await });
        }
        Task::Resolve { destination, name } => {
            let dispatch = Arc::clone(dispatch);
            let owed = CompletionGuard::new({
                let (context, dispatch, name) = (Arc::clone(&context), Arc::clone(&dispatch), Arc::clone(&name));
                move || hosts_not_found(&context, &dispatch, destination, &name)
            });
            tasks.spawn(async move { find_hosts(&context, &dispatch, destination, &name, owed).await });
        }
        Task::Connect { way, connection, post } => {
            let guard = Closing { dispatch: Arc::clone(dispatch), connection };
            tasks.spawn(async move {
                deliver::run(context, way, connection, post).await;
                drop(guard);
            });
        }
        Task::Bounce { meant, why, answer } => {
            let dispatch = Arc::clone(dispatch);
            tasks.spawn(async move {
                let bounced = bounce::bounce(&context, &dispatch, meant, &why).await;
                // The caller may have gone.
                drop(answer.send(bounced));
            });
        }
        Task::Overdue { destination, name, message, recipients, kind } => {
            let dispatch = Arc::clone(dispatch);
            let owed = CompletionGuard::new({
                let (dispatch, recipients) = (Arc::clone(&dispatch), recipients.clone());
                move || {
                    if kind == Overdue::ByTime {
                        let again = dispatch.now() + settle::REPORT_AGAIN;
                        return dispatch.timed(destination, message, &recipients, Some(again));
                    }
                    dispatch.settled(destination, message, &recipients, kind, settle::REPORT_AGAIN);
                }
            });
            tasks.spawn(async move {
                // Closed never.
                let permit = dispatch.tellings.acquire().await;
                if kind == Overdue::ByTime {
                    let again = overdue::settle_by_time(&context, &dispatch, &name, message, &recipients).await;
                    drop(permit);
                    owed.complete();
                    return dispatch.timed(destination, message, &recipients, again);
                }
                let pause = overdue::settle(&context, &dispatch, &name, message, &recipients, kind).await;
                drop(permit);
                owed.complete();
                dispatch.settled(destination, message, &recipients, kind, pause);
            });
        }
    }
}

/// Asks where the mail of a destination goes. The answer is `owed`.
async fn find_hosts<F: FnOnce()>(
    context: &Arc<Context>,
    dispatch: &Arc<Dispatch>,
    destination: DestinationId,
    name: &Arc<[u8]>,
    owed: CompletionGuard<F>,
) {
    let live = context.live.load_full();
    let resolver = context.resolver.load_full();
    let routing = context.routing.load_full();
    let asked = resolve::site(&live.config, &routing, &resolver, name, &live.local_identity, destination.get());
    let found = tokio::select! {
        biased;
        found = asked => found,
        // Mail in line is in the spool, so the end of the server loses none.
        () = context.stop.begun() => return owed.complete(),
    };
    owed.complete();
    match found {
        Ok(site) => dispatch.placed(context, destination, name, &site),
        Err(no) if no.permanent => dispatch.placed(context, destination, name, &resolve::nowhere(&live.config, name)),
        Err(no) => {
            let jobs = dispatch.unplaced(context, destination, name, &no);
            deliver::unplaced(context, jobs, no).await;
        }
    }
}

/// Has the hosts of a destination looked up again after the look-up broke off.
fn hosts_not_found(context: &Context, dispatch: &Dispatch, destination: DestinationId, name: &Arc<[u8]>) {
    // RFC 3463 §3.4: other mail system status
    let status = EnhancedCode::of(Outcome::Transient, 3, 0);
    let no = NoHosts { permanent: false, status, text: BROKE_OFF.to_owned(), is_ours: true };
    let jobs = dispatch.unplaced(context, destination, name, &no);
    if !jobs.is_empty() {
        dispatch.send(Task::Defer { jobs, why: Arc::from(BROKE_OFF) });
    }
}

/// Removes a connection from the scheduler at the end of its task, whether or not that succeeded.
struct Closing {
    dispatch: Arc<Dispatch>,
    connection: ConnectionId,
}

impl Drop for Closing {
    fn drop(&mut self) {
        if self.dispatch.lock().posts.contains_key(&self.connection) {
            drop(self.dispatch.closed(self.connection));
        }
    }
}

#[cfg(test)]
mod tests;

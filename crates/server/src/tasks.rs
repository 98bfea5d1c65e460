//! Starts a task for each request of dispatch: connections, look-ups, lists, reports on mail that is overdue.
//!
//! One task ([`run`]) takes the requests and owns the tasks; at the end of the server it waits until all have ended.

use crate::deliver;
use crate::dispatch::{self, ConnectionGuard, Dispatch, Pass, Task};
use crate::outbound::Outbound;
use std::sync::Arc;
use tokio::task::JoinSet;

/// Starts the tasks and wakes the scheduler when mail is due, until the server ends and its connections are closed.
pub(crate) async fn run(outbound: Arc<Outbound>) {
    let Some(dispatch) = outbound.dispatch.clone() else { return };
    let Some(mut inbox) = dispatch.take_inbox() else { return };
    dispatch::restore(&dispatch, Pass::First).await;
    let mut tasks = JoinSet::new();
    loop {
        tokio::select! {
            biased;
            () = outbound.context.stop.begun() => break,
            Some(task) = inbox.recv() => begin(&outbound, &dispatch, &mut tasks, task),
            Some(_) = tasks.join_next() => {}
            () = dispatch.next_due() => {}
        }
    }
    // Work that has not begun is dropped, and its callers see that.
    drop(inbox);
    // Connections see the end themselves, and finish their open transactions.
    while tasks.join_next().await.is_some() {}
}

/// Starts a task, which `tasks` owns.
pub(crate) fn begin(outbound: &Arc<Outbound>, dispatch: &Arc<Dispatch>, tasks: &mut JoinSet<()>, task: Task) {
    let outbound = Arc::clone(outbound);
    match task {
        Task::Restore => {
            let dispatch = Arc::clone(dispatch);
            tasks.spawn(async move { dispatch::restore(&dispatch, Pass::Anew).await });
        }
        Task::Rehome => {
            let dispatch = Arc::clone(dispatch);
            tasks.spawn(async move { dispatch::restore(&dispatch, Pass::Moved).await });
        }
        Task::Load { destination, name, after, limit } => dispatch.load(destination, &name, after, limit),
        Task::TaskFuture(future) => {
            tasks.spawn(future);
        }
        Task::Defer { jobs, why } => {
            let dispatch = Arc::clone(dispatch);
            tasks.spawn(async move { deliver::defer(&dispatch, jobs, &why).await });
        }
        Task::DeferUnplaced { jobs, no } => {
            let dispatch = Arc::clone(dispatch);
            tasks.spawn(async move { deliver::unplaced(&dispatch, jobs, no).await });
        }
        Task::Resolve { name } => {
            tasks.spawn(dispatch::answer_resolve(Arc::clone(dispatch), name));
        }
        Task::Connect { way, connection, post } => {
            let dispatch = Arc::clone(dispatch);
            let guard = ConnectionGuard { dispatch: Arc::clone(&dispatch), connection };
            tasks.spawn(async move {
                deliver::run(outbound, dispatch, way, connection, post).await;
                drop(guard);
            });
        }
        Task::Bounce { meant, why, answer } => {
            let dispatch = Arc::clone(dispatch);
            tasks.spawn(async move {
                let bounced = dispatch::bounce(&dispatch, meant, &why).await;
                // The receiver may have gone.
                drop(answer.send(bounced));
            });
        }
        Task::Resubmit { order, answer } => {
            let dispatch = Arc::clone(dispatch);
            tasks.spawn(async move {
                let resubmitted = dispatch::resubmit(&dispatch, order).await;
                // The receiver may have gone.
                drop(answer.send(resubmitted));
            });
        }
        Task::Overdue { destination, name, message, recipients, kind } => {
            let dispatch = Arc::clone(dispatch);
            tasks.spawn(dispatch::answer_overdue(dispatch, (destination, name), message, recipients, kind));
        }
    }
}

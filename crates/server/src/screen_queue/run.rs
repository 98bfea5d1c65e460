//! The workers: each asks the filters of one message, and carries their verdict out.

use super::ScreenQueue;
use super::apply::apply;
use super::ask::ask_filters;
use super::effect::{MessageEffect, RecipientEffect, effect_of};
use super::rest::rest;
use super::restore::restore;
use super::waiting::{WaitingError, WaitingMessage};
use crate::completion_guard::CompletionGuard;
use crate::sabotage::{Sabotage, is_sabotaged};
use mail::QueueId;
use observe::{Event, Reason, Severity};
use spool::Status;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;

/// Recipients of a message whose reason to wait is shown.
const REASONS_MAX: usize = 100;

impl ScreenQueue {
    /// Has messages screened until the server stops. Then filters are asked no more, and verdicts that are there are
    /// carried out.
    ///
    /// # Cancel safety
    /// Yes: the next start goes on.
    pub(crate) async fn run(self: Arc<Self>) {
        restore(&self).await;
        let mut jobs = JoinSet::new();
        while !self.context.stop.has_begun() {
            let workers = usize::try_from(self.context.live.load().config.screen.workers).unwrap_or(usize::MAX);
            self.begin_jobs(&mut jobs, workers);
            let pause = self.backlog().next_time(workers).map(|at| at.saturating_sub(self.context.unix_now()));
            tokio::select! {
                () = self.context.stop.begun() => {}
                () = self.bell.notified() => {}
                // A panic is reported where it happens.
                Some(_) = jobs.join_next() => {}
                () = tokio::time::sleep(pause.unwrap_or(Duration::MAX)), if pause.is_some() => {}
            }
        }
        while jobs.join_next().await.is_some() {}
    }

    /// Begins to work on as many messages as there are workers.
    fn begin_jobs(self: &Arc<Self>, jobs: &mut JoinSet<()>, workers: usize) {
        let now = self.context.unix_now();
        while let Some(id) = self.backlog().next(now, workers) {
            jobs.spawn(screen(Arc::clone(self), id));
        }
    }

    /// The message got no verdict.
    fn put_off(&self, id: QueueId, error: Option<&str>) {
        self.backlog().later(id, error, self.context.unix_now());
        self.bell.notify_one();
    }

    fn report_error(&self, id: QueueId, why: &str) {
        let text = format!("message {id} waits for its filters on: {why}");
        self.context.record(&Event::Spool { severity: Severity::Error, text: &text });
    }
}

/// Screens one message.
pub(super) async fn screen(queue: Arc<ScreenQueue>, id: QueueId) {
    let guard = CompletionGuard::new({
        let queue = Arc::clone(&queue);
        move || queue.put_off(id, None)
    });
    tokio::select! {
        () = rest(&queue, id) => {}
        () = queue.context.stop.begun() => return,
    }
    let mut message = match WaitingMessage::read(&queue, id).await {
        Ok(message) => message,
        Err(WaitingError::Nothing) => {
            guard.complete();
            return queue.backlog().remove(id);
        }
        Err(WaitingError::Unread(why)) => {
            queue.report_error(id, &format!("{why}; {}", why.advice()));
            return;
        }
    };
    if is_sabotaged(Sabotage::ReleaseUnscreened) {
        let unscreened = MessageEffect::Judged {
            refused: Vec::new(),
            undecided: Vec::new(),
            others: RecipientEffect::Deliver,
            changes: None,
        };
        drop(apply(&queue, message, unscreened).await);
        return;
    }
    let answer = tokio::select! {
        answer = ask_filters(&queue, &mut message) => answer,
        () = queue.context.stop.begun() => return,
    };
    let effect = effect_of(&message, answer, keep_until(&queue), is_over(&queue, &message));
    let effect = match effect {
        MessageEffect::Later { error, is_failure } => {
            guard.complete();
            remember(&queue, &message, &error);
            if !is_failure {
                queue.backlog().answered(id);
            }
            return queue.put_off(id, is_failure.then_some(error.as_str()));
        }
        effect => effect,
    };
    // The worker is free for the next message while the spool writes.
    queue.backlog().answered(id);
    queue.bell.notify_one();
    let is_decided = !matches!(&effect, MessageEffect::Judged { undecided, .. } if !undecided.is_empty());
    if let Err(why) = apply(&queue, message, effect).await {
        // The guard has it asked about again.
        return queue.report_error(id, &why);
    }
    guard.complete();
    match is_decided {
        true => queue.backlog().remove(id),
        false => {
            queue.backlog().again(id, queue.context.unix_now());
            queue.bell.notify_one();
        }
    }
}

/// Returns the end of a quarantine that begins now, in seconds since 1970.
fn keep_until(queue: &ScreenQueue) -> u32 {
    let keep = queue.context.live.load().config.quarantine.keep;
    u32::try_from((queue.context.unix_now() + keep).as_secs()).unwrap_or(u32::MAX)
}

/// Returns whether a message has waited for as long as any mail may.
fn is_over(queue: &ScreenQueue, message: &WaitingMessage) -> bool {
    let give_up_after = queue.context.live.load().config.delivery.give_up_after;
    let envelope = &message.envelope;
    queue.context.now_of(envelope).saturating_sub(envelope.waits_since()) >= give_up_after
}

/// Keeps the reason why the recipients of a message wait, for the queue commands.
fn remember(queue: &ScreenQueue, message: &WaitingMessage, why: &str) {
    let reasons = &queue.dispatch.settler.reasons;
    for (position, ..) in message.recipients.iter().take(REASONS_MAX) {
        reasons.remember(message.envelope.id, *position, Status::Held, Reason::Other, why);
    }
}

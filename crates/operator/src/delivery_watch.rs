//! Passes the outcome of a message to a command that waits for it (`sendmail -odi`).
//!
//! The watchers get the events that the log gets, so the two cannot disagree. Delivery does not wait for a watcher: an
//! outcome for which a watcher has no room is lost to this watcher alone.

use mail::QueueId;
use observe::{Event, Stat};
use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc;

/// DeliveryWatchers that wait for one listener.
const WAITING_MAX: usize = 1_024;

/// Holds the result of an attempt.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeliveryResult {
    /// `<a@b>`
    pub to: Vec<String>,
    /// `sent`, `deferred`, `failed`
    pub stat: &'static str,
    /// `5.1.1`
    pub status: String,
    /// In words.
    pub text: String,
}

/// Holds the watchers of all messages.
#[derive(Debug, Default)]
pub struct DeliveryWatchers {
    watched: Arc<WatcherTable>,
}

#[derive(Debug, Default)]
struct WatcherTable {
    count: AtomicUsize,
    listeners: Mutex<HashMap<QueueId, mpsc::Sender<DeliveryResult>>>,
}

impl WatcherTable {
    fn lock(&self) -> MutexGuard<'_, HashMap<QueueId, mpsc::Sender<DeliveryResult>>> {
        self.listeners.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One message that is watched, until this is dropped.
#[derive(Debug)]
pub struct DeliveryWatch {
    id: QueueId,
    outcomes: mpsc::Receiver<DeliveryResult>,
    watched: Arc<WatcherTable>,
}

impl DeliveryWatchers {
    /// Watches a message from now on.
    #[must_use]
    pub fn watch(&self, id: QueueId) -> DeliveryWatch {
        let (sender, outcomes) = mpsc::channel(WAITING_MAX);
        let mut listeners = self.watched.lock();
        listeners.insert(id, sender);
        self.watched.count.store(listeners.len(), Ordering::Release);
        drop(listeners);
        DeliveryWatch { id, outcomes, watched: Arc::clone(&self.watched) }
    }

    /// Passes an event to the watcher of its message.
    pub fn notify_watcher(&self, event: &Event<'_>) {
        let Event::Delivery { id, to, dsn, stat, reply, .. } = event else { return };
        // Most of the time no message is watched.
        if self.watched.count.load(Ordering::Acquire) == 0 {
            return;
        }
        let Some(listener) = self.watched.lock().get(id).cloned() else { return };
        let text = match (stat, reply) {
            (Stat::Failed(_), Some(reply)) => reply.to_string(),
            _ => stat.text().to_owned(),
        };
        let to = to.iter().map(|one| (*one).to_owned()).collect();
        let outcome = DeliveryResult { to, stat: stat.word(), status: dsn.to_string(), text };
        listener.try_send(outcome).unwrap_or(());
    }
}

impl DeliveryWatch {
    /// Waits for the next result and returns it.
    ///
    /// # Cancel safety
    /// Yes.
    pub async fn next_result(&mut self) -> Option<DeliveryResult> {
        self.outcomes.recv().await
    }
}

impl Drop for DeliveryWatch {
    fn drop(&mut self) {
        let mut listeners = self.watched.lock();
        listeners.remove(&self.id);
        self.watched.count.store(listeners.len(), Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::EnhancedCode;
    use observe::NextHop;
    use std::time::Duration;

    #[test]
    fn who_watches_hears_of_his_message_alone() {
        let outcomes = DeliveryWatchers::default();
        let delivered = |id| Event::Delivery {
            id,
            to: &["<a@b.test>"],
            controller: None,
            delay: Duration::ZERO,
            xdelay: Duration::ZERO,
            phases: mail::PhaseTimes::default(),
            mailer: "esmtp",
            priority: 0,
            relay: NextHop::None,
            dsn: EnhancedCode::of(mail::Outcome::Success, 0, 0),
            reply: None,
            stat: Stat::Sent("Ok"),
            reason: None,
        };
        let other = QueueId::from_u64(QueueId::MIN.to_u64() + 4_096).unwrap();
        let mut watch = outcomes.watch(QueueId::MIN);
        outcomes.notify_watcher(&delivered(other));
        outcomes.notify_watcher(&delivered(QueueId::MIN));
        let heard = watch.outcomes.try_recv().unwrap();
        assert_eq!((heard.to.as_slice(), heard.stat), (&["<a@b.test>".to_owned()][..], "sent"));
        assert!(watch.outcomes.try_recv().is_err());
        drop(watch);
        assert_eq!(outcomes.watched.count.load(Ordering::Acquire), 0);
        outcomes.notify_watcher(&delivered(QueueId::MIN));
    }
}

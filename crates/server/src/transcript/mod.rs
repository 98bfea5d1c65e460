//! Live transcripts of the SMTP dialogs with a destination, for an operator who watches it.
//!
//! A connection looks at one number in memory while nobody watches. While somebody does, it copies commands and replies
//! as lines; the content of messages is replaced by its size, and what AUTH says by `***` ([`filter`]). A watcher that
//! does not keep up misses lines and learns how many; no connection ever waits for one.

mod filter;

pub(crate) use filter::DialogFilter;

use serde_json::{Map, Value, json};
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::mpsc;

/// Watchers at the same time; more are refused as busy.
pub(crate) const WATCHERS_MAX: usize = 8;
/// Lines that wait for a watcher to take them.
const LINES_WAITING_MAX: usize = 1_000;

/// The watchers of all connections.
#[derive(Debug, Default)]
pub(crate) struct Transcripts {
    /// How many there are: all that a connection looks at without one.
    count: AtomicUsize,
    next: AtomicU64,
    watchers: Mutex<Vec<Watcher>>,
}

#[derive(Debug)]
struct Watcher {
    number: u64,
    /// Lower case, with `*` for any text.
    pattern: Box<str>,
    lines: mpsc::Sender<Map<String, Value>>,
    /// Lines that found no room.
    missed: Arc<AtomicU64>,
}

/// The lines of a destination; ends when it is dropped.
#[derive(Debug)]
pub(crate) struct TranscriptLines {
    pub(crate) lines: mpsc::Receiver<Map<String, Value>>,
    pub(crate) missed: Arc<AtomicU64>,
    number: u64,
    of: Arc<Transcripts>,
}

/// A connection, as watchers choose and see it.
#[derive(Clone, Debug)]
pub(crate) struct DialogPlace {
    /// Its number.
    pub(crate) connection: u64,
    /// The destination for which it was opened, and its hosts.
    pub(crate) names: Arc<[String]>,
    /// The host, as the log names it.
    pub(crate) host: Box<str>,
}

impl Transcripts {
    /// Watches destinations, sites or hosts with such a name. `None`: there are [`WATCHERS_MAX`].
    pub(crate) fn watch(self: &Arc<Self>, pattern: &str) -> Option<TranscriptLines> {
        let mut watchers = self.lock();
        if watchers.len() >= WATCHERS_MAX {
            return None;
        }
        let (sender, lines) = mpsc::channel(LINES_WAITING_MAX);
        let (number, missed) = (self.next.fetch_add(1, Ordering::Relaxed), Arc::default());
        let pattern = pattern.to_lowercase().into();
        watchers.push(Watcher { number, pattern, lines: sender, missed: Arc::clone(&missed) });
        self.count.store(watchers.len(), Ordering::Release);
        Some(TranscriptLines { lines, missed, number, of: Arc::clone(self) })
    }

    /// Returns whether anybody watches anything.
    pub(crate) fn is_on(&self) -> bool {
        self.count.load(Ordering::Relaxed) > 0
    }

    /// Returns whether anybody watches a connection.
    pub(crate) fn is_watched(&self, place: &DialogPlace) -> bool {
        self.is_on() && self.lock().iter().any(|one| one.is_for(place))
    }

    /// Passes a line on to those that watch the connection. `direction`: `>` to the host, `<` from it, `*` about the
    /// connection.
    pub(crate) fn record(&self, place: &DialogPlace, at_us: u64, direction: &str, text: &str) {
        for watcher in self.lock().iter().filter(|one| one.is_for(place)) {
            let line = Map::from_iter([
                ("at".to_owned(), json!(at_us)),
                ("connection".to_owned(), json!(place.connection)),
                ("host".to_owned(), json!(place.host)),
                ("direction".to_owned(), json!(direction)),
                ("text".to_owned(), json!(text)),
            ]);
            if watcher.lines.try_send(line).is_err() {
                watcher.missed.fetch_add(1, Ordering::Relaxed);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, Vec<Watcher>> {
        self.watchers.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for TranscriptLines {
    fn drop(&mut self) {
        let mut watchers = self.of.lock();
        watchers.retain(|one| one.number != self.number);
        self.of.count.store(watchers.len(), Ordering::Release);
    }
}

impl Watcher {
    fn is_for(&self, place: &DialogPlace) -> bool {
        let is = |name: &str| operator::queue::glob(&self.pattern, &name.to_lowercase());
        is(&place.host) || place.names.iter().any(|name| is(name))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn place(host: &str) -> DialogPlace {
        let names = ["slow.example".to_owned(), "mx1.slow.example:25 tls=none".to_owned()];
        DialogPlace { connection: 7, names: Arc::new(names), host: host.into() }
    }

    #[tokio::test]
    async fn only_lines_of_the_destination_come_and_none_after_the_end() {
        let transcripts = Arc::new(Transcripts::default());
        assert!(!transcripts.is_on());
        let mut lines = transcripts.watch("SLOW.example").unwrap();
        assert!(transcripts.is_watched(&place("mx1.slow.example")));
        let other = DialogPlace { names: Arc::new(["b.example".to_owned()]), ..place("mx.b.example") };
        assert!(!transcripts.is_watched(&other));
        transcripts.record(&other, 1, ">", "EHLO");
        transcripts.record(&place("mx1.slow.example"), 2, "<", "220 hello");
        let line = lines.lines.recv().await.unwrap();
        assert_eq!((line["at"].as_u64(), line["direction"].as_str()), (Some(2), Some("<")));
        drop(lines);
        assert!(!transcripts.is_on());
    }

    #[test]
    fn a_watcher_that_is_behind_misses_lines_and_stops_nothing() {
        let transcripts = Arc::new(Transcripts::default());
        let lines = transcripts.watch("*").unwrap();
        for number in 0..LINES_WAITING_MAX as u64 + 5 {
            transcripts.record(&place("mx"), number, "<", "x");
        }
        assert_eq!(lines.missed.load(Ordering::Relaxed), 5);
        let others: Vec<_> = std::iter::from_fn(|| transcripts.watch("*")).collect();
        assert_eq!(others.len(), WATCHERS_MAX - 1);
    }
}

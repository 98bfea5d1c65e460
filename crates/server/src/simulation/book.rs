//! The facts that the checkers judge: messages sent, messages that hosts accepted, and crashes of the server.

use mail::Notify;
use std::collections::{HashMap, HashSet};
use std::sync::{Mutex, MutexGuard};
use std::time::Duration;
use tokio::time::Instant;

/// The wall time at which every run begins: 2026-01-01 00:00 UTC.
pub(super) const EPOCH: Duration = Duration::from_secs(1_767_225_600);

/// Answer to a sender for its message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It was not sent to its end.
    Unsent,
    /// It was sent, and no answer came.
    Unknown,
    /// It was refused.
    Refused,
    /// `250`, at this time.
    Accepted(Duration),
}

/// A message as its sender has it.
#[derive(Debug)]
pub(super) struct Sent {
    /// Empty for the null sender.
    pub(super) sender: String,
    /// Each address is used once in a run.
    pub(super) recipients: Vec<(String, Option<Notify>)>,
    pub(super) content: Vec<u8>,
    pub(super) is_eight_bit: bool,
    /// MT-PRIORITY
    pub(super) priority: Option<i8>,
    /// When it is to be sent.
    pub(super) at: Duration,
    pub(super) answer: Answer,
}

/// A message that a host took.
#[derive(Debug)]
pub(super) struct Taken {
    pub(super) host: usize,
    pub(super) at: Duration,
    pub(super) sender: String,
    /// With the parameters that came with each.
    pub(super) recipients: Vec<(String, String)>,
    pub(super) content: Vec<u8>,
    /// When the `250` was written.
    pub(super) acked: Option<Duration>,
    /// The host did not want to answer.
    pub(super) is_silent: bool,
}

/// All facts of a run.
#[derive(Debug, Default)]
pub(super) struct Facts {
    pub(super) sent: Vec<Sent>,
    pub(super) taken: Vec<Taken>,
    /// Recipients that a host refused for good, in any form.
    pub(super) refused: HashSet<String>,
    /// Senders whose mail was refused for good before recipients were named.
    pub(super) refused_senders: HashSet<String>,
    /// Recipients that the operator deleted.
    pub(super) deleted: HashSet<String>,
    /// Recipients that the operator held, and for how long.
    pub(super) held: HashMap<String, Duration>,
    /// Power cuts and kills.
    pub(super) crashes: Vec<Duration>,
    /// When the server went down and came up again.
    pub(super) downs: Vec<(Duration, Duration)>,
    /// When the run ended.
    pub(super) ended: Duration,
    /// Connections at each host, and the most there were.
    pub(super) connections: Vec<(usize, usize)>,
    /// The group below of each host; empty if groups are not counted.
    pub(super) group_of: Vec<usize>,
    /// The most connections that the hosts of a group had together.
    pub(super) groups_most: Vec<usize>,
    /// Connection attempts.
    pub(super) dialled: usize,
    /// The same, at each host.
    pub(super) dials: Vec<usize>,
    /// The most connections at one time.
    pub(super) connections_most: usize,
    /// Faults seen during the run.
    pub(super) wrong: Vec<String>,
}

/// The facts of a run, shared by all tasks that add to them.
#[derive(Debug)]
pub(super) struct Book {
    began: Instant,
    facts: Mutex<Facts>,
    /// Lines to print, if asked for.
    is_loud: bool,
}

impl Book {
    pub(super) fn new(hosts: usize) -> Self {
        let facts = Facts { connections: vec![(0, 0); hosts], dials: vec![0; hosts], ..Facts::default() };
        Self { began: Instant::now(), facts: Mutex::new(facts), is_loud: std::env::var_os("SIM_LOG").is_some() }
    }

    /// Returns the time since the run began.
    pub(super) fn now(&self) -> Duration {
        self.began.elapsed()
    }

    pub(super) fn facts(&self) -> MutexGuard<'_, Facts> {
        self.facts.lock().unwrap()
    }

    /// Something is wrong.
    pub(super) fn wrong(&self, what: String) {
        self.note(|| format!("WRONG {what}"));
        let at = self.now();
        self.facts().wrong.push(format!("{at:?}: {what}"));
    }

    /// Notes an event for a person who looks for a fault.
    pub(super) fn note(&self, what: impl FnOnce() -> String) {
        if self.is_loud {
            println!("{:12.3} {}", self.now().as_secs_f64(), what());
        }
    }
}

/// Counts a connection at a host while it lives.
pub(super) struct Counted {
    book: std::sync::Arc<Book>,
    host: usize,
}

impl Counted {
    pub(super) fn new(book: &std::sync::Arc<Book>, host: usize) -> Self {
        let mut facts = book.facts();
        facts.dialled += 1;
        facts.dials[host] += 1;
        facts.connections[host].0 += 1;
        let now = facts.connections[host].0;
        drop(facts);
        book.note(|| format!("host {host}: {now} connections"));
        Self { book: std::sync::Arc::clone(book), host }
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        let host = self.host;
        self.book.facts().connections[host].0 -= 1;
        self.book.note(|| format!("host {host}: one connection less"));
    }
}

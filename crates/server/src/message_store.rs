//! Where accepted messages go: the spool, or nowhere (`mailrace sink`).

use crate::cluster::ClusterMember;
use crate::server_clock::ServerClock;
use mail::{PastIds, QueueId, QueueIds};
use os::clock;
use spool::{Pressure, Spool, Store as _};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, OnceLock, PoisonError};

/// Where accepted messages go.
#[derive(Debug)]
pub enum MessageStore {
    /// The durable store.
    Spool {
        /// The store.
        spool: Arc<Spool>,
        /// Names for new messages.
        ids: Mutex<QueueIds>,
        /// Names for messages that another server accepted earlier.
        past: Mutex<PastIds>,
        /// The time of new messages; without one they have that of the wall clock.
        clock: Option<Arc<ServerClock>>,
        /// The node of a cluster that copies new messages, once it has started.
        cluster: Box<OnceLock<ClusterMember>>,
    },
    /// Counts messages and forgets them; `mailrace sink` uses it.
    Discard {
        /// Names for new messages.
        ids: Mutex<QueueIds>,
        /// Messages so far.
        messages: AtomicU64,
        /// Octets of content, with trace lines.
        bytes: AtomicU64,
    },
}

impl MessageStore {
    /// Stores messages in `spool`, which is open for the `epoch`th time.
    #[must_use]
    pub fn spool(spool: Arc<Spool>, ids: QueueIds, epoch: u64) -> Self {
        let past = Mutex::new(PastIds::of_epoch(ids.home(), epoch));
        Self::Spool { spool, ids: Mutex::new(ids), past, clock: None, cluster: Box::default() }
    }

    /// Has new messages copied by this node of a cluster. The first one counts.
    pub(crate) fn copy_by(&self, member: ClusterMember) {
        if let Self::Spool { cluster, .. } = self {
            drop(cluster.set(member));
        }
    }

    /// The node of a cluster; `None` on a machine alone.
    pub(crate) fn cluster(&self) -> Option<&ClusterMember> {
        match self {
            Self::Spool { cluster, .. } => cluster.get(),
            Self::Discard { .. } => None,
        }
    }

    /// Has new messages get the server's time.
    #[must_use]
    pub(crate) fn timed_by(mut self, server_clock: &Arc<ServerClock>) -> Self {
        if let Self::Spool { clock, .. } = &mut self {
            *clock = Some(Arc::clone(server_clock));
        }
        self
    }

    /// Returns the time of a message that comes now, in microseconds since 1970.
    fn now_us(&self) -> u64 {
        match self {
            Self::Spool { clock: Some(clock), .. } => u64::try_from(clock.now().as_micros()).unwrap_or(u64::MAX),
            Self::Spool { .. } | Self::Discard { .. } => clock::unix_us(),
        }
    }

    /// Stores nothing.
    #[must_use]
    pub fn discard(ids: QueueIds) -> Self {
        Self::Discard { ids: Mutex::new(ids), messages: AtomicU64::new(0), bytes: AtomicU64::new(0) }
    }

    /// Returns the queue id of a new message.
    pub fn next_id(&self) -> QueueId {
        let (Self::Spool { ids, .. } | Self::Discard { ids, .. }) = self;
        ids.lock().unwrap_or_else(PoisonError::into_inner).next(self.now_us())
    }

    /// Returns whether a message came since the start: its id was given here.
    pub(crate) fn has_named(&self, id: QueueId) -> bool {
        let (Self::Spool { ids, .. } | Self::Discard { ids, .. }) = self;
        ids.lock().unwrap_or_else(PoisonError::into_inner).has_given(id)
    }

    /// Returns the queue id of a message that came at `at_us`, in microseconds since 1970, and waited elsewhere until
    /// now.
    pub(crate) fn past_id(&self, at_us: u64) -> QueueId {
        let Self::Spool { past, spool, .. } = self else { return self.next_id() };
        let mut past = past.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            let id = past.next(at_us, self.now_us());
            if spool.states(id).is_empty() {
                return id;
            }
        }
    }

    /// The most octets of a header section that are stored apart from the body.
    #[must_use]
    pub fn header_bytes_max(&self) -> usize {
        match self {
            Self::Spool { spool, .. } => spool.header_bytes_max(),
            Self::Discard { .. } => 256 << 10,
        }
    }

    /// How short of room the store is.
    #[must_use]
    pub fn pressure(&self) -> Pressure {
        match self {
            Self::Spool { spool, .. } => spool.pressure(),
            Self::Discard { .. } => Pressure::None,
        }
    }

    /// Returns figures of the spool; zeroes for a sink.
    #[must_use]
    pub fn statistics(&self) -> spool::Statistics {
        match self {
            Self::Spool { spool, .. } => spool.statistics(),
            Self::Discard { .. } => spool::Statistics::default(),
        }
    }

    /// Messages and octets forgotten so far; zero for a spool, whose own figures say more.
    #[must_use]
    pub fn forgotten(&self) -> (u64, u64) {
        match self {
            Self::Spool { .. } => (0, 0),
            Self::Discard { messages, bytes, .. } => (messages.load(Ordering::Relaxed), bytes.load(Ordering::Relaxed)),
        }
    }
}

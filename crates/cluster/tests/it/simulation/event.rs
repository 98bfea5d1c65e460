//! The events of a run, in the order of their times.

use cluster::{CoordinationReply, CoordinationRequest, LogReply, LogRequest, StreamId, Token};
use mail::QueueId;

/// Happens at a moment of the run.
#[derive(Debug)]
pub(super) enum Event {
    Submit {
        node: usize,
    },
    /// The next piece of a body that arrives, from this octet on.
    Piece {
        node: usize,
        life: u32,
        id: QueueId,
        recipients: u32,
        from: usize,
    },
    AtEngine {
        from: usize,
        life: u32,
        engine: usize,
        token: Token,
        request: LogRequest,
    },
    AtStore {
        from: usize,
        life: u32,
        engine: usize,
        token: Token,
        request: CoordinationRequest,
    },
    LogAnswer {
        node: usize,
        life: u32,
        engine: usize,
        token: Token,
        reply: LogReply,
    },
    StoreAnswer {
        node: usize,
        life: u32,
        engine: usize,
        token: Token,
        reply: CoordinationReply,
    },
    /// A watch tells a node of a key.
    Changed {
        node: usize,
        life: u32,
        key: String,
    },
    Wake {
        node: usize,
        life: u32,
        at: u64,
    },
    Synced {
        node: usize,
        life: u32,
        id: QueueId,
    },
    Forgotten {
        node: usize,
        life: u32,
        stream: StreamId,
    },
    Read {
        node: usize,
        life: u32,
        id: QueueId,
    },
    Tick {
        node: usize,
        life: u32,
    },
    Dot {
        node: usize,
        life: u32,
        id: QueueId,
        recipient: u32,
    },
    Taken {
        node: usize,
        life: u32,
        id: QueueId,
        recipient: u32,
        is_delivered: bool,
    },
    Begin(usize),
    Heal(usize),
    /// An operator has a node adopt the mail of another one.
    Order(usize),
    SyncEngines,
}

impl Event {
    /// The process that takes the event, if one does.
    pub(super) const fn process(&self) -> Option<(usize, u32)> {
        match self {
            Self::LogAnswer { node, life, .. }
            | Self::StoreAnswer { node, life, .. }
            | Self::Piece { node, life, .. }
            | Self::Changed { node, life, .. }
            | Self::Wake { node, life, .. }
            | Self::Synced { node, life, .. }
            | Self::Forgotten { node, life, .. }
            | Self::Read { node, life, .. }
            | Self::Tick { node, life }
            | Self::Dot { node, life, .. }
            | Self::Taken { node, life, .. } => Some((*node, *life)),
            _ => None,
        }
    }
}

/// An event with its time and its number: the least of both comes first.
pub(super) struct Due(pub(super) u64, pub(super) u64, pub(super) Event);

impl PartialEq for Due {
    fn eq(&self, other: &Self) -> bool {
        (self.0, self.1) == (other.0, other.1)
    }
}
impl Eq for Due {}
impl PartialOrd for Due {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}
impl Ord for Due {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (other.0, other.1).cmp(&(self.0, self.1))
    }
}

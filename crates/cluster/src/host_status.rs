//! Hosts that a node finds down, throttling or without the TLS that mail waits for, told to the other nodes, so that
//! the cluster pays for a dead host once.
//!
//! The state is soft: a message that is lost or late costs an attempt and nothing else, and one that is wrong delays
//! the mail for a host by the back-off of the node that believes it. A node publishes a next hop once a second at most,
//! the last state counts, and no more than [`PUBLISHED_PER_SECOND_MAX`] messages a second in all.
//!
//! Not here: whether a node has mail for a host and what a report does to it (`schedule`).

use crate::identity::NodeId;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::time::Duration;

/// Time between two messages of a node about one next hop.
pub const PUBLISH_INTERVAL: Duration = Duration::from_secs(1);
/// Messages that a node publishes in a second; others wait for the next one.
pub const PUBLISHED_PER_SECOND_MAX: u32 = 50;
/// Messages of other nodes that a node takes in a second; more are dropped.
pub const HEARD_PER_SECOND_MAX: u32 = 1_000;
/// Next hops that are remembered of the messages of this node, and as many of those of others; beyond it new ones are
/// left out.
pub const HOST_STATUS_MAX: usize = 10_000;
/// Time for which a node remembers that it published a failure, from the end of its back-off on.
const PUBLISHED_TTL: Duration = Duration::from_secs(3_600);
/// Octets of the name of a next hop.
const NAME_OCTETS_MAX: usize = 1_024;

/// The state of a host, as one node found it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HostState {
    /// It takes mail.
    Up,
    /// It cannot be reached.
    Down,
    /// It asks for less.
    Throttled,
    /// There is no TLS with it, and mail waits for that.
    TlsBroken,
}

impl HostState {
    /// The word for it, in messages and answers.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Up => "up",
            Self::Down => "down",
            Self::Throttled => "throttled",
            Self::TlsBroken => "tls-broken",
        }
    }
}

/// A message about a next hop.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostStatus {
    /// The node that found it.
    pub node: NodeId,
    /// The state.
    pub state: HostState,
    /// Seconds for which that node leaves it alone.
    pub wait_s: u32,
    /// The next hop by a name that is the same at all nodes, without control characters.
    pub next_hop: String,
}

impl HostStatus {
    /// Reads a message; `None` for any other text.
    #[must_use]
    pub fn parse(message: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(message).ok()?;
        let mut parts = text.splitn(5, ' ');
        if parts.next()? != "mr-host-1" {
            return None;
        }
        let node = NodeId(number(parts.next()?)?);
        let word = parts.next()?;
        let states = [HostState::Up, HostState::Down, HostState::Throttled, HostState::TlsBroken];
        let state = states.into_iter().find(|state| state.word() == word)?;
        let wait_s = number(parts.next()?)?;
        let next_hop = parts.next()?.to_owned();
        let is_plain = !next_hop.is_empty() && !next_hop.contains(char::is_control);
        (is_plain && next_hop.len() <= NAME_OCTETS_MAX).then_some(Self { node, state, wait_s, next_hop })
    }
}

/// A number in its only spelling.
fn number<T: std::str::FromStr + ToString>(text: &str) -> Option<T> {
    text.parse().ok().filter(|number: &T| number.to_string() == text)
}

impl fmt::Display for HostStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { node, state, wait_s, next_hop } = self;
        write!(f, "mr-host-1 {} {} {wait_s} {next_hop}", node.0, state.word())
    }
}

/// A failure that another node reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostReport {
    /// The node.
    pub node: NodeId,
    /// The failure.
    pub state: HostState,
    /// The back-off of that node.
    pub wait: Duration,
    /// When an attempt of this node should come at the earliest: after the next one of that node.
    pub until: Duration,
}

/// The content of a message of another node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostNews {
    /// The node that sent it.
    pub node: NodeId,
    /// The next hop.
    pub next_hop: String,
    /// The report in force; `None`: the host is up.
    pub report: Option<HostReport>,
}

/// Messages since the start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HostStatusCounts {
    /// Published by this node.
    pub sent: u64,
    /// Taken from other nodes.
    pub received: u64,
    /// Dropped: more than [`HEARD_PER_SECOND_MAX`] came, or there was no room.
    pub dropped: u64,
    /// Not readable.
    pub unreadable: u64,
}

/// A next hop that this node found down, or that it found up after a report.
#[derive(Clone, Copy, Debug)]
struct OwnState {
    state: HostState,
    /// The end of the back-off.
    until: Duration,
    published_at: Option<Duration>,
}

/// Messages in the present second.
#[derive(Debug, Default)]
struct SecondCount {
    second: u64,
    count: u32,
}

impl SecondCount {
    /// Counts one more, if fewer than `most` came in this second.
    fn take(&mut self, now: Duration, most: u32) -> bool {
        if self.second != now.as_secs() {
            *self = Self { second: now.as_secs(), count: 0 };
        }
        let is_room = self.count < most;
        self.count += u32::from(is_room);
        is_room
    }
}

/// The states that this node published and those that the others did.
#[derive(Debug)]
pub struct HostStatusBoard {
    node: NodeId,
    own: BTreeMap<String, OwnState>,
    /// Next hops of `own` whose state is to be published.
    owed: BTreeSet<String>,
    heard: BTreeMap<String, HostReport>,
    published: SecondCount,
    taken: SecondCount,
    counts: HostStatusCounts,
    random: u64,
}

impl HostStatusBoard {
    /// The board of a node. Its waits are scattered by the seed.
    #[must_use]
    pub fn new(node: NodeId, seed: u64) -> Self {
        Self {
            node,
            own: BTreeMap::new(),
            owed: BTreeSet::new(),
            heard: BTreeMap::new(),
            published: SecondCount::default(),
            taken: SecondCount::default(),
            counts: HostStatusCounts::default(),
            random: seed,
        }
    }

    /// Takes a result of this node, with its back-off, and returns the message to publish now, if there is one; another
    /// may be due later ([`HostStatusBoard::next_due`]). The report of another node on this next hop is forgotten.
    ///
    /// A host that nobody said to be down need not be said to be up.
    pub fn found(&mut self, now: Duration, next_hop: &str, state: HostState, wait: Duration) -> Option<HostStatus> {
        let was_reported = self.heard.remove(next_hop).is_some();
        let (until, is_full) = (now.saturating_add(wait), self.own.len() >= HOST_STATUS_MAX);
        match self.own.get_mut(next_hop) {
            Some(own) if state == HostState::Up && !was_reported => {
                if own.state == HostState::Up && !self.owed.contains(next_hop) {
                    return None;
                }
                if own.published_at.is_none() {
                    self.own.remove(next_hop);
                    self.owed.remove(next_hop);
                    return None;
                }
                (own.state, own.until) = (state, until);
            }
            Some(own) => (own.state, own.until) = (state, until),
            None if state == HostState::Up && !was_reported || is_full => return None,
            None => {
                self.own.insert(next_hop.to_owned(), OwnState { state, until, published_at: None });
            }
        }
        self.owed.insert(next_hop.to_owned());
        self.publish(now, next_hop)
    }

    /// Returns a message that could not be published before and may be now; to be asked every second until there is
    /// none.
    pub fn next_due(&mut self, now: Duration) -> Option<HostStatus> {
        let is_due = |own: &OwnState| own.published_at.is_none_or(|at| now >= at.saturating_add(PUBLISH_INTERVAL));
        let next = self.owed.iter().find(|name| self.own.get(*name).is_some_and(is_due))?.clone();
        self.publish(now, &next)
    }

    /// Publishes the state of a next hop, if it is time for that.
    fn publish(&mut self, now: Duration, next_hop: &str) -> Option<HostStatus> {
        let own = self.own.get_mut(next_hop)?;
        let is_soon = own.published_at.is_some_and(|at| now < at.saturating_add(PUBLISH_INTERVAL));
        if is_soon || !self.published.take(now, PUBLISHED_PER_SECOND_MAX) {
            return None;
        }
        own.published_at = Some(now);
        self.owed.remove(next_hop);
        self.counts.sent += 1;
        let left = own.until.saturating_sub(now);
        let seconds = left.as_secs().saturating_add(u64::from(left.subsec_nanos() > 0));
        let wait_s = if own.state == HostState::Up { 0 } else { u32::try_from(seconds).unwrap_or(u32::MAX) };
        Some(HostStatus { node: self.node, state: own.state, wait_s, next_hop: next_hop.to_owned() })
    }

    /// Takes a message of another node. A wait counts up to `wait_max`, the longest back-off of this node. `None`: it
    /// is one of this node, cannot be read, or there is no room for it.
    pub fn hear(&mut self, now: Duration, message: &[u8], wait_max: Duration) -> Option<HostNews> {
        if !self.taken.take(now, HEARD_PER_SECOND_MAX) {
            self.counts.dropped += 1;
            return None;
        }
        let Some(HostStatus { node, state, wait_s, next_hop }) = HostStatus::parse(message) else {
            self.counts.unreadable += 1;
            return None;
        };
        if node == self.node {
            return None;
        }
        if state == HostState::Up {
            self.counts.received += 1;
            self.heard.remove(&next_hop);
            return Some(HostNews { node, next_hop, report: None });
        }
        if self.heard.len() >= HOST_STATUS_MAX && !self.heard.contains_key(&next_hop) {
            self.heard.retain(|_, report| now < report.until);
            if self.heard.len() >= HOST_STATUS_MAX {
                self.counts.dropped += 1;
                return None;
            }
        }
        self.counts.received += 1;
        let wait = Duration::from_secs(wait_s.into()).min(wait_max);
        let report =
            HostReport { node, state, wait, until: now.saturating_add(wait).saturating_add(self.spread(wait)) };
        // The longer wait counts, unless its node has corrected it.
        let before = self.heard.get(&next_hop).copied();
        let report = before.filter(|before| before.node != node && before.until > report.until).unwrap_or(report);
        self.heard.insert(next_hop.clone(), report);
        Some(HostNews { node, next_hop, report: Some(report) })
    }

    /// A part of a wait, between an eighth and a half: the node that reported a failure finds out first, and the others
    /// do not all come at once if they hear nothing.
    fn spread(&mut self, wait: Duration) -> Duration {
        self.random = splitmix(self.random);
        let share = u32::try_from(self.random % 375).unwrap_or(0);
        wait / 8 + (wait / 1_000).saturating_mul(share)
    }

    /// The report of another node on a next hop that is in force.
    #[must_use]
    pub fn reported(&self, now: Duration, next_hop: &str) -> Option<HostReport> {
        self.heard.get(next_hop).copied().filter(|report| now < report.until)
    }

    /// All reports that are in force, by next hop.
    pub fn reports(&self, now: Duration) -> impl Iterator<Item = (&str, HostReport)> {
        let all = self.heard.iter().map(|(name, report)| (name.as_str(), *report));
        all.filter(move |(_, report)| now < report.until)
    }

    /// Messages since the start.
    #[must_use]
    pub const fn counts(&self) -> HostStatusCounts {
        self.counts
    }

    /// Forgets what is too old; to be called every minute.
    pub fn expire(&mut self, now: Duration) {
        self.heard.retain(|_, report| now < report.until);
        let lives = |own: &OwnState| match own.state {
            HostState::Up => own.published_at.is_none_or(|at| now < at.saturating_add(PUBLISH_INTERVAL)),
            _ => now < own.until.saturating_add(PUBLISHED_TTL),
        };
        self.own.retain(|_, own| lives(own));
        self.owed.retain(|name| self.own.contains_key(name));
    }
}

/// One step of splitmix64.
const fn splitmix(seed: u64) -> u64 {
    let z = seed.wrapping_add(0x9E37_79B9_7F4A_7C15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NAME: &str = "example.org:25";
    const HOUR: Duration = Duration::from_secs(3_600);

    fn s(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    fn board(node: u16) -> HostStatusBoard {
        HostStatusBoard::new(NodeId(node), 7)
    }

    fn message(node: u16, state: HostState, wait_s: u32) -> Vec<u8> {
        HostStatus { node: NodeId(node), state, wait_s, next_hop: NAME.into() }.to_string().into_bytes()
    }

    /// The state that is published now for a result with a back-off of a minute.
    fn published(board: &mut HostStatusBoard, at: u64, state: HostState) -> Option<(HostState, u32)> {
        board.found(s(at), NAME, state, s(60)).map(|status| (status.state, status.wait_s))
    }

    #[test]
    fn messages_read_back() {
        for state in [HostState::Up, HostState::Down, HostState::Throttled, HostState::TlsBroken] {
            let text = message(3, state, 60);
            let read = HostStatus::parse(&text).unwrap();
            assert_eq!((read.node, read.state, read.wait_s, read.next_hop.as_str()), (NodeId(3), state, 60, NAME));
            assert_eq!(read.to_string().into_bytes(), text);
        }
        let long = format!("mr-host-1 1 down 1 {}", "x".repeat(NAME_OCTETS_MAX + 1));
        for text in [
            "",
            "mr-host-1 1 down 1",
            "mr-host-1 1 down 1 ",
            "mr-host-1 1 down x a",
            "mr-host-1 1 down -1 a",
            "mr-host-1 1 down +1 a",
            "mr-host-1 1 down 4294967296 a",
            "mr-host-1 65536 down 1 a",
            "mr-host-1 1 gone 1 a",
            "mr-host-2 1 down 1 a",
            "mr-host-1 1 down 1 a\nb",
            &long,
        ] {
            assert_eq!(HostStatus::parse(text.as_bytes()), None, "{text}");
        }
        assert_eq!(HostStatus::parse(b"mr-host-1 1 down 1 \xff"), None);
    }

    #[test]
    fn a_next_hop_is_published_once_a_second_and_its_last_state_counts() {
        let mut board = board(1);
        assert_eq!(published(&mut board, 0, HostState::Up), None, "nobody thinks otherwise");
        assert_eq!(published(&mut board, 1, HostState::Down), Some((HostState::Down, 60)));
        assert_eq!(published(&mut board, 2, HostState::Down), Some((HostState::Down, 60)), "its back-off goes on");
        assert_eq!(published(&mut board, 2, HostState::Throttled), None, "too soon");
        assert_eq!(published(&mut board, 2, HostState::Up), None, "too soon");
        assert_eq!(board.next_due(s(2)), None);
        let due = board.next_due(s(3)).unwrap();
        assert_eq!((due.state, due.wait_s), (HostState::Up, 0));
        assert_eq!((board.next_due(s(4)), published(&mut board, 5, HostState::Up)), (None, None));
        assert_eq!(published(&mut board, 5, HostState::Down), Some((HostState::Down, 60)));
        assert_eq!(board.counts().sent, 4);
    }

    #[test]
    fn messages_of_a_second_are_bounded_and_the_rest_follows() {
        let mut board = board(1);
        let most = usize::try_from(PUBLISHED_PER_SECOND_MAX).unwrap();
        let names: Vec<String> = (0..most + 10).map(|number| format!("mx{number}:25")).collect();
        let sent = names.iter().filter_map(|name| board.found(s(1), name, HostState::Down, s(60))).count();
        assert_eq!((sent, board.next_due(s(1))), (most, None));
        // One of them is up before it was ever said to be down.
        assert_eq!(board.found(s(1), &names[most], HostState::Up, Duration::ZERO), None);
        let later: Vec<HostStatus> = std::iter::from_fn(|| board.next_due(s(3))).collect();
        assert_eq!(later.len(), 9);
        assert!(later.iter().all(|status| status.state == HostState::Down && status.wait_s == 58), "{later:?}");
    }

    #[test]
    fn a_report_counts_until_the_wait_is_over_and_a_little_longer() {
        let mut board = board(1);
        let news = board.hear(s(0), &message(2, HostState::Down, 80), HOUR).unwrap();
        let report = news.report.unwrap();
        assert_eq!((news.node, news.next_hop.as_str(), report.wait), (NodeId(2), NAME, s(80)));
        assert!(report.until >= s(90) && report.until <= s(120), "{report:?}");
        assert_eq!(board.reported(s(89), NAME), Some(report));
        assert_eq!(board.reports(s(89)).collect::<Vec<_>>(), [(NAME, report)]);
        assert_eq!((board.reported(report.until, NAME), board.reported(s(0), "other:25")), (None, None));
        // Nodes do not come at once.
        let until = |seed| {
            let mut board = HostStatusBoard::new(NodeId(1), seed);
            board.hear(s(0), &message(2, HostState::Down, 80), HOUR).unwrap().report.unwrap().until
        };
        let all: BTreeSet<Duration> = (0..20).map(until).collect();
        assert!(all.len() > 15, "{all:?}");
        // A wrong wait does not last for ever.
        let report = board.hear(s(0), &message(3, HostState::Down, u32::MAX), HOUR).unwrap().report.unwrap();
        assert!(report.until <= HOUR * 3 / 2, "{report:?}");
        // A shorter wait of another node does not end it; one of the same node, and up of any, do.
        assert_eq!(board.hear(s(1), &message(2, HostState::Down, 60), HOUR).unwrap().report, Some(report));
        let shorter = board.hear(s(1), &message(3, HostState::Throttled, 8), HOUR).unwrap().report.unwrap();
        assert!(shorter.until < s(20) && shorter.state == HostState::Throttled, "{shorter:?}");
        let up = board.hear(s(2), &message(4, HostState::Up, 0), HOUR).unwrap();
        assert_eq!((up.report, board.reported(s(2), NAME)), (None, None));
        assert_eq!(board.counts(), HostStatusCounts { received: 5, ..HostStatusCounts::default() });
    }

    #[test]
    fn own_results_count_more_than_what_others_say_and_up_is_told_to_those_who_heard() {
        let mut one = board(1);
        one.hear(s(0), &message(2, HostState::Down, 60), HOUR).unwrap();
        assert_eq!(published(&mut one, 1, HostState::Up), Some((HostState::Up, 0)));
        assert_eq!(one.reported(s(1), NAME), None);
        one.hear(s(10), &message(2, HostState::Down, 60), HOUR).unwrap();
        assert_eq!(published(&mut one, 11, HostState::Down), Some((HostState::Down, 60)));
        assert_eq!(one.reported(s(11), NAME), None);
        one.expire(s(12));
        assert_eq!(published(&mut one, 13, HostState::Up), Some((HostState::Up, 0)));
        one.expire(s(9_999));
        assert!(one.own.is_empty() && one.owed.is_empty() && one.heard.is_empty());
    }

    #[test]
    fn own_unreadable_and_too_many_messages_change_nothing() {
        let mut board = board(1);
        assert_eq!(board.hear(s(0), &message(1, HostState::Down, 60), HOUR), None, "an own one");
        assert_eq!(board.hear(s(0), b"\xff", HOUR), None);
        assert_eq!(board.reported(s(0), NAME), None);
        let other = |number: usize| format!("mr-host-1 2 down 60 mx{number}:25").into_bytes();
        let most = usize::try_from(HEARD_PER_SECOND_MAX).unwrap();
        let taken = (0..most + 5).filter(|number| board.hear(s(1), &other(*number), HOUR).is_some()).count();
        assert_eq!(taken, most);
        for number in 0..HOST_STATUS_MAX + 5 {
            board.hear(s(2 + u64::try_from(number / most).unwrap()), &other(number), HOUR);
        }
        assert_eq!(board.heard.len(), HOST_STATUS_MAX);
        assert_eq!((board.counts().unreadable, board.counts().dropped), (1, 5 + 5));
        // There is room again when they are over.
        assert!(board.hear(s(9_999), &other(HOST_STATUS_MAX + 7), HOUR).is_some());
        assert_eq!(board.heard.len(), 1);
        let names = (0..HOST_STATUS_MAX + 5).map(|number| format!("own{number}:25"));
        names.for_each(|name| drop(board.found(s(10_000), &name, HostState::Down, HOUR)));
        assert_eq!((board.own.len(), board.owed.len() < HOST_STATUS_MAX), (HOST_STATUS_MAX, true));
    }
}

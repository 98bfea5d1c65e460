//! Hosts that one node found down or throttling, told to the others, so that the cluster pays for a dead host once.
//!
//! The state is soft: a message that is lost or late costs an attempt and nothing else. A node publishes a destination
//! once a second at most. The others start their own probe later; a good result of their own counts more.

use std::collections::BTreeMap;
use std::fmt;
use std::time::Duration;

/// Time between two messages about one destination.
pub const PUBLISH_INTERVAL: Duration = Duration::from_secs(1);
/// Time after which a message of another node counts no more.
pub const STATUS_TTL: Duration = Duration::from_secs(3_600);
/// Destinations that are remembered, of this node's messages and of those of others; beyond it new ones are left out.
pub const STATUS_DESTINATIONS_MAX: usize = 10_000;
/// Octets of a destination's name.
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
    /// Its TLS fails.
    TlsBroken,
}

/// A message about a destination.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HostStatus {
    /// The destination, without line ends.
    pub destination: String,
    /// Its state.
    pub state: HostState,
    /// Seconds for which the sender leaves it alone.
    pub wait_s: u32,
}

impl HostStatus {
    /// Reads a message; `None` for any other text.
    #[must_use]
    pub fn parse(message: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(message).ok()?;
        let mut parts = text.splitn(4, ' ');
        if parts.next()? != "mr-host-1" {
            return None;
        }
        let state = match parts.next()? {
            "up" => HostState::Up,
            "down" => HostState::Down,
            "throttled" => HostState::Throttled,
            "tls-broken" => HostState::TlsBroken,
            _ => return None,
        };
        let wait_s = parts.next()?.parse().ok()?;
        let destination = parts.next()?.to_owned();
        let is_plain = !destination.is_empty() && !destination.contains(char::is_control);
        (is_plain && destination.len() <= NAME_OCTETS_MAX).then_some(Self { destination, state, wait_s })
    }
}

impl fmt::Display for HostStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = match self.state {
            HostState::Up => "up",
            HostState::Down => "down",
            HostState::Throttled => "throttled",
            HostState::TlsBroken => "tls-broken",
        };
        write!(f, "mr-host-1 {state} {} {}", self.wait_s, self.destination)
    }
}

/// The states that this node published and those that the others did.
#[derive(Debug, Default)]
pub struct HostStatusBoard {
    published: BTreeMap<String, (HostState, Duration)>,
    heard: BTreeMap<String, (HostState, Duration)>,
}

impl HostStatusBoard {
    /// Takes an own result; true when it should be published.
    pub fn found(&mut self, now: Duration, status: &HostStatus) -> bool {
        // The own result counts from now on.
        self.heard.remove(&status.destination);
        let before = self.published.get(&status.destination);
        let is_new = match before {
            Some((state, at)) => *state != status.state && now >= *at + PUBLISH_INTERVAL,
            // A host that was never said to be down need not be said to be up.
            None => status.state != HostState::Up && self.published.len() < STATUS_DESTINATIONS_MAX,
        };
        if is_new && status.state == HostState::Up {
            self.published.remove(&status.destination);
        } else if is_new {
            self.published.insert(status.destination.clone(), (status.state, now));
        }
        is_new
    }

    /// Takes a message of another node.
    pub fn heard(&mut self, now: Duration, status: &HostStatus) {
        let until = now + Duration::from_secs(status.wait_s.into()).min(STATUS_TTL);
        if status.state == HostState::Up {
            self.heard.remove(&status.destination);
        } else if self.heard.len() < STATUS_DESTINATIONS_MAX || self.heard.contains_key(&status.destination) {
            self.heard.insert(status.destination.clone(), (status.state, until));
        }
    }

    /// The state that another node reported, with the time until which its own attempts wait; a first attempt of this
    /// node should come after it.
    #[must_use]
    pub fn reported(&self, now: Duration, destination: &str) -> Option<(HostState, Duration)> {
        self.heard.get(destination).copied().filter(|(_, until)| now < *until)
    }

    /// Forgets what is too old; to be called every minute.
    pub fn expire(&mut self, now: Duration) {
        self.heard.retain(|_, (_, until)| now < *until);
        self.published.retain(|_, (_, at)| now < *at + STATUS_TTL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn status(state: HostState) -> HostStatus {
        HostStatus { destination: "example.org|25".into(), state, wait_s: 60 }
    }

    #[test]
    fn messages_read_back() {
        for state in [HostState::Up, HostState::Down, HostState::Throttled, HostState::TlsBroken] {
            let one = status(state);
            assert_eq!(HostStatus::parse(one.to_string().as_bytes()), Some(one));
        }
        for text in ["", "mr-host-1 down 1", "mr-host-1 down x a", "mr-host-2 down 1 a", "mr-host-1 down 1 a\nb"] {
            assert_eq!(HostStatus::parse(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn a_change_is_published_once_a_second_at_most() {
        let mut board = HostStatusBoard::default();
        let s = Duration::from_secs;
        assert!(!board.found(s(0), &status(HostState::Up)), "nobody thinks otherwise");
        assert!(board.found(s(1), &status(HostState::Down)));
        assert!(!board.found(s(2), &status(HostState::Down)));
        assert!(!board.found(s(1), &status(HostState::Throttled)), "too soon");
        assert!(board.found(s(3), &status(HostState::Up)));
        assert!(board.found(s(3), &status(HostState::Down)));
    }

    #[test]
    fn own_results_count_more_than_what_others_say() {
        let mut board = HostStatusBoard::default();
        let s = Duration::from_secs;
        board.heard(s(0), &status(HostState::Down));
        assert_eq!(board.reported(s(59), "example.org|25"), Some((HostState::Down, s(60))));
        assert_eq!(board.reported(s(60), "example.org|25"), None);
        board.found(s(10), &status(HostState::Up));
        assert_eq!(board.reported(s(11), "example.org|25"), None);
        board.heard(s(20), &HostStatus { wait_s: u32::MAX, ..status(HostState::Down) });
        assert_eq!(board.reported(s(20) + STATUS_TTL, "example.org|25"), None, "a report does not last for ever");
        board.expire(s(9_999));
        assert!(board.heard.is_empty() && board.published.is_empty());
    }
}

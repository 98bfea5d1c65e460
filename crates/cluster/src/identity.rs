//! Names in a cluster: the cluster, its nodes, the lives of a node's disk, shadow streams and their lanes.
//!
//! A shadow stream is named by the owner of the mail, the holder of the copy and a generation. A stream that lost data
//! is never used again under its name, because the sequence numbers of a stream are its fence; the next generation
//! takes its place.

use std::fmt;

/// The identity of a cluster, chosen when it was made. Blocks and entries of another cluster are refused.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ClusterId(pub [u8; 16]);

impl ClusterId {
    /// Reads 32 hex digits; `None` for any other text.
    #[must_use]
    pub fn parse(digits: &str) -> Option<Self> {
        if digits.len() != 32 || !digits.is_ascii() {
            return None;
        }
        let mut octets = [0; 16];
        for (octet, at) in octets.iter_mut().zip((0..32).step_by(2)) {
            *octet = u8::from_str_radix(digits.get(at..at + 2)?, 16).ok()?;
        }
        Some(Self(octets))
    }
}

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl fmt::Debug for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClusterId({self})")
    }
}

/// The number of a node, given to its name when it joined and never to another name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub u16);

impl fmt::Display for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}

/// The life of a node's local log: a new one begins when the log was made anew, as after a replaced disk.
///
/// A random number that the log keeps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

/// The beginning of the keys of claims in the coordination store.
pub(crate) const CLAIM_PREFIX: &str = "claim/";

/// The log that holds the copies of one owner's mail at one holder.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId {
    /// The node whose mail it copies.
    pub owner: NodeId,
    /// The node whose engine stores it.
    pub holder: NodeId,
    /// Counted from 0; one more after the stream lost data.
    pub generation: u32,
}

impl StreamId {
    /// The name of a lane of this stream in the engine, as `MRS_3_7_0_s`.
    #[must_use]
    pub fn name(self, lane: Lane) -> String {
        let suffix = match lane {
            Lane::Messages => 's',
            Lane::Bodies => 'l',
        };
        format!("MRS_{}_{}_{}_{suffix}", self.owner.0, self.holder.0, self.generation)
    }

    /// Reads a name that [`StreamId::name`] wrote; `None` for any other text.
    #[must_use]
    pub fn parse(name: &str) -> Option<(Self, Lane)> {
        let mut parts = name.strip_prefix("MRS_")?.split('_');
        let (owner, holder, generation) = (parts.next()?, parts.next()?, parts.next()?);
        let lane = match parts.next()? {
            "s" => Lane::Messages,
            "l" => Lane::Bodies,
            _ => return None,
        };
        let number = |text: &str| text.parse().ok().map(NodeId);
        let stream = Self { owner: number(owner)?, holder: number(holder)?, generation: generation.parse().ok()? };
        (parts.next().is_none() && stream.name(lane) == name).then_some((stream, lane))
    }

    /// The key of the stream's claim in the coordination store, as `claim/3/7/0`.
    #[must_use]
    pub fn claim_key(self) -> String {
        format!("{CLAIM_PREFIX}{}/{}/{}", self.owner.0, self.holder.0, self.generation)
    }

    /// Reads a key that [`StreamId::claim_key`] wrote; `None` for any other text.
    #[must_use]
    pub fn parse_claim_key(key: &str) -> Option<Self> {
        let mut parts = key.strip_prefix(CLAIM_PREFIX)?.split('/');
        let (owner, holder, generation) = (parts.next()?, parts.next()?, parts.next()?);
        let number = |text: &str| text.parse().ok().map(NodeId);
        let stream = Self { owner: number(owner)?, holder: number(holder)?, generation: generation.parse().ok()? };
        (stream.claim_key() == key).then_some(stream)
    }
}

impl fmt::Display for StreamId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of {} at {}", self.name(Lane::Messages), self.owner, self.holder)
    }
}

/// A part of a shadow stream with a sequence of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Lane {
    /// Blocks of records. Ownership is decided here.
    Messages,
    /// Pieces of large bodies. A piece counts when a message refers to it.
    Bodies,
}

/// The oldest start of a local log that an epoch may come from, in its upper half.
const START_SHIFT: u32 = 32;

/// The number of a reign over a shadow stream; each fence raises it.
///
/// The upper half is the number of starts of the owner's local log at its own fences. So an owner can name all epochs
/// of its incarnation before its present start without having read the stream ([`Epoch::before_start`]). A new disk
/// counts its starts anew; it begins the next generation of a stream that has epochs of more starts.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub u64);

impl Epoch {
    /// The epoch of an adopter's fence over this one.
    #[must_use]
    pub const fn next(self) -> Self {
        Self(self.0.saturating_add(1))
    }

    /// The epoch of the owner's own fence over this one, at the given start of its local log.
    #[must_use]
    pub const fn next_at_start(self, start: u32) -> Self {
        let (next, least) = (self.0.saturating_add(1), (start as u64) << START_SHIFT);
        Self(if next > least { next } else { least })
    }

    /// The start of the owner's local log that it is of.
    #[must_use]
    pub(crate) const fn start(self) -> u64 {
        self.0 >> START_SHIFT
    }

    /// The last epoch that an earlier start of the owner can have reached.
    #[must_use]
    pub const fn before_start(start: u32) -> Self {
        Self(((start as u64) << START_SHIFT).saturating_sub(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_streams_read_back() {
        let stream = StreamId { owner: NodeId(3), holder: NodeId(7), generation: 12 };
        for lane in [Lane::Messages, Lane::Bodies] {
            assert_eq!(StreamId::parse(&stream.name(lane)), Some((stream, lane)));
        }
        assert_eq!(StreamId::parse_claim_key(&stream.claim_key()), Some(stream));
        for key in ["claim/3/7", "claim/03/7/0", "claim/3/7/0/1", "node/3"] {
            assert_eq!(StreamId::parse_claim_key(key), None, "{key}");
        }
        for name in ["", "MRS_3_7_0", "MRS_3_7_0_x", "MRS_03_7_0_s", "MRS_3_7_0_s_s", "MRS_3_70000_0_s", "mrs_3_7_0_s"]
        {
            assert_eq!(StreamId::parse(name), None, "{name}");
        }
    }

    #[test]
    fn an_own_fence_is_above_all_epochs_of_earlier_starts() {
        let first = Epoch::default().next_at_start(4);
        assert!(first > Epoch::before_start(4) && first.next().next() < Epoch::before_start(5));
        assert_eq!(first.next_at_start(4), first.next());
        assert!(first.start() == 4 && first.next().start() == 4);
    }
}

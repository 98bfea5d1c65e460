//! The mark of a node that has left the cluster for good: one line of text under `node/left/NUMBER`.
//!
//! By it the others know the node from one that is away: they take the copies that it held elsewhere at once, count it
//! for no limit, and write block versions that it does not read. It has no time to live; a node that joins again
//! removes its mark before it writes its entry, and an entry counts more than a mark.

use super::NODE_PREFIX;
use crate::identity::{ClusterId, NodeId};
use std::fmt;

/// The mark of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DepartureMark {
    /// The cluster that it left.
    pub cluster: ClusterId,
    /// Its number.
    pub node: NodeId,
    /// The node that wrote the mark: itself, or one at which an operator removed it.
    pub by: NodeId,
    /// No other node had copies of its mail on its engine any more.
    pub is_empty: bool,
}

impl DepartureMark {
    /// The key of the mark.
    #[must_use]
    pub fn key(node: NodeId) -> String {
        format!("{NODE_PREFIX}left/{}", node.0)
    }

    /// Reads a mark; `None` for any other text. Fields that are not known are passed over.
    #[must_use]
    pub fn parse(value: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(value).ok()?.strip_prefix("mailrace-left-1 ")?;
        let field = |name: &str| text.split(' ').find_map(|field| field.strip_prefix(name)?.strip_prefix('='));
        Some(Self {
            cluster: ClusterId::parse(field("cluster")?)?,
            node: NodeId(field("node")?.parse().ok()?),
            by: NodeId(field("by")?.parse().ok()?),
            is_empty: field("empty")? == "1",
        })
    }
}

impl fmt::Display for DepartureMark {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cluster, node, by, is_empty } = self;
        write!(f, "mailrace-left-1 cluster={cluster} node={} by={} empty={}", node.0, by.0, u8::from(*is_empty))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_mark_reads_back_and_may_have_later_fields() {
        let mark = DepartureMark { cluster: ClusterId([7; 16]), node: NodeId(3), by: NodeId(1), is_empty: true };
        let text = mark.to_string();
        assert_eq!(DepartureMark::parse(text.as_bytes()), Some(mark));
        assert_eq!(DepartureMark::parse(format!("{text} later=1").as_bytes()), Some(mark));
        for other in ["", "mailrace-left-1 cluster=07 node=3 by=1 empty=1", &text.replace(" by=1", "")] {
            assert_eq!(DepartureMark::parse(other.as_bytes()), None, "{other}");
        }
        assert_eq!(DepartureMark::key(NodeId(3)), "node/left/3");
    }
}

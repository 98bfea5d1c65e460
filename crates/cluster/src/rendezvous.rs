//! Rendezvous hashing: each owner has its own order of holders, and a node that comes or goes moves no other choice.

use crate::identity::NodeId;

/// Sorts nodes by the preference of an owner for its copies, best first.
#[must_use]
pub fn holders_of(owner: NodeId, nodes: impl IntoIterator<Item = NodeId>) -> Vec<NodeId> {
    let mut nodes: Vec<NodeId> = nodes.into_iter().filter(|node| *node != owner).collect();
    nodes.sort_by_key(|node| (std::cmp::Reverse(weight(owner, *node)), *node));
    nodes
}

/// A well-mixed number (the finaliser of splitmix64). All versions of the program must agree on it.
fn weight(owner: NodeId, node: NodeId) -> u64 {
    let z = (u64::from(owner.0) << 16 | u64::from(node.0)).wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    z ^ (z >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(count: u16) -> impl Iterator<Item = NodeId> {
        (1..=count).map(NodeId)
    }

    #[test]
    fn a_node_that_leaves_moves_no_other() {
        for owner in nodes(9) {
            let all = holders_of(owner, nodes(9));
            assert_eq!(all.len(), 8);
            let without: Vec<NodeId> = all.iter().copied().filter(|node| *node != NodeId(4)).collect();
            assert_eq!(holders_of(owner, nodes(9).filter(|node| *node != NodeId(4))), without);
        }
    }

    #[test]
    fn first_choices_are_spread() {
        let mut counts = [0_usize; 41];
        for owner in nodes(40) {
            counts[usize::from(holders_of(owner, nodes(40))[0].0)] += 1;
        }
        assert!(counts.iter().all(|count| *count <= 6), "{counts:?}");
    }
}

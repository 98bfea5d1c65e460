//! The table of one shared limit: which node may use how much of it.
//!
//! The table is the value of one key, changed by compare-and-set as a whole. Its invariant is that all amounts
//! together never exceed the limit. A node changes its own row, and reduces the rows of nodes that have not renewed
//! theirs, never below the reserve that stands in them: their nodes may still use that. A row has the number of its
//! renewal; a node tells by its own clock for how long it has seen the same number, so that no two clocks are compared.

use crate::identity::NodeId;
use crate::record::Cursor;
use bytes::Bytes;

const VERSION: u8 = 2;
/// Rows of a table, at most.
const ROWS_MAX: usize = 1 << 12;

/// The row of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ShareRow {
    /// The node.
    pub node: NodeId,
    /// The part of the limit that the node may use.
    pub amount: u32,
    /// The part that the node could use now.
    pub demand: u32,
    /// The part of the amount that the node goes on using when it cannot renew the row.
    pub reserve: u32,
    /// The number of the renewal of the table that wrote it.
    pub renewals: u64,
    /// When it last gave a single share back, counted over all nodes; the lowest has its turn first.
    pub turn: u64,
}

/// The shares of one limit.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ShareTable {
    /// The limit: connections, or messages in a second.
    pub limit: u32,
    /// Renewals so far, also of rows that are gone: no number comes twice.
    pub renewals: u64,
    /// One row for each node that uses it, by number.
    pub rows: Vec<ShareRow>,
}

impl ShareTable {
    /// The sum of all amounts.
    #[must_use]
    pub fn used(&self) -> u32 {
        self.rows.iter().fold(0, |sum, row| sum.saturating_add(row.amount))
    }

    /// The row of a node.
    #[must_use]
    pub fn row(&self, node: NodeId) -> Option<&ShareRow> {
        self.rows.iter().find(|row| row.node == node)
    }

    /// The table without the row of a node: the others may use its amount.
    #[must_use]
    pub(crate) fn without(mut self, node: NodeId) -> Self {
        self.rows.retain(|row| row.node != node);
        self
    }

    /// True when another node could use more than it has.
    #[must_use]
    pub fn is_wanted_by_others(&self, node: NodeId) -> bool {
        self.rows.iter().any(|row| row.node != node && row.demand > row.amount)
    }

    /// The amount that a node should have, by the demand of all: no more than its demand, the rest divided evenly among
    /// nodes that want more than an even part.
    ///
    /// With a limit below the number of nodes that want some, those that have one keep it until they give it back.
    #[must_use]
    pub fn fair_amount(&self, node: NodeId) -> u32 {
        let mut left = self.limit;
        let mut wanting: Vec<&ShareRow> = self.rows.iter().filter(|row| row.demand > 0).collect();
        // Small demands first: the rest they leave is divided among the others.
        wanting.sort_by_key(|row| (row.demand, std::cmp::Reverse(row.amount), row.node));
        let mut count = u32::try_from(wanting.len()).unwrap_or(u32::MAX);
        if self.limit < count {
            // One each, to those that have one, then to those that have waited for longest.
            wanting.sort_by_key(|row| (std::cmp::Reverse(row.amount.min(1)), row.turn, row.node));
            let place = wanting.iter().position(|row| row.node == node);
            return u32::from(place.is_some_and(|place| place < self.limit as usize));
        }
        for row in wanting {
            // The remainder of the division goes to the last, which want most.
            let amount = row.demand.min(left / count.max(1));
            if row.node == node {
                return amount
                    + u32::from(amount < row.demand && count == 1) * (left - amount).min(row.demand - amount);
            }
            left -= amount;
            count -= 1;
        }
        0
    }

    /// The octets of the value.
    #[must_use]
    pub fn write(&self) -> Bytes {
        let mut out = vec![VERSION];
        out.extend_from_slice(&self.limit.to_le_bytes());
        out.extend_from_slice(&self.renewals.to_le_bytes());
        for row in &self.rows {
            out.extend_from_slice(&row.node.0.to_le_bytes());
            out.extend_from_slice(&row.amount.to_le_bytes());
            out.extend_from_slice(&row.demand.to_le_bytes());
            out.extend_from_slice(&row.reserve.to_le_bytes());
            out.extend_from_slice(&row.renewals.to_le_bytes());
            out.extend_from_slice(&row.turn.to_le_bytes());
        }
        Bytes::from(out)
    }

    /// Reads a value; `None` for one of another version, or whose rows are not in order or exceed the limit.
    #[must_use]
    pub fn read(value: &Bytes) -> Option<Self> {
        let mut from = Cursor(value.clone());
        if from.u8()? != VERSION {
            return None;
        }
        let mut table = Self { limit: from.u32()?, renewals: from.u64()?, rows: Vec::new() };
        while from.len() > 0 && table.rows.len() < ROWS_MAX {
            let (node, amount, demand) = (NodeId(from.u16()?), from.u32()?, from.u32()?);
            let reserve = from.u32()?;
            table.rows.push(ShareRow { node, amount, demand, reserve, renewals: from.u64()?, turn: from.u64()? });
        }
        let is_ordered = table.rows.windows(2).all(|pair| matches!(pair, [a, b] if a.node < b.node));
        let sum = table.rows.iter().try_fold(0_u32, |sum, row| sum.checked_add(row.amount))?;
        (is_ordered && from.len() == 0 && sum <= table.limit).then_some(table)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(limit: u32, rows: &[(u32, u32)]) -> ShareTable {
        let row = |(number, (amount, demand)): (usize, &(u32, u32))| ShareRow {
            node: NodeId(u16::try_from(number).unwrap() + 1),
            amount: *amount,
            demand: *demand,
            reserve: 0,
            renewals: 0,
            turn: 0,
        };
        ShareTable { limit, renewals: 0, rows: rows.iter().enumerate().map(row).collect() }
    }

    #[track_caller]
    fn fair(limit: u32, rows: &[(u32, u32)], expected: &[u32]) {
        let table = table(limit, rows);
        let amounts: Vec<u32> = table.rows.iter().map(|row| table.fair_amount(row.node)).collect();
        assert_eq!(amounts, expected, "{table:?}");
        assert!(amounts.iter().sum::<u32>() <= limit);
    }

    #[test]
    fn amounts_follow_demand() {
        fair(20, &[(0, 0), (0, 5), (0, 100)], &[0, 5, 15]);
        fair(20, &[(0, 100), (0, 100), (0, 100)], &[6, 7, 7]);
        fair(20, &[(20, 100), (0, 1)], &[19, 1]);
        fair(20, &[(3, 4), (3, 4)], &[4, 4]);
        fair(0, &[(0, 4)], &[0]);
    }

    #[test]
    fn a_limit_below_the_number_of_nodes_stays_where_it_is() {
        fair(2, &[(0, 9), (1, 9), (0, 9), (1, 9)], &[0, 1, 0, 1]);
        fair(2, &[(0, 9), (0, 9), (0, 9)], &[1, 1, 0]);
        fair(1, &[(1, 0), (0, 9), (0, 9)], &[0, 1, 0]);
    }

    #[test]
    fn a_table_reads_back_and_never_exceeds_its_limit() {
        let good = table(20, &[(5, 1), (15, 2)]);
        assert_eq!(ShareTable::read(&good.write()), Some(good));
        assert_eq!(ShareTable::read(&table(20, &[(5, 1), (16, 2)]).write()), None);
        assert_eq!(ShareTable::read(&table(20, &[(u32::MAX, 1), (16, 2)]).write()), None);
        assert_eq!(ShareTable::read(&Bytes::from_static(b"\x01\0\0\0\0")), None);
    }
}

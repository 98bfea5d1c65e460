//! The claim: one key for each shadow stream, which decides between owner and adopter by compare-and-set.
//!
//! The stream's tail decides whether the owner may still write. It cannot decide about mail that the owner wants back
//! while the holder is out of reach, or about an adopter that dies between two steps. For these both sides write the
//! claim first, and the revision lets only one of them through:
//!
//! - the owner writes [`Claim::moved_epoch`] before it treats mail of an unreachable stream as its own again;
//! - an adopter writes [`Claim::adopted_upto`] before it takes over the next part of a fenced stream.
//!
//! A message with two copies is adopted by one of them. The claim of the stream with the first copy decides by which,
//! for all blocks up to an epoch at a time, and a decision is never changed: an adopter that goes on with a part after
//! a crash finds the same mail in it.

use crate::identity::{Epoch, NodeId};
use crate::record::Cursor;
use bytes::Bytes;

const VERSION: u8 = 1;

/// Decisions that a claim keeps; older epochs have no live mail.
const DECISIONS_MAX: usize = 64;

/// The copy by which mail with two copies is adopted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdoptedCopy {
    /// An adopter of this stream has looked at the mail, and has taken it or left it to the owner.
    First,
    /// Adopters of this stream pass over the mail.
    Second,
}

/// The value of a claim. A key that is missing has the default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Claim {
    /// The epoch of the last adopter's fence; it rises only.
    pub epoch: Epoch,
    /// The adopter; `None` while the owner has the stream.
    pub adopter: Option<NodeId>,
    /// The adopter takes, or has taken, all mail up to this sequence.
    pub adopted_upto: u64,
    /// Mail in blocks of this epoch and lower ones is back with the owner: adopters pass over it.
    pub moved_epoch: Epoch,
    /// Decisions about mail whose first copy is in this stream, each up to an epoch, ascending.
    pub decisions: Vec<(Epoch, AdoptedCopy)>,
}

/// The reason why a claim may not be changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClaimError {
    /// A node with a higher epoch has the stream.
    Superseded {
        /// The epoch in the claim.
        epoch: Epoch,
        /// The adopter in the claim, if any.
        by: Option<NodeId>,
    },
    /// Another adopter has begun a part and not ended it; only that node can go on.
    PartOpen {
        /// The adopter.
        by: NodeId,
    },
}

impl Claim {
    /// The decision about mail with the first copy in a block of this epoch.
    #[must_use]
    pub fn decision(&self, epoch: Epoch) -> Option<AdoptedCopy> {
        self.decisions.iter().find(|(upto, _)| epoch <= *upto).map(|(_, copy)| *copy)
    }

    /// Decides about all mail up to an epoch that is not decided about.
    #[must_use]
    pub fn decided(mut self, upto: Epoch, copy: AdoptedCopy) -> Self {
        match self.decisions.last_mut() {
            Some((last, _)) if *last >= upto => {}
            Some((last, same)) if *same == copy => *last = upto,
            _ => self.decisions.push((upto, copy)),
        }
        let surplus = self.decisions.len().saturating_sub(DECISIONS_MAX);
        self.decisions.drain(..surplus);
        self
    }

    /// The value that takes the mail of an unreachable stream back to its owner, up to `moved`.
    ///
    /// `held` is the epoch of the last own fence that is known to be stored since the start; 0 for none.
    ///
    /// # Errors
    /// `Superseded`: an adopter has the stream, or may have it; its mail stays untouched until the stream can be read.
    pub fn taken_back(self, owner: NodeId, held: Epoch, moved: Epoch) -> Result<Self, ClaimError> {
        let is_of_adopter = self.adopter.is_some_and(|adopter| adopter != owner) && self.epoch > held;
        if is_of_adopter {
            return Err(ClaimError::Superseded { epoch: self.epoch, by: self.adopter });
        }
        let decided = self.decided(moved, AdoptedCopy::Second);
        Ok(Self { adopter: None, moved_epoch: decided.moved_epoch.max(moved), ..decided })
    }

    /// The value after the owner fenced the stream again behind a finished adoption. An adopter that has fenced it once
    /// more since then keeps it.
    #[must_use]
    pub fn reopened(self, epoch: Epoch) -> Self {
        if self.epoch > epoch {
            return self;
        }
        Self { epoch: self.epoch.max(epoch), adopter: None, ..self }
    }

    /// The value by which an adopter takes the part up to `upto`.
    ///
    /// `finished_upto` is the end of the last part that the stream itself records as finished.
    ///
    /// # Errors
    /// `Superseded` by a later fence, or `PartOpen`.
    pub fn adopted(self, by: NodeId, epoch: Epoch, finished_upto: u64, upto: u64) -> Result<Self, ClaimError> {
        if self.epoch > epoch || self.epoch == epoch && self.adopter != Some(by) {
            return Err(ClaimError::Superseded { epoch: self.epoch, by: self.adopter });
        }
        if let Some(other) = self.adopter.filter(|other| *other != by && self.adopted_upto > finished_upto) {
            return Err(ClaimError::PartOpen { by: other });
        }
        let decided = self.decided(Epoch(epoch.0.saturating_sub(1)), AdoptedCopy::First);
        Ok(Self { epoch, adopter: Some(by), adopted_upto: decided.adopted_upto.max(upto), ..decided })
    }

    /// The octets of the value.
    #[must_use]
    pub fn write(&self) -> Bytes {
        let mut out = vec![VERSION, u8::from(self.adopter.is_some())];
        out.extend_from_slice(&self.adopter.map_or(0, |node| node.0).to_le_bytes());
        for number in [self.epoch.0, self.adopted_upto, self.moved_epoch.0] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for (upto, copy) in &self.decisions {
            out.extend_from_slice(&upto.0.to_le_bytes());
            out.push(u8::from(*copy == AdoptedCopy::Second));
        }
        Bytes::from(out)
    }

    /// Reads a value; `None` when it is none of this version.
    #[must_use]
    pub fn read(value: &Bytes) -> Option<Self> {
        let mut from = Cursor(value.clone());
        let (version, flags, adopter) = (from.u8()?, from.u8()?, NodeId(from.u16()?));
        let (epoch, adopted_upto, moved_epoch) = (Epoch(from.u64()?), from.u64()?, Epoch(from.u64()?));
        let mut decisions = Vec::new();
        while from.len() > 0 {
            let upto = Epoch(from.u64()?);
            decisions.push(match from.u8()? {
                0 => (upto, AdoptedCopy::First),
                1 => (upto, AdoptedCopy::Second),
                _ => return None,
            });
        }
        let is_ascending = decisions.windows(2).all(|pair| matches!(pair, [(a, _), (b, _)] if a < b));
        let is_plain = version == VERSION && flags & !1 == 0 && is_ascending;
        let adopter = match flags & 1 {
            0 if adopter.0 != 0 => return None,
            0 => None,
            _ => Some(adopter),
        };
        is_plain.then_some(Self { epoch, adopter, adopted_upto, moved_epoch, decisions })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: NodeId = NodeId(1);
    const OTHER: NodeId = NodeId(2);
    const THIRD: NodeId = NodeId(3);

    #[test]
    fn one_of_owner_and_adopter_wins() {
        let fresh = Claim::default();
        let moved = fresh.clone().taken_back(OWNER, Epoch(5), Epoch(5)).unwrap();
        assert_eq!(moved.moved_epoch, Epoch(5));
        let adopted = fresh.adopted(OTHER, Epoch(6), 0, 10).unwrap();
        assert_eq!(
            adopted.clone().taken_back(OWNER, Epoch(5), Epoch(5)),
            Err(ClaimError::Superseded { epoch: Epoch(6), by: Some(OTHER) })
        );
        assert!(adopted.clone().reopened(Epoch(7)).taken_back(OWNER, Epoch(7), Epoch(7)).is_ok());
        assert!(
            adopted.taken_back(OWNER, Epoch(0), Epoch(99)).is_err(),
            "an epoch that was not reached proves nothing"
        );
    }

    #[test]
    fn an_owner_that_reopens_late_leaves_the_next_adopter_its_claim() {
        let next = Claim::default().adopted(OTHER, Epoch(6), 0, 10).unwrap().adopted(OTHER, Epoch(8), 10, 20).unwrap();
        let late = next.clone().reopened(Epoch(7));
        assert_eq!(late, next);
        assert!(late.taken_back(OWNER, Epoch(7), Epoch(7)).is_err());
    }

    #[test]
    fn a_second_adopter_stops() {
        let first = Claim::default().adopted(OTHER, Epoch(6), 0, 10).unwrap();
        assert!(matches!(first.clone().adopted(THIRD, Epoch(6), 10, 20), Err(ClaimError::Superseded { .. })));
        assert_eq!(first.clone().adopted(THIRD, Epoch(7), 0, 20), Err(ClaimError::PartOpen { by: OTHER }));
        assert!(first.clone().adopted(THIRD, Epoch(7), 10, 20).is_ok());
        assert!(first.adopted(OTHER, Epoch(7), 0, 20).is_ok(), "the same node goes on with its part");
    }

    #[test]
    fn a_decision_about_two_copies_stays() {
        let claim = Claim::default().decided(Epoch(4), AdoptedCopy::Second);
        let claim = claim.adopted(OTHER, Epoch(8), 0, 10).unwrap().reopened(Epoch(9));
        let claim = claim.decided(Epoch(6), AdoptedCopy::Second).decided(Epoch(9), AdoptedCopy::Second);
        for (epoch, copy) in [(3, Some(AdoptedCopy::Second)), (4, Some(AdoptedCopy::Second))] {
            assert_eq!(claim.decision(Epoch(epoch)), copy);
        }
        for epoch in 5..8 {
            assert_eq!(claim.decision(Epoch(epoch)), Some(AdoptedCopy::First), "an adopter has looked at it");
        }
        assert_eq!(claim.decision(Epoch(9)), Some(AdoptedCopy::Second));
        assert_eq!(claim.decision(Epoch(10)), None);
    }

    #[test]
    fn a_claim_reads_back() {
        let claim = Claim {
            epoch: Epoch(9),
            adopter: Some(OTHER),
            adopted_upto: 77,
            moved_epoch: Epoch(3),
            decisions: vec![(Epoch(4), AdoptedCopy::Second), (Epoch(8), AdoptedCopy::First)],
        };
        for claim in [claim, Claim::default()] {
            assert_eq!(Claim::read(&claim.write()), Some(claim));
        }
        assert_eq!(Claim::read(&Bytes::from_static(b"\x02\0\0\0")), None);
    }
}

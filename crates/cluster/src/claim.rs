//! The claim: one key for each shadow stream, which decides between owner and adopter by compare-and-set.
//!
//! The stream's tail decides whether the owner may still write. It cannot decide about mail that the owner wants back
//! while the holder is out of reach, or about an adopter that dies between two steps. For these both sides write the
//! claim first, and the revision lets only one of them through:
//!
//! - the owner writes [`OwnerLife::moved`] before it treats mail of an unreachable stream as its own again;
//! - an adopter writes [`Claim::adopted_upto`] before it takes over the next part of a fenced stream.
//!
//! A message with two copies is adopted by one of them. The claim of the stream with the first copy decides by which,
//! for all blocks up to an epoch at a time, and a decision is never changed: an adopter that goes on with a part after
//! a crash finds the same mail in it.
//!
//! Both hold for blocks of one incarnation of the owner: a node with a new disk takes back what this disk has, and not
//! the mail of the disk before, which lies in a stream that it has perhaps not read.

use crate::identity::{Epoch, Incarnation, NodeId};
use crate::record::Cursor;
use bytes::Bytes;

const VERSION: u8 = 1;

/// Decisions that a claim keeps for an incarnation; older epochs have no live mail.
const DECISIONS_MAX: usize = 64;

/// Incarnations of the owner that a claim keeps. Mail of an older one may be adopted beside its owner.
const LIVES_MAX: usize = 8;

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
    /// One part for each incarnation of the owner, the latest last.
    pub lives: Vec<OwnerLife>,
}

/// The part of a claim that concerns the blocks of one incarnation of the owner.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnerLife {
    /// The incarnation.
    pub incarnation: Incarnation,
    /// Mail in its blocks of this epoch and lower ones is back with the owner: adopters pass over it.
    pub moved: Epoch,
    /// Decisions about mail whose first copy is in this stream, each up to an epoch, ascending.
    pub decisions: Vec<(Epoch, AdoptedCopy)>,
}

impl OwnerLife {
    /// Decides about all mail up to an epoch that is not decided about.
    fn decide(&mut self, upto: Epoch, copy: AdoptedCopy) {
        match self.decisions.last_mut() {
            Some((last, _)) if *last >= upto => {}
            Some((last, same)) if *same == copy => *last = upto,
            _ => self.decisions.push((upto, copy)),
        }
        let surplus = self.decisions.len().saturating_sub(DECISIONS_MAX);
        self.decisions.drain(..surplus);
    }
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
    /// The decision about mail with the first copy in a block of this incarnation and epoch.
    #[must_use]
    pub fn decision(&self, incarnation: Incarnation, epoch: Epoch) -> Option<AdoptedCopy> {
        let life = self.life(incarnation)?;
        life.decisions.iter().find(|(upto, _)| epoch <= *upto).map(|(_, copy)| *copy)
    }

    /// Decides about all mail of an incarnation up to an epoch that is not decided about.
    #[must_use]
    pub fn decided(self, incarnation: Incarnation, upto: Epoch, copy: AdoptedCopy) -> Self {
        self.with_life(incarnation, |life| life.decide(upto, copy))
    }

    /// True when the owner has the mail in a block of this incarnation and epoch again.
    #[must_use]
    pub fn is_moved(&self, incarnation: Incarnation, epoch: Epoch) -> bool {
        self.life(incarnation).is_some_and(|life| epoch <= life.moved)
    }

    /// The value in which the owner has the mail of an incarnation up to an epoch again.
    #[must_use]
    pub fn moved(self, incarnation: Incarnation, upto: Epoch) -> Self {
        self.with_life(incarnation, |life| life.moved = life.moved.max(upto))
    }

    fn life(&self, incarnation: Incarnation) -> Option<&OwnerLife> {
        self.lives.iter().find(|life| life.incarnation == incarnation)
    }

    /// Changes what the claim says of an incarnation; a surplus one at the front is dropped.
    fn with_life(mut self, incarnation: Incarnation, change: impl FnOnce(&mut OwnerLife)) -> Self {
        match self.lives.iter_mut().find(|life| life.incarnation == incarnation) {
            Some(life) => change(life),
            None => {
                let mut life = OwnerLife { incarnation, moved: Epoch(0), decisions: Vec::new() };
                change(&mut life);
                self.lives.push(life);
            }
        }
        let surplus = self.lives.len().saturating_sub(LIVES_MAX);
        self.lives.drain(..surplus);
        self
    }

    /// The value that takes the mail of an unreachable stream back to its owner: that of this incarnation, up to
    /// `moved`.
    ///
    /// `held` is the epoch of the last own fence that is known to be stored since the start; 0 for none.
    ///
    /// # Errors
    /// `Superseded`: an adopter has the stream, or may have it; its mail stays untouched until the stream can be read.
    pub fn taken_back(
        self,
        owner: NodeId,
        incarnation: Incarnation,
        held: Epoch,
        moved: Epoch,
    ) -> Result<Self, ClaimError> {
        let is_of_adopter = self.adopter.is_some_and(|adopter| adopter != owner) && self.epoch > held;
        if is_of_adopter {
            return Err(ClaimError::Superseded { epoch: self.epoch, by: self.adopter });
        }
        let decided = self.decided(incarnation, moved, AdoptedCopy::Second).moved(incarnation, moved);
        Ok(Self { adopter: None, ..decided })
    }

    /// The value by which the owner decides that first copies in its stream are adopted, for all epochs before `held`,
    /// its last fence, that are not decided about.
    ///
    /// # Errors
    /// `Superseded`: an adopter has the stream, or may have it.
    pub fn decided_by_owner(self, owner: NodeId, incarnation: Incarnation, held: Epoch) -> Result<Self, ClaimError> {
        if self.adopter.is_some_and(|adopter| adopter != owner) && self.epoch > held {
            return Err(ClaimError::Superseded { epoch: self.epoch, by: self.adopter });
        }
        Ok(self.decided(incarnation, Epoch(held.0.saturating_sub(1)), AdoptedCopy::First))
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
    /// `owner` is the incarnation whose mail lives in the stream, if there is any. `finished_upto` is the end of the
    /// last part that the stream itself records as finished.
    ///
    /// # Errors
    /// `Superseded` by a later fence, or `PartOpen`.
    pub fn adopted(
        self,
        by: NodeId,
        epoch: Epoch,
        owner: Option<Incarnation>,
        finished_upto: u64,
        upto: u64,
    ) -> Result<Self, ClaimError> {
        if self.epoch > epoch || self.epoch == epoch && self.adopter != Some(by) {
            return Err(ClaimError::Superseded { epoch: self.epoch, by: self.adopter });
        }
        if let Some(other) = self.adopter.filter(|other| *other != by && self.adopted_upto > finished_upto) {
            return Err(ClaimError::PartOpen { by: other });
        }
        let before = Epoch(epoch.0.saturating_sub(1));
        let decided = match owner {
            Some(incarnation) => self.decided(incarnation, before, AdoptedCopy::First),
            None => self,
        };
        Ok(Self { epoch, adopter: Some(by), adopted_upto: decided.adopted_upto.max(upto), ..decided })
    }

    /// The octets of the value.
    #[must_use]
    pub fn write(&self) -> Bytes {
        let mut out = vec![VERSION, u8::from(self.adopter.is_some())];
        out.extend_from_slice(&self.adopter.map_or(0, |node| node.0).to_le_bytes());
        for number in [self.epoch.0, self.adopted_upto] {
            out.extend_from_slice(&number.to_le_bytes());
        }
        for life in &self.lives {
            out.extend_from_slice(&life.incarnation.0.to_le_bytes());
            out.extend_from_slice(&life.moved.0.to_le_bytes());
            out.push(u8::try_from(life.decisions.len()).unwrap_or(u8::MAX));
            for (upto, copy) in &life.decisions {
                out.extend_from_slice(&upto.0.to_le_bytes());
                out.push(u8::from(*copy == AdoptedCopy::Second));
            }
        }
        Bytes::from(out)
    }

    /// Reads a value; `None` when it is none of this version.
    #[must_use]
    pub fn read(value: &Bytes) -> Option<Self> {
        let mut from = Cursor(value.clone());
        let (version, flags, adopter) = (from.u8()?, from.u8()?, NodeId(from.u16()?));
        let (epoch, adopted_upto) = (Epoch(from.u64()?), from.u64()?);
        let mut lives: Vec<OwnerLife> = Vec::new();
        while from.len() > 0 {
            let life = OwnerLife::read(&mut from)?;
            if lives.len() == LIVES_MAX || lives.iter().any(|other| other.incarnation == life.incarnation) {
                return None;
            }
            lives.push(life);
        }
        let is_plain = version == VERSION && flags & !1 == 0;
        let adopter = match flags & 1 {
            0 if adopter.0 != 0 => return None,
            0 => None,
            _ => Some(adopter),
        };
        is_plain.then_some(Self { epoch, adopter, adopted_upto, lives })
    }
}

impl OwnerLife {
    fn read(from: &mut Cursor) -> Option<Self> {
        let (incarnation, moved) = (Incarnation(from.u64()?), Epoch(from.u64()?));
        let count = usize::from(from.u8()?);
        let mut decisions: Vec<(Epoch, AdoptedCopy)> = Vec::new();
        for _ in 0..count {
            let upto = Epoch(from.u64()?);
            let copy = match from.u8()? {
                0 => AdoptedCopy::First,
                1 => AdoptedCopy::Second,
                _ => return None,
            };
            decisions.push((upto, copy));
        }
        let is_ascending = decisions.windows(2).all(|pair| matches!(pair, [(a, _), (b, _)] if a < b));
        (count <= DECISIONS_MAX && is_ascending).then_some(Self { incarnation, moved, decisions })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWNER: NodeId = NodeId(1);
    const OTHER: NodeId = NodeId(2);
    const THIRD: NodeId = NodeId(3);
    const LIFE: Incarnation = Incarnation(11);
    const NEXT_LIFE: Incarnation = Incarnation(12);

    #[test]
    fn one_of_owner_and_adopter_wins() {
        let fresh = Claim::default();
        let moved = fresh.clone().taken_back(OWNER, LIFE, Epoch(5), Epoch(5)).unwrap();
        assert!(moved.is_moved(LIFE, Epoch(5)) && !moved.is_moved(LIFE, Epoch(6)));
        let adopted = fresh.adopted(OTHER, Epoch(6), Some(LIFE), 0, 10).unwrap();
        assert_eq!(
            adopted.clone().taken_back(OWNER, LIFE, Epoch(5), Epoch(5)),
            Err(ClaimError::Superseded { epoch: Epoch(6), by: Some(OTHER) })
        );
        assert!(adopted.clone().reopened(Epoch(7)).taken_back(OWNER, LIFE, Epoch(7), Epoch(7)).is_ok());
        assert!(
            adopted.taken_back(OWNER, LIFE, Epoch(0), Epoch(99)).is_err(),
            "an epoch that was not reached proves nothing"
        );
    }

    #[test]
    fn an_owner_that_reopens_late_leaves_the_next_adopter_its_claim() {
        let next = Claim::default()
            .adopted(OTHER, Epoch(6), Some(LIFE), 0, 10)
            .unwrap()
            .adopted(OTHER, Epoch(8), Some(LIFE), 10, 20)
            .unwrap();
        let late = next.clone().reopened(Epoch(7));
        assert_eq!(late, next);
        assert!(late.taken_back(OWNER, LIFE, Epoch(7), Epoch(7)).is_err());
    }

    #[test]
    fn a_second_adopter_stops() {
        let first = Claim::default().adopted(OTHER, Epoch(6), Some(LIFE), 0, 10).unwrap();
        assert!(matches!(
            first.clone().adopted(THIRD, Epoch(6), Some(LIFE), 10, 20),
            Err(ClaimError::Superseded { .. })
        ));
        assert_eq!(first.clone().adopted(THIRD, Epoch(7), Some(LIFE), 0, 20), Err(ClaimError::PartOpen { by: OTHER }));
        assert!(first.clone().adopted(THIRD, Epoch(7), Some(LIFE), 10, 20).is_ok());
        assert!(first.adopted(OTHER, Epoch(7), Some(LIFE), 0, 20).is_ok(), "the same node goes on with its part");
    }

    #[test]
    fn a_decision_about_two_copies_stays() {
        let claim = Claim::default().decided(LIFE, Epoch(4), AdoptedCopy::Second);
        let claim = claim.adopted(OTHER, Epoch(8), Some(LIFE), 0, 10).unwrap().reopened(Epoch(9));
        let claim = claim.decided(LIFE, Epoch(6), AdoptedCopy::Second).decided(LIFE, Epoch(9), AdoptedCopy::Second);
        for (epoch, copy) in [(3, Some(AdoptedCopy::Second)), (4, Some(AdoptedCopy::Second))] {
            assert_eq!(claim.decision(LIFE, Epoch(epoch)), copy);
        }
        for epoch in 5..8 {
            assert_eq!(claim.decision(LIFE, Epoch(epoch)), Some(AdoptedCopy::First), "an adopter has looked at it");
        }
        assert_eq!(claim.decision(LIFE, Epoch(9)), Some(AdoptedCopy::Second));
        assert_eq!(claim.decision(LIFE, Epoch(10)), None);
    }

    #[test]
    fn a_new_disk_takes_nothing_back_of_the_disk_before() {
        let claim = Claim::default().taken_back(OWNER, NEXT_LIFE, Epoch(0), Epoch(9)).unwrap();
        assert!(claim.is_moved(NEXT_LIFE, Epoch(9)) && !claim.is_moved(LIFE, Epoch(1)));
        assert_eq!(claim.decision(LIFE, Epoch(1)), None, "an adopter of the first copies takes them");
        let claim = claim.adopted(OTHER, Epoch(6), Some(LIFE), 0, 10).unwrap();
        assert_eq!(claim.decision(LIFE, Epoch(5)), Some(AdoptedCopy::First));
    }

    #[test]
    fn a_claim_keeps_the_latest_lives() {
        let claim = (1..=20).fold(Claim::default(), |claim, life| claim.moved(Incarnation(life), Epoch(1)));
        assert!(claim.lives.len() == LIVES_MAX && claim.is_moved(Incarnation(20), Epoch(1)));
        assert_eq!(Claim::read(&claim.write()), Some(claim));
    }

    #[test]
    fn a_claim_reads_back() {
        let claim = Claim { epoch: Epoch(9), adopter: Some(OTHER), adopted_upto: 77, lives: Vec::new() };
        let claim = claim.decided(LIFE, Epoch(4), AdoptedCopy::Second).decided(LIFE, Epoch(8), AdoptedCopy::First);
        let claim = claim.moved(LIFE, Epoch(3)).moved(NEXT_LIFE, Epoch(2));
        for claim in [claim, Claim::default()] {
            assert_eq!(Claim::read(&claim.write()), Some(claim));
        }
        assert_eq!(Claim::read(&Bytes::from_static(b"\x02\0\0\0")), None);
    }
}

//! The messages that lines tell of, between their arrival and their end.
//!
//! Two maps, of which the older is dropped when the younger is full: memory has a bound, and a message that lines
//! tell of again and again stays. A message that was dropped has an unknown size, and nothing else is lost. sendmail
//! does not say when a message is done (its recipients may be a list), so messages also go this way.

use std::collections::HashMap;
use std::hash::{BuildHasherDefault, Hasher};

/// Messages that are remembered at most. About 100 octets each.
pub const MESSAGES_MAX: usize = 200_000;

/// A queue id of up to 16 octets as a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct IdKey(u128);

impl IdKey {
    /// `None`: it is too long to be an id.
    pub(super) fn of(id: &str) -> Option<Self> {
        (id.len() <= 16).then(|| Self(id.bytes().fold(0, |key, octet| key << 8 | u128::from(octet))))
    }
}

/// Facts of a message from earlier lines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Message {
    /// Octets; 0 while unknown.
    pub(super) size: u64,
    /// Postfix: a line told of its arrival, and the line with sender and size has not come yet.
    pub(super) is_new: bool,
    /// It came by a line of this log.
    pub(super) is_arrived: bool,
}

/// Ids are made by a server and not by its peers, so their hash need not be secret.
#[derive(Debug, Default)]
pub(super) struct IdHasher(u64);

impl Hasher for IdHasher {
    fn write(&mut self, octets: &[u8]) {
        octets.iter().for_each(|octet| self.write_u128(u128::from(*octet)));
    }

    fn write_u128(&mut self, number: u128) {
        // The two halves, and a multiplication whose upper half depends on all bits.
        #[expect(clippy::cast_possible_truncation, reason = "the halves are wanted")]
        let (low, high) = (number as u64, (number >> 64) as u64);
        let mixed = u128::from(self.0 ^ low ^ high.rotate_left(29)) * 0x9E37_79B9_7F4A_7C15;
        #[expect(clippy::cast_possible_truncation, reason = "the halves are wanted")]
        let folded = (mixed as u64) ^ ((mixed >> 64) as u64);
        self.0 = folded;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

type IdMap = HashMap<IdKey, Message, BuildHasherDefault<IdHasher>>;

/// The messages under way.
#[derive(Debug, Default)]
pub(super) struct Messages {
    young: IdMap,
    old: IdMap,
}

impl Messages {
    /// Returns the message, if it is remembered.
    pub(super) fn get(&mut self, id: &str) -> Option<&mut Message> {
        let key = IdKey::of(id)?;
        if let Some(message) = self.old.remove(&key) {
            self.insert(key, message);
        }
        self.young.get_mut(&key)
    }

    /// Returns the message, and remembers it from now on. `None`: the id is too long.
    pub(super) fn entry(&mut self, id: &str) -> Option<&mut Message> {
        let key = IdKey::of(id)?;
        if !self.young.contains_key(&key) {
            let message = self.old.remove(&key).unwrap_or_default();
            self.insert(key, message);
        }
        self.young.get_mut(&key)
    }

    fn insert(&mut self, key: IdKey, message: Message) {
        if self.young.len() >= MESSAGES_MAX / 2 {
            self.old = std::mem::take(&mut self.young);
        }
        self.young.insert(key, message);
    }

    /// Forgets a message.
    pub(super) fn remove(&mut self, id: &str) {
        if let Some(key) = IdKey::of(id) {
            self.young.remove(&key);
            self.old.remove(&key);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_bounded_and_used_messages_stay() {
        let mut messages = Messages::default();
        messages.entry("USED").unwrap().size = 7;
        for number in 0..3 * MESSAGES_MAX {
            messages.entry(&format!("{number:08X}")).unwrap().size = 1;
            if number.is_multiple_of(1_000) {
                assert_eq!(messages.get("USED").map(|message| message.size), Some(7));
            }
        }
        assert!(messages.young.len() + messages.old.len() <= MESSAGES_MAX);
        assert_eq!(messages.get("00000000"), None);
        assert_eq!(messages.entry(&"x".repeat(17)), None);
    }
}

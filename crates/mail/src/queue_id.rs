//! The name of a message from the moment it is taken: in the spool, in the log, in the `250` reply, in `Received:`.
//!
//! A [`QueueId`] is 64 bits: microseconds since the Unix epoch in the upper 52, the number of the [`Node`] that gave it
//! in the lower 12. Its text looks like sendmail's, so that log readers made for sendmail find it:
//!
//! ```text
//! 6AK84d3xQ10028   year since 2020, month from 0, day, hour, minute, second (UTC): one base-60 digit each
//!       ^^^^       microseconds, four base-60 digits
//!           ^^^^   node, four decimal digits (0000..4095)
//! ```
//!
//! Invariants: the order of ids, of their numbers and of their texts is the order of time; number ↔ text is one to one;
//! a `QueueId` always lies in the years 2020 to 2079, the range of one base-60 digit for the year. [`QueueIds`] gives
//! ids and has no clock: the caller gives the time.

use std::fmt;
use std::str::FromStr;

use crate::civil::CivilTime;

const ALPHABET: &[u8; 60] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwx";
const FIRST_YEAR: i64 = 2020;
/// 2020-01-01T00:00:00Z
const FIRST_US: u64 = 1_577_836_800_000_000;
/// One microsecond before 2080-01-01T00:00:00Z
const LAST_US: u64 = 3_471_292_799_999_999;
const NODE_BITS: u32 = 12;
const TEXT_LEN: usize = 14;

/// Which giver of ids an id is from: a number below 4096, unique among all generators whose messages may meet
/// (machines of a cluster, shards of a spool).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Node(u16);

impl Node {
    /// The largest node number.
    pub const MAX: Self = Self((1 << NODE_BITS) - 1);

    /// Makes a node number; `None` above 4095.
    #[must_use]
    pub const fn new(number: u16) -> Option<Self> {
        if number <= Self::MAX.0 { Some(Self(number)) } else { None }
    }

    /// The number, 0..=4095.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }
}

/// The identity of a queued message; see the top of this file for its two forms.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct QueueId(u64);

impl QueueId {
    /// The least id: 2020-01-01T00:00:00Z, node 0.
    pub const MIN: Self = Self(FIRST_US << NODE_BITS);
    /// The greatest id: the last microsecond of 2079, node 4095.
    pub const MAX: Self = Self((LAST_US << NODE_BITS) | Node::MAX.0 as u64);

    /// Makes the id of a moment in microseconds since the Unix epoch; `None` outside the years 2020 to 2079.
    #[must_use]
    pub const fn new(unix_us: u64, node: Node) -> Option<Self> {
        if unix_us >= FIRST_US && unix_us <= LAST_US {
            Some(Self((unix_us << NODE_BITS) | node.0 as u64))
        } else {
            None
        }
    }

    /// Takes an id back from its number; `None` when no id has it, as in a damaged record.
    #[must_use]
    pub const fn from_u64(number: u64) -> Option<Self> {
        if number >= Self::MIN.0 && number <= Self::MAX.0 { Some(Self(number)) } else { None }
    }

    /// The id as a number, for records and indexes.
    #[must_use]
    pub const fn to_u64(self) -> u64 {
        self.0
    }

    /// When the id was given, in microseconds since the Unix epoch. Close to the time of arrival, but a clock that
    /// stood or stepped back makes it run ahead; the envelope holds the time itself.
    #[must_use]
    pub const fn unix_us(self) -> u64 {
        self.0 >> NODE_BITS
    }

    /// Returns the node that gave the id.
    #[must_use]
    #[expect(clippy::cast_possible_truncation, reason = "masked to 12 bits")]
    pub const fn node(self) -> Node {
        Node((self.0 & Node::MAX.0 as u64) as u16)
    }

    /// The 14 characters of the id, all ASCII letters and digits.
    #[must_use]
    #[expect(clippy::missing_panics_doc, reason = "the invariant of the type rules them out")]
    pub fn text(self) -> [u8; TEXT_LEN] {
        let us = i64::try_from(self.unix_us()).expect("52 bits fit");
        let civil = CivilTime::from_unix(us / 1_000_000);
        let micros = us % 1_000_000;
        let node = i64::from(self.node().0);
        let base60 = |value: i64| {
            let digit = usize::try_from(value.rem_euclid(60)).expect("below 60");
            *ALPHABET.get(digit).expect("below 60")
        };
        // The decimal digits are the first ten of the alphabet.
        [
            base60(civil.year - FIRST_YEAR),
            base60(civil.month - 1),
            base60(civil.day),
            base60(civil.hour),
            base60(civil.minute),
            base60(civil.second),
            base60(micros / 216_000),
            base60(micros / 3_600),
            base60(micros / 60),
            base60(micros),
            base60(node / 1_000),
            base60(node / 100 % 10),
            base60(node / 10 % 10),
            base60(node % 10),
        ]
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let text: &[u8; TEXT_LEN] = text.try_into().ok()?;
        let mut digits = [0_i64; TEXT_LEN];
        for (digit, byte) in digits.iter_mut().zip(text) {
            *digit = i64::try_from(ALPHABET.iter().position(|letter| letter == byte)?).ok()?;
        }
        let [year, month, day, hour, minute, second, u3, u2, u1, u0, n3, n2, n1, n0] = digits;
        if [n3, n2, n1, n0].iter().any(|digit| *digit > 9) {
            return None;
        }
        let micros = ((u3 * 60 + u2) * 60 + u1) * 60 + u0;
        if micros > 999_999 {
            return None;
        }
        let seconds = CivilTime { year: FIRST_YEAR + year, month: month + 1, day, hour, minute, second }.to_unix()?;
        let node = Node::new(u16::try_from(n3 * 1_000 + n2 * 100 + n1 * 10 + n0).ok()?)?;
        Self::new(u64::try_from(seconds * 1_000_000 + micros).ok()?, node)
    }
}

impl fmt::Display for QueueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = self.text();
        f.pad(str::from_utf8(&text).expect("letters and digits"))
    }
}

impl fmt::Debug for QueueId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "QueueId({self})")
    }
}

impl FromStr for QueueId {
    type Err = QueueIdError;

    /// Reads the 14 characters, and only those that [`QueueId::text`] writes: no id has two texts.
    fn from_str(text: &str) -> Result<Self, QueueIdError> {
        Self::parse(text.as_bytes()).ok_or_else(|| QueueIdError { text: text.escape_debug().take(64).collect() })
    }
}

/// The text is no queue id: wrong length, a letter outside the alphabet, or a date that does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct QueueIdError {
    text: String,
}

impl fmt::Display for QueueIdError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "\"{}\" is no queue id; one has 14 letters and digits, such as {}", self.text, QueueId::MIN)
    }
}

impl std::error::Error for QueueIdError {}

/// Gives ids, each greater than all it gave before, whatever the clock does.
///
/// ```
/// use mail::{Node, QueueIds};
/// let mut ids = QueueIds::new(Node::default());
/// let first = ids.next(1_760_000_000_000_000);
/// let second = ids.next(1_759_999_999_000_000); // the clock was set back
/// assert!(first < second);
/// ```
#[derive(Clone, Debug)]
pub struct QueueIds {
    node: Node,
    /// The next id is not before this microsecond.
    next_us: u64,
}

impl QueueIds {
    /// Clock readings are cut off this long before the end of 2079. A machine that believes to live later goes on
    /// giving rising ids, one per microsecond of this reserve, instead of stopping the mail.
    const RESERVE_US: u64 = 366 * 86_400 * 1_000_000;

    /// Starts a generator for an empty spool.
    #[must_use]
    pub const fn new(node: Node) -> Self {
        Self { node, next_us: FIRST_US }
    }

    /// Starts a generator whose ids are all greater than `largest`, the greatest id the spool knows, by any node.
    #[must_use]
    pub const fn after(node: Node, largest: QueueId) -> Self {
        Self { node, next_us: largest.unix_us() + 1 }
    }

    /// Gives the next id. `now_us` is the time in microseconds since the Unix epoch; when it has not advanced since the
    /// last id, or lies before 2020, the id takes the next free microsecond instead.
    ///
    /// # Panics
    /// When every microsecond to the end of 2079 is used up, which takes a spool that already holds an id of that year.
    pub fn next(&mut self, now_us: u64) -> QueueId {
        let us = now_us.min(LAST_US - Self::RESERVE_US).max(self.next_us);
        let id = QueueId::new(us, self.node).expect("queue ids end with the year 2079");
        self.next_us = us + 1;
        id
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn node(number: u16) -> Node {
        Node::new(number).unwrap()
    }

    #[test]
    fn text_of_known_moments() {
        let id = QueueId::new(1_577_836_800_000_000, node(0)).unwrap();
        assert_eq!(id.to_string(), "00100000000000");
        // 2026-11-20T08:04:39.123456Z: 123456 = ((0*60 + 34)*60 + 17)*60 + 36
        let id = QueueId::new(1_795_161_879_123_456, node(28)).unwrap();
        assert_eq!(id.to_string(), "6AK84d0YHa0028");
        assert_eq!(QueueId::MAX.to_string(), "xBVNxx4bkd4095");
        assert_eq!(format!("{id:>16}|{id:?}"), "  6AK84d0YHa0028|QueueId(6AK84d0YHa0028)");
    }

    #[test]
    fn foreign_text_is_refused() {
        for text in [
            "",
            "6AK84d0YHa002",   // short
            "6AK84d0YHa00280", // long
            "6AK84d0YHa002A",  // node is decimal
            "6AK84d0YHa4096",  // node beyond 4095
            "6AK84d0YHa002y",  // outside the alphabet
            "6CK84d0YHa0028",  // month 13
            "61U84d0YHa0028",  // 30 February
            "6A084d0YHa0028",  // day 0
            "6AKO4d0YHa0028",  // hour 24
            "6AK84d5000d028",  // microseconds beyond a second
            "6AK84d4bke0028",  // the first of them
            "6AK84d0YHa\u{e9}28",
        ] {
            assert!(text.parse::<QueueId>().is_err(), "{text}");
        }
        let error = "a\nb".parse::<QueueId>().unwrap_err();
        assert_eq!(
            error.to_string(),
            r#""a\nb" is no queue id; one has 14 letters and digits, such as 00100000000000"#
        );
    }

    #[test]
    fn numbers_outside_the_sixty_years_are_no_ids() {
        assert_eq!(QueueId::from_u64(0), None);
        assert_eq!(QueueId::from_u64(QueueId::MIN.to_u64() - 1), None);
        assert_eq!(QueueId::from_u64(QueueId::MAX.to_u64() + 1), None);
        assert_eq!(QueueId::from_u64(QueueId::MAX.to_u64()), Some(QueueId::MAX));
    }

    #[test]
    fn a_standing_clock_and_one_that_steps_back_still_rise() {
        let mut ids = QueueIds::new(node(7));
        let now = 1_795_161_879_000_000;
        let given: Vec<_> = [now, now, now - 5_000_000, 0, now + 1, u64::MAX, now].map(|us| ids.next(us)).into();
        assert!(given.is_sorted_by(|a, b| a < b), "{given:?}");
        assert!(given.iter().all(|id| id.node() == node(7)));
    }

    #[test]
    fn a_restart_continues_after_the_largest_known_id() {
        let largest = QueueId::new(1_795_161_879_000_000, node(4_095)).unwrap();
        let mut ids = QueueIds::after(node(0), largest);
        assert!(ids.next(1_000_000) > largest);
    }

    fn any_id() -> impl Strategy<Value = QueueId> {
        (FIRST_US..=LAST_US, 0..=Node::MAX.get()).prop_map(|(us, n)| QueueId::new(us, node(n)).unwrap())
    }

    proptest! {
        #[test]
        fn text_and_number_come_back(id in any_id()) {
            prop_assert_eq!(id.to_string().parse::<QueueId>(), Ok(id));
            prop_assert_eq!(QueueId::from_u64(id.to_u64()), Some(id));
            prop_assert_eq!(QueueId::new(id.unix_us(), id.node()), Some(id));
        }

        #[test]
        fn order_of_texts_is_order_of_time(a in any_id(), b in any_id()) {
            prop_assert_eq!(a.cmp(&b), a.text().cmp(&b.text()));
        }
    }
}

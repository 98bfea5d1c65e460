//! The name of a message from the moment it is taken: in the spool, in the log, in the `250` reply, in `Received:`.
//!
//! A [`QueueId`] is 64 bits: microseconds since the Unix epoch in the upper 52, the number of the [`Node`] that gave it
//! in the lower 12. Its text looks like sendmail's, so that log readers made for sendmail find it:
//!
//! ```text
//! 6AK9BPYn675804   year since 2020, month from 0, day (UTC): one base-60 digit each
//!    ^^^^^         microsecond of the day × 4096 + node, divided by 10^6: five base-60 digits
//!         ^^^^^^   the remainder: six decimal digits
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
const DAY_US: i64 = 86_400_000_000;
const DATE_LEN: usize = 3;
/// Bases of the characters after the date. Their product, 7.776e14, exceeds a day's 86.4e9 microseconds × 4096 nodes.
const PLACE_BASES: [i64; QueueId::TEXT_LEN - DATE_LEN] = [60, 60, 60, 60, 60, 10, 10, 10, 10, 10, 10];
/// The characters of base 60 among them, and the product of the other bases.
const PLACE_LETTERS: usize = 5;
const PLACE_DIGITS_PRODUCT: u64 = 1_000_000;
const _: () = assert!(60_i64.pow(5) * 10_i64.pow(6) > DAY_US << NODE_BITS, "a day fits the characters after the date");

/// Which giver of ids an id is from: a number below 4096, unique among all generators whose messages may meet
/// (machines of a cluster, shards of a spool).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Debug, Default)]
pub struct Node(u16);

/// The share of a node of a cluster in so many numbers.
const fn share_of_node(count: u16) -> u16 {
    count / (Node::CLUSTER_MAX + 1)
}

impl Node {
    /// The largest number of a node of a cluster. The ids that its nodes give beside those of the present are told
    /// apart as far as this.
    pub const CLUSTER_MAX: u16 = 63;

    /// Whether a node of a cluster with the number `node` gives ids with this number: its own, or one of its shares.
    #[must_use]
    pub const fn is_of(self, node: Self) -> bool {
        let first = if self.0 >= 2_048 { 2_048 } else { 1_024 };
        let share = share_of_node(first);
        self.0 == node.0 || self.0 >= first && (self.0 - first) / share == node.0
    }

    /// A number below `count` for an opening of a spool. Each node of a cluster has its own share of them; a machine
    /// alone, whose node is 0, has all.
    pub(crate) fn share_of(self, count: u16, epoch: u64) -> u16 {
        let share = if self.0 == 0 { count } else { share_of_node(count) };
        let number = u16::try_from(epoch % u64::from(share.max(1))).unwrap_or(0);
        if self.0 == 0 { number } else { self.0.min(Self::CLUSTER_MAX) * share + number }
    }

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
    /// Octets of its text.
    pub const TEXT_LEN: usize = 14;
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

    /// The 14 characters of the id: eight ASCII letters or digits, then six digits.
    #[must_use]
    #[expect(clippy::missing_panics_doc, reason = "the invariant of the type rules them out")]
    pub fn text(self) -> [u8; Self::TEXT_LEN] {
        let us = i64::try_from(self.unix_us()).expect("52 bits fit");
        let civil = CivilTime::from_unix(us / 1_000_000);
        let rest = (us % DAY_US).unsigned_abs() << NODE_BITS | u64::from(self.node().0);
        let mut text = [0; Self::TEXT_LEN];
        let (date, place) = text.split_at_mut(DATE_LEN);
        for (byte, value) in date.iter_mut().zip([civil.year - FIRST_YEAR, civil.month - 1, civil.day]) {
            *byte = character(value);
        }
        // Divisors that the compiler knows: an id is written several times for each message.
        let (letters, digits) = place.split_at_mut(PLACE_LETTERS);
        let (mut upper, mut lower) = (rest / PLACE_DIGITS_PRODUCT, rest % PLACE_DIGITS_PRODUCT);
        for byte in letters.iter_mut().rev() {
            *byte = character(i64::try_from(upper % 60).unwrap_or(0));
            upper /= 60;
        }
        for byte in digits.iter_mut().rev() {
            *byte = b'0' + u8::try_from(lower % 10).unwrap_or(0);
            lower /= 10;
        }
        text
    }

    fn parse(text: &[u8]) -> Option<Self> {
        let text: &[u8; Self::TEXT_LEN] = text.try_into().ok()?;
        let mut digits = [0_i64; Self::TEXT_LEN];
        for (digit, byte) in digits.iter_mut().zip(text) {
            *digit = i64::try_from(ALPHABET.iter().position(|letter| letter == byte)?).ok()?;
        }
        let [year, month, day, place @ ..] = digits;
        let mut rest = 0;
        for (digit, base) in place.into_iter().zip(PLACE_BASES) {
            if digit >= base {
                return None;
            }
            rest = rest * base + digit;
        }
        let day_us = rest >> NODE_BITS;
        if day_us >= DAY_US {
            return None;
        }
        let date = CivilTime { year: FIRST_YEAR + year, month: month + 1, day, hour: 0, minute: 0, second: 0 };
        let node = Node::new(u16::try_from(rest & i64::from(Node::MAX.0)).ok()?)?;
        Self::new(u64::try_from(date.to_unix()? * 1_000_000 + day_us).ok()?, node)
    }
}

/// Returns the character of a digit. The decimal digits are the first ten of the alphabet.
fn character(digit: i64) -> u8 {
    let index = usize::try_from(digit).expect("a digit of these bases");
    *ALPHABET.get(index).expect("a digit of these bases")
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
    /// The node of the machine.
    home: Node,
    /// No id of it is before this microsecond.
    first_us: u64,
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
        Self { node, home: node, first_us: FIRST_US, next_us: FIRST_US }
    }

    /// Starts a generator whose ids are all greater than `largest`, the greatest id the spool knows, by any node.
    #[must_use]
    pub const fn after(node: Node, largest: QueueId) -> Self {
        let next_us = largest.unix_us() + 1;
        Self { node, home: node, first_us: next_us, next_us }
    }

    /// How far the greatest id may be ahead of the clock before new ids are those of the clock again.
    const AHEAD_US: u64 = 86_400 * 1_000_000;
    /// The first node, and the number of nodes, of ids that are given while greater ones lie far ahead.
    const BESIDE: (u16, u16) = (1_024, 1_024);

    /// Starts a generator for a spool that is opened for the `epoch`th time at `now_us`, as [`QueueIds::after`].
    ///
    /// When `largest` is more than a day ahead, an earlier clock was wrong. The new ids have the present time then, and
    /// a node of this opening, so that they are unique among those of that clock.
    #[must_use]
    pub fn resume(node: Node, largest: QueueId, now_us: u64, epoch: u64) -> Self {
        if largest.unix_us() <= now_us.saturating_add(Self::AHEAD_US) {
            return Self::after(node, largest);
        }
        let (first, count) = Self::BESIDE;
        let number = node.share_of(count, epoch);
        // An earlier opening may have had the same node, and an earlier time.
        Self { first_us: now_us, home: node, ..Self::new(Node::new(first + number).unwrap_or(node)) }
    }

    /// The node whose ids these are while no greater ones lie far ahead.
    #[must_use]
    pub const fn home(&self) -> Node {
        self.home
    }

    /// Returns whether this generator has given the id: the message came since the spool was opened.
    #[must_use]
    pub const fn has_given(&self, id: QueueId) -> bool {
        id.node().0 == self.node.0 && id.unix_us() >= self.first_us && id.unix_us() < self.next_us
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

    #[test]
    fn ids_of_this_opening_are_told_from_older_ones() {
        let now = 1_760_000_000_000_000;
        let mut before = QueueIds::new(node(0));
        let old = before.next(now);
        let mut after = QueueIds::resume(node(0), old, now - 5, 2);
        let new = after.next(now - 5);
        assert!(after.has_given(new) && !after.has_given(old) && before.has_given(old) && !before.has_given(new));
        // The clock of the opening before ran far ahead; that of an earlier one with the same number did not.
        let ahead = QueueId::new(now + 90_000_000_000_000, node(0)).unwrap();
        let mut beside = QueueIds::resume(node(0), ahead, now, 3);
        let new = beside.next(now);
        assert!(beside.has_given(new) && !beside.has_given(ahead) && !beside.has_given(old));
        assert!(!beside.has_given(QueueId::new(now - 1, new.node()).unwrap()));
    }

    fn node(number: u16) -> Node {
        Node::new(number).unwrap()
    }

    #[test]
    fn text_of_known_moments() {
        let id = QueueId::new(1_577_836_800_000_000, node(0)).unwrap();
        assert_eq!(id.to_string(), "00100000000000");
        // 2026-11-20T08:04:39.123456Z: 29_079_123_456 µs × 4096 + 28 = 119108089675804
        let id = QueueId::new(1_795_161_879_123_456, node(28)).unwrap();
        assert_eq!(id.to_string(), "6AK9BPYn675804");
        // The last microsecond of a leap day.
        let id = QueueId::new(1_835_481_599_999_999, Node::MAX).unwrap();
        assert_eq!(id.to_string(), "81TRINxx999999");
        assert_eq!(QueueId::MAX.to_string(), "xBVRINxx999999");
        assert_eq!(format!("{id:>16}|{id:?}"), "  81TRINxx999999|QueueId(81TRINxx999999)");
    }

    #[test]
    fn foreign_text_is_refused() {
        for text in [
            "",
            "6AK9BPYn67580",   // short
            "6AK9BPYn6758040", // long
            "6AK9BPYn67580A",  // the last six are decimal
            "6AK9BPYnA75804",
            "6AK9BPYy675804", // outside the alphabet
            "6CK9BPYn675804", // month 13
            "61U9BPYn675804", // 30 February
            "71T9BPYn675804", // 29 February of a common year
            "6A09BPYn675804", // day 0
            "6AKRIO00000000", // the first microsecond beyond the day
            "6AKxxxxx999999",
            "6AK9BPYn67\u{e9}04",
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

    #[test]
    fn ids_far_ahead_do_not_keep_new_ones_there() {
        let now = 1_795_161_879_000_000;
        let largest = |us| QueueId::new(us, node(0)).unwrap();
        let hour = 3_600_000_000;
        let mut ids = QueueIds::resume(node(0), largest(now + hour), now, 7);
        assert!(ids.next(now) > largest(now + hour), "a clock that was set back a little");
        let [first, second] = [7, 8].map(|epoch| {
            let mut ids = QueueIds::resume(node(0), largest(now + 900 * 24 * hour), now, epoch);
            let id = ids.next(now);
            assert!(id.unix_us() == now && ids.next(now) > id);
            id
        });
        assert!(first.node() != second.node() && first.node() != node(0));
        assert!([first, second].iter().all(|id| id.node().get() < crate::PastIds::NODE_FIRST));
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
        fn text_has_the_form_of_sendmail(id in any_id()) {
            let text = id.to_string();
            let (head, tail) = text.split_at(8);
            prop_assert!(head.bytes().all(|byte| byte.is_ascii_alphanumeric()), "{}", text);
            prop_assert!(tail.len() == 6 && tail.bytes().all(|byte| byte.is_ascii_digit()), "{}", text);
        }

        #[test]
        fn a_text_that_reads_is_the_text_of_its_id(text in "[4-8][0-B][0-V][0-9A-z]{5}[0-9]{6}") {
            if let Ok(id) = text.parse::<QueueId>() {
                prop_assert_eq!(id.to_string(), text);
            }
        }

        #[test]
        fn neighbours_in_time_and_node_are_in_order(us in FIRST_US..LAST_US, a in 0..=Node::MAX.get(), b in 0..=Node::MAX.get()) {
            let (earlier, later) = (QueueId::new(us, node(a)).unwrap(), QueueId::new(us + 1, node(b)).unwrap());
            prop_assert!(earlier.text() < later.text());
            let same = QueueId::new(us, node(b)).unwrap();
            prop_assert_eq!(a.cmp(&b), earlier.text().cmp(&same.text()));
        }

        #[test]
        fn order_of_texts_is_order_of_time(a in any_id(), b in any_id()) {
            prop_assert_eq!(a.cmp(&b), a.text().cmp(&b.text()));
        }
    }
}

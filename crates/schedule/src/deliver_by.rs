//! Deliver-by times of the recipients of one destination (BY of RFC 2852).
//!
//! They cover recipients that wait in the spool or in a ready queue; for those in flight the attempt decides. The
//! destination gets attention at the earliest time, so no message has a timer of its own. Each step costs O(log n) per
//! recipient.
//!
//! The driver reports a time when it stores a message. Unknown times, as after a crash, are asked for when a scan
//! passes an entry that may have one ([`QueueEntry::timed`](crate::QueueEntry::timed)) and cannot take it. After a full
//! scan without room for all times, the rest is asked for again when the first evicted time comes, not by each scan.
//!
//! Also here: messages whose age does not count yet, because the sender set a later time or could not be told.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use mail::QueueId;

use crate::chance::ById;
use crate::job::Positions;

/// Maximum number of messages per destination with a known time; a scan finds the latest ones at their time. Also the
/// maximum number of age exemptions; scans ask for further ones each time.
pub(crate) const DEADLINES_MAX: usize = 10_000;
/// Shortest time between two rounds of questions in a list with more times than there is room for, if some were never
/// asked for.
const ASK_INTERVAL: Duration = Duration::from_secs(15 * 60);

/// The times, earliest first. Each message has one.
#[derive(Debug, Default)]
pub(crate) struct DeliverByTimes {
    by_time: BTreeMap<(Duration, QueueId), BTreeSet<u32>>,
    by_message: ById<QueueId, Duration>,
    /// No notice before this time.
    pub(crate) not_before: Duration,
    /// The earliest time that was evicted since a scan started to ask.
    evicted: Option<Duration>,
    /// Unknown times that were asked for come after `evicted`: scans do not ask for them.
    asking_paused: bool,
    /// Times that were asked for are not asked for again before this time, unless `evicted` comes.
    ask_not_before: Duration,
    /// Until when the age of a message does not count.
    age_exempt: ById<QueueId, Duration>,
}

impl DeliverByTimes {
    /// Returns whether the time of a recipient is known.
    pub(crate) fn contains(&self, message: QueueId, recipient: u32) -> bool {
        let found = self.by_message.get(&message).and_then(|at| self.by_time.get(&(*at, message)));
        found.is_some_and(|known| known.contains(&recipient))
    }

    /// Records the time of recipients; [`Duration::MAX`]: they have none. If a message gets two times, the earlier one
    /// counts for all its recipients.
    ///
    /// Returns the time that was evicted, if the list has to be scanned then.
    pub(crate) fn insert(&mut self, message: QueueId, recipients: &Positions, at: Duration) -> Option<Duration> {
        let known = self.by_message.remove(&message).and_then(|at| Some((at, self.by_time.remove(&(at, message))?)));
        let (at, all) = match known {
            Some((before, mut known)) => {
                known.extend(recipients.iter());
                (at.min(before), known)
            }
            None => (at, recipients.iter().collect()),
        };
        self.by_time.insert((at, message), all);
        self.by_message.insert(message, at);
        if self.by_message.len() <= DEADLINES_MAX {
            return None;
        }
        let ((latest, message), _) = self.by_time.pop_last()?;
        self.by_message.remove(&message);
        self.evicted = Some(self.evicted.map_or(latest, |before| before.min(latest)));
        Some(latest).filter(|latest| *latest < Duration::MAX)
    }

    /// Forgets recipients that no longer wait.
    pub(crate) fn remove(&mut self, message: QueueId, recipients: &Positions) {
        self.age_exempt.remove(&message);
        let Some(at) = self.by_message.get(&message).copied() else { return };
        let Some(known) = self.by_time.get_mut(&(at, message)) else { return };
        for recipient in recipients.iter() {
            known.remove(&recipient);
        }
        if known.is_empty() {
            self.by_time.remove(&(at, message));
            self.by_message.remove(&message);
        }
    }

    /// Returns when the next time is over.
    pub(crate) fn next_at(&self) -> Option<Duration> {
        let (at, _) = *self.by_time.first_key_value()?.0;
        (at < Duration::MAX).then(|| at.max(self.not_before))
    }

    /// Removes a message whose time is over.
    pub(crate) fn pop_due(&mut self, now: Duration) -> Option<(QueueId, Positions)> {
        self.next_at().filter(|at| *at <= now)?;
        let ((_, message), recipients) = self.by_time.pop_first()?;
        self.by_message.remove(&message);
        Some((message, recipients.into_iter().collect()))
    }

    /// Starts a full scan. `unseen`: some entries may never have been asked for. Returns when the next scan has to
    /// start if this one does not ask.
    pub(crate) fn begin_scan(&mut self, unseen: bool, now: Duration) -> Option<Duration> {
        if let Some(latest) = self.evicted {
            let at = if unseen { latest.min(self.ask_not_before) } else { latest };
            if at > now {
                (self.evicted, self.asking_paused) = (Some(at), true);
                return Some(at).filter(|at| *at < Duration::MAX);
            }
        }
        (self.evicted, self.asking_paused, self.ask_not_before) = (None, false, now.saturating_add(ASK_INTERVAL));
        None
    }

    /// Records that a full scan asked for all times, or knows them.
    pub(crate) const fn all_asked(&mut self) {
        self.asking_paused = true;
    }

    /// Returns whether asking for an unknown time is useless: it was asked for, and there was no room.
    pub(crate) const fn asking_paused(&self) -> bool {
        self.asking_paused && self.evicted.is_some()
    }

    /// Allows the next scan to ask from `at` on, because this one could not ask for all.
    pub(crate) fn allow_ask_from(&mut self, at: Duration) {
        if !self.asking_paused {
            self.ask_not_before = self.ask_not_before.min(at);
        }
    }

    /// Forgets all age exemptions.
    pub(crate) fn clear_age_exemptions(&mut self) {
        self.age_exempt = ById::default();
    }

    /// Returns until when the age of a message does not count, or did not.
    pub(crate) fn age_exemption(&self, message: QueueId) -> Option<Duration> {
        self.age_exempt.get(&message).copied()
    }

    /// Returns the same if that time is to come.
    pub(crate) fn active_age_exemption(&self, message: QueueId, now: Duration) -> Option<Duration> {
        self.age_exemption(message).filter(|until| *until > now)
    }

    /// Records until when the age of a message does not count; forgets it if that is over.
    pub(crate) fn set_age_exemption(&mut self, message: QueueId, until: Duration, now: Duration) {
        self.age_exempt.remove(&message);
        if self.age_exempt.len() >= DEADLINES_MAX {
            self.age_exempt.retain(|_, until| *until > now);
        }
        if until > now && self.age_exempt.len() < DEADLINES_MAX {
            self.age_exempt.insert(message, until);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> QueueId {
        QueueId::new(1_700_000_000_000_000 + number, mail::Node::default()).unwrap()
    }

    fn at(seconds: u64) -> Duration {
        Duration::from_secs(seconds)
    }

    #[test]
    fn the_earliest_is_first_and_a_message_has_one_time() {
        let mut deadlines = DeliverByTimes::default();
        let (some, more): (Positions, Positions) = ([1, 4].into_iter().collect(), [2, 4].into_iter().collect());
        assert_eq!(deadlines.insert(id(1), &some, at(100)), None);
        assert_eq!(deadlines.insert(id(2), &some, at(50)), None);
        assert_eq!(deadlines.insert(id(3), &some, Duration::MAX), None);
        assert_eq!(deadlines.insert(id(1), &more, at(70)), None);
        assert!([1, 2, 4].into_iter().all(|one| deadlines.contains(id(1), one)) && !deadlines.contains(id(1), 3));
        deadlines.remove(id(1), &some);
        assert!(deadlines.contains(id(1), 2) && !deadlines.contains(id(1), 4));
        assert_eq!((deadlines.next_at(), deadlines.pop_due(at(49))), (Some(at(50)), None));
        deadlines.not_before = at(60);
        assert_eq!((deadlines.next_at(), deadlines.pop_due(at(59))), (Some(at(60)), None));
        assert_eq!(deadlines.pop_due(at(80)), Some((id(2), some.clone())));
        assert_eq!(deadlines.pop_due(at(80)), Some((id(1), Positions::One(2))));
        assert_eq!((deadlines.next_at(), deadlines.pop_due(at(1 << 40))), (None, None), "no time is no time");
        assert!(deadlines.contains(id(3), 1));
        deadlines.remove(id(3), &some);
        assert!(!deadlines.contains(id(3), 1) && deadlines.by_message.is_empty() && deadlines.by_time.is_empty());
    }

    /// A finished job costs time for its own recipients, however many others its message has here.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "it measures time")]
    fn a_part_of_a_list_is_forgotten_as_fast_as_a_message() {
        let parts: Vec<Positions> = (0..200).map(|part| (part * 100..part * 100 + 100).collect()).collect();
        let whole: Positions = (0..20_000).collect();
        let round = |fill: &dyn Fn(&mut DeliverByTimes), of: &dyn Fn(u64) -> QueueId| {
            let mut deadlines = DeliverByTimes::default();
            fill(&mut deadlines);
            let start = std::time::Instant::now();
            (0..).zip(&parts).for_each(|(number, part)| deadlines.remove(of(number), part));
            assert!(deadlines.by_message.is_empty() && deadlines.by_time.is_empty());
            start.elapsed()
        };
        let fill = |deadlines: &mut DeliverByTimes| {
            for (number, part) in (0..).zip(&parts) {
                deadlines.insert(id(number), part, at(100));
            }
        };
        let list = |deadlines: &mut DeliverByTimes| assert_eq!(deadlines.insert(id(0), &whole, at(100)), None);
        // The least of many rounds, because of other load on the machine; in turns, because that comes and goes.
        let rounds: Vec<[Duration; 2]> = (0..20).map(|_| [round(&fill, &id), round(&list, &|_| id(0))]).collect();
        let [messages, list] = [0, 1].map(|which| rounds.iter().map(|round| round[which]).min().unwrap());
        assert!(list < 10 * messages, "{messages:?} for 200 messages, {list:?} for 200 parts of one");
    }

    #[test]
    fn age_exemptions_end_at_their_time_and_are_bounded() {
        let mut deadlines = DeliverByTimes::default();
        for number in 0..DEADLINES_MAX as u64 {
            deadlines.set_age_exemption(id(number), at(100 + number % 2), at(1));
        }
        deadlines.set_age_exemption(id(1 << 20), at(200), at(1));
        assert_eq!(deadlines.active_age_exemption(id(1 << 20), at(1)), None, "each scan asks for it");
        assert_eq!(
            (deadlines.active_age_exemption(id(0), at(99)), deadlines.active_age_exemption(id(0), at(100))),
            (Some(at(100)), None)
        );
        deadlines.set_age_exemption(id(1 << 20), at(200), at(100));
        assert_eq!(
            (deadlines.active_age_exemption(id(1 << 20), at(100)), deadlines.age_exempt.len()),
            (Some(at(200)), DEADLINES_MAX / 2 + 1)
        );
        deadlines.set_age_exemption(id(1 << 20), at(150), at(150));
        deadlines.remove(id(1), &Positions::One(0));
        assert_eq!(deadlines.age_exempt.len(), DEADLINES_MAX / 2 - 1);
        deadlines.clear_age_exemptions();
        assert!(deadlines.age_exempt.is_empty());
    }

    #[test]
    fn times_that_were_asked_for_are_not_asked_for_again_without_a_reason() {
        let mut deadlines = DeliverByTimes::default();
        assert_eq!(
            (deadlines.begin_scan(true, at(0)), deadlines.begin_scan(false, at(0)), deadlines.asking_paused),
            (None, None, false)
        );
        for number in 0..=DEADLINES_MAX as u64 {
            deadlines.insert(id(number), &Positions::One(0), at(5_000));
        }
        assert_eq!((deadlines.begin_scan(false, at(10)), deadlines.asking_paused), (Some(at(5_000)), true));
        assert_eq!((deadlines.begin_scan(true, at(10)), deadlines.asking_paused), (Some(at(900)), true), "not at once");
        assert_eq!((deadlines.begin_scan(false, at(900)), deadlines.asking_paused), (None, false));
        deadlines.insert(id(1 << 20), &Positions::One(0), at(5_000));
        deadlines.allow_ask_from(at(910));
        assert_eq!(
            (deadlines.begin_scan(true, at(901)), deadlines.asking_paused),
            (Some(at(910)), true),
            "it did not come to its end"
        );
        deadlines.insert(id(1 << 20), &Positions::One(0), Duration::MAX);
        assert_eq!(deadlines.begin_scan(false, at(910)), None);
        deadlines.insert(id(1 << 20), &Positions::One(0), Duration::MAX);
        assert_eq!(
            (deadlines.begin_scan(false, at(2_000)), deadlines.asking_paused),
            (None, true),
            "they have no time"
        );
    }

    #[test]
    fn beyond_the_limit_the_latest_goes() {
        let mut deadlines = DeliverByTimes::default();
        for number in 0..DEADLINES_MAX as u64 {
            assert_eq!(deadlines.insert(id(number), &Positions::One(0), at(1_000 + number)), None);
        }
        let last = DEADLINES_MAX as u64 - 1;
        assert_eq!(deadlines.insert(id(last + 1), &Positions::One(0), at(5)), Some(at(1_000 + last)));
        assert!(!deadlines.contains(id(last), 0) && deadlines.contains(id(last + 1), 0));
        assert_eq!(
            deadlines.insert(id(last + 2), &Positions::One(0), Duration::MAX),
            None,
            "nothing is to be looked for"
        );
        assert_eq!((deadlines.by_message.len(), deadlines.by_time.len()), (DEADLINES_MAX, DEADLINES_MAX));
    }
}

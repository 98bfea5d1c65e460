//! Statistics of the messages that hosts took: how many, when, how much of the list, and how many twice.

use crate::chance::hash;
use crate::ledger::{How, Taken};
use crate::world::{Outlook, World};
use std::collections::HashSet;
use std::hash::{BuildHasherDefault, Hasher};
use std::time::Duration;

/// Pairs of message and recipient that are remembered to find repeated deliveries; beyond this number no new pair is.
pub const PAIRS_MAX: usize = 8_000_000;
/// Seconds that have a number of their own; a later message counts into the last one.
const SECONDS_MAX: usize = 100_000;
/// Shares of the live recipients of the list whose times are noted.
pub const MARKS: [u64; 3] = [50, 95, 100];

/// Numbers of a run.
#[derive(Debug)]
pub struct Tally {
    /// Acknowledged messages.
    pub messages: u64,
    /// Their recipients.
    pub recipients: u64,
    /// Their octets.
    pub octets: u64,
    /// Messages that were taken without an answer.
    pub silent_messages: u64,
    /// Their recipients.
    pub silent_recipients: u64,
    /// Recipients who got a message again.
    pub twice: u64,
    /// When the first message was taken.
    pub first: Option<Duration>,
    /// When the last one was.
    pub last: Option<Duration>,
    /// Recipients in each second.
    pub per_second: Vec<u64>,
    /// Recipients of the list at sites that take mail at once.
    pub live: u64,
    /// How many of these got something.
    pub live_taken: u64,
    /// When [`MARKS`] were reached.
    pub marks: [Option<Duration>; MARKS.len()],
    /// A bit for each recipient of the list.
    seen: Vec<u64>,
    pairs: HashSet<u64, BuildHasherDefault<Mixed>>,
}

/// Passes on a number that is mixed well already.
#[derive(Debug, Default)]
struct Mixed(u64);

impl Hasher for Mixed {
    fn finish(&self) -> u64 {
        self.0
    }

    fn write(&mut self, octets: &[u8]) {
        self.0 = hash(self.0, octets);
    }

    fn write_u64(&mut self, number: u64) {
        self.0 = number;
    }
}

impl Tally {
    /// Nothing yet.
    #[must_use]
    pub fn new(world: &World) -> Self {
        let domains = u64::from(world.domains());
        let live = (0..domains).filter(|domain| world.outlook_of(*domain) == Outlook::Live).count() as u64;
        let words = usize::try_from(world.list_len().div_ceil(64)).unwrap_or(0);
        Self {
            messages: 0,
            recipients: 0,
            octets: 0,
            silent_messages: 0,
            silent_recipients: 0,
            twice: 0,
            first: None,
            last: None,
            per_second: Vec::new(),
            live: live * u64::from(world.plan().recipients),
            live_taken: 0,
            marks: [None; MARKS.len()],
            seen: vec![0; words],
            pairs: HashSet::default(),
        }
    }

    /// Counts a message.
    pub fn add(&mut self, world: &World, taken: &Taken) {
        let recipients = taken.recipients.len() as u64;
        self.count_pairs(taken);
        if taken.how == How::Silent {
            self.silent_messages += 1;
            self.silent_recipients += recipients;
            return;
        }
        self.messages += 1;
        self.recipients += recipients;
        self.octets += taken.octets;
        self.first.get_or_insert(taken.at);
        self.last = Some(taken.at);
        let second = usize::try_from(taken.at.as_secs()).unwrap_or(SECONDS_MAX).min(SECONDS_MAX - 1);
        if self.per_second.len() <= second {
            self.per_second.resize(second + 1, 0);
        }
        if let Some(count) = self.per_second.get_mut(second) {
            *count += recipients;
        }
        for number in taken.recipients.iter().filter_map(|recipient| world.number_of(recipient)) {
            self.mark(world, number, taken.at);
        }
    }

    fn count_pairs(&mut self, taken: &Taken) {
        if taken.token.is_empty() {
            return;
        }
        let token = hash(0, &taken.token);
        for recipient in &taken.recipients {
            let pair = hash(token, recipient);
            if self.pairs.len() < PAIRS_MAX {
                self.twice += u64::from(!self.pairs.insert(pair));
            } else {
                self.twice += u64::from(self.pairs.contains(&pair));
            }
        }
    }

    /// Notes that a recipient of the list got something.
    fn mark(&mut self, world: &World, number: u64, at: Duration) {
        let Some(word) = usize::try_from(number / 64).ok().and_then(|word| self.seen.get_mut(word)) else { return };
        let bit = 1 << (number % 64);
        if *word & bit != 0 {
            return;
        }
        *word |= bit;
        if world.outlook_of(number) != Outlook::Live {
            return;
        }
        self.live_taken += 1;
        for (mark, percent) in self.marks.iter_mut().zip(MARKS) {
            if mark.is_none() && self.live_taken * 100 >= self.live * percent {
                *mark = Some(at);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Character;
    use crate::plan::{Plan, Share};

    #[test]
    fn counts_marks_and_doubles() {
        let plan = Plan { shares: vec![(Character::Dead, Share::percent(50))], recipients: 1, ..Plan::new(4) };
        let world = World::new(plan).unwrap();
        let mut tally = Tally::new(&world);
        assert_eq!((tally.live, tally.seen.len()), (2, 1));
        let live: Vec<u64> = (0..4).filter(|number| world.outlook_of(*number) == Outlook::Live).collect();
        let taken = |number: u64, second, how| {
            let mut recipient = String::new();
            world.recipient(number, &mut recipient);
            Taken {
                at: Duration::from_secs(second),
                host: 0,
                connection: 1,
                how,
                octets: 10,
                token: (*b"t").into(),
                recipients: vec![recipient.into_bytes().into()],
            }
        };
        tally.add(&world, &taken(live[0], 1, How::Acknowledged));
        tally.add(&world, &taken(live[0], 2, How::Acknowledged));
        tally.add(&world, &taken(live[1], 3, How::Silent));
        tally.add(&world, &taken(live[1], 4, How::Acknowledged));
        assert_eq!((tally.messages, tally.recipients, tally.octets), (3, 3, 30));
        assert_eq!((tally.silent_messages, tally.silent_recipients, tally.twice), (1, 1, 2));
        let at = |second| Some(Duration::from_secs(second));
        assert_eq!((tally.live_taken, tally.marks), (2, [at(1), at(4), at(4)]));
        assert_eq!((tally.first, tally.last, tally.per_second), (at(1), at(4), vec![0, 1, 1, 0, 1]));
    }
}

//! The ledger of the simulated internet: the arrivals of messages, and figures made from them. Pure.
//!
//! Lines are those of docs/sim.md, "Files". A message of ours is known by the mark that the storm puts into each:
//! `RUN/SEQ/CRC`. A recipient counts once for each message; any other arrival is counted as odd.

use sim::ledger::HEAD;
use sim::{How, Taken};
use std::collections::hash_map::Entry;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

/// When the simulation began, in microseconds since 1970, from the first line.
pub(super) fn start(line: &str) -> Option<u64> {
    line.strip_prefix(HEAD)?.split(' ').next()?.parse().ok()
}

/// Reads a line. `Ok(None)`: a remark.
///
/// # Errors
/// It is not as docs/sim.md says.
pub(super) fn delivery(line: &str) -> Result<Option<Taken>, String> {
    if line.starts_with('#') {
        return Ok(None);
    }
    Taken::read(line).map(Some).ok_or_else(|| format!("ledger of the simulated internet: {line:?}"))
}

/// The arrivals of the messages of one run.
#[derive(Debug)]
pub(super) struct Arrivals {
    run: String,
    /// Recipients by name: number, and whether the run waits for them.
    people: HashMap<String, (u32, bool)>,
    /// When a message came first, by its number and that of the recipient.
    taken: HashMap<(u64, u32), u64>,
    /// The arrivals whose client could see no answer.
    silent: HashSet<(u64, u32)>,
    /// First arrivals at live recipients, as they were told.
    times: Vec<u64>,
    /// First arrivals of messages that came again.
    repeated: Vec<u64>,
    /// Messages that a recipient got again, messages of another run or without a recipient, and messages to recipients
    /// that are not live.
    pub(super) twice: u64,
    pub(super) strange: u64,
    pub(super) others: u64,
}

impl Arrivals {
    pub(super) fn new(run: &str, people: impl IntoIterator<Item = (String, bool)>) -> Self {
        let people = people.into_iter().zip(0..).map(|((name, live), number)| (name, (number, live))).collect();
        Self {
            run: run.to_owned(),
            people,
            taken: HashMap::new(),
            silent: HashSet::new(),
            times: Vec::new(),
            repeated: Vec::new(),
            twice: 0,
            strange: 0,
            others: 0,
        }
    }

    /// Counts a delivery. One that the client cannot know of may be repeated, so it is no arrival.
    pub(super) fn add(&mut self, delivery: &Taken) {
        let token = String::from_utf8_lossy(&delivery.token);
        let mut mark = token.split('/');
        let is_ours = mark.next() == Some(&self.run);
        let seq = mark.next().and_then(|seq| seq.parse::<u64>().ok()).filter(|_| is_ours);
        let at = u64::try_from(delivery.at.as_micros()).unwrap_or(u64::MAX);
        for recipient in &delivery.recipients {
            let recipient = str::from_utf8(recipient).unwrap_or("");
            let known = seq.zip(self.people.get(recipient));
            match (known, delivery.how) {
                (Some((seq, (number, _))), How::Silent) => {
                    self.silent.insert((seq, *number));
                }
                (None, How::Silent) => {}
                (None, How::Acknowledged) => self.strange += 1,
                (Some((seq, (number, is_live))), How::Acknowledged) => match self.taken.entry((seq, *number)) {
                    Entry::Occupied(first) => {
                        self.twice += 1;
                        self.repeated.push(*first.get());
                    }
                    Entry::Vacant(place) => {
                        place.insert(at);
                        if *is_live {
                            self.times.push(at);
                        } else {
                            self.others += 1;
                        }
                    }
                },
            }
        }
    }

    /// Arrivals until a moment, in microseconds since the simulation began.
    pub(super) fn arrived_by(&self, moment_us: u64) -> usize {
        self.times.iter().filter(|at| **at <= moment_us).count()
    }

    /// When that had come first which came again, in microseconds since the simulation began.
    pub(super) fn repeated(&self) -> &[u64] {
        &self.repeated
    }

    /// Returns the number of arrivals that came again because the client could not see that the first was taken.
    pub(super) fn again_after_silence(&self) -> usize {
        self.silent.iter().filter(|one| self.taken.contains_key(one)).count()
    }

    /// Returns the number of recipients that had no message and do not wait for one either.
    pub(super) fn lost(&self, waiting: &HashSet<String>) -> u64 {
        let had = self.had();
        self.people.iter().filter(|(name, (number, _))| !had.contains_key(number) && !waiting.contains(*name)).count()
            as u64
    }

    /// For each recipient that had a message and waits for one all the same: the time of the first, in microseconds
    /// since the simulation began.
    pub(super) fn unrecorded(&self, waiting: &HashSet<String>) -> Vec<u64> {
        let had = self.had();
        waiting.iter().filter_map(|name| had.get(&self.people.get(name)?.0)).copied().collect()
    }

    /// When recipients had their first message.
    fn had(&self) -> HashMap<u32, u64> {
        let mut had = HashMap::new();
        for ((_, number), at) in &self.taken {
            let first = had.entry(*number).or_insert(*at);
            *first = (*first).min(*at);
        }
        had
    }

    /// Arrivals at live recipients so far.
    pub(super) fn arrived(&self) -> usize {
        self.times.len()
    }

    /// When a share of `expected` arrivals had come, in microseconds since the simulation began.
    pub(super) fn moment(&self, percent: usize, expected: usize) -> Option<u64> {
        let mut times = self.times.clone();
        times.sort_unstable();
        let count = (expected * percent).div_ceil(100);
        times.get(count.checked_sub(1)?).copied()
    }
}

/// The most messages that came within any time of this length.
pub(super) fn most_within(times_us: &mut [u64], length: Duration) -> usize {
    times_us.sort_unstable();
    let length = u64::try_from(length.as_micros()).unwrap_or(u64::MAX);
    let mut first = 0;
    let mut most = 0;
    for (at, time) in times_us.iter().enumerate() {
        while times_us.get(first).is_some_and(|earlier| time.saturating_sub(*earlier) >= length) {
            first += 1;
        }
        most = most.max(at + 1 - first);
    }
    most
}

/// Cuts what a file gives bit by bit into whole lines.
#[derive(Debug, Default)]
pub(super) struct LineSplitter {
    rest: Vec<u8>,
}

impl LineSplitter {
    /// Adds octets and returns all lines that are whole now.
    pub(super) fn add(&mut self, octets: &[u8]) -> String {
        self.rest.extend_from_slice(octets);
        let whole = self.rest.iter().rposition(|octet| *octet == b'\n').map_or(0, |at| at + 1);
        let later = self.rest.split_off(whole);
        String::from_utf8_lossy(&std::mem::replace(&mut self.rest, later)).into_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_messages_or_remarks() {
        assert_eq!(start("# mailrace sim ledger 1 start=1790000000000000"), Some(1_790_000_000_000_000));
        assert_eq!(start("# mailrace sim ledger 2 start=1"), None);
        assert_eq!(delivery("# a remark"), Ok(None));
        assert_eq!(delivery("5 0 1 acknowledged 9 r/0/x a").unwrap().unwrap(), taken(5, "r/0/x", "a"));
        assert!(delivery("5 0 1 acknowledged 9 r/0/x").is_err());
    }

    #[test]
    fn lines_come_in_pieces() {
        let mut lines = LineSplitter::default();
        assert_eq!(lines.add(b"one\ntw"), "one\n");
        assert_eq!(lines.add(b"o"), "");
        assert_eq!(lines.add(b"\n\nx"), "two\n\n");
    }

    fn taken(us: u64, token: &str, recipients: &str) -> Taken {
        Taken {
            at: Duration::from_micros(us),
            host: 0,
            connection: 1,
            how: How::Acknowledged,
            octets: 9,
            token: token.as_bytes().into(),
            recipients: recipients.split(',').map(|one| one.as_bytes().into()).collect(),
        }
    }

    #[test]
    fn a_recipient_counts_once_for_each_message() {
        let people = [("a", true), ("b", true), ("c", false)].map(|(name, live)| (name.to_owned(), live));
        let mut tally = Arrivals::new("r", people);
        tally.add(&taken(30, "r/0/x", "a"));
        tally.add(&taken(10, "r/1/x", "a,b"));
        tally.add(&taken(40, "r/1/x", "b"));
        tally.add(&taken(50, "r/0/x", "c,d"));
        tally.add(&taken(60, "s/0/x", "b"));
        tally.add(&taken(60, "-", "b"));
        tally.add(&Taken { how: How::Silent, ..taken(60, "r/0/x", "b") });
        assert_eq!((tally.arrived(), tally.twice, tally.others, tally.strange), (3, 1, 1, 3));
        assert_eq!((tally.arrived_by(9), tally.arrived_by(10), tally.arrived_by(99)), (0, 2, 3));
        assert_eq!(tally.moment(50, 4), Some(10));
        assert_eq!(tally.moment(51, 4), Some(30));
        assert_eq!((tally.moment(75, 4), tally.moment(100, 4), tally.moment(0, 4)), (Some(30), None, None));
        // b had message 1 at 10 and 40, and took message 0 at 60 without a word; that it comes again is no fault.
        assert_eq!((tally.repeated(), tally.again_after_silence()), (&[10][..], 0));
        tally.add(&taken(70, "r/0/x", "b"));
        assert_eq!((tally.arrived(), tally.twice, tally.again_after_silence()), (4, 1, 1));
    }

    #[test]
    fn one_who_is_lost_and_one_who_is_doubled_do_not_make_up_for_each_other() {
        let people = ["a", "b", "c", "d"].map(|name| (name.to_owned(), true));
        let mut tally = Arrivals::new("r", people);
        tally.add(&taken(1, "r/0/x", "a"));
        tally.add(&taken(3, "r/0/x", "b"));
        tally.add(&taken(2, "r/1/x", "b"));
        let of = |waiting: &[&str]| {
            let waiting = waiting.iter().map(|name| (*name).to_owned()).collect();
            (tally.lost(&waiting), tally.unrecorded(&waiting))
        };
        assert_eq!(of(&["c", "d", "a report"]), (0, vec![]));
        // Two came and two wait, of four.
        assert_eq!(of(&["b", "c"]), (1, vec![2]));
        assert_eq!(of(&["c", "a report"]), (1, vec![]));
    }

    #[test]
    fn windows_of_any_place_are_looked_at() {
        let within = |times: &[u64], us| most_within(&mut times.to_vec(), Duration::from_micros(us));
        assert_eq!(within(&[], 10), 0);
        assert_eq!(within(&[5], 10), 1);
        assert_eq!(within(&[20, 0, 9, 10, 11], 10), 3);
        assert_eq!(within(&[0, 10, 20, 30], 10), 1);
        assert_eq!(within(&[7, 7, 7], 1), 3);
    }
}

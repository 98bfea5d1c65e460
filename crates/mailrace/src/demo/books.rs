//! The counts of the storm with the kill: the messages acknowledged at one end, and those that arrived at the other.
//!
//! Pure. The relay is started twice, with another name for each start. A message may arrive from both starts, since the
//! first dies before it has recorded all deliveries; from one start it arrives once. Of messages that were sent and
//! never answered, one of each session may arrive.

use crate::exit::Exit;
use crate::output::count;
use bench::storm::{Arrived, NotSent};
use std::collections::BTreeMap;

/// The host names of the relay: until it is killed, and after that.
pub(super) const NAMES: [&str; 2] = ["before-the-kill.example", "after-the-kill.example"];

/// The books.
#[derive(Clone, Debug)]
pub(super) struct Books {
    run: String,
    sessions: u64,
    recipient: String,
    letters: BTreeMap<u64, Letter>,
    wrong: Vec<String>,
}

/// The record of one message.
#[derive(Clone, Copy, Debug, Default)]
struct Letter {
    is_acknowledged: bool,
    /// How often each start brought it.
    arrivals: [u32; 2],
}

impl Letter {
    fn times(&self) -> u32 {
        self.arrivals.iter().sum()
    }
}

/// The counts at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Counted {
    /// Messages that clients saw answered with 250.
    pub(super) acknowledged: u64,
    /// Messages that arrived, be it once or twice.
    pub(super) arrived: u64,
    /// Those of them that arrived from both starts.
    pub(super) twice: u64,
    /// Those of them that were not acknowledged: their 250 was on its way.
    pub(super) unanswered: u64,
    /// Acknowledged and not arrived.
    pub(super) lost: u64,
    /// The unexpected results, in words.
    pub(super) wrong: Vec<String>,
}

impl Counted {
    /// The exit status of a demonstration with this end.
    pub(super) fn exit(&self) -> Exit {
        match (self.lost, self.wrong.is_empty()) {
            (0, true) => Exit::Ok,
            (0, false) => Exit::Damaged,
            _ => Exit::Lost,
        }
    }
}

impl Books {
    /// For a storm of this name over so many sessions, to this recipient.
    pub(super) fn new(run: &str, sessions: u32, recipient: &str) -> Self {
        Self {
            run: run.to_owned(),
            sessions: sessions.into(),
            recipient: recipient.to_owned(),
            letters: BTreeMap::new(),
            wrong: Vec::new(),
        }
    }

    /// Enters a message that was answered with 250.
    pub(super) fn record_acknowledged(&mut self, seq: u64) {
        self.letters.entry(seq).or_default().is_acknowledged = true;
    }

    /// Enters a message that came to the next hop, from a client of this name.
    pub(super) fn record_arrived(&mut self, what: &Result<Arrived, NotSent>, recipients: &[String], hello: &str) {
        let of = match what {
            Ok(of) if of.run == self.run => of,
            Ok(of) => return self.wrong.push(format!("{of} arrived, which is of another storm")),
            Err(why) => return self.wrong.push(why.to_string()),
        };
        if recipients != [self.recipient.as_str()] {
            self.wrong.push(format!("{of} arrived for {}", recipients.join(", ")));
        }
        let letter = self.letters.entry(of.seq).or_default();
        let start = NAMES.iter().position(|name| *name == hello);
        match start.and_then(|start| letter.arrivals.get_mut(start)) {
            Some(times) => {
                *times += 1;
                if *times == 2 {
                    self.wrong.push(format!("{of} arrived twice from {hello}"));
                }
            }
            None => self.wrong.push(format!("{of} came from {hello:?}, which is not the relay")),
        }
    }

    /// Counts acknowledged messages that have not arrived.
    pub(super) fn missing_count(&self) -> u64 {
        self.letters.values().filter(|letter| letter.is_acknowledged && letter.times() == 0).count() as u64
    }

    /// Compares the messages of both ends. `queued` messages stay in the queue, although nothing keeps them there.
    pub(super) fn compare(&self, queued: u64) -> Counted {
        let number = |of: fn(&Letter) -> bool| self.letters.values().filter(|letter| of(letter)).count() as u64;
        let unanswered = number(|letter| !letter.is_acknowledged);
        let mut wrong = self.wrong.clone();
        if unanswered > self.sessions {
            let sessions = count(self.sessions, "session");
            wrong
                .push(format!("{unanswered} messages arrived unanswered, more than {sessions} can have had under way"));
        }
        if queued > 0 {
            wrong.push(format!("{} left in the queue, although the next hop takes them", count(queued, "message")));
        }
        Counted {
            acknowledged: number(|letter| letter.is_acknowledged),
            arrived: number(|letter| letter.times() > 0),
            twice: number(|letter| letter.times() > 1),
            unanswered,
            lost: self.missing_count(),
            wrong,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TO: &str = "you@next.example";

    /// Acknowledged 0, 1 and 2 of a storm over one session; arrivals as given: number, start.
    fn books(arrivals: &[(u64, usize)]) -> Books {
        let mut books = Books::new("run", 1, TO);
        (0..3).for_each(|seq| books.record_acknowledged(seq));
        for (seq, start) in arrivals {
            books.record_arrived(&Ok(Arrived { run: "run".to_owned(), seq: *seq }), &[TO.to_owned()], NAMES[*start]);
        }
        books
    }

    #[test]
    fn what_may_be_is_no_finding() {
        let books = books(&[(0, 0), (1, 0), (7, 0), (1, 1), (2, 1)]);
        let counted = books.compare(0);
        let expected = Counted { acknowledged: 3, arrived: 4, twice: 1, unanswered: 1, lost: 0, ..Counted::default() };
        assert_eq!((counted.exit(), &counted), (Exit::Ok, &expected));
    }

    /// Negative controls: each kind of broken promise is seen.
    #[test]
    fn every_broken_promise_is_seen() {
        type Case = (&'static [(u64, usize)], u64, (u64, usize, Exit));
        let cases: [Case; 6] = [
            (&[(0, 0), (2, 1)], 0, (1, 0, Exit::Lost)),
            (&[], 0, (3, 0, Exit::Lost)),
            (&[(0, 0), (2, 1)], 1, (1, 1, Exit::Lost)),
            // Twice from one start.
            (&[(0, 0), (1, 0), (2, 1), (2, 1)], 0, (0, 1, Exit::Damaged)),
            // More without a reply than there are sessions.
            (&[(0, 0), (1, 0), (2, 1), (7, 0), (8, 0)], 0, (0, 1, Exit::Damaged)),
            // Everything arrived and something is still queued.
            (&[(0, 0), (1, 0), (2, 1)], 2, (0, 1, Exit::Damaged)),
        ];
        for (arrivals, queued, expected) in cases {
            let counted = books(arrivals).compare(queued);
            assert_eq!((counted.lost, counted.wrong.len(), counted.exit()), expected, "{arrivals:?}: {counted:?}");
        }
    }

    #[test]
    fn a_message_that_is_not_the_one_that_was_sent_did_not_arrive() {
        let of = |run: &str| Arrived { run: run.to_owned(), seq: 0 };
        let to = |address: &str| vec![address.to_owned()];
        let cases = [
            (Err(NotSent::Foreign), to(TO), NAMES[0], 3),
            (Err(NotSent::Altered { of: of("run"), sent: 1, found: 2 }), to(TO), NAMES[0], 3),
            (Ok(of("other")), to(TO), NAMES[0], 3),
            (Ok(of("run")), to(TO), "somebody.example", 3),
            (Ok(of("run")), to("me@next.example"), NAMES[0], 2),
            (Ok(of("run")), Vec::new(), NAMES[0], 2),
        ];
        for (what, recipients, hello, lost) in cases {
            let mut books = books(&[]);
            books.record_arrived(&what, &recipients, hello);
            let counted = books.compare(0);
            assert_eq!((counted.lost, counted.wrong.len()), (lost, 1), "{what:?} {recipients:?} {hello}");
        }
    }
}

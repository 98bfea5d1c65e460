//! The counts of a relay that is killed: the messages promised at one end, and those that arrived at the other.
//!
//! Pure: times are since any beginning, files and connections are the caller's. A *generation* is one start of the
//! server. A message that arrives twice must come from two generations, and the older one must have been killed right
//! after the first arrival: it had no time to make the result durable. Mail that was sent and never answered may
//! arrive, as one message of each session at most.

use crate::crash::children::Checked;
use crate::crash::findings::Findings;
use crate::crash::scene::RECIPIENTS;
use crate::storm::{Arrived, NotSent};
use std::collections::HashMap;
use std::time::Duration;

/// Outcomes are durable within this time, says the documentation of the spool (step S5).
const DOCUMENTED: Duration = Duration::from_millis(50);
/// The longest time before a kill from which an arrival may be repeated. The receiver's clock starts before its 250
/// leaves, and on two cores full of storms the server comes to read it, and its disk to sync, when it is their turn.
pub(super) const WINDOW: Duration = Duration::from_millis(500);
/// Violations told one by one; the rest is counted.
const DETAILS_MAX: usize = 8;
/// Recipients of each message.
const PLACES: usize = RECIPIENTS as usize;

/// How a generation ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum End {
    Killed(Duration),
    Orderly,
}

/// A message that came in at the receiver.
#[derive(Debug)]
pub(super) struct Passage<'a> {
    pub(super) what: &'a Result<Arrived, NotSent>,
    pub(super) recipients: &'a [String],
    /// Its filter let it pass, or there is none.
    pub(super) is_screened: bool,
    /// The start of the server that brought it.
    pub(super) generation: Option<u32>,
    pub(super) at: Duration,
}

/// The record of one message.
#[derive(Clone, Copy, Debug, Default)]
struct MessageRecord {
    acknowledged: bool,
    /// The last generation that brought it to each recipient, and when.
    last: [Option<(u32, Duration)>; PLACES],
}

impl MessageRecord {
    fn is_missing(&self) -> bool {
        self.acknowledged && self.last.iter().any(Option::is_none)
    }
}

/// The books.
#[derive(Debug)]
pub(super) struct Books {
    sessions: u64,
    /// Number of each storm by its name.
    runs: HashMap<String, usize>,
    /// By the number of the storm: messages that arrived and were never acknowledged.
    unanswered: Vec<u64>,
    letters: HashMap<(usize, u64), MessageRecord>,
    missing: u64,
    /// Messages that had arrived at the last check.
    present: u64,
    ends: HashMap<u32, End>,
    /// Since the last check.
    findings: Findings,
    details: Vec<String>,
    oldest: Duration,
    beyond_documented: u64,
}

impl Books {
    /// For storms of at most so many sessions each.
    pub(super) fn new(sessions: u64) -> Self {
        Self {
            sessions,
            runs: HashMap::new(),
            unanswered: Vec::new(),
            letters: HashMap::new(),
            missing: 0,
            present: 0,
            ends: HashMap::new(),
            findings: Findings::default(),
            details: Vec::new(),
            oldest: Duration::ZERO,
            beyond_documented: 0,
        }
    }

    /// Enters a storm that is over, with the numbers of its acknowledged messages; before what arrived of it.
    pub(super) fn promise(&mut self, run: &str, seqs: impl Iterator<Item = u64>) {
        let number = self.unanswered.len();
        self.runs.insert(run.to_owned(), number);
        self.unanswered.push(0);
        for seq in seqs {
            self.findings.acknowledged += 1;
            self.missing += 1;
            self.letters.insert((number, seq), MessageRecord { acknowledged: true, ..MessageRecord::default() });
        }
    }

    /// Enters messages of a storm that was entered, which were acknowledged and may be lost.
    pub(super) fn excuse(&mut self, run: &str, seqs: impl Iterator<Item = u64>) {
        let Some(number) = self.runs.get(run).copied() else { return };
        self.letters.extend(seqs.map(|seq| ((number, seq), MessageRecord::default())));
    }

    /// Enters the end of a generation.
    pub(super) fn ended(&mut self, generation: u32, end: End) {
        self.ends.insert(generation, end);
    }

    /// Enters an arrival. Older generations than that of the last arrival may still come in: their octets were on their
    /// way.
    pub(super) fn arrived(&mut self, passage: &Passage<'_>) {
        let of = match passage.what {
            Ok(of) => of,
            Err(NotSent::Altered { .. }) => {
                return self.violation(|found| &mut found.wrong_body, passage, "is not whole");
            }
            Err(NotSent::Foreign) => return self.violation(|found| &mut found.invented, passage, "is none of a storm"),
        };
        if !passage.is_screened {
            self.violation(|found| &mut found.unscreened, passage, "arrived before its filter let it pass");
        }
        let Some(run) = self.runs.get(&of.run).copied() else {
            return self.violation(|found| &mut found.invented, passage, "is of a storm that never was");
        };
        let Some(generation) = passage.generation else {
            return self.violation(|found| &mut found.miscounted, passage, "came from a client of another name");
        };
        let key = (run, of.seq);
        if !self.letters.contains_key(&key) {
            self.stranger(run, passage);
        }
        let mut letter = self.letters.get(&key).copied().unwrap_or_default();
        let was_missing = letter.is_missing();
        for recipient in passage.recipients {
            let Some(place) = place(recipient).and_then(|place| letter.last.get_mut(place)) else {
                self.violation(|found| &mut found.wrong_envelope, passage, &format!("is for {recipient}"));
                continue;
            };
            let now = (generation, passage.at);
            let newest = match *place {
                None => now,
                Some(before) => {
                    self.again(before, now, passage);
                    if before.0 > now.0 { before } else { now }
                }
            };
            *place = Some(newest);
        }
        if was_missing && !letter.is_missing() {
            self.missing -= 1;
        }
        self.letters.insert(key, letter);
    }

    /// Counts a message that arrived and was not acknowledged.
    fn stranger(&mut self, run: usize, passage: &Passage<'_>) {
        self.findings.unanswered += 1;
        let sessions = self.sessions;
        if let Some(unanswered) = self.unanswered.get_mut(run) {
            *unanswered += 1;
            if *unanswered > sessions {
                let what = format!("is one more without a reply than {sessions} sessions can have sent");
                self.violation(|found| &mut found.invented, passage, &what);
            }
        }
    }

    /// A second arrival for the same recipient.
    fn again(&mut self, one: (u32, Duration), other: (u32, Duration), passage: &Passage<'_>) {
        let (older, newer) = if one.0 <= other.0 { (one, other) } else { (other, one) };
        if older.0 == newer.0 {
            return self.violation(|found| &mut found.miscounted, passage, "came twice from one start of the server");
        }
        match self.ends.get(&older.0) {
            Some(End::Killed(kill)) => {
                // It may have been read here only after the kill.
                let age = kill.saturating_sub(older.1);
                self.oldest = self.oldest.max(age);
                self.beyond_documented += u64::from(age > DOCUMENTED);
                if age > WINDOW {
                    let what = format!("is back, {} ms before a kill it had arrived", age.as_millis());
                    self.violation(|found| &mut found.stale, passage, &what);
                } else {
                    self.findings.repeated += 1;
                }
            }
            Some(End::Orderly) => {
                let what = "is back, although the server that had passed it on ended in good order";
                self.violation(|found| &mut found.resurrected, passage, what);
            }
            None => self.violation(|found| &mut found.miscounted, passage, "came from two servers at work at once"),
        }
    }

    fn violation(&mut self, count: impl FnOnce(&mut Findings) -> &mut u64, passage: &Passage<'_>, what: &str) {
        *count(&mut self.findings) += 1;
        if self.details.len() < DETAILS_MAX {
            let name = match passage.what {
                Ok(of) | Err(NotSent::Altered { of, .. }) => of.to_string(),
                Err(NotSent::Foreign) => format!("a message for {}", passage.recipients.join(", ")),
            };
            self.details.push(format!("! {name} {what}"));
        }
    }

    /// Acknowledged messages that have not arrived for all their recipients.
    pub(super) fn missing(&self) -> u64 {
        self.missing
    }

    /// Returns the findings since the last check, when every message had the time to arrive.
    pub(super) fn check(&mut self) -> Checked {
        let mut findings = std::mem::take(&mut self.findings);
        let mut details = std::mem::take(&mut self.details);
        findings.required = findings.acknowledged;
        findings.lost = self.missing;
        let lost = self.letters.iter().filter(|(_, letter)| letter.is_missing());
        details.extend(lost.take(DETAILS_MAX).map(|((run, seq), letter)| {
            let name = self.runs.iter().find(|(_, number)| *number == run).map_or("", |(name, _)| name);
            let there = letter.last.iter().flatten().count();
            format!("! {name}/{seq}: acknowledged, and arrived for {there} of {PLACES} recipients")
        }));
        let present = self.letters.values().filter(|letter| letter.last.iter().any(Option::is_some)).count() as u64;
        findings.present = present - self.present;
        self.present = present;
        Checked { findings, details }
    }

    /// How old the oldest repetition was, and how many were older than documented.
    pub(super) fn figures(&self) -> [(&'static str, u64); 2] {
        let oldest = u64::try_from(self.oldest.as_millis()).unwrap_or(u64::MAX);
        [("oldest_repeated_ms", oldest), ("repeated_beyond_50_ms", self.beyond_documented)]
    }
}

/// The position of a recipient of a storm.
fn place(recipient: &str) -> Option<usize> {
    recipient.strip_prefix("user")?.strip_suffix("@storm.example")?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::receiver::{Manners, Receiver};
    use crate::storm::{self, Plan};

    /// One arrival: number of the message, recipients, generation, milliseconds.
    type Step = (u64, &'static [u32], u32, u64);

    fn arrive(books: &mut Books, run: &str, (seq, recipients, generation, ms): Step) {
        let recipients: Vec<String> = recipients.iter().map(|n| format!("user{n}@storm.example")).collect();
        books.arrived(&Passage {
            what: &Ok(Arrived { run: run.to_owned(), seq }),
            recipients: &recipients,
            is_screened: true,
            generation: Some(generation),
            at: Duration::from_millis(ms),
        });
    }

    /// Generations 1 and 2 are killed at 1,000 and 2,000 ms, 3 ends in good order, 4 is at work.
    fn books() -> Books {
        let mut books = Books::new(1);
        books.promise("run", [1, 2].into_iter());
        books.ended(1, End::Killed(Duration::from_millis(1000)));
        books.ended(2, End::Killed(Duration::from_millis(2000)));
        books.ended(3, End::Orderly);
        books
    }

    /// Negative controls: each kind of broken promise, and beside it an allowed case.
    #[test]
    fn every_broken_promise_is_seen() {
        /// Name; arrivals; what must be 1 and nothing else with it.
        type Case = (&'static str, &'static [Step], fn(&Findings) -> u64);
        let cases: [Case; 11] = [
            ("lost", &[(1, &[0, 1], 1, 0)], |found| found.lost),
            ("lost for one", &[(1, &[0, 1], 1, 0), (2, &[1], 1, 0)], |found| found.lost),
            ("twice at once", &[(1, &[0, 1], 1, 0), (2, &[0, 1], 1, 0), (1, &[1], 1, 5)], |found| found.miscounted),
            ("long before a kill", &[(1, &[0, 1], 1, 0), (2, &[0, 1], 1, 0), (1, &[0], 2, 1100)], |found| found.stale),
            (
                "a kill that is not its own",
                &[(1, &[0, 1], 1, 990), (2, &[0, 1], 1, 0), (1, &[0, 1], 2, 1100), (1, &[0], 3, 2100)],
                |found| found.stale,
            ),
            ("a good end", &[(1, &[0, 1], 1, 0), (2, &[0, 1], 3, 2100), (2, &[0], 4, 3000)], |found| found.resurrected),
            ("no end", &[(1, &[0, 1], 1, 0), (2, &[0, 1], 4, 3000), (2, &[0], 5, 3001)], |found| found.miscounted),
            (
                "more than sessions",
                &[(1, &[0, 1], 1, 0), (2, &[0, 1], 1, 0), (3, &[0], 1, 0), (4, &[0], 1, 0)],
                |found| found.invented,
            ),
            ("whose?", &[(1, &[0, 1], 1, 0), (2, &[0, 1, 2], 1, 0)], |found| found.wrong_envelope),
            ("to itself", &[(1, &[0, 1], 1, 0), (2, &[0, 1, 1], 1, 0)], |found| found.miscounted),
            // Allowed: in parts, unanswered, repeated from just before a kill, an older one that comes in later.
            (
                "as promised",
                &[
                    (1, &[0], 1, 0),
                    (1, &[1], 2, 1100),
                    (2, &[0, 1], 2, 1005),
                    (2, &[0, 1], 1, 1010),
                    (3, &[0], 1, 990),
                    (3, &[0], 2, 1200),
                ],
                |found| 1 - found.violations() + 3 - found.repeated,
            ),
        ];
        for (name, steps, seen) in cases {
            let mut books = books();
            for step in steps {
                arrive(&mut books, "run", *step);
            }
            let Checked { findings, details } = books.check();
            assert_eq!(seen(&findings), 1, "{name}: {findings} {details:?}");
            assert_eq!(findings.violations(), u64::from(name != "as promised"), "{name}: {findings} {details:?}");
            assert_eq!(details.len() as u64, findings.violations(), "{name}: {details:?}");
        }
    }

    /// Acknowledged behind a power cut: neither lost nor strangers.
    #[test]
    fn excused_messages_may_arrive_or_not() {
        let mut books = books();
        books.excuse("run", [3, 4, 5, 6].into_iter());
        let steps: [Step; 5] =
            [(1, &[0, 1], 1, 0), (2, &[0, 1], 1, 0), (3, &[0, 1], 1, 10), (4, &[0, 1], 1, 10), (5, &[0], 2, 1_100)];
        steps.into_iter().for_each(|step| arrive(&mut books, "run", step));
        let Checked { findings, details } = books.check();
        assert_eq!((findings.violations(), findings.unanswered), (0, 0), "{findings} {details:?}");
    }

    #[test]
    fn strangers_are_no_mail_of_ours() {
        let of = Arrived { run: "run".to_owned(), seq: 1 };
        let altered = NotSent::Altered { of: of.clone(), sent: 1, found: 2 };
        let other = Arrived { run: "other".to_owned(), seq: 1 };
        type Case = (Result<Arrived, NotSent>, Option<u32>, fn(&Findings) -> u64);
        let cases: [Case; 4] = [
            (Err(NotSent::Foreign), Some(1), |found| found.invented),
            (Err(altered), Some(1), |found| found.wrong_body),
            (Ok(other), Some(1), |found| found.invented),
            (Ok(of), None, |found| found.miscounted),
        ];
        for (what, generation, seen) in cases {
            let mut books = books();
            let recipients = ["user0@storm.example".to_owned()];
            books.arrived(&Passage {
                what: &what,
                recipients: &recipients,
                is_screened: true,
                generation,
                at: Duration::ZERO,
            });
            assert_eq!(seen(&books.check().findings), 1, "{what:?}");
        }
    }

    #[test]
    fn the_oldest_repetition_is_told() {
        let mut books = books();
        for (seq, ms) in [(1, 990), (2, 930)] {
            arrive(&mut books, "run", (seq, &[0, 1], 1, ms));
            arrive(&mut books, "run", (seq, &[0, 1], 2, 1100));
        }
        assert_eq!(books.figures(), [("oldest_repeated_ms", 70), ("repeated_beyond_50_ms", 2)]);
        assert_eq!(books.check().findings.violations(), 0);
    }

    /// Both ends with nothing between them: the receiver has the messages of the ledger.
    #[test]
    fn a_storm_and_a_receiver_agree() {
        let receiver = Receiver::start(true, Manners::default()).unwrap();
        let ledger = std::env::temp_dir().join(format!("mailrace-books-{}", std::process::id()));
        let plan = Plan {
            messages: Some(50),
            sessions: 3,
            recipients: RECIPIENTS,
            run: "both".to_owned(),
            ledger: Some(ledger.clone()),
            ..Plan::new(receiver.at())
        };
        storm::run(&plan, &mut |_| {}).unwrap();
        let lines = storm::acknowledged(&ledger).unwrap();
        drop(std::fs::remove_file(&ledger));
        let arrivals = receiver.arrivals();
        for lost in [0, 1] {
            let mut books = Books::new(1);
            books.promise("both", lines.iter().map(|line| line.seq));
            for arrival in arrivals.iter().skip(lost) {
                let at = Duration::ZERO;
                let recipients = &arrival.recipients;
                books.arrived(&Passage { what: &arrival.what, recipients, is_screened: true, generation: Some(1), at });
            }
            let Checked { findings, details } = books.check();
            assert_eq!((findings.acknowledged, findings.lost), (50, lost as u64), "{details:?}");
            assert_eq!(findings.violations(), lost as u64, "{details:?}");
        }
    }
}

//! Opens the spool a crash left behind and holds it against the ledger.
//!
//! Checks a recovered spool. Every acknowledged message whose recipients are not all finished is there, to the
//! last byte; no recipient is back whose end was durable; nothing is there that was never offered, or that an earlier
//! recovery had already found gone. Allowed: a message that was offered and not yet answered, whole; a recipient
//! whose end was recorded within the state window; of several recorded states any from the last durable one on.

use crate::crash::findings::Findings;
use crate::crash::ledger::{Book, CrashLedger, Event, Fate, Promise};
use crate::crash::letter::{PlannedMessage, cycle_of};
use crate::crash::spools::{self, SpoolArguments};
use clap::Args;
use mail::QueueId;
use spool::{State, Store, StoredEnvelope, StoredRecipient};
use std::collections::{HashMap, HashSet};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

/// How long before the crash an end may have been recorded that the crash undid: the spool's promise of 50 ms and
/// its batch under way, on a machine busy with other things. Only a time far above that is a finding.
const STATE_WINDOW_US: u64 = 5_000_000;
/// Violations printed one by one; the rest is counted.
const DETAILS_MAX: usize = 8;

/// The arguments of a checker.
#[derive(Args, Clone, Debug)]
pub struct CheckerArguments {
    #[command(flatten)]
    pub(crate) spool: SpoolArguments,
    /// The writer's ledger.
    #[arg(long)]
    pub(crate) ledger: PathBuf,
    /// Bytes the ledger had for certain when the crash happened.
    #[arg(long)]
    pub(crate) before: u64,
    /// Bytes the ledger had at most when the crash happened.
    #[arg(long)]
    pub(crate) after: u64,
    /// The writer's cycle.
    #[arg(long)]
    pub(crate) cycle: u64,
    /// Where to write a ledger of the messages found, for a next cycle on this spool.
    #[arg(long)]
    pub(crate) adopt: Option<PathBuf>,
}

/// Checks, prints the counts as the first line and violations after it.
///
/// # Errors
/// The spool does not open, or the ledger cannot be read or written.
pub(crate) fn run(arguments: &CheckerArguments) -> io::Result<()> {
    let book = Book::read(&arguments.ledger, arguments.before, arguments.after)?;
    let (store, recovery) = spools::open(&arguments.spool).map_err(io::Error::other)?;
    let (mut findings, mut details, found) = compare(&*store, &book, arguments.cycle);
    findings.alarms = recovery.damage.len() as u64;
    details.extend(recovery.damage.iter().take(DETAILS_MAX).map(|damage| format!("! recovery: {damage}")));
    if let Some(path) = &arguments.adopt {
        adopt(path, &found)?;
    }
    let mut output = io::stdout();
    writeln!(output, "{findings}")?;
    for detail in details {
        writeln!(output, "{detail}")?;
    }
    writeln!(output, "{recovery}")?;
    output.flush()
}

/// Holds a store against the book of cycle `cycle`: counts, violations in words, and the messages found.
fn compare(store: &dyn Store, book: &Book, cycle: u64) -> (Findings, Vec<String>, Found) {
    let mut check = SpoolCheck { store, book, cycle, findings: Findings::default(), details: Vec::new() };
    let found = check.everything();
    (check.findings, check.details, found)
}

/// Messages found, each with its recipients that are not done.
type Found = HashMap<QueueId, Vec<(u32, State)>>;

struct SpoolCheck<'a> {
    store: &'a dyn Store,
    book: &'a Book,
    cycle: u64,
    findings: Findings,
    details: Vec<String>,
}

impl SpoolCheck<'_> {
    fn everything(&mut self) -> Found {
        let mut found = Found::new();
        for id in self.store.messages() {
            self.findings.present += 1;
            match self.store.envelope(id) {
                Ok(envelope) => {
                    self.message(id, &envelope);
                    let recipients = envelope.recipients.iter().map(|stored| (stored.position, stored.state)).collect();
                    found.insert(id, recipients);
                }
                Err(error) => {
                    self.findings.unreadable += 1;
                    self.detail(id, &format!("envelope: {error}"));
                    found.insert(id, Vec::new());
                }
            }
        }
        for (id, promise) in &self.book.messages {
            self.promise(*id, promise, found.contains_key(id));
        }
        self.queues(&found);
        found
    }

    /// Every recipient is in exactly one queue, that of its destination, and nothing else is in any.
    fn queues(&mut self, found: &Found) {
        let mut queued = Vec::new();
        for (destination, recipients) in self.store.destinations() {
            let limit = usize::try_from(recipients).unwrap_or(usize::MAX).saturating_add(1);
            let entries = self.store.by_destination(&destination, None, limit);
            queued.extend(entries.iter().map(|entry| (entry.id, entry.recipient, entry.state)));
        }
        let each = |(id, recipients): (&QueueId, &Vec<(u32, State)>)| {
            recipients.iter().map(|(position, state)| (*id, *position, *state)).collect::<Vec<_>>()
        };
        let mut seen: Vec<_> = found.iter().flat_map(each).collect();
        queued.sort_by_key(|(id, recipient, _)| (*id, *recipient));
        seen.sort_by_key(|(id, recipient, _)| (*id, *recipient));
        if queued != seen {
            self.findings.miscounted += 1;
            self.details.push(format!("! {} recipients by destination, {} by message", queued.len(), seen.len()));
        }
    }

    fn message(&mut self, id: QueueId, envelope: &StoredEnvelope) {
        let letter = PlannedMessage::of(id);
        let Some(promise) = self.book.messages.get(&id) else {
            if cycle_of(id) < self.cycle {
                self.findings.resurrected += 1;
                self.detail(id, "message is back, an earlier recovery had found it gone");
            } else {
                self.findings.invented += 1;
                self.detail(id, "message was never offered");
            }
            return;
        };
        if !promise.acknowledged {
            if promise.refused {
                self.findings.refused += 1;
            } else {
                self.findings.unanswered += 1;
            }
        }
        if envelope.head != letter.head() || envelope.body_bytes != letter.bytes as u64 {
            self.findings.wrong_envelope += 1;
            self.detail(id, "head or size is wrong");
        }
        self.body(&letter);
        let mut there = HashSet::new();
        for stored in &envelope.recipients {
            there.insert(stored.position);
            self.recipient(&letter, promise.recipients.get(&stored.position), stored);
        }
        for position in (0..letter.recipients).filter(|position| !there.contains(position)) {
            if promise.recipients.get(&position).is_none_or(|fate| fate.finishing_us.is_none()) {
                self.findings.lost += 1;
                self.detail(id, &format!("recipient {position} is gone"));
            }
        }
    }

    fn body(&mut self, letter: &PlannedMessage) {
        match self.store.body(letter.id) {
            Ok(pieces) if pieces.concat() == letter.body() => self.part_of_body(letter),
            Ok(_) => {
                self.findings.wrong_body += 1;
                self.detail(letter.id, "body is wrong");
            }
            Err(error) => {
                self.findings.unreadable += 1;
                self.detail(letter.id, &format!("body: {error}"));
            }
        }
    }

    fn part_of_body(&mut self, letter: &PlannedMessage) {
        let (from, to) = (letter.bytes as u64 / 3, letter.bytes as u64 / 3 * 2);
        let expected = letter.body();
        let expected = expected.get(letter.bytes / 3..letter.bytes / 3 * 2).unwrap_or_default();
        match self.store.body_range(letter.id, from..to) {
            Ok(part) if part == expected => {}
            answer => {
                self.findings.wrong_body += 1;
                let answer = answer.map(|part| part.len());
                self.detail(letter.id, &format!("bytes {from} to {to} of the body are wrong: {answer:?}"));
            }
        }
    }

    fn recipient(&mut self, letter: &PlannedMessage, fate: Option<&Fate>, stored: &StoredRecipient) {
        let position = stored.position;
        let destination = letter.destination(position, stored.state.attempts);
        if position >= letter.recipients
            || stored.data != letter.recipient(position)
            || stored.destination != destination
        {
            self.findings.wrong_envelope += 1;
            self.detail(letter.id, &format!("recipient {position} is wrong"));
            return;
        }
        let first = State::default();
        let allowed = match fate {
            None => stored.state == first,
            Some(fate) => fate.states.contains(&stored.state) || (!fate.changed && stored.state == first),
        };
        if !allowed {
            self.findings.wrong_state += 1;
            self.detail(letter.id, &format!("recipient {position} is in state {:?}, promised {fate:?}", stored.state));
        }
        match fate {
            Some(Fate { finished: true, .. }) => {
                self.findings.resurrected += 1;
                self.detail(letter.id, &format!("recipient {position} is back, its end was durable"));
            }
            Some(Fate { finishing_us: Some(then), .. })
                if self.book.last_us.saturating_sub(*then) > STATE_WINDOW_US =>
            {
                self.findings.stale += 1;
                self.detail(letter.id, &format!("recipient {position} is back, long after its end was recorded"));
            }
            Some(Fate { finishing_us: Some(_), .. }) => self.findings.repeated += 1,
            _ => {}
        }
    }

    fn promise(&mut self, id: QueueId, promise: &Promise, present: bool) {
        if !promise.acknowledged {
            return;
        }
        self.findings.acknowledged += 1;
        let ended = |position| promise.recipients.get(&position).is_some_and(|fate: &Fate| fate.finishing_us.is_some());
        if (0..PlannedMessage::of(id).recipients).all(ended) {
            return;
        }
        self.findings.required += 1;
        if !present {
            self.findings.lost += 1;
            self.detail(id, "acknowledged message is gone");
        }
    }

    fn detail(&mut self, id: QueueId, what: &str) {
        if self.details.len() < DETAILS_MAX {
            self.details.push(format!("! {id} ({:#x}, cycle {}): {what}", id.to_u64(), cycle_of(id)));
        }
    }
}

/// Writes a ledger that promises exactly the messages found. All of it is durable, for it was read from the disk.
fn adopt(path: &Path, found: &Found) -> io::Result<()> {
    let ledger = CrashLedger::append_to(path)?;
    for (id, recipients) in found {
        ledger.write(*id, Event::Offered)?;
        ledger.write(*id, Event::Acknowledged)?;
        for position in 0..PlannedMessage::of(*id).recipients {
            match recipients.iter().find(|(there, _)| *there == position) {
                Some((_, state)) if *state == State::default() => {}
                Some((_, state)) => {
                    ledger.write(*id, Event::Changing(position, *state))?;
                    ledger.write(*id, Event::Changed(position, *state))?;
                }
                None => {
                    ledger.write(*id, Event::Finishing(position))?;
                    ledger.write(*id, Event::Finished(position))?;
                }
            }
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;

//! The record of the spool's answers to the writer, kept where the crash does not reach.
//!
//! Records of one fixed size, each appended by one write to a file in memory, so that a killed writer leaves whole
//! records only. An *intent* is written before the call that may have an effect, its *fact* after the spool said that
//! the effect is durable. For a crash at some moment: facts in the file before that moment must hold, and nothing may
//! hold whose intent is not in the file after it.

use crate::clock;
use mail::QueueId;
use spool::{State, Status};
use std::collections::{BTreeMap, HashMap};
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::Path;

/// Bytes of a record.
pub(crate) const RECORD: usize = 32;
/// In the recipient field: the record is about the message as a whole.
const WHOLE: u8 = u8::MAX;

/// The content of a record. The numbers are those in the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Event {
    /// About to be appended.
    Offered,
    /// Acknowledged as durable.
    Acknowledged,
    /// Answered with a failure; the client would send it again.
    Refused,
    /// This recipient is about to be recorded as done.
    Finishing(u32),
    /// That is durable.
    Finished(u32),
    /// This recipient is about to be recorded in a new state.
    Changing(u32, State),
    /// That is durable.
    Changed(u32, State),
}

/// A ledger open for appending, shared by the threads of a writer.
#[derive(Debug)]
pub(crate) struct CrashLedger {
    file: File,
}

impl CrashLedger {
    /// Opens or makes the file.
    ///
    /// # Errors
    /// The system's words.
    pub(crate) fn append_to(path: &Path) -> io::Result<Self> {
        Ok(Self { file: OpenOptions::new().create(true).append(true).open(path)? })
    }

    /// Appends a record.
    ///
    /// # Errors
    /// The system's words; the rig cannot go on.
    pub(crate) fn write(&self, id: QueueId, event: Event) -> io::Result<()> {
        (&self.file).write_all(&encode(id, event, clock::unix_us()))
    }
}

fn encode(id: QueueId, event: Event, stamp_us: u64) -> [u8; RECORD] {
    let (kind, recipient, state) = match event {
        Event::Offered => (1, WHOLE, State::default()),
        Event::Acknowledged => (2, WHOLE, State::default()),
        Event::Refused => (3, WHOLE, State::default()),
        Event::Finishing(recipient) => (4, narrow(recipient), State::default()),
        Event::Finished(recipient) => (5, narrow(recipient), State::default()),
        Event::Changing(recipient, state) => (6, narrow(recipient), state),
        Event::Changed(recipient, state) => (7, narrow(recipient), state),
    };
    let mut record = [0; RECORD];
    let fields: [&[u8]; 5] = [
        &[kind, recipient, state.attempts, u8::from(state.status == Status::Held)],
        &state.due.to_le_bytes(),
        &id.to_u64().to_le_bytes(),
        &stamp_us.to_le_bytes(),
        &[0xA5; 8],
    ];
    for (to, from) in record.iter_mut().zip(fields.concat()) {
        *to = from;
    }
    record
}

fn narrow(recipient: u32) -> u8 {
    u8::try_from(recipient).unwrap_or(WHOLE)
}

fn decode(record: &[u8; RECORD]) -> Option<(QueueId, Event, u64)> {
    let [kind, recipient, attempts, held, d0, d1, d2, d3, rest @ ..] = record;
    let (id, rest) = rest.split_first_chunk::<8>()?;
    let (stamp_us, mark) = rest.split_first_chunk::<8>()?;
    if mark != [0xA5; 8] {
        return None;
    }
    let recipient = u32::from(*recipient);
    let status = if *held == 1 { Status::Held } else { Status::Waiting };
    let state = State { status, attempts: *attempts, due: u32::from_le_bytes([*d0, *d1, *d2, *d3]) };
    let event = match kind {
        1 => Event::Offered,
        2 => Event::Acknowledged,
        3 => Event::Refused,
        4 => Event::Finishing(recipient),
        5 => Event::Finished(recipient),
        6 => Event::Changing(recipient, state),
        7 => Event::Changed(recipient, state),
        _ => return None,
    };
    Some((QueueId::from_u64(u64::from_le_bytes(*id))?, event, u64::from_le_bytes(*stamp_us)))
}

/// The messages that must, may and must not be in the spool at a crash.
#[derive(Debug, Default)]
pub(crate) struct Book {
    /// Every message that was offered before the crash or may have been.
    pub(crate) messages: HashMap<QueueId, Promise>,
    /// Time of the last record that is surely from before the crash.
    pub(crate) last_us: u64,
}

/// The promises for one message.
#[derive(Clone, Debug, Default)]
pub(crate) struct Promise {
    /// Acknowledged before the crash.
    pub(crate) acknowledged: bool,
    /// Answered with a failure.
    pub(crate) refused: bool,
    /// Its recipients about which something was recorded.
    pub(crate) recipients: BTreeMap<u32, Fate>,
}

/// The promises for one recipient.
#[derive(Clone, Debug, Default)]
pub(crate) struct Fate {
    /// When it was given to the spool as done, if it was.
    pub(crate) finishing_us: Option<u64>,
    /// That was durable before the crash.
    pub(crate) finished: bool,
    /// States given to the spool, in order; the one durable for certain before the crash first, if there is one.
    pub(crate) states: Vec<State>,
    /// One of the states is durable for certain, so that the first state of a new message is out.
    pub(crate) changed: bool,
}

impl Book {
    /// Reads a ledger for a crash that happened when the file had at least `before` and at most `after` bytes.
    ///
    /// # Errors
    /// The file cannot be read, or holds something else.
    pub(crate) fn read(path: &Path, before: u64, after: u64) -> io::Result<Self> {
        let bytes = std::fs::read(path)?;
        let mut book = Self::default();
        let (records, _torn) = bytes.as_chunks::<RECORD>();
        for (index, record) in records.iter().enumerate() {
            let end = ((index + 1) * RECORD) as u64;
            if end > after {
                break;
            }
            let (id, event, stamp_us) =
                decode(record).ok_or_else(|| io::Error::other(format!("{}: record {index}", path.display())))?;
            book.apply(id, event, stamp_us, end <= before);
        }
        Ok(book)
    }

    fn apply(&mut self, id: QueueId, event: Event, stamp_us: u64, certain: bool) {
        if certain {
            self.last_us = self.last_us.max(stamp_us);
        }
        let promise = self.messages.entry(id).or_default();
        match event {
            Event::Offered => {}
            Event::Acknowledged => promise.acknowledged |= certain,
            Event::Refused => promise.refused = true,
            Event::Finishing(recipient) => {
                promise.recipients.entry(recipient).or_default().finishing_us.get_or_insert(stamp_us);
            }
            Event::Finished(recipient) => promise.recipients.entry(recipient).or_default().finished |= certain,
            Event::Changing(recipient, state) => promise.recipients.entry(recipient).or_default().states.push(state),
            Event::Changed(recipient, state) if certain => {
                let fate = promise.recipients.entry(recipient).or_default();
                // Changes of a recipient become durable in their order: earlier states cannot come back.
                if let Some(index) = fate.states.iter().rposition(|earlier| *earlier == state) {
                    fate.states.drain(..index);
                    fate.changed = true;
                }
            }
            Event::Changed(..) => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::crash::letter::queue_id;

    #[test]
    fn records_come_back_as_they_were_written() {
        let id = queue_id(7, 2, 9);
        let state = State { status: Status::Held, attempts: 3, due: 77 };
        for event in [
            Event::Offered,
            Event::Acknowledged,
            Event::Refused,
            Event::Finishing(4),
            Event::Finished(0),
            Event::Changing(1, state),
            Event::Changed(2, state),
        ] {
            assert_eq!(decode(&encode(id, event, 123)), Some((id, event, 123)));
        }
        assert_eq!(decode(&[0; RECORD]), None);
    }

    #[test]
    fn facts_count_before_the_crash_and_intents_until_after_it() {
        let id = queue_id(0, 0, 1);
        let (one, two) = (State { attempts: 1, ..State::default() }, State { attempts: 2, ..State::default() });
        let mut book = Book::default();
        book.apply(id, Event::Offered, 1, true);
        book.apply(id, Event::Changing(0, one), 2, true);
        book.apply(id, Event::Changing(0, two), 3, true);
        book.apply(id, Event::Changed(0, one), 4, true);
        book.apply(id, Event::Changed(0, two), 5, false);
        book.apply(id, Event::Finishing(1), 6, false);
        book.apply(id, Event::Finished(1), 7, false);
        book.apply(id, Event::Acknowledged, 8, false);
        let promise = &book.messages[&id];
        assert!(!promise.acknowledged);
        assert_eq!(promise.recipients[&0].states, [one, two]);
        assert!(promise.recipients[&0].changed);
        assert_eq!((promise.recipients[&1].finishing_us, promise.recipients[&1].finished), (Some(6), false));
        assert_eq!(book.last_us, 4);
    }
}

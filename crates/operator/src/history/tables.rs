//! Writes entries into the tables, and keeps the tables within their bounds.
//!
//! The number of a message in the file is its queue id less the least one, so that it fits a signed number and its
//! order is that of arrival.

use super::entry::{HistoryEntry, HistoryWindow, MessageEntry, StepEntry, StepKind};
use super::storage::number;
use mail::decimal::push_decimal;
use mail::{PhaseTimes, QueueId};
use observe::stats::Counts;
use rusqlite::{Connection, Transaction, params};
use std::collections::HashMap;

/// Messages that one step of pruning removes, so that entries are written in between.
const PRUNED_AT_ONCE: i64 = 2_000;
/// How long windows are kept, by their length: seconds for an hour, minutes and hours for a month.
const WINDOW_TIMES: [(i64, i64); 3] = [(1, 3_600), (60, 31 * 86_400), (3_600, 31 * 86_400)];

const INSERT_MESSAGE: &str = "
    INSERT INTO message VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11)
    ON CONFLICT (id) DO UPDATE SET
        sender = excluded.sender, size = excluded.size, recipients = excluded.recipients, client = excluded.client,
        message_id = excluded.message_id, sent = sent + excluded.sent, failed = failed + excluded.failed,
        dropped = dropped + excluded.dropped, last = CASE excluded.last WHEN '' THEN last ELSE excluded.last END,
        last_us = max(last_us, excluded.last_us)";
const UPDATE_MESSAGE: &str = "
    INSERT INTO message VALUES (?1, NULL, 0, 0, '', '', ?2, ?3, ?4, ?5, ?6)
    ON CONFLICT (id) DO UPDATE SET
        sent = sent + excluded.sent, failed = failed + excluded.failed, dropped = dropped + excluded.dropped,
        last = CASE excluded.last WHEN '' THEN last ELSE excluded.last END, last_us = excluded.last_us";
/// Gives a message that was made of another one its facts.
const COPY_MESSAGE: &str = "
    INSERT INTO message SELECT ?1, sender, size, ?3, client, message_id, 0, 0, 0, '', ?4 FROM message WHERE id = ?2
    ON CONFLICT (id) DO UPDATE SET
        sender = excluded.sender, size = excluded.size, recipients = excluded.recipients, client = excluded.client,
        message_id = excluded.message_id";
const INSERT_STEP: &str = "INSERT OR REPLACE INTO step VALUES (?1, ?2, ?3, ?4, ?5, ?6, ?7, ?8, ?9, ?10, ?11, ?12)";
const INSERT_WINDOW: &str = "INSERT OR REPLACE INTO window_counts VALUES (?1, ?2, ?3)";
const INSERT_BEST: &str = "
    INSERT INTO best_window VALUES (?1, ?2, ?3)
    ON CONFLICT (seconds) DO UPDATE SET begin = excluded.begin, sent = excluded.sent WHERE excluded.sent > sent";
const DELETE_OLD_STEPS: &str = "DELETE FROM step WHERE message IN
    (SELECT id FROM message WHERE id < ?1 AND last_us < ?2 ORDER BY id LIMIT ?3)";
const DELETE_OLD_MESSAGES: &str = "DELETE FROM message WHERE id IN
    (SELECT id FROM message WHERE id < ?1 AND last_us < ?2 ORDER BY id LIMIT ?3)";

/// Returns the number of a message in the file.
pub(super) const fn message_number(id: QueueId) -> i64 {
    (id.to_u64() - QueueId::MIN.to_u64()).cast_signed()
}

/// Returns the message of a number in the file.
pub(super) fn queue_id(number: i64) -> Option<QueueId> {
    QueueId::from_u64(u64::try_from(number).ok()?.checked_add(QueueId::MIN.to_u64())?)
}

/// Returns the least number of messages that came at this time, in microseconds since 1970, or later.
pub(super) fn number_at(unix_us: u64) -> i64 {
    match QueueId::new(unix_us, mail::Node::default()) {
        Some(id) => message_number(id),
        None if unix_us > QueueId::MIN.unix_us() => i64::MAX,
        None => 0,
    }
}

fn signed(number: u64) -> i64 {
    i64::try_from(number).unwrap_or(i64::MAX)
}

/// The news of a batch about a message.
#[derive(Default)]
struct MessageChange<'a> {
    accepted: Option<&'a MessageEntry>,
    sent: u64,
    failed: u64,
    dropped: u64,
    is_discarded: bool,
    last: &'static str,
    last_us: u64,
}

/// Writes entries in one transaction. `n` numbers the steps of this process.
///
/// # Errors
/// Nothing was written.
pub(super) fn write(connection: &mut Connection, entries: &[HistoryEntry], n: &mut i64) -> rusqlite::Result<()> {
    let transaction = connection.transaction()?;
    let mut changes: HashMap<QueueId, MessageChange<'_>> = HashMap::new();
    for entry in entries {
        match entry {
            HistoryEntry::Message(message) => changes.entry(message.id).or_default().accepted = Some(message),
            HistoryEntry::Step(step) => {
                *n += 1;
                write_step(&transaction, step, *n)?;
                changes.entry(step.id).or_default().add(step);
            }
            HistoryEntry::Window(window) => write_window(&transaction, window)?,
        }
    }
    for (id, change) in &changes {
        change.write(&transaction, *id)?;
    }
    for entry in entries {
        if let HistoryEntry::Step(step) = entry
            && let Some((made, recipients)) = step.made
        {
            let values =
                params![message_number(made), message_number(step.id), signed(recipients), signed(step.time_us)];
            transaction.prepare_cached(COPY_MESSAGE)?.execute(values)?;
        }
    }
    transaction.commit()
}

fn write_step(transaction: &Transaction<'_>, step: &StepEntry, n: i64) -> rusqlite::Result<()> {
    let took = step.took.map(|took| i64::try_from(took.as_micros()).unwrap_or(i64::MAX));
    transaction.prepare_cached(INSERT_STEP)?.execute(params![
        message_number(step.id),
        signed(step.time_us),
        n,
        step.kind.name(),
        step.to,
        signed(step.recipients),
        step.host,
        step.mailer,
        step.status,
        step.text,
        took,
        phases_text(&step.phases)
    ])?;
    Ok(())
}

/// Writes times of phases: `connect=812 greeting=40211`, in microseconds.
fn phases_text(phases: &PhaseTimes) -> String {
    let mut text = String::new();
    for (phase, took) in phases.iter() {
        if !text.is_empty() {
            text.push(' ');
        }
        text.push_str(phase.name());
        text.push('=');
        push_decimal(&mut text, u64::try_from(took.as_micros()).unwrap_or(u64::MAX));
    }
    text
}

fn write_window(transaction: &Transaction<'_>, window: &HistoryWindow) -> rusqlite::Result<()> {
    let values = window.counts.fields().map(|(_, value)| value);
    let text = serde_json::to_string(&values).unwrap_or_default();
    transaction.prepare_cached(INSERT_WINDOW)?.execute(params![window.step, window.begin, text])?;
    if window.counts.sent > 0 {
        let best = params![window.step, window.begin, signed(window.counts.sent)];
        transaction.prepare_cached(INSERT_BEST)?.execute(best)?;
    }
    Ok(())
}

/// Reads the counts of a window as they were written; a window of a program with other counts has none.
pub(super) fn read_counts(text: &str) -> Option<Counts> {
    serde_json::from_str(text).ok().map(Counts::from_values)
}

impl MessageChange<'_> {
    fn add(&mut self, step: &StepEntry) {
        match step.kind {
            StepKind::Sent => self.sent += step.recipients,
            StepKind::Failed => self.failed += step.recipients,
            StepKind::Deleted | StepKind::Moved => self.dropped += step.recipients,
            StepKind::Discarded if step.recipients == 0 => self.is_discarded = true,
            StepKind::Discarded => self.dropped += step.recipients,
            // These say nothing about the end of the message; a recipient that is bounced has failed in a step before.
            StepKind::Screened | StepKind::Reported | StepKind::Cloned | StepKind::Bounced | StepKind::Command => {
                self.last_us = self.last_us.max(step.time_us);
                return;
            }
            StepKind::Deferred | StepKind::Held | StepKind::Released => {}
        }
        (self.last, self.last_us) = (step.kind.name(), step.time_us);
    }

    fn write(&self, transaction: &Transaction<'_>, id: QueueId) -> rusqlite::Result<()> {
        let row = message_number(id);
        let recipients = self.accepted.map_or(1, |accepted| accepted.recipients);
        let dropped = if self.is_discarded { self.dropped.max(recipients) } else { self.dropped };
        let [sent, failed, dropped] = [self.sent, self.failed, dropped].map(signed);
        let last_us = signed(self.last_us.max(id.unix_us()));
        match self.accepted {
            Some(one) => transaction.prepare_cached(INSERT_MESSAGE)?.execute(params![
                row,
                one.sender,
                signed(one.size),
                signed(one.recipients),
                one.client,
                one.message_id,
                sent,
                failed,
                dropped,
                self.last,
                last_us
            ])?,
            None => {
                let values = params![row, sent, failed, dropped, self.last, last_us];
                transaction.prepare_cached(UPDATE_MESSAGE)?.execute(values)?
            }
        };
        Ok(())
    }
}

/// The bounds of the file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TableBounds {
    /// Messages that ended before this time, in microseconds since 1970, are removed.
    pub(super) oldest_us: u64,
    /// Messages.
    pub(super) messages_max: u64,
    /// Octets.
    pub(super) size_max: u64,
    /// The present in civil seconds, by which windows age.
    pub(super) civil_now: i64,
}

/// Removes what is beyond the bounds, a part of it at a time; returns whether there is more.
///
/// # Errors
/// Nothing was removed in this step.
pub(super) fn prune(connection: &mut Connection, bounds: &TableBounds) -> rusqlite::Result<bool> {
    let used = bytes_used(connection)?;
    let transaction = connection.transaction()?;
    for (seconds, kept) in WINDOW_TIMES {
        let delete = "DELETE FROM window_counts WHERE seconds = ?1 AND begin < ?2";
        transaction.prepare_cached(delete)?.execute(params![seconds, bounds.civil_now - kept])?;
    }
    let (oldest, oldest_us) = (number_at(bounds.oldest_us), signed(bounds.oldest_us));
    transaction.prepare_cached(DELETE_OLD_STEPS)?.execute(params![oldest, oldest_us, PRUNED_AT_ONCE])?;
    let mut removed =
        transaction.prepare_cached(DELETE_OLD_MESSAGES)?.execute(params![oldest, oldest_us, PRUNED_AT_ONCE])?;
    // A little room is left for the entries that come until the next look.
    let is_large = used > bounds.size_max / 10 * 9;
    let messages: i64 = transaction.prepare_cached("SELECT messages FROM total")?.query_row([], |row| row.get(0))?;
    let surplus = messages - signed(bounds.messages_max);
    if is_large || surplus > 0 {
        let all = params![i64::MAX, i64::MAX, if is_large { PRUNED_AT_ONCE } else { surplus.min(PRUNED_AT_ONCE) }];
        transaction.prepare_cached(DELETE_OLD_STEPS)?.execute(all)?;
        removed = removed.max(transaction.prepare_cached(DELETE_OLD_MESSAGES)?.execute(all)?);
    }
    transaction.commit()?;
    Ok(removed >= usize::try_from(PRUNED_AT_ONCE).unwrap_or(usize::MAX))
}

/// Returns the octets of the file that hold something. Room that was freed is used again, and the file keeps its size.
///
/// # Errors
/// The file cannot be read.
pub(super) fn bytes_used(connection: &Connection) -> rusqlite::Result<u64> {
    let pages = number(connection, "PRAGMA page_count")? - number(connection, "PRAGMA freelist_count")?;
    let bytes = pages.saturating_mul(number(connection, "PRAGMA page_size")?);
    Ok(u64::try_from(bytes).unwrap_or(0))
}

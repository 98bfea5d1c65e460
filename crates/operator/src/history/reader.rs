//! Finds messages in the history.
//!
//! A search goes from the youngest message to the oldest and compares each with the expression, within a time; where
//! it breaks off, the next search goes on. It reads beside the writer and holds no lock that mail waits for.

use super::search::{HistoryExpression, MessageFacts, StepFacts};
use super::storage::{StorageError, open_to_read};
use super::tables::{message_number, number_at, queue_id, read_counts};
use super::{HistoryWindow, entry};
use crate::answers::{BestWindow, ErrorLine, HistoryAnswer, HistoryMessage, HistoryStep, PhaseTime};
use mail::{AttemptPhase, QueueId};
use os::clock;
use rusqlite::{Connection, Row, params};
use std::path::Path;
use std::time::Duration;

/// How long one search looks.
const SEARCH_TIME_MAX: Duration = Duration::from_secs(10);
/// Messages between two looks at the clock.
const CLOCK_INTERVAL: u64 = 256;
/// Messages of one answer.
const MESSAGES_MAX: u64 = 1_000;
/// Steps of one message that are looked at.
const STEPS_MAX: usize = 2_000;
/// Recipients of a step that a list shows.
const LISTED_RECIPIENTS: usize = 5;
/// Recipients of a step that one message shows.
const SHOWN_RECIPIENTS: usize = 500;
/// The youngest messages whose errors are remembered at a start.
const ERROR_MESSAGES: i64 = 20_000;
/// Errors that are remembered at a start.
const ERRORS_MAX: i64 = 10;

const MESSAGES: &str = "
    SELECT id, sender, size, recipients, client, message_id, sent, failed, dropped, last, last_us FROM message
    WHERE id < ?1 AND id >= ?2 ORDER BY id DESC";
const STEPS: &str = "
    SELECT time_us, kind, addresses, recipients, host, mailer, status, reply, took_us, phases FROM step
    WHERE message = ?1 ORDER BY time_us, n LIMIT ?2";
const ERRORS: &str = "
    SELECT time_us, kind, addresses, recipients, host, mailer, status, reply, took_us, phases, message FROM step
    WHERE message >= coalesce((SELECT id FROM message ORDER BY id DESC LIMIT 1 OFFSET ?1), 0)
        AND kind IN ('deferred', 'failed')
    ORDER BY time_us DESC LIMIT ?2";

/// A question to the history.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct SearchQuestion {
    /// Terms that must all hold; empty for all messages.
    pub expression: HistoryExpression,
    /// Only this message, with all its steps.
    pub id: Option<QueueId>,
    /// Only messages that came before this one.
    pub after: Option<QueueId>,
    /// The most messages.
    pub limit: u64,
}

/// Bounds of a search; those of the server by default.
#[derive(Clone, Copy, Debug)]
pub struct SearchLimits {
    /// How long it looks.
    pub time_max: Duration,
}

impl Default for SearchLimits {
    fn default() -> Self {
        Self { time_max: SEARCH_TIME_MAX }
    }
}

/// A message as the file has it.
struct MessageRow {
    id: QueueId,
    sender: Option<String>,
    size: u64,
    recipients: u64,
    client: String,
    message_id: String,
    sent: u64,
    failed: u64,
    dropped: u64,
    last: String,
    last_us: u64,
}

/// A step as the file has it.
struct StepRow {
    time_us: u64,
    kind: String,
    addresses: String,
    recipients: u64,
    host: String,
    mailer: String,
    status: String,
    reply: String,
    took_us: Option<u64>,
    /// As [`read_phases`] reads it.
    phases: String,
}

/// Finds the messages of a question.
///
/// # Errors
/// The file cannot be read.
pub(super) fn search(
    path: &Path,
    question: &SearchQuestion,
    limits: SearchLimits,
) -> Result<HistoryAnswer, StorageError> {
    let connection = open_to_read(path)?;
    let only = question.id.or_else(|| question.expression.id());
    let (from, to) = match only {
        Some(id) => (message_number(id), message_number(id).saturating_add(1)),
        None => {
            let (from, to) = question.expression.span();
            let to = number_at(to);
            (number_at(from), question.after.map_or(to, |after| to.min(message_number(after))))
        }
    };
    let limit = usize::try_from(question.limit.clamp(1, MESSAGES_MAX)).unwrap_or(usize::MAX);
    let ends_at = clock::now() + limits.time_max;
    let (mut answer, mut seen) = (HistoryAnswer::default(), 0_u64);
    let mut statement = connection.prepare(MESSAGES)?;
    let mut rows = statement.query(params![to, from])?;
    while let Some(row) = rows.next()? {
        let Some(message) = MessageRow::read(row)? else { continue };
        if let Some(found) = find(&connection, question, &message)? {
            answer.messages.push(found);
            if answer.messages.len() >= limit && only.is_none() {
                answer.next = Some(message.id.to_string());
                break;
            }
        }
        seen += 1;
        if seen.is_multiple_of(CLOCK_INTERVAL) && clock::now() >= ends_at {
            (answer.next, answer.cut) = (Some(message.id.to_string()), true);
            break;
        }
    }
    Ok(answer)
}

/// Returns the message with the steps that are shown, if the expression holds for it.
fn find(
    connection: &Connection,
    question: &SearchQuestion,
    message: &MessageRow,
) -> Result<Option<HistoryMessage>, StorageError> {
    let facts = message.facts();
    if !question.expression.matches_message(&facts) {
        return Ok(None);
    }
    let steps = read_steps(connection, message.id)?;
    let known: Vec<StepFacts<'_>> =
        if question.expression.needs_steps() { steps.iter().map(StepRow::facts).collect() } else { Vec::new() };
    let Some(fitting) = question.expression.find_step(&facts, &known) else { return Ok(None) };
    let mut found = message.answer();
    if question.id.is_some() {
        found.steps = steps.iter().map(|step| step.answer(SHOWN_RECIPIENTS)).collect();
        return Ok(Some(found));
    }
    let last = || steps.iter().rfind(|step| !step.addresses.is_empty()).or_else(|| steps.last());
    let shown = if known.is_empty() { last() } else { steps.get(fitting) };
    found.steps = shown.map(|step| step.answer(LISTED_RECIPIENTS)).into_iter().collect();
    found.more_steps = u64::try_from(steps.len() - found.steps.len()).unwrap_or(u64::MAX);
    Ok(Some(found))
}

fn read_steps(connection: &Connection, id: QueueId) -> rusqlite::Result<Vec<StepRow>> {
    let mut statement = connection.prepare_cached(STEPS)?;
    let limit = i64::try_from(STEPS_MAX).unwrap_or(i64::MAX);
    statement.query_map(params![message_number(id), limit], StepRow::read)?.collect()
}

/// Reads the windows of the statistics.
///
/// # Errors
/// The file cannot be read.
pub(super) fn read_windows(connection: &Connection) -> rusqlite::Result<Vec<HistoryWindow>> {
    let mut statement =
        connection.prepare("SELECT seconds, begin, counts FROM window_counts ORDER BY seconds, begin")?;
    let mut rows = statement.query([])?;
    let mut windows = Vec::new();
    while let Some(row) = rows.next()? {
        let text: String = row.get(2)?;
        if let Some(counts) = read_counts(&text) {
            windows.push(HistoryWindow { step: row.get(0)?, begin: row.get(1)?, counts });
        }
    }
    Ok(windows)
}

/// Reads the best windows.
///
/// # Errors
/// The file cannot be read.
pub(super) fn read_best(connection: &Connection) -> rusqlite::Result<Vec<BestWindow>> {
    let mut statement = connection.prepare("SELECT seconds, begin, sent FROM best_window ORDER BY seconds")?;
    let best = |row: &Row<'_>| Ok(BestWindow { seconds: row.get(0)?, begin: row.get(1)?, sent: unsigned(row.get(2)?) });
    statement.query_map([], best)?.collect()
}

/// Reads the last attempts that failed, the newest first.
///
/// # Errors
/// The file cannot be read.
pub(super) fn read_errors(connection: &Connection) -> rusqlite::Result<Vec<ErrorLine>> {
    let mut statement = connection.prepare(ERRORS)?;
    let error = |row: &Row<'_>| {
        let step = StepRow::read(row)?;
        let id = queue_id(row.get(10)?).map(|id| id.to_string()).unwrap_or_default();
        let to = step.addresses.lines().next().map(|address| format!("<{address}>")).unwrap_or_default();
        Ok(ErrorLine {
            time: step.time_us / 1_000_000,
            id,
            to,
            recipients: step.recipients,
            host: step.host,
            result: step.kind,
            text: step.reply,
        })
    };
    statement.query_map(params![ERROR_MESSAGES, ERRORS_MAX], error)?.collect()
}

fn unsigned(number: i64) -> u64 {
    u64::try_from(number).unwrap_or(0)
}

impl MessageRow {
    /// Returns the message of a row; `None` if its number is none of a message.
    fn read(row: &Row<'_>) -> rusqlite::Result<Option<Self>> {
        let Some(id) = queue_id(row.get(0)?) else { return Ok(None) };
        Ok(Some(Self {
            id,
            sender: row.get(1)?,
            size: unsigned(row.get(2)?),
            recipients: unsigned(row.get(3)?),
            client: row.get(4)?,
            message_id: row.get(5)?,
            sent: unsigned(row.get(6)?),
            failed: unsigned(row.get(7)?),
            dropped: unsigned(row.get(8)?),
            last: row.get(9)?,
            last_us: unsigned(row.get(10)?),
        }))
    }

    /// Returns the state: that of the recipients that are left, else the worst end of one.
    fn status(&self) -> &'static str {
        let is_done = self.sent + self.failed + self.dropped >= self.recipients.max(1);
        match self.last.as_str() {
            "held" => "held",
            "deferred" => "waiting",
            _ if !is_done => "waiting",
            _ if self.failed > 0 => "failed",
            _ if self.sent > 0 => "sent",
            last if last == entry::StepKind::Deleted.name() => "deleted",
            last if last == entry::StepKind::Moved.name() => "moved",
            _ => "discarded",
        }
    }

    fn facts(&self) -> MessageFacts<'_> {
        MessageFacts {
            id: self.id,
            sender: self.sender.as_deref(),
            client: &self.client,
            message_id: &self.message_id,
            status: self.status(),
        }
    }

    fn answer(&self) -> HistoryMessage {
        HistoryMessage {
            id: self.id.to_string(),
            arrived_ms: self.id.unix_us() / 1_000,
            from: self.sender.clone(),
            size: self.size,
            recipients: self.recipients,
            client: self.client.clone(),
            message_id: self.message_id.clone(),
            status: self.status().to_owned(),
            sent: self.sent,
            failed: self.failed,
            changed_ms: self.last_us / 1_000,
            ..HistoryMessage::default()
        }
    }
}

impl StepRow {
    fn read(row: &Row<'_>) -> rusqlite::Result<Self> {
        Ok(Self {
            time_us: unsigned(row.get(0)?),
            kind: row.get(1)?,
            addresses: row.get(2)?,
            recipients: unsigned(row.get(3)?),
            host: row.get(4)?,
            mailer: row.get(5)?,
            status: row.get(6)?,
            reply: row.get(7)?,
            took_us: row.get::<_, Option<i64>>(8)?.map(unsigned),
            phases: row.get(9)?,
        })
    }

    fn facts(&self) -> StepFacts<'_> {
        StepFacts { addresses: &self.addresses, host: &self.host, reply: &self.reply }
    }

    fn answer(&self, recipients_max: usize) -> HistoryStep {
        let to: Vec<String> = self.addresses.lines().take(recipients_max).map(str::to_owned).collect();
        HistoryStep {
            time_ms: self.time_us / 1_000,
            kind: self.kind.clone(),
            more_recipients: self.recipients.saturating_sub(u64::try_from(to.len()).unwrap_or(u64::MAX)),
            to,
            host: self.host.clone(),
            mailer: self.mailer.clone(),
            status: self.status.clone(),
            reply: self.reply.clone(),
            took_ms: self.took_us.map(|took| took / 1_000),
            phases: read_phases(&self.phases),
        }
    }
}

/// Reads times of phases: `connect=812 greeting=40211`, in microseconds. Phases of another version are left out.
fn read_phases(text: &str) -> Vec<PhaseTime> {
    let phase = |part: &str| {
        let (name, us) = part.split_once('=')?;
        let phase = AttemptPhase::of_name(name)?.name().to_owned();
        Some(PhaseTime { phase, us: us.parse().ok()? })
    };
    text.split(' ').filter_map(phase).collect()
}

//! The program under test: several threads that accept, deliver, defer and remember promises as fast as they can.
//!
//! It is killed, its disk fails, its power is cut, and it must not notice beforehand: there is no orderly end. It ends
//! by itself only when its input does, so that no writer outlives its rig.

use crate::clock;
use crate::crash::ledger::{CrashLedger, Event};
use crate::crash::letter::{CHUNK_BYTES, HEADER_BYTES, PlannedMessage, queue_id};
use crate::crash::random::{Random, mix};
use crate::crash::spools::{self, SpoolArguments};
use clap::Args;
use mail::QueueId;
use spool::{Change, Chunk, Commit, Error, NewBody, NewMessage, NewRecipient, Spool, State, Status, Store};
use std::collections::VecDeque;
use std::io::{self, Write};
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

/// Recipients that wait at the same time; older ones are delivered when there are more. Each run draws its number, so
/// that some spools are nearly empty and others half full.
const WAITING: (u64, u64) = (50, 900);
/// Records on their way to the disk whose handles are not yet looked at.
const RECORDS_MAX: usize = 1024;
/// When a message is tried again is in the future of every run, so that the ledger's state is exact.
const DUE_FIRST: u32 = 2_000_000_000;

/// The arguments of a writer.
#[derive(Args, Clone, Debug)]
pub struct WriterArguments {
    #[command(flatten)]
    pub(crate) spool: SpoolArguments,
    /// Where acknowledgements are written down.
    #[arg(long)]
    pub(crate) ledger: PathBuf,
    /// Threads that accept messages.
    #[arg(long, default_value_t = 6)]
    pub(crate) threads: u16,
    /// Number of this run on its spool; no two runs on one spool may have the same.
    #[arg(long)]
    pub(crate) cycle: u64,
    /// Acknowledge before the message is given to the spool: a kill must uncover this.
    #[arg(long)]
    pub(crate) ledger_ahead: bool,
    /// Never finish a recipient, so that the spool fills up.
    #[arg(long)]
    pub(crate) hoard: bool,
}

/// The counts of the writer, printed on request: the answers a fault rig looks for.
#[derive(Debug, Default)]
struct AnswerCounts {
    acknowledged: AtomicU64,
    failed: AtomicU64,
    full: AtomicU64,
    busy: AtomicU64,
    poisoned: AtomicU64,
    other: AtomicU64,
}

#[derive(Debug)]
struct SpoolWriter {
    store: Arc<Spool>,
    ledger: CrashLedger,
    tally: AnswerCounts,
    waiting: Mutex<VecDeque<(QueueId, u32, State)>>,
    records: SyncSender<(Commit, Vec<(QueueId, Event)>)>,
    arguments: WriterArguments,
}

/// Runs until killed or until the input ends. Each line of input is answered with a line of counts.
///
/// # Errors
/// The spool does not open, or the ledger cannot be written.
pub(crate) fn run(arguments: WriterArguments) -> io::Result<()> {
    let (store, _recovery) = spools::open(&arguments.spool).map_err(io::Error::other)?;
    let (records, handles) = sync_channel(RECORDS_MAX);
    let ledger = CrashLedger::append_to(&arguments.ledger)?;
    let (tally, waiting) = (AnswerCounts::default(), Mutex::default());
    let writer = Arc::new(SpoolWriter { store, ledger, tally, waiting, records, arguments });
    writer.adopt();
    for thread in 0..writer.arguments.threads {
        let writer = Arc::clone(&writer);
        thread::spawn(move || die_on_error(writer.accept(thread)));
    }
    let deliverer = Arc::clone(&writer);
    thread::spawn(move || die_on_error(deliverer.deliver()));
    let recorder = Arc::clone(&writer);
    thread::spawn(move || die_on_error(recorder.note_durable(&handles)));
    let mut output = io::stdout();
    writeln!(output, "ready")?;
    for line in io::stdin().lines() {
        line?;
        writeln!(output, "{}", writer.line())?;
    }
    Ok(())
}

fn die_on_error(result: io::Result<()>) {
    if let Err(error) = result {
        drop(writeln!(io::stderr(), "crash-writer: {error}"));
        std::process::exit(4);
    }
}

impl AnswerCounts {
    /// Counts a refusal and says how long to leave the spool alone.
    fn refusal(&self, error: &Error) -> Duration {
        let (count, pause_ms) = match error {
            Error::Failed => (&self.failed, 1),
            Error::Full => (&self.full, 20),
            Error::Busy => (&self.busy, 2),
            Error::Poisoned => (&self.poisoned, 50),
            _ => (&self.other, 20),
        };
        count.fetch_add(1, Ordering::Relaxed);
        Duration::from_millis(pause_ms)
    }
}

impl SpoolWriter {
    fn line(&self) -> String {
        let AnswerCounts { acknowledged, failed, full, busy, poisoned, other } = &self.tally;
        let [acknowledged, failed, full, busy, poisoned, other] =
            [acknowledged, failed, full, busy, poisoned, other].map(|count| count.load(Ordering::Relaxed));
        let now = self.store.statistics();
        let (segments, free, bad) = (now.segments, now.segments_free, now.segments_bad);
        format!(
            "acknowledged={acknowledged} failed={failed} full={full} busy={busy} poisoned={poisoned} other={other} \
             messages={} relocated={} segments={segments} free={free} bad={bad}",
            now.messages, now.relocated
        )
    }

    fn waiting(&self) -> MutexGuard<'_, VecDeque<(QueueId, u32, State)>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes over what an earlier writer left unfinished.
    fn adopt(&self) {
        for id in self.store.messages() {
            if let Ok(envelope) = self.store.envelope(id) {
                let waiting = envelope.recipients.iter().map(|recipient| (id, recipient.position, recipient.state));
                self.waiting().extend(waiting);
            }
        }
    }

    fn accept(&self, thread: u16) -> io::Result<()> {
        for number in 0.. {
            let letter = PlannedMessage::of(queue_id(self.arguments.cycle, thread, number));
            self.ledger.write(letter.id, Event::Offered)?;
            if self.arguments.ledger_ahead {
                self.ledger.write(letter.id, Event::Acknowledged)?;
            }
            match self.append(&letter) {
                Ok(()) => {
                    if !self.arguments.ledger_ahead {
                        self.ledger.write(letter.id, Event::Acknowledged)?;
                    }
                    self.tally.acknowledged.fetch_add(1, Ordering::Relaxed);
                    let waiting = (0..letter.recipients).map(|position| (letter.id, position, State::default()));
                    self.waiting().extend(waiting);
                }
                Err(error) => {
                    self.ledger.write(letter.id, Event::Refused)?;
                    clock::pause(self.tally.refusal(&error));
                }
            }
        }
        Ok(())
    }

    fn append(&self, letter: &PlannedMessage) -> Result<(), Error> {
        let head = letter.head();
        let data: Vec<_> = (0..letter.recipients).map(|position| letter.recipient(position)).collect();
        let destinations: Vec<_> = (0..letter.recipients).map(|position| letter.destination(position, 0)).collect();
        let recipients: Vec<_> =
            data.iter().zip(&destinations).map(|(data, destination)| NewRecipient { data, destination }).collect();
        let body = letter.body();
        let body = if body.len() <= CHUNK_BYTES {
            let header_bytes = u32::try_from(body.len() / 3).unwrap_or(0);
            NewBody::whole(body, header_bytes)
        } else {
            self.append_chunks(letter.id, &body).inspect_err(|_| self.store.abort(letter.id))?
        };
        let message = NewMessage::new(letter.id, &head, &recipients, body);
        self.patiently(|| self.store.append(message.clone())).inspect_err(|_| self.store.abort(letter.id))?.wait()
    }

    fn append_chunks(&self, id: QueueId, content: &[u8]) -> Result<NewBody, Error> {
        let (header, body) = content.split_at(content.len().min(HEADER_BYTES));
        let mut before: Option<Commit> = None;
        let mut count = 0;
        for piece in body.chunks(CHUNK_BYTES) {
            let commit = self.patiently(|| {
                let mut chunk = Chunk::new(CHUNK_BYTES);
                chunk.push(piece);
                self.store.append_chunk(id, count, chunk)
            })?;
            if let Some(before) = before.replace(commit) {
                before.wait()?;
            }
            count += 1;
        }
        Ok(NewBody::Chunks { header: header.to_vec().into(), count, bytes: body.len() as u64 })
    }

    /// Repeats a call while the spool is busy, as a session that stops reading does.
    fn patiently(&self, mut call: impl FnMut() -> Result<Commit, Error>) -> Result<Commit, Error> {
        loop {
            match call() {
                Err(Error::Busy) => clock::pause(self.tally.refusal(&Error::Busy)),
                other => return other,
            }
        }
    }

    /// Takes waiting recipients: most are done soon, some are tried again, stragglers wait until pushed out.
    fn deliver(&self) -> io::Result<()> {
        let mut random = Random::new(mix(self.arguments.cycle));
        let waiting_max = usize::try_from(random.between(WAITING.0, WAITING.1)).unwrap_or(0);
        loop {
            let batch = self.next_batch(&mut random, waiting_max);
            if batch.len() < 8 {
                clock::pause(Duration::from_millis(1));
            }
            if batch.is_empty() {
                continue;
            }
            let mut changes = Vec::new();
            let mut facts = Vec::new();
            for (id, recipient, state) in batch {
                let (intent, fact) = if state.status == Status::Done {
                    (Event::Finishing(recipient), Event::Finished(recipient))
                } else {
                    (Event::Changing(recipient, state), Event::Changed(recipient, state))
                };
                self.ledger.write(id, intent)?;
                facts.push((id, fact));
                let destination = (state.status != Status::Done && state.attempts.is_multiple_of(2))
                    .then(|| PlannedMessage::of(id).destination(recipient, state.attempts));
                changes.push(Change { id, recipient, state, destination });
            }
            match self.store.record(&changes) {
                Ok(commit) => drop(self.records.send((commit, facts))),
                Err(error) => clock::pause(self.tally.refusal(&error)),
            }
        }
    }

    fn next_batch(&self, random: &mut Random, waiting_max: usize) -> Vec<(QueueId, u32, State)> {
        let mut batch = Vec::new();
        let mut waiting = self.waiting();
        let surplus = waiting.len().saturating_sub(waiting_max);
        let some = if surplus > 0 { 8 + random.below(24) } else { random.below(3) };
        for _ in 0..waiting.len().min(usize::try_from(some).unwrap_or(0)) {
            let Some((id, recipient, mut state)) = waiting.pop_front() else { break };
            let straggles = PlannedMessage::of(id).straggler == Some(recipient);
            let done = !self.arguments.hoard && random.percent(70) && !straggles;
            let pushed_out = !self.arguments.hoard && straggles && random.percent(if surplus > 0 { 30 } else { 2 });
            if done || pushed_out {
                // A message that the spool has lost cannot be delivered, and stays promised.
                match self.store.states_of(id, [recipient]).is_empty() {
                    true => waiting.push_back((id, recipient, state)),
                    false => batch.push((id, recipient, State { status: Status::Done, ..state })),
                }
            } else if straggles && random.percent(90) || self.arguments.hoard {
                waiting.push_back((id, recipient, state));
            } else {
                state.status = if random.percent(10) { Status::Held } else { Status::Waiting };
                state.attempts = state.attempts.saturating_add(1).min(200);
                state.due = DUE_FIRST + u32::try_from(random.below(1 << 20)).unwrap_or(0);
                waiting.push_back((id, recipient, state));
                batch.push((id, recipient, state));
            }
        }
        batch
    }

    fn note_durable(&self, handles: &Receiver<(Commit, Vec<(QueueId, Event)>)>) -> io::Result<()> {
        for (commit, facts) in handles {
            match commit.wait() {
                Ok(()) => {
                    for (id, fact) in facts {
                        self.ledger.write(id, fact)?;
                    }
                }
                Err(error) => drop(self.tally.refusal(&error)),
            }
        }
        Ok(())
    }
}

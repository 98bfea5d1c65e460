//! Opens the spool of a killed server and holds it against what its clients saw acknowledged.
//!
//! Checks the spool after a storm. Every acknowledged message is there once, under the queue id of its reply, to the
//! last octet and for all its recipients; nothing is there that no client sent, or that an earlier check had marked as
//! done. Allowed: a message whose 250 was on its way, one for each session at most.

use crate::crash::findings::Findings;
use crate::crash::random::mix;
use crate::crash::spools::{self, SpoolArguments};
use crate::storm::{self, Arrived, NotSent};
use clap::Args;
use mail::QueueId;
use spool::{Change, State, Status, Store};
use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

/// Violations printed one by one; the rest is counted.
const DETAILS_MAX: usize = 8;
/// Changes recorded with one call.
const CHANGES: usize = 1_000;
/// Where the recipients of a storm live.
const DESTINATION: &[u8] = b"storm.example";

/// The arguments of a checker.
#[derive(Args, Clone, Debug)]
pub struct PostCheckerArguments {
    #[command(flatten)]
    spool: SpoolArguments,
    /// A ledger since the last check, as RUN=FILE.
    #[arg(long, value_parser = ledger)]
    ledger: Vec<(String, PathBuf)>,
    /// The messages that the last check left in the spool, lines of "RUN SEQ ID".
    #[arg(long)]
    kept: PathBuf,
    /// Where to write what this one leaves.
    #[arg(long)]
    next: PathBuf,
    /// Sessions of a storm: so many of its messages may be there unacknowledged.
    #[arg(long)]
    sessions: u64,
    /// Recipients of each message.
    #[arg(long)]
    recipients: usize,
    /// Decides which messages are left.
    #[arg(long)]
    seed: u64,
}

fn ledger(text: &str) -> Result<(String, PathBuf), String> {
    let (run, path) = text.split_once('=').ok_or("RUN=FILE")?;
    Ok((run.to_owned(), path.into()))
}

/// Checks, marks most messages as done, prints the counts as the first line and violations after it.
///
/// # Errors
/// The spool does not open or takes no changes, or a file cannot be read or written.
pub(crate) fn run(arguments: &PostCheckerArguments) -> io::Result<()> {
    let mut promises = Promises::read(&arguments.kept)?;
    for (run, path) in &arguments.ledger {
        promises.runs.insert(run.clone());
        // A storm that was cut off before its first reply has an empty one.
        for line in storm::acknowledged(path)? {
            promises.fresh += 1;
            promises.messages.insert(Arrived { run: run.clone(), seq: line.seq }, line.id);
        }
    }
    let (store, recovery) = spools::open(&arguments.spool).map_err(io::Error::other)?;
    let mut check = StormCheck::new(&*store, &promises, arguments.sessions, arguments.recipients);
    let found = check.everything();
    check.findings.alarms = recovery.damage.len() as u64;
    check.details.extend(recovery.damage.iter().take(DETAILS_MAX).map(|damage| format!("! recovery: {damage}")));
    let (findings, details) = (check.findings, check.details);
    let left = finish_most(&*store, &found, arguments)?;
    fs::write(&arguments.next, left)?;
    let mut output = io::stdout();
    writeln!(output, "{findings}")?;
    for detail in details {
        writeln!(output, "{detail}")?;
    }
    writeln!(output, "{recovery}")?;
    output.flush()
}

/// The acknowledged messages, with the queue id of the reply.
#[derive(Debug, Default)]
struct Promises {
    messages: BTreeMap<Arrived, String>,
    /// Storms since the last check.
    runs: BTreeSet<String>,
    /// Messages acknowledged since the last check.
    fresh: u64,
}

impl Promises {
    fn read(kept: &Path) -> io::Result<Self> {
        let mut promises = Self::default();
        for line in fs::read_to_string(kept)?.lines() {
            let mut words = line.split(' ');
            let (Some(run), Some(Ok(seq)), Some(id)) = (words.next(), words.next().map(str::parse), words.next())
            else {
                return Err(io::Error::new(io::ErrorKind::InvalidData, format!("{}: {line:?}", kept.display())));
            };
            promises.messages.insert(Arrived { run: run.to_owned(), seq }, id.to_owned());
        }
        Ok(promises)
    }
}

/// Messages that are there, with their kind and their recipients.
type Found = Vec<(QueueId, Arrived, Vec<u32>)>;

struct StormCheck<'a> {
    store: &'a dyn Store,
    promises: &'a Promises,
    sessions: u64,
    recipients: usize,
    seen: BTreeSet<Arrived>,
    unanswered: BTreeMap<String, u64>,
    findings: Findings,
    details: Vec<String>,
}

impl<'a> StormCheck<'a> {
    fn new(store: &'a dyn Store, promises: &'a Promises, sessions: u64, recipients: usize) -> Self {
        Self {
            store,
            promises,
            sessions,
            recipients,
            seen: BTreeSet::new(),
            unanswered: BTreeMap::new(),
            findings: Findings::default(),
            details: Vec::new(),
        }
    }

    fn everything(&mut self) -> Found {
        let mut found = Found::new();
        for id in self.store.messages() {
            self.findings.present += 1;
            let recipients = self.envelope(id);
            match self.content(id) {
                Ok(message) => {
                    self.message(id, &message);
                    found.push((id, message, recipients));
                }
                // An altered message is there, but not as it was sent, so it does not count as lost as well.
                Err(Some(message)) => drop(self.seen.insert(message)),
                Err(None) => {}
            }
        }
        self.findings.acknowledged = self.promises.fresh;
        self.findings.required = self.promises.messages.len() as u64;
        for (message, id) in &self.promises.messages {
            if !self.seen.contains(message) {
                self.findings.lost += 1;
                self.detail(format!("{message}: acknowledged as {id} and gone"));
            }
        }
        for (run, number) in std::mem::take(&mut self.unanswered) {
            self.findings.unanswered += number;
            if number > self.sessions {
                self.findings.invented += number - self.sessions;
                self.detail(format!("{run}: {number} messages without a reply from {} sessions", self.sessions));
            }
        }
        found
    }

    /// Positions of the recipients.
    fn envelope(&mut self, id: QueueId) -> Vec<u32> {
        match self.store.envelope(id) {
            Ok(envelope) => {
                let right = envelope.recipients.iter().all(|stored| stored.destination == DESTINATION);
                if !right || envelope.recipients.len() != self.recipients {
                    self.findings.wrong_envelope += 1;
                    self.detail(format!(
                        "{id}: {} recipients, sent were {}",
                        envelope.recipients.len(),
                        self.recipients
                    ));
                }
                envelope.recipients.iter().map(|stored| stored.position).collect()
            }
            Err(error) => {
                self.findings.unreadable += 1;
                self.detail(format!("{id}: envelope: {error}"));
                Vec::new()
            }
        }
    }

    /// Which message this is; or, if it is none as it was sent, which it was.
    fn content(&mut self, id: QueueId) -> Result<Arrived, Option<Arrived>> {
        let pieces = self.store.body(id).map_err(|error| {
            self.findings.unreadable += 1;
            self.detail(format!("{id}: content: {error}"));
            None
        })?;
        storm::arrived(&pieces.concat()).map_err(|error| {
            self.detail(format!("{id}: {error}"));
            match error {
                NotSent::Foreign => {
                    self.findings.invented += 1;
                    None
                }
                NotSent::Altered { of, .. } => {
                    self.findings.wrong_body += 1;
                    Some(of)
                }
            }
        })
    }

    fn message(&mut self, id: QueueId, message: &Arrived) {
        if !self.seen.insert(message.clone()) {
            self.findings.miscounted += 1;
            self.detail(format!("{id}: {message} is there twice"));
            return;
        }
        match self.promises.messages.get(message) {
            Some(promised) if *promised == id.to_string() => {}
            Some(promised) => {
                self.findings.miscounted += 1;
                self.detail(format!("{id}: {message} was acknowledged as {promised}"));
            }
            None if self.promises.runs.contains(&message.run) => {
                *self.unanswered.entry(message.run.clone()).or_default() += 1;
            }
            None => {
                self.findings.resurrected += 1;
                self.detail(format!("{id}: {message} is back, an earlier check had marked it as done"));
            }
        }
    }

    fn detail(&mut self, what: String) {
        if self.details.len() < DETAILS_MAX {
            self.details.push(format!("! {what}"));
        }
    }
}

/// Marks three of four messages as done and returns the lines of the rest.
fn finish_most(store: &dyn Store, found: &Found, arguments: &PostCheckerArguments) -> io::Result<String> {
    let mut left = String::new();
    let mut changes = Vec::new();
    for (id, message, recipients) in found {
        if mix(arguments.seed ^ id.to_u64()).is_multiple_of(4) {
            let _infallible = writeln!(left, "{} {} {id}", message.run, message.seq);
            continue;
        }
        let state = State { status: Status::Done, ..State::default() };
        changes.extend(recipients.iter().map(|recipient| Change {
            id: *id,
            recipient: *recipient,
            state,
            destination: None,
        }));
    }
    for part in changes.chunks(CHANGES) {
        // Durable before the next server starts: a message that is back then is a finding.
        store.record(part).and_then(|commit| commit.wait()).map_err(io::Error::other)?;
    }
    Ok(left)
}

#[cfg(test)]
mod tests {
    use super::*;
    use mail::{Node, QueueIds};
    use spool::{NewBody, NewMessage, NewRecipient};
    use testkit::memory_store::MemoryStore;

    /// Negative controls: each kind of broken promise, made on purpose in a store that works.
    #[test]
    fn every_broken_promise_is_seen() {
        /// Name; messages there, and whether whole; messages promised; what must be 2.
        type Case = (&'static str, &'static [(u64, bool)], &'static [u64], fn(&Findings) -> u64);
        let cases: [Case; 7] = [
            ("as promised", &[(1, true), (2, true)], &[1, 2], |findings| 2 - findings.violations()),
            ("unanswered", &[(1, true), (2, true)], &[1], |findings| 2 * findings.unanswered),
            ("lost", &[(1, true)], &[1, 2], |findings| 2 * findings.lost),
            ("altered", &[(1, true), (2, false)], &[1, 2], |findings| 2 * findings.wrong_body),
            ("twice", &[(1, true), (1, true)], &[1], |findings| 2 * findings.miscounted.min(1)),
            ("too many without a reply", &[(1, true), (2, true)], &[], |findings| 2 * findings.invented),
            ("nothing", &[], &[], |findings| 2 - findings.violations()),
        ];
        for (name, there, promised, seen) in cases {
            let dir = std::env::temp_dir().join(format!("mailrace-post-{}-{}", std::process::id(), name.len()));
            fs::create_dir_all(&dir).unwrap();
            let store = MemoryStore::default();
            let mut ids = QueueIds::new(Node::default());
            let mut promises = Promises { runs: ["run".to_owned()].into(), ..Promises::default() };
            for (number, (seq, whole)) in there.iter().enumerate() {
                let id = ids.next(1_700_000_000_000_000 + number as u64 * 1_000_000);
                append(&store, id, *seq, *whole);
                if promised.contains(seq) {
                    promises
                        .messages
                        .entry(Arrived { run: "run".to_owned(), seq: *seq })
                        .or_insert_with(|| id.to_string());
                }
            }
            for seq in promised {
                promises
                    .messages
                    .entry(Arrived { run: "run".to_owned(), seq: *seq })
                    .or_insert_with(|| "gone".to_owned());
            }
            let mut check = StormCheck::new(&store, &promises, 1, 1);
            check.everything();
            assert_eq!(seen(&check.findings), 2, "{name}: {} {:?}", check.findings, check.details);
            promises.runs.clear();
            let mut check = StormCheck::new(&store, &promises, 1, 1);
            check.everything();
            let strangers = there.iter().any(|(seq, _)| !promised.contains(seq));
            assert_eq!(check.findings.resurrected > 0, strangers, "{name}");
            drop(fs::remove_dir_all(&dir));
        }
    }

    fn append(store: &MemoryStore, id: QueueId, seq: u64, whole: bool) {
        let text = "text\r\n";
        let crc = crc32c::crc32c(text.as_bytes()) ^ u32::from(!whole);
        let body = format!("Received: here\r\nX-Mailrace-Storm: run/{seq:012}/{crc:08x}\r\n\r\n{text}");
        let recipients = [NewRecipient { data: b"", destination: DESTINATION }];
        let body = NewBody::whole(body, 0);
        let message = NewMessage::new(id, b"", &recipients, body);
        store.append(message).unwrap().wait().unwrap();
    }
}

//! Reasons of the last deferral of recipients, for operators: `mailrace queue show`, and the report when mail is
//! given up.
//!
//! An attempt that is refused at connect is not recorded in the spool, as that costs one write for each recipient; it
//! is counted here, until a restart.
//!
//! The table is in memory and bounded, the oldest entries go first; over restarts it is in the file `replies` of the
//! spool directory. Below its first line the file has a line for each recipient, in the order of their first mention:
//! queue id, position, reason in a word, and the reason in words where they differ from those of the line before. An
//! entry that does not fit is left out.

use crate::state_file::StateFile;
use mail::QueueId;
use observe::Reason;
use spool::{Spool, Status};
use std::collections::{HashMap, VecDeque};
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Reasons that are kept.
const REASONS_MAX: usize = 50_000;
/// Octets of one.
const REASON_BYTES_MAX: usize = 512;
/// The file, in the spool directory.
const FILE: &str = "replies";
/// Content of the file, for messages to the operator.
const WHAT: &str = "why mail waits, in the words of other servers,";
/// Its first line.
const HEAD: &str = "mailrace replies 1";
/// Octets of a line without the words, at most: an id, a position, a reason, spaces.
const LINE_BYTES_MAX: usize = 64;

type RecipientKey = (QueueId, u32);
type Line = (RecipientKey, Reason, Arc<str>);

/// The last reasons.
#[derive(Debug, Default)]
pub(crate) struct Reasons {
    kept: Mutex<StoredReasons>,
    file: StateFile,
}

#[derive(Debug)]
struct StoredReason {
    /// In the order of their first mention.
    number: u64,
    reason: Reason,
    text: Arc<str>,
    /// Attempts that came to no transaction.
    unsent: u32,
}

#[derive(Debug, Default)]
struct StoredReasons {
    texts: HashMap<RecipientKey, StoredReason>,
    /// That order; may name entries that are gone.
    order: VecDeque<(u64, RecipientKey)>,
    mentions: u64,
    /// The text given last: most failures come in rows.
    last: Option<Arc<str>>,
}

impl StoredReasons {
    fn remember(&mut self, key: RecipientKey, reason: Reason, text: &str) {
        let text = text.get(..text.floor_char_boundary(REASON_BYTES_MAX)).unwrap_or_default();
        let text = match &self.last {
            Some(last) if **last == *text => Arc::clone(last),
            _ => Arc::from(text),
        };
        self.last = Some(Arc::clone(&text));
        let (number, unsent) = self.texts.get(&key).map_or((self.mentions, 0), |known| (known.number, known.unsent));
        if self.texts.insert(key, StoredReason { number, reason, text, unsent }).is_none() {
            self.mentions += 1;
            self.order.push_back((number, key));
        }
        self.tidy();
    }

    /// Forgets the oldest where there are too many, and places in the order without an entry.
    fn tidy(&mut self) {
        let stands = |texts: &HashMap<RecipientKey, StoredReason>, (number, key): &(u64, RecipientKey)| {
            texts.get(key).is_some_and(|known| known.number == *number)
        };
        while self.texts.len() > REASONS_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            if stands(&self.texts, &oldest) {
                self.texts.remove(&oldest.1);
            }
        }
        if self.order.len() > 2 * self.texts.len() + 64 {
            let texts = &self.texts;
            self.order.retain(|one| stands(texts, one));
        }
    }

    /// Returns all of them, in order.
    fn all(&self) -> Vec<Line> {
        let known = |(number, key): &(u64, RecipientKey)| {
            let known = self.texts.get(key).filter(|known| known.number == *number)?;
            Some((*key, known.reason, Arc::clone(&known.text)))
        };
        self.order.iter().filter_map(known).collect()
    }
}

impl Reasons {
    /// Reads the reasons of the last server for recipients that still wait in `spool`, and returns a message for the
    /// operator if the file cannot be used.
    pub(crate) fn open(directory: &Path, spool: &Spool) -> (Self, Option<String>) {
        let file = StateFile::new(directory, FILE, WHAT);
        let mut kept = StoredReasons::default();
        let problem = match file.read(REASONS_MAX * (REASON_BYTES_MAX + LINE_BYTES_MAX)) {
            Ok(Some(bytes)) => {
                let (lines, damage) = parse(&bytes);
                let is_partial = !lines.is_empty();
                for ((id, recipient), reason, text) in lines {
                    if !spool.states_of(id, [recipient]).is_empty() {
                        kept.remember((id, recipient), reason, &text);
                    }
                }
                damage.map(|why| file.unreadable_text(is_partial, &why))
            }
            Ok(None) => None,
            Err(problem) => Some(problem),
        };
        (Self { kept: Mutex::new(kept), file }, problem)
    }

    /// Forgets the reason of a recipient that is done.
    pub(crate) fn forget(&self, id: QueueId, recipient: u32) {
        if self.kept().texts.remove(&(id, recipient)).is_some() {
            self.file.mark_changed();
        }
    }

    /// Keeps the reason of a recipient that waits or is held, and forgets that of one that is done.
    pub(crate) fn remember(&self, id: QueueId, recipient: u32, status: Status, reason: Reason, text: &str) {
        if status == Status::Done {
            return self.forget(id, recipient);
        }
        self.kept().remember((id, recipient), reason, text);
        self.file.mark_changed();
    }

    /// Returns the reason of a recipient, if it is known, in a word and in words.
    pub(crate) fn get(&self, id: QueueId, recipient: u32) -> Option<(Reason, Arc<str>)> {
        self.kept().texts.get(&(id, recipient)).map(|known| (known.reason, Arc::clone(&known.text)))
    }

    /// Counts an attempt that came to no transaction, for a recipient whose reason is remembered.
    pub(crate) fn count_unsent(&self, id: QueueId, recipient: u32) {
        if let Some(known) = self.kept().texts.get_mut(&(id, recipient)) {
            known.unsent = known.unsent.saturating_add(1);
        }
    }

    /// Counts attempts for a recipient that came to no transaction, since the start of the server.
    pub(crate) fn unsent_attempts(&self, id: QueueId, recipient: u32) -> u32 {
        self.kept().texts.get(&(id, recipient)).map_or(0, |known| known.unsent)
    }

    /// Writes the file if something changed.
    ///
    /// # Errors
    /// As [`StateFile::save`].
    pub(crate) fn save(&self) -> Result<(), String> {
        self.file.save(|| {
            // Only the copy is made under the lock, so a delivery does not wait for the text.
            let all = self.kept().all();
            lines(&all)
        })
    }

    fn kept(&self) -> MutexGuard<'_, StoredReasons> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn lines(all: &[Line]) -> Vec<u8> {
    use std::io::Write as _;
    let mut to = Vec::new();
    let mut last: Option<&str> = None;
    // Writing to memory does not fail.
    drop(writeln!(to, "{HEAD}"));
    for ((id, recipient), reason, text) in all {
        drop(write!(to, "{id} {recipient} {reason}"));
        if last != Some(&**text) {
            to.push(b' ');
            to.extend(text.bytes().map(|byte| if byte.is_ascii_control() { b' ' } else { byte }));
            last = Some(text);
        }
        to.push(b'\n');
    }
    to
}

/// Parses the lines; also returns the defect of the first line that cannot be parsed.
fn parse(bytes: &[u8]) -> (Vec<Line>, Option<String>) {
    let mut all = Vec::new();
    let mut damage = None;
    let mut last: Option<Arc<str>> = None;
    // A last line without its end is incomplete.
    for (at, line) in bytes.split_inclusive(|byte| *byte == b'\n').enumerate() {
        let line = line.strip_suffix(b"\n").and_then(|line| str::from_utf8(line).ok());
        let read = match at {
            0 if line == Some(HEAD) => continue,
            0 => {
                damage = Some(format!("line 1 is not \"{HEAD}\""));
                break;
            }
            _ => line.and_then(|line| parse_line(line, last.as_ref())),
        };
        last = read.as_ref().map(|(_, _, text)| Arc::clone(text));
        match read {
            Some(one) => all.push(one),
            None => damage = damage.or_else(|| Some(format!("line {} makes no sense, as if cut off", at + 1))),
        }
    }
    (all, damage)
}

fn parse_line(line: &str, last: Option<&Arc<str>>) -> Option<Line> {
    let mut fields = line.splitn(4, ' ');
    let id = fields.next()?.parse().ok()?;
    let recipient = fields.next()?.parse().ok()?;
    let reason = Reason::from_name(fields.next()?)?;
    let text = fields.next().map(Arc::from).or_else(|| last.cloned())?;
    Some(((id, recipient), reason, text))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn id(number: u64) -> QueueId {
        QueueId::from_u64(QueueId::MIN.to_u64() + number).unwrap()
    }

    #[test]
    fn the_latest_counts_and_the_oldest_go() {
        let reasons = Reasons::default();
        reasons.remember(id(0), 0, Status::Waiting, Reason::Rate, "first");
        reasons.remember(id(0), 0, Status::Waiting, Reason::Block, "second");
        assert_eq!(reasons.get(id(0), 0), Some((Reason::Block, "second".into())));
        assert_eq!(reasons.get(id(0), 1), None);
        reasons.remember(id(0), 0, Status::Done, Reason::Other, "over");
        assert_eq!(reasons.get(id(0), 0), None);
        for number in 0..=REASONS_MAX as u64 {
            reasons.remember(id(number), 1, Status::Waiting, Reason::Other, &"x".repeat(2 * REASON_BYTES_MAX));
        }
        assert_eq!(reasons.get(id(0), 1), None, "the oldest went");
        assert_eq!(reasons.get(id(REASONS_MAX as u64), 1).map(|(_, text)| text.len()), Some(REASON_BYTES_MAX));
        assert!(reasons.kept().texts.len() <= REASONS_MAX);
    }

    #[test]
    fn attempts_without_a_transaction_are_counted_while_the_recipient_waits() {
        let reasons = Reasons::default();
        reasons.count_unsent(id(0), 0);
        assert_eq!(reasons.unsent_attempts(id(0), 0), 0, "nothing is remembered of it");
        for count in 1..4 {
            reasons.remember(id(0), 0, Status::Waiting, Reason::Network, "Connection refused");
            reasons.count_unsent(id(0), 0);
            assert_eq!((reasons.unsent_attempts(id(0), 0), reasons.unsent_attempts(id(0), 1)), (count, 0));
        }
        reasons.forget(id(0), 0);
        assert_eq!(reasons.unsent_attempts(id(0), 0), 0);
    }

    #[test]
    fn those_who_are_done_take_no_room() {
        let reasons = Reasons::default();
        let say = |number, status| reasons.remember(id(number), 0, status, Reason::Rate, "later");
        say(0, Status::Waiting);
        for number in 1..2 * REASONS_MAX as u64 {
            say(number, Status::Waiting);
            say(number, Status::Done);
        }
        assert!(reasons.get(id(0), 0).is_some(), "it is the only one that waits");
        assert!(reasons.kept().order.len() < 200);
        // A recipient that is forgotten and deferred again comes behind the others, and once.
        say(1, Status::Waiting);
        say(0, Status::Done);
        say(0, Status::Waiting);
        assert_eq!(all_of(&reasons).iter().map(|(key, ..)| key.0).collect::<Vec<_>>(), [id(1), id(0)]);
    }

    /// Returns a message for two recipients.
    fn stored(spool: &Spool) -> QueueId {
        use mail::{Client, Envelope, MailParams, Protocol, Received, Recipient, ReversePath};
        use spool::Store as _;
        let received = Received { at_us: 1, client: Client::Internal, helo: None, protocol: Protocol::Local };
        let recipients = ["one@a.test", "two@a.test"].map(|to| Recipient::new(to.parse().unwrap())).to_vec();
        let (sender, params) = (ReversePath::Null, MailParams::default());
        let envelope = Envelope { id: id(5), sender, params, received, recipients };
        let encoded = spool::envelope::Encoded::new(&envelope);
        let recipients = encoded.recipients();
        let body = spool::NewBody::whole("a: b\r\n\r\nc\r\n", 0);
        spool.append(encoded.message(&recipients, body)).unwrap().wait().unwrap();
        envelope.id
    }

    fn all_of(reasons: &Reasons) -> Vec<Line> {
        reasons.kept().all()
    }

    #[test]
    fn lines_are_read_as_they_were_written() {
        let reasons = Reasons::default();
        let said =
            [(7, 0, "451 4.7.1 later"), (7, 1, "451 4.7.1 later"), (8, 0, ""), (8, 1, ""), (9, 70_000, "a\u{20ac} b")];
        for (number, recipient, text) in said {
            reasons.remember(id(number), recipient, Status::Waiting, Reason::Greylist, text);
        }
        let bytes = lines(&all_of(&reasons));
        let text = String::from_utf8(bytes.clone()).unwrap();
        assert_eq!(text.lines().count(), 6);
        assert_eq!(text.matches("451 4.7.1 later").count(), 1, "{text}");
        assert_eq!(parse(&bytes), (all_of(&reasons), None));
        let of_two_lines = [((id(1), 0), Reason::Rate, Arc::from("450 one\r\n450 two"))];
        assert_eq!(parse(&lines(&of_two_lines)).0[0].2, "450 one  450 two".into());
    }

    #[test]
    fn a_damaged_file_is_used_as_far_as_it_makes_sense() {
        let text = |rest: &str| format!("{HEAD}\n{} 0 rate one\n{rest}", id(0)).into_bytes();
        let (first, next) = (((id(0), 0), Reason::Rate, Arc::from("one")), format!("{} 5 block two\n", id(1)));
        let second = ((id(1), 5), Reason::Block, Arc::from("two"));
        for broken in
            ["\n", "\0\0\0\n", "x 0 rate y\n", &format!("{} -1 rate y\n", id(2)), &format!("{} 1 frob y\n", id(2))]
        {
            let (all, damage) = parse(&text(&format!("{broken}{next}")));
            assert_eq!(all, [first.clone(), second.clone()], "{broken}");
            assert_eq!(damage, Some("line 3 makes no sense, as if cut off".to_owned()), "{broken}");
        }
        // The words of a line that is gone are not used for others.
        assert_eq!(parse(&text(&format!("\n{} 5 block\n", id(1)))).0, std::slice::from_ref(&first));
        let whole = text(&next);
        for cut in HEAD.len() + 2..whole.len() {
            let (all, _) = parse(&whole[..cut]);
            assert!(all.is_empty() || all == [first.clone()], "{cut}");
        }
        for foreign in [&b"mailrace replies 2\nx"[..], b"\xff", b"mailrace replies"] {
            assert_eq!(parse(foreign), (Vec::new(), Some(format!("line 1 is not \"{HEAD}\""))));
        }
        assert_eq!(parse(b""), (Vec::new(), None));
    }

    #[test]
    fn the_next_server_knows_the_reasons_of_those_who_wait() {
        let spool = crate::simulation::spool_with(|_| {});
        let stored = stored(&spool);
        let directory = tempfile::tempdir().unwrap();
        let (reasons, problem) = Reasons::open(directory.path(), &spool);
        assert_eq!(problem, None);
        reasons.remember(stored, 1, Status::Waiting, Reason::Greylist, "451 4.7.1 later");
        reasons.remember(stored, 2, Status::Waiting, Reason::Rate, "there is no such recipient");
        reasons.remember(id(1), 0, Status::Waiting, Reason::Rate, "there is no such message");
        reasons.save().unwrap();
        let (reasons, problem) = Reasons::open(directory.path(), &spool);
        assert_eq!(problem, None);
        assert_eq!(all_of(&reasons), [((stored, 1), Reason::Greylist, "451 4.7.1 later".into())]);
        std::fs::write(directory.path().join(FILE), "rubbish\n").unwrap();
        let (reasons, problem) = Reasons::open(directory.path(), &spool);
        assert!(all_of(&reasons).is_empty());
        let problem = problem.unwrap();
        assert!(problem.contains("/replies: why mail waits") && problem.contains("line 1 is not"), "{problem}");
    }
}

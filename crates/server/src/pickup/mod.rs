//! Accepts messages that programs of this machine have put into the pickup directory, whether the server ran then or
//! not.
//!
//! The server reads the directory at the start and every few seconds (`scan`); a command that submits a message
//! reports it on the socket there and need not wait for that. Each file goes through a session of its own
//! (`session`): the same admission and commit as SMTP. The server removes a file when its message is durable in the
//! spool. Before it stores the message, it writes the queue id into the file name, so that the next start recognizes
//! the file after a crash: a message that is in the spool under that id is not stored again. A message that another
//! server had accepted before is not judged again (`import`). A message that cannot be accepted now is tried again,
//! later each time; a file that is no message is put aside, and the log says why (`warnings`).
//!
//! [`crate::submit`] describes a file and why other users cannot read, change or forge it; `file` and `user` decide
//! which of its facts are trusted. Any user may put anything there, so each user has a bounded share of everything:
//!
//! | Of what | One user | All | Beyond |
//! |---|---|---|---|
//! | files, and messages known | `submit.user_files_max` | `submit.files_max` | they wait; the command refuses (75) |
//! | messages that are being stored | [`USER_AT_ONCE`] | [`AT_ONCE`] | they wait; users take turns (`turns`) |
//! | commands that wait | `submit.user_commands_max` | [`command_socket::COMMANDS_MAX`] | no answer; mail is accepted |
//! | memory for lists of recipients | that of all | [`file::HEADS_KIB`] | they wait for each other |
//! | lines in the log of one reason | 10 a minute | | counted |

mod command_socket;
mod directory;
mod file;
mod file_task;
mod import;
mod report;
mod scan;
mod session;
mod user;
mod user_turns;
mod waiter;
mod warnings;

pub(crate) use directory::PickupDirectory;

use crate::context::Context;
use crate::inbound::Inbound;
use crate::submit::FULL;
use file_task::{FileOutcome, FileTask};
use mail::QueueId;
use observe::{Event, Limit, Relay, Severity};
use operator::user_share::UserShares;
use os::{blocking, clock};
use scan::{Cleanup, DirectoryScan, DirectoryScanner, PickupMessage};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::sync::{Semaphore, mpsc};
use tokio::task::JoinSet;
use user_turns::UserTurnQueue;
use waiter::SubmitWaiter;
use warnings::{Complaints, LoggedWarning, SuppressedWarnings};

/// Messages that are stored at the same time: they share the flushes of the spool.
const AT_ONCE: usize = 64;
/// Of them, of one user: a message may take long, by its look-ups or by a command that does not answer.
const USER_AT_ONCE: usize = 32;
/// The first pause before a message is tried again; it doubles up to the longest.
const AGAIN_FIRST: Duration = Duration::from_secs(1);
const AGAIN_MAX: Duration = Duration::from_secs(300);
/// Time between two messages of a user that are tried again: with many, each is tried more rarely, so that all of
/// them together are about a hundred a second.
const AGAIN_SHARE: Duration = Duration::from_millis(10);
/// Messages that are tried at once when one was accepted that had waited: the cause of the wait may have gone.
const HURRIED: usize = 2;

const MAIL: &str = "mail.";
const NEW: &str = "new.";
const BAD: &str = "bad.";
const RANDOM_DIGITS: usize = 32;

/// A file by the parts of its name.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Name {
    /// `mail.R`
    base: String,
    id: Option<QueueId>,
}

impl Name {
    fn read(text: &str) -> Option<Self> {
        let (random, id) = text.strip_prefix(MAIL)?.split_at_checked(RANDOM_DIGITS)?;
        if !random.bytes().all(|byte| byte.is_ascii_hexdigit() && !byte.is_ascii_uppercase()) {
            return None;
        }
        let id = match id.strip_prefix('.') {
            Some(id) => Some(id.parse().ok()?),
            None if id.is_empty() => None,
            None => return None,
        };
        Some(Self { base: format!("{MAIL}{random}"), id })
    }

    fn text(&self) -> String {
        self.id.map_or_else(|| self.base.clone(), |id| format!("{}.{id}", self.base))
    }
}

/// How many files wait, for `status`.
#[derive(Debug, Default)]
pub(crate) struct WaitingFiles {
    files: AtomicU64,
    is_full: AtomicBool,
}

impl WaitingFiles {
    /// Files in the directory when it was last looked through.
    pub(crate) fn files(&self) -> u64 {
        self.files.load(Ordering::Relaxed)
    }

    /// Returns whether some user is at his limit.
    pub(crate) fn is_full(&self) -> bool {
        self.is_full.load(Ordering::Relaxed)
    }
}

/// A file that is ready, running or waiting.
#[derive(Debug)]
struct QueuedFile {
    /// The user that wrote it or asks for it; it counts for this user.
    uid: u32,
    /// The time at which this process saw it first.
    since: Instant,
    /// How often it was tried.
    tries: u32,
    /// Positions of recipients about whom the sender has a report: they are not tried again.
    told: HashSet<usize>,
    said: Option<LoggedWarning>,
}

impl QueuedFile {
    fn new(uid: u32) -> Self {
        Self { uid, since: clock::now(), tries: 0, told: HashSet::new(), said: None }
    }
}

/// A message with the command that waits for it, if one does.
type Ready = (Name, Option<SubmitWaiter>);

/// Messages in progress.
struct Pickup {
    inbound: Arc<Inbound>,
    waiting_files: Arc<WaitingFiles>,
    directory: Arc<PickupDirectory>,
    /// The scanner while no scan runs.
    scanner: Option<DirectoryScanner>,
    looking: JoinSet<(DirectoryScanner, std::io::Result<Option<DirectoryScan>>)>,
    complaints: Complaints,
    /// The last warning about the directory as a whole.
    said: Option<LoggedWarning>,
    known: HashMap<String, QueuedFile>,
    /// The number of known files of each user.
    known_of: HashMap<u32, usize>,
    ready: UserTurnQueue<Ready>,
    waiting: BTreeSet<(Instant, String)>,
    /// Names of waiting files, and the time until which they wait.
    waiting_names: HashMap<String, (Name, Instant)>,
    /// The number of waiting files of each user.
    waiting_of: HashMap<u32, u32>,
    running: JoinSet<(String, FileOutcome)>,
    shares: Arc<UserShares>,
    /// Memory for large heads, in KiB.
    heads: Arc<Semaphore>,
    listening: JoinSet<()>,
}

/// Takes messages until the server stops; those that are being stored then are finished.
pub(crate) async fn run(inbound: Arc<Inbound>, directory: PickupDirectory, waiting_files: Arc<WaitingFiles>) {
    let context = &inbound.context;
    let directory = Arc::new(directory);
    let listener = directory.listener().map_err(|error| {
        let path = directory.path().display();
        let text =
            format!("{path}: no socket: {error}; commands do not hear who is refused, the sender is told by mail");
        context.record(&Event::ConfigWarning { text: &text });
    });
    let (calls, mut called) = mpsc::channel(command_socket::COMMANDS_MAX);
    let hear = async {
        match listener {
            Ok(listener) => command_socket::hear(Arc::clone(context), listener, calls).await,
            Err(()) => context.stop.begun().await,
        }
    };
    let take = async { Pickup::new(Arc::clone(&inbound), directory, waiting_files).take(&mut called).await };
    tokio::join!(hear, take);
}

impl Pickup {
    fn new(inbound: Arc<Inbound>, directory: Arc<PickupDirectory>, waiting_files: Arc<WaitingFiles>) -> Self {
        Self {
            inbound,
            waiting_files,
            directory,
            scanner: Some(DirectoryScanner::default()),
            looking: JoinSet::new(),
            complaints: Complaints::default(),
            said: None,
            known: HashMap::new(),
            known_of: HashMap::new(),
            ready: UserTurnQueue::default(),
            waiting: BTreeSet::new(),
            waiting_names: HashMap::new(),
            waiting_of: HashMap::new(),
            running: JoinSet::new(),
            shares: Arc::new(UserShares::default()),
            heads: Arc::new(Semaphore::new(file::HEADS_KIB)),
            listening: JoinSet::new(),
        }
    }

    async fn take(&mut self, called: &mut mpsc::Receiver<(Name, SubmitWaiter)>) {
        let context = Arc::clone(&self.inbound.context);
        let (mut look_at, mut began) = (clock::now(), clock::now());
        while !context.stop.has_begun() {
            if clock::now() >= look_at && self.scanner.is_some() {
                began = clock::now();
                self.look();
                self.log_suppressed(began);
            }
            self.begin();
            let next = self.waiting.first().map_or_else(|| clock::now() + scan::INTERVAL, |(at, _)| *at);
            let next = if self.scanner.is_some() { next.min(look_at) } else { next };
            tokio::select! {
                () = context.stop.begun() => break,
                Some((name, waiter)) = called.recv() => self.call(name, waiter),
                Some(ended) = self.running.join_next() => self.end(ended),
                Some(looked) = self.looking.join_next() => {
                    let has_more = self.looked(looked);
                    let now = clock::now();
                    look_at = now + scan::pause(now.saturating_duration_since(began), has_more);
                }
                Some(_) = self.listening.join_next() => {}
                () = tokio::time::sleep_until(next.into()) => {}
            }
        }
        // Sessions see the stop themselves; files that are left are found at the next start.
        while self.running.join_next().await.is_some() {}
    }

    /// A command waits for its message.
    fn call(&mut self, name: Name, waiter: SubmitWaiter) {
        let uid = waiter.uid();
        if !self.known.contains_key(&name.base) {
            self.know(&name.base, uid);
            // A command waits for it, so it goes before files without a command.
            self.ready.push_first(uid, (name, Some(waiter)));
        } else if let Some((name, _)) = self.wait_no_more(&name.base) {
            // It was seen before its command asked.
            self.ready.push_first(uid, (name, Some(waiter)));
        }
    }

    fn know(&mut self, base: &str, uid: u32) {
        self.known.insert(base.to_owned(), QueuedFile::new(uid));
        *self.known_of.entry(uid).or_default() += 1;
    }

    fn forget(&mut self, base: &str) -> Option<QueuedFile> {
        let known = self.known.remove(base)?;
        less(&mut self.known_of, known.uid);
        Some(known)
    }

    fn log_suppressed(&mut self, now: Instant) {
        for SuppressedWarnings { uid, reason, messages } in self.complaints.counted(now) {
            let more = if reason.is_empty() { "for other reasons" } else { reason.as_str() };
            self.warn(&format!("{messages} more messages of user {uid} are not taken: {more}"));
        }
    }

    /// Begins a scan for files that no command reported.
    fn look(&mut self) {
        let Some(mut scanner) = self.scanner.take() else { return };
        let directory = Arc::clone(&self.directory);
        let limits = self.limits();
        let is_doubted = self.inbound.context.clock.as_ref().is_some_and(|clock| clock.doubted().is_some());
        self.looking.spawn(async move {
            let looked = blocking::run(move || {
                let found = scanner.look(&directory, limits, is_doubted);
                (scanner, found)
            });
            looked.await.unwrap_or_else(|error| (DirectoryScanner::default(), Err(std::io::Error::other(error))))
        });
    }

    fn limits(&self) -> scan::ScanLimits {
        scan::ScanLimits::new(&self.inbound.context.live.load().config.submit)
    }

    /// Takes the result of a scan. Returns whether the directory has more files.
    fn looked(
        &mut self,
        looked: Result<(DirectoryScanner, std::io::Result<Option<DirectoryScan>>), tokio::task::JoinError>,
    ) -> bool {
        let (scanner, found) = looked.unwrap_or_else(|_| (DirectoryScanner::default(), Ok(None)));
        self.scanner = Some(scanner);
        match found {
            Ok(Some(found)) => {
                let has_more = found.has_more;
                self.found(found);
                return has_more;
            }
            Ok(None) => {}
            Err(error) => {
                let why = format!("cannot be listed: {error}");
                if self.complaints.is_due(0, &why, &mut self.said, clock::now()) {
                    self.warn(&format!("{why}; mail that is handed in waits"));
                }
            }
        }
        false
    }

    fn found(&mut self, found: DirectoryScan) {
        let files = u64::try_from(found.files).unwrap_or(u64::MAX);
        self.waiting_files.files.store(files, Ordering::Relaxed);
        if let Some(why) = found.trouble {
            let why = format!("{FULL} cannot be written: {why}");
            if self.complaints.is_due(0, &why, &mut self.said, clock::now()) {
                self.warn(&format!("{why}; whoever hands in too much does not hear of it"));
            }
        }
        if let Some(full) = found.full {
            self.log_full(&full);
        }
        self.log_cleanup(found.waste);
        let limits = self.limits();
        for PickupMessage { name, uid } in found.messages {
            let count = self.known_of.get(&uid).copied().unwrap_or_default();
            if self.known.contains_key(&name.base) || count >= limits.known_of(uid) {
                continue;
            }
            self.know(&name.base, uid);
            match found.fresh.contains(&name.base) {
                true => self.wait(uid, name, clock::now() + scan::FRESH),
                false => self.ready.push(uid, (name, None)),
            }
        }
    }

    fn log_cleanup(&mut self, Cleanup { removed, stays }: Cleanup) {
        let days = scan::BAD_MAX.as_secs() / (24 * 3_600);
        if removed > 0 {
            self.warn(&format!(
                "{removed} files that were no messages are removed: unfinished ones after a day, others after {days}, sooner of users \
                 who have more than submit.user_files_max"
            ));
        }
        if let Some((name, why)) = stays
            && self.complaints.is_due(0, "something that is no message stays", &mut None, clock::now())
        {
            self.warn(&format!("{name} is no message and cannot be removed: {why}; look at it, and remove it as root"));
        }
    }

    /// Tries some of those that wait for their time now.
    fn hurry(&mut self) {
        for _ in 0..HURRIED {
            if !self.wait_over() {
                return;
            }
        }
    }

    fn wait(&mut self, uid: u32, name: Name, until: Instant) {
        self.waiting.insert((until, name.base.clone()));
        *self.waiting_of.entry(uid).or_default() += 1;
        self.waiting_names.insert(name.base.clone(), (name, until));
    }

    /// Ends the wait of a file, if it waits. Returns its user.
    fn wait_no_more(&mut self, base: &str) -> Option<(Name, u32)> {
        let (name, until) = self.waiting_names.remove(base)?;
        self.waiting.remove(&(until, name.base.clone()));
        let uid = self.known.get(base).map_or(0, |known| known.uid);
        less(&mut self.waiting_of, uid);
        Some((name, uid))
    }

    /// Makes the first waiting file ready. Returns whether one waited.
    fn wait_over(&mut self) -> bool {
        let Some((_, base)) = self.waiting.first().cloned() else { return false };
        if let Some((name, uid)) = self.wait_no_more(&base) {
            self.ready.push(uid, (name, None));
        }
        true
    }

    /// Logs which users are at their limits, when that begins and when the users change.
    fn log_full(&mut self, full: &str) {
        let was_full = self.waiting_files.is_full.swap(!full.is_empty(), Ordering::Relaxed);
        let Some((who, count)) = full.lines().next().and_then(|line| line.split_once(' ')) else {
            if was_full {
                self.warn("there is room again, sendmail takes messages from everybody");
            }
            self.said = None;
            return;
        };
        if !self.complaints.is_due(0, &format!("full {who}"), &mut self.said, clock::now()) {
            return;
        }
        let submit = self.inbound.context.live.load().config.submit.clone();
        let (what, limit, max) = match who {
            "all" => (format!("{count} messages wait, of everybody"), Limit::SubmitFilesMax, submit.files_max),
            uid => (format!("{count} messages of user {uid} wait"), Limit::SubmitUserFilesMax, submit.user_files_max),
        };
        self.inbound.context.record(&Event::LimitReached {
            id: None,
            relay: Relay::Local { user: who },
            limit,
            max: max.into(),
        });
        let limit = limit.name();
        let others = match full.lines().count() {
            1 => String::new(),
            users => format!(" (and those of {} more users)", users - 1),
        };
        self.warn(&format!(
            "{what}{others}: as many as {limit} allows, so sendmail takes no more (status 75); other lines say why they wait"
        ));
    }

    /// Begins with files that are ready, as far as there is room.
    fn begin(&mut self) {
        let now = clock::now();
        while self.waiting.first().is_some_and(|(at, _)| *at <= now) && self.wait_over() {}
        let shares = Arc::clone(&self.shares);
        let place = |uid| shares.reserve(uid, AT_ONCE, USER_AT_ONCE).ok();
        while let Some((place, _, (name, waiter))) = self.ready.next(place) {
            let known = self.known.get(&name.base);
            let file = FileTask {
                inbound: Arc::clone(&self.inbound),
                directory: Arc::clone(&self.directory),
                heads: Arc::clone(&self.heads),
                is_again: known.is_some_and(|known| known.tries > 0),
                told: known.map(|known| known.told.clone()).unwrap_or_default(),
                since: known.map_or(now, |known| known.since),
                name,
            };
            self.running.spawn(async move {
                let base = file.name.base.clone();
                let outcome = Box::pin(file.carry(waiter)).await;
                drop(place);
                (base, outcome)
            });
        }
    }

    fn end(&mut self, ended: Result<(String, FileOutcome), tokio::task::JoinError>) {
        // A panic was reported; its file stays known, and is tried at the next start.
        let Ok((base, ended)) = ended else { return };
        match ended {
            FileOutcome::Gone(told) => {
                if self.forget(&base).is_some_and(|known| known.tries > 0) {
                    self.hurry();
                }
                if let Some((waiter, watch)) = told {
                    self.listening.spawn(session::send_outcomes(Arc::clone(&self.inbound.context), waiter, watch));
                }
            }
            FileOutcome::Later(name, why, told) => {
                let now = clock::now();
                let Some(known) = self.known.get_mut(&base) else { return };
                let uid = known.uid;
                let waiting = self.waiting_of.get(&uid).copied().unwrap_or_default();
                let share = AGAIN_SHARE.saturating_mul(waiting);
                let pause = AGAIN_FIRST.saturating_mul(1 << known.tries.min(16)).min(AGAIN_MAX).max(share);
                known.tries += 1;
                known.told.extend(told);
                let is_due = self.complaints.is_due(uid, &why, &mut known.said, now);
                if is_due && !self.inbound.context.stop.has_begun() {
                    self.warn(&format!("{} is not taken: {why}; it is tried again", name.text()));
                }
                self.wait(uid, name, now + pause);
            }
            FileOutcome::Bad { why, aside } => self.bad(&base, &why, aside),
            FileOutcome::Stuck => {}
        }
    }

    /// Handles a file that is no message.
    fn bad(&mut self, base: &str, why: &str, aside: Option<String>) {
        let uid = self.known.get(base).map_or(0, |known| known.uid);
        let is_due = self.complaints.is_due(uid, "they are no messages, and put aside", &mut None, clock::now());
        let days = scan::BAD_MAX.as_secs() / (24 * 3_600);
        match aside {
            Some(aside) => {
                self.forget(base);
                if is_due {
                    self.warn(&format!(
                        "{aside} was handed in by user {uid} and is no message: {why}; look at it: sendmail writes no such file, so it was \
                         written by hand or is damaged; it is removed after {days} days"
                    ));
                }
            }
            // It stays known, so that it is not looked at again and again.
            None if is_due => self.warn(&format!(
                "{base} was handed in by user {uid} and is no message: {why}; it cannot be put aside either: remove it as root"
            )),
            None => {}
        }
    }

    fn warn(&self, what: &str) {
        warn(&self.inbound.context, &self.directory, what);
    }
}

fn warn(context: &Context, directory: &PickupDirectory, what: &str) {
    let text = format!("{}: {what}", directory.path().display());
    context.record(&Event::Spool { severity: Severity::Warning, text: &text });
}

fn less<C>(counts: &mut HashMap<u32, C>, uid: u32)
where
    C: Copy + PartialOrd + From<u8> + std::ops::SubAssign,
{
    match counts.get_mut(&uid) {
        Some(count) if *count > C::from(1) => *count -= C::from(1),
        _ => drop(counts.remove(&uid)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_of_files() {
        let base = format!("mail.{}", "0af9".repeat(8));
        let id = QueueId::MIN;
        for name in [Name { base: base.clone(), id: None }, Name { base: base.clone(), id: Some(id) }] {
            assert_eq!(Name::read(&name.text()), Some(name));
        }
        for other in [
            "socket",
            "new.0",
            "mail.",
            "mail.0",
            &base.to_uppercase(),
            &format!("{base}x"),
            &format!("{base}."),
            &format!("{base}.x"),
        ] {
            assert_eq!(Name::read(other), None, "{other}");
        }
        assert_eq!(Name::read(&base.replace('0', "A")), None);
    }
}

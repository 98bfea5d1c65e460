//! Files that aliases and users name, `.forward` and `:include:`: which process opens them, which count, and which
//! are kept.
//!
//! A file that a user names (`.forward`, and the files it includes) is read:
//!
//! - with a helper (the server was started as root), by a process that has become the user ([`worker`]).
//! - without one, by the server, if every user can read the file, or if it belongs to the user and the server runs as
//!   this user.
//!
//! A file that an alias names is read:
//!
//! - with a helper, by a process that has become `local.default_user`; else by the server, if only root or the server
//!   can have put the file there, or every user can read it.
//! - without one, by the server, by the same rule.
//!
//! A process opens every file once, without following links of users, and judges it by its descriptor ([`path`]); it
//! reads the file once, and takes it only if it is text and did not change meanwhile ([`text`]). A file that does not
//! qualify counts for nothing and the operator is told once ([`notices`]): a `.forward` then leaves the mail in the
//! mailbox, a list of an alias defers it. No notice and no reply quotes the text of such a file.
//!
//! The text is kept ([`cache`]) for its version, which is device, inode, size, mode, owner and both times, of which
//! no user can set the second. Before it asks a process, the server looks at the name itself, without opening it: if
//! the file does not exist or has the known version, that is the answer. Where the server may not look, the answer of
//! a process counts for [`FRESH_TIME`].
//!
//! A user may have:
//!
//! - a file system that does not answer (a dead NFS server, FUSE): after [`readers::TIME_MAX`] his mail is deferred,
//!   and at most [`turns::USER_MAX`] threads or processes wait ([`turns`], [`readers`]); the server's end waits for
//!   none.
//! - large or sparse files: 64 KiB are read, or nothing; all kept texts have 64 MiB.
//! - a file that changes all the time: it is read some times, and then counts for nothing, so that lists that lead to
//!   him do not wait for him.

mod cache;
mod notices;
mod path;
mod readers;
mod request;
mod text;
mod turns;
pub(crate) mod worker;

#[cfg(test)]
mod tests;

pub(crate) use readers::Readers;

use super::accounts::LocalUsers;
use cache::{FileCache, FileCacheEntry, FileEntry, FileKey};
use notices::Notices;
use os::clock;
use os::threads::Threads;
use path::{Acting, Rules, Stamp};
use request::{Reply, Request, What};
use route::question::{Answer, Reader};
use rustix::io::Errno;
use rustix::process::geteuid;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;
use tokio::time::timeout;
use turns::FileTurns;
use worker::{USER_BYTES_MAX, paths, reply_of};

/// Threads that read.
const THREADS_MAX: usize = 96;
/// Time for which the answer of a process counts where the server cannot look at the file.
const FRESH_TIME: Duration = Duration::from_secs(2);
/// A file that was changed so shortly ago may change again without another time of its change.
const YOUNG_TIME: Duration = Duration::from_secs(2);
/// A little more than the time that a process has to answer.
const QUESTION_TIME_MAX: Duration = readers::TIME_MAX.saturating_add(Duration::from_secs(1));

/// Files of users and lists.
#[derive(Debug)]
pub(super) struct Files {
    cache: FileCache,
    notices: Notices,
    threads: Threads,
    turns: FileTurns,
    readers: OnceLock<Arc<Readers>>,
}

impl Default for Files {
    fn default() -> Self {
        Self {
            cache: FileCache::default(),
            notices: Notices::default(),
            threads: Threads::new("files", THREADS_MAX),
            turns: FileTurns::default(),
            readers: OnceLock::new(),
        }
    }
}

/// A file that is wanted.
#[derive(Clone, Debug)]
pub(super) struct FileQuery {
    key: FileKey,
    what: What,
    /// The home of the user; empty for an `:include:` file.
    home: Arc<str>,
    bytes_max: u64,
}

impl FileQuery {
    /// Asks for the `.forward` of a user with this home.
    pub(super) fn forward(user: &Arc<str>, home: Arc<str>, detail: Option<&str>) -> Self {
        let reader = Reader::User(Arc::clone(user));
        let name = format!("{home}\0{}", detail.unwrap_or_default()).into();
        let what = What::Forward { detail: detail.map(str::to_owned) };
        Self { key: FileKey { reader, name }, what, home, bytes_max: USER_BYTES_MAX }
    }

    /// Makes an `:include:` file; one of a list may have so many octets.
    pub(super) fn include(path: &str, reader: &Reader, list_bytes_max: u64) -> Self {
        let what = What::Include { path: path.to_owned(), is_public: *reader == Reader::Anyone };
        let bytes_max = if let Reader::User(_) = reader { USER_BYTES_MAX } else { list_bytes_max };
        Self { key: FileKey { reader: reader.clone(), name: path.into() }, what, home: "".into(), bytes_max }
    }

    /// Returns the user who reads it; empty for `local.default_user`.
    fn user(&self) -> &str {
        if let Reader::User(user) = &self.key.reader { user } else { "" }
    }

    /// Names the file for people.
    fn name(&self) -> String {
        match &self.what {
            What::Forward { .. } => format!("{}/.forward", self.home),
            What::Include { path, .. } => format!(":include: {path}"),
        }
    }

    /// Returns the group that shares turns: files of a user, or lists in a directory.
    fn group(&self) -> String {
        match &self.key.reader {
            Reader::User(user) => format!("user {user}"),
            Reader::Aliases | Reader::Anyone => format!("lists in {}", self.directory()),
        }
    }

    /// Returns the directory under which it lies, with others like it.
    fn directory(&self) -> String {
        let place = match &self.what {
            What::Forward { .. } => Path::new(&*self.home),
            What::Include { path, .. } => Path::new(path),
        };
        place.parent().unwrap_or(place).display().to_string()
    }
}

/// State of a file as the server sees it without opening it.
enum Seen {
    Absent,
    /// The version that is known.
    Same,
    /// Another one.
    Other,
    /// The server may not look, or cannot.
    Hidden,
}

impl Files {
    /// Has users' files read by these processes from now on, and reports files that count for nothing by `tell`.
    /// Called once.
    pub(super) fn begin(&self, readers: Option<Arc<Readers>>, tell: Box<dyn Fn(&str) + Send + Sync>) {
        if let Some(readers) = readers {
            drop(self.readers.set(readers));
        }
        self.notices.go_to(tell);
    }

    /// Returns the text of a file: [`Answer::Text`], [`Answer::Nothing`] or [`Answer::Trouble`].
    ///
    /// # Cancel safety
    /// Yes.
    pub(super) async fn answer(self: &Arc<Self>, users: &LocalUsers, wanted: FileQuery) -> Answer {
        let name = wanted.name();
        let Some(waiting) = self.turns.wait(&wanted.group(), &wanted.directory()) else {
            return Answer::Trouble(format!("{name}: it was not read in time, and is read no more than that").into());
        };
        let (files, users) = (Arc::clone(self), users.clone());
        let reading = async {
            let turn = waiting.turn().await;
            let work = move || {
                let answer = files.find(&users, &wanted);
                drop(turn);
                answer
            };
            self.threads.run(work).await
        };
        match timeout(QUESTION_TIME_MAX, reading).await {
            Ok(Ok(answer)) => answer,
            Ok(Err(_)) => Answer::Trouble(format!("{name}: the reading thread broke off").into()),
            Err(_) => {
                waiting.is_late();
                let seconds = QUESTION_TIME_MAX.as_secs();
                Answer::Trouble(format!("{name}: it was not read within {seconds} s; is its file system there?").into())
            }
        }
    }

    /// Does the same for a thread that may wait.
    pub(super) fn find(&self, users: &LocalUsers, wanted: &FileQuery) -> Answer {
        let before = self.cache.get(&wanted.key);
        let known = match (see(wanted, before.as_ref()), before) {
            (Seen::Absent, before) => {
                if before.is_some() {
                    self.cache.remove(&wanted.key);
                }
                return answer(&self.notices, users, wanted, &none());
            }
            (Seen::Same, Some(before)) => before,
            (Seen::Hidden, Some(before)) if clock::now().saturating_duration_since(before.seen_at) < FRESH_TIME => {
                before
            }
            (_, before) => match self.ask(users, wanted, before) {
                Ok(entry) => entry,
                Err(why) => return Answer::Trouble(format!("{}: {why}", wanted.name()).into()),
            },
        };
        answer(&self.notices, users, wanted, &known)
    }

    /// Has a file read, and keeps the result. The error is the reason why there is no answer now.
    fn ask(
        &self,
        users: &LocalUsers,
        wanted: &FileQuery,
        before: Option<FileCacheEntry>,
    ) -> Result<FileCacheEntry, String> {
        let known = before.as_ref().filter(|entry| !entry.is_young).and_then(|entry| entry.version.clone());
        let known = known.map(|(path, stamp)| (path.to_string(), stamp));
        let request = Request { user: wanted.user().to_owned(), what: wanted.what.clone(), known };
        let reply = match self.readers.get() {
            Some(readers) => match readers.ask(&request, &wanted.group(), wanted.bytes_max) {
                // The administrator alone names files that only root and the server may read, so the server reads
                // them itself.
                no @ (Reply::Denied { .. } | Reply::Refused { .. }) if wanted.key.reader == Reader::Aliases => {
                    match direct(users, wanted, &request) {
                        yes @ (Reply::Text { .. } | Reply::Unchanged) => yes,
                        _ => no,
                    }
                }
                reply => reply,
            },
            None => direct(users, wanted, &request),
        };
        let entry = match (reply, before) {
            (Reply::Unchanged, Some(before)) => FileCacheEntry { seen_at: clock::now(), ..before },
            (Reply::Unchanged | Reply::OtherUser, _) => return Err("the account changes just now".to_owned()),
            (Reply::Trouble(why), _) => return Err(why),
            (reply, before) => entry_of(reply, before.as_ref()),
        };
        self.cache.insert(wanted.key.clone(), entry.clone());
        Ok(entry)
    }
}

fn none() -> FileCacheEntry {
    FileCacheEntry { known: FileEntry::Absent, version: None, is_young: false, seen_at: clock::now() }
}

/// Looks at a file from outside. On a file system that does not answer it waits for that.
fn see(wanted: &FileQuery, known: Option<&FileCacheEntry>) -> Seen {
    for path in paths(&wanted.home, &wanted.what) {
        if !path.starts_with('/') {
            return Seen::Other;
        }
        match rustix::fs::lstat(path.as_str()) {
            Ok(found) => {
                let known = known.filter(|entry| !entry.is_young).and_then(|entry| entry.version.as_ref());
                let is_same = known.is_some_and(|(name, stamp)| **name == *path && *stamp == Stamp::of(&found));
                return if is_same { Seen::Same } else { Seen::Other };
            }
            Err(Errno::NOENT | Errno::NOTDIR) => {}
            Err(_) => return Seen::Hidden,
        }
    }
    Seen::Absent
}

/// Reads a file with the rights of the server.
fn direct(users: &LocalUsers, wanted: &FileQuery, request: &Request) -> Reply {
    let own = geteuid().as_raw();
    let any_owner = matches!(wanted.what, What::Include { .. });
    let rules = match &wanted.key.reader {
        Reader::Aliases => Rules { acting: Acting::ForAliases, trusted: vec![own], any_owner },
        Reader::Anyone => Rules { acting: Acting::ForAnyone, trusted: vec![own], any_owner },
        Reader::User(user) => {
            let uid = match users.login(user) {
                Ok(Some(login)) => login.uid,
                Ok(None) => return Reply::Absent,
                Err(why) => return Reply::Trouble(why),
            };
            if uid == 0 {
                let why = format!("no file is read as root (user {user}); make {user} an alias of a person");
                return Reply::Refused { path: wanted.name(), why, stamp: None };
            }
            let acting = if uid == own { Acting::Itself } else { Acting::For(uid) };
            Rules { acting, trusted: vec![uid], any_owner }
        }
    };
    for path in paths(&wanted.home, &wanted.what) {
        let known = request.known.as_ref().filter(|(name, _)| *name == path).map(|(_, stamp)| *stamp);
        match reply_of(path, &rules, wanted.bytes_max, known) {
            Reply::Absent => {}
            reply => return reply,
        }
    }
    Reply::Absent
}

fn entry_of(reply: Reply, before: Option<&FileCacheEntry>) -> FileCacheEntry {
    match reply {
        Reply::Text { path, text, stamp, is_exclusive } => {
            // The same `Arc` shows earlier users of the text that it did not change.
            let same = match before.map(|entry| &entry.known) {
                Some(FileEntry::Text { text: old, .. }) if **old == *text => Some(Arc::clone(old)),
                _ => None,
            };
            let known = FileEntry::Text { text: same.unwrap_or_else(|| text.into()), is_exclusive };
            FileCacheEntry { known, version: Some((path.into(), stamp)), is_young: is_young(&stamp), ..none() }
        }
        Reply::Refused { path, why, stamp } => FileCacheEntry {
            known: FileEntry::Refused(why.into()),
            is_young: stamp.as_ref().is_some_and(is_young),
            version: stamp.map(|stamp| (path.into(), stamp)),
            ..none()
        },
        Reply::Denied { path } => {
            let why =
                format!("{path} may not be read by the user for whom it is read, or lies in a directory that may not");
            FileCacheEntry { known: FileEntry::Refused(why.into()), ..none() }
        }
        Reply::Absent | Reply::Unchanged | Reply::Trouble(_) | Reply::OtherUser => none(),
    }
}

fn is_young(stamp: &Stamp) -> bool {
    let old = Duration::from_micros(clock::unix_us()).saturating_sub(YOUNG_TIME).as_secs();
    let [changed, _] = stamp.changed;
    u64::try_from(changed).unwrap_or(0) >= old
}

/// Turns the state of a file into the answer for its asker. The user whose programs it may name is looked up each
/// time: an account changes without its files.
fn answer(notices: &Notices, users: &LocalUsers, wanted: &FileQuery, entry: &FileCacheEntry) -> Answer {
    let (is_forward, reader) = (matches!(wanted.what, What::Forward { .. }), &wanted.key.reader);
    match &entry.known {
        FileEntry::Absent if *reader == Reader::Aliases => {
            Answer::Trouble(format!("{}: No such file or directory", wanted.name()).into())
        }
        FileEntry::Refused(why) if *reader == Reader::Aliases => {
            Answer::Trouble(format!("{}: {why}", wanted.name()).into())
        }
        FileEntry::Absent => {
            if !is_forward {
                let text = format!("{} is named by a file of {}, and is not there", wanted.name(), of(reader));
                notices.say(&wanted.key.name, &text);
            }
            Answer::Nothing
        }
        FileEntry::Refused(why) => {
            let then = if is_forward { "mail goes to the mailbox" } else { "mail for it is refused" };
            notices.say(
                &wanted.key.name,
                &format!("{} of {} counts for nothing, {then}: {why}", wanted.name(), of(reader)),
            );
            Answer::Nothing
        }
        FileEntry::Text { text, is_exclusive } => {
            let (file, uid) = match &entry.version {
                Some((file, stamp)) => (Arc::clone(file), stamp.uid),
                None => return Answer::Nothing,
            };
            let owner = if *is_exclusive { controller(users, reader, uid) } else { Ok(None) };
            match owner {
                Ok(owner) => Answer::Text { text: Arc::clone(text), file, owner },
                Err(why) => Answer::Trouble(format!("{}: {why}", wanted.name()).into()),
            }
        }
    }
}

fn of(reader: &Reader) -> &str {
    match reader {
        Reader::User(user) => user,
        Reader::Aliases => "the aliases",
        Reader::Anyone => "several users",
    }
}

/// Returns the user whose programs and files may stand in a file that belongs to this number and that no other user
/// can write.
fn controller(users: &LocalUsers, reader: &Reader, owner: u32) -> Result<Option<Arc<str>>, String> {
    match reader {
        Reader::Aliases => users.with_shell(owner),
        Reader::Anyone => Ok(None),
        Reader::User(user) => {
            let Some(login) = users.login(user)? else { return Ok(None) };
            let is_own = owner == 0 || owner == login.uid;
            Ok((is_own && LocalUsers::has_shell(&login.shell)).then(|| Arc::clone(user)))
        }
    }
}

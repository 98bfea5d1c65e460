//! Maildirs: a file for each message, written below `tmp` and given its place below `new` by a rename.
//!
//! The name of a file comes from the queue id and the place of the recipient, so that a delivery that is made again,
//! since a crash came before its record, meets its own file and is done. The file is synced before the rename and the
//! directory after it; of several messages all files first, and the directory once. Files that a crash left below `tmp`
//! go after 36 hours ([`sweep`](super::sweep)). The directories are made as the user when they are missing; folders are
//! not.

use super::file::refused_verdict;
use super::letter::{Broken, Form, MailboxMessage, unreadable_verdict};
use super::order::{Settings, Verdict};
use super::person::TargetUser;
use super::quota::Quota;
use super::sweep;
use os::clock;
use rustix::fs::{CWD, Mode, OFlags, RenameFlags, renameat_with};
use rustix::io::Errno;
use std::fs::{DirBuilder, File};
use std::io::{self, BufWriter};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Tells files of one process apart that are written at the same time.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// Threads that sync files at the same time, so that the file system can put their changes together.
const SYNCS_MAX: usize = 8;

/// A Maildir, or a folder of one, and the files that are on their way into it.
pub(crate) struct Maildir {
    directory: PathBuf,
    person: TargetUser,
    quota: Option<Quota>,
    drafts: Vec<Draft>,
}

/// A file below `tmp`.
struct Draft {
    path: PathBuf,
    place: PathBuf,
    file: File,
}

impl Maildir {
    /// Opens it, or makes it.
    ///
    /// # Errors
    /// It cannot be made.
    pub(crate) fn open(base: &Path, person: &TargetUser, settings: &Settings) -> Result<Self, Verdict> {
        let directory = folder(base, person, settings);
        for part in ["tmp", "cur", "new"] {
            make(&directory.join(part)).map_err(|error| refused_verdict(&directory.join(part), person, &error))?;
        }
        sweep::remove_old_files(&directory.join("tmp"));
        let quota = Quota::read_file(base);
        Ok(Self { directory, person: person.clone(), quota, drafts: Vec::new() })
    }

    /// Writes a message below `tmp`. [`Maildir::publish`] returns the results, in this order.
    ///
    /// # Errors
    /// Why it is not delivered. Nothing of it is left.
    pub(crate) fn write_message(&mut self, letter: &mut MailboxMessage<'_>) -> Result<(), Verdict> {
        let order = letter.order();
        let host: String =
            order.host.chars().map(|letter| if matches!(letter, '/' | ':') { '_' } else { letter }).collect();
        let name = format!("{}.Q{}.{host}", order.received, order.unique);
        let count = COUNT.fetch_add(1, Ordering::Relaxed);
        // Also after a restart of the machine, when numbers of processes begin anew, no two are the same.
        let mark = format!("M{}P{}C{count}", clock::unix_us(), std::process::id());
        let path = self.directory.join("tmp").join(format!("{name}.{mark}"));
        match write(letter, &path) {
            Ok((file, size)) => {
                let place = self.directory.join("new").join(format!("{name},S={size}"));
                // One that is there has been counted.
                if let Some(quota) = self.quota.as_mut().filter(|_| !place.exists())
                    && let Err(why) = quota.reserve_message(size)
                {
                    drop(std::fs::remove_file(&path));
                    return Err(Verdict::deferred((2, 2), why));
                }
                self.drafts.push(Draft { path, place, file });
                Ok(())
            }
            Err(broken) => {
                drop(std::fs::remove_file(&path));
                Err(match broken {
                    Broken::Read(why) => unreadable_verdict(why),
                    Broken::Write(error) => refused_verdict(&path, &self.person, &error),
                })
            }
        }
    }

    /// Syncs the written files, and moves each to `new` or `cur`. Returns a verdict for each.
    pub(crate) fn publish(self) -> Vec<Result<(), Verdict>> {
        let Self { directory, person, drafts, .. } = self;
        let mut moved = false;
        let mut ends: Vec<Result<(), Verdict>> = Vec::with_capacity(drafts.len());
        for (draft, synced) in drafts.iter().zip(sync_all(&drafts)) {
            let placed = synced.and_then(|()| move_to(&draft.path, &draft.place));
            moved |= placed.is_ok();
            ends.push(placed.map_err(|error| {
                drop(std::fs::remove_file(&draft.path));
                refused_verdict(&draft.path, &person, &error)
            }));
        }
        let new = directory.join("new");
        if moved && let Err(error) = File::open(&new).and_then(|new| new.sync_all()) {
            // They stay: one that comes again meets its own file.
            ends.iter_mut()
                .filter(|end| end.is_ok())
                .for_each(|end| *end = Err(refused_verdict(&new, &person, &error)));
        }
        ends
    }
}

/// Syncs files, several at once.
fn sync_all(drafts: &[Draft]) -> Vec<io::Result<()>> {
    let each = drafts.len().div_ceil(SYNCS_MAX).max(1);
    let sync = |some: &[Draft]| some.iter().map(|draft| draft.file.sync_all()).collect::<Vec<_>>();
    let mut parts = drafts.chunks(each);
    let Some(own) = parts.next() else { return Vec::new() };
    std::thread::scope(|scope| {
        // Where the user may have no more threads it is done here.
        let start = |some| (some, std::thread::Builder::new().spawn_scoped(scope, move || sync(some)).ok());
        let others: Vec<_> = parts.map(start).collect();
        let mut all = sync(own);
        for (some, thread) in others {
            all.extend(thread.and_then(|thread| thread.join().ok()).unwrap_or_else(|| sync(some)));
        }
        all
    })
}

/// The folder of the detail, where it is wanted and there; in the form of Maildir++, `.lists`.
fn folder(base: &Path, person: &TargetUser, settings: &Settings) -> PathBuf {
    let is_name = |name: &&String| !name.is_empty() && !name.contains(['/', '.', '\0']);
    let detail = person.detail.as_ref().filter(|_| settings.subfolders).filter(is_name);
    let folder = detail.map(|detail| base.join(format!(".{detail}")));
    folder.filter(|folder| folder.join("new").is_dir()).unwrap_or_else(|| base.to_owned())
}

/// Makes a directory, and those above it, if it is not there.
fn make(directory: &Path) -> io::Result<()> {
    if directory.is_dir() { Ok(()) } else { DirBuilder::new().recursive(true).mode(0o700).create(directory) }
}

/// Writes a message; says how large it is.
fn write(letter: &mut MailboxMessage<'_>, path: &Path) -> Result<(File, u64), Broken> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::from_raw_mode(0o600)).map_err(io::Error::from)?);
    let mut out = BufWriter::with_capacity(64 << 10, file);
    letter.write_to(&mut out, Form { from_line: false, quotes: false })?;
    let file = out.into_inner().map_err(|error| error.into_error())?;
    let size = file.metadata()?.len();
    Ok((file, size))
}

/// Gives a file its place. One that is there is the same message, delivered before.
fn move_to(draft: &Path, place: &Path) -> io::Result<()> {
    match renameat_with(CWD, draft, CWD, place, RenameFlags::NOREPLACE) {
        Err(Errno::EXIST) => std::fs::remove_file(draft),
        // A file system that cannot say "if nothing is there".
        Err(Errno::INVAL | Errno::NOSYS) => Ok(rustix::fs::rename(draft, place)?),
        other => Ok(other?),
    }
}

#[cfg(test)]
mod tests {
    use super::super::letter::tests::{Pieces, Text, order};
    use super::super::order::{DeliveryEnd, DeliveryRequest};
    use super::*;
    use config::Config;
    use os::login::Login;

    fn me(detail: Option<&str>) -> TargetUser {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let login = Login { name: "joe".into(), uid, gid, groups: vec![gid], home: "/".into(), shell: String::new() };
        TargetUser { login, detail: detail.map(str::to_owned), user: "joe".into(), mailbox: None }
    }

    fn deliver(base: &Path, order: &DeliveryRequest, detail: Option<&str>, subfolders: bool) -> Verdict {
        let mut config = Config::default();
        config.local.subfolders = subfolders;
        let mut content = Text::new("A: b\r\n\r\nFrom x\r\n", 5);
        let mut letter = MailboxMessage::open(order, &mut content, 1 << 20).unwrap();
        put(&mut letter, base, &me(detail), &Settings::new(&config)).err().unwrap_or_else(Verdict::delivered)
    }

    fn put(
        letter: &mut MailboxMessage<'_>,
        base: &Path,
        person: &TargetUser,
        settings: &Settings,
    ) -> Result<(), Verdict> {
        let mut maildir = Maildir::open(base, person, settings)?;
        maildir.write_message(letter)?;
        maildir.publish().remove(0)
    }

    fn names(directory: &Path) -> Vec<String> {
        let entries = std::fs::read_dir(directory).unwrap();
        let mut names: Vec<String> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
        names.sort();
        names
    }

    #[test]
    fn a_message_is_a_file_and_the_same_one_is_the_same_file() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path().join("deep/Maildir");
        assert_eq!(deliver(&base, &order(), None, false), Verdict::delivered());
        assert_eq!(names(&base), ["cur", "new", "tmp"]);
        let name = "1800000000.Q6AK84ct0028759R0.mx.example,S=70";
        assert_eq!(names(&base.join("new")), [name]);
        let text = std::fs::read_to_string(base.join("new").join(name)).unwrap();
        assert_eq!(text, "Return-Path: <ann@a.example>\nDelivered-To: joe@x.example\nA: b\n\nFrom x\n");
        assert_eq!(text.len(), 70);
        // Again, as after a crash; then another recipient.
        assert_eq!(deliver(&base, &order(), None, false), Verdict::delivered());
        let other = DeliveryRequest { unique: "6AK84ct0028759R1".into(), host: "a/b:c".into(), ..order() };
        assert_eq!(deliver(&base, &other, None, false), Verdict::delivered());
        assert_eq!(names(&base.join("new")), [name, "1800000000.Q6AK84ct0028759R1.a_b_c,S=70"]);
        assert!(names(&base.join("tmp")).is_empty());
    }

    #[test]
    fn a_maildir_over_its_quota_takes_nothing() {
        let directory = tempfile::tempdir().unwrap();
        std::fs::write(directory.path().join("maildirsize"), "100S\n").unwrap();
        assert_eq!(deliver(directory.path(), &order(), None, false), Verdict::delivered());
        // The same one again has its place.
        assert_eq!(deliver(directory.path(), &order(), None, false), Verdict::delivered());
        let other = DeliveryRequest { unique: "6AK84ct0028759R1".into(), ..order() };
        let verdict = deliver(directory.path(), &other, None, false);
        assert!(
            verdict.end == DeliveryEnd::Deferred && verdict.status == (2, 2) && verdict.text.contains("100S"),
            "{verdict:?}"
        );
        assert_eq!((names(&directory.path().join("new")).len(), names(&directory.path().join("tmp")).len()), (1, 0));
    }

    #[test]
    fn many_messages_are_many_files() {
        let directory = tempfile::tempdir().unwrap();
        let settings = Settings::new(&Config::default());
        let mut maildir = Maildir::open(directory.path(), &me(None), &settings).unwrap();
        for number in 0..3 * SYNCS_MAX + 1 {
            // One of them comes twice.
            let unique = format!("6AK84ct0028759R{}", number.max(1));
            let order = DeliveryRequest { unique, ..order() };
            let mut content = Text::new("A: b\r\n\r\nx\r\n", 5);
            maildir.write_message(&mut MailboxMessage::open(&order, &mut content, 1 << 20).unwrap()).unwrap();
        }
        assert!(names(&directory.path().join("new")).is_empty(), "not before they are synced");
        let ends = maildir.publish();
        assert!(ends.len() == 25 && ends.iter().all(Result::is_ok), "{ends:?}");
        assert_eq!((names(&directory.path().join("new")).len(), names(&directory.path().join("tmp")).len()), (24, 0));
    }

    #[test]
    fn details_have_their_folder_where_there_is_one() {
        let directory = tempfile::tempdir().unwrap();
        let base = directory.path();
        std::fs::create_dir_all(base.join(".lists/new")).unwrap();
        for (detail, wanted, place) in [
            ("lists", true, ".lists/new"),
            ("lists", false, "new"),
            ("others", true, "new"),
            ("../x", true, "new"),
            ("", true, "new"),
        ] {
            let before = if base.join(place).exists() { names(&base.join(place)).len() } else { 0 };
            let order = DeliveryRequest { unique: format!("{detail}{wanted}").replace('/', ""), ..order() };
            assert_eq!(deliver(base, &order, Some(detail), wanted), Verdict::delivered());
            assert_eq!(names(&base.join(place)).len(), before + 1, "{detail}");
        }
    }

    #[test]
    fn what_breaks_off_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let order = order();
        let mut content = Pieces(vec![Ok(b"A: b\r\n\r\n"), Err("gone")]);
        let mut letter = MailboxMessage::open(&order, &mut content, 1 << 20).unwrap();
        let settings = Settings::new(&Config::default());
        let verdict = put(&mut letter, directory.path(), &me(None), &settings).unwrap_err();
        assert_eq!(verdict.end, DeliveryEnd::Deferred);
        assert!(names(&directory.path().join("tmp")).is_empty() && names(&directory.path().join("new")).is_empty());
        // A place that is none.
        std::fs::write(directory.path().join("file"), "").unwrap();
        let verdict = deliver(&directory.path().join("file"), &order, None, false);
        assert!(verdict.end == DeliveryEnd::Deferred && verdict.text.contains("file/tmp"), "{verdict:?}");
    }
}

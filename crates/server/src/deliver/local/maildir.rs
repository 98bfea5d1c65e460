//! Maildirs: a file for each message, written below `tmp` and given its place below `new` by a rename.
//!
//! The name of a file comes from the queue id and the place of the recipient, so that a delivery that is made again, since a crash
//! came before its record, meets its own file and is done. The file is synced before the rename and the directory after it.
//! The directories are made as the user when they are missing; folders are not.

use super::file::{refused, sync_directory};
use super::letter::{Broken, Form, Letter, unreadable};
use super::order::{Order, Settings, Verdict};
use super::person::Person;
use rustix::fs::{CWD, Mode, OFlags, RenameFlags, renameat_with};
use rustix::io::Errno;
use std::fs::{DirBuilder, File};
use std::io::{self, BufWriter};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU32, Ordering};

/// Tells files of one process apart that are written at the same time.
static COUNT: AtomicU32 = AtomicU32::new(0);

/// Puts a message into a Maildir.
pub(crate) fn into_maildir(
    letter: &mut Letter<'_>,
    order: &Order,
    base: &Path,
    person: &Person,
    settings: &Settings,
) -> Verdict {
    let directory = folder(base, person, settings);
    put(letter, order, &directory, person).unwrap_or_else(|verdict| verdict)
}

/// The folder of the detail, where it is wanted and there; in the form of Maildir++, `.lists`.
fn folder(base: &Path, person: &Person, settings: &Settings) -> PathBuf {
    let is_name = |name: &&String| !name.is_empty() && !name.contains(['/', '.', '\0']);
    let detail = person.detail.as_ref().filter(|_| settings.subfolders).filter(is_name);
    let folder = detail.map(|detail| base.join(format!(".{detail}")));
    folder.filter(|folder| folder.join("new").is_dir()).unwrap_or_else(|| base.to_owned())
}

fn put(letter: &mut Letter<'_>, order: &Order, directory: &Path, person: &Person) -> Result<Verdict, Verdict> {
    for part in ["tmp", "cur", "new"] {
        make(&directory.join(part)).map_err(|error| refused(&directory.join(part), person, &error))?;
    }
    let host: String =
        order.host.chars().map(|letter| if matches!(letter, '/' | ':') { '_' } else { letter }).collect();
    let name = format!("{}.Q{}.{host}", order.received, order.unique);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    let draft = directory.join("tmp").join(format!("{name}.P{}C{count}", std::process::id()));
    let written = write(letter, &draft).and_then(|size| {
        let place = directory.join("new").join(format!("{name},S={size}"));
        move_to(&draft, &place)?;
        sync_directory(&place)?;
        Ok(())
    });
    written.map(|()| Verdict::delivered()).map_err(|broken| {
        drop(std::fs::remove_file(&draft));
        match broken {
            Broken::Read(why) => unreadable(why),
            Broken::Write(error) => refused(&draft, person, &error),
        }
    })
}

/// Makes a directory, and those above it, if it is not there.
fn make(directory: &Path) -> io::Result<()> {
    if directory.is_dir() { Ok(()) } else { DirBuilder::new().recursive(true).mode(0o700).create(directory) }
}

/// Writes a message and syncs it; says how large it is.
fn write(letter: &mut Letter<'_>, path: &Path) -> Result<u64, Broken> {
    let flags = OFlags::CREATE | OFlags::EXCL | OFlags::WRONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::from_raw_mode(0o600)).map_err(io::Error::from)?);
    let mut out = BufWriter::with_capacity(64 << 10, file);
    letter.write_to(&mut out, Form { from_line: false, quotes: false })?;
    let file = out.into_inner().map_err(|error| error.into_error())?;
    file.sync_all()?;
    Ok(file.metadata()?.len())
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
    use super::super::order::End;
    use super::*;
    use crate::config::Config;
    use crate::env::accounts::Login;

    fn me(detail: Option<&str>) -> Person {
        let (uid, gid) = (rustix::process::geteuid().as_raw(), rustix::process::getegid().as_raw());
        let login = Login { name: "joe".into(), uid, gid, groups: vec![gid], home: "/".into(), shell: String::new() };
        Person { login, detail: detail.map(str::to_owned), user: "joe".into(), mailbox: None }
    }

    fn deliver(base: &Path, order: &Order, detail: Option<&str>, subfolders: bool) -> Verdict {
        let mut config = Config::default();
        config.local.subfolders = subfolders;
        let mut content = Text::new("A: b\r\n\r\nFrom x\r\n", 5);
        let mut letter = Letter::open(order, &mut content, 1 << 20).unwrap();
        into_maildir(&mut letter, order, base, &me(detail), &Settings::new(&config))
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
        let other = Order { unique: "6AK84ct0028759R1".into(), host: "a/b:c".into(), ..order() };
        assert_eq!(deliver(&base, &other, None, false), Verdict::delivered());
        assert_eq!(names(&base.join("new")), [name, "1800000000.Q6AK84ct0028759R1.a_b_c,S=70"]);
        assert!(names(&base.join("tmp")).is_empty());
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
            let order = Order { unique: format!("{detail}{wanted}").replace('/', ""), ..order() };
            assert_eq!(deliver(base, &order, Some(detail), wanted), Verdict::delivered());
            assert_eq!(names(&base.join(place)).len(), before + 1, "{detail}");
        }
    }

    #[test]
    fn what_breaks_off_leaves_nothing() {
        let directory = tempfile::tempdir().unwrap();
        let order = order();
        let mut content = Pieces(vec![Ok(b"A: b\r\n\r\n"), Err("gone")]);
        let mut letter = Letter::open(&order, &mut content, 1 << 20).unwrap();
        let settings = Settings::new(&Config::default());
        let verdict = into_maildir(&mut letter, &order, directory.path(), &me(None), &settings);
        assert_eq!(verdict.end, End::Deferred);
        assert!(names(&directory.path().join("tmp")).is_empty() && names(&directory.path().join("new")).is_empty());
        // A place that is none.
        std::fs::write(directory.path().join("file"), "").unwrap();
        let verdict = deliver(&directory.path().join("file"), &order, None, false);
        assert!(verdict.end == End::Deferred && verdict.text.contains("file/tmp"), "{verdict:?}");
    }
}

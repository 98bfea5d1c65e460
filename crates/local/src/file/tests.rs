//! Trials of mailbox files: faults at every octet, two writers, and files that must not be written to.

use super::super::letter::tests::{Pieces, Text, order, split};
use super::super::order::DeliveryEnd;
use super::*;
use config::Config;
use os::login::Login;
use std::os::unix::fs::PermissionsExt as _;
use testkit::lock_holder::holder;

fn me() -> TargetUser {
    let uid = rustix::process::geteuid().as_raw();
    let gid = rustix::process::getegid().as_raw();
    let login =
        Login { name: "joe".into(), uid, gid, groups: vec![gid], home: "/nonexistent".into(), shell: String::new() };
    TargetUser { login, detail: None, user: "joe".into(), mailbox: None }
}

fn settings() -> Settings {
    let mut config = Config::default();
    config.local.lock_time_max = std::time::Duration::from_secs(30);
    Settings::new(&config)
}

fn deliver(path: &Path, text: &str, settings: &Settings) -> Verdict {
    let order = order();
    let mut content = Text::new(text, 7);
    let mut letter = MailboxMessage::open(&order, &mut content, 1 << 20).unwrap();
    into_mailbox(&mut letter, path, &me(), settings)
}

fn into_mailbox(letter: &mut MailboxMessage<'_>, path: &Path, person: &TargetUser, settings: &Settings) -> Verdict {
    let put = |mut mailbox: Mailbox| {
        let put = mailbox.append(letter);
        mailbox.close().and(put)
    };
    Mailbox::open(path, person, settings).and_then(put).err().unwrap_or_else(Verdict::delivered)
}

fn to_file(path: &Path, settings: &Settings) -> Verdict {
    let order = order();
    let mut content = Text::new("A: b\r\n\r\nx\r\n", 100);
    let mut letter = MailboxMessage::open(&order, &mut content, 1 << 20).unwrap();
    let put = |mut mailbox: Mailbox| mailbox.append(&mut letter).and_then(|()| mailbox.close());
    Mailbox::open_file(path, &me(), settings).and_then(put).err().unwrap_or_else(Verdict::delivered)
}

#[test]
fn messages_follow_one_another() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("joe");
    for number in 0..5 {
        assert_eq!(deliver(&path, &format!("A: b\r\n\r\nFrom {number}"), &settings()), Verdict::delivered());
    }
    let text = std::fs::read_to_string(&path).unwrap();
    let found = split(&text);
    assert_eq!(found.len(), 5);
    assert!(found[4].ends_with("A: b\n\nFrom 4\n\n"), "{text}");
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 1, "no lock is left");
    // An end without a line end or an empty line is completed, so that it does not become part of the message.
    for rest in ["x", "x\n"] {
        std::fs::write(&path, rest).unwrap();
        assert_eq!(deliver(&path, "A: b\r\n\r\n", &settings()), Verdict::delivered());
        let text = std::fs::read_to_string(&path).unwrap();
        assert!(text.starts_with("x\n\nFrom "), "{text}");
    }
}

/// A file that fails at some octet, or when it is synced.
struct Failing {
    file: Vec<u8>,
    room: usize,
    syncs: usize,
}

impl Write for Failing {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.room == 0 {
            return Err(Errno::NOSPC.into());
        }
        // In small parts, as a system may.
        let some = bytes.len().min(self.room).min(9);
        self.room -= some;
        self.file.extend_from_slice(&bytes[..some]);
        Ok(some)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Medium for Failing {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        let mut rest = self.file.get(usize::try_from(at).unwrap()..).unwrap_or_default();
        io::Read::read(&mut rest, buffer)
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        let length = usize::try_from(length).unwrap();
        self.room += self.file.len() - length;
        self.file.truncate(length);
        Ok(())
    }

    fn sync(&mut self) -> io::Result<()> {
        self.syncs += 1;
        if self.syncs == 1 && self.room < 10 { Err(Errno::IO.into()) } else { Ok(()) }
    }
}

#[test]
fn a_fault_at_any_octet_leaves_whole_messages() {
    let before = b"From x\n\nold\n\n";
    let mut ends = [0; 3];
    for room in 0..400 {
        let mut tail = Tail::new(Failing { file: before.to_vec(), room, syncs: 0 }, before.len() as u64, u64::MAX);
        let mut put = 0;
        for _ in 0..2 {
            let order = order();
            let mut content = Text::new("A: b\r\n\r\nFrom here\r\nto there\r\n", 5);
            let mut letter = MailboxMessage::open(&order, &mut content, 1 << 20).unwrap();
            put += usize::from(tail.append(&mut letter).is_ok());
        }
        let closed = tail.close(|| Ok(()));
        let whole = split(str::from_utf8(&tail.medium.file).unwrap()).len() - 1;
        assert_eq!(whole, if closed.is_ok() { put } else { 0 }, "room for {room}");
        assert_eq!(tail.medium.syncs, 1 + usize::from(closed.is_err()), "room for {room}");
        if whole == 0 {
            assert_eq!(tail.medium.file, before, "room for {room}");
        }
        ends[whole] += 1;
    }
    assert!(ends.iter().all(|count| *count > 100), "{ends:?}");
    // The control: without the cut, half a message stands there.
    let mut medium = Failing { file: before.to_vec(), room: 40, syncs: 0 };
    assert!(medium.write_all(&[b'x'; 100]).is_err());
    assert_ne!(medium.file, before);
}

#[test]
fn what_somebody_else_has_written_is_not_cut_off() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("joe");
    std::fs::write(&path, "From x\n\nold\n\n").unwrap();
    let write = |is_alone: bool| {
        let mut file = std::fs::OpenOptions::new().read(true).write(true).open(&path).unwrap();
        let length = file.seek(SeekFrom::End(0)).unwrap();
        file.write_all(b"ours").unwrap();
        if !is_alone {
            // By one who knows no locks.
            std::fs::OpenOptions::new().append(true).open(&path).unwrap().write_all(b"theirs").unwrap();
        }
        let cut = Medium::cut(&mut file, length);
        (cut.is_ok(), std::fs::read_to_string(&path).unwrap())
    };
    assert_eq!(write(true), (true, "From x\n\nold\n\n".to_owned()));
    assert_eq!(write(false), (false, "From x\n\nold\n\nourstheirs".to_owned()));
}

#[test]
fn content_that_breaks_off_leaves_whole_messages() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("joe");
    let broken = || Pieces(vec![Ok(b"A: b\r\n\r\nx\r\n"), Ok(b"y\r\n"), Err("it is gone")]);
    for before in [None, Some("From x\n\nold\n\n")] {
        if let Some(before) = before {
            std::fs::write(&path, before).unwrap();
        }
        let order = order();
        let mut content = broken();
        let mut letter = MailboxMessage::open(&order, &mut content, 1 << 20).unwrap();
        let verdict = into_mailbox(&mut letter, &path, &me(), &settings());
        assert_eq!(verdict, Verdict::deferred((3, 0), "the message cannot be read: it is gone"));
        assert_eq!(std::fs::read_to_string(&path).ok().as_deref(), before);
    }
}

#[test]
fn a_full_mailbox_waits() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("joe");
    let small = Settings { mailbox_size_max: 300, ..settings() };
    assert_eq!(deliver(&path, "A: b\r\n\r\nx\r\n", &small), Verdict::delivered());
    let before = std::fs::read(&path).unwrap();
    let verdict = deliver(&path, &format!("A: b\r\n\r\n{}\r\n", "x".repeat(300)), &small);
    assert_eq!((verdict.end, verdict.status), (DeliveryEnd::Deferred, (2, 2)));
    assert!(verdict.text.contains("local.mailbox_size_max") && verdict.text.contains("joe"), "{}", verdict.text);
    assert_eq!(std::fs::read(&path).unwrap(), before);
    // The verdict has the system's reason and the name of the file.
    for (errno, status, word) in [
        (Errno::DQUOT, (2, 2), "quota"),
        (Errno::FBIG, (2, 2), "EFBIG"),
        (Errno::NOSPC, (3, 1), "no space"),
        (Errno::ACCESS, (2, 0), "permission denied to user joe"),
        (Errno::ROFS, (3, 0), "read-only"),
        (Errno::IO, (3, 0), "output error"),
    ] {
        let verdict = refused_verdict(&path, &me(), &errno.into());
        assert_eq!((verdict.end, verdict.status), (DeliveryEnd::Deferred, status));
        assert!(
            verdict.text.to_lowercase().contains(&word.to_lowercase()) && verdict.text.contains(path.to_str().unwrap()),
            "{}",
            verdict.text
        );
    }
}

#[test]
fn only_plain_files_of_the_user_are_written_to() {
    let directory = tempfile::tempdir().unwrap();
    let at = |name: &str| directory.path().join(name);
    let check = |path: &Path, word: &str| {
        let verdict = deliver(path, "A: b\r\n\r\nx\r\n", &settings());
        assert!(verdict.end == DeliveryEnd::Deferred && verdict.text.contains(word), "{word}: {verdict:?}");
    };
    std::fs::write(at("target"), "").unwrap();
    std::os::unix::fs::symlink(at("target"), at("link")).unwrap();
    check(&at("link"), "symbolic link");
    std::os::unix::fs::symlink(at("nobody"), at("dangling")).unwrap();
    check(&at("dangling"), "symbolic link");
    std::fs::hard_link(at("target"), at("second")).unwrap();
    check(&at("second"), "2 names");
    std::fs::create_dir(at("directory")).unwrap();
    check(&at("directory"), "is a directory");
    rustix::fs::mknodat(rustix::fs::CWD, at("pipe"), rustix::fs::FileType::Fifo, Mode::from_raw_mode(0o600), 0)
        .unwrap();
    check(&at("pipe"), "is no regular file");
    std::fs::write(at("open"), "").unwrap();
    std::fs::set_permissions(at("open"), std::fs::Permissions::from_mode(0o666)).unwrap();
    check(&at("open"), "by everybody");
    check(&at("none/joe"), "its directory does not exist");
    assert_eq!(std::fs::read(at("target")).unwrap(), b"");
    let mut other = me();
    other.login.uid += 1;
    std::fs::write(at("others"), "").unwrap();
    let verdict = open(&at("others"), &other, false).unwrap_err();
    assert!(verdict.text.contains("belongs to user"), "{verdict:?}");
}

#[test]
fn files_of_aliases_lie_where_they_may() {
    let directory = tempfile::tempdir().unwrap();
    std::fs::set_permissions(directory.path(), std::fs::Permissions::from_mode(0o755)).unwrap();
    let root = directory.path().canonicalize().unwrap();
    let at = |name: &str| root.join(name);
    for name in ["mail", "mail/below", "mail/open", "elsewhere", "mail/.hidden"] {
        std::fs::create_dir(at(name)).unwrap();
        std::fs::set_permissions(at(name), std::fs::Permissions::from_mode(0o755)).unwrap();
    }
    std::fs::set_permissions(at("mail/open"), std::fs::Permissions::from_mode(0o777)).unwrap();
    std::os::unix::fs::symlink(at("elsewhere"), at("mail/out")).unwrap();
    let only = Settings { files: vec![at("mail").to_str().unwrap().into()], ..settings() };
    for name in ["mail/a", "mail/below/a"] {
        assert_eq!(to_file(&at(name), &only), Verdict::delivered(), "{name}");
    }
    for (name, word) in [
        ("elsewhere/a", "local.files"),
        ("mail/../elsewhere/a", "\"..\""),
        ("mail/out/a", "local.files"),
        ("mail/.forward", "begins with a dot"),
        ("mail/.hidden/a", "begins with a dot"),
        ("mail/open/a", "may change"),
        ("mail/none/a", "does not exist"),
    ] {
        let verdict = to_file(&at(name), &only);
        assert!(verdict.end == DeliveryEnd::Deferred && verdict.text.contains(word), "{name}: {verdict:?}");
    }
    // Named itself, it is right that others may change it.
    let both = Settings {
        files: vec![at("mail").to_str().unwrap().into(), at("mail/open").to_str().unwrap().into()],
        ..settings()
    };
    assert_eq!(to_file(&at("mail/open/a"), &both), Verdict::delivered());
    std::fs::write(at("mail/program"), "").unwrap();
    std::fs::set_permissions(at("mail/program"), std::fs::Permissions::from_mode(0o755)).unwrap();
    assert!(to_file(&at("mail/program"), &only).text.contains("is a program"));
}

/// Delivers to a file from many threads, in this and in other processes, that all think that they are alone.
fn storm(path: &Path, settings: &Settings, bodies: usize) -> Vec<String> {
    std::thread::scope(|scope| {
        for thread in 0..4 {
            scope.spawn(move || {
                for number in 0..bodies {
                    let body = format!("{thread}.{number} {}\r\n", "x".repeat(40)).repeat(3_000);
                    let order = order();
                    let mut content = Text::new(format!("A: b\r\n\r\n{body}"), 10_000);
                    let mut letter = MailboxMessage::open(&order, &mut content, 1 << 20).unwrap();
                    drop(into_mailbox(&mut letter, path, &me(), settings));
                }
            });
        }
    });
    split(&String::from_utf8_lossy(&std::fs::read(path).unwrap()))
}

fn is_whole(message: &str) -> bool {
    let Some((_, body)) = message.split_once("\n\n") else { return false };
    let first = body.lines().next().unwrap_or_default();
    body.trim_end().lines().count() == 3_000 && body.trim_end().lines().all(|line| line == first)
}

#[test]
fn writers_do_not_mix() {
    for (dotlock, fcntl) in [(true, true), (false, true), (true, false)] {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("joe");
        let found = storm(&path, &Settings { dotlock, fcntl, ..settings() }, 5);
        assert_eq!((found.len(), found.iter().all(|message| is_whole(message))), (20, true), "{dotlock} {fcntl}");
    }
}

#[test]
fn locks_of_other_programs_are_heeded() {
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("joe");
    std::fs::write(&path, "From x\n\nold\n\n").unwrap();
    let short = Settings { lock_time: std::time::Duration::from_millis(150), ..settings() };
    let Some(mut child) = holder(&path) else { return };
    let verdict = deliver(&path, "A: b\r\n\r\nx\r\n", &short);
    assert!(
        verdict.end == DeliveryEnd::Deferred && verdict.text.contains("is locked by another program"),
        "{verdict:?}"
    );
    // The control: a delivery that ignores the lock writes.
    assert_eq!(deliver(&path, "A: b\r\n\r\nx\r\n", &Settings { fcntl: false, ..short.clone() }), Verdict::delivered());
    drop(child.stdin.take());
    child.wait().unwrap();
    assert_eq!(deliver(&path, "A: b\r\n\r\nx\r\n", &short), Verdict::delivered());
    std::fs::write(directory.path().join("joe.lock"), "1").unwrap();
    let verdict = deliver(&path, "A: b\r\n\r\nx\r\n", &short);
    assert!(verdict.end == DeliveryEnd::Deferred && verdict.text.contains("joe.lock"), "{verdict:?}");
    assert_eq!(deliver(&path, "A: b\r\n\r\nx\r\n", &Settings { dotlock: false, ..short }), Verdict::delivered());
}

#[test]
fn a_lock_that_is_ignored_shows() {
    // The control of the storm: the same deliveries without any lock, as two programs that do not know each other.
    let directory = tempfile::tempdir().unwrap();
    let path = directory.path().join("joe");
    std::fs::write(&path, "").unwrap();
    let write = |path: &Path| {
        let order = order();
        let file = std::fs::OpenOptions::new().read(true).write(true).open(path).unwrap();
        let mut file = file;
        let length = file.seek(SeekFrom::End(0)).unwrap();
        let mut content = Text::new(format!("A: b\r\n\r\n{}", "x\r\n".repeat(100)), 10_000);
        let mut letter = MailboxMessage::open(&order, &mut content, 1 << 20).unwrap();
        START.wait();
        // Both have found its end before one of them writes.
        assert!(Tail::new(file, length, u64::MAX).append(&mut letter).is_ok());
    };
    std::thread::scope(|scope| {
        scope.spawn(|| write(&path));
        scope.spawn(|| write(&path));
    });
    let found = split(&std::fs::read_to_string(&path).unwrap());
    assert_ne!(found.len(), 2, "without locks one message is written over the other");
}

static START: std::sync::Barrier = std::sync::Barrier::new(2);

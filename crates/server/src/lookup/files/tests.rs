//! Tests which files of users and lists count, without a helper; and, where the test is root, for other users.

use super::path::FileError;
use super::*;
use rustix::fs::{CWD, FileType, Mode, mknodat, symlinkat};
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::PathBuf;

/// Directories with a file, and the user who asks for it.
struct Case {
    directory: tempfile::TempDir,
}

impl Case {
    fn new() -> Self {
        let case = Self { directory: tempfile::tempdir().unwrap() };
        case.mode("", 0o755);
        case
    }

    fn path(&self, name: &str) -> PathBuf {
        if name.is_empty() { self.directory.path().to_owned() } else { self.directory.path().join(name) }
    }

    fn text(&self, name: &str, text: impl AsRef<[u8]>, mode: u32) -> PathBuf {
        std::fs::write(self.path(name), text).unwrap();
        self.mode(name, mode);
        self.path(name)
    }

    fn mode(&self, name: &str, mode: u32) {
        std::fs::set_permissions(self.path(name), std::fs::Permissions::from_mode(mode)).unwrap();
    }

    fn own(&self, name: &str, uid: u32) {
        std::os::unix::fs::lchown(self.path(name), Some(uid), Some(uid)).unwrap();
    }

    fn list(&self, name: &str) -> Result<text::Read, FileError> {
        self.read(name, Acting::ForAliases, &[geteuid().as_raw()], true)
    }

    fn read(&self, name: &str, acting: Acting, trusted: &[u32], any_owner: bool) -> Result<text::Read, FileError> {
        let rules = Rules { acting, trusted: trusted.to_vec(), any_owner };
        text::read(&self.path(name), &rules, 10_000, None).map_err(|(miss, _)| miss)
    }
}

fn why(read: Result<text::Read, FileError>) -> String {
    match read {
        Err(FileError::Refused(why)) => why,
        other => panic!("{other:?}"),
    }
}

fn is_exclusive(read: Result<text::Read, FileError>) -> bool {
    match read {
        Ok(text::Read::Text { is_exclusive, .. }) => is_exclusive,
        other => panic!("{other:?}"),
    }
}

#[test]
fn only_a_plain_text_of_one_owner_counts() {
    let case = Case::new();
    case.text("good", "joe\n", 0o644);
    assert!(is_exclusive(case.list("good")));
    case.text("group", "joe\n", 0o664);
    std::os::unix::fs::chown(case.path("group"), None, Some(rustix::process::getegid().as_raw())).unwrap();
    let is_roots = case.path("group").metadata().unwrap().gid() == 0;
    assert_eq!(is_exclusive(case.list("group")), is_roots, "others of its group can write it");
    case.text("open", "joe\n", 0o646);
    assert!(why(case.list("open")).contains("chmod o-w"));
    std::fs::create_dir(case.path("directory")).unwrap();
    assert!(why(case.list("directory")).contains("is a directory"));
    mknodat(CWD, case.path("fifo"), FileType::Fifo, Mode::from_raw_mode(0o644), 0).unwrap();
    assert!(why(case.list("fifo")).contains("no regular file"));
    let _socket = std::os::unix::net::UnixListener::bind(case.path("socket")).unwrap();
    assert!(why(case.list("socket")).contains("no regular file"));
    assert_eq!(case.list("nothing"), Err(FileError::Absent));
    assert_eq!(case.list("good/nothing"), Err(FileError::Absent));
    let rules = Rules { acting: Acting::Itself, trusted: Vec::new(), any_owner: true };
    for (device, word) in [("/dev/null", "no regular file"), ("/dev/tty", "no regular file"), ("list", "no full name")]
    {
        let read = text::read(Path::new(device), &rules, 10_000, None).map_err(|(miss, _)| miss);
        assert!(why(read).contains(word), "{device}");
    }
    // Files of the kernel have no size, or another text each time.
    let read = text::read(Path::new("/proc/self/status"), &rules, 10_000, None).map_err(|(miss, _)| miss);
    assert!(!matches!(read, Ok(text::Read::Text { .. })), "{read:?}");
    for name in ["/proc/self/exe", "/proc/self/mem"] {
        let read = text::read(Path::new(name), &rules, 10_000, None).map_err(|(miss, _)| miss);
        assert!(!matches!(read, Ok(text::Read::Text { .. })), "{name}: {read:?}");
    }
}

#[test]
fn what_is_no_text_counts_for_nothing_and_costs_nothing() {
    let case = Case::new();
    case.text("nul", "joe\na\0b\n", 0o644);
    assert!(why(case.list("nul")).contains("line 2 has a NUL"));
    case.text("long", format!("joe\n\n{}\n", "x".repeat(text::LINE_BYTES_MAX + 1)), 0o644);
    assert!(why(case.list("long")).contains("line 3 has 4097 octets"));
    case.text("longest", "x".repeat(text::LINE_BYTES_MAX), 0o644);
    assert!(is_exclusive(case.list("longest")));
    case.text("large", "joe\n".repeat(2_501), 0o644);
    assert!(why(case.list("large")).contains("10004 octets, more than 10000"));
    case.text("largest", "joe\n".repeat(2_500), 0o644);
    assert!(is_exclusive(case.list("largest")));
    let sparse = std::fs::File::create(case.path("sparse")).unwrap();
    sparse.set_len(9_000).unwrap();
    assert!(why(case.list("sparse")).contains("hole") || why(case.list("sparse")).contains("NUL"));
    case.text("latin", b"joe, b\xe4r\n", 0o644);
    assert!(matches!(case.list("latin"), Ok(text::Read::Text { text, .. }) if text.starts_with("joe, b\u{fffd}r")));
}

#[test]
fn links_of_users_and_directories_of_others_count_for_nothing() {
    let case = Case::new();
    case.text("good", "joe\n", 0o644);
    std::fs::hard_link(case.path("good"), case.path("twice")).unwrap();
    let is_root = geteuid().is_root();
    assert_eq!(case.list("twice").is_ok(), is_root, "root's own may have two names");
    std::fs::remove_file(case.path("twice")).unwrap();
    std::fs::create_dir(case.path("open")).unwrap();
    case.text("open/list", "joe\n", 0o644);
    case.mode("open", 0o777);
    assert!(why(case.list("open/list")).contains("chmod o-w"));
    case.mode("open", 0o1777);
    assert!(is_exclusive(case.list("open/list")), "with the sticky bit the file is its owner's");
    symlinkat("good", CWD, case.path("link")).unwrap();
    symlinkat(case.path("").join("open"), CWD, case.path("way")).unwrap();
    if !is_root {
        assert!(why(case.list("link")).contains("is a link") && why(case.list("way/list")).contains("is a link"));
        return;
    }
    // Root's own links in root's own directories count: /home -> /data/home.
    assert!(is_exclusive(case.list("link")) && is_exclusive(case.list("way/list")));
    symlinkat("loop", CWD, case.path("loop")).unwrap();
    assert!(why(case.list("loop")).contains("more than 20 links"));
    for link in ["link", "way"] {
        case.own(link, 65_534);
    }
    assert!(why(case.list("link")).contains("is a link") && why(case.list("way/list")).contains("is a link"));
    // In the directory of another user root's file may be one that he has moved there, and a link of root's too.
    case.mode("open", 0o755);
    case.own("open", 65_534);
    assert!(why(case.list("open/list")).contains("belongs to the user 65534, who can put another file"));
    symlinkat(case.path("good"), CWD, case.path("open/link")).unwrap();
    assert!(why(case.list("open/link")).contains("is a link"));
    case.own("open/list", 65_534);
    assert!(is_exclusive(case.list("open/list")), "all of it is his");
    std::fs::hard_link(case.path("open/list"), case.path("open/other")).unwrap();
    assert!(why(case.list("open/list")).contains("has 2 names"));
}

#[test]
fn a_user_gets_what_every_user_can_read_and_a_forward_of_his_own_alone() {
    if !geteuid().is_root() {
        return;
    }
    let (joe, ann) = (4_001, 4_002);
    let case = Case::new();
    for name in ["joe", "closed"] {
        std::fs::create_dir(case.path(name)).unwrap();
    }
    case.own("joe", joe);
    case.text("joe/.forward", "ann\n", 0o600);
    case.text("closed/list", "ann\n", 0o644);
    case.text("secret", "ann\n", 0o640);
    let as_joe = |name: &str, any_owner| case.read(name, Acting::For(joe), &[joe], any_owner);
    assert_eq!(as_joe("joe/.forward", false), Err(FileError::Denied), "root's, and closed");
    case.own("joe/.forward", joe);
    assert!(is_exclusive(as_joe("joe/.forward", false)));
    case.own("joe/.forward", ann);
    assert!(why(as_joe("joe/.forward", false)).contains("belongs to the user 4002"));
    assert_eq!(as_joe("secret", true), Err(FileError::Denied));
    case.own("secret", ann);
    assert_eq!(as_joe("secret", true), Err(FileError::Denied));
    assert!(is_exclusive(as_joe("closed/list", true)));
    case.mode("closed", 0o750);
    assert_eq!(as_joe("closed/list", true), Err(FileError::Denied), "a directory that he cannot look into");
    assert_eq!(case.read("closed/list", Acting::ForAnyone, &[], true), Err(FileError::Denied));
    // An alias may name any file where only the administrator can have put it.
    assert!(is_exclusive(case.list("closed/list")));
    case.own("closed", ann);
    case.own("closed/list", ann);
    assert_eq!(case.list("closed/list"), Err(FileError::Denied));
    // A group that can write the home can put another of his files there.
    case.own("joe/.forward", joe);
    case.mode("joe", 0o775);
    assert!(why(as_joe("joe/.forward", false)).contains("chmod g-w"));
    assert!(!is_exclusive(as_joe("joe/.forward", true)), "of a list, no programs count");
}

fn users(case: &Case) -> LocalUsers {
    let uid = geteuid().as_raw().max(1);
    let text = format!("joe:x:{uid}:{uid}::{}:/bin/sh\n", case.path("joe").display());
    LocalUsers::of_file_alone(case.text("passwd", text, 0o644))
}

#[test]
fn a_file_is_read_again_when_it_has_changed_and_the_operator_hears_of_a_bad_one() {
    let case = Case::new();
    let files = Files::default();
    let told: Arc<std::sync::Mutex<Vec<String>>> = Arc::default();
    let to = Arc::clone(&told);
    files.begin(None, Box::new(move |line| to.lock().unwrap().push(line.to_owned())));
    let users = users(&case);
    let list = case.path("list").to_str().unwrap().to_owned();
    let find = |reader: &Reader| files.find(&users, &FileQuery::include(&list, reader, 1_000));
    assert!(matches!(find(&Reader::Aliases), Answer::Trouble(why) if why.contains("No such file")));
    case.text("list", "a@x.test\n", 0o644);
    let Answer::Text { text, .. } = find(&Reader::Aliases) else { panic!() };
    assert_eq!(&*text, "a@x.test\n");
    let Answer::Text { text: again, .. } = find(&Reader::Aliases) else { panic!() };
    assert!(Arc::ptr_eq(&text, &again), "it is the same text, though it is looked at again");
    case.text("list", "b@x.test\n", 0o644);
    let Answer::Text { text, .. } = find(&Reader::Aliases) else { panic!() };
    assert_eq!(&*text, "b@x.test\n", "of the same size, within a tick of the clock");
    case.mode("list", 0o666);
    assert!(matches!(find(&Reader::Aliases), Answer::Trouble(why) if why.contains("chmod o-w")));
    assert!(told.lock().unwrap().is_empty(), "that the mail waits is said where it waits");
    let joe = Reader::User("joe".into());
    for _ in 0..3 {
        assert_eq!(find(&joe), Answer::Nothing);
    }
    let told = told.lock().unwrap();
    assert!(
        told.len() == 1 && told[0].contains("list of joe counts for nothing") && told[0].contains("chmod o-w"),
        "{told:?}"
    );
}

#[test]
fn a_shell_is_asked_for_anew_when_accounts_change() {
    let case = Case::new();
    let users = users(&case);
    std::fs::create_dir(case.path("joe")).unwrap();
    case.text("joe/.forward", "|/bin/x\n", 0o644);
    let uid = geteuid().as_raw().max(1);
    if geteuid().is_root() {
        case.own("joe", uid);
        case.own("joe/.forward", uid);
    }
    let files = Files::default();
    let home: Arc<str> = case.path("joe").to_str().unwrap().into();
    let owner = || match files.find(&users, &FileQuery::forward(&"joe".into(), Arc::clone(&home), None)) {
        Answer::Text { owner, .. } => owner.is_some(),
        other => panic!("{other:?}"),
    };
    assert!(owner());
    case.text("passwd", format!("joe:x:{uid}:{uid}::{home}:/usr/sbin/nologin\n"), 0o644);
    assert!(!owner());
}

#[test]
fn a_text_that_never_rests_is_not_taken() {
    let case = Case::new();
    let path = case.text("list", "a@x.test\n", 0o644);
    let stop = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let (writer, other) = (Arc::clone(&stop), case.path("other"));
    let writing = std::thread::spawn(move || {
        while !writer.load(std::sync::atomic::Ordering::Relaxed) {
            for text in ["a@x.test\n", "bb@x.test\n"] {
                std::fs::write(&other, text).unwrap();
                rustix::fs::rename(&other, &path).unwrap();
            }
        }
    });
    for _ in 0..2_000 {
        match case.list("list") {
            Ok(text::Read::Text { text, .. }) => assert!(text == "a@x.test\n" || text == "bb@x.test\n", "{text:?}"),
            Err(FileError::Absent | FileError::Refused(_)) => {}
            other => panic!("{other:?}"),
        }
    }
    stop.store(true, std::sync::atomic::Ordering::Relaxed);
    writing.join().unwrap();
}

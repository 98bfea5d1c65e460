//! Becoming another user, giving up files and system calls, and taking the sockets of a service manager: what needs a
//! process with one thread.
//!
//! The parent starts this program again in a role and reads its exit status; a role that is not as it should be panics.
//! Without root, which CI may lack, the first part is skipped and says so.

use operator::control::ControlSocket;
use os::accounts::Accounts;
use os::machine;
use os::privileges::{self, Account, Plan};
use os::systemd::Handover;
use rustix::io::{FdFlags, fcntl_getfd};
use rustix::process::{DumpableBehavior, dumpable_behavior};
use rustix::thread::{
    CapabilitySets, Gid, Uid, capabilities, no_new_privs, set_capabilities, set_keep_capabilities, set_thread_res_gid,
    set_thread_res_uid, set_thread_uid,
};
use std::fs;
use std::io::{Read as _, Write as _};
use std::net::{TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::Path;
use std::process::{Command, Stdio};

mod hardening;

const USER: &str = "nobody";

fn main() {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    match arguments.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["role", "drop", dir] => drop_and_look(Path::new(dir)),
        ["role", "half"] => drop_half(),
        ["role", "listen", "one"] => listen(),
        ["role", "listen", "wrong"] => refuse_what_is_no_listener(),
        ["role", "calls"] => hardening::start_with_refused_calls(),
        ["role", "files", dir] => hardening::try_closed_files(Path::new(dir)),
        ["role", "bounded"] => hardening::give_up_capabilities(),
        _ => {
            check_drop();
            check_listen();
            hardening::check();
        }
    }
}

fn program() -> std::path::PathBuf {
    std::env::current_exe().expect("a test has a path")
}

fn check_drop() {
    if !machine::is_root() {
        return eprintln!("skipped: giving up root needs root");
    }
    let dir = tempfile::tempdir().expect("a directory for tests");
    fs::set_permissions(dir.path(), fs::Permissions::from_mode(0o755)).expect("ours");
    let status = Command::new(program()).args(["role", "drop"]).arg(dir.path()).status().expect("ourselves");
    assert!(status.success(), "{status}");
    let status = Command::new(program()).args(["role", "half"]).status().expect("ourselves");
    assert!(status.success(), "{status}");
    eprintln!("ok: root given up");
}

fn account() -> Account {
    match privileges::plan(true, USER, "", &Accounts::read().expect("/etc is readable")) {
        Ok(Plan::Become(account)) => account,
        other => panic!("{other:?}"),
    }
}

/// The role: drops rights like a start, then looks at the rest.
fn drop_and_look(dir: &Path) {
    let account = account();
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    privileges::harden().expect("hardened");
    give_directories(dir, &account);
    let path = dir.join("run/control");
    let control = ControlSocket::bind(&path, Some((account.uid, account.gid))).expect("bound");
    let found = fs::metadata(&path).expect("made");
    assert_eq!((found.uid(), found.gid(), found.mode() & 0o777), (account.uid, account.gid, 0o660));
    privileges::drop_to(&account).expect("dropped");

    assert!(!machine::is_root());
    assert_eq!(machine::uid(), account.uid);
    assert!(no_new_privs().expect("prctl"));
    assert_eq!(dumpable_behavior(), Ok(DumpableBehavior::NotDumpable));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("threads");
    let root_in_thread = runtime.block_on(runtime.spawn_blocking(|| set_thread_uid(Uid::ROOT)));
    assert!(root_in_thread.expect("it ran").is_err(), "root came back in a thread");
    look_at_threads(account.uid);

    let file = dir.join("spool/00/new");
    fs::write(&file, "mail").expect("the spool is the user's");
    assert_eq!(fs::metadata(&file).expect("made").permissions().mode() & 0o777, 0o600, "nobody else's");
    assert!(fs::write(dir.join("new"), "").is_err(), "the directory above stays root's");
    assert!(fs::read("/etc/shadow").is_err(), "root's files are closed");
    let log = fs::OpenOptions::new().append(true).open(dir.join("log"));
    log.and_then(|mut log| log.write_all(b"line\n")).expect("the log is the user's");
    drop(listener);
    drop(control);
    assert!(!path.exists(), "its directory is the user's");
}

/// The role, a negative control: a process that only acts as the user is detected at each step.
fn drop_half() {
    let account = account();
    let is_caught = |part: &str| match privileges::prove(&account) {
        Err(privileges::Error::System(text)) => assert!(text.contains(part), "{text}"),
        other => panic!("{part}: {other:?}"),
    };
    let (uid, gid) = (Uid::from_raw(account.uid), Gid::from_raw(account.gid));
    is_caught("Uid:");
    set_thread_res_uid(None, uid, None).expect("root may");
    is_caught("Uid:");
    set_thread_res_uid(None, Uid::ROOT, None).expect("root is the saved user");
    set_keep_capabilities(true).expect("root may");
    set_thread_res_uid(uid, uid, uid).expect("root may");
    is_caught("Gid:");
    let kept = capabilities(None).expect("capget");
    set_capabilities(None, CapabilitySets { effective: kept.permitted, ..kept }).expect("permitted ones");
    set_thread_res_gid(gid, gid, gid).expect("CAP_SETGID is kept");
    is_caught("capabilities");
}

fn look_at_threads(uid: u32) {
    let tasks = fs::read_dir("/proc/self/task").expect("proc").map(|task| task.expect("proc").path());
    let lines: Vec<String> = tasks
        .map(|task| fs::read_to_string(task.join("status")).expect("proc"))
        .map(|status| status.lines().find(|line| line.starts_with("Uid:")).expect("Uid").to_owned())
        .collect();
    assert!(lines.len() > 2, "{lines:?}");
    for line in lines {
        assert!(line.split_ascii_whitespace().skip(1).all(|id| id == uid.to_string()), "{line}");
    }
}

/// Tests which directories are given to the account, and which must not be.
fn give_directories(dir: &Path, account: &Account) {
    let owner = |path: &str| fs::symlink_metadata(dir.join(path)).expect(path).uid();
    let own = |path: &str| account.own_directory("spool.path", &dir.join(path), "SPOOL");

    // A spool that ran as root before, with files in it that are not only its own.
    fs::create_dir_all(dir.join("spool/00")).expect("ours");
    for name in ["spool/SPOOL", "spool/00/seg-1", "secret"] {
        fs::write(dir.join(name), "").expect("ours");
    }
    fs::hard_link(dir.join("secret"), dir.join("spool/00/second-name")).expect("ours");
    std::os::unix::fs::symlink(dir.join("secret"), dir.join("spool/link")).expect("ours");
    own("spool").expect("a spool of root's");
    assert_eq!(["spool", "spool/SPOOL", "spool/00", "spool/00/seg-1"].map(owner), [account.uid; 4]);
    assert_eq!(["secret", "spool/link", "spool/00/second-name"].map(owner), [0; 3]);

    own("deep/er/spool").expect("made");
    assert_eq!(["deep", "deep/er", "deep/er/spool"].map(owner), [0, 0, account.uid]);
    assert_eq!(fs::metadata(dir.join("deep/er")).expect("made").mode() & 0o777, 0o755, "the user gets through");
    fs::create_dir(dir.join("empty")).expect("ours");
    own("empty").expect("an empty one of root's");
    own("empty").expect("its own");
    assert_eq!(owner("empty"), account.uid);

    // An operator names a directory of the system.
    for error in [own("."), own("deep")] {
        let Err(privileges::Error::Config(text)) = error else { panic!("{error:?}") };
        assert!(text.contains("spool.path") && text.contains("chown"), "{text}");
    }
    fs::create_dir(dir.join("open")).expect("ours");
    fs::set_permissions(dir.join("open"), fs::Permissions::from_mode(0o1777)).expect("ours");
    assert!(own("open").is_err(), "others may write to it");

    account.own_file("log.path", &dir.join("log")).expect("made");
    assert_eq!(owner("log"), account.uid);
    assert!(account.own_file("log.path", &dir.join("spool/link")).is_err(), "a link is not followed");
    account.own_file("log.path", &dir.join("spool/00/second-name")).expect("left alone");
    assert_eq!(owner("secret"), 0);
}

/// Starts a role as a service manager does: descriptor 3 and above, and the process id that `exec` keeps.
fn activate(role: &str, descriptors: u32, redirections: &str, listener: TcpListener) -> std::process::Child {
    let script = format!(
        "LISTEN_PID=$$ LISTEN_FDS={descriptors} NOTIFY_SOCKET=/nowhere exec \"$0\" role listen {role} 3<&0 {redirections}"
    );
    Command::new("/bin/sh")
        .args(["-c", &script])
        .arg(program())
        .stdin(Stdio::from(OwnedFd::from(listener)))
        .spawn()
        .expect("a shell")
}

fn check_listen() {
    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    let address = listener.local_addr().expect("bound");
    let mut child = activate("one", 1, "", listener);
    let mut text = String::new();
    TcpStream::connect(address).and_then(|mut stream| stream.read_to_string(&mut text)).expect("an answer");
    assert_eq!(text, "220 taken over\r\n");
    assert!(child.wait().expect("ours").success());

    let listener = TcpListener::bind("127.0.0.1:0").expect("loopback");
    assert!(activate("wrong", 2, "4</dev/null", listener).wait().expect("ours").success());
    eprintln!("ok: sockets taken over");
}

/// The role: a service that answers on the socket it was given.
fn listen() {
    let handover = Handover::take().expect("one listener");
    let [listener] = handover.listeners.as_slice() else { panic!("{handover:?}") };
    for name in ["LISTEN_PID", "LISTEN_FDS", "NOTIFY_SOCKET"] {
        assert_eq!(std::env::var_os(name), None, "{name}");
    }
    assert!(fcntl_getfd(listener).expect("open").contains(FdFlags::CLOEXEC));
    assert!(Handover::take().expect("nothing").listeners.is_empty(), "taken twice");
    let (mut stream, _) = listener.accept().expect("a client");
    stream.write_all(b"220 taken over\r\n").expect("sent");
}

/// The role: a unit that passes something else.
fn refuse_what_is_no_listener() {
    match Handover::take() {
        Err(privileges::Error::Config(text)) => {
            assert!(text.contains("descriptor 4") && text.contains("mailrace.socket"), "{text}")
        }
        other => panic!("{other:?}"),
    }
}

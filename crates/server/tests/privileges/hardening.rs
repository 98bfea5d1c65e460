//! Tests the restrictions that a server puts on itself besides giving up root, in child processes, with and without
//! them.

use os::capabilities::{OF_HELPER, keep_only};
use os::landlock::{self, Applied};
use os::{machine, seccomp};
use rustix::thread::{CapabilitySet, capabilities, capability_is_in_bounding_set};
use server::hardening::needs::{Access, EXECUTE, Need, READ, Scope, WRITE};
use server::hardening::roots::Roots;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Starts a role and says how it ended.
fn role(arguments: &[&str]) -> std::process::ExitStatus {
    Command::new(super::program()).arg("role").args(arguments).stdin(Stdio::null()).status().expect("ourselves")
}

pub(super) fn check() {
    let status = role(&["calls"]);
    assert!(status.success(), "{status}");
    let place = tempfile::tempdir().expect("a directory for tests");
    let status = role(&["files", place.path().to_str().expect("a plain name")]);
    assert!(status.success(), "{status}");
    if machine::is_root() {
        let status = role(&["bounded"]);
        assert!(status.success(), "{status}");
    } else {
        eprintln!("skipped: giving up capabilities needs root");
    }
    eprintln!("ok: files and system calls given up");
}

/// The role: with the list in force threads and programs start as before, and programs have the list too. The calls
/// themselves are tried in the crate `os`.
pub(super) fn start_with_refused_calls() {
    if let Err(text) = seccomp::apply() {
        return eprintln!("skipped: {text}");
    }
    assert_eq!(std::thread::spawn(|| 7).join().expect("a thread"), 7);
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("threads");
    let output =
        runtime.block_on(async { tokio::process::Command::new("/bin/cat").arg("/proc/self/status").output().await });
    let status = String::from_utf8_lossy(&output.expect("a process").stdout).into_owned();
    assert!(status.contains("Seccomp:\t2") && status.contains("NoNewPrivs:\t1"), "{status}");
    if Path::new("/usr/bin/unshare").exists() {
        let child = Command::new("/usr/bin/unshare").args(["--user", "true"]).stderr(Stdio::null()).status();
        assert!(!child.expect("a process").success());
    }
}

/// The role: paths of rules are open, all others are closed, also for processes that it starts.
pub(super) fn try_closed_files(place: &Path) {
    let place = fs::canonicalize(place).expect("ours");
    let at = |name: &str| place.join(name);
    for directory in ["read", "write", "closed", "spool"] {
        fs::create_dir(at(directory)).expect("ours");
    }
    for file in ["read/maps", "closed/secret", "write/old"] {
        fs::write(at(file), "text").expect("ours");
    }
    std::os::unix::fs::symlink("../closed/secret", at("read/link")).expect("ours");
    let held = fs::File::open(at("closed/secret")).expect("ours");
    let need = |path: PathBuf, scope, access: Access| Need { origin: "test", path, scope, access };
    let system = ["/usr", "/lib", "/lib64", "/bin"].map(|path| need(path.into(), Scope::BelowIfThere, EXECUTE));
    let mut needs = vec![
        need(at("read/maps"), Scope::Beside, READ),
        need(at("write"), Scope::Below, WRITE),
        need(at("spool"), Scope::Below, WRITE),
        need("/dev/null".into(), Scope::Only, WRITE),
    ];
    needs.extend(system);
    match landlock::apply(Roots::of(&needs).iter(), true) {
        Ok(Applied::InForce { .. }) => {}
        Ok(Applied::Missing) => return eprintln!("skipped: the kernel has no Landlock"),
        Err(error) => panic!("{error}"),
    }
    let is_closed = |error: std::io::Error| error.kind() == ErrorKind::PermissionDenied;
    let refused = |result: std::io::Result<()>| result.is_err_and(is_closed);
    let read = |name: &str| fs::read(at(name)).map(drop);

    assert!(
        read("read/maps").is_ok() && refused(fs::write(at("read/maps"), "")) && refused(fs::write(at("read/new"), ""))
    );
    rustix::fs::rename(at("read/maps"), at("write/gone")).expect_err("it stays");
    assert!(refused(read("closed/secret")) && refused(read("read/link")), "also by a link");
    assert!(refused(fs::write(at("closed/new"), "")) && refused(fs::remove_file(at("closed/secret"))));
    assert!(refused(fs::read_dir(&place).map(drop)) && refused(fs::read("/etc/passwd").map(drop)));
    let mut text = String::new();
    std::io::Read::read_to_string(&mut &held, &mut text).expect("it is open already");
    // A log is rotated, a message is moved between directories.
    fs::write(at("write/new"), "line").expect("made");
    rustix::fs::rename(at("write/old"), at("write/old.1")).expect("renamed");
    rustix::fs::rename(at("write/new"), at("spool/new")).expect("moved");
    fs::OpenOptions::new().append(true).open(at("spool/new")).expect("opened").set_len(0).expect("truncated");
    fs::remove_file(at("spool/new")).expect("removed");
    assert!(refused(rustix::fs::rename(at("write/old.1"), at("read/old")).map_err(Into::into)));
    // Processes that it starts are bound too; other threads as well.
    let cat = |name: &str| Command::new("/bin/cat").arg(at(name)).stderr(Stdio::null()).stdout(Stdio::null()).status();
    assert!(cat("read/maps").expect("cat").success() && !cat("closed/secret").expect("cat").success());
    let program = at("write/program");
    fs::copy("/bin/true", &program).expect("copied");
    assert!(Command::new(&program).status().is_err_and(is_closed), "what can be written cannot be run");
    let secret = at("closed/secret");
    assert!(refused(std::thread::spawn(move || fs::read(secret).map(drop)).join().expect("a thread")));
}

/// The role: of root's capabilities few are left, and none comes back with another program.
pub(super) fn give_up_capabilities() {
    let one = |capability| capability_is_in_bounding_set(capability).expect("prctl");
    assert!(one(CapabilitySet::SETPCAP), "it is root");
    keep_only(OF_HELPER).expect("given up");
    let kept = capabilities(None).expect("capget");
    assert_eq!((kept.effective, kept.permitted, kept.inheritable.is_empty()), (OF_HELPER, OF_HELPER, true));
    for gone in [CapabilitySet::SYS_ADMIN, CapabilitySet::SYS_PTRACE, CapabilitySet::NET_ADMIN, CapabilitySet::SETPCAP]
    {
        assert!(!one(gone), "{gone:?}");
    }
    let status = Command::new("/bin/cat").arg("/proc/self/status").output().expect("cat");
    let status = String::from_utf8_lossy(&status.stdout).into_owned();
    let expected = format!("{:016x}", OF_HELPER.bits());
    for field in ["CapPrm", "CapEff", "CapBnd"] {
        assert!(status.contains(&format!("{field}:\t{expected}")), "{field}: {status}");
    }
    keep_only(OF_HELPER).expect("again, without SETPCAP");
}

//! Programs and rights that tests need and a machine may lack. A test that cannot run prints that and passes, unless
//! the environment names the missing program or right: `MAILRACE_TESTS_NEED=NAME[,NAME…]`, as `.ci/run` sets it where
//! everything was installed, makes a failure of it.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};

/// Says that a test shows nothing, since `name` is missing, or cannot be used: why.
///
/// # Panics
/// It is named as required.
#[track_caller]
pub fn skip(name: &str, why: &str) {
    let needed = std::env::var("MAILRACE_TESTS_NEED").unwrap_or_default();
    assert!(!is_needed(&needed, name), "MAILRACE_TESTS_NEED={needed}, and {name} {why}; ./.ci/setup installs it");
    eprintln!("skipped: {name} {why}");
}

fn is_needed(names: &str, name: &str) -> bool {
    names.split(',').any(|one| one.trim() == name)
}

/// Finds a program, also among those of daemons; `None`, and says so, where it is not installed.
#[track_caller]
pub fn program(name: &str) -> Option<PathBuf> {
    let found = optional_program(name);
    if found.is_none() {
        skip(name, "is not installed");
    }
    found
}

/// Finds a program that a test can do without, also among those of daemons.
pub fn optional_program(name: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    let places =
        std::env::split_paths(&path).chain(["/usr/sbin".into(), "/usr/local/sbin".into(), "/usr/libexec".into()]);
    places.map(|place| place.join(name)).find(|file| file.is_file())
}

/// Whether a file or directory is there that belongs to `name`; prints a line where it is not.
#[track_caller]
pub fn has(name: &str, path: impl AsRef<Path>) -> bool {
    let (path, is_there) = (path.as_ref(), path.as_ref().exists());
    if !is_there {
        skip(name, &format!("is not installed: there is no {}", path.display()));
    }
    is_there
}

/// Whether we are root; says so where we are not.
#[track_caller]
pub fn root() -> bool {
    let is_root = std::fs::metadata("/proc/self").is_ok_and(|of| of.uid() == 0);
    if !is_root {
        skip("root", "is not who runs this");
    }
    is_root
}

#[test]
fn what_must_be_there_is_told_from_the_rest() {
    assert!(is_needed("nsd", "nsd") && is_needed("slapd, nsd", "nsd"));
    assert!(!is_needed("", "nsd") && !is_needed("nsdx", "nsd"));
}

//! Another program that holds the kernel's lock on a mailbox file.

use crate::needs;
use std::io::Read as _;
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A program that has the lock, and holds it until its input ends.
///
/// Every Debian has Python; where it is missing, the test prints that and passes.
pub fn holder(path: &Path) -> Option<Child> {
    let code =
        "import fcntl,sys\nf=open(sys.argv[1],'r+')\nfcntl.lockf(f,fcntl.LOCK_EX)\nprint(flush=True)\nsys.stdin.read()";
    let mut child = Command::new(needs::program("python3")?)
        .args(["-c", code])
        .arg(path)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    child.stdout.as_mut().expect("piped").read_exact(&mut [0]).expect("it has the lock");
    Some(child)
}

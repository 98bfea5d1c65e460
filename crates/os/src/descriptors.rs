//! Descriptors that the parent process left open.
//!
//! A shell, a supervisor or a `sudo` may pass more than the three of standard input and output: an open directory, a
//! socket, a lock. The server would keep them for months, and programs of aliases would find them. So every start
//! closes what it was not given on purpose: what the service manager names in `LISTEN_FDS` is taken before
//! ([`super::systemd`]), and the rest is closed.
//!
//! **Which are foreign.** A descriptor that came with the start has survived `execve`, so it lacks the flag
//! close-on-exec. Everything that this process opens has it: the standard library, rustix as it is used here and the
//! sockets of the service manager once they are taken set it. Only descriptors without the flag are closed, so none is
//! that a value of this process owns.

use super::privileges::{self, single_thread};
use rustix::io::FdFlags;
use std::os::fd::{BorrowedFd, FromRawFd as _, OwnedFd, RawFd};

/// Behind standard input, output and error.
const FIRST: RawFd = 3;

/// Closes every descriptor above the standard ones that came with the start of the process. For its beginning, after
/// the sockets of the service manager were taken. How many it closed.
///
/// # Errors
/// `System`: there is more than one thread, or `/proc` does not show the descriptors.
pub fn close_foreign() -> Result<usize, privileges::Error> {
    single_thread("closing descriptors of others")?;
    let listed = std::fs::read_dir("/proc/self/fd")
        .map_err(|error| privileges::Error::System(format!("/proc/self/fd: {error}; mount /proc")))?;
    let numbers: Vec<RawFd> = listed.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    Ok(numbers.into_iter().filter(|number| *number >= FIRST && close_if_foreign(*number)).count())
}

/// Closes a descriptor without close-on-exec; `false`: it has the flag, or is closed, as the one by which the list was
/// read.
#[expect(unsafe_code, reason = "a descriptor that was left open is a bare number")]
fn close_if_foreign(number: RawFd) -> bool {
    // SAFETY: the borrow ends before anything is closed, and the kernel answers EBADF if the number is not open.
    let borrowed = unsafe { BorrowedFd::borrow_raw(number) };
    if !rustix::io::fcntl_getfd(borrowed).is_ok_and(|flags| !flags.contains(FdFlags::CLOEXEC)) {
        return false;
    }
    // SAFETY: it is open, no other thread can close it or open another by its number, and no value owns it: what this
    // process opens has close-on-exec, as the head of this file says.
    drop(unsafe { OwnedFd::from_raw_fd(number) });
    true
}

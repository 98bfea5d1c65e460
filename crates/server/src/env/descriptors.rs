//! Descriptors that whoever started the process left open.
//!
//! A shell, a supervisor or a `sudo` may pass more than the three of standard input and output: an open directory, a socket, a lock.
//! The server would keep them for months, and programs of aliases would find them where they are not closed at exec. So every start closes
//! what it was not given on purpose: what the service manager names in `LISTEN_FDS`, and nothing else.

use super::privileges::{self, single_thread};
use std::os::fd::{FromRawFd as _, OwnedFd, RawFd};

/// Standard input, output and error.
const STANDARD: RawFd = 3;

/// Closes every descriptor above the standard ones but the first `passed` of them, which the service manager passed. For the
/// beginning of a process, before it opens anything that lives on. How many it closed.
///
/// # Errors
/// `System`: there is more than one thread, or `/proc` does not show the descriptors.
pub fn close_foreign(passed: RawFd) -> Result<usize, privileges::Error> {
    single_thread("closing descriptors of others")?;
    let listed = std::fs::read_dir("/proc/self/fd")
        .map_err(|error| privileges::Error::System(format!("/proc/self/fd: {error}; mount /proc")))?;
    let numbers: Vec<RawFd> = listed.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok()).collect();
    let foreign = numbers.into_iter().filter(|number| *number >= STANDARD.saturating_add(passed));
    Ok(foreign.filter(|number| close(*number)).count())
}

/// Closes a descriptor; `false`: it was closed before, as the one by which the list was read.
#[expect(unsafe_code, reason = "a descriptor that was left open is a bare number")]
fn close(number: RawFd) -> bool {
    // SAFETY: the borrow ends before anything is closed, and the kernel answers EBADF if the number is not open.
    let borrowed = unsafe { std::os::fd::BorrowedFd::borrow_raw(number) };
    if rustix::io::fcntl_getfd(borrowed).is_err() {
        return false;
    }
    // SAFETY: it is open, and no value of this process owns it: the only thread is at the beginning of the process, holds no file, and
    // what the service manager passed has lower numbers.
    drop(unsafe { OwnedFd::from_raw_fd(number) });
    true
}

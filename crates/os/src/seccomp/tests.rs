//! Every call of the list is made, in a thread: a filter is one of the thread that takes it.

#![allow(unsafe_code, reason = "system calls by their numbers, with arguments that mean nothing")]

use super::*;
use std::io;

/// Makes a call whose arguments are all -1; the number of its error, 0 for none.
fn try_call(number: i64) -> i32 {
    try_call_with(number, -1)
}

fn try_call_with(number: i64, first: i64) -> i32 {
    // SAFETY: no argument is an address of ours, so the kernel changes no memory of ours. The calls that are made
    // without a filter are those of `HARMLESS`, which only say that their arguments are wrong.
    let answer = unsafe { libc::syscall(number, first, -1_i64, -1_i64, -1_i64, -1_i64, -1_i64) };
    if answer == -1 { io::Error::last_os_error().raw_os_error().unwrap_or(0) } else { 0 }
}

/// Calls that do nothing with such arguments, and that need no rights to say so.
const HARMLESS: [i64; 5] =
    [libc::SYS_process_vm_readv, libc::SYS_pidfd_getfd, libc::SYS_io_uring_enter, libc::SYS_keyctl, libc::SYS_clone3];

#[test]
fn every_call_of_the_list_is_refused_in_its_thread_and_in_no_other() {
    let answers = std::thread::spawn(|| {
        let before = HARMLESS.map(try_call);
        apply().map(|()| {
            let after: Vec<_> = REFUSED.iter().map(|(name, number)| (*name, try_call(*number))).collect();
            let clones = NEW_NAMESPACES.map(|flag| try_call_with(libc::SYS_clone, flag.into()));
            (before, after, clones, try_call(libc::SYS_clone3))
        })
    });
    let (before, after, clones, clone3) = match answers.join().unwrap() {
        Ok(answers) => answers,
        // A kernel without it says that its operation is unknown.
        Err(error) if error.contains("Invalid argument") => return eprintln!("skipped: {error}"),
        Err(error) => panic!("{error}"),
    };
    assert!(before.iter().all(|error| *error != libc::EPERM), "the control: {before:?}");
    for (name, error) in after {
        assert_eq!(error, libc::EPERM, "{name}");
    }
    assert_eq!((clones, clone3), ([libc::EPERM; 7], libc::ENOSYS));
    assert_ne!(try_call(libc::SYS_pidfd_getfd), libc::EPERM, "this thread has no filter");
}

#[cfg(target_arch = "x86_64")]
#[test]
fn the_second_table_of_the_processor_is_no_way_around() {
    let answers = std::thread::spawn(|| {
        let numbers = [libc::SYS_ptrace, libc::SYS_mount, libc::SYS_unshare, X32_OWN[0]].map(|number| number | X32);
        let before = numbers.map(try_call);
        apply()
            .map(|()| (before, numbers.map(try_call), try_call_with(libc::SYS_clone | X32, libc::CLONE_NEWUSER.into())))
    });
    if let Ok((before, after, clone)) = answers.join().unwrap() {
        assert!(before.iter().all(|error| *error != libc::EPERM), "the control: {before:?}");
        assert_eq!((after, clone), ([libc::EPERM; 4], libc::EPERM));
    }
}

#[test]
fn no_name_is_there_twice() {
    let mut numbers: Vec<i64> = REFUSED.iter().map(|(_, number)| *number).collect();
    numbers.sort_unstable();
    numbers.dedup();
    assert_eq!(numbers.len(), REFUSED.len());
    assert!(!numbers.contains(&libc::SYS_clone) && !numbers.contains(&libc::SYS_prctl));
}

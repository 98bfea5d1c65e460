//! seccomp: system calls that mail never needs answer EPERM, for this thread and for all that comes from it.
//!
//! The list names what attackers use to leave a process or to reach rarely used code of the kernel: looking into other
//! processes, mounts, new namespaces, BPF, the key store, `io_uring`, modules, the clock. All other calls are allowed,
//! so a new C library breaks nothing. The kernel remembers which calls are always allowed (Linux 5.11), so they cost
//! nothing measurable.
//!
//! `clone3` answers ENOSYS: its flags are in memory that a filter cannot see, and C libraries then use `clone`, whose
//! flags are checked. A program of another architecture (32 bits) that the process starts is killed.

use nix::libc;
use seccompiler::{
    BpfProgram, SeccompAction, SeccompCmpArgLen, SeccompCmpOp, SeccompCondition, SeccompFilter, SeccompRule,
    apply_filter,
};
use std::collections::BTreeMap;

/// Calls that are refused, with their names for documents and tests.
pub const REFUSED: &[(&str, i64)] = &[
    // Other processes.
    ("ptrace", libc::SYS_ptrace),
    ("process_vm_readv", libc::SYS_process_vm_readv),
    ("process_vm_writev", libc::SYS_process_vm_writev),
    ("pidfd_getfd", libc::SYS_pidfd_getfd),
    ("kcmp", libc::SYS_kcmp),
    // File systems.
    ("mount", libc::SYS_mount),
    ("umount2", libc::SYS_umount2),
    ("pivot_root", libc::SYS_pivot_root),
    ("chroot", libc::SYS_chroot),
    ("move_mount", libc::SYS_move_mount),
    ("open_tree", libc::SYS_open_tree),
    ("fsopen", libc::SYS_fsopen),
    ("fsconfig", libc::SYS_fsconfig),
    ("fsmount", libc::SYS_fsmount),
    ("fspick", libc::SYS_fspick),
    ("mount_setattr", libc::SYS_mount_setattr),
    ("open_by_handle_at", libc::SYS_open_by_handle_at),
    ("quotactl", libc::SYS_quotactl),
    ("acct", libc::SYS_acct),
    ("swapon", libc::SYS_swapon),
    ("swapoff", libc::SYS_swapoff),
    // Namespaces; see also NEW_NAMESPACES.
    ("unshare", libc::SYS_unshare),
    ("setns", libc::SYS_setns),
    // Code of the kernel that mail has no use for.
    ("bpf", libc::SYS_bpf),
    ("perf_event_open", libc::SYS_perf_event_open),
    ("userfaultfd", libc::SYS_userfaultfd),
    ("io_uring_setup", libc::SYS_io_uring_setup),
    ("io_uring_enter", libc::SYS_io_uring_enter),
    ("io_uring_register", libc::SYS_io_uring_register),
    ("add_key", libc::SYS_add_key),
    ("request_key", libc::SYS_request_key),
    ("keyctl", libc::SYS_keyctl),
    ("personality", libc::SYS_personality),
    // The machine.
    ("kexec_load", libc::SYS_kexec_load),
    ("kexec_file_load", libc::SYS_kexec_file_load),
    ("init_module", libc::SYS_init_module),
    ("finit_module", libc::SYS_finit_module),
    ("delete_module", libc::SYS_delete_module),
    ("reboot", libc::SYS_reboot),
    ("syslog", libc::SYS_syslog),
    ("sethostname", libc::SYS_sethostname),
    ("setdomainname", libc::SYS_setdomainname),
    ("settimeofday", libc::SYS_settimeofday),
    ("clock_settime", libc::SYS_clock_settime),
    ("clock_adjtime", libc::SYS_clock_adjtime),
    ("adjtimex", libc::SYS_adjtimex),
    ("vhangup", libc::SYS_vhangup),
    #[cfg(target_arch = "x86_64")]
    ("modify_ldt", libc::SYS_modify_ldt),
    #[cfg(target_arch = "x86_64")]
    ("iopl", libc::SYS_iopl),
    #[cfg(target_arch = "x86_64")]
    ("ioperm", libc::SYS_ioperm),
    #[cfg(target_arch = "x86_64")]
    ("uselib", libc::SYS_uselib),
];

/// Flags of `clone` that make a namespace: mount, cgroup, UTS, IPC, user, PID, network.
pub const NEW_NAMESPACES: [i32; 7] = [
    libc::CLONE_NEWNS,
    libc::CLONE_NEWCGROUP,
    libc::CLONE_NEWUTS,
    libc::CLONE_NEWIPC,
    libc::CLONE_NEWUSER,
    libc::CLONE_NEWPID,
    libc::CLONE_NEWNET,
];

/// Numbers of the same calls by the second set of x86-64 (x32), which a list of ordinary numbers would leave open: this
/// bit and the ordinary number, or a number of its own.
#[cfg(target_arch = "x86_64")]
const X32: i64 = 0x4000_0000;
/// `ptrace`, `kexec_load`, `process_vm_readv`, `process_vm_writev` there.
#[cfg(target_arch = "x86_64")]
const X32_OWN: [i64; 4] = [521, 528, 539, 540];

/// Puts the list in force, and `no_new_privs`, without which the kernel takes no filter.
///
/// # Errors
/// The kernel has no filters, or this processor is not known here.
pub fn apply() -> Result<(), String> {
    let failed = |error: seccompiler::Error| format!("seccomp: {error}");
    for program in programs().map_err(|error| format!("seccomp: {error}"))? {
        apply_filter(&program).map_err(failed)?;
    }
    Ok(())
}

/// Two programs, since each has one answer for refused calls.
fn programs() -> Result<[BpfProgram; 2], seccompiler::BackendError> {
    let mut refused: BTreeMap<i64, Vec<SeccompRule>> =
        REFUSED.iter().map(|(_, number)| (*number, Vec::new())).collect();
    refused.insert(libc::SYS_clone, namespaces()?);
    #[cfg(target_arch = "x86_64")]
    {
        let of_x32: Vec<_> = refused.iter().map(|(number, rules)| (number | X32, rules.clone())).collect();
        refused.extend(of_x32);
        refused.extend(X32_OWN.map(|number| (number | X32, Vec::new())));
    }
    let absent = BTreeMap::from([(libc::SYS_clone3, Vec::new())]);
    Ok([program(refused, libc::EPERM)?, program(absent, libc::ENOSYS)?])
}

fn program(rules: BTreeMap<i64, Vec<SeccompRule>>, errno: i32) -> Result<BpfProgram, seccompiler::BackendError> {
    let answer = SeccompAction::Errno(errno.unsigned_abs());
    SeccompFilter::new(rules, SeccompAction::Allow, answer, std::env::consts::ARCH.try_into()?)?.try_into()
}

/// One rule for each flag: the first argument of `clone` has it.
fn namespaces() -> Result<Vec<SeccompRule>, seccompiler::BackendError> {
    let rule = |flag: i32| {
        let flag = u64::from(flag.unsigned_abs());
        let has_flag = SeccompCondition::new(0, SeccompCmpArgLen::Qword, SeccompCmpOp::MaskedEq(flag), flag)?;
        SeccompRule::new(vec![has_flag])
    };
    NEW_NAMESPACES.into_iter().map(rule).collect()
}

#[cfg(test)]
mod tests;

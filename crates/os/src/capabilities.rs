//! Capabilities of the process that stays root to start deliveries: a few, and no others for its child processes.
//!
//! A service unit does that with `CapabilityBoundingSet=`; this is for a start by hand. `no_new_privs` cannot be set
//! there: wrappers of list managers use set-group-id bits.

use rustix::io::Errno;
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, capability_is_in_bounding_set, remove_capability_from_bounding_set,
    set_capabilities,
};
use std::io;

/// The capabilities of the helper: becoming a user, and killing a worker that has become one. The others are for
/// set-user-id root programs that users run, as procmail is on some systems: such a program writes to mailboxes and
/// gives them away.
pub const OF_HELPER: CapabilitySet = CapabilitySet::SETUID
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::CHOWN)
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FOWNER);

/// Numbers of capabilities that there may be; the kernel knows the last one.
const NUMBERS: u32 = 64;

/// Gives up all other capabilities, for this thread and for all programs that it starts, also for programs of other
/// users.
///
/// Without the capability to do that (SETPCAP) only those of this thread are given up: the process that took SETPCAP
/// away has chosen the rest.
/// # Errors
/// The kernel refused.
pub fn keep_only(kept: CapabilitySet) -> io::Result<()> {
    for number in 0..NUMBERS {
        let one = CapabilitySet::from_bits_retain(1 << number);
        match capability_is_in_bounding_set(one) {
            // Behind the last one.
            Err(Errno::INVAL) => break,
            Ok(true) if !kept.contains(one) => match remove_capability_from_bounding_set(one) {
                Err(Errno::PERM) => break,
                other => other?,
            },
            other => drop(other?),
        }
    }
    let now = capabilities(None)?;
    let kept = now.permitted & kept;
    Ok(set_capabilities(
        None,
        CapabilitySets { effective: kept, permitted: kept, inheritable: CapabilitySet::empty() },
    )?)
}

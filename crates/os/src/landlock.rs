//! Landlock: the kernel refuses the calling thread, and all that come from it, every file that no rule names.
//!
//! Rules only ever become fewer: neither this process nor a program that it starts gets rid of them. They do not bind
//! descriptors that are open already, connections, nor the kernel's own doing. A kernel knows the kinds of access of
//! its version (ABI) and checks those alone; the log says which it is
//! (<https://docs.kernel.org/userspace-api/landlock.html>).

use landlock::{
    ABI, Access as _, AccessFs, BitFlags, CompatLevel, Compatible as _, LandlockStatus, PathBeneath, PathFd, Ruleset,
    RulesetAttr as _, RulesetCreatedAttr as _, RulesetStatus,
};
use std::fmt;
use std::path::Path;

/// The newest version whose kinds of access are used.
const NEWEST: ABI = ABI::V5;

/// The rights on the files below a directory, besides reading them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Access {
    /// Programs may be run.
    pub execute: bool,
    /// Files may be written, made, renamed and removed.
    pub write: bool,
}

/// Reading alone.
pub const READ: Access = Access { execute: false, write: false };
/// Reading, and running programs.
pub const EXECUTE: Access = Access { execute: true, write: false };
/// Reading and writing.
pub const WRITE: Access = Access { execute: false, write: true };

impl Access {
    /// The rights of both.
    #[must_use]
    pub const fn with(self, other: Self) -> Self {
        Self { execute: self.execute || other.execute, write: self.write || other.write }
    }

    /// Whether `self` has all rights of `other`.
    #[must_use]
    pub const fn covers(self, other: Self) -> bool {
        (self.execute || !other.execute) && (self.write || !other.write)
    }
}

impl fmt::Display for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match (self.execute, self.write) {
            (false, false) => "read",
            (true, false) => "read and execute",
            (false, true) => "read and write",
            (true, true) => "read, write and execute",
        })
    }
}

/// Says whether the rules are in force.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Applied {
    /// The rules are in force, by this version of the kernel's.
    InForce {
        /// The version.
        abi: i32,
    },
    /// The kernel does not have it, was started without it, or has a version that would keep files from being moved.
    Missing,
}

/// Puts rules in force for this thread and for all that it starts from now on.
///
/// `moves`: files are moved from one directory to another, as for a Maildir. Version 1 refuses that whatever the rules
/// say, so there are none then. A root that has gone meanwhile has no rule.
/// # Errors
/// The kernel can, and refused.
pub fn apply<'a>(roots: impl IntoIterator<Item = (&'a Path, Access)>, moves: bool) -> Result<Applied, String> {
    let failed = |error: &dyn fmt::Display| format!("Landlock: {error}");
    let mut ruleset = Ruleset::default();
    if moves {
        ruleset = match ruleset.set_compatibility(CompatLevel::HardRequirement).handle_access(AccessFs::Refer) {
            Ok(ruleset) => ruleset.set_compatibility(CompatLevel::BestEffort),
            Err(_) => return Ok(Applied::Missing),
        };
    }
    let ruleset = ruleset.handle_access(AccessFs::from_all(NEWEST)).map_err(|error| failed(&error))?;
    let mut ruleset = ruleset.create().map_err(|error| failed(&error))?;
    for (root, access) in roots {
        let Ok(opened) = PathFd::new(root) else { continue };
        let mut rights = rights(access);
        if !root.is_dir() {
            rights &= AccessFs::from_file(NEWEST);
        }
        ruleset = ruleset.add_rule(PathBeneath::new(opened, rights)).map_err(|error| failed(&error))?;
    }
    let status = ruleset.restrict_self().map_err(|error| failed(&error))?;
    Ok(match (status.ruleset, status.landlock) {
        (RulesetStatus::NotEnforced, _) => Applied::Missing,
        (_, LandlockStatus::Available { effective_abi, kernel_abi }) => {
            Applied::InForce { abi: kernel_abi.unwrap_or(effective_abi as i32) }
        }
        (_, LandlockStatus::NotEnabled | LandlockStatus::NotImplemented) => Applied::Missing,
    })
}

fn rights(access: Access) -> BitFlags<AccessFs> {
    let mut rights = AccessFs::ReadFile | AccessFs::ReadDir;
    if access.execute {
        rights |= AccessFs::Execute;
    }
    if access.write {
        // No devices, and no ioctl on them.
        let never = AccessFs::MakeChar | AccessFs::MakeBlock | AccessFs::IoctlDev;
        rights |= AccessFs::from_write(NEWEST) & !never;
    }
    rights
}

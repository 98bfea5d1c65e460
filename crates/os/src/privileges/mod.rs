//! From root to an ordinary user, for good.
//!
//! Called at start, after every socket that needs root is bound: [`plan`] says who to become,
//! [`Account::own_directory`] and [`Account::own_file`] give that user what root made for it, [`drop_to`] becomes it
//! and proves that there is no way back. [`harden`] is for every start, as root or not.
//!
//! **Invariant: one thread.** To Linux user ids, groups and capabilities belong to a thread, and the calls used here
//! change the calling one. So all of this happens before the runtime and the spool start threads, which then inherit
//! the remaining rights; [`drop_to`] refuses to work in a process with more than one. Only files a user cannot have
//! prepared are given to it: nothing below a directory it could already write to, no second name of a file, no symbolic
//! link.
//!
//! Not here: a change of root directory, and user look-ups by the C library (see [`super::accounts`]).

use super::accounts::Accounts;
use rustix::fs::{AtFlags, CWD, Gid, Mode, OFlags, Uid, chownat, fchown};
use rustix::io::Errno;
use rustix::process::{DumpableBehavior, Resource, Rlimit, set_dumpable_behavior, setrlimit, umask};
use rustix::thread::{
    CapabilitySet, CapabilitySets, capabilities, clear_ambient_capability_set, set_capabilities, set_no_new_privs,
    set_thread_groups, set_thread_res_gid, set_thread_res_uid, set_thread_uid,
};
use std::fmt;
use std::fs::{self, Metadata, Permissions};
use std::io;
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::path::Path;

/// The user that is taken when `server.user` is empty and it exists.
pub const DEFAULT_USER: &str = "mailrace";

/// Why a start as root cannot go on. The text names object, value and next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error {
    /// The configuration names something that is not there or cannot be right (exit status 78).
    Config(String),
    /// The system refused (exit status 71).
    System(String),
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Config(text) | Self::System(text) => f.write_str(text),
        }
    }
}

impl std::error::Error for Error {}

/// The user change that a start makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Plan {
    /// Nothing: it has none to give up.
    Unprivileged,
    /// Stay root, because `server.user` says `root`.
    Root,
    /// Stay root, because there is no user to become; [`Plan::warning`] says so.
    RootForLackOfUser,
    /// Become this user.
    Become(Account),
}

impl Plan {
    /// Returns the warning for the operator.
    #[must_use]
    pub fn warning(&self) -> Option<String> {
        matches!(self, Self::RootForLackOfUser).then(|| {
            format!(
                "runs as root: server.user is empty and there is no user \"{DEFAULT_USER}\"; make one (\"useradd --system \
                 {DEFAULT_USER}\") or name one in server.user"
            )
        })
    }
}

/// A user to become.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Account {
    /// Its name.
    pub name: String,
    /// Its number; never 0.
    pub uid: u32,
    /// Its main group, from `server.group` or of the user.
    pub gid: u32,
    /// All its groups, the main one first.
    pub groups: Vec<u32>,
}

impl Account {
    /// Whether modes and owners let it read a file, and reach it. Access control lists are not looked at.
    #[must_use]
    pub fn can_read(&self, path: &Path) -> bool {
        let Ok(path) = fs::canonicalize(path) else { return true };
        let mut ancestors = path.ancestors().enumerate();
        ancestors.all(|(depth, one)| {
            fs::metadata(one).map_or(true, |found| self.has_right(&found, if depth == 0 { 0o4 } else { 0o1 }))
        })
    }

    fn has_right(&self, of: &Metadata, right: u32) -> bool {
        let shift = match () {
            () if of.uid() == self.uid => 6,
            () if self.groups.contains(&of.gid()) => 3,
            () => 0,
        };
        (of.mode() >> shift) & right != 0
    }
}

/// Says who to become, from `server.user` and `server.group` as they are configured; both may be empty.
///
/// # Errors
/// `Config`: there is no such user or group, or the user has no group.
pub fn plan(is_root: bool, user: &str, group: &str, accounts: &Accounts) -> Result<Plan, Error> {
    if !is_root {
        return Ok(Plan::Unprivileged);
    }
    let name = if user.is_empty() { DEFAULT_USER } else { user };
    let Some(found) = accounts.user(name) else {
        if user.is_empty() {
            return Ok(Plan::RootForLackOfUser);
        }
        return Err(Error::Config(format!(
            "server.user = \"{user}\": /etc/passwd has no such user; correct the name, make the user, or give the number of a \
             user that is known elsewhere"
        )));
    };
    if found.uid == 0 {
        return Ok(Plan::Root);
    }
    let gid = if group.is_empty() {
        found.gid.ok_or_else(|| {
            Error::Config(format!(
                "server.user = \"{user}\": a user without a line in /etc/passwd; set server.group too"
            ))
        })?
    } else {
        accounts.group(group).ok_or_else(|| {
            Error::Config(format!(
                "server.group = \"{group}\": /etc/group has no such group; correct the name or make it"
            ))
        })?
    };
    let others = accounts.groups_of(&found.name).into_iter().chain(found.gid).filter(|other| *other != gid);
    let mut groups = vec![gid];
    groups.extend(others);
    Ok(Plan::Become(Account { name: found.name, uid: found.uid, gid, groups }))
}

impl Account {
    /// Makes sure that the user owns the directory that `key` names, and the files in it.
    ///
    /// A missing one is made, with mode 0700. One of root's is given to the user with its contents if it is empty or
    /// holds the file `marker`; one of the user's own is taken as it is.
    /// # Errors
    /// `Config`: the directory is root's or another user's and looks like something else. `System`: it could not be
    /// made or given away; files given away until then stay so.
    pub fn own_directory(&self, key: &str, path: &Path, marker: &str) -> Result<(), Error> {
        let failed = |what: &str, error: io::Error| {
            Error::System(format!(
                "{key} = \"{}\": {what} for user \"{}\": {error}; make it by hand and chown it",
                path.display(),
                self.name
            ))
        };
        let found = match fs::symlink_metadata(path) {
            Ok(found) if found.is_symlink() => fs::metadata(path).map_err(|error| failed("cannot be read", error))?,
            Ok(found) => found,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                make_with_parents(path)
                    .and_then(|()| self.own(path))
                    .map_err(|error| failed("cannot be made", error))?;
                return Ok(());
            }
            Err(error) => return Err(failed("cannot be read", error)),
        };
        if found.uid() == self.uid {
            return Ok(());
        }
        let entries = names(path).map_err(|error| failed("cannot be read", error))?;
        let is_ours = entries.is_empty() || entries.iter().any(|name| name == marker);
        if found.uid() != 0 || found.mode() & 0o022 != 0 || !is_ours {
            return Err(Error::Config(format!(
                "{key} = \"{}\" belongs to user {} and holds {} entries, none of them {marker}, or others may write to it; name \
                 an own directory, or \"chown -R {} {0}\" if it is right",
                path.display(),
                found.uid(),
                entries.len(),
                self.name
            )));
        }
        self.own_below(path, DEPTH_MAX).map_err(|error| failed("cannot be given away", error))
    }

    /// Makes sure that the user owns the file that `key` names, as a log; a missing one is made, with mode 0640.
    ///
    /// A file that is no regular one, has a second name or belongs to another user is left alone.
    /// # Errors
    /// `System`: it could not be made, opened or given away.
    pub fn own_file(&self, key: &str, path: &Path) -> Result<(), Error> {
        let flags =
            OFlags::CREATE | OFlags::WRONLY | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let own = || -> io::Result<()> {
            let file = fs::File::from(rustix::fs::open(path, flags, Mode::from_raw_mode(0o640))?);
            let found = file.metadata()?;
            if is_only_roots(&found) && found.is_file() {
                fchown(&file, Some(Uid::from_raw(self.uid)), Some(Gid::from_raw(self.gid)))?;
            }
            Ok(())
        };
        own().map_err(|error| {
            Error::System(format!(
                "{key} = \"{}\": {error}; make the file and its directory by hand and chown them to \"{}\"",
                path.display(),
                self.name
            ))
        })
    }

    fn own(&self, path: &Path) -> io::Result<()> {
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        Ok(chownat(CWD, path, Some(uid), Some(gid), AtFlags::SYMLINK_NOFOLLOW)?)
    }

    /// Gives away what root owns, contents first: the new owner of the directory could change them during the work.
    fn own_below(&self, path: &Path, depth: u32) -> io::Result<()> {
        for name in names(path)? {
            let entry = path.join(name);
            let found = fs::symlink_metadata(&entry)?;
            if found.is_dir() && found.uid() == 0 && found.mode() & 0o022 == 0 && depth > 0 {
                self.own_below(&entry, depth - 1)?;
            } else if found.is_file() && is_only_roots(&found) {
                self.own(&entry)?;
            }
        }
        self.own(path)
    }
}

/// Directories in directories of a spool: shards. More is not ours.
const DEPTH_MAX: u32 = 2;

fn is_only_roots(found: &Metadata) -> bool {
    found.uid() == 0 && found.nlink() == 1
}

fn names(path: &Path) -> io::Result<Vec<std::ffi::OsString>> {
    fs::read_dir(path)?.map(|entry| entry.map(|entry| entry.file_name())).collect()
}

/// The directories above stay root's, and others may pass through them whatever the umask says.
fn make_with_parents(path: &Path) -> io::Result<()> {
    let missing: Vec<&Path> = path.ancestors().skip(1).take_while(|above| !above.exists()).collect();
    for above in missing.into_iter().rev().filter(|above| !above.as_os_str().is_empty()) {
        fs::create_dir(above)?;
        fs::set_permissions(above, Permissions::from_mode(0o755))?;
    }
    fs::DirBuilder::new().mode(0o700).create(path)
}

/// Other users have no rights to files made from now on, and no program that this process starts gains rights by a
/// set-user-id bit or inherits a capability, as the one to bind low ports that a service unit gives. [`seal_memory`] is
/// part of it.
///
/// For every start, after binding, before threads. A kernel without ambient capabilities has none to inherit.
/// # Errors
/// `System`: the kernel refused.
pub fn harden() -> Result<(), Error> {
    umask(Mode::from_raw_mode(0o077));
    seal_memory()?;
    clear_ambient_capability_set().unwrap_or(());
    set_no_new_privs(true).map_err(|error| Error::System(format!("prctl(PR_SET_NO_NEW_PRIVS): {error}")))
}

/// Makes the memory of this process, with mail, keys and passwords in it, unreadable for other processes of its user,
/// and leaves no core dump of it. Child processes inherit the limit of core dumps.
///
/// For every process of the server, as root or not: a user who runs the server may have other programs too. A process
/// that becomes another user has to do it again, since the kernel decides anew at such a change (`fs.suid_dumpable`).
/// The files of `/proc/self` stay readable for the process itself.
/// # Errors
/// `System`: the kernel refused.
pub fn seal_memory() -> Result<(), Error> {
    let none = Rlimit { current: Some(0), maximum: Some(0) };
    setrlimit(Resource::Core, none).map_err(|error| Error::System(format!("setrlimit(RLIMIT_CORE): {error}")))?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable)
        .map_err(|error| Error::System(format!("prctl(PR_SET_DUMPABLE): {error}")))
}

/// Becomes the user, gives up every capability and proves that neither comes back. Without core dumps from then on.
///
/// # Errors
/// `System`: there is more than one thread, or a step was refused, or something was left. The process may then be
/// anything between root and the user: it must end.
/// # Panics
/// When the account is root's, which no plan names.
pub fn drop_to(account: &Account) -> Result<(), Error> {
    assert_ne!(account.uid, 0, "a plan never names root");
    single_thread("giving up root")?;
    let refused = |call: &'static str| {
        let name = account.name.clone();
        move |error: Errno| {
            Error::System(format!(
                "{call} on the way to user \"{name}\": {error}; start mailrace with all rights of root, or as the user"
            ))
        }
    };
    let (uid, gid) = (Uid::from_raw(account.uid), Gid::from_raw(account.gid));
    let groups: Vec<Gid> = account.groups.iter().copied().map(Gid::from_raw).collect();
    // Groups first and the user last: each step needs rights that the last one takes away.
    set_thread_groups(&groups).map_err(refused("setgroups"))?;
    set_thread_res_gid(gid, gid, gid).map_err(refused("setresgid"))?;
    clear_ambient_capability_set().map_err(refused("prctl(PR_CAP_AMBIENT)"))?;
    set_thread_res_uid(uid, uid, uid).map_err(refused("setresuid"))?;
    // Usually gone with the user id; not where secure bits keep them.
    let none = CapabilitySet::empty();
    let nothing = CapabilitySets { effective: none, permitted: none, inheritable: none };
    set_capabilities(None, nothing).map_err(refused("capset"))?;
    set_dumpable_behavior(DumpableBehavior::NotDumpable).map_err(refused("prctl(PR_SET_DUMPABLE)"))?;
    prove(account)
}

/// Looks whether anything is left of root in the calling thread. [`drop_to`] has done it.
///
/// # Errors
/// `System`: an id, a capability or a way back; or it cannot be found out.
pub fn prove(account: &Account) -> Result<(), Error> {
    let left = |what: String| {
        Err(Error::System(format!("{what} after becoming user \"{}\"; mailrace does not go on with it", account.name)))
    };
    // Real, effective, saved and file system id, as the kernel shows them.
    let status = fs::read_to_string("/proc/thread-self/status").or_else(|_| fs::read_to_string("/proc/self/status"));
    let status = status.map_err(|error| Error::System(format!("/proc/self/status: {error}; mount /proc")))?;
    for (field, id) in [("Uid:", account.uid), ("Gid:", account.gid)] {
        let line = status.lines().find_map(|line| line.strip_prefix(field)).unwrap_or_default();
        let mut ids = line.split_ascii_whitespace();
        if line.is_empty() || !ids.all(|text| text.parse() == Ok(id)) {
            return left(format!("{field}{line}"));
        }
    }
    match capabilities(None) {
        Ok(sets) if (sets.effective | sets.permitted | sets.inheritable).is_empty() => {}
        answer => return left(format!("capabilities {answer:?}")),
    }
    let mut ways_back =
        vec![set_thread_uid(Uid::ROOT), set_thread_res_uid(None, Uid::ROOT, None), set_thread_groups(&[Gid::ROOT])];
    if account.gid != 0 {
        ways_back.push(set_thread_res_gid(None, Gid::ROOT, None));
    }
    if ways_back.iter().any(Result::is_ok) {
        return left(format!("root came back ({ways_back:?})"));
    }
    Ok(())
}

/// Stops where other threads exist.
///
/// # Errors
/// `System`: there are some, or they cannot be counted.
pub(crate) fn single_thread(what: &str) -> Result<(), Error> {
    let threads = names(Path::new("/proc/self/task"))
        .map_err(|error| Error::System(format!("{what}: /proc/self/task: {error}; mount /proc")))?
        .len();
    if threads != 1 {
        return Err(Error::System(format!(
            "{what}: {threads} threads run, it must be done before the second; this is a bug of mailrace"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests;

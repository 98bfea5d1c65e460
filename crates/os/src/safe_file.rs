//! Files that decide about mail: read only where no other user than root and the server's user can have written them.
//!
//! A line of an alias file runs a program, one of the access map gives the right to relay, one of the password file is
//! a login. So a file with such lines counts only if root, the user of the server or the user who started it owns it,
//! others cannot write to it, and each directory on the way to it is as safe: a user who may write to a directory can
//! put another file in its place (sendmail's `safefile` and `safedirpath`).
//!
//! The file is opened once; owner, mode and content are those of the open descriptor. Directories are asked by name,
//! each symbolic link on the way is followed and the directories on its way are asked too. In a directory with the
//! sticky bit others can make names but not replace those of root and the server's user, so the next name on the way
//! must belong to one of these.
//!
//! A directory that another user may write to is refused before its files count, so only trusted users can change files
//! between the checks.

use super::accounts::Accounts;
use super::{machine, privileges};
use rustix::fs::OFlags;
use std::collections::BTreeSet;
use std::ffi::OsString;
use std::fmt;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _};
use std::path::{Component, Path, PathBuf};

/// Symbolic links on one way; as the kernel counts them.
const LINKS_MAX: usize = 40;

/// The owners whose files are trusted, and how group write permission is judged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Trust {
    owners: BTreeSet<u32>,
    group: GroupWrite,
}

/// Which groups may have write permission.
#[derive(Clone, Debug, PartialEq, Eq)]
enum GroupWrite {
    /// None, as in sendmail.
    No,
    /// Root's group, and that of the server.
    Of(BTreeSet<u32>),
    /// Any: `maps.group_writable`.
    Any,
}

/// Why a file does not count. The text names the object, its owner and mode, and what to run.
#[derive(Debug)]
pub enum Refusal {
    /// It cannot be opened or asked.
    Io(io::Error),
    /// Another user could have written it.
    Unsafe(String),
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Io(error) => error.fmt(f),
            Self::Unsafe(text) => f.write_str(text),
        }
    }
}

impl From<io::Error> for Refusal {
    fn from(error: io::Error) -> Self {
        Self::Io(error)
    }
}

impl GroupWrite {
    fn of_maps(group_writable: bool) -> Self {
        if group_writable { Self::Any } else { Self::No }
    }
}

impl Trust {
    /// For maps and lists of this process, with its rights as they are now, where `server.user` and `server.group` are
    /// these.
    #[must_use]
    pub fn maps(user: &str, group: &str, group_writable: bool) -> Self {
        let account = account(user, group).filter(|_| machine::is_root());
        Self { owners: owners(account.as_ref()), group: GroupWrite::of_maps(group_writable) }
    }

    /// The same for a command that looks at the configuration of a server with a user of its own.
    #[must_use]
    pub fn maps_of_server(user: &str, group: &str, group_writable: bool) -> Self {
        Self { owners: owners(account(user, group).as_ref()), group: GroupWrite::of_maps(group_writable) }
    }

    /// For passwords and the configuration, of the server with this `server.user` and `server.group`: root's group and
    /// that of the server may write.
    pub fn secrets(user: &str, group: &str) -> Self {
        let account = account(user, group);
        let gid = account.as_ref().map(|account| account.gid);
        let groups = [Some(0), Some(rustix::process::getegid().as_raw()), gid].into_iter().flatten().collect();
        Self { owners: owners(account.as_ref()), group: GroupWrite::Of(groups) }
    }

    /// Opens a regular file for reading, if no other user could have written it. Never waits for a pipe or a terminal.
    ///
    /// # Errors
    /// It cannot be opened, is no regular file, or is not safe.
    pub fn open(&self, path: &Path) -> Result<(File, Metadata), Refusal> {
        let flags = OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let file = File::options().read(true).custom_flags(flags.bits().cast_signed()).open(path)?;
        let found = file.metadata()?;
        if !found.is_file() {
            return Err(Refusal::Unsafe(format!("{} is no regular file; name one", path.display())));
        }
        if let Some(why) = self.of_file(path, &found).or_else(|| self.of_directories(path)) {
            return Err(Refusal::Unsafe(why));
        }
        Ok((file, found))
    }

    /// Why a file that was opened before, or is only named, would not count now; `None`: it would.
    pub fn complaint(&self, path: &Path) -> Option<String> {
        let found = std::fs::metadata(path).ok()?;
        self.of_file(path, &found).or_else(|| self.of_directories(path))
    }

    fn of_file(&self, path: &Path, found: &Metadata) -> Option<String> {
        self.of_object("", path, found, false)
    }

    /// `what`: "the directory " or nothing. `is_sticky`: others may make names in it, and not replace those of others.
    fn of_object(&self, what: &str, path: &Path, found: &Metadata, is_sticky: bool) -> Option<String> {
        let (mode, shown) = (found.mode(), path.display());
        let as_it_is = format!("owner {}, group {}, mode {:04o}", owner(found.uid()), found.gid(), mode & 0o7777);
        if !self.owners.contains(&found.uid()) {
            let others = "neither root nor the user of mailrace";
            return Some(format!("{what}{shown} ({as_it_is}) belongs to {others}: run \"chown root {shown}\""));
        }
        if is_sticky {
            return None;
        }
        if mode & 0o002 != 0 {
            return Some(format!("{what}{shown} ({as_it_is}) can be written by everybody: run \"chmod go-w {shown}\""));
        }
        if mode & 0o020 != 0 && !self.trusts_group(found.gid()) {
            let key = if self.group == GroupWrite::No {
                ", or set maps.group_writable = true if its members are trusted"
            } else {
                ""
            };
            return Some(format!(
                "{what}{shown} ({as_it_is}) can be written by its group: run \"chmod g-w {shown}\"{key}"
            ));
        }
        None
    }

    fn trusts_group(&self, gid: u32) -> bool {
        match &self.group {
            GroupWrite::No => false,
            GroupWrite::Of(groups) => groups.contains(&gid),
            GroupWrite::Any => true,
        }
    }

    /// Asks every directory on the way to a file, from the root, through links.
    fn of_directories(&self, path: &Path) -> Option<String> {
        match self.walk(path) {
            Ok(complaint) => complaint,
            Err(error) => Some(format!("the directories above {} cannot be looked at: {error}", path.display())),
        }
    }

    fn walk(&self, path: &Path) -> io::Result<Option<String>> {
        let mut rest = parts(&std::path::absolute(path)?);
        let mut at = PathBuf::from("/");
        let mut links = 0;
        loop {
            let found = std::fs::symlink_metadata(&at)?;
            if !found.is_dir() {
                return Ok(None);
            }
            let is_sticky = found.mode() & 0o1000 != 0;
            if let Some(why) = self.of_object("the directory ", &at, &found, is_sticky) {
                return Ok(Some(why));
            }
            let Some(name) = rest.pop() else { return Ok(None) };
            if name == ".." {
                at.pop();
                continue;
            }
            let next = at.join(&name);
            let entry = std::fs::symlink_metadata(&next)?;
            if is_sticky && found.mode() & 0o022 != 0 && !self.owners.contains(&entry.uid()) {
                let text = format!(
                    "{} (owner {}) lies in {}, where everybody can make files: run \"chown -h root {0}\", or name another place",
                    next.display(),
                    owner(entry.uid()),
                    at.display()
                );
                return Ok(Some(text));
            }
            if !entry.is_symlink() {
                at = next;
                continue;
            }
            links += 1;
            if links > LINKS_MAX {
                return Err(io::Error::other("too many symbolic links"));
            }
            let target = std::fs::read_link(&next)?;
            if target.is_absolute() {
                at = PathBuf::from("/");
            }
            rest.extend(parts(&target));
        }
    }
}

/// The names of a path, the last one first.
fn parts(path: &Path) -> Vec<OsString> {
    let names = path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some("..".into()),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    });
    let mut names: Vec<OsString> = names.collect();
    names.reverse();
    names
}

/// Root, the user who started this process, the one it is, and the one that the server becomes.
fn owners(server: Option<&privileges::Account>) -> BTreeSet<u32> {
    let own = [0, rustix::process::getuid().as_raw(), rustix::process::geteuid().as_raw()];
    own.into_iter().chain(server.map(|account| account.uid)).collect()
}

/// The user that a start as root becomes.
fn account(user: &str, group: &str) -> Option<privileges::Account> {
    let accounts = Accounts::read().ok()?;
    match privileges::plan(true, user, group, &accounts) {
        Ok(privileges::Plan::Become(account)) => Some(account),
        _ => None,
    }
}

fn owner(uid: u32) -> String {
    let name = Accounts::read().ok().and_then(|accounts| accounts.login_of(uid)).map(|login| login.name);
    name.map_or_else(|| uid.to_string(), |name| format!("{name} ({uid})"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{AtFlags, CWD, Uid, chownat};
    use std::fs::{self, Permissions};
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    /// The id of another user, in tests that root runs.
    const OTHER: u32 = 54_321;

    fn trust(group: GroupWrite) -> Trust {
        Trust { owners: [0, rustix::process::geteuid().as_raw()].into(), group }
    }

    fn mode(path: &Path, mode: u32) {
        fs::set_permissions(path, Permissions::from_mode(mode)).unwrap();
    }

    fn give(path: &Path) {
        chownat(CWD, path, Some(Uid::from_raw(OTHER)), None, AtFlags::SYMLINK_NOFOLLOW).unwrap();
    }

    fn refused(trust: &Trust, path: &Path) -> Option<String> {
        let opened = trust.open(path).err().map(|refusal| refusal.to_string());
        assert_eq!(opened, trust.complaint(path), "the open file and its name are judged alike");
        opened
    }

    #[test]
    fn modes_of_files_and_directories() {
        let place = tempfile::tempdir().unwrap();
        let (directory, file) = (place.path().join("mail"), place.path().join("mail/aliases"));
        fs::create_dir(&directory).unwrap();
        fs::write(&file, "root: joe\n").unwrap();
        let own = rustix::process::getegid().as_raw();
        let (no, own, any) = (trust(GroupWrite::No), trust(GroupWrite::Of([own].into())), trust(GroupWrite::Any));
        let stranger = trust(GroupWrite::Of([OTHER].into()));
        for (of_directory, of_file, expected) in [
            (0o755, 0o644, [true; 4]),
            (0o755, 0o444, [true; 4]),
            (0o700, 0o600, [true; 4]),
            (0o755, 0o646, [false; 4]),
            (0o755, 0o666, [false; 4]),
            (0o755, 0o664, [false, true, true, false]),
            (0o777, 0o644, [false; 4]),
            (0o757, 0o644, [false; 4]),
            (0o775, 0o644, [false, true, true, false]),
            // Others can make names in it, and not replace ours.
            (0o1777, 0o644, [true; 4]),
            (0o1777, 0o646, [false; 4]),
        ] {
            mode(&file, of_file);
            mode(&directory, of_directory);
            let found = [&no, &own, &any, &stranger].map(|trust| refused(trust, &file).is_none());
            assert_eq!(found, expected, "{of_directory:o} {of_file:o}");
        }
        mode(&file, 0o644);
        mode(&directory, 0o777);
        let text = refused(&no, &file).unwrap();
        for part in ["the directory ", &directory.display().to_string(), "mode 0777", "by everybody", "chmod go-w "] {
            assert!(text.contains(part), "{text}");
        }
        // A directory further up counts as well, and the control is the same file without that.
        mode(&directory, 0o755);
        assert_eq!(refused(&no, &file), None);
        mode(place.path(), 0o722);
        assert!(refused(&no, &file).is_some_and(|text| text.contains(&place.path().display().to_string())));
    }

    #[test]
    fn what_is_no_file_is_not_waited_for() {
        let place = tempfile::tempdir().unwrap();
        let pipe = place.path().join("pipe");
        rustix::fs::mknodat(CWD, &pipe, rustix::fs::FileType::Fifo, rustix::fs::Mode::RUSR, 0).unwrap();
        let trust = trust(GroupWrite::No);
        for path in [&pipe, place.path(), Path::new("/dev/null")] {
            assert!(matches!(trust.open(path), Err(Refusal::Unsafe(_))), "{path:?}");
        }
        assert!(matches!(trust.open(&place.path().join("nothing")), Err(Refusal::Io(_))));
    }

    #[test]
    fn links_lead_through_directories_that_count() {
        let place = tempfile::tempdir().unwrap();
        let [open, safe] = ["open", "safe"].map(|name| place.path().join(name));
        for directory in [&open, &safe] {
            fs::create_dir(directory).unwrap();
            fs::write(directory.join("aliases"), "").unwrap();
        }
        symlink("../safe/aliases", open.join("link")).unwrap();
        symlink("../open/aliases", safe.join("away")).unwrap();
        symlink(safe.join("aliases"), safe.join("here")).unwrap();
        symlink(safe.join("loop"), safe.join("loop")).unwrap();
        let trust = trust(GroupWrite::No);
        for name in ["open/link", "safe/away", "safe/here", "safe/../safe/here"] {
            assert_eq!(refused(&trust, &place.path().join(name)), None, "{name}: the control");
        }
        mode(&open, 0o777);
        for name in ["open/link", "safe/away", "open/../safe/aliases"] {
            assert!(refused(&trust, &place.path().join(name)).is_some(), "{name}");
        }
        assert_eq!(refused(&trust, &safe.join("here")), None);
        assert!(trust.open(&safe.join("loop")).is_err());
    }

    #[test]
    fn owners() {
        if !machine::is_root() {
            return;
        }
        let place = tempfile::tempdir().unwrap();
        let (directory, file) = (place.path().join("d"), place.path().join("d/aliases"));
        fs::create_dir(&directory).unwrap();
        fs::write(&file, "").unwrap();
        let no = trust(GroupWrite::No);
        assert_eq!(refused(&no, &file), None);
        give(&file);
        let text = refused(&no, &file).unwrap();
        assert!(text.contains("owner 54321") && text.contains("chown root "), "{text}");
        let theirs = Trust { owners: [0, OTHER].into(), group: GroupWrite::No };
        assert_eq!(refused(&theirs, &file), None, "it may be the user of the server");
        // A directory of another user, with a file of root's in it.
        let other = directory.join("other");
        fs::write(&other, "").unwrap();
        give(&directory);
        assert!(refused(&no, &other).is_some_and(|text| text.starts_with("the directory ")));
        // A link that a user made in a sticky directory could lead elsewhere tomorrow.
        let sticky = place.path().join("sticky");
        fs::create_dir(&sticky).unwrap();
        mode(&sticky, 0o1777);
        fs::write(place.path().join("real"), "").unwrap();
        symlink("../real", sticky.join("link")).unwrap();
        assert_eq!(refused(&no, &sticky.join("link")), None, "the control: root's link");
        give(&sticky.join("link"));
        assert!(refused(&no, &sticky.join("link")).is_some_and(|text| text.contains("chown -h root")));
    }
}

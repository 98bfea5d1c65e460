//! Opens a file that a user may have named, so that a link, a race or a special file does not lead to another file or
//! hang the reader.
//!
//! The name is walked from the root, each directory by the descriptor of the one before, and every check asks a
//! descriptor: a change in between is either noticed, or the file is another one with an owner of its own.
//!
//! A user may put there:
//!
//! - a link: refused. A link of root in a directory that root alone can write counts (`/home -> /data/home`); its
//!   text is walked like a name, so a magic link of `/proc` leads nowhere.
//! - a FIFO, a device, a socket, a directory: refused before it is opened; one that comes in between is opened
//!   without waiting, and refused then.
//! - another user's file, by a second name: refused, as a file that is not root's has one name.
//! - another user's file, by `rename` into his own directory: refused, as a directory belongs to root, the user, or
//!   the owner of the file.
//! - a directory that every user can write: refused, as sendmail does; one with the sticky bit (`/tmp`) counts if the
//!   next name in it belongs to root, the user or the owner of the file.
//!
//! With [`Acting::Itself`] the kernel decides which files may be read, since the process is the user. In all other
//! cases the process may read more than the user for whom it reads, so the modes decide: the file, and every
//! directory of its path, must be open to every user, or belong to that one.

use rustix::fd::OwnedFd;
use rustix::fs::{Mode, OFlags, RawMode, Stat, fstat, open, openat, readlinkat};
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Component, Path, PathBuf};

/// Links that one name may lead over.
const LINKS_MAX: usize = 20;
/// Directories of a path, at most.
const COMPONENTS_MAX: usize = 200;

/// Attributes that tell a version of a file from another one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Stamp {
    pub(super) device: u64,
    pub(super) inode: u64,
    pub(super) size: u64,
    /// Seconds and nanoseconds: `written` of the text; `changed` of text and attributes, which no user can set.
    pub(super) written: [i64; 2],
    pub(super) changed: [i64; 2],
    pub(super) mode: u32,
    pub(super) uid: u32,
}

impl Stamp {
    #[allow(clippy::unnecessary_cast, clippy::useless_conversion, reason = "the types differ between machines")]
    pub(super) fn of(found: &Stat) -> Self {
        Self {
            device: found.st_dev as u64,
            inode: found.st_ino as u64,
            size: u64::try_from(found.st_size).unwrap_or(0),
            written: [found.st_mtime as i64, found.st_mtime_nsec as i64],
            changed: [found.st_ctime as i64, found.st_ctime_nsec as i64],
            mode: found.st_mode as u32,
            uid: found.st_uid,
        }
    }
}

/// The user for whom a process reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Acting {
    /// The process has become the user.
    Itself,
    /// The process reads for another user.
    For(u32),
    /// For an unknown author of the text: only files that every user can read.
    ForAnyone,
    /// For the administrator, who names the file in an alias. A file that root and the server alone can write counts,
    /// though others cannot read it.
    ForAliases,
}

/// Rules by which a file counts.
#[derive(Clone, Debug)]
pub(super) struct Rules {
    pub(super) acting: Acting,
    /// Users that count as much as root for directories of the path.
    pub(super) trusted: Vec<u32>,
    /// Whether the file may belong to others than root and the trusted users: its owner then decides whose programs
    /// it may name.
    pub(super) any_owner: bool,
}

impl Rules {
    fn trusts(&self, uid: u32) -> bool {
        uid == 0 || self.trusted.contains(&uid)
    }
}

/// A file that counts.
#[derive(Debug)]
pub(super) struct OpenedFile {
    pub(super) file: File,
    pub(super) stamp: Stamp,
    /// Only its owner and root can change it, so programs and files of its owner may stand in it.
    pub(super) is_exclusive: bool,
}

/// Why there is no text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum FileError {
    /// There is no such file.
    Absent,
    /// This process may not read it.
    Denied,
    /// The file counts for nothing: its defect and the next step, without any of its text.
    Refused(String),
    /// The file cannot be judged now.
    Trouble(String),
}

impl FileError {
    pub(super) fn of(path: &Path, error: Errno) -> Self {
        match error {
            Errno::NOENT | Errno::NOTDIR => Self::Absent,
            Errno::ACCESS | Errno::PERM => Self::Denied,
            Errno::NAMETOOLONG | Errno::INVAL => Self::Refused(format!("{}: {error}", path.display())),
            Errno::LOOP => Self::Refused(format!("{} is a link; name the file itself", path.display())),
            Errno::NXIO | Errno::NODEV => Self::Refused(format!("{} is no regular file", path.display())),
            _ => Self::Trouble(format!("{}: {error}", path.display())),
        }
    }
}

/// A directory of the path.
struct PathDirectory {
    at: OwnedFd,
    path: PathBuf,
    found: Stat,
}

const fn mode_of(found: &Stat) -> RawMode {
    found.st_mode
}

fn is_kind(found: &Stat, kind: rustix::fs::FileType) -> bool {
    rustix::fs::FileType::from_raw_mode(found.st_mode) == kind
}

/// Returns whether others than the owner and root can write it.
const fn is_shared(found: &Stat) -> bool {
    mode_of(found) & 0o002 != 0 || (mode_of(found) & 0o020 != 0 && found.st_gid != 0)
}

const fn is_sticky(found: &Stat) -> bool {
    mode_of(found) & 0o1000 != 0
}

/// The path of a file as far as it was walked.
struct Walk<'r> {
    rules: &'r Rules,
    /// From the root on.
    directories: Vec<PathDirectory>,
    /// Users that can put another file there, each with the place: root, trusted users, or the owner of the file.
    powers: Vec<(u32, PathBuf)>,
    /// Names that are still to come, the next one last.
    rest: Vec<OsString>,
    links: usize,
    /// No group can change a directory of the path.
    is_exclusive: bool,
}

/// Opens a file if it counts. Blocks, and on a file system that does not answer for as long as that takes.
///
/// # Errors
/// There is none that counts.
pub(super) fn open_file(path: &Path, rules: &Rules) -> Result<OpenedFile, FileError> {
    if !path.is_absolute() {
        return Err(FileError::Refused(format!(
            "{} is no full name of a file; write it from the slash on",
            path.display()
        )));
    }
    let mut walk = Walk::new(path, rules)?;
    loop {
        let Some(name) = walk.rest.pop() else {
            return Err(FileError::Refused(format!("{} is a directory", path.display())));
        };
        if let Some(opened) = walk.step(&name)? {
            return Ok(opened);
        }
    }
}

fn names(path: &Path) -> impl DoubleEndedIterator<Item = OsString> {
    path.components().filter_map(|part| match part {
        Component::Normal(name) => Some(name.to_owned()),
        Component::ParentDir => Some(OsString::from("..")),
        Component::RootDir | Component::CurDir | Component::Prefix(_) => None,
    })
}

impl<'r> Walk<'r> {
    fn new(path: &Path, rules: &'r Rules) -> Result<Self, FileError> {
        let root = Path::new("/");
        let flags = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let at = open(root, flags, Mode::empty()).map_err(|error| FileError::of(root, error))?;
        let found = fstat(&at).map_err(|error| FileError::of(root, error))?;
        let mut walk = Self {
            rules,
            directories: Vec::new(),
            powers: Vec::new(),
            rest: names(path).rev().collect(),
            links: 0,
            is_exclusive: true,
        };
        walk.enter(PathDirectory { at, path: root.to_owned(), found })?;
        Ok(walk)
    }

    fn here(&self) -> Result<&PathDirectory, FileError> {
        self.directories.last().ok_or(FileError::Absent)
    }

    /// Takes the next name. Returns the file, if the name is that of the file.
    fn step(&mut self, name: &OsStr) -> Result<Option<OpenedFile>, FileError> {
        if name == ".." {
            if self.directories.len() > 1 {
                self.directories.pop();
            }
            return Ok(None);
        }
        let here = self.here()?;
        let path = here.path.join(name);
        let at = openat(&here.at, name, OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC, Mode::empty());
        let at = at.map_err(|error| FileError::of(&path, error))?;
        let found = fstat(&at).map_err(|error| FileError::of(&path, error))?;
        if is_shared(&here.found) && is_sticky(&here.found) {
            self.powers.push((found.st_uid, path.clone()));
        }
        match rustix::fs::FileType::from_raw_mode(found.st_mode) {
            rustix::fs::FileType::Symlink => self.follow(&at, &path, &found).map(|()| None),
            rustix::fs::FileType::Directory => self.enter(PathDirectory { at, path, found }).map(|()| None),
            _ if !self.rest.is_empty() => Err(FileError::Absent),
            rustix::fs::FileType::RegularFile => self.open(name, &path).map(Some),
            _ => Err(FileError::Refused(format!("{} is no regular file", path.display()))),
        }
    }

    /// Enters a directory, if files in it can count.
    fn enter(&mut self, directory: PathDirectory) -> Result<(), FileError> {
        let PathDirectory { path, found, .. } = &directory;
        let (name, mode) = (path.display(), mode_of(found) & 0o7777);
        if self.directories.len() >= COMPONENTS_MAX {
            return Err(FileError::Refused(format!("{name}: more than {COMPONENTS_MAX} directories")));
        }
        if is_shared(found) && !is_sticky(found) {
            if mode & 0o002 != 0 {
                let text = format!("every user can write the directory {name} (mode {mode:o}); chmod o-w {name}");
                return Err(FileError::Refused(text));
            }
            if !self.rules.any_owner {
                let text = format!(
                    "the group {} can write the directory {name} (mode {mode:o}); chmod g-w {name}",
                    found.st_gid
                );
                return Err(FileError::Refused(text));
            }
            self.is_exclusive = false;
        }
        let is_open = match self.rules.acting {
            Acting::Itself | Acting::ForAliases => true,
            Acting::For(uid) => mode & 0o001 != 0 || found.st_uid == uid,
            Acting::ForAnyone => mode & 0o001 != 0,
        };
        if !is_open {
            return Err(FileError::Denied);
        }
        self.powers.push((found.st_uid, path.clone()));
        self.directories.push(directory);
        Ok(())
    }

    /// Follows a link, if root has made it where no other user can make one.
    fn follow(&mut self, link: &OwnedFd, path: &Path, found: &Stat) -> Result<(), FileError> {
        let here = self.here()?;
        if found.st_uid != 0 || here.found.st_uid != 0 || is_shared(&here.found) {
            return Err(FileError::Refused(format!(
                "{} is a link, which only root may make; name the file itself",
                path.display()
            )));
        }
        self.links += 1;
        if self.links > LINKS_MAX {
            return Err(FileError::Refused(format!("{}: more than {LINKS_MAX} links", path.display())));
        }
        let target = readlinkat(link, "", Vec::new()).map_err(|error| FileError::of(path, error))?;
        let target = Path::new(OsStr::from_bytes(target.as_bytes()));
        if target.is_absolute() {
            self.directories.truncate(1);
        }
        self.rest.extend(names(target).rev());
        Ok(())
    }

    /// Opens the file itself, and judges it by its descriptor.
    fn open(&self, name: &OsStr, path: &Path) -> Result<OpenedFile, FileError> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::NOCTTY | OFlags::CLOEXEC;
        let opened = openat(&self.here()?.at, name, flags, Mode::empty());
        let opened = opened.map_err(|error| FileError::of(path, error))?;
        let found = fstat(&opened).map_err(|error| FileError::of(path, error))?;
        self.judge(path, &found)?;
        let is_exclusive = self.is_exclusive && !is_shared(&found);
        Ok(OpenedFile { file: opened.into(), stamp: Stamp::of(&found), is_exclusive })
    }

    fn judge(&self, path: &Path, found: &Stat) -> Result<(), FileError> {
        let (name, mode, uid) = (path.display(), mode_of(found) & 0o7777, found.st_uid);
        let refused = |text: String| Err(FileError::Refused(text));
        if !is_kind(found, rustix::fs::FileType::RegularFile) {
            return refused(format!("{name} is no regular file"));
        }
        if mode & 0o002 != 0 {
            return refused(format!("every user of this host can write it; chmod o-w {name} (its mode is {mode:o})"));
        }
        if !self.rules.any_owner && !self.rules.trusts(uid) {
            return refused(format!("{name} belongs to the user {uid}, and not to its own user or root; chown it"));
        }
        // Users may be able to link files here that they cannot read; where root alone puts names, a file may have
        // several.
        let is_named_by_root = uid == 0 && self.powers.iter().all(|(power, _)| *power == 0);
        if found.st_nlink != 1 && !is_named_by_root {
            return refused(format!("{name} has {} names (hard links); copy it", found.st_nlink));
        }
        let is_owner = |power: u32| self.rules.any_owner && power == uid;
        if let Some((other, place)) =
            self.powers.iter().find(|(power, _)| !self.rules.trusts(*power) && !is_owner(*power))
        {
            let place = place.display();
            return refused(format!(
                "{place} belongs to the user {other}, who can put another file in the place of {name}; chown {place}"
            ));
        }
        let is_open = match self.rules.acting {
            Acting::Itself => true,
            Acting::For(reader) => mode & 0o004 != 0 || uid == reader,
            Acting::ForAnyone => mode & 0o004 != 0,
            // Only the administrator can have put the file there; or it is open to all, and so are its directories.
            Acting::ForAliases => self.is_administered(uid) || self.is_public(mode),
        };
        if is_open { Ok(()) } else { Err(FileError::Denied) }
    }

    fn is_administered(&self, uid: u32) -> bool {
        self.is_exclusive && self.rules.trusts(uid) && self.powers.iter().all(|(power, _)| self.rules.trusts(*power))
    }

    fn is_public(&self, mode: u32) -> bool {
        mode & 0o004 != 0 && self.directories.iter().all(|directory| mode_of(&directory.found) & 0o001 != 0)
    }
}

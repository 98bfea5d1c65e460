//! The pickup directory and the socket in it: made with the rights that protect the files of users there.
//!
//! Any user can make files, links, FIFOs and directories in it, under any name, also under one that is ours. Names
//! are octets, links are not followed, and an entry of a user under a name of ours is removed, or renamed if it
//! cannot be removed: the directory is ours, so that a user cannot keep a name.

use super::BAD;
use crate::submit::{DIRECTORY_MODE, FULL, SOCKET};
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid, fchown, openat, renameat, unlinkat};
use rustix::io::Errno;
use std::ffi::{CStr, CString};
use std::fs::{DirBuilder, File, Permissions};
use std::io::{self, Read as _, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// Tries to make the socket while another user makes its name.
const BIND_TRIES: usize = 100;

/// The directory, open.
#[derive(Debug)]
pub(crate) struct PickupDirectory {
    path: PathBuf,
    opened: OwnedFd,
}

impl PickupDirectory {
    /// Makes the directory if it is missing, gives it to `owner` (user and group; else it is our own) and sets its
    /// mode.
    ///
    /// # Errors
    /// It cannot be opened, or belongs to another user.
    pub(crate) fn open(path: &Path, owner: Option<(u32, u32)>) -> io::Result<Self> {
        if let Err(error) = DirBuilder::new().mode(0o700).create(path)
            && error.kind() != io::ErrorKind::AlreadyExists
        {
            return Err(error);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = File::from(rustix::fs::open(path, flags, Mode::empty())?);
        let (found, ours) = (opened.metadata()?, rustix::process::geteuid().as_raw());
        let wanted = owner.map_or(ours, |(uid, _)| uid);
        if ![wanted, ours].contains(&found.uid()) {
            return Err(io::Error::other(format!("it belongs to user {}, not to {wanted}", found.uid())));
        }
        if let Some((uid, gid)) = owner {
            fchown(&opened, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?;
        }
        // After the owner: a change of owner takes the set-group-id bit away. A service may be forbidden to set that
        // bit (RestrictSUIDSGID=), and then the directory was made for it.
        if opened.metadata()?.permissions().mode() & 0o7777 != DIRECTORY_MODE {
            opened.set_permissions(Permissions::from_mode(DIRECTORY_MODE))?;
        }
        Ok(Self { path: path.to_owned(), opened: opened.into() })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the socket, for the runtime: when the spool is open, whose lock keeps a second server away from the same
    /// mail.
    pub(super) fn listener(&self) -> io::Result<tokio::net::UnixListener> {
        let socket = self.bind()?;
        socket.set_nonblocking(true)?;
        tokio::net::UnixListener::from_std(socket)
    }

    /// Makes the socket. Replaces one that a killed server left, and any other entry of that name.
    fn bind(&self) -> io::Result<UnixListener> {
        let path = self.path.join(SOCKET);
        let mut bound = Err(io::ErrorKind::AddrInUse.into());
        // Another user may create the name again and again.
        for _ in 0..BIND_TRIES {
            self.free(SOCKET)?;
            bound = UnixListener::bind(&path);
            if bound.as_ref().err().is_none_or(|error| error.kind() != io::ErrorKind::AddrInUse) {
                break;
            }
        }
        let listener = bound?;
        // Any user may connect; the server decides by the user what he may ask. From here on no other user can replace
        // it.
        std::fs::set_permissions(&path, Permissions::from_mode(0o666))?;
        Ok(listener)
    }

    /// Returns the names in it, one after the other. Blocks.
    pub(super) fn names(&self) -> io::Result<impl Iterator<Item = io::Result<CString>>> {
        let entries = rustix::fs::Dir::read_from(&self.opened)?;
        let names = entries.map(|entry| entry.map(|entry| entry.file_name().to_owned()));
        let is_other = |name: &rustix::io::Result<CString>| {
            !name.as_ref().is_ok_and(|name| [&b"."[..], b".."].contains(&name.as_bytes()))
        };
        Ok(names.filter(is_other).map(|name| name.map_err(io::Error::from)))
    }

    /// Returns when a name in it was last made, changed or removed: seconds since 1970, and nanoseconds. Blocks.
    pub(super) fn changed(&self) -> io::Result<(i64, i64)> {
        let found = rustix::fs::fstat(&self.opened)?;
        Ok((found.st_mtime, i64::try_from(found.st_mtime_nsec).unwrap_or(0)))
    }

    /// Returns the owner of the entry with this name and the time of its last change. Blocks.
    pub(super) fn entry(&self, name: &CStr) -> io::Result<PickupEntry> {
        let found = rustix::fs::statat(&self.opened, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(PickupEntry { uid: found.st_uid, changed: u64::try_from(found.st_ctime).unwrap_or(0) })
    }

    /// Removes the entry with this name, of any kind. Blocks.
    ///
    /// # Errors
    /// Among others, a directory that is not empty stays.
    pub(super) fn remove_any(&self, name: &CStr) -> io::Result<()> {
        match unlinkat(&self.opened, name, AtFlags::empty()) {
            Err(Errno::ISDIR | Errno::PERM) => Ok(unlinkat(&self.opened, name, AtFlags::REMOVEDIR)?),
            Err(Errno::NOENT) => Ok(()),
            done => Ok(done?),
        }
    }

    /// Renames an entry to a name that the server does not look at: this, or one that no other user can have taken.
    /// Blocks.
    pub(super) fn put_aside(&self, name: &str, aside: String) -> io::Result<String> {
        if self.rename(name, &aside).is_ok() {
            return Ok(aside);
        }
        let other = format!("{BAD}{}", random_digits()?);
        self.rename(name, &other).map(|()| other)
    }

    /// Makes a name free. Blocks.
    fn free(&self, name: &str) -> io::Result<()> {
        let octets = CString::new(name)?;
        match self.remove_any(&octets) {
            Ok(()) => Ok(()),
            // Another user may have made a directory of that name and filled it; any other name will do.
            Err(_) => self.rename(name, &format!("{BAD}{}", random_digits()?)),
        }
    }

    /// Writes the users that are at their limits; an empty text removes the file. Blocks.
    ///
    /// Replaces an entry that another user has made under that name: the directory is ours.
    pub(super) fn set_full(&self, text: &str) -> io::Result<()> {
        if text.is_empty() {
            return self.free(FULL);
        }
        let new = format!("{FULL}.new");
        self.free(&new)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(openat(&self.opened, &new, flags, Mode::from_raw_mode(0o644))?);
        // Every user may read it, whatever the umask.
        file.set_permissions(Permissions::from_mode(0o644))?;
        file.write_all(text.as_bytes())?;
        if renameat(&self.opened, &new, &self.opened, FULL).is_err() {
            self.free(FULL)?;
            renameat(&self.opened, &new, &self.opened, FULL)?;
        }
        Ok(())
    }

    /// Renames a file in it. Blocks.
    pub(super) fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        Ok(renameat(&self.opened, from, &self.opened, to)?)
    }

    /// Removes a file from it. Blocks.
    pub(super) fn remove(&self, name: &str) -> io::Result<()> {
        Ok(unlinkat(&self.opened, name, AtFlags::empty())?)
    }
}

impl AsFd for PickupDirectory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.opened.as_fd()
    }
}

/// Attributes of an entry of the directory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PickupEntry {
    pub(super) uid: u32,
    /// Seconds since 1970; users cannot set this time back or ahead.
    pub(super) changed: u64,
}

/// Returns thirty-two digits that users cannot guess.
fn random_digits() -> io::Result<String> {
    let mut random = [0_u8; 16];
    File::open("/dev/urandom")?.read_exact(&mut random)?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt as _;

    #[test]
    fn the_directory_has_its_mode_whatever_was_there() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("pickup");
        for _ in 0..2 {
            let directory = PickupDirectory::open(&path, None).unwrap();
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, DIRECTORY_MODE);
            for _ in 0..2 {
                directory.bind().unwrap();
            }
            std::fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
        }
        std::os::unix::fs::symlink(&path, place.path().join("link")).unwrap();
        assert!(PickupDirectory::open(&place.path().join("link"), None).is_err(), "no link is followed");
        assert!(PickupDirectory::open(&place.path().join("a/b"), None).is_err(), "directories above are not made");
        std::fs::write(place.path().join("file"), "").unwrap();
        assert!(PickupDirectory::open(&place.path().join("file"), None).is_err());
    }

    #[test]
    fn who_may_hand_in_no_more_is_ours_to_say() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("pickup");
        let directory = PickupDirectory::open(&path, None).unwrap();
        let full = path.join(FULL);
        for squatter in ["nothing", "file", "directory", "filled directory", "link"] {
            match squatter {
                "file" => std::fs::write(&full, "all 1\n").unwrap(),
                "directory" => std::fs::create_dir(&full).unwrap(),
                "filled directory" => std::fs::create_dir_all(full.join("of somebody")).unwrap(),
                "link" => std::os::unix::fs::symlink("/etc/passwd", &full).unwrap(),
                _ => {}
            }
            directory.set_full("1000 5\n").unwrap();
            assert_eq!(std::fs::read_to_string(&full).unwrap(), "1000 5\n", "{squatter}");
            assert_eq!(full.symlink_metadata().unwrap().permissions().mode() & 0o777, 0o644);
            directory.set_full("").unwrap();
            assert!(!full.exists());
            directory.set_full("").unwrap();
        }
    }

    #[test]
    fn the_socket_is_ours_to_make() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("pickup");
        let directory = PickupDirectory::open(&path, None).unwrap();
        let socket = path.join(SOCKET);
        std::fs::create_dir_all(socket.join("of somebody")).unwrap();
        let listener = directory.bind().unwrap();
        let filled = |name: &CString| path.join(name.to_str().unwrap()).join("of somebody").exists();
        assert!(directory.names().unwrap().map(Result::unwrap).any(|name| filled(&name)), "it has another name");
        drop(listener);
        std::fs::remove_file(&socket).unwrap();
        std::os::unix::fs::symlink("/etc/passwd", &socket).unwrap();
        directory.bind().unwrap();
        assert_eq!(socket.symlink_metadata().unwrap().permissions().mode() & 0o777, 0o666);
    }

    #[test]
    fn any_name_can_be_removed() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("pickup");
        let directory = PickupDirectory::open(&path, None).unwrap();
        let odd = std::ffi::OsStr::from_bytes(b"mail.\xff\n\x1b[2J");
        std::fs::write(path.join(odd), "").unwrap();
        std::fs::create_dir(path.join("directory")).unwrap();
        std::os::unix::fs::symlink("/", path.join("link")).unwrap();
        rustix::fs::mknodat(rustix::fs::CWD, path.join("fifo"), rustix::fs::FileType::Fifo, Mode::RUSR, 0).unwrap();
        let names: Vec<CString> = directory.names().unwrap().map(Result::unwrap).collect();
        assert_eq!(names.len(), 4);
        for name in names {
            assert_eq!(directory.entry(&name).unwrap().uid, os::machine::uid());
            directory.remove_any(&name).unwrap();
        }
        assert_eq!(directory.names().unwrap().count(), 0);
    }
}

//! The pickup directory and the socket in it: made with the rights that protect what others put there.

use crate::submit::{DIRECTORY_MODE, FULL, SOCKET};
use rustix::fs::{AtFlags, Gid, Mode, OFlags, Uid, fchown, openat, renameat, unlinkat};
use std::fs::{DirBuilder, File, Permissions};
use std::io::{self, Write as _};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::{DirBuilderExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixListener;
use std::path::{Path, PathBuf};

/// The directory, open.
#[derive(Debug)]
pub(crate) struct Directory {
    path: PathBuf,
    opened: OwnedFd,
}

impl Directory {
    /// Makes the directory if it is missing, gives it to `owner` (user and group; else it is our own) and sets its mode.
    ///
    /// # Errors
    /// It cannot be had, or belongs to somebody else.
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
        // After the owner: a change of owner takes the set-group-id bit away. A service may be forbidden to set that bit
        // (RestrictSUIDSGID=), and then the directory was made for it.
        if opened.metadata()?.permissions().mode() & 0o7777 != DIRECTORY_MODE {
            opened.set_permissions(Permissions::from_mode(DIRECTORY_MODE))?;
        }
        Ok(Self { path: path.to_owned(), opened: opened.into() })
    }

    pub(super) fn path(&self) -> &Path {
        &self.path
    }

    /// Makes the socket, for the runtime: when the spool is open, whose lock keeps a second server away from the same mail.
    pub(super) fn listener(&self) -> io::Result<tokio::net::UnixListener> {
        let socket = bind(&self.path)?;
        socket.set_nonblocking(true)?;
        tokio::net::UnixListener::from_std(socket)
    }

    /// The names in it, one after the other. Blocks.
    pub(super) fn names(&self) -> io::Result<impl Iterator<Item = io::Result<String>>> {
        let entries = rustix::fs::Dir::read_from(&self.opened)?;
        let names = entries.map(|entry| entry.map(|entry| entry.file_name().to_string_lossy().into_owned()));
        Ok(names.map(|name| name.map_err(io::Error::from)))
    }

    /// When a name in it was last made, changed or removed: seconds since 1970, and nanoseconds. Blocks.
    pub(super) fn changed(&self) -> io::Result<(i64, i64)> {
        let found = rustix::fs::fstat(&self.opened)?;
        Ok((found.st_mtime, i64::try_from(found.st_mtime_nsec).unwrap_or(0)))
    }

    /// The owner of a file in it. Blocks.
    pub(super) fn owner(&self, name: &str) -> io::Result<u32> {
        Ok(rustix::fs::statat(&self.opened, name, AtFlags::SYMLINK_NOFOLLOW)?.st_uid)
    }

    /// Says who may hand in no more; with nothing to say, everybody may. Blocks.
    ///
    /// Whatever somebody else has put under that name is replaced: the directory is ours.
    pub(super) fn set_full(&self, text: &str) -> io::Result<()> {
        let gone = |name: &str| match unlinkat(&self.opened, name, AtFlags::empty()) {
            Err(rustix::io::Errno::ISDIR) => unlinkat(&self.opened, name, AtFlags::REMOVEDIR),
            Err(rustix::io::Errno::NOENT) => Ok(()),
            done => done,
        };
        if text.is_empty() {
            return Ok(gone(FULL)?);
        }
        let new = format!("{FULL}.new");
        gone(&new)?;
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(openat(&self.opened, &new, flags, Mode::from_raw_mode(0o644))?);
        // Whatever the umask says: everybody reads it.
        file.set_permissions(Permissions::from_mode(0o644))?;
        file.write_all(text.as_bytes())?;
        if renameat(&self.opened, &new, &self.opened, FULL).is_err() {
            gone(FULL)?;
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

    /// When a file in it was last written, in seconds since 1970. Blocks.
    pub(super) fn written(&self, name: &str) -> io::Result<u64> {
        let found = rustix::fs::statat(&self.opened, name, AtFlags::SYMLINK_NOFOLLOW)?;
        Ok(u64::try_from(found.st_mtime).unwrap_or(0))
    }
}

impl AsFd for Directory {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.opened.as_fd()
    }
}

/// One that a killed server left is replaced.
fn bind(directory: &Path) -> io::Result<UnixListener> {
    let path = directory.join(SOCKET);
    match std::fs::remove_file(&path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    let listener = UnixListener::bind(&path)?;
    // Everybody may ask; of what, is decided by who he is.
    std::fs::set_permissions(&path, Permissions::from_mode(0o666))?;
    Ok(listener)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_directory_has_its_mode_whatever_was_there() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("pickup");
        for _ in 0..2 {
            Directory::open(&path, None).unwrap();
            assert_eq!(path.metadata().unwrap().permissions().mode() & 0o7777, DIRECTORY_MODE);
            for _ in 0..2 {
                bind(&path).unwrap();
            }
            std::fs::set_permissions(&path, Permissions::from_mode(0o700)).unwrap();
        }
        std::os::unix::fs::symlink(&path, place.path().join("link")).unwrap();
        assert!(Directory::open(&place.path().join("link"), None).is_err(), "no link is followed");
        assert!(Directory::open(&place.path().join("a/b"), None).is_err(), "directories above are not made");
        std::fs::write(place.path().join("file"), "").unwrap();
        assert!(Directory::open(&place.path().join("file"), None).is_err());
    }

    #[test]
    fn who_may_hand_in_no_more_is_ours_to_say() {
        let place = tempfile::tempdir().unwrap();
        let path = place.path().join("pickup");
        let directory = Directory::open(&path, None).unwrap();
        let full = path.join(FULL);
        for squatter in ["nothing", "file", "directory", "link"] {
            match squatter {
                "file" => std::fs::write(&full, "all 1\n").unwrap(),
                "directory" => std::fs::create_dir(&full).unwrap(),
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
}

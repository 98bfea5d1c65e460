//! The path of the control socket: claimed at start, let go at the end.
//!
//! A socket file outlives the process that made it, so one that no process answers on is removed and made anew. Looking
//! and making happen under a lock of the directory: of two servers that start at the same time one wins. Bound before
//! root is given up, and given to the user together with its file.

use super::peer::Peer;
use rustix::fs::{AtFlags, FlockOperation, Gid, Mode, OFlags, Uid, chown, chownat, flock};
use std::fmt;
use std::fs::{File, Metadata, Permissions};
use std::io;
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::{DirBuilderExt as _, FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};

/// Why there is no control socket.
#[derive(Debug)]
pub enum BindError {
    /// Another server answers there (exit status 75).
    InUse {
        /// `control.path`.
        path: PathBuf,
        /// Number of the process that listens, if the kernel tells.
        pid: Option<u32>,
    },
    /// Something that is no socket has the name (exit status 78).
    NotASocket(PathBuf),
    /// The system refused (exit status 73).
    Io {
        /// `control.path`.
        path: PathBuf,
        /// The system's reason.
        source: io::Error,
    },
}

impl fmt::Display for BindError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::InUse { path, pid } => {
                write!(f, "another mailrace serves {}", path.display())?;
                if let Some(pid) = pid {
                    write!(f, " (process {pid})")?;
                }
                f.write_str("; stop it, or give this one its own control.path")
            }
            Self::NotASocket(path) => {
                write!(
                    f,
                    "control.path = \"{}\" is there and no socket; remove it or name another path",
                    path.display()
                )
            }
            Self::Io { path, source } => {
                let path = path.display();
                write!(f, "control.path = \"{path}\": {source}; name a short path in a directory mailrace may write to")
            }
        }
    }
}

impl std::error::Error for BindError {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            Self::Io { source, .. } => Some(source),
            _ => None,
        }
    }
}

/// A listening socket under its name. Dropping it removes the name, if it is still ours and the directory lets us.
#[derive(Debug)]
pub struct ControlSocket {
    listener: UnixListener,
    path: PathBuf,
    file: (u64, u64),
    gid: u32,
}

impl ControlSocket {
    /// Claims the path: mode 0660, owned by `owner` (user and group) or else by local_identity. Missing directories are
    /// made.
    ///
    /// # Errors
    /// The path is taken or cannot be used. Nothing of another server was changed.
    pub fn bind(path: &Path, owner: Option<(u32, u32)>) -> Result<Self, BindError> {
        let failed = |source| BindError::Io { path: path.to_owned(), source };
        let dir = path.parent().filter(|dir| !dir.as_os_str().is_empty()).unwrap_or_else(|| Path::new("."));
        make_directory(dir, owner).map_err(failed)?;
        let lock = File::open(dir).map_err(failed)?;
        flock(&lock, FlockOperation::LockExclusive).map_err(|error| failed(error.into()))?;
        clear(path)?;
        let bind = || -> io::Result<Self> {
            let listener = UnixListener::bind(path)?;
            let found = set_owner(path, owner)?;
            Ok(Self { listener, path: path.to_owned(), file: identity(&found), gid: found.gid() })
        };
        // The lock is let go with `lock`, after the name is made.
        bind().map_err(failed)
    }

    /// Lets every user connect. The user id of a peer decides which requests it may make.
    ///
    /// # Errors
    /// The mode cannot be set, or another process has the name by now.
    pub fn open_to_everybody(&self) -> io::Result<()> {
        let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(&self.path, flags, Mode::empty())?);
        if identity(&file.metadata()?) != self.file {
            return Err(io::Error::other("another process has taken the name"));
        }
        std::fs::set_permissions(format!("/proc/self/fd/{}", file.as_raw_fd()), Permissions::from_mode(0o666))
    }

    /// The group whose members may connect.
    #[must_use]
    pub fn gid(&self) -> u32 {
        self.gid
    }

    /// The name.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Makes a second handle of the listening socket, for the runtime.
    ///
    /// # Errors
    /// No descriptor is left.
    pub(super) fn duplicate_listener(&self) -> io::Result<UnixListener> {
        self.listener.set_nonblocking(true)?;
        self.listener.try_clone()
    }
}

impl Drop for ControlSocket {
    fn drop(&mut self) {
        if std::fs::symlink_metadata(&self.path).is_ok_and(|found| identity(&found) == self.file) {
            // After root was given up the directory may be out of reach; the next start removes the name.
            drop(std::fs::remove_file(&self.path));
        }
    }
}

fn identity(found: &Metadata) -> (u64, u64) {
    (found.dev(), found.ino())
}

/// Sets owner and mode of the socket, and not of a file that another user has put in its place: the directory can be
/// another user's.
fn set_owner(path: &Path, owner: Option<(u32, u32)>) -> io::Result<Metadata> {
    let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
    let file = File::from(rustix::fs::open(path, flags, Mode::empty())?);
    if !file.metadata()?.file_type().is_socket() {
        return Err(io::Error::other("another process has taken the name"));
    }
    if let Some((uid, gid)) = owner {
        chownat(&file, "", Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)), AtFlags::EMPTY_PATH)?;
    }
    std::fs::set_permissions(format!("/proc/self/fd/{}", file.as_raw_fd()), Permissions::from_mode(0o660))?;
    file.metadata()
}

/// The last directory is the user's, so that it can remove the socket at the end; one that is there stays as it is.
fn make_directory(dir: &Path, owner: Option<(u32, u32)>) -> io::Result<()> {
    if dir.is_dir() {
        return Ok(());
    }
    std::fs::DirBuilder::new().mode(0o755).recursive(true).create(dir)?;
    // The mode is set whatever the umask is, since members of the group must reach the socket.
    std::fs::set_permissions(dir, Permissions::from_mode(0o755))?;
    match owner {
        Some((uid, gid)) => Ok(chown(dir, Some(Uid::from_raw(uid)), Some(Gid::from_raw(gid)))?),
        None => Ok(()),
    }
}

/// Removes a socket that no process answers on.
fn clear(path: &Path) -> Result<(), BindError> {
    let failed = |source| BindError::Io { path: path.to_owned(), source };
    match std::fs::symlink_metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(failed(error)),
        Ok(found) if !found.file_type().is_socket() => return Err(BindError::NotASocket(path.to_owned())),
        Ok(_) => {}
    }
    match UnixStream::connect(path) {
        Ok(stream) => {
            let pid = Peer::of_socket(&stream).ok().map(|peer| peer.pid);
            Err(BindError::InUse { path: path.to_owned(), pid })
        }
        Err(error) if error.kind() == io::ErrorKind::ConnectionRefused => std::fs::remove_file(path).map_err(failed),
        Err(error) => Err(failed(error)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_one_server() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("run/control");
        let first = ControlSocket::bind(&path, None).unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o660);
        first.open_to_everybody().unwrap();
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o666);
        let second = ControlSocket::bind(&path, None).unwrap_err();
        let text = second.to_string();
        let us = format!("another mailrace serves {} (process {})", path.display(), std::process::id());
        assert!(text.starts_with(&us), "{text}");
        drop(first);
        assert!(!path.exists());
    }

    #[test]
    fn a_name_left_behind_is_taken() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control");
        drop(UnixListener::bind(&path).unwrap());
        assert!(path.exists());
        let first = ControlSocket::bind(&path, None).unwrap();
        // Another process has the name by now, so it is not removed.
        std::fs::remove_file(&path).unwrap();
        let _second = UnixListener::bind(&path).unwrap();
        drop(first);
        assert!(path.exists());
    }

    #[test]
    fn of_many_at_the_same_time_one_wins() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("control");
        drop(UnixListener::bind(&path).unwrap());
        let results: Vec<_> = std::thread::scope(|scope| {
            let starts: Vec<_> = (0..8).map(|_| scope.spawn(|| ControlSocket::bind(&path, None))).collect();
            starts.into_iter().map(|start| start.join().unwrap()).collect()
        });
        assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1);
        assert!(results.iter().all(|result| matches!(result, Ok(_) | Err(BindError::InUse { .. }))), "{results:?}");
    }

    #[test]
    fn other_things_are_left_alone() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("notes");
        std::fs::write(&path, "mine").unwrap();
        let error = ControlSocket::bind(&path, None).unwrap_err();
        assert!(matches!(error, BindError::NotASocket(_)) && error.to_string().contains("notes"), "{error}");
        assert_eq!(std::fs::read(&path).unwrap(), b"mine");
        let long = dir.path().join("x".repeat(150));
        assert!(ControlSocket::bind(&long, None).unwrap_err().to_string().contains("short path"));
    }
}

//! New files with secrets: all of them or none, durable on return, readable for their owner alone.

use crate::exit::{Exit, Failure};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{OpenOptionsExt as _, PermissionsExt as _, fchown};
use std::path::{Path, PathBuf};

/// The owner alone reads and writes it.
const MODE: u32 = 0o600;

/// A file to make.
pub(super) struct NewFile {
    pub(super) path: PathBuf,
    pub(super) text: String,
    /// User and group; without them those of the process.
    pub(super) owner: Option<(u32, u32)>,
}

/// Makes the files, and their directory if there is none.
///
/// # Errors
/// One of them is there, or cannot be written; none is made.
pub(super) fn make(directory: &Path, files: &[NewFile]) -> Result<(), Failure> {
    // Asked first, so that the usual mistake makes nothing for a moment.
    if let Some(present) = files.iter().find(|file| fs::symlink_metadata(&file.path).is_ok()) {
        return Err(is_there(&present.path));
    }
    fs::create_dir_all(directory).map_err(|error| Failure::io(directory.display(), &error))?;
    for (at, file) in files.iter().enumerate() {
        if let Err(failure) = make_one(file) {
            for made in files.iter().take(at) {
                drop(fs::remove_file(&made.path));
            }
            return Err(failure);
        }
    }
    let synced = File::open(directory).and_then(|directory| directory.sync_all());
    synced.map_err(|error| Failure::io(directory.display(), &error))
}

fn is_there(path: &Path) -> Failure {
    let text =
        format!("{}: it is there, and nothing was written; move it away, or name another --directory", path.display());
    Failure::new(Exit::CannotCreate, text)
}

fn make_one(file: &NewFile) -> Result<(), Failure> {
    let made = OpenOptions::new().write(true).create_new(true).mode(MODE).open(&file.path);
    let mut made = made.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => is_there(&file.path),
        _ => Failure::io(file.path.display(), &error),
    })?;
    fill(&mut made, file).map_err(|error| {
        drop(fs::remove_file(&file.path));
        Failure::io(file.path.display(), &error)
    })
}

fn fill(made: &mut File, file: &NewFile) -> io::Result<()> {
    // The mask of the process may have taken rights away.
    made.set_permissions(fs::Permissions::from_mode(MODE))?;
    if let Some((user, group)) = file.owner {
        fchown(&*made, Some(user), Some(group))?;
    }
    made.write_all(file.text.as_bytes())?;
    made.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::MetadataExt as _;

    fn file(path: PathBuf) -> NewFile {
        NewFile { path, text: "secret\n".to_owned(), owner: None }
    }

    #[test]
    fn all_files_or_none() {
        let place = tempfile::tempdir().unwrap();
        let directory = place.path().join("etc");
        let files = || [file(directory.join("a")), file(directory.join("b"))];
        make(&directory, &files()).unwrap();
        for name in ["a", "b"] {
            assert_eq!(fs::metadata(directory.join(name)).unwrap().mode() & 0o7777, MODE);
            assert_eq!(fs::read_to_string(directory.join(name)).unwrap(), "secret\n");
        }
        fs::remove_file(directory.join("a")).unwrap();
        let failure = make(&directory, &files()).unwrap_err();
        assert_eq!(failure.exit, Exit::CannotCreate);
        assert!(failure.to_string().contains("etc/b: it is there"), "{failure}");
        assert!(!directory.join("a").exists(), "none is made");
        // A name that leads nowhere is there all the same.
        fs::remove_file(directory.join("b")).unwrap();
        std::os::unix::fs::symlink("/nowhere", directory.join("b")).unwrap();
        assert!(make(&directory, &files()).is_err() && !directory.join("a").exists());
        let below_a_file = [file(directory.join("c")), file(directory.join("b/d"))];
        assert!(make(&directory, &below_a_file).is_err() && !directory.join("c").exists());
    }
}

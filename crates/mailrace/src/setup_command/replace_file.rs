//! Replaces the configuration file: whole or not at all, and durable on return.

use crate::exit::{Exit, Failure};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{MetadataExt as _, OpenOptionsExt as _, chown};
use std::path::{Path, PathBuf};

/// The mode of a new file: users may read it, as the programs that hand mail in do.
const MODE: u32 = 0o644;

/// Writes `new` in place of `old`, with the mode and the owner of the present file. A link stays, and the file that it
/// names is replaced.
///
/// # Errors
/// Nothing has changed: the file cannot be written, or is not `old` any more.
pub(super) fn replace(path: &Path, old: Option<&str>, new: &str) -> Result<(), Failure> {
    let failed = |error: io::Error| Failure::io(path.display(), &error);
    let path = full_name(path);
    let now = match fs::read_to_string(&path) {
        Ok(text) => Some(text),
        Err(error) if error.kind() == io::ErrorKind::NotFound => None,
        Err(error) => return Err(failed(error)),
    };
    if now.as_deref() != old {
        let text = format!("{}: changed meanwhile; nothing was written, begin again", path.display());
        return Err(Failure::new(Exit::TryLater, text));
    }
    let directory = path.parent().unwrap_or_else(|| Path::new("/"));
    fs::create_dir_all(directory).map_err(failed)?;
    let temporary = path.with_extension("toml.new");
    let file = create(&temporary, &path)?;
    let written = write(file, &temporary, &path, new).and_then(|()| Ok(rustix::fs::rename(&temporary, &path)?));
    if let Err(error) = written {
        drop(fs::remove_file(&temporary));
        return Err(failed(error));
    }
    File::open(directory).and_then(|directory| directory.sync_all()).map_err(failed)
}

/// Returns the name from the root on, so that the directory has a name too; that of a link is the file's.
fn full_name(path: &Path) -> PathBuf {
    fs::canonicalize(path).or_else(|_| std::path::absolute(path)).unwrap_or_else(|_| path.to_owned())
}

/// Makes the file that takes the place of `path`.
///
/// # Errors
/// It cannot be made, or is there: it may be that of another setup, and stays.
fn create(temporary: &Path, path: &Path) -> Result<File, Failure> {
    let mode = fs::metadata(path).map_or(MODE, |present| present.mode() & 0o7777);
    let made = OpenOptions::new().write(true).create_new(true).mode(mode).open(temporary);
    made.map_err(|error| match error.kind() {
        io::ErrorKind::AlreadyExists => {
            let name = temporary.display();
            let text = format!("{name}: another setup is writing, or one was killed; remove the file if none runs");
            Failure::new(Exit::TryLater, text)
        }
        _ => Failure::io(temporary.display(), &error),
    })
}

fn write(mut file: File, temporary: &Path, path: &Path, text: &str) -> io::Result<()> {
    let present = fs::metadata(path).ok();
    if let Some(present) = present {
        chown(temporary, Some(present.uid()), Some(present.gid()))?;
        // The mask of the process may have taken rights away.
        file.set_permissions(present.permissions())?;
    }
    file.write_all(text.as_bytes())?;
    file.sync_all()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::{PermissionsExt as _, symlink};

    #[test]
    fn a_new_file_of_the_working_directory_has_a_directory() {
        let parent = full_name(Path::new("none-of-this-name.toml")).parent().map(Path::to_owned);
        assert_eq!(parent, std::env::current_dir().ok());
    }

    #[test]
    fn a_file_is_replaced_if_it_is_the_one_that_was_shown() {
        let place = tempfile::tempdir().unwrap();
        let (file, link) = (place.path().join("etc/m.toml"), place.path().join("link.toml"));
        replace(&file, None, "one").unwrap();
        symlink(&file, &link).unwrap();
        fs::set_permissions(&file, fs::Permissions::from_mode(0o640)).unwrap();
        assert!(replace(&link, Some("other"), "two").is_err(), "somebody else wrote it");
        assert!(replace(&link, None, "two").is_err(), "it is there");
        replace(&link, Some("one"), "two").unwrap();
        assert_eq!(fs::read_to_string(&file).unwrap(), "two");
        assert_eq!(fs::metadata(&file).unwrap().mode() & 0o777, 0o640);
        assert!(fs::symlink_metadata(&link).unwrap().is_symlink());
        assert_eq!(fs::read_dir(file.parent().unwrap()).unwrap().count(), 1, "nothing else is left");
        let temporary = file.with_extension("toml.new");
        fs::write(&temporary, "that of another setup").unwrap();
        assert!(replace(&file, Some("two"), "three").unwrap_err().to_string().contains("another setup"));
        assert!(temporary.exists() && fs::read_to_string(&file).unwrap() == "two");
    }
}

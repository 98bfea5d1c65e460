//! Finds the file system of a path.

use spool::disk::real::RealDisk;
use spool::disk::{Disk as _, Space};
use std::io;
use std::path::Path;

/// Returns the file system of `path` and whether its files survive a power cut. A path that does not exist yet counts
/// as its nearest existing directory above.
///
/// # Errors
/// The system call failed.
pub fn file_system(path: &Path) -> io::Result<Space> {
    let there = path.ancestors().find(|path| path.exists()).filter(|path| !path.as_os_str().is_empty());
    RealDisk::new().space(there.unwrap_or_else(|| Path::new(".")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_system_of_a_path_that_does_not_exist_yet() {
        let dir = tempfile::tempdir().unwrap();
        let there = file_system(dir.path()).unwrap();
        let missing = file_system(&dir.path().join("a/b/c")).unwrap();
        assert_eq!((there.file_system, there.volatile), (missing.file_system, missing.volatile));
        assert!(file_system(Path::new("no-such-relative-directory/x")).is_ok());
    }
}

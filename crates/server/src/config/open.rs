//! Reads the file of a configuration.

use super::{Loaded, Machine, Problem, load_bytes};
use std::io;
use std::path::Path;

/// Reads a file, or the defaults if there is none, and applies overrides `KEY=VALUE`.
///
/// The inner result is that of [`load_bytes`].
/// # Errors
/// The file cannot be read.
pub fn open(path: Option<&Path>, overrides: &[String], machine: &Machine) -> io::Result<Result<Loaded, Vec<Problem>>> {
    let bytes = path.map_or_else(|| Ok(Vec::new()), std::fs::read)?;
    Ok(load_bytes(bytes, path, overrides, machine))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_read_or_missing() {
        let place = tempfile::tempdir().expect("a directory");
        let file = place.path().join("m.toml");
        let machine = Machine::default();
        assert_eq!(open(Some(&file), &[], &machine).expect_err("no file").kind(), io::ErrorKind::NotFound);
        std::fs::write(&file, "log.level = 3\nspool.path = 's'\n").expect("written");
        let loaded = open(Some(&file), &[], &machine).expect("a file").expect("fine");
        assert_eq!((loaded.config.log.level, loaded.config.spool.path), (3, place.path().join("s")));
        assert!(open(None, &[], &machine).expect("no file").is_ok());
    }
}

//! Reads the file of a configuration, and the shared one below it at a node of a cluster.

use super::shared_files::{SHARED_FILE, SharedFiles};
use super::{Config, ConfigText, Loaded, Machine, Problem, Severity, load_bytes, load_shared, own_part};
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

/// Reads a file, or the defaults if there is none, and applies overrides `KEY=VALUE`.
///
/// The inner result is that of [`load_bytes`]. A user who may not read the shared file gets the own one alone, with a
/// warning: it has all that commands of users need.
/// # Errors
/// The file cannot be read.
pub fn open(path: Option<&Path>, overrides: &[String], machine: &Machine) -> io::Result<Result<Loaded, Vec<Problem>>> {
    let bytes = path.map_or_else(|| Ok(Vec::new()), std::fs::read)?;
    Ok(match shared_file(&bytes, path, overrides, machine) {
        Ok(Some(shared)) => match std::fs::read(&shared) {
            Ok(text) => over(&shared, &text, &bytes, path, overrides, machine),
            Err(error) => without_shared(&shared, &error, bytes, path, overrides, machine),
        },
        Ok(None) => load_bytes(bytes, path, overrides, machine),
        Err((file, error)) => without_shared(&file, &error, bytes, path, overrides, machine),
    })
}

/// Reads the octets of an own file over the shared file of the revision in force, or of the revision in `directory`.
///
/// # Errors
/// All problems, also that a file cannot be read.
pub(crate) fn read_over_shared(
    bytes: Vec<u8>,
    path: Option<&Path>,
    directory: Option<&Path>,
    overrides: &[String],
    machine: &Machine,
) -> Result<Loaded, Vec<Problem>> {
    let in_force = || shared_file(&bytes, path, overrides, machine);
    let shared = directory.map_or_else(in_force, |directory| Ok(Some(directory.join(SHARED_FILE))));
    let Some(shared) = shared.map_err(|(file, error)| vec![unreadable(&file, &error)])? else {
        return load_bytes(bytes, path, overrides, machine);
    };
    let text = std::fs::read(&shared).map_err(|error| vec![unreadable(&shared, &error)])?;
    over(&shared, &text, &bytes, path, overrides, machine)
}

/// Reads the octets of an own file over the shared file in a directory of the operator, which is to be pushed.
///
/// # Errors
/// The own file cannot be read.
pub fn open_over(
    directory: &Path,
    path: Option<&Path>,
    overrides: &[String],
    machine: &Machine,
) -> io::Result<Result<Loaded, Vec<Problem>>> {
    let bytes = path.map_or_else(|| Ok(Vec::new()), std::fs::read)?;
    Ok(read_over_shared(bytes, path, Some(directory), overrides, machine))
}

/// Reads the own file alone, without the rules between values, for `cluster` and `spool`.
///
/// # Errors
/// The file cannot be read.
pub fn own_config(path: Option<&Path>, overrides: &[String], machine: &Machine) -> io::Result<Config> {
    let bytes = path.map_or_else(|| Ok(Vec::new()), std::fs::read)?;
    Ok(own_part(ConfigText { bytes: &bytes, path }, overrides, machine))
}

fn over(
    shared: &Path,
    text: &[u8],
    own: &[u8],
    path: Option<&Path>,
    overrides: &[String],
    machine: &Machine,
) -> Result<Loaded, Vec<Problem>> {
    let below = ConfigText { bytes: text, path: Some(shared) };
    load_shared(below, ConfigText { bytes: own, path }, overrides, machine)
}

/// The shared file that counts; `None` where the own file asks for none, and before the first revision.
fn shared_file(
    own: &[u8],
    path: Option<&Path>,
    overrides: &[String],
    machine: &Machine,
) -> Result<Option<PathBuf>, (PathBuf, io::Error)> {
    let config = own_part(ConfigText { bytes: own, path }, overrides, machine);
    if !config.cluster.shared {
        return Ok(None);
    }
    let files = SharedFiles::beside(&config.spool.path);
    let active = files.active().map_err(|error| (files.active_path(), error))?;
    Ok(active.map(|active| files.of(active.bundle.digest).join(SHARED_FILE)))
}

fn without_shared(
    file: &Path,
    error: &io::Error,
    own: Vec<u8>,
    path: Option<&Path>,
    overrides: &[String],
    machine: &Machine,
) -> Result<Loaded, Vec<Problem>> {
    if error.kind() != ErrorKind::PermissionDenied {
        return Err(vec![unreadable(file, error)]);
    }
    let mut loaded = load_bytes(own, path, overrides, machine)?;
    let text =
        "the shared configuration may be read by root and the user of mailrace alone: the own file counts without it";
    loaded.warnings.push(Problem::of_file(Severity::Warning, file.display().to_string(), 0, text.to_owned(), None));
    Ok(loaded)
}

fn unreadable(file: &Path, error: &io::Error) -> Problem {
    let text = format!("the shared configuration {} cannot be read: {error}", file.display());
    let step = "start the server while an engine answers, or set cluster.shared = false";
    Problem::of_file(Severity::Error, file.display().to_string(), 0, text, Some(step.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::{ActiveRevision, Bundle, BundleDigest, BundleName, NodeId, PushId};

    #[test]
    fn a_file_is_read_or_missing() {
        let place = tempfile::tempdir().expect("a directory");
        let file = place.path().join("m.toml");
        let machine = Machine::default();
        assert_eq!(open(Some(&file), &[], &machine).expect_err("no file").kind(), ErrorKind::NotFound);
        std::fs::write(&file, "log.level = 3\nspool.path = 's'\n").expect("written");
        let loaded = open(Some(&file), &[], &machine).expect("a file").expect("fine");
        assert_eq!((loaded.config.log.level, loaded.config.spool.path), (3, place.path().join("s")));
        assert!(open(None, &[], &machine).expect("no file").is_ok());
    }

    #[test]
    fn a_node_reads_its_file_over_the_revision_in_force() {
        let place = tempfile::tempdir().unwrap();
        let (file, machine) = (place.path().join("m.toml"), Machine::default());
        let text = "hostname = 'mx1.test'\nlisten = [{ address = '127.0.0.1:25' }]\n[spool]\npath = 's'\n[cluster]\n\
                    id = '000102030405060708090a0b0c0d0e0f'\nnode = 1\nengines = ['localhost']\ncopies = 1\nshared = true\n";
        std::fs::write(&file, text).unwrap();
        let read = || open(Some(&file), &[], &machine).unwrap();
        assert_eq!(read().unwrap().shared, None, "before the first revision the own file counts alone");
        let files = SharedFiles::beside(&place.path().join("s"));
        let digest = BundleDigest([7; 32]);
        let mut bundle = Bundle::default();
        bundle.add(SHARED_FILE, b"message.size_max = '3MiB'\nmaps.access = 'access'\n".to_vec()).unwrap();
        let directory = files.keep(digest, &bundle).unwrap();
        assert_eq!(read().unwrap().config.message.size_max, 50 << 20, "kept and not in force");
        let name = BundleName { digest, octets: 1 };
        let active = ActiveRevision { number: 1, bundle: name, previous: None, push: PushId(1), by: NodeId(1) };
        files.set_active(Some(&active)).unwrap();
        let loaded = read().unwrap();
        assert_eq!(loaded.config.message.size_max, 3 << 20);
        assert_eq!(loaded.shared, Some(directory.join(SHARED_FILE)));
        std::fs::remove_file(directory.join(SHARED_FILE)).unwrap();
        assert!(read().unwrap_err()[0].text.contains("cannot be read"));
    }
}

//! The files of a directory that `mailrace cluster push` gives to all nodes.

use crate::exit::{Exit, Failure};
use server::cluster::{Bundle, BundleError};
use server::config::SHARED_FILE;
use std::fs;
use std::io::Read as _;
use std::path::Path;

/// Octets of a file that are read: one that is larger than a bundle is refused without it.
const FILE_OCTETS_MAX: u64 = (server::cluster::BUNDLE_OCTETS_MAX as u64) + 1;

/// Reads all files below a directory.
///
/// Names that begin with a dot, and copies that editors leave behind, are passed over.
///
/// # Errors
/// A file cannot be read or cannot be shared, with the next step.
pub(super) fn read_folder(directory: &Path, with_secrets: bool) -> Result<Bundle, Failure> {
    if !directory.join(SHARED_FILE).is_file() {
        let text = format!(
            "{}: there is no file {SHARED_FILE} in it; make one with the keys that all nodes share, and put the files that \
             it names beside it",
            directory.display()
        );
        return Err(Failure::new(Exit::NoInput, text));
    }
    let mut bundle = Bundle::default();
    add_below(directory, "", &mut bundle)?;
    if !with_secrets && let Some(file) = bundle.files().find(|file| has_private_key(file.content)) {
        let text = format!(
            "{}: it has a private key, which everybody can read who can log in to the engines, and which they keep on their \
             disks; name a file of each node in its own configuration, or say --with-secrets",
            directory.join(file.name).display()
        );
        return Err(Failure::new(Exit::Config, text));
    }
    Ok(bundle)
}

fn add_below(directory: &Path, below: &str, bundle: &mut Bundle) -> Result<(), Failure> {
    let failed = |error: &std::io::Error| Failure::io(directory.display(), error);
    let mut entries =
        fs::read_dir(directory).and_then(Iterator::collect::<Result<Vec<_>, _>>).map_err(|e| failed(&e))?;
    entries.sort_by_key(fs::DirEntry::file_name);
    for entry in entries {
        let path = entry.path();
        let name = entry.file_name();
        let name = name.to_str().ok_or_else(|| {
            Failure::new(Exit::Config, format!("{}: its name is not UTF-8; rename it", path.display()))
        })?;
        if name.starts_with('.') || name.ends_with('~') || name.starts_with('#') {
            continue;
        }
        let full = if below.is_empty() { name.to_owned() } else { format!("{below}/{name}") };
        let kind = entry.file_type().map_err(|error| Failure::io(path.display(), &error))?;
        if kind.is_dir() {
            add_below(&path, &full, bundle)?;
        } else if kind.is_file() {
            let content = read(&path).map_err(|error| Failure::io(path.display(), &error))?;
            bundle.add(&full, content).map_err(|error| too_much(directory, &error))?;
        } else {
            let text = format!("{}: it is no regular file; put the file itself there, or remove it", path.display());
            return Err(Failure::new(Exit::Config, text));
        }
    }
    Ok(())
}

fn read(path: &Path) -> std::io::Result<Vec<u8>> {
    let mut content = Vec::new();
    fs::File::open(path)?.take(FILE_OCTETS_MAX).read_to_end(&mut content)?;
    Ok(content)
}

fn too_much(directory: &Path, error: &BundleError) -> Failure {
    Failure::new(Exit::Config, format!("{}: {error}", directory.display()))
}

/// Whether some line begins a private key in PEM.
fn has_private_key(content: &[u8]) -> bool {
    content.split(|byte| *byte == b'\n').any(|line| {
        let line = line.trim_ascii();
        line.starts_with(b"-----BEGIN ") && line.ends_with(b"PRIVATE KEY-----")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_becomes_a_bundle() {
        let place = tempfile::tempdir().unwrap();
        let path = |name: &str| place.path().join(name);
        assert!(read_folder(place.path(), false).unwrap_err().to_string().contains("there is no file mailrace.toml"));
        fs::create_dir_all(path("maps/.git")).unwrap();
        for name in ["mailrace.toml", "maps/access", "maps/access~", "maps/#access#", "maps/.git/config", ".swp"] {
            fs::write(path(name), name).unwrap();
        }
        let names = |bundle: &Bundle| bundle.files().map(|file| file.name.to_owned()).collect::<Vec<_>>();
        assert_eq!(names(&read_folder(place.path(), false).unwrap()), ["mailrace.toml", "maps/access"]);
        fs::write(path("dkim.pem"), "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n").unwrap();
        let refused = read_folder(place.path(), false).unwrap_err().to_string();
        assert!(refused.contains("dkim.pem: it has a private key") && refused.contains("--with-secrets"), "{refused}");
        assert_eq!(names(&read_folder(place.path(), true).unwrap()).len(), 3);
        std::os::unix::fs::symlink("access", path("maps/link")).unwrap();
        assert!(read_folder(place.path(), true).unwrap_err().to_string().contains("no regular file"));
    }
}

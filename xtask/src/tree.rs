//! The files of the tree: its root and its members.
//!
//! A plain walk, so that a tree without version control (an unpacked archive) is checked the same way. Built files and
//! the data of a running program are left out.

use std::fs;
use std::path::{Path, PathBuf};

/// Folders that hold nothing written by a person, relative to the root.
const LEFT_OUT: &[&str] =
    &[".git", "target", "run", "fuzz/target", "fuzz/corpus", "fuzz/artifacts", "fuzz/seeds", "fuzz/output"];

/// The folder that holds the workspace manifest.
pub(crate) fn root() -> PathBuf {
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().unwrap_or(here).to_path_buf()
}

/// A file of the tree that is text.
pub(crate) struct File {
    /// Path from the root, with `/`.
    pub(crate) path: String,
    pub(crate) text: String,
}

impl File {
    /// True when the name ends in `.ext`.
    pub(crate) fn has_extension(&self, ext: &str) -> bool {
        Path::new(&self.path).extension().is_some_and(|found| found == ext)
    }
}

/// Reads every text file below `root`, sorted by path.
///
/// # Errors
/// A folder or file that cannot be read, with its name.
pub(crate) fn files(root: &Path) -> Result<Vec<File>, String> {
    let mut found = Vec::new();
    walk(root, "", &mut found)?;
    found.sort_by(|a, b| a.path.cmp(&b.path));
    Ok(found)
}

fn walk(root: &Path, below: &str, found: &mut Vec<File>) -> Result<(), String> {
    let folder = root.join(below);
    let entries = fs::read_dir(&folder).map_err(|e| format!("cannot list {}: {e}", folder.display()))?;
    for entry in entries {
        let entry = entry.map_err(|e| format!("cannot list {}: {e}", folder.display()))?;
        let Ok(name) = entry.file_name().into_string() else { continue };
        let path = if below.is_empty() { name } else { format!("{below}/{name}") };
        if LEFT_OUT.contains(&path.as_str()) {
            continue;
        }
        let kind = entry.file_type().map_err(|e| format!("cannot look at {path}: {e}"))?;
        if kind.is_dir() {
            walk(root, &path, found)?;
        } else if kind.is_file() {
            match fs::read(entry.path()) {
                // A file that is not UTF-8 is a fixture or a picture: it has no text, and pages link to it.
                Ok(bytes) => found.push(File { path, text: String::from_utf8(bytes).unwrap_or_default() }),
                // An editor's temporary file may vanish between the listing and the reading.
                Err(e) if e.kind() == std::io::ErrorKind::NotFound => {}
                Err(e) => return Err(format!("cannot read {path}: {e}")),
            }
        }
    }
    Ok(())
}

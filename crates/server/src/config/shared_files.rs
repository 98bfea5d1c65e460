//! The copy of the shared configuration on this node's disk: `cluster.shared` in the spool directory.
//!
//! | Name | Content |
//! |---|---|
//! | `r-DIGITS/` | the files of a bundle, by the first digits of its name; never changed |
//! | `new-DIGITS/` | the same while it is written; without a meaning after a crash |
//! | `active` | the revision in force, a line; replaced and synced |
//!
//! A directory has its name only when its files are on the disk, and `active` names only such directories. So a node
//! starts with the revision that it had, also without an engine.

use cluster::{ActiveRevision, Bundle, BundleDigest, bundle_path_fault};
use spool::disk::Disk as _;
use spool::disk::real::RealDisk;
use std::fs::{DirBuilder, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::{DirBuilderExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};

/// The directory in the spool directory.
const DIRECTORY: &str = "cluster.shared";
/// The file with the revision in force.
const ACTIVE: &str = "active";
/// The file of a bundle that is read first.
pub const SHARED_FILE: &str = "mailrace.toml";

/// The copy of one node.
#[derive(Clone, Debug)]
pub struct SharedFiles {
    directory: PathBuf,
}

impl SharedFiles {
    /// The copy beside this spool; it need not exist.
    #[must_use]
    pub fn beside(spool: &Path) -> Self {
        Self { directory: spool.join(DIRECTORY) }
    }

    /// The revision in force; `None` before the first one.
    ///
    /// # Errors
    /// The file cannot be read, or has another content.
    pub fn active(&self) -> io::Result<Option<ActiveRevision>> {
        let path = self.directory.join(ACTIVE);
        let text = match std::fs::read(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error),
        };
        let line = text.trim_ascii_end();
        let damaged =
            || io::Error::new(io::ErrorKind::InvalidData, "it names no revision; remove it, and start the engine");
        ActiveRevision::parse(line).map(Some).ok_or_else(damaged)
    }

    /// The name of the file of the revision in force.
    #[must_use]
    pub fn active_path(&self) -> PathBuf {
        self.directory.join(ACTIVE)
    }

    /// The directory of a bundle.
    #[must_use]
    pub fn of(&self, digest: BundleDigest) -> PathBuf {
        self.directory.join(format!("r-{}", digest.short()))
    }

    /// Writes the files of a bundle. They are on the disk on return; a bundle that is there already stays as it is.
    ///
    /// # Errors
    /// They cannot be written.
    pub fn keep(&self, digest: BundleDigest, bundle: &Bundle) -> io::Result<PathBuf> {
        let place = self.of(digest);
        if place.is_dir() {
            return Ok(place);
        }
        let mut builder = DirBuilder::new();
        builder.mode(0o750).recursive(true);
        builder.create(&self.directory)?;
        let new = self.directory.join(format!("new-{}", digest.short()));
        remove(&new)?;
        builder.create(&new)?;
        let mut directories = vec![new.clone()];
        for file in bundle.files() {
            if let Some(why) = bundle_path_fault(file.name) {
                return Err(io::Error::new(io::ErrorKind::InvalidData, why));
            }
            let path = new.join(file.name);
            if let Some(directory) = path.parent().filter(|directory| !directory.is_dir()) {
                builder.create(directory)?;
            }
            directories.extend(path.ancestors().skip(1).take_while(|above| *above != new).map(Path::to_owned));
            let mut written = OpenOptions::new().write(true).create_new(true).mode(0o640).open(&path)?;
            written.write_all(file.content)?;
            written.sync_all()?;
        }
        directories.sort();
        directories.dedup();
        // The deepest first: a directory is on the disk when its names are.
        directories.iter().rev().try_for_each(|directory| File::open(directory)?.sync_all())?;
        RealDisk::new().rename(&new, &place)?;
        if let Some(spool) = self.directory.parent() {
            File::open(spool)?.sync_all()?;
        }
        Ok(place)
    }

    /// Names the revision in force, durably; `None`: there is none.
    ///
    /// # Errors
    /// The file cannot be replaced; the revision before is still in force.
    pub fn set_active(&self, active: Option<&ActiveRevision>) -> io::Result<()> {
        let path = self.directory.join(ACTIVE);
        match active {
            Some(active) => RealDisk::new().replace_small(&path, format!("{active}\n").as_bytes()).map(drop),
            None => std::fs::remove_file(&path),
        }
    }

    /// Removes all bundles but these. One that cannot be removed stays.
    pub fn remove_others(&self, kept: &[BundleDigest]) {
        let kept: Vec<PathBuf> = kept.iter().map(|digest| self.of(*digest)).collect();
        let Ok(entries) = std::fs::read_dir(&self.directory) else { return };
        for path in entries.filter_map(Result::ok).map(|entry| entry.path()) {
            let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
            if (name.starts_with("r-") || name.starts_with("new-")) && !kept.contains(&path) {
                remove(&path).ok();
            }
        }
    }
}

fn remove(directory: &Path) -> io::Result<()> {
    match std::fs::remove_dir_all(directory) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use cluster::{BundleName, NodeId, PushId};

    fn bundle(text: &str) -> Bundle {
        let mut bundle = Bundle::default();
        for (name, content) in [(SHARED_FILE, text), ("maps/access", "a"), ("maps/deep/er", "b")] {
            bundle.add(name, content.into()).unwrap();
        }
        bundle
    }

    #[test]
    fn a_bundle_is_kept_whole_and_named_when_it_is() {
        let place = tempfile::tempdir().unwrap();
        let files = SharedFiles::beside(place.path());
        assert_eq!(files.active().unwrap(), None);
        let [one, two, three] = [1, 2, 3].map(|byte| BundleDigest([byte; 32]));
        // A write that broke off.
        std::fs::create_dir_all(place.path().join("cluster.shared/new-010101010101/x")).unwrap();
        let kept = files.keep(one, &bundle("x")).unwrap();
        assert_eq!(std::fs::read_to_string(kept.join("maps/deep/er")).unwrap(), "b");
        assert!(!kept.join("x").exists());
        files.keep(one, &bundle("changed")).unwrap();
        assert_eq!(std::fs::read_to_string(kept.join(SHARED_FILE)).unwrap(), "x", "what is in force is not changed");
        let active = ActiveRevision {
            number: 4,
            bundle: BundleName { digest: one, octets: 7 },
            previous: None,
            push: PushId(1),
            by: NodeId(2),
        };
        files.set_active(Some(&active)).unwrap();
        assert_eq!(files.active().unwrap(), Some(active));
        files.keep(two, &bundle("y")).unwrap();
        files.keep(three, &bundle("z")).unwrap();
        files.remove_others(&[one, three]);
        assert!(kept.is_dir() && files.of(three).is_dir() && !files.of(two).exists());
        files.set_active(None).unwrap();
        assert_eq!(files.active().unwrap(), None);
        std::fs::write(files.active_path(), "mailrace-conf").unwrap();
        assert!(files.active().is_err());
    }
}

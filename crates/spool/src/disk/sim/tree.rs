//! The names of a simulated file system, and the changes of names that are not yet durable.
//!
//! A change is seen at once and becomes durable when its directory is synced. A power cut before that keeps some
//! beginning of the changes, in their order: all file systems in question keep their metadata in an ordered log.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use super::rng::Rng;
use crate::disk::dir_of;

/// Number of a file behind its names.
pub(super) type InodeId = u64;

/// One state of the names.
#[derive(Clone, Debug, Default)]
pub(super) struct Names {
    pub(super) files: BTreeMap<PathBuf, InodeId>,
    pub(super) dirs: BTreeSet<PathBuf>,
}

impl Names {
    /// Whether there is such a directory; the root and the working directory always are.
    pub(super) fn has_dir(&self, dir: &Path) -> bool {
        is_given(dir) || self.dirs.contains(dir)
    }

    fn apply(&mut self, change: &NameChange) {
        match change {
            NameChange::Link(path, id) => {
                self.files.insert(path.clone(), *id);
            }
            NameChange::Unlink(path) => {
                self.files.remove(path);
            }
            NameChange::Rename(from, to) => {
                if let Some(id) = self.files.remove(from) {
                    self.files.insert(to.clone(), id);
                }
            }
            NameChange::MakeDir(dir) => {
                self.dirs.insert(dir.clone());
            }
        }
    }
}

/// A directory that no one has to make.
pub(super) fn is_given(dir: &Path) -> bool {
    dir.parent().is_none() || dir == Path::new(".")
}

/// One change of names.
#[derive(Clone, Debug)]
pub(super) enum NameChange {
    /// The name now means this file, in place of any other.
    Link(PathBuf, InodeId),
    Unlink(PathBuf),
    /// Replaces the second name.
    Rename(PathBuf, PathBuf),
    MakeDir(PathBuf),
}

impl NameChange {
    fn dir(&self) -> &Path {
        match self {
            Self::Link(path, _) | Self::Unlink(path) | Self::Rename(path, _) | Self::MakeDir(path) => dir_of(path),
        }
    }
}

/// The names as programs see them, as they are on the medium, and the changes between.
#[derive(Clone, Debug, Default)]
pub(super) struct Tree {
    pub(super) live: Names,
    stable: Names,
    log: Vec<NameChange>,
}

impl Tree {
    /// Makes a change that all see and a power cut may undo.
    pub(super) fn change(&mut self, change: NameChange) {
        self.live.apply(&change);
        self.log.push(change);
    }

    /// Makes the changes in one directory durable.
    pub(super) fn commit(&mut self, dir: &Path) {
        self.log.retain(|change| {
            let here = change.dir() == dir;
            if here {
                self.stable.apply(change);
            }
            !here
        });
    }

    /// Makes a change that is durable at once.
    pub(super) fn change_for_good(&mut self, change: &NameChange) {
        self.live.apply(change);
        self.stable.apply(change);
    }

    /// Removes a name, with its durable and pending changes.
    pub(super) fn forget(&mut self, path: &Path) {
        self.live.files.remove(path);
        self.stable.files.remove(path);
        self.log.retain(
            |change| !matches!(change, NameChange::Link(name, _) | NameChange::Rename(_, name) if name == path),
        );
    }

    /// The names after a power cut.
    pub(super) fn after_crash(&self, rng: &mut Rng) -> Self {
        let kept = match rng.below(4) {
            0 => 0,
            1 => self.log.len(),
            _ => rng.index(self.log.len() + 1),
        };
        let mut names = self.stable.clone();
        for change in self.log.iter().take(kept) {
            names.apply(change);
        }
        // A file in a directory that is not there cannot be found.
        loop {
            let lost: Vec<PathBuf> = names.dirs.iter().filter(|dir| !names.has_dir(dir_of(dir))).cloned().collect();
            if lost.is_empty() {
                break;
            }
            names.dirs.retain(|dir| !lost.contains(dir));
        }
        let Names { files, dirs } = &mut names;
        files.retain(|path, _| is_given(dir_of(path)) || dirs.contains(dir_of(path)));
        Self { live: names.clone(), stable: names, log: Vec::new() }
    }

    /// All files that some state of the names may still mean.
    pub(super) fn reachable(&self) -> BTreeSet<InodeId> {
        let linked = self.log.iter().filter_map(|change| match change {
            NameChange::Link(_, id) => Some(*id),
            _ => None,
        });
        self.live.files.values().chain(self.stable.files.values()).copied().chain(linked).collect()
    }
}

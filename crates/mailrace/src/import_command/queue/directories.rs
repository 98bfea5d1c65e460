//! The directories of a queue and the files in them.
//!
//! A queue is one directory, or several below it (`qd*`, queue groups), each of which may have its control files, texts
//! and transcripts in the directories `qf`, `df` and `xf`.

use super::ASIDE;
use super::report::{ImportReport, Left, Why};
use crate::exit::{Exit, Failure};
use route::import::queue::{FileKind, QueueFile};
use rustix::fs::{FlockOperation, flock};
use rustix::io::Errno;
use std::collections::HashSet;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

/// How deep queue directories lie: groups, and directories in them.
const DEPTH_MAX: usize = 3;

/// A queue.
#[derive(Debug)]
pub(super) struct QueueDirectories {
    root: PathBuf,
    directories: Vec<QueueDirectory>,
}

/// A queue directory.
#[derive(Debug)]
pub(super) struct QueueDirectory {
    pub(super) control: PathBuf,
    pub(super) data: PathBuf,
    pub(super) transcript: PathBuf,
}

/// A control file.
#[derive(Debug)]
pub(super) struct ControlFile {
    /// The number of its directory.
    pub(super) directory: usize,
    pub(super) file: QueueFile,
}

impl QueueDirectories {
    /// Finds the queue directories below one.
    ///
    /// # Errors
    /// It is none, or cannot be listed.
    pub(super) fn open(path: &Path) -> Result<Self, Failure> {
        let of = |error: io::Error| match error.kind() {
            io::ErrorKind::NotFound => Failure::new(
                Exit::NoInput,
                format!("{}: {error}; name the queue directory of sendmail", path.display()),
            ),
            _ => Failure::io(path.display(), &error),
        };
        let root = path.canonicalize().map_err(of)?;
        if !root.is_dir() {
            let text = format!("{}: it is no directory; name the queue directory of sendmail", path.display());
            return Err(Failure::new(Exit::NoInput, text));
        }
        let mut directories = Vec::new();
        find(&root, DEPTH_MAX, &mut directories).map_err(of)?;
        Ok(Self { root, directories })
    }

    /// Locks the queue against other runs for as long as the file is open.
    ///
    /// # Errors
    /// There is one.
    pub(super) fn lock_exclusively(&self) -> Result<File, Failure> {
        let directory = File::open(&self.root).map_err(|error| Failure::io(self.root.display(), &error))?;
        flock(&directory, FlockOperation::NonBlockingLockExclusive).map_err(|error| match error {
            Errno::WOULDBLOCK => {
                let text = format!("{}: another mailrace import works on this queue; wait for it", self.root.display());
                Failure::new(Exit::TryLater, text)
            }
            error => Failure::io(self.root.display(), &error.into()),
        })?;
        Ok(directory)
    }

    pub(super) fn root(&self) -> &Path {
        &self.root
    }

    pub(super) fn directory(&self, number: usize) -> Option<&QueueDirectory> {
        self.directories.get(number)
    }

    pub(super) fn directories(&self) -> &[QueueDirectory] {
        &self.directories
    }

    /// Returns all control files, the oldest queue ids first; files that will not be taken over are reported.
    ///
    /// # Errors
    /// A directory cannot be listed.
    pub(super) fn control_files(&self, report: &mut ImportReport) -> Result<Vec<ControlFile>, Failure> {
        let mut found = Vec::new();
        for (number, directory) in self.directories.iter().enumerate() {
            let names = list(&directory.control)?;
            let mut known: HashSet<String> = HashSet::new();
            for file in &names {
                let path = || directory.control.join(file.name());
                match file.kind {
                    FileKind::Control | FileKind::Quarantined => {
                        known.insert(file.id.clone());
                        found.push(ControlFile { directory: number, file: file.clone() });
                    }
                    FileKind::Lost => {
                        known.insert(file.id.clone());
                        let reason = "sendmail could not read it and has put it aside; look at it, rename it to qf… once it is right";
                        report.add_left(Left::new(path(), Why::Lost, reason));
                    }
                    FileKind::Temporary => {
                        known.insert(file.id.clone());
                        if !names.iter().any(|other| other.id == file.id && other.kind == FileKind::Control) {
                            let reason = "it was being written when sendmail stopped, and was not accepted";
                            report.add_left(Left::new(path(), Why::Leftover, reason));
                        }
                    }
                    FileKind::Data | FileKind::Transcript => {}
                }
            }
            let texts = if directory.data == directory.control { names } else { list(&directory.data)? };
            for file in texts.iter().filter(|file| file.kind == FileKind::Data && !known.contains(&file.id)) {
                // Text may lie in the directory of another queue.
                if !self.has_control(&file.id) {
                    let reason =
                        "no control file belongs to it: sendmail had not accepted that message, or had finished it";
                    report.add_left(Left::new(directory.data.join(file.name()), Why::Leftover, reason));
                }
            }
        }
        found.sort_by(|a, b| (&a.file.id, a.directory).cmp(&(&b.file.id, b.directory)));
        Ok(found)
    }

    fn has_control(&self, id: &str) -> bool {
        let mut names = self
            .directories
            .iter()
            .flat_map(|one| ["qf", "hf", "Qf"].map(|kind| one.control.join(format!("{kind}{id}"))));
        names.any(|path| path.exists())
    }

    /// Lists the processes of sendmail that work in this queue: it changes its working directory to that of the queue.
    pub(super) fn running_sendmails(&self) -> Vec<(u32, String)> {
        let Ok(processes) = fs::read_dir("/proc") else { return Vec::new() };
        let of = |entry: io::Result<fs::DirEntry>| {
            let entry = entry.ok()?;
            let pid: u32 = entry.file_name().to_str()?.parse().ok()?;
            let name = fs::read_to_string(entry.path().join("comm")).ok()?.trim().to_owned();
            let works_in = fs::read_link(entry.path().join("cwd")).ok()?;
            let is_here =
                works_in.starts_with(&self.root) || (self.root.starts_with(&works_in) && works_in.parent().is_some());
            (name.starts_with("sendmail") && is_here).then_some((pid, name))
        };
        processes.filter_map(of).collect()
    }
}

fn find(path: &Path, depth: usize, to: &mut Vec<QueueDirectory>) -> io::Result<()> {
    let or_itself = |name: &str| {
        let below = path.join(name);
        if below.is_dir() { below } else { path.to_owned() }
    };
    to.push(QueueDirectory { control: or_itself("qf"), data: or_itself("df"), transcript: or_itself("xf") });
    if depth == 0 {
        return Ok(());
    }
    let mut below = Vec::new();
    for entry in fs::read_dir(path)? {
        let entry = entry?;
        let name = entry.file_name();
        let is_own = ["qf", "df", "xf", ASIDE, ".", ".."].iter().any(|one| name == *one);
        // Files are many, and most have names of a queue.
        let is_file = name.to_str().is_some_and(|name| QueueFile::read(name).is_some());
        if !is_own && !is_file && entry.path().is_dir() {
            below.push(entry.path());
        }
    }
    below.sort();
    below.iter().try_for_each(|path| find(path, depth - 1, to))
}

fn list(path: &Path) -> Result<Vec<QueueFile>, Failure> {
    let read = || -> io::Result<Vec<QueueFile>> {
        let mut files = Vec::new();
        for entry in fs::read_dir(path)? {
            files.extend(entry?.file_name().to_str().and_then(QueueFile::read));
        }
        files.sort();
        Ok(files)
    };
    read().map_err(|error| Failure::io(path.display(), &error))
}

//! Messages that change hands together.
//!
//! The order of durable steps keeps messages from being lost or delivered twice. The text of every message and its name
//! in the pickup directory are durable before any of its files moves in the queue, the move is durable before the
//! server may take the message, and that before a file is removed.

use super::ASIDE;
use super::job::{Job, moved_aside_path};
use super::report::{ImportReport, Left, Why};
use crate::exit::Failure;
use server::submit::import;
use std::collections::BTreeSet;
use std::fs::{self, DirBuilder, File};
use std::io;
use std::os::unix::fs::DirBuilderExt as _;
use std::path::{Path, PathBuf};
use std::thread;

/// Files that are made durable at the same time: they share the flushes of the file system.
const WRITERS: usize = 16;

/// Messages that were written and are still sendmail's.
#[derive(Debug)]
pub(super) struct Batch<'a> {
    pickup: &'a Path,
    removes: bool,
    jobs: Vec<Job>,
}

impl<'a> Batch<'a> {
    pub(super) const fn new(pickup: &'a Path, removes: bool) -> Self {
        Self { pickup, removes, jobs: Vec::new() }
    }

    pub(super) fn push(&mut self, job: Job) {
        self.jobs.push(job);
    }

    pub(super) fn len(&self) -> usize {
        self.jobs.len()
    }

    /// Gives the messages to the server.
    ///
    /// # Errors
    /// Something could not be written. Each message is still in the queue, or durable in the pickup directory, where
    /// the next run finds it.
    pub(super) fn release_to_server(&mut self, report: &mut ImportReport) -> Result<(), Failure> {
        let jobs = std::mem::take(&mut self.jobs);
        if jobs.is_empty() {
            return Ok(());
        }
        let fails = |error: io::Error| Failure::io(self.pickup.display(), &error);
        keep(&jobs).and_then(|()| import::sync(self.pickup)).map_err(fails)?;
        let mut touched = BTreeSet::new();
        let mut moved = Vec::new();
        for mut job in jobs {
            match move_aside(&job.files, &mut touched) {
                Ok(()) => moved.push(job),
                Err(error) => {
                    report.add_left(Left::new(
                        job.control_file(),
                        Why::Unreadable,
                        format!("it cannot be moved aside: {error}"),
                    ));
                    if let Some(waiting) = job.waiting.take() {
                        waiting.forget();
                    }
                }
            }
        }
        sync_all(&touched)?;
        for job in &moved {
            job.waiting.as_ref().map_or(Ok(()), |waiting| waiting.release()).map_err(fails)?;
        }
        import::sync(self.pickup).map_err(fails)?;
        for job in moved {
            if self.removes {
                remove(&job.files);
            }
            report.add_taken(job.summary());
        }
        Ok(())
    }
}

/// Makes all files durable, several at a time.
fn keep(jobs: &[Job]) -> io::Result<()> {
    let waiting: Vec<_> = jobs.iter().filter_map(|job| job.waiting.as_ref()).collect();
    let each = waiting.len().div_ceil(WRITERS).max(1);
    thread::scope(|scope| {
        let threads: Vec<_> = waiting
            .chunks(each)
            .map(|some| scope.spawn(move || some.iter().try_for_each(|one| one.make_durable())))
            .collect();
        threads.into_iter().try_for_each(|thread| {
            thread.join().unwrap_or_else(|_| Err(io::Error::other("a thread that wrote files has failed")))
        })
    })
}

/// Moves the files of a message to where the queue does not look. With the first of them it is sendmail's no more; a
/// text that cannot be moved behind that has no control file, so sendmail does not send it.
///
/// # Errors
/// The first could not be moved: nothing has changed.
pub(super) fn move_aside(files: &[PathBuf], touched: &mut BTreeSet<PathBuf>) -> io::Result<()> {
    for (number, file) in files.iter().enumerate() {
        let to = moved_aside_path(file);
        let moved = make_aside(&to, touched).and_then(|()| rename(file, &to));
        match moved {
            Ok(()) => touched.extend(file.parent().map(Path::to_owned)),
            Err(error) if number == 0 => return Err(error),
            // There is no transcript as a rule.
            Err(_) => {}
        }
    }
    Ok(())
}

fn make_aside(to: &Path, touched: &mut BTreeSet<PathBuf>) -> io::Result<()> {
    let Some(directory) = to.parent() else { return Ok(()) };
    if !touched.contains(directory) {
        match DirBuilder::new().mode(0o700).create(directory) {
            Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
            _ => {}
        }
        touched.insert(directory.to_owned());
    }
    Ok(())
}

/// Makes the moved files durable.
///
/// # Errors
/// It may not be.
pub(super) fn sync_all(touched: &BTreeSet<PathBuf>) -> Result<(), Failure> {
    for directory in touched {
        let synced = File::open(directory).and_then(|directory| directory.sync_all());
        synced.map_err(|error| Failure::io(directory.display(), &error))?;
    }
    Ok(())
}

/// Removes the files of a message that was moved aside.
pub(super) fn remove(files: &[PathBuf]) {
    for file in files {
        // A file that stays is harmless: its directory says what it holds.
        drop(fs::remove_file(moved_aside_path(file)));
    }
    for directory in files.iter().filter_map(|file| file.parent()).collect::<BTreeSet<_>>() {
        // It is empty as a rule, and then not needed.
        drop(fs::remove_dir(directory.join(ASIDE)));
    }
}

#[expect(clippy::disallowed_methods, reason = "directories are synced once for many files")]
fn rename(from: &Path, to: &Path) -> io::Result<()> {
    fs::rename(from, to)
}

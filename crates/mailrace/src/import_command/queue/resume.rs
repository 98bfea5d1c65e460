//! Files that an interrupted run has left in the pickup directory.

use super::batch::{move_aside, remove, sync_all};
use super::directories::QueueDirectories;
use super::job::moved_aside_path;
use super::report::{ImportReport, Left, Why};
use crate::exit::Failure;
use route::import::queue::{FileKind, QueueFile};
use server::submit::import;
use std::collections::{BTreeSet, HashSet};
use std::io;
use std::path::{Path, PathBuf};

/// Finishes the messages that an earlier run on this queue has begun.
///
/// # Errors
/// The pickup directory or the queue cannot be written.
pub(super) fn finish_earlier_run(
    place: &QueueDirectories,
    pickup: &Path,
    removes: bool,
    report: &mut ImportReport,
) -> Result<(), Failure> {
    let fails = |error: io::Error| Failure::io(pickup.display(), &error);
    for (name, found) in import::earlier_messages(pickup).map_err(fails)? {
        let adopted = match found {
            Ok(adopted) => adopted,
            Err(why) => {
                report.add_left(Left::new(pickup.join(format!("wait.{name}")), Why::Unreadable, why));
                continue;
            }
        };
        let control = PathBuf::from(&adopted.source);
        // Of another queue, whose turn will come.
        if !control.starts_with(place.root()) {
            continue;
        }
        if control.exists() {
            // Still sendmail's: this run writes it anew.
            continue;
        }
        if !moved_aside_path(&control).exists() {
            // sendmail has delivered it meanwhile.
            import::forget(pickup, &name).map_err(fails)?;
            continue;
        }
        let files = files_of(place, &control);
        let mut touched: BTreeSet<PathBuf> = control.parent().map(Path::to_owned).into_iter().collect();
        let others: Vec<PathBuf> = files.iter().skip(1).filter(|file| file.exists()).cloned().collect();
        move_aside(&others, &mut touched).map_err(fails)?;
        sync_all(&touched)?;
        import::release(pickup, &name).map_err(fails)?;
        import::sync(pickup).map_err(fails)?;
        if removes {
            remove(&files);
        }
        report.resumed += 1;
    }
    Ok(())
}

/// The files of a message by its control file.
fn files_of(place: &QueueDirectories, control: &Path) -> Vec<PathBuf> {
    let mut files = vec![control.to_owned()];
    let file = control.file_name().and_then(|name| name.to_str()).and_then(QueueFile::read);
    let directory = place.directories().iter().find(|one| Some(one.control.as_path()) == control.parent());
    if let (Some(file), Some(directory)) = (file, directory) {
        files.push(directory.data.join(QueueFile { kind: FileKind::Data, ..file.clone() }.name()));
        files.push(directory.transcript.join(QueueFile { kind: FileKind::Transcript, ..file }.name()));
    }
    files
}

/// The R of messages that the server has not taken yet.
///
/// # Errors
/// The pickup directory cannot be listed.
pub(super) fn handed_in(pickup: &Path) -> Result<HashSet<String>, Failure> {
    let read = || -> io::Result<HashSet<String>> {
        let mut known = HashSet::new();
        for entry in std::fs::read_dir(pickup)? {
            let name = entry?.file_name().to_string_lossy().into_owned();
            if let Some(rest) = name.strip_prefix("mail.") {
                known.insert(rest.split('.').next().unwrap_or_default().to_owned());
            }
        }
        Ok(known)
    };
    read().map_err(|error| Failure::io(pickup.display(), &error))
}

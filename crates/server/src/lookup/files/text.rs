//! The text of a file, if it is text: read once from one descriptor, and the same before and after.

use super::path::{FileError, OpenedFile, Rules, Stamp, open_file};
use rustix::fs::{SeekFrom, fstat, seek};
use std::fs::File;
use std::io::Read as _;
use std::path::Path;

/// How often a file is read that changes meanwhile.
const TRIES_MAX: usize = 5;
/// Octets of a line.
pub(super) const LINE_BYTES_MAX: usize = 4 << 10;

/// Result of a reading.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Read {
    /// The file has the known version.
    Unchanged,
    /// All of it.
    Text { text: String, stamp: Stamp, is_exclusive: bool },
}

/// Reads a file that counts; nothing of it if it is the version `known`. Blocks.
///
/// Takes no more memory than `bytes_max` and one more octet, and that much again for octets that are no UTF-8.
///
/// # Errors
/// There is none that counts, with the version if there is one.
pub(super) fn read(
    path: &Path,
    rules: &Rules,
    bytes_max: u64,
    known: Option<Stamp>,
) -> Result<Read, (FileError, Option<Stamp>)> {
    for _ in 0..TRIES_MAX {
        let OpenedFile { file, stamp, is_exclusive } = open_file(path, rules).map_err(|miss| (miss, None))?;
        if known == Some(stamp) {
            return Ok(Read::Unchanged);
        }
        let refused = |what: String| (FileError::Refused(format!("{}: {what}", path.display())), Some(stamp));
        if stamp.size > bytes_max {
            return Err(refused(format!("it has {} octets, more than {bytes_max}", stamp.size)));
        }
        if has_hole(&file, stamp.size) {
            return Err(refused("it has a hole, which no text has".to_owned()));
        }
        let bytes = octets(&file, stamp.size, bytes_max).map_err(|error| (FileError::of(path, error), Some(stamp)))?;
        let now = fstat(&file).map_err(|error| (FileError::of(path, error), Some(stamp)))?;
        if Stamp::of(&now) != stamp {
            continue;
        }
        if bytes.len() as u64 != stamp.size {
            return Err(refused(format!(
                "it has another size than it says, {} octets; it is no file of a disk",
                stamp.size
            )));
        }
        check(&bytes).map_err(refused)?;
        let text = match String::from_utf8(bytes) {
            Ok(text) => text,
            // A line that is not UTF-8 is no address; the others are used.
            Err(error) => String::from_utf8_lossy(error.as_bytes()).into_owned(),
        };
        return Ok(Read::Text { text, stamp, is_exclusive });
    }
    // Otherwise a user who writes the file without end would hold up the mail of every list that leads here.
    Err((FileError::Refused(format!("{} changes all the time while it is read", path.display())), None))
}

/// Returns whether some of a file takes no room on the disk. A file system that cannot say has none.
fn has_hole(file: &File, size: u64) -> bool {
    seek(file, SeekFrom::Hole(0)).is_ok_and(|hole| hole < size)
}

fn octets(file: &File, size: u64, bytes_max: u64) -> rustix::io::Result<Vec<u8>> {
    seek(file, SeekFrom::Start(0))?;
    let mut bytes = Vec::with_capacity(usize::try_from(size.min(bytes_max)).unwrap_or(0) + 1);
    let read = file.take(bytes_max.saturating_add(1)).read_to_end(&mut bytes);
    read.map_err(|error| rustix::io::Errno::from_io_error(&error).unwrap_or(rustix::io::Errno::IO))?;
    Ok(bytes)
}

/// Checks that it can be a text. The error names a line and none of its text.
fn check(bytes: &[u8]) -> Result<(), String> {
    for (number, line) in (1_u32..).zip(bytes.split(|byte| *byte == b'\n')) {
        if line.contains(&0) {
            return Err(format!("line {number} has a NUL, which no text has"));
        }
        if line.len() > LINE_BYTES_MAX {
            return Err(format!(
                "line {number} has {} octets, more than {LINE_BYTES_MAX}; write one address a line",
                line.len()
            ));
        }
    }
    Ok(())
}

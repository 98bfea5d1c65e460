//! Messages that a command reads from files or standard input.

use crate::exit::Failure;
use std::fs::File;
use std::io::{self, Read as _};
use std::path::{Path, PathBuf};

/// Octets of a message that are read; the rest counts as not scanned.
pub(crate) const MESSAGE_OCTETS_MAX: u64 = 256 << 20;

/// A message and its name for the output.
pub(crate) struct MessageFile {
    pub(crate) name: String,
    pub(crate) content: Vec<u8>,
    /// The content is the whole message.
    pub(crate) is_complete: bool,
}

/// Reads a message; `-` is standard input.
pub(crate) fn read(path: &Path) -> Result<MessageFile, Failure> {
    let name = if path == Path::new("-") { "standard input".to_owned() } else { path.display().to_string() };
    let failure = |error: &io::Error| Failure::io(&name, error);
    let mut content = Vec::new();
    if path == Path::new("-") {
        io::stdin().lock().take(MESSAGE_OCTETS_MAX + 1).read_to_end(&mut content).map_err(|error| failure(&error))?;
    } else {
        let file = File::open(path).map_err(|error| failure(&error))?;
        file.take(MESSAGE_OCTETS_MAX + 1).read_to_end(&mut content).map_err(|error| failure(&error))?;
    }
    let is_complete = content.len() as u64 <= MESSAGE_OCTETS_MAX;
    Ok(MessageFile { name, content, is_complete })
}

/// Returns the paths, or standard input if there are none.
pub(crate) fn or_stdin(paths: &[PathBuf]) -> Vec<PathBuf> {
    if paths.is_empty() { vec![PathBuf::from("-")] } else { paths.to_vec() }
}

//! `cluster.streams` in the spool directory: a line for each stream of this node, `OWNER HOLDER GENERATION`.
//!
//! A start without the engine knows by it that copies exist, and where. The file is replaced and synced before a stream
//! is made.

use cluster::{NodeId, StreamId};
use spool::disk::Disk as _;
use spool::disk::real::RealDisk;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

/// Name of the file.
const NAME: &str = "cluster.streams";

/// The streams whose names are kept.
#[derive(Debug)]
pub(super) struct StreamNames {
    directory: PathBuf,
    streams: Mutex<Vec<StreamId>>,
}

impl StreamNames {
    /// Reads the file; none is there before the first stream.
    ///
    /// # Errors
    /// It cannot be read, or has a line that is none of a stream, with the number of the line.
    pub(super) fn open(directory: &Path) -> Result<Self, String> {
        let path = directory.join(NAME);
        let text = match std::fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => String::new(),
            Err(error) => return Err(format!("{}: {error}", path.display())),
        };
        let mut streams = Vec::new();
        for (line, number) in text.lines().zip(1..) {
            let stream = parse(line).ok_or_else(|| {
                format!(
                    "{} line {number}: \"{line}\" is not a stream (owner, holder, generation); restore the file from a copy of the spool",
                    path.display()
                )
            })?;
            streams.push(stream);
        }
        Ok(Self { directory: directory.to_owned(), streams: Mutex::new(streams) })
    }

    /// The streams that are kept.
    pub(super) fn streams(&self) -> Vec<StreamId> {
        self.streams.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Adds a stream. Durable on return; waits for the disk.
    ///
    /// # Errors
    /// The file cannot be replaced; the stream is not kept.
    pub(super) fn keep(&self, stream: StreamId) -> io::Result<()> {
        let mut streams = self.streams.lock().unwrap_or_else(PoisonError::into_inner);
        if streams.contains(&stream) {
            return Ok(());
        }
        let line = |one: &StreamId| format!("{} {} {}\n", one.owner.0, one.holder.0, one.generation);
        let text: String = streams.iter().chain([&stream]).map(line).collect();
        RealDisk::new().replace_small(&self.directory.join(NAME), text.as_bytes())?;
        streams.push(stream);
        Ok(())
    }
}

fn parse(line: &str) -> Option<StreamId> {
    let mut words = line.split(' ');
    let mut node = || Some(NodeId(words.next()?.parse().ok()?));
    let (owner, holder) = (node()?, node()?);
    let generation = words.next()?.parse().ok()?;
    words.next().is_none().then_some(StreamId { owner, holder, generation })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_outlive_a_start_and_a_bad_line_is_named() {
        let place = tempfile::tempdir().unwrap();
        let stream = |holder, generation| StreamId { owner: NodeId(3), holder: NodeId(holder), generation };
        let names = StreamNames::open(place.path()).unwrap();
        assert_eq!(names.streams(), []);
        for one in [stream(7, 0), stream(8, 0), stream(7, 1), stream(8, 0)] {
            names.keep(one).unwrap();
        }
        drop(names);
        let names = StreamNames::open(place.path()).unwrap();
        assert_eq!(names.streams(), [stream(7, 0), stream(8, 0), stream(7, 1)]);
        std::fs::write(place.path().join(NAME), "3 7 0\n3 7\n").unwrap();
        assert!(StreamNames::open(place.path()).unwrap_err().contains("line 2: \"3 7\""));
    }
}

//! One log: opened, unpacked, and cut into lines.
//!
//! The first octets of a file say how it is packed, not its name: rotation scripts give any names.

use super::clock;
use crate::exit::{Exit, Failure};
use observe::log_reader::{self, LINE_MAX, LogReaderSettings};
use ruzstd::decoding::{FrameDecoder, StreamingDecoder};
use std::cell::Cell;
use std::fs::File;
use std::io::{self, BufRead, BufReader, Read, Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::rc::Rc;

/// Octets that are read at a time.
const BLOCK: usize = 1 << 20;
/// Lines in which the first stamp of a file is looked for.
const STAMP_LINES_MAX: usize = 1_000;

/// Calls `each` with every line as it stands, with its end where it has one, until it returns false.
///
/// # Errors
/// Reading failed; the lines before it were given.
pub(super) fn for_each_line(reader: &mut impl BufRead, mut each: impl FnMut(&[u8]) -> bool) -> io::Result<()> {
    let mut begun = Vec::new();
    loop {
        let block = match reader.fill_buf() {
            Ok(block) => block,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
            Err(error) => return Err(error),
        };
        if block.is_empty() {
            break;
        }
        let used = block.len();
        if !each_in_block(block, &mut begun, &mut each) {
            return Ok(());
        }
        reader.consume(used);
    }
    if !begun.is_empty() {
        each(&begun);
    }
    Ok(())
}

/// Gives the lines that end in this block; the beginning of another stays in `begun`. Of a line that is too long no
/// more is kept than shows that it is.
fn each_in_block(block: &[u8], begun: &mut Vec<u8>, each: &mut impl FnMut(&[u8]) -> bool) -> bool {
    let mut from = 0;
    for end in memchr::memchr_iter(b'\n', block) {
        let line = block.get(from..=end).unwrap_or_default();
        from = end + 1;
        let goes_on = if begun.is_empty() {
            each(line)
        } else {
            keep(begun, line);
            let goes_on = each(begun);
            begun.clear();
            goes_on
        };
        if !goes_on {
            return false;
        }
    }
    keep(begun, block.get(from..).unwrap_or_default());
    true
}

fn keep(begun: &mut Vec<u8>, part: &[u8]) {
    let room = (LINE_MAX + 2).saturating_sub(begun.len());
    begun.extend_from_slice(part.get(..room).unwrap_or(part));
}

/// A file that counts what is read of it.
struct CountingReader<R> {
    from: R,
    octets: Rc<Cell<u64>>,
}

impl<R: Read> Read for CountingReader<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(buffer)?;
        self.octets.set(self.octets.get() + count as u64);
        Ok(count)
    }
}

/// A log to read.
pub(super) struct LogFile {
    pub(super) path: PathBuf,
    /// The time of the first line with a stamp.
    pub(super) first: Option<i64>,
    /// The last change of the file.
    pub(super) changed: i64,
    /// Octets on the disk.
    pub(super) octets: u64,
}

impl LogFile {
    /// Finds the size and the first stamp of a file. `-` is standard input.
    ///
    /// # Errors
    /// It cannot be read.
    pub(super) fn look(path: &Path, year: Option<i64>) -> Result<Self, Failure> {
        if is_stdin(path) {
            return Ok(Self { path: path.to_owned(), first: None, changed: clock::civil_now(), octets: 0 });
        }
        let data = std::fs::metadata(path).map_err(|error| failed(path, &error))?;
        if data.is_dir() {
            let text = format!("{}: a directory; name the logs in it", path.display());
            return Err(Failure::new(Exit::NoInput, text));
        }
        let changed = clock::civil_of(u64::try_from(data.mtime()).unwrap_or(0));
        let mut log = Self { path: path.to_owned(), first: None, changed, octets: data.len() };
        if !data.is_file() {
            // A pipe can be read once.
            return Ok(log);
        }
        let settings = log.settings(year);
        let mut lines = 0;
        let mut first = None;
        // An archive that is damaged at its beginning is told of when it is read.
        drop(for_each_line(&mut log.open()?.lines, |line| {
            lines += 1;
            first = log_reader::time_of(line, settings);
            first.is_none() && lines < STAMP_LINES_MAX
        }));
        log.first = first;
        Ok(log)
    }

    /// Returns how its stamps are read.
    pub(super) fn settings(&self, year: Option<i64>) -> LogReaderSettings {
        LogReaderSettings { now: self.changed, year, utc_offset: clock::offset_now() }
    }

    /// Opens it.
    ///
    /// # Errors
    /// It cannot be opened, or it is packed in a way that is not known.
    pub(super) fn open(&self) -> Result<OpenLog, Failure> {
        let octets = Rc::new(Cell::new(0));
        let from: Box<dyn Read> = if is_stdin(&self.path) {
            Box::new(io::stdin())
        } else {
            Box::new(File::open(&self.path).map_err(|error| failed(&self.path, &error))?)
        };
        let mut from = BufReader::with_capacity(BLOCK, CountingReader { from, octets: Rc::clone(&octets) });
        let begin = from.fill_buf().map_err(|error| failed(&self.path, &error))?;
        let unpacked: Box<dyn Read> = match begin {
            [0x1F, 0x8B, ..] => Box::new(flate2::bufread::MultiGzDecoder::new(from)),
            [0xFD, b'7', b'z', b'X', b'Z', 0, ..] => Box::new(lzma_rust2::XzReader::new(from, true)),
            [0x28, 0xB5, 0x2F, 0xFD, ..] => Box::new(ZstdFrames::new(from)),
            [b'B', b'Z', b'h', b'1'..=b'9', ..] => {
                let path = self.path.display();
                let text = format!("{path}: packed by bzip2; unpack it: bzip2 -dc {path} | mailrace stats KIND -");
                return Err(Failure::new(Exit::Damaged, text));
            }
            _ => return Ok(OpenLog { lines: Box::new(from), octets, is_packed: false }),
        };
        Ok(OpenLog { lines: Box::new(BufReader::with_capacity(BLOCK, unpacked)), octets, is_packed: true })
    }
}

/// A log from its first line on.
pub(super) struct OpenLog {
    /// Its unpacked content.
    pub(super) lines: Box<dyn BufRead>,
    /// Octets that were read from the disk.
    pub(super) octets: Rc<Cell<u64>>,
    pub(super) is_packed: bool,
}

/// Unpacks zstd: a file may hold several frames, one after the other.
struct ZstdFrames<R: BufRead> {
    frame: Option<StreamingDecoder<R, FrameDecoder>>,
    /// Where no frame is begun.
    between: Option<R>,
}

impl<R: BufRead> ZstdFrames<R> {
    fn new(from: R) -> Self {
        Self { frame: None, between: Some(from) }
    }
}

impl<R: BufRead> Read for ZstdFrames<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        loop {
            if let Some(mut from) = self.between.take() {
                if from.fill_buf()?.is_empty() {
                    self.between = Some(from);
                    return Ok(0);
                }
                self.frame = Some(StreamingDecoder::new(from).map_err(io::Error::other)?);
            }
            let Some(frame) = &mut self.frame else { return Ok(0) };
            let count = frame.read(buffer)?;
            if count > 0 || buffer.is_empty() {
                return Ok(count);
            }
            self.between = self.frame.take().map(StreamingDecoder::into_inner);
        }
    }
}

/// Returns whether this is standard input.
pub(super) fn is_stdin(path: &Path) -> bool {
    path.as_os_str() == "-"
}

/// Returns the failure to open or read a file.
pub(super) fn failed(path: &Path, error: &io::Error) -> Failure {
    if error.kind() == io::ErrorKind::NotFound {
        return Failure::new(Exit::NoInput, format!("{}: there is no such file", path.display()));
    }
    Failure::io(path.display(), error)
}

/// A file that is written while it is read.
pub(super) struct FollowedFile {
    path: PathBuf,
    file: File,
    inode: u64,
    begun: Vec<u8>,
}

impl FollowedFile {
    /// Opens the file. `at_end`: lines that are there already are passed over.
    ///
    /// # Errors
    /// It cannot be opened.
    pub(super) fn open(path: &Path, at_end: bool) -> Result<Self, Failure> {
        let open = || {
            let mut file = File::open(path)?;
            let inode = file.metadata()?.ino();
            if at_end {
                file.seek(SeekFrom::End(0))?;
            }
            Ok((file, inode))
        };
        let (file, inode) = open().map_err(|error| failed(path, &error))?;
        Ok(Self { path: path.to_owned(), file, inode, begun: Vec::new() })
    }

    /// Gives the lines that were written since, and looks whether the file was renamed or cut.
    ///
    /// # Errors
    /// Reading failed.
    pub(super) fn read_new(&mut self, mut each: impl FnMut(&[u8])) -> Result<(), Failure> {
        self.read_to_end(&mut each)?;
        let there = std::fs::metadata(&self.path).ok();
        let position = self.file.stream_position().map_err(|error| failed(&self.path, &error))?;
        match there {
            // The last lines may have come between the reading and the renaming.
            Some(data) if data.ino() != self.inode => {
                self.read_to_end(&mut each)?;
                *self = Self::open(&self.path, false)?;
                self.read_to_end(&mut each)
            }
            Some(data) if data.len() < position => {
                self.begun.clear();
                self.file.seek(SeekFrom::Start(0)).map_err(|error| failed(&self.path, &error))?;
                self.read_to_end(&mut each)
            }
            // Renamed, and the new one is not there yet.
            _ => Ok(()),
        }
    }

    fn read_to_end(&mut self, each: &mut impl FnMut(&[u8])) -> Result<(), Failure> {
        let mut block = vec![0; 64 << 10];
        loop {
            match self.file.read(&mut block) {
                Ok(0) => return Ok(()),
                Ok(count) => {
                    let part = block.get(..count).unwrap_or_default();
                    each_in_block(part, &mut self.begun, &mut |line| {
                        each(line);
                        true
                    });
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(failed(&self.path, &error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    fn lines(text: &[u8], capacity: usize) -> Vec<Vec<u8>> {
        let mut found = Vec::new();
        let mut reader = BufReader::with_capacity(capacity, text);
        for_each_line(&mut reader, |line| {
            found.push(line.to_vec());
            true
        })
        .unwrap();
        found
    }

    #[test]
    fn lines_are_the_same_for_any_block() {
        let text = b"one\n\ntwo, longer\nlast";
        for capacity in 1..20 {
            assert_eq!(lines(text, capacity), [&b"one\n"[..], b"\n", b"two, longer\n", b"last"], "{capacity}");
        }
        let long = vec![b'x'; 3 * LINE_MAX];
        assert_eq!(lines(&long, 1_000).first().map(Vec::len), Some(LINE_MAX + 2), "no more than shows that it is long");
    }

    #[test]
    fn a_followed_file_may_be_renamed_and_cut() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("maillog");
        let append = |text: &str| {
            let mut before = fs::read(&path).unwrap_or_default();
            before.extend_from_slice(text.as_bytes());
            let mut file = fs::OpenOptions::new().append(true).create(true).open(&path).unwrap();
            io::Write::write_all(&mut file, text.as_bytes()).unwrap();
        };
        append("old\nbeg");
        let mut followed = FollowedFile::open(&path, false).unwrap();
        let mut new = || {
            let mut found = Vec::new();
            followed.read_new(|line| found.push(String::from_utf8_lossy(line).trim_end().to_owned())).unwrap();
            found
        };
        assert_eq!(new(), ["old"]);
        append("un\nbefore\n");
        let mut file = File::options().append(true).open(&path).unwrap();
        #[expect(clippy::disallowed_methods, reason = "a rotation, as a script does it")]
        fs::rename(&path, directory.path().join("maillog.1")).unwrap();
        io::Write::write_all(&mut file, b"late\n").unwrap();
        append("new\n");
        assert_eq!(new(), ["begun", "before", "late", "new"]);
        fs::write(&path, "a\n").unwrap();
        assert_eq!(new(), ["a"]);
        assert_eq!(new(), [""; 0]);
    }
}

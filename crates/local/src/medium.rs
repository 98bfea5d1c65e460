//! A file that messages are appended to, and what stands in for it in tests.

use std::fs::File;
use std::io::{self, Seek as _, SeekFrom, Write};
use std::os::unix::fs::FileExt;

/// Something that a message is put behind the end of.
pub(crate) trait Medium: Write {
    /// Reads some octets from a place on; none behind the end.
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize>;
    /// Makes it as long as it was.
    fn cut(&mut self, length: u64) -> io::Result<()>;
    /// Returns when all of it is on stable storage.
    fn sync(&mut self) -> io::Result<()>;
}

impl Medium for File {
    fn read_at(&self, buffer: &mut [u8], at: u64) -> io::Result<usize> {
        FileExt::read_at(self, buffer, at)
    }

    fn cut(&mut self, length: u64) -> io::Result<()> {
        // A program that writes without a lock may have written behind the message meanwhile; its text is not removed.
        if self.metadata()?.len() > self.stream_position()? {
            return Err(io::Error::other("another program has written behind it, without the lock"));
        }
        self.set_len(length)?;
        self.seek(SeekFrom::Start(length)).map(drop)
    }

    fn sync(&mut self) -> io::Result<()> {
        self.sync_all()
    }
}

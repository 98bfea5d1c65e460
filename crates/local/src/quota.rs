//! The quota of a Maildir, where other programs keep one: the file `maildirsize` of Maildir++ in its uppermost
//! directory.
//!
//! ```text
//! 10000000S,1000C        octets and messages that are allowed
//! 5723000 411            what is there; each further line is what came, or went, since
//! 2104 1
//! ```
//!
//! Without the file there is no quota. A message that does not fit is deferred after the Maildir was counted anew,
//! since a reader may have removed messages without a line in the file. A line is added by one write, as all programs
//! do it, without a lock: two that count at the same time may be a message off until it is counted again.

use rustix::fs::{Mode, OFlags};
use std::fs::File;
use std::io::{self, Read as _, Write as _};
use std::path::{Path, PathBuf};

const NAME: &str = "maildirsize";
/// A file that is longer is written anew.
const BYTES_MAX: u64 = 5_120;
/// The folder that counts for nothing.
const TRASH: &str = ".Trash";

/// The limits of a Maildir, and its present size.
#[derive(Debug)]
pub(super) struct Quota {
    base: PathBuf,
    /// 0: no limit.
    bytes_max: i64,
    /// 0: no limit.
    messages_max: i64,
    /// As the file has it.
    first_line: String,
    bytes: i64,
    messages: i64,
    /// The present size was counted for this very delivery.
    is_counted: bool,
}

impl Quota {
    /// Reads the file; `None`: there is none, or none that can be understood.
    pub(super) fn read_file(base: &Path) -> Option<Self> {
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let file = File::from(rustix::fs::open(base.join(NAME), flags, Mode::empty()).ok()?);
        let mut text = String::new();
        file.take(BYTES_MAX + 1).read_to_string(&mut text).ok()?;
        let mut lines = text.lines();
        let first_line = lines.next()?.trim().to_owned();
        let limit = |unit: char| {
            let parts = first_line.split(',').filter_map(|part| part.trim().strip_suffix(unit));
            parts.filter_map(|number| number.parse::<i64>().ok()).next().unwrap_or(0)
        };
        let (bytes_max, messages_max) = (limit('S'), limit('C'));
        let mut quota = Self {
            base: base.to_owned(),
            bytes_max,
            messages_max,
            first_line,
            bytes: 0,
            messages: 0,
            is_counted: false,
        };
        if text.len() as u64 > BYTES_MAX {
            quota.count();
        } else {
            for line in lines {
                let mut numbers = line.split_ascii_whitespace().filter_map(|number| number.parse::<i64>().ok());
                if let (Some(bytes), Some(messages)) = (numbers.next(), numbers.next()) {
                    quota.bytes = quota.bytes.saturating_add(bytes);
                    quota.messages = quota.messages.saturating_add(messages);
                }
            }
        }
        (bytes_max > 0 || messages_max > 0).then_some(quota)
    }

    /// Counts a message of so many octets, if it fits in.
    ///
    /// # Errors
    /// Why not.
    pub(super) fn reserve_message(&mut self, bytes: u64) -> Result<(), String> {
        let bytes = i64::try_from(bytes).unwrap_or(i64::MAX);
        if !self.fits(bytes) && !self.is_counted {
            self.count();
        }
        if !self.fits(bytes) {
            let (base, line) = (self.base.display(), &self.first_line);
            return Err(format!(
                "{base} is full: it has {} octets in {} messages, and its quota in {NAME} is {line}",
                self.bytes, self.messages
            ));
        }
        self.bytes = self.bytes.saturating_add(bytes);
        self.messages += 1;
        let flags = OFlags::WRONLY | OFlags::APPEND | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let file = rustix::fs::open(self.base.join(NAME), flags, Mode::empty()).map(File::from);
        // Mail is delivered although it cannot be counted; it is found when everything is.
        drop(file.map(|mut file| file.write_all(format!("{bytes} 1\n").as_bytes())));
        Ok(())
    }

    const fn fits(&self, bytes: i64) -> bool {
        (self.bytes_max <= 0 || self.bytes.saturating_add(bytes) <= self.bytes_max)
            && (self.messages_max <= 0 || self.messages < self.messages_max)
    }

    /// Counts the messages, and writes the file anew.
    fn count(&mut self) {
        (self.bytes, self.messages, self.is_counted) = (0, 0, true);
        let folders = std::fs::read_dir(&self.base).into_iter().flatten().filter_map(Result::ok);
        let is_folder = |name: &str| name.starts_with('.') && name != TRASH && name != "." && name != "..";
        let folders =
            folders.filter(|entry| entry.file_name().to_str().is_some_and(is_folder)).map(|entry| entry.path());
        for folder in folders.chain([self.base.clone()]).collect::<Vec<_>>() {
            for part in ["new", "cur"] {
                let files = std::fs::read_dir(folder.join(part)).into_iter().flatten().filter_map(Result::ok);
                for file in files {
                    let name = file.file_name();
                    let told = name.to_str().and_then(size_in_name);
                    let Some(size) = told.or_else(|| file.metadata().ok().map(|found| found.len())) else { continue };
                    self.bytes = self.bytes.saturating_add(i64::try_from(size).unwrap_or(i64::MAX));
                    self.messages += 1;
                }
            }
        }
        // If the file cannot be written, the next delivery counts again.
        drop(self.write());
    }

    fn write(&self) -> io::Result<()> {
        let draft = self.base.join("tmp").join(format!("{NAME}.{}", std::process::id()));
        let flags = OFlags::WRONLY | OFlags::CREATE | OFlags::TRUNC | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut file = File::from(rustix::fs::open(&draft, flags, Mode::from_raw_mode(0o600))?);
        let written = writeln!(file, "{}\n{} {}", self.first_line, self.bytes, self.messages);
        written.and_then(|()| Ok(rustix::fs::rename(&draft, self.base.join(NAME))?)).inspect_err(|_| {
            drop(std::fs::remove_file(&draft));
        })
    }
}

/// `123` of `…,S=123:2,S`.
fn size_in_name(name: &str) -> Option<u64> {
    let (_, rest) = name.split_once(",S=")?;
    let end = rest.find(|letter: char| !letter.is_ascii_digit()).unwrap_or(rest.len());
    rest.get(..end)?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn maildir(quota: &str) -> tempfile::TempDir {
        let directory = tempfile::tempdir().unwrap();
        for part in ["tmp", "new", "cur", ".lists/new", ".lists/cur", ".Trash/cur"] {
            std::fs::create_dir_all(directory.path().join(part)).unwrap();
        }
        std::fs::write(directory.path().join(NAME), quota).unwrap();
        directory
    }

    fn text(directory: &tempfile::TempDir) -> String {
        std::fs::read_to_string(directory.path().join(NAME)).unwrap()
    }

    #[test]
    fn messages_are_counted_as_others_count_them() {
        let directory = maildir("1000S,5C\n500 2\n-100 -1\n");
        let mut quota = Quota::read_file(directory.path()).unwrap();
        assert_eq!((quota.bytes, quota.messages), (400, 1));
        assert_eq!((quota.reserve_message(300), quota.reserve_message(300)), (Ok(()), Ok(())));
        assert_eq!(text(&directory), "1000S,5C\n500 2\n-100 -1\n300 1\n300 1\n");
        for (none, why) in [("", "empty"), ("nonsense\n", "no limit"), ("0S,0C\n", "no limit")] {
            assert!(Quota::read_file(maildir(none).path()).is_none(), "{why}");
        }
        assert!(Quota::read_file(Path::new("/nonexistent")).is_none());
    }

    #[test]
    fn what_does_not_fit_is_refused_after_it_was_counted() {
        let directory = maildir("1000S\n990 7\n");
        let at = |name: &str| directory.path().join(name);
        std::fs::write(at("cur/1.a.host,S=300:2,S"), "").unwrap();
        std::fs::write(at(".lists/new/2.b.host"), "0123456789").unwrap();
        std::fs::write(at(".Trash/cur/3.c.host,S=900:2,S"), "").unwrap();
        // Mail was removed without a line in the file.
        let mut quota = Quota::read_file(directory.path()).unwrap();
        assert_eq!(quota.reserve_message(690), Ok(()));
        assert_eq!(text(&directory), "1000S\n310 2\n690 1\n");
        let refused = quota.reserve_message(1).unwrap_err();
        assert!(refused.contains("has 1000 octets in 3 messages") && refused.ends_with("1000S"), "{refused}");
        assert_eq!(std::fs::read_dir(at("tmp")).unwrap().count(), 0);
        let mut few = Quota::read_file(maildir("2C\n10 1\n").path()).unwrap();
        few.is_counted = true;
        assert!(few.reserve_message(1 << 40).is_ok() && few.reserve_message(1).is_err());
    }

    #[test]
    fn a_long_file_is_written_anew() {
        let directory = maildir(&format!("1000000S\n{}", "1 1\n".repeat(2_000)));
        let mut quota = Quota::read_file(directory.path()).unwrap();
        assert_eq!((quota.bytes, quota.messages), (0, 0));
        quota.reserve_message(5).unwrap();
        assert_eq!(text(&directory), "1000000S\n0 0\n5 1\n");
    }
}

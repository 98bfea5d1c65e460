//! Several logs as one stream of facts, in the order of their first lines.

use super::SourceArguments;
use super::log_file::{FollowedFile, LogFile, OpenLog, failed, for_each_line, is_stdin};
use crate::exit::{Exit, Failure};
use crate::output::{Progress, thousands};
use crate::terminal_text::plain;
use observe::log_reader::{LineCounts, LogReader};
use observe::stats::Fact;
use os::clock;
use std::time::{Duration, Instant};

/// Time between two changes of the progress bar.
const SHOW_EVERY: Duration = Duration::from_millis(200);
/// Lines between two looks at the clock.
const LINES_BETWEEN: u64 = 10_000;

/// Logs that are being read.
pub(super) struct Logs {
    reader: LogReader,
    files: Vec<LogFile>,
    /// An archive that is damaged was read as far as it goes.
    is_damaged: bool,
}

impl Logs {
    /// Sorts the files by their first stamps.
    ///
    /// # Errors
    /// One of them cannot be read.
    pub(super) fn new(source: &SourceArguments) -> Result<Self, Failure> {
        let mut files = source
            .files
            .iter()
            .map(|path| LogFile::look(path, source.year))
            .collect::<Result<Vec<LogFile>, Failure>>()?;
        if files.iter().filter(|file| is_stdin(&file.path)).count() > 1 {
            return Err(Failure::new(Exit::Usage, "standard input (-) is named twice"));
        }
        sort_by_time(&mut files, source.year.is_some());
        let settings = files.first().map(|file| file.settings(source.year));
        let Some(settings) = settings else {
            return Err(Failure::new(Exit::Usage, "name a log, or - for standard input"));
        };
        Ok(Self { reader: LogReader::new(settings), files, is_damaged: false })
    }

    /// Reads all files to their ends.
    ///
    /// # Errors
    /// One of them cannot be read.
    pub(super) fn read_all(&mut self, mut each: impl FnMut(i64, &Fact<'_>)) -> Result<(), Failure> {
        for file in std::mem::take(&mut self.files) {
            self.read_file(&file, &mut each)?;
        }
        Ok(())
    }

    /// Reads all files to their ends, and returns the last one to go on with. `at_end`: all lines that are there are
    /// passed over.
    ///
    /// # Errors
    /// One of them cannot be read, or the last one cannot be followed.
    pub(super) fn read_all_and_follow(
        &mut self,
        at_end: bool,
        mut each: impl FnMut(i64, &Fact<'_>),
    ) -> Result<FollowedFile, Failure> {
        let mut files = std::mem::take(&mut self.files);
        let last = files.pop().filter(|file| !is_stdin(&file.path)).ok_or_else(|| {
            Failure::new(Exit::Usage, "--follow needs a file; standard input is read to its end without it")
        })?;
        for file in files.iter().filter(|_| !at_end) {
            self.read_file(file, &mut each)?;
        }
        let mut followed = FollowedFile::open(&last.path, at_end)?;
        self.read_new(&mut followed, each)?;
        Ok(followed)
    }

    /// Reads the lines that were written since.
    ///
    /// # Errors
    /// The file cannot be read.
    pub(super) fn read_new(
        &mut self,
        followed: &mut FollowedFile,
        mut each: impl FnMut(i64, &Fact<'_>),
    ) -> Result<(), Failure> {
        followed.read_new(|line| self.reader.read_line(line, &mut each))
    }

    fn read_file(&mut self, file: &LogFile, each: &mut impl FnMut(i64, &Fact<'_>)) -> Result<(), Failure> {
        let OpenLog { mut lines, octets, is_packed } = file.open()?;
        let mut progress = ReadProgress::new(file);
        let result = for_each_line(&mut lines, |line| {
            self.reader.read_line(line, &mut *each);
            progress.show_sometimes(self.reader.counts().lines, || octets.get());
            true
        });
        progress.line.clear();
        match result {
            Err(error) if is_packed => {
                let name = plain(&file.path.display().to_string());
                eprintln!("mailrace: {name}: damaged: {error}; the lines before that are counted");
                self.is_damaged = true;
                Ok(())
            }
            result => result.map_err(|error| failed(&file.path, &error)),
        }
    }

    /// Returns the numbers of lines by their use.
    pub(super) fn counts(&self) -> LineCounts {
        self.reader.counts()
    }

    /// Returns the latest time of all lines.
    pub(super) fn last_time(&self) -> Option<i64> {
        self.reader.last_time()
    }

    /// Names on standard error the lines that could not be counted, and returns the exit status.
    pub(super) fn remarks(&self) -> Exit {
        let LineCounts { lines, used, other, broken } = self.counts();
        if broken > 0 {
            eprintln!("mailrace: {} of {} lines are damaged and not counted", thousands(broken), thousands(lines));
        }
        if used == 0 {
            let (lines, other) = (thousands(lines), thousands(other));
            eprintln!(
                "mailrace: no line about mail in {lines} lines, {other} of other programs; logs of sendmail, Postfix and mailrace are understood"
            );
            return Exit::Damaged;
        }
        if self.is_damaged { Exit::Damaged } else { Exit::Ok }
    }
}

/// Puts files in the order of their first stamps. Files without a stamp, and standard input, stay behind the others.
///
/// With a given year all stamps seem to be of that year: behind a gap of more than half a year the files are those of
/// before its end, as [`LogReader`] reads a step back.
fn sort_by_time(files: &mut [LogFile], is_year_given: bool) {
    const HALF_YEAR: u64 = 183 * 86_400;
    files.sort_by_key(|file| file.first.unwrap_or(i64::MAX));
    let stamped = files.partition_point(|file| file.first.is_some());
    let Some(stamped) = files.get_mut(..stamped).filter(|_| is_year_given) else { return };
    let is_gap = |pair: &[LogFile]| {
        let [a, b] = pair else { return false };
        b.first.unwrap_or(0).abs_diff(a.first.unwrap_or(0)) > HALF_YEAR
    };
    if let Some(at) = stamped.windows(2).position(is_gap) {
        stamped.rotate_left(at + 1);
    }
}

/// The progress bar of a file, on a terminal.
struct ReadProgress {
    line: Progress,
    name: String,
    octets: u64,
    first_lines: Option<u64>,
    began: Instant,
    last: Instant,
}

impl ReadProgress {
    fn new(file: &LogFile) -> Self {
        let now = clock::now();
        let name = plain(&file.path.display().to_string());
        Self { line: Progress::new(), name, octets: file.octets, first_lines: None, began: now, last: now }
    }

    fn show_sometimes(&mut self, lines: u64, octets: impl Fn() -> u64) {
        if !lines.is_multiple_of(LINES_BETWEEN) {
            return;
        }
        let first = *self.first_lines.get_or_insert(lines);
        let now = clock::now();
        if now.saturating_duration_since(self.last) < SHOW_EVERY {
            return;
        }
        self.last = now;
        let milliseconds = u64::try_from(now.saturating_duration_since(self.began).as_millis()).unwrap_or(u64::MAX);
        let rate = (lines - first) * 1_000 / milliseconds.max(1);
        let bar = if self.octets > 0 { bar(octets(), self.octets) } else { String::new() };
        self.line.show(format_args!("{}: {bar}{} lines/s", self.name, thousands(rate)));
    }
}

/// `[#####     ]  50 %, `
fn bar(done: u64, all: u64) -> String {
    const WIDTH: u64 = 20;
    let marks = usize::try_from((done * WIDTH / all.max(1)).min(WIDTH)).unwrap_or(0);
    let percent = (done * 100 / all.max(1)).min(100);
    format!("[{:<20}] {percent:>3} %, ", "#".repeat(marks))
}

#[cfg(test)]
mod tests {
    use super::bar;

    #[test]
    fn bars() {
        assert_eq!(bar(50, 100), "[##########          ]  50 %, ");
        assert_eq!(bar(200, 100), "[####################] 100 %, ");
        assert_eq!(bar(1, 0), "[####################] 100 %, ");
    }
}

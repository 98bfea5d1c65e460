//! A table made of logs or of the running server, once or again and again.

use super::SourceArguments;
use super::clock;
use super::log_file::FollowedFile;
use super::logs::Logs;
use crate::control_client::Control;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use observe::log_reader::LineCounts;
use observe::stats::Fact;
use serde_json::{Value, json};
use std::io::IsTerminal as _;
use std::time::Duration;

/// Time until a table is printed again.
const AGAIN_EVERY: Duration = Duration::from_secs(15);
/// Time between two looks at a file.
pub(super) const LOOK_EVERY: Duration = Duration::from_millis(250);

/// A kind of table.
pub(super) trait Report {
    /// The sums that it is made of.
    type Sums;

    /// Makes sums without anything in them.
    fn empty(&self) -> Self::Sums;

    /// Counts a fact of a log.
    fn record(&self, sums: &mut Self::Sums, time: i64, fact: &Fact<'_>);

    /// Asks the running server.
    ///
    /// # Errors
    /// It does not answer.
    fn ask(&self, control: &mut Control) -> Result<Self::Sums, Failure>;

    /// Prints the table. `now` is the civil time of the last line, or of the answer.
    ///
    /// # Errors
    /// A file for the output cannot be written.
    fn print(&self, output: &mut Output, sums: &Self::Sums, now: i64) -> Result<(), Failure>;

    /// Returns the table as an object.
    fn to_json(&self, sums: &Self::Sums, now: i64) -> Value;
}

/// Makes the table.
///
/// # Errors
/// A file cannot be read, the server does not answer, or the output cannot be written.
pub(super) fn run<R: Report>(source: &SourceArguments, report: &R) -> Result<Exit, Failure> {
    if source.files.is_empty() {
        return run_live(source, report);
    }
    let mut logs = Logs::new(source)?;
    let mut sums = report.empty();
    if source.follow {
        let mut followed = logs.read_all_and_follow(false, |time, fact| report.record(&mut sums, time, fact))?;
        return follow(source, report, &mut logs, &mut followed, &mut sums);
    }
    logs.read_all(|time, fact| report.record(&mut sums, time, fact))?;
    let mut output = Output::new();
    print(source, report, &mut output, &sums, logs.last_time().unwrap_or(0), Some(logs.counts()))?;
    output.finish()?;
    Ok(logs.remarks())
}

/// Prints the table of the running server; again and again with `--follow`.
fn run_live<R: Report>(source: &SourceArguments, report: &R) -> Result<Exit, Failure> {
    let mut output = Output::new();
    loop {
        let mut control = Control::connect(&source.target.path())?;
        let sums = report.ask(&mut control)?;
        clear_before_next(source, &mut output);
        print(source, report, &mut output, &sums, clock::civil_now(), None)?;
        output.flush();
        if !source.follow || !output.is_read() {
            break;
        }
        clock::pause(AGAIN_EVERY);
    }
    output.finish()?;
    Ok(Exit::Ok)
}

fn follow<R: Report>(
    source: &SourceArguments,
    report: &R,
    logs: &mut Logs,
    followed: &mut FollowedFile,
    sums: &mut R::Sums,
) -> Result<Exit, Failure> {
    let mut output = Output::new();
    loop {
        clear_before_next(source, &mut output);
        let now = logs.last_time().unwrap_or_else(clock::civil_now);
        print(source, report, &mut output, sums, now, Some(logs.counts()))?;
        output.flush();
        let mut waited = Duration::ZERO;
        while waited < AGAIN_EVERY {
            if !output.is_read() {
                output.finish()?;
                return Ok(Exit::Ok);
            }
            clock::pause(LOOK_EVERY);
            waited += LOOK_EVERY;
            logs.read_new(followed, |time, fact| report.record(sums, time, fact))?;
        }
    }
}

/// On a terminal the next table stands where the last one was.
fn clear_before_next(source: &SourceArguments, output: &mut Output) {
    if source.follow && !source.json && std::io::stdout().is_terminal() {
        output.clear_screen();
    }
}

fn print<R: Report>(
    source: &SourceArguments,
    report: &R,
    output: &mut Output,
    sums: &R::Sums,
    now: i64,
    lines: Option<LineCounts>,
) -> Result<(), Failure> {
    if !source.json {
        return report.print(output, sums, now);
    }
    let mut value = report.to_json(sums, now);
    if let (Some(object), Some(lines)) = (value.as_object_mut(), lines) {
        let LineCounts { lines, used, other, broken } = lines;
        object.insert("lines".to_owned(), json!({ "all": lines, "used": used, "other": other, "broken": broken }));
    }
    output.print_json(&value);
    Ok(())
}

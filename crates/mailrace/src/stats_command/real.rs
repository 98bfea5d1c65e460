//! `stats real`: a line each 15 seconds, as the source's realstat prints it.
//!
//! `9:00:45  2160/  9 *--`: the time at the end of the interval, the rate of deliveries an hour, their number, a mark
//! for each 5 deliveries, and one for each 5 attempts without success.

use super::civil_text::iso;
use super::log_file::FollowedFile;
use super::logs::Logs;
use super::mail_table::counts_json;
use super::report::LOOK_EVERY;
use super::{SourceArguments, clock, live};
use crate::control_client::Control;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use clap::Args;
use mail::CivilTime;
use observe::stats::{Counts, Series};
use serde_json::Value;
use std::io::IsTerminal as _;

/// Lines of a log that are printed at most: a month by 15 seconds.
const LINES_MAX: usize = 178_560;

#[derive(Debug, Args)]
pub(crate) struct RealArguments {
    #[command(flatten)]
    source: SourceArguments,
    /// Length of an interval
    #[arg(long, value_name = "SECONDS", default_value_t = 15, value_parser = clap::value_parser!(u32).range(1..=3_600))]
    interval: u32,
    /// Deliveries that a mark stands for
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u64).range(1..))]
    scale: u64,
    /// End after so many lines, of the server or with --follow [default: never]
    #[arg(long, value_name = "N")]
    lines: Option<u64>,
}

/// Runs the command.
///
/// # Errors
/// A file cannot be read, or the server does not answer.
pub(super) fn run(arguments: &RealArguments) -> Result<Exit, Failure> {
    let source = &arguments.source;
    let mut output = Output::new();
    if source.files.is_empty() {
        run_live(arguments, &mut output)?;
        output.finish()?;
        return Ok(Exit::Ok);
    }
    let mut logs = Logs::new(source)?;
    if source.follow {
        let mut followed = logs.read_all_and_follow(true, |_, _| ())?;
        follow(arguments, &mut logs, &mut followed, &mut output)?;
        output.finish()?;
        return Ok(Exit::Ok);
    }
    let mut series = Series::new(arguments.interval, LINES_MAX);
    logs.read_all(|time, fact| {
        if let Some(counts) = series.window_at(time) {
            counts.record(fact);
        }
    })?;
    for slot in series.slots() {
        print(arguments, &mut output, slot.begin + series.step(), &slot.counts);
    }
    output.finish()?;
    Ok(logs.remarks())
}

/// Asks the server at the end of each interval; a line has what was counted since.
fn run_live(arguments: &RealArguments, output: &mut Output) -> Result<(), Failure> {
    let path = arguments.source.target.path();
    let ask = || Control::connect(&path).and_then(|mut control| live::ask(&mut control));
    let mut before = ask()?.total;
    let mut left = arguments.lines;
    while output.is_read() && left != Some(0) {
        let end = next_end(clock::civil_now(), arguments.interval);
        wait_until(end);
        let total = ask()?.total;
        print(arguments, output, end, &grown(&total, &before));
        output.flush();
        before = total;
        left = left.map(|left| left - 1);
    }
    Ok(())
}

/// Returns the counts between two totals. A server that was restarted begins at zero.
fn grown(total: &Counts, before: &Counts) -> Counts {
    let values: [u64; 13] = total.fields().map(|(_, value)| value);
    let earlier: [u64; 13] = before.fields().map(|(_, value)| value);
    let is_restarted = values.iter().zip(&earlier).any(|(value, before)| value < before);
    if is_restarted {
        return *total;
    }
    let mut differences = values;
    differences.iter_mut().zip(earlier).for_each(|(value, before)| *value -= before);
    Counts::from_values(differences)
}

fn follow(
    arguments: &RealArguments,
    logs: &mut Logs,
    followed: &mut FollowedFile,
    output: &mut Output,
) -> Result<(), Failure> {
    let mut left = arguments.lines;
    while output.is_read() && left != Some(0) {
        let end = next_end(clock::civil_now(), arguments.interval);
        let mut counts = Counts::default();
        loop {
            let is_over = clock::civil_now() >= end;
            logs.read_new(followed, |_, fact| counts.record(fact))?;
            if is_over {
                break;
            }
            clock::pause(LOOK_EVERY);
        }
        print(arguments, output, end, &counts);
        output.flush();
        left = left.map(|left| left - 1);
    }
    Ok(())
}

/// The end of the interval that this second is in.
fn next_end(now: i64, interval: u32) -> i64 {
    let interval = i64::from(interval);
    (now.div_euclid(interval) + 1) * interval
}

fn wait_until(end: i64) {
    while clock::civil_now() < end {
        clock::pause(LOOK_EVERY);
    }
}

fn print(arguments: &RealArguments, output: &mut Output, end: i64, counts: &Counts) {
    if arguments.source.json {
        let mut fields = counts_json(counts);
        fields.insert("time".to_owned(), iso(end).into());
        fields.insert("seconds".to_owned(), arguments.interval.into());
        output.print_json(&Value::Object(fields));
        return;
    }
    let width = if std::io::stdout().is_terminal() { terminal_width() } else { usize::MAX };
    output.print_line(line(end, counts, arguments.interval, arguments.scale, width));
}

/// A line, at most as wide as the terminal; `>` stands for the marks that have no room.
fn line(end: i64, counts: &Counts, interval: u32, scale: u64, width: usize) -> String {
    let time = CivilTime::from_unix(end);
    let (hour, minute, second) = (time.hour, time.minute, time.second);
    let hourly = counts.sent.saturating_mul(3_600) / u64::from(interval);
    let head = format!("{hour:>2}:{minute:02}:{second:02} {hourly:>5}/{:>3}", counts.sent);
    let room = width.saturating_sub(head.len() + 2).min(10_000);
    let marks = |number: u64| usize::try_from(number / scale).unwrap_or(usize::MAX);
    let (stars, dashes) = (marks(counts.sent), marks(counts.unsent()));
    let shown = stars.min(room);
    let mut bar = "*".repeat(shown);
    bar.push_str(&"-".repeat(dashes.min(room - shown)));
    if stars.saturating_add(dashes) > room {
        bar.push('>');
    }
    if bar.is_empty() { head } else { format!("{head} {bar}") }
}

/// Columns of the terminal; 80 where it does not say.
pub(super) fn terminal_width() -> usize {
    let columns = rustix::termios::tcgetwinsize(std::io::stdout()).map_or(0, |size| size.ws_col);
    if columns < 20 { 80 } else { columns.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_are_those_of_the_source() {
        let noon = |seconds: i64| 9 * 3_600 + seconds;
        let counts = |sent, deferred| Counts { sent, deferred, ..Counts::default() };
        let line = |seconds, sent, unsent| line(noon(seconds), &counts(sent, unsent), 15, 5, usize::MAX);
        assert_eq!(line(0, 2, 0), " 9:00:00   480/  2");
        assert_eq!(line(30, 4, 12), " 9:00:30   960/  4 --");
        assert_eq!(line(45, 9, 10), " 9:00:45  2160/  9 *--");
        assert_eq!(line(90, 10, 14), " 9:01:30  2400/ 10 **--");
    }

    #[test]
    fn marks_end_at_the_edge() {
        let counts = Counts { sent: 1_000, failed: 1_000, ..Counts::default() };
        let line = line(0, &counts, 15, 5, 40);
        assert!(line.len() <= 40 && line.ends_with("*>"), "{line}");
    }

    #[test]
    fn a_restarted_server_counts_from_zero() {
        let at = |sent| Counts { sent, ..Counts::default() };
        assert_eq!([grown(&at(9), &at(4)).sent, grown(&at(3), &at(4)).sent], [5, 3]);
        assert_eq!([next_end(0, 15), next_end(14, 15), next_end(15, 15)], [15, 15, 30]);
    }
}

//! `stats batch`: a day as the source's batchstat draws it: deliveries as spikes, averaged over a minute, the sum of
//! delivered mail as a line, arrivals and failures below the axis.

use super::chart;
use super::civil_text::{self, DAY};
use super::mail_day::{DayOfMail, MINUTES};
use super::mail_table::counts_json;
use super::real::terminal_width;
use super::report::{self, Report};
use super::{SourceArguments, clock, live};
use crate::control_client::Control;
use crate::exit::{Exit, Failure};
use crate::output::{Output, thousands};
use clap::Args;
use observe::stats::{Counts, Fact, Series};
use serde_json::{Value, json};
use std::path::PathBuf;

/// Minutes of a log that are kept: a month.
const MINUTES_MAX: usize = 44_640;
/// Lines above the axis, and below it.
const ROWS_UP: usize = 14;
const ROWS_DOWN: usize = 4;

#[derive(Debug, Args)]
pub(crate) struct BatchArguments {
    #[command(flatten)]
    source: SourceArguments,
    /// Draw this day: today, yesterday, or as in 2026-11-20 [default: the last day of the log]
    #[arg(long, value_name = "DAY")]
    date: Option<String>,
    /// Draw into this file as SVG
    #[arg(long, value_name = "FILE")]
    svg: Option<PathBuf>,
    /// Draw into this file as PNG
    #[arg(long, value_name = "FILE")]
    png: Option<PathBuf>,
}

/// Runs the command.
///
/// # Errors
/// A file cannot be read or written, or the server does not answer; the date is none.
pub(super) fn run(arguments: BatchArguments) -> Result<Exit, Failure> {
    let parse = |text: &String| civil_text::parse_day(text, clock::civil_now());
    let date = arguments.date.as_ref().map(parse).transpose();
    let date = date.map_err(|text| Failure::new(Exit::Usage, format!("--date: {text}")))?;
    report::run(&arguments.source, &BatchChart { date, svg: arguments.svg, png: arguments.png })
}

struct BatchChart {
    date: Option<i64>,
    svg: Option<PathBuf>,
    png: Option<PathBuf>,
}

impl Report for BatchChart {
    type Sums = Series;

    fn empty(&self) -> Series {
        Series::new(60, MINUTES_MAX)
    }

    fn record(&self, minutes: &mut Series, time: i64, fact: &Fact<'_>) {
        if let Some(counts) = minutes.window_at(time) {
            counts.record(fact);
        }
    }

    fn ask(&self, control: &mut Control) -> Result<Series, Failure> {
        Ok(live::ask(control)?.minutes)
    }

    fn print(&self, output: &mut Output, minutes: &Series, now: i64) -> Result<(), Failure> {
        let day = self.day(minutes, now);
        if let Some(path) = &self.svg {
            chart::write_svg(path, &day)?;
        }
        if let Some(path) = &self.png {
            chart::write_png(path, &day)?;
        }
        if self.svg.is_none() && self.png.is_none() {
            text_chart(&day, terminal_width()).into_iter().for_each(|line| output.print_line(line));
        }
        Ok(())
    }

    fn to_json(&self, minutes: &Series, now: i64) -> Value {
        let day = self.day(minutes, now);
        let slots = (0_i64..).zip(&day.minutes).filter(|(_, counts)| **counts != Counts::default());
        let minute = |(index, counts): (i64, &Counts)| {
            let mut fields = counts_json(counts);
            fields.insert("minute".to_owned(), civil_text::iso(day.begin + 60 * index).into());
            Value::Object(fields)
        };
        json!({
            "day": civil_text::day(day.begin), "minutes": slots.map(minute).collect::<Vec<Value>>(),
            "peak_an_hour": day.peak(), "total": counts_json(&day.total()),
        })
    }
}

impl BatchChart {
    fn day(&self, minutes: &Series, now: i64) -> DayOfMail {
        DayOfMail::of(minutes, self.date.unwrap_or_else(|| now.div_euclid(DAY) * DAY))
    }
}

/// Draws the day in characters: blocks for deliveries, `·` for the sum of delivered mail, `|` for arrivals, and
/// blocks below for attempts without success.
fn text_chart(day: &DayOfMail, width: usize) -> Vec<String> {
    let columns = width.saturating_sub(10).clamp(24, MINUTES);
    let share = |column: usize| (column * MINUTES / columns)..((column + 1) * MINUTES / columns);
    let of = |column: usize| day.minutes.get(share(column)).unwrap_or_default();
    let (peak, peak_down) = (day.peak().max(1), day.peak_unsent().max(1));
    let total = day.total().sent.max(1);
    let mut delivered = 0;
    // For each column: the height of its highest minute in eighths of a line, and the line of the sum.
    let mut heights = Vec::new();
    for column in 0..columns {
        let highest = of(column).iter().map(|counts| counts.sent * 60).max().unwrap_or(0);
        delivered += of(column).iter().map(|counts| counts.sent).sum::<u64>();
        let eighths = (highest * 8 * ROWS_UP as u64).div_ceil(peak);
        heights.push((eighths, delivered * (ROWS_UP as u64 - 1) / total));
    }
    let mut lines = vec![day.title()];
    for row in (0..ROWS_UP as u64).rev() {
        let cell = |(eighths, sum): &(u64, u64)| match (eighths.saturating_sub(8 * row).min(8), *sum == row) {
            (0, true) if delivered > 0 => '·',
            (full, _) => block(full),
        };
        let label = if row + 1 == ROWS_UP as u64 && day.peak() > 0 { thousands(peak) } else { String::new() };
        lines.push(format!("{label:>9} {}", heights.iter().map(cell).collect::<String>()).trim_end().to_owned());
    }
    let arrivals = |column: usize| if of(column).iter().any(|counts| counts.arrivals > 0) { '|' } else { '-' };
    lines.push(format!("{:>9} {}", "an hour", (0..columns).map(arrivals).collect::<String>()));
    for row in 0..ROWS_DOWN as u64 {
        let cell = |column: usize| {
            let highest = of(column).iter().map(|counts| counts.unsent() * 60).max().unwrap_or(0);
            if (highest * ROWS_DOWN as u64).div_ceil(peak_down) > row { '░' } else { ' ' }
        };
        let label =
            if row + 1 == ROWS_DOWN as u64 && day.peak_unsent() > 0 { thousands(peak_down) } else { String::new() };
        lines.push(format!("{label:>9} {}", (0..columns).map(cell).collect::<String>()).trim_end().to_owned());
    }
    lines.push(hours_line(columns));
    lines
}

fn block(eighths: u64) -> char {
    [' ', '▁', '▂', '▃', '▄', '▅', '▆', '▇', '█'].get(usize::try_from(eighths).unwrap_or(8)).copied().unwrap_or('█')
}

/// The hours below the chart.
fn hours_line(columns: usize) -> String {
    let mut line = vec![' '; columns + 10];
    for hour in (0..24).step_by(3) {
        let at = 10 + hour * columns / 24;
        for (place, c) in line.iter_mut().skip(at).zip(format!("{hour:02}").chars()) {
            *place = c;
        }
    }
    line.into_iter().collect::<String>().trim_end().to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_in_characters() {
        let mut series = Series::new(60, MINUTES);
        let begin = civil_text::parse_day("1997-02-22", 0).unwrap();
        // A message at 2:00 to 100 recipients, half of them at once; 20 failures at noon.
        series.window_at(begin + 7_200).unwrap().arrivals = 1;
        series.window_at(begin + 7_200).unwrap().sent = 50;
        series.window_at(begin + 7_260).unwrap().sent = 50;
        series.window_at(begin + 43_200).unwrap().deferred = 20;
        let day = DayOfMail::of(&series, begin);
        assert_eq!((day.peak(), day.peak_unsent()), (3_000, 1_200));
        let lines = text_chart(&day, 82);
        assert!(lines[0].starts_with("Sat 1997-02-22: 100 delivered, 20 not delivered, 1 messages"), "{lines:#?}");
        assert_eq!(lines.len(), 1 + ROWS_UP + 1 + ROWS_DOWN + 1);
        assert!(lines[1].starts_with("    3,000       █"), "{lines:#?}");
        // The sum is at its height from then on.
        assert_eq!(lines[1].chars().filter(|c| *c == '·').count(), 72 - 7, "{lines:#?}");
        assert_eq!(lines[1 + ROWS_UP].chars().position(|c| c == '|'), Some(10 + 6), "{lines:#?}");
        assert_eq!(lines[2 + ROWS_UP].chars().position(|c| c == '░'), Some(10 + 36), "{lines:#?}");
        assert!(lines.last().unwrap().starts_with("          00       03"), "{lines:#?}");
    }
}

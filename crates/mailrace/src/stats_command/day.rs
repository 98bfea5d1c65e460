//! `stats day`: a report of a day or of a whole log: totals, hours, delays, senders, recipients, hosts, reasons.

use super::civil_text::{self, DAY};
use super::report::{self, Report};
use super::table::{Table, escaped};
use super::{SourceArguments, clock, live};
use crate::control_client::Control;
use crate::exit::{Exit, Failure};
use crate::output::{Output, age, bytes, thousands};
use clap::Args;
use mail::CivilTime;
use observe::stats::{Counts, Fact, Statistics, TopList, TopName, WindowSizes};
use serde_json::{Map, Value};

/// Rows of a list, unless `--top` says otherwise.
const TOP: usize = 10;

#[derive(Debug, Args)]
pub(crate) struct DayArguments {
    #[command(flatten)]
    source: SourceArguments,
    /// Report on this day: today, yesterday, or as in 2026-11-20 [default: the whole log]
    #[arg(long, value_name = "DAY", requires = "files")]
    date: Option<String>,
    /// Rows of each list
    #[arg(long, value_name = "N", default_value_t = TOP, value_parser = parse_top)]
    top: usize,
    /// Print HTML, as mail or for a web server
    #[arg(long, conflicts_with = "json")]
    html: bool,
}

fn parse_top(text: &str) -> Result<usize, String> {
    text.parse().ok().filter(|number| (1..=1_000).contains(number)).ok_or_else(|| "a number from 1 to 1000".to_owned())
}

/// Runs the command.
///
/// # Errors
/// A file cannot be read, or the server does not answer; the date is none.
pub(super) fn run(arguments: &DayArguments) -> Result<Exit, Failure> {
    let parse = |text: &String| civil_text::parse_day(text, clock::civil_now());
    let date = arguments.date.as_ref().map(parse).transpose();
    let date = date.map_err(|text| Failure::new(Exit::Usage, format!("--date: {text}")))?;
    report::run(&arguments.source, &DayReport { date, top: arguments.top, is_html: arguments.html })
}

struct DayReport {
    /// The first second of the day.
    date: Option<i64>,
    top: usize,
    is_html: bool,
}

impl Report for DayReport {
    type Sums = Box<Statistics>;

    fn empty(&self) -> Self::Sums {
        Box::new(Statistics::new(WindowSizes { seconds: 1, ..WindowSizes::LOGS }))
    }

    fn record(&self, sums: &mut Self::Sums, time: i64, fact: &Fact<'_>) {
        if self.date.is_none_or(|begin| (begin..begin + DAY).contains(&time)) {
            sums.record(time, fact);
        }
    }

    fn ask(&self, control: &mut Control) -> Result<Self::Sums, Failure> {
        live::ask(control).map(Box::new)
    }

    fn print(&self, output: &mut Output, sums: &Self::Sums, now: i64) -> Result<(), Failure> {
        let title = self.title(sums, now);
        let tables = self.tables(sums);
        if self.is_html {
            output.print_line(html(&title, &tables).trim_end());
            return Ok(());
        }
        output.print_line(&title);
        for table in tables {
            output.print_line("");
            table.to_text().into_iter().for_each(|line| output.print_line(line));
        }
        Ok(())
    }

    fn to_json(&self, sums: &Self::Sums, now: i64) -> Value {
        let mut fields = Map::new();
        fields.insert("time".to_owned(), civil_text::iso(now).into());
        fields.insert("total".to_owned(), Value::Object(super::mail_table::counts_json(&sums.total)));
        for table in self.tables(sums) {
            let key = table.title.to_lowercase().replace(' ', "_");
            if key != "totals" {
                fields.insert(key, table.to_json());
            }
        }
        Value::Object(fields)
    }
}

impl DayReport {
    fn title(&self, sums: &Statistics, now: i64) -> String {
        if let Some(day) = self.date {
            return format!("Mail of {} {}", civil_text::weekday(day), civil_text::day(day));
        }
        let (first, last) = (sums.minutes.slots().next(), sums.minutes.slots().next_back());
        let from = first.map_or(now, |slot| slot.begin);
        let to = last.map_or(now, |slot| slot.begin + 59).max(from);
        format!("Mail from {} to {}", civil_text::minute(from), civil_text::minute(to))
    }

    fn tables(&self, sums: &Statistics) -> Vec<Table> {
        let mut tables = vec![totals(&sums.total), hours(sums)];
        tables.extend(delays(sums));
        let lists = [
            self.names("Senders", &sums.senders, "<>"),
            self.senders_by_size(sums),
            self.names("Recipients", &sums.recipients, "<>"),
            self.names("Hosts that took mail", &sums.hosts, "(this machine)"),
            self.names("Hosts that did not take mail", &sums.failing_hosts, "(no host)"),
            self.names("Reasons for deferral", &sums.deferrals, "(none)"),
            self.names("Reasons for failure", &sums.failures, "(none)"),
            self.names("Reasons for refusal", &sums.refusals, "(none)"),
        ];
        tables.extend(lists.into_iter().filter(|table| !table.rows.is_empty()));
        tables
    }

    /// Makes a table of names. `nameless` stands for an empty one.
    fn names(&self, title: &'static str, top: &TopList, nameless: &str) -> Table {
        let row = |one: TopName| vec![thousands(one.count), named(one.name, nameless)];
        let rows = top.most(self.top).into_iter().map(row).collect();
        let remark = (top.error() > 0).then(|| {
            format!("there were more names than are kept: a number may be too high by {}", thousands(top.error()))
        });
        Table { title, columns: vec!["number", "name"], rows, remark }
    }

    fn senders_by_size(&self, sums: &Statistics) -> Table {
        let row = |one: TopName| vec![thousands(one.bytes), named(one.name, "<>")];
        let rows = sums.senders.most_bytes(self.top).into_iter().filter(|one| one.bytes > 0).map(row).collect();
        Table { title: "Senders by size", columns: vec!["octets", "name"], rows, remark: None }
    }
}

/// The null sender, mail for mailboxes, and attempts that came to no host have no name.
fn named(name: String, nameless: &str) -> String {
    if name.is_empty() { nameless.to_owned() } else { name }
}

fn totals(total: &Counts) -> Table {
    let row = |number: u64, text: &str| vec![thousands(number), text.to_owned()];
    let mut rows = vec![
        row(total.arrivals - total.handovers.min(total.arrivals), "messages received"),
        row(total.arrived_recipients, "recipients of them"),
        vec![thousands(total.arrived_bytes), format!("octets received ({})", bytes(total.arrived_bytes))],
        row(total.sent, "recipients delivered"),
        row(total.sent_hosts, "transactions that delivered them"),
        vec![thousands(total.sent_bytes), format!("octets delivered ({})", bytes(total.sent_bytes))],
        row(total.deferred, "recipients deferred, each attempt counted"),
        row(total.failed, "recipients failed"),
        row(total.refused, "refusals of clients, commands and messages"),
        row(total.reports, "reports to senders"),
    ];
    if total.handovers > 0 {
        rows.push(row(total.handovers, "messages that went through a filter or queue of this machine, counted once"));
    }
    Table { title: "Totals", columns: vec!["number", "what"], rows, remark: None }
}

fn hours(sums: &Statistics) -> Table {
    let row = |begin: i64, counts: &Counts| {
        let numbers = [counts.arrivals, counts.sent, counts.deferred, counts.failed, counts.refused];
        let time = CivilTime::from_unix(begin);
        let hour = format!("{} {:02}:00", civil_text::day(begin), time.hour);
        numbers.into_iter().map(thousands).chain([hour]).collect()
    };
    let slots = sums.hours.slots().filter(|slot| slot.counts != Counts::default());
    let rows = slots.map(|slot| row(slot.begin, &slot.counts)).collect();
    let columns = vec!["received", "delivered", "deferred", "failed", "refused", "hour"];
    Table { title: "Hours", columns, rows, remark: None }
}

fn delays(sums: &Statistics) -> Option<Table> {
    let delays = &sums.delays;
    if delays.count() == 0 {
        return None;
    }
    let mut from = String::from("0s");
    let mut rows = Vec::new();
    for (bound, count) in delays.classes() {
        let to = bound.map_or_else(|| "longer".to_owned(), seconds);
        if count > 0 {
            rows.push(vec![thousands(count), format!("{from} to {to}")]);
        }
        from = to;
    }
    let quantile = |part: f64| delays.quantile(part).map_or_else(String::new, seconds);
    let remark = format!(
        "half within {}, 95 % within {}, 99 % within {}, the longest {}",
        quantile(0.5),
        quantile(0.95),
        quantile(0.99),
        seconds(delays.longest())
    );
    Some(Table { title: "Delays", columns: vec!["recipients", "delay"], rows, remark: Some(remark) })
}

/// `0.3s`, `12m`
fn seconds(time: f64) -> String {
    if time < 10.0 {
        let text = format!("{time:.2}");
        return format!("{}s", text.trim_end_matches('0').trim_end_matches('.'));
    }
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "not negative, and digits of an age")]
    age(time.round() as u64)
}

fn html(title: &str, tables: &[Table]) -> String {
    const STYLE: &str = "body{font-family:sans-serif;margin:1em auto;max-width:60em;padding:0 1em}\
        table{border-collapse:collapse}td,th{padding:.1em .8em;text-align:right}\
        td:last-child,th:last-child{text-align:left;overflow-wrap:anywhere}tr:nth-child(even){background:#8881}\
        @media(prefers-color-scheme:dark){body{background:#111;color:#ddd}}";
    let title = escaped(title);
    let mut out = format!(
        "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\n<style>{STYLE}</style></head>\n<body>\n<h1>{title}</h1>\n"
    );
    tables.iter().for_each(|table| table.write_html(&mut out));
    out.push_str("</body></html>\n");
    out
}

#[cfg(test)]
mod tests {
    use super::seconds;

    #[test]
    fn times_are_short() {
        assert_eq!(
            [0.0, 0.01, 0.3, 1.0, 9.5, 30.0, 300.0, 14_400.0].map(seconds),
            ["0s", "0.01s", "0.3s", "1s", "9.5s", "30s", "5m", "4h0m"]
        );
    }
}

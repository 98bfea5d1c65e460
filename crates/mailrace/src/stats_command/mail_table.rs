//! `stats mail`: deliveries and failures by hour, as the source's mailstat prints them.
//!
//! `mhosts` are messages times hosts: transactions. Failures are all attempts without success, whether their recipients
//! wait or are given up, as in the source.

use super::civil_text::{date, iso, month};
use super::clock::zone_at;
use super::report::Report;
use crate::control_client::Control;
use crate::exit::Failure;
use crate::output::Output;
use mail::CivilTime;
use observe::stats::{Counts, Fact, Series};
use serde_json::{Map, Value, json};

/// Hours of ten years.
const HOURS_MAX: usize = 87_600;

/// The table by hours.
pub(super) struct HourlyTable;

impl Report for HourlyTable {
    type Sums = Series;

    fn empty(&self) -> Series {
        Series::new(3_600, HOURS_MAX)
    }

    fn record(&self, hours: &mut Series, time: i64, fact: &Fact<'_>) {
        if let Some(counts) = hours.window_at(time) {
            counts.record(fact);
        }
    }

    fn ask(&self, control: &mut Control) -> Result<Series, Failure> {
        Ok(super::live::ask(control)?.hours)
    }

    fn print(&self, output: &mut Output, hours: &Series, now: i64) -> Result<(), Failure> {
        output.print_line(format_args!("mailstat: {}", date(now, &zone_at(now))));
        output.print_line("             failed      deliveries");
        output.print_line("MMM DD HH mhosts/recipt mhosts/recipt");
        output.print_line("=== == == ============= =============");
        for slot in hours.slots().filter(|slot| has_attempts(&slot.counts)) {
            let time = CivilTime::from_unix(slot.begin);
            let (month, day, hour) = (month(time), time.day, time.hour);
            output.print_line(format_args!("{month} {day:>2} {hour:02} {}", columns(&slot.counts)));
        }
        output.print_line("========= ============= =============");
        output.print_line(format_args!("Totals    {}", columns(&hours.total())));
        Ok(())
    }

    fn to_json(&self, hours: &Series, now: i64) -> Value {
        let hour = |begin: i64, counts: &Counts| {
            let mut fields = counts_json(counts);
            fields.insert("hour".to_owned(), iso(begin).into());
            Value::Object(fields)
        };
        let rows: Vec<Value> = hours
            .slots()
            .filter(|slot| slot.counts != Counts::default())
            .map(|slot| hour(slot.begin, &slot.counts))
            .collect();
        json!({ "time": iso(now), "hours": rows, "total": counts_json(&hours.total()) })
    }
}

fn has_attempts(counts: &Counts) -> bool {
    counts.sent + counts.unsent() > 0
}

fn columns(counts: &Counts) -> String {
    let (failed_hosts, failed, hosts, sent) = (counts.unsent_hosts(), counts.unsent(), counts.sent_hosts, counts.sent);
    format!("{failed_hosts:>6}/{failed:>6} {hosts:>6}/{sent:>6}")
}

/// The counts as fields of an object.
pub(super) fn counts_json(counts: &Counts) -> Map<String, Value> {
    counts.fields().into_iter().map(|(name, value)| (name.to_owned(), value.into())).collect()
}

//! The figures: medians and spreads for people, all samples for programs.

use super::clients::AcceptSample;
use crate::machine::Machine;
use crate::side_by_side::figures::{Row, Sampled, spread, text};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Samples of all contenders under one load; round `n` of one and of another stand in the same place.
#[derive(Debug)]
pub(super) struct AcceptTable {
    pub(super) part: &'static str,
    pub(super) load: String,
    pub(super) rows: Vec<Row<AcceptSample>>,
}

impl Sampled for AcceptSample {
    fn rate(&self) -> f64 {
        self.per_second
    }

    fn complaint(&self) -> Option<&str> {
        self.complaint.as_deref()
    }
}

/// All of it.
#[derive(Debug)]
pub(super) struct AcceptReport {
    pub(super) machine: Machine,
    pub(super) file_system: String,
    pub(super) tables: Vec<AcceptTable>,
    /// The part, the measured quantity, the figure with its unit.
    pub(super) facts: Vec<(&'static str, String, String)>,
    pub(super) left_out: Vec<String>,
}

impl AcceptReport {
    pub(super) fn markdown(&self) -> String {
        let Machine { processor, cores, memory_gib, kernel } = &self.machine;
        let mut out = format!(
            "{processor}, {cores} cores, {memory_gib} GiB, Linux {kernel}, {}; clients and servers share the machine.\n\
             Medians with [least–most]; ratios are paired by round; processor time is for each message.\n",
            self.file_system
        );
        let mut part = "";
        for table in &self.tables {
            if table.part != part {
                part = table.part;
                line(&mut out, format_args!("\n## {part}"));
            }
            line(&mut out, format_args!("\n{}\n", table.load));
            out.push_str("| | messages/s | mailrace serve ÷ it | machine CPU, µs | server CPU, µs | p99, ms |\n|---|---|---|---|---|---|\n");
            for row in &table.rows {
                let ratio = match table.rows.first() {
                    Some(first) if !std::ptr::eq(first, row) => text(first.ratios(row), 2),
                    _ => String::new(),
                };
                #[expect(clippy::cast_precision_loss, reason = "a time")]
                let p99 = row.values(|sample| Some(sample.p99_us? as f64 / 1000.0));
                line(
                    &mut out,
                    format_args!(
                        "| {} | {} | {ratio} | {} | {} | {} |",
                        row.name,
                        text(row.values(|sample| Some(sample.per_second)), 0),
                        text(row.values(|sample| Some(sample.machine_us)), 0),
                        text(row.values(|sample| sample.server_us), 0),
                        text(p99, 1)
                    ),
                );
            }
            for row in &table.rows {
                for remark in &row.remarks {
                    line(&mut out, format_args!("\n- {}: {}", row.name, remark.escape_debug()));
                }
            }
        }
        for (of, name, figure) in &self.facts {
            if *of != part {
                part = of;
                line(&mut out, format_args!("\n## {part}\n"));
            }
            line(&mut out, format_args!("- {name}: {figure}"));
        }
        if !self.left_out.is_empty() {
            out.push_str("\n## Left out\n\n");
            self.left_out.iter().for_each(|what| line(&mut out, format_args!("- {}", what.escape_debug())));
        }
        out
    }

    pub(super) fn json(&self) -> Value {
        let row = |first: &Row<AcceptSample>, row: &Row<AcceptSample>| {
            let samples: Vec<Value> = row
                .samples
                .iter()
                .flatten()
                .map(|sample| {
                    json!({
                        "messages_per_second": sample.per_second, "machine_cpu_us": sample.machine_us,
                        "server_cpu_us": sample.server_us, "p99_us": sample.p99_us,
                    })
                })
                .collect();
            let ratio = spread(first.ratios(row)).map(|(median, least, most)| json!([median, least, most]));
            json!({ "name": row.name, "samples": samples, "first_by_this": ratio, "remarks": row.remarks })
        };
        let tables: Vec<Value> = self
            .tables
            .iter()
            .filter_map(|table| {
                let first = table.rows.first()?;
                let rows: Vec<Value> = table.rows.iter().map(|each| row(first, each)).collect();
                Some(json!({ "part": table.part, "load": table.load, "rows": rows }))
            })
            .collect();
        let facts: Vec<Value> = self
            .facts
            .iter()
            .map(|(part, name, figure)| json!({ "part": part, "name": name, "figure": figure }))
            .collect();
        let Machine { processor, cores, memory_gib, kernel } = &self.machine;
        json!({
            "machine": { "processor": processor, "cores": cores, "memory_gib": memory_gib, "kernel": kernel },
            "file_system": self.file_system,
            "tables": tables,
            "facts": facts,
            "left_out": self.left_out,
        })
    }
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    let _infallible = writeln!(out, "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(rates: &[f64]) -> Row<AcceptSample> {
        let mut row = Row::new("a");
        for per_second in rates {
            let sample = AcceptSample { per_second: *per_second, ..AcceptSample::default() };
            row.add(if *per_second > 0.0 { Ok(sample) } else { Err("no".to_owned()) });
        }
        row
    }

    #[test]
    fn ratios_pair_rounds_and_leave_gaps() {
        assert_eq!(row(&[10.0, 0.0, 30.0]).ratios(&row(&[5.0, 5.0, 10.0])), [2.0, 3.0]);
        assert_eq!(row(&[0.0, 0.0]).remarks, ["no"]);
    }
}

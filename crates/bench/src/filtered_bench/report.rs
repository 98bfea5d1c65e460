//! The figures: medians and spreads for people, all samples for programs.

use super::flow::FilteredSample;
use crate::machine::Machine;
use crate::side_by_side::figures::{Row, Sampled, text};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Samples of all contenders under one load.
#[derive(Debug)]
pub(super) struct FilteredTable {
    pub(super) load: String,
    pub(super) rows: Vec<Row<FilteredSample>>,
}

/// All of it.
#[derive(Debug)]
pub(super) struct FilteredReport {
    pub(super) machine: Machine,
    pub(super) file_system: String,
    pub(super) tables: Vec<FilteredTable>,
}

impl Sampled for FilteredSample {
    fn rate(&self) -> f64 {
        self.accepted_per_second()
    }

    fn complaint(&self) -> Option<&str> {
        self.complaint.as_deref()
    }
}

impl FilteredTable {
    pub(super) fn markdown(&self) -> String {
        let mut out = format!("\n## {}\n\n", self.load);
        out.push_str(
            "| | accepted, messages/s | first row ÷ it | until half of the backlog's limit, messages/s | of the first row | last third ÷ first | arrived meanwhile, messages/s | \
             backlog, most | last arrives after the client, s | p99, ms | machine CPU, ms | scanners' CPU, ms | server memory, MiB | \
             refused |\n|---|---|---|---|---|---|---|---|---|---|---|---|---|---|\n",
        );
        for row in &self.rows {
            let ratio = match self.rows.first() {
                Some(first) if !std::ptr::eq(first, row) => text(first.ratios(row), 2),
                _ => String::new(),
            };
            let cell = |digits, value: fn(&FilteredSample) -> Option<f64>| text(row.values(value), digits);
            let line = format!(
                "| {} | {} | {ratio} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
                row.name,
                cell(1, |sample| Some(sample.accepted_per_second())),
                cell(1, |sample| sample.until_half),
                self.of_first(row),
                cell(2, FilteredSample::held),
                cell(1, |sample| Some(sample.arrived_per_second)),
                cell(0, |sample| Some(count(sample.backlog_max))),
                cell(1, |sample| Some(sample.drained_s)),
                cell(1, |sample| Some(count(sample.p99_us) / 1e3)),
                cell(1, |sample| Some(sample.machine_us / 1e3)),
                cell(1, |sample| Some(sample.scanners_us / 1e3)),
                cell(0, |sample| Some(count(sample.memory?) / f64::from(1 << 20))),
                cell(0, |sample| Some(count(sample.refused))),
            );
            let _infallible = writeln!(out, "{line}");
        }
        for row in &self.rows {
            for remark in &row.remarks {
                let _infallible = writeln!(out, "\n- {}: {}", row.name, remark.escape_debug());
            }
        }
        out
    }

    /// The rate until half of the limit divided by that of the first row in the same round.
    fn of_first(&self, row: &Row<FilteredSample>) -> String {
        let Some(first) = self.rows.first().filter(|first| !std::ptr::eq(*first, row)) else { return String::new() };
        let ratio = |(own, first): (&Option<FilteredSample>, &Option<FilteredSample>)| {
            Some(own.as_ref()?.until_half? / first.as_ref()?.accepted_per_second().max(1e-3))
        };
        text(row.samples.iter().zip(&first.samples).filter_map(ratio).collect(), 2)
    }

    fn json(&self) -> Value {
        let sample = |sample: &Option<FilteredSample>| {
            sample.as_ref().map(|sample| {
                json!({
                    "accepted": sample.accepted, "arrived": sample.arrived, "refused": sample.refused,
                    "seconds": sample.seconds, "each_second": sample.each_second,
                    "arrived_per_second": sample.arrived_per_second, "backlog_max": sample.backlog_max,
                    "drained_seconds": sample.drained_s, "p99_us": sample.p99_us, "machine_cpu_us": sample.machine_us,
                    "scanners_cpu_us": sample.scanners_us, "accepted_per_second_until_half": sample.until_half,
                    "server_memory_bytes": sample.memory,
                })
            })
        };
        let row = |row: &Row<FilteredSample>| {
            let samples: Vec<Option<Value>> = row.samples.iter().map(sample).collect();
            json!({ "name": row.name, "samples": samples, "remarks": row.remarks })
        };
        json!({ "load": self.load, "rows": self.rows.iter().map(row).collect::<Vec<_>>() })
    }
}

impl FilteredReport {
    /// Returns the text above all tables.
    pub(super) fn head(&self) -> String {
        let Machine { processor, cores, memory_gib, kernel } = &self.machine;
        format!(
            "{processor}, {cores} cores, {memory_gib} GiB, Linux {kernel}, {}; client, scanners, server and receiver \
             share the machine.\nMedians with [least–most]; ratios are paired by round; processor time is for each \
             message that arrived.\n",
            self.file_system
        )
    }

    pub(super) fn json(&self) -> Value {
        let Machine { processor, cores, memory_gib, kernel } = &self.machine;
        let tables: Vec<Value> = self.tables.iter().map(FilteredTable::json).collect();
        json!({
            "machine": { "processor": processor, "cores": cores, "memory_gib": memory_gib, "kernel": kernel },
            "file_system": self.file_system,
            "tables": tables,
        })
    }
}

#[expect(clippy::cast_precision_loss, reason = "a figure for a person")]
fn count(number: u64) -> f64 {
    number as f64
}

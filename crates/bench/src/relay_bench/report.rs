//! The figures: medians and spreads for people, all samples for programs.

use super::flow::RelaySample;
use crate::machine::Machine;
use crate::side_by_side::figures::{Row, Sampled, spread, text};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Samples of all servers under one load; round `n` of one and of another stand in the same place.
#[derive(Debug)]
pub(super) struct RelayTable {
    pub(super) load: String,
    pub(super) rows: Vec<Row<RelaySample>>,
}

impl Sampled for RelaySample {
    fn rate(&self) -> f64 {
        self.arrived_per_second()
    }

    fn complaint(&self) -> Option<&str> {
        self.complaint.as_deref()
    }
}

/// All of it.
#[derive(Debug)]
pub(super) struct RelayReport {
    pub(super) machine: Machine,
    pub(super) file_system: String,
    pub(super) tables: Vec<RelayTable>,
}

impl RelayTable {
    pub(super) fn markdown(&self) -> String {
        let mut out = format!("\n## {}\n\n", self.load);
        let first = self.rows.first().map_or("", |row| row.name.as_str());
        line(
            &mut out,
            format_args!(
                "| | arrived, messages/s | {first} ÷ it | accepted, messages/s | last arrives after its 250, s | \
                 machine CPU, µs | server CPU, µs | messages |\n|---|---|---|---|---|---|---|---|"
            ),
        );
        for row in &self.rows {
            let ratio = match self.rows.first() {
                Some(first) if !std::ptr::eq(first, row) => text(first.ratios(row), 2),
                _ => String::new(),
            };
            let figure = |digits, value: fn(&RelaySample) -> Option<f64>| text(row.values(value), digits);
            line(
                &mut out,
                format_args!(
                    "| {} | {} | {ratio} | {} | {} | {} | {} | {} |",
                    row.name,
                    figure(0, |sample| Some(sample.arrived_per_second())),
                    figure(0, |sample| Some(sample.accepted_per_second())),
                    figure(2, |sample| Some(sample.arrived_s - sample.accepted_s)),
                    figure(0, |sample| Some(sample.machine_us)),
                    figure(0, |sample| sample.server_us),
                    figure(0, |sample| Some(sample.messages)),
                ),
            );
        }
        for row in &self.rows {
            for remark in &row.remarks {
                line(&mut out, format_args!("\n- {}: {}", row.name, remark.escape_debug()));
            }
        }
        out
    }

    fn json(&self) -> Option<Value> {
        let first = self.rows.first()?;
        let sample = |sample: &Option<RelaySample>| {
            sample.as_ref().map(|sample| {
                json!({
                    "messages": sample.messages, "accepted_seconds": sample.accepted_s,
                    "arrived_seconds": sample.arrived_s, "arrived_per_second": sample.arrived_per_second(),
                    "machine_cpu_us": sample.machine_us, "server_cpu_us": sample.server_us,
                })
            })
        };
        let rows: Vec<Value> = self
            .rows
            .iter()
            .map(|row| {
                let ratio = spread(first.ratios(row));
                let ratio = ratio.map(|(median, least, most)| json!([median, least, most]));
                let samples: Vec<Option<Value>> = row.samples.iter().map(sample).collect();
                json!({ "name": row.name, "samples": samples, "first_by_this": ratio, "remarks": row.remarks })
            })
            .collect();
        Some(json!({ "load": self.load, "rows": rows }))
    }
}

impl RelayReport {
    /// Returns the text above all tables.
    pub(super) fn head(&self) -> String {
        let Machine { processor, cores, memory_gib, kernel } = &self.machine;
        format!(
            "{processor}, {cores} cores, {memory_gib} GiB, Linux {kernel}, {}; clients, servers and receivers share the \
             machine.\nMedians with [least–most]; ratios are paired by round; processor time is for each message, until \
             the last has arrived.\n",
            self.file_system
        )
    }

    pub(super) fn json(&self) -> Value {
        let Machine { processor, cores, memory_gib, kernel } = &self.machine;
        let tables: Vec<Value> = self.tables.iter().filter_map(RelayTable::json).collect();
        json!({
            "machine": { "processor": processor, "cores": cores, "memory_gib": memory_gib, "kernel": kernel },
            "file_system": self.file_system,
            "tables": tables,
        })
    }
}

fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    let _infallible = writeln!(out, "{text}");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &str, rates: &[f64]) -> Row<RelaySample> {
        let mut row = Row::new(name);
        for rate in rates {
            let sample = RelaySample { messages: *rate, accepted_s: 0.5, arrived_s: 1.0, ..RelaySample::default() };
            row.add(if *rate > 0.0 { Ok(sample) } else { Err("it | stopped".to_owned()) });
        }
        row
    }

    #[test]
    fn a_table_has_ratios_by_round_and_says_what_is_missing() {
        let table =
            RelayTable { load: "load".to_owned(), rows: vec![row("ours", &[10.0, 30.0]), row("theirs", &[5.0, 0.0])] };
        let text = table.markdown();
        assert!(text.contains("| ours | 20 [10–30] |  | 40 [20–60] | 0.50 [0.50–0.50] |"), "{text}");
        assert!(text.contains("| theirs | 5 [5–5] | 2.00 [2.00–2.00] |"), "{text}");
        assert!(text.contains("- theirs: it | stopped"), "{text}");
        assert!(table.rows[1].is_out() && !table.rows[0].is_out());
        let json = table.json().unwrap();
        assert_eq!(json["rows"][1]["first_by_this"][0], 2.0);
        assert!(json["rows"][1]["samples"][1].is_null());
    }
}

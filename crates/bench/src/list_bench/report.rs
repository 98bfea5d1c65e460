//! The figures: medians and spreads for people, all samples for programs.

use super::Part;
use super::flow::{Case, Sample};
use super::plan::Tables;
use crate::side_by_side::figures::{Row, spread, text};
use crate::spool_bench::machine::Machine;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Samples of all servers in one case; round `n` of one and of another stand in the same place.
#[derive(Debug)]
pub(super) struct Table {
    pub(super) case: Case,
    pub(super) rows: Vec<Row<Sample>>,
}

/// A figure, with its target if it has one.
#[derive(Debug)]
pub(super) struct Line {
    pub(super) name: String,
    pub(super) target: &'static str,
    pub(super) measured: String,
    pub(super) met: Option<bool>,
    /// No matter of time: the run fails if it is not so.
    pub(super) must: bool,
}

impl Line {
    pub(super) fn plain(name: impl Into<String>, measured: impl Into<String>) -> Self {
        Self { name: name.into(), target: "", measured: measured.into(), met: None, must: false }
    }

    pub(super) fn target(
        name: impl Into<String>,
        target: &'static str,
        measured: impl Into<String>,
        is_met: bool,
    ) -> Self {
        Self { target, met: Some(is_met), ..Self::plain(name, measured) }
    }

    /// What has to be so however fast the machine is.
    pub(super) fn must(name: impl Into<String>, measured: impl Into<String>, is_so: bool) -> Self {
        Self { must: true, ..Self::target(name, "must be", measured, is_so) }
    }
}

/// Figures of a part that are no table of servers.
#[derive(Debug)]
pub(super) struct Lines(pub(super) Vec<Line>);

impl Lines {
    pub(super) fn markdown(&self, title: &str) -> String {
        let mut out = format!("\n## {title}\n\n| | target | measured | met |\n|---|---|---|---|\n");
        for Line { name, target, measured, met, .. } in &self.0 {
            let met = met.map_or("", |met| if met { "yes" } else { "no" });
            line(&mut out, format_args!("| {name} | {target} | {measured} | {met} |"));
        }
        out
    }

    /// What must be and is not.
    pub(super) fn broken(&self) -> Vec<String> {
        let broken = self.0.iter().filter(|line| line.must && line.met != Some(true));
        broken.map(|line| format!("{}: {}", line.name, line.measured)).collect()
    }

    /// These figures as all that a part has to say.
    pub(super) fn told(&self, part: Part, value: Value) -> Told {
        Told { text: self.markdown(part.title()), value, broken: self.broken() }
    }
}

/// What a part has to say: to people, to programs, and why the run fails.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) text: String,
    pub(super) value: Value,
    pub(super) broken: Vec<String>,
}

impl Told {
    /// A part that could not be measured.
    pub(super) fn nothing(part: Part, why: &str) -> Self {
        let title = part.title();
        let why = format!("no figures: {}", why.escape_debug());
        Self {
            text: format!("\n## {title}\n\n- {why}\n"),
            value: json!({ "part": title, "error": why }),
            broken: vec![why],
        }
    }
}

/// All of it.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) machine: Machine,
    pub(super) file_system: String,
    pub(super) parts: Vec<Value>,
}

impl Report {
    /// What stands above all tables.
    pub(super) fn head(&self) -> String {
        let Machine { processor, cores, memory_gib, kernel } = &self.machine;
        format!(
            "{processor}, {cores} cores, {memory_gib} GiB, Linux {kernel}, {}; submitter, server and simulated internet share \
             the machine.\nMedians with [least–most]; times are seconds from the first connection of the submitter, shares \
             are of live recipients.\n",
            self.file_system
        )
    }

    pub(super) fn json(&self) -> Value {
        let Machine { processor, cores, memory_gib, kernel } = &self.machine;
        json!({
            "machine": { "processor": processor, "cores": cores, "memory_gib": memory_gib, "kernel": kernel },
            "file_system": self.file_system,
            "parts": self.parts,
        })
    }
}

impl Tables {
    /// As tables, and for programs.
    pub(super) fn report(&self, part: Part) -> Told {
        let mut out = format!("\n## {}\n", part.title());
        for table in &self.0 {
            table.markdown(&mut out);
        }
        self.shares(&mut out);
        let targets = self.targets(part);
        if !targets.is_empty() {
            out.push_str(&Lines(targets).markdown(&format!("{}: targets", part.title())).replace("\n## ", "\n### "));
        }
        let tables: Vec<Value> = self.0.iter().map(Table::json).collect();
        Told { text: out, value: json!({ "part": part.title(), "tables": tables }), broken: Vec::new() }
    }

    /// The time of each case by that of the first, where there are several.
    fn shares(&self, out: &mut String) {
        let Some((first, others)) = self.0.split_first().filter(|(_, others)| !others.is_empty()) else { return };
        line(out, format_args!("\n### Time to all live recipients by that of the first table\n"));
        let cases: Vec<&str> = others.iter().map(|table| table.case.name.as_str()).collect();
        line(out, format_args!("| | {} |\n|---|{}", cases.join(" | "), "---|".repeat(cases.len())));
        for (at, row) in first.rows.iter().enumerate() {
            let ratio = |table: &Table| table.rows.get(at).map_or_else(|| "-".to_owned(), |of| text(times(of, row), 2));
            let ratios: Vec<String> = others.iter().map(ratio).collect();
            line(out, format_args!("| {} | {} |", row.name, ratios.join(" | ")));
        }
    }

    /// What was promised, of the first server.
    fn targets(&self, part: Part) -> Vec<Line> {
        let table = |at: usize| self.0.get(at).and_then(|table| table.rows.first());
        let line = |name: &str, target, values: Option<Vec<f64>>, limit: f64| {
            let values = values.unwrap_or_default();
            let is_met = spread(values.clone()).is_some_and(|(median, _, _)| median <= limit);
            Line::target(name, target, text(values, 2), is_met)
        };
        match part {
            Part::Single => {
                vec![line("95 % of the list, s", "≤ 0.6", table(0).map(|row| row.values(|sample| sample.at_95)), 0.6)]
            }
            Part::Ten => {
                let bad = table(1);
                let ratio = bad.zip(table(0)).map(|(bad, none)| times(bad, none));
                let connections = bad.map(|row| row.values(|sample| Some(count(sample.internet.host_connections_max))));
                vec![
                    line("all, 10 % bad hosts, s", "≤ 4", bad.map(|row| row.values(|sample| sample.at_100)), 4.0),
                    line("the same by that without bad hosts", "≤ 1.05", ratio, 1.05),
                    line("the most connections of a host", "≤ 2", connections, 2.0),
                ]
            }
            _ => Vec::new(),
        }
    }
}

/// Times to all of the same round by each other.
fn times(of: &Row<Sample>, by: &Row<Sample>) -> Vec<f64> {
    quotients(of, by, |sample| sample.at_100)
}

/// Figures of the same round by each other.
pub(super) fn quotients<S>(of: &Row<S>, by: &Row<S>, figure: fn(&S) -> Option<f64>) -> Vec<f64> {
    let figure = |sample: &Option<S>| sample.as_ref().and_then(figure);
    of.samples.iter().zip(&by.samples).filter_map(|(of, by)| Some(figure(of)? / figure(by)?)).collect()
}

impl Table {
    fn markdown(&self, out: &mut String) {
        line(out, format_args!("\n### {}\n", self.case.name));
        line(
            out,
            format_args!(
                "| | accepted | 50 % | 95 % | 100 % | arrived, % | connections | of a host | at one time | machine CPU, s \
                 | its own | the internet's | memory, MiB | written, MiB |\n|---|{}",
                "---|".repeat(13)
            ),
        );
        for row in &self.rows {
            let figure = |digits, value: fn(&Sample) -> Option<f64>| text(row.values(value), digits);
            let mib = |bytes: Option<u64>| bytes.map(|bytes| count(bytes >> 20));
            line(
                out,
                format_args!(
                    "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
                    row.name,
                    figure(2, |sample| sample.accepted_s),
                    figure(2, |sample| sample.at_50),
                    figure(2, |sample| sample.at_95),
                    figure(2, |sample| sample.at_100),
                    figure(1, |sample| Some(100.0 * count(sample.arrived as u64) / count(sample.live as u64))),
                    figure(0, |sample| Some(count(sample.internet.connections))),
                    figure(0, |sample| Some(count(sample.internet.host_connections_max))),
                    figure(0, |sample| Some(count(sample.internet.host_open_max))),
                    figure(2, |sample| Some(sample.machine_s)),
                    figure(2, |sample| sample.server_s),
                    figure(2, |sample| Some(sample.internet.cpu_s)),
                    text(row.values(|sample| mib(sample.memory)), 0),
                    text(row.values(|sample| mib(sample.written)), 0),
                ),
            );
        }
        for row in &self.rows {
            for remark in &row.remarks {
                line(out, format_args!("\n- {}: {}", row.name, remark.escape_debug()));
            }
        }
    }

    fn json(&self) -> Value {
        let sample = |sample: &Option<Sample>| {
            sample.as_ref().map(|sample| {
                let internet = &sample.internet;
                json!({
                    "accepted_seconds": sample.accepted_s, "at_50": sample.at_50, "at_95": sample.at_95,
                    "at_100": sample.at_100, "live": sample.live, "arrived": sample.arrived,
                    "machine_cpu_seconds": sample.machine_s, "server_cpu_seconds": sample.server_s,
                    "internet_cpu_seconds": internet.cpu_s, "memory_max": sample.memory, "written": sample.written,
                    "connections": internet.connections, "host_connections_max": internet.host_connections_max,
                    "host_open_max": internet.host_open_max, "dns_queries": internet.dns_queries,
                })
            })
        };
        let row = |row: &Row<Sample>| {
            let samples: Vec<Option<Value>> = row.samples.iter().map(sample).collect();
            json!({ "name": row.name, "samples": samples, "remarks": row.remarks })
        };
        let rows: Vec<Value> = self.rows.iter().map(row).collect();
        json!({ "case": self.case.name, "messages": self.case.messages, "rows": rows })
    }
}

#[expect(clippy::cast_precision_loss, reason = "a number of something")]
pub(super) fn count(number: u64) -> f64 {
    number as f64
}

pub(super) fn line(out: &mut String, text: std::fmt::Arguments<'_>) {
    let _infallible = writeln!(out, "{text}");
}

#[cfg(test)]
mod tests {
    use super::super::world::World;
    use super::*;
    use std::time::Duration;

    fn table(times: &[Option<f64>]) -> Table {
        let world = World { hosts: 1, domains_per_host: 1, recipients: 1, bad: Vec::new(), delay_ms: 0, slow_s: 0 };
        let case = Case { name: "case".to_owned(), world, messages: 1, bytes: 1, longest: Duration::ZERO };
        let mut row = Row::new("ours");
        for at_100 in times {
            row.add(Ok(Sample { at_100: *at_100, live: 4, arrived: 3, ..Sample::default() }));
        }
        Table { case, rows: vec![row, Row::new("theirs")] }
    }

    #[test]
    fn shares_are_paired_and_leave_gaps() {
        let tables = Tables(vec![table(&[Some(2.0), None, Some(4.0)]), table(&[Some(3.0), Some(1.0), Some(4.0)])]);
        let Told { text, value, .. } = tables.report(Part::Ten);
        assert!(text.contains("| ours | 1.25 [1.00–1.50] |"), "{text}");
        assert!(text.contains("| theirs | - |"), "{text}");
        assert!(text.contains("| the same by that without bad hosts | ≤ 1.05 | 1.25 [1.00–1.50] | no |"), "{text}");
        assert!(text.contains("| all, 10 % bad hosts, s | ≤ 4 | 3.00 [1.00–4.00] | yes |"), "{text}");
        assert!(text.contains("75.0 [75.0–75.0]"), "{text}");
        assert!(value["tables"][0]["rows"][0]["samples"][1]["at_100"].is_null());
        // A server that gave no figure has met nothing.
        assert!(Tables(vec![table(&[])]).report(Part::Single).text.contains("| - | no |"));
    }

    #[test]
    fn a_run_fails_by_what_must_be_and_not_by_its_times() {
        let lines = |is_met, is_so| {
            Lines(vec![
                Line::plain("x", "1"),
                Line::target("time", "≤ 1", "2", is_met),
                Line::must("none lost", "3", is_so),
            ])
        };
        assert_eq!(lines(false, true).told(Part::Limits, json!(null)).broken, [""; 0]);
        assert_eq!(lines(true, false).told(Part::Limits, json!(null)).broken, ["none lost: 3"]);
        assert!(lines(true, false).markdown("Limits").contains("| none lost | must be | 3 | no |"));
        assert_eq!(Told::nothing(Part::Limits, "why").broken, ["no figures: why"]);
    }
}

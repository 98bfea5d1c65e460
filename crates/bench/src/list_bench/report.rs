//! The figures: medians and spreads for people, all samples for programs.

use super::ListPart;
use super::flow::{ListCase, ListSample};
use crate::machine::Machine;
use crate::side_by_side::figures::{Row, Sampled, cell, median};
use crate::side_by_side::servers::ServerKind;
use serde_json::{Value, json};
use std::fmt::Write as _;

/// Samples of all servers in one case; round `n` of one and of another stand in the same place.
#[derive(Debug)]
pub(super) struct ListTable {
    pub(super) case: ListCase,
    pub(super) rows: Vec<Row<ListSample>>,
}

/// Tables of a part.
#[derive(Debug)]
pub(super) struct Tables {
    /// The servers, in the order of the rows.
    pub(super) servers: Vec<ServerKind>,
    /// A case each.
    pub(super) all: Vec<ListTable>,
}

/// A figure, with its target if it has one.
#[derive(Debug)]
pub(super) struct ReportLine {
    pub(super) name: String,
    pub(super) target: &'static str,
    pub(super) measured: String,
    pub(super) met: Option<bool>,
    /// The run fails if it is not so.
    pub(super) must: bool,
}

impl ReportLine {
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

    /// Makes a line for a requirement that holds on a slow machine too.
    pub(super) fn must(name: impl Into<String>, measured: impl Into<String>, is_so: bool) -> Self {
        Self { must: true, ..Self::target(name, "must be", measured, is_so) }
    }
}

/// Figures of a part that are no table of servers.
#[derive(Debug)]
pub(super) struct ReportLines(pub(super) Vec<ReportLine>);

impl ReportLines {
    pub(super) fn markdown(&self, title: &str) -> String {
        let mut out = format!("\n## {title}\n\n| | target | measured | met |\n|---|---|---|---|\n");
        for ReportLine { name, target, measured, met, .. } in &self.0 {
            let met = met.map_or("", |met| if met { "yes" } else { "no" });
            line(&mut out, format_args!("| {name} | {target} | {measured} | {met} |"));
        }
        out
    }

    /// Returns the requirements that are not met.
    pub(super) fn broken(&self) -> Vec<String> {
        let broken = self.0.iter().filter(|line| line.must && line.met != Some(true));
        broken.map(|line| format!("{}: {}", line.name, line.measured)).collect()
    }

    /// These figures as all that a part has to say.
    pub(super) fn told(&self, part: ListPart, value: Value) -> Told {
        Told { text: self.markdown(part.title()), value, broken: self.broken() }
    }
}

/// The report of a part: for people, for programs, and why the run fails.
#[derive(Debug)]
pub(super) struct Told {
    pub(super) text: String,
    pub(super) value: Value,
    pub(super) broken: Vec<String>,
}

impl Told {
    /// Adds more figures of the same part below its table.
    pub(super) fn add(&mut self, key: &str, lines: &ReportLines, title: &str, value: Value) {
        self.text += &lines.markdown(title).replace("\n## ", "\n### ");
        self.broken.extend(lines.broken());
        if let Some(all) = self.value.as_object_mut() {
            all.insert(key.to_owned(), value);
        }
    }

    /// A part that could not be measured.
    pub(super) fn nothing(part: ListPart, why: &str) -> Self {
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
pub(super) struct ListReport {
    pub(super) machine: Machine,
    pub(super) file_system: String,
    pub(super) parts: Vec<Value>,
}

impl ListReport {
    /// Returns the text above all tables.
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
    pub(super) fn report(&self, part: ListPart) -> Told {
        let mut out = format!("\n## {}\n", part.title());
        for table in &self.all {
            table.markdown(&mut out);
        }
        self.shares(&mut out);
        let lines = ReportLines(self.targets(part).into_iter().chain(self.musts()).collect());
        let mut broken = lines.broken();
        if !lines.0.is_empty() {
            let title = format!("{}: targets, and what must be", part.title());
            out.push_str(&lines.markdown(&title).replace("\n## ", "\n### "));
        }
        if self.all.iter().flat_map(|table| &table.rows).all(|row| row.samples.iter().all(Option::is_none)) {
            broken.push("no figures of any server".to_owned());
        }
        let tables: Vec<Value> = self.all.iter().map(ListTable::json).collect();
        Told { text: out, value: json!({ "part": part.title(), "tables": tables }), broken }
    }

    /// The time of each case by that of the first, where there are several.
    fn shares(&self, out: &mut String) {
        let Some((first, others)) = self.all.split_first().filter(|(_, others)| !others.is_empty()) else { return };
        line(out, format_args!("\n### Time to all live recipients by that of the first table\n"));
        let cases: Vec<&str> = others.iter().map(|table| table.case.name.as_str()).collect();
        line(out, format_args!("| | {} |\n|---|{}", cases.join(" | "), "---|".repeat(cases.len())));
        for (at, row) in first.rows.iter().enumerate() {
            let ratio =
                |table: &ListTable| table.rows.get(at).map_or_else(|| "-".to_owned(), |of| cell(&times(of, row), 2));
            let ratios: Vec<String> = others.iter().map(ratio).collect();
            line(out, format_args!("| {} | {} |", row.name, ratios.join(" | ")));
        }
    }

    /// Returns the lines for the targets of mailrace. A target is missed where one of the rounds has no figure.
    fn targets(&self, part: ListPart) -> Vec<ReportLine> {
        let Some(ours) = self.servers.iter().position(ServerKind::is_mailrace) else { return Vec::new() };
        let row = |at: usize| self.all.get(at).and_then(|table| table.rows.get(ours));
        let line = |name: &str, target, rounds: Option<Vec<Option<f64>>>, limit: f64| {
            let rounds = rounds.unwrap_or_default();
            let is_met = median(&rounds).is_some_and(|median| median <= limit);
            ReportLine::target(name, target, cell(&rounds, 2), is_met)
        };
        match part {
            ListPart::Single => {
                vec![line("95 % of the list, s", "≤ 0.6", row(0).map(|row| row.rounds(|sample| sample.at_95)), 0.6)]
            }
            ListPart::Ten => {
                let bad = row(1);
                let ratio = |of: Option<&Row<ListSample>>| of.zip(row(0)).map(|(bad, none)| times(bad, none));
                let connections = bad.map(|row| row.rounds(|sample| Some(count(sample.internet.host_connections_max))));
                vec![
                    line("all, 10 % bad hosts, s", "≤ 4", bad.map(|row| row.rounds(|sample| sample.at_100)), 4.0),
                    line("the same by that without bad hosts, which are in addition", "≤ 1.05", ratio(bad), 1.05),
                    line("the same list with 10 % bad hosts by that with none", "≤ 1.05", ratio(row(3)), 1.05),
                    line("the most connections of a host", "≤ 2", connections, 2.0),
                ]
            }
            _ => Vec::new(),
        }
    }
}

/// Times to all of the same round by each other.
fn times(of: &Row<ListSample>, by: &Row<ListSample>) -> Vec<Option<f64>> {
    quotients(of, by, |sample| sample.at_100)
}

/// Figures of the same round by each other, with a gap for each round in which one of them has none.
pub(super) fn quotients<S: Sampled>(of: &Row<S>, by: &Row<S>, figure: fn(&S) -> Option<f64>) -> Vec<Option<f64>> {
    let by = by.rounds(figure).into_iter().chain(std::iter::repeat(None));
    of.rounds(figure).into_iter().zip(by).map(|(of, by)| Some(of? / by?)).collect()
}

impl ListTable {
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
            let figure = |digits, value: fn(&ListSample) -> Option<f64>| cell(&row.rounds(value), digits);
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
                    cell(&row.rounds(|sample| mib(sample.memory)), 0),
                    cell(&row.rounds(|sample| mib(sample.written)), 0),
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
        let sample = |sample: &Option<ListSample>| {
            sample.as_ref().map(|sample| {
                let internet = &sample.internet;
                json!({
                    "accepted_seconds": sample.accepted_s, "at_50": sample.at_50, "at_95": sample.at_95,
                    "at_100": sample.at_100, "live": sample.live, "arrived": sample.arrived,
                    "twice": sample.twice, "strange": sample.strange,
                    "machine_cpu_seconds": sample.machine_s, "server_cpu_seconds": sample.server_s,
                    "internet_cpu_seconds": internet.cpu_s, "memory_max": sample.memory, "written": sample.written,
                    "connections": internet.connections, "host_connections_max": internet.host_connections_max,
                    "host_open_max": internet.host_open_max, "dns_queries": internet.dns_queries,
                })
            })
        };
        let row = |row: &Row<ListSample>| {
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
pub(super) mod tests {
    use super::super::world::World;
    use super::*;
    use std::time::Duration;

    /// Returns a case that is not run.
    pub(in super::super) fn case(name: &str) -> ListCase {
        let world = World { hosts: 1, domains_per_host: 1, recipients: 1, bad: Vec::new(), delay_ms: 0, slow_s: 0 };
        ListCase { name: name.to_owned(), world, messages: 1, bytes: 1, longest: Duration::ZERO }
    }

    fn table(times: &[Option<f64>]) -> ListTable {
        let mut row = Row::new("ours");
        for at_100 in times {
            row.add(Ok(ListSample { at_100: *at_100, at_95: *at_100, live: 4, arrived: 3, ..ListSample::default() }));
        }
        ListTable { case: case("case"), rows: vec![row, Row::new("theirs")] }
    }

    fn tables(all: Vec<ListTable>) -> Tables {
        Tables { servers: vec![ServerKind::Serve, ServerKind::Peer("theirs".to_owned())], all }
    }

    #[test]
    fn shares_are_paired_and_leave_gaps() {
        let all = vec![table(&[Some(2.0), None, Some(4.0)]), table(&[Some(3.0), Some(1.0), Some(4.0)])];
        let Told { text, value, .. } = tables(all).report(ListPart::Ten);
        assert!(text.contains("| ours | 2 of 3: 1.25 [1.00–1.50] |"), "{text}");
        assert!(text.contains("| theirs | - |"), "{text}");
        assert!(
            text.contains(
                "| the same by that without bad hosts, which are in addition | ≤ 1.05 | 2 of 3: 1.25 [1.00–1.50] | no |"
            ),
            "{text}"
        );
        assert!(text.contains("| all, 10 % bad hosts, s | ≤ 4 | 3.00 [1.00–4.00] | yes |"), "{text}");
        assert!(text.contains("75.0 [75.0–75.0]"), "{text}");
        assert!(value["tables"][0]["rows"][0]["samples"][1]["at_100"].is_null());
    }

    #[test]
    fn a_round_without_a_figure_misses_the_target() {
        let single = |times: &[Option<f64>]| tables(vec![table(times)]).report(ListPart::Single).text;
        assert!(single(&[Some(0.5), Some(0.7), Some(0.4)]).contains("| ≤ 0.6 | 0.50 [0.40–0.70] | yes |"));
        assert!(single(&[Some(0.5), None, None]).contains("| ≤ 0.6 | 1 of 3: 0.50 [0.50–0.50] | no |"));
        assert!(single(&[]).contains("| ≤ 0.6 | - | no |"));
        let ten = |times: &[Option<f64>]| tables(vec![table(&[Some(0.5); 3]), table(times)]).report(ListPart::Ten).text;
        assert!(ten(&[Some(0.5); 3]).contains("| ≤ 1.05 | 1.00 [1.00–1.00] | yes |"));
        let failed = ten(&[None, Some(0.5), None]);
        assert!(failed.contains("| ≤ 4 | 1 of 3: 0.50 [0.50–0.50] | no |"), "{failed}");
        assert!(failed.contains("| ≤ 1.05 | 1 of 3: 1.00 [1.00–1.00] | no |"), "{failed}");
        // The targets are ours, wherever we stand.
        let mut others = tables(vec![table(&[Some(0.5)])]);
        others.servers.reverse();
        assert!(others.report(ListPart::Single).text.contains("| ≤ 0.6 | - | no |"));
        others.servers = vec![ServerKind::Peer("theirs".to_owned())];
        assert!(!others.report(ListPart::Single).text.contains("≤ 0.6"));
    }

    #[test]
    fn a_run_fails_by_what_must_be_and_not_by_its_times() {
        let lines = |is_met, is_so| {
            ReportLines(vec![
                ReportLine::plain("x", "1"),
                ReportLine::target("time", "≤ 1", "2", is_met),
                ReportLine::must("none lost", "3", is_so),
            ])
        };
        assert_eq!(lines(false, true).told(ListPart::Limits, json!(null)).broken, [""; 0]);
        assert_eq!(lines(true, false).told(ListPart::Limits, json!(null)).broken, ["none lost: 3"]);
        assert!(lines(true, false).markdown("Limits").contains("| none lost | must be | 3 | no |"));
        assert_eq!(Told::nothing(ListPart::Limits, "why").broken, ["no figures: why"]);
        // A part that is added changes no other.
        let mut told = lines(true, false).told(ListPart::Limits, json!({}));
        told.add("more", &lines(true, false), "More", json!(1));
        assert_eq!((told.broken.len(), &told.value["more"]), (2, &json!(1)));
    }
}

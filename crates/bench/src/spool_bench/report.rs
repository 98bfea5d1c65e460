//! Measurements as tables for people, as Markdown for the documentation, and as JSON for programs.
//!
//! A figure is the median of the rounds with its spread `[least..most]`. A ratio compares two stores in the same round,
//! so that what slowed the machine for a while slows both; the median of these paired ratios is given, with its spread.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::load::Measurement;
use super::machine::Machine;
use crate::engines::Kind;

/// One measurement in its place.
#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) part: &'static str,
    pub(super) kind: Kind,
    pub(super) committers: usize,
    pub(super) body_bytes: usize,
    pub(super) stragglers: u64,
    pub(super) round: usize,
    pub(super) measurement: Measurement,
}

/// Everything a run found out.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) machine: Machine,
    pub(super) file_system: String,
    pub(super) rows: Vec<Row>,
    /// Things the reader must know: what was skipped and why, what failed.
    pub(super) remarks: Vec<String>,
    /// Lines of the recovery measurement.
    pub(super) recovery: Vec<(String, f64)>,
    /// Something was lost, wrong, or did not run.
    pub(super) failed: bool,
}

/// A median with its spread.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub(super) struct Spread {
    pub(super) median: f64,
    pub(super) least: f64,
    pub(super) most: f64,
}

impl Spread {
    /// Of no values, nothing.
    pub(super) fn of(values: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut values: Vec<f64> = values.into_iter().filter(|value| value.is_finite()).collect();
        values.sort_by(f64::total_cmp);
        let (least, most) = (*values.first()?, *values.last()?);
        let middle = values.len() / 2;
        let upper = *values.get(middle)?;
        let median = if values.len() % 2 == 1 { upper } else { (upper + values.get(middle - 1)?) / 2.0 };
        Some(Self { median, least, most })
    }

    fn show(self) -> String {
        if self.least == self.most {
            return figure(self.median);
        }
        format!("{} [{}..{}]", figure(self.median), figure(self.least), figure(self.most))
    }
}

/// A figure as short as it may be: thousands with a comma, three significant digits below ten.
pub(super) fn figure(value: f64) -> String {
    if value >= 999.5 {
        let digits = format!("{value:.0}");
        let mut out = String::new();
        for (at, digit) in digits.chars().enumerate() {
            if at > 0 && (digits.len() - at).is_multiple_of(3) {
                out.push(',');
            }
            out.push(digit);
        }
        return out;
    }
    match value {
        v if v >= 99.95 => format!("{v:.0}"),
        v if v >= 9.995 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

/// Bytes as a person says them.
pub(super) fn size(bytes: usize) -> String {
    match bytes {
        b if b >= 1 << 20 => format!("{} MB", b >> 20),
        b => format!("{} KB", b >> 10),
    }
}

type Place = (&'static str, usize, usize, u64);

impl Report {
    /// The parts in the order they were measured.
    pub(super) fn parts(&self) -> Vec<&'static str> {
        let mut parts = Vec::new();
        for row in &self.rows {
            if !parts.contains(&row.part) {
                parts.push(row.part);
            }
        }
        parts
    }

    fn places(&self, part: &str) -> Vec<Place> {
        let mut places: Vec<Place> = self
            .rows
            .iter()
            .filter(|row| row.part == part)
            .map(|row| (row.part, row.body_bytes, row.committers, row.stragglers))
            .collect();
        places.sort_unstable();
        places.dedup();
        places
    }

    fn at(&self, place: Place, kind: Kind) -> impl Iterator<Item = &Row> {
        self.rows
            .iter()
            .filter(move |row| (row.part, row.body_bytes, row.committers, row.stragglers) == place && row.kind == kind)
    }

    /// One figure of one store in one place.
    pub(super) fn spread(&self, place: Place, kind: Kind, value: impl Fn(&Measurement) -> f64) -> Option<Spread> {
        Spread::of(self.at(place, kind).map(|row| value(&row.measurement)))
    }

    /// The figure of `kind` over that of `other`, paired by round.
    pub(super) fn ratio(
        &self,
        (place, kind): (Place, Kind),
        (other_place, other): (Place, Kind),
        value: impl Fn(&Measurement) -> f64,
    ) -> Option<Spread> {
        let others: BTreeMap<usize, f64> =
            self.at(other_place, other).map(|row| (row.round, value(&row.measurement))).collect();
        Spread::of(self.at(place, kind).filter_map(|row| Some(value(&row.measurement) / others.get(&row.round)?)))
    }

    fn kinds(&self, place: Place) -> Vec<Kind> {
        let mut kinds: Vec<Kind> = self
            .rows
            .iter()
            .filter(|row| (row.part, row.body_bytes, row.committers, row.stragglers) == place)
            .map(|row| row.kind)
            .collect();
        kinds.sort_unstable();
        kinds.dedup();
        kinds
    }

    /// The engine (not one file per message) that took the most messages there.
    fn best_engine(&self, place: Place) -> Option<Kind> {
        let engines =
            self.kinds(place).into_iter().filter(|kind| matches!(kind, Kind::Fjall | Kind::Redb | Kind::Sqlite));
        let rated =
            engines.filter_map(|kind| Some((self.spread(place, kind, |m| m.messages_per_second)?.median, kind)));
        rated.max_by(|a, b| a.0.total_cmp(&b.0)).map(|(_, kind)| kind)
    }

    /// The whole report as Markdown.
    pub(super) fn markdown(&self) -> String {
        let mut out = String::new();
        let machine = &self.machine;
        line(
            &mut out,
            &format!(
                "Machine: {}, {} cores, {} GiB of memory, Linux {}, {}.",
                machine.processor, machine.cores, machine.memory_gib, machine.kernel, self.file_system
            ),
        );
        for remark in &self.remarks {
            line(&mut out, &format!("\n- {remark}"));
        }
        for part in self.parts() {
            line(&mut out, &format!("\n## {part}\n"));
            self.table(part, &mut out);
        }
        if !self.recovery.is_empty() {
            line(&mut out, "\n## Recovery\n\n| what | value |\n|---|---|");
            for (what, value) in &self.recovery {
                line(&mut out, &format!("| {what} | {} |", figure(*value)));
            }
        }
        let targets = self.targets();
        if !targets.is_empty() {
            line(&mut out, "\n## Targets\n\n| what | target | measured | met |\n|---|---|---|---|");
            for (what, target, measured, met) in targets {
                line(&mut out, &format!("| {what} | {target} | {measured} | {} |", if met { "yes" } else { "no" }));
            }
        }
        out
    }

    fn table(&self, part: &str, out: &mut String) {
        let on_device = self.rows.iter().any(|row| row.part == part && row.measurement.device_bytes.is_some());
        let mut head = "| body | committers | store | messages/s | mailrace ÷ it | CPU µs/message | p50 µs | p99 µs | messages/batch |".to_owned();
        let mut rule = "|---|---|---|---|---|---|---|---|---|".to_owned();
        if on_device {
            head.push_str(" flushes/batch | flushes/message | device bytes/body byte |");
            rule.push_str("---|---|---|");
        }
        line(out, &head);
        line(out, &rule);
        for place in self.places(part) {
            let (_, body_bytes, committers, stragglers) = place;
            for kind in self.kinds(place) {
                let show = |value: &dyn Fn(&Measurement) -> f64| {
                    self.spread(place, kind, value).map_or(String::new(), Spread::show)
                };
                let ratio = if kind == Kind::Mailrace || kind == Kind::Nothing {
                    String::new()
                } else {
                    self.ratio((place, Kind::Mailrace), (place, kind), |m| m.messages_per_second)
                        .map_or(String::new(), Spread::show)
                };
                let name = match stragglers {
                    0 => kind.name().to_owned(),
                    percent => format!("{}, {percent} % stay", kind.name()),
                };
                let mut text = format!(
                    "| {} | {committers} | {name} | {} | {ratio} | {} | {} | {} | {} |",
                    size(body_bytes),
                    show(&|m| m.messages_per_second),
                    show(&|m| m.cpu_us),
                    show(&|m| m.p50_us),
                    show(&|m| m.p99_us),
                    show(&|m| m.batch),
                );
                if on_device {
                    let exact = |value: &dyn Fn(&Measurement) -> Option<f64>| {
                        self.spread(place, kind, |m| value(m).unwrap_or(f64::NAN)).map_or(String::new(), Spread::show)
                    };
                    let (batch, message, bytes) = (
                        exact(&|m| m.flushes_per_batch),
                        exact(&|m| m.flushes_per_message),
                        exact(&|m| m.device_bytes),
                    );
                    write_to(&mut text, format_args!(" {batch} | {message} | {bytes} |"));
                }
                line(out, &text);
            }
        }
    }

    /// The targets that can be judged from what was measured: what, target, measured, met.
    pub(super) fn targets(&self) -> Vec<(String, String, String, bool)> {
        let mut out = Vec::new();
        for (body, least) in [(4 << 10, 1.5), (50 << 10, 2.5)] {
            let place = (super::HEADLINE, body, 64, 0);
            let Some(best) = self.best_engine(place) else { continue };
            if let Some(ratio) = self.ratio((place, Kind::Mailrace), (place, best), |m| m.messages_per_second) {
                let what = format!("messages/s, {}, 64 committers, over the best engine ({})", size(body), best.name());
                out.push((what, format!("≥ {least}"), ratio.show(), ratio.median >= least));
            }
            if let Some(ratio) = self.ratio((place, best), (place, Kind::Mailrace), |m| m.cpu_us) {
                let what = format!("CPU per message of the best engine over ours, {}, 64 committers", size(body));
                out.push((what, "≥ 1.8".to_owned(), ratio.show(), ratio.median >= 1.8));
            }
        }
        for place in self.places(super::DEVICE) {
            let (_, body, committers, _) = place;
            let flushes = self.spread(place, Kind::Mailrace, |m| m.flushes_per_batch.unwrap_or(f64::NAN));
            if let Some(flushes) = flushes {
                let what = format!("flushes per commit, {}, {committers} committers", size(body));
                out.push((what, "≤ 1.1".to_owned(), flushes.show(), flushes.median <= 1.1));
            }
            let bytes = self.spread(place, Kind::Mailrace, |m| m.device_bytes.unwrap_or(f64::NAN));
            if committers >= 16
                && let Some(bytes) = bytes
            {
                let what = format!("device bytes per body byte, {}, {committers} committers", size(body));
                out.push((what, "≤ 1.25".to_owned(), bytes.show(), bytes.median <= 1.25));
            }
        }
        for (body, least) in [(4 << 10, 0.95), (50 << 10, 0.90)] {
            let (with, without) = ((super::STRAGGLERS, body, 64, 1), (super::STRAGGLERS, body, 64, 0));
            let ratio = self.ratio((with, Kind::Mailrace), (without, Kind::Mailrace), |m| m.messages_per_second);
            if let Some(ratio) = ratio {
                let what = format!("messages/s with 1 % stragglers over none, {}", size(body));
                out.push((what, format!("≥ {least}"), ratio.show(), ratio.median >= least));
            }
        }
        let recovered = |key: &str| self.recovery.iter().find(|(what, _)| what == key).map(|(_, value)| *value);
        for (key, most) in [
            (super::recovery::SECONDS, 2.0),
            (super::recovery::INDEX_BYTES, 64.0),
            (super::recovery::VERIFY_SECONDS, 10.0),
        ] {
            if let Some(value) = recovered(key) {
                out.push((key.to_owned(), format!("≤ {most}"), figure(value), value <= most));
            }
        }
        out
    }

    /// Everything as one JSON value.
    pub(super) fn json(&self) -> String {
        let mut out = String::from("{");
        let machine = &self.machine;
        write_to(
            &mut out,
            format_args!(
                "\"processor\":{},\"cores\":{},\"memory_gib\":{},\"kernel\":{},\"file_system\":{}",
                quoted(&machine.processor),
                machine.cores,
                machine.memory_gib,
                quoted(&machine.kernel),
                quoted(&self.file_system)
            ),
        );
        let remarks: Vec<String> = self.remarks.iter().map(|remark| quoted(remark)).collect();
        write_to(&mut out, format_args!(",\"remarks\":[{}]", remarks.join(",")));
        let recovery: Vec<String> =
            self.recovery.iter().map(|(what, value)| format!("{}:{value:.4}", quoted(what))).collect();
        write_to(&mut out, format_args!(",\"recovery\":{{{}}}", recovery.join(",")));
        let rows: Vec<String> = self.rows.iter().map(row_json).collect();
        write_to(&mut out, format_args!(",\"rows\":[\n{}\n]", rows.join(",\n")));
        let targets: Vec<String> = self
            .targets()
            .iter()
            .map(|(what, target, measured, met)| {
                let (what, target, measured) = (quoted(what), quoted(target), quoted(measured));
                format!("{{\"what\":{what},\"target\":{target},\"measured\":{measured},\"met\":{met}}}")
            })
            .collect();
        write_to(&mut out, format_args!(",\"targets\":[{}]}}\n", targets.join(",")));
        out
    }
}

fn row_json(row: &Row) -> String {
    let m = &row.measurement;
    let optional = |value: Option<f64>| value.map_or_else(|| "null".to_owned(), |value| format!("{value:.4}"));
    format!(
        "{{\"part\":{},\"store\":{},\"committers\":{},\"body_bytes\":{},\"stragglers\":{},\"round\":{},\
         \"messages_per_second\":{:.1},\"cpu_us\":{:.3},\"p50_us\":{:.1},\"p99_us\":{:.1},\"batch\":{:.2},\
         \"flushes_per_batch\":{},\"flushes_per_message\":{},\"device_bytes\":{},\"written\":{:.3},\"relocated\":{:.4},\"segments\":{},\"refused\":{},\"verified\":{},\
         \"others\":{:.3}}}",
        quoted(row.part),
        quoted(row.kind.name()),
        row.committers,
        row.body_bytes,
        row.stragglers,
        row.round,
        m.messages_per_second,
        m.cpu_us,
        m.p50_us,
        m.p99_us,
        m.batch,
        optional(m.flushes_per_batch),
        optional(m.flushes_per_message),
        optional(m.device_bytes),
        m.written,
        m.relocated,
        m.segments,
        m.refused,
        m.verified,
        m.others,
    )
}

fn quoted(text: &str) -> String {
    let mut out = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            c if c.is_control() => out.push(' '),
            c => out.push(c),
        }
    }
    out.push('"');
    out
}

fn line(out: &mut String, text: &str) {
    out.push_str(text);
    out.push('\n');
}

fn write_to(out: &mut String, text: std::fmt::Arguments<'_>) {
    out.write_fmt(text).expect("writing to a string cannot fail");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        for (value, text) in [
            (0.5, "0.50"),
            (9.994, "9.99"),
            (9.996, "10.0"),
            (99.97, "100"),
            (999.4, "999"),
            (999.6, "1,000"),
            (66_494.2, "66,494"),
            (1_234_567.0, "1,234,567"),
        ] {
            assert_eq!(figure(value), text);
        }
    }

    #[test]
    fn medians_and_spreads() {
        assert_eq!(Spread::of([]), None);
        assert_eq!(Spread::of([3.0, 1.0, 2.0]), Some(Spread { median: 2.0, least: 1.0, most: 3.0 }));
        assert_eq!(Spread::of([4.0, 1.0]).map(|s| s.median), Some(2.5));
        assert_eq!(Spread::of([f64::NAN, 1.0]).map(Spread::show), Some("1.00".to_owned()));
    }

    #[test]
    fn text_in_json() {
        assert_eq!(quoted("a \"b\" \\ c\n"), r#""a \"b\" \\ c ""#);
    }
}

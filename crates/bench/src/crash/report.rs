//! The output of the rigs at the end: one line each, for people or as JSON.
//!
//! A negative control that was not caught is as much a failure as a lost message: a rig that cannot see a broken spool
//! proves nothing about a whole one.

use crate::clock;
use crate::crash::findings::Findings;
use crate::crash::host::Stop;
use std::io::{self, Write};
use std::time::{Duration, Instant};

/// Violations shown for each line.
const DETAILS_MAX: usize = 6;

/// The running case, and its time so far.
#[derive(Debug)]
pub(crate) struct CrashCase {
    rig: &'static str,
    name: String,
    /// The finding that a control must have; a proof has none and must find nothing.
    wanted: Option<fn(&Findings) -> u64>,
    /// Places reported as rotten are no surprise where the disk gave errors.
    alarming: bool,
    started: Instant,
    /// Crashes so far.
    pub(crate) crashes: u64,
    /// Everything checked so far.
    pub(crate) total: Findings,
    /// Violations in words.
    pub(crate) details: Vec<String>,
    /// Further figures for the line.
    pub(crate) figures: Vec<(&'static str, u64)>,
}

impl CrashCase {
    /// A run that must find nothing.
    pub(crate) fn proof(rig: &'static str, name: impl Into<String>) -> Self {
        Self {
            rig,
            name: name.into(),
            wanted: None,
            alarming: false,
            started: clock::now(),
            crashes: 0,
            total: Findings::default(),
            details: Vec::new(),
            figures: Vec::new(),
        }
    }

    /// A run with a spool broken on purpose, which must find what that leads to, and not just anything.
    pub(crate) fn control(rig: &'static str, name: impl Into<String>, wanted: fn(&Findings) -> u64) -> Self {
        Self { wanted: Some(wanted), ..Self::proof(rig, name) }
    }

    /// The same on a disk that gives errors, so that recovery may report rot.
    pub(crate) fn with_errors(self) -> Self {
        Self { alarming: true, ..self }
    }

    /// Whether the required finding was found, or, for a proof, none.
    fn decided(&self) -> bool {
        let alarms = if self.alarming { 0 } else { self.total.alarms };
        self.wanted.map_or_else(|| self.total.violations() + alarms, |wanted| wanted(&self.total)) > 0
    }

    /// Counts a check; true if the run is decided: a promise was broken, or of a control the right one.
    pub(crate) fn count(&mut self, checked: crate::crash::children::Checked) -> bool {
        self.crashes += 1;
        self.total.add(checked.findings);
        self.details.extend(checked.details);
        if self.crashes.is_multiple_of(50) {
            self.progress(&format!("{} crashes, {} promises kept", self.crashes, self.total.required));
        }
        self.decided() || self.total.unusable > 0
    }

    /// Says something on the way.
    pub(crate) fn progress(&self, what: &str) {
        drop(writeln!(io::stderr(), "{} {}: {what}", self.rig, self.name));
    }

    /// Notes a time of which the longest is told, in milliseconds.
    pub(crate) fn at_most(&mut self, name: &'static str, time: Duration) {
        let ms = u64::try_from(time.as_millis()).unwrap_or(u64::MAX);
        match self.figures.iter_mut().find(|(other, _)| *other == name) {
            Some((_, most)) => *most = ms.max(*most),
            None => self.figures.push((name, ms)),
        }
    }

    /// Notes a violation that is not one of the spool's contents.
    pub(crate) fn violation(&mut self, what: String) {
        self.total.miscounted += 1;
        self.details.push(format!("! {what}"));
    }
}

/// All lines.
#[derive(Debug, Default)]
pub(crate) struct CrashReport {
    lines: Vec<CaseResult>,
}

#[derive(Debug)]
struct CaseResult {
    case: CrashCase,
    seconds: f64,
    verdict: CaseVerdict,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum CaseVerdict {
    Passed,
    Caught,
    Failed,
    Missed,
    Skipped(String),
    Broken(String),
}

impl CrashReport {
    /// Takes the end of a case.
    pub(crate) fn take(&mut self, case: CrashCase, result: Result<(), Stop>) {
        let verdict = match (result, case.wanted.is_some(), case.decided()) {
            (Err(Stop::Skipped(why)), _, _) => CaseVerdict::Skipped(why),
            (Err(Stop::Broken(why)), _, _) => CaseVerdict::Broken(why),
            (Ok(()), false, false) => CaseVerdict::Passed,
            (Ok(()), false, true) => CaseVerdict::Failed,
            (Ok(()), true, false) => CaseVerdict::Missed,
            (Ok(()), true, true) => CaseVerdict::Caught,
        };
        let line = CaseResult { seconds: case.started.elapsed().as_secs_f64(), case, verdict };
        drop(writeln!(io::stderr(), "{}", line.text()));
        self.lines.push(line);
    }

    /// Every proof passed and every control was caught; a skipped case counts neither way.
    pub(crate) fn good(&self) -> bool {
        let good = |line: &CaseResult| {
            matches!(line.verdict, CaseVerdict::Passed | CaseVerdict::Caught | CaseVerdict::Skipped(_))
        };
        self.lines.iter().all(good)
    }

    /// Prints the JSON form.
    ///
    /// # Errors
    /// The output is closed.
    pub(crate) fn print_json(&self, seed: u64) -> io::Result<()> {
        let lines: Vec<String> = self.lines.iter().map(CaseResult::json).collect();
        writeln!(io::stdout(), "{{\"seed\":{seed},\"good\":{},\"cases\":[{}]}}", self.good(), lines.join(","))
    }
}

impl CaseVerdict {
    fn word(&self) -> &'static str {
        match self {
            Self::Passed => "passed",
            Self::Caught => "caught",
            Self::Failed => "FAILED",
            Self::Missed => "MISSED",
            Self::Skipped(_) => "skipped",
            Self::Broken(_) => "BROKEN",
        }
    }

    fn why(&self) -> &str {
        match self {
            Self::Skipped(why) | Self::Broken(why) => why,
            _ => "",
        }
    }
}

impl CaseResult {
    fn text(&self) -> String {
        let Self { case, seconds, verdict } = self;
        let kind = if case.wanted.is_some() { "control" } else { "proof" };
        let mut text = format!("{:7} {} {kind} {}", verdict.word(), case.rig, case.name);
        if !verdict.why().is_empty() {
            text.push_str(&format!(": {}", verdict.why()));
        }
        if case.crashes > 0 {
            text.push_str(&format!(" crashes={} seconds={seconds:.1}", case.crashes));
            for (name, value) in case.total.pairs().filter(|(_, value)| *value > 0) {
                text.push_str(&format!(" {name}={value}"));
            }
        }
        for (name, value) in &case.figures {
            text.push_str(&format!(" {name}={value}"));
        }
        for detail in case.details.iter().take(DETAILS_MAX) {
            text.push_str(&format!("\n  {detail}"));
        }
        text
    }

    fn json(&self) -> String {
        let Self { case, seconds, verdict } = self;
        let mut fields = vec![
            format!("\"rig\":{}", quoted(case.rig)),
            format!("\"case\":{}", quoted(&case.name)),
            format!("\"control\":{}", case.wanted.is_some()),
            format!("\"verdict\":{}", quoted(&verdict.word().to_lowercase())),
            format!("\"why\":{}", quoted(verdict.why())),
            format!("\"crashes\":{}", case.crashes),
            format!("\"seconds\":{seconds:.3}"),
        ];
        fields.extend(case.total.pairs().map(|(name, value)| format!("\"{name}\":{value}")));
        fields.extend(case.figures.iter().map(|(name, value)| format!("\"{name}\":{value}")));
        let details: Vec<String> = case.details.iter().take(DETAILS_MAX).map(|detail| quoted(detail)).collect();
        fields.push(format!("\"details\":[{}]", details.join(",")));
        format!("{{{}}}", fields.join(","))
    }
}

fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' => quoted.push_str("\\\""),
            '\\' => quoted.push_str("\\\\"),
            control if u32::from(control) < 0x20 => quoted.push_str(&format!("\\u{:04x}", u32::from(control))),
            other => quoted.push(other),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_uncaught_control_fails_and_a_skipped_rig_does_not() {
        let mut report = CrashReport::default();
        report.take(CrashCase::proof("a", "b"), Ok(()));
        report.take(CrashCase::proof("a", "b"), Err(Stop::Skipped("no root".to_owned())));
        assert!(report.good());
        let mut caught = CrashCase::control("a", "b", |findings| findings.lost);
        caught.total.lost = 1;
        report.take(caught, Ok(()));
        assert!(report.good());
        let mut beside = CrashCase::control("a", "b", |findings| findings.lost);
        beside.total.resurrected = 1;
        report.take(beside, Ok(()));
        assert!(!report.good());
    }

    #[test]
    fn of_times_the_longest_is_told() {
        let mut case = CrashCase::proof("a", "b");
        for (name, ms) in [("x", 5), ("y", 1), ("x", 7), ("x", 6)] {
            case.at_most(name, Duration::from_millis(ms));
        }
        assert_eq!(case.figures, [("x", 7), ("y", 1)]);
    }

    #[test]
    fn text_is_quoted_for_json() {
        assert_eq!(quoted("a\"b\\c\n"), "\"a\\\"b\\\\c\\u000a\"");
    }
}

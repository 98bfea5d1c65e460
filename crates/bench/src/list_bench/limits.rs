//! Whether the limits of a destination hold, seen from the hosts, while 50 sessions bring mail for few of them.
//!
//! Three runs: with all limits; with those on connections and recipients only, since with a rate no server opens many
//! connections; and with more mail and no rule. Each limit has to hold where it is set, and to be exceeded in a run
//! without it: a limit that no run comes near is not seen to hold.

use super::flow::{Submission, follow, submission};
use super::internet::InternetProcess;
use super::ledger::{Arrivals, most_within};
use super::report::{ReportLine, ReportLines, Told};
use super::world::World;
use super::{ListBenchArguments, ListPart};
use crate::machine::say;
use crate::side_by_side::servers::{RunningServer, ServerKind, Site, Task};
use crate::storm::Plan;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::time::Duration;

const SESSIONS: u32 = 50;
const HOSTS: u32 = 20;
/// Recipients of each host's domain; every message is for all of one.
const RECIPIENTS: u32 = 10;
/// Time between a flight of commands and its replies: so long that mail waits for connections if nothing limits them.
const DELAY_MS: u32 = 100;
/// The limits.
const CONNECTIONS: usize = 3;
const PER_SECOND: u32 = 10;
const PER_TRANSACTION: usize = 2;
const PER_CONNECTION: usize = 10;
/// The time from a message's turn to the host's answer may vary by this.
const SLACK: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(90);
const WINDOWS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(10)];

/// Which limits a run has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    All,
    /// Connections and recipients of a transaction.
    NoRate,
    Absent,
}

impl Rule {
    fn text(self) -> &'static str {
        match self {
            Self::All => "with all limits",
            Self::NoRate => "without rate and messages of a connection",
            Self::Absent => "without a rule",
        }
    }

    /// Messages for each host. They are single transactions where nothing splits them, and waiting messages open
    /// connections.
    fn messages(self) -> u32 {
        match self {
            Self::All | Self::NoRate => 40,
            Self::Absent => 200,
        }
    }

    fn setting(self) -> Option<String> {
        let rest = match self {
            Self::All => format!(",messages_per_second={PER_SECOND},messages_per_connection={PER_CONNECTION}"),
            Self::NoRate => String::new(),
            Self::Absent => return None,
        };
        Some(format!(
            "destination=[{{match=[\"mx:*\"],connections={CONNECTIONS},recipients_per_transaction={PER_TRANSACTION}{rest}}}]"
        ))
    }
}

/// The figures of one host.
#[derive(Debug, Default)]
struct Host {
    times_us: Vec<u64>,
    per_connection: HashMap<u64, usize>,
    recipients_max: usize,
}

/// The most that any host saw.
#[derive(Clone, Copy, Debug)]
struct LimitRun {
    rule: Rule,
    open_max: usize,
    recipients_max: usize,
    per_connection_max: usize,
    windows: [usize; 2],
    arrived: usize,
    expected: usize,
    seconds: f64,
}

/// All runs.
#[derive(Debug)]
pub(super) struct LimitFigures {
    runs: Vec<LimitRun>,
}

/// Brings the mail under each rule and looks at the ledgers.
///
/// # Errors
/// Why there are no figures.
pub(super) fn measure(site: &Site, arguments: &ListBenchArguments) -> Result<LimitFigures, String> {
    let runs = [Rule::All, Rule::NoRate, Rule::Absent].map(|rule| run(site, arguments, rule));
    Ok(LimitFigures { runs: runs.into_iter().collect::<Result<_, _>>()? })
}

fn run(site: &Site, arguments: &ListBenchArguments, rule: Rule) -> Result<LimitRun, String> {
    let world = World {
        hosts: HOSTS,
        domains_per_host: 1,
        recipients: RECIPIENTS,
        bad: Vec::new(),
        delay_ms: DELAY_MS,
        slow_s: 0,
    };
    let mut internet = InternetProcess::start(site, &world)?;
    let settings: Vec<String> = rule.setting().into_iter().collect();
    let server = RunningServer::start_with(site, &ServerKind::Serve, Task::List, &settings)?;
    let mut lists: HashMap<String, Vec<String>> = HashMap::new();
    for one in &internet.people.all {
        let domain = one.split_once('@').map_or("", |(_, domain)| domain);
        lists.entry(domain.to_owned()).or_default().push(one.clone());
    }
    let lists: Vec<Vec<String>> = lists.into_values().collect();
    let messages = rule.messages() * HOSTS;
    let mut tally = Arrivals::new("limits", lists.iter().flatten().map(|one| (one.clone(), true)));
    let expected = (messages * RECIPIENTS) as usize;
    let plan = submission(server.at, "limits", messages.into(), arguments.bytes, lists);
    let submission = Submission::start(Plan { sessions: SESSIONS, ..plan });
    let mut hosts: HashMap<u32, Host> = HashMap::new();
    follow(&mut internet, &mut tally, expected, &submission, LONGEST, |taken| {
        let host = hosts.entry(taken.host).or_default();
        host.times_us.push(u64::try_from(taken.at.as_micros()).unwrap_or(u64::MAX));
        *host.per_connection.entry(taken.connection).or_default() += 1;
        host.recipients_max = host.recipients_max.max(taken.recipients.len());
    })?;
    let seconds = submission.elapsed().as_secs_f64();
    drop(server);
    submission.end()?;
    let summary = internet.finish()?;
    let all = hosts.values();
    let run = LimitRun {
        rule,
        open_max: usize::try_from(summary.host_open_max).unwrap_or(usize::MAX),
        recipients_max: all.clone().map(|host| host.recipients_max).max().unwrap_or(0),
        per_connection_max: all.flat_map(|host| host.per_connection.values().copied()).max().unwrap_or(0),
        windows: WINDOWS.map(|window| {
            let most = hosts.values_mut().map(|host| most_within(&mut host.times_us, window));
            most.max().unwrap_or(0)
        }),
        arrived: tally.arrived(),
        expected,
        seconds,
    };
    say(&format!("list: limits: {}: {run:?}", rule.text()));
    Ok(run)
}

/// Messages that may come within a time: the rate, and a second's worth at once.
fn allowed(window: Duration) -> usize {
    let window = window + SLACK;
    (u128::from(PER_SECOND) * (1_000 + window.as_millis()) / 1_000).try_into().unwrap_or(usize::MAX)
}

impl LimitFigures {
    /// Returns the line of a limit: the figures of runs that set it, and of runs that do not.
    fn limit(
        &self,
        name: &str,
        allowed: usize,
        sets: &[Rule],
        control: &[Rule],
        of: fn(&LimitRun) -> usize,
    ) -> ReportLine {
        let of_rule = |rules: &[Rule]| -> Vec<(Rule, usize)> {
            self.runs.iter().filter(|run| rules.contains(&run.rule)).map(|run| (run.rule, of(run))).collect()
        };
        let (held, exceeded) = (of_rule(sets), of_rule(control));
        let holds = held.len() == sets.len() && held.iter().all(|(_, most)| *most <= allowed);
        let is_exceeded = exceeded.len() == control.len() && exceeded.iter().all(|(_, most)| *most > allowed);
        let all = held.iter().map(|(rule, most)| format!("{most} {}", rule.text()));
        let beyond = if is_exceeded { "" } else { ": the control does not exceed it" };
        let control = exceeded.iter().map(|(rule, most)| format!("control {}: {most}", rule.text()));
        let measured = all.chain(control).collect::<Vec<_>>().join("; ");
        ReportLine::must(format!("{name}, at most {allowed}"), format!("{measured}{beyond}"), holds && is_exceeded)
    }

    fn lines(&self) -> ReportLines {
        use Rule::{Absent, All, NoRate};
        let [short, long] = WINDOWS.map(allowed);
        let mut lines = vec![
            self.limit("connections of a host at one time", CONNECTIONS, &[All, NoRate], &[Absent], |run| run.open_max),
            self.limit("messages of a host in any second", short, &[All], &[NoRate, Absent], |run| run.windows[0]),
            self.limit("messages of a host in any ten seconds", long, &[All], &[NoRate], |run| run.windows[1]),
            self.limit("recipients of a transaction", PER_TRANSACTION, &[All, NoRate], &[Absent], |run| {
                run.recipients_max
            }),
            self.limit("messages of a connection", PER_CONNECTION, &[All], &[NoRate], |run| run.per_connection_max),
        ];
        for run in &self.runs {
            lines.push(ReportLine::must(
                format!("recipients who had their mail {}, of {}", run.rule.text(), run.expected),
                format!("{} after {:.0} s", run.arrived, run.seconds),
                run.arrived == run.expected,
            ));
        }
        ReportLines(lines)
    }

    /// As a table, and for programs.
    pub(super) fn report(&self, part: ListPart) -> Told {
        let run = |run: &LimitRun| {
            json!({
                "rule": run.rule.text(), "open_max": run.open_max, "recipients_max": run.recipients_max,
                "per_connection_max": run.per_connection_max, "in_a_second": run.windows[0],
                "in_ten_seconds": run.windows[1], "arrived": run.arrived, "expected": run.expected, "seconds": run.seconds,
            })
        };
        let runs: Vec<Value> = self.runs.iter().map(run).collect();
        self.lines().told(part, json!({ "part": part.title(), "runs": runs }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(
        rule: Rule,
        open_max: usize,
        windows: [usize; 2],
        recipients_max: usize,
        per_connection_max: usize,
    ) -> LimitRun {
        LimitRun { rule, open_max, recipients_max, per_connection_max, windows, arrived: 5, expected: 5, seconds: 1.0 }
    }

    fn runs() -> Vec<LimitRun> {
        vec![
            run(Rule::All, 2, [21, 111], 2, 10),
            run(Rule::NoRate, 3, [60, 200], 2, 60),
            run(Rule::Absent, 12, [40, 40], 10, 8),
        ]
    }

    fn broken(change: impl FnOnce(&mut Vec<LimitRun>)) -> Vec<String> {
        let mut runs = runs();
        change(&mut runs);
        LimitFigures { runs }.lines().broken()
    }

    #[test]
    fn a_limit_has_to_hold_and_its_control_to_exceed_it() {
        assert_eq!(WINDOWS.map(allowed), [21, 111]);
        assert_eq!(broken(|_| {}), [""; 0]);
        assert_eq!(broken(|runs| runs[1].open_max = 4).len(), 1);
        assert_eq!(broken(|runs| runs[0].windows = [22, 112]).len(), 2);
        let without_control = broken(|runs| runs[2].open_max = 3);
        assert!(without_control[0].ends_with("control without a rule: 3: the control does not exceed it"));
        assert_eq!(broken(|runs| runs[1].windows[1] = 111).len(), 1);
        assert_eq!(broken(|runs| runs[0].arrived = 4).len(), 1);
        // A case that did not run shows nothing.
        assert_eq!(broken(|runs| runs.truncate(2)).len(), 3);
    }

    #[test]
    fn rules_are_configuration() {
        let rule = Rule::All.setting().unwrap();
        assert!(rule.starts_with(
            "destination=[{match=[\"mx:*\"],connections=3,recipients_per_transaction=2,messages_per_second=10"
        ));
        assert!(Rule::NoRate.setting().unwrap().ends_with("recipients_per_transaction=2}]"));
        assert_eq!(Rule::Absent.setting(), None);
    }
}

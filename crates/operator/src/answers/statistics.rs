//! The answer to `statistics`: sums of the mail since the start, and windows of the last time.

use super::BestWindow;
use observe::stats::{Counts, Delays, Series, Statistics, TopList, WindowSizes};
use serde::{Deserialize, Serialize};

/// Minutes in an answer: a day.
const MINUTES_MAX: usize = 1_440;
/// Seconds in an answer: those that the page shows.
const SECONDS_MAX: usize = 300;
/// Names of each list in an answer.
const NAMES_MAX: usize = 20;

/// The answer to `statistics`. Times are seconds of the civil time of the server, as its log shows them.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct StatisticsAnswer {
    /// The present.
    pub now: i64,
    /// The start of the server.
    pub since: i64,
    /// The names of the values of `total` and of each window, in their order.
    pub columns: Vec<String>,
    /// All counts since the start.
    pub total: Vec<u64>,
    /// The last seconds.
    pub seconds: WindowLines,
    /// The last day by minutes.
    pub minutes: WindowLines,
    /// The last month by hours.
    pub hours: WindowLines,
    /// How long mail took.
    pub delays: DelayCounts,
    /// Senders with the most messages.
    pub senders: Vec<NameCount>,
    /// Recipients that were tried most.
    pub recipients: Vec<NameCount>,
    /// Next hops that took the most recipients.
    pub hosts: Vec<NameCount>,
    /// Next hops that did not take the most recipients.
    pub failing_hosts: Vec<NameCount>,
    /// Reasons for which mail waits.
    pub deferrals: Vec<NameCount>,
    /// Reasons for which mail was given up.
    pub failures: Vec<NameCount>,
    /// Reasons for which clients were refused.
    pub refusals: Vec<NameCount>,
    /// The best second, minute and hour since the history began; absent without a history.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub best: Vec<BestWindow>,
}

/// Windows of equal length.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct WindowLines {
    /// The first second of the first window.
    pub begin: i64,
    /// Seconds of a window.
    pub step: u32,
    /// The counts of each window, in the order of `columns`.
    pub windows: Vec<Vec<u64>>,
}

/// A histogram of delays: each recipient is counted once, when its mail is delivered.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct DelayCounts {
    /// Upper bounds of the classes in seconds; the last class has none.
    pub bounds: Vec<f64>,
    /// Recipients of each class.
    pub recipients: Vec<u64>,
    /// The sum of all delays in seconds.
    pub seconds: f64,
    /// The longest delay in seconds.
    pub longest: f64,
}

/// A name and how often it occurred.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct NameCount {
    /// The name.
    pub name: String,
    /// How often.
    pub count: u64,
    /// Octets that belong to it.
    #[serde(skip_serializing_if = "super::is_zero")]
    pub bytes: u64,
}

impl StatisticsAnswer {
    /// Makes the answer of the sums.
    #[must_use]
    pub fn of(sums: &Statistics, now: i64, since: i64) -> Self {
        Self {
            now,
            since,
            columns: Counts::default().fields().iter().map(|(name, _)| (*name).to_owned()).collect(),
            total: values(&sums.total),
            seconds: WindowLines::of(&sums.seconds, SECONDS_MAX),
            minutes: WindowLines::of(&sums.minutes, MINUTES_MAX),
            hours: WindowLines::of(&sums.hours, usize::MAX),
            delays: DelayCounts::of(&sums.delays),
            senders: names(&sums.senders),
            recipients: names(&sums.recipients),
            hosts: names(&sums.hosts),
            failing_hosts: names(&sums.failing_hosts),
            deferrals: names(&sums.deferrals),
            failures: names(&sums.failures),
            refusals: names(&sums.refusals),
            best: Vec::new(),
        }
    }

    /// Returns the sums that the answer tells of.
    #[must_use]
    pub fn sums(&self) -> Statistics {
        let mut sums = Statistics::new(WindowSizes::LIVE);
        sums.total = self.counts(&self.total);
        for (lines, series) in
            [(&self.seconds, &mut sums.seconds), (&self.minutes, &mut sums.minutes), (&self.hours, &mut sums.hours)]
        {
            for (number, window) in (0..).zip(&lines.windows) {
                let begin = lines.begin.saturating_add(i64::from(lines.step).saturating_mul(number));
                if let Some(counts) = series.window_at(begin) {
                    *counts = self.counts(window);
                }
            }
        }
        sums.delays = self.delays.delays();
        for (list, top) in [
            (&self.senders, &mut sums.senders),
            (&self.recipients, &mut sums.recipients),
            (&self.hosts, &mut sums.hosts),
            (&self.failing_hosts, &mut sums.failing_hosts),
            (&self.deferrals, &mut sums.deferrals),
            (&self.failures, &mut sums.failures),
            (&self.refusals, &mut sums.refusals),
        ] {
            list.iter().for_each(|one| top.record(&one.name, one.count, one.bytes));
        }
        sums
    }

    /// Takes the values by the names of their columns; a column that is not there counts zero.
    fn counts(&self, values: &[u64]) -> Counts {
        let value = |wanted: &str| {
            let at = self.columns.iter().position(|name| name == wanted);
            at.and_then(|at| values.get(at)).copied().unwrap_or(0)
        };
        Counts::from_values(Counts::default().fields().map(|(name, _)| value(name)))
    }
}

impl WindowLines {
    fn of(series: &Series, max: usize) -> Self {
        let skip = series.slots().len().saturating_sub(max);
        let mut windows = series.slots().skip(skip).peekable();
        let begin = windows.peek().map_or(0, |slot| slot.begin);
        let step = u32::try_from(series.step()).unwrap_or(u32::MAX);
        Self { begin, step, windows: windows.map(|slot| values(&slot.counts)).collect() }
    }
}

impl DelayCounts {
    fn of(delays: &Delays) -> Self {
        Self {
            bounds: delays.classes().filter_map(|(bound, _)| bound).collect(),
            recipients: delays.classes().map(|(_, count)| count).collect(),
            seconds: delays.seconds(),
            longest: delays.longest(),
        }
    }

    fn delays(&self) -> Delays {
        let mut classes = [0; Delays::CLASSES];
        classes.iter_mut().zip(&self.recipients).for_each(|(to, from)| *to = *from);
        Delays::from_parts(classes, self.seconds, self.longest)
    }
}

fn values(counts: &Counts) -> Vec<u64> {
    counts.fields().iter().map(|(_, value)| *value).collect()
}

fn names(top: &TopList) -> Vec<NameCount> {
    let name = |one: observe::stats::TopName| NameCount { name: one.name, count: one.count, bytes: one.bytes };
    top.most(NAMES_MAX).into_iter().map(name).collect()
}

//! Whether the limits of a destination hold, seen from the hosts, while 50 sessions bring mail for few of them.

use super::flow::{Submission, follow, submission};
use super::internet::Internet;
use super::ledger::{Tally, most_within};
use super::report::{Line, Lines};
use super::world::World;
use super::{Arguments, Part};
use crate::side_by_side::servers::{Kind, Server, Site, Task};
use crate::storm::Plan;
use serde_json::{Value, json};
use std::collections::HashMap;
use std::time::Duration;

const SESSIONS: u32 = 50;
const HOSTS: u32 = 20;
/// Messages for each host, each to all ten recipients of its domain.
const MESSAGES: u32 = 40;
const RECIPIENTS: u32 = 10;
/// The limits.
const CONNECTIONS: u64 = 3;
const PER_SECOND: u32 = 10;
const PER_TRANSACTION: usize = 2;
const PER_CONNECTION: usize = 10;
/// What a message takes from its turn to the host's answer may vary by this.
const SLACK: Duration = Duration::from_millis(100);
const LONGEST: Duration = Duration::from_secs(90);
const WINDOWS: [Duration; 2] = [Duration::from_secs(1), Duration::from_secs(10)];

/// What one host saw.
#[derive(Debug, Default)]
struct Host {
    times_us: Vec<u64>,
    per_connection: HashMap<u64, usize>,
    recipients_max: usize,
}

/// The most that any host saw.
#[derive(Debug)]
pub(super) struct Figures {
    open_max: u64,
    recipients_max: usize,
    per_connection_max: usize,
    windows: [usize; 2],
    arrived: usize,
    expected: usize,
    seconds: f64,
}

/// Brings the mail and looks at the ledger.
///
/// # Errors
/// Why there are no figures.
pub(super) fn measure(site: &Site, arguments: &Arguments) -> Result<Figures, String> {
    let shares = Vec::new();
    let world = World { hosts: HOSTS, domains_per_host: 1, recipients: RECIPIENTS, shares, delay_ms: arguments.delay };
    let mut internet = Internet::start(site, &world)?;
    let rule = format!(
        "destination=[{{match=[\"mx:*\"],connections={CONNECTIONS},messages_per_second={PER_SECOND},\
         recipients_per_transaction={PER_TRANSACTION},messages_per_connection={PER_CONNECTION}}}]"
    );
    let server = Server::start_with(site, &Kind::Serve, Task::List, &[rule])?;
    let mut lists: HashMap<String, Vec<String>> = HashMap::new();
    for one in &internet.people.all {
        let domain = one.split_once('@').map_or("", |(_, domain)| domain);
        lists.entry(domain.to_owned()).or_default().push(one.clone());
    }
    let lists: Vec<Vec<String>> = lists.into_values().collect();
    let messages = u64::from(MESSAGES * HOSTS);
    let mut tally = Tally::new("limits", lists.iter().flatten().map(|one| (one.clone(), true)));
    let expected = (MESSAGES * HOSTS * RECIPIENTS) as usize;
    let plan = submission(server.at, "limits", messages, arguments.bytes, lists);
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
    Ok(Figures {
        open_max: summary.host_open_max,
        recipients_max: all.clone().map(|host| host.recipients_max).max().unwrap_or(0),
        per_connection_max: all.flat_map(|host| host.per_connection.values().copied()).max().unwrap_or(0),
        windows: WINDOWS.map(|window| {
            let most = hosts.values_mut().map(|host| most_within(&mut host.times_us, window));
            most.max().unwrap_or(0)
        }),
        arrived: tally.arrived(),
        expected,
        seconds,
    })
}

/// Messages that may come within a time: the rate, and a second's worth at once.
fn allowed(window: Duration) -> f64 {
    f64::from(PER_SECOND) * (1.0 + (window + SLACK).as_secs_f64())
}

impl Figures {
    /// As a table, and for programs.
    pub(super) fn report(&self, part: Part) -> (String, Value) {
        let most = |name: &str, measured: usize, allowed: f64| Line {
            name: format!("{name}, at most {allowed:.0}"),
            target: "",
            measured: measured.to_string(),
            met: Some(u32::try_from(measured).is_ok_and(|measured| f64::from(measured) <= allowed)),
        };
        let [short, long] = WINDOWS;
        let lines = vec![
            most("connections of a host at one time", usize::try_from(self.open_max).unwrap_or(usize::MAX), 3.0),
            most("messages of a host in any second", self.windows[0], allowed(short)),
            most("messages of a host in any ten seconds", self.windows[1], allowed(long)),
            most("recipients of a transaction", self.recipients_max, 2.0),
            most("messages of a connection", self.per_connection_max, 10.0),
            Line {
                name: format!("recipients who had their mail, of {}", self.expected),
                target: "all",
                measured: format!("{} after {:.0} s", self.arrived, self.seconds),
                met: Some(self.arrived == self.expected),
            },
        ];
        let value = json!({
            "part": part.title(), "open_max": self.open_max, "recipients_max": self.recipients_max,
            "per_connection_max": self.per_connection_max, "in_a_second": self.windows[0],
            "in_ten_seconds": self.windows[1], "arrived": self.arrived, "expected": self.expected,
        });
        (Lines(lines).markdown(part.title()), value)
    }
}

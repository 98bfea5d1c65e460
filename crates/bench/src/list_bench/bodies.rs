//! How often the spool holds the body of a large list: while all of it is held, and while it is under way.
//!
//! Both times the server is killed and the files of its spool are counted, not the figures of the server: each body
//! carries a mark of the storm, and so do ten single messages beside the list, which show that the count would see more
//! than one. The second kill comes under way, by the ledger of the internet: some recipients had the list, the others
//! wait.

use super::ListBenchArguments;
use super::flow::{Submission, submission};
use super::internet::InternetProcess;
use super::ledger::Arrivals;
use super::report::{ReportLine, ReportLines, count};
use super::world::large;
use crate::clock;
use crate::side_by_side::servers::{RunningServer, ServerKind, Site, Task};
use rustix::process::Signal;
use serde_json::{Value, json};
use std::fs::{self, File};
use std::io::{self, Read as _};
use std::path::Path;
use std::time::Duration;

/// Messages beside the list.
const OTHERS: u64 = 10;
/// The longest wait for mail to be under way.
const LONGEST: Duration = Duration::from_secs(60);
/// How often the server is asked what waits.
const ASK_EVERY: Duration = Duration::from_millis(20);
/// Octets that are read at a time.
const CHUNK: usize = 1 << 20;

/// The content of a spool.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Look {
    /// Bodies of the list, and of the other messages.
    bodies: u64,
    others: u64,
    /// Unfinished ones, as `mailrace spool stats` counts.
    messages: u64,
    recipients: u64,
    live_bytes: u64,
}

/// All figures.
#[derive(Clone, Copy, Debug)]
pub(super) struct BodyFigures {
    recipients: u64,
    bytes: u64,
    held: Look,
    under_way: Look,
    course: Course,
}

/// How far the list had come when it was under way.
#[derive(Clone, Copy, Debug, Default)]
struct Course {
    /// Live recipients that had it, of so many.
    arrived: u64,
    live: u64,
    /// Had it more than once.
    twice: u64,
    /// Did not have it and do not wait for it.
    lost: u64,
}

/// Holds a list, looks, lets it go, looks again.
///
/// # Errors
/// Why there are no figures.
pub(super) fn measure(site: &Site, arguments: &ListBenchArguments) -> Result<BodyFigures, String> {
    let mut internet = InternetProcess::start(site, &large(arguments))?;
    let held = ["delivery.mode=queue".to_owned()];
    let mut server = RunningServer::start_with(site, &ServerKind::Serve, Task::List, &held)?;
    let people = std::mem::take(&mut internet.people);
    let one = people.those(true).into_iter().next().ok_or("nobody is live")?;
    let (recipients, live) = (people.all.len() as u64, people.live() as u64);
    let mut tally = Arrivals::new("bodies", people.all.iter().cloned().zip(people.is_live.iter().copied()));
    let bring = |run, messages, list| {
        Submission::start(submission(server.at, run, messages, arguments.bytes, vec![list])).end().map(drop)
    };
    bring("others", OTHERS, vec![one])?;
    bring("bodies", 1, people.all)?;
    server.end(Signal::KILL);
    let held = look(&server)?;

    server.start_again(Task::List, &[])?;
    let start = clock::now();
    // The others go at once, and one transaction of the list is enough.
    while server.waiting()? >= recipients {
        if start.elapsed() > LONGEST {
            return Err(format!("nothing was delivered within {} s", LONGEST.as_secs()));
        }
        clock::pause(ASK_EVERY);
    }
    server.end(Signal::KILL);
    let under_way = look(&server)?;
    let waiting = server.who_waits()?;
    // Its last lines are written when it ends.
    internet.finish()?;
    internet.deliveries(|taken| tally.add(taken))?;
    let course = Course { arrived: tally.arrived() as u64, live, twice: tally.twice, lost: tally.lost(&waiting) };
    Ok(BodyFigures { recipients, bytes: arguments.bytes as u64, held, under_way, course })
}

fn look(server: &RunningServer<'_>) -> Result<Look, String> {
    let spool = server.spool().ok_or("the server has no spool")?;
    let marks = |run: &str| {
        let mark = format!("X-Mailrace-Storm: {run}/");
        occurrences(&spool, mark.as_bytes()).map_err(|e| format!("{}: {e}", spool.display()))
    };
    let (bodies, others) = (marks("bodies")?, marks("others")?);
    let stored = server.stored()?;
    let number = |key: &str| stored.get(key).and_then(Value::as_u64).ok_or_else(|| format!("spool stats: no {key}"));
    Ok(Look {
        bodies,
        others,
        messages: number("messages")?,
        recipients: number("recipients")?,
        live_bytes: number("live_bytes")?,
    })
}

/// How often something stands in the files below a directory.
fn occurrences(dir: &Path, mark: &[u8]) -> io::Result<u64> {
    let mut all = 0;
    for entry in fs::read_dir(dir)? {
        let entry = entry?;
        if entry.file_type()?.is_dir() {
            all += occurrences(&entry.path(), mark)?;
        } else {
            all += within(File::open(entry.path())?, mark)?;
        }
    }
    Ok(all)
}

fn within(mut file: impl io::Read, mark: &[u8]) -> io::Result<u64> {
    let (first, mut all) = (mark.first().copied().unwrap_or(0), 0);
    let mut rest = Vec::with_capacity(CHUNK + mark.len());
    loop {
        if file.by_ref().take(CHUNK as u64).read_to_end(&mut rest)? == 0 {
            return Ok(all);
        }
        let mut at = 0;
        // Most of a segment is zeroes.
        while let Some(found) = rest.get(at..).and_then(|rest| rest.iter().position(|octet| *octet == first)) {
            at += found;
            all += u64::from(rest.get(at..).is_some_and(|rest| rest.starts_with(mark)));
            at += 1;
        }
        // The end may be the beginning of one.
        let kept = rest.len().min(mark.len().saturating_sub(1));
        rest.drain(..rest.len() - kept);
    }
}

impl BodyFigures {
    /// Returns the lines of the report.
    pub(super) fn lines(&self) -> ReportLines {
        let Self { recipients, bytes, held, under_way, course } = self;
        let body = |name: &str, look: &Look| {
            let measured = format!("{} (control, {OTHERS} other messages: {})", look.bodies, look.others);
            ReportLine::must(
                format!("bodies of the list in the files of the spool, {name}: 1"),
                measured,
                look.bodies == 1,
            )
        };
        let each = count(held.live_bytes.saturating_sub((1 + OTHERS) * bytes)) / count((*recipients).max(1));
        let is_whole = held.messages == 1 + OTHERS && held.recipients == recipients + OTHERS;
        ReportLines(vec![
            body("held", held),
            body("under way", under_way),
            ReportLine::must(
                format!("the control finds all {OTHERS} other messages while they are held"),
                held.others.to_string(),
                held.others == OTHERS,
            ),
            ReportLine::must(
                format!("messages and recipients held: {} and {}", 1 + OTHERS, recipients + OTHERS),
                format!("{} and {}", held.messages, held.recipients),
                is_whole,
            ),
            ReportLine::must(
                "under way some of the live recipients had the list, and not all",
                format!("{} of {}", course.arrived, course.live),
                (1..course.live).contains(&course.arrived),
            ),
            ReportLine::must(
                "under way nobody had it twice, and nobody is lost: 0 and 0",
                format!("{} and {}", course.twice, course.lost),
                (course.twice, course.lost) == (0, 0),
            ),
            ReportLine::plain("recipients that wait, under way", under_way.recipients.to_string()),
            ReportLine::plain(
                "octets of the spool for each recipient of the list, bodies not counted",
                format!("{each:.1}"),
            ),
        ])
    }

    pub(super) fn json(&self) -> Value {
        let look = |look: &Look| {
            json!({
                "bodies": look.bodies, "others": look.others, "messages": look.messages, "recipients": look.recipients,
                "live_bytes": look.live_bytes,
            })
        };
        let Course { arrived, live, twice, lost } = self.course;
        json!({
            "recipients": self.recipients, "held": look(&self.held), "under_way": look(&self.under_way),
            "course": { "arrived": arrived, "live": live, "twice": twice, "lost": lost },
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn marks_are_found_wherever_they_lie() {
        let count = |text: &[u8]| within(text, b"mark/").unwrap();
        assert_eq!(count(b""), 0);
        assert_eq!(count(b"mark/ mmark/ mar mark"), 2);
        for at in CHUNK - 6..CHUNK + 2 {
            let mut text = vec![b'm'; CHUNK + 20];
            text[at..at + 5].copy_from_slice(b"mark/");
            assert_eq!(count(&text), 1, "{at}");
        }
    }

    #[test]
    fn a_body_for_each_transaction_is_noticed() {
        let held = Look { bodies: 1, others: 10, messages: 11, recipients: 110, live_bytes: 50_000 };
        let under_way = Look { bodies: 1, ..Look::default() };
        let course = Course { arrived: 1, live: 90, ..Course::default() };
        let figures = BodyFigures { recipients: 100, bytes: 4_096, held, under_way, course };
        assert_eq!(figures.lines().broken(), [""; 0]);
        let more = BodyFigures { under_way: Look { bodies: 2, ..held }, ..figures };
        assert_eq!(more.lines().broken().len(), 1);
        for course in [
            Course { arrived: 0, ..course },
            Course { arrived: 90, ..course },
            Course { twice: 1, ..course },
            Course { lost: 1, ..course },
        ] {
            assert_eq!(BodyFigures { course, ..figures }.lines().broken().len(), 1, "{course:?}");
        }
        // A count that sees nothing is no proof.
        let blind = BodyFigures { held: Look { bodies: 0, others: 0, ..held }, ..figures };
        assert_eq!(blind.lines().broken().len(), 2);
    }
}

//! A list of which very many recipients are refused at the same time: its sender gets a report on all of them, in few
//! messages.

use super::book::EPOCH;
use super::check::field;
use super::plan::Death;
use super::plan::End;
use super::run;
use super::scene::Scene;
use crate::sabotage::Sabotage;
use crate::settle::REPORT_OCTETS;
use mail::QueueId;
use std::collections::HashMap;
use std::time::Duration;

/// Recipients of the list, all unknown where they are to be: more than stand in one report.
const COUNT: usize = 5_000;
const MINUTE: Duration = Duration::from_secs(60);

/// A report as its reader has it.
struct Read {
    made: Duration,
    recipients: Vec<String>,
    octets: usize,
    /// The message itself is in it.
    is_whole: bool,
    /// Octets of its first part.
    words: usize,
}

/// Runs the list in a spool of so many shards, with a power cut at this time; returns the reports read and the
/// faults.
fn lived(shards: u16, death: Option<Duration>, sabotage: Option<Sabotage>) -> (Vec<Read>, Vec<String>) {
    let plan = move || {
        let mut scene = Scene::new(2, Duration::ZERO);
        scene.hosts.iter_mut().for_each(|host| host.manners.pipelining = true);
        scene.hosts[1].manners.hard_rcpt = 1_000;
        let config = &mut scene.config;
        config.message.recipients_max = 10_000;
        config.spool.shards = shards;
        // The envelope is one frame.
        config.spool.segment_bytes = 4 << 20;
        config.spool.size_max = 128 << 20;
        scene.postmaster_at(0);
        let recipients = (0..COUNT).map(|nth| scene.at(&format!("r0.{nth}{}", "x".repeat(50)), 1)).collect();
        scene.send(scene.at("s0", 0), recipients, Duration::from_secs(1));
        let (mut plan, book) = scene.plan(MINUTE, 60 * MINUTE);
        let death = death.map(|at| Death { at, how: End::Power, operations: None, down: Duration::from_secs(1) });
        plan.deaths.extend(death);
        (plan, book)
    };
    let (book, wrong) = run::run_planned(1, plan, sabotage);
    let facts = book.facts();
    let reports = facts.taken.iter().filter(|taken| taken.sender.is_empty());
    let read = reports.map(|taken| {
        let text = String::from_utf8_lossy(&taken.content);
        let id = field(&text, "Message-ID").and_then(|id| id[1..].split('@').next()).unwrap().to_owned();
        let made = Duration::from_micros(id.parse::<QueueId>().unwrap().unix_us()).saturating_sub(EPOCH);
        let recipients = text.split("\r\n").filter_map(|line| line.strip_prefix("Final-Recipient: rfc822; "));
        Read {
            made,
            recipients: recipients.map(str::to_owned).collect(),
            octets: taken.content.len(),
            is_whole: text.contains("\r\n\r\nhello\r\n"),
            words: text.find("message/delivery-status").unwrap(),
        }
    });
    (read.collect(), wrong)
}

/// Counts recipients that were reported more than once; all of them must be reported.
#[track_caller]
fn twice(reports: &[Read]) -> usize {
    let mut told: HashMap<&str, usize> = HashMap::new();
    for name in reports.iter().flat_map(|report| &report.recipients) {
        *told.entry(name).or_default() += 1;
    }
    assert_eq!(told.len(), COUNT, "recipients were told of");
    told.values().filter(|count| **count > 1).count()
}

#[test]
fn very_many_failures_make_few_reports_of_which_the_first_has_the_message_and_the_words() {
    let (mut reports, wrong) = lived(1, None, None);
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert_eq!(twice(&reports), 0);
    reports.sort_by_key(|report| report.made);
    assert!((3..=4).contains(&reports.len()), "{} reports", reports.len());
    for (nth, report) in reports.iter().enumerate() {
        let (count, octets) = (report.recipients.len(), report.octets);
        assert!(
            octets <= REPORT_OCTETS + 1_000 && octets <= 300 * count + 40_000,
            "{count} recipients in {octets} octets"
        );
        assert_eq!(report.is_whole, nth == 0, "report {nth}");
        assert_eq!(report.words < 3_000, nth > 0, "{} octets of words in report {nth}", report.words);
    }
}

/// Crashes between the first report and the last one, and their results.
struct Crashed {
    /// The most recipients that were reported twice.
    repeated: usize,
    /// The most recipients of a report.
    most: usize,
    /// Crashes at which some recipients were reported and others not yet.
    between: usize,
}

fn crashed(shards: u16, sabotage: Option<Sabotage>, eighths: &[u32]) -> Crashed {
    let (reports, _) = lived(shards, None, sabotage);
    let first = reports.iter().map(|report| report.made).min().unwrap();
    let last = reports.iter().map(|report| report.made).max().unwrap();
    let most = reports.iter().map(|report| report.recipients.len()).max().unwrap();
    let mut crashed = Crashed { repeated: 0, most, between: 0 };
    for part in eighths {
        let at = first + (last - first) * *part / 8 + Duration::from_millis(1);
        let (reports, wrong) = lived(shards, Some(at), sabotage);
        assert!(wrong.is_empty(), "power goes at {at:?}: {wrong:#?}");
        crashed.repeated = crashed.repeated.max(twice(&reports));
        let is_before = |report: &Read| report.made <= at;
        crashed.between += usize::from(reports.iter().any(is_before) && !reports.iter().all(is_before));
    }
    crashed
}

/// Checks that one report is recorded before the next one is made.
#[test]
fn a_crash_between_two_reports_loses_none_and_repeats_only_the_last() {
    // With several shards the record of one report and the next report are in different ones.
    for shards in [1, 3] {
        let Crashed { repeated, most, between } = crashed(shards, None, &[0, 4, 8]);
        println!("{shards} shards: {repeated} of {most} repeated, {between} crashes between two reports");
        assert!(between > 0, "{shards} shards: no crash came between two reports");
        assert!(repeated <= most, "{shards} shards: {repeated} recipients were told of twice, of {most} in a report");
        let Crashed { repeated, most, between } = crashed(shards, Some(Sabotage::RecordLate), &[8]);
        println!(
            "{shards} shards, recorded late: {repeated} of {most} repeated, {between} crashes between two reports"
        );
        assert!(repeated > most, "{shards} shards: {repeated} told of twice, of {most} in a report: not noticed");
    }
}

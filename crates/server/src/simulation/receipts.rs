//! A list whose sender asks for a report on each delivery, at hosts that send none: he gets few messages with all
//! reports, and a crash between a delivery and its report repeats neither and loses neither.

use super::book::EPOCH;
use super::check::field;
use super::plan::End;
use super::plan::{Death, Plan};
use super::run;
use super::scene::Scene;
use crate::config::{Host as Name, HostPort, RouteProtocol};
use crate::sabotage::Sabotage;
use mail::{Notify, QueueId};
use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::Duration;

/// Recipients of the list, each at a host of his own where the hosts are no site.
const COUNT: usize = 30;
const SECOND: Duration = Duration::from_secs(1);
const MINUTE: Duration = Duration::from_secs(60);

/// How the list goes out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    /// Each recipient by a host of his own. Of these one refuses him.
    Hosts { refusing: bool },
    /// Through one server over LMTP, a few in a transaction.
    Lmtp,
}

/// A report as its reader has it.
#[derive(Debug)]
struct Read {
    made: Duration,
    /// Recipients in the report, each with its status.
    told: Vec<(String, String)>,
    text: String,
}

/// Runs the list and lets the server die like this; returns the reports read and the faults.
fn lived(way: Way, death: Option<(Duration, End)>, sabotage: Option<Sabotage>) -> (Vec<Read>, Vec<String>) {
    let plan = move || {
        let mut scene = Scene::new(COUNT + 1, 20 * Duration::from_millis(1));
        for host in &mut scene.hosts {
            (host.manners.dsn, host.manners.esmtp, host.manners.is_lmtp) = (false, true, way == Way::Lmtp);
        }
        scene.postmaster_at(0);
        if let Way::Hosts { refusing: true } = way {
            scene.hosts[7].manners.hard_rcpt = 1_000;
        }
        if way == Way::Lmtp {
            let address = Name::Address(IpAddr::V4(scene.hosts[1].address));
            scene.config.route.smart_host = vec![vec![HostPort { host: address, port: 25 }]];
            scene.config.route.protocol = RouteProtocol::Lmtp;
            scene.config.delivery.recipients_per_transaction = 4;
        }
        let recipients = (1..=COUNT).map(|nth| scene.at(&format!("r0.{nth}"), nth)).collect();
        scene.send(scene.at("s0", 0), recipients, SECOND);
        for (_, notify) in &mut scene.book.facts().sent[0].recipients {
            *notify = Some(Notify::SUCCESS.and(Notify::FAILURE));
        }
        let (plan, book) = scene.plan(MINUTE, 60 * MINUTE);
        let mut plan = Plan { is_one_destination: way == Way::Lmtp, ..plan };
        plan.deaths.extend(death.map(|(at, how)| Death { at, how, operations: None, down: SECOND }));
        (plan, book)
    };
    let (book, wrong) = run::run_planned(1, plan, sabotage);
    let facts = book.facts();
    let reports = facts.taken.iter().filter(|taken| taken.sender.is_empty());
    let read = reports.map(|taken| {
        let text = String::from_utf8_lossy(&taken.content).into_owned();
        let id = field(&text, "Message-ID").and_then(|id| id[1..].split('@').next()).unwrap().to_owned();
        let made = Duration::from_micros(id.parse::<QueueId>().unwrap().unix_us()).saturating_sub(EPOCH);
        let groups = text.split("\r\n\r\n").filter_map(|group| {
            let whom = field(group, "Final-Recipient")?.strip_prefix("rfc822; ")?;
            Some((whom.to_owned(), field(group, "Action")?.to_owned()))
        });
        Read { made, told: groups.collect(), text }
    });
    (read.collect(), wrong)
}

/// Counts how often each recipient was reported, with the last status.
fn told(reports: &[Read]) -> BTreeMap<&str, (usize, &str)> {
    let mut told: BTreeMap<&str, (usize, &str)> = BTreeMap::new();
    for (whom, what) in reports.iter().flat_map(|report| &report.told) {
        let one = told.entry(whom).or_default();
        *one = (one.0 + 1, what);
    }
    told
}

/// Checks that every recipient was reported once, and that so many of them were relayed.
#[track_caller]
fn assert_told(reports: &[Read], relayed: usize) {
    let told = told(reports);
    let times: Vec<usize> = told.values().map(|(times, _)| *times).collect();
    assert_eq!(times, [1; COUNT], "{told:?}");
    assert_eq!(told.values().filter(|(_, what)| *what == "relayed").count(), relayed, "{told:?}");
}

#[test]
fn one_report_tells_of_all_who_have_it_at_hosts_that_tell_nobody() {
    for (way, relayed) in
        [(Way::Hosts { refusing: false }, COUNT), (Way::Hosts { refusing: true }, COUNT - 1), (Way::Lmtp, COUNT)]
    {
        let (reports, wrong) = lived(way, None, None);
        assert!(wrong.is_empty(), "{way:?}: {wrong:#?}");
        assert_eq!(reports.len(), 1, "{way:?}");
        assert_told(&reports, relayed);
        assert!(reports[0].made < 15 * SECOND, "{way:?}: {:?}", reports[0].made);
        let answers = reports[0].text.matches("Diagnostic-Code: smtp; 250").count();
        assert_eq!(answers, relayed, "{way:?}: what was answered is known");
    }
}

/// All is delivered two seconds after the start, and reported five seconds later.
const BETWEEN: Duration = Duration::from_secs(4);

#[test]
fn a_crash_between_deliveries_and_their_report_repeats_none_and_loses_none() {
    for way in [Way::Hosts { refusing: false }, Way::Lmtp] {
        for how in [End::Power, End::Kill, End::Stop] {
            let (reports, wrong) = lived(way, Some((BETWEEN, how)), None);
            assert!(wrong.is_empty(), "{way:?}, {how:?}: {wrong:#?}");
            assert!(reports.iter().all(|report| report.made > BETWEEN + SECOND), "{way:?}: one was told before");
            assert_told(&reports, COUNT);
            assert!(reports.len() <= 2, "{way:?}, {how:?}: {} reports", reports.len());
            let is_said = |report: &Read| report.text.contains("is not known any more");
            assert!(reports.iter().all(is_said), "{way:?}, {how:?}: it is said that the answer is forgotten");
        }
    }
}

#[test]
fn what_is_owed_and_forgotten_is_noticed_and_so_is_what_is_recorded_when_it_is_told() {
    let way = Way::Hosts { refusing: false };
    let (_, wrong) = lived(way, Some((BETWEEN, End::Kill)), Some(Sabotage::ForgetOwed));
    assert!(wrong.iter().any(|one| one.contains("success was not reported")), "not noticed: {wrong:#?}");
    let (_, wrong) = lived(way, Some((BETWEEN, End::Kill)), Some(Sabotage::OweDelivery));
    assert!(
        wrong.iter().any(|one| one.contains("was delivered") && one.contains("and again")),
        "not noticed: {wrong:#?}"
    );
}

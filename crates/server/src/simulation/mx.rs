//! Sites of several mail hosts of which some are bad, each in its own way: mail goes through the others at full
//! speed.

use super::book::Answer;
use super::host::{Fault, Mood, Point};
use super::run;
use super::scene::Scene;
use crate::config::{Config, DnsOverride, Host as Name, LogPath};
use crate::sabotage::Sabotage;
use std::net::IpAddr;
use std::time::Duration;

const SECOND: Duration = Duration::from_secs(1);
const HOUR: Duration = Duration::from_secs(3_600);
/// Messages of a run, one each few seconds: connections end in between.
const COUNT: usize = 60;
const EACH: Duration = Duration::from_secs(7);
/// A message that comes later was held up by more than first contact with four bad hosts in the fast lane.
const AT_ONCE: Duration = Duration::from_secs(120);

/// The hosts of the site by preference, equal ones together.
type Site = Vec<Vec<Vec<(Duration, Vec<Mood>)>>>;

/// Result of a run.
#[derive(Debug)]
struct Lived {
    /// How long each message took, the longest first.
    delays: Vec<Duration>,
    /// Connections at each host.
    dials: Vec<usize>,
    wrong: Vec<String>,
}

const GOOD: Vec<(Duration, Vec<Mood>)> = Vec::new();

fn always(mood: Mood) -> Vec<(Duration, Vec<Mood>)> {
    vec![(24 * HOUR, vec![mood])]
}

/// Sends mail to a site of these hosts.
fn lived(site: &Site, sabotage: Option<Sabotage>) -> Lived {
    lived_with(site, sabotage, |_| ())
}

/// Does the same with another configuration.
fn lived_with(site: &Site, sabotage: Option<Sabotage>, change: impl FnOnce(&mut Config)) -> Lived {
    let site = site.clone();
    let count = site.iter().map(Vec::len).sum::<usize>();
    let plan = move || {
        let mut scene = Scene::new(count + 1, Duration::from_millis(20));
        for host in &mut scene.hosts {
            host.manners.chunking = host.number.is_multiple_of(2);
        }
        scene.config.delivery.idle_time = 3 * SECOND;
        change(&mut scene.config);
        let mut mx = Vec::new();
        let mut number = 0;
        for group in site {
            let mut names = Vec::new();
            for days in group {
                scene.hosts[number].days = days;
                names.push(Name::Address(IpAddr::V4(scene.hosts[number].address)));
                number += 1;
            }
            mx.push(names);
        }
        scene.config.dns.overrides.push(DnsOverride { domain: "d.test".parse().unwrap(), mx, address: Vec::new() });
        scene.postmaster_at(count);
        for number in 0..COUNT {
            let at = SECOND + EACH * u32::try_from(number).unwrap();
            scene.send(scene.at(&format!("s{number}"), count), vec![format!("r{number}.0@d.test")], at);
        }
        scene.plan(EACH * u32::try_from(COUNT).unwrap(), 12 * HOUR)
    };
    let (book, wrong) = run::run_planned(1, plan, sabotage);
    let facts = book.facts();
    let mut delays: Vec<Duration> = Vec::new();
    for sent in &facts.sent {
        let Answer::Accepted(accepted) = sent.answer else { panic!("{sent:?}") };
        let is_it = |name: &str| sent.recipients.iter().any(|(one, _)| one == name);
        let taken = facts.taken.iter().find(|taken| taken.recipients.iter().any(|(name, _)| is_it(name)));
        delays.push(taken.map_or(HOUR, |taken| taken.at.saturating_sub(accepted)));
    }
    delays.sort_unstable_by(|one, other| other.cmp(one));
    Lived { delays, dials: facts.dials.clone(), wrong }
}

/// The longest time that a message to a site with one good host may take.
const LONGEST: Duration = Duration::from_secs(20 * 60);
/// Connections to a bad host of a site with a good one: it is passed over, and found out about by few messages.
const DIALS_FEW: usize = 8;
/// Connections to a host of a site without a good one in twelve hours: those of the first, and two an hour.
const DIALS_MAX: usize = 16 + 2 * 12;

/// Returns the bounds that mail to two or five hosts does not keep, some of them of this kind.
///
/// Messages that are tried at a bad host before it is known, or that probe it, wait for their next try: so many of
/// them where one host is bad, and where four are.
fn broken(kind: Mood, [of_one, of_four]: [usize; 2], longest: Duration, sabotage: Option<Sabotage>) -> Vec<String> {
    let mut broken = Vec::new();
    let mut judge = |is_right: bool, what: String| broken.extend((!is_right).then_some(what));
    let bad = || always(kind);
    // It takes mail, but for a while it puts off the first message of a connection.
    let busy = vec![(20 * SECOND, vec![Mood::Faulty(Point::Mail, Fault::Soft, 1)])];
    let sites: [(&str, Site, usize); 5] = [
        ("first", vec![vec![bad()], vec![GOOD]], of_one),
        ("second", vec![vec![GOOD], vec![bad()]], 0),
        ("second, the first put mail off", vec![vec![busy], vec![bad()]], of_one + 3),
        ("four of five", vec![vec![bad(), bad(), bad(), bad(), GOOD]], of_four),
        ("the first four", vec![vec![bad()], vec![bad()], vec![bad()], vec![bad()], vec![GOOD]], of_four),
    ];
    for (name, site, most) in sites {
        let Lived { delays, dials, wrong } = lived(&site, sabotage);
        let late = delays.iter().filter(|delay| **delay > AT_ONCE).count();
        println!("{kind:?} {name}: {late} late, {:?}, dials {dials:?}", &delays[..3]);
        judge(wrong.is_empty(), format!("WRONG: {kind:?} {name}: {wrong:#?}"));
        judge(late <= most, format!("LATE: {kind:?} {name}: {late} of {most}, {delays:?}"));
        judge(delays[0] <= longest, format!("LONGEST: {kind:?} {name}: {delays:?}"));
        let is_bad = |number: &usize| site.iter().flatten().nth(*number) == Some(&bad());
        let of_bad: Vec<usize> = (0..dials.len()).filter(is_bad).map(|number| dials[number]).collect();
        let is_spared = !of_bad.is_empty() && of_bad.iter().all(|dials| *dials <= DIALS_FEW);
        judge(is_spared, format!("DIALS: {kind:?} {name}: {dials:?}"));
    }
    // Where all hosts are bad, they get few connections, and all mail waits.
    for site in [vec![vec![bad()], vec![bad()]], vec![vec![bad(), bad(), bad(), bad(), bad()]]] {
        let Lived { dials, wrong, .. } = lived(&site, sabotage);
        println!("{kind:?} all of {}: dials {dials:?}", dials.len() - 1);
        let most = dials[..dials.len() - 1].iter().max();
        judge(most <= Some(&DIALS_MAX), format!("DIALS OF ALL: {kind:?}: {dials:?}"));
        let waits = format!("Some({COUNT}) messages are in the queue at the end");
        let (waiting, wrong): (Vec<String>, Vec<String>) =
            wrong.into_iter().partition(|wrong| wrong.contains(&waits) || wrong.starts_with("LOST: "));
        judge(waiting.iter().any(|one| one.contains(&waits)), format!("WAITING: {kind:?} all: {waiting:#?}"));
        judge(wrong.is_empty(), format!("WRONG: {kind:?} all: {wrong:#?}"));
    }
    broken
}

#[track_caller]
fn check(kind: Mood, late: [usize; 2]) {
    let broken = broken(kind, late, LONGEST, None);
    assert!(broken.is_empty(), "{broken:#?}");
}

/// Tests that each bound is noticed when it is broken.
#[test]
fn bad_hosts_that_are_not_passed_over_are_noticed() {
    let hangs = Mood::Faulty(Point::Mail, Fault::Hang, 1);
    for (sabotage, kind, late, words) in [
        (Sabotage::PassOverNobody, Mood::Silent, [0, 0], &["DIALS: "][..]),
        (Sabotage::PassOverNobody, hangs, [6, 22], &["DIALS: ", "LATE: ", "LONGEST: "]),
        (Sabotage::Tireless, Mood::Refuses, [0, 0], &["DIALS OF ALL: "]),
        (Sabotage::DropDeferred, hangs, [6, 22], &["WRONG: "]),
    ] {
        let broken = broken(kind, late, LONGEST, Some(sabotage));
        for words in words {
            let is_noticed = broken.iter().any(|broken| broken.starts_with(words));
            assert!(is_noticed, "{sabotage:?} with {kind:?}: {words:?} was not said: {broken:#?}");
        }
    }
}

#[test]
fn a_host_that_cannot_be_reached_holds_up_nobody() {
    use Fault::{Close, Dismiss, Garbage, Hang, Hard, Soft};
    use Point::{Greeting, Hello};
    for kind in [Mood::Silent, Mood::Refuses, Mood::Unreachable] {
        check(kind, [0, 0]);
    }
    for (point, fault) in [
        (Greeting, Hang),
        (Greeting, Close),
        (Greeting, Dismiss),
        (Greeting, Hard),
        (Hello, Hang),
        (Hello, Garbage),
        (Hello, Soft),
    ] {
        check(Mood::Faulty(point, fault, 1), [0, 0]);
    }
}

#[test]
fn a_host_that_fails_in_a_message_holds_up_nobody_else() {
    use Fault::{Close, Dismiss, Garbage, Hang};
    use Point::{Content, Data, Dot, Mail, Rcpt};
    for (point, fault) in [(Mail, Hang), (Rcpt, Hang), (Data, Hang), (Dot, Hang)] {
        // Each such host takes its time of some minutes from those that find out about it.
        check(Mood::Faulty(point, fault, 1), [6, 22]);
    }
    // Behind lines without a code a reply is waited for, for ten seconds: more messages find out about such a host, one
    // of them about two hosts.
    let broken = broken(Mood::Faulty(Rcpt, Garbage, 1), [6, 16], LONGEST + 5 * 60 * SECOND, None);
    assert!(broken.is_empty(), "{broken:#?}");
    for (point, fault) in [(Mail, Close), (Mail, Dismiss), (Data, Dismiss), (Content, Close)] {
        check(Mood::Faulty(point, fault, 1), [2, 10]);
    }
}

/// A message that such a host ends before has had no attempt there: all of them go to another host at once, and where
/// there is none the log has the host's reply.
#[test]
fn a_host_that_ends_before_the_first_message_holds_up_nobody() {
    for (fault, said) in [
        (Fault::Dismiss, "dsn=4.3.2, reply=421 4.3.2 closing, stat=Deferred: 421 4.3.2 closing"),
        (Fault::Close, "dsn=4.4.2, stat=Deferred: [10.0.0.1] closed the connection during client MAIL"),
    ] {
        let bad = || always(Mood::Faulty(Point::Ready, fault, 1));
        let sites: [Site; 3] = [
            vec![vec![bad()], vec![GOOD]],
            vec![vec![bad(), GOOD]],
            vec![vec![bad()], vec![bad()], vec![bad()], vec![GOOD]],
        ];
        for site in sites {
            let Lived { delays, dials, wrong } = lived_with(&site, None, from_disk);
            println!("{fault:?}: {:?}, dials {dials:?}", &delays[..3]);
            assert!(wrong.is_empty(), "{fault:?}: {wrong:#?}");
            assert!(delays[0] <= 5 * SECOND, "{fault:?}: {delays:?}");
            let bad_dials = &dials[..dials.len() - 2];
            assert!(bad_dials.iter().all(|dials| *dials <= DIALS_FEW), "{fault:?}: {dials:?}");
        }
        let directory = tempfile::tempdir().unwrap();
        let log = directory.path().join("log");
        let Lived { dials, .. } = lived_with(&vec![vec![bad()]], None, |config| {
            from_disk(config);
            config.log.path = LogPath::File(log.clone());
        });
        assert!(dials[0] <= DIALS_MAX, "{fault:?}: {dials:?}");
        let log = std::fs::read_to_string(log).unwrap();
        let deferred: Vec<&str> =
            log.lines().filter(|line| line.contains("@d.test>") && line.contains("stat=Deferred")).collect();
        assert!(deferred.len() >= COUNT && deferred.iter().any(|line| line.ends_with(said)), "{deferred:#?}");
        // Mail that arrived while it was down has the same reason.
        let (_, why) = said.split_once("stat=").unwrap();
        assert!(deferred.iter().all(|line| line.ends_with(why)), "{deferred:#?}");
    }
}

/// Reads each message from disk when a connection is ready for it, which takes a moment.
fn from_disk(config: &mut Config) {
    config.spool.cache_bytes = 1;
}

/// A message that is given up after its first attempt has no retry time, so its host is not passed over until then.
#[test]
fn a_host_that_turns_away_what_is_not_tried_again_is_left_in_peace() {
    let bad = || always(Mood::Faulty(Point::Mail, Fault::Dismiss, 1));
    let give_up = |config: &mut Config| config.delivery.give_up_after = Duration::ZERO;
    let Lived { dials, .. } = lived_with(&vec![vec![bad()]], None, give_up);
    println!("alone: dials {dials:?}");
    // The probes for its pace are the only extra connections.
    assert!(dials[0] <= COUNT * 2 / 3, "{dials:?}");
    let Lived { delays, dials, .. } = lived_with(&vec![vec![bad()], vec![GOOD]], None, give_up);
    println!("of two: dials {dials:?}");
    let lost = delays.iter().filter(|delay| **delay == HOUR).count();
    assert!(lost <= 3 && dials[0] <= 6, "{lost} were given up, dials {dials:?}");
}

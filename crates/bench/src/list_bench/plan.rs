//! Which samples are taken, in which order.
//!
//! A part is a few cases. Within a round every server does every case; which server and which case begins moves on from
//! round to round, so that none always comes behind the same other. Cases of a part that are compared have the same
//! live recipients: bad and slow hosts are there in addition. A server that could not run is left out of the rest of
//! its case, with the reason.

use super::flow::{ListCase, ListSample, sample};
use super::report::{ListReport, ListTable, Tables, Told};
use super::world::{SLOW, World, bad, large};
use super::{ListBenchArguments, ListPart, bodies, limits, restart, stragglers};
use crate::machine::{self, Machine, say};
use crate::side_by_side::figures::Row;
use crate::side_by_side::servers::{RunDirectory, ServerKind, Site, beside, peer};
use std::fs;
use std::io::Write as _;
use std::time::Duration;

/// Live hosts of the cases that are compared, and recipients on each of all hosts.
const LIVE_HOSTS: u32 = 1_000;
const RECIPIENTS: u32 = 2;

/// Live hosts of the part "beyond", and bad ones: a fifth of all, and more than the fast lane of mailrace has places
/// (900).
const BEYOND: [u32; 2] = [4_000, 1_000];
/// The ways of these hosts.
const BEYOND_WAYS: [(&str, &str); 6] = [
    ("drop", "drop packets"),
    ("hung", "never greet"),
    ("hung-hello", "never answer EHLO"),
    ("hung-mail", "answer nothing behind EHLO"),
    ("hung-data", "never answer the content"),
    (SLOW, "take 5 s for each flight"),
];

/// How many hosts beside the live ones are this percentage of all.
fn beside_live(percent: u32) -> u32 {
    let live = 100_u32.saturating_sub(percent).max(1);
    (LIVE_HOSTS * percent + live / 2) / live
}

/// Takes all samples, prints each table when it is complete, writes the report.
///
/// # Errors
/// Why nothing could be measured, where the report could not be written, or what must be and is not.
pub(super) fn run(arguments: &ListBenchArguments) -> Result<(), String> {
    let work = RunDirectory::new(&arguments.dir)?;
    let beside = beside()?;
    let mailrace = arguments.mailrace.clone().unwrap_or_else(|| beside.join("mailrace"));
    let site = Site::new(mailrace, arguments.peers.clone(), &work, arguments.memory.clone())?;
    let site = site.with_before(arguments.before.clone())?;
    let servers = servers(&site, &arguments.servers)?;
    let mut report =
        ListReport { machine: Machine::look(), file_system: machine::file_system(&arguments.dir), parts: Vec::new() };
    print(&report.head())?;
    let mut broken = Vec::new();
    for part in &arguments.parts {
        say(&format!("list: {}", part.title()));
        let told = tell(&site, &servers, *part, arguments).unwrap_or_else(|why| Told::nothing(*part, &why));
        print(&told.text)?;
        report.parts.push(told.value);
        broken.extend(told.broken.iter().map(|what| format!("{}: {what}", part.title())));
    }
    let to = arguments.json.clone().unwrap_or_else(|| beside.join("list.json"));
    fs::write(&to, format!("{:#}\n", report.json())).map_err(|e| format!("{}: {e}", to.display()))?;
    say(&format!("list: all samples are in {}", to.display()));
    if broken.is_empty() { Ok(()) } else { Err(format!("what must be is not:\n{}", broken.join("\n"))) }
}

/// Measures a part and returns its report.
fn tell(site: &Site, servers: &[ServerKind], part: ListPart, arguments: &ListBenchArguments) -> Result<Told, String> {
    match part {
        ListPart::Stragglers => Ok(stragglers::measure(site, arguments)?.report(part)),
        ListPart::Limits => Ok(limits::measure(site, arguments)?.report(part)),
        ListPart::Restart => Ok(restart::measure(site, arguments)?.report(part)),
        _ => {
            let mut told = tables(site, servers, part, arguments).report(part);
            if part == ListPart::Large && servers.contains(&ServerKind::Serve) {
                // The table is there even if this cannot be said.
                match bodies::measure(site, arguments) {
                    Ok(bodies) => told.add("bodies", &bodies.lines(), "Bodies of a large list", bodies.json()),
                    Err(why) => told.broken.push(format!("no figures of the bodies: {why}")),
                }
            }
            Ok(told)
        }
    }
}

fn print(text: &str) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|e| format!("standard output: {e}"))
}

/// The servers by their names.
fn servers(site: &Site, names: &[String]) -> Result<Vec<ServerKind>, String> {
    let peers = peer(site, &["names"])?;
    let known: Vec<&str> = peers.split_whitespace().collect();
    let server = |name: &String| match name.as_str() {
        "mailrace" => Ok(ServerKind::Serve),
        "before" => Ok(ServerKind::Before),
        "mailrace-memory" => Ok(ServerKind::ServeMemory),
        name if known.contains(&name) => Ok(ServerKind::Peer(name.to_owned())),
        name => match name.strip_suffix("-default").filter(|name| known.contains(name)) {
            Some(name) => Ok(ServerKind::Untuned(name.to_owned())),
            None => Err(format!(
                "--servers: there is no {name:?}; the names are: mailrace, before, mailrace-memory, {}, each of these also with \
                 \"-default\" behind it",
                known.join(", ")
            )),
        },
    };
    names.iter().map(server).collect()
}

/// The cases of a part that has some.
pub(super) fn cases(part: ListPart, arguments: &ListBenchArguments) -> Vec<ListCase> {
    let case = |name: String, messages, world, longest: u64| ListCase {
        name,
        world,
        messages,
        bytes: arguments.bytes,
        longest: Duration::from_secs(longest.min(arguments.longest)),
    };
    let world = |hosts, bad, slow_s| World {
        hosts,
        domains_per_host: 1,
        recipients: RECIPIENTS,
        bad,
        delay_ms: arguments.delay,
        slow_s,
    };
    let share = |messages: u64, percent: u32, longest| {
        let more = beside_live(percent);
        let name = format!("{messages} × 2,000 live recipients, {percent} % of the hosts bad ({more} more)");
        case(name, messages, world(LIVE_HOSTS + more, bad(more), 0), longest)
    };
    let slow = |(percent, slow_s): (u32, u32)| {
        let more = beside_live(percent);
        let name = match more {
            0 => "2,000 live recipients, no slow hosts".to_owned(),
            _ => format!("2,000 live recipients, {percent} % of the hosts slow ({more} more), {slow_s} s a flight"),
        };
        case(name, 1, world(LIVE_HOSTS + more, vec![(SLOW, more)], slow_s), 60)
    };
    match part {
        ListPart::Single => {
            let name = "1 × 2,000 recipients, 4 % of the hosts bad".to_owned();
            vec![case(name, 1, world(LIVE_HOSTS, bad(LIVE_HOSTS / 25), 0), 100)]
        }
        ListPart::Share => [0, 10, 30].map(|percent| share(1, percent, 100)).into(),
        ListPart::Slow => [(0, 0), (10, 5), (30, 5), (10, 19), (30, 19)].map(slow).into(),
        ListPart::Ten => {
            let bad = bad(LIVE_HOSTS / 10);
            let name = "10 × the same 2,000 recipients, 10 % of their hosts bad (100)".to_owned();
            let same = case(name, 10, world(LIVE_HOSTS, bad, 0), 200);
            [0, 10, 30].map(|percent| share(10, percent, 200)).into_iter().chain([same]).collect()
        }
        ListPart::Twohundred => [0, 10].map(|percent| share(200, percent, 600)).into(),
        ListPart::Beyond => {
            let [live, more] = BEYOND;
            let one = |bad: Vec<(&'static str, u32)>, what: &str| {
                let hosts = live + bad.iter().map(|(_, hosts)| hosts).sum::<u32>();
                case(format!("8,000 live recipients, {what}"), 1, world(hosts, bad, 5), 120)
            };
            let ways =
                BEYOND_WAYS.iter().map(|(way, what)| one(vec![(*way, more)], &format!("{more} hosts more {what}")));
            std::iter::once(one(Vec::new(), "no bad hosts")).chain(ways).collect()
        }
        ListPart::Large => {
            let hosts = arguments.large_hosts;
            let name = format!("one message to {} recipients on {hosts} hosts, 2 % of them bad", 10 * hosts);
            vec![case(name, 1, large(arguments), 300)]
        }
        ListPart::Restart | ListPart::Stragglers | ListPart::Limits => Vec::new(),
    }
}

/// Whether a server takes part: those that need minutes for ten lists say nothing in the larger parts.
fn takes_part(kind: &ServerKind, part: ListPart) -> bool {
    match (kind, part) {
        (kind, part) if kind.is_mailrace() || part == ListPart::Single => true,
        (ServerKind::Peer(_) | ServerKind::Untuned(_), ListPart::Share | ListPart::Ten) => true,
        (ServerKind::Peer(name), ListPart::Large | ListPart::Slow | ListPart::Beyond) => name == "postfix",
        _ => false,
    }
}

fn tables(site: &Site, servers: &[ServerKind], part: ListPart, arguments: &ListBenchArguments) -> Tables {
    let does = |kind: &&ServerKind| arguments.all_servers || takes_part(kind, part);
    let servers: Vec<ServerKind> = servers.iter().filter(does).cloned().collect();
    let rows = || servers.iter().map(|kind| Row::new(kind.name())).collect();
    let mut all: Vec<ListTable> =
        cases(part, arguments).into_iter().map(|case| ListTable { case, rows: rows() }).collect();
    for round in 0..arguments.rounds() {
        for (server, case) in order(servers.len(), all.len(), round) {
            let (Some(kind), Some(ListTable { case, rows })) = (servers.get(server), all.get_mut(case)) else {
                continue;
            };
            if let Some(row) = rows.get_mut(server) {
                one(site, kind, case, row, round);
            }
        }
    }
    Tables { servers, all }
}

/// In which order a round takes servers with their cases, by number.
fn order(servers: usize, cases: usize, round: usize) -> Vec<(usize, usize)> {
    let turned = |count: usize| (0..count).map(move |turn| (turn + round) % count);
    turned(servers).flat_map(|server| turned(cases).map(move |case| (server, case))).collect()
}

fn one(site: &Site, server: &ServerKind, case: &ListCase, row: &mut Row<ListSample>, round: usize) {
    if row.is_out() {
        row.samples.push(None);
        return;
    }
    let taken = sample(site, server, case);
    let figure = match &taken {
        Ok(sample) => {
            let time = |at: Option<f64>| at.map_or_else(|| "-".to_owned(), |at| format!("{at:.2} s"));
            let (all, half) = (time(sample.at_100), time(sample.at_50));
            format!("50 % {half}, 95 % {}, all {all}, {} arrived", time(sample.at_95), sample.arrived)
        }
        Err(why) => why.clone(),
    };
    say(&format!("list: {}: round {}: {}: {figure}", case.name, round + 1, row.name));
    row.add(taken);
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Parser)]
    struct Words {
        #[command(flatten)]
        list: ListBenchArguments,
    }

    fn arguments(words: &[&str]) -> ListBenchArguments {
        Words::parse_from([&["list"], words].concat()).list
    }

    #[test]
    fn every_sample_ends_by_itself() {
        for part in ListPart::ALL {
            for case in cases(part, &arguments(&["--longest", "150"])) {
                assert!(case.longest <= Duration::from_secs(150), "{}", case.name);
                assert!(case.world.bad.iter().map(|(_, hosts)| hosts).sum::<u32>() <= case.world.hosts / 2);
            }
        }
        let names = |part| cases(part, &arguments(&[])).into_iter().map(|case| case.name).collect::<Vec<_>>();
        assert_eq!(names(ListPart::Single), ["1 × 2,000 recipients, 4 % of the hosts bad"]);
        assert_eq!(names(ListPart::Ten).len(), 4);
        assert_eq!(cases(ListPart::Ten, &arguments(&[]))[3].world.live(), 1_800);
    }

    #[test]
    fn what_is_compared_has_the_same_live_recipients() {
        let parts = [ListPart::Share, ListPart::Slow, ListPart::Ten, ListPart::Twohundred].map(|part| (part, 2_000));
        for (part, live) in parts.into_iter().chain([(ListPart::Beyond, 8_000)]) {
            for ListCase { name, world, .. } in
                cases(part, &arguments(&[])).into_iter().filter(|case| !case.name.contains("same"))
            {
                assert_eq!(world.live(), live, "{name}");
            }
        }
        let shares: Vec<f64> = cases(ListPart::Share, &arguments(&[]))
            .iter()
            .map(|case| f64::from(case.world.hosts - LIVE_HOSTS) / f64::from(case.world.hosts))
            .collect();
        let is_near = |share: f64, wanted: f64| (share - wanted).abs() < 0.000_5;
        assert!(is_near(shares[0], 0.0) && is_near(shares[1], 0.1) && is_near(shares[2], 0.3), "{shares:?}");
        assert_eq!(large(&arguments(&["--large-hosts", "1000"])).live(), 9_800);
    }

    #[test]
    fn every_case_of_a_part_has_every_place_once() {
        assert_eq!(order(2, 3, 0), [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (1, 2)]);
        assert_eq!(order(2, 3, 1), [(1, 1), (1, 2), (1, 0), (0, 1), (0, 2), (0, 0)]);
        for place in 0..3 {
            let cases: std::collections::HashSet<usize> = (0..3).map(|round| order(1, 3, round)[place].1).collect();
            assert_eq!(cases.len(), 3, "{place}");
        }
    }

    #[test]
    fn peers_do_one_list_and_ten_and_only_postfix_large_and_slow_ones() {
        let peers = [ServerKind::Peer("exim".to_owned()), ServerKind::Untuned("postfix".to_owned()), ServerKind::Serve];
        let doing = |part| peers.iter().map(|kind| takes_part(kind, part)).collect::<Vec<_>>();
        let postfix = ServerKind::Peer("postfix".to_owned());
        assert!([ListPart::Large, ListPart::Slow, ListPart::Beyond].iter().all(|part| takes_part(&postfix, *part)));
        assert!(!takes_part(&postfix, ListPart::Twohundred));
        assert_eq!(doing(ListPart::Single), [true, true, true]);
        assert_eq!(doing(ListPart::Ten), [true, true, true]);
        assert_eq!(doing(ListPart::Share), [true, true, true]);
        assert_eq!(doing(ListPart::Large), [false, false, true]);
        assert_eq!(doing(ListPart::Slow), [false, false, true]);
        assert_eq!(doing(ListPart::Twohundred), [false, false, true]);
        assert_eq!(doing(ListPart::Beyond), [false, false, true]);
    }
}

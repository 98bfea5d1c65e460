//! Which samples are taken, in which order.
//!
//! A part is a few cases. Within a round every server does every case, and who begins moves on from round to round. A
//! server that could not run is left out of the rest of its case, with the reason.

use super::flow::{Case, Sample, sample};
use super::report::{Report, Table};
use super::world::World;
use super::{Arguments, Part, limits, stragglers};
use crate::side_by_side::figures::Row;
use crate::side_by_side::servers::{Kind, Site, Work, beside, peer};
use crate::spool_bench::machine::{self, Machine};
use crate::spool_bench::say;
use std::fs;
use std::io::Write as _;
use std::time::Duration;

/// Percent of the hosts that drop packets, and as many that hang, for each share of bad ones.
fn bad(percent: f64) -> Vec<(&'static str, f64)> {
    vec![("drop", percent / 2.0), ("hung", percent / 2.0)]
}

/// Takes all samples, prints each table when it is complete, writes the report.
///
/// # Errors
/// Why nothing could be measured, or where the report could not be written.
pub(super) fn run(arguments: &Arguments) -> Result<(), String> {
    let work = Work::new(&arguments.dir)?;
    let beside = beside()?;
    let mailrace = arguments.mailrace.clone().unwrap_or_else(|| beside.join("mailrace"));
    let site = Site::new(mailrace, arguments.peers.clone(), &work, arguments.memory.clone())?;
    let servers = servers(&site, &arguments.servers)?;
    let mut report =
        Report { machine: Machine::look(), file_system: machine::file_system(&arguments.dir), parts: Vec::new() };
    print(&report.head())?;
    for part in &arguments.parts {
        say(&format!("list: {}", part.title()));
        let values = match part {
            Part::Stragglers => stragglers::measure(&site, arguments).map(|figures| figures.report(*part)),
            Part::Limits => limits::measure(&site, arguments).map(|figures| figures.report(*part)),
            _ => Ok(tables(&site, &servers, *part, arguments).report(*part)),
        };
        let (text, value) = values.unwrap_or_else(|why| super::report::no_figure(*part, &why));
        print(&text)?;
        report.parts.push(value);
    }
    let to = arguments.json.clone().unwrap_or_else(|| beside.join("list.json"));
    fs::write(&to, format!("{:#}\n", report.json())).map_err(|e| format!("{}: {e}", to.display()))?;
    say(&format!("list: all samples are in {}", to.display()));
    Ok(())
}

fn print(text: &str) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|e| format!("standard output: {e}"))
}

/// The servers by their names.
fn servers(site: &Site, names: &[String]) -> Result<Vec<Kind>, String> {
    let peers = peer(site, &["names"])?;
    let known: Vec<&str> = peers.split_whitespace().collect();
    let server = |name: &String| match name.as_str() {
        "mailrace" => Ok(Kind::Serve),
        "mailrace-memory" => Ok(Kind::ServeMemory),
        name if known.contains(&name) => Ok(Kind::Peer(name.to_owned())),
        name => match name.strip_suffix("-default").filter(|name| known.contains(name)) {
            Some(name) => Ok(Kind::Untuned(name.to_owned())),
            None => Err(format!(
                "--servers: there is no {name:?}; the names are: mailrace, mailrace-memory, {}, each of these also with \
                 \"-default\" behind it",
                known.join(", ")
            )),
        },
    };
    names.iter().map(server).collect()
}

/// The cases of a part that has some.
pub(super) fn cases(part: Part, arguments: &Arguments) -> Vec<Case> {
    let case = |messages: u64, percent: f64, longest: u64| Case {
        name: format!("{messages} × 2,000 recipients, {percent} % of the hosts bad"),
        world: World {
            hosts: 1_000,
            domains_per_host: 1,
            recipients: 2,
            shares: bad(percent),
            delay_ms: arguments.delay,
        },
        messages,
        bytes: arguments.bytes,
        longest: Duration::from_secs(longest.min(arguments.longest)),
    };
    match part {
        Part::Single => vec![case(1, 4.0, 100)],
        Part::Share => [0.0, 10.0, 30.0].map(|percent| case(1, percent, 100)).into(),
        Part::Ten => [0.0, 10.0, 30.0].map(|percent| case(10, percent, 200)).into(),
        Part::Twohundred => [0.0, 10.0].map(|percent| case(200, percent, 600)).into(),
        Part::Large => vec![Case {
            name: "one message to 100,000 recipients on 10,000 hosts, 2 % of them bad".to_owned(),
            world: World { hosts: 10_000, recipients: 10, ..case(1, 2.0, 0).world },
            ..case(1, 2.0, 300)
        }],
        Part::Stragglers | Part::Limits => Vec::new(),
    }
}

/// Whether a server takes part: those that need minutes for one list say nothing in the larger parts.
fn takes_part(kind: &Kind, part: Part) -> bool {
    match (kind, part) {
        (Kind::Serve | Kind::ServeMemory, _) | (_, Part::Single) => true,
        (Kind::Peer(name), Part::Share | Part::Ten | Part::Large) => name == "postfix",
        (Kind::Untuned(name), Part::Share | Part::Ten) => name == "postfix",
        _ => false,
    }
}

/// Tables of a part, a case each.
pub(super) struct Tables(pub(super) Vec<Table>);

fn tables(site: &Site, servers: &[Kind], part: Part, arguments: &Arguments) -> Tables {
    let servers: Vec<&Kind> = servers.iter().filter(|kind| takes_part(kind, part)).collect();
    let rows = || servers.iter().map(|kind| Row::new(kind.name())).collect();
    let mut tables: Vec<Table> = cases(part, arguments).into_iter().map(|case| Table { case, rows: rows() }).collect();
    for round in 0..arguments.rounds() {
        for turn in 0..servers.len() {
            let at = (turn + round) % servers.len();
            let Some(server) = servers.get(at) else { continue };
            for Table { case, rows } in &mut tables {
                if let Some(row) = rows.get_mut(at) {
                    one(site, server, case, row, round);
                }
            }
        }
    }
    Tables(tables)
}

fn one(site: &Site, server: &Kind, case: &Case, row: &mut Row<Sample>, round: usize) {
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
        list: Arguments,
    }

    fn arguments(words: &[&str]) -> Arguments {
        Words::parse_from([&["list"], words].concat()).list
    }

    #[test]
    fn every_sample_ends_by_itself() {
        for part in Part::ALL {
            for case in cases(part, &arguments(&["--longest", "150"])) {
                assert!(case.longest <= Duration::from_secs(150), "{}", case.name);
                assert_eq!(case.world.shares.iter().filter(|(_, share)| *share > 50.0).count(), 0);
            }
        }
        let names = |part| cases(part, &arguments(&[])).into_iter().map(|case| case.name).collect::<Vec<_>>();
        assert_eq!(names(Part::Single), ["1 × 2,000 recipients, 4 % of the hosts bad"]);
        assert_eq!(names(Part::Ten).len(), 3);
    }

    #[test]
    fn slow_servers_do_one_list_only() {
        let peers = [Kind::Peer("exim".to_owned()), Kind::Untuned("postfix".to_owned()), Kind::Serve];
        let doing = |part| peers.iter().map(|kind| takes_part(kind, part)).collect::<Vec<_>>();
        assert_eq!(doing(Part::Single), [true, true, true]);
        assert_eq!(doing(Part::Ten), [false, true, true]);
        assert_eq!(doing(Part::Twohundred), [false, false, true]);
    }
}

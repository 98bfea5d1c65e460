//! Which samples are taken, in which order.
//!
//! Within a round the servers take turns, and the first one changes from round to round, so that heat or a slow phase
//! hits each of them in turn. A server that cannot run, or stops in the middle, is left out of the rest of the load
//! with its reason.

use super::flow::{Amount, Load, sample};
use super::report::{RelayReport, RelayTable};
use super::{RelayBenchArguments, RelayLoad};
use crate::machine::{self, Machine, say};
use crate::side_by_side::figures::Row;
use crate::side_by_side::servers::{RunDirectory, ServerKind, Site, beside, peer};
use std::borrow::Cow;
use std::fs;
use std::io::Write as _;

/// Takes all samples, prints each table when it is complete, writes the report.
///
/// # Errors
/// Why nothing could be measured, or where the report could not be written.
pub(super) fn run(arguments: &RelayBenchArguments) -> Result<(), String> {
    let work = RunDirectory::new(&arguments.dir)?;
    let beside = beside()?;
    let mailrace = arguments.mailrace.clone().unwrap_or_else(|| beside.join("mailrace"));
    let site = Site::new(mailrace, arguments.peers.clone(), &work, arguments.memory.clone())?;
    let site = site.with_before(arguments.before.clone())?;
    let servers = servers(&site, &arguments.servers)?;
    let (rounds, amount) = if arguments.quick {
        (1, Amount { messages: 600, settle: 0.0, seconds: 2.0, postal_seconds: 2.0 })
    } else {
        let RelayBenchArguments { messages, settle, seconds, postal_seconds, .. } = *arguments;
        (arguments.rounds.max(1), Amount { messages: messages.max(1), settle, seconds, postal_seconds })
    };
    let mut report =
        RelayReport { machine: Machine::look(), file_system: machine::file_system(&arguments.dir), tables: Vec::new() };
    print(&report.head())?;
    for load in loads(arguments) {
        let table = table(&site, &servers, load, rounds, amount);
        print(&table.markdown())?;
        report.tables.push(table);
    }
    let to = arguments.json.clone().unwrap_or_else(|| beside.join("relay.json"));
    fs::write(&to, format!("{:#}\n", report.json())).map_err(|e| format!("{}: {e}", to.display()))?;
    say(&format!("relay: all samples are in {}", to.display()));
    Ok(())
}

fn print(text: &str) -> Result<(), String> {
    let mut out = std::io::stdout().lock();
    out.write_all(text.as_bytes()).and_then(|()| out.flush()).map_err(|e| format!("standard output: {e}"))
}

/// The servers by their names; `None` stands for the receiver alone.
fn servers(site: &Site, names: &[String]) -> Result<Vec<Option<ServerKind>>, String> {
    let peers = peer(site, &["names"])?;
    let known: Vec<&str> = peers.split_whitespace().collect();
    let server = |name: &String| match name.as_str() {
        "mailrace" => Ok(Some(ServerKind::Serve)),
        "before" => Ok(Some(ServerKind::Before)),
        "history" => Ok(Some(ServerKind::Seen { page: false })),
        "page" => Ok(Some(ServerKind::Seen { page: true })),
        "direct" => Ok(None),
        name if known.contains(&name) => Ok(Some(ServerKind::Peer(name.to_owned()))),
        name => Err(format!(
            "--servers: there is no {name:?}; the names are: mailrace, before, history, page, direct, {}",
            known.join(", ")
        )),
    };
    names.iter().map(server).collect()
}

fn loads(arguments: &RelayBenchArguments) -> Vec<Load> {
    let mut loads = Vec::new();
    let quick = arguments.quick;
    // A smoke run needs one of each kind.
    let few = if quick { 1 } else { usize::MAX };
    for part in &arguments.parts {
        if *part == RelayLoad::Postal {
            loads.extend(arguments.processes.iter().take(few).map(|processes| Load::Postal { processes: *processes }));
            continue;
        }
        for &bytes in arguments.sizes.iter().take(few) {
            for &sessions in arguments.sessions.iter().take(few) {
                loads.push(match part {
                    RelayLoad::Storm => Load::Storm { sessions, bytes },
                    RelayLoad::New => Load::Source { sessions, bytes, new_connection: true },
                    RelayLoad::Source | RelayLoad::Postal => Load::Source { sessions, bytes, new_connection: false },
                });
            }
        }
    }
    loads
}

/// Measures all servers under one load.
fn table(site: &Site, servers: &[Option<ServerKind>], load: Load, rounds: usize, amount: Amount) -> RelayTable {
    let name = |server: &Option<ServerKind>| {
        server.as_ref().map_or(Cow::Borrowed("the receiver alone"), ServerKind::name).into_owned()
    };
    let mut rows: Vec<Row<_>> = servers.iter().map(|server| Row::new(name(server))).collect();
    for round in 0..rounds {
        for turn in 0..servers.len() {
            let at = (turn + round) % servers.len();
            let (Some(server), Some(row)) = (servers.get(at), rows.get_mut(at)) else { continue };
            if row.is_out() {
                row.samples.push(None);
                continue;
            }
            let taken = sample(site, server.as_ref(), load, amount);
            let figure = match &taken {
                Ok(sample) => format!("{:.0} messages/s of {:.0}", sample.arrived_per_second(), sample.messages),
                Err(why) => why.clone(),
            };
            say(&format!("relay: {}: round {}: {}: {figure}", load.name(), round + 1, row.name));
            row.add(taken);
        }
    }
    RelayTable { load: load.name(), rows }
}

//! `mailrace cluster verify`: asks each engine of `[cluster]` and the running nodes, and prints a line for each check.

use super::cluster_source::load_node;
use crate::config_commands::Source;
use crate::exit::{Exit, Failure};
use crate::output::Output;
use clap::Args;
use os::error::without_numbers;
use serde_json::{Value, json};
use server::cluster::{EngineFinding, EngineFindingState, check_engines};

/// The text of `--help` behind the options.
pub(super) const HELP: &str = "\
Asks each nats-server of cluster.engines for login, version, JetStream and cluster, that of this node also for
sync_interval, tags and leader, and compares id, clock and version of the nodes that run. Run it at each node.

Exit status:
   0  nothing is wrong; what only another node can tell is \"unknown\"
  64  wrong arguments
  69  an engine does not answer, or JetStream has no leader
  74  reading failed
  77  an engine refuses the login, or no permission
  78  an engine or a node has a wrong configuration, or there is no [cluster]";

#[derive(Debug, Args)]
pub(crate) struct VerifyClusterArguments {
    #[command(flatten)]
    source: Source,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs `mailrace cluster verify`.
pub(super) fn run(arguments: &VerifyClusterArguments) -> Result<Exit, Failure> {
    let loaded = load_node(&arguments.source, "\"mailrace cluster init\" or \"join\" makes a node")?;
    let cluster = &loaded.config.cluster;
    let mut findings = check_engines(cluster).map_err(|why| Failure::new(Exit::Unavailable, why))?;
    for finding in &mut findings {
        finding.text = without_numbers(&finding.text);
    }
    let exit = exit_of(&findings);
    let mut output = Output::new();
    if arguments.json {
        output.print_json(&report(&cluster.id, cluster.node, &findings, exit == Exit::Ok));
    } else {
        for EngineFinding { check, object, state, text } in &findings {
            output.print_line(format!("{:<8} {check:<9} {object} {text}", state.word()));
        }
    }
    output.finish()?;
    Ok(exit)
}

/// A wrong configuration comes before a refused login, and both before an engine that is away: it stays wrong when the
/// engine is back.
fn exit_of(findings: &[EngineFinding]) -> Exit {
    let has = |state| findings.iter().any(|finding| finding.state == state);
    if has(EngineFindingState::Wrong) {
        Exit::Config
    } else if has(EngineFindingState::Refused) {
        Exit::NoPermission
    } else if has(EngineFindingState::Away) {
        Exit::Unavailable
    } else {
        Exit::Ok
    }
}

fn report(id: &str, node: u16, findings: &[EngineFinding], is_fine: bool) -> Value {
    let findings: Vec<Value> = findings
        .iter()
        .map(|EngineFinding { check, object, state, text }| {
            json!({ "check": check, "object": object, "state": state.word(), "text": text })
        })
        .collect();
    json!({ "cluster": id, "node": node, "ok": is_fine, "findings": findings })
}

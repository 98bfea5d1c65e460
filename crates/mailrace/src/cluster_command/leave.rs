//! `mailrace cluster leave`: takes the running node of this machine out of its cluster, or a dead node.
//!
//! The running server leaves by itself, and the command shows its progress. A dead node is removed by a connection of
//! the command to the engines, and its engine by a user of their system account. Both end with the steps that are left
//! for the operator.

use super::cluster_source::load_node;
use super::leave_texts::{progress, steps_behind_departure, steps_behind_removal, verdict, waiting_line};
use crate::config_commands::Source;
use crate::control_client::{Control, ControlTarget};
use crate::exit::{Exit, Failure};
use crate::output::{Output, Progress, count, thousands};
use clap::Args;
use operator::answers::{self, ClusterLeave};
use operator::control::Request;
use os::error::without_numbers;
use serde_json::{Value, json};
use server::cluster::{
    EngineAccessError, EngineRemoval, NodeId, NodeRemovalResult, NodeRemover, ROW_WATCH, RemovalEnd, WaitingMail,
    remove_engine,
};

/// The end of `--help`.
pub(super) const HELP: &str = "\
Without --node the server of this machine leaves: it is drained (mailrace cluster drain --help),
its part of shared limits goes back, and the other nodes forget it. They take the copies on its
engine elsewhere at once. The command waits until it has left, and says what is to be done with
its nats-server, and when.

With --node a dead node is removed that does not return. IT MUST BE STOPPED, AND STAY SO: a node
that still runs, cut off from the engines, goes on using its part of shared limits, which the
other nodes use too from then on. Its streams stay: a node that comes back all the same joins
again, and drops the mail that others have taken over. With cluster.system_user its nats-server is
taken out of the majority too, when it has stopped and no mail stays behind; run the command again
then.

--force leaves mail where it is that no other node can take over: on the disk of the node, and in
its copies. It is delivered when that disk comes back. A node that runs is never removed by
--node.

Exit status:
   0  it has left
   1  it has left, and mail stays behind, or a step did not come to its end
  64  wrong arguments
  66  there is no such node
  69  the server does not answer, or no majority of the engines
  74  the server is no node of a cluster, or reading failed
  75  it cannot leave now; nothing was changed, and the text has the next step
  77  no permission
  78  there is no [cluster], or the configuration has errors";

#[derive(Debug, Args)]
pub(crate) struct LeaveArguments {
    /// Remove this dead node, which is stopped and stays so
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=63))]
    node: Option<u16>,
    /// Also if mail stays behind, or too few nodes are left
    #[arg(long)]
    force: bool,
    /// Print JSON at the end
    #[arg(long)]
    json: bool,
    #[command(flatten)]
    source: Source,
    #[command(flatten)]
    target: ControlTarget,
}

/// Runs `mailrace cluster leave`.
pub(super) fn run(arguments: &LeaveArguments) -> Result<Exit, Failure> {
    match arguments.node {
        Some(node) => remove(arguments, node),
        None => leave(arguments),
    }
}

/// Has the running server leave, and watches it.
fn leave(arguments: &LeaveArguments) -> Result<Exit, Failure> {
    let mut control = Control::connect(&arguments.target.path())?;
    let (mut output, shown) = (Output::new(), Progress::new());
    let mut step = String::new();
    let request = Request::ClusterLeave { is_forced: arguments.force };
    let last = control.ask_for_list(&request, |line| {
        let now: ClusterLeave = answers::from_line(line)?;
        let text = progress(&now);
        if arguments.json {
            return Ok(true);
        }
        if now.step != step {
            shown.clear();
            output.print_line(&text);
            output.flush();
            step = now.step;
        }
        shown.show(&text);
        // The node leaves also if there is no reader any more.
        Ok(true)
    });
    shown.clear();
    let Some(last) = last? else { return Ok(Exit::Lost) };
    let left: ClusterLeave = control.decode_line(&last)?;
    let is_done = left.problems.is_empty() && left.staying == 0;
    if arguments.json {
        output.print_json(&json!(left));
    } else {
        left_lines(&left).into_iter().for_each(|line| output.print_line(line));
    }
    output.finish()?;
    Ok(if is_done { Exit::Ok } else { Exit::Lost })
}

/// The end of a departure as lines.
fn left_lines(left: &ClusterLeave) -> Vec<String> {
    let mut lines = vec![format!(
        "node {} has left the cluster: {} with the other nodes, its part of {} given back",
        left.node,
        count(left.messages, "message"),
        count(left.limits, "shared limit")
    )];
    lines.extend(left.problems.iter().map(|problem| format!("  not done: {problem}")));
    if left.staying > 0 {
        let more = left.staying.saturating_sub(u64::try_from(left.staying_ids.len()).unwrap_or(u64::MAX));
        let more = if more > 0 { format!(" and {} more", thousands(more)) } else { String::new() };
        lines.push(format!(
            "{} in {}, with no other node: {}{more}",
            count(left.staying, "message"),
            left.spool,
            left.staying_ids.join(" ")
        ));
        lines.push(
            "  keep this disk: they are delivered when mailrace is started here again, which joins again".to_owned(),
        );
    }
    let holds: Vec<(u16, Option<u64>)> = left.copies.iter().map(|one| (one.owner, one.messages)).collect();
    lines.extend(steps_behind_departure(left.node, &left.engine, left.nodes.len(), &holds));
    lines
}

/// Removes a dead node.
fn remove(arguments: &LeaveArguments, node: u16) -> Result<Exit, Failure> {
    let loaded = load_node(&arguments.source, "run this at a node of the cluster, or name its file with --config")?;
    let cluster = &loaded.config.cluster;
    let remover = NodeRemover::connect(cluster).map_err(|error| {
        let is_login = matches!(error, EngineAccessError::Login { .. });
        let exit = if is_login { Exit::NoPermission } else { Exit::Unavailable };
        Failure::new(exit, without_numbers(&error.to_string()))
    })?;
    let mut output = Output::new();
    if !arguments.json {
        output.print_line(format!(
            "node {node} must be stopped, and stay so: one that runs cut off uses shared limits on"
        ));
        output.flush();
    }
    let result = remover.remove(NodeId(node), arguments.force, || {
        if !arguments.json {
            output.print_line(format!("watches its part of shared limits for {} s", ROW_WATCH.as_secs()));
            output.flush();
        }
    });
    let NodeRemovalResult { end, waiting } = result;
    let (mut exit, text) = verdict(&end, &waiting, node);
    let is_removed = matches!(end, RemovalEnd::Removed { .. });
    let engine = is_removed.then(|| remove_engine(cluster, NodeId(node), !waiting.is_empty()));
    if matches!(engine, Some(EngineRemoval::NotDone(_))) {
        exit = Exit::Lost;
    }
    if arguments.json {
        output.print_json(&report(node, (&end, engine.as_ref()), &waiting, exit, &text));
        output.finish()?;
        return Ok(exit);
    }
    let lines = waiting.iter().map(|one| format!("  {}", waiting_line(one, node)));
    if let Some(engine) = engine {
        output.print_line(&text);
        lines.for_each(|line| output.print_line(line));
        steps_behind_removal(node, &engine).into_iter().for_each(|line| output.print_line(line));
        output.finish()?;
        return Ok(exit);
    }
    output.finish()?;
    let text: String = std::iter::once(text).chain(lines).collect::<Vec<_>>().join("\n");
    Err(Failure::new(exit, text))
}

fn report(
    node: u16,
    (end, engine): (&RemovalEnd, Option<&EngineRemoval>),
    waiting: &[WaitingMail],
    exit: Exit,
    text: &str,
) -> Value {
    let waiting: Vec<Value> = waiting
        .iter()
        .map(|one| {
            let (owner, holder) = (one.stream.owner.0, one.stream.holder.0);
            json!({ "owner": owner, "holder": holder, "messages": one.messages, "why": waiting_line(one, node) })
        })
        .collect();
    let (limits, had_left) = match end {
        RemovalEnd::Removed { rows, had_left } => (Some(rows), Some(had_left)),
        _ => (None, None),
    };
    let (engine, engine_problem) = match engine {
        None => (None, None),
        Some(EngineRemoval::NoAccount) => (Some("no account"), None),
        Some(EngineRemoval::Kept) => (Some("kept"), None),
        Some(EngineRemoval::Single) => (Some("single"), None),
        Some(EngineRemoval::NotAmongThem { .. }) => (Some("absent"), None),
        Some(EngineRemoval::Runs { .. }) => (Some("runs"), None),
        Some(EngineRemoval::Removed { .. }) => (Some("removed"), None),
        Some(EngineRemoval::NotDone(why)) => (Some("not done"), Some(without_numbers(why))),
    };
    json!({
        "node": node, "ok": exit == Exit::Ok, "removed": limits.is_some(), "limits": limits, "had_left": had_left,
        "text": text, "waiting": waiting, "engine": engine, "engine_problem": engine_problem,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use operator::answers::ClusterCopies;

    fn left() -> ClusterLeave {
        ClusterLeave {
            node: 3,
            step: "left".to_owned(),
            messages: 1_204,
            limits: 2,
            spool: "/var/lib/mailrace".to_owned(),
            engine: "10.0.0.3:4222".to_owned(),
            nodes: vec![1, 2, 4],
            ..ClusterLeave::default()
        }
    }

    #[test]
    fn a_departure_ends_with_the_steps_that_are_left() {
        let lines = left_lines(&left());
        let first =
            "node 3 has left the cluster: 1,204 messages with the other nodes, its part of 2 shared limits given back";
        assert_eq!(lines[0], first);
        assert!(lines.iter().any(|line| line.contains("no other node has copies in it")), "{lines:#?}");
        assert!(
            lines.iter().any(|line| line.contains("10.0.0.3:4222") && line.contains("cluster.engines")),
            "{lines:#?}"
        );
    }

    #[test]
    fn mail_and_copies_that_stay_are_named() {
        let copies = vec![ClusterCopies { owner: 1, messages: Some(14) }, ClusterCopies { owner: 2, messages: None }];
        let staying_ids = vec!["6ASAxDiM378497".to_owned()];
        let problems = vec!["its part of shared limits is not back".to_owned()];
        let lines = left_lines(&ClusterLeave { staying: 3, staying_ids, copies, problems, ..left() });
        let has = |text: &str| assert!(lines.iter().any(|line| line.contains(text)), "{text}: {lines:#?}");
        has("not done: its part of shared limits is not back");
        has("3 messages in /var/lib/mailrace, with no other node: 6ASAxDiM378497 and 2 more");
        has("keep this disk");
        has("keep it running: 14 messages of node 1 and mail of node 2 have copies in it");
    }
}

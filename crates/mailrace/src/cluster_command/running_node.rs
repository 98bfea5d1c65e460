//! The running node of this machine: `mailrace cluster status` and `mailrace cluster drain`.

use super::leave_texts::progress;
use crate::control_client::{Control, ControlTarget};
use crate::exit::{Exit, Failure};
use crate::output::{Output, age, bytes, count, thousands};
use crate::terminal_text::plain;
use clap::Args;
use operator::answers::{ClusterAnswer, ClusterConfigAnswer, ClusterConfigRevision, ClusterHosts, StatusAnswer};
use operator::control::Request;
use serde_json::json;

/// The end of `status --help`.
pub(super) const STATUS_HELP: &str = "\
Exit status:
   0  this node takes part, and its mail has its copies
   1  it does not, or some mail has no copy, or mail of an absent node waits, or another shared configuration counts
  69  the server does not answer, or is no node of a cluster";

/// The end of `drain --help`.
pub(super) const DRAIN_HELP: &str = "\
/healthz/ready says 503 at once. After cluster.drain_grace the server answers new sessions with 421, ends what is under
way, has the other nodes take over its queue, and ends. They deliver it without a duplicate. mailrace cluster status, or the log, says how far it is.

Exit status:
   0  it has begun
  69  the server does not answer
  74  the server is no node of a cluster";

#[derive(Debug, Args)]
pub(crate) struct ClusterStatusArguments {
    #[command(flatten)]
    target: ControlTarget,
    /// Print the answer as JSON
    #[arg(long)]
    json: bool,
}

#[derive(Debug, Args)]
pub(crate) struct DrainArguments {
    #[command(flatten)]
    target: ControlTarget,
}

/// Shows the node.
pub(super) fn status(arguments: &ClusterStatusArguments) -> Result<Exit, Failure> {
    let status: StatusAnswer = Control::connect(&arguments.target.path())?.ask_for(&Request::Status)?;
    let Some(cluster) = status.cluster else {
        let text = "this server is no node of a cluster; mailrace cluster init makes the files of one";
        return Err(Failure::new(Exit::Unavailable, text));
    };
    let mut output = Output::new();
    if arguments.json {
        output.print_json(&json!(cluster));
    } else {
        lines(&cluster).into_iter().for_each(|line| output.print_line(line));
    }
    output.finish()?;
    let is_current = cluster.config.as_ref().is_none_or(|config| config.current);
    let is_well = cluster.state == "member" && cluster.unreplicated == 0 && cluster.hostages.is_empty() && is_current;
    Ok(if is_well { Exit::Ok } else { Exit::Lost })
}

/// Has the node give its mail to the others.
pub(super) fn drain(arguments: &DrainArguments) -> Result<Exit, Failure> {
    Control::connect(&arguments.target.path())?.request(&Request::ClusterDrain)?;
    let mut output = Output::new();
    output.print_line("draining: the other nodes take over the mail of this one, then the server ends");
    output.finish()?;
    Ok(Exit::Ok)
}

/// The answer as lines.
fn lines(cluster: &ClusterAnswer) -> Vec<String> {
    let mut lines = vec![format!("node {} of cluster {}: {}", cluster.node, cluster.cluster, cluster.state)];
    lines.extend(cluster.refusal.iter().map(|why| format!("  refused: {why}")));
    lines.extend(cluster.engine_problem.iter().map(|why| format!("  engine: {why}")));
    lines.push(format!(
        "mail: {}, {} without a copy, {} waiting for their owner to be known",
        count(cluster.messages, "message"),
        thousands(cluster.unreplicated),
        thousands(cluster.waiting_for_stream + cluster.adopted_waiting)
    ));
    if cluster.with_fewer_copies > 0 {
        lines.push(format!(
            "{} with one copy, until another holder takes a second one",
            count(cluster.with_fewer_copies, "message")
        ));
    }
    lines.push(format!(
        "since the start: {} adopted, {} given up to other nodes, copies of {} stored in {}",
        thousands(cluster.adopted),
        thousands(cluster.given_up),
        bytes(cluster.copied_bytes),
        bytes(cluster.stored_bytes)
    ));
    if cluster.block_version < cluster.block_version_newest {
        lines.push(format!(
            "writes copies in format {}; format {} follows when all nodes read it, at the earliest 30 s after the start",
            cluster.block_version, cluster.block_version_newest
        ));
    }
    for node in &cluster.nodes {
        let drains = match (node.leaving, node.draining) {
            (true, _) => ", leaving the cluster",
            (false, true) => ", draining",
            (false, false) => "",
        };
        lines.push(format!("sees node {} ({}){drains}", node.node, node.name));
    }
    if cluster.nodes.is_empty() {
        lines.push("sees no other node: mail gets no copy".to_owned());
    }
    lines.extend(cluster.leave.iter().map(|leave| format!("leaves: {}", progress(leave))));
    for one in &cluster.departed {
        let copies = match (one.messages, one.empty) {
            (0, true) => ", and no node had copies on its engine".to_owned(),
            (0, false) => ", and this node has no copies on its engine".to_owned(),
            (messages, _) => format!("; keep its engine: it has copies of {} of this node", count(messages, "message")),
        };
        lines.push(format!("node {} has left{copies}", one.node));
    }
    lines.extend(cluster.config.iter().flat_map(config_lines));
    for stream in &cluster.streams {
        let behind = stream.lag_ms.map_or_else(String::new, |lag| format!(", {lag} ms behind"));
        lines.push(format!(
            "copies at node {}: {}, {}{behind}",
            stream.holder,
            stream.state,
            count(stream.messages, "message")
        ));
    }
    for one in &cluster.adoptions {
        lines.push(format!(
            "adopts the mail of node {} by its copies at node {}: {}, {} taken",
            one.owner,
            one.holder,
            one.step,
            thousands(one.taken)
        ));
    }
    for one in &cluster.limits {
        lines.push(format!(
            "limit of all nodes: {} of {} {} to {} here, {} wanted",
            one.share,
            one.limit,
            if one.kind == "connections" { "connections" } else { "messages a second" },
            one.next_hop,
            one.wanted
        ));
    }
    lines.extend(cluster.hosts.iter().flat_map(host_lines));
    for one in &cluster.hostages {
        let messages = one.messages.map_or_else(|| "mail".to_owned(), |messages| count(messages, "message"));
        lines.push(format!("waits: {messages} of node {}: {}", one.owner, one.why));
    }
    lines
}

/// The next hops that other nodes report as lines.
fn host_lines(hosts: &ClusterHosts) -> Vec<String> {
    let mut lines = vec![format!(
        "hosts: {} by other nodes, mail waits for {} of them here; {} sent, {} received, {} dropped",
        count(hosts.reported_count, "report"),
        thousands(hosts.waiting),
        thousands(hosts.sent),
        thousands(hosts.received),
        thousands(hosts.dropped + hosts.unreadable)
    )];
    lines.extend(hosts.reported.iter().map(|one| {
        let name = plain(&one.next_hop);
        format!("  {name}: {}, says node {}; no attempt here for {}", one.state, one.node, age(one.wait))
    }));
    let others = hosts.reported_count.saturating_sub(hosts.reported.len().try_into().unwrap_or(u64::MAX));
    if others > 0 {
        lines.push(format!("  and {} more", thousands(others)));
    }
    lines
}

/// The shared configuration as lines.
fn config_lines(config: &ClusterConfigAnswer) -> Vec<String> {
    let named = |one: &ClusterConfigRevision| format!("revision {} ({:.12})", one.number, one.files);
    let named = |one: &Option<ClusterConfigRevision>| one.as_ref().map_or_else(|| "none".to_owned(), named);
    let mut lines = vec![match (&config.active, config.current) {
        (None, _) => format!("shared configuration: {} here; the engines have named none yet", named(&config.own)),
        (Some(_), true) => format!("shared configuration: {}", named(&config.active)),
        (Some(_), false) => {
            format!("shared configuration: {}, and {} counts", named(&config.own), named(&config.active))
        }
    }];
    lines.extend(config.problem.iter().map(|why| format!("  not taken: {why}")));
    for node in &config.nodes {
        let gone = if node.running { "" } else { ", does not run" };
        let state = if node.revision == config.active { "has it" } else { "does not have it" };
        let why = node.problem.as_ref().map_or_else(String::new, |why| format!(": {why}"));
        lines.push(format!("  node {}: {}, {state}{gone}{why}", node.node, named(&node.revision)));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use operator::answers::{
        ClusterConfigNode, ClusterDeparted, ClusterHost, ClusterHostage, ClusterLimit, ClusterNode, ClusterStream,
    };

    #[test]
    fn reported_hosts_in_lines() {
        let host = |next_hop: &str, state: &str, wait| ClusterHost {
            next_hop: next_hop.to_owned(),
            state: state.to_owned(),
            node: 2,
            wait,
        };
        let hosts = ClusterHosts {
            reported: vec![host("mx.a.test:25", "down", 90), host("mx.b.test:25", "tls-broken", 5)],
            reported_count: 3,
            waiting: 1,
            sent: 4,
            received: 1_200,
            dropped: 5,
            unreadable: 1,
        };
        assert_eq!(
            host_lines(&hosts),
            [
                "hosts: 3 reports by other nodes, mail waits for 1 of them here; 4 sent, 1,200 received, 6 dropped",
                "  mx.a.test:25: down, says node 2; no attempt here for 1m",
                "  mx.b.test:25: tls-broken, says node 2; no attempt here for 5s",
                "  and 1 more",
            ]
        );
    }

    #[test]
    fn the_shared_configuration_in_lines() {
        let revision = |number: u64| Some(ClusterConfigRevision { number, files: format!("{number:0>64}") });
        let node = |node, revision, problem: Option<&str>| ClusterConfigNode {
            node,
            running: node == 1,
            revision,
            problem: problem.map(ToOwned::to_owned),
        };
        let nodes = vec![node(1, revision(6), Some("mailrace.toml:2:1: no")), node(2, revision(7), None)];
        let problem = Some("mailrace.toml:2:1: no".to_owned());
        let config = ClusterConfigAnswer { active: revision(7), own: revision(6), current: false, problem, nodes };
        assert_eq!(
            config_lines(&config),
            [
                "shared configuration: revision 6 (000000000000), and revision 7 (000000000000) counts",
                "  not taken: mailrace.toml:2:1: no",
                "  node 1: revision 6 (000000000000), does not have it: mailrace.toml:2:1: no",
                "  node 2: revision 7 (000000000000), has it, does not run",
            ]
        );
        let current =
            ClusterConfigAnswer { active: revision(7), own: revision(7), current: true, ..Default::default() };
        assert_eq!(config_lines(&current), ["shared configuration: revision 7 (000000000000)"]);
        let unknown = ClusterConfigAnswer::default();
        assert_eq!(config_lines(&unknown), ["shared configuration: none here; the engines have named none yet"]);
    }

    #[test]
    fn an_answer_in_lines() {
        let node = ClusterNode { node: 2, name: "mx2.test".to_owned(), draining: true, leaving: false };
        let departed = |node, messages, empty| ClusterDeparted { node, messages, empty };
        let stream =
            ClusterStream { holder: 2, state: "open".to_owned(), messages: 3, lag_ms: Some(7), ..Default::default() };
        let hostage = ClusterHostage { owner: 3, holder: 4, messages: Some(9), why: "start node 3".to_owned() };
        let limit = ClusterLimit {
            kind: "messages_per_second".to_owned(),
            next_hop: "mx.x.test:25".to_owned(),
            limit: 2.0,
            share: 0.5,
            wanted: 1.0,
        };
        let cluster = ClusterAnswer {
            cluster: "ab".to_owned(),
            node: 1,
            state: "member".to_owned(),
            messages: 3,
            copied_bytes: 3 << 20,
            stored_bytes: 512 << 10,
            block_version: 1,
            block_version_newest: 2,
            nodes: vec![node],
            departed: vec![departed(5, 0, true), departed(6, 7, false)],
            streams: vec![stream],
            hostages: vec![hostage],
            limits: vec![limit],
            ..ClusterAnswer::default()
        };
        assert_eq!(
            lines(&cluster),
            [
                "node 1 of cluster ab: member",
                "mail: 3 messages, 0 without a copy, 0 waiting for their owner to be known",
                "since the start: 0 adopted, 0 given up to other nodes, copies of 3.0 MiB stored in 512.0 KiB",
                "writes copies in format 1; format 2 follows when all nodes read it, at the earliest 30 s after the start",
                "sees node 2 (mx2.test), draining",
                "node 5 has left, and no node had copies on its engine",
                "node 6 has left; keep its engine: it has copies of 7 messages of this node",
                "copies at node 2: open, 3 messages, 7 ms behind",
                "limit of all nodes: 0.5 of 2 messages a second to mx.x.test:25 here, 1 wanted",
                "waits: 9 messages of node 3: start node 3",
            ]
        );
    }
}

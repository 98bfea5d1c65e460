//! `mailrace cluster adopt`: mail of absent nodes, and its adoption by hand at the running node of this machine.

use crate::control_client::{Control, ControlTarget};
use crate::exit::{Exit, Failure};
use crate::output::{Output, Progress, count, thousands};
use clap::Args;
use operator::answers::{AbsentNode, AbsentNodesAnswer, AbsentStreamLine, HandAdoptionLine};
use operator::control::Request;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// The end of `--help`.
pub(super) const HELP: &str = "\
The mail of a node that is gone is adopted without this command within half a minute: by the node
whose engine has the copies, and if that one is gone too, by the first other node. Without --node
the command shows what has become of the mail of each absent node, and the next step where mail
waits.

With --node the running node of this machine adopts all that it can reach of the mail of node N,
whichever node holds it, without waiting until the streams are silent. It waits out the time in
which node N may still deliver, 13 s, in any case. The adoption goes on when this command is
interrupted. A node that runs keeps its mail: drain it, or stop it and wait 15 s.

Exit status:
   0  no mail of absent nodes (with --node: of node N) waits
  64  wrong arguments
  69  the server does not answer
  74  the server is no node of a cluster
  75  some mail waits, or nothing was begun: the text has the reason and the next step
  77  no permission";

#[derive(Debug, Args)]
pub(crate) struct AdoptArguments {
    #[command(flatten)]
    target: ControlTarget,
    /// Adopt the mail of this absent node
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=63))]
    node: Option<u16>,
    /// Only show the mail of absent nodes; nothing changes
    #[arg(long)]
    dry_run: bool,
    /// Print JSON
    #[arg(long)]
    json: bool,
}

/// Runs `mailrace cluster adopt`.
pub(super) fn run(arguments: &AdoptArguments) -> Result<Exit, Failure> {
    let mut control = Control::connect(&arguments.target.path())?;
    match arguments.node.filter(|_| !arguments.dry_run) {
        Some(node) => adopt(arguments, &mut control, node),
        None => show(arguments, &mut control),
    }
}

/// Shows the mail of absent nodes.
fn show(arguments: &AdoptArguments, control: &mut Control) -> Result<Exit, Failure> {
    let mut answer: AbsentNodesAnswer = control.ask_for(&Request::ClusterAdopt(None))?;
    answer.nodes.retain(|node| arguments.node.is_none_or(|wanted| wanted == node.node));
    let mut output = Output::new();
    if arguments.json {
        output.print_json(&json!(answer));
    } else {
        lines(&answer).into_iter().for_each(|line| output.print_line(line));
    }
    output.finish()?;
    let is_left = answer.nodes.iter().flat_map(|node| &node.streams).any(|stream| stream.left);
    Ok(if is_left { Exit::TryLater } else { Exit::Ok })
}

/// Adopts the mail of a node, and waits until nothing more can be tried.
fn adopt(arguments: &AdoptArguments, control: &mut Control, number: u16) -> Result<Exit, Failure> {
    control.request(&Request::ClusterAdopt(Some(number)))?;
    let (mut output, progress) = (Output::new(), Progress::new());
    let mut said: BTreeMap<(u16, u32), String> = BTreeMap::new();
    let (node, order) = loop {
        let answer: AbsentNodesAnswer = control.ask_for(&Request::ClusterAdopt(None))?;
        let node = answer.nodes.into_iter().find(|node| node.node == number);
        let Some((node, order)) = node.and_then(|node| Some((node.clone(), node.order?))) else {
            let text = format!("the server has started again and knows of no order for node {number}; try again");
            return Err(Failure::new(Exit::TryLater, text));
        };
        if !order.running {
            break (node, order);
        }
        if !arguments.json {
            for stream in &node.streams {
                let line = stream_line(stream);
                if said.insert((stream.holder, stream.generation), line.clone()).is_none_or(|before| before != line) {
                    progress.clear();
                    output.print_line(line);
                    output.flush();
                }
            }
            progress.show(format!("{} adopted, {} s", thousands(order.adopted), order.time_ms / 1_000));
        }
    };
    progress.clear();
    let left: Vec<&AbsentStreamLine> = node.streams.iter().filter(|stream| stream.left && !order.node_back).collect();
    if arguments.json {
        output.print_json(&report(number, &order, &left));
    } else {
        output.print_line(result_line(number, &order));
        left.iter().for_each(|stream| output.print_line(format!("left: {}", stream_line(stream))));
    }
    output.finish()?;
    Ok(if left.is_empty() { Exit::Ok } else { Exit::TryLater })
}

fn report(number: u16, order: &HandAdoptionLine, left: &[&AbsentStreamLine]) -> Value {
    json!({
        "node": number,
        "adopted": order.adopted,
        "time_ms": order.time_ms,
        "node_back": order.node_back,
        "left": left,
    })
}

fn result_line(number: u16, order: &HandAdoptionLine) -> String {
    let back = if order.node_back { "; it is back, and the rest is its own" } else { "" };
    let seconds = order.time_ms.div_ceil(1_000);
    format!("adopted {} of node {number} in {seconds} s{back}", count(order.adopted, "message"))
}

/// The answer as lines.
fn lines(answer: &AbsentNodesAnswer) -> Vec<String> {
    let absent: Vec<&AbsentNode> = answer.nodes.iter().filter(|node| !node.streams.is_empty()).collect();
    if absent.is_empty() {
        return vec![format!("no node with mail is absent, as node {} sees it", answer.node)];
    }
    let mut lines = Vec::new();
    for node in absent {
        lines.push(format!("node {} is absent", node.node));
        lines.extend(node.streams.iter().map(|stream| format!("  {}", stream_line(stream))));
    }
    lines
}

fn stream_line(stream: &AbsentStreamLine) -> String {
    let messages = match stream.messages {
        Some(messages) => format!(", {}", count(messages, "message")),
        None if stream.left => ", number of messages not known".to_owned(),
        None => String::new(),
    };
    let taken = match stream.taken {
        Some(taken) if taken > 0 => format!(", {} taken", thousands(taken)),
        _ => String::new(),
    };
    let next = if stream.next.is_empty() { String::new() } else { format!("; next: {}", stream.next) };
    format!("copies at node {}{messages}: {}{taken}{next}", stream.holder, stream.why)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stream(holder: u16, messages: Option<u64>, why: &str, next: &str) -> AbsentStreamLine {
        let (why, next, left) = (why.to_owned(), next.to_owned(), !next.is_empty());
        AbsentStreamLine { holder, messages, why, next, left, ..AbsentStreamLine::default() }
    }

    #[test]
    fn absent_nodes_in_lines() {
        let streams = vec![
            stream(2, None, "node 2 has adopted it", ""),
            stream(3, Some(1_200), "the engine of node 3 does not answer", "start it"),
            AbsentStreamLine { taken: Some(5), ..stream(4, None, "node 2 adopts it, step take", "wait") },
        ];
        let order = Some(HandAdoptionLine { adopted: 3, ..HandAdoptionLine::default() });
        let back = AbsentNode { node: 5, order, ..AbsentNode::default() };
        let answer = AbsentNodesAnswer { node: 2, nodes: vec![AbsentNode { node: 1, streams, order: None }, back] };
        assert_eq!(
            lines(&answer),
            [
                "node 1 is absent",
                "  copies at node 2: node 2 has adopted it",
                "  copies at node 3, 1,200 messages: the engine of node 3 does not answer; next: start it",
                "  copies at node 4, number of messages not known: node 2 adopts it, step take, 5 taken; next: wait",
            ]
        );
        let none = AbsentNodesAnswer { node: 2, nodes: Vec::new() };
        assert_eq!(lines(&none), ["no node with mail is absent, as node 2 sees it"]);
    }

    #[test]
    fn the_result_says_what_was_adopted_and_whether_the_node_is_back() {
        let order = HandAdoptionLine { adopted: 1, time_ms: 13_400, running: false, node_back: false };
        assert_eq!(result_line(3, &order), "adopted 1 message of node 3 in 14 s");
        let back = HandAdoptionLine { adopted: 2_000, node_back: true, ..order };
        let expected = "adopted 2,000 messages of node 3 in 14 s; it is back, and the rest is its own";
        assert_eq!(result_line(3, &back), expected);
    }
}
